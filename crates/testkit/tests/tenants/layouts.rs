//! Tenants of a table of another shape: its owner's policies are examined and tried as ours are.

use anyhow::Result;
use postrider::operate::Severity::Problem;
use postrider::operate::{Finding, Severity};
use postrider::{AnyStore, Connect, Layout, TenantSetting};
use sqlx::{AssertSqlSafe, PgPool};
use testkit::{Database, Postgres};

use crate::scene::one;

/// The table of `valinor`, protected as the guide says.
struct Channels {
    database: Database,
    admin: PgPool,
    application: String,
    relay: String,
}

impl Channels {
    async fn new() -> Result<Self> {
        let database = Postgres::shared().await?.create_database().await?;
        let admin = database.pool().await?;
        let unique = &database.name()["test_".len()..][..12];
        let [owner, application, relay] = ["owner", "app", "relay"].map(|role| format!("{role}_{unique}"));
        let scene = Self { database, admin, application, relay };
        for role in [&owner, &scene.application, &scene.relay] {
            scene.run(&format!("create role {role} login")).await?;
        }
        scene
            .run(&format!(
                "create table tenants (id uuid primary key);
                 create table channel_messages (id uuid primary key, tenant_id uuid not null);
                 alter table tenants owner to {owner}; alter table channel_messages owner to {owner};
                 grant create on schema public to {owner}"
            ))
            .await?;
        scene.open(&owner).await?.migrate().await?;
        scene.protect().await?;
        Ok(scene)
    }

    /// What the guide tells the table's owner to do.
    async fn protect(&self) -> Result<()> {
        let Self { application, relay, .. } = self;
        self.run(&format!(
            "alter table channel_outbox enable row level security; alter table channel_outbox force row level security;
             create policy channel_outbox_relay on channel_outbox to {relay} using (true) with check (true);
             grant select, insert on channel_outbox to {application};
             grant select, update, delete on channel_outbox to {relay}"
        ))
        .await
    }

    async fn run(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.admin).await?;
        Ok(())
    }

    async fn open(&self, role: &str) -> Result<AnyStore> {
        let url = self.database.url().replace("postgres@", &format!("{role}@"));
        Ok(AnyStore::connect(&url, &Connect { layout: Layout::valinor(), ..Connect::default() }).await?)
    }

    /// Replies of two tenants, past all policies.
    async fn put(&self) -> Result<()> {
        let insert =
            "with tenant as (insert into tenants values (gen_random_uuid()), (gen_random_uuid()) returning id),
            message as (insert into channel_messages select gen_random_uuid(), id from tenant returning id, tenant_id)
            insert into channel_outbox (tenant_id, channel_message_id, provider, recipient_id, payload, status)
            select tenant_id, id, 'slack', 'U1', '{}', 'pending' from message";
        // Rows that a statement refers to are checked at its end.
        self.run(insert).await
    }

    async fn look(&self) -> Result<Vec<Finding>> {
        let store = self.open(&self.relay).await?;
        Ok(store.examine_tenants(&self.application, &TenantSetting::default()).await?)
    }

    async fn prove(&self) -> Result<Finding> {
        let store = self.open("postgres").await?;
        Ok(store.prove_tenants(&self.application, &TenantSetting::default()).await?)
    }

    async fn all_is_well(&self) -> Result<()> {
        let findings = self.look().await?;
        assert!(findings.iter().all(|finding| finding.severity < Problem), "{findings:#?}");
        let proof = self.prove().await?;
        assert!(proof.severity == Severity::Fine && proof.is_examined(), "{proof}");
        Ok(())
    }
}

#[tokio::test]
async fn s11_on_a_table_of_another_shape_a_confined_application_is_proved_to_be() -> Result<()> {
    let channels = Channels::new().await?;
    channels.all_is_well().await?;
    channels.put().await?;
    channels.all_is_well().await?;
    assert!(channels.prove().await?.what.contains("2 rows"));
    channels.open(&channels.relay).await?.check_relay().await?;
    Ok(())
}

#[tokio::test]
async fn s11_on_a_table_of_another_shape_an_application_that_is_not_confined_is_told() -> Result<()> {
    let channels = Channels::new().await?;
    channels.put().await?;
    channels.run("create policy wide on channel_outbox using (true)").await?;
    one(&channels.look().await?, Problem, "policy wide");
    let proof = channels.prove().await?;
    assert!(proof.severity == Problem && proof.what.contains("as another tenant it sees rows"), "{proof}");
    assert!(proof.what.contains("writes for one"), "{proof}");
    channels.run("drop policy wide on channel_outbox; alter table channel_outbox no force row level security").await?;
    let finding = one(&channels.look().await?, Problem, "not forced");
    assert!(!finding.to_string().contains("postrider migrate"), "{finding}");
    channels.run("alter table channel_outbox force row level security").await?;
    channels.run("drop policy channel_outbox_tenant_isolation on channel_outbox").await?;
    let finding = one(&channels.look().await?, Problem, "cannot enqueue");
    assert!(!finding.to_string().contains("postrider migrate"), "{finding}");
    let proof = channels.prove().await?;
    assert!(proof.severity == Problem && proof.what.contains("cannot enqueue"), "{proof}");
    Ok(())
}

#[tokio::test]
async fn s11_on_a_table_of_another_shape_a_policy_that_fails_on_an_empty_setting_is_told_as_such() -> Result<()> {
    let channels = Channels::new().await?;
    channels.put().await?;
    let confines = "(tenant_id = current_setting('app.current_tenant_id', true)::uuid)";
    channels
        .run(&format!(
            "alter policy channel_outbox_tenant_isolation on channel_outbox using {confines} with check {confines}"
        ))
        .await?;
    let finding = one(&channels.look().await?, Severity::Warning, "an empty setting is an error");
    let proof = channels.prove().await?;
    assert!(proof.severity == Severity::Warning && proof.what.contains("an empty setting is an error"), "{proof}");
    assert!(!proof.what.contains("writes for one"), "{proof}");
    let fix = finding.fix.as_deref().and_then(|fix| fix.split_once("owner: "));
    channels.run(fix.expect("a fix to run").1).await?;
    channels.all_is_well().await
}

#[tokio::test]
async fn s11_a_check_of_the_layout_tells_a_role_that_row_security_blinds() -> Result<()> {
    let channels = Channels::new().await?;
    let relay = channels.open(&channels.relay).await?;
    let findings = relay.check_layout().await?;
    assert!(findings.iter().all(|finding| finding.severity < Problem), "{findings:#?}");
    channels.run("drop policy channel_outbox_relay on channel_outbox").await?;
    for findings in [relay.check_layout().await?, relay.examine().await?] {
        let finding = one(&findings, Problem, "row security hides rows");
        assert!(finding.fix.is_some_and(|fix| fix.contains("create policy")), "{findings:#?}");
        assert!(!findings.iter().any(|finding| finding.what.contains("may claim")), "{findings:#?}");
    }
    Ok(())
}
