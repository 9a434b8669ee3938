//! Whether the relay makes progress, and whether what it needs answers.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::generation::{Generation, Line};
use crate::config::Admin;
use crate::exit::with_causes;
use crate::output::span;

/// How long a database or a sink may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer about readiness holds, so that many who ask do not burden the databases.
const FRESH: Duration = Duration::from_secs(1);

/// The generation in force. Cheap to clone.
#[derive(Clone)]
pub struct Current {
    generation: Arc<RwLock<Arc<Generation>>>,
    readiness: Arc<Mutex<Option<(Instant, Answer)>>>,
}

/// An answer to a health check.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub good: bool,
    pub body: Value,
}

impl Current {
    pub fn new(generation: Arc<Generation>) -> Self {
        Self { generation: Arc::new(RwLock::new(generation)), readiness: Arc::default() }
    }

    pub fn generation(&self) -> Arc<Generation> {
        self.generation.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, generation: Arc<Generation>) {
        *self.generation.write().unwrap_or_else(PoisonError::into_inner) = generation;
    }

    /// Whether no loop is stuck, which a restart would mend. Databases and sinks that are down it would not.
    pub fn is_alive(&self) -> bool {
        let generation = self.generation();
        let limit = generation.config.admin.stalled_after;
        generation.lines.iter().filter_map(|line| line.pulse()).all(|pulse| pulse.signs().turned <= limit)
    }

    /// Whether every source makes progress.
    pub fn health(&self) -> Answer {
        let generation = self.generation();
        let sources: Vec<(bool, Value)> =
            generation.lines.iter().map(|line| progress(line, &generation.config.admin)).collect();
        let good = sources.iter().all(|(good, _)| *good);
        let sources: Vec<Value> = sources.into_iter().map(|(_, source)| source).collect();
        Answer { good, body: json!({ "healthy": good, "sources": sources }) }
    }

    /// Whether every database and every sink answers, and no row is hidden from the relay.
    pub async fn readiness(&self) -> Answer {
        let mut last = self.readiness.lock().await;
        if let Some((asked, answer)) = &*last
            && asked.elapsed() < FRESH
        {
            return answer.clone();
        }
        let generation = self.generation();
        let databases = join_all(generation.lines.iter().map(|line| async {
            let answer = timeout(PATIENCE, async {
                line.store.ping().await?;
                line.look_for_hidden().await
            });
            let answer = answer.await;
            let why = match answer {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(with_causes(&error)),
                Err(_) => Some(no_answer()),
            };
            (line.name.clone(), why)
        }));
        let sinks = join_all(generation.sinks.bound().into_iter().map(|(name, sinks)| async move {
            let answers = join_all(sinks.iter().map(|sink| timeout(PATIENCE, sink.ready()))).await;
            let failing: Vec<String> =
                answers.into_iter().filter_map(|answer| answer.unwrap_or_else(|_| Err(no_answer())).err()).collect();
            (name, sinks.len(), failing)
        }));
        let (databases, sinks) = tokio::join!(databases, sinks);
        // A sink that leads to several places is ready if one of them answers; the body tells of the others.
        let is_ready = |(_, routes, failing): &(String, usize, Vec<String>)| failing.len() < *routes;
        let good = databases.iter().all(|(_, why)| why.is_none()) && sinks.iter().all(is_ready);
        let sources: Vec<Value> =
            databases.iter().map(|(name, why)| json!({ "name": name, "ready": why.is_none(), "why": why })).collect();
        let sinks: Vec<Value> = sinks
            .iter()
            .map(|sink| json!({ "name": sink.0, "ready": is_ready(sink), "routes": sink.1, "failing": sink.2 }))
            .collect();
        let body = json!({ "ready": good, "sources": sources, "sinks": sinks });
        let answer = Answer { good, body };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

fn no_answer() -> String {
    format!("no answer within {}", span(PATIENCE))
}

/// A source with the routes of its changelog: red when any of them is.
fn progress(line: &Line, limits: &Admin) -> (bool, Value) {
    let (mut good, mut body) = match line.dispatches {
        true => messages(line, limits),
        false => (true, json!({ "name": line.name, "healthy": true, "why": null })),
    };
    if !line.carriers.is_empty() {
        let routes: Vec<(bool, Value)> = line.carriers.iter().map(|carrier| carrier.signs.health(limits)).collect();
        if good && let Some((_, red)) = routes.iter().find(|(good, _)| !good) {
            (good, body["healthy"]) = (false, false.into());
            body["why"] = format!("changelog route {}: {}", red["route"], red["why"].as_str().unwrap_or("")).into();
        }
        body["changelog"] = routes.into_iter().map(|(_, route)| route).collect();
    }
    (good, body)
}

/// Red when rows are hidden, the loop is stuck, the database does not answer, or the oldest due message is too old while nothing gets settled.
fn messages(line: &Line, limits: &Admin) -> (bool, Value) {
    let Some(signs) = line.pulse().map(|pulse| pulse.signs()) else {
        let waited = line.since.elapsed();
        let good = waited < limits.stalled_after;
        let why = format!("the database has not answered since the start, {} ago", span(waited));
        return (good, json!({ "name": line.name, "healthy": good, "why": why }));
    };
    let stats = signs.stats.map(|(stats, _)| stats).unwrap_or_default();
    let oldest_due = stats.oldest_due;
    let why = if let Some(hidden) = line.hidden() {
        Some(hidden)
    } else if signs.turned > limits.stalled_after {
        Some(format!("the loop is stuck since {}", span(signs.turned)))
    } else if signs.looked > limits.stalled_after {
        Some(format!("the database answered last {} ago", span(signs.looked)))
    } else if oldest_due > limits.oldest_due_limit && signs.settled > limits.oldest_due_limit {
        Some(format!(
            "the oldest due message has waited for {}, and none was settled for {}",
            span(oldest_due),
            span(signs.settled)
        ))
    } else {
        None
    };
    let body = json!({
        "name": line.name,
        "healthy": why.is_none(),
        "why": why,
        "turned_seconds_ago": signs.turned.as_secs_f64(),
        "answered_seconds_ago": signs.looked.as_secs_f64(),
        "settled_seconds_ago": signs.settled.as_secs_f64(),
        "sink_down": signs.breaker_open,
        "due": stats.due,
        "dead": stats.dead,
        "oldest_due_seconds": oldest_due.as_secs_f64(),
    });
    (why.is_none(), body)
}
