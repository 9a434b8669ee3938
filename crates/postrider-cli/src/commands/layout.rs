//! `postrider layout`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use postrider::any::AnyStore;
use postrider::layout::guess::Guess;
use postrider::layout::{PRESETS, about, preset};
use postrider::operate::{Finding, Severity};
use postrider::{Layout, Names};
use serde::Serialize;
use serde_json::{Value, json};

use super::doctor::print_one;
use crate::args::{Colour, Layout as Command, LayoutCheck, LayoutGuess};
use crate::config::Source;
use crate::exit::Failure;
use crate::output::{self, line, plain};
use crate::target::{self, Missing};

pub async fn run(command: Command, colour: Colour) -> Result<ExitCode, Failure> {
    match command {
        Command::List { json } => list(json),
        Command::Show { name, json } => show(&name, json),
        Command::Check(arguments) => check(&arguments, colour).await,
        Command::Guess(arguments) => guess(&arguments).await,
    }
}

fn list(as_json: bool) -> Result<ExitCode, Failure> {
    let known = PRESETS.iter().map(|name| (*name, about(name).unwrap_or_default()));
    if as_json {
        let all: Vec<Value> = known.map(|(name, about)| json!({ "name": name, "about": about })).collect();
        output::json(&all)?;
        return Ok(super::done());
    }
    let width = PRESETS.iter().map(|name| name.len()).max().unwrap_or(0);
    known.into_iter().try_for_each(|(name, about)| line(&format!("{name:width$}  {about}")))?;
    Ok(super::done())
}

fn show(name: &str, as_json: bool) -> Result<ExitCode, Failure> {
    let layout = preset(name).map_err(|error| Failure::usage(error.to_string()))?;
    if as_json {
        output::json(&json!({ "name": name, "layout": layout, "lacks": lacks(&layout) }))?;
        return Ok(super::done());
    }
    line(&format!("# The layout {name:?}: {}.", about(name).unwrap_or_default()))?;
    line(&format!(
        "# A source has it by layout = {name:?}. To change it, keep this under another name, and name the table in the source."
    ))?;
    line(toml(&own_name(name), &layout)?.trim_end())?;
    Ok(super::done())
}

/// A layout as a configuration has it.
fn toml(name: &str, layout: &Layout) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Section<'a> {
        layout: BTreeMap<&'a str, &'a Layout>,
    }
    toml::to_string(&Section { layout: [(name, layout)].into() }).map_err(|error| Failure::failed(error.to_string()))
}

/// A name that a configuration takes: letters, digits and hyphens, and none that is known already.
fn own_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let plain = plain.trim_matches('-').chars().take(40).collect::<String>();
    match plain.as_str() {
        "" => "own".to_owned(),
        taken if PRESETS.contains(&taken.replace('-', "_").as_str()) => format!("own-{plain}"),
        _ => plain,
    }
}

/// What a layout cannot do, and what takes its place.
fn lacks(layout: &Layout) -> Vec<Value> {
    layout.lacks().map(|ability| json!({ "ability": ability.as_str(), "without": ability.without() })).collect()
}

async fn check(arguments: &LayoutCheck, colour: Colour) -> Result<ExitCode, Failure> {
    let mut checked: Vec<(String, Source, Vec<Finding>)> = Vec::new();
    for (name, source) in arguments.target.sources()? {
        let opened = target::open(name, &source, Missing::Refuse).await?;
        checked.push((opened.name, source, opened.store.check_layout().await?));
    }
    let worst = checked.iter().flat_map(|(_, _, findings)| findings).map(|finding| finding.severity).max();
    match arguments.json {
        true => {
            let all = checked.iter().map(|(name, source, findings)| {
                let layout = &source.described;
                json!({
                    "source": name, "layout": layout.name, "table": layout.names.table(), "findings": findings,
                    "lacks": lacks(layout),
                })
            });
            output::json(&all.collect::<Vec<_>>())?;
        }
        false => {
            let coloured = output::is_coloured(colour, &std::io::stdout());
            checked
                .iter()
                .try_for_each(|(name, source, findings)| print(name, &source.described, findings, coloured))?;
        }
    }
    Ok(match worst {
        Some(Severity::Problem) => ExitCode::FAILURE,
        _ => super::done(),
    })
}

fn print(name: &str, layout: &Layout, findings: &[Finding], coloured: bool) -> Result<(), Failure> {
    line(&format!("source {name}: the layout {:?} and the table {:?}", layout.name, layout.names.table()))?;
    findings.iter().try_for_each(|finding| print_one(finding, coloured))?;
    let lacks: Vec<_> = layout.lacks().collect();
    if lacks.is_empty() {
        return line("  It can do all that Postrider's own table can.");
    }
    line("  It cannot do all that Postrider's own table can:")?;
    lacks.into_iter().try_for_each(|ability| line(&format!("    {ability}: {}", ability.without())))
}

async fn guess(arguments: &LayoutGuess) -> Result<ExitCode, Failure> {
    let (store, names) = open_to_guess(arguments).await?;
    let Some(guess) = store.guess_layout().await? else {
        let schema = names.schema().map(|schema| format!(" in the schema {schema:?}")).unwrap_or_default();
        return Err(Failure::failed(format!("there is no table {:?}{schema}", names.table())));
    };
    let name = arguments.name.clone().unwrap_or_else(|| own_name(names.table()));
    let mut wrong = guess.wrong.clone();
    wrong.extend(guess.layout.check().err().map(|error| error.to_string()));
    if arguments.json {
        output::json(&json!({
            "name": name, "table": names.table(), "layout": guess.layout, "unsure": guess.unsure, "wrong": wrong,
            "lacks": lacks(&guess.layout),
        }))?;
    } else {
        print_guess(&name, &guess, &wrong)?;
    }
    Ok(if !wrong.is_empty() { ExitCode::FAILURE } else { super::done() })
}

/// The database with a layout that asks nothing of the table yet.
async fn open_to_guess(arguments: &LayoutGuess) -> Result<(AnyStore, Names), Failure> {
    let target = &arguments.target;
    let (name, mut source) = match target.url() {
        Some(url) => {
            // The table is somebody else's: names of ours are not asked of it.
            let table = target.table.clone().ok_or_else(|| Failure::usage("which table? Give --table"))?;
            let (schema, behind_pooler) = (target.schema.clone(), target.behind_pooler);
            (target::ONLY.to_owned(), Source { url: Some(url), schema, table, behind_pooler, ..Source::default() })
        }
        None => {
            let mut sources = target.sources()?;
            let one = sources.pop().filter(|_| sources.is_empty());
            one.ok_or_else(|| Failure::usage("which source? Name one with --source"))?
        }
    };
    let names = Names::existing(source.schema.as_deref(), Names::default().prefix(), &source.table)
        .map_err(|error| Failure::usage(error.to_string()))?;
    // Any layout that every database has; only the catalog is read.
    source.described = Layout { name: "guessed".into(), ..Layout::postrider(names.clone()) };
    Ok((target::open(name, &source, Missing::Refuse).await?.store, names))
}

fn print_guess(name: &str, guess: &Guess, wrong: &[String]) -> Result<(), Failure> {
    let table = guess.layout.names.table();
    line(&format!("# A layout for the table {table:?}. It is a proposal: look at what is said here, then run"))?;
    line("# postrider layout check with it.")?;
    guess.unsure.iter().try_for_each(|doubt| line(&format!("# - {}", plain(doubt))))?;
    wrong.iter().try_for_each(|wrong| line(&format!("# It cannot be used yet: {}", plain(wrong))))?;
    line(toml(name, &guess.layout)?.trim_end())
}
