//! The only names that ever become part of SQL text: schema, prefix and table.
//!
//! A name is refused unless it is lower-case ASCII letters, digits and underscores and, with everything
//! derived from it, fits into the database's identifier limit, so that nothing is quoted wrongly or cut off.

/// PostgreSQL's limit; longer identifiers would be cut off silently.
const MAX_IDENTIFIER: usize = 63;
/// The longest ending that is added to the table's name, for an index or constraint.
const LONGEST_TABLE_SUFFIX: &str = "_headers_check";
/// The longest ending that is added to the prefix, for a function or table.
const LONGEST_PREFIX_SUFFIX: &str = "changelog_stamp";

/// Where an outbox lives in its database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Names {
    schema: Option<String>,
    prefix: String,
    table: String,
}

impl Default for Names {
    /// `outbox_messages`, with functions and the migrations table beginning with `postrider_`: on PostgreSQL in the
    /// schema `public`, on MySQL in the connection's database.
    fn default() -> Self {
        Self { schema: None, prefix: "postrider_".into(), table: "outbox_messages".into() }
    }
}

impl Names {
    /// Checks the three names. On MySQL a schema is another name for a database; SQLite has none. Two outboxes in one schema need different prefixes and tables.
    pub fn new(schema: &str, prefix: &str, table: &str) -> Result<Self, InvalidName> {
        check("schema", schema, "")?;
        check("prefix", prefix, LONGEST_PREFIX_SUFFIX)?;
        check("table", table, LONGEST_TABLE_SUFFIX)?;
        Ok(Self { schema: Some(schema.into()), prefix: prefix.into(), table: table.into() })
    }

    /// The default names in another schema.
    pub fn in_schema(schema: &str) -> Result<Self, InvalidName> {
        let default = Self::default();
        Self::new(schema, &default.prefix, &default.table)
    }

    /// The default schema, with another prefix and table.
    pub fn unqualified(prefix: &str, table: &str) -> Result<Self, InvalidName> {
        Ok(Self { schema: None, ..Self::new("public", prefix, table)? })
    }

    /// The names of a table that is there already, whoever made it: its name and its schema's may have upper-case letters.
    pub fn existing(schema: Option<&str>, prefix: &str, table: &str) -> Result<Self, InvalidName> {
        let lower = |name: &str| name.to_ascii_lowercase();
        if let Some(schema) = schema {
            check("schema", &lower(schema), "")?;
        }
        check("prefix", prefix, LONGEST_PREFIX_SUFFIX)?;
        check("table", &lower(table), "")?;
        Ok(Self { schema: schema.map(str::to_owned), prefix: prefix.into(), table: table.into() })
    }

    /// The schema, if one was given.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// What functions and the migrations table begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The table of messages, without its schema.
    pub fn table(&self) -> &str {
        &self.table
    }
}

/// A name was refused; it has not been near any SQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidName {
    #[error("the {what} name is empty; give it at least one character")]
    Empty { what: &'static str },
    #[error(
        "the {what} name holds {found:?}; use lower-case ASCII letters, digits and underscores, and begin with a letter or underscore"
    )]
    BadCharacter { what: &'static str, found: char },
    #[error("the {what} name has {length} characters; at most {limit} leave room for the names made from it")]
    TooLong { what: &'static str, length: usize, limit: usize },
    #[error("the {what} name {name:?} begins with \"pg_\", which PostgreSQL keeps for itself; choose another")]
    Reserved { what: &'static str, name: String },
}

/// Checks one name; `suffix` is the longest ending that is added to it.
#[doc(hidden)]
pub fn check(what: &'static str, name: &str, suffix: &str) -> Result<(), InvalidName> {
    let bad =
        name.char_indices().find(|(at, c)| !(c.is_ascii_lowercase() || *c == '_' || (*at > 0 && c.is_ascii_digit())));
    if name.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    if let Some((_, found)) = bad {
        return Err(InvalidName::BadCharacter { what, found });
    }
    let limit = MAX_IDENTIFIER - suffix.len();
    if name.len() > limit {
        return Err(InvalidName::TooLong { what, length: name.len(), limit });
    }
    if name.starts_with("pg_") {
        return Err(InvalidName::Reserved { what, name: name.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever passes can stand between quotes, in a literal and in a longer name without changing what is around it.
        #[test]
        fn s01_s25_a_name_that_passes_is_a_plain_identifier_of_every_database(
            name in prop_oneof!["[a-z_][a-z0-9_]{0,70}", "[a-z_]{0,2}[ -~]{0,3}", ".{0,40}", "[a-z]{0,5}.[a-z0-9]{0,5}"],
        ) {
            let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let plain = first && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            let fits = |suffix: &str| name.len() + suffix.len() <= MAX_IDENTIFIER;
            for suffix in ["", "_finished_idx"] {
                let passes = check("table", &name, suffix).is_ok();
                prop_assert_eq!(passes, plain && fits(suffix) && !name.starts_with("pg_"));
            }
        }
    }

    #[test]
    fn ordinary_names_pass() {
        assert!(Names::new("shop", "outbox_", "messages_2").is_ok());
        assert!(Names::new("_s", &"p".repeat(48), &"t".repeat(49)).is_ok());
    }

    #[test]
    fn a_name_that_would_be_cut_off_is_refused() {
        assert!(matches!(Names::new("s", "p", &"t".repeat(50)), Err(InvalidName::TooLong { what: "table", .. })));
        assert!(matches!(Names::new(&"s".repeat(64), "p", "t"), Err(InvalidName::TooLong { what: "schema", .. })));
        assert!(matches!(Names::new("s", &"p".repeat(49), "t"), Err(InvalidName::TooLong { what: "prefix", .. })));
    }

    #[test]
    fn s01_nothing_that_could_leave_its_quotes_is_a_name() {
        for bad in [
            "",
            "a b",
            "a\"b",
            "a'b",
            "a;drop table x",
            "a.b",
            "Ab",
            "ä",
            "1a",
            "a-b",
            "a\0",
            "a\n",
            "pg_x",
            "{table}",
            "$1",
        ] {
            for names in [Names::new(bad, "p", "t"), Names::new("s", bad, "t"), Names::new("s", "p", bad)] {
                assert!(names.is_err(), "{bad:?} was accepted");
            }
        }
    }
}
