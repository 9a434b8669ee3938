//! How columns and lengths of time are written in a configuration.
//!
//! A column is its name, or a table where more is to be said of it: `{ column = "kind", type = "event_kind" }`. A text that is the
//! same for every row is `{ fixed = "orders" }`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Column, Text};

/// A column with more than a name.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ColumnTable {
    column: String,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_length: Option<u32>,
}

/// The same, or a text for every row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextTable {
    fixed: Option<String>,
    column: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    values: Vec<String>,
    max_length: Option<u32>,
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Column;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a column, or { column = \"name\", type = \"…\" }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Column, E> {
                Ok(Column::from(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Column, A::Error> {
                let ColumnTable { column, kind, values, max_length } =
                    Deserialize::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Column { name: column, kind, values, max_length })
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::from(self.name.as_str()) {
            return serializer.serialize_str(&self.name);
        }
        let Self { name, kind, values, max_length } = self.clone();
        ColumnTable { column: name, kind, values, max_length }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a column, or { fixed = \"text\" } for the same in every row")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Text, E> {
                Ok(Text::Column(name.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                let table: TextTable = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
                match table {
                    TextTable { fixed: Some(fixed), column: None, kind: None, values, max_length: None }
                        if values.is_empty() =>
                    {
                        Ok(Text::Fixed { fixed })
                    }
                    TextTable { fixed: None, column: Some(name), kind, values, max_length } => {
                        Ok(Text::Column(Column { name, kind, values, max_length }))
                    }
                    _ => Err(A::Error::custom(
                        "this is neither a column nor a text; write { fixed = \"text\" } or { column = \"name\" }",
                    )),
                }
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fixed<'a> {
            fixed: &'a str,
        }
        match self {
            Self::Fixed { fixed } => Fixed { fixed }.serialize(serializer),
            Self::Column(column) => column.serialize(serializer),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Column {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Column".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object", "properties": {
            "column": { "type": "string" },
            "type": { "type": "string" },
            "values": { "type": "array", "items": { "type": "string" } },
            "max_length": { "type": "integer", "minimum": 1 },
        } }] })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object", "properties": {
            "fixed": { "type": "string" },
            "column": { "type": "string" },
            "type": { "type": "string" },
            "values": { "type": "array", "items": { "type": "string" } },
            "max_length": { "type": "integer", "minimum": 1 },
        } }] })
    }
}

/// A length of time with its unit: `"90s"`, `"5m"`, `"1h"`.
pub(super) mod duration {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = duration.as_secs();
        let (unit, length) = UNITS
            .into_iter()
            .rev()
            .find(|(_, length)| seconds >= *length && seconds.is_multiple_of(*length))
            .unwrap_or(UNITS[0]);
        serializer.serialize_str(&format!("{}{unit}", seconds / length))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length);
        let seconds = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        seconds.map(Duration::from_secs).ok_or_else(|| {
            D::Error::custom(
                "this is not a length of time in whole seconds; write a whole number and a unit, such as \"90s\", \"5m\" or \"1h\"",
            )
        })
    }
}
