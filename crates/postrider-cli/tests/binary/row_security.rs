//! Tenants kept apart by the binary: row-level security on and off, and what `run` and `doctor` make of it.

use anyhow::{Context as _, Result};
use testkit::within;
use uuid::Uuid;

use super::support::{PATIENCE, Relay, Site};

/// An outbox with its roles; nothing is protected yet.
struct Tenants {
    site: Site,
    roles: [String; 4],
}

impl Tenants {
    async fn new() -> Result<Self> {
        let site = Site::postgres().await?.migrated().await?;
        let suffix = Uuid::new_v4().simple().to_string()[..8].to_owned();
        let roles = ["app", "relay", "operator", "reader"].map(|role| format!("{role}_{suffix}"));
        let tenants = Self { site, roles };
        for role in &tenants.roles {
            tenants.run(&format!("create role {role} login")).await?;
        }
        let printed = tenants.migrate(&["--print-grants", "--row-level-security"]).await?;
        assert!(printed.contains("-- The changelog and its settings are left out"), "{printed}");
        tenants.run(&printed).await?;
        Ok(tenants)
    }

    async fn run(&self, sql: &str) -> Result<()> {
        self.site.source().await?.run(sql).await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    /// `postrider migrate` with the roles; what it printed.
    async fn migrate(&self, arguments: &[&str]) -> Result<String> {
        let [application, relay, operator, reader] = &self.roles;
        let roles = ["--application", application, "--relay", relay, "--operator", operator, "--reader", reader];
        Ok(self.site.postrider(&[&["migrate"], arguments, &roles[..]].concat()).await?.succeeded()?.out)
    }

    fn url(&self, role: usize) -> String {
        self.site.url.replace("postgres@", &format!("{}@", self.roles[role]))
    }

    /// A configuration for the relay, or for the superuser who may become anybody.
    fn config(&self, url: &str, policy: &str) -> Result<String> {
        let text = format!(
            "[admin]\nenabled = false\n[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n[source.shop]\nurl = \"{url}\"\n\
             [source.shop.tenants]\nrow_level_security = \"{policy}\"\napplication_role = \"{}\"\n",
            self.roles[0]
        );
        Ok(self.site.file(&format!("{policy}.toml"), &text)?.display().to_string())
    }

    /// The findings of the doctor about tenants, as severity and text, and its exit code.
    async fn doctor(&self, url: &str, policy: &str) -> Result<(Vec<(String, String)>, i32)> {
        let file = self.config(url, policy)?;
        let ran = self.site.postrider(&["doctor", "--json", "--config", &file]).await?;
        let examined = ran.json()?;
        let findings = examined[0]["findings"].as_array().context("findings")?.iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let ours = findings.filter(|finding| text(&finding["name"]).starts_with("tenants"));
        Ok((ours.map(|finding| (text(&finding["severity"]), text(&finding["what"]))).collect(), ran.code()))
    }

    /// Starts the relay, and stops it when it delivers; its log, and whether it did.
    async fn starts(&self, policy: &str) -> Result<(bool, String)> {
        let file = self.config(&self.url(1), policy)?;
        let mut relay = Relay::spawn(&["--config", &file], &[])?;
        let delivers = |log: &str| log.contains("\"message\":\"delivering\"");
        let settled = || async { delivers(&relay.log()) || relay.log().contains("postrider: source") };
        within(PATIENCE, "a start or a refusal", settled).await.with_context(|| relay.log())?;
        let started = delivers(&relay.log());
        let code = if started { relay.stop().await? } else { relay.ended(PATIENCE).await? };
        assert_eq!(code, if started { 0 } else { 1 }, "{}", relay.log());
        Ok((started, relay.log()))
    }
}

#[tokio::test]
async fn s08_row_level_security_is_switched_on_and_off_by_migrate() -> Result<()> {
    let tenants = Tenants::new().await?;
    let printed = tenants.migrate(&["--row-level-security", "--dry-run"]).await?;
    assert!(printed.contains("force row level security;") && printed.contains("app.current_tenant_id"), "{printed}");
    assert!(tenants.migrate(&["--row-level-security"]).await?.contains("row-level security is on"));
    assert!(tenants.migrate(&["--row-level-security"]).await?.contains("is already on"));
    assert!(tenants.migrate(&["--row-level-security", "--dry-run"]).await?.contains("as asked for"));

    let (one, two) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    let postrider = |role: usize, arguments: Vec<String>| {
        let (url, site) = (tenants.url(role), &tenants.site);
        async move {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            site.postrider_with(&arguments, &[("POSTRIDER_DATABASE_URL", &url)], None).await
        }
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for tenant in [&one, &two, &two] {
        postrider(0, words(&format!("enqueue -n shop -t order --tenant {tenant} 1"))).await?.succeeded()?;
    }
    postrider(0, words("enqueue -n shop -t order 1")).await?.failed_with(1)?;
    tenants.run("update outbox_messages set status = 'dead'").await?;
    for role in [2, 3] {
        for (tenant, messages) in [(&one, 1), (&two, 2)] {
            let listed = postrider(role, words(&format!("dead list --json --tenant {tenant}"))).await?.succeeded()?;
            let listed = listed.json_lines()?;
            assert_eq!(listed.len(), messages);
            assert!(listed.iter().all(|message| message["tenant"] == **tenant), "{listed:?}");
        }
        postrider(role, words("status")).await?.succeeded()?;
    }
    postrider(3, words(&format!("dead replay --yes --tenant {one}"))).await?.failed_with(1)?;
    postrider(2, words(&format!("dead replay --yes --tenant {one}"))).await?.succeeded()?;
    postrider(2, words(&format!("purge --state dead --older-than 0s --yes --tenant {one}"))).await?.succeeded()?;
    assert_eq!((tenants.site.count("pending").await?, tenants.site.count("dead").await?), (1, 2));

    let off = tenants.site.postrider(&["migrate", "--no-row-level-security"]).await?.succeeded()?;
    assert!(off.out.contains("row-level security is off"), "{off:?}");
    tenants.migrate(&["--row-level-security"]).await?;
    tenants.run("create policy theirs on outbox_messages using (true)").await?;
    let left = tenants.site.postrider(&["migrate", "--no-row-level-security"]).await?.succeeded()?;
    assert!(left.out.contains("still on, because of policies of others: theirs"), "{left:?}");
    let dry = tenants.site.postrider(&["migrate", "--no-row-level-security", "--dry-run"]).await?.succeeded()?;
    assert!(dry.out.contains("still on, because of policies of others: theirs"), "{dry:?}");
    tenants.run("drop policy theirs on outbox_messages").await?;
    let off = tenants.site.postrider(&["migrate", "--no-row-level-security"]).await?.succeeded()?;
    assert!(off.out.contains("row-level security is off"), "{off:?}");
    postrider(0, words("enqueue -n shop -t order 1")).await?.succeeded()?;
    Ok(())
}

#[tokio::test]
async fn s08_migrate_says_what_it_cannot_protect() -> Result<()> {
    let site = Site::sqlite().await?.migrated().await?;
    let refused = site.postrider(&["migrate", "--row-level-security"]).await?.failed_with(1)?;
    assert!(refused.err.contains("SQLite has no row-level security"), "{refused:?}");
    let site = Site::postgres().await?;
    let refused =
        site.postrider(&["migrate", "--row-level-security", "--relay", "nobody_at_all"]).await?.failed_with(1)?;
    assert!(refused.err.contains("there is no role"), "{refused:?}");
    for wrong in [
        &["migrate", "--row-level-security", "--tenant-setting", "tenant"][..],
        &["migrate", "--row-level-security", "--relay", "postrider_producer"],
        &["migrate", "--row-level-security", "--no-row-level-security"],
        &["migrate", "--require-tenant"],
        &["migrate", "--reader", "desk"],
    ] {
        site.postrider(wrong).await?.failed_with(2)?;
    }
    Ok(())
}

#[tokio::test]
async fn s08_what_cannot_be_protected_is_told_before_anything_is_changed() -> Result<()> {
    let is_new = |dry: String| dry.contains("0001 outbox");
    for site in [Site::mariadb().await?, Site::postgres().await?] {
        for wish in ["--row-level-security", "--no-row-level-security"] {
            let is_postgres = site.url.starts_with("postgres");
            if is_postgres && wish == "--no-row-level-security" {
                continue;
            }
            let refused = site.postrider(&["migrate", wish]).await?.failed_with(1)?;
            let why = if is_postgres { "there is no role" } else { "has no row-level security" };
            assert!(refused.err.contains(why) && !refused.out.contains("migrated"), "{refused:#?}");
            let dry = site.postrider(&["migrate", "--dry-run"]).await?.succeeded()?;
            assert!(is_new(dry.out), "nothing was made");
        }
    }
    let site = Site::sqlite().await?;
    let refused = site.postrider(&["migrate", "--row-level-security"]).await?.failed_with(1)?;
    assert!(refused.err.contains("SQLite has no row-level security"), "{refused:#?}");
    assert!(!site.directory.path().join("outbox.db").exists(), "not even the file");
    // Of several sources none is changed if one is refused.
    let first = Site::postgres().await?;
    let text = format!(
        "[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n[source.a]\nurl = \"{}\"\n[source.b]\nurl = \"{}\"\n",
        first.url, site.url
    );
    let file = first.file("both.toml", &text)?.display().to_string();
    let roles = ["--application", "postgres", "--relay", "pg_monitor", "--operator", "pg_read_all_stats"];
    let arguments = [&["migrate", "--row-level-security", "--config", &file][..], &roles].concat();
    let refused = super::support::postrider(&arguments, &[], None, first.directory.path()).await?.failed_with(1)?;
    assert!(refused.err.contains("SQLite has no row-level security"), "{refused:#?}");
    assert!(is_new(first.postrider(&["migrate", "--dry-run"]).await?.succeeded()?.out), "nothing was made");
    Ok(())
}

#[tokio::test]
async fn s11_a_layout_check_by_a_role_that_sees_no_row_fails() -> Result<()> {
    let site = Site::postgres().await?;
    let role = format!("relay_{}", &Uuid::new_v4().simple().to_string()[..8]);
    let made = format!(
        "create table tenants (id uuid primary key); create table channel_messages (id uuid primary key);
         create role {role} login"
    );
    site.source().await?.run(&made).await?;
    site.postrider(&["migrate", "--layout", "valinor"]).await?.succeeded()?;
    site.source().await?.run(&format!("grant all on all tables in schema public to {role}")).await?;
    let url = site.url.replace("postgres@", &format!("{role}@"));
    let check = ["layout", "check", "--layout", "valinor", "--database-url", &url];
    let checked = site.postrider(&check).await?.failed_with(1)?;
    assert!(checked.out.contains("row security hides rows"), "{checked:#?}");
    assert!(!checked.out.contains("may claim"), "{checked:#?}");
    let policy = format!("create policy relay on channel_outbox to {role} using (true) with check (true)");
    site.source().await?.run(&policy).await?;
    site.postrider(&check).await?.succeeded()?;
    Ok(())
}

#[tokio::test]
async fn s11_with_require_a_mis_set_database_stops_the_relay_and_with_warn_it_is_logged() -> Result<()> {
    let tenants = Tenants::new().await?;
    let application = tenants.roles[0].clone();
    tenants.migrate(&["--row-level-security"]).await?;
    tenants.run("create view waiting as select * from outbox_messages").await?;
    let owner: String =
        tenants.site.url.split("//").nth(1).and_then(|rest| rest.split('@').next()).context("a user")?.into();
    for (wrong, mend, word) in [
        (
            "alter table outbox_messages disable row level security",
            "alter table outbox_messages enable row level security",
            "not enabled",
        ),
        (
            "alter table outbox_messages owner to {app}",
            "alter table outbox_messages owner to {owner}",
            "owns the table",
        ),
        ("alter role {app} superuser", "alter role {app} nosuperuser", "superuser"),
        ("alter role {app} bypassrls", "alter role {app} nobypassrls", "BYPASSRLS"),
        (
            "grant select on postrider_changelog to {app}",
            "revoke select on postrider_changelog from {app}",
            "changelog's table changelog",
        ),
        ("grant select on waiting to {app}", "revoke select on waiting from {app}", "view public.waiting"),
    ] {
        let (wrong, mend) =
            (wrong.replace("{app}", &application), mend.replace("{app}", &application).replace("{owner}", &owner));
        tenants.run(&wrong).await?;
        for (policy, severity) in [("require", "problem"), ("warn", "warning")] {
            let (started, log) = tenants.starts(policy).await?;
            assert_eq!(started, policy == "warn", "{log}");
            assert!(log.contains(word), "{word}: {log}");
            let (findings, _) = tenants.doctor(&tenants.url(1), policy).await?;
            let found = |(given, what): &(String, String)| given == severity && what.contains(word);
            assert!(findings.iter().any(found), "{findings:#?}");
        }
        // Mending gives the owner's privileges to nobody else.
        tenants.run(&mend).await?;
        let printed = tenants.migrate(&["--print-grants", "--row-level-security"]).await?;
        tenants.run(&printed).await?;
    }
    // Where it must be so, a proof that could not be tried is a problem.
    let (findings, code) = tenants.doctor(&tenants.url(2), "require").await?;
    let is_well = |(severity, what): &(String, String)| {
        severity == if what.contains("may not become") { "problem" } else { "fine" }
    };
    assert!(code == 1 && findings.len() == 2 && findings.iter().all(is_well), "{findings:#?}");
    let printed = tenants.migrate(&["--print-grants", "--row-level-security"]).await?;
    let grant = printed.lines().find(|line| line.starts_with("-- grant") && line.contains(&application));
    tenants.run(grant.and_then(|line| line.strip_prefix("-- ")).context("it tells of the grant")?).await?;
    let (findings, _) = tenants.doctor(&tenants.url(2), "require").await?;
    assert!(findings.len() == 2 && findings.iter().all(|(severity, _)| severity == "fine"), "{findings:#?}");
    let (findings, _) = tenants.doctor(&tenants.site.url, "require").await?;
    assert!(
        findings.iter().any(|(severity, what)| severity == "fine" && what.contains("nothing of another tenant")),
        "{findings:#?}"
    );
    assert!(tenants.starts("require").await?.0);
    // Whatever is asked about tenants: a relay that sees no rows would look healthy.
    tenants.run("drop policy postrider_relay on outbox_messages").await?;
    let (started, log) = tenants.starts("off").await?;
    assert!(
        !started && log.contains("row security hides rows of") && log.contains("create policy postrider_relay"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn s11_a_relay_that_becomes_blind_is_neither_ready_nor_healthy() -> Result<()> {
    let tenants = Tenants::new().await?;
    tenants.migrate(&["--row-level-security"]).await?;
    let url = tenants.url(1);
    let text = format!("[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n[source.shop]\nurl = \"{url}\"\n");
    let mut relay = Relay::with_config(&tenants.site.file("relay.toml", &text)?).await?;
    assert_eq!(relay.get("/readyz").await?.0, 200);
    tenants.run("drop policy postrider_relay on outbox_messages").await?;
    let (relay_then, answers) = (&relay, |path: &'static str, wanted: u16| {
        let relay = &relay;
        async move { relay.get(path).await.is_ok_and(|(status, _)| status == wanted) }
    });
    for path in ["/readyz", "/healthz"] {
        within(PATIENCE, path, || answers(path, 503)).await?;
        let (_, body) = relay_then.get(path).await?;
        assert!(body.contains("row security hides rows"), "{body}");
    }
    let policy = format!(
        "create policy postrider_relay on outbox_messages to {} using (true) with check (true)",
        tenants.roles[1]
    );
    tenants.run(&policy).await?;
    for path in ["/readyz", "/healthz"] {
        within(PATIENCE, path, || answers(path, 200)).await?;
    }
    assert_eq!(relay.log().matches("row security hides rows").count(), 1, "{}", relay.log());
    relay.stop().await?;
    Ok(())
}

#[tokio::test]
async fn s11_who_is_shown_no_message_is_told_so_and_not_that_there_is_none() -> Result<()> {
    let tenants = Tenants::new().await?;
    let guest = format!("guest_{}", &Uuid::new_v4().simple().to_string()[..8]);
    tenants
        .run(&format!(
            "create role {guest} login; grant select, update, delete on all tables in schema public to {guest}"
        ))
        .await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    for tenant in [one, two, two] {
        let tenant = tenant.to_string();
        tenants
            .site
            .postrider(&["enqueue", "-n", "shop", "-t", "order", "--tenant", &tenant, "1"])
            .await?
            .succeeded()?;
    }
    tenants.run("update outbox_messages set status = 'dead'").await?;
    let commands: [&[&str]; 5] = [
        &["status"],
        &["dead", "list"],
        &["dead", "replay", "--all"],
        &["dead", "discard", "--all", "--yes"],
        &["purge", "--state", "dead", "--older-than", "0s"],
    ];
    let url = tenants.site.url.replace("postgres@", &format!("{guest}@"));
    for command in &commands[..2] {
        tenants.site.postrider_with(command, &[("POSTRIDER_DATABASE_URL", &url)], None).await?.succeeded()?;
    }
    let [application, relay, operator, reader] = &tenants.roles;
    let roles = ["--application", application, "--relay", relay, "--operator", operator, "--reader", reader];
    let migrated =
        tenants.site.postrider(&[&["migrate", "--row-level-security"], &roles[..]].concat()).await?.succeeded()?;
    assert!(migrated.err.contains(&format!("the role {guest} may use")), "{migrated:?}");
    for command in commands {
        let told =
            tenants.site.postrider_with(command, &[("POSTRIDER_DATABASE_URL", &url)], None).await?.failed_with(1)?;
        assert!(told.err.contains("row security hides all messages") && told.out.is_empty(), "{told:?}");
    }
    let theirs =
        "create policy theirs on outbox_messages to {guest} using (topic = 'order')".replace("{guest}", &guest);
    tenants.run(&theirs).await?;
    let told =
        tenants.site.postrider_with(&["status"], &[("POSTRIDER_DATABASE_URL", &url)], None).await?.succeeded()?;
    assert!(told.err.contains("row security may hide messages"), "{told:?}");
    // Who asks for one tenant by its session gets that one, and nobody is troubled.
    for (tenant, messages) in [(one, 1), (two, 2)] {
        let url = format!("{}?options=-c%20app.current_tenant_id%3D{tenant}", tenants.url(3));
        let listed =
            tenants.site.postrider_with(&["dead", "list", "--json"], &[("POSTRIDER_DATABASE_URL", &url)], None).await?;
        let listed = listed.succeeded()?;
        assert_eq!((listed.json_lines()?.len(), listed.err.as_str()), (messages, ""));
    }
    // Another relay does not take the first one's place unasked.
    let mut others = roles;
    others[3] = &guest;
    let refused =
        tenants.site.postrider(&[&["migrate", "--row-level-security"], &others[..]].concat()).await?.failed_with(1)?;
    assert!(refused.err.contains("--replace-roles"), "{refused:?}");
    let replaced = tenants
        .site
        .postrider(&[&["migrate", "--row-level-security", "--replace-roles"], &others[..]].concat())
        .await?;
    replaced.succeeded()?;
    Ok(())
}
