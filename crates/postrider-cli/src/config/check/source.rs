//! Checks of the sources.

use std::sync::Arc;

use postrider::layout::Ability;
use postrider::{ClaimedMessage, ConfigError, PublishError, callback, name};
use postrider::{InvalidName, MemoryStore, Names};

use super::Check;
use crate::config::database::{Database, is_same};
use crate::config::model::{Delivered, Source};
use crate::config::problem::KeyPath;

/// A dispatcher keeps four for its verbs; with the operator's commands it is five.
const FEWEST_CONNECTIONS: u32 = 5;

impl Check<'_> {
    pub(super) fn sources(&mut self) {
        let config = self.config;
        if !config.source.values().any(|source| source.enabled) {
            let said = "there is no enabled source, so nothing would be done; add [source.NAME] with a url";
            self.refuse(KeyPath::default(), said);
        }
        for (name, source) in &config.source {
            let path = KeyPath::from(["source", name]);
            let database = self.url(&path, source);
            self.connections(&path, name, source, database);
            self.outbox_names(&path, source, database);
            self.layout(&path, source, database);
            self.namespaces(&path, source);
            self.dispatcher(&path, name, source);
            self.retention(&path, source);
            self.tenant_limits(&path, source);
            self.changelog(&path, source);
            self.tenants(&path, source, database);
        }
        self.sharing();
        self.ids();
    }

    fn url(&mut self, path: &KeyPath, source: &Source) -> Option<Database> {
        let Some(url) = &source.url else {
            if source.enabled {
                self.refuse(path.clone(), "it has no url; add one, or set enabled = false");
            }
            return None;
        };
        Database::of(url.expose()).map_err(|said| self.refuse(path.key("url"), &said)).ok()
    }

    fn connections(&mut self, path: &KeyPath, name: &str, source: &Source, database: Option<Database>) {
        let at = path.key("connections");
        let fewest = FEWEST_CONNECTIONS + self.connections_for_changelog(name, source);
        if !(1..=1_000).contains(&source.connections) {
            self.refuse(at, &format!("connections is {}; it must be from 1 to 1000", source.connections));
        } else if source.connections < fewest && matches!(database, Some(Database::Postgres | Database::MySql)) {
            self.warn(at, &format!("the relay may wait for itself with so few; give it {fewest} or more"));
        }
        if source.behind_pooler && matches!(database, Some(Database::MySql | Database::Sqlite)) {
            self.warn(path.key("behind_pooler"), "it has no meaning for this database; it is for PostgreSQL");
        }
    }

    /// Each name by itself, so that all that are wrong are found.
    fn outbox_names(&mut self, path: &KeyPath, source: &Source, database: Option<Database>) {
        let (usual, ours) = (Names::default(), source.layout == Source::default().layout);
        // A table that was there before us may be called what we would call none.
        let existing = |schema: Option<&str>, table: &str| Names::existing(schema, usual.prefix(), table);
        let (schema, table) = match ours {
            true => (
                source.schema.as_deref().map_or(Ok(usual.clone()), Names::in_schema),
                Names::unqualified(usual.prefix(), &source.table),
            ),
            false => (existing(source.schema.as_deref(), usual.table()), existing(None, &source.table)),
        };
        let prefix = Names::unqualified(&source.prefix, usual.table());
        let checked: [(&str, Result<Names, InvalidName>); 3] =
            [("schema", schema), ("prefix", prefix), ("table", table)];
        for (key, checked) in checked {
            if let Err(error) = checked {
                self.refuse(path.key(key), &error.to_string());
            }
        }
        if source.schema.is_some() && database == Some(Database::Sqlite) {
            self.refuse(path.key("schema"), "SQLite has no schemas; remove it");
        }
    }

    fn namespaces(&mut self, path: &KeyPath, source: &Source) {
        let Some(namespaces) = &source.namespaces else { return };
        let path = path.key("namespaces");
        if namespaces.is_empty() {
            self.refuse(path.clone(), "it is empty, so no message would be taken; remove it to take all");
        }
        for (at, namespace) in namespaces.iter().enumerate() {
            if let Err(error) = name::check("namespace", namespace) {
                self.refuse(path.index(at), &error.to_string());
            }
        }
    }

    /// The dispatcher knows its own bounds. Nothing is taken from the store or sent to the sink that it gets here.
    fn dispatcher(&mut self, path: &KeyPath, name: &str, source: &Source) {
        let sink = callback(|_: ClaimedMessage| async { Ok::<(), PublishError>(()) });
        let relay = &self.config.relay;
        let builder = source.dispatcher(name, relay, Arc::new(MemoryStore::new()), Arc::new(sink));
        for error in builder.problems() {
            let Some(key) = key_of(error.setting()) else { continue };
            let mut at = if key == "shutdown_grace" { KeyPath::from(["relay", key]) } else { path.key(key) };
            if let ConfigError::Disagree { high, .. } = &error
                && let Some(other) = key_of(high)
                && !self.tree.has(&at)
            {
                at = path.key(other);
            }
            let said = error.to_string().replace(BASE, "retry_base").replace(MAX, "retry_max");
            let said = said.replacen("tenant_metrics is", "tenant_metrics_max is", 1);
            self.refuse(at, &said);
        }
    }

    fn retention(&mut self, path: &KeyPath, source: &Source) {
        for (key, given) in [("keep_delivered", source.keep_delivered), ("keep_dead", source.keep_dead)] {
            if let Some(given) = given {
                self.at_least_a_second(path.key(key), given);
            }
        }
        let may_stay = source.described.can(Ability::DedupeKeys) && source.described.keeps_delivered();
        if source.delivered == Delivered::Delete && source.keep_delivered.is_none() && may_stay {
            let said = "delivered messages that have a dedupe key stay for good, so that a late retry finds its key; give \
                        keep_delivered, after which they are deleted as well";
            self.warn(path.key("delivered"), said);
        }
    }

    /// Two sources on one table are two names for the same work, unless they take different messages.
    fn sharing(&mut self) {
        let enabled: Vec<_> = self.config.source.iter().filter(|(_, source)| source.enabled).collect();
        for (at, (name, source)) in enabled.iter().enumerate() {
            if let Some((other, _)) = enabled[..at].iter().find(|(_, other)| share(other, source)) {
                let said = format!(
                    "source {other:?} has the same url and table, and which of the two takes a message would be chance; \
                     give them different namespaces or tenants, or make them one"
                );
                self.refuse(KeyPath::from(["source", name, "url"]), &said);
            }
        }
    }
}

fn share(one: &Source, other: &Source) -> bool {
    let (Some(url), Some(other_url)) = (&one.url, &other.url) else { return false };
    let same_tenant = one.tenant.is_none() || other.tenant.is_none() || one.tenant == other.tenant;
    let same_namespace = match (&one.namespaces, &other.namespaces) {
        (Some(names), Some(others)) => names.iter().any(|name| others.contains(name)),
        _ => true,
    };
    let same_table =
        is_same(url.expose(), other_url.expose()) && one.schema == other.schema && one.table == other.table;
    same_table && same_tenant && same_namespace
}

const BASE: &str = "backoff base_delay";
const MAX: &str = "backoff max_delay";

/// The key of a dispatcher's setting, if it has one: others follow from those that have.
fn key_of(setting: &str) -> Option<&'static str> {
    let keys = [
        ("batch_size", "batch_size"),
        ("concurrency", "concurrency"),
        ("max_attempts", "max_attempts"),
        ("lease", "lease"),
        ("a third of the lease", "lease"),
        ("poll_interval", "poll_interval"),
        ("tenant", "tenant"),
        ("tenant_metrics", "tenant_metrics_max"),
        ("publish_timeout", "publish_timeout"),
        ("shutdown_grace", "shutdown_grace"),
        (BASE, "retry_base"),
        (MAX, "retry_max"),
    ];
    keys.iter().find(|(known, _)| *known == setting).map(|(_, key)| *key)
}
