//! A worker of one tenant touches nobody else's rows, whatever it does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::store::{ClaimOrder, ClaimRequest, Order, Scope};
use postrider::{ClaimedMessage, Dispatcher, PublishError, State, callback};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::harness::{Harness, RowView};
use super::scene::*;

fn of(tenant: Uuid) -> Scope {
    Scope { namespaces: None, tenant: Some(tenant) }
}

pub async fn s08_every_claim_keeps_to_its_tenant_also_with_order_by_key(h: impl Harness) {
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    // Nobody's key is anybody else's, so that nobody waits for another tenant.
    let keyed = |tenant: Option<Uuid>, key: &str| match tenant {
        Some(tenant) => message().tenant(tenant).key(key),
        None => message().key(key),
    };
    let placed = h.put_all([keyed(Some(theirs), "a"), keyed(None, "b"), keyed(Some(ours), "c")]).await;
    for waits in [Order::None, Order::Key] {
        for order in [ClaimOrder::Due, ClaimOrder::Fair { after: None }] {
            let asked = ClaimRequest { scope: of(ours), order, waits, ..request(Uuid::new_v4()) };
            let claimed = h.claim(&asked).await;
            assert_eq!(ids(&claimed), [placed[2]], "{asked:?}");
            h.store().release(&[release(claimed[0].lease)]).await.expect("the store releases");
        }
    }
    // Their rows become suspects of killing workers; ours does not.
    for _ in 0..3 {
        h.claim(&ClaimRequest { scope: of(theirs), order: ClaimOrder::Due, ..request(Uuid::new_v4()) }).await;
        h.expire().await;
    }
    assert_eq!(ids(&h.claim(&ClaimRequest { scope: of(ours), ..suspects() }).await), NONE);
    assert_eq!(ids(&h.claim(&ClaimRequest { scope: of(theirs), ..suspects() }).await), [placed[0]]);
}

/// Rows of others in all states that a dispatcher changes: due, with a lease that is over, with spent attempts, suspect,
/// delivered and dead long ago.
async fn rows_of(h: &impl Harness, tenant: Option<Uuid>) -> Vec<Uuid> {
    let message = || tenant.map_or_else(message, |tenant| message().tenant(tenant));
    let mut ids = Vec::new();
    for finish in [State::Delivered, State::Dead, State::Processing] {
        let claimed = h.put_and_claim(message()).await;
        match finish {
            State::Delivered => ack(&*h.store(), claimed.lease).await,
            State::Dead => give_up(&*h.store(), claimed.lease).await,
            _ => {}
        }
        ids.push(claimed.id);
    }
    ids.push(h.put_and_claim(message().max_attempts(1)).await.id);
    ids.push(h.put(message()).await);
    ids
}

pub async fn s08_a_dispatcher_of_one_tenant_leaves_the_rows_of_others_as_they_are(h: impl Harness) {
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    let mut others = rows_of(&h, None).await;
    // What is due of nobody's must not be claimed while rows of another tenant are made.
    h.claim_all(Uuid::new_v4()).await;
    others.extend(rows_of(&h, Some(theirs)).await);
    h.claim_all(Uuid::new_v4()).await;
    h.pass_time(HOUR).await;
    others.push(h.put(message().tenant(theirs)).await);
    others.push(h.put(message()).await);
    let mine = h.put_all((0..3).map(|_| message().tenant(ours))).await;
    let before: Vec<RowView> = h.rows().await.into_iter().filter(|row| others.contains(&row.id)).collect();
    assert_eq!(before.len(), 12);

    let seen: Arc<Mutex<Vec<Option<Uuid>>>> = Arc::default();
    let sink = callback({
        let seen = seen.clone();
        move |message: ClaimedMessage| {
            seen.lock().expect("nobody panics with it").push(message.tenant_id);
            async { Ok::<(), PublishError>(()) }
        }
    });
    let stop = CancellationToken::new();
    let store: Arc<dyn postrider::Store> = h.store();
    let dispatcher = Dispatcher::builder_shared(store, Arc::new(sink))
        .scope(of(ours))
        .sweep_interval(Duration::from_millis(20))
        .purge_delivered_after(SECOND)
        .purge_dead_after(SECOND)
        .build()
        .expect("the settings agree");
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let delivered = || async {
        let rows = h.rows().await;
        rows.iter().filter(|row| mine.contains(&row.id) && row.status == State::Delivered).count() == mine.len()
    };
    crate::eventually(Duration::from_secs(120), delivered).await;
    // Sweeps, and the first purge, have come by.
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.cancel();
    let _ended = running.await.expect("it does not panic");
    let after: Vec<RowView> = h.rows().await.into_iter().filter(|row| others.contains(&row.id)).collect();
    assert_eq!(after, before);
    assert_eq!(*seen.lock().expect("nobody panics with it"), vec![Some(ours); 3]);
}
