//! What librdkafka is told: sensible values first, then the operator's, then those that the promises rest upon.

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use std::time::Duration;

use super::config::{Compression, KafkaConfig, Protocol, SaslMechanism};
use super::option;
use crate::problem::ConfigProblem;

/// How often a request is sent again by librdkafka itself. With more, an error that lasts would be reported as time that
/// has run out, and nobody would know of what.
const RETRIES: &str = "5";

/// librdkafka's own limit for requests other than those with messages, if nobody says something else.
const LONGEST_REQUEST: Duration = Duration::from_secs(60);
/// How much waits in a producer at most; there is always room for two messages.
const QUEUE_BYTES: usize = 256 * 1024 * 1024;

/// All properties of a producer. Its text form holds the password: do not print it.
pub(super) fn of(config: &KafkaConfig) -> Result<ClientConfig, ConfigProblem> {
    let mut all = ClientConfig::new();
    all.set_log_level(RDKafkaLogLevel::Info);
    // After an outage nobody should wait for long: neither between attempts, nor for what was asked on a connection that the
    // network has lost without a word. Memory is bounded.
    all.set("reconnect.backoff.max.ms", "1000")
        .set("socket.timeout.ms", config.timeout.min(LONGEST_REQUEST).as_millis().to_string())
        .set("queue.buffering.max.kbytes", (QUEUE_BYTES.max(2 * config.max_message_bytes) / 1024).to_string());
    for (name, value) in &config.options {
        all.set(name, value);
    }
    all.set("bootstrap.servers", config.brokers.join(",")).set("client.id", &config.client_id);
    order(&mut all);
    limits(&mut all, config);
    security(&mut all, config)?;
    Ok(all)
}

fn order(all: &mut ClientConfig) {
    all.set("enable.idempotence", "true")
        .set("acks", "all")
        .set("max.in.flight.requests.per.connection", "5")
        .set("retries", RETRIES)
        .set("queuing.strategy", "fifo")
        .set("partitioner", "murmur2_random")
        // A topic that is not there is the operator's to make, with the partitions and replicas that he wants; and it is not
        // waited for, so that its messages are not taken for timed out.
        .set("allow.auto.create.topics", "false")
        .set("topic.metadata.propagation.max.ms", "0");
}

fn limits(all: &mut ClientConfig, config: &KafkaConfig) {
    let millis = |time: Duration| time.as_millis().to_string();
    let limit = config.message_timeout();
    let longest_backoff = (limit / 8).clamp(Duration::from_millis(10), Duration::from_secs(1));
    all.set("message.timeout.ms", millis(limit))
        .set("request.timeout.ms", millis(limit))
        .set("retry.backoff.ms", millis(longest_backoff.min(Duration::from_millis(100))))
        .set("retry.backoff.max.ms", millis(longest_backoff))
        .set("socket.connection.setup.timeout.ms", millis(config.connect_timeout))
        .set("linger.ms", millis(config.linger))
        .set("message.max.bytes", config.max_message_bytes.to_string())
        .set("compression.codec", config.compression.property());
}

fn security(all: &mut ClientConfig, config: &KafkaConfig) -> Result<(), ConfigProblem> {
    all.set("security.protocol", config.protocol.property())
        .set("enable.ssl.certificate.verification", "true")
        .set("ssl.endpoint.identification.algorithm", "https");
    if let (true, Some(user), Some(password)) = (config.protocol.is_sasl(), &config.username, &config.password) {
        all.set("sasl.mechanism", config.sasl_mechanism.property())
            .set("sasl.username", user)
            .set("sasl.password", password.expose());
    }
    // librdkafka reads the files itself; reading them here gives better errors.
    config.tls.authorities()?;
    config.tls.identity()?;
    let files = [
        ("ssl.ca.location", "tls.ca_file", &config.tls.ca_file),
        ("ssl.certificate.location", "tls.certificate_file", &config.tls.certificate_file),
        ("ssl.key.location", "tls.key_file", &config.tls.key_file),
    ];
    for (property, field, file) in files {
        if let Some(path) = file {
            let path = path.to_str().ok_or_else(|| ConfigProblem::new(field, "its path is no Unicode"))?;
            all.set(property, path);
        }
    }
    Ok(())
}

/// What is wrong if librdkafka does not take its properties. Values are not repeated.
pub(super) fn problem(config: &KafkaConfig, error: &KafkaError) -> ConfigProblem {
    let longest = 300;
    match error {
        KafkaError::ClientConfig(_, _, name, _) if config.options.contains_key(name) => {
            ConfigProblem::new(option::field(name), "librdkafka has no such property, or not with this value")
        }
        KafkaError::ClientConfig(_, _, name, _) => {
            ConfigProblem::new("kafka", format!("librdkafka does not take its property {name}"))
        }
        // These are of properties that do not go together and of files that OpenSSL cannot use.
        KafkaError::ClientCreation(why) => {
            let field = match config.protocol.is_tls() && why.contains("ssl") {
                true => "tls",
                false => "options",
            };
            ConfigProblem::new(field, why.chars().take(longest).collect::<String>())
        }
        _ => ConfigProblem::new("kafka", "the producer cannot be set up"),
    }
}

impl Protocol {
    fn property(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Ssl => "ssl",
            Self::SaslPlaintext => "sasl_plaintext",
            Self::SaslSsl => "sasl_ssl",
        }
    }
}

impl SaslMechanism {
    fn property(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl Compression {
    fn property(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Secret;

    #[test]
    fn the_promises_are_set_whatever_an_operator_writes() {
        let mut config = KafkaConfig { brokers: vec!["a:1".into(), "b:2".into()], ..KafkaConfig::default() };
        (config.protocol, config.sasl_mechanism) = (Protocol::SaslSsl, SaslMechanism::ScramSha256);
        (config.username, config.password) = (Some("user".into()), Some(Secret::new("word")));
        // They are refused before, and would have no effect.
        config.options =
            [("acks", "0"), ("enable.idempotence", "false"), ("message.timeout.ms", "0"), ("batch.size", "9")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        let all = of(&config).expect("good");
        for (name, value) in [
            ("bootstrap.servers", "a:1,b:2"),
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("max.in.flight.requests.per.connection", "5"),
            ("partitioner", "murmur2_random"),
            ("allow.auto.create.topics", "false"),
            ("message.timeout.ms", "4125"),
            ("request.timeout.ms", "4125"),
            ("socket.timeout.ms", "8000"),
            ("queue.buffering.max.kbytes", "262144"),
            ("batch.size", "9"),
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("enable.ssl.certificate.verification", "true"),
            ("ssl.endpoint.identification.algorithm", "https"),
        ] {
            assert_eq!(all.get(name), Some(value), "{name}");
        }
        config.max_message_bytes = 1_000_000_000;
        let kbytes = of(&config).expect("good").get("queue.buffering.max.kbytes").map(str::to_owned);
        assert_eq!(kbytes.as_deref(), Some("1953125"), "there is room for the largest");
    }
}
