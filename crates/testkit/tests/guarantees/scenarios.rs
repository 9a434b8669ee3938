//! The scenarios: each that is in force is used by a test, and none is used that is not in the list.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::named;
use crate::named::read;

/// The section of the page, and what in it is not in force.
const SECTION: &str = "\n## Faults and attacks\n";
const LATER: &str = "\nNot in force yet:\n";

/// Faults, attacks and invariants: `R11`, `S01`, `I6`. What the specifications ask for (`S0.72`) is another list.
fn is_scenario(id: &str) -> bool {
    let (kind, number) = id.split_at(1.min(id.len()));
    let digits = if kind == "I" { 1..=2 } else { 2..=2 };
    matches!(kind, "R" | "S" | "I") && digits.contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
}

/// The ids in the first cells of a table.
fn listed(table: &str) -> BTreeSet<String> {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.filter(|id| is_scenario(id)).map(str::to_owned).collect()
}

/// The scenarios that are in force, those that are not, and those that tests on the page carry.
fn scenarios(page: &str) -> Result<[BTreeSet<String>; 3]> {
    let (_, section) = page.split_once(SECTION).context("the page has no scenarios")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let (in_force, later) = section.split_once(LATER).unwrap_or((section, ""));
    let used = super::named(page).into_iter().flat_map(|row| row.scenarios).filter(|id| is_scenario(id)).collect();
    Ok([listed(in_force), listed(later), used])
}

fn problems(page: &str) -> Result<Vec<String>> {
    let [in_force, later, used] = scenarios(page)?;
    let mut problems: Vec<String> = in_force.difference(&used).map(|id| format!("no test carries {id}")).collect();
    problems.extend(used.difference(&in_force).map(|id| format!("{id} is used and is no scenario that is in force")));
    problems.extend(in_force.intersection(&later).map(|id| format!("{id} is in force and is not")));
    Ok(problems)
}

#[test]
fn every_scenario_that_is_in_force_is_used_and_no_other_is() -> Result<()> {
    let page = read("docs/guarantees.md")?;
    let [in_force, later, _] = scenarios(&page)?;
    ensure!(in_force.len() + later.len() > 80, "only {} scenarios are listed", in_force.len() + later.len());
    let problems = problems(&page)?;
    ensure!(problems.is_empty(), "docs/guarantees.md is wrong; run scripts/guarantees:\n{}", problems.join("\n"));
    Ok(())
}

#[test]
fn a_scenario_that_is_used_nowhere_or_not_listed_is_found_out() -> Result<()> {
    let page = |row: &str, id: &str| {
        format!(
            "| {row} | `{}_late` | `b` | `f.rs` |\n{SECTION}| {id} | it is late | 1 |\n{LATER}| R12 | later | why |\n",
            row.to_lowercase()
        )
    };
    ensure!(problems(&page("R11", "R11"))?.is_empty());
    ensure!(problems(&page("S0.72", "R11"))? == ["no test carries R11"]);
    ensure!(problems(&page("R13", "R13"))?.is_empty());
    ensure!(problems(&page("R12", "R12"))? == ["R12 is in force and is not"]);
    ensure!(problems(&page("S01", "R11"))?.len() == 2);
    Ok(())
}

#[test]
fn each_promise_says_its_limits() -> Result<()> {
    let page = read("docs/guarantees.md")?;
    for section in page.split("\n## ").filter(|section| section.starts_with(|c: char| c.is_ascii_digit())) {
        let limits = section.lines().find_map(|line| line.strip_prefix("**Limits.** "));
        ensure!(limits.is_some_and(|text| text.len() > 20), "{} says no limits", section.lines().next().unwrap_or(""));
    }
    Ok(())
}

/// The list of deliberate defects names tests as the page does. Whether they catch anything, `scripts/sabotage` shows.
#[test]
fn every_deliberate_defect_names_a_test_that_is_run() -> Result<()> {
    let list = read("scripts/sabotage.tsv")?;
    let rows: Vec<Vec<&str>> =
        list.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    ensure!(rows.len() >= 15, "only {} defects", rows.len());
    for row in rows {
        let [defect, place, package, target, test] = row[..] else { anyhow::bail!("{row:?} has not five columns") };
        ensure!(read(place)?.contains(&format!("Defect::{defect}")), "{place} does not hold {defect}");
        let name = test.rsplit("::").next().unwrap_or_default();
        let file = match (package, target) {
            ("testkit", target) if target.starts_with("conformance_") => {
                format!("crates/testkit/src/conformance/{}.rs", test.split("::").next().unwrap_or_default())
            }
            (package, "lib") => {
                format!(
                    "crates/{package}/src/{}.rs",
                    test.split("::tests::").next().unwrap_or_default().replace("::", "/")
                )
            }
            (package, target) if test.contains("::") => {
                format!("crates/{package}/tests/{target}/{}.rs", test.split("::").next().unwrap_or_default())
            }
            (package, target) => format!("crates/{package}/tests/{target}.rs"),
        };
        let fate = named::fate(name, &read(&file)?, named::list_of(&file)?.as_deref());
        ensure!(fate == named::Fate::Run, "{defect}: {test} is {fate:?} in {file}");
    }
    Ok(())
}
