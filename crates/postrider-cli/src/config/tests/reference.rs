//! The reference and its examples.

use super::super::reference::{FULL, MINIMAL};
use super::super::{example, reference};
use super::load;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");

#[test]
fn the_reference_is_up_to_date() {
    if std::env::var_os("POSTRIDER_TEST_WRITE_REFERENCE").is_some() {
        std::fs::write(PAGE, reference()).expect("written");
    }
    let page = std::fs::read_to_string(PAGE).expect("the page is in the repository");
    assert!(
        page == reference(),
        "docs/reference/configuration.md is out of date; write it anew with \
         `POSTRIDER_TEST_WRITE_REFERENCE=1 cargo test -p postrider-cli the_reference_is_up_to_date`"
    );
}

#[test]
fn the_examples_load_without_a_warning() {
    for (name, text) in [("minimal", MINIMAL), ("full", FULL), ("start", example())] {
        let loaded = load(text, &[]).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert!(loaded.warnings.is_empty(), "{name}: {}", loaded.warnings[0]);
    }
}

/// What the file to start from shows behind a mark can be switched on.
#[test]
fn the_example_loads_with_all_its_lines() {
    let is_key = |line: &str| {
        line.strip_prefix("# ").is_some_and(|rest| rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')))
    };
    let all: Vec<&str> = example().lines().map(|line| if is_key(line) { &line[2..] } else { line }).collect();
    assert!(all.len() > example().lines().filter(|line| !line.starts_with('#')).count());
    load(&all.join("\n"), &[]).unwrap_or_else(|refused| panic!("{refused}"));
}

#[test]
fn every_description_in_the_reference_is_there() {
    let page = reference();
    for part in
        ["### `source.NAME.lease`", "POSTRIDER__ROUTE__0__SINK", "default `\"30s\"`", "Secret, needed", "`\"stdout\"`"]
    {
        assert!(page.contains(part), "{part}");
    }
    let mut lines = page.lines().filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if line.starts_with("### ") {
            let about = lines.next().unwrap_or_default();
            assert!(!about.starts_with('#') && !about.contains(" · `POSTRIDER"), "{line} has no description");
        }
    }
}

/// A line that says where its secret is, with the secret itself.
fn with_secret(line: &str) -> String {
    let Some(at) = ["{ file = ", "{ env = "].iter().find_map(|place| line.find(place)) else { return line.to_owned() };
    let end = at + line[at..].find('}').expect("it is closed") + 1;
    let secret = match line.starts_with("signing_keys") {
        true => "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        false => "123456:ABC-DEF",
    };
    format!("{}\"{secret}\"{}", &line[..at], &line[end..])
}

/// What the pages of the sinks show can be copied: with a source beside it, it is a configuration.
#[test]
fn the_examples_of_the_sinks_load() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/providers.md");
    let pages =
        std::fs::read_dir(format!("{reference}/sinks")).expect("a directory").map(|page| page.expect("a page").path());
    let pages = pages.chain([format!("{reference}/sinks.md").into(), guide.into()]);
    let mut shown = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for example in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if !example.contains("[sink.") {
                continue;
            }
            shown += 1;
            // Files and variables of somebody else's machine are not read.
            let example = example.lines().filter(|line| !line.starts_with("credentials")).map(with_secret);
            let example = example.collect::<Vec<_>>().join("\n");
            let source = "[source.shop]\nurl = \"postgres://postrider@127.0.0.1/shop\"\n";
            let whole = format!("{example}\n{source}");
            load(&whole, &[]).unwrap_or_else(|refused| panic!("{}: {refused}\n{whole}", page.display()));
        }
    }
    assert!(shown >= 8, "only {shown} were found");
}
