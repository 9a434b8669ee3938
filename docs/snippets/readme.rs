//! The example of `README.md`.

use postrider::{Dispatcher, Message, Outbox, PostgresStore, PublishError, callback};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

async fn place_order(pool: &PgPool, outbox: &Outbox, order: i64) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("insert into orders (id) values ($1)").bind(order).execute(&mut *transaction).await?;
    let message = Message::json("shop", "order.placed", &order).key(order.to_string());
    outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?; // the order and its message, or neither
    Ok(())
}

async fn deliver(store: PostgresStore, stop: CancellationToken) -> anyhow::Result<()> {
    store.migrate().await?;
    let sink = callback(|message| async move {
        println!("{} {}", message.topic, message.id); // send it to your broker here
        Ok::<(), PublishError>(())
    });
    let ended = Dispatcher::builder(store, sink).build()?.run(stop).await;
    anyhow::ensure!(ended.abandoned == 0, "{} publishes were cut off", ended.abandoned);
    Ok(())
}
