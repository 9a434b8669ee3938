//! Places and secrets in a sink with settings of every kind, and variables for them.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use postrider_sinks::setting::{Secret, duration};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::problem::Findings;
use super::super::reference::sections;
use super::super::shape::Shape;
use super::super::sink::{ByType, TypeFirst};
use super::super::{environment, read, tree, warn_of_secrets};

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Probe {
    sink: BTreeMap<String, ProbeSink>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ProbeSink {
    /// With settings.
    Hook(Hook),
    /// Without.
    Plain(Plain),
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Plain {}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Hook {
    #[serde(with = "duration")]
    #[schemars(with = "String")]
    timeout: Duration,
    tries: u32,
    signing_key: Option<Secret>,
    old_keys: Vec<Secret>,
    headers: BTreeMap<String, Secret>,
    tls: Tls,
    auth: Option<Auth>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Tls {
    verify: bool,
    ca: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Auth {
    /// A token.
    Bearer {
        /// The token.
        token: Secret,
    },
    /// A user.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
}

impl ByType for ProbeSink {
    fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error> {
        match kind {
            "hook" => Hook::deserialize(MapAccessDeserializer::new(settings)).map(Self::Hook),
            "plain" => Plain::deserialize(MapAccessDeserializer::new(settings)).map(Self::Plain),
            _ => Err(A::Error::unknown_variant(kind, &["hook", "plain"])),
        }
    }
}

impl<'de> Deserialize<'de> for ProbeSink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TypeFirst(PhantomData))
    }
}

/// What was read, what was refused and what was warned of.
fn probe(text: &str, variables: &[(&str, &str)]) -> (Probe, String, Vec<String>) {
    let shape = Shape::of::<Probe>();
    let (mut refused, mut warned) = (Findings::new("f", text), Findings::new("f", text));
    let mut tree = tree::parse(text, &mut refused);
    environment::apply(&mut tree, &shape, super::given(variables), &mut refused);
    warn_of_secrets(&tree, &shape, &mut warned);
    read::prune(&mut tree, &shape, &mut refused);
    let probe = read::read(&mut tree, &mut refused);
    let warned = warned.into_warnings().iter().map(|warning| format!("{}: {}", warning.place, warning.path)).collect();
    (probe, refused.refused().to_string(), warned)
}

#[test]
fn settings_of_a_sink_have_their_places() {
    let cases = [
        ("timeout = 5", "f:3:11: sink.h.timeout: 5 has no unit; write \"5ms\" or \"5s\", whichever you mean"),
        ("tiemout = \"5s\"", "f:3:1: sink.h.tiemout: there is no such key; did you mean \"timeout\"?"),
        ("tries = \"x\"", "f:3:9: sink.h.tries: this is text; it must be a whole number"),
        (
            "headers = { a = \"x\", b = 5 }",
            "f:3:26: sink.h.headers.b: this is not a secret; write text, { env = \"NAME\" } or { file = \"/path\" }",
        ),
        (
            "headers.x-key = true",
            "f:3:17: sink.h.headers.x-key: this is not a secret; write text, { env = \"NAME\" } or { file = \"/path\" }",
        ),
        ("old_keys = [\"a\",\n\"\"]", "f:4:1: sink.h.old_keys[1]: the secret is empty; give one"),
        ("[sink.h.tls]\nverify = 1", "f:4:10: sink.h.tls.verify: this is a whole number; it must be true or false"),
        ("tls.verfy = true", "f:3:5: sink.h.tls.verfy: there is no such key; did you mean \"verify\"?"),
        (
            "[sink.p]\ntype = \"plain\"\ntimeout = \"5s\"",
            "f:5:1: sink.p.timeout: there is no such key here; it belongs into [sink.NAME]",
        ),
        ("[sink.p]\ntype = \"plane\"", "f:4:8: sink.p.type: there is no such type; did you mean \"plain\"?"),
    ];
    for (added, said) in cases {
        assert_eq!(probe(&format!("[sink.h]\ntype = \"hook\"\n{added}\n"), &[]).1, said, "{added}");
    }
}

#[test]
fn the_reference_has_settings_within_settings() {
    let page = sections(&Shape::of::<Probe>());
    for part in [
        "## `[sink.NAME] with type = \"hook\"`\n\nWith settings.\n",
        "### `sink.NAME.tls.verify`",
        "Table · `POSTRIDER__SINK__NAME__TLS`",
        "Table of secret, default `{}` · `POSTRIDER__SINK__NAME__HEADERS`",
        "`POSTRIDER__SINK__NAME__AUTH__TYPE`",
        "**`[sink.NAME.auth] with type = \"basic\"`",
        "Secret, needed · `POSTRIDER__SINK__NAME__AUTH__PASSWORD`",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn variables_reach_the_settings_of_a_sink() {
    let text = "[sink.h]\ntype = \"hook\"\nheaders = { X-Key = \"a\" }\n";
    let variables = [
        ("POSTRIDER__SINK__H__TRIES", "7"),
        ("POSTRIDER__SINK__H__TLS__VERIFY", "true"),
        ("POSTRIDER__SINK__H__HEADERS__X_KEY", "b"),
        ("POSTRIDER__SINK__H__OLD_KEYS", "one,two"),
        ("POSTRIDER__SINK__H__AUTH", "{ type = 'bearer', token = 't' }"),
        ("POSTRIDER__SINK__NEW__TYPE", "plain"),
    ];
    let (probe, refused, _) = probe(text, &variables);
    assert_eq!(refused, "");
    let ProbeSink::Hook(hook) = &probe.sink["h"] else { panic!("another type") };
    assert_eq!((hook.tries, hook.tls.verify), (7, true));
    assert_eq!(hook.headers["X-Key"].expose(), "b");
    assert_eq!(hook.old_keys.iter().map(Secret::expose).collect::<Vec<_>>(), ["one", "two"]);
    assert!(matches!(&hook.auth, Some(Auth::Bearer { token }) if token.expose() == "t"));
    assert!(matches!(probe.sink["new"], ProbeSink::Plain(_)));
}

#[test]
fn s20_every_secret_in_plain_sight_is_warned_of() {
    let text = "\
[sink.h]
type = \"hook\"
signing_key = \"canary\"
old_keys = [\"canary\", { file = \"/x\" }]
headers.a = \"canary\"
auth = { type = \"basic\", user = \"u\", password = \"canary\" }
";
    let (_, _, warned) = probe(text, &[]);
    let expected = [
        "f:3:15: sink.h.signing_key",
        "f:4:13: sink.h.old_keys[0]",
        "f:5:13: sink.h.headers.a",
        "f:6:49: sink.h.auth.password",
    ];
    assert_eq!(warned, expected);
    let (_, _, warned) = probe("[sink.h]\ntype = \"hook\"\n", &[("POSTRIDER__SINK__H__SIGNING_KEY", "canary")]);
    assert_eq!(warned, [""; 0], "a variable is no file");
}

#[test]
fn s16_no_secret_of_a_sink_is_repeated() {
    let positions = [
        "signing_key = CANARY",
        "signing_key = [CANARY]",
        "signing_key = { file = CANARY }",
        "signing_key = { env = CANARY }",
        "signing_key = { fil = CANARY }",
        "signing_key = { file = CANARY, env = CANARY }",
        "sining_key = CANARY",
        "old_keys = CANARY",
        "old_keys = [CANARY, 5]",
        "headers = CANARY",
        "headers = [CANARY]",
        "headers.a = CANARY\nheaders.b = 5",
        "tls = CANARY",
        "tls.ca = [CANARY]",
        "tls.verify = CANARY",
        "timeout = CANARY",
        "tries = CANARY",
        "auth = CANARY",
        "auth = { type = CANARY }",
        "auth = { type = \"bearer\", token = [CANARY] }",
        "auth = { type = \"bearer\", token = CANARY, x = 1 }",
        "auth = { type = \"basic\", user = [CANARY], password = CANARY }",
    ];
    for position in positions {
        for canary in ["\"canary\"", "\"postgres://u:canary@h/x\"", "'canary-4711/+=='"] {
            let text = format!("[sink.h]\ntype = \"hook\"\ntries = -1\n{}\n", position.replace("CANARY", canary));
            let text = if position.starts_with("tries") { text.replacen("tries = -1\n", "", 1) } else { text };
            let (probe, refused, warned) = probe(&text, &[]);
            let printed = format!("{refused}\n{warned:?}\n{probe:?}");
            let printed = if position.starts_with("tls.ca") { refused } else { printed };
            assert!(!printed.contains("canary"), "{position}: {printed}");
        }
    }
}
