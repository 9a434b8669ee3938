//! The guide shows what is compiled and what is done.
#![cfg(feature = "provider")]

const GUIDE: &str = include_str!("../../../docs/guides/providers.md");
const ADAPTER: &str = include_str!("../src/provider/adapter.rs");

/// Lines between a fence and its end, without their indentation.
fn blocks<'a>(text: impl Iterator<Item = &'a str>, fence: &str) -> Vec<Vec<&'a str>> {
    let mut lines = text.map(str::trim);
    let mut found = Vec::new();
    while lines.by_ref().any(|line| line == fence) {
        found.push(lines.by_ref().take_while(|line| *line != "```").collect());
    }
    found
}

#[test]
fn the_adapter_of_the_guide_is_the_one_that_is_compiled() {
    let shown = |line: &&str| !line.is_empty() && !line.starts_with("# ");
    let documentation = ADAPTER.lines().filter_map(|line| line.strip_prefix("//!"));
    let compiled: Vec<Vec<&str>> = blocks(documentation, "```");
    let compiled: Vec<&str> = compiled.into_iter().flatten().filter(shown).collect();
    let guide: Vec<&str> = blocks(GUIDE.lines(), "```rust,no_run").into_iter().flatten().filter(shown).collect();
    assert!(guide.len() > 10, "the example is there");
    assert_eq!(guide, compiled);
}

#[test]
fn every_setting_is_of_the_configuration() {
    let schema = serde_json::to_value(schemars::schema_for!(postrider_sinks::provider::ProviderConfig)).expect("JSON");
    let of = |table: &str| match table {
        "" => &schema["properties"],
        "noop" => &schema["$defs"]["NoopConfig"]["properties"],
        "noop.answers" => &serde_json::Value::Null,
        "slack" => &schema["$defs"]["SlackConfig"]["properties"],
        "telegram" => &schema["$defs"]["TelegramConfig"]["properties"],
        "whatsapp" => &schema["$defs"]["WhatsappConfig"]["properties"],
        other => panic!("there is no table {other}"),
    };
    let mut seen = 0;
    for block in blocks(GUIDE.lines(), "```toml") {
        let mut table = "";
        for line in block {
            if let Some(name) = line.strip_prefix("[sink.chat").and_then(|name| name.strip_suffix(']')) {
                table = name.trim_start_matches('.');
            } else if let Some((key, _)) = line.split_once(" = ").filter(|_| table != "noop.answers") {
                assert!(key == "type" || of(table)[key].is_object(), "{table} has no {key}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 7, "{seen} settings were found");
}
