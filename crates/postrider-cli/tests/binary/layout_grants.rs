//! The grants that `postrider migrate --print-grants` prints for other layouts are enough, on every table that we know.

use anyhow::{Context as _, Result, ensure};
use testkit::within;

use crate::layout::with_table_of;
use crate::support::{PATIENCE, Relay, Site};

/// The address of the same database for another role.
fn as_role(url: &str, role: &str) -> Result<String> {
    let (scheme, rest) = url.split_once("://").context("an address")?;
    let (_, place) = rest.split_once('@').context("a user")?;
    Ok(format!("{scheme}://{role}:secret@{place}"))
}

/// What a message of each layout needs.
fn message(layout: &str) -> &'static [&'static str] {
    match layout {
        "modkit" => &["-n", "shop", "-t", "orders", "--dedupe-key", "1"],
        "talkie" => &["-n", "outbox", "-t", "orders", "-k", "7", "--dedupe-key", "1"],
        "packfinderz" => &[
            "-n",
            "packfinderz",
            "-t",
            "order_created",
            "-k",
            "00000000-0000-0000-0000-000000000007",
            "-H",
            "aggregate-type=vendor_order",
        ],
        "debezium" | "debezium_keep" => &["-n", "outboxevent", "-t", "order", "-k", "7", "-H", "event-type=placed"],
        _ => &[
            "-n",
            "channels",
            "-t",
            "mail",
            "-k",
            "7",
            "--tenant",
            "00000000-0000-0000-0000-000000000001",
            "-H",
            "channel-message-id=00000000-0000-0000-0000-000000000002",
        ],
    }
}

async fn a_relay_runs_with_what_is_granted(site: Site, layout: &str) -> Result<()> {
    let source = site.source().await?;
    let suffix = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let roles = ["producer", "relay", "operator", "reader"].map(|role| format!("{role}_{suffix}"));
    for role in &roles {
        source
            .run(&match site.url.starts_with("mysql") {
                true => format!("create user '{role}'@'%' identified by 'secret'"),
                false => format!("create role {role} login password 'secret'"),
            })
            .await?;
    }
    let [producer, relay, operator, reader] = &roles;
    let names = ["--producer", producer, "--relay", relay, "--operator", operator, "--reader", reader];
    let print = [&["migrate", "--print-grants", "--layout", layout], &names[..]].concat();
    let printed = site.postrider(&print).await?.succeeded()?.out;
    source.run(&printed).await.with_context(|| printed.clone())?;
    if layout == "valinor" {
        // Its rows are kept apart by tenant; the relay and who looks need policies of their own.
        source
            .run(&format!(
                "insert into tenants values ('00000000-0000-0000-0000-000000000001'); \
                 insert into channel_messages values ('00000000-0000-0000-0000-000000000002'); \
                 create policy all_of_them on channel_outbox to {producer}, {relay}, {operator}, {reader} using (true) with check (true)"
            ))
            .await?;
    }
    let run = async |role: &str, arguments: &[&str]| {
        let url = as_role(&site.url, role)?;
        let arguments = [arguments, &["--layout", layout]].concat();
        site.postrider_with(&arguments, &[("POSTRIDER_DATABASE_URL", &url)], None).await
    };
    run(producer, &[&["enqueue"], message(layout), &["1"]].concat()).await?.succeeded().context("enqueue")?;
    run(producer, &["dead", "list"]).await?.failed_with(1)?;
    run(reader, &["status"]).await?.succeeded().context("status")?;
    run(reader, &["dead", "list"]).await?.succeeded().context("dead list")?;
    let url = as_role(&site.url, relay)?;
    let mut running = Relay::spawn(&["--sink", "stdout", "--layout", layout], &[("POSTRIDER_DATABASE_URL", &url)])?;
    within(PATIENCE, "a delivery", || async { running.out().lines().count() == 1 }).await.context(running.log())?;
    ensure!(running.stop().await? == 0, "{}", running.log());
    let checked = run(relay, &["layout", "check"]).await?.succeeded()?;
    ensure!(!checked.out.contains("problem"), "{checked:?}");
    run(operator, &["dead", "replay", "--all", "--yes"]).await?.succeeded().context("replay")?;
    run(operator, &["purge", "--older-than", "0s", "--yes"]).await?.succeeded().context("purge")?;
    run(operator, &["audit"]).await?.succeeded().context("audit")?;
    run(relay, &["audit"]).await?.failed_with(1)?;
    Ok(())
}

#[tokio::test]
async fn s23_roles_of_other_layouts_have_what_they_need_on_postgresql() -> Result<()> {
    for layout in ["modkit", "talkie", "packfinderz", "valinor", "debezium", "debezium_keep"] {
        a_relay_runs_with_what_is_granted(with_table_of(layout).await?, layout).await.context(layout)?;
    }
    Ok(())
}

#[tokio::test]
async fn s23_accounts_of_other_layouts_have_what_they_need_on_mysql() -> Result<()> {
    for layout in ["modkit", "talkie", "debezium_keep"] {
        let site = Site::mariadb().await?;
        site.postrider(&["migrate", "--layout", layout]).await?.succeeded()?;
        a_relay_runs_with_what_is_granted(site, layout).await.context(layout)?;
    }
    Ok(())
}
