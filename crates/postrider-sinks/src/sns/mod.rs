//! Amazon SNS: messages to the subscribers of topics.
//!
//! A message is accepted once SNS has taken it, which means that it is kept on several servers of the region until it was
//! given to each subscriber, or the subscriber's retries ended: what becomes of it then is a matter of the subscription,
//! so give it a dead-letter queue. **A topic without subscribers takes messages and forgets them.** On a FIFO topic (`.fifo`)
//! messages of one key keep their order, and one that is sent again within five minutes is dropped by its event id.
//!
//! It fails like this: what SNS refuses of a request is told apart by message; a request without an answer leaves its
//! messages unknown, and they come again with their ids. Nothing is tried twice within a call.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `sink` | requests |
//! | `outcome` | what the answers mean |

mod config;
mod outcome;
mod sink;

pub use config::SnsConfig;
pub use sink::{SnsClient, SnsSink};
