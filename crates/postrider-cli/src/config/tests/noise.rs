//! S25: whatever is in the file or the environment, it is read or refused.

use proptest::prelude::*;

use super::super::reference::FULL;
use super::{BASE, load};

/// Text in which every part means something somewhere.
fn fragment() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\n",
        "\"",
        "'''",
        "\\",
        "#",
        " ",
        "source",
        "sink",
        "route",
        "shop",
        "url",
        "lease",
        "namespaces",
        "type",
        "file",
        "env",
        "enabled",
        "\"stdout\"",
        "true",
        "5",
        "-1",
        "1e999",
        "0x",
        "30s",
        "nan",
        "2024-01-01",
        "99999999999999999999999",
        "é",
        "\u{feff}",
        "\0",
    ]);
    prop_oneof![8 => words.prop_map(str::to_owned), 1 => any::<String>()]
}

fn variable() -> impl Strategy<Value = (String, String)> {
    let segments = prop::sample::select(vec![
        "SOURCE",
        "SINK",
        "ROUTE",
        "ADMIN",
        "SHOP",
        "URL",
        "FILE",
        "ENV",
        "LEASE",
        "NAMESPACES",
        "0",
        "1",
        "2",
        "TYPE",
        "LISTEN",
        "é",
        "",
        "99999999999999999999",
        "-1",
    ]);
    let name = prop::collection::vec(segments, 0..6).prop_map(|segments| format!("POSTRIDER__{}", segments.join("__")));
    let name = prop_oneof![5 => name, 1 => any::<String>(), 1 => any::<String>().prop_map(|rest| format!("postrider__{rest}"))];
    (name, prop::collection::vec(fragment(), 0..4).prop_map(|parts| parts.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s25_no_text_and_no_environment_makes_it_panic(
        parts in prop::collection::vec(fragment(), 0..40),
        variables in prop::collection::vec(variable(), 0..8),
        base in any::<bool>(),
    ) {
        let text = format!("{}{}", if base { BASE } else { "" }, parts.concat());
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let said = load(&text, &variables).map(|loaded| format!("{loaded:?}")).unwrap_or_else(|refused| refused.to_string());
        prop_assert!(!said.is_empty());
    }

    #[test]
    fn s20_an_unknown_key_is_refused_wherever_it_stands(line in any::<prop::sample::Index>(), key in "[a-z]{1,4}zq[a-z_]{0,8}") {
        // After a line that begins a table or sets a key; not within a list of several lines.
        let starts: Vec<usize> = FULL.lines().enumerate().filter(|(_, line)| line.starts_with('[')).map(|(at, _)| at).collect();
        let at = starts[line.index(starts.len())];
        let mut lines: Vec<&str> = FULL.lines().collect();
        let put = format!("{key} = 1");
        lines.insert(at + 1, &put);
        let refused = load(&lines.join("\n"), &[]).expect_err("an unknown key");
        prop_assert!(refused.to_string().contains(&key), "{refused}");
    }

    #[test]
    fn s25_a_damaged_file_is_read_or_refused(at in 0..FULL.len(), length in 0..20usize, put in fragment()) {
        let mut bytes = FULL.as_bytes().to_vec();
        bytes.splice(at..(at + length).min(FULL.len()), put.bytes());
        if let Err(refused) = load(&String::from_utf8_lossy(&bytes), &[]) {
            prop_assert!(!refused.problems.is_empty());
        }
    }
}

#[test]
fn s25_a_great_many_mistakes_are_counted() {
    let text: String = (0..20_000).map(|at| format!("key{at} = {at}\n")).collect();
    let refused = load(&text, &[]).expect_err("unknown keys");
    assert_eq!((refused.problems.len(), refused.more), (100, 19_900));
    assert!(refused.to_string().ends_with("\nand 19900 more"));
}

#[test]
fn s25_depth_is_bounded() {
    for text in [format!("a = {}", "[".repeat(100_000)), format!("{}a = 1", "a.".repeat(100_000)), "[a".repeat(50_000)]
    {
        assert!(load(&text, &[]).is_err());
    }
}

/// What the fuzzer has kept (`fuzz/corpus/configuration`): a file, and behind a NUL the variables.
#[test]
fn s25_no_input_of_the_corpus_makes_it_panic() {
    let inputs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/configuration");
    let mut count = 0;
    for input in std::fs::read_dir(inputs).expect("the corpus is in the repository") {
        let data = std::fs::read(input.expect("an input").path()).expect("it can be read");
        let text = String::from_utf8_lossy(&data);
        let (file, variables) = text.split_once('\0').unwrap_or((&text, ""));
        let variables = variables.lines().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (format!("POSTRIDER__{name}"), Some(value.to_owned())));
        let loaded = super::load_text("f", file, false, variables);
        assert!(!loaded.map(|loaded| format!("{loaded:?}")).unwrap_or_else(|refused| refused.to_string()).is_empty());
        count += 1;
    }
    assert!(count > 5, "only {count} inputs");
}
