//! A `rabbitmq-server` with durable queues and persistent messages. It brings a port mapper of its own, so that it meets no other node.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::StreamExt as _;
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Consumer};
use postrider_sinks::AmqpConfig;
use uuid::Uuid;

use super::private::{Private, free_port, needed};
use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

/// Debian's script of that name on the path only runs under accounts that it knows; it leads here.
const REAL: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// Nothing for so long: everything was read.
const QUIET: Duration = Duration::from_millis(300);
/// Both in the server's process group, and so ended with it.
const START: &str = "epmd -port \"$ERL_EPMD_PORT\" -address 127.0.0.1 & exec \"$0\"";

pub fn find() -> Result<PathBuf> {
    needed("epmd", "amqp://HOST:PORT")?;
    let found = needed("rabbitmq-server", "amqp://HOST:PORT")?;
    Ok(Some(PathBuf::from(REAL)).filter(|real| real.is_file()).unwrap_or(found))
}

pub struct RabbitMq {
    client: Client,
    connection: Connection,
    server: Private,
}

impl RabbitMq {
    pub async fn start() -> Result<Self> {
        let program = find()?;
        let server = Private::start("Server startup complete", |port, directory| {
            let variables = variables(port, directory)?;
            let start = ["/bin/sh", "-c", START].map(Into::into);
            Ok(["env".into()].into_iter().chain(variables).chain(start).chain([program.clone().into()]).collect())
        });
        let server = server.await?;
        let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", server.port);
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let mut amqp = AmqpConfig::default();
        amqp.addresses = vec![format!("amqp://127.0.0.1:{}", server.port)];
        Ok(Self { client: Client::new(&config::Sink::Amqp(Box::new(amqp)))?, connection, server })
    }
}

/// Everything that it would look for elsewhere is in its own directory.
fn variables(port: u16, directory: &Path) -> Result<Vec<std::ffi::OsString>> {
    let at = |name: &str| directory.join(name).display().to_string();
    let configuration = format!(
        "listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = info\nlog.file = false\n\
         disk_free_limit.absolute = 1MB\n"
    );
    std::fs::write(directory.join("rabbitmq.conf"), configuration).context("no configuration can be written")?;
    std::fs::write(directory.join("enabled_plugins"), "[].\n").context("no configuration can be written")?;
    let variables = [
        ("HOME", directory.display().to_string()),
        ("ERL_EPMD_PORT", free_port()?.to_string()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODENAME", format!("postrider-bench-{port}@localhost")),
        ("RABBITMQ_DIST_PORT", free_port()?.to_string()),
        ("RABBITMQ_MNESIA_BASE", at("data")),
        ("RABBITMQ_LOG_BASE", at("logs")),
        ("RABBITMQ_LOGS", "-".into()),
        ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", at("generated")),
        ("RABBITMQ_SCHEMA_DIR", at("schema")),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-noinput -kernel inet_dist_use_interface {127,0,0,1}".into()),
        // The script then becomes the server, instead of waiting for it.
        ("RABBITMQ_ALLOW_INPUT", "1".into()),
    ];
    Ok(variables.map(|(name, value)| format!("{name}={value}").into()).into())
}

#[async_trait]
impl Destination for RabbitMq {
    fn describe(&self) -> Described {
        Described { what: self.server.describe("rabbitmq-server", "Starting RabbitMQ"), counted_there: true }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let (channel, queue) = (self.connection.create_channel().await?, format!("bench-{}", Uuid::now_v7()));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), durable, FieldTable::default()).await?;
        let sink = self.client.to(&queue)?;
        Ok(Place::new(sink, Queue { channel, queue, consumer: None }))
    }
}

/// Consumes only when it is asked, so that the broker has nothing else to do before.
struct Queue {
    channel: Channel,
    queue: String,
    consumer: Option<Consumer>,
}

#[async_trait]
impl Reader for Queue {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        if self.consumer.is_none() {
            let without_acks = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
            let (queue, tag) = (self.queue.as_str().into(), "bench".into());
            self.consumer = Some(self.channel.basic_consume(queue, tag, without_acks, FieldTable::default()).await?);
        }
        let consumer = self.consumer.as_mut().context("there is no consumer")?;
        while let Ok(Some(delivery)) = tokio::time::timeout(QUIET, consumer.next()).await {
            arrivals.note(&delivery?.data);
        }
        Ok(())
    }
}
