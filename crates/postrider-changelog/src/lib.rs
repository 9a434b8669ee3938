//! Postrider's changelog: units of work in commit order, read by versionstamp.
//!
//! A [`UnitOfWork`] records what is to be created, updated, deleted and checked; [`Changelog::commit`] does all of it in one
//! transaction and writes one [`Entry`] beside it. Entries have a [`Versionstamp`], and the order of the stamps is the order
//! of the commits: a reader that goes by them ([`Changelog::list`], [`follow`], a [`Consumer`]) misses nothing and sees
//! nothing twice, however many write at the same time.
//!
//! Total order has a price: from the first statement of its transaction to the commit a writer keeps all others waiting.
//! Where that is too much, and order is not needed or only by key, the outbox is the better tool.

mod consumer;
mod entry;
mod error;
mod follow;
mod payload;
mod reader;
mod superjson;
mod value;
mod versionstamp;

pub use consumer::{Consumer, ConsumerConfig, Held};
pub use entry::{After, Cursor, Entry, InvalidCursor, Page};
pub use error::ChangelogError;
pub use follow::{FollowConfig, follow};
pub use payload::{InvalidPayload, Mutation, Operation, Payload};
pub use reader::{ConsumerState, DEFAULT_LIMIT, LARGEST_LIMIT, Lease, Reader};
pub use superjson::{InvalidSuperjson, decode, encode};
pub use value::{Date, Value};
pub use versionstamp::{InvalidVersionstamp, TransactionVersion, Versionstamp};
