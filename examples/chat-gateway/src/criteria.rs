//! What the outbox has to keep, one function each: it does something, looks, and says how it was seen.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use postrider::operate::Operator;
use rdkafka::types::{RDKafkaApiKey::Produce, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED};
use testkit::show::Watched;
use uuid::Uuid;

use crate::outbox::{GONE_WRONG, OVERDUE, OutboxRepository, Seen};
use crate::publisher::{OutboxPublisherService as Publisher, Settings};
use crate::world::World;

/// Quick, where a demonstration would only wait otherwise.
fn quick() -> Settings {
    Settings { interval: Duration::from_millis(200), backoff: Duration::from_millis(100), ..Settings::default() }
}

/// A message and its event are written in one transaction.
pub async fn together(world: &World) -> Result<String> {
    let before = (world.chat.count().await?, records(world).await?);
    let mut transaction = world.pool.begin().await?;
    world.chat.post_in(&mut transaction, "kitchen", "ada", "never mind").await?;
    transaction.rollback().await?;
    ensure!(world.chat.post("kitchen", "ada", " ").await.is_err(), "an empty message was taken");
    ensure!(
        (world.chat.count().await?, records(world).await?) == before,
        "something is left of what was not committed"
    );
    let event = world.chat.post("kitchen", "ada", "tea is ready").await?;
    ensure!(
        (world.chat.count().await?, records(world).await?) == (before.0 + 1, before.1 + 1),
        "one is without the other"
    );
    ensure!(world.status(event).await? == "pending", "the record is not pending");
    Ok("a rollback left neither message nor record, a commit both".into())
}

/// An event gets to Kafka, within the interval, also if another program has written its record.
pub async fn reaches_kafka(world: &World, settings: Settings) -> Result<String> {
    let event = world.chat.post("garden", "ada", "it rains").await?;
    ensure!(world.status(event).await? == "pending", "the repository alone published a record");
    let publisher = Publisher::start(&world.outbox, world.sink.clone(), settings)?;
    world.wait_for("published", &[event]).await?;
    world.until("that Kafka has the event", || world.copies(event) == ["garden"]).await?;
    let foreign =
        "insert into outbox (topic, key, idempotency_key, payload_json) select topic, 'cellar', 'by hand', payload_json
                   from outbox where id = $1 returning id";
    let foreign: Uuid = sqlx::query_scalar(foreign).bind(event).fetch_one(&world.pool).await?;
    world.wait_for("published", &[foreign]).await?;
    publisher.stop().await?;
    let waited = "select (extract(epoch from last_attempt_at - created_at) * 1000)::bigint from outbox
                  where id = $1 and published_at >= last_attempt_at and retry_count = 0";
    let waited: Option<i64> = sqlx::query_scalar(waited).bind(foreign).fetch_optional(&world.pool).await?;
    let waited = Duration::from_millis(u64::try_from(waited.unwrap_or(i64::MAX))?);
    // A busy machine may be late, but not by a whole interval more and a second.
    ensure!(waited <= settings.interval * 2 + Duration::from_secs(1), "a record waited for {waited:?}");
    let interval = settings.interval;
    Ok(format!(
        "an event was published under its topic and key; a plain insert was found after {waited:?} (interval {interval:?})"
    ))
}

/// Kafka refuses all; records wait longer and longer, and in the end are dead letters. Answers which.
pub async fn failures(world: &World) -> Result<String> {
    world.kafka.fail(Produce, vec![RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 1_000])?;
    let events =
        [world.chat.post("attic", "bob", "who is up there?").await?, world.chat.post("attic", "bob", "hm").await?];
    let stubborn = Publisher::start(&world.outbox, world.refused.clone(), Settings { max_retries: 3, ..quick() })?;
    world.wait_for("dead_lettered", &events).await?;
    stubborn.stop().await?;
    // The wait is from half of the delay to all of it, and the delay doubles.
    let steps = "select count(*) from history, jsonb_populate_record(null::outbox, after) as row
                 where row.id = any($1) and (before ->> 'status', row.status) = ('publishing', 'failed')
                 and row.last_error like '%right to write%'
                 and (row.retry_count = 3
                      or row.next_attempt_at >= row.last_attempt_at + row.retry_count * interval '50 milliseconds')";
    let steps: i64 = sqlx::query_scalar(steps).bind(&events[..]).fetch_one(&world.pool).await?;
    ensure!(
        steps == 6,
        "2 records failed 3 times each, and {steps} of these failures were written down as they should be"
    );
    Ok("2 records failed 3 times each, with count, error and time of the next attempt; then they were dead letters"
        .into())
}

/// The operators' two questions, beside records that wait: one for long, the other not any more.
pub async fn questions(world: &World) -> Result<String> {
    let later = world.chat.post("attic", "bob", "anybody?").await?;
    let patient = Publisher::start(
        &world.outbox,
        world.refused.clone(),
        Settings { backoff: Duration::from_secs(60), ..quick() },
    )?;
    world.wait_for("failed", &[later]).await?;
    patient.stop().await?;
    let soon = world.chat.post("attic", "bob", "I go up now").await?;
    let eager = Publisher::start(&world.outbox, world.refused.clone(), Settings { max_retries: 1_000, ..quick() })?;
    world.wait_for("failed", &[soon]).await?;
    eager.stop().await?;
    world.kafka.forgive(Produce)?;
    let due = async || world.outbox.ask(OVERDUE).await.is_ok_and(|rows| rows.len() == 1);
    testkit::within(Duration::from_secs(20), "that a record is due again", due).await?;
    let (wrong, overdue) = (world.outbox.ask(GONE_WRONG).await?, world.outbox.ask(OVERDUE).await?);
    for (question, rows) in [(GONE_WRONG, &wrong), (OVERDUE, &overdue)] {
        println!("        {question}");
        rows.iter().for_each(tell);
    }
    let words: Vec<&str> = wrong.iter().map(|row| &*row.status).collect();
    ensure!(words == ["dead_lettered", "dead_lettered", "failed", "failed"], "what went wrong is {words:?}");
    ensure!((wrong[2].id, wrong[3].id) == (soon, later), "they are not in the order of their next attempts");
    ensure!(overdue.iter().all(|row| row.id == soon), "what waits for a minute is not due");
    Ok("the first names 2 dead letters and 2 failed records, the second the one of them that is due".into())
}

fn tell(row: &Seen) {
    let Seen { status, topic, key, retry_count, last_error, .. } = row;
    let (key, error) = (key.as_deref().unwrap_or("-"), last_error.as_deref().unwrap_or("-"));
    println!("          {status:<13}  {retry_count} failures  {topic}  {key}  {error}");
}

/// Dead letters wait for an operator.
pub async fn dead_letters(world: &World) -> Result<String> {
    let dead = world.outbox.dead_letters().await?;
    ensure!(dead.len() == 2 && dead.iter().all(|letter| letter.last_error.is_some()), "{} dead letters", dead.len());
    let (again, never) = (dead[0].id, dead[1].id);
    ensure!(world.copies(again).is_empty(), "a dead letter is in Kafka");
    ensure!(world.outbox.resend("night shift", vec![again]).await? == [again], "nothing was resent");
    ensure!(world.outbox.purge("night shift", vec![never]).await? == [never], "nothing was purged");
    let publisher = Publisher::start(&world.outbox, world.sink.clone(), quick())?;
    world.wait_for("published", &[again]).await?;
    publisher.stop().await?;
    world.until("that Kafka has the letter", || world.copies(again) == ["attic"]).await?;
    ensure!(world.outbox.dead_letters().await?.is_empty() && world.status(never).await.is_err(), "a letter is left");
    let audit = world.outbox.store().audit(10).await?;
    let lines: Vec<String> = audit.iter().rev().map(|line| format!("{} by {}", line.action, line.who)).collect();
    ensure!(lines == ["replay by night shift", "discard by night shift"], "the audit table says {lines:?}");
    Ok(format!(
        "of 2 that were listed, one was resent and published, the other purged; the audit table: {}",
        lines.join(", ")
    ))
}

/// Two workers share the records.
pub async fn workers_share(world: &World) -> Result<String> {
    let mut events = Vec::new();
    for _ in 0..10 {
        events.extend(try_join_all((0..6).map(|_| world.chat.post("hall", "eve", "hello"))).await?);
    }
    let watched = Watched::new(world.sink.clone());
    watched.hold(true);
    let settings = Settings { batch_size: 5, ..quick() };
    let start = |name| Publisher::start(&world.outbox, Arc::new(watched.named(name)), settings);
    let both = [start("one")?, start("two")?];
    // Nothing is published until both have got something, so that neither does all of it.
    world.until("that both workers have records", || watched.names().len() == 2).await?;
    watched.hold(false);
    world.wait_for("published", &events).await?;
    for publisher in both {
        publisher.stop().await?;
    }
    world.until("that Kafka has all events", || events.iter().all(|event| !world.copies(*event).is_empty())).await?;
    ensure!(events.iter().all(|event| world.copies(*event).len() == 1), "an event is in Kafka twice");
    let taken: Vec<_> = watched.taken().into_iter().filter(|(_, id)| events.contains(id)).collect();
    ensure!(taken.len() == events.len(), "{} records were taken {} times", events.len(), taken.len());
    let ones = taken.iter().filter(|(name, _)| *name == "one").count();
    Ok(format!("two workers published {ones} and {} records; Kafka has each once", taken.len() - ones))
}

/// A worker is cut off after Kafka has the event, and before the database knows.
pub async fn handled_once(world: &World) -> Result<String> {
    // A time-out for which a demonstration can wait.
    let outbox = OutboxRepository::open(world.pool.clone(), Duration::from_secs(2)).await?;
    let event = world.chat.post("library", "eve", "hush").await?;
    let dying = Watched::new(world.sink.clone()).without_answers();
    let publisher = Publisher::start(&outbox, Arc::new(dying), quick())?;
    world.until("that Kafka has the event", || world.copies(event).len() == 1).await?;
    drop(publisher);
    ensure!(world.status(event).await? == "publishing", "the record is not where the worker left it");
    let attempt = "select (extract(epoch from last_attempt_at) * 1000)::bigint from outbox where id = $1";
    let attempt = async || sqlx::query_scalar::<_, i64>(attempt).bind(event).fetch_one(&world.pool).await;
    let first = attempt().await?;
    let publisher = Publisher::start(&outbox, world.sink.clone(), quick())?;
    world.wait_for("published", &[event]).await?;
    publisher.stop().await?;
    let later = attempt().await? - first;
    ensure!(later >= 2_000, "another worker took the record after {later} ms");
    world.until("that the consumer had both copies", || world.notifier.heard(event) == 2).await?;
    let notified = world.notifier.notified("library").await?;
    ensure!(notified == 1, "the room was notified {notified} times");
    Ok(format!(
        "a worker was cut off between Kafka and the database; its record was published again after {later} ms, and handled once"
    ))
}

/// Every step of every record so far is in the picture.
pub async fn picture(world: &World) -> Result<String> {
    let steps = "select distinct coalesce(before ->> 'status', '*') || ' → ' || (after ->> 'status') from history
                 where before ->> 'status' is distinct from after ->> 'status'";
    let steps: Vec<String> = sqlx::query_scalar(steps).fetch_all(&world.pool).await?;
    let steps: HashSet<&str> = steps.iter().map(String::as_str).collect();
    let smooth = ["* → pending", "pending → publishing", "publishing → published"];
    let failing = [
        "publishing → failed",
        "failed → publishing",
        "failed → dead_lettered",
        // The one that only an operator goes.
        "dead_lettered → pending",
    ];
    // A real broker refuses nothing on command.
    let failing = failing.iter().filter(|_| !world.kafka.is_real());
    let picture: HashSet<&str> = smooth.iter().chain(failing).copied().collect();
    ensure!(steps == picture, "the steps were {steps:?}");
    let count: i64 = sqlx::query_scalar("select count(*) from history").fetch_one(&world.pool).await?;
    Ok(format!(
        "{count} changes were noted by a trigger: {} kinds of steps were gone, an operator's resend too, and no other",
        picture.len()
    ))
}

async fn records(world: &World) -> Result<i64> {
    Ok(sqlx::query_scalar("select count(*) from outbox").fetch_one(&world.pool).await?)
}
