//! Everything that one configuration asks for, while it is in force.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::join_all;
use postrider::any::AnyStore;
use postrider::store::StoreErrorKind;
use postrider::{BreakerConfig, Dispatcher, Pulse, Route, Router, StoreError};
use postrider_changelog::ChangelogError;
use tokio_util::sync::CancellationToken;

use super::changelog::Carrier;
use super::changelog::serve::Served;
use super::sinks::Sinks;
use crate::config::{Config, Relay, Source};
use crate::exit::{Failure, with_causes};
use crate::target::{self, Missing};
use crate::tenants;

/// How long to wait before a database that does not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How long to wait before a dispatcher that failed begins anew.
const RESTART_PAUSE: Duration = Duration::from_secs(5);
/// How often to look whether row security has come to hide rows from the relay.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// When a generation is started.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// At the start of the process: a database that does not answer yet is waited for.
    First,
    /// In place of another configuration: databases must answer, but for those that were there before.
    Reload(&'a Config),
}

impl Start<'_> {
    /// Whether a source may be down.
    fn tolerates(self, name: &str, source: &Source) -> bool {
        let url = |source: &Source| source.url.as_ref().map(|url| url.expose().to_owned());
        match self {
            Self::First => true,
            Self::Reload(old) => old.source.get(name).is_some_and(|old| url(old) == url(source)),
        }
    }
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
    /// What hides rows from its role, as it was seen last.
    hidden: Mutex<Option<String>>,
    pub since: Instant,
    stop: CancellationToken,
    drained: CancellationToken,
    abandoned: AtomicUsize,
    /// Whether its messages are delivered, or only its changelog.
    pub dispatches: bool,
    /// The routes of its changelog.
    pub carriers: Vec<Carrier>,
    /// Its changelog, if it is served.
    pub served: Option<Arc<Served>>,
}

impl Line {
    /// The dispatcher's signs of life, once there is one.
    pub fn pulse(&self) -> Option<Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What hides rows from its role, as it was seen last: it finds nothing to do, and is not well.
    pub fn hidden(&self) -> Option<String> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks whether row security hides rows from its role, which may begin while it runs; says so once. A database that
    /// does not answer tells nothing of it.
    pub async fn look_for_hidden(&self) -> Result<(), StoreError> {
        if !self.dispatches {
            return Ok(());
        }
        let looked = self.store.check_row_security().await;
        let now = match &looked {
            Err(error) if error.kind() != StoreErrorKind::Refused => return looked,
            Err(error) => Some(with_causes(error)),
            Ok(()) => None,
        };
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*hidden, &now) {
            (None, Some(why)) => tracing::error!(source = self.name, "{why}"),
            (Some(_), None) => tracing::info!(source = self.name, "row security shows all rows again"),
            _ => {}
        }
        *hidden = now;
        looked
    }

    /// Makes what its changelog is read with.
    fn open_changelog(&mut self, routes: Vec<(String, Arc<Router>)>, config: &Config) -> Result<(), Failure> {
        let settings = &self.source.changelog;
        if !settings.enabled || (routes.is_empty() && !settings.serve) {
            return Ok(());
        }
        let reader = postrider_changelog::open(&self.store).map_err(|error| Failure::usage(error.to_string()))?;
        for (route, sink) in routes {
            let carrier = Carrier::new((&self.name, &self.source), &route, config, reader.clone(), sink);
            let said = |error: ChangelogError| Failure::usage(format!("route {route:?}: {error}"));
            self.carriers.push(carrier.map_err(said)?);
        }
        if settings.serve {
            self.served = Some(Arc::new(Served::new(reader, settings, self.stop.clone())));
        }
        Ok(())
    }

    /// Waits until it has drained; answers how many publishes were cut off.
    async fn drained(&self) -> usize {
        self.drained.cancelled().await;
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// Checked and connected, but not delivering yet.
pub struct Prepared {
    lines: Vec<(Arc<Line>, Option<Arc<Router>>)>,
    sinks: Sinks,
    config: Config,
}

/// The routes of a source.
pub struct Routes {
    /// For its messages, if they are delivered.
    outbox: Option<Arc<Router>>,
    /// For the entries of its changelog, by their names.
    changelog: Vec<(String, Arc<Router>)>,
}

/// A generation that delivers.
pub struct Generation {
    pub lines: Vec<Arc<Line>>,
    pub sinks: Sinks,
    pub config: Config,
    /// Lines of earlier generations, which may still drain.
    before: Vec<Arc<Line>>,
}

impl Generation {
    /// Makes sinks and stores, and asks the databases, all at once.
    pub async fn prepare(config: &Config, start: Start<'_>) -> Result<Prepared, Failure> {
        let sinks = Sinks::make(config).map_err(Failure::usage)?;
        let mut routers = routers(config, &sinks).map_err(Failure::usage)?;
        let enabled = config.source.iter().filter(|(_, source)| source.enabled);
        let lines = join_all(enabled.map(|(name, source)| line(name, source, config, start))).await;
        let mut prepared = Vec::new();
        for line in lines {
            let mut line = line?;
            let Some(Routes { outbox, changelog }) = routers.remove(&line.name) else { continue };
            // Settings that disagree are found here and not when the dispatcher is needed.
            if let Some(router) = &outbox {
                dispatcher(&line, router.clone()).map_err(|error| Failure::usage(error.to_string()))?;
            }
            line.dispatches = outbox.is_some();
            line.open_changelog(changelog, config)?;
            prepared.push((Arc::new(line), outbox));
        }
        Ok(Prepared { lines: prepared, sinks, config: config.clone() })
    }

    /// Stops delivering, and answers how many publishes were cut off. It may be called again and given up at any time.
    pub async fn stop(&self) -> usize {
        self.lines.iter().for_each(|line| line.stop.cancel());
        let mut abandoned = 0;
        let draining: Vec<_> = self.before.iter().filter(|line| !line.drained.is_cancelled()).collect();
        for line in self.lines.iter().chain(draining) {
            abandoned += line.drained().await;
        }
        abandoned
    }
}

async fn line(name: &str, source: &Source, config: &Config, start: Start<'_>) -> Result<Line, Failure> {
    let said = |failure: Failure| failure.after(&format!("source {name:?}: "));
    let missing = if source.migrate { Missing::Make } else { Missing::Refuse };
    let store = target::connect(source, missing).await.map_err(said)?;
    let checked = match prepare_store(&store, name, source).await {
        Err(error) if error.kind().is_transient() && start.tolerates(name, source) => {
            tracing::warn!(source = name, "the database does not answer yet: {}", with_causes(&error));
            false
        }
        done => done.map(|()| true).map_err(Failure::from).map_err(said)?,
    };
    Ok(Line {
        name: name.to_owned(),
        store,
        source: source.clone(),
        relay: config.relay.clone(),
        checked,
        pulse: Mutex::default(),
        hidden: Mutex::default(),
        since: Instant::now(),
        stop: CancellationToken::new(),
        drained: CancellationToken::new(),
        abandoned: AtomicUsize::new(0),
        dispatches: true,
        carriers: Vec::new(),
        served: None,
    })
}

impl Prepared {
    /// Whether there will be no such source.
    pub fn has_not(&self, name: &str) -> bool {
        self.lines.iter().all(|(line, _)| line.name != name)
    }

    /// Begins to deliver. Each source goes on as soon as its own dispatcher of the generation before has drained: none
    /// waits for another one's, and no message waits for a lease.
    pub fn begin(self, old: Option<&Generation>) -> Generation {
        let before: Vec<Arc<Line>> = old.map_or_else(Vec::new, |old| {
            old.lines.iter().for_each(|line| line.stop.cancel());
            let draining = old.lines.iter().chain(&old.before).filter(|line| !line.drained.is_cancelled());
            draining.cloned().collect()
        });
        for (line, router) in &self.lines {
            let (line, router) = (line.clone(), router.clone());
            let earlier: Vec<_> = before.iter().filter(|earlier| earlier.name == line.name).cloned().collect();
            tokio::spawn(async move {
                let _drained = line.drained.clone().drop_guard();
                for earlier in earlier {
                    earlier.drained().await;
                }
                let abandoned = work(&line, router).await;
                line.abandoned.store(abandoned, Ordering::Relaxed);
            });
        }
        let lines = self.lines.into_iter().map(|(line, _)| line).collect();
        Generation { lines, sinks: self.sinks, config: self.config, before }
    }
}

async fn prepare_store(store: &AnyStore, name: &str, source: &Source) -> Result<(), StoreError> {
    store.ping().await?;
    if source.migrate {
        store.migrate().await?;
    }
    store.check_relay().await?;
    tenants::check(store, name, source).await
}

/// The routers of each source, from the routes that are for it.
pub fn routers(config: &Config, sinks: &Sinks) -> Result<BTreeMap<String, Routes>, String> {
    let mut routers = BTreeMap::new();
    for name in config.source.keys() {
        let mut routes = Vec::new();
        let ours = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let of_messages = config.route.iter().enumerate().filter(|(_, route)| !route.changelog && ours(&route.source));
        for (at, route) in of_messages {
            let mut bound = Route::to(&route.sink, sinks.bind(at, route)?);
            if let Some(pattern) = &route.namespace {
                bound = bound.namespace(pattern);
            }
            if let Some(pattern) = &route.topic {
                bound = bound.topic(pattern);
            }
            routes.push(bound);
        }
        let mut changelog = Vec::new();
        for (at, route) in config.changelog_routes_of(name) {
            let bound = Route::to(&route.sink, sinks.bind(at, route)?);
            changelog.push((route.name.clone().unwrap_or_default(), router(name, vec![bound])));
        }
        let outbox = config.dispatches(name).then(|| router(name, routes));
        routers.insert(name.clone(), Routes { outbox, changelog });
    }
    Ok(routers)
}

fn router(source: &str, routes: Vec<Route>) -> Arc<Router> {
    Arc::new(Router::new(routes, BreakerConfig::default()).named(source))
}

/// Does all that is to be done for a source until it is told to stop; answers how many publishes were cut off.
async fn work(line: &Line, router: Option<Arc<Router>>) -> usize {
    if !line.checked && !until_it_answers(line).await {
        return 0;
    }
    let messages = async {
        match router {
            Some(router) => deliver(line, router).await,
            None => 0,
        }
    };
    let entries = join_all(line.carriers.iter().map(|carrier| carry(line, carrier)));
    let (messages, entries, ()) = tokio::join!(messages, entries, watch(line));
    // What is only served is there until the end.
    line.stop.cancelled().await;
    messages + entries.iter().sum::<usize>()
}

/// Delivers the messages of a source until it is told to stop; answers how many publishes were cut off.
async fn deliver(line: &Line, router: Arc<Router>) -> usize {
    while !line.stop.is_cancelled() {
        let dispatcher = match dispatcher(line, router.clone()) {
            Ok(dispatcher) => dispatcher,
            Err(error) => {
                tracing::error!(source = line.name, "the dispatcher cannot be built: {error}");
                return 0;
            }
        };
        tracing::info!(source = line.name, database = line.store.kind(), "delivering");
        *line.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatcher.pulse());
        match AssertUnwindSafe(dispatcher.run(line.stop.clone())).catch_unwind().await {
            Ok(ended) => return ended.abandoned,
            Err(_) => tracing::error!(source = line.name, "the dispatcher failed; it begins anew, please report it"),
        }
        line.stop.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await;
    }
    0
}

/// Looks now and then whether rows are hidden, until it is told to stop.
async fn watch(line: &Line) {
    while line.stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        // A database that does not answer is told by the loop of the dispatcher.
        let _ = line.stop.run_until_cancelled(line.look_for_hidden()).await;
    }
}

/// Delivers the entries of a changelog route until it is told to stop; answers how many publishes were cut off.
async fn carry(line: &Line, carrier: &Carrier) -> usize {
    while !line.stop.is_cancelled() {
        match AssertUnwindSafe(carrier.run(&line.stop)).catch_unwind().await {
            Ok(abandoned) => return abandoned,
            Err(_) => tracing::error!(source = line.name, "a changelog route failed; it begins anew, please report it"),
        }
        line.stop.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await;
    }
    0
}

/// Waits for a database that was down at the start, and checks it; false if it was told to stop before.
async fn until_it_answers(line: &Line) -> bool {
    loop {
        match line.stop.run_until_cancelled(prepare_store(&line.store, &line.name, &line.source)).await {
            None => return false,
            Some(Ok(())) => return true,
            Some(Err(error)) => {
                tracing::warn!(source = line.name, "not delivering yet: {}", with_causes(&error));
            }
        }
        if line.stop.run_until_cancelled(tokio::time::sleep(RETRY_PAUSE)).await.is_none() {
            return false;
        }
    }
}

fn dispatcher(line: &Line, router: Arc<Router>) -> Result<Dispatcher, postrider::ConfigError> {
    line.source.dispatcher(&line.name, &line.relay, line.store.store(), router).build()
}
