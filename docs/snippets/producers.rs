//! The examples of `docs/guides/producers.md`.

use std::time::Duration;

use diesel_async::{AsyncConnection, AsyncPgConnection};
use postrider::postgres::enqueue::DieselTransaction;
use postrider::{EnqueueError, Enqueued, Limits, Message, Names, Outbox};
use rusqlite::TransactionBehavior;
use sea_orm::{DatabaseConnection, TransactionTrait};
use serde::Serialize;
use sqlx::{PgPool, SqlitePool};
use uuid::Uuid;

async fn sqlx(pool: &PgPool, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?;
    Ok(())
}

async fn sqlite(pool: &SqlitePool, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    let mut transaction = pool.begin_with("begin immediate").await?;
    outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?;
    Ok(())
}

fn rusqlite(connection: &mut rusqlite::Connection, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    outbox.enqueue_blocking(&transaction, message)?;
    transaction.commit()?;
    Ok(())
}

async fn tokio_postgres(client: &mut tokio_postgres::Client, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    let transaction = client.transaction().await?;
    outbox.enqueue(&transaction, message).await?;
    transaction.commit().await?;
    Ok(())
}

async fn sea_orm(database: &DatabaseConnection, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    let transaction = database.begin().await?;
    outbox.enqueue(&transaction, message).await?;
    transaction.commit().await?;
    Ok(())
}

async fn diesel(connection: &mut AsyncPgConnection, outbox: &Outbox, message: Message) -> anyhow::Result<()> {
    connection
        .transaction(async |connection| {
            outbox.enqueue(DieselTransaction::of(connection)?, message).await?;
            anyhow::Ok(())
        })
        .await
}

fn message(tenant: Uuid, order: Uuid, payload: &impl Serialize) -> Message {
    Message::json("shop", "order.placed", payload)
        .key(order.to_string())
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/order.placed/{order}"))
        .header("x-region", "eu")
        .deliver_after(Duration::from_secs(60))
        .max_attempts(20)
}

fn bytes(image: Vec<u8>) -> Message {
    Message::bytes("shop", "picture.added", "image/png", image)
}

fn outbox() -> anyhow::Result<Outbox> {
    let names = Names::new("shop", "outbox_", "messages")?;
    Ok(Outbox::new(names).with_limits(Limits::default().with_max_payload(4 * 1024 * 1024)))
}

fn answer(answer: Result<Enqueued, EnqueueError>) {
    match answer {
        Ok(Enqueued::New(id)) => println!("written as {id}"),
        Ok(Enqueued::Already(id)) => println!("the dedupe key was there already, in message {id}"),
        Err(EnqueueError::Invalid { source, .. }) => println!("refused, the transaction is still usable: {source}"),
        Err(error) if error.is_retryable() => println!("roll back and run the whole transaction again: {error}"),
        Err(error) => println!("roll back: {error}"),
    }
}
