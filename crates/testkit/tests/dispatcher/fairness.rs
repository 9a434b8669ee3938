//! One hot lane among others.

use std::time::Duration;

use postrider::{Message, Scope};
use testkit::eventually;
use uuid::Uuid;

use crate::scene::{OnPostgres, Recorder, Running};

const HOT: usize = 30_000;
const SMALL_TENANTS: u128 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_hot_tenant_does_not_starve_the_others() {
    let scene = OnPostgres::new().await;
    let outbox = scene.store.outbox();
    let mut transaction = scene.pool.begin().await.expect("a transaction begins");
    for _ in 0..HOT / 1_000 {
        let hot = (0..1_000).map(|_| Message::json("shop", "bulk", &1).tenant(Uuid::from_u128(1_000)));
        outbox.enqueue_many(&mut transaction, hot).await.expect("good messages");
    }
    transaction.commit().await.expect("it commits");
    let mut small = Vec::new();
    for tenant in 0..SMALL_TENANTS {
        let message = Message::json("shop", "order", &1).tenant(Uuid::from_u128(tenant + 1));
        small.push(scene.enqueue(message).await.id());
    }
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink.clone()).scope(Scope::namespace("shop")));
    eventually(Duration::from_secs(60), || async { scene.count("delivered").await >= 20 }).await;
    eventually(Duration::from_secs(60), || async {
        let arrivals = sink.arrivals();
        small.iter().all(|id| arrivals.iter().any(|arrival| arrival.id == *id))
    })
    .await;
    let arrivals = sink.arrivals();
    let last = arrivals.iter().rposition(|arrival| small.contains(&arrival.id)).expect("they arrived");
    assert!(last < HOT / 4, "the last of the small tenants' messages came after {last} others");
    let _ended = running.stop().await;
}
