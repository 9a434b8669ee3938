//! One RabbitMQ for a test binary, and a plain client on it.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use lapin::options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use postrider_sinks::AmqpConfig;
use postrider_sinks::setting::Secret;
use testkit::brokers::rabbitmq::{Certificates, PASSWORD, RabbitMq, USER};
use testkit::sinks::Arrival;

/// The server, and the certificate of the authority behind its own.
pub struct Shared {
    pub server: RabbitMq,
    pub authority: String,
}

/// The server of this test binary, started by the first who asks.
pub async fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    let start = || {
        SHARED.get_or_init(|| {
            let (authority, certificates) = certificates("localhost");
            Shared { server: RabbitMq::start(Some(&certificates)).expect("RabbitMQ starts"), authority }
        })
    };
    tokio::task::spawn_blocking(start).await.expect("started")
}

/// An authority, and what a server of that name shows.
pub fn certificates(name: &str) -> (String, Certificates) {
    let mut params = rcgen::CertificateParams::new([]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new([name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
    (authority.clone(), Certificates { authority, certificate, key: key.serialize_pem() })
}

/// Settings for a broker on this machine, however busy that is.
pub fn config(port: u16) -> AmqpConfig {
    let mut config = AmqpConfig::default();
    config.addresses = vec![format!("amqp://127.0.0.1:{port}")];
    (config.user, config.password) = (USER.into(), Secret::new(PASSWORD));
    (config.timeout, config.connect_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    config
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7())
}

/// A client that has nothing to do with the sink.
pub struct Plain {
    _connection: Connection,
    pub channel: Channel,
}

impl Plain {
    pub async fn connect(port: u16) -> Self {
        Self::try_connect(port).await.expect("connected")
    }

    pub async fn try_connect(port: u16) -> lapin::Result<Self> {
        let url = format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{port}/%2f");
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok(Self { _connection: connection, channel })
    }

    pub async fn declare(&self, queue: &str) {
        self.declare_with(queue, FieldTable::default()).await;
    }

    pub async fn declare_with(&self, queue: &str, arguments: FieldTable) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.into(), options, arguments).await.expect("declared");
    }

    pub async fn delete(&self, queue: &str) {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
    }

    /// Takes everything that is in a queue.
    pub async fn take(&self, queue: &str) -> lapin::Result<Vec<Arrival>> {
        let mut taken = Vec::new();
        while let Some(got) = self.channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await? {
            let table = got.delivery.properties.headers().clone().unwrap_or_default();
            let text = |value: &AMQPValue| match value {
                AMQPValue::LongString(text) => text.to_string(),
                other => panic!("headers are text, and this is {other:?}"),
            };
            // Quorum queues add this one.
            let given = table.inner().iter().filter(|(name, _)| name.as_str() != "x-delivery-count");
            let headers: BTreeMap<String, String> =
                given.map(|(name, value)| (name.to_string(), text(value))).collect();
            let key = headers.get("key").cloned();
            taken.push(Arrival { body: got.delivery.data, headers, key });
        }
        Ok(taken)
    }
}
