//! The outbox on MariaDB 10.6 and MySQL 8.0.16 and newer.

mod check;
mod claim;
mod claim_order;
mod claimed;
mod doorbell;
pub mod enqueue;
mod error;
mod examine;
mod grants;
mod layout;
mod layout_check;
pub mod migrate;
mod operate;
mod retain;
mod run;
mod scope;
mod settle;
pub mod statements;
mod store;
mod table;
mod types;

#[doc(hidden)]
pub use error::{is_lock_timeout, is_login, kind_of, number};
pub use store::MySqlStore;
