//! What an operator writes for a sink of type `sqs`, and every check of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sink::{SqsClient, check_destination};
use crate::aws::{AwsConfig, Limits};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::duration;

/// Amazon SQS. The route's destination is the name or the address (URL) of a queue, such as `orders`, `events-{topic}` or
/// `https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SqsConfig {
    /// Region, endpoint and credentials.
    pub aws: AwsConfig,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// How long reaching the service may take: DNS, TCP and TLS together.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a publish may take with everything; it must be shorter than the dispatcher's publish time-out.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
    /// The most messages in one publish. They are sent ten by ten, in requests at the same time.
    pub max_batch: usize,
    /// The largest message, and the largest request, in bytes with attributes; larger messages are dead at once. SQS takes 1
    /// MiB, unless `MaximumMessageSize` of the queue is less.
    pub max_message_size: usize,
}

impl Default for SqsConfig {
    fn default() -> Self {
        Self {
            aws: AwsConfig::default(),
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
            max_batch: 100,
            max_message_size: 1_048_576,
        }
    }
}

/// More than the service takes today, because its limits have grown before.
const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

impl SqsConfig {
    /// Checks every field on its own and with the others, and answers the first problem.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }
}

impl SinkConfig for SqsConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let limits = Limits {
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            max_batch: self.max_batch,
            max_message_size: self.max_message_size,
            largest_message: LARGEST_MESSAGE,
        };
        let mut found = Vec::from_iter(Source::new(&self.source).err());
        found.extend(self.aws.problems());
        found.extend(limits.problems());
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        check_destination(binding.needed("orders or events-{topic}")?)
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(SqsClient::named(name, self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Secret;

    fn problem(change: impl FnOnce(&mut SqsConfig)) -> String {
        let mut config = SqsConfig::default();
        change(&mut config);
        config.check().expect_err("a problem").field
    }

    #[test]
    fn every_problem_names_its_field() {
        SqsConfig::default().check().expect("the defaults are good");
        let second = Duration::from_secs(1);
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        for wrong in ["x", "ftp://x", "http://canary:canary@x"] {
            assert_eq!(problem(|c| c.aws.endpoint = Some(wrong.into())), "aws.endpoint");
        }
        assert_eq!(problem(|c| c.aws.region = Some(String::new())), "aws.region");
        assert_eq!(problem(|c| c.aws.access_key_id = Some(Secret::new("x"))), "aws.secret_access_key");
        assert_eq!(problem(|c| c.aws.secret_access_key = Some(Secret::new("x"))), "aws.access_key_id");
        assert_eq!(problem(|c| c.aws.session_token = Some(Secret::new("x"))), "aws.session_token");
        assert_eq!(problem(|c| c.timeout = Duration::ZERO), "timeout");
        assert_eq!(problem(|c| (c.connect_timeout, c.timeout) = (second * 2, second)), "connect_timeout");
        assert_eq!(problem(|c| c.max_batch = 0), "max_batch");
        assert_eq!(problem(|c| c.max_message_size = usize::MAX), "max_message_size");
    }

    #[test]
    fn unknown_fields_are_refused_and_secrets_are_not_shown() {
        assert!(serde_json::from_str::<SqsConfig>(r#"{"region": "x"}"#).is_err());
        let text = r#"{"aws": {"region": "eu-central-1", "access_key_id": "canary", "secret_access_key": "canary"}}"#;
        let config: SqsConfig = serde_json::from_str(text).expect("read");
        config.check().expect("good");
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("written"));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn destinations_are_checked() {
        let check = |text: &str| SqsConfig::default().check_binding(&Binding::to(text.parse().expect("one")));
        for good in ["orders", "orders.fifo", "{topic}", "events-{topic}", "https://sqs.x.amazonaws.com/1/orders"] {
            check(good).expect(good);
        }
        for bad in ["a b", "a/b", "ftp://x/1/orders", "https://sqs.x.amazonaws.com/1/a b", "https://{topic}"] {
            assert_eq!(check(bad).expect_err(bad).field, "destination");
        }
    }
}
