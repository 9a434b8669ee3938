//! The examples of `docs/guides/testing.md`.

use std::time::Duration;

use postrider::memory::ManualClock;
use postrider::{CallerTransaction, Dispatcher, EnqueueError, MemoryStore, Message, Outbox, PublishError, callback};
use tokio_util::sync::CancellationToken;

async fn place_order(outbox: &Outbox, transaction: impl CallerTransaction, order: u32) -> Result<(), EnqueueError> {
    let message = Message::json("shop", "order.placed", &order);
    outbox.enqueue(transaction, message).await.map(|_| ())
}

#[tokio::test]
async fn an_order_sends_one_message() -> Result<(), EnqueueError> {
    let store = MemoryStore::new();
    let mut transaction = store.begin();
    place_order(&store.outbox(), &mut transaction, 7).await?;
    store.assert_nothing_enqueued(); // not before the commit
    transaction.commit();
    let message = store.assert_enqueued_once("shop", "order.placed");
    assert_eq!(message.payload.as_bytes(), b"7");
    Ok(())
}

#[tokio::test]
async fn a_failed_delivery_is_tried_again() -> anyhow::Result<()> {
    let clock = ManualClock::default();
    let store = MemoryStore::with_clock(clock.clone());
    let mut transaction = store.begin();
    place_order(&store.outbox(), &mut transaction, 7).await?;
    transaction.commit();

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let _ = tell.send(message.attempts);
        async move { if message.attempts == 1 { Err(PublishError::retry("busy")) } else { Ok(()) } }
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Dispatcher::builder(store.clone(), sink).build()?.run(stop.clone()));
    assert_eq!(told.recv().await, Some(1));
    while store.enqueued()[0].last_error.is_none() {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(1)); // the longest first delay
    assert_eq!(told.recv().await, Some(2));
    stop.cancel();
    assert_eq!(running.await?.abandoned, 0);
    Ok(())
}
