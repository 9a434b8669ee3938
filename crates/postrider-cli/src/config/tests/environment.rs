//! Environment variables: what they reach, what they override, and what is refused.

use std::io::Write;
use std::time::Duration;

use postrider_sinks::setting::Secret;

use super::super::reference::{FULL, model};
use super::super::tree::{Node, Value};
use super::super::{Config, tree};
use super::{BASE, load, refusal};

fn config(text: &str, variables: &[(&str, &str)]) -> Config {
    load(text, variables).unwrap_or_else(|refused| panic!("{refused}")).config
}

fn url(config: &Config, source: &str) -> Option<String> {
    config.source[source].url.as_ref().map(|url| url.expose().to_owned())
}

#[test]
fn s20_a_variable_overrides_the_file_and_only_its_own_key() {
    let text = format!("{BASE}lease = \"40s\"\nbatch_size = 5\n");
    let config = config(&text, &[("POSTRIDER__SOURCE__SHOP__LEASE", "50s"), ("POSTRIDER__ADMIN__ENABLED", "FALSE")]);
    let shop = &config.source["shop"];
    assert_eq!((shop.lease, shop.batch_size), (Duration::from_secs(50), 5));
    assert!(!config.admin.enabled);
}

#[test]
fn variables_alone_are_enough() {
    let config = config(
        "",
        &[
            ("POSTRIDER__SOURCE__SHOP__URL", "postgres://u:p@h/x"),
            ("POSTRIDER__SOURCE__SHOP__NAMESPACES", "orders, payments"),
            ("POSTRIDER__SOURCE__OTHER__URL", "sqlite:x"),
            ("POSTRIDER__SOURCE__OTHER__NAMESPACES", "['a', \"c\"]"),
            ("POSTRIDER__SINK__CONSOLE__TYPE", "stdout"),
            ("POSTRIDER__ROUTE__0__SINK", "console"),
            ("POSTRIDER__ROUTE__0__TOPIC", "order.*"),
            ("POSTRIDER__ROUTE__1__SINK", "console"),
            ("postrider__log__format", "json"),
        ],
    );
    assert_eq!(config.source["shop"].namespaces, Some(vec!["orders".into(), "payments".into()]));
    assert_eq!(config.source["other"].namespaces, Some(vec!["a".into(), "c".into()]));
    let topics: Vec<_> = config.route.iter().map(|route| route.topic.as_deref()).collect();
    assert_eq!(topics, [Some("order.*"), None]);
}

#[test]
fn elements_of_a_list_are_counted_and_not_spelt() {
    let topics: Vec<String> = (0..12).map(|at| format!("t{at}")).collect();
    let variables: Vec<(String, &str)> = topics
        .iter()
        .enumerate()
        .map(|(at, topic)| (format!("POSTRIDER__ROUTE__{}__TOPIC", at + 1), topic.as_str()))
        .collect();
    let sinks: Vec<(String, &str)> = (1..13).map(|at| (format!("POSTRIDER__ROUTE__{at}__SINK"), "out")).collect();
    let all: Vec<(&str, &str)> = variables.iter().chain(&sinks).map(|(name, value)| (name.as_str(), *value)).collect();
    let found: Vec<String> = config(BASE, &all).route.into_iter().skip(1).filter_map(|route| route.topic).collect();
    assert_eq!(found, topics);
}

#[test]
fn hyphens_and_capitals_of_names_are_found_again() {
    let text = format!("{BASE}[source.My-Shop]\nurl = \"sqlite:a.db\"\n[source.my_other]\nurl = \"sqlite:b.db\"\n");
    let variables = [("POSTRIDER__SOURCE__MY_SHOP__LEASE", "50s"), ("POSTRIDER__SOURCE__my_OTHER__LEASE", "60s")];
    let config = config(&text, &variables);
    assert_eq!(config.source["My-Shop"].lease, Duration::from_secs(50));
    assert_eq!(config.source["my_other"].lease, Duration::from_secs(60));
    assert_eq!(config.source.len(), 3, "no new one was made");
}

#[test]
fn a_secret_may_be_in_a_file() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"postgres://u:p@h/x\r\n").expect("written");
    let path = file.path().display().to_string();
    let expected = Some("postgres://u:p@h/x".to_owned());
    assert_eq!(url(&config(BASE, &[("POSTRIDER__SOURCE__SHOP__URL__FILE", &path)]), "shop"), expected);
    let inline = format!("{{ file = {path:?} }}");
    assert_eq!(url(&config(BASE, &[("POSTRIDER__SOURCE__SHOP__URL", &inline)]), "shop"), expected);
    let in_file = BASE.replace("\"sqlite:shop.db\"", &inline);
    assert_eq!(url(&config(&in_file, &[]), "shop"), expected);
    assert_eq!(
        url(&config(&in_file, &[("POSTRIDER__SOURCE__SHOP__URL", "sqlite:x")]), "shop"),
        Some("sqlite:x".into())
    );
}

#[test]
fn variables_of_the_tests_are_none_of_our_business() {
    config(BASE, &[("POSTRIDER_TEST_DATABASE", "x"), ("POSTRIDER", "x"), ("POSTRIDER_", "x"), ("PÖSTRIDER__X", "y")]);
}

#[test]
fn wrong_variables_are_refused_by_name() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("POSTRIDER__SORCE__SHOP__URL", "x")],
            "POSTRIDER__SORCE__SHOP__URL: there is no such setting; did you mean POSTRIDER__SOURCE__SHOP__URL?",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__LEESE", "x")],
            "POSTRIDER__SOURCE__SHOP__LEESE: there is no such setting; did you mean POSTRIDER__SOURCE__SHOP__LEASE?",
        ),
        (
            &[("POSTRIDER__SINK__OUT__TIPE", "x")],
            "POSTRIDER__SINK__OUT__TIPE: there is no such setting; did you mean POSTRIDER__SINK__OUT__TYPE?",
        ),
        (
            &[("POSTRIDER__ADMIN__ENABLED__X", "x")],
            "POSTRIDER__ADMIN__ENABLED__X: there is no such setting; did you mean POSTRIDER__ADMIN__ENABLED?",
        ),
        (
            &[("POSTRIDER__LOG__LEVEL__\u{1b}[31m", "x")],
            "POSTRIDER__LOG__LEVEL__\\u{1b}[31m: there is no such setting; did you mean POSTRIDER__LOG__LEVEL?",
        ),
        (
            &[("POSTRIDER__SOURC\u{1b}__SHOP", "x")],
            "POSTRIDER__SOURC\\u{1b}__SHOP: there is no such setting; did you mean POSTRIDER__SOURCE__SHOP?",
        ),
        (
            &[("POSTRIDER__", "x")],
            "POSTRIDER__: there is no such setting; after POSTRIDER__ comes one of ADMIN, LAYOUT, LOG, RELAY, ROUTE, SINK, SOURCE, TRACE",
        ),
        (
            &[("POSTRIDER__ROUTE__7__SINK", "out")],
            "POSTRIDER__ROUTE__7__SINK: the list has no such element; the next one is POSTRIDER__ROUTE__1__SINK",
        ),
        (
            &[("POSTRIDER__ROUTE__FIRST__SINK", "out")],
            "POSTRIDER__ROUTE__FIRST__SINK: the list has no such element; the next one is POSTRIDER__ROUTE__1__SINK",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__LEASE", "30")],
            "POSTRIDER__SOURCE__SHOP__LEASE: source.shop.lease: 30 has no unit; write \"30ms\" or \"30s\", whichever you mean",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__BATCH_SIZE", "many")],
            "POSTRIDER__SOURCE__SHOP__BATCH_SIZE: source.shop.batch_size: this is text; it must be a whole number",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__BATCH_SIZE", "1_001")],
            "POSTRIDER__SOURCE__SHOP__BATCH_SIZE: source.shop.batch_size: batch_size is 1001; it must be from 1 to 1000",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__NAMESPACES", "a,b c")],
            "POSTRIDER__SOURCE__SHOP__NAMESPACES: source.shop.namespaces[1]: the namespace holds the character ' '; use ASCII letters, digits and . _ - : /",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__NAMESPACES", "[a")],
            "POSTRIDER__SOURCE__SHOP__NAMESPACES: source.shop.namespaces: this begins like a TOML list and is none; separate elements by commas, without brackets",
        ),
        (
            &[("POSTRIDER__ADMIN", "on")],
            "POSTRIDER__ADMIN: admin: this is a table; set its keys one by one, by __ and the key's name, or write { key = value }",
        ),
        (
            &[("POSTRIDER__ADMIN", "{ port = 1 }")],
            "POSTRIDER__ADMIN: admin.port: there is no such key; known are enabled, listen, oldest_due_limit, stalled_after",
        ),
        (
            &[("POSTRIDER__SOURCE__SHOP__URL", "sqlite:x"), ("POSTRIDER__SOURCE__SHOP__URL__FILE", "/x")],
            "POSTRIDER__SOURCE__SHOP__URL__FILE: source.shop.url: POSTRIDER__SOURCE__SHOP__URL sets the same key; keep one of the two",
        ),
        (
            &[("POSTRIDER__LOG__LEVEL", "info"), ("POSTRIDER__log__LEVEL", "warn")],
            "POSTRIDER__log__LEVEL: log.level: POSTRIDER__LOG__LEVEL sets the same key; keep one of the two",
        ),
        (
            &[("POSTRIDER__SOURCE____URL", "sqlite:x")],
            "POSTRIDER__SOURCE____URL: source.\"\": this is not a good name; use up to 64 letters, digits, - and single _",
        ),
    ];
    for (variables, said) in cases {
        assert_eq!(refusal(BASE, variables), *said);
    }
    let alike = format!("{BASE}[source.A-b]\nurl = \"sqlite:a\"\n[source.a-B]\nurl = \"sqlite:b\"\n");
    assert_eq!(
        refusal(&alike, &[("POSTRIDER__SOURCE__A_B__LEASE", "1m")]),
        "POSTRIDER__SOURCE__A_B__LEASE: this could be any of A-b and a-B; rename all but one in the file"
    );
}

/// The whole full example as variables is the same configuration: every key of the model can be reached.
#[test]
fn a_tenant_is_named_in_a_variable_without_hyphens() {
    const RATE: &str = "POSTRIDER__SOURCE__SHOP__TENANT_LIMITS__TENANTS__0190B0A8_6D1C_7C3E_9C1D_3B1F0A6F4E2D__RATE";
    let alone = config(BASE, &[(RATE, "5")]);
    assert_eq!(alone.source["shop"].tenant_limits.tenants["0190b0a8_6d1c_7c3e_9c1d_3b1f0a6f4e2d"].rate, Some(5));
    let name = "0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d";
    let both = config(&format!("{BASE}tenant_limits.tenants.{name}.rate = 4\n"), &[(RATE, "5")]);
    assert_eq!(both.source["shop"].tenant_limits.tenants.len(), 1);
    assert_eq!(both.source["shop"].tenant_limits.tenants[name].rate, Some(5));
}

#[test]
fn every_key_has_a_variable() {
    let mut variables = Vec::new();
    let tree = tree::parse(FULL, &mut super::super::Findings::new("full", FULL));
    flatten(&tree, "POSTRIDER", &mut variables);
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let by_variables = config("", &variables);
    let by_file = config(FULL, &[]);
    let written = |config: &Config| serde_json::to_string(config).expect("JSON");
    assert_eq!(written(&by_variables), written(&by_file));
    let urls = [&by_variables, &by_file].map(|config| config.source["shop"].url.as_ref().map(Secret::expose));
    assert_eq!(urls[0], urls[1]);
}

fn flatten(node: &Node, name: &str, variables: &mut Vec<(String, String)>) {
    let text = match &node.value {
        Value::Table(table) => {
            return table
                .iter()
                .for_each(|(key, entry)| flatten(&entry.node, &format!("{name}__{}", key.to_uppercase()), variables));
        }
        Value::List(list) => {
            return list.iter().enumerate().for_each(|(at, node)| flatten(node, &format!("{name}__{at}"), variables));
        }
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Float(_) | Value::Date => panic!("no key is one"),
    };
    variables.push((name.to_owned(), text));
}

/// The example from which the test above takes its keys has all of them.
#[test]
fn the_full_example_has_every_key() {
    use super::super::shape::Shape;
    /// What excludes another key may stand in another element.
    fn in_none<'a>(shape: &Shape, nodes: impl Iterator<Item = &'a Node>, path: &str, found: &mut Vec<String>) {
        let of_each = nodes.map(|node| {
            let mut found = Vec::new();
            missing(shape, node, path, &mut found);
            found
        });
        let of_each: Vec<Vec<String>> = of_each.collect();
        let in_none = |path: &&String| of_each.iter().all(|found| found.contains(path));
        found.extend(of_each[0].iter().filter(in_none).cloned());
    }
    fn missing(shape: &Shape, node: &Node, path: &str, found: &mut Vec<String>) {
        match (shape, &node.value) {
            (Shape::Named(inner), Value::Table(table)) if matches!(**inner, Shape::Section(_)) => {
                in_none(inner, table.values().map(|entry| &entry.node), &format!("{path}.NAME"), found);
            }
            (Shape::Named(inner), Value::Table(table)) => {
                table.iter().for_each(|(key, entry)| missing(inner, &entry.node, &format!("{path}.{key}"), found));
            }
            (Shape::List(inner), Value::List(list)) => {
                in_none(inner, list.iter(), &format!("{path}[]"), found);
            }
            (Shape::Section(fields), Value::Table(table)) => fields.iter().for_each(|field| {
                let path = format!("{path}.{}", field.name);
                match table.get(&field.name) {
                    Some(entry) => missing(&field.shape, &entry.node, &path, found),
                    // What excludes another key stands there as a comment.
                    None if FULL.contains(&format!("\n# {} = ", field.name)) => {}
                    None => found.push(path),
                }
            }),
            (Shape::Typed(variants), Value::Table(table)) => {
                let kind = table["type"].node.text();
                let variant = variants.iter().find(|variant| Some(&*variant.name) == kind).expect("a known type");
                missing(&Shape::Section(variant.fields.clone()), node, path, found);
            }
            _ => {}
        }
    }
    let tree = tree::parse(FULL, &mut super::super::Findings::new("full", FULL));
    let mut found = Vec::new();
    missing(&model(), &tree, "", &mut found);
    assert_eq!(found, Vec::<String>::new(), "add these to examples/full.toml");
    for sink in super::super::Sink::one_of_each() {
        let kind = serde_json::to_value(&sink).expect("JSON")["type"].as_str().map(str::to_owned);
        let has = config(FULL, &[])
            .sink
            .values()
            .any(|sink| serde_json::to_value(sink).expect("JSON")["type"].as_str() == kind.as_deref());
        assert!(has, "add a sink of the type {kind:?} to examples/full.toml");
    }
}

#[cfg(unix)]
#[test]
fn s16_a_variable_that_is_not_unicode_is_refused_by_name_and_never_guessed_at() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::super::{environment::read, load_text};

    let bytes = |text: &[u8]| OsString::from_vec(text.to_vec());
    let refusal = |name: &[u8], value: &[u8]| {
        let variable = read((bytes(name), bytes(value)));
        load_text("f", BASE, false, [variable].into_iter()).map(|_| ()).map_err(|refused| refused.to_string())
    };
    assert_eq!(
        refusal(b"POSTRIDER__SOURCE__SHOP__URL", b"postgres://u:canary\xff@h/x").expect_err("not Unicode"),
        "POSTRIDER__SOURCE__SHOP__URL: source.shop.url: its name or value is not Unicode; set it to text in UTF-8"
    );
    let name = refusal(b"POSTRIDER__SOURCE__SH\xffP__URL", b"canary").expect_err("not Unicode");
    assert!(name.starts_with("POSTRIDER__SOURCE__SH\u{fffd}P__URL: ") && !name.contains("canary"), "{name}");
    refusal(b"SOMETHING_ELSE", b"\xff").expect("none of our business");
}
