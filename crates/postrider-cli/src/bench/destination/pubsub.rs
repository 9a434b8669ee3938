//! Google's emulator of Pub/Sub, a Java program that keeps everything in memory. It is asked in JSON, which it understands on the same
//! port as the sink's protocol.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_sinks::PubsubConfig;
use serde_json::{Value, json};
use uuid::Uuid;

use super::private::{Private, needed, program};
use super::{Client, Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;
use crate::config;

const PROJECT: &str = "postrider-bench";
/// Where the packages of Google's own repositories put it.
const USUAL: [&str; 2] = ["/usr/lib/google-cloud-sdk", "/usr/lib64/google-cloud-sdk"];
const BELOW: &str = "platform/pubsub-emulator/lib";
/// So many are read at once.
const TOGETHER: u32 = 1_000;

/// A Java and the emulator.
pub fn find() -> Result<(PathBuf, PathBuf)> {
    const EXAMPLE: &str = "pubsub=projects/PROJECT/topics/TOPIC";
    let jar = homes().iter().find_map(|home| jar(&home.join(BELOW))).with_context(|| {
        format!("the emulator of Pub/Sub (google-cloud-cli-pubsub-emulator) is not on this machine; install it, or name a topic that you have with --sink {EXAMPLE}")
    })?;
    Ok((needed("java", EXAMPLE)?, jar))
}

/// Where Google's tools may be: that of the program `gcloud`, and the usual places.
fn homes() -> Vec<PathBuf> {
    let gcloud = program("gcloud").and_then(|gcloud| gcloud.canonicalize().ok());
    let home = gcloud.and_then(|gcloud| Some(gcloud.parent()?.parent()?.to_path_buf()));
    home.into_iter().chain(USUAL.map(PathBuf::from)).collect()
}

fn jar(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|extension| extension == "jar"))
}

pub struct Emulator {
    client: Client,
    asker: Asker,
    _server: Private,
}

impl Emulator {
    pub async fn start() -> Result<Self> {
        let (java, jar) = find()?;
        let server = Private::start("listening on {port}", |port, directory| {
            let temporary = format!("-Djava.io.tmpdir={}", directory.display());
            let words = [OsString::from("-Xmx512m"), temporary.into(), "-jar".into(), jar.clone().into()];
            let place = ["--host=127.0.0.1".into(), format!("--port={port}").into()];
            Ok([java.clone().into()].into_iter().chain(words).chain(place).collect())
        });
        let server = server.await?;
        let mut pubsub = PubsubConfig::default();
        pubsub.project = PROJECT.into();
        pubsub.emulator = Some(format!("127.0.0.1:{}", server.port));
        let client = Client::new(&config::Sink::Pubsub(Box::new(pubsub)))?;
        let base = format!("http://127.0.0.1:{}/v1/projects/{PROJECT}", server.port);
        Ok(Self { client, asker: Asker { http: reqwest::Client::new(), base }, _server: server })
    }
}

#[async_trait]
impl Destination for Emulator {
    fn describe(&self) -> Described {
        Described { what: "Google's emulator of Pub/Sub".into(), counted_there: true }
    }

    async fn place(&self, _: &Arc<Ledger>) -> Result<Place> {
        let (asker, name) = (self.asker.clone(), format!("bench-{}", Uuid::now_v7()));
        asker.call(reqwest::Method::PUT, &format!("topics/{name}"), &json!({})).await?;
        let wanted = json!({ "topic": format!("projects/{PROJECT}/topics/{name}"), "ackDeadlineSeconds": 600 });
        asker.call(reqwest::Method::PUT, &format!("subscriptions/{name}"), &wanted).await?;
        Ok(Place::new(self.client.to(&name)?, Subscription { asker, name }))
    }
}

/// Asks in JSON.
#[derive(Clone)]
struct Asker {
    http: reqwest::Client,
    base: String,
}

impl Asker {
    async fn call(&self, method: reqwest::Method, path: &str, body: &Value) -> Result<Value> {
        let request = self.http.request(method, format!("{}/{path}", self.base));
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "the emulator answered {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }
}

struct Subscription {
    asker: Asker,
    name: String,
}

#[async_trait]
impl Reader for Subscription {
    async fn read(&mut self, arrivals: &Ledger) -> Result<()> {
        loop {
            let wanted = json!({ "maxMessages": TOGETHER, "returnImmediately": true });
            let pull = format!("subscriptions/{}:pull", self.name);
            let pulled = self.asker.call(reqwest::Method::POST, &pull, &wanted).await?;
            let messages = pulled["receivedMessages"].as_array().map(Vec::as_slice).unwrap_or_default();
            if messages.is_empty() {
                return Ok(());
            }
            for message in messages {
                let data = message["message"]["data"].as_str().unwrap_or_default();
                arrivals.note(&STANDARD.decode(data).unwrap_or_default());
            }
            let ids: Vec<&Value> = messages.iter().map(|message| &message["ackId"]).collect();
            let acknowledge = format!("subscriptions/{}:acknowledge", self.name);
            self.asker.call(reqwest::Method::POST, &acknowledge, &json!({ "ackIds": ids })).await?;
        }
    }
}
