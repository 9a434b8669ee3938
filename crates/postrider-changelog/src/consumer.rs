//! Consumers whose position is kept in the database: one process at a time reads, and another takes over when it is gone.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::{After, ChangelogError, Cursor, DEFAULT_LIMIT, Lease, Page, Reader};

/// The longest name of a consumer, in bytes.
const LONGEST_NAME: usize = 190;

/// How a named consumer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// How long a lease lasts unless it is renewed. After a crash another process takes over after this time.
    pub lease: Duration,
    /// How often to look for new entries, or for a lease that has ended.
    pub poll_interval: Duration,
    /// How many entries are read at a time.
    pub page: u32,
    /// Where a new consumer begins.
    pub first: After,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(200),
            page: DEFAULT_LIMIT,
            first: After::Beginning,
        }
    }
}

/// A consumer with a name. Any number of processes may have the same one; one of them reads.
#[derive(Debug, Clone)]
pub struct Consumer {
    reader: Arc<dyn Reader>,
    name: String,
    owner: Uuid,
    config: ConsumerConfig,
}

impl Consumer {
    /// A consumer of a changelog.
    pub fn new(
        reader: Arc<dyn Reader>,
        name: impl Into<String>,
        config: ConsumerConfig,
    ) -> Result<Self, ChangelogError> {
        let name = name.into();
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(ChangelogError::Invalid(format!(
                "a consumer is called {name:?}; use from 1 to {LONGEST_NAME} bytes without control characters"
            )));
        }
        if config.lease < Duration::from_secs(1) || config.poll_interval > config.lease / 3 {
            return Err(ChangelogError::Invalid(format!(
                "consumer {name:?} has a lease of {:?} and looks every {:?}; use a lease of a second or more, and look three times within it",
                config.lease, config.poll_interval
            )));
        }
        Ok(Self { reader, name, owner: Uuid::now_v7(), config })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the lease, if nobody else has it.
    pub async fn acquire(&self) -> Result<Option<Held>, ChangelogError> {
        let Self { reader, name, owner, config } = self;
        let lease = reader.acquire(name, *owner, config.lease, config.first).await?;
        Ok(lease.map(|lease| Held {
            reader: reader.clone(),
            cursor: lease.cursor,
            lease,
            config: config.clone(),
            renewed: Instant::now(),
        }))
    }

    /// Waits for the lease.
    pub async fn wait(&self) -> Result<Held, ChangelogError> {
        loop {
            if let Some(held) = self.acquire().await? {
                return Ok(held);
            }
            tokio::time::sleep(self.config.poll_interval).await;
        }
    }
}

/// A consumer whose lease this process holds. Dropped without [`release`](Self::release), the lease ends by itself.
#[derive(Debug)]
pub struct Held {
    reader: Arc<dyn Reader>,
    lease: Lease,
    cursor: Cursor,
    config: ConsumerConfig,
    /// When the lease was last renewed, or just before.
    renewed: Instant,
}

impl Held {
    /// The lease, for a consumer that says how far it has read in a transaction of its own.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// How far it has said to have read.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The entries after that; possibly none.
    pub async fn read(&self) -> Result<Page, ChangelogError> {
        self.reader.list(self.cursor.into(), self.config.page).await
    }

    /// The entries after that; waits until there are some, and keeps the lease meanwhile.
    pub async fn next(&mut self) -> Result<Page, ChangelogError> {
        loop {
            let page = self.read().await?;
            if !page.entries.is_empty() {
                return Ok(page);
            }
            tokio::time::sleep(self.config.poll_interval).await;
            if self.renewed.elapsed() > self.config.lease / 3 {
                self.renew().await?;
            }
        }
    }

    /// Says how far it has read, and renews the lease. Nothing is changed if the lease was lost.
    pub async fn advance(&mut self, to: Cursor) -> Result<(), ChangelogError> {
        if to.store() != self.cursor.store() {
            return Err(ChangelogError::OtherStore { store: self.cursor.store(), found: to.store() });
        }
        if to.versionstamp() < self.cursor.versionstamp() {
            return Err(ChangelogError::Invalid(format!(
                "consumer {:?} is at {} and cannot go back to {}; use reset",
                self.lease.consumer,
                self.cursor.versionstamp(),
                to.versionstamp()
            )));
        }
        let now = Instant::now();
        self.reader.advance(&self.lease, Some(&to), self.config.lease).await?;
        (self.cursor, self.renewed) = (to, now);
        Ok(())
    }

    /// Takes note that a transaction of the consumer's own has said how far it has read.
    pub fn advanced(&mut self, to: Cursor) {
        self.cursor = to;
    }

    /// Renews the lease.
    pub async fn renew(&mut self) -> Result<(), ChangelogError> {
        let now = Instant::now();
        self.reader.advance(&self.lease, None, self.config.lease).await?;
        self.renewed = now;
        Ok(())
    }

    /// Runs something that may take long, and keeps the lease meanwhile. If the lease is lost it is dropped where it is.
    pub async fn keep_while<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ChangelogError> {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(self.config.lease / 3, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) => self.renew().await?,
            }
        }
    }

    /// Notes why it does not get on, for operators to see, and renews the lease.
    pub async fn hold_back(&self, why: impl Display) -> Result<(), ChangelogError> {
        self.reader.hold_back(&self.lease, &why.to_string(), self.config.lease).await
    }

    /// Gives the lease back, so that another process need not wait for its end.
    pub async fn release(self) -> Result<(), ChangelogError> {
        self.reader.release(&self.lease).await
    }
}
