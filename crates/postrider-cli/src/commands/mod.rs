//! The operator's commands, one file each.

pub mod audit;
pub mod changelog;
pub mod config;
pub mod dead;
pub mod doctor;
pub mod enqueue;
pub mod health;
pub mod layout;
pub mod manual;
pub mod migrate;
pub mod purge;
pub mod status;

use std::process::ExitCode;

use postrider::store;
use serde_json::json;

use crate::args::{Consent, Scope};
use crate::exit::Failure;
use crate::output::{self, line, messages};

impl Scope {
    /// As the stores take it.
    fn to_store(&self) -> store::Scope {
        let namespaces = Some(self.namespace.clone()).filter(|names| !names.is_empty());
        store::Scope { namespaces, tenant: self.tenant }
    }
}

/// What an operator who was shown a number wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Act,
    DryRun,
    /// Another number was confirmed.
    Differs,
}

impl Consent {
    fn decide(&self, found: u64) -> Decision {
        match self.confirm {
            Some(expected) if expected == found => Decision::Act,
            Some(_) => Decision::Differs,
            None if self.yes => Decision::Act,
            None => Decision::DryRun,
        }
    }

    /// Who acts, for the audit table.
    fn who(&self) -> String {
        let given = self.who.clone().filter(|who| !who.trim().is_empty());
        given.unwrap_or_else(|| format!("{}@{}", user(), host()))
    }
}

fn user() -> String {
    let variable = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    variable.unwrap_or_else(|| format!("uid {}", nix::unistd::getuid()))
}

fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown host".into(), |name| name.to_string_lossy().into_owned())
}

fn done() -> ExitCode {
    ExitCode::SUCCESS
}

/// Says what was done, or would be.
fn tell(as_json: bool, decision: Decision, found: u64, changed: u64, verb: &str) -> Result<(), Failure> {
    if as_json {
        return output::json(&json!({ "matching": found, verb: changed, "dry_run": decision == Decision::DryRun }));
    }
    match decision {
        Decision::Act => line(&format!("{verb} {}", messages(changed))),
        Decision::DryRun => {
            line(&format!("{} would be {verb}; nothing was changed. Add --yes to do it.", messages(found)))
        }
        Decision::Differs => Ok(()),
    }
}

/// The exit code, or the failure of a number that differs.
fn code(decision: Decision, found: u64) -> Result<ExitCode, Failure> {
    match decision {
        Decision::Differs => Err(Failure::failed(format!(
            "{} match, which is not the number that was confirmed; nothing was changed",
            messages(found)
        ))),
        _ => Ok(done()),
    }
}
