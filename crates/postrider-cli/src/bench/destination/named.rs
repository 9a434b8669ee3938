//! Sinks that `--sink` names: somebody else's servers. Nothing is made there and nothing is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use postrider::Sink;

use super::{Client, Described, Destination, Place};
use crate::bench::ledger::Ledger;
use crate::bench::scenario::{Scenario, Type};
use crate::config;
use crate::exit::Failure;

/// What messages are called at a broker.
#[allow(dead_code)] // in a build without brokers
const DESTINATION: &str = "postrider.bench";

const HOW: &str = "--sink is the address of a sink that this binary has: http://…, nats://…, amqp://…, redis://… or kafka://HOST:PORT, whose \
                   subject, queue, stream or topic postrider.bench must be there; or pubsub=projects/PROJECT/topics/TOPIC, sqs=QUEUE, \
                   or sns=ARN";

/// By their types.
#[derive(Default)]
pub struct Named(BTreeMap<Type, Arc<dyn Sink>>);

impl Named {
    /// The sinks at some addresses, with the settings that they have by default. All must answer, and each must be for one of the scenarios.
    pub async fn at(addresses: &[String], scenarios: &[Scenario]) -> Result<Self, Failure> {
        let mut named = Self::default();
        for given in addresses {
            let (kind, address) = typed(given).ok_or_else(|| Failure::usage(HOW))?;
            let name = kind.name();
            if !scenarios.iter().any(|scenario| scenario.sink == Some(kind)) {
                let what = format!("--sink names a sink of type {name}, and sink-{name} is not among the scenarios");
                return Err(Failure::usage(what));
            }
            let said = |problem: &dyn std::fmt::Display| Failure::usage(format!("--sink {name}: {problem}"));
            let (sink, destination) = configured(kind, address)?;
            let sink =
                Client::new(&sink).and_then(|client| client.to(destination)).map_err(|problem| said(&problem))?;
            sink.ready().await.map_err(|why| Failure::failed(format!("the sink {name} does not answer: {why}")))?;
            if named.0.insert(kind, sink).is_some() {
                return Err(Failure::usage(format!(
                    "--sink names two sinks of type {name}; one can be measured at a time"
                )));
            }
        }
        Ok(named)
    }

    pub fn has(&self, kind: Type) -> bool {
        self.0.contains_key(&kind)
    }

    pub fn get(&self, kind: Type) -> Option<Box<dyn Destination>> {
        let sink = self.0.get(&kind)?.clone();
        Some(Box::new(Theirs { sink }))
    }
}

/// The type of an address: what stands before it, or what its scheme says.
fn typed(given: &str) -> Option<(Type, &str)> {
    if let Some((name, address)) = given.split_once('=')
        && let Some(kind) = Type::ALL.into_iter().find(|kind| kind.name() == name)
    {
        return Some((kind, address)).filter(|(kind, _)| !matches!(kind, Type::Stdout | Type::Provider));
    }
    let kind = match given.split_once("://")?.0 {
        "http" | "https" => Type::Http,
        "nats" | "tls" => Type::Nats,
        "amqp" | "amqps" => Type::Amqp,
        "redis" | "rediss" => Type::Redis,
        "kafka" => Type::Kafka,
        _ => return None,
    };
    Some((kind, given))
}

#[allow(unused_variables)] // in a build without brokers
fn configured(kind: Type, address: &str) -> Result<(config::Sink, &str), Failure> {
    let owned = || vec![address.to_owned()];
    match kind {
        #[cfg(feature = "http")]
        Type::Http => Ok((config::Sink::Http(Box::new(super::http::settings())), address)),
        #[cfg(feature = "nats")]
        Type::Nats => {
            let mut nats = postrider_sinks::NatsConfig::default();
            nats.servers = owned();
            Ok((config::Sink::Nats(Box::new(nats)), DESTINATION))
        }
        #[cfg(feature = "amqp")]
        Type::Amqp => {
            let mut amqp = postrider_sinks::AmqpConfig::default();
            amqp.addresses = owned();
            Ok((config::Sink::Amqp(Box::new(amqp)), DESTINATION))
        }
        #[cfg(feature = "redis")]
        Type::Redis => {
            let mut redis = postrider_sinks::RedisConfig::default();
            redis.urls = owned();
            Ok((config::Sink::Redis(Box::new(redis)), DESTINATION))
        }
        #[cfg(feature = "kafka")]
        Type::Kafka => {
            let mut kafka = postrider_sinks::KafkaConfig::default();
            kafka.brokers = vec![address.trim_start_matches("kafka://").trim_end_matches('/').to_owned()];
            Ok((config::Sink::Kafka(Box::new(kafka)), DESTINATION))
        }
        #[cfg(feature = "pubsub")]
        Type::Pubsub => Ok((config::Sink::Pubsub(Box::default()), address)),
        #[cfg(feature = "sqs")]
        Type::Sqs => Ok((config::Sink::Sqs(Box::default()), address)),
        #[cfg(feature = "sns")]
        Type::Sns => Ok((config::Sink::Sns(Box::default()), address)),
        _ => Err(Failure::usage(HOW)),
    }
}

struct Theirs {
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl Destination for Theirs {
    /// Its address is in no report: it may tell more than its reader should know.
    fn describe(&self) -> Described {
        Described { what: "the one of --sink".into(), counted_there: false }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        Ok(Place { sink: self.sink.clone(), reader: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_its_type_or_has_it_before() {
        assert_eq!(typed("nats://127.0.0.1:4222"), Some((Type::Nats, "nats://127.0.0.1:4222")));
        assert_eq!(typed("nats=tls://host"), Some((Type::Nats, "tls://host")));
        assert_eq!(typed("https://host/hook?key=sqs=x"), Some((Type::Http, "https://host/hook?key=sqs=x")));
        assert_eq!(typed("sns=arn:aws:sns:r:1:t"), Some((Type::Sns, "arn:aws:sns:r:1:t")));
        for wrong in ["", "nats", "ftp://host", "smtp=host", "stdout=x", "provider=x", "arn:aws:sns:r:1:t"] {
            assert_eq!(typed(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_sink_that_no_scenario_sends_to_is_refused() {
        let refused = Named::at(&["nats://127.0.0.1:1".into()], &[]).await;
        let why = refused.err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(why.contains("sink-nats is not among the scenarios"), "{why}");
    }
}
