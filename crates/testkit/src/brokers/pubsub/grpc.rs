//! Unary gRPC calls on the server's side: HTTP/2, one message each way, and the status in the trailers. Google's client asks
//! for topics by REST, so `GET` is answered as well, by HTTP/1.1 and with one request for each connection.
//!
//! A handler that never answers leaves its call open, as a server does that hangs.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use h2::server::SendResponse;
use h2::{RecvStream, server};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// So much may be on its way in one call and on one connection: more than the largest request.
const WINDOW: u32 = 16 * 1024 * 1024;

/// What answers calls.
#[async_trait]
pub(super) trait Handler: Send + Sync + 'static {
    /// The answer to a request, by the path of its method.
    async fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>, Status>;

    /// The answer to a `GET`: a status of HTTP and JSON.
    fn get(&self, path: &str) -> (u16, String);
}

/// Serves one connection until it ends. Dropping this closes it at once.
pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(connection: T, handler: Arc<dyn Handler>) -> Result<()> {
    let mut connection = BufReader::new(connection);
    if connection.fill_buf().await?.starts_with(b"GET ") {
        return rest(connection, &*handler).await;
    }
    let mut builder = server::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let mut connection = builder.handshake(connection).await?;
    let mut calls = JoinSet::new();
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        let handler = Arc::clone(&handler);
        // Whoever went away needs no answer.
        calls.spawn(async move { answer(request, respond, &*handler).await.ok() });
    }
    Ok(())
}

async fn rest<T: AsyncRead + AsyncWrite + Unpin>(mut connection: BufReader<T>, handler: &dyn Handler) -> Result<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(connection.read_line(&mut head).await? > 0, "the request ended too early");
    }
    let path = head.split(' ').nth(1).context("no path")?;
    let path = path.split('?').next().unwrap_or_default();
    let (status, body) = handler.get(path);
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    connection.write_all(answer.as_bytes()).await?;
    Ok(connection.shutdown().await?)
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, handler: &dyn Handler) -> Result<()> {
    let path = request.uri().path().to_owned();
    let body = read(request.into_body()).await?;
    let answer = handler.call(&path, body.get(5..).context("no frame")?).await;
    let response = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut stream = respond.send_response(response, false)?;
    let code = match &answer {
        Ok(message) => {
            let mut frame = vec![0];
            frame.extend(u32::try_from(message.len())?.to_be_bytes());
            frame.extend(message);
            stream.send_data(frame.into(), false)?;
            Code::Ok
        }
        Err(status) => status.code(),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code as i32));
    if let Err(status) = &answer {
        // Ours are plain ASCII, so nothing is to be escaped.
        trailers.insert("grpc-message", HeaderValue::from_str(status.message())?);
    }
    Ok(stream.send_trailers(trailers)?)
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    ensure!(bytes.first() == Some(&0), "the message is compressed");
    Ok(bytes)
}
