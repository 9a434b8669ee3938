//! A table as a database's catalog has it, whoever made it.

/// Which database a table is on: what it can do, and how its SQL is written where somebody is to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Database {
    Postgres,
    MySql,
    Sqlite,
}

impl Database {
    /// An identifier in SQL.
    pub(crate) fn quoted(self, name: &str) -> String {
        match self {
            Self::Postgres | Self::Sqlite => format!("\"{name}\""),
            Self::MySql => format!("`{name}`"),
        }
    }

    /// The type of a point in time.
    pub(crate) fn time(self) -> &'static str {
        match self {
            Self::Postgres => "timestamptz",
            Self::MySql => "datetime(6)",
            Self::Sqlite => "integer",
        }
    }

    /// The present as a default of such a column.
    pub(crate) fn now(self) -> &'static str {
        match self {
            Self::Postgres => "now()",
            Self::MySql => "(utc_timestamp(6))",
            Self::Sqlite => "0",
        }
    }

    /// The type of a column that holds a UUID as sixteen bytes, where that has to be said.
    pub(crate) fn uuid_bytes(self) -> Option<&'static str> {
        match self {
            Self::Postgres => None,
            Self::MySql => Some("binary"),
            Self::Sqlite => Some("blob"),
        }
    }
}

/// A table, and what the role that looks may do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// Which database it is on.
    pub database: Database,
    /// Its schema; empty where there are none.
    pub schema: String,
    /// Its name in SQL, with its schema.
    pub place: String,
    /// Its name alone.
    pub name: String,
    /// The role that looks, as it is written in SQL.
    pub role: String,
    /// Why no relay can work on it, whatever its columns are.
    pub unfit: Option<Unfit>,
    /// About how many rows it has.
    pub rows: i64,
    /// Its columns.
    pub columns: Vec<TableColumn>,
    /// Its indexes that can be used.
    pub indexes: Vec<TableIndex>,
    /// Whether the role may use the schema.
    pub uses_schema: bool,
    /// Whether the role may delete rows.
    pub deletes: bool,
    /// Whether a crash of the server empties it.
    pub unlogged: bool,
    /// Whether the table of operators' changes is there, and on MySQL and SQLite all else that `postrider migrate` adds.
    pub audited: bool,
}

/// Why no relay can work on a table, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfit {
    /// What it is: partitioned, inherited from, no table, of an engine without transactions, without a primary key or rowids.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Unfit {
    /// A table of several parts, or none.
    pub(crate) fn shape(what: String) -> Self {
        Self { what, fix: "name a plain table, or one of its parts as a source of its own".to_owned() }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its type, as the database writes it.
    pub type_name: String,
    /// The name of the type that it is made of, as the catalog has it.
    pub base: String,
    /// The schema of that type; empty where types have none.
    pub base_schema: String,
    /// Whether that type is found without its schema.
    pub base_is_in_path: bool,
    /// What its type can hold.
    pub kind: Kind,
    /// The most characters it takes.
    pub length: Option<u32>,
    /// Whether it must have a value.
    pub not_null: bool,
    /// Whether it gets a value without being written.
    pub has_default: bool,
    /// Whether the database computes it, so that nothing can be written to it.
    pub computed: bool,
    /// The value it gets, as SQL.
    pub usual: Option<String>,
    /// Whether it alone is the primary key.
    pub is_key: bool,
    /// The words that its enum or a check allows; empty if it takes any.
    pub words: Vec<String>,
    /// Whether the role may read it.
    pub selects: bool,
    /// Whether the role may change it.
    pub updates: bool,
}

impl TableColumn {
    /// The word that it gets without being written, if that is a word.
    pub(crate) fn usual_word(&self) -> Option<String> {
        let usual = self.usual.as_deref()?;
        // MySQL writes the default of a text without quotes, and an expression in parentheses.
        let bare = || usual.bytes().all(|b| b.is_ascii_alphanumeric() || b"_- ".contains(&b));
        literals(usual).into_iter().next().or_else(|| (self.kind == Kind::Text && bare()).then(|| usual.to_owned()))
    }

    /// Whether it gets one of these without being written, in capitals or not.
    pub(crate) fn usual_is(&self, words: &[&str]) -> bool {
        let usual = self.usual_word().or_else(|| self.usual.clone()).unwrap_or_default();
        words.iter().any(|word| usual.eq_ignore_ascii_case(word))
    }

    /// The number of characters that its type says, also where the database does not mind.
    pub(crate) fn declared_length(&self) -> Option<u32> {
        let declared = || self.type_name.split_once('(')?.1.split_once(')')?.0.trim().parse().ok();
        self.length.or_else(declared)
    }
}

/// What a type can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Uuid,
    Integer,
    Boolean,
    Text,
    Enum,
    Json,
    /// JSON that has operators.
    Jsonb,
    Bytes,
    Time,
    /// A time that does not say in which zone.
    LocalTime,
    Other,
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableIndex {
    /// Its columns, without quotes; an expression as it is.
    pub columns: Vec<String>,
    /// Its condition.
    pub predicate: Option<String>,
    /// Whether it is unique.
    pub unique: bool,
}

impl Table {
    /// A column by its name, in capitals or not where the database does not mind.
    pub fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| match self.database {
            Database::Postgres => column.name == name,
            Database::MySql | Database::Sqlite => column.name.eq_ignore_ascii_case(name),
        })
    }

    /// The statement that makes an index of these columns, with a condition where the database has such indexes.
    pub(crate) fn create_index(&self, unique: bool, columns: &[&str], condition: Option<&str>) -> String {
        let list = columns.iter().map(|column| self.database.quoted(column)).collect::<Vec<_>>().join(", ");
        let unique = if unique { "unique " } else { "" };
        let condition = condition.map(|condition| format!(" where {condition}")).unwrap_or_default();
        match self.database {
            Database::Postgres => format!("create {unique}index concurrently on {} ({list}){condition}", self.place),
            Database::MySql | Database::Sqlite => {
                let name = self.database.quoted(&format!("{}_{}_idx", self.name, columns.join("_")));
                format!("create {unique}index {name} on {} ({list}){condition}", self.place)
            }
        }
    }
}

/// Whether a piece of SQL has this name in it.
#[cfg_attr(not(any(feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn mentions(sql: &str, name: &str) -> bool {
    sql.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.eq_ignore_ascii_case(name))
}

/// The words that those of these checks allow which are lists of words of this column.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn words_of(checks: &[String], name: &str) -> Vec<String> {
    allowed_by_all(checks.iter().filter(|check| mentions(check, name)))
}

/// The words that every one of these checks allows, of those that are lists of words.
pub(crate) fn allowed_by_all<'a>(checks: impl Iterator<Item = &'a String>) -> Vec<String> {
    let lists = checks.map(|check| allowed_by(check)).filter(|words| !words.is_empty());
    lists.reduce(|words, more| words.into_iter().filter(|word| more.contains(word)).collect()).unwrap_or_default()
}

/// How many rows are looked at for the words of a column.
pub(crate) const SAMPLE: u32 = 10_000;
/// The most words that a status may have.
pub(crate) const MOST_WORDS: usize = 12;

/// The texts in single quotes of a piece of SQL.
pub(crate) fn literals(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some((_, after)) = rest.split_once('\'') {
        let Some((text, behind)) = after.split_once('\'') else { break };
        found.push(text.to_owned());
        rest = behind;
    }
    found
}

/// The words that a check allows, if it is a list of them.
pub(crate) fn allowed_by(check: &str) -> Vec<String> {
    let lower = check.to_ascii_lowercase();
    let is_list = lower.contains("= any (") || lower.contains(" in (");
    let is_other = [" not ", "<>", " or ", " and ", "~", "like"].iter().any(|sign| lower.contains(sign));
    if is_list && !is_other { literals(check) } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_a_list_says_its_words() {
        let list = "CHECK ((status = ANY (ARRAY['pending'::text, 'sent'::text])))";
        assert_eq!(allowed_by(list), ["pending", "sent"]);
        assert_eq!(allowed_by("CHECK (((status)::text = ANY ((ARRAY['a'::character varying])::text[])))"), ["a"]);
        assert_eq!(allowed_by("CHECK ((status <> ALL (ARRAY['x'::text])))"), [""; 0]);
        assert_eq!(allowed_by("CHECK ((length(status) < 10))"), [""; 0]);
    }
}
