//! The sinks that can be configured. A new type is one line in each `match` here and one variant.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use postrider::Destination;
use postrider_sinks::{ConfigProblem, HttpConfig, StdoutConfig};
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
    /// Webhooks.
    Http(Box<HttpConfig>),
}

impl Sink {
    /// What `type` may say.
    const TYPES: &[&str] = &["stdout", "http"];

    /// One of each type with its defaults, in the order of the variants.
    pub fn one_of_each() -> Vec<Self> {
        vec![Self::Stdout(StdoutConfig::default()), Self::Http(Box::default())]
    }

    /// All settings that cannot work.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        match self {
            Self::Stdout(_) => Vec::new(),
            Self::Http(http) => http.problems(),
        }
    }

    /// Whether messages can be sent there under this destination; the error says what is wrong and what to do.
    pub fn check_destination(&self, destination: Option<&Destination>) -> Result<(), String> {
        match (self, destination) {
            // Each line says where its message would have gone; nothing is looked up.
            (Self::Stdout(_), _) => Ok(()),
            (Self::Http(_), None) => Err("an http sink needs a destination such as https://example.com/hooks".into()),
            // What is wrong with the sink's own settings is said of the sink.
            (Self::Http(http), Some(_)) if http.check().is_err() => Ok(()),
            (Self::Http(http), Some(destination)) => {
                http.check_destination(destination).map_err(|problem| problem.what)
            }
        }
    }

    /// The longest time that a publish takes, if the sink itself has a limit.
    pub fn longest_publish(&self) -> Option<Duration> {
        match self {
            Self::Stdout(_) => None,
            Self::Http(http) => Some(http.longest_publish()),
        }
    }
}

impl ByType for Sink {
    fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error> {
        let settings = MapAccessDeserializer::new(settings);
        match kind {
            "stdout" => StdoutConfig::deserialize(settings).map(Self::Stdout),
            "http" => HttpConfig::deserialize(settings).map(|http| Self::Http(Box::new(http))),
            _ => Err(A::Error::unknown_variant(kind, Self::TYPES)),
        }
    }
}

impl<'de> Deserialize<'de> for Sink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TypeFirst(PhantomData))
    }
}

/// A table whose keys depend on its `type`. It is not derived, because serde would collect the table first and lose the
/// places of what is wrong in it. The tree hands out `type` before the other keys.
pub trait ByType: Sized {
    /// Reads the other keys.
    fn read<'de, A: MapAccess<'de>>(kind: &str, settings: A) -> Result<Self, A::Error>;
}

/// Reads the type and then what is of that type.
pub struct TypeFirst<T>(pub PhantomData<T>);

impl<'de, T: ByType> Visitor<'de> for TypeFirst<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with a type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, kind)) if key == TYPE => T::read(&kind, map),
            _ => Err(A::Error::missing_field(TYPE)),
        }
    }
}
