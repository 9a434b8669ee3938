//! What every driver must do. Each driver's file calls [`suite!`] once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use postrider::{EnqueueError, Enqueued, Message};
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::within;
use uuid::Uuid;

use super::fixture::{Fixture, order};
use super::producer::{End, Producer, Step};

const PATIENCE: Duration = Duration::from_secs(120);

/// Makes a test of each promise below for one driver.
macro_rules! suite {
    ($producer:ty) => {
        $crate::producers::suite::suite!($producer:
            s0_50_a_committed_message_has_every_column_right,
            r01_a_rolled_back_message_leaves_no_row,
            s0_44_a_duplicate_is_answered_with_the_first_id_and_the_transaction_goes_on,
            s0_43_a_batch_answers_for_each_message_in_order,
            every_optional_field_is_stored,
            every_optional_field_of_a_batch_is_stored,
            rows_of_a_batch_that_a_trigger_drops_are_an_error,
            r04_a_serialisation_failure_is_a_conflict,
            r04_a_deadlock_is_a_conflict,
            r04_a_lock_timeout_is_a_conflict,
            a_missing_table_is_not_a_conflict);
    };
    ($producer:ty: $($name:ident),*) => {
        $(#[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            $crate::producers::suite::$name::<$producer>().await
        })*
    };
}
pub(super) use suite;

async fn start<P: Producer>() -> Result<(Fixture, P)> {
    let fixture = Fixture::new().await?;
    let producer = P::connect(&fixture.database.url()).await?;
    Ok((fixture, producer))
}

pub async fn s0_50_a_committed_message_has_every_column_right<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let message = order(7);
    let id = message.id();
    let answers = producer.transact(&fixture.outbox, vec![Step::change(), Step::One(message)], End::Commit).await?;
    assert_eq!(answers, [Enqueued::New(id)]);
    let now: Value = sqlx::query_scalar("select to_jsonb(at) from changes").fetch_one(&fixture.pool).await?;
    let expected = json!({
        "id": id, "seq": 1, "namespace": "shop", "topic": "order.placed", "key": null, "tenant_id": null,
        "dedupe_key": null, "payload": {"order": 7}, "payload_bytes": null, "headers": {}, "status": "pending",
        "attempts": 0, "max_attempts": null, "next_attempt_at": now, "locked_by": null, "locked_until": null,
        "last_error": null, "created_at": now, "updated_at": now, "delivered_at": null,
    });
    assert_eq!(fixture.rows().await?, [expected]);
    Ok(())
}

pub async fn r01_a_rolled_back_message_leaves_no_row<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let steps = vec![Step::change(), Step::One(order(1)), Step::Many(vec![order(2), order(3)])];
    assert_eq!(producer.transact(&fixture.outbox, steps, End::Rollback).await?.len(), 3);
    assert_eq!((fixture.ids().await?.len(), fixture.changes().await?), (0, 0));
    Ok(())
}

pub async fn s0_44_a_duplicate_is_answered_with_the_first_id_and_the_transaction_goes_on<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let first = fixture.enqueue(order(1).dedupe_key("a")).await?.id();
    let here = order(2).dedupe_key("b");
    let second = here.id();
    let steps =
        vec![Step::One(order(3).dedupe_key("a")), Step::One(here), Step::One(order(4).dedupe_key("b")), Step::change()];
    let answers = producer.transact(&fixture.outbox, steps, End::Commit).await?;
    assert_eq!(answers, [Enqueued::Already(first), Enqueued::New(second), Enqueued::Already(second)]);
    assert_eq!((fixture.ids().await?, fixture.changes().await?), (vec![first, second], 1));
    Ok(())
}

pub async fn s0_43_a_batch_answers_for_each_message_in_order<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let old = fixture.enqueue(order(0).dedupe_key("old")).await?.id();
    // of each ten: one is there already, two share a key, one key is used in another topic too, the rest have none
    let message = |n: u64| match n % 10 {
        0 => order(n).dedupe_key("old"),
        1 | 2 => order(n).dedupe_key(format!("pair {}", n / 10)),
        3 => Message::json("shop", "order.paid", &n).dedupe_key(format!("pair {}", n / 10)),
        _ => order(n),
    };
    let messages: Vec<Message> = (0..100).map(message).collect();
    let ids: Vec<Uuid> = messages.iter().map(Message::id).collect();
    let answers = producer.transact(&fixture.outbox, vec![Step::Many(messages), Step::change()], End::Commit).await?;
    let expected = (0..100).map(|n| match n % 10 {
        0 => Enqueued::Already(old),
        2 => Enqueued::Already(ids[n - 1]),
        _ => Enqueued::New(ids[n]),
    });
    assert_eq!(answers, expected.collect::<Vec<_>>());
    assert_eq!((fixture.ids().await?.len(), fixture.changes().await?), (81, 1));
    // rows of one statement share the id of the command that wrote them
    assert_eq!(fixture.count("select count(distinct cmin::text) from outbox_messages where xmin <> (select xmin from outbox_messages where seq = 1)").await?, 1);
    Ok(())
}

/// A message that has everything, and the columns it must end up in.
fn full(tenant: Uuid, at: SystemTime) -> (Message, Value) {
    let message = Message::bytes("shop", "order.placed", "image/png", [0, 1, 0xff, b'\\', b'"'])
        .key("käufer \"7\", {NULL}\\")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/7"))
        .header("X-Kind", "ünusual, \"quoted\" \\ {}")
        .header("x-kind-2", "")
        .deliver_at(at)
        .max_attempts(3);
    let columns = json!({
        "id": message.id(), "key": "käufer \"7\", {NULL}\\", "tenant_id": tenant, "dedupe_key": format!("{tenant}/7"), "payload": null,
        "payload_bytes": "\\x0001ff5c22", "next_attempt_at": "2033-05-18T03:33:20.000001+00:00", "max_attempts": 3,
        "headers": {"x-kind": "ünusual, \"quoted\" \\ {}", "x-kind-2": "", "content-type": "image/png"},
    });
    (message, columns)
}

fn some_time() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(2_000_000_000) + Duration::from_micros(1)
}

async fn assert_columns(fixture: &Fixture, row: usize, expected: &Value) -> Result<()> {
    let rows = fixture.rows().await?;
    for (column, value) in expected.as_object().context("an object")? {
        assert_eq!(&rows[row][column], value, "{column}");
    }
    Ok(())
}

pub async fn every_optional_field_is_stored<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let (message, columns) = full(Uuid::new_v4(), some_time());
    let later = order(2).deliver_after(Duration::from_millis(90_500));
    producer.transact(&fixture.outbox, vec![Step::One(message), Step::One(later)], End::Commit).await?;
    assert_columns(&fixture, 0, &columns).await?;
    assert_eq!(delay(&fixture).await?, 1);
    Ok(())
}

pub async fn every_optional_field_of_a_batch_is_stored<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let (first, columns) = full(Uuid::new_v4(), some_time());
    let (second, other_columns) = full(Uuid::new_v4(), some_time());
    let later = order(2).deliver_after(Duration::from_millis(90_500));
    let empty = Message::bytes("shop", "order.placed", "text/plain", []);
    producer.transact(&fixture.outbox, vec![Step::Many(vec![first, later, empty, second])], End::Commit).await?;
    assert_columns(&fixture, 0, &columns).await?;
    assert_columns(&fixture, 3, &other_columns).await?;
    assert_eq!(delay(&fixture).await?, 1);
    assert_eq!(fixture.rows().await?[2]["payload_bytes"], "\\x");
    Ok(())
}

/// How many rows are due 90.5 seconds after they were written.
async fn delay(fixture: &Fixture) -> Result<i64> {
    fixture.count("select count(*) from outbox_messages where next_attempt_at - created_at = interval '90.5 s'").await
}

fn is_conflict(outcome: Result<Vec<Enqueued>>) -> Result<bool> {
    let error = outcome.err().context("the transaction went through")?;
    let error = error.downcast::<EnqueueError>()?;
    Ok(matches!(error, EnqueueError::Conflict(_)) && error.is_retryable())
}

pub async fn r04_a_serialisation_failure_is_a_conflict<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let (pool, outbox) = (fixture.pool.clone(), fixture.outbox.clone());
    let steps = vec![
        Step::sql("set transaction isolation level repeatable read"),
        Step::sql("select count(*) from changes"),
        Step::meanwhile(async move {
            let mut transaction = pool.begin().await?;
            let _new = outbox.enqueue(&mut transaction, order(1).dedupe_key("a")).await?;
            Ok(transaction.commit().await?)
        }),
        Step::One(order(2).dedupe_key("a")),
    ];
    assert!(is_conflict(producer.transact(&fixture.outbox, steps, End::Commit).await)?);
    let again = producer.transact(&fixture.outbox, vec![Step::One(order(2).dedupe_key("a"))], End::Commit).await?;
    assert_eq!(again, [Enqueued::Already(fixture.ids().await?[0])]);
    Ok(())
}

pub async fn r04_a_deadlock_is_a_conflict<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let (pool, outbox) = (fixture.pool.clone(), fixture.outbox.clone());
    let mut other = pool.begin().await?;
    let _new = outbox.enqueue(&mut other, order(1).dedupe_key("b")).await?;
    let watch = pool.clone();
    let (start, started) = tokio::sync::oneshot::channel();
    let other = tokio::spawn(async move {
        started.await?;
        let mut transaction = other;
        let _waits = outbox.enqueue(&mut transaction, order(2).dedupe_key("a")).await?;
        anyhow::Ok(transaction.commit().await?)
    });
    // who looks for a deadlock last, and finds it, is the one that dies
    let steps = vec![
        Step::sql("set local deadlock_timeout = '10ms'"),
        Step::One(order(3).dedupe_key("a")),
        Step::meanwhile(async move {
            let _ = start.send(());
            within(PATIENCE, "the other producer's wait", || is_blocked(&watch)).await
        }),
        Step::One(order(4).dedupe_key("b")),
    ];
    assert!(is_conflict(producer.transact(&fixture.outbox, steps, End::Commit).await)?);
    other.await??;
    assert_eq!(fixture.ids().await?.len(), 2);
    Ok(())
}

/// Whether a session of this database waits for a lock.
async fn is_blocked(pool: &PgPool) -> bool {
    let sql =
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap_or(false)
}

pub async fn r04_a_lock_timeout_is_a_conflict<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let mut holder = fixture.pool.begin().await?;
    let _new = fixture.outbox.enqueue(&mut holder, order(1).dedupe_key("a")).await?;
    let steps = vec![Step::sql("set local lock_timeout = '20ms'"), Step::One(order(2).dedupe_key("a"))];
    assert!(is_conflict(producer.transact(&fixture.outbox, steps, End::Commit).await)?);
    Ok(())
}

pub async fn rows_of_a_batch_that_a_trigger_drops_are_an_error<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    let trigger = "create function dropped() returns trigger language plpgsql as 'begin return null; end';
        create trigger dropped before insert on outbox_messages
        for each row when (new.topic = 'order.lost') execute function dropped()";
    sqlx::raw_sql(trigger).execute(&fixture.pool).await?;
    let batch = vec![order(1), Message::json("shop", "order.lost", &2), order(3)];
    let steps = vec![Step::change(), Step::Many(batch)];
    let error = producer.transact(&fixture.outbox, steps, End::Commit).await.expect_err("one row is not there");
    let told = format!("{error:#}");
    assert!(told.contains("2 of 3 rows were written"), "{told}");
    assert_eq!((fixture.ids().await?.len(), fixture.changes().await?), (0, 0));
    Ok(())
}

pub async fn a_missing_table_is_not_a_conflict<P: Producer>() -> Result<()> {
    let (fixture, mut producer) = start::<P>().await?;
    sqlx::raw_sql("drop table outbox_messages").execute(&fixture.pool).await?;
    for step in [Step::One(order(1)), Step::Many(vec![order(1), order(2)])] {
        let outcome = producer.transact(&fixture.outbox, vec![step], End::Commit).await;
        let error = outcome.err().context("there is no table")?.downcast::<EnqueueError>()?;
        assert!(matches!(&error, EnqueueError::Database(_)) && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("migrations"), "{error}");
    }
    Ok(())
}
