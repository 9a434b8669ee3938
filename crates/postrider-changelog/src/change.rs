//! What a transaction has changed, before it has a stamp.

use std::collections::BTreeMap;

use crate::schema::{check_name, invalid};
use crate::unit_of_work::check_told;
use crate::{ChangelogError, Mutation, Operation, Value, Versionstamp};

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
    /// Refuses what no reader would understand.
    pub(crate) fn check(&self) -> Result<(), ChangelogError> {
        let none = BTreeMap::new();
        let values = match &self.operation {
            Operation::Create { values } => values,
            Operation::Update { set, .. } => set,
            Operation::Delete { .. } => &none,
        };
        for (what, text) in [("namespace", &self.namespace), ("table", &self.table), ("external id", &self.external_id)]
        {
            if text.is_empty() {
                return Err(invalid(format!("a change has an empty {what}; say which row was changed")));
            }
        }
        for (column, value) in values {
            check_name(column)?;
            let refused = |why| invalid(format!("column {column:?} of {:?} cannot be told of: {why}", self.table));
            check_told(value).map_err(refused)?;
        }
        Ok(())
    }

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

/// Whether a value would be taken for one.
pub(crate) fn is_placeholder(value: &Value) -> bool {
    matches!(value, Value::Object(fields) if fields.len() == 1 && fields.contains_key(crate::payload::PLACEHOLDER))
}
