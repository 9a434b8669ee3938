//! What arrives, on every wire.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use testkit::within;

use super::support::{PATIENCE, Receiver, Relay, Site, config};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn enqueue(site: &Site) -> Result<(String, String)> {
    let tenant = uuid::Uuid::new_v4().to_string();
    let parent = format!("traceparent={TRACE}");
    let all = [
        "enqueue",
        "-n",
        "shop",
        "-t",
        "order.placed",
        "-k",
        "7",
        "--tenant",
        &tenant,
        "-H",
        "x-colour=blue",
        "-H",
        &parent,
        r#"{"order": 7}"#,
    ];
    Ok((site.postrider(&all).await?.succeeded()?.out.trim().to_owned(), tenant))
}

#[tokio::test]
async fn s3_38_every_field_is_on_the_http_wire() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        let (id, tenant) = enqueue(&site).await?;
        let mut relay =
            Relay::with_config(&site.file("postrider.toml", &config(&site.url, &receiver.url, ""))?).await?;
        let arrival = receiver.until(1).await.with_context(|| relay.log())?.remove(0);
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", id.as_str()),
            ("ce-type", "order.placed"),
            ("ce-namespace", "shop"),
            ("ce-partitionkey", "7"),
            ("ce-tenantid", tenant.as_str()),
            ("ce-attempt", "1"),
            ("traceparent", TRACE),
            ("x-colour", "blue"),
            ("content-type", "application/json"),
        ] {
            assert_eq!(arrival.header(name), value, "{name} in {arrival:#?}");
        }
        assert!(arrival.header("ce-time").ends_with('Z'), "{arrival:?}");
        assert_eq!(serde_json::from_slice::<Value>(&arrival.body)?, json!({ "order": 7 }));
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn s3_38_every_field_is_on_the_line() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let (id, tenant) = enqueue(&site).await?;
        let mut relay = Relay::spawn(&["--sink", "stdout"], &[("POSTRIDER_DATABASE_URL", &site.url)])?;
        within(PATIENCE, "a line", || async { relay.out().contains('\n') }).await.with_context(|| relay.log())?;
        let line: Value = serde_json::from_str(relay.out().lines().next().context("a line")?)?;
        for (name, value) in [
            ("event_id", id.as_str()),
            ("namespace", "shop"),
            ("topic", "order.placed"),
            ("key", "7"),
            ("tenant_id", tenant.as_str()),
            ("traceparent", TRACE),
        ] {
            assert_eq!(line[name], value, "{name} in {line:#}");
        }
        assert_eq!((&line["attempt"], &line["payload"]), (&json!(1), &json!({ "order": 7 })));
        assert_eq!(line["headers"]["x-colour"], "blue", "{line:#}");
        assert!(line["created_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{line:#}");
        assert_eq!(relay.stop().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn c25_routes_lead_by_source_namespace_and_topic() -> Result<()> {
    let (shop, billing) = (Site::postgres().await?.migrated().await?, Site::sqlite().await?.migrated().await?);
    let receiver = Receiver::start().await?;
    let text = format!(
        r#"
[source.shop]
url = "{}"
[source.billing]
url = "{}"
[sink.hooks]
type = "http"
allow_addresses = ["127.0.0.0/8"]
[sink.more]
type = "http"
allow_addresses = ["127.0.0.0/8"]
[[route]]
source = "billing"
sink = "more"
destination = "{receiver}/billing"
[[route]]
topic = "order.*"
sink = "hooks"
destination = "{receiver}/orders/{{namespace}}/{{topic}}"
[[route]]
sink = "hooks"
destination = "{receiver}/rest"
"#,
        shop.url,
        billing.url,
        receiver = receiver.url
    );
    let mut relay = Relay::with_config(&shop.file("postrider.toml", &text)?).await?;
    for (site, topic) in
        [(&shop, "order.placed"), (&shop, "../escape"), (&shop, "order.../x"), (&billing, "order.placed")]
    {
        site.postrider(&["enqueue", "-n", "shop", "-t", topic, "1"]).await?.succeeded()?;
    }
    receiver.until(4).await.with_context(|| relay.log())?;
    let mut paths: Vec<String> = receiver.arrivals().iter().map(|arrival| arrival.path.clone()).collect();
    paths.sort();
    assert_eq!(paths, ["/billing", "/orders/shop/order...%2Fx", "/orders/shop/order.placed", "/rest"]);
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_message_without_a_route_waits_with_its_attempts_until_there_is_one() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let receiver = Receiver::start().await?;
    let text = config(&site.url, &receiver.url, "").replace("[[route]]", "[[route]]\ntopic = \"known\"");
    let mut relay = Relay::with_config(&site.file("postrider.toml", &text)?).await?;
    let id = site.postrider(&["enqueue", "-n", "n", "-t", "unknown", "1"]).await?.succeeded()?.out;
    within(PATIENCE, "a word of it", || async { relay.log().contains("no route is for this message") }).await?;
    let shown = || async {
        let shown = site.postrider(&["dead", "show", id.trim(), "--json"]).await.and_then(|ran| ran.json());
        shown.is_ok_and(|shown| shown["state"] == "pending" && shown["last_error"].to_string().contains("no route"))
    };
    within(PATIENCE, "its error", shown).await?;
    let shown = site.postrider(&["dead", "show", id.trim(), "--json"]).await?.json()?;
    assert_eq!(shown["attempts"], 0, "{shown}");
    assert!(relay.get("/metrics").await?.1.contains("postrider_unrouted_total{dispatcher=\"shop\"} 1"));
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}
