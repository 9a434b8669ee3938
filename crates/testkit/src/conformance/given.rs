//! A message as plain data, so that Rust and other languages are given the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use postrider::Message;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// A payload.
#[derive(Clone)]
#[allow(missing_docs)] // the fields of a message
pub enum Body {
    /// JSON text.
    Json(String),
    Bytes {
        content_type: String,
        bytes: Vec<u8>,
    },
}

/// A message; the default has nothing but the necessary.
#[derive(Clone)]
#[allow(missing_docs)] // the fields of a message
pub struct Given {
    pub namespace: String,
    pub topic: String,
    pub key: Option<String>,
    pub tenant: Option<Uuid>,
    pub dedupe_key: Option<String>,
    pub body: Body,
    pub headers: Vec<(String, String)>,
    /// Seconds since 1970.
    pub deliver_at: Option<i64>,
    pub max_attempts: Option<u32>,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            namespace: "shop".into(),
            topic: "order.placed".into(),
            key: None,
            tenant: None,
            dedupe_key: None,
            body: Body::Json(r#"{"order": 7}"#.into()),
            headers: Vec::new(),
            deliver_at: None,
            max_attempts: None,
        }
    }
}

impl Given {
    /// What a Rust producer enqueues.
    pub fn message(&self) -> Result<Message> {
        let (namespace, topic) = (self.namespace.clone(), self.topic.clone());
        let mut message = match &self.body {
            Body::Json(text) => Message::json(namespace, topic, &RawValue::from_string(text.clone())?),
            Body::Bytes { content_type, bytes } => Message::bytes(namespace, topic, content_type, bytes.clone()),
        };
        for (name, value) in &self.headers {
            message = message.header(name, value);
        }
        if let Some(key) = &self.key {
            message = message.key(key);
        }
        if let Some(tenant) = self.tenant {
            message = message.tenant(tenant);
        }
        if let Some(key) = &self.dedupe_key {
            message = message.dedupe_key(key);
        }
        if let Some(attempts) = self.max_attempts {
            message = message.max_attempts(attempts);
        }
        Ok(match self.deliver_at {
            Some(seconds) => message.deliver_at(time(seconds)),
            None => message,
        })
    }

    /// The arguments of `postrider_enqueue`; JSON arguments are text in here.
    pub fn arguments(&self) -> Value {
        let headers: Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let (payload, bytes, content_type) = match &self.body {
            Body::Json(text) => (Some(text), None, None),
            Body::Bytes { content_type, bytes } => (None, Some(hex(bytes)), Some(content_type)),
        };
        json!({
            "namespace": self.namespace, "topic": self.topic, "payload": payload, "key": self.key,
            "tenant_id": self.tenant, "dedupe_key": self.dedupe_key, "headers": Value::Object(headers).to_string(),
            "deliver_at": self.deliver_at, "max_attempts": self.max_attempts, "payload_bytes": bytes,
            "content_type": content_type,
        })
    }
}

fn time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
