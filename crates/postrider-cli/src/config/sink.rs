//! The sinks that can be configured, each if the binary was built with it. A new type is one line in `sinks!`.

use std::fmt;
use std::marker::PhantomData;

use postrider_sinks::SinkConfig;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::shape::TYPE;

/// Makes the enum and everything that goes over all types.
macro_rules! sinks {
    ($($(#[doc = $about:literal])+ $(#[cfg(feature = $feature:literal)])? $kind:literal => $variant:ident($config:ty),)+) => {
        /// Where messages go.
        #[derive(Debug, Clone, Serialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "lowercase")]
        #[non_exhaustive]
        pub enum Sink {
            $(
                $(#[doc = $about])+
                $(#[cfg(feature = $feature)])?
                $variant(Box<$config>),
            )+
        }

        impl Sink {
            /// What `type` may say.
            const TYPES: &[&str] = &[$($(#[cfg(feature = $feature)])? $kind,)+];

            /// What it may say in a binary that was built with everything.
            const ALL_TYPES: &[&str] = &[$($kind,)+];

            /// One of each type with its defaults, in the order of the variants.
            pub fn one_of_each() -> Vec<Self> {
                Vec::from([$($(#[cfg(feature = $feature)])? Self::$variant(Box::default()),)+])
            }

            /// Its settings, whatever its type.
            pub fn config(&self) -> &dyn SinkConfig {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) => &**config,)+
                }
            }
        }

        impl ByType for Sink {
            fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error> {
                let settings = MapAccessDeserializer::new(settings);
                match kind {
                    $(
                        $(#[cfg(feature = $feature)])?
                        $kind => <$config>::deserialize(settings).map(|config| Self::$variant(Box::new(config))),
                    )+
                    _ => Err(unknown(kind)),
                }
            }
        }
    };
}

sinks! {
    /// JSON lines on standard output.
    "stdout" => Stdout(postrider_sinks::StdoutConfig),
    /// Webhooks.
    #[cfg(feature = "http")]
    "http" => Http(postrider_sinks::HttpConfig),
    /// Apache Kafka.
    #[cfg(feature = "kafka")]
    "kafka" => Kafka(postrider_sinks::KafkaConfig),
    /// Google Pub/Sub.
    #[cfg(feature = "pubsub")]
    "pubsub" => Pubsub(postrider_sinks::PubsubConfig),
    /// NATS JetStream.
    #[cfg(feature = "nats")]
    "nats" => Nats(postrider_sinks::NatsConfig),
    /// RabbitMQ.
    #[cfg(feature = "amqp")]
    "amqp" => Amqp(postrider_sinks::AmqpConfig),
    /// Redis Streams.
    #[cfg(feature = "redis")]
    "redis" => Redis(postrider_sinks::RedisConfig),
    /// Queues of AWS.
    #[cfg(feature = "sqs")]
    "sqs" => Sqs(postrider_sinks::SqsConfig),
    /// Topics of AWS.
    #[cfg(feature = "sns")]
    "sns" => Sns(postrider_sinks::SnsConfig),
    /// Messages to people: Slack, Telegram, WhatsApp.
    #[cfg(feature = "provider")]
    "provider" => Provider(postrider_sinks::ProviderConfig),
}

/// What is wrong with a type that this binary does not have.
fn unknown<E: Error>(kind: &str) -> E {
    if Sink::ALL_TYPES.contains(&kind) {
        return E::custom(format!(
            "this postrider was built without the sink {kind}; build it with --features {kind}, or use the default build"
        ));
    }
    E::unknown_variant(kind, Sink::TYPES)
}

impl<'de> Deserialize<'de> for Sink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TypeFirst(PhantomData))
    }
}

/// A table whose keys depend on its `type`. It is not derived, because serde would collect the table first and lose the
/// places of what is wrong in it. The tree hands out `type` before the other keys.
pub trait ByType: Sized {
    /// Reads the other keys.
    fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error>;
}

/// Reads the type and then what is of that type.
pub struct TypeFirst<T>(pub PhantomData<T>);

impl<'de, T: ByType> Visitor<'de> for TypeFirst<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with a type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, kind)) if key == TYPE => T::read(&kind, map),
            _ => Err(A::Error::missing_field(TYPE)),
        }
    }
}
