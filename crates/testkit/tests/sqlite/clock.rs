//! A clock that is set back makes nothing late, and one that is set forward loses nothing.

use std::time::Duration;

use postrider::sqlite::ManualClock;
use postrider::store::{Delivered, Nack, Release, Scope};
use postrider::{Message, Settled, SqliteStore, Store};
use uuid::Uuid;

use super::scene::{OnFile, claim, message, put};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// From just over what is tolerated to half a day.
const JUMPS: [Duration; 4] =
    [Duration::from_millis(150), Duration::from_secs(45), Duration::from_secs(3_600), Duration::from_secs(43_200)];

struct Scene {
    file: OnFile,
    store: SqliteStore,
    clock: ManualClock,
}

impl Scene {
    async fn new() -> Self {
        let (file, clock) = (OnFile::new().await, ManualClock::default());
        let store = file.again().await.with_clock(clock.clone());
        // The relay has been running: it has seen the time.
        put(&store, message()).await;
        let seen = claim(&store, SECOND).await;
        store.ack(&[seen[0].lease], Delivered::Keep).await.expect("it is noted");
        Self { file, store, clock }
    }

    async fn another_relay(&self) -> SqliteStore {
        self.file.again().await.with_clock(self.clock.clone())
    }
}

/// Claims until nothing is left; answers the ids.
async fn claimed(store: &SqliteStore) -> Vec<Uuid> {
    claim(store, LEASE).await.iter().map(|message| message.id).collect()
}

#[tokio::test]
async fn a_lease_keeps_its_length() {
    for jump in JUMPS {
        let scene = Scene::new().await;
        put(&scene.store, message()).await;
        let lost = claimed(&scene.store).await;
        scene.clock.set_back(jump);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "{jump:?}: the lease is not over");
        scene.clock.advance(LEASE - SECOND);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "{jump:?}: the lease is not over");
        scene.clock.advance(SECOND * 2);
        assert_eq!(claimed(&scene.store).await, lost, "{jump:?}: it is over");
    }
}

#[tokio::test]
async fn a_back_off_keeps_its_length() {
    for jump in JUMPS {
        let scene = Scene::new().await;
        let id = put(&scene.store, message()).await;
        let failed = claim(&scene.store, LEASE).await;
        let nack = Nack { lease: failed[0].lease, delay: LEASE, error: "down".into() };
        assert_eq!(scene.store.nack(&[nack]).await.expect("it is noted"), [Settled::Done]);
        scene.clock.set_back(jump);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "{jump:?}: it still waits");
        scene.clock.advance(LEASE - SECOND);
        assert!(!claimed(&scene.store).await.contains(&id), "{jump:?}: it still waits");
        scene.clock.advance(SECOND * 2);
        assert!(claimed(&scene.store).await.contains(&id), "{jump:?}: its time has come");
    }
}

#[tokio::test]
async fn a_released_row_keeps_its_delay() {
    let scene = Scene::new().await;
    let id = put(&scene.store, message()).await;
    scene.clock.advance(SECOND);
    let given_back = claim(&scene.store, LEASE).await;
    let release = Release { lease: given_back[0].lease, delay: LEASE, error: None };
    scene.store.release(&[release]).await.expect("it is given back");
    scene.clock.set_back(SECOND * 3_600);
    claimed(&scene.store).await;
    scene.clock.advance(LEASE + SECOND);
    assert!(claimed(&scene.store).await.contains(&id));
}

#[tokio::test]
async fn a_fresh_row_stays_due() {
    for jump in JUMPS {
        let scene = Scene::new().await;
        let before = put(&scene.store, message()).await;
        scene.clock.set_back(jump);
        let after = put(&scene.store, message()).await;
        assert_eq!(claimed(&scene.store).await.len(), 2, "{jump:?}: {before} and {after}");
    }
}

#[tokio::test]
async fn a_delivery_time_is_a_time_of_the_day() {
    let scene = Scene::new().await;
    let in_an_hour = message().deliver_after(SECOND * 3_600);
    let id = put(&scene.store, in_an_hour).await;
    scene.clock.set_back(SECOND * 1_800);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0]);
    scene.clock.advance(SECOND * 3_600);
    assert!(!claimed(&scene.store).await.contains(&id), "it is half past, and the row is for the full hour");
    scene.clock.advance(SECOND * 1_801);
    assert!(claimed(&scene.store).await.contains(&id));
}

#[tokio::test]
async fn several_relays_repair_once() {
    for jump in JUMPS {
        let scene = Scene::new().await;
        let other = scene.another_relay().await;
        other.stats(&Scope::all()).await.expect("it runs");
        put(&scene.store, message()).await;
        let lost = claimed(&scene.store).await;
        scene.clock.set_back(jump);
        for store in [&scene.store, &other, &scene.store, &other] {
            assert_eq!(claimed(store).await, [] as [Uuid; 0], "{jump:?}: the lease is not over");
        }
        scene.clock.advance(LEASE - SECOND);
        assert_eq!(claimed(&other).await, [] as [Uuid; 0], "{jump:?}: the lease was not shortened twice");
        scene.clock.advance(SECOND * 2);
        assert_eq!(claimed(&other).await, lost, "{jump:?}");
    }
}

#[tokio::test]
async fn a_settle_that_comes_first_repairs_too() {
    let scene = Scene::new().await;
    put(&scene.store, message()).await;
    let held = claim(&scene.store, LEASE).await;
    put(&scene.store, message()).await;
    let failed = claim(&scene.store, LEASE).await;
    scene.clock.set_back(SECOND * 3_600);
    let nack = Nack { lease: failed[0].lease, delay: SECOND * 5, error: "down".into() };
    scene.store.nack(&[nack]).await.expect("it is noted");
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0]);
    scene.clock.advance(SECOND * 4);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "the delay counts from the new time");
    scene.clock.advance(SECOND * 2);
    assert_eq!(claimed(&scene.store).await, [failed[0].id]);
    assert_eq!(scene.store.ack(&[held[0].lease], Delivered::Keep).await.expect("it is noted"), [Settled::Done]);
}

/// The mark is old, because no relay ran when the rows were written.
#[tokio::test]
async fn rows_that_were_written_while_no_relay_ran_stay_due() {
    let scene = Scene::new().await;
    scene.clock.advance(SECOND * 7_200);
    let stranded = put(&scene.store, message()).await;
    scene.clock.set_back(SECOND * 3_600);
    let later = put(&scene.store, message()).await;
    let started = scene.another_relay().await;
    let got = claimed(&started).await;
    assert!(got.contains(&stranded) && got.contains(&later), "{got:?}");
}

#[tokio::test]
async fn the_newest_row_is_noticed_by_a_relay_that_had_nothing_to_write() {
    let scene = Scene::new().await;
    scene.clock.advance(SECOND * 7_200);
    let stranded = put(&scene.store, message()).await;
    scene.clock.set_back(SECOND * 3_600);
    assert!(claimed(&scene.store).await.contains(&stranded));
}

#[tokio::test]
async fn a_clock_set_forward_ends_leases_early_and_the_fence_holds() {
    let scene = Scene::new().await;
    put(&scene.store, message()).await;
    let first = claim(&scene.store, LEASE).await;
    scene.clock.advance(SECOND * 43_200);
    let second = claim(&scene.store, LEASE).await;
    assert_eq!(first[0].id, second[0].id);
    let late = scene.store.ack(&[first[0].lease], Delivered::Keep).await.expect("it is answered");
    assert_eq!(late, [Settled::LeaseLost]);
    let good = scene.store.ack(&[second[0].lease], Delivered::Keep).await.expect("it is answered");
    assert_eq!(good, [Settled::Done]);
}

#[tokio::test]
async fn rows_keep_their_order_when_they_are_repaired() {
    let scene = Scene::new().await;
    let mut ids = Vec::new();
    for order in 0..10 {
        ids.push(put(&scene.store, Message::json("shop", "t", &order)).await);
        scene.clock.advance(Duration::from_millis(1));
    }
    scene.clock.set_back(SECOND * 3_600);
    assert_eq!(claimed(&scene.store).await, ids);
}
