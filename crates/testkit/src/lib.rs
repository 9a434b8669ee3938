//! Private servers and fault tools for Postrider's tests.
//!
//! Everything here is started by the test process, listens on loopback only and ends with the test process,
//! also when that process is killed. Nothing is skipped silently: when a server is not installed, the error names
//! the Debian package that has it. Linux only, because processes are looked up in `/proc`.

mod guard;
mod home;
mod pid;
mod port;

pub mod brokers;
pub mod chaos;
pub mod checker;
pub mod conformance;
pub mod crash;
#[allow(missing_docs)] // the names are the promises
pub mod inbox;
pub mod log;
pub mod mariadb;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod show;
pub mod sinks;
pub mod source;
pub mod wait;

pub use mariadb::{MariaDb, MariaDbOptions, MySqlDatabase};
pub use pgbouncer::PgBouncer;
pub use port::free_port;
pub use postgres::{Database, Postgres, PostgresOptions};
pub use process::{Signal, Worker};
pub use proxy::{Mode, Proxy};
pub use source::{Dialect, Source};
pub use wait::{eventually, quickly, undisturbed, within};
