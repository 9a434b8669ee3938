//! Checks of the routes, and of what they leave out.

use postrider::route::InvalidDestination;
use postrider::{Destination, name};
use postrider_sinks::Binding;
use postrider_sinks::setting::duration;
use wildmatch::WildMatch;

use super::{Check, suggest};
use crate::config::model::{Route, Source};
use crate::config::problem::KeyPath;
use crate::config::sink::Sink;

impl Check<'_> {
    pub(super) fn routes(&mut self) {
        for (at, route) in self.config.route.iter().enumerate() {
            let path = KeyPath::from(["route"]).index(at);
            self.ends(&path, route);
            self.pattern(&path, "namespace", route.namespace.as_deref());
            self.pattern(&path, "topic", route.topic.as_deref());
            self.binding(&path, route);
            self.time_limits(route);
            self.changelog_route(at, route);
            if let Some(earlier) = self.config.route[..at].iter().position(|earlier| covers(earlier, route)) {
                let said = format!("route[{earlier}] takes all of its messages; move this one up, or remove it");
                self.warn(path, &said);
            }
        }
        self.left_out();
    }

    fn ends(&mut self, path: &KeyPath, route: &Route) {
        let declared = self.declared;
        if let Some(source) = route.source.as_deref().filter(|name| !declared.sources.contains(*name)) {
            let said = format!("there is no such source; {}", suggest(source, &declared.sources, "source"));
            self.refuse(path.key("source"), &said);
        }
        if !self.tree.has(&path.key("sink")) && route.sink.is_empty() {
            self.refuse(path.clone(), "it has no sink; add one, such as sink = \"NAME\"");
        } else if !declared.sinks.contains(&route.sink) {
            let said = format!("there is no such sink; {}", suggest(&route.sink, &declared.sinks, "sink"));
            self.refuse(path.key("sink"), &said);
        }
    }

    /// A pattern that no name could match is a mistake.
    fn pattern(&mut self, path: &KeyPath, what: &'static str, pattern: Option<&str>) {
        let Some(pattern) = pattern else { return };
        if let Err(error) = name::check(what, &pattern.replace(['*', '?'], "x")) {
            self.refuse(path.key(what), &error.to_string());
        }
    }

    fn binding(&mut self, path: &KeyPath, route: &Route) {
        let destination = match route.destination.as_deref().map(str::parse::<Destination>).transpose() {
            Ok(destination) => destination,
            // What is in the braces is repeated only if it is a word: anything may have got there.
            Err(InvalidDestination::UnknownField { found }) if !found.chars().all(|c| c.is_ascii_alphabetic()) => {
                let said = "the destination has an unknown field; use {namespace}, {topic}, {key} or {tenant}";
                return self.refuse(path.key("destination"), said);
            }
            Err(error) => return self.refuse(path.key("destination"), &error.to_string()),
        };
        let Some(sink) = self.config.sink.get(&route.sink).map(Sink::config) else { return };
        // What is wrong with the sink's own settings is said of the sink.
        if sink.problems().is_empty()
            && let Err(problem) = sink.check_binding(&Binding { destination, format: route.format })
        {
            self.refuse(path.key(&problem.field), &problem.what);
        }
    }

    /// A request that is cut off by the dispatcher would be sent again although it may have arrived.
    fn time_limits(&mut self, route: &Route) {
        let sink = self.config.sink.get(&route.sink).map(Sink::config);
        let Some(longest) = sink.and_then(|sink| sink.longest_publish()) else { return };
        let ours = |name: &String| route.source.as_ref().is_none_or(|wanted| wanted == name);
        for (name, source) in self.config.source.iter().filter(|(name, source)| source.enabled && ours(name)) {
            if source.publish_timeout <= longest {
                let said = format!(
                    "it must be longer than what sink {:?} may take for a publish, {}, or messages would be cut off and sent again; raise it, or lower the sink's timeout",
                    route.sink,
                    duration::format(longest)
                );
                self.refuse(KeyPath::from(["source", name, "publish_timeout"]), &said);
            }
        }
    }

    fn left_out(&mut self) {
        for sink in self.config.sink.keys().filter(|name| self.config.route.iter().all(|route| route.sink != **name)) {
            self.warn(KeyPath::from(["sink", sink]), "no route leads to it; add a [[route]], or remove it");
        }
        let config = self.config;
        for (name, source) in config.source.iter().filter(|(_, source)| source.enabled) {
            if !config.dispatches(name) {
                continue;
            }
            let routes: Vec<&Route> = config.routes_of(name).collect();
            let path = KeyPath::from(["source", name]);
            if routes.is_empty() {
                self.warn(path, "no route is for its messages, so all of them will wait; add a [[route]]");
            } else if !complete(source, &routes) {
                let said = "messages that match no route will wait; add a last [[route]] without namespace and topic";
                self.warn(path, said);
            }
        }
    }
}

/// Whether every message of the source has a route.
fn complete(source: &Source, routes: &[&Route]) -> bool {
    let mut routes = routes.iter().filter(|route| is_all(route.topic.as_deref()));
    match &source.namespaces {
        None => routes.any(|route| is_all(route.namespace.as_deref())),
        Some(names) => {
            let routes: Vec<_> =
                routes.map(|route| WildMatch::new(route.namespace.as_deref().unwrap_or("*"))).collect();
            names.iter().all(|name| routes.iter().any(|pattern| pattern.matches(name)))
        }
    }
}

fn is_all(pattern: Option<&str>) -> bool {
    pattern.is_none_or(|pattern| !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*'))
}

/// Whether everything that the later route matches is taken by the earlier one.
fn covers(earlier: &Route, later: &Route) -> bool {
    !(earlier.changelog || later.changelog)
        && (earlier.source.is_none() || earlier.source == later.source)
        && pattern_covers(earlier.namespace.as_deref(), later.namespace.as_deref())
        && pattern_covers(earlier.topic.as_deref(), later.topic.as_deref())
}

/// Without `?` in the first, a wildcard of the second can only be matched by a `*` of the first: then the second pattern
/// may be matched as if it were a name. With `?` only names and the same pattern are certain.
fn pattern_covers(first: Option<&str>, second: Option<&str>) -> bool {
    let (first, second) = (first.unwrap_or("*"), second.unwrap_or("*"));
    let certain = !first.contains('?') || !second.contains(['*', '?']);
    first == second || (certain && WildMatch::new(first).matches(second))
}
