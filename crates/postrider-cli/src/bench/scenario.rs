//! What is measured: the scenarios of `scenarios.toml`, their parameters, and how a quick run cuts them down.

use std::time::Duration;

use postrider::store::Delivered;
use serde::{Deserialize, Serialize};

const TEXT: &str = include_str!("scenarios.toml");
/// Some of what plays a broker is slow.
const QUICK_SINK: u32 = 150;

/// Which code runs a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Enqueue,
    Drain,
    Steady,
    Idle,
    History,
    Snapshot,
    Relays,
    SlowSink,
    Fair,
    Payload,
    Sink,
}

impl Kind {
    /// Whether its figure is a latency rather than a rate.
    pub fn is_of_latency(self) -> bool {
        matches!(self, Self::Steady | Self::Idle | Self::Fair)
    }
}

/// The types of sinks, as a configuration calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    Stdout,
    Http,
    Kafka,
    Pubsub,
    Nats,
    Amqp,
    Redis,
    Sqs,
    Sns,
    Provider,
}

impl Type {
    #[rustfmt::skip]
    pub const ALL: [Self; 10] = [
        Self::Stdout, Self::Http, Self::Kafka, Self::Pubsub, Self::Nats, Self::Amqp, Self::Redis, Self::Sqs, Self::Sns, Self::Provider,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Http => "http",
            Self::Kafka => "kafka",
            Self::Pubsub => "pubsub",
            Self::Nats => "nats",
            Self::Amqp => "amqp",
            Self::Redis => "redis",
            Self::Sqs => "sqs",
            Self::Sns => "sns",
            Self::Provider => "provider",
        }
    }
}

/// What order is checked, and asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    #[default]
    None,
    /// All messages, in the order in which they were written.
    Enqueue,
    /// The messages of each key.
    Key,
}

/// What becomes of delivered rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    Keep,
    #[default]
    Delete,
}

impl From<Ack> for Delivered {
    fn from(ack: Ack) -> Self {
        match ack {
            Ack::Keep => Self::Keep,
            Ack::Delete => Self::Delete,
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    pub kind: Kind,
    /// Only run if it is named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long: bool,
    /// Of the kind `sink`: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Type>,
    #[serde(flatten)]
    pub with: Parameters,
}

impl Scenario {
    /// Small enough to show that everything works, too small for figures.
    pub fn quick(mut self) -> Self {
        self.with = self.with.quick();
        if self.kind == Kind::Sink {
            self.with.messages = self.with.messages.min(QUICK_SINK);
        }
        self
    }
}

/// Everything that a scenario may say. A parameter that its kind has no use for stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// Who write at the same time.
    pub clients: u32,
    pub per_transaction: u32,
    /// The backlog.
    pub messages: u32,
    /// Bytes of JSON.
    pub payload: usize,
    /// How long writing goes on.
    pub seconds: f64,
    /// Messages a second.
    pub rate: u32,
    pub relays: u32,
    /// Rows that are there already, delivered.
    pub delivered: u32,
    pub ack: Ack,
    /// The most messages in one call of the sink.
    pub sink_batch: usize,
    /// Calls of the sink at the same time.
    pub concurrency: usize,
    /// Rows per claim, of ours and of the bare loop.
    pub batch: u32,
    /// How long a call of the sink takes.
    pub delay_ms: u64,
    pub order: Order,
    pub keys: u32,
    pub tenants: u32,
    /// Also run the bare loop on our table, whose indexes cost what they cost.
    pub same_table: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            clients: 1,
            per_transaction: 1,
            messages: 100_000,
            payload: 200,
            seconds: 3.0,
            rate: 100,
            relays: 1,
            delivered: 0,
            ack: Ack::Delete,
            sink_batch: 1,
            concurrency: 64,
            batch: 1_000,
            delay_ms: 0,
            order: Order::None,
            keys: 1,
            tenants: 1,
            same_table: false,
        }
    }
}

impl Parameters {
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    pub fn lasts(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The messages of a load that goes on for a time.
    pub fn load(&self) -> u32 {
        ((f64::from(self.rate) * self.seconds) as u32).max(1)
    }

    fn quick(mut self) -> Self {
        let most = (4_000_000 / self.payload).clamp(100, 2_000) as u32;
        self.messages = self.messages.min(if self.delay_ms > 0 { 400 } else { most });
        self.seconds = self.seconds.min(0.3);
        self.delivered = self.delivered.min(5_000);
        self
    }
}

#[derive(Deserialize)]
struct Table {
    scenario: Vec<Scenario>,
}

/// All scenarios, in the order of the file.
pub fn all() -> Vec<Scenario> {
    toml::from_str::<Table>(TEXT).map(|table| table.scenario).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_read_and_has_a_name_of_its_own() {
        let read = toml::from_str::<Table>(TEXT).expect("the table of scenarios").scenario;
        let mut names: Vec<&str> = read.iter().map(|scenario| scenario.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), read.len()), (all().len(), all().len()));
        assert!(read.len() > 15);
    }

    /// serde cannot refuse unknown keys beside a flattened table, so a typing error would be a default.
    #[test]
    fn no_parameter_is_misspelt() {
        let known = serde_json::to_value(&all()[0]).expect("a scenario as JSON");
        let table: toml::Table = toml::from_str(TEXT).expect("TOML");
        for scenario in table["scenario"].as_array().expect("scenarios") {
            for key in scenario.as_table().expect("a scenario").keys() {
                assert!(key == "long" || key == "sink" || known.get(key).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn keys_are_written_by_one_client_each() {
        for scenario in all().iter().filter(|scenario| scenario.with.order == Order::Key) {
            assert_eq!(scenario.with.keys % scenario.with.clients, 0, "{}", scenario.name);
        }
    }

    #[test]
    fn a_quick_run_is_small() {
        for scenario in all() {
            let quick = scenario.quick();
            let with = &quick.with;
            assert!(with.messages <= 2_000 && with.seconds <= 0.3 && with.delivered <= 5_000, "{}", quick.name);
        }
    }

    #[test]
    fn every_type_of_sink_has_a_scenario_of_its_name() {
        let of_sinks = || all().into_iter().filter(|scenario| scenario.kind == Kind::Sink);
        let types: Vec<Type> = of_sinks().filter_map(|scenario| scenario.sink).collect();
        assert_eq!(types, Type::ALL);
        assert!(of_sinks().all(|it| it.sink.is_some_and(|kind| it.name == format!("sink-{}", kind.name()))));
        assert!(all().iter().all(|scenario| scenario.sink.is_some() == (scenario.kind == Kind::Sink)));
        assert!(crate::config::Sink::one_of_each().len() <= types.len(), "a type has none");
    }
}
