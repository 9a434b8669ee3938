//! Every requirement of the five seeds is met somewhere and shown by a test: what `docs/seeds.md` says is held against the
//! source, and so is what only documentation or the shape of the workspace can show.

#![allow(missing_docs)]

mod named;
#[path = "seeds/reach.rs"]
mod reach;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use named::{Fate, fate, list_of, read, root};

/// The tables of the page: the heading, how ids begin, and how many there are, counted from 1.
const TABLES: [(&str, &str, usize); 6] = [
    ("Seed 0: ", "S0.", 93),
    ("Seed 1: ", "S1.", 59),
    ("Seed 2: ", "S2.", 27),
    ("Seed 3: ", "S3.", 46),
    ("Seed 4: ", "S4.", 46),
    ("Where they disagree", "C", 26),
];

/// Rows that may say that they are pending. One that is not pending any more must go from here.
const PENDING: &str = "";

/// Rows that may say that there is no test, because there is nothing to test: they bound a ticket, or are about all tests at once.
/// No other row may say so.
const NOTHING_TO_TEST: &str = "S3.13 S3.27 S3.46 S4.41";

/// The seeds whose requirements are each the name of a test.
const BY_ID: [&str; 3] = ["S2.", "S3.", "S4."];

/// The word in a cell of a row that waits for something.
const WAITS: &str = "pending";

/// How the last cell of a row without a test begins. The reason follows.
const NO_TEST: &str = "no test: ";

/// A row of a table: `| id | what is asked for | where | shown by |`.
struct Row<'a> {
    id: &'a str,
    words: &'a str,
    place: &'a str,
    proof: &'a str,
}

fn rows(section: &str) -> Result<Vec<Row<'_>>> {
    let lines = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| id "));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [id, words, place, proof] = cells[..] else { anyhow::bail!("a row has four cells: {line}") };
            Ok(Row { id, words, place, proof })
        })
        .collect()
}

/// The links of a cell: what they say, and the file from the root of the repository.
fn links(cell: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut before = "";
    for part in cell.split("](") {
        if !before.is_empty() {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.strip_prefix("../").map_or_else(|| format!("docs/{target}"), str::to_owned);
            found.push((before.rsplit('[').next().unwrap_or_default(), file));
        }
        before = part;
    }
    found
}

/// The tests that a row names, with their files.
fn tests<'a>(row: &Row<'a>) -> Vec<(&'a str, String)> {
    let name = |(label, file): (&'a str, String)| Some((label.strip_prefix('`')?.strip_suffix('`')?, file));
    links(row.proof).into_iter().filter_map(name).collect()
}

/// The ids of requirements that a test's name carries: `s2_09_s2_20_…` is S2.9 and S2.20.
fn ids(test: &str) -> Vec<String> {
    let parts: Vec<&str> = test.split('_').collect();
    let seed = |word: &str| ["s0", "s1", "s2", "s3", "s4"].contains(&word);
    let pairs = parts.windows(2).filter(|pair| seed(pair[0]));
    pairs.filter_map(|pair| Some(format!("{}.{}", pair[0].to_uppercase(), pair[1].parse::<u32>().ok()?))).collect()
}

/// Every function whose name carries an id, with its file.
fn named_by_id(files: &BTreeSet<String>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for file in files {
        let source = read(file)?;
        for rest in source.split("fn ").skip(1) {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            if !ids(&rest[..end]).is_empty() {
                found.push((rest[..end].to_owned(), file.clone()));
            }
        }
    }
    Ok(found)
}

/// Says what is wrong with a row, but for what its links lead to.
fn problem(row: &Row<'_>, pending: &BTreeSet<&str>) -> Option<String> {
    let Row { id, words, place, proof } = row;
    let waits = place.ends_with(WAITS) || proof.ends_with(WAITS);
    match (waits, pending.contains(id)) {
        (true, false) => return Some(format!("{id} is pending, and the test does not allow it")),
        (false, true) => return Some(format!("{id} is not pending any more: take it from the list of the test")),
        _ => {}
    }
    if words.is_empty() {
        return Some(format!("{id} does not say what is asked for"));
    }
    if links(place).is_empty() && !waits {
        return Some(format!("{id} does not say where it is met"));
    }
    let reason = proof.strip_prefix(NO_TEST).unwrap_or_default();
    let is_reason = reason.split_whitespace().count() >= 5;
    if tests(row).is_empty() && !is_reason && !waits {
        return Some(format!("{id} has no proof: name a test, or say {NO_TEST:?} and why none is needed"));
    }
    if !reason.is_empty() && !NOTHING_TO_TEST.split(' ').any(|allowed| allowed == *id) {
        return Some(format!("{id} says that there is no test, and the list of the test does not allow it"));
    }
    let is_by_id = BY_ID.iter().any(|seed| id.starts_with(seed)) && reason.is_empty() && !waits;
    if is_by_id && !tests(row).iter().any(|(test, _)| ids(test).iter().any(|carried| carried == id)) {
        return Some(format!("{id} is in the name of none of its tests"));
    }
    if !reason.is_empty() && !tests(row).is_empty() {
        return Some(format!("{id} has tests, and says that it has none"));
    }
    (links(proof).len() != tests(row).len()).then(|| format!("{id} links to something that is no test"))
}

/// The part of the page under a heading that begins so.
fn section<'a>(page: &'a str, heading: &str) -> Result<&'a str> {
    let mut sections = page.split("\n## ").skip(1).filter(|section| section.starts_with(heading));
    let section = sections.next().with_context(|| format!("there is no table {heading:?}"))?;
    ensure!(sections.next().is_none(), "there are two tables {heading:?}");
    Ok(section)
}

#[test]
fn every_requirement_of_the_seeds_has_one_row() -> Result<()> {
    let page = read("docs/seeds.md")?;
    for (heading, prefix, count) in TABLES {
        let rows = rows(section(&page, heading)?)?;
        let found: Vec<&str> = rows.iter().map(|row| row.id).collect();
        let expected: Vec<String> = (1..=count).map(|number| format!("{prefix}{number}")).collect();
        let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let at = at.unwrap_or(found.len().min(expected.len()));
        ensure!(found == expected, "in {heading:?} {:?} is where {:?} belongs", found.get(at), expected.get(at));
    }
    let all: usize = TABLES.iter().map(|(_, _, count)| count).sum();
    ensure!(rows(&page)?.len() == all, "a row is in no table");
    Ok(())
}

#[test]
fn every_row_says_where_it_is_met_and_what_shows_it() -> Result<()> {
    let page = read("docs/seeds.md")?;
    let pending: BTreeSet<&str> = PENDING.split_whitespace().collect();
    let rows = rows(&page)?;
    let mut problems: Vec<String> = rows.iter().filter_map(|row| problem(row, &pending)).collect();
    let compiled = reach::reached(&root(), &["crates", "examples"])?;
    for row in &rows {
        for (_, file) in links(row.place) {
            if !root().join(&file).is_file() {
                problems.push(format!("{}: {file} is no file", row.id));
            }
        }
        for (test, file) in tests(row) {
            let fate = match read(&file) {
                Ok(_) if !compiled.contains(&file) => Fate::Unused,
                Ok(source) => fate(test, &source, list_of(&file)?.as_deref()),
                Err(_) => Fate::Missing,
            };
            match fate {
                Fate::Run => {}
                Fate::Missing => problems.push(format!("{}: {file} has no test {test}", row.id)),
                Fate::Unused => problems.push(format!("{}: nobody runs {test} of {file}", row.id)),
                Fate::Ignored => problems.push(format!("{}: {test} of {file} is ignored", row.id)),
            }
        }
    }
    for (test, file) in named_by_id(&compiled)? {
        for id in ids(&test) {
            let row = rows.iter().find(|row| row.id == id).with_context(|| format!("{test} of {file}: no row {id}"))?;
            if !tests(row).iter().any(|(linked, of)| *linked == test && *of == file) {
                problems.push(format!("{id}: {test} of {file} carries the id and is not linked"));
            }
        }
    }
    let known: BTreeSet<&str> = rows.iter().map(|row| row.id).collect();
    problems.extend(pending.difference(&known).map(|id| format!("{id} may be pending, and there is no such row")));
    ensure!(problems.is_empty(), "docs/seeds.md is wrong:\n{}", problems.join("\n"));
    Ok(())
}

#[test]
fn a_row_without_a_place_or_a_proof_is_found_out() -> Result<()> {
    let of = |id: &str, place: &str, proof: &str, pending: &[&str]| -> Result<bool> {
        let line = format!("| {id} | a thing | {place} | {proof} |");
        let rows = rows(&line)?;
        Ok(problem(&rows[0], &pending.iter().copied().collect()).is_some())
    };
    let is_wrong = |place: &str, proof: &str, pending: &[&str]| of("S0.1", place, proof, pending);
    let (place, proof) = ("[a.rs](../a.rs), [b](b.md)", "[`t`](../t.rs), [`u`](../u.rs)");
    assert!(!is_wrong(place, proof, &[])?);
    let none = "no test: it is left out by the seed itself";
    assert!(!of("S3.13", place, none, &[])? && of("S3.14", place, none, &[])?, "only some rows may have none");
    assert!(!of("S2.9", place, "[`s2_09_s2_10_it_dies`](../t.rs)", &[])?);
    for other in ["it_dies", "s2_19_it_dies", "s3_09_it_dies"] {
        assert!(of("S2.9", place, &format!("[`{other}`](../t.rs)"), &[])?, "{other} is not S2.9");
    }
    assert_eq!(ids("r03_s0_45_s0_89_s08_the_loser_s_3_rows"), ["S0.45", "S0.89"]);
    assert!(!is_wrong("pending", "pending", &["S0.1"])?);
    assert!(!is_wrong(place, "[`t`](../t.rs), pending", &["S0.1"])?);
    for (place, proof, pending) in [
        (place, "", &[][..]),
        (place, none, &[]),
        (place, "no test: none", &[]),
        (place, "nobody knows why", &[]),
        (place, "no test: it is left out by the seed itself, [`t`](../t.rs)", &[]),
        (place, "[a page](page.md)", &[]),
        (place, "[`t`](../t.rs), pending", &[]),
        (place, proof, &["S0.1"]),
        ("somewhere", proof, &[]),
        ("pending", proof, &[]),
    ] {
        assert!(is_wrong(place, proof, pending)?, "{place} | {proof} | {pending:?}");
    }
    assert!(rows("| S0.1 | a thing | [a.rs](../a.rs) |").is_err());
    assert_eq!(links(place), [("a.rs", "a.rs".to_owned()), ("b", "docs/b.md".to_owned())]);
    Ok(())
}

/// The crates of ours that a crate depends on when it is used.
fn depends_on(name: &str) -> Result<BTreeSet<String>> {
    let manifest = read(format!("crates/{name}/Cargo.toml"))?;
    let (_, rest) = manifest.split_once("\n[dependencies]\n").with_context(|| format!("{name} depends on nothing"))?;
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    let ours = names.filter(|name| root().join("crates").join(name).join("Cargo.toml").exists() && !name.is_empty());
    Ok(ours.map(str::to_owned).collect())
}

/// Rules know neither databases nor brokers, no store knows a sink, no sink a store, and the relay knows nothing but these.
#[test]
fn s2_02_s3_29_no_layer_knows_more_than_it_must() -> Result<()> {
    for (name, may) in [
        ("postrider-core", &[][..]),
        ("postrider-store", &["postrider-core"]),
        ("postrider-sinks", &["postrider-core"]),
        ("postrider-cli", &["postrider", "postrider-changelog", "postrider-sinks"]),
    ] {
        let depends: Vec<String> = depends_on(name)?.into_iter().collect();
        assert_eq!(depends, may, "{name}");
    }
    Ok(())
}

/// What a team must be able to read in one place before it writes a consumer.
#[test]
fn s3_14_s3_44_s3_45_the_write_up_says_what_it_must() -> Result<()> {
    let page = read("docs/outbox.md")?;
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["duplicates possible; consumers must be idempotent", "delivery is at least once", "`event_id`"] {
        assert!(words.contains(text), "it does not say {text:?}");
    }
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let expected = [
        "The chain",
        "How it claims, and why `SKIP LOCKED`",
        "Failure and retry",
        "Every point where it can crash",
        "Publishers that hold row locks",
        "Why duplicates are acceptable",
        "What a consumer must do",
        "Why Redis",
    ];
    assert_eq!(headings, expected);
    // What it says of tables without a status is what their layout does.
    let held = page.split("\n## ").find(|section| section.starts_with("Publishers that hold")).context("row locks")?;
    let layout = postrider::Layout::packfinderz();
    assert!(layout.status.is_none() && layout.locked_at.is_none() && layout.locked_until.is_none());
    let (limit, attempts) = (layout.last_error_limit.context("a limit")?, layout.give_up_after.context("a number")?);
    let held = held.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        &format!("at most {limit} characters"),
        &format!("{attempts} unless you say otherwise"),
        "no status",
        "`published_at`",
        "in one transaction",
        "| during the publish |",
        "| after the sink's confirmation, before it is written down |",
        "it may arrive twice",
        "a kill is not counted",
    ] {
        assert!(held.contains(text), "it does not say {text:?} of row locks");
    }
    let chain = page.split("\n## ").find(|section| section.starts_with("The chain")).context("the chain")?;
    let links = ["transaction", "outbox_messages", "postrider run", "sink", "consumer"];
    let places: Option<Vec<usize>> = links.iter().map(|link| chain.find(link)).collect();
    assert!(places.context("a link is missing")?.is_sorted());
    Ok(())
}
