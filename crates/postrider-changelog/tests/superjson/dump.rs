//! Values in a form that is the same in both languages.

use postrider_changelog::Value;
use serde_json::{Value as Json, json};

/// What a value is, in full. Reckoned from the value only, by nothing that the crate writes or reads text with.
pub fn dump(value: &Value) -> Json {
    match value {
        Value::Undefined => json!(["undefined"]),
        Value::Null => json!(["null"]),
        Value::Bool(value) => json!(["boolean", value]),
        Value::Number(number) if number.is_nan() => json!(["number", "NaN"]),
        Value::Number(number) => json!(["number", format!("{:016x}", number.to_bits())]),
        Value::BigInt(number) => json!(["bigint", number.to_string()]),
        Value::Text(text) => json!(["string", text]),
        Value::Date(date) => json!(["date", date.millis()]),
        Value::Bytes(bytes) => json!(["bytes", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()]),
        Value::Array(items) => json!(["array", items.iter().map(dump).collect::<Vec<_>>()]),
        Value::Set(items) => json!(["set", items.iter().map(dump).collect::<Vec<_>>()]),
        Value::Map(rows) => {
            json!(["map", rows.iter().map(|(key, value)| [dump(key), dump(value)]).collect::<Vec<_>>()])
        }
        Value::Object(fields) => {
            json!(["object", fields.iter().map(|(key, field)| json!([key, dump(field)])).collect::<Vec<_>>()])
        }
        other => panic!("{other:?} is new"),
    }
}

/// A set or a map as JavaScript can have it: nothing plain is there twice, and no zero is negative.
pub fn distinct(value: Value) -> Value {
    let mut seen = Vec::new();
    let mut new = |item: &mut Value| {
        if *item == Value::Number(0.0) {
            *item = Value::Number(0.0);
        }
        let plain = !matches!(
            item,
            Value::Date(_) | Value::Bytes(_) | Value::Array(_) | Value::Object(_) | Value::Set(_) | Value::Map(_)
        );
        let dump = dump(item);
        let new = !plain || !seen.contains(&dump);
        seen.push(dump);
        new
    };
    match value {
        Value::Set(mut items) => {
            items.retain_mut(&mut new);
            Value::Set(items)
        }
        Value::Map(mut rows) => {
            rows.retain_mut(|(key, _)| new(key));
            Value::Map(rows)
        }
        other => other,
    }
}
