//! Amazon SQS: messages in queues.
//!
//! A message is accepted once SQS has taken it, which means that it is on several servers of the region until a consumer
//! deletes it or its retention ends (four days unless the queue says otherwise). On a standard queue it may come more than
//! once and in any order. On a FIFO queue (`.fifo`) messages of one key keep their order, and one that is sent again within
//! five minutes is dropped by its event id.
//!
//! It fails like this: what SQS refuses of a request is told apart by message; a request without an answer leaves its
//! messages unknown, and they come again with their ids. Nothing is tried twice within a call.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `sink` | requests, and the addresses of queues |
//! | `outcome` | what the answers mean |

mod config;
mod outcome;
mod sink;

pub use config::SqsConfig;
pub use sink::{SqsClient, SqsSink};
