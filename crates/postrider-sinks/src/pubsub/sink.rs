//! The sink of one route.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use google_cloud_gax::error::rpc::Code;
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use tokio::time::{Instant, timeout_at};

use super::client::{Connection, PubsubClient, Shared};
use super::config::PubsubConfig;
use super::lot::{Entry, Lot, Trip};
use super::message::write;
use super::outcome::{code, of_error};
use super::topic::Topics;
use crate::format::Form;
use crate::problem::ConfigProblem;

/// The most messages in one call: what ten requests hold.
const MAX_BATCH: usize = 1_000;

/// The sink of one route.
pub struct PubsubSink {
    shared: Arc<Shared>,
    topics: Topics,
    form: Form,
}

impl fmt::Debug for PubsubSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubsubSink")
            .field("name", &self.shared.name)
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

impl PubsubSink {
    /// A sink of its own, with a client of its own. Routes that share a connection share a [`PubsubClient`].
    pub fn connect(config: &PubsubConfig, destination: Destination) -> Result<Self, ConfigProblem> {
        PubsubClient::new(config)?.sink(destination)
    }

    pub(super) fn new(shared: Arc<Shared>, topics: Topics, form: Form) -> Self {
        Self { shared, topics, form }
    }

    /// Sorts what can be sent by topic and ordering key; the rest gets its outcome at once.
    fn lots(&self, batch: &[ClaimedMessage], outcomes: &mut [Outcome]) -> Vec<Lot> {
        let mut lots: Vec<Lot> = Vec::new();
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        for (at, message) in batch.iter().enumerate() {
            let written = self.topics.of(message).and_then(|topic| {
                let written = write(&self.form, message, &topic, self.shared.config.ordering)?;
                Ok((topic, written))
            });
            match written {
                Ok((topic, message)) => {
                    let place = places.entry((topic, message.ordering_key.clone()));
                    let (topic, key) = place.key().clone();
                    let place = *place.or_insert_with(|| {
                        lots.push(Lot { topic, key, entries: Vec::new() });
                        lots.len() - 1
                    });
                    lots[place].entries.push(Entry { at, message });
                }
                Err(why) => outcomes[at] = Outcome::Unsendable(why),
            }
        }
        lots
    }

    /// Google's client does this by REST, on a connection of its own.
    async fn ask(&self, connection: &Connection) -> Result<(), String> {
        let fixed = self.topics.fixed();
        let topic = fixed.clone().unwrap_or_else(|| self.topics.any());
        let Err(error) = connection.admin.get_topic().set_topic(topic).send().await else { return Ok(()) };
        match code(&error) {
            // Who may publish may not look at the topic, unless it was given another role for that; the service answers.
            Some(Code::PermissionDenied) => Ok(()),
            Some(Code::NotFound) if fixed.is_none() => Ok(()),
            _ => Err(match of_error(&error) {
                Outcome::Retry { why, .. } | Outcome::Unknown(why) | Outcome::Reject(why) => why,
                _ => "Pub/Sub cannot be asked".into(),
            }),
        }
    }
}

#[async_trait]
impl Sink for PubsubSink {
    fn max_batch(&self) -> usize {
        MAX_BATCH
    }

    /// With ordering keys, in one topic. If topics come from data, messages of a key may go to several, and those are sent to
    /// at the same time.
    fn keeps_order(&self) -> bool {
        self.shared.config.ordering && self.topics.is_fixed()
    }

    /// An empty key is no ordering key.
    fn keeps_order_for(&self, message: &ClaimedMessage) -> bool {
        self.keeps_order() && message.key.as_deref().is_some_and(|key| !key.is_empty())
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let start = Instant::now();
        // Whoever gets no other outcome was surely not sent.
        let mut outcomes = vec![Outcome::retry("nothing was sent"); batch.len()];
        let lots = self.lots(batch, &mut outcomes);
        if lots.is_empty() {
            return outcomes;
        }
        let connection = match self.shared.connection().await {
            Ok(connection) => connection,
            Err(why) => {
                let unsent = lots.iter().flat_map(|lot| &lot.entries);
                unsent.for_each(|entry| outcomes[entry.at] = Outcome::retry(why.clone()));
                return outcomes;
            }
        };
        let trip = Trip::new(&self.shared, &connection, start);
        for (at, outcome) in join_all(lots.into_iter().map(|lot| trip.deliver(lot))).await.into_iter().flatten() {
            outcomes[at] = outcome;
        }
        if trip.is_lost() {
            self.shared.forget(&connection).await;
        }
        outcomes
    }

    /// Whether the service answers; a fixed topic must be there, as far as we may know that.
    async fn ready(&self) -> Result<(), String> {
        let deadline = Instant::now() + self.shared.config.connect_timeout;
        let connection = self.shared.connection().await?;
        match timeout_at(deadline, self.ask(&connection)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.shared.forget(&connection).await;
                Err("Pub/Sub did not answer within connect_timeout".into())
            }
        }
    }
}
