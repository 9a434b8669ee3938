//! Postrider's changelog: units of work in commit order, read by versionstamp.
//!
//! A [`UnitOfWork`] records what is to be created, updated, deleted and checked; `Changelog::commit` does all of it in one
//! transaction and writes one [`Entry`] beside it. Entries have a [`Versionstamp`], and the order of the stamps is the order
//! of the commits: a reader that goes by them ([`Reader::list`], [`follow`], a [`Consumer`]) misses nothing and sees
//! nothing twice, however many write at the same time.
//!
//! Total order has a price: from the first statement of its transaction to the commit a writer keeps all others waiting.
//! Where that is too much, and order is not needed or only by key, the outbox is the better tool.

#[cfg_attr(not(feature = "sql"), allow(dead_code))]
mod change;
mod consumer;
mod entry;
mod error;
mod follow;
#[cfg(feature = "mysql")]
mod mysql;
mod payload;
#[cfg(feature = "postgres")]
mod postgres;
mod reader;
#[cfg_attr(not(feature = "sql"), allow(dead_code))]
mod schema;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod superjson;
#[cfg_attr(not(feature = "sql"), allow(dead_code))]
mod unit_of_work;
mod value;
mod versionstamp;

pub use change::Change;
pub use consumer::{Consumer, ConsumerConfig, Held};
pub use entry::{After, Cursor, Entry, InvalidCursor, Page};
pub use error::{ChangelogError, Violation};
pub use follow::{FollowConfig, follow};
pub use payload::{InvalidPayload, Mutation, Operation, Payload};
pub use reader::{ConsumerState, DEFAULT_LIMIT, LARGEST_LIMIT, Lease, Reader};
pub use schema::{Column, Schema, SchemaBuilder, Table, TableBuilder};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use sql::{Changelog, Committed, Database, Reservation, open};
pub use superjson::{InvalidSuperjson, decode, encode};
pub use unit_of_work::{Id, Input, UnitOfWork};
pub use value::{Date, InvalidDate, NotJson, Value};
pub use versionstamp::{InvalidVersionstamp, TransactionVersion, Versionstamp};
