//! S16 and S20: whatever goes wrong around a secret, it is not repeated.

use super::super::reference::{FULL, model};
use super::super::shape::Shape;
use super::load;

const CANARY: &str = "postgres://user:canary@host/db";

/// All that can be printed: the refusal, or the configuration and its warnings.
fn printed(text: &str, variables: &[(&str, &str)]) -> String {
    match load(text, variables) {
        Ok(loaded) => format!("{loaded:?} {}", serde_json::to_string(&loaded.config).expect("JSON")),
        Err(refused) => format!("{refused} {refused:?}"),
    }
}

#[test]
fn s16_no_damage_to_a_file_shows_the_secret_in_it() {
    let text = FULL.replace("postgres://postrider@127.0.0.1/shop", CANARY);
    let start = text.find("[source.shop]").expect("the source");
    let end = start + text[start..].find("connections").expect("the next key");
    let mut refused = 0;
    for at in (start..=end).filter(|at| text.is_char_boundary(*at)) {
        let (before, after) = text.split_at(at);
        let cut: String = after.chars().skip(1).collect();
        let line_lost = after.split_once('\n').map_or("", |(_, rest)| rest);
        let mut damaged = vec![format!("{before}{cut}"), format!("{before}{line_lost}"), before.to_owned()];
        damaged.extend(
            ["\n", "\"", "'", "=", ".", "[", "]", "{", "}", "#", ",", "\\", " ", "\"\"\"", "\0"]
                .map(|put| format!("{before}{put}{after}")),
        );
        for text in damaged {
            let printed = printed(&text, &[]);
            assert!(!printed.contains("canary"), "{text}\n{printed}");
            refused += usize::from(load(&text, &[]).is_err());
        }
    }
    assert!(refused > 500, "the damage was noticed: {refused}");
}

#[test]
fn s16_no_position_repeats_what_is_put_there() {
    let positions = [
        "url = CANARY",
        "url = [CANARY]",
        "url = { file = CANARY }",
        "url = { env = CANARY }",
        "url = { CANARY = CANARY }",
        "CANARY = 1",
        "url = 5\nurll = CANARY",
        "lease = CANARY",
        "enabled = CANARY",
        "batch_size = CANARY",
        "namespaces = CANARY",
        "namespaces = [CANARY]",
        "tenant = CANARY",
        "delivered = CANARY",
        "schema = CANARY",
        "table = CANARY",
        "[source]\nb = CANARY",
        "[source.CANARY]\nlease = 5",
        "[sink.b]\ntype = CANARY",
        "[sink]\nb = CANARY",
        "[[route]]\nsink = CANARY",
        "[[route]]\nsink = \"out\"\nsource = CANARY",
        "[[route]]\nsink = \"out\"\ntopic = CANARY\nnamespace = CANARY",
        "[log]\nlevel = CANARY\nformat = CANARY",
        "[trace]\notlp_endpoint = CANARY",
        "[admin]\nlisten = CANARY",
        "[CANARY]",
    ];
    for position in positions {
        let base = "[sink.out]\ntype = \"stdout\"\n[source.shop]\n";
        let text = format!("{base}{}\n", position.replace("CANARY", &format!("{CANARY:?}")));
        // A topic may look like this, and what is configured openly may be shown; what is refused may not.
        let Err(refused) = load(&text, &[]) else { continue };
        assert!(!format!("{refused}{refused:?}").contains("canary"), "{position}: {refused}");
    }
}

#[test]
fn s20_an_address_is_refused_by_its_scheme_alone() {
    for url in [
        "http://user:canary@host/db",
        "canary",
        "user:canary@host",
        "canary:secret@host",
        "postgres:user:canary@host",
        "postgres://user:can/ary:canary@host:x/db",
        "postgres://user:canary@ho st/db",
        "postgres://user@host:canary/db",
        "postgres://user:12#canary@host/db",
        "mysql:canary",
        "//user:canary@host",
    ] {
        let refused = load("", &[("POSTRIDER__SOURCE__SHOP__URL", url)]).expect_err(url).to_string();
        assert!(refused.starts_with("POSTRIDER__SOURCE__SHOP__URL: source.shop.url: "), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}

#[test]
fn s16_no_variable_is_repeated() {
    let mut names = Vec::new();
    variables(&model(), "POSTRIDER", &mut names);
    assert!(names.len() > 30, "{names:?}");
    let endings = ["", "__X", "X", "__FILE", "__ENV"];
    for name in names.iter().flat_map(|name| endings.map(|ending| format!("{name}{ending}"))) {
        for value in [CANARY, "[canary", "{ canary = 1", "{ file = 'http://canary' }", "['canary://x', 5]"] {
            let Err(refused) = load(FULL, &[(&name, value)]) else { continue };
            assert!(!format!("{refused}{refused:?}").contains("canary"), "{name}={value}: {refused}");
        }
    }
}

fn variables(shape: &Shape, name: &str, names: &mut Vec<String>) {
    match shape {
        Shape::Leaf(_) | Shape::TextOr(_) => {}
        Shape::Named(inner) => variables(inner, &format!("{name}__SHOP"), names),
        Shape::List(inner) => variables(inner, &format!("{name}__0"), names),
        Shape::Section(_) | Shape::Typed(_) => {
            for field in shape.fields() {
                variables(&field.shape, &format!("{name}__{}", field.name.to_uppercase()), names);
            }
        }
    }
    names.push(name.to_owned());
}
