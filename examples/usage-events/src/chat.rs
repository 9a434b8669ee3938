//! The chat service. [`Chat::finish_in`] is what this example is about: a turn's end, the debit of its tenant's quota and the
//! event that bills it are written in one transaction, so that no turn is free and none is billed that did not end.

use anyhow::{Context, Result};
use postrider::{Enqueued, Message, Outbox, PostgresStore};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

/// Whose messages these are, in the table that all modules share.
pub const NAMESPACE: &str = "mini-chat";
/// What they are about.
pub const TOPIC: &str = "usage";

const LONGEST_PROMPT: usize = 4_000;

const TABLES: &str = "
create table tenants (id uuid primary key, tokens_left bigint not null);
create table turns (
  id uuid primary key, tenant_id uuid not null references tenants, request_id uuid not null, prompt text not null,
  answer text not null default '', input_tokens bigint not null, output_tokens bigint not null default 0,
  state text not null default 'running' check (state in ('running', 'completed', 'failed', 'aborted')),
  unique (tenant_id, request_id))";

/// What a client sends to begin a turn. There is no field for usage: what a client says of it is not even read.
#[derive(Debug, Deserialize)]
pub struct NewTurn {
    /// The client's own name for this request; sent again, it is the same turn.
    pub request_id: Uuid,
    /// What the user said.
    pub prompt: String,
}

/// How a turn ended. Each of them has used tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Outcome {
    Completed,
    Failed,
    Aborted,
}

impl Outcome {
    /// The word in the table of turns.
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

/// The event: all that billing needs to know, so that it asks nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TurnFinished {
    pub tenant_id: Uuid,
    pub turn_id: Uuid,
    pub request_id: Uuid,
    pub outcome: Outcome,
    pub input_tokens: i64,
    pub output_tokens: i64,
}

impl TurnFinished {
    /// The same turn has the same key, whoever tells of it and however often.
    pub fn dedupe_key(&self) -> String {
        format!("{}/{}/{}", self.tenant_id, self.turn_id, self.request_id)
    }
}

/// Why a turn does not begin.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Refused {
    BadPrompt,
    NoQuota,
}

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Chat {
    pool: PgPool,
    outbox: Outbox,
}

impl Chat {
    /// Makes the service's own tables beside the outbox.
    pub async fn open(store: &PostgresStore) -> Result<Self> {
        sqlx::raw_sql(TABLES).execute(store.pool()).await.context("cannot make the chat's tables")?;
        Ok(Self { pool: store.pool().clone(), outbox: store.outbox() })
    }

    /// Lets a tenant in, with so many tokens.
    pub async fn welcome(&self, tokens: i64) -> Result<Uuid> {
        let tenant = Uuid::now_v7();
        let insert = "insert into tenants (id, tokens_left) values ($1, $2)";
        sqlx::query(insert).bind(tenant).bind(tokens).execute(&self.pool).await?;
        Ok(tenant)
    }

    /// Begins a turn. Nothing is debited yet, so there is nothing to tell.
    pub async fn begin(&self, tenant: Uuid, new: &NewTurn) -> Result<Result<Uuid, Refused>> {
        if new.prompt.trim().is_empty() || new.prompt.len() > LONGEST_PROMPT {
            return Ok(Err(Refused::BadPrompt));
        }
        if self.tokens_left(tenant).await? <= 0 {
            return Ok(Err(Refused::NoQuota));
        }
        // On conflict the row is written as it is, so that its id is returned.
        let insert = "insert into turns (id, tenant_id, request_id, prompt, input_tokens) values ($1, $2, $3, $4, $5)
                      on conflict (tenant_id, request_id) do update set request_id = excluded.request_id returning id";
        let turn = sqlx::query_scalar(insert)
            .bind(Uuid::now_v7())
            .bind(tenant)
            .bind(new.request_id)
            .bind(&new.prompt)
            .bind(tokens_of(&new.prompt))
            .fetch_one(&self.pool)
            .await?;
        Ok(Ok(turn))
    }

    /// The model says something; the service counts it.
    pub async fn say(&self, turn: Uuid, text: &str) -> Result<()> {
        let update = "update turns set answer = answer || $2, output_tokens = output_tokens + $3
                      where id = $1 and state = 'running'";
        sqlx::query(update).bind(turn).bind(text).bind(tokens_of(text)).execute(&self.pool).await?;
        Ok(())
    }

    /// Ends a turn, in a transaction of its own.
    pub async fn finish(&self, tenant: Uuid, turn: Uuid, outcome: Outcome) -> Result<Enqueued> {
        let mut transaction = self.pool.begin().await?;
        let enqueued = self.finish_in(&mut transaction, tenant, turn, outcome).await?;
        transaction.commit().await?;
        Ok(enqueued)
    }

    /// Ends a turn in the caller's transaction: its state, the quota and the event, or none of them. The first caller ends it;
    /// any other is told that the event is there already, and changes nothing.
    pub async fn finish_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        tenant: Uuid,
        turn: Uuid,
        outcome: Outcome,
    ) -> Result<Enqueued> {
        // Locked, so that nothing is said any more which would not be counted.
        let select =
            "select request_id, input_tokens, output_tokens from turns where id = $1 and tenant_id = $2 for update";
        let (request_id, input_tokens, output_tokens) = sqlx::query_as(select)
            .bind(turn)
            .bind(tenant)
            .fetch_optional(&mut **transaction)
            .await?
            .with_context(|| format!("tenant {tenant} has no turn {turn}"))?;
        let event = TurnFinished { tenant_id: tenant, turn_id: turn, request_id, outcome, input_tokens, output_tokens };

        let message = Message::json(NAMESPACE, TOPIC, &event).tenant(tenant).dedupe_key(event.dedupe_key());
        let enqueued = self.outbox.enqueue(&mut *transaction, message).await?;
        if enqueued.is_new() {
            sqlx::query("update turns set state = $2 where id = $1")
                .bind(turn)
                .bind(outcome.as_str())
                .execute(&mut **transaction)
                .await?;
            sqlx::query("update tenants set tokens_left = tokens_left - $2 where id = $1")
                .bind(tenant)
                .bind(input_tokens + output_tokens)
                .execute(&mut **transaction)
                .await?;
        }
        Ok(enqueued)
    }

    /// What is left of a tenant's quota. A read has nothing to tell.
    pub async fn tokens_left(&self, tenant: Uuid) -> Result<i64> {
        let left = sqlx::query_scalar("select tokens_left from tenants where id = $1").bind(tenant);
        left.fetch_optional(&self.pool).await?.with_context(|| format!("there is no tenant {tenant}"))
    }

    /// A turn's state.
    pub async fn state(&self, turn: Uuid) -> Result<String> {
        let state = sqlx::query_scalar("select state from turns where id = $1").bind(turn);
        state.fetch_optional(&self.pool).await?.with_context(|| format!("there is no turn {turn}"))
    }
}

/// Words do for tokens here.
fn tokens_of(text: &str) -> i64 {
    i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX)
}
