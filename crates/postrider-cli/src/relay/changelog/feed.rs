//! Bodies for clients that may be slow, or not read at all.
//!
//! Nobody asks a body for its next chunk while a client does not read, so a body cannot give up by itself. A task feeds it
//! instead: it holds the place that the answer takes, and lets go of it when a chunk is not taken in time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream::{self, Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a chunk may wait for its client.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(60);
/// The largest piece of a page that is handed on at a time.
const PIECE: usize = 64 << 10;

type Chunk = Result<Bytes, std::io::Error>;

/// A body of these chunks, until it is told to stop, or the client takes none for `patience`.
pub fn body(
    chunks: impl Stream<Item = Bytes> + Send + 'static,
    permit: OwnedSemaphorePermit,
    patience: Duration,
    stop: CancellationToken,
) -> Body {
    let (sender, receiver) = channel::<Chunk>(1);
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = sender.closed() => {}
            () = feed(chunks, &sender, patience) => {}
        }
    });
    let next = |mut receiver: Receiver<Chunk>| async move { receiver.recv().await.map(|chunk| (chunk, receiver)) };
    Body::from_stream(stream::unfold(receiver, next))
}

async fn feed(chunks: impl Stream<Item = Bytes>, sender: &Sender<Chunk>, patience: Duration) {
    let mut chunks = std::pin::pin!(chunks);
    while let Some(chunk) = chunks.next().await {
        if !matches!(timeout(patience, sender.send(Ok(chunk))).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// A text in pieces, so that no more of it than necessary waits for a slow client.
pub fn pieces(text: Vec<u8>) -> impl Stream<Item = Bytes> + Send {
    let rest = Bytes::from(text);
    stream::unfold(rest, |mut rest| async move {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then_some((piece, rest))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream::repeat_with;
    use tokio::sync::Semaphore;

    use super::*;

    fn endless() -> impl Stream<Item = Bytes> + Send {
        repeat_with(|| Bytes::from_static(b"line\n"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_place() -> anyhow::Result<()> {
        let places = Arc::new(Semaphore::new(1));
        let permit = places.clone().try_acquire_owned()?;
        let mut body = body(endless(), permit, CLIENT_PATIENCE, CancellationToken::new()).into_data_stream();
        for _ in 0..1_000 {
            assert_eq!(body.next().await.transpose()?.as_deref(), Some(b"line\n".as_slice()));
        }
        assert_eq!(places.available_permits(), 0, "who reads keeps it");
        let _again = timeout(CLIENT_PATIENCE * 2, places.acquire()).await??;
        let left: Vec<_> = body.collect().await;
        assert!(left.len() <= 1, "{left:?}");
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_goes_away_and_a_stop_give_the_place_back_at_once() -> anyhow::Result<()> {
        let places = Arc::new(Semaphore::new(1));
        let quiet = || stream::pending::<Bytes>();
        let stop = CancellationToken::new();
        let permit = places.clone().acquire_owned().await?;
        drop(body(quiet(), permit, CLIENT_PATIENCE, stop.clone()));
        let permit = timeout(CLIENT_PATIENCE / 6, places.clone().acquire_owned()).await??;
        let body = body(quiet(), permit, CLIENT_PATIENCE, stop.clone());
        stop.cancel();
        let _permit = timeout(CLIENT_PATIENCE / 6, places.acquire()).await??;
        assert!(body.into_data_stream().next().await.is_none());
        Ok(())
    }

    #[tokio::test]
    async fn pieces_are_the_whole() {
        for length in [0, 1, PIECE, PIECE + 1, 3 * PIECE] {
            let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let pieces: Vec<Bytes> = pieces(text.clone()).collect().await;
            assert!(pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
            assert_eq!(pieces.concat(), text);
        }
    }
}
