//! `postrider`: a relay that delivers the messages of an outbox, and the operator's tool.

mod config;

use std::path::PathBuf;
use std::process::ExitCode;

use postrider_sinks::setting::Secret;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["config", "reference"] => print!("{}", config::reference()),
        ["config", "example"] => print!("{}", config::example()),
        ["config", "check"] => return check(None),
        ["config", "check", path] => return check(Some(path.into())),
        ["config", "flags", sink] => return flags(sink),
        _ => {
            eprintln!("postrider config check [FILE] | example | reference | flags SINK");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn check(path: Option<PathBuf>) -> ExitCode {
    match config::load(path.as_deref(), config::environment()) {
        Ok(config::Loaded { config, warnings }) => {
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            for (name, source) in &config.source {
                println!(
                    "source {name}: {}",
                    source.names().map_or_else(|error| error.to_string(), |n| n.table().into())
                );
            }
            ExitCode::SUCCESS
        }
        Err(refused) => fail(&refused),
    }
}

/// The configuration of a run without a file; the database's address is in `DATABASE_URL`.
fn flags(sink: &str) -> ExitCode {
    match config::from_flags(Secret::new(std::env::var("DATABASE_URL").unwrap_or_default()), sink) {
        Ok(config) => {
            println!("{config:?}");
            ExitCode::SUCCESS
        }
        Err(refused) => fail(&refused),
    }
}

fn fail(refused: &config::Refused) -> ExitCode {
    eprintln!("{refused}");
    ExitCode::FAILURE
}
