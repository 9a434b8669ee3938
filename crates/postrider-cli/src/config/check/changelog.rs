//! Checks of the changelogs, and of the routes that are for them.

use std::time::Duration;

use super::{Check, is_name};
use crate::config::database::is_same;
use crate::config::model::{Changelog, Route, Source};
use crate::config::problem::KeyPath;

/// The shortest lease of a route.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// The longest one.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);
/// The shortest pause between two looks: a shorter one would only burden the database.
const SHORTEST_POLL: Duration = Duration::from_millis(10);

impl Check<'_> {
    /// The settings of a source's changelog.
    pub(super) fn changelog(&mut self, source_path: &KeyPath, source: &Source) {
        let path = source_path.key("changelog");
        let Changelog { enabled, serve, token, poll_interval, lease } = &source.changelog;
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(lease) {
            self.refuse(path.key("lease"), &format!("lease is {lease:?}; it must be from 1 s to 24 h"));
        } else if *poll_interval < SHORTEST_POLL {
            let said = format!("poll_interval is {poll_interval:?}; it must be 10 ms or more");
            self.refuse(path.key("poll_interval"), &said);
        } else if *poll_interval > *lease / 3 {
            let at = if self.tree.has(&path.key("poll_interval")) { "poll_interval" } else { "lease" };
            let said = format!(
                "poll_interval ({poll_interval:?}) must be at most a third of the lease ({:?}); lower the first or raise the second",
                *lease / 3
            );
            self.refuse(path.key(at), &said);
        } else if *enabled && *poll_interval > self.config.admin.stalled_after.max(SHORTEST_LEASE) {
            let said = "it is longer than stalled_after of admin, so health would be red without cause; lower the first or raise the second";
            self.refuse(path.key("poll_interval"), said);
        }
        if let Some(token) = token
            && (token.expose().is_empty() || !token.expose().bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let said = "this cannot be sent as a bearer token; use letters, digits and punctuation without spaces";
            self.refuse(path.key("token"), said);
        }
        if *serve && !*enabled {
            self.refuse(path.key("serve"), "the changelog is not read; set enabled = true beside it, or remove serve");
        }
        if *enabled && source.tenant.is_some() {
            let said = "its entries have no tenant, they are those of all, and this source is for one tenant only; read it with a source without a tenant";
            self.refuse(path.key("enabled"), said);
        }
        if source.enabled && *enabled {
            self.readers(source_path, source);
        }
    }

    /// How many connections are at work for a source's changelog: one for each route, and two for those who read it over HTTP.
    pub(super) fn connections_for_changelog(&self, name: &str, source: &Source) -> u32 {
        if !source.changelog.enabled {
            return 0;
        }
        let routes = u32::try_from(self.config.changelog_routes_of(name).count()).unwrap_or(u32::MAX);
        routes.saturating_add(if source.changelog.serve { 2 } else { 0 }).min(900)
    }

    /// Who reads the changelog, and who else could.
    fn readers(&mut self, source_path: &KeyPath, source: &Source) {
        let admin = &self.config.admin;
        let path = source_path.key("changelog");
        let of_source = |route: &&Route| {
            route.changelog && route.source.as_ref().is_some_and(|name| KeyPath::from(["source", name]) == *source_path)
        };
        if !source.changelog.serve && !self.config.route.iter().any(|route| of_source(&route)) {
            self.warn(
                path.key("enabled"),
                "nobody reads it; add a [[route]] with changelog = true, or set serve = true",
            );
        }
        if source.changelog.serve && !admin.enabled {
            self.warn(path.key("serve"), "there is no admin endpoint to serve it; set admin.enabled = true");
        } else if source.changelog.serve && source.changelog.token.is_none() && !admin.listen.ip().is_loopback() {
            let said = "other machines can read all entries with their payloads; give a token, or listen on 127.0.0.1";
            self.warn(path.key("serve"), said);
        }
    }

    /// What is particular to a route that is for a changelog, and what is for no other.
    pub(super) fn changelog_route(&mut self, at: usize, route: &Route) {
        let path = KeyPath::from(["route"]).index(at);
        if !route.changelog {
            if route.name.is_some() {
                let said = "only the position of a changelog route has a name; remove it, or add changelog = true";
                self.refuse(path.key("name"), said);
            }
            return;
        }
        for (key, pattern) in [("namespace", &route.namespace), ("topic", &route.topic)] {
            if pattern.is_some() {
                let said = "an entry of the changelog is a whole unit of work and has none; remove it";
                self.refuse(path.key(key), said);
            }
        }
        match &route.source {
            None => {
                let said = "it is for a changelog and does not say of which source; add source = \"NAME\"";
                self.refuse(path.key("changelog"), said);
            }
            Some(name) => {
                if self.config.source.get(name).is_some_and(|source| !source.changelog.enabled) {
                    let said = format!(
                        "the changelog of source {name:?} is not read; set source.{name}.changelog.enabled = true"
                    );
                    self.refuse(path.key("source"), &said);
                }
            }
        }
        match &route.name {
            None => {
                let said = "it is for a changelog and has no name to keep its position under; add name = \"NAME\"";
                self.refuse(path.key("changelog"), said);
            }
            Some(name) if !is_name(name) => {
                self.refuse(path.key("name"), "this is not a good name; use up to 64 letters, digits, - and single _");
            }
            Some(_) => self.one_position(at, route),
        }
    }

    /// Two routes with one position would take entries from each other.
    fn one_position(&mut self, at: usize, route: &Route) {
        let same =
            |earlier: &Route| earlier.changelog && earlier.name == route.name && self.share_changelog(earlier, route);
        if let Some(earlier) = self.config.route[..at].iter().position(same) {
            let said = format!(
                "route[{earlier}] has the same name and changelog, so one of the two would get nothing; choose another name"
            );
            self.refuse(KeyPath::from(["route"]).index(at).key("name"), &said);
        }
    }

    fn share_changelog(&self, one: &Route, other: &Route) -> bool {
        let source = |route: &Route| route.source.as_ref().and_then(|name| self.config.source.get(name));
        let (Some(first), Some(second)) = (source(one), source(other)) else { return false };
        let (Some(url), Some(other_url)) = (&first.url, &second.url) else { return one.source == other.source };
        one.source == other.source
            || (is_same(url.expose(), other_url.expose())
                && (&first.schema, &first.prefix) == (&second.schema, &second.prefix))
    }
}
