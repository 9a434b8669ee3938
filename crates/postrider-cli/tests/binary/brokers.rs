//! The relay with several brokers: each message gets where its route leads, and one broker that is down holds up nobody
//! else.

use anyhow::{Context as _, Result};
use async_nats::jetstream::{self, stream};
use testkit::brokers::kafka::Kafka;
use testkit::brokers::nats::Nats;
use testkit::brokers::redis::Redis;
use testkit::within;

use super::support::{PATIENCE, Relay, Site};

/// Three brokers, and a relay that knows them.
struct Brokers {
    site: Site,
    redis: Redis,
    nats: Nats,
    kafka: Kafka,
    relay: Relay,
}

impl Brokers {
    async fn start() -> Result<Self> {
        let site = Site::postgres().await?.migrated().await?;
        // What is delivered survives the restart in the test.
        let redis = Redis::builder().durable().start().await?;
        let nats = Nats::start().await?;
        let kafka = Kafka::start().await?;
        kafka.create_topic("orders", 2).await?;
        let jetstream = jetstream::new(async_nats::connect(nats.url()).await?);
        let config = stream::Config { name: "CARTS".into(), subjects: vec!["carts.>".into()], ..Default::default() };
        jetstream.create_stream(config).await?;
        let text = format!(
            r#"
[source.shop]
url = {{ env = "SHOP_URL" }}
retry_base = "100ms"
retry_max = "500ms"
max_attempts = 500
[sink.streams]
type = "redis"
urls = ["{}"]
[sink.carts]
type = "nats"
servers = ["{}"]
[sink.orders]
type = "kafka"
brokers = ["{}"]
[sink.people]
type = "provider"
[sink.people.noop]
providers = ["sms"]
[[route]]
topic = "visit.*"
sink = "streams"
destination = "visits"
format = "envelope"
[[route]]
topic = "cart.*"
sink = "carts"
destination = "carts.{{topic}}"
[[route]]
topic = "order.*"
sink = "orders"
destination = "orders"
format = "cloudevents-structured"
[[route]]
sink = "people"
"#,
            redis.url(),
            nats.url(),
            kafka.address()
        );
        let file = site.file("postrider.toml", &text)?.display().to_string();
        let relay = Relay::spawn(&["--config", &file], &[("SHOP_URL", site.url.as_str())])?;
        relay.until_it_delivers().await?;
        Ok(Self { site, redis, nats, kafka, relay })
    }

    async fn enqueue(&self, topic: &str, count: usize) -> Result<()> {
        for number in 0..count {
            let payload = format!(r#"{{"text": "number {number}"}}"#);
            let arguments = ["enqueue", "-n", "shop", "-t", topic, "-H", "provider=sms", "-H", "recipient=1", &payload];
            self.site.postrider(&arguments).await?.succeeded()?;
        }
        Ok(())
    }

    async fn in_redis(&self) -> Result<usize> {
        Ok(self.redis.command(&["XLEN", "visits"]).await?.trim().parse()?)
    }

    async fn in_nats(&self) -> Result<u64> {
        let jetstream = jetstream::new(async_nats::connect(self.nats.url()).await?);
        Ok(jetstream.get_stream("CARTS").await?.cached_info().state.messages)
    }

    async fn until_delivered(&self, count: i64) -> Result<()> {
        let all = || async { self.site.count("delivered").await.is_ok_and(|delivered| delivered == count) };
        within(PATIENCE, "everything is delivered", all).await.with_context(|| self.relay.log())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t38_a_broker_that_is_down_holds_up_no_other_and_gets_its_messages_later() -> Result<()> {
    let brokers = Brokers::start().await?;
    for topic in ["visit.begun", "cart.filled", "order.placed"] {
        brokers.enqueue(topic, 3).await?;
    }
    brokers.until_delivered(9).await?;
    assert_eq!((brokers.in_redis().await?, brokers.in_nats().await?), (3, 3));
    let records = brokers.kafka.reader("orders", 2)?;
    within(PATIENCE, "Kafka has its messages", || async { records.records().len() == 3 }).await?;
    brokers.redis.kill().await?;
    brokers.enqueue("visit.begun", 12).await?;
    brokers.enqueue("cart.filled", 3).await?;
    brokers.enqueue("reply.written", 1).await.context("the provider's")?;
    brokers.until_delivered(13).await?;
    assert_eq!(brokers.in_nats().await?, 6, "NATS goes on");
    brokers.redis.restart().await?;
    brokers.until_delivered(25).await?;
    assert!(brokers.in_redis().await? >= 15, "Redis has all of them");
    assert_eq!(brokers.site.count("dead").await?, 0);
    let metrics = brokers.relay.get("/metrics").await?.1;
    for sink in ["streams", "carts", "orders", "people"] {
        let line = |line: &&str| {
            line.starts_with("postrider_sink_published_total{")
                && line.contains(&format!("sink=\"{sink}\""))
                && line.contains("outcome=\"accepted\"")
        };
        assert!(metrics.lines().any(|text| line(&text)), "{sink} in {metrics}");
    }
    Ok(())
}

/// A consumer of the outbox event router's topics finds what it found before: topic, key, value, and the row's id as a header.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_the_outbox_event_router_reach_kafka_as_its_consumers_know_them() -> Result<()> {
    for layout in ["debezium", "debezium_keep"] {
        let site = Site::postgres().await?;
        site.postrider(&["migrate", "--layout", layout]).await?.succeeded()?;
        let kafka = Kafka::start().await?;
        kafka.create_topic("outbox.event.Order", 1).await?;
        let text = format!(
            "[source.shop]\nurl = {:?}\nlayout = {layout:?}\n[sink.kafka]\ntype = \"kafka\"\nbrokers = [{:?}]\n\
             [[route]]\nsink = \"kafka\"\ndestination = \"outbox.event.{{topic}}\"\n",
            site.url,
            kafka.address()
        );
        let file = site.file("postrider.toml", &text)?.display().to_string();
        let id = "00000000-0000-0000-0000-000000000007";
        let row = "insert into outboxevent (id, aggregatetype, aggregateid, type, payload) values ";
        site.source()
            .await?
            .run(&format!("{row} ('{id}', 'Order', '4711', 'OrderCreated', '{{\"total\":3}}')"))
            .await?;
        let relay = Relay::spawn(&["--config", &file], &[])?;
        let reader = kafka.reader("outbox.event.Order", 1)?;
        within(PATIENCE, "the event", || async { !reader.records().is_empty() }).await.with_context(|| relay.log())?;
        let record = reader.records().remove(0);
        let header = |name: &str| record.headers.get(name).map(String::as_str);
        assert_eq!(record.key.as_deref(), Some(&b"4711"[..]));
        let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().context("a value")?)?;
        assert_eq!(value, serde_json::json!({ "total": 3 }));
        assert_eq!((header("id"), header("event_type")), (Some(id), Some("OrderCreated")));
    }
    Ok(())
}
