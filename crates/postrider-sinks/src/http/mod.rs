//! Webhooks: CloudEvents or a plain body over HTTP, signed.
//!
//! One [`HttpClient`] holds what all routes share: connections, time limits, and for each origin (scheme, host and port)
//! a limit of requests and a breaker, so that one dead endpoint does not slow down the others. [`HttpClient::sink`] binds a
//! route's destination to it.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `address`, `resolve` | which addresses may be connected to, and looking them up |
//! | `target` | the URL of a message, which cannot leave the operator's prefix |
//! | `format`, `header`, `sign` | what the request says |
//! | `lane` | room and breaker of one origin |
//! | `sink`, `outcome` | the request, and what the answer means |

mod address;
mod config;
mod format;
mod header;
pub(crate) mod lane;
pub(crate) mod outcome;
mod resolve;
mod sign;
mod sink;
mod target;

pub use config::HttpConfig;
#[doc(hidden)] // for fuzzing
pub use outcome::wait as retry_after;
pub use resolve::{Lookup, SystemLookup};
pub use sink::{HttpClient, HttpSink};
