//! What the example promises, by requirement, against private servers.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use order_events::consumer::{Consumer, Subscription};
use order_events::events;
use order_events::publisher::TOPIC;
use order_events::scene::{PATIENCE, Scene, binary_environment, few_at_a_time, impatient, make_run, words};
use order_events::settings::Settings;
use postrider::layout::Layout;
use postrider::message::AGGREGATE_TYPE;
use postrider::{BatchFor, ClaimedMessage, EnqueueError, EventEnvelope, Message, Outcome, Sink};
use serde_json::{Value, json};
use testkit::{Mode, Signal, Worker, show, within};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[tokio::test]
async fn s3_04_events_are_registered_once_and_match_the_enums() -> Result<()> {
    let scene = Scene::start().await?;
    let registry = events::registry()?;
    let registered: Vec<&str> = registry.events().collect();
    assert_eq!(registered.len(), 18);
    assert_eq!(words(&scene.shop.pool, "event_type_enum").await?, registered, "the database");
    let mut aggregates = Layout::packfinderz().fields[AGGREGATE_TYPE].values.clone();
    aggregates.sort();
    assert_eq!(words(&scene.shop.pool, "aggregate_type_enum").await?, aggregates, "the database");
    // The outbox takes nothing else: no other name, no other aggregate, no payload of another type.
    let outbox = events::outbox()?;
    let envelope = json!({"version": 1, "eventId": Uuid::nil(), "occurredAt": "2026-01-01T00:00:00Z", "data": {}});
    let mut transaction = scene.shop.pool.begin().await?;
    for (event, aggregate, payload) in [
        ("order_exploded", "vendor_order", &envelope),
        ("ad_created", "vendor_order", &envelope),
        ("order_created", "vendor_order", &envelope),
        ("ad_created", "ad", &json!({})),
    ] {
        let message = Message::json(events::NAMESPACE, event, payload).key(Uuid::nil().to_string());
        let message = message.header("event-type", event).header(AGGREGATE_TYPE, aggregate);
        let refused = outbox.enqueue(&mut transaction, message).await;
        let expected = matches!(refused, Err(EnqueueError::NotRegistered { .. } | EnqueueError::Invalid { .. }));
        assert!(expected, "{event} {aggregate}: {refused:?}");
    }
    let message = Message::json(events::NAMESPACE, "ad_created", &envelope).key(Uuid::nil().to_string());
    outbox.enqueue(&mut transaction, message.header("event-type", "ad_created").header(AGGREGATE_TYPE, "ad")).await?;
    Ok(())
}

#[tokio::test]
async fn s3_11_s3_16_s3_39_the_event_id_is_in_envelope_and_attributes_and_all_go_to_one_topic() -> Result<()> {
    let scene = Scene::start().await?;
    assert_eq!(TOPIC, "pf-domain-events");
    scene.create_topic().await?;
    let (order, created) = scene.shop.place("buyer-7", 700).await?;
    let moved = scene.shop.advance(order, "shipped").await?;
    let publisher = scene.publish(impatient()?).await?;
    let received = scene.received(2).await?;
    scene.published(2).await?;
    let rows = scene.rows().await?;
    for (id, event_type, actor) in [(created, "order_created", Some("buyer-7")), (moved, "order_state_changed", None)] {
        let is_it = |text: Option<&String>| text.is_some_and(|text| *text == id.to_string());
        let message =
            received.iter().find(|message| is_it(message.attributes.get("event_id"))).context("it arrived")?;
        let fields: BTreeMap<String, Value> = serde_json::from_slice(&message.data)?;
        let named: Vec<&str> = fields.keys().map(String::as_str).filter(|name| *name != "actor").collect();
        assert_eq!(named, ["data", "eventId", "occurredAt", "version"]);
        let envelope: EventEnvelope<Value> = serde_json::from_slice(&message.data)?;
        assert_eq!((envelope.event_id, envelope.version), (id, 1));
        assert_eq!(envelope.actor.map(|actor| actor.id).as_deref(), actor);
        assert_eq!(envelope.data["order"], json!(order));
        assert_eq!(rows[&id]["payload_json"], serde_json::from_slice::<Value>(&message.data)?);
        for (name, value) in [("event_type", event_type), ("aggregate_type", "vendor_order")] {
            assert_eq!(message.attributes[name], value);
        }
        assert_eq!(message.attributes["aggregate_id"], order.to_string());
    }
    publisher.stop().await?;
    Ok(())
}

#[tokio::test]
async fn s3_19_s3_21_s3_25_the_consumer_handles_an_order_once_and_remembers_it_for_as_long_as_it_is_told() -> Result<()>
{
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    let (_, event) = scene.shop.place("buyer-7", 700).await?;
    let publisher = scene.publish(impatient()?).await?;
    let message = scene.received(1).await?.remove(0);
    let settings = Settings::read(|name| name.ends_with("TTL_HOURS").then(|| "720".into()))?;
    let mailer = Consumer::connect("mailer", &scene.redis.url(), &settings).await?;
    let failing =
        mailer.handle(&message.attributes, &message.data, async |_| Err(std::io::Error::other("no mail today")));
    assert!(failing.await.is_err(), "a handler that fails is told to the caller");
    let mut mails = 0;
    for _ in 0..3 {
        let handled = mailer.handle(&message.attributes, &message.data, async |_| {
            mails += 1;
            Ok::<(), Infallible>(())
        });
        assert!(handled.await?.may_ack());
    }
    assert_eq!(mails, 1, "after the failure once, and never again");
    let keys = scene.redis.command(&["KEYS", "*"]).await?;
    assert_eq!(keys.trim(), format!("pf:evt:processed:mailer:{event}"));
    let kept: u64 = scene.redis.command(&["TTL", keys.trim()]).await?.trim().parse()?;
    assert!(
        (720 * 3_600 - 60..=720 * 3_600).contains(&kept),
        "the consumer keeps it as long as the variable says: {kept} s"
    );
    // Another consumer handles it for itself.
    let counter = Consumer::connect("counter", &scene.redis.url(), &settings).await?;
    assert!(!counter.check_and_mark_processed(&message.attributes).await?);
    assert!(counter.check_and_mark_processed(&message.attributes).await?);
    publisher.stop().await?;
    Ok(())
}

#[tokio::test]
async fn s3_18_s3_20_s3_23_of_sixteen_calls_at_once_one_is_the_first() -> Result<()> {
    let scene = Scene::start().await?;
    let counter = Consumer::connect("counter", &scene.redis.url(), &Settings::read(|_| None)?).await?;
    let attributes = BTreeMap::from([("event_id".to_owned(), Uuid::now_v7().to_string())]);
    let calls = std::iter::repeat_with(|| counter.check_and_mark_processed(&attributes)).take(16);
    let firsts = futures::future::try_join_all(calls).await?.into_iter().filter(|already| !already).count();
    assert_eq!(firsts, 1);
    Ok(())
}

#[tokio::test]
async fn s3_24_s3_25_the_consumers_loop_acknowledges_what_was_handled_and_nothing_else() -> Result<()> {
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    let subscription = scene.subscribe("mailer").await?;
    for number in 1..=5 {
        scene.shop.place("buyer", number).await?;
    }
    let publisher = scene.publish(impatient()?).await?;
    scene.published(5).await?;
    publisher.stop().await?;
    let mailer = Consumer::connect("mailer", &scene.redis.url(), &Settings::read(|_| None)?).await?;
    let (mut mails, mut failures) = (Vec::new(), 0);
    let stop = CancellationToken::new();
    let handling = mailer.run(&subscription, stop.clone(), async |event: EventEnvelope<Value>| {
        failures += 1;
        // Two of three fail; each event comes until it is handled.
        if failures % 3 != 0 {
            return Err(std::io::Error::other("no mail today"));
        }
        mails.push(event.event_id);
        Ok(())
    });
    let watching = async {
        let all = within(PATIENCE, "five acknowledgements", async || subscription.acknowledged() == 5).await;
        stop.cancel();
        all
    };
    let (handled, all) = tokio::join!(handling, watching);
    handled.and(all)?;
    assert_eq!((mails.len(), mails.iter().collect::<BTreeSet<_>>().len(), failures), (5, 5, 15));
    assert!(subscription.pull(10).await?.is_empty(), "nothing is left");
    Ok(())
}

#[tokio::test]
async fn s3_43_two_publishers_share_the_rows_and_publish_none_twice() -> Result<()> {
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    for number in 1..=40 {
        scene.shop.place("buyer", number).await?;
    }
    let watched = scene.watched().await?;
    watched.hold(true);
    let settings = few_at_a_time()?;
    let two = [
        scene.publish_watched("one", &watched, settings.clone()).await?,
        scene.publish_watched("two", &watched, settings).await?,
    ];
    within(PATIENCE, "that both have rows", async || watched.names().len() == 2).await?;
    watched.hold(false);
    scene.published(40).await?;
    for publisher in two {
        publisher.stop().await?;
    }
    assert_eq!((watched.taken().len(), scene.received(40).await?.len()), (40, 40));
    Ok(())
}

#[tokio::test]
async fn s3_28_s3_30_make_starts_what_the_procfile_names() -> Result<()> {
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    scene.shop.place("buyer", 100).await?;
    let binary = Path::new(env!("CARGO_BIN_EXE_outbox-publisher"));
    assert_eq!(include_str!("../Procfile").trim(), "outbox-publisher: outbox-publisher");
    assert_eq!(binary.file_name().and_then(|name| name.to_str()), Some("outbox-publisher"), "it is built");
    let usual = "RUN ?= cargo run --locked -p order-events --bin outbox-publisher\n";
    assert!(include_str!("../Makefile").contains(usual), "what is run unless it is built already");
    let mut made = make_run(&scene, binary)?;
    scene.published(1).await?;
    made.signal(Signal::SIGTERM)?;
    made.wait(PATIENCE).await?;
    Ok(())
}

/// A sink that takes the publisher's loop down with it.
struct Broken;

#[async_trait]
impl Sink for Broken {
    fn batch_for(&self, _: &ClaimedMessage) -> BatchFor {
        panic!("a fault in the program")
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        batch.iter().map(|_| Outcome::Accepted).collect()
    }
}

#[tokio::test]
async fn s3_28_a_publisher_whose_loop_ends_is_an_error_and_not_a_process_that_does_nothing() -> Result<()> {
    let scene = Scene::start().await?;
    scene.shop.place("buyer", 100).await?;
    let publisher = scene.publisher("broken", impatient()?).await?.through(Arc::new(Broken));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let served = tokio::time::timeout(PATIENCE, publisher.serve(listener, std::future::pending())).await?;
    let error = served.expect_err("it ended by itself").to_string();
    assert!(error.contains("does not run any more"), "{error}");
    Ok(())
}

#[tokio::test]
async fn s3_21_s3_31_s3_32_the_teams_variables_set_batch_poll_attempts_and_time_to_keep() -> Result<()> {
    let defaults = Settings::read(|_| None)?;
    let (poll, idempotency_ttl) = (Duration::from_millis(500), Duration::from_secs(168 * 3_600));
    assert_eq!(defaults, Settings { batch_size: 50, poll, max_attempts: 10, idempotency_ttl });
    let set = Settings::read(|name| match name {
        "PACKFINDERZ_OUTBOX_PUBLISH_BATCH_SIZE" => Some("7".into()),
        "PACKFINDERZ_OUTBOX_PUBLISH_POLL_MS" => Some("250".into()),
        "PACKFINDERZ_OUTBOX_MAX_ATTEMPTS" => Some("3".into()),
        "PACKFINDERZ_OUTBOX_IDEMPOTENCY_TTL_HOURS" => Some("720".into()),
        _ => None,
    })?;
    let (poll, idempotency_ttl) = (Duration::from_millis(250), Duration::from_secs(720 * 3_600));
    assert_eq!(set, Settings { batch_size: 7, poll, max_attempts: 3, idempotency_ttl });
    for wrong in ["0", "-1", "many", "", "99999999999"] {
        let error = Settings::read(|name| name.ends_with("MAX_ATTEMPTS").then(|| wrong.into())).expect_err(wrong);
        assert!(error.to_string().contains("PACKFINDERZ_OUTBOX_MAX_ATTEMPTS"), "{error}");
    }
    for wrong in ["167", "721", "1"] {
        let error = Settings::read(|name| name.ends_with("TTL_HOURS").then(|| wrong.into())).expect_err(wrong);
        assert!(error.to_string().contains("from 168 to 720"), "7 to 30 days: {error}");
    }
    // The publisher heeds them: a row at the limit is left alone, one below it goes.
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    let (_, spent) = scene.shop.place("buyer-1", 100).await?;
    let (_, left) = scene.shop.place("buyer-2", 200).await?;
    let failed = "update outbox_events set attempt_count = case id when $1 then 3 else 2 end";
    sqlx::query(failed).bind(spent).execute(&scene.shop.pool).await?;
    let publisher = scene.publish(set).await?;
    scene.published(1).await?;
    let rows = scene.rows().await?;
    assert!(rows[&left]["published_at"].is_string() && rows[&spent]["published_at"].is_null());
    publisher.stop().await?;
    Ok(())
}

/// The binary on the scene's servers. Its log is on standard error, which is not looked at here.
fn start_binary(scene: &Scene) -> Result<Worker> {
    let environment = binary_environment(scene);
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Worker::spawn(env!("CARGO_BIN_EXE_outbox-publisher"), &[], &environment)
}

/// What `/readyz` answers: the code, and what it says.
async fn readyz(worker: &Worker) -> Result<(u16, String)> {
    let line = worker.wait_for_line(|line| line.starts_with("http://"), PATIENCE).await?;
    let address = line.trim_start_matches("http://").trim_end_matches("/readyz").parse()?;
    show::http(address, "GET", "/readyz", None).await
}

#[tokio::test]
async fn s3_30_s3_41_the_binary_publishes_is_killed_and_another_goes_on() -> Result<()> {
    let scene = Scene::start().await?;
    for number in 1..=10 {
        scene.shop.place("buyer", number).await?;
    }
    // The topic is missing, so rows are locked and fail again and again while the worker is killed.
    let mut first = start_binary(&scene)?;
    let failed = async || {
        let failed = "select count(*) from outbox_events where attempt_count > 0";
        sqlx::query_scalar::<_, i64>(failed).fetch_one(&scene.shop.pool).await.is_ok_and(|count| count > 0)
    };
    within(PATIENCE, "a failure in the table", failed).await?;
    first.signal(Signal::SIGKILL)?;
    first.wait(PATIENCE).await?;
    scene.create_topic().await?;
    let mut second = start_binary(&scene)?;
    scene.published(10).await?;
    assert!(scene.received(10).await?.len() >= 10);
    second.signal(Signal::SIGTERM)?;
    ensure!(second.wait(PATIENCE).await?.success(), "it stops in good order");
    Ok(())
}

#[tokio::test]
async fn s3_42_the_binary_is_not_ready_without_pubsub_or_database() -> Result<()> {
    let scene = Scene::start().await?;
    scene.create_topic().await?;
    let worker = start_binary(&scene)?;
    let status =
        async |code, wanted: &str| readyz(&worker).await.is_ok_and(|(now, said)| now == code && said.contains(wanted));
    within(PATIENCE, "ready", || status(200, "ready")).await?;
    scene.proxy.set(Mode::Reset);
    within(PATIENCE, "not ready without Pub/Sub", || status(503, "Pub/Sub is not ready")).await?;
    scene.proxy.set(Mode::Pass);
    within(PATIENCE, "ready again", || status(200, "ready")).await?;
    sqlx::raw_sql("alter table outbox_events rename to elsewhere").execute(&scene.shop.pool).await?;
    within(PATIENCE, "not ready without its table", || status(503, "the database is not ready")).await?;
    Ok(())
}
