//! NATS JetStream: a message is delivered when a stream has said that it stored it.
//!
//! All messages of a batch are sent before the first acknowledgement is awaited. Each carries its event id as
//! `Nats-Msg-Id`, so that a stream stores it once within its duplicate window however often it comes. A message that no
//! stream takes is not delivered, also if subscribers of core NATS would have got it.
//!
//! **Delivered** means that the stream's leader has written the message to its store, and with several replicas that a
//! majority of them has. A server with one replica writes to its file without syncing it at once (`sync_interval`, two
//! minutes by default): it loses nothing when its process dies, but may when its machine does.
//!
//! It fails towards a repeat: what has no answer in time is unknown. The library would keep messages while it is
//! disconnected and send them whenever it is connected again; so a connection that breaks or does not answer is never
//! mended but replaced, and what waited in it is dropped.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `subject` | the subject of a message, which cannot leave the operator's prefix |
//! | `header` | headers as NATS can carry them, without loss |
//! | `link` | one connection, and getting a new one |
//! | `sink`, `outcome` | publishing, and what the answers mean |

mod config;
mod header;
mod link;
mod outcome;
mod sink;
mod subject;

pub use config::NatsConfig;
pub use sink::{NatsClient, NatsSink};
