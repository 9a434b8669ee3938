//! A relay and an operator that are scoped to one tenant, on every database: every verb, and nothing of another tenant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use postrider::operate::{Change, Filter};
use postrider::store::{Bury, ClaimOrder, ClaimRequest, Delivered, Finished, Nack, Order, Purge, Release};
use postrider::{AnyStore, ClaimedMessage, Connect, Dispatcher, Message, PublishError, Scope, callback};
use testkit::{MariaDb, eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scene::{Scene, order};

/// An outbox by what each of its users logs in as.
struct Outbox {
    /// Writes for any tenant, and sees all.
    admin: AnyStore,
    relay: AnyStore,
    operator: AnyStore,
    _kept: Kept,
}

#[allow(dead_code)] // they are dropped with their databases
enum Kept {
    Scene(Box<Scene>),
    Directory(tempfile::TempDir),
    Nothing,
}

async fn each() -> Result<[Outbox; 3]> {
    let scene = Scene::protected().await?;
    let postgres = Outbox {
        admin: scene.open("postgres").await?,
        relay: scene.open(scene.roles.relay()).await?,
        operator: scene.open(scene.roles.operator()).await?,
        _kept: Kept::Scene(scene.into()),
    };
    let options = Connect { create: true, ..Connect::default() };
    let directory = tempfile::tempdir()?;
    let sqlite = AnyStore::connect(&format!("sqlite:{}/shop.db", directory.path().display()), &options).await?;
    let mysql = AnyStore::connect(&MariaDb::shared().await?.create_database().await?.url(), &options).await?;
    let plain =
        |store: AnyStore, kept| Outbox { admin: store.clone(), relay: store.clone(), operator: store, _kept: kept };
    sqlite.migrate().await?;
    mysql.migrate().await?;
    Ok([postgres, plain(mysql, Kept::Nothing), plain(sqlite, Kept::Directory(directory))])
}

fn of(tenant: Uuid) -> Scope {
    Scope { namespaces: None, tenant: Some(tenant) }
}

fn request(scope: Scope, order: ClaimOrder, waits: Order) -> ClaimRequest {
    ClaimRequest {
        scope,
        worker: Uuid::new_v4(),
        limit: 100,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(60),
        max_attempts: 3,
        order,
        waits,
        followers: 100,
        thorough: false,
    }
}

impl Outbox {
    /// Some messages of a tenant, or of none.
    async fn put(&self, tenant: Option<Uuid>, messages: usize) -> Result<()> {
        let messages = (0..messages).map(|n| match tenant {
            Some(tenant) => order(tenant, n).key("one for all"),
            None => Message::json("shop", "order", &n).key("one for all"),
        });
        self.admin.enqueue(messages.collect()).await?;
        Ok(())
    }

    async fn claim(&self, scope: Scope) -> Result<Vec<ClaimedMessage>> {
        let request = request(scope, ClaimOrder::Due, Order::None);
        Ok(self.relay.store().claim(&request).await?.messages)
    }

    /// What there is of everybody, by tenant and state.
    async fn everything(&self) -> Result<BTreeMap<String, u64>> {
        let tallies = self.admin.operator().overview(&Scope::all(), true).await?;
        let mut counts = BTreeMap::new();
        for tally in tallies {
            *counts.entry(format!("{:?}", tally.state)).or_default() += tally.messages;
        }
        Ok(counts)
    }
}

#[tokio::test]
async fn s08_a_claim_of_one_tenant_in_any_order_takes_nothing_of_another() -> Result<()> {
    for outbox in each().await? {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        for tenant in [Some(two), None, Some(one)] {
            outbox.put(tenant, 4).await?;
        }
        for (order, waits) in [
            (ClaimOrder::Due, Order::None),
            (ClaimOrder::Fair { after: None }, Order::None),
            (ClaimOrder::Suspects, Order::None),
            (ClaimOrder::Due, Order::Key),
            (ClaimOrder::Fair { after: None }, Order::Key),
            (ClaimOrder::Suspects, Order::Key),
        ] {
            let claimed = outbox.relay.store().claim(&request(of(one), order, waits)).await?.messages;
            assert!(claimed.iter().all(|message| message.tenant_id == Some(one)), "{claimed:?}");
            let back =
                claimed.iter().map(|message| Release { lease: message.lease, delay: Duration::ZERO, error: None });
            outbox.relay.store().release(&back.collect::<Vec<_>>()).await?;
        }
        assert_eq!(outbox.claim(of(one)).await?.len(), 4, "{}", outbox.relay.kind());
        assert_eq!(outbox.relay.store().stats(&of(one)).await?.processing, 4);
        assert_eq!(outbox.relay.store().stats(&of(two)).await?.pending, 4);
        assert!(outbox.relay.store().next_due(&of(one)).await?.is_some());
        assert_eq!(outbox.relay.store().next_due(&of(Uuid::new_v4())).await?, None);
    }
    Ok(())
}

#[tokio::test]
async fn s08_an_operator_of_one_tenant_sees_replays_discards_and_purges_nothing_of_another() -> Result<()> {
    for outbox in each().await? {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        for (tenant, messages) in [(Some(one), 3), (Some(two), 5), (None, 7)] {
            outbox.put(tenant, messages).await?;
        }
        let claimed = outbox.claim(Scope::all()).await?;
        let bury = |message: &ClaimedMessage| Bury { lease: message.lease, error: "no".into() };
        outbox.relay.store().bury(&claimed.iter().map(bury).collect::<Vec<_>>()).await?;
        let operator = outbox.operator.operator();
        let filter = || Filter { scope: of(one), ..Filter::default() };
        let dead = operator.dead(&filter(), None, 100).await?;
        assert!(dead.len() == 3 && dead.iter().all(|record| record.tenant_id == Some(one)), "{dead:?}");
        assert_eq!(operator.count_dead(&filter()).await?, 3);
        let tallies = operator.overview(&of(one), true).await?;
        assert_eq!(tallies.iter().map(|tally| tally.messages).sum::<u64>(), 3);
        // Ids of another tenant do not help.
        let theirs = operator.dead(&Filter { scope: of(two), ..Filter::default() }, None, 100).await?;
        let ids = Some(theirs.iter().map(|record| record.id).collect());
        let change = |filter: Filter, limit| Change { who: "tests".into(), filter, limit };
        let stolen = || change(Filter { ids: Option::clone(&ids), ..filter() }, 100);
        assert!(operator.replay(&stolen()).await?.is_empty());
        assert!(operator.discard(&stolen()).await?.is_empty());
        assert_eq!(operator.replay(&change(filter(), 1)).await?.len(), 1);
        assert_eq!(operator.discard(&change(filter(), 1)).await?.len(), 1);
        let purge = Purge { scope: of(one), finished: Finished::Dead, older_than: Duration::ZERO, limit: 100 };
        assert_eq!(operator.count_purge(&purge).await?, 1);
        assert_eq!(operator.purge_as("tests", &purge).await?, 1);
        let left: BTreeMap<String, u64> = [("Pending".to_owned(), 1), ("Dead".to_owned(), 12)].into();
        assert_eq!(outbox.everything().await?, left, "{}", outbox.relay.kind());
        assert_eq!(operator.audit(10).await?.len(), 3);
        let purge = Purge { finished: Finished::Dead, ..purge };
        assert_eq!(outbox.relay.store().purge(&purge).await?, 0);
        assert_eq!(outbox.everything().await?, left);
    }
    Ok(())
}

#[tokio::test]
async fn s08_a_sweep_of_one_tenant_buries_nothing_of_another() -> Result<()> {
    for outbox in each().await? {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        outbox.put(Some(one), 2).await?;
        outbox.put(Some(two), 2).await?;
        let claimed = outbox.claim(Scope::all()).await?;
        let nack = |message: &ClaimedMessage| Nack { lease: message.lease, delay: Duration::ZERO, error: "no".into() };
        outbox.relay.store().nack(&claimed.iter().map(nack).collect::<Vec<_>>()).await?;
        // One attempt is spent, and from now on one is all there is.
        let swept = outbox.relay.store().sweep(&of(one), 1, 100).await?;
        assert_eq!(swept.buried.len(), 2, "{}", outbox.relay.kind());
        assert_eq!(outbox.relay.store().stats(&of(two)).await?.pending, 2);
        assert_eq!(outbox.relay.store().stats(&of(two)).await?.dead, 0);
    }
    Ok(())
}

#[tokio::test]
async fn s08_a_dispatcher_of_one_tenant_delivers_all_of_it_and_nothing_of_another() -> Result<()> {
    for outbox in each().await? {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        for tenant in [Some(one), Some(two), None] {
            outbox.put(tenant, 20).await?;
        }
        let arrived: Arc<Mutex<Vec<Option<Uuid>>>> = Arc::default();
        let sink = callback({
            let arrived = arrived.clone();
            move |message: ClaimedMessage| {
                arrived.lock().expect("no panic").push(message.tenant_id);
                async { Ok::<(), PublishError>(()) }
            }
        });
        let stop = CancellationToken::new();
        let dispatcher = Dispatcher::builder_shared(outbox.relay.store(), Arc::new(sink)).scope(of(one));
        let running = tokio::spawn(dispatcher.delivered(Delivered::Keep).build()?.run(stop.clone()));
        let all = || async { arrived.lock().expect("no panic").len() >= 20 };
        eventually(Duration::from_secs(120), all).await;
        // Enqueued while it sleeps: it is woken, or finds it by polling.
        outbox.put(Some(two), 1).await?;
        outbox.put(Some(one), 1).await?;
        eventually(Duration::from_secs(120), || async { arrived.lock().expect("no panic").len() >= 21 }).await;
        stop.cancel();
        assert_eq!(running.await?.abandoned, 0);
        let arrived = arrived.lock().expect("no panic").clone();
        assert!(arrived.iter().all(|tenant| *tenant == Some(one)), "{arrived:?}");
        assert_eq!(outbox.admin.store().stats(&of(two)).await?.pending, 21);
    }
    Ok(())
}
