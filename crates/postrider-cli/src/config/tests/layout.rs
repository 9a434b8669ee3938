//! Layouts in the configuration.

use std::time::Duration;

use postrider::layout::{Ability, ClaimBy, Column, PRESETS, Text, preset};

use super::super::Delivered;
use super::super::shape::Shape;
use super::{load, refusal};

/// A source on PostgreSQL; it ends inside of `[source.shop]`, on line 6.
const BASE: &str = "\
[sink.out]
type = \"stdout\"
[[route]]
sink = \"out\"
[source.shop]
url = \"postgres://postrider@h/shop\"
";

/// A layout for it; `[layout.own]` is on line 9.
const OWN: &str = "\
layout = \"own\"
table = \"OrderOutbox\"
[layout.own]
id = \"id\"
id_kind = \"integer\"
namespace = { fixed = \"orders\" }
topic = { column = \"eventType\", type = \"event_type\", values = [\"placed\"] }
payload = \"body\"
claim = \"row_lock\"
delivered_at = \"sentAt\"
";

#[test]
fn a_known_layout_brings_its_names_and_what_follows_from_it() {
    let config = load(&format!("{BASE}layout = \"talkie\"\n"), &[]).expect("accepted").config;
    let shop = &config.source["shop"];
    assert_eq!((shop.described.names.table(), shop.described.names.prefix()), ("outbox", "postrider_talkie_"));
    assert_eq!((shop.lease, shop.batch_size, shop.delivered), (Duration::from_secs(300), 500, Delivered::Keep));
    let config = load(&format!("{BASE}layout = \"packfinderz\"\ntable = \"Events\"\nschema = \"Shop\"\n"), &[]);
    let shop = config.expect("accepted").config.source.remove("shop").expect("it is there");
    assert_eq!((shop.described.names.table(), shop.described.names.schema()), ("Events", Some("Shop")));
    assert_eq!((shop.max_attempts, shop.batch_size), (10, 50));
    let config = load(&format!("{BASE}layout = \"debezium\"\nlock_timeout = \"1m\"\nlease = \"20s\"\n"), &[]);
    let shop = config.expect("accepted").config.source.remove("shop").expect("it is there");
    assert_eq!((shop.lease, shop.described.lock_timeout), (Duration::from_secs(20), Duration::from_secs(60)));
    assert_eq!(shop.delivered, Delivered::Delete);
}

#[test]
fn a_layout_of_ones_own_is_a_table_of_the_file_and_of_the_environment() {
    let given = [("POSTRIDER__LAYOUT__OWN__KEY", "orderId"), ("POSTRIDER__LAYOUT__OWN__LOCK_TIMEOUT", "90s")];
    let config = load(&format!("{BASE}{OWN}"), &given).expect("accepted").config;
    let layout = &config.source["shop"].described;
    assert_eq!((&*layout.name, layout.names.table(), layout.names.prefix()), ("own", "OrderOutbox", "postrider_own_"));
    assert_eq!((layout.claim, layout.lock_timeout), (ClaimBy::RowLock, Duration::from_secs(90)));
    assert_eq!(layout.topic, Text::Column(Column::one_of("eventType", "event_type", &["placed"])));
    assert_eq!(layout.key, Some("orderId".into()));
    let given = [("POSTRIDER__LAYOUT__OWN__KEY", "{ column = \"orderId\", type = \"uuid\" }")];
    let config = load(&format!("{BASE}{OWN}"), &given).expect("accepted").config;
    assert_eq!(config.source["shop"].described.key, Some(Column::typed("orderId", "uuid")));
}

/// What is wrong is said with its place, the nearest name and what to do.
#[test]
fn what_is_wrong_with_a_layout_is_refused() {
    let cases = [
        ("layout = \"talky\"\n", "f:7:10: source.shop.layout: there is no such layout; did you mean \"talkie\"?"),
        (
            "layout = \"talkie\"\nlease = \"10m\"\n",
            "f:8:9: source.shop.lease: it is longer than the lock_timeout of 300s of the layout \"talkie\", after which others take the message; shorten it, or set lock_timeout",
        ),
        (
            "layout = \"packfinderz\"\nmax_attempts = 5\n",
            "f:8:16: source.shop.max_attempts: max_attempts is 5, and a row of the layout \"packfinderz\" is dead after 10 attempts, whoever looks at it; remove it",
        ),
        (
            "layout = \"packfinderz\"\nbatch_size = 200\n",
            "f:8:14: source.shop.batch_size: batch_size is 200, and the layout \"packfinderz\" locks at most 50 rows while they are published; lower it",
        ),
        (
            "layout = \"talkie\"\norder = \"key\"\n",
            "f:8:9: source.shop.order: the layout \"talkie\" cannot do this: messages are delivered without order; remove it",
        ),
        (
            "layout = \"debezium\"\ndelivered = \"keep\"\n",
            "f:8:13: source.shop.delivered: the layout \"debezium\" cannot do this: delivered rows are deleted; remove it",
        ),
        (
            "layout = \"talkie\"\nnamespaces = [\"orders\"]\n",
            "f:8:14: source.shop.namespaces: every message of the layout \"talkie\" is of the namespace \"outbox\"; name that, or remove it",
        ),
        (
            "layout = \"modkit\"\nlock_timeout = \"1m\"\n",
            "f:8:16: source.shop.lock_timeout: the layout \"modkit\" has leases, and no time-out of locks; set lease instead",
        ),
        (
            "layout = \"modkit\"\nchangelog.enabled = true\n",
            "f:8:21: source.shop.changelog.enabled: a changelog is beside Postrider's own table only; give it a source with the layout \"postrider\"",
        ),
    ];
    for (more, said) in cases {
        assert_eq!(refusal(&format!("{BASE}{more}"), &[]), said, "{more}");
    }
    let own = |from: &str, to: &str| refusal(&format!("{BASE}{}", OWN.replace(from, to)), &[]);
    assert_eq!(
        own("delivered_at =", "deliverd_at ="),
        "f:16:1: layout.own.deliverd_at: there is no such key; did you mean \"delivered_at\"?"
    );
    assert_eq!(own("id = \"id\"\n", ""), "f:9:9: layout.own: it has no id; add it");
    assert!(own("table = \"OrderOutbox\"\n", "").ends_with("this layout does not say which table it is of; add table"));
    assert!(
        own("type = \"event_type\"", "tpye = \"event_type\"")
            .contains("layout.own.topic.tpye: there is no such key; did you mean \"type\"?")
    );
    assert!(own("\"row_lock\"", "\"lease\"").contains("names no column for locked_until"));
    assert!(
        own("\"row_lock\"", "\"rowlock\"")
            .contains("layout.own.claim: there is no such choice; did you mean \"row_lock\"?")
    );
    assert!(own("delivered_at = \"sentAt\"", "lock_timeout = 5").contains("layout.own.lock_timeout: "));
    assert!(
        refusal(&format!("{BASE}{}", OWN.replace("own", "talkie")), &[])
            .contains("this is the name of a layout that is known")
    );
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/layouts.md");
const MADE: &str = "<!-- Made by the test `the_page_about_layouts_says_what_each_can_do`. -->\n";
const END: &str = "<!-- The end of what is made. -->\n";

/// What each known layout can do, and every key of one's own.
fn tables() -> String {
    use super::super::reference::model;
    let others: Vec<postrider::Layout> =
        PRESETS.iter().skip(1).map(|name| preset(name).expect("it is known")).collect();
    let names: Vec<&str> = others.iter().map(|layout| &*layout.name).collect();
    let mut text = format!("| | {} | without it |\n|---|{}---|\n", names.join(" | "), "---|".repeat(names.len()));
    for ability in Ability::ALL {
        let cells = others.iter().map(|layout| if layout.can(ability) { "yes" } else { "no" });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        text.push_str(&format!("| `{ability}` | {cells} | {} |\n", ability.without()));
    }
    text.push_str("\n## Every key\n\n| key | what it is | unless given |\n|---|---|---|\n");
    let model = model();
    let sections = model.fields();
    let section = sections.iter().find(|section| section.name == "layout").expect("it is there");
    let Shape::Named(inner) = &section.shape else { panic!("layouts have names") };
    for field in inner.fields() {
        let usual = match (&field.default, field.needed) {
            (_, true) => "needed".to_owned(),
            (Some(default), _) => format!("`{default}`"),
            (None, _) => "not there".to_owned(),
        };
        text.push_str(&format!("| `{}` | {} | {usual} |\n", field.name, field.about));
    }
    text
}

#[test]
fn the_page_about_layouts_says_what_each_can_do() {
    let page = std::fs::read_to_string(PAGE).expect("the page is in the repository");
    let (before, rest) = page.split_once(MADE).expect("it has a mark");
    let (_, after) = rest.split_once(END).expect("it has another");
    let wanted = format!("{before}{MADE}\n{}\n{END}{after}", tables());
    if std::env::var_os("POSTRIDER_TEST_WRITE_REFERENCE").is_some() {
        std::fs::write(PAGE, &wanted).expect("written");
        return;
    }
    assert!(
        page == wanted,
        "docs/reference/layouts.md is out of date; write it anew with \
         `POSTRIDER_TEST_WRITE_REFERENCE=1 cargo test -p postrider-cli the_page_about_layouts`"
    );
}

/// What the pages show can be copied.
#[test]
fn the_examples_of_the_pages_about_layouts_load() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/existing-table.md");
    let mut shown = 0;
    for page in [PAGE, guide] {
        let text = std::fs::read_to_string(page).expect("a page");
        for example in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            shown += 1;
            let sink = "[sink.out]\ntype = \"stdout\"\n[[route]]\nsink = \"out\"\n";
            load(&format!("{example}\n{sink}"), &[]).unwrap_or_else(|refused| panic!("{page}: {refused}\n{example}"));
        }
    }
    assert!(shown >= 3, "only {shown} were found");
}
