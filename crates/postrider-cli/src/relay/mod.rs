//! `postrider run`: the relay as a program.
//!
//! A *generation* is everything that one configuration asks for: stores, sinks, routes, a dispatcher per source and a
//! carrier per changelog route. A reload checks the new configuration and starts a new generation when the old one has
//! drained; a configuration that is refused changes nothing.

mod admin;
mod changelog;
mod generation;
mod health;
mod patient;
mod service;
pub mod signals;
mod sinks;
mod telemetry;

use std::process::ExitCode;
use std::sync::Arc;

use postrider::operate::Finding;

use self::generation::{Generation, Start};
use self::signals::{Signal, Signals};
use crate::args::{Colour, Run};
use crate::config::{self, Config};
use crate::exit::{self, Failure};
use crate::target;

/// Runs until it is told to stop.
pub async fn run(arguments: Run, colour: Colour) -> Result<ExitCode, Failure> {
    let loaded = load(&arguments)?;
    let config = loaded.config;
    let telemetry = telemetry::start(&config, colour)?;
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let mut signals = Signals::listen()?;
    let admin = admin::bind(&config.admin, arguments.sink.is_some()).await?;
    // Whoever asks for a stop before all is ready gets it.
    let first = tokio::select! {
        prepared = Generation::prepare(&config, Start::First) => prepared?.begin(None),
        signal = signals.stop() => {
            tracing::info!(signal, "told to stop while starting");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let current = health::Current::new(Arc::new(first));
    let admin = admin.serve(current.clone(), telemetry.metrics.clone());
    service::ready();
    let watchdog = tokio::spawn(service::watch(current.clone()));
    let mut now = config;
    let signal = loop {
        match signals.next().await {
            Signal::Stop(signal) => break signal,
            // A reload that is not through changes nothing, so a stop need not wait for it.
            Signal::Reload => tokio::select! {
                () = reload(&arguments, &mut now, &current, &telemetry) => {}
                signal = signals.stop() => break signal,
            },
        }
    };
    tracing::info!(signal, "stopping: what has not started is given back, what has is waited for");
    service::stopping();
    watchdog.abort();
    signals.end_at_once_on_the_next();
    let abandoned = current.generation().stop().await;
    admin.stop().await;
    telemetry.flush().await;
    Ok(match abandoned {
        0 => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        _ => {
            let grace = now.relay.shutdown_grace;
            tracing::error!(
                abandoned,
                ?grace,
                "stopped with publishes under way; they come again when their leases end"
            );
            ExitCode::from(exit::ABANDONED)
        }
    })
}

fn load(arguments: &Run) -> Result<config::Loaded, Failure> {
    let target = &arguments.target;
    let mut loaded = match (&arguments.sink, target.url()) {
        (Some(sink), Some(url)) => {
            let loaded = config::from_flags(url, sink, config::environment());
            let mut loaded = loaded.map_err(|refused| Failure::usage(refused.to_string()))?;
            loaded.config.source.values_mut().try_for_each(|source| target.apply(source))?;
            loaded
        }
        (Some(_), None) => return Err(Failure::usage("from where? Give --database-url, or POSTRIDER_DATABASE_URL")),
        (None, _) if target.database_url.is_some() => {
            return Err(Failure::usage("where to? Give --sink stdout or --sink https://…"));
        }
        // A variable alone does not say where to, so the configuration does.
        (None, url) if !target::is_configured(target.config.as_deref()) => {
            return Err(match url {
                Some(_) => Failure::usage("where to? Give --sink stdout or --sink https://…, or --config"),
                None => no_source(),
            });
        }
        _ => target::load_quietly(target.config.as_deref())?,
    };
    let config = &mut loaded.config;
    if let Some(wanted) = &arguments.target.source {
        if !config.source.contains_key(wanted) {
            return Err(Failure::usage(format!("the configuration has no source {wanted:?}")));
        }
        config.source.retain(|name, _| name == wanted);
    }
    config.source.values_mut().for_each(|source| source.migrate |= arguments.migrate);
    Ok(loaded)
}

fn no_source() -> Failure {
    Failure::usage("there is no source to take messages from; give --database-url and --sink, or --config")
}

/// Checks a configuration as far as it can be done without asking databases and destinations.
pub fn check(config: &Config) -> Result<(), Failure> {
    sinks::Sinks::make(config).and_then(|sinks| generation::routers(config, &sinks).map(|_| ())).map_err(Failure::usage)
}

/// Examines every sink of a configuration.
pub async fn examine_sinks(config: &Config) -> Result<Vec<(String, Vec<Finding>)>, Failure> {
    let sinks = sinks::Sinks::make(config).map_err(Failure::usage)?;
    generation::routers(config, &sinks).map_err(Failure::usage)?;
    Ok(sinks.examine(config).await)
}

/// Takes over a new configuration, if it is good.
async fn reload(arguments: &Run, now: &mut Config, current: &health::Current, telemetry: &telemetry::Telemetry) {
    service::reloading();
    let done = try_reload(arguments, now, current, telemetry).await;
    let result = if done.is_ok() { "done" } else { "refused" };
    metrics::counter!("postrider_reloads_total", "result" => result).increment(1);
    match done {
        Ok(()) => {
            tracing::info!("the new configuration is in force; each source goes on when its old dispatcher has drained")
        }
        Err(failure) => tracing::error!("the reload is refused and nothing has changed: {failure}"),
    }
    service::ready();
}

async fn try_reload(
    arguments: &Run,
    now: &mut Config,
    current: &health::Current,
    telemetry: &telemetry::Telemetry,
) -> Result<(), Failure> {
    let loaded = load(arguments)?;
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let next = Generation::prepare(&loaded.config, Start::Reload(now)).await?;
    telemetry.set_level(&loaded.config.log)?;
    if needs_restart(now, &loaded.config) {
        tracing::warn!("changes of admin.listen, admin.enabled, log.format and trace take effect after a restart");
    }
    let old = current.generation();
    let gone = old.lines.iter().filter(|line| next.has_not(&line.name));
    gone.for_each(|line| telemetry::forget(&line.name));
    current.replace(Arc::new(next.begin(Some(&old))));
    *now = loaded.config;
    Ok(())
}

fn needs_restart(old: &Config, new: &Config) -> bool {
    (old.admin.listen, old.admin.enabled) != (new.admin.listen, new.admin.enabled)
        || old.log.format != new.log.format
        || old.trace.otlp_endpoint != new.trace.otlp_endpoint
}
