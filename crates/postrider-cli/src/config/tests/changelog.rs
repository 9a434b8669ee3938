//! The changelog of a source, and the routes that are for it.

use super::super::Config;
use super::{BASE, load, refusal, warnings};

/// A source with its changelog on, without a route; the next line is line 7.
const SOURCE: &str = "\
[sink.out]
type = \"stdout\"
[source.shop]
url = \"sqlite:shop.db\"
[source.shop.changelog]
enabled = true
";

/// A route for it; with SOURCE before it, its first line is line 7.
const ROUTE: &str = "[[route]]\nsink = \"out\"\nsource = \"shop\"\nchangelog = true\nname = \"trail\"\n";

fn accepted(text: &str) -> Config {
    load(text, &[]).unwrap_or_else(|refused| panic!("{refused}")).config
}

#[test]
fn a_changelog_is_off_until_it_is_switched_on() {
    let changelog = &accepted(BASE).source["shop"].changelog;
    assert!(!changelog.enabled && !changelog.serve && changelog.token.is_none());
    assert_eq!((changelog.poll_interval.as_millis(), changelog.lease.as_secs()), (200, 30));
}

#[test]
fn a_source_with_changelog_routes_only_has_no_dispatcher() {
    let only = accepted(&format!("{SOURCE}{ROUTE}"));
    assert!(!only.dispatches("shop"));
    assert_eq!((only.routes_of("shop").count(), only.changelog_routes_of("shop").count()), (0, 1));
    assert_eq!(warnings(&format!("{SOURCE}{ROUTE}")), [""; 0]);
    let both = accepted(&format!("{SOURCE}{ROUTE}[[route]]\nsink = \"out\"\n"));
    assert!(both.dispatches("shop"));
    assert_eq!((both.routes_of("shop").count(), both.changelog_routes_of("shop").count()), (1, 1));
    assert!(!accepted(&format!("{SOURCE}serve = true\n")).dispatches("shop"), "it is there to be read over HTTP");
    assert!(accepted(SOURCE).dispatches("shop"), "without anybody who reads it is as before");
}

#[test]
fn a_changelog_route_that_cannot_work_is_refused() {
    let without = |line: &str| ROUTE.replace(line, "");
    let cases: &[(String, &str)] = &[
        (
            without("name = \"trail\"\n"),
            "f:10:13: route[0].changelog: it is for a changelog and has no name to keep its position under; add name = \"NAME\"",
        ),
        (
            without("source = \"shop\"\n"),
            "f:9:13: route[0].changelog: it is for a changelog and does not say of which source; add source = \"NAME\"",
        ),
        (
            ROUTE.replace("\"shop\"", "\"shp\""),
            "f:9:10: route[0].source: there is no such source; did you mean \"shop\"?",
        ),
        (
            format!("{ROUTE}topic = \"*\"\n"),
            "f:12:9: route[0].topic: an entry of the changelog is a whole unit of work and has none; remove it",
        ),
        (
            format!("{ROUTE}namespace = \"a\"\n"),
            "f:12:13: route[0].namespace: an entry of the changelog is a whole unit of work and has none; remove it",
        ),
        (
            ROUTE.replace("trail", "a/b"),
            "f:11:8: route[0].name: this is not a good name; use up to 64 letters, digits, - and single _",
        ),
        (
            format!("{ROUTE}{ROUTE}"),
            "f:16:8: route[1].name: route[0] has the same name and changelog, so one of the two would get nothing; choose another name",
        ),
        (
            without("changelog = true\n"),
            "f:10:8: route[0].name: only the position of a changelog route has a name; remove it, or add changelog = true",
        ),
    ];
    for (route, said) in cases {
        assert_eq!(refusal(&format!("{SOURCE}{route}"), &[]), *said, "{route}");
    }
    let off = format!("{}{ROUTE}", SOURCE.replace("enabled = true", "enabled = false"));
    assert_eq!(
        refusal(&off, &[]),
        "f:9:10: route[0].source: the changelog of source \"shop\" is not read; set source.shop.changelog.enabled = true"
    );
}

#[test]
fn two_sources_of_one_database_share_its_changelog_and_so_its_names() {
    let other = "[source.more]\nurl = \"sqlite:./shop.db\"\nchangelog = { enabled = true }\nnamespaces = [\"b\"]\n";
    let first = SOURCE.replace("[source.shop.changelog]", "namespaces = [\"a\"]\n[source.shop.changelog]");
    let second = ROUTE.replace("\"shop\"", "\"more\"");
    let both = format!("{first}{other}{ROUTE}{second}");
    assert!(refusal(&both, &[]).contains("route[1].name: route[0] has the same name and changelog"), "{both}");
    let apart = format!("{first}{other}{ROUTE}{}", second.replace("trail", "other"));
    assert_eq!(refusal(&apart, &[]), "");
    let elsewhere = both.replace("./shop.db", "./more.db");
    assert_eq!(refusal(&elsewhere, &[]), "");
}

#[test]
fn settings_of_a_changelog_that_cannot_work_are_refused() {
    let cases = [
        ("lease = \"500ms\"", "f:7:9: source.shop.changelog.lease: lease is 500ms; it must be from 1 s to 24 h"),
        (
            "lease = \"3s\"\npoll_interval = \"2s\"",
            "f:8:17: source.shop.changelog.poll_interval: poll_interval (2s) must be at most a third of the lease (1s); lower the first or raise the second",
        ),
        (
            "poll_interval = \"0s\"",
            "f:7:17: source.shop.changelog.poll_interval: poll_interval is 0ns; it must be 10 ms or more",
        ),
        (
            "poll_interval = \"9ms\"",
            "f:7:17: source.shop.changelog.poll_interval: poll_interval is 9ms; it must be 10 ms or more",
        ),
        (
            "lease = \"1h\"\npoll_interval = \"2m\"",
            "f:8:17: source.shop.changelog.poll_interval: it is longer than stalled_after of admin, so health would be red without cause; lower the first or raise the second",
        ),
        (
            "token = \"two words\"",
            "f:7:9: source.shop.changelog.token: this cannot be sent as a bearer token; use letters, digits and punctuation without spaces",
        ),
        ("leese = \"3s\"", "f:7:1: source.shop.changelog.leese: there is no such key; did you mean \"lease\"?"),
    ];
    for (added, said) in cases {
        assert_eq!(refusal(&format!("{SOURCE}{added}\n{ROUTE}"), &[]), said, "{added}");
    }
    let unread = format!("{}serve = true\n", SOURCE.replace("enabled = true\n", ""));
    assert_eq!(
        refusal(&unread, &[]),
        "f:6:9: source.shop.changelog.serve: the changelog is not read; set enabled = true beside it, or remove serve"
    );
}

#[test]
fn a_changelog_that_nobody_or_everybody_reads_is_warned_of() {
    let nobody = "f:6:11: source.shop.changelog.enabled: nobody reads it; add a [[route]] with changelog = true, or set serve = true";
    assert!(warnings(&format!("{SOURCE}[[route]]\nsink = \"out\"\n")).contains(&nobody.to_owned()));
    let open = "[admin]\nlisten = \"0.0.0.0:9464\"\n";
    let of_serving = |text: &str| -> Vec<String> {
        warnings(text).into_iter().filter(|warning| warning.contains("changelog.serve")).collect()
    };
    assert_eq!(
        of_serving(&format!("{SOURCE}serve = true\n{open}")),
        [
            "f:7:9: source.shop.changelog.serve: other machines can read all entries with their payloads; give a token, or listen on 127.0.0.1"
        ]
    );
    assert_eq!(of_serving(&format!("{SOURCE}serve = true\ntoken = \"canary\"\n{open}")), [""; 0]);
    assert_eq!(of_serving(&format!("{SOURCE}serve = true\n")), [""; 0]);
    assert_eq!(
        of_serving(&format!("{SOURCE}serve = true\n[admin]\nenabled = false\n")),
        ["f:7:9: source.shop.changelog.serve: there is no admin endpoint to serve it; set admin.enabled = true"]
    );
}

#[test]
fn a_changelog_route_takes_nothing_from_the_routes_of_messages() {
    let text = format!("{SOURCE}{ROUTE}[[route]]\nsink = \"out\"\n{}", ROUTE.replace("trail", "second"));
    assert_eq!(warnings(&text), [""; 0]);
}

#[test]
fn a_token_is_in_no_text() {
    let text = format!("{SOURCE}serve = true\ntoken = \"canary\"\n{ROUTE}");
    assert!(!format!("{:?}", accepted(&text)).contains("canary"));
    assert!(!refusal(&text.replace("canary", "canary bird"), &[]).contains("canary"));
    let variables = [("POSTRIDER__SOURCE__SHOP__CHANGELOG__TOKEN", "canary")];
    let config = load(SOURCE, &variables).expect("accepted").config;
    assert_eq!(config.source["shop"].changelog.token.as_ref().map(|token| token.expose()), Some("canary"));
}
