//! Reference consumers: one file per broker, to copy from.
//!
//! All of them keep the same three promises. The broker is told that an event was handled only once the inbox has
//! remembered it, or when it had been remembered before. Whatever else happens (the handler fails, the inbox does not
//! answer, another consumer has the event at the moment, this process dies) the broker brings the event again. And it is
//! brought again after a pause, never in a tight loop.
//!
//! | file | how an event is acknowledged | how it comes again |
//! |---|---|---|
//! | [`kafka`] | its offset is stored, and committed later | the partition is paused and set back to it |
//! | [`nats`] | ack | nak with a delay |
//! | [`amqp`] | ack | it is kept and tried again after a pause; given back at the end |
//! | [`redis_streams`] | `XACK` | it stays pending, and `XAUTOCLAIM` finds it |
//! | [`webhook`] | 204 | 503, and the relay tries again |
//!
//! [`consumer`] is what they share.

pub mod amqp;
pub mod consumer;
pub mod kafka;
mod keep;
pub mod nats;
pub mod redis_streams;
pub mod signature;
pub mod webhook;

pub use consumer::{Answer, Consumer, Handler, Pause};
pub use keep::keep;
