//! An adapter that sends nothing, for a staged rollout and for tests.
//!
//! It stands for providers by their names, so that producers, tables and dashboards can be tried before anybody gets a
//! message. Its rule is deterministic: a message is accepted, unless there are answers for its recipient; then attempt
//! 1 gets the first of them, attempt 2 the second, and all after the last one get the last. Nothing is kept but a
//! count, and the last few messages (without what they say) if asked for.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::adapter::{Adapter, Outbound};
use crate::problem::ConfigProblem;

/// The most messages that are kept.
const MOST_KEPT: usize = 10_000;

/// An adapter that sends nothing: it stands for the providers named here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NoopConfig {
    /// The providers it stands for. To go live with one, remove it here and add its own table.
    pub providers: Vec<String>,
    /// By recipient: what to answer on the first attempt, on the second and so on; the last one stays. All other
    /// recipients are accepted.
    pub answers: BTreeMap<String, Vec<NoopAnswer>>,
    /// How many of the last messages are kept in memory, without what they say, for a program that looks at them.
    pub keep: usize,
}

impl Default for NoopConfig {
    fn default() -> Self {
        Self { providers: vec!["noop".into()], answers: BTreeMap::new(), keep: 0 }
    }
}

impl NoopConfig {
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        if self.providers.is_empty() {
            found.push(ConfigProblem::new("noop.providers", "it is empty; name the providers it stands for"));
        }
        if self.answers.values().any(Vec::is_empty) {
            found.push(ConfigProblem::new("noop.answers", "a recipient has no answers; give at least one"));
        }
        if self.keep > MOST_KEPT {
            found.push(ConfigProblem::new("noop.keep", format!("it is more than {MOST_KEPT}")));
        }
        found
    }
}

/// What the no-op answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoopAnswer {
    /// As if it were sent.
    Accept,
    /// As if the provider had a problem.
    Retry,
    /// As if the provider had too much to do, and asked to wait for a second.
    Limit,
    /// As if the provider refused it for good.
    Reject,
    /// As if the answer were lost.
    Unknown,
}

impl NoopAnswer {
    fn outcome(self) -> Outcome {
        match self {
            Self::Accept => Outcome::Accepted,
            Self::Retry => Outcome::retry("the no-op adapter was told to fail"),
            Self::Limit => {
                let why = "the no-op adapter was told to have too much to do";
                Outcome::Retry { after: Some(Duration::from_secs(1)), why: why.into() }
            }
            Self::Reject => Outcome::Reject("the no-op adapter was told to refuse it".into()),
            Self::Unknown => Outcome::Unknown("the no-op adapter was told to lose its answer".into()),
        }
    }
}

/// A message that the no-op got.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields of `Outbound` and `Correlation`
pub struct NoopRecord {
    pub provider: String,
    pub recipient: String,
    pub event_id: Uuid,
    pub correlation_id: Option<String>,
    pub channel_message_id: Option<String>,
    pub attempt: i32,
    /// The outcome in one word.
    pub outcome: &'static str,
}

/// See the module. Clones share what they keep.
#[derive(Clone)]
pub struct NoopAdapter {
    answers: BTreeMap<String, Vec<NoopAnswer>>,
    keep: usize,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    count: u64,
    last: VecDeque<NoopRecord>,
}

impl NoopAdapter {
    /// An adapter with these answers.
    pub fn new(config: &NoopConfig) -> Self {
        Self { answers: config.answers.clone(), keep: config.keep.min(MOST_KEPT), seen: Arc::default() }
    }

    /// How many messages it got, every attempt counted.
    pub fn count(&self) -> u64 {
        self.seen().count
    }

    /// The last of them, oldest first; none unless `keep` asks for them.
    pub fn last(&self) -> Vec<NoopRecord> {
        self.seen().last.iter().cloned().collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, recipient: &str, attempt: i32) -> NoopAnswer {
        let at = usize::try_from(attempt.max(1) - 1).unwrap_or(0);
        let answers = self.answers.get(recipient).filter(|answers| !answers.is_empty());
        answers.map_or(NoopAnswer::Accept, |answers| answers[at.min(answers.len() - 1)])
    }
}

/// Recipients are not printed.
impl fmt::Debug for NoopAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoopAdapter").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Adapter for NoopAdapter {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        let correlation = &outbound.correlation;
        let outcome = self.answer(outbound.recipient, correlation.attempt).outcome();
        let mut seen = self.seen();
        seen.count += 1;
        if self.keep > 0 {
            if seen.last.len() == self.keep {
                seen.last.pop_front();
            }
            seen.last.push_back(NoopRecord {
                provider: outbound.provider.to_owned(),
                recipient: outbound.recipient.to_owned(),
                event_id: correlation.event_id,
                correlation_id: correlation.correlation_id.map(str::to_owned),
                channel_message_id: correlation.channel_message_id.map(str::to_owned),
                attempt: correlation.attempt,
                outcome: outcome.kind(),
            });
        }
        outcome
    }
}
