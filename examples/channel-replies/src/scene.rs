//! A private PostgreSQL with the tables and the roles, and the program on it: webhooks and worker. All of it ends with the process.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use postrider::sinks::provider::Adapter;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use testkit::{Database, Postgres, show, within};
use uuid::Uuid;

use crate::program::Program;
use crate::schema;
use crate::settings::Settings;
use crate::stub::Stub;

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The provider that the stub stands for.
pub const PROVIDER: &str = "whatsapp";

/// A database with the tables and two tenants.
pub struct Scene {
    /// The superuser's connections, which no row-level security holds for.
    pub owner: PgPool,
    /// The application's.
    pub app: PgPool,
    /// The relay's.
    pub relay: PgPool,
    /// Where all of them lead.
    pub database: Database,
    /// The name of the application's role.
    pub app_role: String,
    /// The tenants.
    pub tenants: [Uuid; 2],
}

/// The program with a stub for its provider.
pub struct Stubbed {
    /// The stand-in for the provider.
    pub stub: Stub,
    program: Program,
}

impl Scene {
    /// Makes everything. Roles belong to the whole server, so their names have the database's in them.
    pub async fn start() -> Result<Self> {
        let database = Postgres::shared().await?.create_database().await?;
        let owner = database.pool().await?;
        let (app_role, relay_role) = (format!("{}_app", database.name()), format!("{}_relay", database.name()));
        schema::prepare(&owner, &app_role, &relay_role).await?;
        sqlx::raw_sql(AssertSqlSafe(show::history("channel_outbox"))).execute(&owner).await?;
        let tenants = [Uuid::now_v7(), Uuid::now_v7()];
        sqlx::query("insert into tenants select unnest($1)").bind(&tenants[..]).execute(&owner).await?;
        let (app, relay) = (pool(&database.url(), &app_role).await?, pool(&database.url(), &relay_role).await?);
        Ok(Self { owner, app, relay, database, app_role, tenants })
    }

    /// Starts the program.
    pub async fn run(&self, settings: &Settings) -> Result<Stubbed> {
        self.run_with(settings, Stub::default()).await
    }

    /// Starts the program with a stub that was there before.
    pub async fn run_with(&self, settings: &Settings, stub: Stub) -> Result<Stubbed> {
        let adapter: Arc<dyn Adapter> = Arc::new(stub.clone());
        let (app, relay, listen) = (self.app.clone(), self.relay.clone(), (Ipv4Addr::LOCALHOST, 0).into());
        let program = Program::start(app, relay, [(PROVIDER.into(), adapter)], listen, settings).await?;
        Ok(Stubbed { stub, program })
    }

    /// How many replies there are by status, as an operator asks: pending, sending, sent, dead.
    pub async fn replies(&self) -> Result<BTreeMap<String, i64>> {
        let counts = "select status, count(*) from channel_outbox group by status";
        Ok(sqlx::query_as::<_, (String, i64)>(counts).fetch_all(&self.relay).await?.into_iter().collect())
    }

    /// Waits until so many replies have this status.
    pub async fn until(&self, status: &str, count: i64) -> Result<()> {
        let there =
            async || self.replies().await.is_ok_and(|replies| replies.get(status).copied().unwrap_or(0) == count);
        within(PATIENCE, &format!("{count} replies that are {status}"), there).await
    }

    /// For how many milliseconds the reply to a message had to wait after each of its failures.
    pub async fn waits(&self, message_id: &str) -> Result<Vec<i64>> {
        let waits = "select (extract(epoch from (after ->> 'next_attempt_at')::timestamptz - (after ->> 'updated_at')::timestamptz) * 1000)::bigint
                     from history join channel_messages as message on message.id = (after ->> 'channel_message_id')::uuid
                     where provider_message_id = $1 and after ->> 'status' = 'pending' and before ->> 'status' = 'sending' order by no";
        Ok(sqlx::query_scalar(waits).bind(message_id).fetch_all(&self.owner).await?)
    }

    /// The status of a message.
    pub async fn message(&self, message_id: &str) -> Result<String> {
        let status = "select status from channel_messages where provider_message_id = $1";
        Ok(sqlx::query_scalar(status).bind(message_id).fetch_one(&self.owner).await?)
    }
}

impl Stubbed {
    /// Sends a webhook; answers the code and the status in it.
    pub async fn webhook(&self, tenant: Uuid, message_id: &str, text: &str) -> Result<(u16, String)> {
        let address = self.address.context("channels are off")?;
        let body = json!({"tenant": tenant, "message_id": message_id, "sender": "+15550100", "text": text}).to_string();
        let (code, said) = show::http(address, "POST", &format!("/webhooks/{PROVIDER}"), Some(&body)).await?;
        let said: Value = serde_json::from_str(&said)?;
        Ok((code, said["status"].as_str().unwrap_or_default().to_owned()))
    }

    /// Stops in good order.
    pub async fn stop(self) -> Result<()> {
        self.program.stop().await
    }

    /// Cuts the worker off: what is being sent stays so.
    pub async fn cut_off(self) {
        self.program.cut_off().await;
    }
}

impl Deref for Stubbed {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// Connections of a role.
pub async fn pool(url: &str, role: &str) -> Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    Ok(PgPoolOptions::new().max_connections(6).connect_with(options.username(role)).await?)
}

/// Settings for a demonstration that nobody waits for.
pub fn impatient() -> Result<Settings> {
    let file = "[channels.outbox]
                poll_interval_seconds = 0.1
                lock_timeout_seconds = 2
                base_retry_seconds = 0.1";
    Settings::read(file, |_| None)
}

/// The same for a worker that takes few replies at once, so that others have some too.
pub fn few_at_a_time() -> Result<Settings> {
    let mut settings = impatient()?;
    settings.outbox.claim_batch_size = 5;
    Ok(settings)
}

/// The same with the worker off.
pub fn without_worker() -> Result<Settings> {
    let mut settings = impatient()?;
    settings.outbox.enabled = false;
    Ok(settings)
}
