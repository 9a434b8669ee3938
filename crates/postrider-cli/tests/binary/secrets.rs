//! S16, S17: secrets and payloads appear nowhere.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::{Signal, within};

use super::support::{PATIENCE, Receiver, Relay, Site, postrider};

const SIGNING_KEY: &str = "whsec_Y2FuYXJ5LXNpZ25pbmcta2V5LWNhbmFyeS0wMDE=";

#[tokio::test]
async fn s16_s17_neither_secrets_nor_payloads_are_printed_even_at_trace() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let receiver = Receiver::start().await?;
        let key = site.file("key", &format!("{SIGNING_KEY}\n"))?;
        let text = format!(
            r#"
[log]
level = "trace"
[source.shop]
url = {{ env = "SHOP_URL" }}
retry_base = "100ms"
retry_max = "200ms"
max_attempts = 3
[sink.hooks]
type = "http"
allow_addresses = ["127.0.0.0/8"]
signing_keys = [{{ file = "{}" }}]
headers = {{ authorization = {{ env = "HOOK_TOKEN" }} }}
[[route]]
sink = "hooks"
destination = "{}/path-canary"
"#,
            key.display(),
            receiver.url
        );
        let file = site.file("postrider.toml", &text)?.display().to_string();
        let variables = [("SHOP_URL", site.url.as_str()), ("HOOK_TOKEN", "Bearer canary-token")];
        let mut relay = Relay::spawn(&["--config", &file], &variables)?;
        relay.until_it_delivers().await?;
        let payload = r#"{"card": "canary-payload"}"#;
        let enqueue = ["enqueue", "-n", "n", "-t", "t", "-H", "x-note=canary-header", payload];
        site.postrider(&enqueue).await?.succeeded()?;
        let arrivals = receiver.until(1).await.with_context(|| relay.log())?;
        assert_eq!(arrivals[0].header("authorization"), "Bearer canary-token", "it is sent");
        assert!(arrivals[0].header("webhook-signature").starts_with("v1,"), "{arrivals:?}");
        // A destination that fails, then one that refuses for good.
        receiver.answer(500, Duration::ZERO);
        site.postrider(&enqueue).await?.succeeded()?;
        within(PATIENCE, "a death", || async { site.count("dead").await.is_ok_and(|dead| dead == 1) }).await?;
        relay.signal(Signal::SIGHUP)?;
        within(PATIENCE, "a reload", || async { relay.log().contains("is in force") }).await?;
        let metrics = relay.get("/metrics").await?.1;
        let health = relay.get("/healthz").await?.1 + &relay.get("/readyz").await?.1;
        let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", relay.pid()?))?;
        assert_eq!(relay.stop().await?, 0);
        let listed =
            site.postrider(&["dead", "list"]).await?.all() + &site.postrider(&["dead", "list", "--json"]).await?.out;
        let checked =
            postrider(&["config", "check", "--config", &file], &variables, None, site.directory.path()).await?;
        let doctor =
            postrider(&["doctor", "--verbose", "--config", &file], &variables, None, site.directory.path()).await?;
        for (what, text) in [
            ("log", relay.log()),
            ("metrics", metrics),
            ("health", health),
            ("command line", command_line),
            ("dead list", listed.replace("canary-header", "")),
            ("config check", checked.all()),
            ("doctor", doctor.all()),
        ] {
            let found: Vec<&str> =
                text.lines().filter(|line| line.contains("canary") || line.contains("Y2FuYXJ5")).collect();
            assert!(found.is_empty(), "{what}: {found:#?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn s20_a_secret_in_a_file_that_others_can_read_is_warned_of_and_not_repeated() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::sqlite().await?;
    let text = "[source.shop]\nurl = \"postgres://u:canary@localhost/db\"\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n";
    let file = site.file("postrider.toml", text)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    let path = file.display().to_string();
    let ran =
        postrider(&["config", "check", "--config", &path], &[], None, site.directory.path()).await?.succeeded()?;
    assert!(ran.err.contains("source.shop.url") && ran.err.contains("chmod 600"), "{ran:?}");
    assert!(!ran.all().contains("canary"), "{ran:?}");
    Ok(())
}
