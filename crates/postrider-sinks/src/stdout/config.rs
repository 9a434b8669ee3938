//! What an operator writes for the sink `stdout`.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Sink;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sink::StdoutSink;
use crate::kind::{Binding, SinkClient, SinkConfig};
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

impl SinkConfig for StdoutConfig {
    /// Nothing in it can be wrong.
    fn problems(&self) -> Vec<ConfigProblem> {
        Vec::new()
    }

    /// Any destination will do: each line says what its message is called, and nothing is looked up.
    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem> {
        binding.without_format()
    }

    fn longest_publish(&self) -> Option<Duration> {
        None
    }

    fn client(&self, _: &str) -> Result<Box<dyn SinkClient>, ConfigProblem> {
        Ok(Box::new(Arc::new(StdoutSink::with_config(self))))
    }
}

/// All routes write to the same standard output.
impl SinkClient for Arc<StdoutSink> {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        binding.without_format()?;
        Ok(self.clone())
    }
}
