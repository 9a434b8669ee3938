//! What an operator writes for a sink of type `pubsub`, and every check of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};

use super::client::PubsubClient;
use super::topic::{Topics, is_project};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;
use crate::setting::{Secret, duration};

/// Google Pub/Sub. The route's destination is a topic of `project` such as `domain-events`, `{topic}` or
/// `events-{topic}`, or a full name such as `projects/other/topics/domain-events`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PubsubConfig {
    /// The id of the project, for destinations that do not name one.
    pub project: String,
    /// Another endpoint than the global one, such as `https://europe-west1-pubsub.googleapis.com`. With `ordering` a
    /// regional one keeps all messages of a key in one region, wherever they are sent from. Always `https`.
    pub endpoint: Option<String>,
    /// The host and port of an emulator, such as `localhost:8085`, instead of the real service: without credentials and
    /// without encryption. If neither this nor `endpoint` nor `credentials` is set, the variable `PUBSUB_EMULATOR_HOST`
    /// is read, as by Google's own clients.
    pub emulator: Option<String>,
    /// The key of a service account, as JSON; `{ file = "/run/secrets/pubsub.json" }` reads it from a file. None:
    /// application default credentials, which know workload identity as well.
    pub credentials: Option<Secret>,
    /// How a message is written: `plain`, `envelope`, `cloudevents-binary` or `cloudevents-structured`. A route may choose
    /// another.
    pub format: Format,
    /// The `source` attribute of CloudEvents: a URI reference, in which `{namespace}`, `{topic}`, `{key}` and `{tenant}`
    /// stand for the message's own. Source and id together name an event for good: do not change it lightly.
    pub source: String,
    /// Whether the key of a message is its ordering key, so that subscriptions with ordering get the messages of a key in
    /// their order. Messages of different keys are in different requests then, which is slower and may cost more.
    pub ordering: bool,
    /// The most messages in one request.
    pub batch_messages: u32,
    /// How long finding, reaching and trusting the service may take, with its credentials.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub connect_timeout: Duration,
    /// How long a publish may take with everything; it must be shorter than the dispatcher's publish time-out. One request
    /// may take half of it.
    #[serde(with = "duration")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub timeout: Duration,
}

impl Default for PubsubConfig {
    fn default() -> Self {
        Self {
            project: String::new(),
            endpoint: None,
            emulator: None,
            credentials: None,
            format: Format::Plain,
            source: Source::DEFAULT.into(),
            ordering: false,
            batch_messages: 100,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(8),
        }
    }
}

/// Longer than any sensible publish time-out.
const LONGEST: Duration = Duration::from_secs(3_600);
/// What Pub/Sub takes in one request.
const MOST_MESSAGES: u32 = 1_000;
const EXAMPLE: &str = "domain-events or events-{topic}";

impl PubsubConfig {
    /// The topics of a route with these settings.
    pub(super) fn topics(&self, binding: &Binding) -> Result<Topics, ConfigProblem> {
        Topics::new(&self.project, binding.needed(EXAMPLE)?)
    }

    /// The emulator of the settings, or the one of the variable `PUBSUB_EMULATOR_HOST` if it counts.
    pub(super) fn emulator(&self, variable: Option<String>) -> Result<Option<String>, ConfigProblem> {
        if self.emulator.is_some() || self.endpoint.is_some() || self.credentials.is_some() {
            return Ok(self.emulator.clone());
        }
        let variable = variable.filter(|host| !host.is_empty());
        match variable.as_deref().map(is_host_and_port) {
            Some(false) => Err(ConfigProblem::new("emulator", "PUBSUB_EMULATOR_HOST is no host and port; unset it")),
            _ => Ok(variable),
        }
    }

    fn place_problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if !self.project.is_empty() && !is_project(&self.project) {
            let what = "it is no id of a project; use lower-case letters, digits and hyphens";
            found.push(ConfigProblem::new("project", what));
        }
        if self.endpoint.as_deref().is_some_and(|endpoint| !is_https_origin(endpoint)) {
            let what = "it is not https:// with a host alone, such as https://europe-west1-pubsub.googleapis.com";
            found.push(ConfigProblem::new("endpoint", what));
        }
        if let Some(emulator) = &self.emulator {
            if !is_host_and_port(emulator) {
                found.push(ConfigProblem::new("emulator", "it is no host and port, such as localhost:8085"));
            }
            if self.endpoint.is_some() {
                found.push(ConfigProblem::new("emulator", "there is an endpoint as well; remove one of them"));
            }
            if self.credentials.is_some() {
                let what = "an emulator asks for none, and they would be sent without encryption; remove them";
                found.push(ConfigProblem::new("credentials", what));
            }
        }
        found
    }

    fn time_problems(&self) -> Vec<ConfigProblem> {
        let alone = [("connect_timeout", self.connect_timeout), ("timeout", self.timeout)];
        let bad = alone.into_iter().filter(|(_, time)| time.is_zero() || *time > LONGEST);
        let what = "it must be longer than nothing and at most one hour";
        let mut found: Vec<_> = bad.map(|(field, _)| ConfigProblem::new(field, what)).collect();
        if found.is_empty() && self.connect_timeout > self.timeout / 2 {
            let what = "it is longer than half of timeout, and a request needs time as well; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        found
    }
}

impl SinkConfig for PubsubConfig {
    fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = self.place_problems();
        found.extend(self.credentials.as_ref().and_then(|key| service_account(key).err()));
        found.extend(Source::new(&self.source).err());
        if !(1..=MOST_MESSAGES).contains(&self.batch_messages) {
            found.push(ConfigProblem::new("batch_messages", format!("it is not from 1 to {MOST_MESSAGES}")));
        }
        found.extend(self.time_problems());
        found
    }

    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        self.topics(binding).map(drop)
    }

    fn longest_publish(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(PubsubClient::named(name, self)?))
    }
}

/// The key of a service account. No error repeats any of it.
pub(super) fn service_account(key: &Secret) -> Result<Value, ConfigProblem> {
    let problem = |what: &str| ConfigProblem::new("credentials", what);
    let json: Value = serde_json::from_str(key.expose()).map_err(|_| problem("they are not JSON"))?;
    if json["type"] != "service_account" {
        let what = "they are not the key of a service account; for others leave credentials out and set \
                    GOOGLE_APPLICATION_CREDENTIALS";
        return Err(problem(what));
    }
    match ["client_email", "private_key", "private_key_id", "project_id"].iter().all(|field| json[field].is_string()) {
        true => Ok(json),
        false => Err(problem("a field is missing; take the whole file of the key")),
    }
}

fn is_https_origin(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let bare =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    url.scheme() == "https" && url.has_host() && bare && url.path() == "/"
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    // What the URL syntax would take as something else must not get there.
    let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
    plain && Host::parse(host).is_ok() && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        r#"{"type":"service_account","client_email":"e","private_key":"canary","private_key_id":"i","project_id":"p"}"#;

    fn problems(change: impl FnOnce(&mut PubsubConfig)) -> Vec<String> {
        let mut config = PubsubConfig::default();
        change(&mut config);
        let problems = config.problems();
        assert!(!format!("{problems:?}").contains("canary"), "{problems:?}");
        problems.into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn every_problem_names_its_field() {
        let second = Duration::from_secs(1);
        assert_eq!(problems(|_| ()), [""; 0]);
        assert_eq!(problems(|c| c.project = "My Project".into()), ["project"]);
        assert_eq!(problems(|c| c.project = "a/b".into()), ["project"]);
        for wrong in
            ["http://x.example", "https://u:canary@x.example", "x.example:443", "https://x.example/v1", "https://"]
        {
            assert_eq!(problems(|c| c.endpoint = Some(wrong.into())), ["endpoint"], "{wrong}");
        }
        for wrong in ["localhost", "localhost:0", "http://localhost:1", "canary@localhost:1", "a/b:1", ":1", "a?b:1"] {
            assert_eq!(problems(|c| c.emulator = Some(wrong.into())), ["emulator"], "{wrong}");
        }
        for wrong in ["canary", "{}", r#"{"type":"authorized_user"}"#, r#"{"type":"service_account"}"#] {
            assert_eq!(problems(|c| c.credentials = Some(Secret::new(wrong))), ["credentials"], "{wrong}");
        }
        assert_eq!(problems(|c| c.source = "not a uri".into()), ["source"]);
        assert_eq!(problems(|c| c.batch_messages = 0), ["batch_messages"]);
        assert_eq!(problems(|c| c.batch_messages = 1_001), ["batch_messages"]);
        assert_eq!(problems(|c| c.timeout = Duration::ZERO), ["timeout"]);
        assert_eq!(problems(|c| c.connect_timeout = second * 5), ["connect_timeout"]);
        let both = problems(|c| {
            c.emulator = Some("localhost:8085".into());
            c.endpoint = Some("https://pubsub.example".into());
            c.credentials = Some(Secret::new(KEY));
        });
        assert_eq!(both, ["emulator", "credentials"]);
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let all = problems(|c| {
            c.project = "?".into();
            c.endpoint = Some("?".into());
            c.credentials = Some(Secret::new("?"));
            c.source = "not a uri".into();
            c.batch_messages = 0;
            (c.timeout, c.connect_timeout) = (Duration::ZERO, LONGEST * 2);
        });
        let expected = ["project", "endpoint", "credentials", "source", "batch_messages", "connect_timeout", "timeout"];
        assert_eq!(all, expected);
    }

    #[test]
    fn an_emulator_is_only_what_the_operator_named() {
        let variable = || Some("localhost:8085".to_owned());
        let emulator = |config: &PubsubConfig, variable| config.emulator(variable).expect("good");
        let mut config = PubsubConfig::default();
        assert_eq!(emulator(&config, None), None);
        assert_eq!(emulator(&config, variable()), variable());
        assert_eq!(emulator(&config, Some(String::new())), None);
        assert!(config.emulator(Some("http://canary".into())).is_err());
        config.emulator = Some("[::1]:1".into());
        assert_eq!(emulator(&config, variable()), config.emulator);
        for change in [
            |c: &mut PubsubConfig| c.endpoint = Some("https://x.example".into()),
            |c: &mut PubsubConfig| c.credentials = Some(Secret::new(KEY)),
        ] {
            let mut config = PubsubConfig::default();
            change(&mut config);
            assert_eq!(emulator(&config, variable()), None);
        }
    }

    #[test]
    fn unknown_fields_are_refused_and_no_secret_is_shown() {
        let read = serde_json::from_str::<PubsubConfig>;
        let text = serde_json::json!({ "project": "home", "timeout": "6s", "ordering": true, "credentials": KEY });
        let text = text.to_string();
        let config = read(&text).expect("good");
        assert_eq!((config.timeout, config.ordering, config.problems()), (Duration::from_secs(6), true, vec![]));
        assert!(read(r#"{"topic": "x"}"#).expect_err("unknown").to_string().contains("topic"));
        let shown = format!("{config:?} {}", serde_json::to_string(&config).expect("it can be shown"));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_route_needs_a_topic() {
        let config = PubsubConfig { project: "home".into(), ..PubsubConfig::default() };
        assert_eq!(config.check_binding(&Binding::default()).expect_err("none").field, "destination");
        let binding = |text: &str| Binding::to(text.parse().expect("a destination"));
        assert_eq!(config.check_binding(&binding("goog")).expect_err("bad").field, "destination");
        config.check_binding(&binding("events-{topic}")).expect("good");
    }
}
