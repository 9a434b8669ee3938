//! The configuration: a TOML file, and environment variables that override it.

mod model;

pub use model::*;
