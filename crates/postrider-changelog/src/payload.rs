//! What an entry says: the mutations of one unit of work.
//!
//! As superjson it is `{version: 1, mutations: […]}`, and a mutation `{op, schema, namespace, table, externalId, versionstamp, values}`, or
//! `set` in place of `values`, or neither, and `checkVersion` where a version was checked. `schema` and `namespace` both hold the
//! namespace. What a reader does not know of is passed over, so that keys can be added within version 1.

use std::collections::BTreeMap;

use num_bigint::BigInt;

use crate::{InvalidSuperjson, Value, Versionstamp};

/// The version of the form.
const VERSION: i64 = 1;
/// The only key of an object that stands for the external id of a reference.
pub(crate) const PLACEHOLDER: &str = "__fragno_ref";

/// The mutations of one unit of work, in the order in which they were recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// The mutations.
    pub mutations: Vec<Mutation>,
}

/// One row that was created, updated or deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    /// The namespace of its schema.
    pub namespace: String,
    /// The table, by its user-facing name.
    pub table: String,
    /// The row.
    pub external_id: String,
    /// Its place in the order of commits.
    pub versionstamp: Versionstamp,
    /// What was done to it.
    pub operation: Operation,
}

/// What was done to a row. Columns have their user-facing names.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// It was created with these values.
    Create {
        /// All columns that the schema declares.
        values: BTreeMap<String, Value>,
    },
    /// These columns were changed.
    Update {
        /// The columns.
        set: BTreeMap<String, Value>,
        /// The version that the row had to have before, if that was checked.
        check_version: Option<i64>,
    },
    /// It was deleted.
    Delete {
        /// The version that the row had to have, if that was checked.
        check_version: Option<i64>,
    },
}

/// A payload is not of the form `{version: 1, mutations: […]}`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidPayload {
    #[error("the payload is no superjson")]
    Superjson(#[from] InvalidSuperjson),
    #[error("the payload is not what version 1 says: {0}")]
    Form(String),
}

impl Payload {
    /// Writes `{version: 1, mutations: […]}` as superjson text.
    pub fn to_superjson(&self) -> String {
        let mutations: Vec<Value> = self.mutations.iter().map(written).collect();
        let payload = BTreeMap::from([field("version", VERSION), field("mutations", mutations)]);
        crate::encode(&Value::Object(payload))
    }

    /// Reads `{version: 1, mutations: […]}` from superjson text.
    pub fn from_superjson(text: &str) -> Result<Self, InvalidPayload> {
        let mut payload = Fields::of(crate::decode(text)?, "the payload".into())?;
        match payload.integer("version")? {
            Some(VERSION) => {}
            Some(other) => return refuse(format!("it has version {other}, which is not understood")),
            None => return refuse("it has no version"),
        }
        let Some(Value::Array(mutations)) = payload.take("mutations") else {
            return refuse("mutations is not a list");
        };
        let mutations = mutations.into_iter().enumerate().map(|(index, mutation)| read(index, mutation));
        Ok(Self { mutations: mutations.collect::<Result<_, _>>()? })
    }

    /// The same with external ids in place of placeholders.
    pub fn resolved(mut self, ref_map: &BTreeMap<String, String>) -> Result<Self, InvalidPayload> {
        for mutation in &mut self.mutations {
            let columns = match &mut mutation.operation {
                Operation::Create { values } => values,
                Operation::Update { set, .. } => set,
                Operation::Delete { .. } => continue,
            };
            for value in columns.values_mut() {
                let Some(key) = placeholder(value) else { continue };
                let Some(external_id) = ref_map.get(key) else {
                    return refuse(format!("the reference {key:?} is not in the map of references"));
                };
                *value = Value::Text(external_id.clone());
            }
        }
        Ok(self)
    }
}

/// The key in the map of references, if a value stands for one.
fn placeholder(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) if fields.len() == 1 => match fields.get(PLACEHOLDER) {
            Some(Value::Text(key)) => Some(key),
            _ => None,
        },
        _ => None,
    }
}

fn field(key: &str, value: impl Into<Value>) -> (String, Value) {
    (key.to_owned(), value.into())
}

fn written(mutation: &Mutation) -> Value {
    let Mutation { namespace, table, external_id, versionstamp, operation } = mutation;
    let mut fields = BTreeMap::from([
        field("schema", namespace.as_str()),
        field("namespace", namespace.as_str()),
        field("table", table.as_str()),
        field("externalId", external_id.as_str()),
        field("versionstamp", versionstamp.to_string()),
    ]);
    let (op, columns, check_version) = match operation {
        Operation::Create { values } => ("create", Some(("values", values)), None),
        Operation::Update { set, check_version } => ("update", Some(("set", set)), *check_version),
        Operation::Delete { check_version } => ("delete", None, *check_version),
    };
    fields.extend([field("op", op)]);
    fields.extend(columns.map(|(key, columns)| field(key, columns.clone())));
    fields.extend(check_version.map(|version| field("checkVersion", version)));
    Value::Object(fields)
}

fn read(index: usize, mutation: Value) -> Result<Mutation, InvalidPayload> {
    let mut fields = Fields::of(mutation, format!("mutation {index}"))?;
    let namespace = match fields.take("namespace") {
        Some(Value::Text(namespace)) => namespace,
        Some(other) => return fields.refuse("namespace", &other),
        None => fields.text("schema")?,
    };
    let stamp = fields.text("versionstamp")?;
    let versionstamp =
        stamp.parse().map_err(|error| InvalidPayload::Form(format!("mutation {index}, versionstamp: {error}")))?;
    let check_version = fields.integer("checkVersion")?;
    let operation = match fields.text("op")?.as_str() {
        "create" => Operation::Create { values: fields.object("values")? },
        "update" => Operation::Update { set: fields.object("set")?, check_version },
        "delete" => Operation::Delete { check_version },
        other => return refuse(format!("op of mutation {index} is {other:?}, not create, update or delete")),
    };
    let (table, external_id) = (fields.text("table")?, fields.text("externalId")?);
    Ok(Mutation { namespace, table, external_id, versionstamp, operation })
}

/// The fields of an object that are still to be read.
struct Fields {
    /// Which object, for messages.
    name: String,
    fields: BTreeMap<String, Value>,
}

impl Fields {
    fn of(value: Value, name: String) -> Result<Self, InvalidPayload> {
        match value {
            Value::Object(fields) => Ok(Self { name, fields }),
            other => refuse(format!("{name} is {}, not an object", other.kind())),
        }
    }

    /// A field that is there and says something.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !matches!(value, Value::Null | Value::Undefined))
    }

    fn text(&mut self, key: &str) -> Result<String, InvalidPayload> {
        match self.take(key).unwrap_or(Value::Undefined) {
            Value::Text(text) => Ok(text),
            other => self.refuse(key, &other),
        }
    }

    fn object(&mut self, key: &str) -> Result<BTreeMap<String, Value>, InvalidPayload> {
        match self.take(key).unwrap_or(Value::Undefined) {
            Value::Object(fields) => Ok(fields),
            other => self.refuse(key, &other),
        }
    }

    /// A whole number, which is a big integer where a number would not be exact.
    fn integer(&mut self, key: &str) -> Result<Option<i64>, InvalidPayload> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let integer = match &value {
            Value::Number(number) => Some(*number as i64).filter(|integer| Value::from(*integer) == value),
            Value::BigInt(number) => i64::try_from(number as &BigInt).ok(),
            _ => None,
        };
        match integer {
            Some(integer) => Ok(Some(integer)),
            None => refuse(format!("{key} of {} is not a whole number of 64 bits", self.name)),
        }
    }

    fn refuse<T>(&self, key: &str, found: &Value) -> Result<T, InvalidPayload> {
        refuse(format!("{key} of {} is {}, which it should not be", self.name, found.kind()))
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, InvalidPayload> {
    Err(InvalidPayload::Form(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Date, TransactionVersion};

    fn stamp(user_version: u16) -> Versionstamp {
        Versionstamp::new(TransactionVersion::new(0xabc).expect("small"), user_version)
    }

    fn mutation(operation: Operation) -> Mutation {
        Mutation {
            namespace: "shop".into(),
            table: "orders".into(),
            external_id: "order_1".into(),
            versionstamp: stamp(2),
            operation,
        }
    }

    fn columns<const N: usize>(columns: [(&str, Value); N]) -> BTreeMap<String, Value> {
        columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn reference(key: &str) -> Value {
        Value::Object(columns([(PLACEHOLDER, key.into())]))
    }

    fn refused(text: &str) -> String {
        match Payload::from_superjson(text).expect_err("it is refused") {
            InvalidPayload::Form(why) => why,
            InvalidPayload::Superjson(why) => panic!("{why}"),
        }
    }

    /// A payload of one mutation, with a field changed, or left out if it is empty.
    fn with(key: &str, json: &str) -> String {
        let mut fields = BTreeMap::from([
            ("op", "\"update\""),
            ("schema", "\"shop\""),
            ("table", "\"orders\""),
            ("externalId", "\"order_1\""),
            ("versionstamp", "\"000000000000000000010000\""),
            ("set", "{}"),
        ]);
        fields.insert(key, json);
        let fields = fields.iter().filter(|(_, json)| !json.is_empty());
        let fields: Vec<String> = fields.map(|(key, json)| format!("\"{key}\":{json}")).collect();
        format!("{{\"json\":{{\"version\":1,\"mutations\":[{{{}}}]}}}}", fields.join(","))
    }

    #[test]
    fn a_payload_is_written_in_the_form_of_version_1() {
        let at = Date::from_millis(0).expect("in range");
        let payload = Payload {
            mutations: vec![
                mutation(Operation::Create { values: columns([("at", at.into()), ("n", 1.into())]) }),
                mutation(Operation::Update { set: columns([("by", reference("1.by"))]), check_version: Some(7) }),
                mutation(Operation::Delete { check_version: None }),
            ],
        };
        let written: serde_json::Value = serde_json::from_str(&payload.to_superjson()).expect("JSON");
        let stamp = "00000000000000000abc0002";
        assert_eq!(
            written,
            serde_json::json!({
                "json": { "version": 1, "mutations": [
                    { "op": "create", "schema": "shop", "namespace": "shop", "table": "orders", "externalId": "order_1",
                      "versionstamp": stamp, "values": { "at": "1970-01-01T00:00:00.000Z", "n": 1 } },
                    { "op": "update", "schema": "shop", "namespace": "shop", "table": "orders", "externalId": "order_1",
                      "versionstamp": stamp, "set": { "by": { "__fragno_ref": "1.by" } }, "checkVersion": 7 },
                    { "op": "delete", "schema": "shop", "namespace": "shop", "table": "orders", "externalId": "order_1",
                      "versionstamp": stamp },
                ] },
                "meta": { "values": { "mutations.0.values.at": ["Date"] }, "v": 1 },
            })
        );
        assert_eq!(Payload::from_superjson(&payload.to_superjson()).expect("it is read"), payload);
    }

    #[test]
    fn versions_of_rows_are_read_in_all_their_bits() {
        for version in [0, 1, -1, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN] {
            let payload = Payload { mutations: vec![mutation(Operation::Delete { check_version: Some(version) })] };
            assert_eq!(Payload::from_superjson(&payload.to_superjson()).expect("it is read"), payload);
        }
    }

    #[test]
    fn the_namespace_is_that_of_the_schema_unless_it_is_said() {
        let read = |text: &str| Payload::from_superjson(text).expect("it is read").mutations.remove(0).namespace;
        assert_eq!(read(&with("namespace", "")), "shop");
        assert_eq!(read(&with("namespace", "null")), "shop");
        assert_eq!(read(&with("namespace", "\"store\"")), "store");
    }

    #[test]
    fn what_is_not_in_the_form_of_version_1_is_refused_with_its_place() {
        assert_eq!(refused(r#"{"json":[]}"#), "the payload is a list, not an object");
        assert_eq!(refused(r#"{"json":{"mutations":[]}}"#), "it has no version");
        assert_eq!(refused(r#"{"json":{"version":2,"mutations":[]}}"#), "it has version 2, which is not understood");
        assert!(refused(r#"{"json":{"version":1.5,"mutations":[]}}"#).contains("version"));
        assert_eq!(refused(r#"{"json":{"version":1}}"#), "mutations is not a list");
        assert_eq!(refused(r#"{"json":{"version":1,"mutations":[3]}}"#), "mutation 0 is a number, not an object");
        for (key, json) in [
            ("op", "\"check\""),
            ("op", ""),
            ("schema", ""),
            ("namespace", "1"),
            ("table", "null"),
            ("externalId", "5"),
            ("versionstamp", "\"00\""),
            ("set", "[]"),
            ("set", ""),
            ("checkVersion", "1.5"),
            ("checkVersion", "1e300"),
            ("checkVersion", "\"1\""),
        ] {
            let why = refused(&with(key, json));
            assert!(why.contains(key) && why.contains("mutation 0"), "{key} {json}: {why}");
        }
        assert!(matches!(Payload::from_superjson("{"), Err(InvalidPayload::Superjson(_))));
    }

    #[test]
    fn a_placeholder_becomes_the_external_id_of_the_reference() {
        let two = columns([(PLACEHOLDER, "0.by".into()), ("more", Value::Null)]);
        let values = columns([
            ("by", reference("0.by")),
            ("list", Value::Array(vec![reference("0.by")])),
            ("two", Value::Object(two)),
            ("number", Value::Object(columns([(PLACEHOLDER, 1.into())]))),
        ]);
        let set = columns([("by", reference("1.by"))]);
        let payload = Payload {
            mutations: vec![
                mutation(Operation::Create { values: values.clone() }),
                mutation(Operation::Update { set, check_version: Some(3) }),
                mutation(Operation::Delete { check_version: Some(4) }),
            ],
        };
        let ref_map = BTreeMap::from([("0.by".into(), "user_1".into()), ("1.by".into(), "user_2".into())]);
        let resolved = payload.clone().resolved(&ref_map).expect("all are there");
        let mut expected = payload.clone();
        expected.mutations[0].operation =
            Operation::Create { values: values.into_iter().chain(columns([("by", "user_1".into())])).collect() };
        expected.mutations[1].operation =
            Operation::Update { set: columns([("by", "user_2".into())]), check_version: Some(3) };
        assert_eq!(resolved, expected);

        let missing = payload.resolved(&BTreeMap::new()).expect_err("none is there");
        assert!(missing.to_string().contains("\"0.by\""), "{missing}");
    }

    #[test]
    fn debugging_shows_no_values() {
        let values = columns([("name", "secret".into())]);
        let payload = Payload { mutations: vec![mutation(Operation::Create { values })] };
        assert!(!format!("{payload:?}").contains("secret"));
    }
}
