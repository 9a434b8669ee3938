//! The adapter for Slack, to an endpoint in this process that answers as Slack does. No other program plays Slack.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use postrider::store::Payload;
use postrider::{BatchFor, ClaimedMessage, Outcome, Sink};
use postrider_sinks::ProviderConfig;
use postrider_sinks::provider::SlackConfig;
use postrider_sinks::setting::Secret;
use serde::Deserialize;
use serde_json::json;

use super::http::Listening;
use super::{Client, Described, Destination, Place};
use crate::bench::ledger::Ledger;
use crate::config;

/// What sends a message.
const METHOD: &str = "/chat.postMessage";

pub struct Slack;

impl Slack {
    pub async fn start() -> Result<Self> {
        Ok(Self)
    }
}

#[async_trait]
impl Destination for Slack {
    fn describe(&self) -> Described {
        Described { what: "an endpoint in this process that answers as Slack does".into(), counted_there: true }
    }

    async fn place(&self, arrivals: &Arc<Ledger>) -> Result<Place> {
        let arrivals = arrivals.clone();
        let listening = Listening::start(move |uri, body| {
            // It is also asked who the token is.
            if uri.path().ends_with(METHOD) {
                arrivals.note(said(&body).as_bytes());
            }
            ([(CONTENT_TYPE, "application/json")], r#"{"ok":true}"#)
        });
        let listening = listening.await?;
        let mut slack = SlackConfig::new(Secret::new("bench"));
        slack.endpoint.clone_from(&listening.url);
        let mut provider = ProviderConfig::default();
        provider.allow_addresses = vec!["127.0.0.0/8".into()];
        provider.slack = Some(slack);
        let sink = Client::new(&config::Sink::Provider(Box::new(provider)))?.anywhere()?;
        Ok(Place::new(Arc::new(Addressed { sink }), listening))
    }
}

/// The text of a request; nothing if there is none.
fn said(body: &Bytes) -> String {
    #[derive(Deserialize)]
    struct Request {
        text: String,
    }
    serde_json::from_slice::<Request>(body).map(|request| request.text).unwrap_or_default()
}

/// Makes of a letter a message to somebody: its payload is the text.
struct Addressed {
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl Sink for Addressed {
    fn max_batch(&self) -> usize {
        self.sink.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.sink.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.sink.batch_for(message)
    }

    fn minds_outages(&self) -> bool {
        self.sink.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let addressed: Vec<ClaimedMessage> = batch.iter().map(addressed).collect();
        self.sink.publish(&addressed).await
    }

    async fn ready(&self) -> Result<(), String> {
        self.sink.ready().await
    }
}

fn addressed(letter: &ClaimedMessage) -> ClaimedMessage {
    let mut message = letter.clone();
    let text = String::from_utf8_lossy(letter.payload.as_bytes());
    message.payload = Payload::Json(json!({ "text": text }).to_string());
    message.headers.extend([("provider".into(), "slack".into()), ("recipient".into(), "C0BENCH".into())]);
    message
}
