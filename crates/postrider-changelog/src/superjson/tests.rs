use std::collections::BTreeMap;

use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;
use crate::Date;

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn date(millis: i64) -> Value {
    Value::Date(Date::from_millis(millis).expect("in range"))
}

fn bigint(number: i64) -> Value {
    Value::BigInt(number.into())
}

/// Whether two values are the same, where NaN is and the two zeros are not.
fn same(one: &Value, other: &Value) -> bool {
    let all =
        |one: &[Value], other: &[Value]| one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b));
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
        }
        (Value::Array(one), Value::Array(other)) | (Value::Set(one), Value::Set(other)) => all(one, other),
        (Value::Object(one), Value::Object(other)) => {
            one.keys().eq(other.keys()) && one.values().zip(other.values()).all(|(a, b)| same(a, b))
        }
        (Value::Map(one), Value::Map(other)) => {
            let sides = |rows: &[(Value, Value)]| -> Vec<Value> {
                rows.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect()
            };
            all(&sides(one), &sides(other))
        }
        _ => one == other,
    }
}

fn refused(text: &str) -> String {
    decode(text).expect_err(text).0
}

#[test]
fn plain_json_has_no_meta() {
    let value = object([("a", Value::Array(vec![1.into(), Value::Null, true.into(), "text".into(), 1.5.into()]))]);
    assert_eq!(encode(&value), r#"{"json":{"a":[1,null,true,"text",1.5]}}"#);
    assert_eq!(encode(&Value::Array(vec![])), r#"{"json":[]}"#);
    assert_eq!(encode(&object([])), r#"{"json":{}}"#);
}

#[test]
fn numbers_are_written_as_javascript_writes_them() {
    for (number, text) in [
        (0.0, "0"),
        (3.0, "3"),
        (-42.0, "-42"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (123_456_789_012_345_680_000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
    ] {
        assert_eq!(encode(&number.into()), format!("{{\"json\":{text}}}"));
    }
}

#[test]
fn text_is_written_as_javascript_writes_it() {
    let odd = "\" \\ / \n\r\t\u{8}\u{c} \u{0}\u{1f} \u{7f}\u{2028} é 😀";
    let text = "{\"json\":\"\\\" \\\\ / \\n\\r\\t\\b\\f \\u0000\\u001f \u{7f}\u{2028} é 😀\"}";
    assert_eq!(encode(&odd.into()), text);
    assert!(same(&decode(text).expect("it is read"), &odd.into()));
}

#[test]
fn what_json_cannot_say_is_in_meta() {
    for (value, text) in [
        (Value::Undefined, r#"{"json":null,"meta":{"values":["undefined"],"v":1}}"#),
        (f64::NAN.into(), r#"{"json":"NaN","meta":{"values":["number"],"v":1}}"#),
        (f64::INFINITY.into(), r#"{"json":"Infinity","meta":{"values":["number"],"v":1}}"#),
        (f64::NEG_INFINITY.into(), r#"{"json":"-Infinity","meta":{"values":["number"],"v":1}}"#),
        ((-0.0).into(), r#"{"json":"-0","meta":{"values":["number"],"v":1}}"#),
        (bigint(-12), r#"{"json":"-12","meta":{"values":["bigint"],"v":1}}"#),
        (date(0), r#"{"json":"1970-01-01T00:00:00.000Z","meta":{"values":["Date"],"v":1}}"#),
        (vec![0_u8, 255].into(), r#"{"json":[0,255],"meta":{"values":[["typed-array","Uint8Array"]],"v":1}}"#),
        (Value::Set(vec![1.into()]), r#"{"json":[1],"meta":{"values":["set"],"v":1}}"#),
        (Value::Set(vec![1.into(), bigint(2)]), r#"{"json":[1,"2"],"meta":{"values":["set",{"1":["bigint"]}],"v":1}}"#),
        (
            Value::Map(vec![(bigint(1), object([("a", bigint(2))])), (Value::Null, Value::Undefined)]),
            r#"{"json":[["1",{"a":"2"}],[null,null]],"meta":{"values":["map",{"0.0":["bigint"],"0.1.a":["bigint"],"1.1":["undefined"]}],"v":1}}"#,
        ),
        (
            object([("a", Value::Array(vec![Value::Null, object([("b", Value::Set(vec![bigint(1)]))])]))]),
            r#"{"json":{"a":[null,{"b":["1"]}]},"meta":{"values":{"a.1.b":["set",{"0":["bigint"]}]},"v":1}}"#,
        ),
        (
            object([("", bigint(1)), (r"a.b\c", object([("", bigint(2))]))]),
            r#"{"json":{"":"1","a.b\\c":{"":"2"}},"meta":{"values":{"":["bigint"],"a\\.b\\\\c.":["bigint"]},"v":1}}"#,
        ),
    ] {
        assert_eq!(encode(&value), text);
        assert!(same(&decode(text).expect("it is read"), &value), "{text}");
    }
}

#[test]
fn meta_may_be_missing_or_empty() {
    for meta in ["", r#","meta":null"#, r#","meta":{}"#, r#","meta":{"values":null,"v":1}"#, r#","other":1"#] {
        assert_eq!(decode(&format!("{{\"json\":[1]{meta}}}")), Ok(Value::Array(vec![1.into()])), "{meta}");
    }
}

#[test]
fn numbers_are_read_as_javascript_reads_them() {
    for (text, number) in [
        ("-0", -0.0),
        ("1e400", f64::INFINITY),
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
        // The nearest double, where a quick reader is off by one.
        ("1.7976931348623157e308", f64::MAX),
        ("2.2250738585072011e-308", f64::from_bits(0x000f_ffff_ffff_ffff)),
        ("9355950000000000000.00000000000000000000000000000000001", 9_355_950_000_000_000_000.0),
    ] {
        let read = decode(&format!("{{\"json\":{text}}}")).expect("it is read");
        assert!(same(&read, &number.into()), "{text}");
    }
}

#[test]
fn paths_of_older_versions_are_read() {
    let key = |text: &str| decode(text).expect("it is read");
    let expected = object([(r"a\b.c", bigint(1))]);
    // Without a version, only dots have a backslash before them.
    assert_eq!(key(r#"{"json":{"a\\b.c":"1"},"meta":{"values":{"a\\b\\.c":["bigint"]}}}"#), expected);
    assert_eq!(key(r#"{"json":{"a\\b.c":"1"},"meta":{"values":{"a\\b\\.c":["bigint"]},"v":0}}"#), expected);
    assert_eq!(key(r#"{"json":{"a\\b.c":"1"},"meta":{"values":{"a\\\\b\\.c":["bigint"]},"v":1}}"#), expected);
    assert!(
        refused(r#"{"json":{"a\\b.c":"1"},"meta":{"values":{"a\\b\\.c":["bigint"]},"v":1}}"#).contains("backslash")
    );
    assert!(refused(r#"{"json":1,"meta":{"v":2}}"#).contains("meta.v"));
}

#[test]
fn types_without_a_value_are_refused_by_name_and_path() {
    for (kind, name) in [
        (r#""regexp""#, "regexp"),
        (r#""URL""#, "URL"),
        (r#""Error""#, "Error"),
        (r#"["class","User"]"#, "User"),
        (r#"["symbol","s"]"#, "symbol"),
        (r#"["custom","decimal.js"]"#, "decimal.js"),
        (r#"["typed-array","Float64Array"]"#, "Float64Array"),
        (r#"["set","x"]"#, "set"),
        (r#""typed-array""#, "typed-array"),
    ] {
        let text = format!(r#"{{"json":{{"a":["secret"]}},"meta":{{"values":{{"a.0":[{kind}]}},"v":1}}}}"#);
        let why = refused(&text);
        assert!(why.contains(name) && why.contains("a.0") && !why.contains("secret"), "{why}");
    }
}

#[test]
fn stand_ins_that_do_not_fit_their_type_are_refused() {
    for (json, kind) in [
        ("1", r#""undefined""#),
        ("1", r#""bigint""#),
        (r#""""#, r#""bigint""#),
        (r#""+1""#, r#""bigint""#),
        (r#""1_0""#, r#""bigint""#),
        (r#""0x1""#, r#""bigint""#),
        (r#""-""#, r#""bigint""#),
        (r#""yesterday""#, r#""Date""#),
        ("0", r#""Date""#),
        (r#""12""#, r#""number""#),
        ("{}", r#""set""#),
        ("[1]", r#""map""#),
        ("[[1]]", r#""map""#),
        ("[[1,2,3]]", r#""map""#),
        ("[256]", r#"["typed-array","Uint8Array"]"#),
        ("[-1]", r#"["typed-array","Uint8Array"]"#),
        ("[0.5]", r#"["typed-array","Uint8Array"]"#),
        (r#""AA==""#, r#"["typed-array","Uint8Array"]"#),
    ] {
        let why = refused(&format!(r#"{{"json":{json},"meta":{{"values":[{kind}],"v":1}}}}"#));
        assert!(why.contains("the whole is to be of the type"), "{json} {kind}: {why}");
    }
}

#[test]
fn paths_to_nowhere_are_refused() {
    for path in ["b", "a.1", "a.-1", "a.+0", "a.x", "a.0.0", "", "c.0", "c.0.2", "c.1.0"] {
        let text = format!(
            r#"{{"json":{{"a":[1],"c":[[1,2]]}},"meta":{{"values":{{"{path}":["undefined"],"c":["map"]}},"v":1}}}}"#
        );
        assert!(decode(&text).is_err(), "{path}");
    }
    for tree in ["1", "\"Date\"", "[]", "[1]", r#"["set",[]]"#, r#"["set",{},1]"#, "[[]]", r#"{"a":"Date"}"#] {
        let why = refused(&format!(r#"{{"json":{{"a":[]}},"meta":{{"values":{tree},"v":1}}}}"#));
        assert!(why.contains("meta.values"), "{tree}: {why}");
    }
}

#[test]
fn keys_that_lead_out_of_an_object_are_refused() {
    for key in ["__proto__", "constructor", "prototype"] {
        let json = format!(r#"{{"json":{{"a":{{"{key}":"1"}}}}"#);
        assert!(decode(&format!("{json}}}")).is_ok(), "as plain JSON it does no harm");
        assert!(refused(&format!(r#"{json},"meta":{{"values":{{"a.{key}":["bigint"]}},"v":1}}}}"#)).contains(key));
        let equal = format!(r#"{json},"meta":{{"referentialEqualities":{{"a":["a.{key}"]}},"v":1}}}}"#);
        assert!(refused(&equal).contains(key));
        let equal = format!(r#"{json},"meta":{{"referentialEqualities":{{"a.{key}":["b"]}},"v":1}}}}"#);
        assert!(refused(&equal).contains(key));
        let nested = Value::Map(vec![(Value::Null, object([(key, Value::Null)]))]);
        assert!(nested.check().expect_err("it is refused").0.contains(key));
    }
    assert_eq!(object([("proto", Value::Null)]).check(), Ok(()));
}

#[test]
fn what_was_there_twice_is_read_twice() {
    let equal = |json: &str, equalities: &str| {
        decode(&format!(r#"{{"json":{json},"meta":{{"referentialEqualities":{equalities},"v":1}}}}"#))
    };
    let one = object([("n", 1.into())]);
    assert_eq!(
        equal(r#"{"a":{"n":1},"b":{"n":1}}"#, r#"{"a":["b"]}"#),
        Ok(object([("a", one.clone()), ("b", one.clone())]))
    );
    assert_eq!(
        equal(r#"{"a":{"n":1},"b":null}"#, r#"{"a":["b"]}"#),
        Ok(object([("a", one.clone()), ("b", one.clone())]))
    );
    assert_eq!(
        equal(r#"{"a":{"n":1},"b":null}"#, r#"[[],{"a":["b"]}]"#),
        Ok(object([("a", one.clone()), ("b", one.clone())]))
    );
    // What is copied has a place for another copy in it, whichever comes first in the order of paths.
    let two = object([("p", one.clone()), ("q", one)]);
    for other in ["a", "z"] {
        let json = format!(r#"{{"y":{{"p":{{"n":1}},"q":null}},"{other}":null}}"#);
        let equalities = format!(r#"{{"y":["{other}"],"y.p":["y.q"]}}"#);
        assert_eq!(equal(&json, &equalities), Ok(object([("y", two.clone()), (other, two.clone())])));
    }
}

#[test]
fn copies_reach_into_sets_and_maps() {
    let text = r#"{"json":{"a":{"n":1},"m":[[null,null]],"s":[2,null]},
        "meta":{"values":{"m":["map"],"s":["set"]},"referentialEqualities":{"a":["m.0.0","m.0.1","s.1"]},"v":1}}"#;
    let one = object([("n", 1.into())]);
    let expected = object([
        ("a", one.clone()),
        ("m", Value::Map(vec![(one.clone(), one.clone())])),
        ("s", Value::Set(vec![2.into(), one])),
    ]);
    assert_eq!(decode(text), Ok(expected));
}

#[test]
fn what_contains_itself_is_refused() {
    for (json, equalities) in [
        (r#"{"a":null}"#, r#"[["a"]]"#),
        (r#"{"a":{"b":null}}"#, r#"{"a":["a.b"]}"#),
        (r#"{"z":{"x":null},"a":{"b":{"x":null}}}"#, r#"{"z":["a.b","a.b.x"]}"#),
        (r#"{"a":{"x":null},"b":{"x":null}}"#, r#"{"a":["b.x"],"b":["a.x"]}"#),
    ] {
        let why = refused(&format!(r#"{{"json":{json},"meta":{{"referentialEqualities":{equalities},"v":1}}}}"#));
        assert!(why.contains("contains itself"), "{why}");
    }
}

#[test]
fn equalities_of_another_form_are_refused() {
    for equalities in ["1", r#"{"a":"b"}"#, r#"{"a":[1]}"#, r#"{"a":["c"]}"#, r#"{"c":["a"]}"#, r#"[["a"],1]"#, "[]"] {
        let text = format!(r#"{{"json":{{"a":1}},"meta":{{"referentialEqualities":{equalities},"v":1}}}}"#);
        assert!(decode(&text).is_err(), "{equalities}");
    }
}

#[test]
fn copies_of_copies_do_not_grow_without_end() {
    // Each object has the one before it twice.
    let json: Vec<String> = (10..60).map(|n| format!(r#""o{n}":{{"x":null,"y":null}}"#)).collect();
    let equal: Vec<String> = (10..59).map(|n| format!(r#""o{n}":["o{0}.x","o{0}.y"]"#, n + 1)).collect();
    let text = format!(
        r#"{{"json":{{{}}},"meta":{{"referentialEqualities":{{{}}},"v":1}}}}"#,
        json.join(","),
        equal.join(",")
    );
    assert!(refused(&text).contains("too large"));
    // Each object has the one before it once, which is deep.
    let json: Vec<String> = (1000..2000).map(|n| format!(r#""o{n}":{{"x":null}}"#)).collect();
    let equal: Vec<String> = (1000..1999).map(|n| format!(r#""o{n}":["o{}.x"]"#, n + 1)).collect();
    let text = format!(
        r#"{{"json":{{{}}},"meta":{{"referentialEqualities":{{{}}},"v":1}}}}"#,
        json.join(","),
        equal.join(",")
    );
    assert!(refused(&text).contains("deep"));
}

#[test]
fn texts_nest_as_deeply_as_they_may_and_no_deeper() {
    let lists = |levels: usize| format!("{{\"json\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(decode(&lists(DEEPEST_TEXT)).is_ok());
    assert!(refused(&lists(DEEPEST_TEXT + 1)).contains("deep"));
    assert!(refused(&lists(1_000_000)).contains("deep"));
    let objects = format!("{{\"json\":{}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert!(refused(&objects).contains("deep"));
    let meta = format!(r#"{{"json":1,"meta":{{"values":{}1{}}}}}"#, "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert!(refused(&meta).contains("deep"));
    let words = "[{\"\\".repeat(DEEPEST_TEXT);
    assert_eq!(decode(&encode(&words.as_str().into())), Ok(words.into()), "brackets in text do not count");
}

#[test]
fn a_value_that_passes_its_check_can_be_read() {
    let wrap: [fn(Value) -> Value; 4] = [
        |value| Value::Array(vec![value]),
        |value| Value::Set(vec![value]),
        |value| object([("a", value)]),
        |value| Value::Map(vec![(Value::Null, value)]),
    ];
    for (wrap, levels) in wrap.into_iter().zip([1, 1, 1, 2]) {
        let mut value = bigint(1);
        for _ in 0..DEEPEST_VALUE / levels {
            value = wrap(value);
        }
        assert_eq!(value.check(), Ok(()));
        let payload =
            object([("mutations", Value::Array(vec![object([("values", object([("column", value.clone())]))])]))]);
        assert_eq!(decode(&encode(&payload)), Ok(payload));
        assert!(wrap(value).check().expect_err("too deep").0.contains("deep"));
    }
}

#[test]
fn what_is_no_superjson_is_refused_without_its_content() {
    for text in [
        "",
        "null",
        "[]",
        "\"secret\"",
        "{\"secret\":1}",
        "{\"json\":1",
        "{\"json\":\"secret",
        "{\"json\":1} secret",
        r#"{"json":"secret\ud800"}"#,
        r#"{"json":1,"meta":"secret"}"#,
        r#"{"json":01}"#,
        "{\"json\":\"\u{1}\"}",
        r#"{"json":tru}"#,
    ] {
        assert!(!refused(text).contains("secret"), "{text}");
    }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![r#"[a-c.\\"'0é😀 ]{0,4}"#, any::<String>()]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Undefined),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::num::f64::ANY.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i128>().prop_map(|number| Value::BigInt(BigInt::from(number) * number)),
        any::<String>().prop_map(Value::from),
        (Date::MIN.millis()..=Date::MAX.millis()).prop_map(date),
        proptest::collection::vec(any::<u8>(), 0..5).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            list.clone().prop_map(Value::Array),
            list.prop_map(Value::Set),
            proptest::collection::btree_map(key(), inner.clone(), 0..5).prop_map(Value::Object),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// JSON that looks like superjson and mostly is not.
fn confusing() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "null",
        "1",
        "-0",
        "[]",
        "{}",
        r#""a""#,
        r#""1""#,
        r#""a.0""#,
        r#""set""#,
        r#""map""#,
        r#""Date""#,
        r#""bigint""#,
        r#""undefined""#,
        r#""number""#,
        r#""NaN""#,
        r#"["set"]"#,
        r#"["map"]"#,
        r#"[["typed-array","Uint8Array"]]"#,
    ]);
    let keys = proptest::sample::select(vec!["a", "0", "a.0", "0.1", "a.a", "1", "", "json", "values", "v"]);
    let json = word.prop_map(str::to_owned).prop_recursive(4, 30, 4, move |inner| {
        let fields = proptest::collection::vec((keys.clone(), inner.clone()), 0..4);
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            fields.prop_map(|fields| {
                let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    (json.clone(), json.clone(), json).prop_map(|(json, values, equal)| {
        format!(r#"{{"json":{json},"meta":{{"values":{values},"referentialEqualities":{equal},"v":1}}}}"#)
    })
}

proptest! {
    #[test]
    fn every_value_is_read_as_it_was_written(value in values()) {
        let text = encode(&value);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        // Keys that superjson does not allow are not among those that chance makes.
        let read = decode(&text);
        prop_assert!(read.as_ref().is_ok_and(|read| same(read, &value)), "{}\n{:?}", text, read);
    }

    #[test]
    fn no_text_is_too_odd_to_be_read(text in any::<String>()) {
        let _ = decode(&text);
        let _ = decode(&format!("{{\"json\":{text}}}"));
    }

    #[test]
    fn no_meta_is_too_confusing_to_be_read(text in confusing()) {
        let _ = decode(&text);
    }

    #[test]
    fn a_text_that_was_cut_is_refused(value in values(), at in any::<prop::sample::Index>()) {
        let text = encode(&value);
        let at = at.index(text.len());
        if text.is_char_boundary(at) {
            prop_assert!(decode(&text[..at]).is_err());
        }
    }

    #[test]
    fn plain_json_is_the_same_both_ways(value in values()) {
        if let Ok(json) = value.to_json() {
            let mut wrapped = BTreeMap::new();
            wrapped.insert("json", json);
            let text = serde_json::to_string(&wrapped).expect("JSON");
            // Where a zero is negative the text differs, and nowhere else is there meta.
            prop_assert!(decode(&text).is_ok_and(|read| same(&read, &value)), "{}", text);
        }
    }
}
