//! Versions of a schema.

use postrider_core::store::{StoreError, StoreErrorKind};

/// One version of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub template: &'static str,
}

/// A version that a database lacks: its number, its name and its SQL.
pub type Pending = (i32, &'static str, String);

/// The versions that were not applied, as SQL text; `before` is what comes before the first of them.
pub(crate) fn list(
    all: &[Migration],
    applied: &[i32],
    mut before: String,
    text: impl Fn(&Migration) -> String,
) -> Vec<Pending> {
    let missing = all.iter().filter(|migration| !applied.contains(&migration.version));
    missing
        .map(|migration| (migration.version, migration.name, std::mem::take(&mut before) + &text(migration)))
        .collect()
}

/// Refuses a schema that a newer Postrider made; `place` says where it is.
pub(crate) fn refuse_newer(applied: &[i32], latest: i32, place: &str) -> Result<(), StoreError> {
    match applied.iter().max() {
        Some(newest) if *newest > latest => Err(StoreError::new(
            StoreErrorKind::Schema,
            format!(
                "{place} is at version {newest}, this Postrider knows up to {latest}; run a newer Postrider's migrations instead"
            ),
        )),
        _ => Ok(()),
    }
}
