//! Whether the layout and the table mean the same states, and no row is left out.

use postrider_core::operate::Finding;

use super::{WORDS, all, note};
use crate::layout::guess::{is_mark, is_sent_at, is_status, may_be_mark};
use crate::layout::table::{Database, Kind, Table, TableColumn};
use crate::layout::{ClaimBy, Layout, Words};

pub(super) fn look(layout: &Layout, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let status = layout.status.as_ref().and_then(|status| table.column(&status.name));
    if let (Some(status), Some(words)) = (status, &layout.words) {
        findings.extend(unknown(words, status));
        findings.extend(too_long(words, status));
        if findings.is_empty() && !status.computed {
            findings.push(Finding::fine(WORDS, "the status column takes every word of the layout"));
        }
        findings.extend(left_out(layout, status, &status.words));
        findings.extend(without_status(table, status));
    }
    findings.extend(marked_by_others(layout, table));
    findings.extend(values(layout, table));
    findings.extend(passed_over(layout, table));
    findings.extend(without_a_value(layout, table));
    findings
}

/// Words of the layout that the table does not take.
fn unknown(words: &Words, status: &TableColumn) -> Vec<Finding> {
    let unknown = ours(words).into_iter().filter(|word| !status.words.is_empty() && !status.words.contains(word));
    let finding = |word: &String| {
        let what = format!(
            "the column {:?} does not allow the word {word:?} of the layout; it allows {}",
            status.name,
            status.words.join(", ")
        );
        Finding::problem(WORDS, what, "name the right word, or have the table allow it")
    };
    unknown.map(finding).collect()
}

/// Words of the layout that the table has no room for.
fn too_long(words: &Words, status: &TableColumn) -> Vec<Finding> {
    let Some(room) = status.length.filter(|_| status.kind == Kind::Text) else { return Vec::new() };
    let length = |word: &String| u32::try_from(word.chars().count()).unwrap_or(u32::MAX);
    let finding = |word: &String| {
        let what = format!(
            "the column {:?} takes {room} characters, and the word {word:?} of the layout has {}",
            status.name,
            length(word)
        );
        Finding::problem(WORDS, what, "name a shorter word, or make the column longer")
    };
    ours(words).into_iter().filter(|word| length(word) > room).map(finding).collect()
}

fn ours(words: &Words) -> Vec<&String> {
    let four = [&words.pending, &words.processing, &words.delivered, &words.dead];
    four.into_iter().chain(&words.failed).collect()
}

/// Words of the table that the layout has no state for: such a row is never claimed, counted or purged.
pub(super) fn left_out(layout: &Layout, status: &TableColumn, known: &[String]) -> Option<Finding> {
    let ours = ours(layout.words.as_ref()?);
    let left: Vec<String> = known.iter().filter(|word| !ours.contains(word)).map(|word| format!("{word:?}")).collect();
    (!left.is_empty()).then(|| {
        Finding::warning(
            WORDS,
            format!(
                "rows whose {:?} is {} are neither claimed nor counted: the layout has no such word",
                status.name,
                left.join(", ")
            ),
            "if they are to be delivered, say which state the word is (failed is a second word for rows that wait), or change the rows",
        )
    })
}

fn without_status(table: &Table, status: &TableColumn) -> Option<Finding> {
    (!status.not_null).then(|| {
        Finding::warning(
            WORDS,
            format!(
                "the column {:?} may be null, and a row without a status is neither claimed nor counted",
                status.name
            ),
            required(table, status),
        )
    })
}

/// How a column is made to have a value in every row.
pub(super) fn required(table: &Table, column: &TableColumn) -> String {
    let name = table.database.quoted(&column.name);
    match table.database {
        Database::Postgres => format!(
            "see that every row has a value there, then run: alter table {} alter column {name} set not null",
            table.place
        ),
        Database::MySql => format!(
            "see that every row has a value there, then run: alter table {} modify {name} {} not null",
            table.place, column.type_name
        ),
        Database::Sqlite => "see that every row has a value there".to_owned(),
    }
}

/// Rows that wait by what the layout says, and have been sent by what the table says, or may say.
fn marked_by_others(layout: &Layout, table: &Table) -> Option<Finding> {
    if layout.claim != ClaimBy::RowLock {
        return None;
    }
    let used = |column: &TableColumn| all(layout).iter().any(|(_, own)| own.name == column.name);
    let unused = || table.columns.iter().filter(|column| !used(column));
    let sent = layout.delivered_at.as_ref();
    // Where a time says it, another time or flag says the same. A status says more.
    let says = |column: &&TableColumn| is_status(column) || (sent.is_none() && (is_mark(column) || is_sent_at(column)));
    if let Some(TableColumn { name, .. }) = unused().find(says) {
        let then = match sent {
            Some(sent) => format!("rows without {:?} would be published, whatever it says", sent.name),
            None => "every row would be published, and deleted".to_owned(),
        };
        let what = format!(
            "the column {name:?} looks as if it said which rows have been sent, and the layout does not look at it: {then}"
        );
        let fix = "claim by lease with a status, or name a delivered_at that is set where rows have been sent; postrider layout guess says which column to add; \
                   if it says something else, have it travel as a header (fields)";
        return Some(Finding::problem(WORDS, what, fix));
    }
    let may: Vec<&TableColumn> = unused().filter(|column| may_be_mark(table.database, column)).collect();
    let TableColumn { name, .. } = may.first().filter(|_| sent.is_none())?;
    let more = if may.len() > 1 { format!(", or one of {} others", may.len() - 1) } else { String::new() };
    Some(Finding::warning(
        WORDS,
        format!(
            "the column {name:?}{more} may say which rows have been sent, and the layout does not look at it: every row is published, and deleted"
        ),
        "if it does, name a delivered_at that is set where rows have been sent; postrider layout guess says how; if it says something else, have it travel as a header (fields)",
    ))
}

/// Words of other enums.
fn values(layout: &Layout, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (what, column) in all(layout) {
        let Some(there) = table.column(&column.name).filter(|there| there.kind == Kind::Enum) else { continue };
        if let Some(word) = column.values.iter().find(|word| !there.words.contains(word)) {
            let what = format!("the enum {:?} has no {word:?}, which the layout has for {what}", there.base);
            findings.push(Finding::problem(WORDS, what, "take it out of the layout's values"));
        }
    }
    findings
}

/// Whether claims walk from one value of an index to the next; elsewhere only those of our own table do.
fn walks(layout: &Layout, table: &Table) -> bool {
    layout.indexed_like_ours && table.database == Database::Postgres
}

/// What claims walk by where the table is indexed like ours: a row that has no value there is never come to.
fn passed_over(layout: &Layout, table: &Table) -> Vec<Finding> {
    let walked = [layout.namespace.column(), layout.next_attempt_at.as_ref(), layout.seq.as_ref()];
    let walked = walked.into_iter().flatten().filter(|_| walks(layout, table));
    let nullable = walked.filter_map(|column| table.column(&column.name)).filter(|there| !there.not_null);
    let finding = |there: &TableColumn| {
        let name = &there.name;
        let what = format!(
            "the column {name:?} may be null, and with indexed_like_ours a row that has no value there is never claimed"
        );
        Finding::problem(WORDS, what, format!("{}; or leave indexed_like_ours out", required(table, there)))
    };
    nullable.map(finding).collect()
}

/// What a row is claimed by should be in every row.
fn without_a_value(layout: &Layout, table: &Table) -> Vec<Finding> {
    let due = layout.next_attempt_at.as_ref().filter(|_| !walks(layout, table));
    let columns = [due, layout.attempts.as_ref()];
    let there = columns.into_iter().flatten().filter_map(|column| table.column(&column.name));
    let nullable = there.filter(|there| !there.not_null);
    let hint = |there: &TableColumn| {
        let what = format!("the column {:?} may be null, and rows are claimed by it", there.name);
        note(WORDS, what, required(table, there))
    };
    nullable.map(hint).collect()
}
