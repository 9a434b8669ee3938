//! What changed from one report to another, beyond noise.
//!
//! A figure has changed if its ranges over the rounds do not overlap and its medians differ by more than [`SMALLEST`]. With fewer than
//! [`ENOUGH`] rounds a range says too little for that.

use std::process::ExitCode;

use serde_json::json;

use super::measure::Side;
use super::report::figure::{Better, METRICS, Spread, headline, of_side, ratio};
use super::report::table::short;
use super::report::{OfScenario, Report};
use crate::args::Colour;
use crate::exit::Failure;
use crate::output;

/// A change below this part is not worth a word.
const SMALLEST: f64 = 0.03;
const ENOUGH: usize = 3;

/// A figure in both reports.
#[derive(Debug, Clone, PartialEq)]
struct Compared {
    database: String,
    scenario: String,
    figure: String,
    before: Spread,
    after: Spread,
    better: Better,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    Noise,
    TooFewRounds,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Noise => "no change beyond noise",
            Self::TooFewRounds => "too few rounds to tell",
        }
    }
}

impl Compared {
    /// By which part the median changed.
    fn change(&self) -> f64 {
        (self.after.median - self.before.median) / self.before.median
    }

    fn verdict(&self) -> Verdict {
        if self.before.rounds.min(self.after.rounds) < ENOUGH {
            return Verdict::TooFewRounds;
        }
        if !self.before.is_apart_from(&self.after) || self.change().abs() <= SMALLEST {
            return Verdict::Noise;
        }
        match (self.change() > 0.0) == (self.better == Better::More) {
            true => Verdict::Better,
            false => Verdict::Worse,
        }
    }
}

pub fn run(before: &Report, after: &Report, as_json: bool, colour: Colour) -> Result<ExitCode, Failure> {
    let all = compared(before, after);
    if as_json {
        for one in &all {
            output::json(&json!({
                "database": one.database, "scenario": one.scenario, "figure": one.figure, "before": one.before, "after": one.after,
                "change": one.change(), "verdict": one.verdict().name(),
            }))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for warning in differences(before, after) {
        output::line(&format!("careful: {warning}"))?;
    }
    let told = |verdict| all.iter().filter(move |one| one.verdict() == verdict);
    let changed: Vec<&Compared> = told(Verdict::Worse).chain(told(Verdict::Better)).collect();
    if !changed.is_empty() {
        let headings = ["database", "scenario", "figure", "before", "after", "change", ""];
        let mut table = output::table(&headings, output::is_coloured(colour, &std::io::stdout()));
        for one in &changed {
            let spread =
                |spread: &Spread| format!("{} ({}..{})", short(spread.median), short(spread.min), short(spread.max));
            table.add_row(vec![
                output::cell(&one.database),
                output::cell(&one.scenario),
                output::cell(&one.figure.replace('_', " ")),
                output::number(spread(&one.before)),
                output::number(spread(&one.after)),
                output::number(format!("{:+.1} %", one.change() * 100.0)),
                output::cell(one.verdict().name()),
            ]);
        }
        output::line(&table.to_string())?;
    }
    let (noise, few) = (told(Verdict::Noise).count(), told(Verdict::TooFewRounds).count());
    output::line(&match changed.len() {
        0 => format!("no change beyond noise in {noise} figures"),
        changed => format!("{changed} figures changed, {noise} did not beyond noise"),
    })?;
    if few > 0 {
        output::line(&format!("{few} figures have fewer than {ENOUGH} rounds, which is too few to tell"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every figure that both reports have.
fn compared(before: &Report, after: &Report) -> Vec<Compared> {
    let mut all = Vec::new();
    for on in &before.databases {
        let Some(then) = after.databases.iter().find(|other| other.server.database == on.server.database) else {
            continue;
        };
        for of in &on.scenarios {
            let now = then.scenarios.iter().find(|other| other.scenario.name == of.scenario.name);
            let figures = now.map(|now| figures(of, now)).unwrap_or_default();
            let place = |(figure, before, after, better)| Compared {
                database: on.server.database.clone(),
                scenario: of.scenario.name.clone(),
                figure,
                before,
                after,
                better,
            };
            all.extend(figures.into_iter().map(place));
        }
    }
    all
}

type Figure = (String, Spread, Spread, Better);

fn figures(before: &OfScenario, after: &OfScenario) -> Vec<Figure> {
    let headline = headline(before.scenario.kind);
    let of_load = |name: &str| before.scenario.kind.is_of_latency() && name == "messages_per_second";
    // How fast messages came is what the load asked for.
    let metrics = METRICS.into_iter().filter(|metric| !of_load(metric.name));
    let ours = metrics.filter_map(|metric| {
        let [before, after] = [before, after].map(|of| of_side(&of.rounds, Side::Ours, metric));
        Some((metric.name.to_owned(), before?, after?, metric.better))
    });
    let [one, other] = [before, after].map(|of| ratio(&of.rounds, Side::Bare, headline));
    let to_bare = one.zip(other).map(|(one, other)| ("ratio_to_bare_sql".to_owned(), one, other, headline.better));
    let extra = before.extra.iter().filter_map(|(name, values)| {
        let [one, other] = [Some(values), after.extra.get(name)].map(|values| Spread::of(values?.iter().copied()));
        Some((name.clone(), one?, other?, Better::Less))
    });
    ours.chain(to_bare).chain(extra).collect()
}

/// What makes two reports hard to compare.
fn differences(before: &Report, after: &Report) -> Vec<String> {
    let mut found = Vec::new();
    if before.machine != after.machine {
        let [before, after] = [before, after].map(|report| report.machine.describe());
        found.push(format!("the machines differ: {before}; {after}"));
    }
    if before.build != "release" || after.build != "release" || before.quick || after.quick {
        found.push("a quick run or an unoptimised build says nothing about speed".into());
    }
    for on in &before.databases {
        let Some(then) = after.databases.iter().find(|other| other.server.database == on.server.database) else {
            found.push(format!("only the first report has {}", on.server.database));
            continue;
        };
        if on.server != then.server {
            found.push(format!("the version or the settings of {} differ", on.server.database));
        }
        for of in &on.scenarios {
            match then.scenarios.iter().find(|other| other.scenario.name == of.scenario.name) {
                None => found.push(format!("only the first report has {} on {}", of.scenario.name, on.server.database)),
                Some(now) if now.scenario.with != of.scenario.with => {
                    found.push(format!("the parameters of {} differ", of.scenario.name));
                }
                Some(now) if now.destination != of.destination => {
                    found.push(format!("the destinations of {} differ", of.scenario.name));
                }
                Some(_) => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(before: [f64; 3], after: [f64; 3], better: Better) -> Verdict {
        let [before, after] = [before, after].map(|values| Spread::of(values).expect("values"));
        let (database, scenario, figure) = (String::new(), String::new(), String::new());
        Compared { database, scenario, figure, before, after, better }.verdict()
    }

    #[test]
    fn what_is_apart_and_large_enough_has_changed() {
        assert_eq!(verdict([100.0, 101.0, 99.0], [120.0, 118.0, 121.0], Better::More), Verdict::Better);
        assert_eq!(verdict([100.0, 101.0, 99.0], [120.0, 118.0, 121.0], Better::Less), Verdict::Worse);
        assert_eq!(verdict([100.0, 101.0, 99.0], [80.0, 81.0, 82.0], Better::More), Verdict::Worse);
    }

    #[test]
    fn ranges_that_overlap_and_small_changes_are_noise() {
        assert_eq!(verdict([100.0, 90.0, 125.0], [120.0, 118.0, 121.0], Better::More), Verdict::Noise);
        assert_eq!(verdict([100.0, 100.1, 99.9], [102.0, 102.1, 101.9], Better::More), Verdict::Noise);
    }

    #[test]
    fn one_round_says_nothing() {
        let one = |value| Spread::of([value]).expect("a value");
        let (database, scenario, figure) = (String::new(), String::new(), String::new());
        let compared = Compared { database, scenario, figure, before: one(1.0), after: one(9.0), better: Better::More };
        assert_eq!(compared.verdict(), Verdict::TooFewRounds);
    }
}
