//! Postrider's sinks: where messages go. Each has the same files: `config` (what an operator writes), `sink` (publishing)
//! and `outcome` (what the destination's answers mean).

pub mod setting;
