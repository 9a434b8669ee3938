//! Named consumers: their place is in the database, and one process at a time moves it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use postrider_changelog::{After, ChangelogError, Consumer, ConsumerConfig, Cursor, Held, Lease, Reader};
use uuid::Uuid;

use crate::scene::{Cells, Kind, Scene, stamp};

const LONG: Duration = Duration::from_secs(600);

/// Three entries.
async fn start<S: Scene>() -> S {
    let scene = S::start().await;
    for name in ["ada", "eve", "joe"] {
        scene.users(&[name]).await;
    }
    scene
}

fn consumer<S: Scene>(scene: &S, name: &str, first: After) -> Consumer {
    let config = ConsumerConfig { lease: LONG, poll_interval: Duration::from_millis(5), page: 2, first };
    Consumer::new(Arc::new(scene.changelog()), name, config).expect("it is right")
}

async fn held(consumer: &Consumer) -> Held {
    consumer.acquire().await.expect("it answers").expect("nobody has it")
}

async fn cursor_after<S: Scene>(scene: &S, count: u32) -> Cursor {
    scene.changelog().list(After::Beginning, count).await.expect("it can be read").next
}

/// The consumer's row, as the table holds it.
async fn row<S: Scene>(scene: &S, name: &str) -> Option<Cells> {
    let columns =
        ["entry_id", "locked_by", "locked_until", "fence", "last_error", "failed_since"].map(|column| S::text(column));
    let stamp = S::hex("versionstamp");
    let sql = format!("select {stamp}, {} from postrider_cursors where name = '{name}'", columns.join(", "));
    scene.rows(&sql).await.pop()
}

/// Ends a lease on the database's clock.
async fn end_lease<S: Scene>(scene: &S) {
    let past = match S::KIND {
        Kind::Postgres => "clock_timestamp() - interval '1 millisecond'",
        Kind::MySql => "utc_timestamp(6) - interval 1000 microsecond",
        Kind::Sqlite => "cast((julianday('now') - 2440587.5) * 86400000000 as integer) - 2000",
    };
    scene.run(&format!("update postrider_cursors set locked_until = {past}")).await.expect("it ends");
}

/// Everything that a holder may do, with a lease that it has lost: all is refused and nothing changes.
async fn is_lost<S: Scene>(scene: &S, lease: &Lease) {
    let (reader, to) = (scene.changelog(), cursor_after(scene, 3).await);
    let before = row(scene, &lease.consumer).await;
    for lost in [
        reader.advance(lease, Some(&to), LONG).await,
        reader.advance(lease, None, LONG).await,
        reader.hold_back(lease, "why", LONG).await,
        reader.release(lease).await,
    ] {
        assert!(
            matches!(&lost, Err(ChangelogError::LeaseLost { consumer }) if *consumer == lease.consumer),
            "{lost:?}"
        );
    }
    let mut transaction = scene.begin().await;
    let lost = reader.advance_in(&mut transaction, lease, &to, LONG).await;
    assert!(matches!(lost, Err(ChangelogError::LeaseLost { .. })), "{lost:?}");
    transaction.commit().await.expect("it is committed");
    assert_eq!(row(scene, &lease.consumer).await, before);
}

pub async fn s1_51_a_named_consumer_goes_on_where_it_was<S: Scene>() {
    let scene = start::<S>().await;
    let consumer = consumer(&scene, "reader", After::Beginning);
    let mut first = held(&consumer).await;
    assert_eq!(first.cursor(), Cursor::beginning(cursor_after(&scene, 3).await.store()));
    let page = first.next().await.expect("it can be read");
    assert_eq!(page.entries.len(), 2);
    // Who has not said that it has read reads the same again.
    assert_eq!(first.read().await.expect("it can be read").entries[0].id, page.entries[0].id);
    first.advance(page.next).await.expect("it advances");
    let found = row(&scene, "reader").await.expect("there is one");
    assert_eq!(found[0], Some(stamp(2, 0)));
    assert_eq!(found[1], Some(page.entries[1].id.to_string()));
    first.release().await.expect("it is given back");
    let found = row(&scene, "reader").await.expect("there is one");
    assert_eq!((&found[2], &found[3]), (&None, &None));
    let second = held(&consumer).await;
    assert_eq!(second.cursor(), page.next);
    let rest = second.read().await.expect("it can be read");
    assert_eq!(rest.entries.len(), 1);
    assert_eq!(rest.entries[0].versionstamp.to_string(), stamp(3, 0));
}

pub async fn s1_51_one_process_at_a_time_has_the_lease<S: Scene>() {
    let scene = start::<S>().await;
    let processes: Vec<_> = (0..8).map(|_| consumer(&scene, "reader", After::Beginning)).collect();
    let leases = join_all(processes.iter().map(Consumer::acquire)).await;
    let leases: Vec<_> = leases.into_iter().filter_map(|lease| lease.expect("it answers")).collect();
    assert_eq!(leases.len(), 1);
    assert_eq!(scene.count("postrider_cursors").await, 1);
    // Another consumer is not in its way.
    held(&consumer(&scene, "other", After::Beginning)).await;
    let found = row(&scene, "reader").await.expect("there is one");
    assert_eq!(found[2], Some(leases[0].lease().owner.to_string()));
}

pub async fn s1_51_another_process_takes_over_when_the_lease_has_ended<S: Scene>() {
    let scene = start::<S>().await;
    let (one, other) = (consumer(&scene, "reader", After::Beginning), consumer(&scene, "reader", After::Beginning));
    let stale = held(&one).await;
    assert!(other.acquire().await.expect("it answers").is_none());
    end_lease(&scene).await;
    let waited = tokio::time::timeout(Duration::from_secs(120), other.wait()).await;
    let mut taken = waited.expect("it is in time").expect("it is free");
    assert!(taken.lease().fence > stale.lease().fence);
    assert!(one.acquire().await.expect("it answers").is_none());
    is_lost(&scene, stale.lease()).await;
    // Who has it is not disturbed.
    let page = taken.read().await.expect("it can be read");
    taken.advance(page.next).await.expect("it advances");
    assert_eq!(row(&scene, "reader").await.expect("there is one")[0], Some(stamp(2, 0)));
}

pub async fn s1_51_a_lease_ends_by_itself<S: Scene>() {
    let scene = start::<S>().await;
    let (reader, one, other) = (scene.changelog(), Uuid::now_v7(), Uuid::now_v7());
    let short = Duration::from_millis(300);
    let first = reader.acquire("reader", one, short, After::Beginning).await.expect("it answers").expect("it is free");
    testkit::eventually(Duration::from_secs(120), || async {
        reader.acquire("reader", other, LONG, After::Beginning).await.expect("it answers").is_some()
    })
    .await;
    is_lost(&scene, &first).await;
}

pub async fn s1_51_a_lease_is_renewed<S: Scene>() {
    let scene = start::<S>().await;
    let one = consumer(&scene, "reader", After::Beginning);
    let mut held = held(&one).await;
    end_lease(&scene).await;
    // Nobody has taken it meanwhile.
    held.renew().await.expect("it is renewed");
    let other = consumer(&scene, "reader", After::Beginning);
    assert!(other.acquire().await.expect("it answers").is_none());
    assert_eq!(held.keep_while(async { 7 }).await.expect("it is kept"), 7);
    // Another task of the same process has to wait, too.
    assert!(one.clone().acquire().await.expect("it answers").is_none());
    end_lease(&scene).await;
    let again = one.acquire().await.expect("it answers").expect("it has ended");
    assert!(again.lease().fence > held.lease().fence && again.lease().owner != held.lease().owner);
    is_lost(&scene, held.lease()).await;
}

pub async fn s1_51_a_lease_is_kept_while_its_position_is_being_committed<S: Scene>() {
    let scene = start::<S>().await;
    let config = ConsumerConfig {
        lease: Duration::from_secs(6),
        poll_interval: Duration::from_millis(50),
        ..Default::default()
    };
    let consumer = Consumer::new(Arc::new(scene.changelog()), "reader", config).expect("it is right");
    let mut held = held(&consumer).await;
    let (lease, page) = (held.lease().clone(), held.read().await.expect("it can be read"));
    // The work holds the lock on the consumer's row for longer than it takes to want to renew the lease.
    let work = async {
        let mut transaction = scene.begin().await;
        let changelog = scene.changelog();
        changelog.advance_in(&mut transaction, &lease, &page.next, LONG).await.expect("it advances");
        tokio::time::sleep(Duration::from_millis(3_600)).await;
        transaction.commit().await.expect("it is committed");
    };
    let kept = tokio::time::timeout(Duration::from_secs(120), held.keep_while(work)).await;
    kept.expect("they do not wait for each other").expect("the lease is kept");
    assert_eq!(row(&scene, "reader").await.expect("there is one")[0], Some(stamp(3, 0)));
}

pub async fn s1_51_a_consumer_does_not_go_back<S: Scene>() {
    let scene = start::<S>().await;
    let (changelog, consumer) = (scene.changelog(), consumer(&scene, "reader", After::Beginning));
    let mut held = held(&consumer).await;
    let beginning = held.cursor();
    let page = held.read().await.expect("it can be read");
    held.advance(page.next).await.expect("it advances");
    assert!(matches!(held.advance(beginning).await, Err(ChangelogError::Invalid(_))));
    held.release().await.expect("it is released");
    let held = consumer.acquire().await.expect("it answers").expect("it is free");
    let mut transaction = scene.begin().await;
    let back = changelog.advance_in(&mut transaction, held.lease(), &beginning, LONG).await;
    assert!(matches!(back, Err(ChangelogError::Invalid(_))), "{back:?}");
    let other = Cursor::beginning(Uuid::now_v7());
    let elsewhere = changelog.advance_in(&mut transaction, held.lease(), &other, LONG).await;
    assert!(matches!(elsewhere, Err(ChangelogError::OtherStore { .. })), "{elsewhere:?}");
}

pub async fn s1_51_a_place_is_committed_with_the_consumers_own_effect<S: Scene>() {
    let scene = start::<S>().await;
    let reader = scene.changelog();
    let consumer = consumer(&scene, "reader", After::Beginning);
    let mut held = held(&consumer).await;
    let page = held.read().await.expect("it can be read");
    let effect = "insert into notes (id, _version, note) values ('effect', 0, 'done')";
    for commit in [false, true] {
        let mut transaction = scene.begin().await;
        S::run_in(&mut transaction, effect).await.expect("it is written");
        reader.advance_in(&mut transaction, held.lease(), &page.next, LONG).await.expect("it advances");
        match commit {
            true => transaction.commit().await.expect("it is committed"),
            false => transaction.rollback().await.expect("it is rolled back"),
        }
        let found = row(&scene, "reader").await.expect("there is one");
        let place = if commit { stamp(2, 0) } else { stamp(0, 0) };
        assert_eq!(found[0], Some(place));
        assert_eq!(scene.count("notes").await, i64::from(commit));
    }
    held.advanced(page.next);
    assert_eq!(held.read().await.expect("it can be read").entries.len(), 1);
}

pub async fn s1_51_a_consumer_is_reset_and_forgotten<S: Scene>() {
    let scene = start::<S>().await;
    let reader = scene.changelog();
    let another = consumer(&scene, "reader", After::Beginning);
    let consumer = consumer(&scene, "reader", After::Beginning);
    let first = held(&consumer).await;
    let to = cursor_after(&scene, 2).await;
    assert!(reader.reset("reader", to.into()).await.expect("it is reset"));
    is_lost(&scene, first.lease()).await;
    let second = held(&consumer).await;
    assert_eq!(second.cursor(), to);
    // A stamp is the newest entry up to it.
    let between = After::Versionstamp(stamp(1, 5).parse().expect("it is a stamp"));
    assert!(reader.reset("reader", between).await.expect("it is reset"));
    is_lost(&scene, second.lease()).await;
    let third = held(&consumer).await;
    assert_eq!(third.cursor(), cursor_after(&scene, 1).await);
    assert!(reader.forget("reader").await.expect("it is forgotten"));
    assert_eq!(scene.count("postrider_cursors").await, 0);
    is_lost(&scene, third.lease()).await;
    // It begins anew, and the lease from before is not its own, though the fence may be.
    let fourth = held(&another).await;
    assert_eq!(fourth.cursor().entry(), None);
    is_lost(&scene, third.lease()).await;
    assert!(!reader.reset("nobody", After::Beginning).await.expect("it answers"));
    assert!(!reader.forget("nobody").await.expect("it answers"));
}

pub async fn s1_51_operators_see_who_is_held_back<S: Scene>() {
    let scene = start::<S>().await;
    let reader = scene.changelog();
    let mut one = held(&consumer(&scene, "one", After::Beginning)).await;
    held(&consumer(&scene, "two", cursor_after(&scene, 3).await.into())).await.release().await.expect("given back");
    let long = "é".repeat(600);
    one.hold_back("the sink is away\0").await.expect("it is noted");
    let states = reader.consumers().await.expect("it can be read");
    assert_eq!(states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!((states[0].behind, states[1].behind), (3, 0));
    assert_eq!((states[0].held_by, states[1].held_by), (Some(one.lease().owner), None));
    assert_eq!((states[0].last_error.as_deref(), states[1].last_error.as_deref()), (Some("the sink is away"), None));
    let since = states[0].failed_since.expect("it is known");
    assert!(since.elapsed().unwrap_or_default() < Duration::from_secs(300), "{since:?}");
    assert_eq!(states[1].cursor, cursor_after(&scene, 3).await);
    // It does not get on since the first time.
    one.hold_back(&long).await.expect("it is noted");
    let states = reader.consumers().await.expect("it can be read");
    assert_eq!(states[0].failed_since, Some(since));
    assert_eq!(states[0].last_error.as_ref().map(|why| why.chars().count()), Some(500));
    one.renew().await.expect("it is renewed");
    assert!(reader.consumers().await.expect("it can be read")[0].last_error.is_some());
    one.advance(cursor_after(&scene, 1).await).await.expect("it advances");
    let states = reader.consumers().await.expect("it can be read");
    assert_eq!((&states[0].last_error, states[0].failed_since, states[0].behind), (&None, None, 2));
    end_lease(&scene).await;
    assert_eq!(reader.consumers().await.expect("it can be read")[0].held_by, None);
}

pub async fn s1_51_a_new_consumer_begins_where_it_is_told<S: Scene>() {
    let scene = start::<S>().await;
    let second = cursor_after(&scene, 2).await;
    let stamped = |version, user_version| After::Versionstamp(stamp(version, user_version).parse().expect("a stamp"));
    for (name, first, rest) in [
        ("beginning", After::Beginning, 3),
        ("cursor", second.into(), 1),
        ("stamp", stamped(1, 0), 2),
        ("between", stamped(2, 7), 1),
        ("ahead", stamped(1_000, 0), 0),
    ] {
        let consumer = consumer(&scene, name, first);
        let held = held(&consumer).await;
        let page = scene.changelog().list(held.cursor().into(), 0).await.expect("it can be read");
        assert_eq!(page.entries.len(), rest, "{name}");
        held.release().await.expect("it is given back");
    }
    // One that is there is not moved.
    let moved = held(&consumer(&scene, "beginning", second.into())).await;
    assert_eq!(moved.cursor().entry(), None);
}

pub async fn s1_51_a_consumer_waits_for_new_entries<S: Scene>() {
    let scene = start::<S>().await;
    let mut held = held(&consumer(&scene, "reader", cursor_after(&scene, 3).await.into())).await;
    assert!(held.read().await.expect("it can be read").entries.is_empty());
    let writing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        scene.users(&["max"]).await
    };
    let both = futures::future::join(held.next(), writing);
    let (page, committed) = tokio::time::timeout(Duration::from_secs(120), both).await.expect("it is in time");
    let page = page.expect("it can be read");
    assert_eq!(page.entries.len(), 1);
    assert_eq!(Some(page.entries[0].versionstamp), committed.versionstamp);
}

pub async fn s1_51_names_and_times_of_consumers_are_checked<S: Scene>() {
    let scene = S::start().await;
    let reader: Arc<dyn Reader> = Arc::new(scene.changelog());
    let long = "x".repeat(191);
    for name in ["", "a\nb", "a\0b", long.as_str()] {
        let error = Consumer::new(reader.clone(), name, ConsumerConfig::default()).map(drop);
        assert!(matches!(error, Err(ChangelogError::Invalid(_))), "{error:?}");
    }
    for (lease, poll_interval) in [(999, 1), (3_000, 1_001)] {
        let (lease, poll_interval) = (Duration::from_millis(lease), Duration::from_millis(poll_interval));
        let config = ConsumerConfig { lease, poll_interval, ..ConsumerConfig::default() };
        let error = Consumer::new(reader.clone(), "reader", config).map(drop);
        assert!(matches!(error, Err(ChangelogError::Invalid(_))), "{error:?}");
    }
    // Names that differ are different consumers.
    for name in ["reader", "Reader", "réader", "reader ", "it's \"quoted\" `; --", &long[..190]] {
        held(&consumer(&scene, name, After::Beginning)).await;
    }
    assert_eq!(scene.count("postrider_cursors").await, 6);
}

pub async fn s1_51_a_consumer_whose_entry_was_lost_is_told_so<S: Scene>() {
    let scene = start::<S>().await;
    let consumer = consumer(&scene, "reader", After::Beginning);
    let mut reading = held(&consumer).await;
    reading.advance(cursor_after(&scene, 3).await).await.expect("it advances");
    scene.run("delete from postrider_changelog where uow_id = (select uow_id from (select uow_id from postrider_changelog order by versionstamp desc limit 1) as newest)").await.expect("it is cut");
    let error = reading.read().await.expect_err("it is gone");
    assert!(matches!(error, ChangelogError::LostHistory(_)), "{error:?}");
    let error = reading.next().await.expect_err("it is gone");
    assert!(matches!(error, ChangelogError::LostHistory(_)), "{error:?}");
    assert!(scene.changelog().reset("reader", After::Beginning).await.expect("it is reset"));
    assert_eq!(held(&consumer).await.read().await.expect("it can be read").entries.len(), 2);
}
