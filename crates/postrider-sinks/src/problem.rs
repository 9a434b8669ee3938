//! What is wrong with a sink's configuration.

/// One field of a sink's configuration was refused. The text repeats no value, because that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ConfigProblem {
    /// The field, as it is written in the configuration.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub what: String,
}

impl ConfigProblem {
    /// A problem with a field.
    pub fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { field: field.into(), what: what.into() }
    }
}
