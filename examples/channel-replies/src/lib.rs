//! Replies on chat channels: a webhook executes a message at once, and its reply is delivered later by a worker in the same program.
//! Read the modules in this order:
//!
//! - [`schema`]: the tables, and the roles that see them;
//! - [`ingress`]: from the webhook to the outbox, in the tenant's transactions;
//! - [`worker`], with its [`settings`]: from the outbox to a provider's adapter;
//! - [`stub`]: an adapter that sends nothing;
//! - [`program`]: all of it together; `bin/valinor.rs` runs it.
//!
//! [`scene`] has the private server of the demonstration and of the tests.

pub mod ingress;
pub mod program;
pub mod scene;
pub mod schema;
pub mod settings;
pub mod stub;
pub mod worker;
