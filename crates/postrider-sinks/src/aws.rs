//! What the sinks of Amazon's services share: access, how a message becomes text with attributes, requests of at most ten
//! messages, and what errors mean.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | region, endpoint and credentials |
//! | `entry` | a message as a body and at most ten attributes |
//! | `request` | which messages share a request, and in which order requests are made |
//! | `outcome` | what errors mean |

#[cfg(feature = "sns")]
use aws_sdk_sns as sdk;
#[cfg(not(feature = "sns"))]
use aws_sdk_sqs as sdk;

use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

mod config;
mod entry;
mod outcome;
mod request;

pub use config::AwsConfig;
pub(crate) use config::Limits;
pub(crate) use entry::{CLOUDEVENTS, Entry, check_name};
pub(crate) use outcome::{Failure, is_forbidden, of_entry, of_sdk};
pub(crate) use request::{Service, publish};

/// Waits for something that Amazon's library does, without its logs: they have requests with bodies and session tokens in
/// them.
pub(crate) async fn quietly<F: Future>(done: F) -> F::Output {
    done.with_subscriber(Dispatch::none()).await
}
