//! Runs one of the consumers and prints a line for each event that it handled.
//!
//! `cargo run -p consumers -- nats --url nats://localhost:4222 --stream SHOP --inbox redis://localhost:6379`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use consumers::signature::Secrets;
use consumers::{Consumer, amqp, kafka, keep, nats, redis_streams, webhook};
use postrider::inbox::{
    ConsumerName, Database, Delivery, Inbox, InboxTables, MemoryInbox, MySqlInbox, PostgresInbox, RedisInbox, SqlInbox,
    SqliteInbox,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

/// The largest message that a relay can be told to send, and room for what is around it.
const LARGEST_BODY: usize = 100 * 1024 * 1024;
/// How often what may be forgotten is deleted from a table.
const CLEAN_EVERY: Duration = Duration::from_secs(60);
/// How long to wait before a consumer that ended with an error is started again.
const AGAIN: Duration = Duration::from_secs(2);

/// Handles each of Postrider's events once.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    broker: Broker,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// The name of the consumer; all its processes have the same one.
    #[arg(long, global = true, default_value = "printer")]
    name: String,
    /// Where it is remembered which events were handled: memory, or the address of a Redis server or of a database
    /// (postgres://, mysql://, sqlite:file). Processes of one consumer share it, so memory is for a single one.
    #[arg(long, global = true, env = "INBOX", hide_env_values = true, default_value = "memory")]
    inbox: String,
    /// How many events are handled at once; Kafka's are handled one by one, webhooks as they come.
    #[arg(long, global = true, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    at_once: u16,
}

#[derive(Subcommand)]
enum Broker {
    /// Kafka, with a consumer group.
    Kafka {
        #[arg(long, default_value = "localhost:9092")]
        url: String,
        #[arg(long)]
        topic: String,
    },
    /// NATS JetStream, with a durable pull consumer.
    Nats {
        #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://localhost:4222")]
        url: String,
        #[arg(long)]
        stream: String,
    },
    /// RabbitMQ.
    Amqp {
        #[arg(long, env = "AMQP_URL", hide_env_values = true, default_value = "amqp://localhost:5672/%2f")]
        url: String,
        #[arg(long)]
        queue: String,
    },
    /// Redis Streams, with a consumer group.
    Redis {
        #[arg(long, env = "REDIS_URL", hide_env_values = true, default_value = "redis://localhost:6379")]
        url: String,
        #[arg(long)]
        stream: String,
    },
    /// Webhooks. The secrets are in the environment, where other users of the machine do not see them.
    Webhook {
        #[arg(long, default_value = "127.0.0.1:8090")]
        listen: SocketAddr,
        #[arg(long, env = "WEBHOOK_SECRETS", hide_env_values = true, value_delimiter = ' ', required = true)]
        secret: Vec<String>,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // The clients' TLS; each would choose by itself otherwise, and they must agree.
    let _chosen_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let stop = CancellationToken::new();
    tokio::spawn(interrupted(stop.clone()));
    let address = arguments.common.inbox.clone();
    match address.split_once(':').map_or(address.as_str(), |(scheme, _)| scheme) {
        "memory" => consume(MemoryInbox::default(), arguments, stop).await,
        "redis" | "rediss" => consume(RedisInbox::builder(address).connect().await?, arguments, stop).await,
        "sqlite" => {
            let options = address.parse::<SqliteConnectOptions>()?.create_if_missing(true);
            let pool = SqlitePool::connect_with(options).await?;
            consume_in(SqliteInbox::new(pool, InboxTables::default()), arguments, stop).await
        }
        "postgres" | "postgresql" => {
            let pool = PgPool::connect(&address).await?;
            consume_in(PostgresInbox::new(pool, InboxTables::default()), arguments, stop).await
        }
        "mysql" | "mariadb" => {
            let pool = MySqlPool::connect(&address).await?;
            consume_in(MySqlInbox::new(pool, InboxTables::default()), arguments, stop).await
        }
        _ => bail!(
            "--inbox is none that this program knows; use memory, or an address with redis, postgres, mysql or sqlite"
        ),
    }
}

/// Consumes with an inbox in a database: makes its tables and keeps them small.
async fn consume_in<DB: Database>(inbox: SqlInbox<DB>, arguments: Arguments, stop: CancellationToken) -> Result<()> {
    inbox.migrate().await?;
    let (cleaned, until) = (inbox.clone(), stop.clone());
    tokio::spawn(async move { cleaned.keep_clean(CLEAN_EVERY, until).await });
    consume(inbox, arguments, stop).await
}

async fn consume(inbox: impl Inbox + 'static, arguments: Arguments, stop: CancellationToken) -> Result<()> {
    let Arguments { broker, common } = arguments;
    let (name, at_once) = (common.name, common.at_once);
    let consumer = Arc::new(Consumer::new(ConsumerName::new(&name)?, inbox, print));
    match broker {
        Broker::Kafka { url, topic } => {
            let session_timeout = Duration::from_secs(45);
            let settings = kafka::Settings { brokers: url, topic, group: name, session_timeout };
            keep(&stop, AGAIN, || kafka::run(&consumer, &settings, stop.clone())).await;
        }
        Broker::Nats { url, stream } => {
            let ack_wait = Duration::from_secs(30);
            let settings = nats::Settings { url, stream, durable: name, at_once: at_once.into(), ack_wait };
            keep(&stop, AGAIN, || nats::run(&consumer, &settings, stop.clone())).await;
        }
        Broker::Amqp { url, queue } => {
            let settings = amqp::Settings { url, queue, at_once };
            keep(&stop, AGAIN, || amqp::run(&consumer, &settings, stop.clone())).await;
        }
        Broker::Redis { url, stream } => {
            let (member, idle) = (Uuid::new_v4().to_string(), Duration::from_secs(10));
            let settings = redis_streams::Settings { url, stream, group: name, member, at_once: at_once.into(), idle };
            keep(&stop, AGAIN, || redis_streams::run(&consumer, &settings, stop.clone())).await;
        }
        Broker::Webhook { listen, secret } => {
            let secrets = Secrets::new(&secret)?;
            let settings = webhook::Settings { path: "/".into(), secrets, largest_body: LARGEST_BODY };
            let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
            println!("Listening on http://{}", listener.local_addr()?);
            webhook::run(consumer, &settings, listener, stop).await?;
        }
    }
    Ok(())
}

/// The handler: put your own work here.
fn print(delivery: &Delivery, body: &[u8]) -> impl Future<Output = Result<(), Infallible>> + use<> {
    println!("{} handled, {} bytes", delivery.event, body.len());
    std::future::ready(Ok(()))
}

/// Waits for Ctrl-C, or for the signal that asks a service to stop.
async fn interrupted(stop: CancellationToken) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    stop.cancel();
    // Whoever asks a second time does not want to wait.
    tokio::signal::ctrl_c().await?;
    std::process::exit(130);
}
