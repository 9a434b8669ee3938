//! Fuzz targets for everything that parses input from outside. `scripts/fuzz` runs them.

#![forbid(unsafe_code)]

pub mod bodies;

/// The binary's configuration, which is in no library.
#[path = "../../crates/postrider-cli/src/config/mod.rs"]
#[allow(dead_code, unused_imports)]
mod config;

/// What is done with the inputs of a target.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    let others = bodies::TARGETS.into_iter();
    let mut all = others.chain([("configuration", configuration as fn(&[u8]))]);
    all.find_map(|(known, run)| (known == name).then_some(run))
}

/// A configuration file with environment variables behind a NUL, `NAME=value` per line: read or refused, with nothing of a
/// secret in what is said.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (file, variables) = text.split_once('\0').unwrap_or((text, ""));
    let variables = variables.lines().filter_map(|line| line.split_once('='));
    let variables = variables.map(|(name, value)| (format!("POSTRIDER__{name}"), Some(value.to_owned())));
    match config::load_text("f", file, false, variables) {
        Ok(loaded) => assert!(!format!("{loaded:?}").is_empty()),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}
