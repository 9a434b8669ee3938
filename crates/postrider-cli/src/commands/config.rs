//! `postrider config`.

use std::process::ExitCode;

use crate::args::Config;
use crate::config;
use crate::exit::Failure;
use crate::output::line;
use crate::target;

pub fn run(command: &Config) -> Result<ExitCode, Failure> {
    match command {
        Config::Check { config } => {
            let loaded = target::load(config.as_deref())?;
            // What the sinks themselves refuse is found only by making them.
            crate::relay::check(&loaded)?;
            let (sources, sinks, routes) = (loaded.source.len(), loaded.sink.len(), loaded.route.len());
            line(&format!("the configuration is good: {sources} sources, {sinks} sinks, {routes} routes"))?;
        }
        Config::Reference => line(config::reference().trim_end())?,
        Config::Example => line(config::example().trim_end())?,
    }
    Ok(super::done())
}
