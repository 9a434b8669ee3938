//! RabbitMQ: AMQP 0.9.1 with publisher confirms.
//!
//! A message is accepted once RabbitMQ has confirmed it **and** did not return it: it was routed to at least one queue,
//! and every such queue has taken responsibility for it. For a persistent message on a durable queue that means: it is
//! on disk (classic queues), or on the disks of most members (quorum queues). A transient queue, or `persistent = false`,
//! loses it when the broker restarts. A message that no queue is bound for comes back (`mandatory`), and is tried again.
//!
//! It fails like this: a broker that cannot be reached costs nothing but time; a connection that breaks leaves what was
//! not confirmed unknown, and it comes again; a memory or disk alarm makes the sink wait and give messages back; a
//! message that the broker refuses closes its channel, after which the messages of that call are sent one by one, so
//! that only the guilty one is dead.
//!
//! Each call of `publish` has a channel of its own. The client library gives a returned message to whichever confirm
//! comes next, which need not be its own when one confirm is for many messages; so the returned messages of a call are
//! collected, and each is told by its message id.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `link`, `wire` | the connection and its channels; what a message looks like |
//! | `sink`, `outcome` | publishing, and what the answers mean |

mod config;
mod link;
mod outcome;
mod sink;
mod wire;

pub use config::AmqpConfig;
pub use sink::{AmqpClient, AmqpSink};
