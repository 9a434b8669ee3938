//! What an operator writes for the sink `stdout`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::ConfigProblem;

/// Messages as JSON lines on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StdoutConfig {
    /// Whether lines hold the payload and the producer's headers. Switch it off where standard output is collected as
    /// a log, and payloads must not be in logs.
    pub payload: bool,
}

impl Default for StdoutConfig {
    fn default() -> Self {
        Self { payload: true }
    }
}

impl StdoutConfig {
    /// Checks it. Nothing in it can be wrong.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        Ok(())
    }
}
