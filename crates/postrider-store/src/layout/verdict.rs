//! Whether a table is what its layout says, and can be worked with: compared with the database's catalog.
//!
//! What is missing or of a type that no statement can use is a problem, and a relay does not start with it. What only costs time,
//! or only keeps Postrider from writing rows itself, is a warning. Each database reads its own catalog; what follows from it is
//! decided here for all of them.

mod enqueue;
mod indexes;
mod privileges;
mod types;
mod words;

use std::future::Future;

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::{StoreError, StoreErrorKind};

use super::guess::{self, Guess};
use super::table::{Database, Kind, Table, TableColumn};
use super::{Column, Layout};

const TABLE: &str = "layout-table";
const COLUMNS: &str = "layout-columns";
const TYPES: &str = "layout-types";
const WORDS: &str = "layout-words";
const ENQUEUE: &str = "layout-enqueue";
pub(crate) const PRIVILEGES: &str = "layout-privileges";
pub(crate) const ROW_SECURITY: &str = "layout-row-security";
const INDEXES: &str = "layout-indexes";
const AUDIT: &str = "layout-audit";

/// What reads a database's catalog.
pub(crate) trait Catalog: Sync {
    /// What the table should be.
    fn expected(&self) -> &Layout;

    /// The table's name in SQL.
    fn place(&self) -> String;

    /// The table that the layout's names say, whatever it looks like; none if there is none.
    fn read(&self) -> impl Future<Output = Result<Option<Table>, StoreError>> + Send;

    /// The same for whoever does not ask what we have beside it: what is there may be of another outbox.
    fn glance(&self) -> impl Future<Output = Result<Option<Table>, StoreError>> + Send;

    /// The words that a column holds, by a sample; none if there are too many to be words, or it may not be read.
    fn look(&self, table: &Table, column: &TableColumn)
    -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;
}

/// Compares a table with its layout, and says what is missing, wrong or slow.
pub(crate) async fn check(catalog: &impl Catalog) -> Result<Vec<Finding>, StoreError> {
    let layout = catalog.expected();
    let Some(table) = catalog.read().await? else { return Ok(vec![no_table(catalog)]) };
    let mut findings = compare(layout, &table);
    // A status that takes any text tells its words by the rows that are there.
    let status = layout.status.as_ref().and_then(|status| table.column(&status.name));
    if let Some(status) = status.filter(|status| status.words.is_empty()) {
        let mut known = catalog.look(&table, status).await?;
        known.extend(status.usual_word().filter(|word| !known.contains(word)));
        findings.extend(words::left_out(layout, status, &known));
    }
    Ok(findings)
}

/// Refuses a table that its layout cannot be worked with on. What the role may do is not looked at: operators may do less than
/// a relay.
pub(crate) async fn refuse_others(catalog: &impl Catalog) -> Result<(), StoreError> {
    let layout = catalog.expected();
    let findings = match catalog.read().await? {
        Some(table) => compare(layout, &table),
        None => vec![no_table(catalog)],
    };
    refuse(findings.iter().find(|finding| is_of_table(finding)))
}

/// Refuses a table to which columns would be added and that could not be worked with all the same.
pub(crate) async fn refuse_additions(catalog: &impl Catalog) -> Result<(), StoreError> {
    let layout = catalog.expected();
    let Some(table) = catalog.glance().await? else { return Ok(()) };
    let findings = match &table.unfit {
        Some(_) => compare(layout, &table),
        None => types::look(layout, &table),
    };
    refuse(findings.iter().find(|finding| is_problem(finding)))
}

fn is_problem(finding: &Finding) -> bool {
    finding.severity == Severity::Problem
}

/// Whether something is wrong with the table itself, whoever looks.
fn is_of_table(finding: &Finding) -> bool {
    is_problem(finding) && ![PRIVILEGES, AUDIT].contains(&finding.name)
}

/// What is wrong, and what to do.
fn told(Finding { what, fix, .. }: &Finding) -> String {
    format!("{what}; {}", fix.as_deref().unwrap_or("see postrider layout check"))
}

fn refuse(problem: Option<&Finding>) -> Result<(), StoreError> {
    match problem {
        None => Ok(()),
        Some(problem) => Err(StoreError::new(StoreErrorKind::Schema, told(problem))),
    }
}

/// Proposes a layout for a table; none if there is no such table.
pub(crate) async fn propose(catalog: &impl Catalog) -> Result<Option<Guess>, StoreError> {
    let Some(table) = catalog.glance().await? else { return Ok(None) };
    let is_free = |column: &&TableColumn| column.kind == Kind::Text && column.words.is_empty();
    let free = table.columns.iter().filter(is_free).find(|column| guess::is_status(column));
    let sampled = match free {
        Some(status) if may_look(&table, status) => Some(catalog.look(&table, status).await?),
        Some(_) => None,
        None => Some(Vec::new()),
    };
    let mut guess = guess::guess(&table, &catalog.expected().names, sampled.as_deref());
    // Nothing is proposed that a relay would not start with.
    if guess.wrong.is_empty() {
        let findings = compare(&guess.layout, &table);
        guess.wrong.extend(findings.iter().filter(|finding| is_of_table(finding)).map(told));
    }
    Ok(Some(guess))
}

fn may_look(table: &Table, column: &TableColumn) -> bool {
    column.selects && table.uses_schema
}

fn no_table(catalog: &impl Catalog) -> Finding {
    let fix = "name the right schema and table, or run postrider migrate if the layout is one that is known";
    Finding::problem(TABLE, format!("there is no table {}", catalog.place()), fix)
}

/// All that the catalog says of a table.
fn compare(layout: &Layout, table: &Table) -> Vec<Finding> {
    if let Some(unfit) = &table.unfit {
        return vec![Finding::problem(TABLE, format!("{} is {}", table.place, unfit.what), unfit.fix.clone())];
    }
    let mut findings = vec![Finding::fine(TABLE, format!("the table {} is there", table.place))];
    findings.extend(table.unlogged.then(|| unlogged(TABLE, &table.place)));
    findings.extend(or_fine(missing(layout, table), COLUMNS, "every column of the layout is there"));
    findings.extend(or_fine(types::look(layout, table), TYPES, "every column has a type that can be used"));
    findings.extend(words::look(layout, table));
    findings.extend(enqueue::look(layout, table));
    findings.extend(privileges::look(layout, table));
    findings.extend(indexes::look(layout, table));
    findings.push(audit(table));
    findings
}

/// A table that PostgreSQL keeps out of its log.
pub(crate) fn unlogged(name: &'static str, place: &str) -> Finding {
    Finding::warning(
        name,
        format!("the table {place} is unlogged: a crash of the server empties it, and standbys do not have its rows"),
        format!("run: alter table {place} set logged"),
    )
}

fn audit(table: &Table) -> Finding {
    match (table.audited, table.database) {
        (true, _) => Finding::fine(AUDIT, "what operators do is noted"),
        (false, Database::Postgres) => Finding::warning(
            AUDIT,
            "the table for what operators do is missing, which dead replay, dead discard and purge write to",
            "run postrider migrate; it leaves the table of messages alone",
        ),
        (false, _) => Finding::problem(
            AUDIT,
            "a table that a relay needs beside the one of messages is missing",
            "run postrider migrate; it leaves the table of messages alone",
        ),
    }
}

fn or_fine(findings: Vec<Finding>, name: &'static str, what: &str) -> Vec<Finding> {
    if findings.is_empty() { vec![Finding::fine(name, what)] } else { findings }
}

/// Something to know that is not wrong, and what could be done about it.
fn note(name: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { fix: Some(fix.into()), ..Finding::fine(name, what) }
}

/// The columns of a layout with what they are for, those that travel as headers too.
fn all(layout: &Layout) -> Vec<(String, &Column)> {
    let own = layout.columns().into_iter().map(|(what, column)| (what.to_owned(), column));
    let fields = layout.fields.iter().map(|(header, column)| (format!("the header {header:?}"), column));
    own.chain(fields).collect()
}

fn missing(layout: &Layout, table: &Table) -> Vec<Finding> {
    let lacking = all(layout).into_iter().filter(|(_, column)| table.column(&column.name).is_none());
    let finding = |(what, column): (String, &Column)| {
        let alike = table.columns.iter().find(|there| there.name.eq_ignore_ascii_case(&column.name));
        let fix = match alike {
            Some(there) => format!("write it as the table has it: {:?}", there.name),
            None => "name the right column, or leave it out; postrider layout guess proposes a layout for the table"
                .to_owned(),
        };
        let what =
            format!("the table {} has no column {:?}, which the layout has for {what}", table.place, column.name);
        Finding::problem(COLUMNS, what, fix)
    };
    let mut findings: Vec<Finding> = lacking.map(finding).collect();
    findings.extend(not_unique(layout, table));
    findings.extend(no_id(layout, table));
    findings
}

/// A row without an id can be neither told from others nor settled, so it is not claimed. SQLite lets a key be null whatever it says of
/// itself, and finds rows by numbers of its own: there such a row is given up when it is met.
fn no_id(layout: &Layout, table: &Table) -> Option<Finding> {
    let id = table.column(&layout.id.name).filter(|id| !id.not_null && table.database != Database::Sqlite)?;
    let what = format!(
        "the column {:?}, which the layout has for id, may be null: a row without an id is never claimed",
        id.name
    );
    Some(Finding::problem(COLUMNS, what, words::required(table, id)))
}

/// A row is settled by its id, so two of one id would be settled as one.
fn not_unique(layout: &Layout, table: &Table) -> Option<Finding> {
    let id = table.column(&layout.id.name)?;
    let unique = |columns: &[String]| matches!(columns, [only] if *only == id.name);
    let is_unique = id.is_key
        || table.indexes.iter().any(|index| index.unique && index.predicate.is_none() && unique(&index.columns));
    (!is_unique).then(|| {
        Finding::problem(
            COLUMNS,
            format!("nothing keeps the column {:?} unique, which the layout has for id: two rows of one id would be settled as one", id.name),
            format!("name another column, or run: {}", table.create_index(true, &[&id.name], None)),
        )
    })
}
