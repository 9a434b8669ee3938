//! Whether claims find their rows without reading or sorting others.
//!
//! A claim takes a few rows in the order of a time. An index serves it if the rows are side by side there and in that order: it
//! has the rows of the right words only, or begins with the status, and goes on with the time. With two words for rows that wait,
//! an index that begins with the status has them in two runs, and all of them would be sorted; MySQL is asked for one word at a time.

use postrider_core::operate::Finding;

use super::{INDEXES, note, or_fine};
use crate::layout::table::{Database, Table, TableIndex, literals, mentions};
use crate::layout::{ClaimBy, Layout, Words};

/// From how many rows on a missing index is felt at once.
const LARGE: i64 = 10_000;

pub(super) fn look(layout: &Layout, table: &Table) -> Vec<Finding> {
    // The doctor looks at ours one by one.
    if layout.indexed_like_ours {
        return vec![Finding::fine(INDEXES, "the layout says that the table has Postrider's own indexes")];
    }
    let mut findings: Vec<Finding> = match (layout.claim, &layout.status, &layout.words) {
        (ClaimBy::Lease | ClaimBy::LockTimeout, Some(status), Some(words)) => {
            let leased = Leased { layout, table, status: &status.name, words };
            leased.due().into_iter().chain(leased.locked()).collect()
        }
        _ => held(layout, table).into_iter().collect(),
    };
    findings.extend(not_by_id(layout, table));
    let mut findings = or_fine(findings, INDEXES, "claims find their rows by an index");
    findings.extend(finished(layout, table));
    findings
}

/// MySQL is told to go by the primary key, because it would lock what it reads on the way to a row.
fn not_by_id(layout: &Layout, table: &Table) -> Option<Finding> {
    let id = table.column(&layout.id.name).filter(|id| table.database == Database::MySql && !id.is_key)?;
    let (name, place) = (&id.name, &table.place);
    let other = table.columns.iter().find(|column| column.is_key).map(|key| table.database.quoted(&key.name));
    let other = other.map(|key| format!(" add unique key ({key}),")).unwrap_or_default();
    let quoted = table.database.quoted(name);
    Some(Finding::warning(
        INDEXES,
        format!(
            "the column {name:?}, which the layout has for id, is not the primary key: every claim and settle reads all rows"
        ),
        format!("run: alter table {place} drop primary key,{other} add primary key ({quoted})"),
    ))
}

fn slow(table: &Table, what: &str, columns: &[&str], condition: Option<&str>) -> Finding {
    let size = if table.rows >= LARGE { format!(", of which there are about {}", table.rows) } else { String::new() };
    Finding::warning(
        INDEXES,
        format!("no index leads to {what} in their order: claims get slower with every row{size}"),
        format!("run: {}", table.create_index(false, columns, condition)),
    )
}

/// A table whose rows say that they are claimed.
struct Leased<'a> {
    layout: &'a Layout,
    table: &'a Table,
    status: &'a str,
    words: &'a Words,
}

impl Leased<'_> {
    fn due(&self) -> Option<Finding> {
        let due = &self.layout.next_attempt_at.as_ref()?.name;
        let waiting: Vec<&String> = std::iter::once(&self.words.pending).chain(&self.words.failed).collect();
        let serves = |index: &TableIndex| self.leads_to(index, due, &waiting);
        (!self.table.indexes.iter().any(serves)).then(|| self.missing("the rows that are due", due, &waiting))
    }

    fn locked(&self) -> Option<Finding> {
        let lock = &self.layout.locked_until.as_ref().or(self.layout.locked_at.as_ref())?.name;
        let taken = [&self.words.processing];
        // Rows under way are few, so elsewhere it is enough to have them side by side. MySQL would lock all that it sorts.
        let serves = |index: &TableIndex| {
            self.leads_to(index, lock, &taken)
                || (self.table.database != Database::MySql && self.has_side_by_side(index, &self.words.processing))
        };
        (!self.table.indexes.iter().any(serves)).then(|| self.missing("the rows that are locked", lock, &taken))
    }

    fn missing(&self, what: &str, time: &str, words: &[&String]) -> Finding {
        if self.table.database == Database::MySql {
            return slow(self.table, what, &[self.status, time], None);
        }
        let status = self.table.database.quoted(self.status);
        let condition = match words {
            [word] => format!("{status} = '{word}'"),
            words => {
                let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
                format!("{status} in ({list})")
            }
        };
        slow(self.table, what, &[time], Some(&condition))
    }

    /// Whether an index has the rows of these words side by side, in the order of a time.
    fn leads_to(&self, index: &TableIndex, time: &str, words: &[&String]) -> bool {
        let mut columns = index.columns.iter();
        let first = columns.next();
        let (by_status, then) = match first {
            Some(first) if is(first, self.status) => (true, columns.next()),
            first => (false, first),
        };
        let in_order = then.is_some_and(|column| is(column, time));
        let together = match &index.predicate {
            Some(predicate) => self.is_of(predicate, words) && (!by_status || words.len() == 1),
            None => by_status && (words.len() == 1 || self.table.database == Database::MySql),
        };
        in_order && together
    }

    /// Whether an index has the rows of a word side by side, among few others.
    fn has_side_by_side(&self, index: &TableIndex, word: &String) -> bool {
        match &index.predicate {
            Some(predicate) => self.is_of(predicate, &[word]),
            None => index.columns.first().is_some_and(|first| is(first, self.status)),
        }
    }

    /// Whether a condition lets in all rows of these words, no delivered ones, and asks for nothing else.
    fn is_of(&self, predicate: &str, words: &[&String]) -> bool {
        let lower = predicate.to_ascii_lowercase();
        let known = literals(predicate);
        let plain = ![" and ", " or ", "<>", "!=", " not ", " null"].iter().any(|sign| lower.contains(sign));
        // SQLite takes an index only if the statement has its very condition.
        let fits = self.table.database != Database::Sqlite || known.len() == words.len();
        plain
            && fits
            && mentions(predicate, self.status)
            && words.iter().all(|word| known.contains(word))
            && !known.contains(&self.words.delivered)
    }
}

/// Whether an index's column is this one; an expression is in parentheses.
fn is(column: &str, name: &str) -> bool {
    column.eq_ignore_ascii_case(name)
}

/// A table whose rows are locked while they are published. What waits is taken in the order in which it was written.
fn held(layout: &Layout, table: &Table) -> Option<Finding> {
    let order = &layout.created_at.as_ref().or(layout.seq.as_ref()).unwrap_or(&layout.id).name;
    let delivered = layout.delivered_at.as_ref().map(|at| &at.name);
    let serves = |index: &TableIndex| {
        let in_order = index.columns.first().is_some_and(|first| is(first, order));
        let plain = |text: &str| text.replace(['(', ')', '"', ' '], "").to_lowercase();
        in_order
            && match (delivered, &index.predicate) {
                (Some(at), Some(predicate)) => plain(predicate) == plain(&format!("{at} is null")),
                (None, predicate) => predicate.is_none(),
                (Some(_), None) => false,
            }
    };
    (!table.indexes.iter().any(serves)).then(|| {
        let condition = delivered.map(|at| format!("{} is null", table.database.quoted(at)));
        slow(table, "the rows that wait", &[order], condition.as_deref())
    })
}

/// What is not on the way of a message, and reads every finished row without an index.
fn finished(layout: &Layout, table: &Table) -> Option<Finding> {
    if !layout.keeps_delivered() {
        return None;
    }
    let (Some(status), Some(updated)) = (&layout.status, &layout.updated_at) else {
        let what = "purge, dead and status read every finished row: without an updated_at no index has them in order";
        return Some(note(INDEXES, what, "let purge run seldom, and keep finished rows for as short as you can"));
    };
    let ordered = |index: &TableIndex| {
        let columns: Vec<&str> = index.columns.iter().map(String::as_str).collect();
        match columns[..] {
            [first, second, ..] if is(first, &status.name) => is(second, &updated.name),
            [first, ..] => index.predicate.is_some() && is(first, &updated.name),
            [] => false,
        }
    };
    (!table.indexes.iter().any(ordered)).then(|| {
        let create = table.create_index(false, &[&status.name, &updated.name], None);
        let what =
            "purge, dead and status read every finished row: no index has them in the order of their last change";
        note(INDEXES, what, format!("where that takes too long, run: {create}"))
    })
}
