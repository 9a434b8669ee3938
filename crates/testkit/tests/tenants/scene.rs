//! An outbox on PostgreSQL that its owner protected, and its roles.

use anyhow::Result;
use postrider::operate::{Finding, Severity};
use postrider::{AnyStore, Connect, Message, Roles, TenantProtection};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use testkit::{Database, Postgres};
use uuid::Uuid;

/// An outbox whose owner is no superuser, with the privileges that `grants_with_row_security` prints.
pub struct Scene {
    pub database: Database,
    /// The superuser's.
    pub admin: PgPool,
    pub roles: Roles,
    owner: String,
}

impl Scene {
    /// With policies for everybody.
    pub async fn protected() -> Result<Self> {
        let scene = Self::new().await?;
        assert!(!scene.protect().await?.is_empty());
        Ok(scene)
    }

    /// With privileges, but no policies yet.
    pub async fn new() -> Result<Self> {
        Self::on(Postgres::shared().await?).await
    }

    /// The same on a server of one's own.
    pub async fn on(server: &Postgres) -> Result<Self> {
        let database = server.create_database().await?;
        let admin = database.pool().await?;
        // Servers have roles for all databases together.
        let unique = &database.name()["test_".len()..][..12];
        let [owner, application, relay, operator, reader] =
            ["owner", "app", "relay", "operator", "reader"].map(|role| format!("{role}_{unique}"));
        let roles = Roles::new(&application, &relay, &operator)?.with_reader(&reader)?;
        let scene = Self { database, admin, roles, owner };
        for role in [&scene.owner, &application, &relay, &operator, &reader] {
            scene.run(&format!("create role {role} login")).await?;
        }
        scene.run(&format!("grant create on schema public to {}", scene.owner)).await?;
        let store = scene.open(&scene.owner).await?;
        store.migrate().await?;
        let grants = store.grants_with_row_security(&scene.roles);
        sqlx::raw_sql(AssertSqlSafe(grants)).execute(&scene.pool(&scene.owner).await?).await?;
        Ok(scene)
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub fn protection(&self) -> TenantProtection {
        TenantProtection::new(self.roles.clone()).expect("roles that differ")
    }

    /// Protects the tenants, as the owner; the statements that this took.
    pub async fn protect(&self) -> Result<Vec<String>> {
        Ok(self.open(&self.owner).await?.protect_tenants(&self.protection()).await?)
    }

    /// Runs SQL as the superuser.
    pub async fn run(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.admin).await?;
        Ok(())
    }

    pub fn url(&self, role: &str) -> String {
        self.database.url().replace("postgres@", &format!("{role}@"))
    }

    /// One connection, so that whoever comes next gets the same.
    pub async fn pool(&self, role: &str) -> Result<PgPool> {
        Ok(PgPoolOptions::new().max_connections(1).connect(&self.url(role)).await?)
    }

    pub async fn application(&self) -> Result<PgPool> {
        self.pool(self.roles.producer()).await
    }

    pub async fn open(&self, role: &str) -> Result<AnyStore> {
        Ok(AnyStore::connect(&self.url(role), &Connect::default()).await?)
    }

    /// How many rows there are, for who sees all.
    pub async fn count(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from outbox_messages").fetch_one(&self.admin).await?)
    }

    /// Writes some messages of a tenant, or of none, past all policies.
    pub async fn put(&self, tenant: Option<Uuid>, messages: usize) -> Result<Vec<Uuid>> {
        let store = self.open("postgres").await?;
        let messages = (0..messages).map(|n| match tenant {
            Some(tenant) => order(tenant, n),
            None => Message::json("shop", "order", &n),
        });
        let enqueued = store.enqueue(messages.collect()).await?;
        store.close().await;
        Ok(enqueued.iter().map(|message| message.id()).collect())
    }
}

/// A message of a tenant.
pub fn order(tenant: Uuid, n: usize) -> Message {
    Message::json("shop", "order", &n).tenant(tenant)
}

/// The SQLSTATE of a refusal.
pub fn state(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).map_or_else(|| error.to_string(), |code| code.into_owned())
}

/// "Insufficient privilege": a privilege or a policy is missing.
pub const DENIED: &str = "42501";
/// A constraint does not hold.
pub const CHECKED: &str = "23514";

/// The one finding above fine that says this word.
pub fn one(findings: &[Finding], severity: Severity, word: &str) -> Finding {
    let said: Vec<&Finding> = findings.iter().filter(|finding| finding.what.contains(word)).collect();
    let [finding] = said[..] else { panic!("not one that says {word:?}: {findings:#?}") };
    assert_eq!(finding.severity, severity, "{finding}");
    assert!(finding.fix.is_some(), "{finding}");
    finding.clone()
}
