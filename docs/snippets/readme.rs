//! The example of `README.md`.

use postrider::{Dispatcher, Message, Outbox, PublishError, SqliteStore, callback};
use sqlx::SqlitePool;
use tokio_util::sync::CancellationToken;

async fn place_order(pool: &SqlitePool, outbox: &Outbox, order: i64) -> anyhow::Result<()> {
    let mut transaction = pool.begin_with("begin immediate").await?;
    sqlx::query("insert into orders (id) values (?)").bind(order).execute(&mut *transaction).await?;
    let message = Message::json("shop", "order.placed", &order).key(order.to_string());
    outbox.enqueue(&mut transaction, message).await?;
    transaction.commit().await?; // the order and its message, or neither
    Ok(())
}

async fn deliver(store: SqliteStore, stop: CancellationToken) -> anyhow::Result<()> {
    store.migrate().await?;
    let sink = callback(|message| async move {
        println!("{} {}", message.topic, message.id); // send it to your broker here
        Ok::<(), PublishError>(())
    });
    let ended = Dispatcher::builder(store, sink).build()?.run(stop).await;
    anyhow::ensure!(ended.abandoned == 0, "{} publishes were cut off", ended.abandoned);
    Ok(())
}
