//! The sinks that can be configured. A new type is one line in each `match` here and one variant.

use std::fmt;

use postrider_core::Destination;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::shape::TYPE;

/// Where messages go.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Sink {
    /// JSON lines on standard output.
    Stdout(StdoutConfig),
}

/// JSON lines on standard output. It has no settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StdoutConfig {}

impl Sink {
    /// What `type` may say.
    const TYPES: &[&str] = &["stdout"];

    fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error> {
        let settings = MapAccessDeserializer::new(settings);
        match kind {
            "stdout" => StdoutConfig::deserialize(settings).map(Self::Stdout),
            _ => Err(A::Error::unknown_variant(kind, Self::TYPES)),
        }
    }

    /// One of each type with its defaults, in the order of the variants.
    pub fn one_of_each() -> Vec<Self> {
        vec![Self::Stdout(StdoutConfig::default())]
    }

    /// Whether messages can be sent there under this destination; the error says what is wrong and what to do.
    pub fn check_destination(&self, destination: Option<&Destination>) -> Result<(), String> {
        match self {
            // Each line says where its message would have gone; nothing is looked up.
            Self::Stdout(_) => {
                let _ = destination;
                Ok(())
            }
        }
    }
}

/// Not derived: serde would collect the table first and lose the places of what is wrong in it. The tree hands out
/// `type` before the other keys.
impl<'de> Deserialize<'de> for Sink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TypeFirst;
        impl<'de> Visitor<'de> for TypeFirst {
            type Value = Sink;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with a type")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sink, A::Error> {
                match map.next_entry::<String, String>()? {
                    Some((key, kind)) if key == TYPE => Sink::read(&kind, map),
                    _ => Err(A::Error::missing_field(TYPE)),
                }
            }
        }
        deserializer.deserialize_map(TypeFirst)
    }
}
