//! Billing, downstream: another database, which knows of the chat only what events tell. It bills a turn once, however often
//! and under however many event ids it hears of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use postrider::{ClaimedMessage, PublishError};
use sqlx::PgPool;
use tokio::sync::watch;
use uuid::Uuid;

use crate::chat::TurnFinished;

/// A turn is what its tenant, its own id and its request say together: the same three that make up the dedupe key.
const TABLES: &str = "
create table accounts (tenant_id uuid primary key, owed bigint not null);
create table lines (
  tenant_id uuid not null, turn_id uuid not null, request_id uuid not null, tokens bigint not null,
  primary key (tenant_id, turn_id, request_id))";

/// The billing service. Cheap to clone.
#[derive(Clone)]
pub struct Billing {
    pool: PgPool,
    trouble: Arc<Trouble>,
}

/// What a demonstration asks of it.
#[derive(Default)]
struct Trouble {
    down: AtomicUsize,
    mute: AtomicUsize,
    shut: watch::Sender<bool>,
    heard: Mutex<Vec<(&'static str, Uuid)>>,
}

impl Billing {
    /// Makes the tables in a database of billing's own.
    pub async fn open(pool: PgPool) -> Result<Self> {
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self { pool, trouble: Arc::default() })
    }

    /// The next so many deliveries fail before anything is done.
    pub fn fail(&self, deliveries: usize) {
        self.trouble.down.store(deliveries, Ordering::SeqCst);
    }

    /// The next so many deliveries are billed, and the answer gets lost.
    pub fn mute(&self, deliveries: usize) {
        self.trouble.mute.store(deliveries, Ordering::SeqCst);
    }

    /// Deliveries wait while it is shut.
    pub fn shut(&self, shut: bool) {
        self.trouble.shut.send_replace(shut);
    }

    /// All deliveries: by which dispatcher, and of which message.
    pub fn heard(&self) -> Vec<(&'static str, Uuid)> {
        self.trouble.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The publish step of a dispatcher: what it answers decides what becomes of the message.
    pub async fn receive(&self, from: &'static str, message: ClaimedMessage) -> Result<(), PublishError> {
        self.trouble.heard.lock().unwrap_or_else(PoisonError::into_inner).push((from, message.id));
        // It cannot be closed while we have it.
        let _ = self.trouble.shut.subscribe().wait_for(|shut| !shut).await;
        if take_one(&self.trouble.down) {
            return Err(PublishError::retry("billing is down"));
        }
        // What cannot be read now cannot be read later.
        let event = serde_json::from_slice(message.payload.as_bytes())
            .map_err(|error| PublishError::reject(format!("it is no finished turn: {error}")))?;
        self.bill(&event).await.map_err(|error| PublishError::retry(error.to_string()))?;
        match take_one(&self.trouble.mute) {
            true => Err(PublishError::unknown("the answer of billing got lost")),
            false => Ok(()),
        }
    }

    /// Bills a turn unless it was billed; answers whether it was new.
    pub async fn bill(&self, event: &TurnFinished) -> Result<bool> {
        let tokens = event.input_tokens + event.output_tokens;
        let mut transaction = self.pool.begin().await?;
        let line = sqlx::query("insert into lines values ($1, $2, $3, $4) on conflict do nothing")
            .bind(event.tenant_id)
            .bind(event.turn_id)
            .bind(event.request_id)
            .bind(tokens)
            .execute(&mut *transaction)
            .await?;
        let is_new = line.rows_affected() == 1;
        if is_new {
            let owe = "insert into accounts values ($1, $2)
                       on conflict (tenant_id) do update set owed = accounts.owed + excluded.owed";
            sqlx::query(owe).bind(event.tenant_id).bind(tokens).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(is_new)
    }

    /// What a tenant owes, in tokens.
    pub async fn owed(&self, tenant: Uuid) -> Result<i64> {
        let owed = sqlx::query_scalar("select owed from accounts where tenant_id = $1").bind(tenant);
        Ok(owed.fetch_optional(&self.pool).await?.unwrap_or(0))
    }
}

fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}
