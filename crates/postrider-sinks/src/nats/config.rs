//! What an operator writes for a sink of type `nats`, and every check of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sink::NatsClient;
use super::subject::check_destination;
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};
use crate::tls::TlsConfig;

/// NATS JetStream. The route's destination is a subject such as `orders.placed`, `{topic}` or `orders.{topic}.{key}`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NatsConfig {
    /// The servers of one cluster, such as `nats://127.0.0.1:4222` or `tls://nats.example.com`. Name all that may be
    /// used: servers that the cluster tells of are not. Credentials have fields of their own.
    pub servers: Vec<String>,
    /// The stream that must store the messages. A message whose subject belongs to another one is not stored there but
    /// tried again. None: whichever stream has the subject.
    pub stream: Option<String>,
    /// The name of the user, with a password.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<Secret>,
    /// A token, instead of a user.
    pub token: Option<Secret>,
    /// The seed of a user's nkey, which begins with `SU`, instead of a user.
    pub nkey_seed: Option<Secret>,
    /// A user's credentials (the text of a `.creds` file), instead of a user; best as `{ file = "/path/user.creds" }`.
    pub credentials: Option<Secret>,
    /// Whether TLS is a must. It always is with an address `tls://…`, or when one of the files in `tls` is given.
    pub require_tls: bool,
    /// Certificates. When `ca_file` is given, only the certificates in it are trusted and not those of the system.
    pub tls: TlsConfig,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// How long finding, reaching and trusting a server may take, for all servers together.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a batch may take with everything, until the stream has acknowledged each message; it must be shorter than
    /// the dispatcher's publish time-out.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            stream: None,
            user: None,
            password: None,
            token: None,
            nkey_seed: None,
            credentials: None,
            require_tls: false,
            tls: TlsConfig::default(),
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
        }
    }
}

/// Longer than any sensible publish time-out.
const LONGEST: Duration = Duration::from_secs(3_600);
const MOST_SERVERS: usize = 32;
/// The text of an nkey's seed.
const SEED_LENGTH: usize = 58;

impl NatsConfig {
    /// Checks every field and answers the first problem. It reads no file and connects to nothing.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Whether TLS is a must on every connection.
    pub(super) fn must_encrypt(&self) -> bool {
        let TlsConfig { ca_file, certificate_file, key_file } = &self.tls;
        self.require_tls || [ca_file, certificate_file, key_file].iter().any(|file| file.is_some())
    }

    fn server_problems(&self) -> Vec<ConfigProblem> {
        if self.servers.is_empty() || self.servers.len() > MOST_SERVERS {
            let what = "give one to 32 addresses, such as nats://127.0.0.1:4222";
            return vec![ConfigProblem::new("servers", what)];
        }
        let problem = |(at, server): (usize, &String)| {
            let what = match Url::parse(server) {
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    "it holds credentials; put them into user and password, token, nkey_seed or credentials"
                }
                Ok(url) if !matches!(url.scheme(), "nats" | "tls") || url.host_str().is_none_or(str::is_empty) => {
                    "it is no address of NATS; write nats://host:port or tls://host:port"
                }
                Ok(url) if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() => {
                    "it has more than a host and a port; remove that"
                }
                Ok(_) => return None,
                Err(_) => "it is no address; write nats://host:port or tls://host:port",
            };
            Some(ConfigProblem::new(format!("servers[{at}]"), what))
        };
        self.servers.iter().enumerate().filter_map(problem).collect()
    }

    fn credential_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if self.user.is_some() != self.password.is_some() {
            let missing = if self.user.is_none() { "user" } else { "password" };
            found.push(ConfigProblem::new(missing, "user and password belong together; give both"));
        }
        if self.nkey_seed.as_ref().is_some_and(|seed| !is_seed(seed.expose().trim())) {
            found.push(ConfigProblem::new(
                "nkey_seed",
                "it is no seed of a user's nkey; those have 58 letters from SU on",
            ));
        }
        let ways = [
            ("user", self.user.is_some()),
            ("token", self.token.is_some()),
            ("nkey_seed", self.nkey_seed.is_some()),
            ("credentials", self.credentials.is_some()),
        ];
        let mut given = ways.iter().filter(|(_, given)| *given).map(|(field, _)| *field);
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            found.push(ConfigProblem::new(second, format!("there is {first} as well; choose one")));
        }
        found
    }

    fn time_problems(&self) -> Vec<ConfigProblem> {
        let alone = [("connect_timeout", self.connect_timeout), ("timeout", self.timeout)];
        let bad = alone.into_iter().filter(|(_, time)| time.is_zero() || *time > LONGEST);
        let what = "it must be longer than nothing and at most one hour";
        let mut found: Vec<_> = bad.map(|(field, _)| ConfigProblem::new(field, what)).collect();
        if found.is_empty() && self.connect_timeout > self.timeout {
            let what = "it is longer than timeout, which covers the whole publish; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        found
    }
}

fn is_seed(text: &str) -> bool {
    text.len() == SEED_LENGTH && text.starts_with("SU") && text.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'))
}

/// The names that a stream may have.
fn is_stream(name: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    !name.is_empty() && name.len() <= 255 && !name.contains(bad)
}

impl SinkConfig for NatsConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = self.server_problems();
        found.extend(self.credential_problems());
        if self.stream.as_deref().is_some_and(|name| !is_stream(name)) {
            found.push(ConfigProblem::new(
                "stream",
                "it is no name of a stream; those have no spaces, dots or wildcards",
            ));
        }
        found.extend(self.tls.problems());
        found.extend(Source::new(&self.source).err());
        found.extend(self.time_problems());
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        let destination = binding.needed("orders.{topic}")?;
        check_destination(destination).map_err(|what| ConfigProblem::new("destination", what))
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(NatsClient::named(name, self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> NatsConfig {
        NatsConfig { servers: vec!["nats://127.0.0.1:4222".into()], ..NatsConfig::default() }
    }

    fn problem(change: impl FnOnce(&mut NatsConfig)) -> String {
        let mut config = good();
        change(&mut config);
        let problem = config.check().expect_err("a problem");
        assert!(!problem.what.contains("canary"), "{problem}");
        problem.field
    }

    #[test]
    fn every_problem_names_its_field() {
        good().check().expect("good");
        let second = Duration::from_secs(1);
        assert_eq!(problem(|c| c.servers.clear()), "servers");
        for server in ["nats://u:canary@h", "canary", "http://canary", "nats://h/canary", "nats://", "nats://h?canary"]
        {
            assert_eq!(problem(|c| c.servers.push(server.into())), "servers[1]", "{server}");
        }
        for stream in ["", "a.b", "a b", "*", ">", "a/b"] {
            assert_eq!(problem(|c| c.stream = Some(stream.into())), "stream", "{stream}");
        }
        assert_eq!(problem(|c| c.user = Some("u".into())), "password");
        assert_eq!(problem(|c| c.password = Some(Secret::new("canary"))), "user");
        assert_eq!(problem(|c| c.nkey_seed = Some(Secret::new("canary"))), "nkey_seed");
        let both = |c: &mut NatsConfig| {
            (c.token, c.credentials) = (Some(Secret::new("canary")), Some(Secret::new("canary")));
        };
        assert_eq!(problem(both), "credentials");
        assert_eq!(problem(|c| c.tls.key_file = Some("k".into())), "tls.certificate_file");
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        assert_eq!(problem(|c| c.timeout = Duration::ZERO), "timeout");
        assert_eq!(problem(|c| (c.connect_timeout, c.timeout) = (second * 2, second)), "connect_timeout");
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let config = NatsConfig {
            servers: vec!["x".into(), "nats://h".into(), "y".into()],
            user: Some("u".into()),
            stream: Some("a.b".into()),
            source: "not a uri".into(),
            timeout: Duration::ZERO,
            ..NatsConfig::default()
        };
        let fields: Vec<String> = config.problems().into_iter().map(|problem| problem.field).collect();
        assert_eq!(fields, ["servers[0]", "servers[2]", "password", "stream", "source", "timeout"]);
    }

    #[test]
    fn s16_unknown_fields_are_refused_and_secrets_are_not_shown() {
        let read = serde_json::from_str::<NatsConfig>;
        let text = r#"{"servers": ["nats://h"], "user": "u", "password": "canary", "timeout": "5s"}"#;
        let config = read(text).expect("good");
        assert_eq!(config.timeout, Duration::from_secs(5));
        assert!(read(r#"{"server": "x"}"#).expect_err("unknown").to_string().contains("server"));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("it can be shown"));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_route_needs_a_subject() {
        let bind = |text: &str| good().check_binding(&Binding::to(text.parse().expect(text)));
        assert_eq!(bind("orders.{topic}"), Ok(()));
        assert_eq!(bind("orders.*").expect_err("a wildcard").field, "destination");
        assert_eq!(good().check_binding(&Binding::default()).expect_err("none").field, "destination");
    }
}
