//! Doing what a unit of work has recorded, and finding out what the tables hold afterwards.
//!
//! What a payload says is read back from the row that was written, because a database may round, cut, pad or change what it
//! was given: in the same statement where the database can, and in one more on MySQL.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use num_bigint::BigInt;

use super::query::Draft;
use super::{Argument, Dialect, Failed, Query, Row};
use crate::change::placeholder;
use crate::schema::{Column, ColumnKind, Table, invalid};
use crate::unit_of_work::{Id, Recorded, UnitOfWork, Verb, Written, decimal, whole};
use crate::{Change, ChangelogError, Date, Operation, Value};

/// How many mutations one transaction has stamps for.
pub(super) const MOST_MUTATIONS: usize = 1 << 16;

/// What a unit of work did.
#[derive(Default)]
pub(super) struct Applied {
    /// What others are told.
    pub changes: Vec<Change>,
    /// The external ids of references that were given by their internal ids.
    pub ref_map: BTreeMap<String, String>,
    /// The rows that were created.
    pub created: Vec<Id>,
}

/// A unit of work on its way into the database.
pub(super) struct Doing<'a, DB: Dialect> {
    pub connection: &'a mut DB::Connection,
    /// The database's time, if it is needed.
    pub now: Date,
    /// Whether others are to be told.
    pub telling: bool,
    /// Whether a table is one that nobody outside is to know of.
    pub hidden: &'a (dyn Fn(&Table) -> bool + Sync),
    pub persistent: bool,
}

/// Whether the database's time is needed.
pub(super) fn needs_time(work: &UnitOfWork) -> bool {
    let now = |written: &Written| matches!(written, Written::Now);
    work.operations.iter().any(|operation| match &operation.verb {
        Verb::Create(columns) => columns.iter().any(now),
        Verb::Update { set, .. } => set.iter().any(|(_, written)| now(written)),
        Verb::Delete { .. } | Verb::Check { .. } => false,
    })
}

/// How many mutations others are told of.
pub(super) fn told(work: &UnitOfWork, hidden: impl Fn(&Table) -> bool) -> usize {
    let told = |operation: &&Recorded| !matches!(operation.verb, Verb::Check { .. }) && !hidden(&operation.table);
    work.operations.iter().filter(told).count()
}

/// Refuses what this database cannot hold, before anything is sent to it.
pub(super) fn check<DB: Dialect>(work: &UnitOfWork) -> Result<(), ChangelogError> {
    let problem = |written: &Written| match written {
        Written::Value(Value::Number(number)) if !DB::NOT_FINITE && !number.is_finite() => {
            Some("a number that is not finite")
        }
        Written::Value(Value::Date(date)) if !DB::TIMES.contains(&date.millis()) => Some("a time that is out of range"),
        _ => None,
    };
    for Recorded { table, verb, .. } in &work.operations {
        let found = match verb {
            Verb::Create(columns) => columns.iter().find_map(problem),
            Verb::Update { set, .. } => set.iter().find_map(|(_, written)| problem(written)),
            Verb::Delete { .. } | Verb::Check { .. } => None,
        };
        if let Some(found) = found {
            return Err(invalid(format!(
                "a row of {:?} has {found}, which {} does not store; use another value, or null",
                table.name(),
                DB::NAME
            )));
        }
    }
    Ok(())
}

/// A reference that was given by its internal id: where it stands, and where it points to.
struct Lookup {
    operation: usize,
    key: String,
    column: String,
    target: Table,
    internal: i64,
}

impl<DB: Dialect> Doing<'_, DB> {
    /// Does all of it, in its order.
    pub async fn run(mut self, work: &UnitOfWork) -> Result<Applied, ChangelogError> {
        let mut applied = Applied::default();
        let mut lookups = Vec::new();
        let mut created = Created::default();
        for (at, operation) in work.operations.iter().enumerate() {
            let tell = self.telling && !(self.hidden)(&operation.table);
            let done = self.operation(at, operation, tell).await?;
            created.note(operation, done.internal);
            if let (true, Some(told)) = (tell, done.told) {
                lookups.extend(told.lookups(at, applied.changes.len(), &operation.table));
                applied.changes.push(told.change(applied.changes.len(), operation));
            }
        }
        applied.ref_map = self.look_up(lookups).await?;
        applied.created = created.rows.into_iter().flatten().collect();
        Ok(applied)
    }

    async fn operation(&mut self, at: usize, operation: &Recorded, tell: bool) -> Result<Done, ChangelogError> {
        match &operation.verb {
            Verb::Create(columns) => {
                let columns: Vec<_> = columns.iter().enumerate().collect();
                let rows = self.write(at, operation, &columns, None, tell).await?;
                let row = rows.ok_or_else(|| {
                    Failed::unreadable(format!(
                        "a row of {:?} was not written; look for a trigger",
                        operation.table.name()
                    ))
                })?;
                self.done(at, operation, &columns, row)
            }
            Verb::Update { set, version } => {
                let columns: Vec<_> = set.iter().map(|(at, written)| (*at, written)).collect();
                let row = self.write(at, operation, &columns, Some(*version), tell).await?;
                let row = row.ok_or_else(|| gone(operation, *version))?;
                self.done(at, operation, &columns, row)
            }
            Verb::Delete { version } => {
                let mut draft = Draft::default();
                let sql = format!(
                    "delete from {} where {}",
                    name::<DB>(&operation.table),
                    found::<DB>(&mut draft, operation, *version)
                );
                let query = draft.finish(sql, self.persistent);
                match self.execute(&query).await? {
                    0 => Err(gone(operation, *version)),
                    _ => Ok(Done { internal: None, told: Some(Told::default()) }),
                }
            }
            Verb::Check { version } => {
                let mut draft = Draft::default();
                let declared = operation.table.declared();
                let sql = format!(
                    "select {} from {} where {}{}",
                    DB::read(declared.external_id.kind, &DB::quoted(&declared.external_id.physical)),
                    name::<DB>(&operation.table),
                    found::<DB>(&mut draft, operation, Some(*version)),
                    DB::LOCK
                );
                match self.fetch(&draft.finish(sql, self.persistent)).await?.is_empty() {
                    true => Err(gone(operation, Some(*version))),
                    false => Ok(Done { internal: None, told: None }),
                }
            }
        }
    }

    /// Inserts a row, or updates one of this version, and answers it as it is now: internal id and the columns that were
    /// written, as far as they are needed. `None` if there was no such row.
    async fn write(
        &mut self,
        at: usize,
        operation: &Recorded,
        columns: &[(usize, &Written)],
        update: Option<Option<i64>>,
        tell: bool,
    ) -> Result<Option<Row>, ChangelogError> {
        let declared = operation.table.declared();
        let mut draft = Draft::default();
        let own = DB::quoted(&declared.version);
        let mut names = Vec::new();
        let mut values = Vec::new();
        if update.is_none() {
            let id = draft.bind::<DB>(Argument::text(&operation.external_id));
            names.push(DB::quoted(&declared.external_id.physical));
            values.push(DB::written(declared.external_id.kind, &id));
            names.push(own.clone());
            values.push("0".into());
        }
        for (at, written) in columns {
            let column = &declared.columns[*at];
            names.push(DB::quoted(&column.physical));
            values.push(self.value(&mut draft, &operation.table, column, written));
        }
        let table = name::<DB>(&operation.table);
        let mut sql = match update {
            None => format!("insert into {table} ({}) values ({})", names.join(", "), values.join(", ")),
            Some(version) => {
                let set: Vec<_> = names.iter().zip(&values).map(|(name, value)| format!("{name} = {value}")).collect();
                let found = found::<DB>(&mut draft, operation, version);
                format!("update {table} set {}, {own} = {own} + 1 where {found}", set.join(", "))
            }
        };
        let read = read::<DB>(&operation.table, columns);
        let failed = |failed| not_written(at, operation, columns, failed);
        if DB::RETURNING {
            sql = format!("{sql} returning {read}");
            let query = draft.finish(sql, self.persistent);
            return Ok(DB::fetch(self.connection, &query).await.map_err(failed)?.pop());
        }
        let query = draft.finish(sql, self.persistent);
        let (written, counted) = DB::write(self.connection, &query).await.map_err(failed)?;
        if written == 0 {
            return Ok(None);
        }
        let by_external = columns.iter().any(|(_, written)| matches!(written, Written::ByExternal(_)));
        if !tell && !by_external {
            return Ok(Some(vec![counted.map(|number| number.to_string())]));
        }
        let mut draft = Draft::default();
        let sql = format!("select {read} from {table} where {}", found::<DB>(&mut draft, operation, None));
        Ok(self.fetch(&draft.finish(sql, self.persistent)).await?.pop())
    }

    /// What a column is set to.
    fn value(&self, draft: &mut Draft, table: &Table, column: &Column, written: &Written) -> String {
        let argument = match written {
            Written::Value(value) => argument(column.kind, value),
            Written::Now => Argument::from(self.now.millis()),
            Written::Nowhere => Argument::Whole(None),
            Written::ByInternal(id) => Argument::from(*id),
            Written::ByExternal(id) => {
                let ColumnKind::Reference(at) = column.kind else { return "null".into() };
                let target = table.target(at);
                let found = identified::<DB>(draft, &target, id);
                let internal = DB::quoted(&target.declared().internal_id);
                return DB::subquery(&format!("select {internal} from {} where {found}", name::<DB>(&target)));
            }
        };
        let placeholder = draft.bind::<DB>(argument);
        DB::written(column.kind, &placeholder)
    }

    /// Reads what was written.
    fn done(
        &self,
        at: usize,
        operation: &Recorded,
        columns: &[(usize, &Written)],
        row: Row,
    ) -> Result<Done, ChangelogError> {
        let mut cells = row.into_iter();
        let internal = cells.next().flatten().and_then(|text| text.parse().ok());
        let mut told = Told::default();
        // Where nothing was read back there is nobody to tell.
        for ((place, written), cell) in columns.iter().zip(cells) {
            let column = &operation.table.declared().columns[*place];
            let value = match (written, column.kind) {
                // MySQL without its strict mode makes 0 of null.
                (Written::ByExternal(_), ColumnKind::Reference(target))
                    if cell.as_deref().is_none_or(|id| id == "0") =>
                {
                    return Err(unresolved(at, column, &operation.table.target(target)));
                }
                (Written::ByExternal(id), _) => Reading::Value(Value::Text(id.clone())),
                (Written::ByInternal(id), ColumnKind::Reference(target)) => Reading::Internal(target, *id),
                (Written::Nowhere, _) => Reading::Value(Value::Null),
                _ => Reading::Value(parse(column, cell)?),
            };
            told.0.push((column.name.clone(), value));
        }
        Ok(Done { internal, told: Some(told) })
    }

    /// The external ids of references, in one query for each table that is referred to.
    async fn look_up(&mut self, lookups: Vec<Lookup>) -> Result<BTreeMap<String, String>, ChangelogError> {
        let mut tables: BTreeMap<(String, String), (Table, BTreeSet<i64>)> = BTreeMap::new();
        for Lookup { target, internal, .. } in &lookups {
            let place = (target.namespace().to_owned(), target.name().to_owned());
            tables.entry(place).or_insert_with(|| (target.clone(), BTreeSet::new())).1.insert(*internal);
        }
        let mut found = BTreeMap::new();
        for (place, (table, ids)) in tables {
            let declared = table.declared();
            let internal = DB::quoted(&declared.internal_id);
            let mut draft = Draft::default();
            let list = draft.bind::<DB>(Argument::text(serde_json::Value::from_iter(ids).to_string()));
            let sql = format!(
                "select {}, {} from {} where {}",
                DB::read(ColumnKind::BigInteger, &internal),
                DB::read(declared.external_id.kind, &DB::quoted(&declared.external_id.physical)),
                name::<DB>(&table),
                DB::one_of(&internal, &list)
            );
            for row in self.fetch(&draft.finish(sql, self.persistent)).await? {
                if let [Some(internal), Some(external)] = &row[..] {
                    let internal: i64 =
                        internal.parse().map_err(|_| Failed::unreadable("an internal id is no number"))?;
                    found.insert((place.clone(), internal), external.clone());
                }
            }
        }
        let mut ref_map = BTreeMap::new();
        for Lookup { operation, key, column, target, internal } in lookups {
            let place = (target.namespace().to_owned(), target.name().to_owned());
            let external = found.get(&(place, internal)).ok_or_else(|| ChangelogError::Unresolved {
                operation,
                column,
                table: target.name().to_owned(),
            })?;
            ref_map.insert(key, external.clone());
        }
        Ok(ref_map)
    }

    async fn fetch(&mut self, query: &Query) -> Result<Vec<Row>, ChangelogError> {
        DB::fetch(self.connection, query).await.map_err(Failed::of_application)
    }

    async fn execute(&mut self, query: &Query) -> Result<u64, ChangelogError> {
        DB::execute(self.connection, query).await.map_err(Failed::of_application)
    }
}

/// The rows that a unit of work has created, as they are after its last operation.
#[derive(Default)]
struct Created<'a> {
    rows: Vec<Option<Id>>,
    places: HashMap<(&'a str, &'a str, &'a str), usize>,
}

impl<'a> Created<'a> {
    fn note(&mut self, operation: &'a Recorded, internal: Option<i64>) {
        let place = (operation.table.namespace(), operation.table.name(), operation.external_id.as_str());
        match (&operation.verb, self.places.get(&place)) {
            (Verb::Create(_), _) => {
                let id = Id::external(&operation.external_id).with_version(0);
                self.places.insert(place, self.rows.len());
                self.rows.push(Some(internal.into_iter().fold(id, Id::with_internal)));
            }
            (Verb::Update { .. }, Some(at)) => {
                let row = self.rows[*at].take();
                self.rows[*at] = row.map(|id| {
                    let version = id.version().unwrap_or_default() + 1;
                    id.with_version(version)
                });
            }
            (Verb::Delete { .. }, Some(at)) => self.rows[*at] = None,
            _ => {}
        }
    }
}

/// What came of an operation.
struct Done {
    internal: Option<i64>,
    told: Option<Told>,
}

/// The columns that were written, as the table holds them.
#[derive(Default)]
struct Told(Vec<(String, Reading)>);

enum Reading {
    Value(Value),
    /// A reference to a row of a table by its internal id, which nobody outside is to see.
    Internal(usize, i64),
}

impl Told {
    fn lookups(&self, operation: usize, index: usize, table: &Table) -> Vec<Lookup> {
        let internal = self.0.iter().filter_map(|(column, reading)| match reading {
            Reading::Value(_) => None,
            Reading::Internal(target, internal) => Some((column, *target, *internal)),
        });
        let lookup = |(column, target, internal): (&String, usize, i64)| Lookup {
            operation,
            key: format!("{index}.{column}"),
            column: column.clone(),
            target: table.target(target),
            internal,
        };
        internal.map(lookup).collect()
    }

    fn change(self, index: usize, Recorded { table, external_id, verb }: &Recorded) -> Change {
        let values = self.0.into_iter().map(|(column, reading)| match reading {
            Reading::Value(value) => (column, value),
            Reading::Internal(..) => {
                let key = format!("{index}.{column}");
                (column, placeholder(key))
            }
        });
        let values = values.collect();
        let operation = match verb {
            Verb::Create(_) | Verb::Check { .. } => Operation::Create { values },
            Verb::Update { version, .. } => Operation::Update { set: values, check_version: *version },
            Verb::Delete { version } => Operation::Delete { check_version: *version },
        };
        Change {
            namespace: table.namespace().to_owned(),
            table: table.name().to_owned(),
            external_id: external_id.clone(),
            operation,
        }
    }
}

fn gone(operation: &Recorded, version: Option<i64>) -> ChangelogError {
    let (table, external_id) = (operation.table.name().to_owned(), operation.external_id.clone());
    match version {
        Some(version) => ChangelogError::VersionConflict { table, external_id, version },
        None => ChangelogError::Missing { table, external_id },
    }
}

fn unresolved(operation: usize, column: &Column, target: &Table) -> ChangelogError {
    ChangelogError::Unresolved { operation, column: column.name.clone(), table: target.name().to_owned() }
}

/// Why a row was not written: a reference by an external id that nobody has is null, which its column may refuse.
fn not_written(at: usize, operation: &Recorded, columns: &[(usize, &Written)], failed: Failed) -> ChangelogError {
    for (place, written) in columns {
        let column = &operation.table.declared().columns[*place];
        if let (Written::ByExternal(_), ColumnKind::Reference(target)) = (written, column.kind)
            && failed.is_null_in(&column.physical)
        {
            return unresolved(at, column, &operation.table.target(target));
        }
    }
    failed.of_application()
}

/// A table as the database calls it.
fn name<DB: Dialect>(table: &Table) -> String {
    let declared = table.declared();
    let schema = declared.database_schema.iter().map(|schema| format!("{}.", DB::quoted(schema)));
    schema.chain([DB::quoted(&declared.physical)]).collect()
}

/// A condition: the row of an external id.
fn identified<DB: Dialect>(draft: &mut Draft, table: &Table, id: &str) -> String {
    let column = &table.declared().external_id;
    let quoted = DB::quoted(&column.physical);
    DB::identified(column.kind, &quoted, || draft.bind::<DB>(Argument::text(id)))
}

/// A condition: the row of an operation, of a version if it is checked.
fn found<DB: Dialect>(draft: &mut Draft, operation: &Recorded, version: Option<i64>) -> String {
    let mut condition = identified::<DB>(draft, &operation.table, &operation.external_id);
    if let Some(version) = version {
        let own = DB::quoted(&operation.table.declared().version);
        let placeholder = draft.bind::<DB>(version.into());
        condition = format!("{condition} and {own} = {}", DB::written(ColumnKind::BigInteger, &placeholder));
    }
    condition
}

/// What reads a row back: the internal id, then the columns that were written.
fn read<DB: Dialect>(table: &Table, columns: &[(usize, &Written)]) -> String {
    let declared = table.declared();
    let internal = DB::read(ColumnKind::BigInteger, &DB::quoted(&declared.internal_id));
    let column = |at: &usize| DB::read(declared.columns[*at].kind, &DB::quoted(&declared.columns[*at].physical));
    let columns = columns.iter().map(|(at, _)| column(at));
    std::iter::once(internal).chain(columns).collect::<Vec<_>>().join(", ")
}

/// A value as a parameter. It was checked when it was recorded.
fn argument(kind: ColumnKind, value: &Value) -> Argument {
    match kind {
        ColumnKind::Text | ColumnKind::Uuid => Argument::Text(match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }),
        ColumnKind::Decimal => Argument::Text(decimal(value)),
        ColumnKind::Integer | ColumnKind::BigInteger | ColumnKind::Reference(_) => Argument::Whole(whole(value)),
        ColumnKind::Float => Argument::Float(match value {
            Value::Number(number) => Some(*number),
            _ => None,
        }),
        ColumnKind::Boolean => Argument::Boolean(match value {
            Value::Bool(yes) => Some(*yes),
            _ => None,
        }),
        ColumnKind::Timestamp => Argument::Whole(match value {
            Value::Date(date) => Some(date.millis()),
            _ => None,
        }),
        ColumnKind::Json => Argument::Text(match value {
            Value::Null => None,
            value => value.to_json().ok().map(|json| json.to_string()),
        }),
        ColumnKind::Binary => Argument::Bytes(match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }),
    }
}

/// A column's text as a value.
fn parse(column: &Column, cell: Option<String>) -> Result<Value, Failed> {
    let Some(text) = cell else { return Ok(Value::Null) };
    let unreadable = || Failed::unreadable(format!("column {:?} does not hold {}", column.name, column.kind));
    Ok(match column.kind {
        ColumnKind::Text | ColumnKind::Uuid | ColumnKind::Decimal => Value::Text(text),
        ColumnKind::Integer | ColumnKind::Float => Value::Number(match &*text {
            "Inf" | "Infinity" => f64::INFINITY,
            "-Inf" | "-Infinity" => f64::NEG_INFINITY,
            text => text.parse().map_err(|_| unreadable())?,
        }),
        ColumnKind::BigInteger | ColumnKind::Reference(_) => {
            Value::BigInt(text.parse::<BigInt>().map_err(|_| unreadable())?)
        }
        ColumnKind::Boolean => Value::Bool(text != "0"),
        ColumnKind::Timestamp => {
            let millis = text.parse().ok().and_then(Date::from_millis);
            Value::Date(millis.ok_or_else(unreadable)?)
        }
        // Plain JSON is superjson without a meta part; its numbers are read exactly.
        ColumnKind::Json => crate::decode(&format!("{{\"json\":{text}}}")).map_err(|_| unreadable())?,
        ColumnKind::Binary => Value::Bytes(bytes(&text).ok_or_else(unreadable)?),
    })
}

/// Bytes from their hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(pair).collect()
}
