//! What is written here is read by the superjson package for JavaScript, and what that writes is read here.

#[path = "superjson/dump.rs"]
mod dump;
#[path = "superjson/peer.rs"]
mod peer;
mod scene;

use std::collections::BTreeMap;

use num_bigint::BigInt;
use postrider_changelog::{
    After, Date, Mutation, Operation, Payload, Reader, TransactionVersion, UnitOfWork, Value, Versionstamp, decode,
    encode,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;

use dump::{distinct, dump};
use peer::ask;
use scene::{OnMySql, OnPostgres, OnSqlite, Scene};

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn date(millis: i64) -> Value {
    Value::Date(Date::from_millis(millis).expect("in range"))
}

fn bigint(number: i64) -> Value {
    Value::BigInt(number.into())
}

/// Values are written here, read there and dumped on both sides; and the package would have written the same.
fn read_by_javascript(values: &[Value]) {
    let texts: Vec<String> = values.iter().map(encode).collect();
    let answers = ask(&json!({ "do": "read", "texts": texts }));
    let answers = answers.as_array().expect("a list");
    assert_eq!(answers.len(), values.len());
    for ((value, text), answer) in values.iter().zip(&texts).zip(answers) {
        assert_eq!(answer["dump"], dump(value), "{text}");
        assert_eq!(answer["same"], true, "JavaScript writes {} for {text}", answer["written"]);
    }
}

/// Texts of the package are read here and dumped on both sides.
fn written_by_javascript(answers: &serde_json::Value) {
    let answers = answers.as_array().expect("a list");
    assert!(!answers.is_empty());
    for answer in answers {
        let text = answer["text"].as_str().expect("text");
        let value = decode(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(dump(&value), answer["dump"], "{text}");
    }
}

fn leaves() -> Vec<Value> {
    let mut leaves =
        vec![Value::Undefined, Value::Null, true.into(), false.into(), "".into(), "\"\\/\u{0}\u{7f}\u{2028}é😀".into()];
    let numbers =
        [0.0, -0.0, 1.0, -1.5, 1e21, 1e20, 1e-6, 1e-7, 5e-324, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    leaves.extend(numbers.map(Value::from));
    leaves.extend([i64::MAX, i64::MIN, 1 << 53, (1 << 53) + 1].map(Value::from));
    leaves.extend([bigint(0), bigint(-1), Value::BigInt(BigInt::from(10).pow(100))]);
    leaves.extend([0, -1, 1_709_207_999_123, 253_402_300_800_000, -62_167_219_200_001].map(date));
    leaves.extend([Date::MIN, Date::MAX].map(Value::from));
    leaves.extend([vec![], vec![0, 127, 128, 255]].map(Value::Bytes));
    leaves.extend([Value::Array(vec![]), object([]), Value::Set(vec![]), Value::Map(vec![])]);
    leaves
}

const ODD_KEYS: [&str; 20] = [
    "", ".", "..", "\\", "\\.", ".\\", "\\\\", "\\\\.", "a.b", "a\\b", "\"", "'", "0", "1", "-1", "01", "ключ", "😀",
    "\n\u{0}", "toString",
];

#[test]
fn every_type_at_every_place_is_read_by_javascript() {
    let mut values = leaves();
    for leaf in leaves() {
        values.push(Value::Array(vec![Value::Null, leaf.clone()]));
        values.push(object([("a", object([("b", leaf.clone())]))]));
        values.push(distinct(Value::Set(vec![leaf.clone(), date(1)])));
        values.push(distinct(Value::Map(vec![(leaf.clone(), leaf.clone()), (date(1), leaf)])));
    }
    read_by_javascript(&values);
}

#[test]
fn odd_keys_are_read_by_javascript() {
    let flat = Value::Object(ODD_KEYS.iter().map(|key| (key.to_string(), bigint(1))).collect());
    let mut values = vec![flat.clone()];
    for outer in ODD_KEYS {
        values.push(object([(outer, flat.clone())]));
        values.push(object([(outer, Value::Set(vec![flat.clone(), object([(outer, date(0))])]))]));
    }
    read_by_javascript(&values);
}

#[test]
fn sets_and_maps_in_each_other_are_read_by_javascript() {
    let set = Value::Set(vec![date(1), Value::Set(vec![date(2), bigint(3)]), object([("a.b", date(4))])]);
    let map = Value::Map(vec![(date(5), set.clone()), (set.clone(), Value::Map(vec![("k".into(), date(6))]))]);
    read_by_javascript(&[set.clone(), map.clone(), object([("s", set), ("m", Value::Array(vec![map]))])]);
}

#[test]
fn a_payload_is_read_by_javascript() {
    let columns: BTreeMap<String, Value> =
        leaves().into_iter().enumerate().map(|(index, leaf)| (format!("column.{index}"), leaf)).collect();
    let mutation = |operation| Mutation {
        namespace: "shop".into(),
        table: "orders".into(),
        external_id: "order_1".into(),
        versionstamp: Versionstamp::new(TransactionVersion::MAX, 7),
        operation,
    };
    let payload = Payload {
        mutations: vec![
            mutation(Operation::Create { values: columns.clone() }),
            mutation(Operation::Update { set: columns.clone(), check_version: Some(3) }),
            mutation(Operation::Delete { check_version: None }),
        ],
    };
    let text = payload.to_superjson();
    let answer = ask(&json!({ "do": "read", "texts": [text] }));
    let fixed = |op: &str| {
        let stamp = "ffffffffffffffffffff0007";
        let texts =
            [("externalId", "order_1"), ("namespace", "shop"), ("op", op), ("schema", "shop"), ("table", "orders")];
        let mut fields: BTreeMap<String, Value> =
            texts.iter().map(|(key, text)| (key.to_string(), (*text).into())).collect();
        fields.insert("versionstamp".into(), stamp.into());
        fields
    };
    let (mut create, mut update) = (fixed("create"), fixed("update"));
    create.insert("values".into(), Value::Object(columns.clone()));
    update.insert("set".into(), Value::Object(columns));
    update.insert("checkVersion".into(), 3.into());
    let mutations = [create, update, fixed("delete")].map(Value::Object).to_vec();
    let expected = object([("version", 1.into()), ("mutations", Value::Array(mutations))]);
    assert_eq!(answer[0]["dump"], dump(&expected));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        proptest::sample::select(leaves()),
        proptest::num::f64::ANY.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        (Date::MIN.millis()..=Date::MAX.millis()).prop_map(date),
    ];
    let key = prop_oneof![proptest::sample::select(&ODD_KEYS[..]).prop_map(str::to_owned), any::<String>()];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            list.clone().prop_map(Value::Array),
            list.prop_map(|items| distinct(Value::Set(items))),
            proptest::collection::btree_map(key.clone(), inner.clone(), 0..5).prop_map(Value::Object),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(|rows| distinct(Value::Map(rows))),
        ]
    })
}

#[test]
fn whatever_is_written_here_is_read_by_javascript() {
    let mut runner = TestRunner::deterministic();
    let value = |_| values().new_tree(&mut runner).expect("a value").current();
    read_by_javascript(&(0..2_000).map(value).collect::<Vec<_>>());
}

#[test]
fn samples_written_by_javascript_are_read_here() {
    written_by_javascript(&ask(&json!({ "do": "samples" })));
}

#[test]
fn whatever_javascript_writes_is_read_here() {
    for seed in 1..=4 {
        written_by_javascript(&ask(&json!({ "do": "write", "seed": seed, "count": 1_000 })));
    }
}

#[test]
fn what_has_no_value_here_is_refused_by_name_and_path() {
    for case in ask(&json!({ "do": "refused" })).as_array().expect("a list") {
        let text = case["text"].as_str().expect("text");
        let why = decode(text).expect_err(text).to_string();
        for name in case["names"].as_array().expect("a list") {
            assert!(why.contains(name.as_str().expect("text")), "{name}: {why}");
        }
        assert!(!why.contains("secret"), "{why}");
    }
}

#[test]
fn what_javascript_refuses_is_refused_here() {
    // All that is named is there, so that it is the name that is refused.
    let time = "\"2024-01-01T00:00:00.000Z\"";
    let json = format!(r#"{{"a":{{"constructor":{time}}},"prototype":{{"a":{time}}},"__proto__":{time},"t":{time}}}"#);
    let metas = [
        r#"{"values":{"__proto__":["Date"]},"v":1}"#,
        r#"{"values":{"a.constructor":["Date"]},"v":1}"#,
        r#"{"values":{"prototype.a":["Date"]},"v":1}"#,
        r#"{"values":{"a":{"constructor":["Date"]}},"v":1}"#,
        r#"{"referentialEqualities":{"t":["__proto__"]},"v":1}"#,
        r#"{"referentialEqualities":{"a.constructor":["t"]},"v":1}"#,
        r#"{"values":{"t":["nonsense"]},"v":1}"#,
        r#"{"values":{"t":[["nonsense","x"]]},"v":1}"#,
        r#"{"values":{"t":[["class","X"]]},"v":1}"#,
        r#"{"values":{"t\\b":["Date"]},"v":1}"#,
    ];
    let texts = metas.map(|meta| format!(r#"{{"json":{json},"meta":{meta}}}"#));
    let refused = ask(&json!({ "do": "refuses", "texts": texts }));
    for (text, refused) in texts.iter().zip(refused.as_array().expect("a list")) {
        assert_eq!(refused, true, "JavaScript reads {text}");
        assert!(decode(text).is_err(), "{text}");
    }
}

/// Commits a row with a value of each kind and answers its entry: as JavaScript reads it, and as it is read here.
async fn committed<S: Scene>() -> (serde_json::Value, Value) {
    let (scene, blog) = (S::start().await, scene::blog());
    let changelog = scene.changelog();
    let mut work = UnitOfWork::new();
    let row = [
        ("id", "every-kind".into()),
        ("text", "\"quoted\" é😀".into()),
        ("uuid", "01976f3c-7f3e-7c3e-8a43-0d5f5b5a0d11".into()),
        ("integer", (-9_007_199_254_740_992_i64).into()),
        ("big", i64::MIN.into()),
        ("float", 0.1.into()),
        ("decimal", "12.50".into()),
        ("boolean", true.into()),
        ("time", Date::from_millis(1_700_000_000_123).expect("in range").into()),
        ("second", Date::from_millis(-1_000).expect("in range").into()),
        ("json", Value::from(json!({ "a.b": [1, null, { "": 0.1 }] })).into()),
        ("binary", vec![0_u8, 255].into()),
    ];
    work.create(&blog.kinds, row).expect("it is right");
    changelog.commit(&work).await.expect("it is committed");
    let page = changelog.list(After::Beginning, 1).await.expect("it can be read");
    let text = page.entries[0].payload.get().to_owned();
    let value = decode(&text).expect("it is superjson");
    let answer = tokio::task::spawn_blocking(move || ask(&json!({ "do": "read", "texts": [text] }))).await;
    (answer.expect("it answers")[0].take(), value)
}

/// Reads an entry of each database with the package, and compares them with each other.
#[tokio::test(flavor = "multi_thread")]
async fn s1_40_s1_41_what_a_unit_of_work_wrote_is_read_by_javascript_and_is_the_same_on_each_database() {
    let (postgres, mysql, sqlite) =
        tokio::join!(committed::<OnPostgres>(), committed::<OnMySql>(), committed::<OnSqlite>());
    for (answer, value) in [&postgres, &mysql, &sqlite] {
        assert_eq!(answer["dump"], dump(value));
        assert_eq!(answer["same"], true, "JavaScript writes {}", answer["written"]);
    }
    assert_eq!(postgres.0["dump"], mysql.0["dump"]);
    assert_eq!(postgres.0["dump"], sqlite.0["dump"]);
    let dumped = postgres.0["dump"].to_string();
    for kind in [r#"["date",1700000000123]"#, r#"["bigint","-9223372036854775808"]"#, r#"["bytes","00ff"]"#] {
        assert!(dumped.contains(kind), "there is no {kind} in {dumped}");
    }
}
