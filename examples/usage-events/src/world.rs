//! The parts put together: the chat with its outbox, billing in a database of its own, and dispatchers between them.

use std::time::Duration;

use anyhow::Result;
use postrider::{Dispatcher, Layout, PostgresStore, PublishError, Scope, callback};
use sqlx::AssertSqlSafe;
use testkit::show::{Running, history};
use uuid::Uuid;

use crate::billing::Billing;
use crate::chat::{Chat, NAMESPACE, NewTurn, Outcome};

/// What a turn of [`World::turn`] costs: six tokens asked and four answered.
pub const TOKENS: i64 = 10;

/// Chat and billing on one server.
#[derive(Clone)]
pub struct World {
    /// The outbox `modkit_outbox_events`.
    pub store: PostgresStore,
    /// Who writes to it.
    pub chat: Chat,
    /// Who is told.
    pub billing: Billing,
    /// The chat's database.
    pub url: String,
}

impl World {
    /// Makes two databases on a server, with all tables.
    pub async fn open(server: &testkit::Postgres) -> Result<Self> {
        let (chat, billing) = (server.create_database().await?, server.create_database().await?);
        let store = PostgresStore::with_layout(chat.pool().await?, Layout::modkit())?;
        store.migrate().await?;
        sqlx::raw_sql(AssertSqlSafe(history("modkit_outbox_events"))).execute(store.pool()).await?;
        let billing = Billing::open(billing.pool().await?).await?;
        Ok(Self { chat: Chat::open(&store).await?, store, billing, url: chat.url() })
    }

    /// A dispatcher in this process. It runs until it is dropped, or stopped.
    pub fn dispatch(&self, name: &'static str) -> Result<Running> {
        let billing = self.billing.clone();
        let publish = move |message| {
            let billing = billing.clone();
            async move { billing.receive(name, message).await }
        };
        let dispatcher = Dispatcher::builder(self.store.clone(), callback::<_, _, PublishError>(publish))
            .name(name)
            .scope(Scope::namespace(NAMESPACE))
            .batch_size(10)
            .lease(Duration::from_secs(10))
            .poll_interval(Duration::from_millis(100))
            .backoff(Duration::from_millis(100), Duration::from_secs(60))
            .max_attempts(10)
            .build()?;
        Ok(Running::start(dispatcher))
    }

    /// A whole turn of a tenant.
    pub async fn turn(&self, tenant: Uuid) -> Result<Uuid> {
        let turn = self.begun(tenant).await?;
        self.chat.finish(tenant, turn, Outcome::Completed).await?;
        Ok(turn)
    }

    /// A turn that waits for its end.
    pub async fn begun(&self, tenant: Uuid) -> Result<Uuid> {
        let new = NewTurn { request_id: Uuid::now_v7(), prompt: "How far is it to Samarkand?".into() };
        let turn = self.chat.begin(tenant, &new).await?.map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
        self.chat.say(turn, "Further than you think.").await?;
        Ok(turn)
    }

    /// How many rows of the outbox are in a state, or all of them.
    pub async fn rows(&self, status: Option<&str>) -> Result<i64> {
        let count = "select count(*) from modkit_outbox_events where $1::text is null or status = $1";
        Ok(sqlx::query_scalar(count).bind(status).fetch_one(self.store.pool()).await?)
    }

    /// Waits until every row is delivered.
    pub async fn delivered(&self) -> Result<()> {
        let all =
            async || matches!((self.rows(None).await, self.rows(Some("delivered")).await), (Ok(a), Ok(b)) if a == b);
        testkit::within(Duration::from_secs(20), "that every event is delivered", all).await
    }
}
