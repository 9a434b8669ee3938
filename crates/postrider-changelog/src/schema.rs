//! What the application's tables look like: declared once, by the names that users see and by those that the database has.

use std::fmt;
use std::sync::Arc;

use crate::{ChangelogError, Value};

/// PostgreSQL's limit for an identifier; MySQL's is 64 characters.
const LONGEST_IDENTIFIER: usize = 63;

/// The tables of one namespace. Cheap to clone; make one and keep it.
///
/// ```
/// use postrider_changelog::{Column, Schema, TableBuilder};
///
/// # fn main() -> Result<(), postrider_changelog::ChangelogError> {
/// let blog = Schema::builder("blog")
///     .table(TableBuilder::new("users").column(Column::text("name")))
///     .table(
///         TableBuilder::new("posts")
///             .physical("blog_posts")
///             .column(Column::text("title"))
///             .column(Column::reference("authorId", "users").physical("author_id"))
///             .column(Column::timestamp("createdAt").physical("created_at").default_now()),
///     )
///     .build()?;
/// assert_eq!(blog.table("posts")?.name(), "posts");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Schema(Arc<Declared>);

pub(crate) struct Declared {
    namespace: String,
    tables: Vec<TableBuilder>,
}

impl Schema {
    /// A schema to be declared. Its namespace is what payloads call it.
    pub fn builder(namespace: impl Into<String>) -> SchemaBuilder {
        SchemaBuilder { namespace: namespace.into(), tables: Vec::new() }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// A table by its user-facing name.
    pub fn table(&self, name: &str) -> Result<Table, ChangelogError> {
        let at = self.0.tables.iter().position(|table| table.name == name);
        at.map(|at| Table { schema: self.0.clone(), at }).ok_or_else(|| {
            invalid(format!("schema {:?} has no table {name:?}; declare it, or check the name", self.0.namespace))
        })
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables: Vec<_> = self.0.tables.iter().map(|table| &table.name).collect();
        f.debug_struct("Schema").field("namespace", &self.0.namespace).field("tables", &tables).finish()
    }
}

/// A schema that is being declared; see [`Schema::builder`].
pub struct SchemaBuilder {
    namespace: String,
    tables: Vec<TableBuilder>,
}

impl SchemaBuilder {
    /// Adds a table.
    pub fn table(mut self, table: TableBuilder) -> Self {
        self.tables.push(table);
        self
    }

    /// Checks all of it.
    pub fn build(mut self) -> Result<Schema, ChangelogError> {
        if self.namespace.is_empty() {
            return Err(invalid("the namespace of a schema is empty; give it a name"));
        }
        let names: Vec<String> = self.tables.iter().map(|table| table.name.clone()).collect();
        unique("table", &format!("schema {:?}", self.namespace), names.iter())?;
        for table in &mut self.tables {
            table.check(&names)?;
        }
        Ok(Schema(Arc::new(Declared { namespace: self.namespace, tables: self.tables })))
    }
}

/// A table that is being declared.
///
/// Every table has an external id (text, or a UUID) with a unique key, by which users know its rows; an internal id, a whole
/// number that the database counts and that references hold; and a version, a whole number that grows with every update.
#[derive(Clone)]
pub struct TableBuilder {
    pub(crate) name: String,
    pub(crate) physical: String,
    pub(crate) database_schema: Option<String>,
    pub(crate) external_id: Column,
    pub(crate) internal_id: String,
    pub(crate) version: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) internal: bool,
}

impl TableBuilder {
    /// A table that the database calls by the same name, with the columns `id`, `_internal_id` and `_version`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            physical: name.clone(),
            name,
            database_schema: None,
            external_id: Column::text("id"),
            internal_id: "_internal_id".into(),
            version: "_version".into(),
            columns: Vec::new(),
            internal: false,
        }
    }

    /// The name that the database has for it.
    pub fn physical(mut self, name: impl Into<String>) -> Self {
        self.physical = name.into();
        self
    }

    /// The schema that it is in, on MySQL the database; otherwise it is where the connection looks.
    pub fn in_schema(mut self, schema: impl Into<String>) -> Self {
        self.database_schema = Some(schema.into());
        self
    }

    /// The column of the external id: [`Column::text`] or [`Column::uuid`].
    pub fn external_id(mut self, column: Column) -> Self {
        self.external_id = column;
        self
    }

    /// The physical name of the internal id.
    pub fn internal_id(mut self, physical: impl Into<String>) -> Self {
        self.internal_id = physical.into();
        self
    }

    /// The physical name of the version.
    pub fn version(mut self, physical: impl Into<String>) -> Self {
        self.version = physical.into();
        self
    }

    /// Adds a column.
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Says that nobody outside is to know of its rows: they are written and not told of.
    pub fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    fn check(&mut self, tables: &[String]) -> Result<(), ChangelogError> {
        let place = format!("table {:?}", self.name);
        let own = [&self.physical, &self.internal_id, &self.version, &self.external_id.physical];
        let columns = self.columns.iter().map(|column| &column.physical);
        for name in own.into_iter().chain(columns).chain(&self.database_schema) {
            identifier(&place, name)?;
        }
        let all = || self.columns.iter().chain([&self.external_id]);
        unique("column", &place, all().map(|column| &column.name))?;
        let physical = all().map(|column| &column.physical).chain([&self.internal_id, &self.version]);
        unique("physical column", &place, physical)?;
        if !matches!(self.external_id.kind, ColumnKind::Text | ColumnKind::Uuid) {
            return Err(invalid(format!("the external id of {place} is {}; use text or uuid", self.external_id.kind)));
        }
        for column in &mut self.columns {
            if let Some(target) = &column.target {
                let at = tables.iter().position(|table| table == target);
                column.kind = ColumnKind::Reference(at.ok_or_else(|| {
                    invalid(format!(
                        "column {:?} of {place} refers to table {target:?}, which the schema does not have",
                        column.name
                    ))
                })?);
            }
            if let Some(DefaultValue::Value(value)) = &column.default {
                column.kind.check(value).map_err(|why| {
                    invalid(format!("the default of column {:?} of {place} cannot be used: {why}", column.name))
                })?;
            }
            if matches!(column.default, Some(DefaultValue::Now)) && column.kind != ColumnKind::Timestamp {
                return Err(invalid(format!(
                    "column {:?} of {place} is {} and cannot be the time by default",
                    column.name, column.kind
                )));
            }
        }
        Ok(())
    }
}

/// A table of a schema, by which units of work know it. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    schema: Arc<Declared>,
    at: usize,
}

impl Table {
    /// Its user-facing name.
    pub fn name(&self) -> &str {
        &self.declared().name
    }

    /// The namespace of its schema.
    pub fn namespace(&self) -> &str {
        &self.schema.namespace
    }

    pub(crate) fn declared(&self) -> &TableBuilder {
        &self.schema.tables[self.at]
    }

    /// The table that a reference points to.
    pub(crate) fn target(&self, at: usize) -> Self {
        Self { schema: self.schema.clone(), at }
    }

    pub(crate) fn column(&self, name: &str) -> Result<&Column, ChangelogError> {
        let declared = self.declared();
        declared.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            invalid(format!("table {:?} has no column {name:?}; declare it, or check the name", declared.name))
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}.{})", self.namespace(), self.name())
    }
}

/// A column.
#[derive(Clone)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) physical: String,
    pub(crate) kind: ColumnKind,
    pub(crate) nullable: bool,
    pub(crate) default: Option<DefaultValue>,
    target: Option<String>,
}

#[derive(Clone)]
pub(crate) enum DefaultValue {
    Value(Value),
    Now,
}

impl Column {
    fn new(name: impl Into<String>, kind: ColumnKind) -> Self {
        let name = name.into();
        Self { physical: name.clone(), name, kind, nullable: false, default: None, target: None }
    }

    /// Text.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Text)
    }

    /// A UUID; text on databases that have no such type.
    pub fn uuid(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Uuid)
    }

    /// A whole number of up to 53 bits, a number in JavaScript.
    pub fn integer(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Integer)
    }

    /// A whole number of 64 bits, a `bigint` in JavaScript.
    pub fn big_integer(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::BigInteger)
    }

    /// A floating-point number of 64 bits.
    pub fn float(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Float)
    }

    /// An exact decimal number, text in payloads.
    pub fn decimal(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Decimal)
    }

    /// True or false.
    pub fn boolean(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Boolean)
    }

    /// A time: `timestamptz` on PostgreSQL, `datetime(3)` in UTC on MySQL, milliseconds since 1970 on SQLite. A `Date` in
    /// JavaScript, so it has milliseconds and no more.
    pub fn timestamp(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Timestamp)
    }

    /// JSON.
    pub fn json(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Json)
    }

    /// Bytes, a `Uint8Array` in JavaScript.
    pub fn binary(name: impl Into<String>) -> Self {
        Self::new(name, ColumnKind::Binary)
    }

    /// The internal id of a row of another table of the schema, by its user-facing name.
    pub fn reference(name: impl Into<String>, table: impl Into<String>) -> Self {
        Self { target: Some(table.into()), ..Self::new(name, ColumnKind::Reference(usize::MAX)) }
    }

    /// The name that the database has for it.
    pub fn physical(mut self, name: impl Into<String>) -> Self {
        self.physical = name.into();
        self
    }

    /// Says that it may be null, and is if nothing is given.
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// What it is if nothing is given. The program writes it, so the table needs no default of its own.
    pub fn default_value(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(DefaultValue::Value(value.into()));
        self
    }

    /// It is the database's time if nothing is given.
    pub fn default_now(mut self) -> Self {
        self.default = Some(DefaultValue::Now);
        self
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    Uuid,
    Integer,
    BigInteger,
    Float,
    Decimal,
    Boolean,
    Timestamp,
    Json,
    Binary,
    /// Of a row of the table at this place in the schema.
    Reference(usize),
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Uuid => "a UUID",
            Self::Integer => "a whole number of up to 53 bits",
            Self::BigInteger => "a whole number of 64 bits",
            Self::Float => "a floating-point number",
            Self::Decimal => "a decimal number, given as text or as a number",
            Self::Boolean => "true or false",
            Self::Timestamp => "a time",
            Self::Json => "JSON",
            Self::Binary => "bytes",
            Self::Reference(_) => "a reference, given as an id or as the text of an external id",
        })
    }
}

/// Anything that an error says of a caller's mistake.
pub(crate) fn invalid(text: impl Into<String>) -> ChangelogError {
    ChangelogError::Invalid(text.into())
}

fn identifier(place: &str, name: &str) -> Result<(), ChangelogError> {
    if name.is_empty() || name.len() > LONGEST_IDENTIFIER || name.contains('\0') {
        return Err(invalid(format!(
            "{place} has the physical name {name:?}; use from 1 to {LONGEST_IDENTIFIER} bytes"
        )));
    }
    Ok(())
}

/// Refuses names that readers in JavaScript refuse, because objects there have them already.
pub(crate) fn check_name(name: &str) -> Result<(), ChangelogError> {
    match name {
        "__proto__" | "constructor" | "prototype" => {
            Err(invalid(format!("{name:?} is a name that JavaScript keeps for itself; use another")))
        }
        _ => Ok(()),
    }
}

fn unique<'a>(what: &str, place: &str, names: impl Iterator<Item = &'a String>) -> Result<(), ChangelogError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(invalid(format!("{place} has a {what} without a name")));
        }
        check_name(name)?;
        if !seen.insert(name) {
            return Err(invalid(format!("{place} has two {what}s {name:?}; give one another name")));
        }
    }
    Ok(())
}
