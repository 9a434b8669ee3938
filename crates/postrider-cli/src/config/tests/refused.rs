//! Configurations that are refused, each with everything that is printed: place, path, what is wrong, what to do.

use super::{BASE, refusal};

/// What is added to the least that works, and what is said of it. The first added line is line 7, in `[source.shop]`.
const ADDED: &[(&str, &str)] = &[
    // Unknown keys.
    ("leese = \"30s\"", "f:7:1: source.shop.leese: there is no such key; did you mean \"lease\"?"),
    ("batch-size = 5", "f:7:1: source.shop.batch-size: there is no such key; did you mean \"batch_size\"?"),
    ("listen = \"127.0.0.1:80\"", "f:7:1: source.shop.listen: there is no such key here; it belongs into [admin]"),
    (
        "zzzzzzzzzz = 1",
        "f:7:1: source.shop.zzzzzzzzzz: there is no such key; known are batch_size, behind_pooler, changelog, concurrency, connections, delivered, enabled, keep_dead, keep_delivered, layout, lease, lock_timeout, max_attempts, migrate, namespaces, order, poll_interval, prefix, publish_timeout, retry_base, retry_max, schema, table, tenant, tenant_limits, tenant_metrics, tenant_metrics_max, tenants, url",
    ),
    ("lease.x = 1", "f:7:1: source.shop.lease: this is not a length of time; write text such as \"30s\""),
    ("[sorce.x]", "f:7:2: sorce: there is no such key; did you mean \"source\"?"),
    (
        "[admin]\nport = 1",
        "f:8:1: admin.port: there is no such key; known are enabled, listen, oldest_due_limit, stalled_after",
    ),
    ("[sink.b]\ntype = \"stdout\"\ncolour = true", "f:9:1: sink.b.colour: there is no such key; known are payload"),
    (
        "[[route]]\nsink = \"out\"\ntopics = \"a\"",
        "f:9:1: route[1].topics: there is no such key; did you mean \"topic\"?",
    ),
    (
        "[source]\nb = { url = \"sqlite:b.db\", lese = \"30s\" }",
        "f:8:28: source.b.lese: there is no such key; did you mean \"lease\"?",
    ),
    // Wrong types.
    ("batch_size = \"500\"", "f:7:14: source.shop.batch_size: this is text; it must be a whole number without quotes"),
    ("batch_size = \"many\"", "f:7:14: source.shop.batch_size: this is text; it must be a whole number"),
    ("batch_size = -5", "f:7:14: source.shop.batch_size: -5 is too small; it must be 0 or more"),
    ("batch_size = 5000000000", "f:7:14: source.shop.batch_size: this number is too large; write a smaller one"),
    (
        "batch_size = 99999999999999999999",
        "f:7:14: source.shop.batch_size: this is a number that is too large; it must be a whole number",
    ),
    (
        "batch_size = 1.5",
        "f:7:14: source.shop.batch_size: this is a number that is not whole; it must be a whole number",
    ),
    ("batch_size = 2024-01-01", "f:7:14: source.shop.batch_size: this is a date; no setting is one"),
    ("enabled = \"true\"", "f:7:11: source.shop.enabled: this is text; it must be true or false without quotes"),
    ("enabled = 1", "f:7:11: source.shop.enabled: this is a whole number; it must be true or false"),
    ("namespaces = \"a\"", "f:7:14: source.shop.namespaces: this is text; it must be a list"),
    ("namespaces = [\"a\",\n  5,\n]", "f:8:3: source.shop.namespaces[1]: this is a whole number; it must be text"),
    (
        "tenant = \"shop\"",
        "f:7:10: source.shop.tenant: this is not a UUID; write one such as \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\"",
    ),
    ("tenant = 5", "f:7:10: source.shop.tenant: this is a whole number; it must be a UUID in quotes"),
    ("delivered = \"delte\"", "f:7:13: source.shop.delivered: there is no such choice; did you mean \"delete\"?"),
    ("delivered = 5", "f:7:13: source.shop.delivered: this is not a choice; write \"keep\" or \"delete\""),
    (
        "[admin]\nlisten = \"localhost\"",
        "f:8:10: admin.listen: this is not an address to listen on; write an IP address and a port, such as \"127.0.0.1:9464\"",
    ),
    ("[log]\nformat = \"xml\"", "f:8:10: log.format: there is no such choice; write \"pretty\" or \"json\""),
    (
        "[sink.b]",
        "f:7:7: sink.b: it has no type; say type = \"stdout\" or \"http\" or \"kafka\" or \"pubsub\" or \"nats\" or \"amqp\" or \"redis\" or \"sqs\" or \"sns\" or \"provider\"",
    ),
    ("[sink.b]\ntype = \"http2\"", "f:8:8: sink.b.type: there is no such type; did you mean \"http\"?"),
    (
        "[sink.b]\ntype = 5",
        "f:8:8: sink.b.type: this is not a type; write \"stdout\" or \"http\" or \"kafka\" or \"pubsub\" or \"nats\" or \"amqp\" or \"redis\" or \"sqs\" or \"sns\" or \"provider\"",
    ),
    ("[sink]\nb = 5", "f:8:5: sink.b: this is a whole number; it must be a table with a type"),
    ("[source]\nb = \"postgres://u:canary@h/x\"", "f:8:5: source.b: this is text; it must be a table"),
    // Units.
    ("lease = 30", "f:7:9: source.shop.lease: 30 has no unit; write \"30ms\" or \"30s\", whichever you mean"),
    ("lease = \"30\"", "f:7:9: source.shop.lease: 30 has no unit; write \"30ms\" or \"30s\", whichever you mean"),
    (
        "lease = \"30 sec\"",
        "f:7:9: source.shop.lease: \"30 sec\" is not a length of time; write a whole number and a unit, such as \"500ms\", \"30s\", \"5m\", \"12h\" or \"7d\"",
    ),
    ("lease = [\"30s\"]", "f:7:9: source.shop.lease: this is not a length of time; write text such as \"30s\""),
    ("retry_base = \"999999999999999999d\"", "f:7:14: source.shop.retry_base: this is too long; make it shorter"),
    // Out of range.
    ("batch_size = 0", "f:7:14: source.shop.batch_size: batch_size is 0; it must be from 1 to 1000"),
    (
        "tenant_metrics = true\ntenant_metrics_max = 0",
        "f:8:22: source.shop.tenant_metrics_max: tenant_metrics_max is 0; it must be from 1 to 100000 tenants",
    ),
    ("tenant_limits.rate = 0", "f:7:22: source.shop.tenant_limits.rate: rate is 0; it must be from 1 to 1000000"),
    (
        "tenant_limits.burst = 5",
        "f:7:23: source.shop.tenant_limits.burst: burst is 5; it must be given together with a rate, or not at all",
    ),
    (
        "[source.shop.tenant_limits.tenants.acme]\nrate = 5",
        "f:7:36: source.shop.tenant_limits.tenants.acme: this is not a UUID; name the tenant by its id",
    ),
    (
        "[source.shop.tenant_limits.tenants.0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d]\nin_flight = 0",
        "f:8:13: source.shop.tenant_limits.tenants.0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d.in_flight: in_flight is 0; it must be from 1 to 1000000",
    ),
    (
        "[source.shop.tenant_limits.tenants]\n0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d.rate = 5\n0190b0a86d1c7c3e9c1d3b1f0a6f4e2d.rate = 5",
        "f:9:1: source.shop.tenant_limits.tenants.0190b0a86d1c7c3e9c1d3b1f0a6f4e2d: \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\" is the same tenant; keep one of the two",
    ),
    (
        "[source.shop.tenant_limits]\nrat = 5",
        "f:8:1: source.shop.tenant_limits.rat: there is no such key; did you mean \"rate\"?",
    ),
    ("batch_size = 1001", "f:7:14: source.shop.batch_size: batch_size is 1001; it must be from 1 to 1000"),
    ("lease = \"50ms\"", "f:7:9: source.shop.lease: lease is 50ms; it must be from 100 ms to 24 h"),
    ("lease = \"25h\"", "f:7:9: source.shop.lease: lease is 90000s; it must be from 100 ms to 24 h"),
    ("concurrency = 0", "f:7:15: source.shop.concurrency: concurrency is 0; it must be from 1 to 100000"),
    ("max_attempts = 0", "f:7:16: source.shop.max_attempts: max_attempts is 0; it must be from 1 to 1000"),
    (
        "publish_timeout = \"0s\"",
        "f:7:19: source.shop.publish_timeout: publish_timeout is 0ns; it must be from 1 ms to 1 year",
    ),
    ("retry_base = \"0s\"", "f:7:14: source.shop.retry_base: retry_base is 0ns; it must be at least 1 ms"),
    ("connections = 0", "f:7:15: source.shop.connections: connections is 0; it must be from 1 to 1000"),
    ("keep_dead = \"0s\"", "f:7:13: source.shop.keep_dead: it is too short; it must be 1s or more"),
    ("keep_delivered = \"40000d\"", "f:7:18: source.shop.keep_delivered: it is too long; it must be 36600d or less"),
    ("[admin]\nstalled_after = \"10ms\"", "f:8:17: admin.stalled_after: it is too short; it must be 1s or more"),
    (
        "[relay]\nshutdown_grace = \"400d\"",
        "f:8:18: relay.shutdown_grace: shutdown_grace is 34560000s; it must be at most 1 year",
    ),
    (
        "batch_size = 0\nlease = \"1ms\"\nconcurrency = 0",
        "f:7:14: source.shop.batch_size: batch_size is 0; it must be from 1 to 1000\nf:8:9: source.shop.lease: lease is 1ms; it must be from 100 ms to 24 h\nf:9:15: source.shop.concurrency: concurrency is 0; it must be from 1 to 100000",
    ),
    // Contradictions.
    (
        "lease = \"9s\"\npoll_interval = \"4s\"",
        "f:8:17: source.shop.poll_interval: poll_interval (4s) must be at most a third of the lease (3s); lower the first or raise the second",
    ),
    (
        "poll_interval = \"11s\"",
        "f:7:17: source.shop.poll_interval: poll_interval (11s) must be at most a third of the lease (10s); lower the first or raise the second",
    ),
    (
        "lease = \"1s\"",
        "f:7:9: source.shop.lease: poll_interval (500ms) must be at most a third of the lease (333.333333ms); lower the first or raise the second",
    ),
    (
        "retry_base = \"6m\"",
        "f:7:14: source.shop.retry_base: retry_base (360s) must be at most retry_max (300s); lower the first or raise the second",
    ),
    (
        "retry_max = \"10ms\"",
        "f:7:13: source.shop.retry_max: retry_base (1s) must be at most retry_max (10ms); lower the first or raise the second",
    ),
    (
        "lease = \"10m\"\npoll_interval = \"3m\"",
        "f:8:17: source.shop.poll_interval: the poll_interval of source \"shop\" is longer than stalled_after of admin, so health would be red without cause; lower the first or raise the second",
    ),
    (
        "[source.again]\nurl = \"sqlite:shop.db\"",
        "f:6:7: source.shop.url: source \"again\" has the same url and table, and which of the two takes a message would be chance; give them different namespaces or tenants, or make them one",
    ),
    // Names.
    ("schema = \"public\"", "f:7:10: source.shop.schema: SQLite has no schemas; remove it"),
    (
        "prefix = \"Post-\"\ntable = \"\"",
        "f:7:10: source.shop.prefix: the prefix name holds 'P'; use lower-case ASCII letters, digits and underscores, and begin with a letter or underscore\nf:8:9: source.shop.table: the table name is empty; give it at least one character",
    ),
    (
        "table = \"pg_messages\"",
        "f:7:9: source.shop.table: the table name \"pg_messages\" begins with \"pg_\", which PostgreSQL keeps for itself; choose another",
    ),
    (
        "namespaces = []",
        "f:7:14: source.shop.namespaces: it is empty, so no message would be taken; remove it to take all",
    ),
    (
        "namespaces = [\"a\", \"b c\"]",
        "f:7:20: source.shop.namespaces[1]: the namespace holds the character ' '; use ASCII letters, digits and . _ - : /",
    ),
    (
        "[source.\"my shop\"]\nurl = \"sqlite:b.db\"",
        "f:7:9: source.\"my shop\": this is not a good name; use up to 64 letters, digits, - and single _",
    ),
    (
        "[sink.a__b]\ntype = \"stdout\"",
        "f:7:7: sink.a__b: this is not a good name; use up to 64 letters, digits, - and single _",
    ),
    // Routes.
    ("[[route]]\nsink = \"aut\"", "f:8:8: route[1].sink: there is no such sink; did you mean \"out\"?"),
    ("[[route]]\ntopic = \"a\"", "f:7:1: route[1]: it has no sink; add one, such as sink = \"NAME\""),
    (
        "[[route]]\nsink = \"out\"\nsource = \"shup\"",
        "f:9:10: route[1].source: there is no such source; did you mean \"shop\"?",
    ),
    (
        "[[route]]\nsink = \"out\"\ntopic = \"a b*\"",
        "f:9:9: route[1].topic: the topic holds the character ' '; use ASCII letters, digits and . _ - : /",
    ),
    (
        "[[route]]\nsink = \"out\"\ndestination = \"x.{tpic}\"",
        "f:9:15: route[1].destination: the destination has no field {tpic}; use {namespace}, {topic}, {key} or {tenant}",
    ),
    (
        "[[route]]\nsink = \"out\"\ndestination = \"{key}\"",
        "f:9:15: route[1].destination: the destination begins with a field, so a message could choose any destination; begin with text of your own, or use {topic} alone",
    ),
    // The rest.
    ("[source.b]", "f:7:9: source.b: it has no url; add one, or set enabled = false"),
    ("[log]\nlevel = \"inof\"", "f:8:9: log.level: there is no such level; did you mean \"info\"?"),
    (
        "[log]\nlevel = \"info,postrider=loud\"",
        "f:8:9: log.level: this is not a filter; write a level such as info, or info,postrider_core=debug",
    ),
    (
        "[trace]\notlp_endpoint = \"127.0.0.1:4318\"",
        "f:8:17: trace.otlp_endpoint: this is not an http address; write one such as http://127.0.0.1:4318/v1/traces",
    ),
    (
        "[trace]\notlp_endpoint = \"http://u:canary@h/x\"",
        "f:8:17: trace.otlp_endpoint: it has a user or password in it, and would be printed; send to a collector without",
    ),
    (
        "[trace]\notlp_endpoint = \"file:///tmp/x\"",
        "f:8:17: trace.otlp_endpoint: this is not an http address; write one such as http://127.0.0.1:4318/v1/traces",
    ),
];

/// Whole files.
const ALONE: &[(&str, &str)] = &[
    ("", "f: there is no enabled source, so nothing would be done; add [source.NAME] with a url"),
    (
        "[source.a]\nenabled = false",
        "f: there is no enabled source, so nothing would be done; add [source.NAME] with a url",
    ),
    ("source = 5", "f:1:10: source: this is a whole number; it must be a table"),
    (
        "route = [{ sink = \"a\" }, { sink = \"b\", topc = \"x\" }]\nsink.a.type = \"stdout\"\nsource.s.url = \"sqlite:s\"",
        "f:1:40: route[1].topc: there is no such key; did you mean \"topic\"?",
    ),
    (
        "source.s = { url = \"sqlite:s\", lease = 5, tenant = \"x\" }",
        "f:1:40: source.s.lease: 5 has no unit; write \"5ms\" or \"5s\", whichever you mean\nf:1:52: source.s.tenant: this is not a UUID; write one such as \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\"",
    ),
    (
        "source.s.url = \"http://h/x\"",
        "f:1:16: source.s.url: http:// is no database that we know; write postgres://…, mysql://… or sqlite:path",
    ),
    (
        "source.s.url = \"user:word@host/db\"",
        "f:1:16: source.s.url: it has no scheme; write postgres://…, mysql://… or sqlite:path",
    ),
    (
        "source.s.url = \"postgres:host\"",
        "f:1:16: source.s.url: postgres: is not followed by //; write postgres://…, mysql://… or sqlite:path",
    ),
    (
        "source.s.url = \"postgres://u:p/w@h/x\"",
        "f:1:16: source.s.url: it is not a valid address (invalid port number); percent-encode special characters of the user's name and password",
    ),
    (
        "source.s.url = \"sqlite:\"",
        "f:1:16: source.s.url: it names no file; write postgres://…, mysql://… or sqlite:path",
    ),
    ("source.s.url = \"\"", "f:1:16: source.s.url: the secret is empty; give one"),
    (
        "source.s.url = { fil = \"/x\" }",
        "f:1:10: source.s.url: this is not a secret; write text, { env = \"NAME\" } or { file = \"/path\" }",
    ),
    (
        "source.s.url = { file = \"/does/not/exist\" }",
        "f:1:10: source.s.url: the file /does/not/exist cannot be read: No such file or directory (os error 2)",
    ),
    (
        "source.s.url = { env = \"POSTRIDER_TEST_UNSET\" }",
        "f:1:10: source.s.url: the variable POSTRIDER_TEST_UNSET is not set; set it",
    ),
    (
        "source.s.url = 5",
        "f:1:16: source.s.url: this is not a secret; write text, { env = \"NAME\" } or { file = \"/path\" }",
    ),
    (
        "source.s.url = \"sqlite:s\"\n\"ü\" = 1\n\"é\".b = 2",
        "f:2:1: \"ü\": there is no such key; known are admin, layout, log, relay, route, sink, source, trace\nf:3:1: \"é\": there is no such key; known are admin, layout, log, relay, route, sink, source, trace",
    ),
    (
        "[source.s]\nurl = 'sqlite:s'\nnamespaces = [\"é\", 'ü', 5]",
        "f:3:25: source.s.namespaces[2]: this is a whole number; it must be text",
    ),
    ("[source.s\nurl = 5", "f:1:10: this is not TOML: unclosed table, expected `]`"),
    (
        "[source.s]\nlease = 30s\nurl = sqlite:x",
        "f:2:9: this is not TOML: string values must be quoted, expected literal string\nf:3:7: this is not TOML: string values must be quoted, expected literal string",
    ),
    ("[source.s]\nlease = \"1s\"\nlease = \"2s\"", "f:3:1: this is not TOML: duplicate key"),
];

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let mut wrong = 0;
    let added = ADDED.iter().map(|(added, said)| (format!("{BASE}{added}\n"), *added, *said));
    for (text, shown, said) in added.chain(ALONE.iter().map(|(text, said)| ((*text).to_owned(), *text, *said))) {
        let found = refusal(&text, &[]);
        if found != said {
            println!("    ({shown:?}, {found:?}),");
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0, "what is said now is above");
}

#[test]
fn everything_wrong_with_a_sink_is_told_with_its_own_place() {
    let added = "[sink.h]
type = \"http\"
source = \"not a uri\"
signing_keys = [\"whsec_canary\",
  \"canary\"]
timeout = \"0s\"
headers = { host = \"canary\", \"a b\" = \"canary\", x-key = \"good\" }
concurrency = 0
";
    let variables = [
        ("POSTRIDER__SINK__H__ALLOW_ADDRESSES__0", "10.0.0.0/33"),
        ("POSTRIDER__SINK__H__HEADERS__TE", "canary"),
        ("POSTRIDER__SINK__H__SIGNING_KEYS__2", "canary"),
    ];
    let refused = refusal(&format!("{BASE}{added}"), &variables);
    let places: Vec<String> =
        refused.lines().map(|line| line.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    assert_eq!(
        places,
        [
            "f:9:10: sink.h.source",
            "f:10:17: sink.h.signing_keys[0]",
            "f:11:3: sink.h.signing_keys[1]",
            "f:12:11: sink.h.timeout",
            "f:13:20: sink.h.headers.host",
            "f:13:38: sink.h.headers.\"a b\"",
            "f:14:15: sink.h.concurrency",
            "POSTRIDER__SINK__H__ALLOW_ADDRESSES__0: sink.h.allow_addresses[0]",
            "POSTRIDER__SINK__H__HEADERS__TE: sink.h.headers.te",
            "POSTRIDER__SINK__H__SIGNING_KEYS__2: sink.h.signing_keys[2]",
        ],
        "{refused}"
    );
    assert!(!refused.contains("canary"), "{refused}");
}

#[test]
fn one_file_under_two_names_is_one_table() {
    let other = |url: &str| refusal(&format!("{BASE}[source.other]\nurl = \"{url}\"\n"), &[]);
    let here = std::env::current_dir().expect("a directory");
    for same in
        ["sqlite:./shop.db", "sqlite://shop.db", "sqlite:.//./shop.db", &format!("sqlite://{}/shop.db", here.display())]
    {
        assert!(other(same).contains("has the same url and table"), "{same}: {}", other(same));
    }
    let [one, another] = ["postgres", "postgresql"].map(|scheme| format!("{scheme}://h/x"));
    let both = format!("{}[source.other]\nurl = \"{another}\"\n", BASE.replace("sqlite:shop.db", &one));
    assert!(refusal(&both, &[]).contains("has the same url and table"));
    for another in ["sqlite:shop2.db", "sqlite:/shop.db", "sqlite:x/shop.db"] {
        assert_eq!(other(another), "", "{another}");
    }
}
