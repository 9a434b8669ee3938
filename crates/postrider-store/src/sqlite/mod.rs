//! The outbox in an SQLite file, SQLite 3.35 and newer. All processes that share the file are on one machine.

mod claimed;
mod clock;
mod doorbell;
pub mod enqueue;
mod error;
mod examine;
mod flight;
mod grants;
mod layout;
mod layout_check;
pub mod migrate;
mod operate;
mod run;
mod settings;
pub mod statements;
mod store;
mod table;
mod types;

pub use crate::clock::{Clock, ManualClock, SystemClock};
pub(crate) use doorbell::Neighbours;
#[doc(hidden)]
pub use error::{code, is_conflict, sort};
pub use store::SqliteStore;
