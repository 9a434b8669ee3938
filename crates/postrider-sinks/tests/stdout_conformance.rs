//! The conformance suite of sinks, kept by the sink `stdout` on a writer.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{ClaimedMessage, Payload, Sink};
use postrider_sinks::{Format, StdoutConfig, StdoutSink};
use serde_json::Value;
use testkit::sinks::{Ability, Arrival, Broker, of_payload};

/// What a terminal shows; it may be held up.
#[derive(Clone, Default)]
struct Terminal(Arc<Mutex<Screen>>);

#[derive(Default)]
struct Screen {
    text: Vec<u8>,
    full: bool,
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut screen = self.0.lock().expect("not poisoned");
        if screen.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        screen.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line in the words of the suite.
fn arrival(line: &str) -> Arrival {
    let line: Value = serde_json::from_str(line).expect("each line is JSON");
    let fields = line.as_object().expect("an object");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut headers: std::collections::BTreeMap<String, String> =
        fields.iter().map(|(name, value)| (name.replace("content_type", "content-type"), text(value))).collect();
    if fields.contains_key("aggregate_type") {
        headers.insert("aggregate_id".into(), text(&line["key"]));
    }
    for (name, value) in line["headers"].as_object().into_iter().flatten() {
        let taken = headers.contains_key(name);
        headers.insert(if taken { format!("postrider-header-{name}") } else { name.clone() }, text(value));
    }
    let body = match line["payload_base64"].as_str() {
        Some(bytes) => STANDARD.decode(bytes).expect("base64"),
        None => line["payload"].to_string().into_bytes(),
    };
    Arrival { body, headers, key: line["key"].as_str().map(str::to_owned) }
}

#[async_trait]
impl Broker for Terminal {
    async fn start() -> Self {
        Self::default()
    }

    async fn sink(&self, _: Format, _: Duration) -> Arc<dyn Sink> {
        Arc::new(StdoutSink::with_writer(&StdoutConfig::default(), self.clone()))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let text = String::from_utf8(self.0.lock().expect("not poisoned").text.clone()).expect("text");
        // After a write that failed a line break ends what may have been begun.
        text.lines().filter(|line| !line.is_empty()).map(arrival).collect()
    }

    async fn stop(&self) {}

    async fn restart(&self) {}

    async fn obstruct(&self) {
        self.0.lock().expect("not poisoned").full = true;
    }

    async fn clear(&self) {
        self.0.lock().expect("not poisoned").full = false;
    }

    async fn silence(&self) {}

    async fn speak(&self) {}

    fn poison(&self) -> ClaimedMessage {
        of_payload(Payload::Json("{ this is no JSON".into()))
    }

    fn too_large(&self) -> usize {
        0
    }

    fn cannot(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Silence => Some("standard output does not answer"),
            Ability::Restart => Some("a reader that is gone does not come back"),
            Ability::Limit => Some("a line may be as long as it likes"),
            Ability::Formats => Some("lines have a format of their own"),
            _ => None,
        }
    }
}

testkit::sink_conformance!(Terminal);
