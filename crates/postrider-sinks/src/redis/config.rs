//! What an operator writes for a sink of type `redis`, and every check of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sink::RedisClient;
use super::stream::check_destination;
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};
use crate::tls::TlsConfig;

/// Redis Streams. The route's destination is the key of a stream such as `orders`, `{topic}` or `orders:{topic}`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The address of the server, such as `redis://127.0.0.1:6379` or, with TLS, `rediss://redis.example.com:6379`; a
    /// database may follow (`…:6379/2`). Of a cluster, some of its servers. Credentials have fields of their own.
    pub urls: Vec<String>,
    /// Whether it is a cluster. Each stream is on one of its servers.
    pub cluster: bool,
    /// The name of the user. None: the user `default`.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// Certificates. When `ca_file` is given, only the certificates in it are trusted and not those of the system.
    pub tls: TlsConfig,
    /// How many entries a stream keeps; older ones are removed, read or not. None: all of them.
    pub maxlen: Option<u64>,
    /// Whether a stream has never more than `maxlen` entries. If not, it may have some more, which is much faster.
    pub exact_maxlen: bool,
    /// Whether a stream that is not there is created by its first message. If not, the message waits until it is there.
    pub create_streams: bool,
    /// How many replicas must have a batch before it is delivered; 0 asks none. Not for a cluster.
    pub wait_replicas: u32,
    /// The largest message that is sent, with its headers, in bytes. It must not be over the server's
    /// `proto-max-bulk-len` (512 MB unless it is configured).
    pub max_message_size: usize,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// How long finding, reaching and trusting the server may take.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a batch may take with everything; it must be shorter than the dispatcher's publish time-out.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            cluster: false,
            username: None,
            password: None,
            tls: TlsConfig::default(),
            maxlen: None,
            exact_maxlen: false,
            create_streams: true,
            wait_replicas: 0,
            max_message_size: 16 * 1024 * 1024,
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
        }
    }
}

/// Longer than any sensible publish time-out.
const LONGEST: Duration = Duration::from_secs(3_600);
const MOST_URLS: usize = 32;
const LARGEST_MESSAGE: usize = 512 * 1024 * 1024;

impl RedisConfig {
    /// Checks every field and answers the first problem. It reads no file and connects to nothing.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    fn url_problems(&self) -> Vec<ConfigProblem> {
        let most = if self.cluster { MOST_URLS } else { 1 };
        if self.urls.is_empty() || self.urls.len() > most {
            let what = match self.cluster {
                true => "give one to 32 addresses, such as redis://127.0.0.1:6379",
                false => "give one address, such as redis://127.0.0.1:6379; several are for a cluster",
            };
            return vec![ConfigProblem::new("urls", what)];
        }
        let mut schemes = Vec::new();
        let mut problem = |(at, url): (usize, &String)| {
            let what = match Url::parse(url) {
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    "it holds credentials; put them into username and password"
                }
                Ok(url) if !matches!(url.scheme(), "redis" | "rediss") || url.host_str().is_none_or(str::is_empty) => {
                    "it is no address of Redis; write redis://host:port or rediss://host:port"
                }
                Ok(url)
                    if !is_database(url.path(), self.cluster) || url.query().is_some() || url.fragment().is_some() =>
                {
                    "it has more than a host, a port and, but for a cluster, the number of a database; remove that"
                }
                Ok(url) if !schemes.is_empty() && !schemes.contains(&url.scheme().to_owned()) => {
                    "some addresses are with TLS and some without; choose one"
                }
                Ok(url) => {
                    schemes.push(url.scheme().to_owned());
                    return None;
                }
                Err(_) => "it is no address; write redis://host:port or rediss://host:port",
            };
            Some(ConfigProblem::new(format!("urls[{at}]"), what))
        };
        self.urls.iter().enumerate().filter_map(&mut problem).collect()
    }

    /// Whether connections are encrypted: the addresses agree on it.
    pub(super) fn is_encrypted(&self) -> bool {
        self.urls.iter().any(|url| url.starts_with("rediss:"))
    }

    fn tls_problems(&self) -> Vec<ConfigProblem> {
        let TlsConfig { ca_file, certificate_file, key_file } = &self.tls;
        let given = [ca_file, certificate_file, key_file].iter().any(|file| file.is_some());
        let mut found = self.tls.problems();
        if given && !self.is_encrypted() {
            found.push(ConfigProblem::new("tls", "the addresses are without TLS; write rediss://, or remove this"));
        }
        found
    }

    fn stream_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if self.username.is_some() && self.password.is_none() {
            found.push(ConfigProblem::new("password", "there is a username without its password; give both"));
        }
        if self.maxlen == Some(0) {
            found.push(ConfigProblem::new("maxlen", "streams would keep nothing; give at least 1"));
        }
        if self.exact_maxlen && self.maxlen.is_none() {
            found.push(ConfigProblem::new("exact_maxlen", "there is no maxlen; give one, or remove this"));
        }
        if self.cluster && self.wait_replicas > 0 {
            found.push(ConfigProblem::new("wait_replicas", "it is not for a cluster; remove it"));
        }
        if self.max_message_size == 0 || self.max_message_size > LARGEST_MESSAGE {
            found.push(ConfigProblem::new("max_message_size", "it must be from 1 to 536870912"));
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

fn is_database(path: &str, cluster: bool) -> bool {
    match path.trim_start_matches('/') {
        "" => true,
        number => !cluster && number.parse::<u16>().is_ok(),
    }
}

impl SinkConfig for RedisConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = self.url_problems();
        found.extend(self.tls_problems());
        found.extend(self.stream_problems());
        found.extend(Source::new(&self.source).err());
        found.extend(self.time_problems());
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        let destination = binding.needed("orders:{topic}")?;
        check_destination(destination).map_err(|what| ConfigProblem::new("destination", what))
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(RedisClient::named(name, self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> RedisConfig {
        RedisConfig { urls: vec!["redis://127.0.0.1:6379".into()], ..RedisConfig::default() }
    }

    fn problem(change: impl FnOnce(&mut RedisConfig)) -> String {
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
        assert_eq!(problem(|c| c.urls.clear()), "urls");
        assert_eq!(problem(|c| c.urls.push("redis://h".into())), "urls");
        for url in
            ["redis://u:canary@h", "canary", "http://canary", "redis://h/canary", "redis://h?canary", "redis://h/1"]
        {
            assert_eq!(problem(|c| (c.cluster, c.urls) = (true, vec!["redis://h".into(), url.into()])), "urls[1]");
        }
        assert_eq!(problem(|c| (c.cluster, c.urls) = (true, vec!["redis://h".into(), "rediss://i".into()])), "urls[1]");
        assert_eq!(problem(|c| c.username = Some("canary".into())), "password");
        assert_eq!(problem(|c| c.tls.ca_file = Some("canary".into())), "tls");
        assert_eq!(problem(|c| c.maxlen = Some(0)), "maxlen");
        assert_eq!(problem(|c| c.exact_maxlen = true), "exact_maxlen");
        assert_eq!(problem(|c| (c.cluster, c.wait_replicas) = (true, 1)), "wait_replicas");
        assert_eq!(problem(|c| c.max_message_size = 0), "max_message_size");
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        assert_eq!(problem(|c| c.timeout = Duration::ZERO), "timeout");
        assert_eq!(problem(|c| (c.connect_timeout, c.timeout) = (second * 2, second)), "connect_timeout");
        RedisConfig { urls: vec!["redis://h:1/3".into()], ..RedisConfig::default() }.check().expect("a database");
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let config = RedisConfig {
            urls: vec!["x".into()],
            username: Some("u".into()),
            maxlen: Some(0),
            source: "not a uri".into(),
            timeout: Duration::ZERO,
            ..RedisConfig::default()
        };
        let fields: Vec<String> = config.problems().into_iter().map(|problem| problem.field).collect();
        assert_eq!(fields, ["urls[0]", "password", "maxlen", "source", "timeout"]);
    }

    #[test]
    fn s16_unknown_fields_are_refused_and_secrets_are_not_shown() {
        let read = serde_json::from_str::<RedisConfig>;
        let config = read(r#"{"urls": ["redis://h"], "password": "canary", "timeout": "5s"}"#).expect("good");
        assert_eq!(config.timeout, Duration::from_secs(5));
        assert!(read(r#"{"url": "x"}"#).expect_err("unknown").to_string().contains("url"));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("it can be shown"));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_route_needs_a_stream() {
        let bind = |text: &str| good().check_binding(&Binding::to(text.parse().expect(text)));
        assert_eq!(bind("orders:{topic}"), Ok(()));
        assert_eq!(bind("orders\n").expect_err("a line break").field, "destination");
        assert_eq!(good().check_binding(&Binding::default()).expect_err("none").field, "destination");
    }
}
