//! A clock that is set back makes nothing late, and one that is set forward loses nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use postrider::sqlite::{Clock, ManualClock};
use postrider::store::{Delivered, Nack, Release, Scope};
use postrider::{Message, Settled, SqliteStore, Store};
use testkit::eventually;
use tokio::time::timeout;
use uuid::Uuid;

use super::scene::{OnFile, claim, message, put, request};

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
    let in_an_hour = message().deliver_at(
        SystemTime::UNIX_EPOCH + Duration::from_micros(scene.clock.now_micros().unsigned_abs()) + SECOND * 3_600,
    );
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

/// A repair of many rows takes longer than a dispatcher waits for a verb.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_is_finished_although_every_caller_gives_up() {
    for starting in [false, true] {
        let mut given_up = 0;
        // On a machine that stands still for longer than the repair takes nobody has to.
        for _ in 0..5 {
            given_up += callers_that_give_up(starting).await;
            if given_up > 0 {
                break;
            }
        }
        assert!(given_up > 0, "there are not enough rows to tell");
    }
}

/// Answers how many callers gave up before the repair was finished.
async fn callers_that_give_up(starting: bool) -> usize {
    let scene = Scene::new().await;
    let backlog = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 20000)
        insert into outbox_messages (namespace, topic, payload, created_at, updated_at, next_attempt_at)
        select 'shop', 'order.placed', n, written, written, written
        from numbers, (select max(created_at) as written from outbox_messages)";
    sqlx::query(backlog).execute(scene.store.pool()).await.expect("a backlog");
    scene.clock.set_back(LEASE);
    let store = match starting {
        true => scene.another_relay().await,
        false => scene.store.clone(),
    };
    let mut given_up = 0;
    while given_up < 10 && timeout(Duration::from_millis(10), store.claim(&request(LEASE))).await.is_err() {
        given_up += 1;
    }
    let ahead = "select count(*) from outbox_messages where status = 'pending' and next_attempt_at = created_at";
    eventually(LEASE * 4, || async {
        let ahead: i64 = sqlx::query_scalar(ahead).fetch_one(scene.store.pool()).await.expect("a number");
        ahead == 0
    })
    .await;
    assert_eq!(claimed(&store).await.len(), 100);
    given_up
}

/// Shows one reading that is late, as when a process is not scheduled between reading its clock and asking.
struct LateOnce {
    real: ManualClock,
    readings: AtomicI64,
}

impl Clock for LateOnce {
    fn now_micros(&self) -> i64 {
        let late = if self.readings.fetch_sub(1, Ordering::SeqCst) == 0 { 400_000 } else { 0 };
        self.real.now_micros() - late
    }
}

#[tokio::test]
async fn a_late_reading_of_the_clock_repairs_nothing() {
    for reading in 0..10 {
        let scene = Scene::new().await;
        put(&scene.store, message()).await;
        let failed = claim(&scene.store, LEASE).await;
        let nack = Nack { lease: failed[0].lease, delay: LEASE, error: "down".into() };
        scene.store.nack(&[nack]).await.expect("it is noted");
        put(&scene.store, message()).await;
        let touched = "select max(updated_at) from outbox_messages where attempts = 1 and status = 'pending'";
        let touched = || sqlx::query_scalar::<_, i64>(touched).fetch_one(scene.store.pool());
        let before = touched().await.expect("a time");
        scene.clock.advance(Duration::from_millis(1));
        let late = LateOnce { real: scene.clock.clone(), readings: reading.into() };
        let store = scene.file.again().await.with_clock(late);
        store.claim(&request(LEASE)).await.expect("it claims");
        assert_eq!(touched().await.expect("a time"), before, "reading {reading}");
    }
}

/// A dispatcher with nothing to do sweeps, and that notes the time.
#[tokio::test]
async fn a_back_off_keeps_its_length_while_nothing_is_written() {
    let scene = Scene::new().await;
    let id = put(&scene.store, message()).await;
    let failed = claim(&scene.store, LEASE).await;
    let nack = Nack { lease: failed[0].lease, delay: SECOND * 3_600, error: "down".into() };
    scene.store.nack(&[nack]).await.expect("it is noted");
    let between_sweeps = LEASE / 2;
    for _ in 0..4 * 59 {
        scene.clock.advance(between_sweeps);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0]);
        scene.store.sweep(&Scope::all(), 10, 100).await.expect("it sweeps");
    }
    scene.clock.advance(between_sweeps - SECOND);
    scene.clock.set_back(SECOND * 58 * 60);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "a minute is left");
    scene.clock.advance(SECOND * 44);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "it is not early");
    scene.clock.advance(SECOND * 17);
    assert_eq!(claimed(&scene.store).await, [id], "it is late by no more than the time between two sweeps");
}

#[tokio::test]
async fn a_fresh_row_that_is_not_the_newest_is_noticed_too() {
    let scene = Scene::new().await;
    scene.clock.advance(SECOND * 7_200);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0]);
    let stranded = put(&scene.store, message()).await;
    scene.clock.set_back(SECOND * 3_600);
    let later = put(&scene.store, message()).await;
    assert_eq!(claimed(&scene.store).await, [stranded, later]);
}

#[tokio::test]
async fn a_delay_keeps_its_length() {
    for jump in JUMPS {
        let scene = Scene::new().await;
        let id = put(&scene.store, message().deliver_after(LEASE)).await;
        scene.clock.set_back(jump);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "{jump:?}: it still waits");
        scene.clock.advance(LEASE - SECOND);
        assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "{jump:?}: it still waits");
        scene.clock.advance(SECOND * 2);
        assert_eq!(claimed(&scene.store).await, [id], "{jump:?}: its time has come");
    }
}

#[tokio::test]
async fn a_delay_from_after_the_clock_was_set_back_is_not_shortened() {
    let scene = Scene::new().await;
    scene.clock.set_back(SECOND * 3_600);
    let id = put(&scene.store, message().deliver_after(LEASE)).await;
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0]);
    scene.clock.advance(LEASE - SECOND);
    assert_eq!(claimed(&scene.store).await, [] as [Uuid; 0], "it still waits");
    scene.clock.advance(SECOND * 2);
    assert_eq!(claimed(&scene.store).await, [id]);
}

#[tokio::test]
async fn a_delay_from_while_no_relay_ran_is_no_longer_than_it_was() {
    let scene = Scene::new().await;
    scene.clock.advance(SECOND * 7_200);
    let id = put(&scene.store, message().deliver_after(LEASE)).await;
    scene.clock.set_back(SECOND * 3_600);
    let started = scene.another_relay().await;
    assert_eq!(claimed(&started).await, [] as [Uuid; 0], "it still waits");
    scene.clock.advance(LEASE + SECOND);
    assert_eq!(claimed(&started).await, [id]);
}

#[tokio::test]
async fn messages_of_a_key_keep_their_order_when_the_clock_is_set_back_between_them() {
    let scene = Scene::new().await;
    let first = put(&scene.store, message().key("order 7")).await;
    scene.clock.set_back(SECOND * 3_600);
    let second = put(&scene.store, message().key("order 7")).await;
    scene.clock.advance(SECOND);
    assert_eq!(claimed(&scene.store).await, [first, second]);
}
