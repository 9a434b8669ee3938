//! Which of librdkafka's properties an operator may set beside the settings of the sink.
//!
//! Refused is what a setting of the sink is for, what its promises rest upon, what holds secrets (values of `options` are
//! printed), and what makes librdkafka do something else than produce.

use std::collections::BTreeMap;

use crate::problem::ConfigProblem;

const SETTINGS: [(&str, &str); 16] = [
    ("bootstrap.servers", "brokers"),
    ("metadata.broker.list", "brokers"),
    ("client.id", "client_id"),
    ("security.protocol", "protocol"),
    ("ssl.ca.location", "tls.ca_file"),
    ("ssl.certificate.location", "tls.certificate_file"),
    ("ssl.key.location", "tls.key_file"),
    ("compression.codec", "compression"),
    ("compression.type", "compression"),
    ("linger.ms", "linger"),
    ("queue.buffering.max.ms", "linger"),
    ("message.max.bytes", "max_message_bytes"),
    ("message.timeout.ms", "timeout"),
    ("delivery.timeout.ms", "timeout"),
    ("request.timeout.ms", "timeout"),
    ("socket.connection.setup.timeout.ms", "connect_timeout"),
];

const PROMISES: [&str; 20] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "enable.gapless.guarantee",
    // Without reports of success every message would be sent for ever.
    "delivery.report.only.error",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "message.send.max.retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "queuing.strategy",
    "partitioner",
    "msg_order_cmp",
    "transactional.id",
    "allow.auto.create.topics",
    "topic.metadata.propagation.max.ms",
    // A connection on which an answer was waited for in vain must end.
    "socket.max.fails",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
];

const OTHER: [&str; 9] = [
    "builtin.features",
    "debug",
    "default_topic_conf",
    "enabled_events",
    "log_level",
    "log.queue",
    "plugin.library.paths",
    "statistics.interval.ms",
    "ut_handle_ProduceResponse",
];

/// How much waits in the producer at most.
pub(super) const QUEUE_KBYTES: &str = "queue.buffering.max.kbytes";

/// Of TLS, an operator may choose the algorithms and the list of revoked certificates.
const TLS: [&str; 4] = ["ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list", "ssl.sigalgs.list"];

/// What is refused of an operator's properties. Whether librdkafka knows the others is found when the client is made.
pub(super) fn problems(options: &BTreeMap<String, String>) -> Vec<ConfigProblem> {
    options
        .iter()
        .filter_map(|(name, value)| {
            let what = refused(name).or_else(|| value.contains('\0').then(|| "its value holds a NUL".to_owned()))?;
            Some(ConfigProblem::new(field(name), what))
        })
        .collect()
}

/// The field of a property.
pub(super) fn field(name: &str) -> String {
    format!("options.{}", name.escape_default())
}

/// librdkafka takes properties of topics with `topic.` before them as well.
const OF_TOPICS: &str = "topic.";

fn refused(name: &str) -> Option<String> {
    refused_by_name(name).or_else(|| refused_by_name(name.strip_prefix(OF_TOPICS)?))
}

fn refused_by_name(name: &str) -> Option<String> {
    if let Some((_, setting)) = SETTINGS.iter().find(|(property, _)| *property == name) {
        return Some(format!("use the setting {setting} for this"));
    }
    if PROMISES.contains(&name) {
        return Some("what Postrider promises rests upon its own choice of this property; remove it".into());
    }
    if name.starts_with("sasl.") || name.starts_with("enable.sasl.") {
        return Some("use the settings protocol, sasl_mechanism, username and password".into());
    }
    if name.starts_with("ssl.") && !TLS.contains(&name) {
        return Some(
            "use the settings under tls; keys and passwords are no options, because options are printed".into(),
        );
    }
    let callback = name.ends_with("_cb") || name.contains("opaque") || name == "interceptors";
    let test = name.starts_with("test.");
    if callback || test || OTHER.contains(&name) || name.is_empty() || name.contains('\0') {
        return Some("this property is of no use here; remove it".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_promises_or_holds_secrets_is_refused_with_a_text() {
        for name in [
            "acks",
            "request.required.acks",
            "enable.idempotence",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "transactional.id",
            "retries",
            "partitioner",
            "queuing.strategy",
            "enable.ssl.certificate.verification",
            "ssl.endpoint.identification.algorithm",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.password",
            "sasl.password",
            "sasl.oauthbearer.client.secret",
            "enable.sasl.oauthbearer.unsecure.jwt",
            "bootstrap.servers",
            "test.mock.num.brokers",
            "plugin.library.paths",
            "debug",
            "dr_msg_cb",
            "delivery.report.only.error",
            "enabled_events",
            "socket.max.fails",
            "test.mock.broker.rtt",
            "topic.acks",
            "topic.message.timeout.ms",
            "topic.partitioner",
        ] {
            let found = problems(&[(name.to_owned(), "canary".to_owned())].into());
            let [problem] = found.as_slice() else { panic!("{name} is not refused") };
            assert_eq!(problem.field, format!("options.{name}"));
            assert!(!problem.to_string().contains("canary"));
        }
        let good = [
            "batch.size",
            "queue.buffering.max.messages",
            "metadata.max.age.ms",
            "topic.metadata.refresh.interval.ms",
            "ssl.cipher.suites",
        ];
        assert_eq!(problems(&good.map(|name| (name.to_owned(), "1".to_owned())).into()), []);
    }
}
