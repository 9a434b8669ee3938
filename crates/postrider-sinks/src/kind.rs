//! What every type of sink has: settings that can be checked, a client made from them that all routes share, and a sink
//! for each route.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Destination, Sink};

use crate::format::Format;
use crate::problem::ConfigProblem;

/// The settings of one type of sink.
pub trait SinkConfig {
    /// All settings that cannot work, alone or together. It reads no file and connects to nothing.
    fn problems(&self) -> Vec<ConfigProblem>;

    /// Whether a route can be bound to a sink with these settings. It connects to nothing and looks nothing up.
    fn check_binding(&self, binding: &Binding) -> Result<(), ConfigProblem>;

    /// The longest time that a publish takes, if the sink itself has a limit: the dispatcher's publish time-out must be
    /// longer.
    fn longest_publish(&self) -> Option<Duration>;

    /// Makes what all routes share. It connects to nothing yet, so that a relay starts while a broker is down; the name
    /// is the sink's in logs.
    fn client(&self, name: &str) -> Result<Box<dyn SinkClient>, ConfigProblem>;
}

/// What all routes to one sink share: connections and limits.
pub trait SinkClient: Send + Sync {
    /// The sink of a route.
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem>;
}

/// What a route says of its sink.
#[derive(Debug, Clone, Default)]
pub struct Binding {
    /// The name of its messages there.
    pub destination: Option<Destination>,
    /// How they are written; as the sink's settings say unless it is given.
    pub format: Option<Format>,
}

impl Binding {
    /// A binding to a destination, in the sink's own format.
    pub fn to(destination: Destination) -> Self {
        Self { destination: Some(destination), format: None }
    }

    /// Chooses a format.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// The destination of a sink that needs one; the error tells of an example.
    pub fn needed(&self, example: &str) -> Result<&Destination, ConfigProblem> {
        let missing = || ConfigProblem::new("destination", format!("this sink needs a destination such as {example}"));
        self.destination.as_ref().ok_or_else(missing)
    }

    /// Refuses what a sink has no use for.
    pub fn without_format(&self) -> Result<(), ConfigProblem> {
        match self.format {
            None => Ok(()),
            Some(_) => Err(ConfigProblem::new("format", "this sink has a format of its own; remove it")),
        }
    }
}
