//! The examples of `docs/guides/idempotent-consumer.md`.

use std::time::Duration;

use postrider::inbox::redis::{RedisInbox, Unreachable};
use postrider::inbox::{
    ConsumerName, Delivery, Entry, Guard, Inbox, InboxError, InboxTables, InvalidDelivery, PostgresGuard,
    PostgresInbox, RunError, Wire, run_once,
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

async fn send_mail(_body: &[u8]) -> Result<(), std::io::Error> {
    Ok(())
}

fn read<'a>(name: &ConsumerName, header: impl Fn(&str) -> Option<&'a str>) -> Result<Delivery, InvalidDelivery> {
    Delivery::read(name, Wire::Broker, header)
}

/// Whether to acknowledge. Otherwise, and after every error, let the broker bring the message again.
async fn on_message(inbox: &impl Inbox, delivery: &Delivery, body: &[u8]) -> Result<bool, RunError<std::io::Error>> {
    let outcome = run_once(inbox, delivery, async |_| send_mail(body).await).await?;
    Ok(outcome.may_ack())
}

async fn with_the_guard(inbox: &impl Inbox, delivery: &Delivery, body: &[u8]) -> Result<bool, InboxError> {
    match inbox.begin(delivery).await? {
        Entry::First(guard) => match send_mail(body).await {
            Ok(()) => {
                guard.commit().await?;
                Ok(true) // acknowledge now, and not before
            }
            Err(error) => {
                tracing::warn!(%error, "the mail was not sent");
                guard.release().await?; // a drop does the same, a little later
                Ok(false)
            }
        },
        Entry::AlreadyProcessed => Ok(true),
        Entry::InProgress(_) | Entry::Stale { .. } => Ok(false),
    }
}

async fn simple(inbox: &impl Inbox, consumer: &ConsumerName, delivery: &Delivery) -> Result<(), InboxError> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    if !inbox.check_and_mark_processed(consumer, delivery.event, WEEK).await? {
        // Handle it. If this fails, it is not handled again.
    }
    Ok(())
}

async fn redis() -> Result<RedisInbox, InboxError> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    RedisInbox::builder("rediss://redis.example.com:6379")
        .username("mailer")
        .password(std::env::var("REDIS_PASSWORD").unwrap_or_default())
        .claim(Duration::from_secs(30))
        .keep(14 * DAY)
        .redelivery_horizon(10 * DAY)
        .when_unreachable(Unreachable::Refuse)
        .connect()
        .await
}

async fn postgres(pool: PgPool, stop: CancellationToken) -> Result<PostgresInbox, InboxError> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let tables = InboxTables::builder().keep(14 * DAY).redelivery_horizon(10 * DAY).build()?;
    let inbox = PostgresInbox::new(pool, tables);
    inbox.migrate().await?;
    let cleaner = inbox.clone();
    tokio::spawn(async move { cleaner.keep_clean(HOUR, stop).await });
    Ok(inbox)
}

async fn in_one_transaction(
    inbox: &PostgresInbox,
    delivery: &Delivery,
    order: i64,
) -> Result<bool, RunError<sqlx::Error>> {
    let outcome = run_once(inbox, delivery, async |guard: &mut PostgresGuard| {
        // What is written here is there if and only if the event counts as processed.
        let insert = sqlx::query("insert into orders (id) values ($1)").bind(order);
        insert.execute(&mut **guard.transaction()).await.map(|_| ())
    });
    Ok(outcome.await?.may_ack())
}

async fn in_your_own(tables: &InboxTables, pool: &PgPool, delivery: &Delivery, order: i64) -> anyhow::Result<bool> {
    let mut transaction = pool.begin().await?;
    let may_ack = match tables.enter(&mut transaction, delivery).await? {
        Entry::First(()) => {
            sqlx::query("insert into orders (id) values ($1)").bind(order).execute(&mut *transaction).await?;
            true
        }
        Entry::AlreadyProcessed => true,
        Entry::InProgress(_) | Entry::Stale { .. } => false,
    };
    transaction.commit().await?;
    Ok(may_ack)
}
