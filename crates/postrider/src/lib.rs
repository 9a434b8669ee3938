//! Postrider, a transactional outbox.
//!
//! An application changes its database and tells the world, and the two must not come apart. Write a [`Message`] in
//! the same transaction as the change; a [`Dispatcher`] delivers it to a [`Sink`] at least once, in spite of crashes,
//! slow brokers and several replicas.
//!
//! # The producer
//!
//! [`Outbox::enqueue`] takes the transaction that the change is made in, and nothing else; see [`CallerTransaction`]
//! for what each driver passes. The message is delivered if and only if that transaction commits.
//!
//! ```
//! use postrider::{CallerTransaction, EnqueueError, Message, Outbox};
//!
//! async fn tell_of_order(outbox: &Outbox, transaction: impl CallerTransaction, order: u64) -> Result<(), EnqueueError> {
//!     let message = Message::json("shop", "order.placed", &order)
//!         .key(order.to_string())
//!         .dedupe_key(format!("order.placed/{order}"));
//!     let enqueued = outbox.enqueue(transaction, message).await?;
//!     println!("{} is {}", enqueued.id(), if enqueued.is_new() { "new" } else { "there already" });
//!     Ok(())
//! }
//! ```
//!
//! # The dispatcher
//!
//! A closure is a sink. What it answers decides what becomes of the message: delivered, tried again, or dead.
//!
//! ```
//! use postrider::{ConfigError, Dispatcher, PublishError, Store, callback};
//!
//! async fn deliver(store: impl Store) -> Result<(), ConfigError> {
//!     let sink = callback(|message| async move {
//!         println!("{} {} {:?}", message.topic, message.id, message.payload);
//!         Ok::<(), PublishError>(())
//!     });
//! #   let stop = Default::default();
//!     // `stop` is a tokio_util::sync::CancellationToken; cancel a clone of it to shut down gracefully.
//!     let ended = Dispatcher::builder(store, sink).max_attempts(20).build()?.run(stop).await;
//!     println!("{} publishes were cut off", ended.abandoned);
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `sqlite` (default) | `SqliteStore`, and `enqueue` for sqlx transactions on SQLite |
//! | `postgres` | `PostgresStore`, and `enqueue` for sqlx transactions on PostgreSQL |
//! | `mysql` | `MySqlStore` for MySQL and MariaDB, and `enqueue` for sqlx transactions on them |
//! | `tls` | TLS to PostgreSQL and MySQL, as the URL's `sslmode` says |
//! | `memory` | `MemoryStore`, for your tests |
//! | `sea-orm` | `enqueue` for SeaORM's transactions, on every database whose feature is on |
//! | `tokio-postgres`, `diesel-async`, `rusqlite` | `enqueue` for the transactions of these drivers |
//! | `stdout`, `http` | `sinks`: JSON lines on standard output, and webhooks |
//! | `kafka`, `pubsub`, `nats`, `amqp`, `redis`, `sqs`, `sns` | `sinks`: brokers, each with its client |
//! | `provider` | `sinks`: adapters for Slack, Telegram, WhatsApp, and for your own |
//! | `inbox` | `inbox`: the consumer's side, on every database whose feature is on, and in memory with `memory` |
//! | `inbox-redis` | `inbox`: the same on Redis, on one server or in a cluster |
//! | `changelog` | `changelog`: units of work in commit order, on every database whose feature is on |
//! | `otel` | the W3C trace context of the current span travels with each message |
//! | `schema` | the JSON schema of [`Layout`], for programs that read layouts from a configuration |
//!
//! Delivery is at least once: the same message, with the same id, may arrive again after a crash. Receivers must be
//! idempotent.

#[cfg(feature = "changelog")]
pub use postrider_changelog as changelog;
pub use postrider_core::*;
#[cfg(feature = "inbox")]
pub use postrider_inbox as inbox;
#[cfg(any(
    feature = "stdout",
    feature = "http",
    feature = "kafka",
    feature = "pubsub",
    feature = "nats",
    feature = "amqp",
    feature = "redis",
    feature = "sqs",
    feature = "sns",
    feature = "provider"
))]
pub use postrider_sinks as sinks;
pub use postrider_store::*;
