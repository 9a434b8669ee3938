//! Whether rows can be written. Rows that others write are delivered in any case.

use postrider_core::operate::Finding;

use super::{ENQUEUE, all, or_fine};
use crate::layout::table::{Database, Kind, Table, TableColumn, TableIndex};
use crate::layout::{Ability, Column, Layout};

pub(super) fn look(layout: &Layout, table: &Table) -> Vec<Finding> {
    if !layout.can(Ability::Enqueue) {
        return vec![Finding::fine(ENQUEUE, "rows are written by others: the database numbers them")];
    }
    let mut findings = unwritten(layout, table);
    findings.extend(computed(layout, table));
    findings.extend(types_out_of_reach(layout, table));
    findings.extend(dedupe_index(layout, table));
    or_fine(findings, ENQUEUE, "enqueue can write rows")
}

/// Columns that must be written and that nothing is written to.
fn unwritten(layout: &Layout, table: &Table) -> Vec<Finding> {
    let mut written = layout.inserted();
    if table.database == Database::Sqlite {
        // The producer's clock decides there.
        written.extend([&layout.created_at, &layout.updated_at].into_iter().flatten());
    }
    let is_written = |there: &TableColumn| {
        written.iter().any(|column| table.column(&column.name).is_some_and(|column| column.name == there.name))
    };
    let needed = table.columns.iter().filter(|there| there.not_null && !there.has_default && !is_written(there));
    let finding = |there: &TableColumn| {
        let what = format!(
            "enqueue cannot write rows: the column {:?} must have a value, and the layout has none for it; rows that others write are delivered all the same",
            there.name
        );
        Finding::warning(ENQUEUE, what, "have a header written to it (fields), or give it a default")
    };
    needed.map(finding).collect()
}

/// Columns that are written to and that the database computes.
fn computed(layout: &Layout, table: &Table) -> Vec<Finding> {
    let inserted = layout.inserted();
    let there = inserted.iter().filter_map(|column| table.column(&column.name)).filter(|there| there.computed);
    let finding = |there: &TableColumn| {
        let what = format!(
            "enqueue cannot write rows: the database computes the column {:?}, and refuses what is written there; rows that others write are delivered all the same",
            there.name
        );
        Finding::warning(ENQUEUE, what, "have producers write rows with SQL of their own, or make it a plain column")
    };
    there.map(finding).collect()
}

/// A text is cast to an enum of the table's own schema if the layout lists its words, and otherwise to one that is found without
/// its schema.
fn types_out_of_reach(layout: &Layout, table: &Table) -> Vec<Finding> {
    if table.database != Database::Postgres {
        return Vec::new();
    }
    let reached = |column: &Column, there: &TableColumn| match column.values.is_empty() {
        true => there.base_is_in_path,
        false => there.base_schema == table.schema,
    };
    let mut findings = Vec::new();
    for (what, column) in all(layout) {
        let Some(there) = table.column(&column.name) else { continue };
        if there.kind != Kind::Enum || column.kind.is_none() || reached(column, there) {
            continue;
        }
        let TableColumn { name, base, base_schema, .. } = there;
        let fix = match (base_schema == &table.schema, there.base_is_in_path) {
            (true, _) => format!("list the words of {base:?} as values of the layout's {what}"),
            (false, true) => {
                format!("leave the values of the layout's {what} out; the type is then found by the search_path")
            }
            (false, false) => format!("run: alter type \"{base_schema}\".\"{base}\" set schema \"{}\"", table.schema),
        };
        let what = format!(
            "enqueue cannot write rows: the type {base:?} of the column {name:?} is in the schema {base_schema:?}, where it is not looked for; rows that others write are delivered all the same"
        );
        findings.push(Finding::warning(ENQUEUE, what, fix));
    }
    findings
}

/// The unique index by which a dedupe key that is there already is found.
fn dedupe_index(layout: &Layout, table: &Table) -> Option<Finding> {
    let key = layout.dedupe_key.as_ref()?;
    let parts: Vec<&str> = layout.dedupe_columns().into_iter().map(|column| column.name.as_str()).collect();
    let plain = |text: &str| text.replace(['(', ')', '"', '`', ' '], "").to_lowercase();
    let own = plain(&format!("{} is not null", key.name));
    let same = |index: &TableIndex| {
        index.unique
            && index.columns.len() == parts.len()
            && parts.iter().all(|part| index.columns.iter().any(|column| column.eq_ignore_ascii_case(part)))
            && index.predicate.as_ref().is_none_or(|predicate| !layout.dedupe_required && plain(predicate) == own)
    };
    if table.indexes.iter().any(same) {
        return None;
    }
    let partial = !layout.dedupe_required && table.database != Database::MySql;
    let condition = partial.then(|| format!("{} is not null", table.database.quoted(&key.name)));
    Some(Finding::warning(
        ENQUEUE,
        "enqueue with a dedupe key fails: no unique index finds the message that is there already",
        format!("run: {}", table.create_index(true, &parts, condition.as_deref())),
    ))
}
