//! RabbitMQ with a durable queue and persistent messages.

use std::sync::Arc;

use anyhow::{Result, ensure};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use postrider::Sink;
use postrider::sinks::setting::Secret;
use postrider::sinks::{AmqpConfig, Binding, SinkConfig};
use testkit::brokers::rabbitmq::{PASSWORD, RabbitMq, USER};

use super::Parcel;

pub struct Peer {
    server: RabbitMq,
    channel: Channel,
    _connection: Connection,
}

const QUEUE: &str = "bench";

impl super::Peer for Peer {
    const NAME: &'static str = "amqp";
    const MESSAGES: usize = 20_000;

    async fn start() -> Result<Self> {
        let server = tokio::task::spawn_blocking(|| RabbitMq::start(None)).await??;
        let url = format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{}/%2f", server.port());
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await?;
        Ok(Self { server, channel, _connection: connection })
    }

    async fn sink(&self) -> Result<Arc<dyn Sink>> {
        let mut config = AmqpConfig::default();
        (config.user, config.password) = (USER.into(), Secret::new(PASSWORD));
        config.addresses = vec![format!("amqp://127.0.0.1:{}", self.server.port())];
        Ok(config.client("bench")?.bind(Binding::to(QUEUE.parse()?))?)
    }

    async fn bare(&self, parcels: &[Parcel]) -> Result<()> {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        for chunk in parcels.chunks(1_000) {
            let mut confirms = Vec::with_capacity(chunk.len());
            for parcel in chunk {
                let mut headers = FieldTable::default();
                parcel.headers.iter().for_each(|(name, value)| {
                    headers.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
                });
                let properties = BasicProperties::default().with_delivery_mode(2).with_headers(headers);
                let publish = self.channel.basic_publish("".into(), QUEUE.into(), mandatory, &parcel.body, properties);
                confirms.push(publish.await?);
            }
            for confirm in confirms {
                ensure!(confirm.await?.is_ack(), "not confirmed");
            }
        }
        Ok(())
    }
}
