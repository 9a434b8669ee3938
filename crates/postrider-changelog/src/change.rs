//! What a transaction has changed, before it has a stamp.

use std::collections::BTreeMap;

use crate::{Mutation, Operation, Value, Versionstamp};

/// One row that was created, updated or deleted, for an entry of the caller's own. Its stamp comes from its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The namespace of its schema.
    pub namespace: String,
    /// The table, by its user-facing name.
    pub table: String,
    /// The row.
    pub external_id: String,
    /// What was done to it.
    pub operation: Operation,
}

impl Change {
    /// The same with its place in the order of commits.
    pub(crate) fn stamped(self, versionstamp: Versionstamp) -> Mutation {
        let Self { namespace, table, external_id, operation } = self;
        Mutation { namespace, table, external_id, versionstamp, operation }
    }
}

/// What stands in a payload for a reference whose external id is in the map of references under this key.
pub(crate) fn placeholder(key: String) -> Value {
    Value::Object(BTreeMap::from([(crate::payload::PLACEHOLDER.to_owned(), Value::Text(key))]))
}
