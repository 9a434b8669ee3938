//! What is accepted with a warning.

use super::{BASE, warnings};

#[test]
fn what_is_hardly_meant_is_warned_of() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        (
            "[sink.spare]\ntype = \"stdout\"",
            &["f:7:7: sink.spare: no route leads to it; add a [[route]], or remove it"],
        ),
        (
            "[[route]]\nsink = \"out\"\ntopic = \"a\"",
            &["f:7:1: route[1]: route[0] takes all of its messages; move this one up, or remove it"],
        ),
        (
            "[admin]\nlisten = \"0.0.0.0:9464\"",
            &[
                "f:8:10: admin.listen: it can be reached from other machines and has no authentication; listen on 127.0.0.1, or see that only your own network reaches it",
            ],
        ),
        ("[admin]\nlisten = \"0.0.0.0:9464\"\nenabled = false", &[]),
        ("[admin]\nlisten = \"[::1]:9464\"", &[]),
        (
            "delivered = \"delete\"",
            &[
                "f:7:13: source.shop.delivered: delivered messages that have a dedupe key stay for good, so that a late retry finds its key; give keep_delivered, after which they are deleted as well",
            ],
        ),
        ("delivered = \"delete\"\nkeep_delivered = \"7d\"", &[]),
        (
            "tenant = \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\"\ntenant_limits.tenants.0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2e.rate = 5",
            &[
                "f:8:23: source.shop.tenant_limits.tenants.0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2e: it has no effect: the source takes messages of another tenant only",
            ],
        ),
        (
            "behind_pooler = true",
            &["f:7:17: source.shop.behind_pooler: it has no meaning for this database; it is for PostgreSQL"],
        ),
        (
            "[source.b]\nurl = \"postgres://h/x\"\nconnections = 4",
            &["f:9:15: source.b.connections: the relay may wait for itself with so few; give it 5 or more"],
        ),
        (
            "[source.b]\nurl = \"postgres://h/x\"\nconnections = 7\nchangelog = { enabled = true, serve = true }\n\
             [[route]]\nsource = \"b\"\nchangelog = true\nname = \"trail\"\nsink = \"out\"",
            &["f:9:15: source.b.connections: the relay may wait for itself with so few; give it 8 or more"],
        ),
    ];
    for (added, said) in cases {
        assert_eq!(warnings(&format!("{BASE}{added}\n")), *said, "{added}");
    }
}

/// Warnings of one source, one sink and these routes to it.
fn of_routes(source: &str, routes: &[&str]) -> Vec<String> {
    let head = format!("[source.s]\nurl = \"sqlite:s\"\n{source}\n[sink.a]\ntype = \"stdout\"\n");
    let routes: String = routes.iter().map(|route| format!("[[route]]\nsink = \"a\"\n{route}\n")).collect();
    warnings(&format!("{head}{routes}"))
}

const WAIT: &str =
    "f:1:9: source.s: messages that match no route will wait; add a last [[route]] without namespace and topic";

#[test]
fn messages_without_a_route_are_warned_of() {
    assert_eq!(
        of_routes("", &[]),
        [
            "f:1:9: source.s: no route is for its messages, so all of them will wait; add a [[route]]",
            "f:4:7: sink.a: no route leads to it; add a [[route]], or remove it"
        ]
    );
    assert_eq!(of_routes("", &["topic = \"order.*\""]), [WAIT]);
    assert_eq!(of_routes("", &["namespace = \"a\""]), [WAIT]);
    assert_eq!(of_routes("", &["topic = \"*\"\nnamespace = \"**\""]), [""; 0]);
    assert_eq!(of_routes("namespaces = [\"a\"]", &["namespace = \"a\""]), [""; 0]);
    assert_eq!(of_routes("namespaces = [\"a\", \"b\"]", &["namespace = \"a\""]), [WAIT]);
    assert_eq!(of_routes("namespaces = [\"a\", \"b\"]", &["namespace = \"a\"", "namespace = \"?\""]), [""; 0]);
    assert_eq!(of_routes("enabled = true", &["source = \"s\""]), [""; 0]);
}

#[test]
fn a_route_that_is_never_reached_is_warned_of() {
    let never = |first: &str, second: &str| {
        of_routes("", &[first, second, ""]).iter().any(|warning| warning.contains("route[1]: route[0] takes all"))
    };
    assert!(never("", "topic = \"a\""));
    assert!(never("topic = \"a.*\"", "topic = \"a.b\""));
    assert!(never("topic = \"a.*\"", "topic = \"a.b.*\""));
    assert!(never("topic = \"a?\"", "topic = \"ab\""));
    assert!(never("topic = \"a?\"", "topic = \"a?\""));
    assert!(never("topic = \"a\"", "topic = \"a\"\nnamespace = \"n\""));
    assert!(!never("topic = \"?\"", "topic = \"*\""), "a longer topic reaches the second");
    assert!(!never("topic = \"a.b.*\"", "topic = \"a.*\""));
    assert!(!never("topic = \"a\"\nnamespace = \"n\"", "topic = \"a\""));
    assert!(!never("topic = \"a\"\nsource = \"s\"", "topic = \"a\""));
}
