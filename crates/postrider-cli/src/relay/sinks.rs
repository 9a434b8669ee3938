//! The sinks of a configuration, made once and bound to the destination of each route.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::operate::Finding;
use postrider::{Destination, Sink};
#[cfg(feature = "http")]
use postrider_sinks::HttpConfig;
use postrider_sinks::{Binding, SinkClient};
use tokio::time::timeout;

#[cfg(feature = "http")]
use crate::config;
use crate::config::{Config, Route};
use crate::output::span;

/// How long a destination may take to answer when it is examined.
const PATIENCE: Duration = Duration::from_secs(5);

/// All sinks, by their names.
pub struct Sinks {
    made: BTreeMap<String, Box<dyn SinkClient>>,
    bound: Mutex<BTreeMap<String, Vec<Arc<dyn Sink>>>>,
}

impl Sinks {
    /// Makes every sink; the error says which cannot be made.
    pub fn make(config: &Config) -> Result<Self, String> {
        let mut made = BTreeMap::new();
        for (name, sink) in &config.sink {
            let client = sink.config().client(name).map_err(|problem| format!("sink.{name}.{problem}"))?;
            made.insert(name.clone(), client);
        }
        Ok(Self { made, bound: Mutex::default() })
    }

    /// The sink of a route.
    pub fn bind(&self, at: usize, route: &Route) -> Result<Arc<dyn Sink>, String> {
        let said = |why: String| format!("route {} to {:?}: {why}", at + 1, route.sink);
        let client = self.made.get(&route.sink).ok_or_else(|| said("there is no such sink".into()))?;
        let destination = route.destination.as_deref().map(str::parse::<Destination>).transpose();
        let destination = destination.map_err(|why| said(why.to_string()))?;
        let sink = client.bind(Binding { destination, format: route.format });
        let sink = sink.map_err(|problem| said(problem.to_string()))?;
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.entry(route.sink.clone()).or_default().push(sink.clone());
        Ok(sink)
    }

    /// The sinks that routes lead to, by their names.
    pub fn bound(&self) -> BTreeMap<String, Vec<Arc<dyn Sink>>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks whether every destination answers, and at the sinks' limits.
    pub async fn examine(&self, config: &Config) -> Vec<(String, Vec<Finding>)> {
        let mut examined = Vec::new();
        for (name, sinks) in self.bound() {
            let mut findings = Vec::new();
            for sink in sinks {
                let answer = timeout(PATIENCE, sink.ready()).await;
                findings.push(match answer.unwrap_or_else(|_| Err(format!("no answer within {}", span(PATIENCE)))) {
                    Ok(()) => Finding::fine("sink-answers", "the destination answers"),
                    Err(why) => Finding::problem(
                        "sink-answers",
                        format!("the destination does not answer: {why}"),
                        "start it, mend its address in the sink or the route, or allow its network if it is an http sink",
                    ),
                });
            }
            findings.extend(limits(&name, config));
            examined.push((format!("sink {name}"), findings));
        }
        let unused = self.made.keys().filter(|name| !self.bound().contains_key(*name)).cloned().collect::<Vec<_>>();
        for name in unused {
            let finding = Finding::warning("sink-unused", "no route leads to it", "add a route, or remove the sink");
            examined.push((format!("sink {name}"), vec![finding]));
        }
        examined
    }
}

/// What is wrong with a sink's settings beside those of the sources, or what is missing.
fn limits(name: &str, config: &Config) -> Vec<Finding> {
    match config.sink.get(name) {
        #[cfg(feature = "http")]
        Some(config::Sink::Http(http)) => http_limits(name, http, config),
        _ => Vec::new(),
    }
}

#[cfg(feature = "http")]
fn http_limits(name: &str, http: &HttpConfig, config: &Config) -> Vec<Finding> {
    let sources = config.source.iter().filter(|(_, source)| source.enabled && source.concurrency < http.concurrency);
    let mut findings: Vec<Finding> = sources
        .map(|(source, settings)| {
            Finding::warning(
                "sink-limits",
                format!(
                    "source {source:?} makes {} publish calls at a time, the sink allows {} to one origin: one slow origin can take them all",
                    settings.concurrency, http.concurrency
                ),
                format!("raise source.{source}.concurrency, or lower sink.{name}.concurrency"),
            )
        })
        .collect();
    if http.signing_keys.is_empty() {
        let fix = format!("give sink.{name}.signing_keys, so that receivers can tell your requests from others'");
        findings.push(Finding::warning("sink-unsigned", "requests are not signed", fix));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("sink-limits", "time limits and concurrency fit the sources'"));
    }
    findings
}
