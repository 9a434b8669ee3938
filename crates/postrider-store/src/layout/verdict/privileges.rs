//! Whether the role may do what a relay does.

use postrider_core::operate::Finding;

use super::{PRIVILEGES, all};
use crate::layout::Layout;
use crate::layout::table::{Database, Table};

pub(super) fn look(layout: &Layout, table: &Table) -> Option<Finding> {
    let quoted = |column: &str| table.database.quoted(column);
    let mut grants = Vec::new();
    if table.database == Database::Sqlite {
        return None;
    }
    if !table.uses_schema {
        grants.push(format!("grant usage on schema {} to {}", quoted(&table.schema), table.role));
    }
    if all(layout).iter().any(|(_, column)| table.column(&column.name).is_some_and(|there| !there.selects)) {
        grants.push(format!("grant select on {} to {}", table.place, table.role));
    }
    let changed = layout.changed();
    let closed = changed.iter().filter(|column| table.column(&column.name).is_some_and(|there| !there.updates));
    let closed: Vec<String> = closed.map(|column| quoted(&column.name)).collect();
    if !closed.is_empty() {
        grants.push(format!("grant update ({}) on {} to {}", closed.join(", "), table.place, table.role));
    }
    if !table.deletes && !layout.keeps_delivered() {
        grants.push(format!("grant delete on {} to {}", table.place, table.role));
    }
    if !grants.is_empty() {
        let what = format!("the role {} lacks {} of the privileges that a relay needs", table.role, grants.len());
        return Some(Finding::problem(PRIVILEGES, what, format!("run: {}", grants.join("; "))));
    }
    Some(match (table.deletes, table.database) {
        (true, Database::Postgres) => {
            Finding::fine(PRIVILEGES, format!("the role {} may claim, settle and purge", table.role))
        }
        (true, _) => Finding::fine(PRIVILEGES, format!("the account {} may claim and settle", table.role)),
        (false, _) => Finding::warning(
            PRIVILEGES,
            format!("the role {} may not delete, so delivered and dead rows stay for good", table.role),
            format!("where they are to be deleted, run: grant delete on {} to {}", table.place, table.role),
        ),
    })
}
