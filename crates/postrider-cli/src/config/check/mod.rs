//! What no type can say: values that cannot work, alone or together, and what is allowed but hardly meant.

mod changelog;
mod ids;
mod layout;
mod route;
mod source;
mod tenant_limits;
mod tenants;

use std::collections::BTreeSet;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use url::Url;

use super::model::Config;
use super::problem::{Findings, KeyPath, Problem, Refused};
use super::shape::nearest;
use super::tree::Node;

/// The names that the operator gave, also of what is otherwise wrong, so that one mistake is reported once.
pub struct Declared {
    /// Sources.
    pub sources: BTreeSet<String>,
    /// Layouts.
    pub layouts: BTreeSet<String>,
    /// Sinks.
    pub sinks: BTreeSet<String>,
}

impl Declared {
    /// The names in a tree.
    pub fn in_tree(tree: &Node) -> Self {
        let names = |kind| tree.names(kind).cloned().collect();
        Self { sources: names("source"), layouts: names("layout"), sinks: names("sink") }
    }

    /// The same with these sources and sinks.
    pub fn with(self, sources: impl Iterator<Item = String>, sinks: impl Iterator<Item = String>) -> Self {
        Self { sources: sources.collect(), sinks: sinks.collect(), ..self }
    }
}

/// Checks a configuration. `refused` holds what was found before; sections that it touches are not looked at again,
/// because defaults stand in for what is wrong there. Answers the warnings.
pub fn check<'a>(
    config: &'a Config,
    tree: &'a Node,
    declared: &'a Declared,
    refused: Findings<'a>,
    warned: Findings<'a>,
) -> Result<Vec<Problem>, Refused> {
    let touched = refused.paths();
    let mut check = Check { config, tree, declared, touched, refused, warned };
    check.names();
    check.admin();
    check.log();
    check.trace();
    check.layouts();
    check.sources();
    check.sinks();
    check.routes();
    if check.refused.is_empty() { Ok(check.warned.into_warnings()) } else { Err(check.refused.refused()) }
}

struct Check<'a> {
    config: &'a Config,
    tree: &'a Node,
    declared: &'a Declared,
    touched: Vec<KeyPath>,
    refused: Findings<'a>,
    warned: Findings<'a>,
}

/// Longer than anybody keeps anything, and within what databases can reckon with.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

impl Check<'_> {
    fn refuse(&mut self, path: KeyPath, said: &str) {
        let known = self.touched.iter().any(|touched| path.0.is_empty() || touched.section() == path.section());
        if !known {
            self.refused.add(&self.tree.origin_of(&path), path, said);
        }
    }

    fn warn(&mut self, path: KeyPath, said: &str) {
        self.warned.add(&self.tree.origin_of(&path), path, said);
    }

    /// Every setting has an environment variable, and names go onto metrics: they must be fit for both.
    fn names(&mut self) {
        let names = |kind: &str, names: &BTreeSet<String>| -> Vec<KeyPath> {
            let bad = names.iter().filter(|name| !is_name(name));
            bad.map(|name| KeyPath::from([kind, name])).collect()
        };
        let bad = [
            names("source", &self.declared.sources),
            names("layout", &self.declared.layouts),
            names("sink", &self.declared.sinks),
        ];
        let bad = bad.concat();
        for path in bad {
            self.refuse(path, "this is not a good name; use up to 64 letters, digits, - and single _");
        }
    }

    fn admin(&mut self) {
        let admin = &self.config.admin;
        let path = |key| KeyPath::from(["admin", key]);
        for (key, given) in [("stalled_after", admin.stalled_after), ("oldest_due_limit", admin.oldest_due_limit)] {
            self.at_least_a_second(path(key), given);
        }
        let slowest = self.config.source.iter().filter(|(_, source)| source.enabled);
        if let Some((name, source)) = slowest.max_by_key(|(_, source)| source.poll_interval)
            && source.poll_interval > admin.stalled_after.max(Duration::from_secs(1))
        {
            let said = format!(
                "the poll_interval of source {name:?} is longer than stalled_after of admin, so health would be red without \
                 cause; lower the first or raise the second"
            );
            let written = self.tree.has(&path("stalled_after"));
            self.refuse(
                if written { path("stalled_after") } else { KeyPath::from(["source", name, "poll_interval"]) },
                &said,
            );
        }
        if admin.enabled && !admin.listen.ip().is_loopback() {
            let said = "it can be reached from other machines and has no authentication; listen on 127.0.0.1, or see \
                        that only your own network reaches it";
            self.warn(path("listen"), said);
        }
    }

    fn at_least_a_second(&mut self, path: KeyPath, given: Duration) {
        if given < Duration::from_secs(1) {
            self.refuse(path, "it is too short; it must be 1s or more");
        } else if given > LONGEST {
            self.refuse(path, "it is too long; it must be 36600d or less");
        }
    }

    fn log(&mut self) {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let level = &self.config.log.level;
        let path = KeyPath::from(["log", "level"]);
        // A word alone would be taken for the name of a module, and nothing would be logged.
        let word = level.split(',').map(str::trim).find(|part| !part.contains(['=', '[']) && !is_level(part, &LEVELS));
        if let Some(word) = word {
            let said = match nearest(word, LEVELS) {
                Some(near) => format!("there is no such level; did you mean {near:?}?"),
                None => "there is no such level; write error, warn, info, debug, trace, off or target=level".to_owned(),
            };
            self.refuse(path, &said);
        } else if EnvFilter::try_new(level).is_err() {
            self.refuse(path, "this is not a filter; write a level such as info, or info,postrider_core=debug");
        }
    }

    fn sinks(&mut self) {
        for (name, sink) in &self.config.sink {
            for problem in sink.config().problems() {
                self.refuse(field_of(&KeyPath::from(["sink", name]), &problem.field), &problem.what);
            }
        }
    }

    fn trace(&mut self) {
        let Some(endpoint) = &self.config.trace.otlp_endpoint else { return };
        let path = KeyPath::from(["trace", "otlp_endpoint"]);
        match Url::parse(endpoint) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                self.refuse(path, "it has a user or password in it, and would be printed; send to a collector without");
            }
            Ok(url) if ["http", "https"].contains(&url.scheme()) && url.has_host() => {}
            _ => self.refuse(path, "this is not an http address; write one such as http://127.0.0.1:4318/v1/traces"),
        }
    }
}

/// The path of a sink's field: `timeout`, `signing_keys[0]` or `headers.NAME`, where the name may hold anything.
fn field_of(sink: &KeyPath, field: &str) -> KeyPath {
    let (list, name) = field.split_once('.').map_or((field, None), |(table, name)| (table, Some(name)));
    let element = list.strip_suffix(']').and_then(|list| list.rsplit_once('['));
    let path = match element.and_then(|(list, index)| Some((list, index.parse().ok()?))) {
        Some((list, index)) => sink.key(list).index(index),
        None => sink.key(list),
    };
    name.map_or(path.clone(), |name| path.key(name))
}

fn is_level(word: &str, levels: &[&str]) -> bool {
    levels.iter().any(|level| level.eq_ignore_ascii_case(word))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.contains("__")
}

/// Names the nearest of some names, or all of them.
fn suggest(written: &str, known: &BTreeSet<String>, kind: &str) -> String {
    match nearest(written, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => format!("add [{kind}.NAME]"),
        None => format!("there are {}", known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")),
    }
}
