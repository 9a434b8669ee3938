//! What an operator writes for a sink of type `provider`, and every check of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Sink;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::{destination, named};
use super::noop::NoopConfig;
use super::sink::ProviderSink;
use crate::http::HttpConfig;
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};

/// Chat providers. Each message names its provider and recipient in its headers; a table for each provider says how to
/// get there.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// An adapter that sends nothing and stands for the providers named in it, for a staged rollout.
    pub noop: Option<NoopConfig>,
    /// Slack, for messages whose provider is `slack`.
    pub slack: Option<SlackConfig>,
    /// Telegram, for messages whose provider is `telegram`.
    pub telegram: Option<TelegramConfig>,
    /// WhatsApp, for messages whose provider is `whatsapp`.
    pub whatsapp: Option<WhatsappConfig>,
    /// How long finding, reaching and trusting a provider may take: DNS, TCP and TLS together.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long sending a message may take with everything; it must be shorter than the dispatcher's publish time-out
    /// by more than a quarter of a second.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
    /// A file of PEM certificates that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Networks that may be connected to although they are not public, such as `10.1.0.0/16` or `127.0.0.1`, for an
    /// endpoint of your own. Only there an endpoint may begin with `http://`.
    pub allow_addresses: Vec<String>,
    /// The most messages under way to one provider.
    pub concurrency: usize,
}

/// A Slack app.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SlackConfig {
    /// The app's bot token, with the scope `chat:write`.
    pub token: Secret,
    /// Where the Web API is.
    #[serde(default = "slack_endpoint")]
    pub endpoint: String,
    /// Whether messages carry their event id, and correlation id and channel message id if they look like ids, as
    /// metadata, which apps in the workspace can read.
    #[serde(default = "yes")]
    pub metadata: bool,
}

/// A bot of Telegram.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TelegramConfig {
    /// The bot's token, as BotFather gives it.
    pub token: Secret,
    /// Where the Bot API is.
    #[serde(default = "telegram_endpoint")]
    pub endpoint: String,
}

/// A number of WhatsApp's Cloud API.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WhatsappConfig {
    /// The access token, with the permission `whatsapp_business_messaging`.
    pub access_token: Secret,
    /// The id of the number that messages come from; not the number itself.
    pub phone_number_id: String,
    /// The version of the Graph API. Meta keeps each for about two years.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Where the Graph API is.
    #[serde(default = "whatsapp_endpoint")]
    pub endpoint: String,
}

fn slack_endpoint() -> String {
    "https://slack.com/api".into()
}

fn telegram_endpoint() -> String {
    "https://api.telegram.org".into()
}

fn whatsapp_endpoint() -> String {
    "https://graph.facebook.com".into()
}

fn api_version() -> String {
    "v25.0".into()
}

fn yes() -> bool {
    true
}

impl SlackConfig {
    /// An app with this token, and the defaults.
    pub fn new(token: Secret) -> Self {
        Self { token, endpoint: slack_endpoint(), metadata: yes() }
    }
}

impl TelegramConfig {
    /// A bot with this token, and the defaults.
    pub fn new(token: Secret) -> Self {
        Self { token, endpoint: telegram_endpoint() }
    }
}

impl WhatsappConfig {
    /// A number with this token, and the defaults.
    pub fn new(access_token: Secret, phone_number_id: impl Into<String>) -> Self {
        let (api_version, endpoint) = (api_version(), whatsapp_endpoint());
        Self { access_token, phone_number_id: phone_number_id.into(), api_version, endpoint }
    }
}

impl Default for ProviderConfig {
    fn default() -> Self {
        let http = HttpConfig::default();
        Self {
            noop: None,
            slack: None,
            telegram: None,
            whatsapp: None,
            connect_timeout: http.connect_timeout,
            timeout: http.timeout,
            ca_file: None,
            allow_addresses: Vec::new(),
            concurrency: http.concurrency,
        }
    }
}

impl SinkConfig for ProviderConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        self.problems()
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        binding.without_format()?;
        match binding.destination {
            None => Ok(()),
            Some(_) => {
                let what = "a message's own headers say where it goes, provider and recipient; remove it";
                Err(ConfigProblem::new("destination", what))
            }
        }
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.longest_publish())
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(Shared { config: self.clone(), sink: Arc::new(ProviderSink::named(name, self)?) }))
    }
}

/// All routes share one sink, and with it the limits of each provider.
struct Shared {
    config: ProviderConfig,
    sink: Arc<ProviderSink>,
}

impl SinkClient for Shared {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        self.config.check_binding(&binding)?;
        Ok(self.sink.clone())
    }
}

impl ProviderConfig {
    /// Checks every field on its own and with the others, and answers the first problem. It reads no file and connects
    /// to nothing.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that [`check`](Self::check) finds.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = self.problems_with(&[]);
        if self.names().is_empty() && self.noop.is_none() {
            found.push(ConfigProblem::new(
                "noop",
                "there is no provider; add a table for one, or this one to try it out",
            ));
        }
        found
    }

    /// The longest time a publish takes: the dispatcher's publish time-out must be longer.
    pub fn longest_publish(&self) -> Duration {
        self.http().longest_publish()
    }

    /// The same, with providers that a program adds.
    pub(super) fn problems_with(&self, added: &[String]) -> Vec<ConfigProblem> {
        // The fields that both have are checked, and named, in the same way.
        let mut found = self.http().problems();
        found.extend(
            self.slack
                .iter()
                .flat_map(|slack| {
                    [token("slack.token", &slack.token, HEADER), self.endpoint("slack.endpoint", &slack.endpoint)]
                })
                .flatten(),
        );
        found.extend(
            self.telegram
                .iter()
                .flat_map(|telegram| {
                    [
                        token("telegram.token", &telegram.token, PATH),
                        self.endpoint("telegram.endpoint", &telegram.endpoint),
                    ]
                })
                .flatten(),
        );
        found.extend(self.whatsapp.iter().flat_map(|whatsapp| self.whatsapp_problems(whatsapp)).flatten());
        found.extend(self.noop.iter().flat_map(NoopConfig::problems));
        found.extend(self.name_problems(added));
        found
    }

    /// What connections need to know.
    pub(super) fn http(&self) -> HttpConfig {
        HttpConfig {
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            ca_file: self.ca_file.clone(),
            allow_addresses: self.allow_addresses.clone(),
            concurrency: self.concurrency,
            ..HttpConfig::default()
        }
    }

    fn whatsapp_problems(&self, whatsapp: &WhatsappConfig) -> [Option<ConfigProblem>; 4] {
        let WhatsappConfig { access_token, phone_number_id, api_version, endpoint } = whatsapp;
        let is_id = !phone_number_id.is_empty() && phone_number_id.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = api_version.strip_prefix('v').unwrap_or_default().split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_version = parts.len() == 2 && parts.iter().all(is_number);
        let problem = |good: bool, field: &str, what: &str| (!good).then(|| ConfigProblem::new(field, what));
        [
            token("whatsapp.access_token", access_token, HEADER),
            problem(is_id, "whatsapp.phone_number_id", "it is not made of digits; write the id, not the number"),
            problem(is_version, "whatsapp.api_version", "it is no version; write it like v25.0"),
            self.endpoint("whatsapp.endpoint", endpoint),
        ]
    }

    fn endpoint(&self, field: &str, text: &str) -> Option<ConfigProblem> {
        let checked = destination(field, text).and_then(|base| self.http().check_destination(&base));
        // Networks that cannot be read are a problem of their own.
        checked
            .err()
            .filter(|problem| !problem.field.starts_with("allow_addresses"))
            .map(|problem| named(problem, field))
    }

    /// The providers with a table of their own.
    fn names(&self) -> Vec<&'static str> {
        let tables = [
            ("slack", self.slack.is_some()),
            ("telegram", self.telegram.is_some()),
            ("whatsapp", self.whatsapp.is_some()),
        ];
        tables.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
    }

    /// Each provider has one adapter.
    fn name_problems(&self, added: &[String]) -> Vec<ConfigProblem> {
        let mut seen: BTreeSet<&str> = self.names().into_iter().collect();
        let stubs = self.noop.iter().flat_map(|noop| &noop.providers).map(|name| ("noop.providers", name));
        let mut found = Vec::new();
        for (field, name) in stubs.chain(added.iter().map(|name| ("adapter", name))) {
            if !is_name(name) {
                found.push(ConfigProblem::new(
                    field,
                    "a provider's name has 1 to 64 letters, digits, - and _; this is none",
                ));
            } else if !seen.insert(name) {
                found.push(ConfigProblem::new(field, format!("{name} has an adapter already; keep one of them")));
            }
        }
        found
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// What may be in a header after `Bearer `.
const HEADER: (fn(u8) -> bool, &str) =
    (|byte| byte.is_ascii_graphic(), "it holds what no token has; use printable ASCII");
/// What may be in a path without changing where it leads.
const PATH: (fn(u8) -> bool, &str) = (
    |byte| byte.is_ascii_alphanumeric() || b":_-".contains(&byte),
    "it holds what no bot token has; write it like 123456:ABC-DEF, without \"bot\" before it",
);

fn token(field: &str, secret: &Secret, (allowed, what): (fn(u8) -> bool, &str)) -> Option<ConfigProblem> {
    let text = secret.expose();
    (text.is_empty() || !text.bytes().all(allowed)).then(|| ConfigProblem::new(field, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ProviderConfig {
        ProviderConfig {
            slack: Some(SlackConfig::new(Secret::new("xoxb-1-canary"))),
            telegram: Some(TelegramConfig::new(Secret::new("1:canary"))),
            whatsapp: Some(WhatsappConfig::new(Secret::new("EAAcanary"), "106540352242922")),
            ..ProviderConfig::default()
        }
    }

    fn problem(
        change: impl FnOnce(&mut ProviderConfig, &mut SlackConfig, &mut TelegramConfig, &mut WhatsappConfig),
    ) -> String {
        let mut config = all();
        let (mut slack, mut telegram, mut whatsapp) = (
            config.slack.take().expect("it"),
            config.telegram.take().expect("it"),
            config.whatsapp.take().expect("it"),
        );
        change(&mut config, &mut slack, &mut telegram, &mut whatsapp);
        (config.slack, config.telegram, config.whatsapp) = (Some(slack), Some(telegram), Some(whatsapp));
        let problems = config.problems();
        assert!(!format!("{problems:?}").contains("canary"), "{problems:?}");
        problems.into_iter().map(|problem| problem.field).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_problem_names_its_field() {
        assert_eq!(all().problems(), []);
        assert_eq!(ProviderConfig::default().check().expect_err("nothing to send to").field, "noop");
        let noop = |providers: &[&str]| {
            Some(NoopConfig {
                providers: providers.iter().map(|name| (*name).to_owned()).collect(),
                ..NoopConfig::default()
            })
        };
        assert_eq!(ProviderConfig { noop: noop(&["slack"]), ..ProviderConfig::default() }.problems(), []);
        assert_eq!(problem(|c, _, _, _| c.noop = noop(&["sms", "slack"])), "noop.providers");
        assert_eq!(problem(|c, _, _, _| c.noop = noop(&["sms", "sms"])), "noop.providers");
        assert_eq!(problem(|c, _, _, _| c.noop = noop(&["a b"])), "noop.providers");
        assert_eq!(problem(|c, _, _, _| c.noop = noop(&[])), "noop.providers");
        assert_eq!(problem(|c, _, _, _| c.timeout = Duration::ZERO), "timeout");
        assert_eq!(problem(|c, _, _, _| c.connect_timeout = c.timeout * 2), "connect_timeout");
        assert_eq!(problem(|c, _, _, _| c.concurrency = 0), "concurrency");
        assert_eq!(problem(|c, _, _, _| c.allow_addresses = vec!["canary".into()]), "allow_addresses[0]");
        for endpoint in [
            "canary",
            "",
            "ftp://x",
            "https://x/{topic}",
            "https://x/?canary",
            "https://u:canary@x/",
            "http://127.0.0.1:9/",
        ] {
            assert_eq!(problem(|_, s, _, _| s.endpoint = endpoint.into()), "slack.endpoint", "{endpoint}");
            assert_eq!(problem(|_, _, t, _| t.endpoint = endpoint.into()), "telegram.endpoint", "{endpoint}");
            assert_eq!(problem(|_, _, _, w| w.endpoint = endpoint.into()), "whatsapp.endpoint", "{endpoint}");
        }
        for token in ["", "canary\n", "canary canary", "cänary"] {
            assert_eq!(problem(|_, s, _, _| s.token = Secret::new(token)), "slack.token");
            assert_eq!(problem(|_, _, _, w| w.access_token = Secret::new(token)), "whatsapp.access_token");
        }
        for token in ["", "1:canary/../x", "1:canary?x", "1:canary%2e", "1:canary#"] {
            assert_eq!(problem(|_, _, t, _| t.token = Secret::new(token)), "telegram.token");
        }
        for id in ["", "+4915", "../x", "canary"] {
            assert_eq!(problem(|_, _, _, w| w.phone_number_id = id.into()), "whatsapp.phone_number_id");
        }
        for version in ["", "25.0", "v25", "v25.0/x", "v.", "vx.y"] {
            assert_eq!(problem(|_, _, _, w| w.api_version = version.into()), "whatsapp.api_version");
        }
    }

    #[test]
    fn the_file_is_read_with_defaults_and_without_unknown_fields() {
        let read = serde_json::from_str::<ProviderConfig>;
        let config = read(
            r#"{"slack": {"token": "xoxb-canary"}, "noop": {"providers": ["sms"], "answers": {"x": ["limit", "accept"]}}}"#,
        );
        let config = config.expect("good");
        assert_eq!(config.problems(), []);
        let text = serde_json::to_string(&config).expect("it can be shown");
        assert!(!text.contains("canary") && !format!("{config:?}").contains("canary"), "{text}");
        assert!(text.contains("https://slack.com/api"), "{text}");
        for wrong in [
            r#"{"sms": {}}"#,
            r#"{"slack": {}}"#,
            r#"{"slack": {"token": "x", "channel": "y"}}"#,
            r#"{"noop": {"answer": {}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(config.longest_publish(), config.timeout + Duration::from_millis(250));
    }
}
