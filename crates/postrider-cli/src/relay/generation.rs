//! Everything that one configuration asks for, while it is in force.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use postrider::any::AnyStore;
use postrider::{BreakerConfig, Dispatcher, Pulse, Route, Router, StoreError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::sinks::Sinks;
use crate::config::{Config, Relay, Source};
use crate::exit::{Failure, with_causes};
use crate::target::{self, Missing};

/// How long to wait before a database that does not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How long to wait before a dispatcher that failed begins anew.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// When a generation is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the start of the process: a database that does not answer yet is waited for.
    First,
    /// In place of one that works: everything must answer.
    Reload,
}

/// A source and its signs of life.
pub struct Line {
    pub name: String,
    pub store: AnyStore,
    source: Source,
    relay: Relay,
    /// Whether its database has answered and its schema is right.
    checked: bool,
    pulse: Mutex<Option<Pulse>>,
    pub since: Instant,
}

impl Line {
    /// The dispatcher's signs of life, once there is one.
    pub fn pulse(&self) -> Option<Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Checked and connected, but not delivering yet.
pub struct Prepared {
    lines: Vec<(Arc<Line>, Arc<Router>)>,
    sinks: Sinks,
    config: Config,
}

/// A generation that delivers.
pub struct Generation {
    pub lines: Vec<Arc<Line>>,
    pub sinks: Sinks,
    pub config: Config,
    stop: CancellationToken,
    running: Mutex<JoinSet<usize>>,
}

impl Generation {
    pub async fn start(config: &Config, start: Start) -> Result<Self, Failure> {
        Ok(Self::prepare(config, start).await?.begin())
    }

    /// Makes sinks and stores, and asks the databases.
    pub async fn prepare(config: &Config, start: Start) -> Result<Prepared, Failure> {
        let sinks = Sinks::make(config).map_err(Failure::usage)?;
        let mut routers = routers(config, &sinks).map_err(Failure::usage)?;
        let mut lines = Vec::new();
        for (name, source) in config.source.iter().filter(|(_, source)| source.enabled) {
            let said = |failure: Failure| failure.after(&format!("source {name:?}: "));
            let missing = if source.migrate { Missing::Make } else { Missing::Refuse };
            let store = target::connect(source, missing).await.map_err(said)?;
            let checked = match prepare_store(&store, source).await {
                Err(error) if start == Start::First && error.kind().is_transient() => {
                    tracing::warn!(source = name, "the database does not answer yet: {}", with_causes(&error));
                    false
                }
                done => done.map(|()| true).map_err(Failure::from).map_err(said)?,
            };
            let line = Line {
                name: name.clone(),
                store,
                source: source.clone(),
                relay: config.relay.clone(),
                checked,
                pulse: Mutex::default(),
                since: Instant::now(),
            };
            let Some(router) = routers.remove(name) else { continue };
            // Settings that disagree are found here and not when the dispatcher is needed.
            dispatcher(&line, router.clone()).map_err(|error| said(Failure::usage(error.to_string())))?;
            lines.push((Arc::new(line), router));
        }
        Ok(Prepared { lines, sinks, config: config.clone() })
    }

    /// Stops delivering, and answers how many publishes were cut off.
    pub async fn stop(&self) -> usize {
        self.stop.cancel();
        let mut running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        let mut abandoned = 0;
        while let Some(ended) = running.join_next().await {
            abandoned += ended.unwrap_or(0);
        }
        abandoned
    }
}

impl Prepared {
    /// Begins to deliver.
    pub fn begin(self) -> Generation {
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        for (line, router) in &self.lines {
            tracing::info!(source = line.name, database = line.store.kind(), "delivering");
            running.spawn(deliver(line.clone(), router.clone(), stop.clone()));
        }
        Generation {
            lines: self.lines.into_iter().map(|(line, _)| line).collect(),
            sinks: self.sinks,
            config: self.config,
            stop,
            running: Mutex::new(running),
        }
    }
}

async fn prepare_store(store: &AnyStore, source: &Source) -> Result<(), StoreError> {
    store.ping().await?;
    if source.migrate {
        store.migrate().await?;
    }
    store.check_schema().await
}

/// A router per source, from the routes that are for it.
pub fn routers(config: &Config, sinks: &Sinks) -> Result<BTreeMap<String, Arc<Router>>, String> {
    let mut routers = BTreeMap::new();
    for name in config.source.keys() {
        let mut routes = Vec::new();
        let ours = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == name);
        for (at, route) in config.route.iter().enumerate().filter(|(_, route)| ours(&route.source)) {
            let sink = sinks.bind(at, route)?;
            let mut bound = Route::to(&route.sink, sink);
            if let Some(pattern) = &route.namespace {
                bound = bound.namespace(pattern);
            }
            if let Some(pattern) = &route.topic {
                bound = bound.topic(pattern);
            }
            routes.push(bound);
        }
        routers.insert(name.clone(), Arc::new(Router::new(routes, BreakerConfig::default()).named(name)));
    }
    Ok(routers)
}

/// Delivers the messages of a source until it is told to stop; answers how many publishes were cut off.
async fn deliver(line: Arc<Line>, router: Arc<Router>, stop: CancellationToken) -> usize {
    // A database that was down at the start is checked when it answers.
    while !line.checked
        && let Err(error) = prepare_store(&line.store, &line.source).await
    {
        tracing::warn!(source = line.name, "not delivering yet: {}", with_causes(&error));
        if stop.run_until_cancelled(tokio::time::sleep(RETRY_PAUSE)).await.is_none() {
            return 0;
        }
    }
    loop {
        let dispatcher = match dispatcher(&line, router.clone()) {
            Ok(dispatcher) => dispatcher,
            Err(error) => {
                tracing::error!(source = line.name, "the dispatcher cannot be built: {error}");
                return 0;
            }
        };
        *line.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatcher.pulse());
        match AssertUnwindSafe(dispatcher.run(stop.clone())).catch_unwind().await {
            Ok(ended) => return ended.abandoned,
            Err(_) => tracing::error!(source = line.name, "the dispatcher failed; it begins anew, please report it"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await.is_none() {
            return 0;
        }
    }
}

fn dispatcher(line: &Line, router: Arc<Router>) -> Result<Dispatcher, postrider::ConfigError> {
    line.source.dispatcher(&line.name, &line.relay, line.store.store(), router).build()
}
