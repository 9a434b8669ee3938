//! A report as a page with plots.

use std::fmt::Write as _;
use std::path::Path;

use super::figure::Spread;
use super::table::{HEADINGS, cells, short};
use super::{OnDatabase, Report, plot};
use crate::exit::Failure;

/// The page.
const PAGE: &str = "report.md";

/// Writes the page and its plots into a directory.
pub fn write(report: &Report, directory: &Path) -> Result<(), Failure> {
    let said = |file: &Path, why: String| Failure::failed(format!("{} cannot be written: {why}", file.display()));
    std::fs::create_dir_all(directory).map_err(|error| said(directory, error.to_string()))?;
    let mut plots = Vec::new();
    for (at, on) in report.databases.iter().enumerate() {
        let mut files = Vec::new();
        for (what, svg) in [("ratios", plot::ratios(on)), ("latencies", plot::latencies(on))] {
            let file = directory.join(format!("{what}-{}-{}.svg", at + 1, on.server.database));
            let Some(svg) = svg.map_err(|error| said(&file, error.to_string()))? else { continue };
            std::fs::write(&file, svg).map_err(|error| said(&file, error.to_string()))?;
            files.push(file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default());
        }
        plots.push(files);
    }
    let page = directory.join(PAGE);
    std::fs::write(&page, text(report, &plots)).map_err(|error| said(&page, error.to_string()))
}

fn text(report: &Report, plots: &[Vec<String>]) -> String {
    let mut page = format!(
        "# Postrider {} measured\n\nBegan {}, {} build. {}.\n",
        report.postrider,
        report.began,
        report.build,
        report.machine.describe()
    );
    if report.quick || report.build != "release" {
        page.push_str("\n**A quick run or an unoptimised build: these figures say nothing about speed.**\n");
    }
    for broken in report.broken() {
        let _ = write!(page, "\n**Broken: {broken}**\n");
    }
    for (on, plots) in report.databases.iter().zip(plots) {
        database(&mut page, on, plots);
    }
    page.push_str(
        "\nEvery figure is the median over all rounds; the range is that of the smallest and the largest. The ratio is that of Postrider to bare SQL in \
         the same round: of messages a second, or for latency of the medians, where less is better. CPU and log bytes are per message. A dash: not measured. \
         Every run was checked for lost, repeated and foreign messages, and for order where order was asked for.\n",
    );
    page
}

fn database(page: &mut String, on: &OnDatabase, plots: &[String]) {
    let settings: Vec<String> = on.server.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let _ = write!(page, "\n## {} {}\n\n`{}`\n\n", on.server.database, on.server.version, settings.join("`, `"));
    let _ = writeln!(page, "| {} |\n|{}", HEADINGS.join(" | "), "---|".repeat(HEADINGS.len()));
    for of in &on.scenarios {
        let _ = writeln!(page, "| {} |", cells(of).join(" | "));
    }
    for of in &on.scenarios {
        for (name, values) in &of.extra {
            let Some(spread) = Spread::of(values.iter().copied()) else { continue };
            let _ = write!(page, "\n{}: {} {}\n", of.scenario.name, name.replace('_', " "), short(spread.median));
        }
    }
    for of in &on.scenarios {
        let Some(destination) = &of.destination else { continue };
        let _ = write!(page, "\n{}: {}\n", of.scenario.name, destination.sentence());
    }
    for left_out in &on.left_out {
        let _ = write!(page, "\n{} was left out: {}\n", left_out.scenario, left_out.why.replace('\n', " "));
    }
    for plot in plots {
        let _ = write!(page, "\n![{plot}]({plot})\n");
    }
    page.push_str("\n| scenario | what it does |\n|---|---|\n");
    for of in &on.scenarios {
        let _ = writeln!(page, "| {} | {} |", of.scenario.name, of.scenario.about);
    }
}
