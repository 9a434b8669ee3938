//! `postrider doctor`.

use std::process::ExitCode;

use comfy_table::Color;
use postrider::operate::{Finding, Severity};
use serde_json::json;

use crate::args::{Colour, Doctor};
use crate::config::Source;
use crate::exit::Failure;
use crate::output::{self, line, plain};
use crate::target::{self, Missing};
use crate::tenants::Proof;

pub async fn run(arguments: Doctor, colour: Colour) -> Result<ExitCode, Failure> {
    let mut examined: Vec<(String, Vec<Finding>)> = Vec::new();
    for (name, source) in arguments.target.sources()? {
        let findings = match examine(&source).await {
            Ok(findings) => findings,
            Err(error) => {
                let fix = "see that the address, the name, the password and the network are right";
                vec![Finding::problem("unreachable", error.to_string(), fix)]
            }
        };
        examined.push((format!("source {name}"), findings));
    }
    if arguments.target.url().is_none() {
        examined.extend(crate::relay::examine_sinks(&target::load(arguments.target.config.as_deref())?).await?);
    }
    print(&examined, &arguments, output::is_coloured(colour, &std::io::stdout()))?;
    let worst = examined.iter().flat_map(|(_, findings)| findings).map(|finding| finding.severity).max();
    let limit = if arguments.strict { Severity::Warning } else { Severity::Problem };
    Ok(match worst {
        Some(worst) if worst >= limit => ExitCode::FAILURE,
        _ => super::done(),
    })
}

async fn examine(source: &Source) -> Result<Vec<Finding>, Failure> {
    let store = target::connect(source, Missing::Refuse).await?;
    store.ping().await?;
    let mut findings = store.examine().await?;
    findings.extend(crate::tenants::examine(&store, source, Proof::Try).await?);
    Ok(findings)
}

fn print(examined: &[(String, Vec<Finding>)], arguments: &Doctor, coloured: bool) -> Result<(), Failure> {
    if arguments.json {
        let all = examined.iter().map(|(what, findings)| json!({ "examined": what, "findings": findings }));
        return output::json(&all.collect::<Vec<_>>());
    }
    for (what, findings) in examined {
        let shown: Vec<&Finding> = findings.iter().filter(|finding| arguments.verbose || !is_fine(finding)).collect();
        let fine = findings.iter().filter(|finding| is_fine(finding)).count();
        line(&format!("{what}: {fine} of {} checks are fine", findings.len()))?;
        for finding in shown {
            print_one(finding, coloured)?;
        }
    }
    Ok(())
}

/// A finding, and under it what to do.
pub(super) fn print_one(finding: &Finding, coloured: bool) -> Result<(), Failure> {
    let (word, colour) = match finding.severity {
        Severity::Fine if !finding.is_examined() => ("unknown", Color::Yellow),
        Severity::Fine => ("fine", Color::Green),
        Severity::Warning => ("warning", Color::Yellow),
        Severity::Problem => ("problem", Color::Red),
    };
    line(&format!("  {} {}: {}", painted(word, colour, coloured), finding.name, plain(&finding.what)))?;
    match &finding.fix {
        Some(fix) => line(&format!("      {}", plain(fix))),
        None => Ok(()),
    }
}

/// What could not be looked at is not fine.
fn is_fine(finding: &Finding) -> bool {
    finding.severity == Severity::Fine && finding.is_examined()
}

fn painted(word: &str, colour: Color, coloured: bool) -> String {
    let code = match colour {
        Color::Red => 31,
        Color::Green => 32,
        _ => 33,
    };
    match coloured {
        true => format!("\u{1b}[{code}m{word}\u{1b}[0m"),
        false => word.to_owned(),
    }
}
