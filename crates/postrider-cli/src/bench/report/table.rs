//! The lines of a report's tables, for the terminal and for the page.

use super::figure::{LOG, MEMORY, OWN_CPU, P50, P99, RATE, SERVER_CPU, Spread, of_side, ratio};
use super::{OfScenario, OnDatabase};
use crate::args::Colour;
use crate::bench::measure::Side;
use crate::exit::Failure;
use crate::output;

pub const HEADINGS: [&str; 9] = [
    "scenario",
    "postrider",
    "smallest..largest",
    "bare SQL",
    "ratio",
    "server CPU µs",
    "own CPU µs",
    "log bytes",
    "memory MB",
];

/// One line, in the order of the headings. What was not measured is a dash.
pub fn cells(of: &OfScenario) -> [String; 9] {
    let (rounds, kind) = (&of.rounds, of.scenario.kind);
    let cost = |metric| of_side(rounds, Side::Ours, metric).map_or_else(dash, |spread| short(spread.median));
    let memory = of_side(rounds, Side::Ours, &MEMORY).map_or_else(dash, |spread| short(spread.median / 1e6));
    let headline = super::figure::headline(kind);
    let ratio = ratio(rounds, Side::Bare, headline).map_or_else(dash, |spread| format!("{:.2}", spread.median));
    let name = match of.broken.is_empty() {
        true => of.scenario.name.clone(),
        false => format!("{} BROKEN", of.scenario.name),
    };
    let range = of_side(rounds, Side::Ours, headline).map_or_else(dash, |spread| range(&spread));
    let [ours, bare] = [Side::Ours, Side::Bare].map(|side| figure(of, side));
    [name, ours, range, bare, ratio, cost(&SERVER_CPU), cost(&OWN_CPU), cost(&LOG), memory]
}

/// What one side reached, with its unit.
fn figure(of: &OfScenario, side: Side) -> String {
    let median = |metric| of_side(&of.rounds, side, metric).map(|spread| spread.median);
    match (median(&P50), median(&P99), median(&RATE)) {
        (Some(p50), Some(p99), _) => format!("p50 {} ms, p99 {} ms", short(p50), short(p99)),
        (_, _, Some(rate)) => format!("{}/s", short(rate)),
        _ => dash(),
    }
}

/// One line about a scenario that has ended.
pub fn line(database: &str, of: &OfScenario) -> String {
    let [name, ours, _, bare, ratio, ..] = cells(of);
    format!("{database} {name}: {ours} (bare SQL {bare}, ratio {ratio})")
}

pub fn print(on: &OnDatabase, colour: Colour) -> Result<(), Failure> {
    output::line(&format!("\n{} {}", on.server.database, output::plain(&on.server.version)))?;
    let mut table = output::table(&HEADINGS, output::is_coloured(colour, &std::io::stdout()));
    for of in &on.scenarios {
        let cells = cells(of);
        let (name, numbers) = (output::cell(&cells[0]), cells[1..].iter().map(output::number));
        table.add_row(std::iter::once(name).chain(numbers).collect::<Vec<_>>());
    }
    output::line(&table.to_string())?;
    for of in on.scenarios.iter().filter(|of| !of.extra.is_empty()) {
        for (name, values) in &of.extra {
            let spread = Spread::of(values.iter().copied()).map_or_else(dash, |spread| short(spread.median));
            output::line(&format!("{}: {} {spread}", of.scenario.name, name.replace('_', " ")))?;
        }
    }
    for of in &on.scenarios {
        if let Some(destination) = &of.destination {
            output::line(&format!("{}: {}", of.scenario.name, destination.sentence()))?;
        }
    }
    for left_out in &on.left_out {
        output::line(&format!("{} was left out: {}", left_out.scenario, left_out.why))?;
    }
    Ok(())
}

fn dash() -> String {
    "–".into()
}

fn range(spread: &Spread) -> String {
    format!("{}..{}", short(spread.min), short(spread.max))
}

/// A number with three digits that count, or whole with commas.
pub fn short(value: f64) -> String {
    if value >= 1_000.0 {
        return thousands(value.round() as u64);
    }
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.123, "0.12"), (1.0, "1.00"), (12.34, "12.3"), (999.4, "999"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(short(value), text);
        }
    }
}
