//! Redis Streams: each message is an entry that `XADD` appends, on one server or in a cluster.
//!
//! The commands of a batch go out together, and each has an answer of its own, so that one that fails fails alone.
//! Nothing tells Redis that it has an entry already: consumers know repeats by the field `event_id`.
//!
//! **Delivered** means that the server has the entry in its memory. What that is worth is in the server's settings:
//! without `appendonly` a restart loses it, with `appendfsync everysec` a crash of the machine loses about a second, and
//! a replica that takes over lacks what it was not sent yet, unless `wait_replicas` is set. An eviction policy other than
//! `noeviction` may remove a whole stream, and `maxlen` removes old entries, read or not. Such a loss is Redis', after
//! the message was delivered.
//!
//! It fails towards a repeat: what has no answer in time, or was not answered when the connection broke, is unknown. A
//! connection that broke is never mended but replaced, so that nothing waits in it to be sent later.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `stream` | the stream of a message, which cannot leave the operator's prefix |
//! | `link` | the connection to a server or cluster, and getting a new one |
//! | `sink`, `outcome` | publishing, and what the answers mean |

mod config;
mod link;
mod outcome;
mod sink;
mod stream;

pub use config::RedisConfig;
pub use sink::{RedisClient, RedisSink};
