//! What the four drivers have in common, so that one suite runs for each.

use std::borrow::Cow;

use anyhow::Result;
use futures::future::BoxFuture;
use postrider::{Enqueued, Message, Outbox};

/// One thing done in a transaction.
#[allow(clippy::large_enum_variant)] // a handful of steps per test
pub enum Step {
    /// Enqueues a message.
    One(Message),
    /// Enqueues messages with one call.
    Many(Vec<Message>),
    /// Runs a statement of the application.
    Sql(Cow<'static, str>),
    /// Does something elsewhere while the transaction is open; an error of it ends the transaction.
    Meanwhile(BoxFuture<'static, Result<()>>),
}

impl Step {
    pub fn sql(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Sql(text.into())
    }

    /// A change of the application, stamped with the transaction's time.
    pub fn change() -> Self {
        Self::sql("insert into changes (note) values ('changed')")
    }

    pub fn meanwhile(future: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self::Meanwhile(Box::pin(future))
    }
}

/// How a transaction ends when no step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    Rollback,
}

/// An application that uses one of the drivers.
pub trait Producer: Sized {
    async fn connect(url: &str) -> Result<Self>;

    /// Runs the steps in one transaction and answers what each enqueue said. A failed step rolls it back.
    async fn transact(&mut self, outbox: &Outbox, steps: Vec<Step>, end: End) -> Result<Vec<Enqueued>>;
}
