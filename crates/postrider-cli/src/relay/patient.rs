//! Connections that are given up when the other side takes nothing for long.
//!
//! An answer that nobody reads fills the buffers of its connection, and then nobody asks its body for more: so it is the
//! connection that has to look at the clock.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

/// A listener whose connections have only so much patience with who does not read.
pub struct PatientListener {
    pub listener: TcpListener,
    pub patience: Duration,
}

impl Listener for PatientListener {
    type Io = Patient<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Patient { stream, patience: self.patience, waits: None }, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when nothing could be written for a while.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// How long is still waited, if the other side takes nothing now.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn watch<T>(&mut self, context: &mut Context<'_>, done: Poll<Result<T>>) -> Poll<Result<T>> {
        if done.is_ready() {
            self.waits = None;
            return done;
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits.as_mut().poll(context).map(|()| Err(Error::new(ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Bytes;
    use axum::routing::get;
    use futures::stream::repeat_with;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::relay::changelog::feed;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_for_long_cannot_be_written_any_more() -> Result<()> {
        let patience = Duration::from_secs(60);
        let (stream, mut other) = tokio::io::duplex(4);
        let mut patient = Patient { stream, patience, waits: None };
        for _ in 0..3 {
            patient.write_all(b"line").await?;
            let read = async {
                sleep(patience / 2).await;
                other.read_exact(&mut [0; 4]).await
            };
            let (written, read) = tokio::join!(patient.write_all(b"more"), read);
            written.and(read.map(drop))?;
            other.read_exact(&mut [0; 4]).await?;
        }
        patient.write_all(b"line").await?;
        let failed = patient.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_loses_its_place_and_its_connection() -> anyhow::Result<()> {
        let patience = Duration::from_millis(200);
        let places = Arc::new(Semaphore::new(1));
        let given = places.clone();
        let endless = move || async move {
            let lines = repeat_with(|| Bytes::from_static(&[b'x'; 10_000]));
            let permit = given.clone().acquire_owned().await.expect("a place");
            // It is the connection that gives up.
            feed::body(lines, permit, feed::CLIENT_PATIENCE, CancellationToken::new())
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new().route("/", get(endless));
        let serving = tokio::spawn(async move { axum::serve(PatientListener { listener, patience }, app).await });
        let mut client = TcpStream::connect(address).await?;
        client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await?;
        client.read_exact(&mut [0; 100]).await?;
        assert_eq!(places.available_permits(), 0, "it is answered");
        let _place = timeout(Duration::from_secs(20), places.acquire()).await??;
        // What was on its way comes, and then the end, which is no proper one.
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(20), client.read_to_end(&mut rest)).await?;
        assert!(ended.is_err() || !rest.ends_with(b"0\r\n\r\n"), "{ended:?}");
        serving.abort();
        Ok(())
    }
}
