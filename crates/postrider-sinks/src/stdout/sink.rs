//! Writing JSON lines.

use std::borrow::Cow;
use std::fmt;
use std::io::{Error, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::config::StdoutConfig;
use super::outcome::{CLOSED, of_error};
use crate::wire::Attributes;

/// The most lines written before a flush.
const MAX_BATCH: usize = 100;

/// Writes each message as one line of JSON. Lines are whole also with concurrent callers, and a message counts as
/// accepted once its line is flushed.
pub struct StdoutSink {
    config: StdoutConfig,
    /// Held while a thread writes, so that a reader that does not read holds up one thread and not many.
    writer: Arc<Mutex<Lines>>,
    closed: AtomicBool,
}

struct Lines {
    writer: Box<dyn Write + Send>,
    /// The last write ended within a line.
    torn: bool,
}

impl fmt::Debug for StdoutSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdoutSink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        Self::new()
    }
}

impl StdoutSink {
    /// A sink on standard output, with payloads.
    pub fn new() -> Self {
        Self::with_writer(&StdoutConfig::default(), std::io::stdout())
    }

    /// A sink on standard output.
    pub fn with_config(config: &StdoutConfig) -> Self {
        Self::with_writer(config, std::io::stdout())
    }

    /// A sink on any writer.
    pub fn with_writer(config: &StdoutConfig, writer: impl Write + Send + 'static) -> Self {
        let lines = Lines { writer: Box::new(writer), torn: false };
        Self { config: config.clone(), writer: Arc::new(Mutex::new(lines)), closed: AtomicBool::new(false) }
    }

    async fn write(&self, lines: Vec<String>) -> Result<(), (usize, Error)> {
        let mut writer = self.writer.clone().lock_owned().await;
        let written = tokio::task::spawn_blocking(move || writer.write(&lines)).await;
        let written = written.unwrap_or_else(|_| Err((0, Error::other("the writer panicked"))));
        if let Err((_, error)) = &written
            && error.kind() == ErrorKind::BrokenPipe
        {
            self.closed.store(true, Ordering::Relaxed);
        }
        written
    }
}

impl Lines {
    /// Writes and flushes; an error comes with the number of lines that were begun.
    fn write(&mut self, lines: &[String]) -> Result<(), (usize, Error)> {
        let mut begun = 0;
        let mut all = || {
            if self.torn {
                self.writer.write_all(b"\n")?;
                self.torn = false;
            }
            for line in lines {
                (begun, self.torn) = (begun + 1, true);
                self.writer.write_all(line.as_bytes())?;
                self.torn = false;
            }
            self.writer.flush()
        };
        let written = all();
        written.map_err(|error| (begun, error))
    }
}

#[async_trait]
impl Sink for StdoutSink {
    fn max_batch(&self) -> usize {
        MAX_BATCH
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let made: Vec<Result<String, Outcome>> = batch.iter().map(|message| line(message, &self.config)).collect();
        let lines: Vec<String> = made.iter().filter_map(|line| line.clone().ok()).collect();
        let written = match lines.is_empty() {
            true => Ok(()),
            false => self.write(lines).await,
        };
        let mut at = 0;
        let mut outcome = |line: Result<String, Outcome>| {
            line.map(|_| {
                at += 1;
                match &written {
                    Ok(()) => Outcome::Accepted,
                    Err((begun, error)) => of_error(error, at <= *begun),
                }
            })
        };
        made.into_iter().map(|line| outcome(line).unwrap_or_else(|refused| refused)).collect()
    }

    async fn ready(&self) -> Result<(), String> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err(CLOSED.into()),
            false => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    event_id: uuid::Uuid,
    event_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<&'a str>,
    namespace: &'a str,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<uuid::Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<&'a str>,
    attempt: i32,
    created_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<std::collections::BTreeMap<&'a str, &'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The line of a message with its line break, or why it has none.
fn line(message: &ClaimedMessage, config: &StdoutConfig) -> Result<String, Outcome> {
    let attributes = Attributes::of(message);
    let (mut json, mut base64) = (None, None);
    match attributes.payload() {
        _ if !config.payload => {}
        Payload::Json(text) => json = Some(on_one_line(text)?),
        Payload::Bytes(bytes) => base64 = Some(STANDARD.encode(bytes)),
    }
    let raw = json.as_deref().map(serde_json::from_str::<&RawValue>).transpose();
    let raw = raw.map_err(|_| not_json())?;
    let line = Line {
        event_id: attributes.id,
        event_type: attributes.event_type,
        aggregate_type: attributes.aggregate_type,
        namespace: attributes.namespace,
        topic: attributes.topic,
        key: attributes.key,
        tenant_id: attributes.tenant,
        dedupe_key: attributes.dedupe_key,
        attempt: attributes.attempt,
        created_at: &attributes.created,
        replayed: attributes.replayed,
        traceparent: attributes.traceparent,
        tracestate: attributes.tracestate,
        content_type: attributes.content_type,
        headers: config.payload.then(|| attributes.headers().collect()),
        payload: raw,
        payload_base64: base64,
    };
    let text = serde_json::to_string(&line);
    text.map(|text| text + "\n").map_err(|_| Outcome::Unsendable("it cannot be written as JSON".into()))
}

/// Some databases keep JSON as it was written, line breaks included. In valid JSON they stand between values only, so
/// that a space does as well.
fn on_one_line(json: &str) -> Result<Cow<'_, str>, Outcome> {
    if !json.contains(['\n', '\r']) {
        return Ok(Cow::Borrowed(json));
    }
    serde_json::from_str::<&RawValue>(json).map_err(|_| not_json())?;
    Ok(Cow::Owned(json.replace(['\n', '\r'], " ")))
}

fn not_json() -> Outcome {
    Outcome::Unsendable("its payload is not JSON".into())
}
