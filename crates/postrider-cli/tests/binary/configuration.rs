//! Configuration, as the binary reads it.

use anyhow::{Context as _, Result};

use super::support::{PATIENCE, Relay, Site, postrider};

#[tokio::test]
async fn s20_config_check_names_the_place_and_suggests() -> Result<()> {
    let site = Site::sqlite().await?;
    let good =
        "[source.shop]\nurl = \"sqlite:outbox.db\"\n\n[sink.out]\ntype = \"stdout\"\n\n[[route]]\nsink = \"out\"\n";
    let file = site.file("good.toml", good)?.display().to_string();
    let directory = site.directory.path();
    let ran = postrider(&["config", "check", "--config", &file], &[], None, directory).await?.succeeded()?;
    assert!(ran.out.contains("the configuration is good"), "{ran:?}");
    for (old, new, place, said) in [
        ("url = ", "urll = ", "2:", "did you mean"),
        ("url = \"sqlite:outbox.db\"", "url = \"sqlite:outbox.db\"\nlease = 30", "3:", "unit"),
        (
            "url = \"sqlite:outbox.db\"",
            "url = \"sqlite:outbox.db\"\nlease = \"1s\"\npoll_interval = \"1s\"",
            "4:",
            "third",
        ),
        ("url = \"sqlite:outbox.db\"", "url = \"sqlite:outbox.db\"\nbatch_size = 0", "3:", "batch"),
        ("type = \"stdout\"", "type = \"sdtout\"", "5:", "stdout"),
        ("type = \"stdout\"", "type = \"http\"\ntimeout = \"10\"", "6:", "unit"),
        ("type = \"stdout\"", "type = \"http\"\ntimeout = \"20s\"", "1:", "publish_timeout"),
        ("type = \"stdout\"", "type = \"http\"", "7:", "destination"),
        ("sink = \"out\"", "sink = \"oud\"", "8:", "did you mean \"out\""),
        ("[source.shop]", "[sauce.shop]", "1:", "source"),
    ] {
        let bad = good.replacen(old, new, 1);
        assert_ne!(bad, good);
        let file = site.file("bad.toml", &bad)?.display().to_string();
        let ran = postrider(&["config", "check", "--config", &file], &[], None, directory).await?.failed_with(2)?;
        assert!(ran.err.contains(&format!("bad.toml:{place}")) && ran.err.contains(said), "{new}: {}", ran.err);
    }
    let wrong = [("POSTRIDER__SOURCE__SHOP__LEESE", "30s")];
    let ran = postrider(&["config", "check", "--config", &file], &wrong, None, directory).await?.failed_with(2)?;
    assert!(
        ran.err.contains("POSTRIDER__SOURCE__SHOP__LEESE") && ran.err.contains("POSTRIDER__SOURCE__SHOP__LEASE?"),
        "{}",
        ran.err
    );
    Ok(())
}

#[tokio::test]
async fn the_reference_in_the_documentation_is_what_the_binary_prints() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let printed = postrider(&["config", "reference"], &[], None, directory.path()).await?.succeeded()?.out;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md"))?;
    assert_eq!(page, printed, "run: cargo run -- config reference > docs/reference/configuration.md");
    let example = postrider(&["config", "example"], &[], None, directory.path()).await?.succeeded()?.out;
    std::fs::write(directory.path().join("postrider.toml"), example)?;
    let variables = [
        ("DATABASE_URL", "postgres://localhost/shop"),
        ("WEBHOOK_SIGNING_KEY", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
    ];
    let ran = postrider(&["config", "check"], &variables, None, directory.path()).await?;
    assert!(ran.status.success(), "{ran:#?}");
    Ok(())
}

#[tokio::test]
async fn the_environment_alone_configures_a_relay() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    let variables = [
        ("POSTRIDER__SOURCE__SHOP__URL", site.url.as_str()),
        ("POSTRIDER__SINK__OUT__TYPE", "stdout"),
        ("POSTRIDER__ROUTE__0__SINK", "out"),
        ("POSTRIDER__ROUTE__0__TOPIC", "t*"),
    ];
    let mut relay = Relay::spawn(&[], &variables)?;
    let arrived = || async { relay.out().contains("\"event_id\"") };
    testkit::within(PATIENCE, "a line", arrived).await?;
    assert_eq!(relay.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn c13_a_source_is_left_alone_until_it_is_switched_on() -> Result<()> {
    let (on, off) = (Site::sqlite().await?.migrated().await?, Site::sqlite().await?.migrated().await?);
    for site in [&on, &off] {
        site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
    }
    let text = |enabled: bool| {
        format!(
            "[source.on]\nurl = \"{}\"\n[source.off]\nurl = \"{}\"\nenabled = {enabled}\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n",
            on.url, off.url
        )
    };
    for (enabled, left) in [(false, 1), (true, 0)] {
        let mut relay = Relay::with_config(&on.file("postrider.toml", &text(enabled))?).await?;
        let site = if enabled { &off } else { &on };
        let delivered = || async { site.count("delivered").await.is_ok_and(|rows| rows == 1) };
        testkit::within(PATIENCE, "a delivery", delivered).await.with_context(|| relay.log())?;
        assert_eq!(relay.stop().await?, 0);
        assert_eq!(off.count("pending").await?, left, "{}", relay.log());
    }
    Ok(())
}
