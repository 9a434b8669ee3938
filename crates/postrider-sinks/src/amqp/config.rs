//! What an operator writes for a sink of type `amqp`, and every check of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sink::AmqpClient;
use super::wire::{LONGEST_NAME, check_routing_key};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};
use crate::tls::TlsConfig;

/// RabbitMQ. The route's destination is the routing key, such as `orders` or `events.{topic}`; on the default exchange
/// that is the name of a queue.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AmqpConfig {
    /// Where the broker is: `amqp://host:5672`, or `amqps://host:5671` for TLS. Of several, the members of a cluster, one is
    /// used; the next when it cannot be reached. No user, password or virtual host in here.
    pub addresses: Vec<String>,
    /// The virtual host.
    pub vhost: String,
    /// The account. It needs the right to write to the exchange.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// The exchange that messages go to; it must be there. Empty: the default exchange, whose routing keys are names of
    /// queues.
    pub exchange: String,
    /// Whether messages are to outlive a restart of the broker (delivery mode 2). The queue must be durable as well.
    pub persistent: bool,
    /// The `app_id` of messages.
    pub app_id: String,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// Certificates, for `amqps://`.
    pub tls: TlsConfig,
    /// How long finding, reaching and logging in to the broker may take.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a publish may take with everything; it must be shorter than the dispatcher's publish time-out.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
    /// How often both sides show that they are alive, in whole seconds. After twice that time without a sign the connection
    /// is given up.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub heartbeat: Duration,
    /// The most publishes at the same time; each has a channel of its own.
    pub channels: usize,
    /// The most messages in one publish, and so the most that wait for a confirm on a channel.
    pub max_batch: usize,
    /// The largest body that is sent, in bytes; larger messages are dead at once. Not larger than the broker's own
    /// `max_message_size`.
    pub max_message_size: usize,
}

impl Default for AmqpConfig {
    fn default() -> Self {
        Self {
            addresses: vec!["amqp://localhost:5672".into()],
            vhost: "/".into(),
            user: "guest".into(),
            password: Secret::new("guest"),
            exchange: String::new(),
            persistent: true,
            app_id: "postrider".into(),
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            tls: TlsConfig::default(),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
            heartbeat: Duration::from_secs(10),
            channels: 4,
            max_batch: 500,
            max_message_size: 16 * 1024 * 1024,
        }
    }
}

const LONGEST: Duration = Duration::from_secs(3_600);
const LARGEST_BATCH: usize = 10_000;
const MOST_CHANNELS: usize = 256;
/// The most that a broker can be told to take.
const LARGEST_MESSAGE: usize = 512 * 1024 * 1024;

/// One place where the broker may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    fn parse(field: String, text: &str) -> Result<Self, ConfigProblem> {
        let problem = |what: &str| ConfigProblem::new(field.clone(), what);
        let url = Url::parse(text).map_err(|_| problem("it is no address; write for example amqp://localhost:5672"))?;
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err(problem("it begins with neither amqp:// nor amqps://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(problem("it has a user or password in it; put them into user and password"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(problem("there is something after the port; the virtual host goes into vhost"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| problem("it has no host"))?.trim_matches(['[', ']']).to_owned();
        Ok(Self { tls, host, port: url.port().unwrap_or(if tls { 5671 } else { 5672 }) })
    }
}

impl AmqpConfig {
    /// Checks every field on its own and with the others, and answers the first problem.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    pub(super) fn parsed_addresses(&self) -> Result<Vec<Address>, ConfigProblem> {
        let addresses = self.addresses.iter().enumerate();
        addresses.map(|(at, text)| Address::parse(format!("addresses[{at}]"), text)).collect()
    }

    fn name_problems(&self) -> Vec<ConfigProblem> {
        let names = [
            ("vhost", &self.vhost, false),
            ("user", &self.user, false),
            ("app_id", &self.app_id, true),
            ("exchange", &self.exchange, true),
        ];
        let what = format!("it is empty or longer than {LONGEST_NAME} bytes");
        let bad = names
            .into_iter()
            .filter(|(_, name, may_be_empty)| name.len() > LONGEST_NAME || (name.is_empty() && !may_be_empty));
        bad.map(|(field, ..)| ConfigProblem::new(field, what.clone())).collect()
    }

    fn time_problems(&self) -> Vec<ConfigProblem> {
        let alone = [("connect_timeout", self.connect_timeout), ("timeout", self.timeout)];
        let bad = alone.into_iter().filter(|(_, time)| time.is_zero() || *time > LONGEST);
        let what = "it must be longer than nothing and at most one hour";
        let mut found: Vec<_> = bad.map(|(field, _)| ConfigProblem::new(field, what)).collect();
        if self.heartbeat.subsec_nanos() != 0 || !(1..=3_600).contains(&self.heartbeat.as_secs()) {
            found.push(ConfigProblem::new("heartbeat", "it must be whole seconds, from 1s to 1h"));
        }
        if found.is_empty() && self.connect_timeout > self.timeout {
            let what = "it is longer than timeout, which covers the whole publish; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        found
    }
}

impl SinkConfig for AmqpConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::from_iter(Source::new(&self.source).err());
        if self.addresses.is_empty() {
            found.push(ConfigProblem::new("addresses", "there is none; write for example [\"amqp://localhost:5672\"]"));
        }
        for (at, text) in self.addresses.iter().enumerate() {
            found.extend(Address::parse(format!("addresses[{at}]"), text).err());
        }
        found.extend(self.tls.problems());
        found.extend(self.name_problems());
        found.extend(self.time_problems());
        found.extend(outside("channels", self.channels, MOST_CHANNELS));
        found.extend(outside("max_batch", self.max_batch, LARGEST_BATCH));
        found.extend(outside("max_message_size", self.max_message_size, LARGEST_MESSAGE));
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        let destination = binding.needed("orders or events.{topic}")?;
        // What comes from messages is checked with each of them.
        check_routing_key(destination.prefix(), &self.exchange).map_err(|what| ConfigProblem::new("destination", what))
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(AmqpClient::named(name, self)?))
    }
}

fn outside(field: &'static str, given: usize, most: usize) -> Option<ConfigProblem> {
    (!(1..=most).contains(&given)).then(|| ConfigProblem::new(field, format!("{given} is not from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut AmqpConfig)) -> String {
        let mut config = AmqpConfig::default();
        change(&mut config);
        config.check().expect_err("a problem").field
    }

    #[test]
    fn every_problem_names_its_field() {
        AmqpConfig::default().check().expect("the defaults are good");
        let second = Duration::from_secs(1);
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        assert_eq!(problem(|c| c.addresses.clear()), "addresses");
        for wrong in ["x", "http://x", "amqp://u:p@x", "amqp://u@x", "amqp://x/vhost", "amqp://x?heartbeat=1"] {
            assert_eq!(problem(|c| c.addresses.push(wrong.into())), "addresses[1]", "{wrong}");
        }
        assert_eq!(problem(|c| c.tls.key_file = Some("x".into())), "tls.certificate_file");
        assert_eq!(problem(|c| c.vhost.clear()), "vhost");
        assert_eq!(problem(|c| c.user.clear()), "user");
        assert_eq!(problem(|c| c.exchange = "x".repeat(256)), "exchange");
        assert_eq!(problem(|c| c.app_id = "x".repeat(256)), "app_id");
        assert_eq!(problem(|c| c.timeout = Duration::ZERO), "timeout");
        assert_eq!(problem(|c| (c.connect_timeout, c.timeout) = (second * 2, second)), "connect_timeout");
        assert_eq!(problem(|c| c.heartbeat = Duration::from_millis(1_500)), "heartbeat");
        assert_eq!(problem(|c| c.channels = 0), "channels");
        assert_eq!(problem(|c| c.max_batch = 0), "max_batch");
        assert_eq!(problem(|c| c.max_message_size = usize::MAX), "max_message_size");
    }

    #[test]
    fn every_problem_is_found_at_once_and_repeats_no_value() {
        let config = AmqpConfig {
            addresses: vec!["amqp://canary:canary@x".into(), "canary".into()],
            vhost: String::new(),
            channels: 0,
            ..AmqpConfig::default()
        };
        let problems = config.problems();
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["addresses[0]", "addresses[1]", "vhost", "channels"]);
        assert!(!format!("{problems:?}").contains("canary"));
    }

    #[test]
    fn addresses_have_hosts_and_ports() {
        let parsed = |text: &str| Address::parse("a".into(), text).expect(text);
        assert_eq!(parsed("amqp://x"), Address { tls: false, host: "x".into(), port: 5672 });
        assert_eq!(parsed("amqps://x.example.com/"), Address { tls: true, host: "x.example.com".into(), port: 5671 });
        assert_eq!(parsed("amqp://[::1]:7"), Address { tls: false, host: "::1".into(), port: 7 });
    }

    #[test]
    fn a_route_needs_a_routing_key_that_fits() {
        let check =
            |config: &AmqpConfig, text: &str| config.check_binding(&Binding::to(text.parse().expect("a destination")));
        let config = AmqpConfig::default();
        check(&config, "orders.{topic}").expect("it fits");
        assert_eq!(check(&config, &"x".repeat(256)).expect_err("too long").field, "destination");
        assert_eq!(check(&config, "amq.rabbitmq.reply-to").expect_err("not a queue").field, "destination");
        let named = AmqpConfig { exchange: "events".into(), ..config.clone() };
        check(&named, "amq.x").expect("only a word there");
        assert_eq!(config.check_binding(&Binding::default()).expect_err("none").field, "destination");
    }

    #[test]
    fn unknown_fields_are_refused_and_secrets_are_not_shown() {
        assert!(serde_json::from_str::<AmqpConfig>(r#"{"adresses": []}"#).is_err());
        let config: AmqpConfig =
            serde_json::from_str(r#"{"password": "canary", "heartbeat": "5s", "exchange": "events"}"#).expect("read");
        assert_eq!(config.heartbeat, Duration::from_secs(5));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("written"));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
