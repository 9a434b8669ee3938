//! Values in a configuration that are more than text: lengths of time with a unit, and secrets.

use std::env::VarError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::sabotage::{self, Defect};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Lengths of time, written with their unit: `500ms`, `30s`, `5m`, `12h`, `7d`. Use it as `#[serde(with = …)]`.
pub mod duration {
    use super::{Deserialize, Deserializer, Duration, Error, Serializer};

    const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

    /// Reads a length of time.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let wrong = || {
            // What is not even like a length is not repeated: it got into the wrong place, and may be a secret.
            let given = if digits > 0 && text.chars().count() <= 12 { format!("{text:?}") } else { "this".to_owned() };
            format!(
                "{given} is not a length of time; write a whole number and a unit, such as \"500ms\", \"30s\", \"5m\", \"12h\" or \"7d\""
            )
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        if unit.is_empty() {
            return Err(without_unit(number));
        }
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        number
            .checked_mul(*millis)
            .map(Duration::from_millis)
            .ok_or_else(|| "this is too long; make it shorter".to_owned())
    }

    fn without_unit(number: impl std::fmt::Display) -> String {
        format!("{number} has no unit; write \"{number}ms\" or \"{number}s\", whichever you mean")
    }

    /// Writes a length of time so that it can be read again.
    pub fn format(duration: Duration) -> String {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let unit = UNITS.iter().rev().find(|(_, unit)| millis >= *unit && millis % unit == 0);
        let (name, unit) = unit.unwrap_or(&UNITS[1]);
        format!("{}{name}", millis / unit)
    }

    /// For `#[serde(with = …)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = serde_json::Value::deserialize(deserializer)?;
        match text {
            serde_json::Value::String(text) => parse(&text).map_err(Error::custom),
            serde_json::Value::Number(number) => Err(Error::custom(without_unit(number))),
            _ => Err(Error::custom("this is not a length of time; write text such as \"30s\"")),
        }
    }

    /// For `#[serde(with = …)]`.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(*duration))
    }

    /// For `#[serde(with = …)]` on an optional field.
    pub mod option {
        use super::{Deserializer, Duration, Serializer};

        /// For `#[serde(with = …)]`.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }

        /// For `#[serde(with = …)]`.
        pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            match duration {
                Some(duration) => super::serialize(duration, serializer),
                None => serializer.serialize_none(),
            }
        }
    }
}

/// A secret: text, or `{ env = "NAME" }`, or `{ file = "/run/secrets/name" }`. It is never printed.
#[derive(Clone)]
pub struct Secret {
    value: SecretString,
}

impl Secret {
    /// A secret from text.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: SecretString::from(value.into()) }
    }

    /// The secret itself. Do not print what this answers.
    pub fn expose(&self) -> &str {
        self.value.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if sabotage::has(Defect::SecretInDebug) {
            return f.write_str(self.expose());
        }
        f.write_str("<secret>")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("<secret>")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

/// Its errors never repeat what was given, because that may be the secret.
struct SecretVisitor;

const HOW: &str = "this is not a secret; write text, { env = \"NAME\" } or { file = \"/path\" }";
const EMPTY: &str = "the secret is empty; give one";

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, { env = \"NAME\" } or { file = \"/path\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
        if text.is_empty() {
            return Err(E::custom(EMPTY));
        }
        Ok(Secret::new(text))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Secret, E> {
        Err(E::custom(HOW))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom(HOW))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom(HOW))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom(HOW))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
        let (Some((place, name)), None) = (map.next_entry::<String, String>()?, map.next_key::<String>()?) else {
            return Err(A::Error::custom(HOW));
        };
        let read = match place.as_str() {
            "env" => std::env::var(&name).map_err(|error| match error {
                VarError::NotPresent => format!("the variable{} is not set; set it", shown(&name)),
                VarError::NotUnicode(_) => format!("the variable{} is not Unicode; set it to UTF-8", shown(&name)),
            }),
            "file" => std::fs::read_to_string(PathBuf::from(&name))
                .map_err(|error| format!("the file{} cannot be read: {}", shown(&name), error)),
            _ => Err(HOW.to_owned()),
        };
        let value = read.map_err(A::Error::custom)?;
        // Files end with a line break that is no part of the secret.
        let value = value.trim_end_matches(['\r', '\n']);
        if value.is_empty() { Err(A::Error::custom(EMPTY)) } else { Ok(Secret::new(value)) }
    }
}

/// The name of a file or variable, unless the secret itself may have been written in its place.
fn shown(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/\\._- ".contains(c);
    let is_name = name.starts_with(['/', '.']) || name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    if is_name && name.chars().all(plain) { format!(" {name}") } else { String::new() }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "secret".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "secret" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("12h", 43_200_000), ("7d", 604_800_000)]
        {
            let parsed = duration::parse(text).expect(text);
            assert_eq!(parsed, Duration::from_millis(millis));
            assert_eq!(duration::format(parsed), text);
        }
        for text in ["", "5", "s", "5 sec", "-5s", "1.5s", "5S", "99999999999999999999s", "999999999999999999d"] {
            assert!(duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_alone_and_text_are_told_apart() {
        let said = |text: &str| duration::parse(text).expect_err(text);
        assert_eq!(said("30"), "30 has no unit; write \"30ms\" or \"30s\", whichever you mean");
        assert!(said("30 sec").starts_with("\"30 sec\" is not a length of time; "));
        assert!(said("canary").starts_with("this is not a length of time; "), "it may be a secret");
        assert!(said("4711canarycanary").starts_with("this is not a length of time; "), "it may be a secret");
    }

    #[test]
    fn a_secret_is_found_where_the_configuration_says() {
        let file = std::env::temp_dir().join(format!("postrider-secret-{}", std::process::id()));
        let read = || serde_json::from_value::<Secret>(serde_json::json!({ "file": file }));
        let missing = read().expect_err("no file").to_string();
        assert!(missing.contains("cannot be read: No such file"), "{missing}");
        std::fs::write(&file, "canary\r\n").expect("written");
        let found = read().expect("found");
        assert_eq!(found.expose(), "canary");
        std::fs::write(&file, "\n").expect("written");
        let empty = read().expect_err("empty").to_string();
        std::fs::remove_file(&file).expect("removed");
        assert!(empty.starts_with("the secret is empty"), "{empty}");
        assert!(serde_json::from_str::<Secret>("\"\"").is_err());
    }

    #[test]
    fn s16_a_secret_in_the_place_of_a_name_is_not_printed() {
        for wrong in [r#"{"file": "canary"}"#, r#"{"env": "canary"}"#, r#"{"file": "/x/u:canary@h"}"#] {
            let wrong = serde_json::from_str::<Secret>(wrong).expect_err("not there").to_string();
            assert!(!wrong.contains("canary"), "{wrong}");
        }
        let named =
            serde_json::from_str::<Secret>(r#"{"env": "POSTRIDER_TEST_UNSET"}"#).expect_err("not set").to_string();
        assert!(named.contains("POSTRIDER_TEST_UNSET"), "{named}");
    }

    #[test]
    fn s16_a_secret_is_not_printed() {
        let secret = Secret::new("canary");
        assert!(!format!("{secret:?}").contains("canary"));
        let wrong = serde_json::from_str::<Secret>(r#"{"canary": "canary"}"#).expect_err("no such place");
        assert!(!wrong.to_string().contains("canary"), "{wrong}");
        let wrong = serde_json::from_str::<Secret>("4711").expect_err("not text");
        assert!(!wrong.to_string().contains("4711"), "{wrong}");
    }
}
