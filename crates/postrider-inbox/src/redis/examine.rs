//! What may make the server forget, or refuse, sooner than the settings say. None of it loses an event: what is forgotten
//! is handled again.

use std::collections::HashMap;
use std::fmt;

use super::inbox::RedisInbox;
use super::outcome::{Kind, Problem};
use crate::InboxError;

/// A setting of the server that does not suit an inbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Warning {
    /// When its memory is full, the server removes keys and with them what the inbox remembers; their duplicates are handled
    /// again. Every policy but `noeviction` does: the keys of the inbox have a time to live, so `volatile-…` takes them too.
    Eviction {
        /// The `maxmemory-policy`.
        policy: String,
        /// Whether `maxmemory` is set. If not, the policy has no effect until it is.
        is_limited: bool,
    },
    /// Nothing is written to disk, neither by `appendonly` nor by `save`. After a restart everything is forgotten.
    NoPersistence,
    /// `appendfsync no`: the kernel decides when something is written to disk. After a crash of the machine, half a minute
    /// or so is forgotten.
    LateFsync,
    /// The server does not show its settings: the user may not run `config get`, or the service does not have it.
    NotChecked,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction { policy, is_limited: true } => write!(
                f,
                "maxmemory-policy is {policy}, so when memory is full, processed events are forgotten and their duplicates handled again; set it to noeviction"
            ),
            Self::Eviction { policy, is_limited: false } => write!(
                f,
                "maxmemory-policy is {policy}, so once maxmemory is set and reached, processed events will be forgotten and their duplicates handled again; set it to noeviction"
            ),
            Self::NoPersistence => write!(
                f,
                "nothing is written to disk, so after a restart all processed events are forgotten and their duplicates handled again; set appendonly yes"
            ),
            Self::LateFsync => write!(
                f,
                "appendfsync is no, so after a crash of the machine the last processed events are forgotten and their duplicates handled again; set it to everysec or always"
            ),
            Self::NotChecked => write!(
                f,
                "the server does not show its settings; make sure that maxmemory-policy is noeviction and that appendonly is on, or permit config|get"
            ),
        }
    }
}

const SETTINGS: [&str; 5] = ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save"];

impl RedisInbox {
    /// What may make the server forget, or each server of a cluster that takes writes.
    pub async fn examine(&self) -> Result<Vec<Warning>, InboxError> {
        // By address: servers answer in any order.
        let mut servers: HashMap<String, HashMap<String, String>> = HashMap::new();
        for setting in SETTINGS {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(setting);
            let answers = match self.verbs.ask_servers(command).await {
                Ok(answers) => answers,
                Err(Problem { kind: Kind::Refused, .. }) if self.is_let_in().await? => {
                    return Ok(vec![Warning::NotChecked]);
                }
                Err(problem) => return Err(problem.into()),
            };
            for (address, answer) in answers {
                let values = redis::from_redis_value::<HashMap<String, String>>(answer).unwrap_or_default();
                servers.entry(address).or_default().extend(values);
            }
        }
        let mut warnings: Vec<Warning> = Vec::new();
        for warning in servers.values().flat_map(warnings_of) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        Ok(warnings)
    }

    /// Whether the server takes other commands; if not, the credentials are the problem.
    async fn is_let_in(&self) -> Result<bool, InboxError> {
        self.verbs.ask_servers(redis::cmd("PING")).await.map(|_| true).map_err(Into::into)
    }
}

fn warnings_of(server: &HashMap<String, String>) -> Vec<Warning> {
    let setting = |name: &str| server.get(name).map(String::as_str);
    let mut warnings = Vec::new();
    match setting("maxmemory-policy") {
        Some("noeviction") => {}
        Some(policy) => {
            let is_limited = setting("maxmemory").is_some_and(|bytes| bytes != "0");
            warnings.push(Warning::Eviction { policy: policy.into(), is_limited });
        }
        None => return vec![Warning::NotChecked],
    }
    match (setting("appendonly"), setting("save")) {
        (Some("yes"), _) if setting("appendfsync") == Some("no") => warnings.push(Warning::LateFsync),
        (Some("no"), Some("")) => warnings.push(Warning::NoPersistence),
        _ => {}
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> Vec<Warning> {
        let good = [("maxmemory-policy", "noeviction"), ("maxmemory", "0"), ("appendonly", "yes")];
        let all = good.iter().chain([("appendfsync", "everysec"), ("save", "3600 1")].iter()).chain(settings);
        warnings_of(&all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_makes_a_server_forget_is_said() {
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[("appendonly", "no")]), [], "it has snapshots");
        for (maxmemory, is_limited) in [("0", false), ("1000", true)] {
            for policy in ["volatile-lru", "allkeys-random"] {
                let warning = Warning::Eviction { policy: policy.into(), is_limited };
                assert_eq!(of(&[("maxmemory", maxmemory), ("maxmemory-policy", policy)]), [warning]);
            }
        }
        assert_eq!(of(&[("appendonly", "no"), ("save", "")]), [Warning::NoPersistence]);
        assert_eq!(of(&[("appendfsync", "no")]), [Warning::LateFsync]);
        assert_eq!(warnings_of(&HashMap::new()), [Warning::NotChecked]);
    }

    #[test]
    fn every_warning_says_what_follows_and_what_to_do() {
        let eviction = |is_limited| Warning::Eviction { policy: "allkeys-lru".into(), is_limited };
        for warning in [eviction(true), eviction(false), Warning::NoPersistence, Warning::LateFsync] {
            let text = warning.to_string();
            assert!(text.contains("handled again; set "), "{text}");
        }
        assert!(Warning::NotChecked.to_string().contains("permit config|get"));
    }
}
