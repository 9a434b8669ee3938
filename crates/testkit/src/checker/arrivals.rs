//! The destination's record: a table that gets one row per arrival.
//!
//! Promise: an arrival is committed before [`Recorder::record`] says so, on a connection of its own, so that no fault of
//! the relay's connections touches it. When the record cannot be written the answer is an error, and the arrival may
//! or may not be there, as with any real destination. Arrivals that come together are written together.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use futures::TryStreamExt;
use postrider::ClaimedMessage;
use sqlx::{Connection, PgConnection};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

const TABLE: &str = include_str!("arrivals.sql");
const LARGEST_WRITE: usize = 500;

/// Creates the table of arrivals, if it is not there.
pub async fn create(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(connection).await.context("cannot create the table of arrivals")?;
    Ok(())
}

/// Copies all arrivals from one database to another; says how many.
pub async fn import(from: &mut PgConnection, to: &mut PgConnection) -> Result<u64> {
    let mut rows = from.copy_out_raw("copy arrivals to stdout").await?;
    let mut copy = to.copy_in_raw("copy arrivals from stdin").await?;
    while let Some(piece) = rows.try_next().await? {
        copy.send(piece).await?;
    }
    Ok(copy.finish().await?)
}

/// One message at the destination.
struct Arrival {
    message: ClaimedMessage,
    begun_at_micros: i64,
    written: oneshot::Sender<bool>,
}

/// Writes arrivals. Cheap to clone.
#[derive(Clone)]
pub struct Recorder(mpsc::UnboundedSender<Arrival>);

impl Recorder {
    /// Connects to the database that has the table of arrivals, and connects again when that fails later.
    pub async fn connect(url: &str) -> Result<Self> {
        let connection = PgConnection::connect(url).await.context("cannot connect to the record")?;
        let (sender, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_all(url.to_owned(), connection, queue));
        Ok(Self(sender))
    }

    /// Records that a message arrived whose publish began at `begun`.
    pub async fn record(&self, message: ClaimedMessage, begun: SystemTime) -> Result<()> {
        let begun_at_micros = i64::try_from(begun.duration_since(UNIX_EPOCH)?.as_micros())?;
        let (written, answer) = oneshot::channel();
        self.0.send(Arrival { message, begun_at_micros, written }).map_err(|_| anyhow!("the record is closed"))?;
        match answer.await {
            Ok(true) => Ok(()),
            _ => Err(anyhow!("the record could not be written")),
        }
    }
}

async fn write_all(url: String, first: PgConnection, mut queue: mpsc::UnboundedReceiver<Arrival>) {
    let mut connection = Some(first);
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, LARGEST_WRITE).await > 0 {
        if connection.is_none() {
            connection = PgConnection::connect(&url).await.ok();
        }
        let written = match &mut connection {
            Some(connection) => write(connection, &batch).await.is_ok(),
            None => false,
        };
        if !written {
            connection = None;
        }
        for arrival in batch.drain(..) {
            // nobody waits when the publish was cut off
            let _ = arrival.written.send(written);
        }
    }
}

async fn write(connection: &mut PgConnection, batch: &[Arrival]) -> Result<()> {
    let messages = || batch.iter().map(|arrival| &arrival.message);
    sqlx::query(
        "insert into arrivals (id, attempt, worker, begun_at, topic, key, tenant_id, digest) \
         select id, attempt, worker, timestamptz 'epoch' + begun * interval '1 microsecond', topic, key, tenant, md5(payload) \
         from unnest($1::uuid[], $2::int[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::uuid[], $8::bytea[]) \
         as given(id, attempt, worker, begun, topic, key, tenant, payload)",
    )
    .bind(messages().map(|message| message.id).collect::<Vec<Uuid>>())
    .bind(messages().map(|message| message.attempts).collect::<Vec<i32>>())
    .bind(messages().map(|message| message.lease.worker).collect::<Vec<Uuid>>())
    .bind(batch.iter().map(|arrival| arrival.begun_at_micros).collect::<Vec<i64>>())
    .bind(messages().map(|message| message.topic.clone()).collect::<Vec<String>>())
    .bind(messages().map(|message| message.key.clone()).collect::<Vec<Option<String>>>())
    .bind(messages().map(|message| message.tenant_id).collect::<Vec<Option<Uuid>>>())
    .bind(messages().map(|message| message.payload.as_bytes().to_vec()).collect::<Vec<Vec<u8>>>())
    .execute(connection)
    .await?;
    Ok(())
}
