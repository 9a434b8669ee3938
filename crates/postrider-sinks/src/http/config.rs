//! What an operator writes for a sink of type `http`, and every check of it.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{BreakerConfig, Destination};
use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::AllowList;
use super::header::is_ours;
use super::sign::Signer;
use super::sink::{HttpClient, check_destination};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};

/// Webhooks. The route's destination is a URL such as `https://example.com/hooks` or
/// `https://example.com/hooks/{tenant}`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpConfig {
    /// How a message becomes a request: `cloudevents-binary`, `cloudevents-structured`, `envelope` or `plain`. A route may
    /// choose another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// Keys for Standard Webhooks signatures, `whsec_` and 24 to 64 bytes in base64. Each gives one signature, so that
    /// receivers can be moved from one key to the next. None: requests are not signed.
    pub signing_keys: Vec<Secret>,
    /// Headers of every request, such as `authorization`. Their values are never printed.
    pub headers: BTreeMap<String, Secret>,
    /// The `user-agent` header.
    pub user_agent: String,
    /// How long finding, reaching and trusting the other side may take: DNS, TCP and TLS together.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a request may take with everything; it must be shorter than the dispatcher's publish time-out by more
    /// than `patience`.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
    /// How many bytes of an answer's body are read (and dropped) to keep the connection; of a longer one the connection is
    /// closed.
    pub response_limit: usize,
    /// A file of PEM certificates that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Networks that may be connected to although they are not public, such as `10.1.0.0/16` or `127.0.0.1`. All others
    /// that are loopback, private, link-local or otherwise special are refused, whatever name leads to them.
    pub allow_addresses: Vec<String>,
    /// Whether `http://` may be used on public addresses. Within `allow_addresses` it always may.
    pub allow_plain_http: bool,
    /// The most requests under way to one origin (scheme, host and port).
    pub concurrency: usize,
    /// How long a message may wait for one of them. When it must expect to wait for longer it is given back at once, with
    /// its attempt, so that a slow origin does not hold up the others.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub patience: Duration,
    /// After so many different messages failed at an origin, with no success in between, it is left alone for a while.
    pub breaker_failures: u32,
    /// How long an origin is left alone at first; the pause doubles with each failed trial.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub breaker_first_pause: Duration,
    /// The longest such pause.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub breaker_longest_pause: Duration,
    /// Status codes which say that the message was there already, such as 409 of a receiver that means it so.
    pub duplicate_statuses: Vec<u16>,
    /// Status codes after which a message is dead at once, besides 400, 410, 413, 414, 415, 422 and 431.
    pub reject_statuses: Vec<u16>,
    /// Status codes after which a message is tried again, even if it would be rejected otherwise.
    pub retry_statuses: Vec<u16>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        let breaker = BreakerConfig::default();
        Self {
            format: Format::CloudeventsBinary,
            source: Source::DEFAULT.into(),
            signing_keys: Vec::new(),
            headers: BTreeMap::new(),
            user_agent: concat!("postrider/", env!("CARGO_PKG_VERSION")).into(),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
            response_limit: 64 * 1024,
            ca_file: None,
            allow_addresses: Vec::new(),
            allow_plain_http: false,
            concurrency: 8,
            patience: Duration::from_millis(250),
            breaker_failures: breaker.failures,
            breaker_first_pause: breaker.first_pause,
            breaker_longest_pause: breaker.longest_pause,
            duplicate_statuses: Vec::new(),
            reject_statuses: Vec::new(),
            retry_statuses: Vec::new(),
        }
    }
}

/// Longer than any sensible publish time-out.
const LONGEST: Duration = Duration::from_secs(3_600);
const LARGEST_RESPONSE: usize = 16 * 1024 * 1024;
const LARGEST_CONCURRENCY: usize = 1_024;

impl HttpConfig {
    /// Checks every field on its own and with the others, and answers the first problem. It reads no file and connects to
    /// nothing.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that [`check`](Self::check) finds.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::from_iter(Source::new(&self.source).err());
        found.extend(Signer::problems(&self.signing_keys));
        found.extend(AllowList::problems(&self.allow_addresses));
        found.extend(self.header_problems());
        found.extend(self.time_problems());
        found.extend(self.status_problems());
        found.extend(outside("response_limit", self.response_limit, 0, LARGEST_RESPONSE));
        found.extend(outside("concurrency", self.concurrency, 1, LARGEST_CONCURRENCY));
        found.extend(outside("breaker_failures", self.breaker_failures as usize, 1, 1_000_000));
        found
    }

    /// Checks a route's destination against these settings. It connects to nothing and looks nothing up.
    pub fn check_destination(&self, destination: &Destination) -> Result<(), ConfigProblem> {
        check_destination(self, destination)
    }

    /// The longest time a publish takes: the dispatcher's publish time-out must be longer.
    pub fn longest_publish(&self) -> Duration {
        self.patience + self.timeout
    }

    /// The breaker of each origin.
    pub(super) fn breaker(&self) -> BreakerConfig {
        BreakerConfig {
            failures: self.breaker_failures,
            first_pause: self.breaker_first_pause,
            longest_pause: self.breaker_longest_pause,
        }
    }

    fn header_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if self.user_agent.is_empty() || HeaderValue::from_str(&self.user_agent).is_err() {
            found.push(ConfigProblem::new("user_agent", "it is empty or no header value; use printable ASCII"));
        }
        let mut seen = HashSet::new();
        for (name, value) in &self.headers {
            let what = match HeaderName::from_bytes(name.as_bytes()) {
                Err(_) => "it is no header name; use a token",
                Ok(name) if is_ours(&name) => "this header is set by Postrider or by HTTP itself; remove it",
                Ok(_) if HeaderValue::from_str(value.expose()).is_err() => {
                    "its value is no header value; use printable ASCII"
                }
                Ok(name) if !seen.insert(name.clone()) => "it is given twice; header names have no case",
                Ok(_) => continue,
            };
            found.push(ConfigProblem::new(format!("headers.{}", name.escape_default()), what));
        }
        found
    }

    fn time_problems(&self) -> Vec<ConfigProblem> {
        let alone = [
            ("connect_timeout", self.connect_timeout),
            ("timeout", self.timeout),
            ("breaker_first_pause", self.breaker_first_pause),
            ("breaker_longest_pause", self.breaker_longest_pause),
        ];
        let bad = alone.into_iter().filter(|(_, time)| time.is_zero() || *time > LONGEST);
        let what = "it must be longer than nothing and at most one hour";
        let mut found: Vec<_> = bad.map(|(field, _)| ConfigProblem::new(field, what)).collect();
        if self.patience > LONGEST {
            found.push(ConfigProblem::new("patience", "it must be at most one hour"));
        }
        // Times are compared with each other once each can be right.
        if !found.is_empty() {
            return found;
        }
        if self.connect_timeout > self.timeout {
            let what = "it is longer than timeout, which covers the whole request; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        if self.breaker_first_pause > self.breaker_longest_pause {
            found.push(ConfigProblem::new("breaker_first_pause", "it is longer than breaker_longest_pause"));
        }
        found
    }

    fn status_problems(&self) -> Vec<ConfigProblem> {
        let (mut found, mut seen) = (Vec::new(), BTreeMap::new());
        for (field, statuses) in [
            ("duplicate_statuses", &self.duplicate_statuses),
            ("reject_statuses", &self.reject_statuses),
            ("retry_statuses", &self.retry_statuses),
        ] {
            for status in statuses {
                found.extend(outside(field, usize::from(*status), 300, 599));
                if let Some(other) = seen.insert(*status, field).filter(|other| *other != field) {
                    found.push(ConfigProblem::new(field, format!("{status} is in {other} as well; choose one")));
                }
            }
        }
        found
    }
}

impl SinkConfig for HttpConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        self.problems()
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        self.check_destination(binding.needed("https://example.com/hooks")?)
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.longest_publish())
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(HttpClient::named(name, self)?))
    }
}

fn outside(field: &'static str, given: usize, least: usize, most: usize) -> Option<ConfigProblem> {
    let what = || format!("{given} is not from {least} to {most}");
    (!(least..=most).contains(&given)).then(|| ConfigProblem::new(field, what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut HttpConfig)) -> String {
        let mut config = HttpConfig::default();
        change(&mut config);
        config.check().expect_err("a problem").field
    }

    #[test]
    fn every_problem_names_its_field() {
        HttpConfig::default().check().expect("the defaults are good");
        let second = Duration::from_secs(1);
        assert_eq!(problem(|c| c.source = "not a uri".into()), "source");
        assert_eq!(problem(|c| c.source = "/x/{colour}".into()), "source");
        assert_eq!(problem(|c| c.signing_keys = vec![Secret::new("canary")]), "signing_keys[0]");
        assert_eq!(problem(|c| c.allow_addresses = vec!["10.0.0.0/33".into()]), "allow_addresses[0]");
        assert_eq!(problem(|c| c.user_agent = "a\nb".into()), "user_agent");
        assert_eq!(problem(|c| c.connect_timeout = Duration::ZERO), "connect_timeout");
        assert_eq!(problem(|c| (c.connect_timeout, c.timeout) = (second * 2, second)), "connect_timeout");
        assert_eq!(problem(|c| c.timeout = second * 4_000), "timeout");
        assert_eq!(problem(|c| c.concurrency = 0), "concurrency");
        assert_eq!(problem(|c| c.response_limit = usize::MAX), "response_limit");
        assert_eq!(problem(|c| c.breaker_failures = 0), "breaker_failures");
        assert_eq!(problem(|c| c.breaker_first_pause = second * 60), "breaker_first_pause");
        assert_eq!(problem(|c| c.reject_statuses = vec![200]), "reject_statuses");
        assert_eq!(problem(|c| (c.reject_statuses, c.retry_statuses) = (vec![404], vec![404])), "retry_statuses");
        for name in
            ["host", "Content-Length", "ce-id", "webhook-signature", "postrider-event-id", "transfer-encoding", "a b"]
        {
            let field = problem(|c| c.headers = [(name.to_owned(), Secret::new("v"))].into());
            assert_eq!(field, format!("headers.{name}"));
        }
        let twice = ["Authorization", "authorization"].map(|name| (name.to_owned(), Secret::new("v")));
        assert_eq!(problem(|c| c.headers = twice.into()), "headers.authorization");
        assert_eq!(problem(|c| c.headers = [("x".to_owned(), Secret::new("a\r\nb"))].into()), "headers.x");
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let config = HttpConfig {
            source: "not a uri".into(),
            signing_keys: vec![Secret::new("x"), Secret::new("y")],
            allow_addresses: vec!["x".into(), "10.0.0.0/8".into(), "y".into()],
            user_agent: String::new(),
            headers: ["host", "te"].map(|name| (name.to_owned(), Secret::new("v"))).into(),
            timeout: Duration::ZERO,
            patience: LONGEST * 2,
            retry_statuses: vec![200, 404],
            reject_statuses: vec![404, 700],
            concurrency: 0,
            ..HttpConfig::default()
        };
        let fields: Vec<String> = config.problems().into_iter().map(|problem| problem.field).collect();
        #[rustfmt::skip]
        let expected = [
            "source", "signing_keys[0]", "signing_keys[1]", "allow_addresses[0]", "allow_addresses[2]", "user_agent",
            "headers.host", "headers.te", "timeout", "patience", "reject_statuses", "retry_statuses", "retry_statuses",
            "concurrency",
        ];
        assert_eq!(fields, expected);
        assert_eq!(HttpConfig::default().problems(), []);
    }

    #[test]
    fn unknown_fields_are_refused_and_times_have_units() {
        let read = serde_json::from_str::<HttpConfig>;
        let config = read(r#"{"timeout": "5s", "format": "plain", "signing_keys": ["whsec_x"]}"#).expect("good");
        assert_eq!((config.timeout, config.format), (Duration::from_secs(5), Format::Plain));
        assert!(read(r#"{"time_out": "5s"}"#).expect_err("unknown").to_string().contains("time_out"));
        let text = serde_json::to_string(&config).expect("it can be shown");
        assert!(!text.contains("whsec_x"), "{text}");
        let again = read(&text).expect("what is shown can be read");
        assert_eq!(again.timeout, config.timeout);
    }
}
