//! Consumers in several languages that do what a test tells them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use postrider_inbox::{Attempt, ConsumerName, Delivery, Entry, Guard, Inbox, InboxError};
use serde_json::{Value, json};
use testkit::brokers::{node, venv};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);
pub const CONSUMER: &str = "mailer";

/// What a test needs of a consumer, in whatever language.
#[allow(async_fn_in_trait)]
pub trait Party {
    /// Which language it is in, for messages.
    fn name(&self) -> &str;

    /// Takes a delivery and keeps it: `first`, `processed`, `in progress` or `stale`.
    async fn begin(&mut self, event: Uuid, attempt: Option<&str>) -> String;

    /// The handler succeeds: `ran`, or `lost`.
    async fn succeed(&mut self, event: Uuid) -> String;

    /// The handler fails.
    async fn fail(&mut self, event: Uuid);

    /// Asks whether it was processed, and marks it: `true`, `false` or `in progress`.
    async fn mark(&mut self, event: Uuid) -> String;
}

/// A guard whose handler has its effect.
#[allow(async_fn_in_trait)]
pub trait Acts: Guard {
    /// Writes that it was here, in the guard's transaction if it has one.
    async fn act(&mut self, event: Uuid);
}

/// A consumer in Rust.
pub struct Rust<I: Inbox> {
    inbox: I,
    guards: HashMap<Uuid, I::Guard>,
}

impl<I: Inbox> Rust<I> {
    pub fn new(inbox: I) -> Self {
        Self { inbox, guards: HashMap::new() }
    }
}

fn consumer() -> ConsumerName {
    ConsumerName::new(CONSUMER).expect("a plain name")
}

impl<I: Inbox<Guard: Acts>> Party for Rust<I> {
    fn name(&self) -> &str {
        "Rust"
    }

    async fn begin(&mut self, event: Uuid, attempt: Option<&str>) -> String {
        let mut delivery = Delivery::new(consumer(), event);
        if let Some(attempt) = attempt {
            delivery = delivery.with_attempt(attempt.parse::<Attempt>().expect("an attempt"));
        }
        let answer = match self.inbox.begin(&delivery).await.expect("it answers") {
            Entry::First(mut guard) => {
                guard.act(event).await;
                self.guards.insert(event, guard);
                "first"
            }
            Entry::InProgress(_) => "in progress",
            Entry::AlreadyProcessed => "processed",
            Entry::Stale { .. } => "stale",
        };
        answer.to_owned()
    }

    async fn succeed(&mut self, event: Uuid) -> String {
        match self.guards.remove(&event).expect("a guard").commit().await {
            Ok(()) => "ran".into(),
            Err(InboxError::Lost { .. }) => "lost".into(),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn fail(&mut self, event: Uuid) {
        // Somebody else may have it by now, which is as good.
        let _released = self.guards.remove(&event).expect("a guard").release().await;
    }

    async fn mark(&mut self, event: Uuid) -> String {
        match self.inbox.check_and_mark_processed(&consumer(), event, PATIENCE).await {
            Ok(already) => already.to_string(),
            Err(InboxError::InProgress { .. }) => "in progress".into(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A consumer in another language: a process that runs the modules of the guide.
pub struct Foreign {
    name: &'static str,
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Foreign {
    /// In Python, on an inbox of this kind at this address.
    pub async fn python(kind: &str, address: &str) -> Self {
        let python = tokio::task::spawn_blocking(venv::python).await.expect("it ran").expect("a Python");
        let mut command = Command::new(python);
        command.arg("-I").arg(here().join("consumer.py")).arg(modules().await).args([kind, address]);
        Self::start("Python", command)
    }

    /// In TypeScript, on an inbox of this kind at this address.
    pub async fn typescript(kind: &str, address: &str) -> Self {
        let mut command = Command::new("node");
        command.arg(modules().await.join("consumer.js")).args([kind, address]);
        Self::start("TypeScript", command)
    }

    fn start(name: &'static str, mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let stdin = child.stdin.take().expect("it listens");
        let stdout = BufReader::new(child.stdout.take().expect("it speaks")).lines();
        Self { name, _child: child, stdin, stdout }
    }

    /// Says something without waiting for the answer.
    pub async fn say(&mut self, line: Value) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it listens");
    }

    /// Says something; answers what is answered, or the name of the exception.
    pub async fn ask(&mut self, line: Value) -> Value {
        self.say(line.clone()).await;
        let answer = tokio::time::timeout(PATIENCE, self.stdout.next_line()).await.expect("it answers in time");
        let answer = answer.expect("text").unwrap_or_else(|| panic!("{} ended when it was told {line}", self.name));
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer.get("answer").or(answer.get("error")).expect("an answer").clone()
    }

    /// Settles a claim that was taken with [`Self::claim`]: commit, release or extend.
    pub async fn settle(&mut self, event: Uuid, how: &str) -> Value {
        self.ask(json!({ "do": "settle", "event": event, "how": how })).await
    }

    /// Takes a claim on Redis without a handler and without extending it.
    pub async fn claim(&mut self, event: Uuid) -> Value {
        self.ask(json!({ "do": "begin", "consumer": CONSUMER, "event": event })).await
    }
}

impl Party for Foreign {
    fn name(&self) -> &str {
        self.name
    }

    async fn begin(&mut self, event: Uuid, attempt: Option<&str>) -> String {
        let mut line = json!({ "do": "run", "consumer": CONSUMER, "event": event });
        if let Some(attempt) = attempt {
            line["attempt"] = attempt.into();
        }
        text(self.ask(line).await)
    }

    async fn succeed(&mut self, _: Uuid) -> String {
        match text(self.ask(json!({ "how": "succeed" })).await).as_str() {
            "ClaimLost" => "lost".into(),
            other => other.into(),
        }
    }

    async fn fail(&mut self, _: Uuid) {
        assert_eq!(self.ask(json!({ "how": "fail" })).await, "Told", "{}", self.name);
    }

    async fn mark(&mut self, event: Uuid) -> String {
        match self.ask(json!({ "do": "mark", "consumer": CONSUMER, "event": event })).await {
            Value::Bool(already) => already.to_string(),
            other if other == "InProgress" => "in progress".into(),
            other => panic!("{other}"),
        }
    }
}

fn text(value: Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages")
}

/// A directory with the modules of the guide as somebody has them who copied them: TypeScript compiled, scripts beside it.
async fn modules() -> &'static Path {
    static MODULES: OnceCell<PathBuf> = OnceCell::const_new();
    MODULES.get_or_init(|| async { tokio::task::spawn_blocking(copy).await.expect("it ran") }).await
}

fn copy() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![("consumer.ts".to_owned(), here().join("consumer.ts"))];
    for name in ["redis.py", "postgres.py", "sqlite.py", "redis.ts", "postgres.ts", "mysql.ts"] {
        let name = format!("consumer_{name}");
        let file = root.join("../../docs/snippets").join(&name);
        files.push((name, file));
    }
    for name in ["begin", "confirm", "extend", "mark", "release"] {
        files.push((format!("lua/{name}.lua"), root.join(format!("src/redis/{name}.lua"))));
    }
    node::compile(&files).expect("TypeScript is accepted")
}
