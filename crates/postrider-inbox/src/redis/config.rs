//! What a consumer sets, and every check of it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::inbox::RedisInbox;
use crate::keep::keep_problem;
use crate::{DEFAULT_KEEP, InboxError};

/// What keys begin with, unless another prefix is set.
pub const DEFAULT_PREFIX: &str = "pf:evt:processed";

/// How long a claim lasts without being extended, unless another time is set: 30 seconds.
pub const DEFAULT_CLAIM: Duration = Duration::from_secs(30);

const SHORTEST_CLAIM: Duration = Duration::from_millis(100);
const LONGEST_CLAIM: Duration = Duration::from_secs(60 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
const LONGEST_PREFIX: usize = 200;
const MOST_URLS: usize = 32;

/// What becomes of deliveries while Redis cannot be reached, does not answer in time, or takes no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unreachable {
    /// They are refused with [`InboxError::Unavailable`], and the broker is to bring them again.
    #[default]
    Refuse,
    /// They are handled without protection: a duplicate, or a delivery at the same time, has its effect once more. Each is
    /// logged, and counted in `postrider_inbox_unguarded_total`. A server that refuses the credentials, or whose certificate
    /// is not trusted, is not unreachable: deliveries are refused.
    Proceed,
}

/// Settings of a [`RedisInbox`]; made by [`RedisInbox::builder`] and [`RedisInbox::cluster`].
#[derive(Clone)]
#[must_use = "a builder makes nothing until it is built"]
pub struct RedisInboxBuilder {
    pub(super) urls: Vec<SecretString>,
    pub(super) is_cluster: bool,
    pub(super) username: Option<SecretString>,
    pub(super) password: Option<SecretString>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) identity_files: Option<(PathBuf, PathBuf)>,
    pub(super) connect_timeout: Duration,
    pub(super) settings: Settings,
}

/// What the verbs need to know.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) prefix: String,
    pub(super) claim: Duration,
    pub(super) keep: Duration,
    pub(super) horizon: Option<Duration>,
    pub(super) response_timeout: Duration,
    pub(super) commit_timeout: Duration,
    pub(super) unreachable: Unreachable,
}

impl RedisInboxBuilder {
    pub(super) fn new(urls: Vec<SecretString>, is_cluster: bool) -> Self {
        Self {
            urls,
            is_cluster,
            username: None,
            password: None,
            ca_file: None,
            identity_files: None,
            connect_timeout: Duration::from_secs(3),
            settings: Settings {
                prefix: DEFAULT_PREFIX.into(),
                claim: DEFAULT_CLAIM,
                keep: DEFAULT_KEEP,
                horizon: None,
                response_timeout: Duration::from_secs(3),
                commit_timeout: Duration::from_secs(10),
                unreachable: Unreachable::Refuse,
            },
        }
    }

    /// The name of the user. Without one it is the user `default`.
    pub fn username(mut self, username: impl Into<SecretString>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The password.
    pub fn password(mut self, password: impl Into<SecretString>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A file of PEM certificates to trust instead of those of the system, for `rediss://`.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// PEM files with the client's certificate and its key, for servers that ask for one, for `rediss://`.
    pub fn identity_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity_files = Some((certificate.into(), key.into()));
        self
    }

    /// What keys begin with; [`DEFAULT_PREFIX`] otherwise. All processes of a consumer must agree on it.
    ///
    /// A key is `<prefix>:<consumer>:<event id>`, and both prefix and consumer may hold `:`. Prefix `a` with consumer `b:c`
    /// has the keys of prefix `a:b` with consumer `c`: one would skip what the other has processed. Where several prefixes
    /// share a server, let none be the beginning of another.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = prefix.into();
        self
    }

    /// How long a claim lasts; [`DEFAULT_CLAIM`] otherwise. A guard extends it every third of this time, so a handler may
    /// take longer; an event whose consumer died is let in again after this time.
    pub fn claim(mut self, claim: Duration) -> Self {
        self.settings.claim = claim;
        self
    }

    /// How long a processed event is remembered; [`DEFAULT_KEEP`] otherwise. A duplicate that comes later is handled again.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.settings.keep = keep;
        self
    }

    /// For how long after its first delivery a message may come again: what broker, relay and operators (replays) allow.
    /// To keep events for a shorter time is refused.
    pub fn redelivery_horizon(mut self, horizon: Duration) -> Self {
        self.settings.horizon = Some(horizon);
        self
    }

    /// How long finding, reaching and trusting the server may take; 3 seconds otherwise.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an answer may take; 3 seconds otherwise.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = timeout;
        self
    }

    /// How long a commit is tried while Redis cannot be reached; 10 seconds otherwise. The effect has happened by then, so
    /// a commit is worth more patience than anything else.
    pub fn commit_timeout(mut self, timeout: Duration) -> Self {
        self.settings.commit_timeout = timeout;
        self
    }

    /// What becomes of deliveries while Redis cannot be reached; they are refused otherwise.
    pub fn when_unreachable(mut self, then: Unreachable) -> Self {
        self.settings.unreachable = then;
        self
    }

    /// Checks the settings. The connection is made at the first need, and nothing is said of a server that may forget:
    /// [`connect`](Self::connect) does the start-up check, and [`RedisInbox::examine`] can be called at any time.
    pub fn build(self) -> Result<RedisInbox, InboxError> {
        self.check()?;
        RedisInbox::new(self)
    }

    /// Checks the settings, connects, and logs a warning for each thing that may make the server forget.
    ///
    /// If the server cannot be reached, it fails; with [`Unreachable::Proceed`] it warns, and connects later.
    pub async fn connect(self) -> Result<RedisInbox, InboxError> {
        let inbox = self.build()?;
        inbox.start().await?;
        Ok(inbox)
    }

    /// Answers the first problem. It reads no file and connects to nothing.
    fn check(&self) -> Result<(), InboxError> {
        let problem = self.url_problem().or_else(|| self.access_problem()).or_else(|| self.settings.problem());
        let problem = problem.or_else(|| wait_problem("connect_timeout", self.connect_timeout));
        problem.map_or(Ok(()), |what| Err(InboxError::Config(what)))
    }

    /// Whether connections are encrypted: the addresses agree on it.
    pub(super) fn is_encrypted(&self) -> bool {
        self.urls.iter().any(|url| url.expose_secret().starts_with("rediss:"))
    }

    fn url_problem(&self) -> Option<String> {
        if self.urls.is_empty() || self.urls.len() > MOST_URLS {
            return Some(format!("give one to {MOST_URLS} addresses of Redis, such as redis://127.0.0.1:6379"));
        }
        let mut schemes = Vec::new();
        for url in &self.urls {
            let Ok(url) = Url::parse(url.expose_secret()) else {
                return Some(
                    "an address of Redis cannot be read; write redis://host:port or rediss://host:port".into(),
                );
            };
            let shown = shown(&url);
            if !matches!(url.scheme(), "redis" | "rediss") || url.host_str().is_none_or(str::is_empty) {
                return Some("an address is not one of Redis; write redis://host:port or rediss://host:port".into());
            }
            if !is_database(url.path(), self.is_cluster) || url.query().is_some() || url.fragment().is_some() {
                return Some(format!(
                    "the address {shown} has more than a host, a port and, but for a cluster, the number of a database; remove that"
                ));
            }
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            if has_credentials && (self.username.is_some() || self.password.is_some()) {
                return Some(format!(
                    "the address {shown} holds credentials, and there are a username or password besides; choose one"
                ));
            }
            schemes.push(url.scheme().to_owned());
        }
        let is_mixed = schemes.iter().any(|scheme| *scheme != schemes[0]);
        is_mixed.then(|| "some addresses of Redis are with TLS and some without; choose one".into())
    }

    fn access_problem(&self) -> Option<String> {
        if self.username.is_some() && self.password.is_none() {
            return Some("there is a username for Redis without its password; give both".into());
        }
        if (self.ca_file.is_some() || self.identity_files.is_some()) && !self.is_encrypted() {
            return Some("there are certificates, but the addresses of Redis are without TLS; write rediss://".into());
        }
        None
    }
}

impl Settings {
    fn problem(&self) -> Option<String> {
        let Self { prefix, claim, .. } = self;
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '{' | '}');
        if prefix.is_empty() || prefix.len() > LONGEST_PREFIX || prefix.contains(is_bad) {
            return Some(format!(
                "the prefix of keys must be 1 to {LONGEST_PREFIX} bytes without spaces, control characters and braces, such as {DEFAULT_PREFIX}"
            ));
        }
        if *claim < SHORTEST_CLAIM || *claim > LONGEST_CLAIM {
            return Some(format!(
                "the claim time is {claim:?}; it must be from {SHORTEST_CLAIM:?} to {LONGEST_CLAIM:?}"
            ));
        }
        if self.keep <= *claim {
            let keep = self.keep;
            return Some(format!("events are kept for {keep:?}, which is not longer than the claim time of {claim:?}"));
        }
        let keep = keep_problem(self.keep, self.horizon);
        keep.or_else(|| wait_problem("response_timeout", self.response_timeout))
            .or_else(|| wait_problem("commit_timeout", self.commit_timeout))
    }
}

fn wait_problem(name: &str, wait: Duration) -> Option<String> {
    let is_bad = wait < Duration::from_millis(1) || wait > LONGEST_WAIT;
    is_bad.then(|| format!("{name} is {wait:?}; it must be from 1 millisecond to one hour"))
}

fn is_database(path: &str, is_cluster: bool) -> bool {
    match path.trim_start_matches('/') {
        "" => true,
        number => !is_cluster && number.parse::<u16>().is_ok(),
    }
}

/// An address without its credentials. What is no address of Redis got into the wrong place, and may be a secret.
fn shown(url: &Url) -> String {
    if !matches!(url.scheme(), "redis" | "rediss") {
        return "?".into();
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme())
}

impl fmt::Debug for RedisInboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &SecretString| Url::parse(url.expose_secret()).map_or("?".into(), |url| shown(&url));
        f.debug_struct("RedisInboxBuilder")
            .field("urls", &self.urls.iter().map(shown).collect::<Vec<_>>())
            .field("is_cluster", &self.is_cluster)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn good() -> RedisInboxBuilder {
        RedisInbox::builder("redis://127.0.0.1:6379/2")
    }

    fn problem(builder: RedisInboxBuilder) -> String {
        let shown = format!("{builder:?}");
        let problem = builder.build().expect_err("a problem");
        assert!(matches!(problem, InboxError::Config(_)), "{problem:?}");
        assert!(!format!("{shown} {problem} {problem:?}").contains("canary"), "{shown} {problem:?}");
        problem.to_string()
    }

    #[test]
    fn good_settings_are_accepted_without_connecting() {
        good().build().expect("good");
        good().keep(8 * SECOND).claim(7 * SECOND).redelivery_horizon(8 * SECOND).build().expect("good");
        RedisInbox::builder("rediss://user:canary@redis.example.com").build().expect("good");
        RedisInbox::cluster(["redis://h:1", "redis://h:2"]).prefix("a:b").build().expect("good");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_showing_its_secrets() {
        for url in ["", "canary", "http://canary", "redis://", "redis://h/canary", "redis://h?canary", "unix:///canary"]
        {
            assert!(problem(RedisInbox::builder(url)).contains("address"), "{url}");
        }
        assert!(problem(RedisInbox::cluster(["redis://h/1"])).contains("cluster"));
        assert!(problem(RedisInbox::cluster(Vec::<String>::new())).contains("give one"));
        assert!(problem(RedisInbox::cluster(["redis://h", "rediss://h"])).contains("TLS"));
        let twice = RedisInbox::builder("redis://canary-user:canary@h").password("canary");
        assert!(problem(twice).contains("choose one"));
    }

    #[test]
    fn what_is_wrong_with_access_is_said() {
        assert!(problem(good().username("canary")).contains("password"));
        assert!(problem(good().ca_file("canary")).contains("rediss://"));
        let missing = RedisInbox::builder("rediss://h").ca_file("/nowhere/canary");
        assert!(problem(missing).contains("cannot be read"));
    }

    #[test]
    fn a_prefix_that_would_break_keys_is_refused() {
        for prefix in ["", "a b", "a\n", "{a}", "a}", "a\u{a0}b", &"x".repeat(LONGEST_PREFIX + 1)] {
            assert!(problem(good().prefix(prefix)).contains("prefix"), "{prefix:?}");
        }
    }

    #[test]
    fn events_are_kept_for_longer_than_they_are_claimed_and_delivered_again() {
        assert!(problem(good().claim(SECOND).keep(SECOND)).contains("claim time"));
        assert!(problem(good().redelivery_horizon(8 * 24 * 3_600 * SECOND)).contains("delivered again"));
        assert!(problem(good().keep(crate::keep::LONGEST_KEEP + SECOND)).contains("ten years"));
        assert!(problem(good().claim(Duration::ZERO)).contains("claim time"));
        assert!(problem(good().claim(LONGEST_CLAIM + SECOND)).contains("claim time"));
    }

    #[test]
    fn no_time_limit_is_nothing_or_endless() {
        assert!(problem(good().connect_timeout(Duration::ZERO)).contains("connect_timeout"));
        assert!(problem(good().response_timeout(Duration::MAX)).contains("response_timeout"));
        assert!(problem(good().commit_timeout(Duration::ZERO)).contains("commit_timeout"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let builder = RedisInbox::builder("redis://canary-user:canary-password@h:1");
        assert!(!format!("{builder:?} {:?}", builder.clone().build().expect("good")).contains("canary"));
        let builder = RedisInbox::builder("redis://h:1").username("canary-user").password("canary");
        assert!(!format!("{builder:?} {:?}", builder.clone().build().expect("good")).contains("canary"));
    }
}
