//! A receiver in this process, so its own work is part of the CPU that is measured, on both sides alike.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use axum::body::Bytes;
use axum::http::Uri;
use axum::response::IntoResponse;
use postrider_sinks::HttpConfig;
use tokio::task::JoinSet;

use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

pub struct Receiver;

impl Receiver {
    pub async fn start() -> Result<Self> {
        Ok(Self)
    }
}

#[async_trait]
impl Destination for Receiver {
    fn describe(&self) -> Described {
        Described { what: "a receiver in this process".into(), counted_there: true }
    }

    async fn place(&self, arrivals: &Arc<Ledger>) -> Result<Place> {
        let arrivals = arrivals.clone();
        let listening = Listening::start(move |_, body| {
            arrivals.note(&body);
            ""
        });
        let listening = listening.await?;
        let sink = Client::new(&config::Sink::Http(Box::new(settings())))?.to(&listening.url)?;
        Ok(Place::new(sink, listening))
    }
}

/// Loopback is not a public address, so it must be allowed.
pub fn settings() -> HttpConfig {
    let mut http = HttpConfig::default();
    http.allow_addresses = vec!["127.0.0.0/8".into(), "::1".into()];
    http
}

/// A server on loopback, until it is dropped.
pub struct Listening {
    pub url: String,
    _serving: JoinSet<()>,
}

impl Listening {
    /// Answers every request with status 200 and what is made from its address and body.
    pub async fn start<A: IntoResponse + Send + 'static>(
        answer: impl Fn(&Uri, Bytes) -> A + Clone + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app = axum::Router::new().fallback(move |uri: Uri, body: Bytes| {
            let answered = answer(&uri, body);
            async move { answered }
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // It ends with this set, and never by itself.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, _serving: serving })
    }
}

/// What arrived was noted when it did, before the answer.
#[async_trait]
impl Reader for Listening {
    async fn read(&mut self, _: &Ledger) -> Result<()> {
        Ok(())
    }
}
