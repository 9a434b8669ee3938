//! Shows each acceptance criterion of the outbox of order events, with how it was checked. Read `lib.rs` first.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use order_events::consumer::Consumer;
use order_events::events::{self, OrderCreated};
use order_events::publisher::{Publisher, TOPIC};
use order_events::scene::{PATIENCE, Scene, Subscribed, few_at_a_time, impatient, locked_columns, make_run, words};
use order_events::settings::Settings;
use postrider::EventEnvelope;
use postrider::layout::Layout;
use postrider::message::AGGREGATE_TYPE;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use testkit::brokers::pubsub::Received;
use testkit::log::Log;
use testkit::show::Proof;
use testkit::{Mode, Signal, within};
use tokio_util::sync::CancellationToken;

const ORDERS: usize = 20;
/// The orders, and one that moves on.
const EVENTS: usize = ORDERS + 1;

#[tokio::main]
async fn main() -> Result<()> {
    let log = Log::listen();
    let mut proof = Proof::default();
    println!("Starting private servers: PostgreSQL, Pub/Sub, Redis …");
    let scene = Scene::start().await?;
    println!("Google's Pub/Sub is played by {}; PostgreSQL and Redis are real servers.", scene.plays_pubsub());

    println!("\nModel, enums and envelope");
    model(&scene.shop.pool, &mut proof).await?;
    let mut order = None;
    for number in 1..=ORDERS {
        order = Some(scene.shop.place(&format!("buyer-{number}"), 100 * number as i64).await?.0);
    }
    scene.shop.advance(order.unwrap_or_default(), "shipped").await?;
    let refused = scene.shop.place("buyer-0", 0).await.is_err();
    let rows = scene.rows().await?;
    let both = refused && rows.len() == EVENTS;
    proof.see("an event is written with its order or not at all", "a refused order left no row", both);
    let enveloped = |(id, row): (&uuid::Uuid, &serde_json::Value)| {
        let envelope = serde_json::from_value::<EventEnvelope<serde_json::Value>>(row["payload_json"].clone());
        envelope.is_ok_and(|envelope| envelope.event_id == *id && envelope.version == 1)
    };
    proof.see(
        "payloads are envelopes",
        "each payload_json was read; eventId is the row's id",
        rows.iter().all(enveloped),
    );

    println!("\nThe publisher");
    let mailer = outage_and_crash(&scene, &mut proof).await?;
    let after = scene.rows().await?;
    let same = rows.iter().all(|(id, row)| after.get(id).is_some_and(|now| locked_columns(now) == locked_columns(row)));
    proof.see("only published_at, attempt_count and last_error change", "rows compared before and after", same);
    readiness(&scene, &mut proof).await?;

    println!("\nIdempotency");
    let received = scene.received(EVENTS).await?;
    on_the_wire(&received, &log, &mut proof);
    consumers(&scene, &mailer, &received, &mut proof).await?;

    println!("\nOperation");
    operation(&scene, &mut proof).await?;
    proof.end()
}

async fn model(pool: &PgPool, proof: &mut Proof) -> Result<()> {
    let columns = "select column_name || ' ' || udt_name || case is_nullable when 'YES' then ' null' else '' end
                   from information_schema.columns where table_name = 'outbox_events' order by ordinal_position";
    let columns: Vec<String> = sqlx::query_scalar(columns).fetch_all(pool).await?;
    let locked = [
        "id uuid",
        "event_type event_type_enum",
        "aggregate_type aggregate_type_enum",
        "aggregate_id uuid",
        "payload_json jsonb",
        "created_at timestamptz",
        "published_at timestamptz null",
        "attempt_count int4",
        "last_error text null",
    ];
    let indexes = "select count(*) from pg_indexes where tablename = 'outbox_events' and indexdef ~
                   '\\((published_at|event_type|aggregate_type, aggregate_id)\\)$'";
    let indexes: i64 = sqlx::query_scalar(indexes).fetch_one(pool).await?;
    let schema = columns == locked && indexes == 3;
    proof.see("outbox_events has the locked schema and indexes", "asked the catalogue after the migration", schema);

    let layout = Layout::packfinderz();
    let known = [Some(&layout.id), layout.topic.column(), layout.key.as_ref(), Some(&layout.payload)];
    let known = known.into_iter().chain([&layout.created_at, &layout.delivered_at].map(Option::as_ref));
    let known = known.chain([&layout.attempts, &layout.last_error].map(Option::as_ref)).flatten();
    let known: BTreeSet<&str> = known.chain(layout.fields.values()).map(|column| column.name.as_str()).collect();
    let table: BTreeSet<&str> = columns.iter().filter_map(|column| column.split(' ').next()).collect();
    proof.see("the model is what the table is", "the layout names these nine columns and no other", known == table);

    let registry = events::registry()?;
    let ours: Vec<&str> = registry.events().collect();
    let same = words(pool, "event_type_enum").await? == ours;
    let mut aggregates = layout.fields.get(AGGREGATE_TYPE).map(|column| column.values.clone()).unwrap_or_default();
    aggregates.sort();
    let same = same && words(pool, "aggregate_type_enum").await? == aggregates;
    let how = "18 events of the registry and 8 aggregates of the layout are those of the database";
    proof.see("enums are defined once and used everywhere", how, same && aggregates.len() == 8 && ours.len() == 18);
    Ok(())
}

/// The topic is missing at first; one publisher fails and is cut off, two others do its work. Answers the subscription of a consumer.
async fn outage_and_crash(scene: &Scene, proof: &mut Proof) -> Result<Subscribed> {
    let pool = &scene.shop.pool;
    let first = scene.publish(impatient()?).await?;
    let failed = async || {
        let failed = "select count(*) from outbox_events where attempt_count > 0 and last_error is not null";
        sqlx::query_scalar::<_, i64>(failed).fetch_one(pool).await.is_ok_and(|failed| failed > 0)
    };
    within(PATIENCE, "a failure in the table", failed).await?;
    let sound =
        "select bool_and(published_at is null) and coalesce(max(length(last_error)) <= 500, false) from outbox_events";
    let sound: bool = sqlx::query_scalar(sound).fetch_one(pool).await?;
    let how = "the topic was missing: attempt_count rose, last_error has at most 500 characters";
    proof.see("a failure is counted and kept, and published_at stays empty", how, sound);

    scene.cut_off(first).await?;
    scene.create_topic().await?;
    let mailer = scene.subscribe("mailer").await?;
    let mut other = pool.begin().await?;
    let lock = "select id from outbox_events order by created_at limit 1 for update";
    sqlx::query(lock).execute(&mut *other).await?;
    // Nothing is published until both have got something, so that neither does all of it.
    let watched = scene.watched().await?;
    watched.hold(true);
    let settings = few_at_a_time()?;
    let two = [
        scene.publish_watched("one", &watched, settings.clone()).await?,
        scene.publish_watched("two", &watched, settings).await?,
    ];
    within(PATIENCE, "that both publishers have rows", async || watched.names().len() == 2).await?;
    watched.hold(false);
    let passed_over = scene.published(EVENTS as i64 - 1).await.is_ok();
    proof.see("rows that somebody has locked are passed over", "all but a locked row were published", passed_over);
    drop(other.rollback().await);
    let all = scene.published(EVENTS as i64).await.is_ok();
    let how = "the first publisher was cut off with its connections, two others did the rest";
    proof.see("it goes on after a crash without help", how, all);
    for publisher in two {
        publisher.stop().await?;
    }
    let arrived = scene.received(EVENTS).await?.len();
    let (taken, ones) = (watched.taken(), watched.taken().iter().filter(|(name, _)| *name == "one").count());
    let how =
        format!("one took {ones} rows, the other {}; {EVENTS} rows became {arrived} messages", taken.len() - ones);
    proof.see("two publishers publish no row twice", &how, arrived == EVENTS && taken.len() == EVENTS);
    Ok(mailer)
}

async fn readiness(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let publisher = scene.publisher("readiness", impatient()?).await?;
    let ready = publisher.ready().await.is_ok();
    scene.proxy.set(Mode::Reset);
    let without_pubsub = publisher.ready().await.is_err_and(|why| why.contains("Pub/Sub"));
    scene.proxy.set(Mode::Pass);
    let nowhere =
        PgPoolOptions::new().acquire_timeout(Duration::from_secs(1)).connect_lazy("postgres://127.0.0.1:1/x")?;
    let lost = Publisher::new(nowhere, &scene.pubsub(), impatient()?)?;
    let without_database = lost.ready().await.is_err_and(|why| why.contains("database"));
    let how = "asked with both, without Pub/Sub, and without the database";
    proof.see("readiness fails without the database or Pub/Sub", how, ready && without_pubsub && without_database);
    Ok(())
}

/// The worker as a process, and what is in the files of this directory.
async fn operation(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let starts = "`make run-outbox-publisher` starts the worker, a process of its own";
    // The Procfile names the command, and this program's neighbour is what was built for it.
    let command = include_str!("../Procfile").trim().strip_prefix("outbox-publisher: ");
    let binary = std::env::current_exe()?.with_file_name(command.unwrap_or("?"));
    if binary.exists() {
        scene.shop.place("buyer-make", 100).await?;
        let mut made = make_run(scene, &binary)?;
        let published = scene.published(EVENTS as i64 + 1).await.is_ok();
        made.signal(Signal::SIGTERM)?;
        made.wait(PATIENCE).await?;
        proof.see(starts, "make started what the Procfile names, and it published an event", published);
    } else {
        let why = format!("{} is not built; run `cargo build -p order-events` first", binary.display());
        proof.leave_out(starts, &why);
    }
    let reached = reached_from("bin/outbox-publisher");
    let how = format!("its sources lead to the modules {reached:?} of this crate and to no other");
    proof.see("the worker knows nothing of the domain", &how, reached.into_iter().eq(["publisher", "settings"]));
    let defaults = Settings::read(|_| None)?;
    let (poll, keep) = (Duration::from_millis(500), Duration::from_secs(168 * 3_600));
    let expected = Settings { batch_size: 50, poll, max_attempts: 10, idempotency_ttl: keep };
    let wrong = [("BATCH_SIZE", "0"), ("TTL_HOURS", "167"), ("TTL_HOURS", "721")];
    let strict = wrong
        .iter()
        .all(|(name, value)| Settings::read(|variable| variable.ends_with(name).then(|| (*value).into())).is_err());
    let how = "50, 500 ms, 10, 168 h unless the variables say otherwise; nonsense is refused, and less than 7 days or more than 30";
    proof.see("batch, poll, attempts and time to keep can be set", how, defaults == expected && strict);
    let readme = include_str!("../README.md");
    let words = ["at least once", "duplicates possible; consumers must be idempotent", "skip locked", "Redis"];
    let said = words.iter().all(|words| readme.contains(words));
    proof.see("the write-up says what it must", "README.md: at least once, duplicates, idempotency, locks", said);
    Ok(())
}

fn on_the_wire(received: &[Received], log: &Log, proof: &mut Proof) {
    let is_same = |message: &Received| {
        let id = message.attributes.get("event_id").cloned().unwrap_or_default();
        serde_json::from_slice::<serde_json::Value>(&message.data).is_ok_and(|body| body["eventId"] == id.as_str())
    };
    let how = "in the attributes and in the body of every message";
    proof.see("every event has its row's id", how, received.iter().all(is_same));
    let names = ["event_id", "event_type", "aggregate_type", "aggregate_id"];
    let whole = received.iter().all(|message| names.iter().all(|name| message.attributes.contains_key(*name)));
    let types: BTreeSet<_> = received.iter().filter_map(|message| message.attributes.get("event_type")).collect();
    let how = format!("{TOPIC} has {} types, told apart by their attributes", types.len());
    proof.see("one topic carries all events", &how, whole && types.len() == 2);
    let text = log.text();
    let logged = |message: &Received| {
        let value = |name: &&str| message.attributes.get(*name).map(String::as_str).unwrap_or("?");
        text.lines().any(|line| names.iter().all(|name| line.contains(name) && line.contains(value(name))))
    };
    let how = "a line with event_id, event_type, aggregate_type and aggregate_id for each";
    proof.see("the publisher logs what it publishes", how, received.iter().all(logged));
}

/// The modules of this crate that a source uses, and those that they use.
fn reached_from(source: &str) -> BTreeSet<&'static str> {
    let sources = [
        ("bin/outbox-publisher", include_str!("bin/outbox-publisher.rs")),
        ("consumer", include_str!("consumer.rs")),
        ("events", include_str!("events.rs")),
        ("orders", include_str!("orders.rs")),
        ("publisher", include_str!("publisher.rs")),
        ("scene", include_str!("scene.rs")),
        ("settings", include_str!("settings.rs")),
    ];
    let mut reached = BTreeSet::new();
    let mut open = vec![source];
    while let Some(name) = open.pop() {
        let text = sources.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
        for (module, _) in sources {
            let uses = ["crate::", "order_events::"].map(|root| format!("{root}{module}"));
            if uses.iter().any(|path| text.contains(path.as_str())) && reached.insert(module) {
                open.push(module);
            }
        }
    }
    reached
}

async fn consumers(scene: &Scene, subscription: &Subscribed, received: &[Received], proof: &mut Proof) -> Result<()> {
    let settings = Settings::from_env()?;
    let keep = settings.idempotency_ttl;
    let mailer = Consumer::connect("mailer", &scene.redis.url(), &settings).await?;
    // Publishers died after Pub/Sub had the events and before the database knew: all of them are published again.
    sqlx::query("update outbox_events set published_at = null").execute(&scene.shop.pool).await?;
    let again = scene.publish(impatient()?).await?;
    scene.published(EVENTS as i64).await?;
    again.stop().await?;
    let (mut mails, mut failures) = (0, 0);
    let stop = CancellationToken::new();
    let handling = mailer.run(subscription, stop.clone(), async |event: EventEnvelope<serde_json::Value>| {
        if failures < 3 {
            failures += 1;
            return Err(std::io::Error::other("no mail for now"));
        }
        mails += usize::from(serde_json::from_value::<OrderCreated>(event.data).is_ok());
        Ok(())
    });
    let watching = async {
        let all = async || subscription.acknowledged() == 2 * EVENTS;
        let all = within(PATIENCE, "that all arrivals are acknowledged", all).await;
        stop.cancel();
        all
    };
    let (handled, all) = tokio::join!(handling, watching);
    handled?;
    let how = format!("{} arrivals and {failures} failures made {mails} mails for {ORDERS} orders", 2 * EVENTS);
    proof.see("a duplicate does nothing, and a failure loses nothing", &how, all.is_ok() && mails == ORDERS);

    let counter = Consumer::connect("counter", &scene.redis.url(), &settings).await?;
    let first = &received[0].attributes;
    let marks = std::iter::repeat_with(|| counter.check_and_mark_processed(first)).take(16);
    let firsts = try_join_all(marks).await?.into_iter().filter(|already| !already).count();
    proof.see("one call checks and marks, also at the same time", "of 16 calls at once one was the first", firsts == 1);
    let key = format!("pf:evt:processed:mailer:{}", first["event_id"]);
    let left: i64 = scene.redis.command(&["TTL", &key]).await?.trim().parse()?;
    let kept = (keep.as_secs() as i64 - 60..=keep.as_secs() as i64).contains(&left);
    proof.see(
        "Redis keeps the mark for as long as the variable says",
        "TTL of pf:evt:processed:mailer:<event_id>",
        kept,
    );
    Ok(())
}
