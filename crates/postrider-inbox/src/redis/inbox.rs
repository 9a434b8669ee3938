//! The inbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use uuid::Uuid;

use super::config::{RedisInboxBuilder, Unreachable};
use super::guard::RedisGuard;
use super::link::Links;
use super::outcome::Kind;
use super::script::{Begun, Claim, Marked, Verbs};
use super::unmark::Unmark;
use crate::keep::keep_problem;
use crate::{ConsumerName, Delivery, Entry, Inbox, InboxError};

/// An inbox on Redis. Clones share one connection, which is made anew when it breaks.
#[derive(Clone)]
pub struct RedisInbox {
    pub(super) verbs: Arc<Verbs>,
}

impl RedisInbox {
    /// Settings for one server, such as `redis://127.0.0.1:6379`, or with TLS `rediss://redis.example.com:6379`; the number
    /// of a database may follow.
    pub fn builder(url: impl Into<SecretString>) -> RedisInboxBuilder {
        RedisInboxBuilder::new(vec![url.into()], false)
    }

    /// Settings for a cluster, of which some addresses are given.
    pub fn cluster(urls: impl IntoIterator<Item = impl Into<SecretString>>) -> RedisInboxBuilder {
        RedisInboxBuilder::new(urls.into_iter().map(Into::into).collect(), true)
    }

    pub(super) fn new(builder: RedisInboxBuilder) -> Result<Self, InboxError> {
        let links = Links::new(&builder)?;
        Ok(Self { verbs: Arc::new(Verbs::new(builder.settings, links)) })
    }

    /// Connects, and logs what may make the server forget.
    pub(super) async fn start(&self) -> Result<(), InboxError> {
        match self.examine().await {
            Ok(warnings) => {
                warnings.iter().for_each(|warning| tracing::warn!("the inbox on Redis: {warning}"));
                Ok(())
            }
            Err(error @ InboxError::Unavailable(_)) if self.proceeds() => {
                tracing::warn!(why = %why(&error), "the inbox on Redis cannot be reached; events are handled without it");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn proceeds(&self) -> bool {
        self.verbs.settings.unreachable == Unreachable::Proceed
    }

    /// Says and counts that an event is handled without protection.
    fn unguarded(&self, claim: &Claim, error: &InboxError) {
        let consumer = &claim.consumer;
        tracing::warn!(event = %claim.event, %consumer, why = %why(error), "an event is handled without the inbox");
        metrics::counter!("postrider_inbox_unguarded_total", "consumer" => consumer.to_string()).increment(1);
    }
}

impl Inbox for RedisInbox {
    type Guard = RedisGuard;

    async fn begin(&self, delivery: &Delivery) -> Result<Entry<RedisGuard>, InboxError> {
        let claim = self.verbs.claim(&delivery.consumer, delivery.event, delivery.attempt);
        match self.verbs.begin(&claim).await.map_err(InboxError::from) {
            Ok(Begun::First(since)) => Ok(Entry::First(RedisGuard::keeping(&self.verbs, claim, since))),
            Ok(Begun::InProgress(remaining)) => Ok(Entry::InProgress(remaining)),
            Ok(Begun::Processed) => Ok(Entry::AlreadyProcessed),
            Ok(Begun::Stale(seen)) => Ok(Entry::Stale { seen }),
            Err(error @ InboxError::Unavailable(_)) if self.proceeds() => {
                self.unguarded(&claim, &error);
                Ok(Entry::First(RedisGuard::unguarded(&self.verbs, claim)))
            }
            Err(error) => Err(error),
        }
    }

    async fn check_and_mark_processed(
        &self,
        consumer: &ConsumerName,
        event: Uuid,
        ttl: Duration,
    ) -> Result<bool, InboxError> {
        if let Some(what) = keep_problem(ttl, self.verbs.settings.horizon) {
            return Err(InboxError::Config(what));
        }
        let claim = self.verbs.claim(consumer, event, None);
        // Dropped with an error, or with this future, it takes back what may have been done.
        let unmark = Unmark::new(&self.verbs, &claim);
        let answer = self.verbs.mark(&claim, ttl).await;
        let is_unsent = matches!(&answer, Err(problem) if problem.kind == Kind::NoConnection);
        let answer = match answer.map_err(InboxError::from) {
            Ok(Marked::First) => Ok(false),
            Ok(Marked::Processed) => Ok(true),
            Ok(Marked::InProgress) => Err(InboxError::InProgress { event }),
            Err(error @ InboxError::Unavailable(_)) if self.proceeds() => {
                self.unguarded(&claim, &error);
                Ok(false)
            }
            Err(error) if is_unsent => Err(error),
            Err(error) => return Err(error),
        };
        unmark.forget();
        answer
    }
}

/// The cause of an error, which says more than the error.
pub(super) fn why(error: &InboxError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl fmt::Debug for RedisInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisInbox").field("settings", &self.verbs.settings).finish_non_exhaustive()
    }
}
