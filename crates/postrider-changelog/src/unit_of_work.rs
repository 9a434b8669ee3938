//! Recording what is to be done. Everything is checked when it is recorded, so that nothing impossible reaches the database.

use std::collections::BTreeMap;
use std::fmt;

use num_bigint::BigInt;
use uuid::Uuid;

use crate::change::is_placeholder;
use crate::payload::PLACEHOLDER;
use crate::schema::{Column, ColumnKind, DefaultValue, Table, invalid};
use crate::{ChangelogError, Value};

/// The longest id of a unit of work, and the longest external id, in bytes.
const LONGEST_ID: usize = 512;
/// The largest whole number that JavaScript's numbers hold exactly.
const LARGEST_EXACT: i64 = 1 << 53;

/// A row, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id {
    external: String,
    internal: Option<i64>,
    version: Option<i64>,
}

impl Id {
    /// By its external id.
    pub fn external(id: impl Into<String>) -> Self {
        Self { external: id.into(), internal: None, version: None }
    }

    /// The same with the internal id, as it was read.
    pub fn with_internal(self, id: i64) -> Self {
        Self { internal: Some(id), ..self }
    }

    /// The same with the version, as it was read, for what is checked.
    pub fn with_version(self, version: i64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The external id.
    pub fn as_str(&self) -> &str {
        &self.external
    }

    /// The internal id, if it is known.
    pub fn internal(&self) -> Option<i64> {
        self.internal
    }

    /// The version, if it is known.
    pub fn version(&self) -> Option<i64> {
        self.version
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        Self::external(id)
    }
}

impl From<String> for Id {
    fn from(id: String) -> Self {
        Self::external(id)
    }
}

impl From<&Id> for Id {
    fn from(id: &Id) -> Self {
        id.clone()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.external)
    }
}

/// What a column is to be set to.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// A value.
    Value(Value),
    /// The database's time.
    Now,
    /// A row that a reference points to.
    Id(Id),
    /// A row that a reference points to, known by its internal id only.
    Internal(i64),
}

impl Input {
    /// The database's time, the same in the whole unit of work.
    pub fn now() -> Self {
        Self::Now
    }

    /// A row that a reference points to, known by its internal id only.
    pub fn internal(id: i64) -> Self {
        Self::Internal(id)
    }
}

impl<T: Into<Value>> From<T> for Input {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl From<Id> for Input {
    fn from(id: Id) -> Self {
        Self::Id(id)
    }
}

impl From<&Id> for Input {
    fn from(id: &Id) -> Self {
        Self::Id(id.clone())
    }
}

/// What a column is written to, after all checks.
#[derive(Clone)]
pub(crate) enum Written {
    Value(Value),
    Now,
    /// A reference that points nowhere.
    Nowhere,
    ByExternal(String),
    ByInternal(i64),
}

/// One operation, after all checks.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub table: Table,
    pub external_id: String,
    pub verb: Verb,
}

#[derive(Clone)]
pub(crate) enum Verb {
    /// One for each column of the table, in their order.
    Create(Vec<Written>),
    /// Columns by their place in the table.
    Update {
        set: Vec<(usize, Written)>,
        version: Option<i64>,
    },
    Delete {
        version: Option<i64>,
    },
    Check {
        version: i64,
    },
}

/// Operations that are committed together or not at all. It can be committed again if that failed.
///
/// ```
/// use postrider_changelog::{Column, Schema, TableBuilder, UnitOfWork};
///
/// # fn main() -> Result<(), postrider_changelog::ChangelogError> {
/// # let blog = Schema::builder("blog")
/// #     .table(TableBuilder::new("users").column(Column::text("name")))
/// #     .table(TableBuilder::new("posts").column(Column::text("title")).column(Column::reference("authorId", "users")))
/// #     .build()?;
/// let (users, posts) = (blog.table("users")?, blog.table("posts")?);
/// let mut work = UnitOfWork::new();
/// let author = work.create(&users, [("name", "Ada".into())])?;
/// work.create(&posts, [("title", "Notes".into()), ("authorId", (&author).into())])?;
/// assert_eq!(work.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UnitOfWork {
    id: String,
    pub(crate) operations: Vec<Recorded>,
}

impl Default for UnitOfWork {
    fn default() -> Self {
        Self::new()
    }
}

impl UnitOfWork {
    /// An empty one with an id of its own.
    pub fn new() -> Self {
        Self { id: Uuid::now_v7().to_string(), operations: Vec::new() }
    }

    /// An empty one with an id that you choose, its idempotency key: of all with the same id, one is committed.
    pub fn with_id(id: impl Into<String>) -> Result<Self, ChangelogError> {
        let id = id.into();
        check_id("the id of a unit of work", &id)?;
        Ok(Self { id, operations: Vec::new() })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many operations were recorded.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Records a row to create. What is not given is the column's default, or null. The external id may be among the values;
    /// otherwise it is a new UUID.
    pub fn create<'a>(
        &mut self,
        table: &Table,
        values: impl IntoIterator<Item = (&'a str, Input)>,
    ) -> Result<Id, ChangelogError> {
        let declared = table.declared();
        let mut given = named(table, values)?;
        let external_id = match given.remove(declared.external_id.name.as_str()) {
            None => Uuid::now_v7().to_string(),
            Some(Input::Value(Value::Text(id))) => id,
            Some(Input::Id(id)) => id.external,
            Some(_) => {
                return Err(invalid(format!("the external id of a row of {:?} is given as text", declared.name)));
            }
        };
        check_external_id(table, &external_id)?;
        let written = declared.columns.iter().map(|column| match given.remove(column.name.as_str()) {
            Some(input) => written(table, column, input),
            None => absent(table, column),
        });
        let written = written.collect::<Result<_, _>>()?;
        if let Some(name) = given.into_keys().next() {
            table.column(name)?;
        }
        self.record(table, external_id.clone(), Verb::Create(written));
        Ok(Id::external(external_id).with_version(0))
    }

    /// Records columns to change, whatever version the row has.
    pub fn update<'a>(
        &mut self,
        table: &Table,
        id: impl Into<Id>,
        set: impl IntoIterator<Item = (&'a str, Input)>,
    ) -> Result<(), ChangelogError> {
        self.record_update(table, id.into(), set, false)
    }

    /// Records columns to change, if the row still has the version that its id says.
    pub fn update_checked<'a>(
        &mut self,
        table: &Table,
        id: impl Into<Id>,
        set: impl IntoIterator<Item = (&'a str, Input)>,
    ) -> Result<(), ChangelogError> {
        self.record_update(table, id.into(), set, true)
    }

    fn record_update<'a>(
        &mut self,
        table: &Table,
        id: Id,
        set: impl IntoIterator<Item = (&'a str, Input)>,
        checked: bool,
    ) -> Result<(), ChangelogError> {
        check_external_id(table, &id.external)?;
        let version = checked.then(|| expected(table, &id)).transpose()?;
        let mut columns = Vec::new();
        for (name, input) in named(table, set)? {
            let column = table.column(name)?;
            let at = table.declared().columns.iter().position(|other| other.name == name).unwrap_or_default();
            columns.push((at, written(table, column, input)?));
        }
        if columns.is_empty() {
            return Err(invalid(format!("an update of {:?} sets no column; name one, or use check", table.name())));
        }
        self.record(table, id.external, Verb::Update { set: columns, version });
        Ok(())
    }

    /// Records a row to delete, whatever version it has.
    pub fn delete(&mut self, table: &Table, id: impl Into<Id>) -> Result<(), ChangelogError> {
        let id = id.into();
        check_external_id(table, &id.external)?;
        self.record(table, id.external, Verb::Delete { version: None });
        Ok(())
    }

    /// Records a row to delete, if it still has the version that its id says.
    pub fn delete_checked(&mut self, table: &Table, id: impl Into<Id>) -> Result<(), ChangelogError> {
        let id = id.into();
        let version = Some(expected(table, &id)?);
        self.record(table, id.external, Verb::Delete { version });
        Ok(())
    }

    /// Records that a row must still have the version that its id says. Nobody is told of it.
    pub fn check(&mut self, table: &Table, id: impl Into<Id>) -> Result<(), ChangelogError> {
        let id = id.into();
        let version = expected(table, &id)?;
        self.record(table, id.external, Verb::Check { version });
        Ok(())
    }

    fn record(&mut self, table: &Table, external_id: String, verb: Verb) {
        self.operations.push(Recorded { table: table.clone(), external_id, verb });
    }
}

/// Values stay out of logs.
impl fmt::Debug for UnitOfWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnitOfWork").field("id", &self.id).field("operations", &self.operations.len()).finish()
    }
}

/// Values stay out of logs.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(_) => "Value",
            Self::Now => "Now",
            Self::Id(_) => "Id",
            Self::Internal(_) => "Internal",
        })
    }
}

pub(crate) fn check_id(what: &str, id: &str) -> Result<(), ChangelogError> {
    if id.is_empty() || id.len() > LONGEST_ID || id.contains('\0') {
        return Err(invalid(format!(
            "{what} has {} bytes; use from 1 to {LONGEST_ID}, none of which is zero",
            id.len()
        )));
    }
    Ok(())
}

fn check_external_id(table: &Table, id: &str) -> Result<(), ChangelogError> {
    check_id(&format!("the external id of a row of {:?}", table.name()), id)?;
    if table.declared().external_id.kind == ColumnKind::Uuid && Uuid::try_parse(id).is_err() {
        return Err(invalid(format!("the external id of a row of {:?} is to be a UUID and is none", table.name())));
    }
    Ok(())
}

fn expected(table: &Table, id: &Id) -> Result<i64, ChangelogError> {
    check_external_id(table, &id.external)?;
    id.version.ok_or_else(|| {
        invalid(format!(
            "the version of a row of {:?} is to be checked and its id has none; use Id::with_version",
            table.name()
        ))
    })
}

fn named<'a>(
    table: &Table,
    values: impl IntoIterator<Item = (&'a str, Input)>,
) -> Result<BTreeMap<&'a str, Input>, ChangelogError> {
    let mut named = BTreeMap::new();
    for (name, input) in values {
        if named.insert(name, input).is_some() {
            return Err(invalid(format!("column {name:?} of {:?} is given twice", table.name())));
        }
    }
    Ok(named)
}

fn absent(table: &Table, column: &Column) -> Result<Written, ChangelogError> {
    match (&column.default, column.nullable, column.kind) {
        (Some(DefaultValue::Now), ..) => Ok(Written::Now),
        (Some(DefaultValue::Value(value)), ..) => written(table, column, Input::Value(value.clone())),
        (None, true, ColumnKind::Reference(_)) => Ok(Written::Nowhere),
        (None, true, _) => Ok(Written::Value(Value::Null)),
        (None, false, _) => Err(invalid(format!(
            "column {:?} of {:?} is not given, has no default and cannot be null",
            column.name,
            table.name()
        ))),
    }
}

fn written(table: &Table, column: &Column, input: Input) -> Result<Written, ChangelogError> {
    let refused = |why: String| invalid(format!("column {:?} of {:?} {why}", column.name, table.name()));
    let reference = matches!(column.kind, ColumnKind::Reference(_));
    match input {
        Input::Value(Value::Null) if !column.nullable => Err(refused("cannot be null".into())),
        Input::Value(Value::Null) if reference => Ok(Written::Nowhere),
        Input::Value(Value::Null) => Ok(Written::Value(Value::Null)),
        Input::Now if column.kind == ColumnKind::Timestamp => Ok(Written::Now),
        // An external id is told as it is; where only the internal one is known, it is looked up.
        Input::Id(id) if reference => Ok(Written::ByExternal(id.external)),
        Input::Internal(id) if reference => Ok(Written::ByInternal(id)),
        Input::Value(Value::Text(id)) if reference => {
            check_id(&format!("column {:?} of {:?}", column.name, table.name()), &id)?;
            Ok(Written::ByExternal(id))
        }
        Input::Value(value) if !reference => {
            column.kind.check(&value).map_err(refused)?;
            Ok(Written::Value(value))
        }
        _ => Err(refused(format!("is {}", column.kind))),
    }
}

impl ColumnKind {
    /// Whether a column of this kind can hold a value; says why not.
    pub(crate) fn check(self, value: &Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Self::Text, Value::Text(text)) if text.contains('\0') => {
                return Err("has a character of number zero in it, which databases do not store".into());
            }
            (Self::Text, Value::Text(_)) | (Self::Boolean, Value::Bool(_)) | (Self::Binary, Value::Bytes(_)) => true,
            (Self::Uuid, Value::Text(text)) => Uuid::try_parse(text).is_ok(),
            (Self::Integer, _) => whole(value).is_some_and(|number| number.abs() <= LARGEST_EXACT),
            (Self::BigInteger, _) => whole(value).is_some(),
            (Self::Float, Value::Number(_)) | (Self::Timestamp, Value::Date(_)) => true,
            (Self::Decimal, _) => decimal(value).is_some(),
            (Self::Json, value) => return check_json(value),
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("is {self}, and another kind of value was given")) }
    }
}

/// Whether a value can stand in a JSON column, and be told of.
fn check_json(value: &Value) -> Result<(), String> {
    value.to_json().map_err(|error| format!("is JSON, and {error}"))?;
    check_told(value).map_err(|error| format!("cannot be told of: {error}"))
}

/// Whether others can be told of a value, and would take it for what it is.
pub(crate) fn check_told(value: &Value) -> Result<(), String> {
    if is_placeholder(value) {
        return Err(format!(
            "an object with the only key {PLACEHOLDER} would be taken for a reference; use another key"
        ));
    }
    value.check().map_err(|error| error.to_string())
}

/// A whole number of 64 bits.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    match value {
        #[allow(clippy::cast_possible_truncation)] // it was checked to be whole and exact
        Value::Number(number) if number.fract() == 0.0 && number.abs() <= LARGEST_EXACT as f64 => Some(*number as i64),
        Value::BigInt(number) => number.try_into().ok(),
        _ => None,
    }
}

/// The text of a decimal number.
pub(crate) fn decimal(value: &Value) -> Option<String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match value {
        Value::Text(text) => {
            let number = text.strip_prefix('-').unwrap_or(text);
            let (before, after) = number.split_once('.').unwrap_or((number, "0"));
            (digits(before) && digits(after)).then(|| text.clone())
        }
        Value::Number(number) if number.is_finite() => Some(number.to_string()),
        Value::BigInt(number) => Some(BigInt::to_string(number)),
        _ => None,
    }
}
