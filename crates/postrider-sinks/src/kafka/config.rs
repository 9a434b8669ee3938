//! What an operator writes for a sink of type `kafka`, and every check of it.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sink::KafkaClient;
use super::{option, topic};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};
use crate::tls::TlsConfig;

/// Apache Kafka, or what speaks its protocol. The route's destination is a topic such as `orders` or
/// `events.{namespace}.{topic}`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// Brokers to begin with, such as `kafka-1:9092`; the rest of the cluster is learnt from them.
    pub brokers: Vec<String>,
    /// How brokers are talked to: `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub protocol: Protocol,
    /// How `username` and `password` are proven with `sasl_plaintext` and `sasl_ssl`: `plain`, `scram-sha-256` or
    /// `scram-sha-512`.
    pub sasl_mechanism: SaslMechanism,
    /// The user.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// TLS with `ssl` and `sasl_ssl`. Other than elsewhere, only the authorities of `ca_file` are trusted if there is one.
    pub tls: TlsConfig,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// How the producer is called in the brokers' logs and quotas.
    pub client_id: String,
    /// How batches are compressed: `none`, `gzip`, `lz4`, `snappy` or `zstd`.
    pub compression: Compression,
    /// How long a message may wait for others to share a request.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub linger: Duration,
    /// The largest message with key and headers, in bytes; larger ones are rejected. The broker's and topic's own limit
    /// (`message.max.bytes`, `max.message.bytes`) must not be smaller.
    pub max_message_bytes: usize,
    /// How long reaching and trusting a broker may take, and how long is waited for its answer to whether it is ready; at
    /// least one second.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a publish may take with everything, at least five seconds; it must be shorter than the dispatcher's publish
    /// time-out. librdkafka tries for a part of it, so that its report comes before the end.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
    /// Further properties of librdkafka, such as `"metadata.max.age.ms" = "60000"`. Those that Postrider's promises rest upon,
    /// that a setting is for or that hold secrets are refused.
    pub options: BTreeMap<String, String>,
}

/// How brokers are talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protocol {
    /// In the clear, as nobody.
    Plaintext,
    /// Over TLS, as whom the client's certificate says, if there is one.
    Ssl,
    /// In the clear, as a user. Whoever sees the traffic sees a password of the mechanism `plain`.
    SaslPlaintext,
    /// Over TLS, as a user.
    SaslSsl,
}

/// How a user is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SaslMechanism {
    /// By sending the password.
    Plain,
    /// By SCRAM with SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// By SCRAM with SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// How batches are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Compression {
    None,
    Gzip,
    Lz4,
    Snappy,
    Zstd,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            protocol: Protocol::Plaintext,
            sasl_mechanism: SaslMechanism::ScramSha512,
            username: None,
            password: None,
            tls: TlsConfig::default(),
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            client_id: "postrider".into(),
            compression: Compression::None,
            linger: Duration::from_millis(5),
            max_message_bytes: 1024 * 1024,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
            options: BTreeMap::new(),
        }
    }
}

/// librdkafka looks for what has run out of time once a second, and may have to look twice.
const REPORTS_LATE: Duration = Duration::from_millis(2_500);
/// A new producer needs about a second before its first message, to get an identity from a broker.
const SHORTEST: Duration = Duration::from_secs(5);
/// Longer than any sensible publish time-out.
const LONGEST: Duration = Duration::from_secs(3_600);
const LONGEST_LINGER: Duration = Duration::from_secs(1);
/// librdkafka's own limits.
const SHORTEST_CONNECT: Duration = Duration::from_secs(1);
const MESSAGE_BYTES: std::ops::RangeInclusive<usize> = 1_000..=1_000_000_000;

impl KafkaConfig {
    /// For how long librdkafka tries to deliver a message.
    pub(super) fn message_timeout(&self) -> Duration {
        self.timeout.saturating_sub(REPORTS_LATE) * 3 / 4
    }

    /// For how long messages of a call are given to librdkafka; what is given later could be sent after the end of the call.
    pub(super) fn patience(&self) -> Duration {
        self.timeout.saturating_sub(REPORTS_LATE) / 4
    }

    fn broker_problems(&self) -> Vec<ConfigProblem> {
        if self.brokers.is_empty() {
            return vec![ConfigProblem::new("brokers", "there is none; give at least one, such as kafka-1:9092")];
        }
        let good = |address: &str| {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, "9092"));
            // Commas separate brokers, and a scheme would override the protocol.
            !host.is_empty() && !host.contains([',', '/', '@', ' ', '\0']) && port.parse::<u16>().is_ok()
        };
        let bad = self.brokers.iter().enumerate().filter(|(_, address)| !good(address));
        bad.map(|(at, _)| ConfigProblem::new(format!("brokers[{at}]"), "it is no address like kafka-1:9092")).collect()
    }

    fn user_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        let user = [("username", self.username.is_some()), ("password", self.password.is_some())];
        for (field, given) in user {
            let what = match (self.protocol.is_sasl(), given) {
                (true, false) => "the protocol needs it; give one",
                (false, true) => "the protocol has no use for it; choose sasl_ssl, or remove it",
                _ => continue,
            };
            found.push(ConfigProblem::new(field, what));
        }
        let password = self.password.as_ref().map(Secret::expose);
        for (field, text) in [("username", self.username.as_deref()), ("password", password)] {
            if text.is_some_and(|text| text.is_empty() || text.contains('\0')) {
                found.push(ConfigProblem::new(field, "it is empty or holds a NUL"));
            }
        }
        if !self.protocol.is_tls() && self.tls != TlsConfig::default() {
            found.push(ConfigProblem::new("tls", "the protocol is without TLS; choose ssl or sasl_ssl, or remove it"));
        }
        found
    }

    fn limit_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if self.client_id.is_empty() || self.client_id.contains('\0') {
            found.push(ConfigProblem::new("client_id", "it is empty or holds a NUL"));
        }
        if self.linger > LONGEST_LINGER {
            found.push(ConfigProblem::new("linger", "it must be at most one second"));
        }
        if !MESSAGE_BYTES.contains(&self.max_message_bytes) {
            let (least, most) = (MESSAGE_BYTES.start(), MESSAGE_BYTES.end());
            let what = format!("{} is not from {least} to {most}", self.max_message_bytes);
            found.push(ConfigProblem::new("max_message_bytes", what));
        }
        let queue = self.options.get(option::QUEUE_KBYTES).and_then(|kbytes| kbytes.parse::<usize>().ok());
        if queue.is_some_and(|kbytes| kbytes.saturating_mul(1024) < self.max_message_bytes) {
            let what = "it is less than max_message_bytes, so the largest messages would never find room; make it more";
            found.push(ConfigProblem::new(option::field(option::QUEUE_KBYTES), what));
        }
        if !(SHORTEST_CONNECT..=LONGEST).contains(&self.connect_timeout) {
            found.push(ConfigProblem::new("connect_timeout", "it must be at least one second and at most one hour"));
        }
        if !(SHORTEST..=LONGEST).contains(&self.timeout) {
            found.push(ConfigProblem::new("timeout", "it must be at least five seconds and at most one hour"));
        } else if self.connect_timeout > self.timeout {
            let what = "it is longer than timeout, which covers the whole publish; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        found
    }
}

impl Protocol {
    pub(super) fn is_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }

    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }
}

impl SinkConfig for KafkaConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = self.broker_problems();
        found.extend(self.user_problems());
        found.extend(self.tls.problems());
        found.extend(Source::new(&self.source).err());
        found.extend(self.limit_problems());
        found.extend(option::problems(&self.options));
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        topic::check(binding.needed("orders")?)
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(KafkaClient::named(name, self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> KafkaConfig {
        KafkaConfig { brokers: vec!["kafka-1:9092".into(), "[::1]:9092".into()], ..KafkaConfig::default() }
    }

    fn problem(change: impl FnOnce(&mut KafkaConfig)) -> String {
        let mut config = good();
        change(&mut config);
        config.problems().into_iter().next().expect("a problem").field
    }

    #[test]
    fn every_problem_names_its_field() {
        assert_eq!(good().problems(), []);
        assert_eq!(problem(|c| c.brokers.clear()), "brokers");
        for address in ["", ":9092", "a:b", "a,b:9092", "ssl://a:9092", "user@a:9092"] {
            assert_eq!(problem(|c| c.brokers[1] = address.into()), "brokers[1]", "{address}");
        }
        assert_eq!(problem(|c| c.protocol = Protocol::SaslSsl), "username");
        assert_eq!(problem(|c| c.password = Some(Secret::new("canary"))), "password");
        assert_eq!(problem(|c| c.tls.ca_file = Some("ca.pem".into())), "tls");
        let half = |c: &mut KafkaConfig| {
            c.protocol = Protocol::Ssl;
            c.tls.key_file = Some("key.pem".into());
        };
        assert_eq!(problem(half), "tls.certificate_file");
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        assert_eq!(problem(|c| c.client_id = String::new()), "client_id");
        assert_eq!(problem(|c| c.linger = Duration::from_secs(2)), "linger");
        assert_eq!(problem(|c| c.max_message_bytes = 10), "max_message_bytes");
        assert_eq!(problem(|c| c.connect_timeout = Duration::from_millis(999)), "connect_timeout");
        assert_eq!(problem(|c| c.connect_timeout = Duration::from_secs(9)), "connect_timeout");
        assert_eq!(problem(|c| c.timeout = Duration::from_secs(4)), "timeout");
        let queue = |c: &mut KafkaConfig| c.options = [(option::QUEUE_KBYTES.into(), "1023".into())].into();
        assert_eq!(problem(queue), "options.queue.buffering.max.kbytes", "a message of 1 MB would wait for ever");
        assert_eq!(problem(|c| c.options = [("acks".into(), "1".into())].into()), "options.acks");
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let config = KafkaConfig {
            protocol: Protocol::SaslPlaintext,
            source: "not a uri".into(),
            timeout: Duration::ZERO,
            options: [("retries".into(), "1".into())].into(),
            ..KafkaConfig::default()
        };
        let fields: Vec<String> = config.problems().into_iter().map(|problem| problem.field).collect();
        assert_eq!(fields, ["brokers", "username", "password", "source", "timeout", "options.retries"]);
    }

    #[test]
    fn unknown_fields_are_refused_and_no_secret_is_shown() {
        let read = serde_json::from_str::<KafkaConfig>;
        let text = r#"{"brokers": ["a:1"], "protocol": "sasl_ssl", "sasl_mechanism": "scram-sha-256",
            "username": "u", "password": "canary", "compression": "zstd", "linger": "20ms", "options": {"batch.size": "9"}}"#;
        let config = read(text).expect("good");
        assert_eq!(config.problems(), []);
        assert_eq!((config.protocol, config.linger), (Protocol::SaslSsl, Duration::from_millis(20)));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("it can be shown"));
        assert!(!shown.contains("canary"), "{shown}");
        assert!(read(r#"{"broker": "a"}"#).expect_err("unknown").to_string().contains("broker"));
    }

    #[test]
    fn a_message_ends_before_its_call() {
        let config = good();
        assert!(config.patience() + config.message_timeout() + REPORTS_LATE <= config.timeout);
        assert_eq!(config.longest_publish(), Some(config.timeout));
    }
}
