//! Versions of a schema.

use postrider_core::store::{StoreError, StoreErrorKind};

/// One version of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub template: &'static str,
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
