//! The verbs: one script each, on one key, with a token that makes it safe to send again.

use std::time::Duration;

use postrider_core::sabotage::{self, Defect};
use redis::{ErrorKind, ServerErrorKind, Value};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::config::Settings;
use super::link::{Link, Links};
use super::outcome::{Kind, Problem};
use crate::{Attempt, ConsumerName};

/// How long to wait before a commit is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What one delivery claims, and the token by which it is known.
#[derive(Clone)]
pub(super) struct Claim {
    pub(super) consumer: ConsumerName,
    pub(super) event: Uuid,
    attempt: Option<Attempt>,
    key: String,
    token: String,
}

/// What `begin.lua` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// The claim is ours; it cannot run out before the claim time has passed from here.
    First(Instant),
    InProgress(Duration),
    Processed,
    Stale(Attempt),
}

/// What `mark.lua` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marked {
    First,
    InProgress,
    Processed,
}

/// The server, and what is asked of it.
pub(super) struct Verbs {
    pub(super) settings: Settings,
    links: Links,
    begin: Script,
    confirm: Script,
    release: Script,
    extend: Script,
    mark: Script,
    unmark: Script,
}

struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }

    /// Runs it by its hash, and by its text where that is not known, as after a restart.
    async fn run(&self, link: &Link, key: &str, arguments: &[&str]) -> redis::RedisResult<Value> {
        let command = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(1).arg(key).arg(arguments);
            command
        };
        match link.send(&command("EVALSHA", &self.hash)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.send(&command("EVAL", self.code)).await
            }
            answer => answer,
        }
    }
}

impl Verbs {
    pub(super) fn new(settings: Settings, links: Links) -> Self {
        Self {
            settings,
            links,
            begin: Script::new(sabotage::spoil(
                Defect::MarkBeforeHandling,
                include_str!("begin.lua"),
                "claimed(token, newest)",
                "'processed:' .. token",
            )),
            confirm: Script::new(sabotage::spoil(
                Defect::ConfirmWithoutToken,
                include_str!("confirm.lua"),
                "  return {'lost', ''}\n",
                "",
            )),
            release: Script::new(include_str!("release.lua")),
            extend: Script::new(include_str!("extend.lua")),
            mark: Script::new(include_str!("mark.lua")),
            unmark: Script::new(include_str!("unmark.lua")),
        }
    }

    /// A claim with a token that nobody else has.
    pub(super) fn claim(&self, consumer: &ConsumerName, event: Uuid, attempt: Option<Attempt>) -> Claim {
        let key = format!("{}:{consumer}:{event}", self.settings.prefix);
        Claim { consumer: consumer.clone(), event, attempt, key, token: Uuid::new_v4().simple().to_string() }
    }

    pub(super) async fn begin(&self, claim: &Claim) -> Result<Begun, Problem> {
        let mut asked = Instant::now();
        let arguments = [&claim.token, &millis(self.settings.claim), &attempt(claim)];
        let mut answer = self.ask(&self.begin, claim, &arguments).await;
        if is_worth_another_try(&answer) {
            asked = Instant::now();
            answer = self.ask(&self.begin, claim, &arguments).await;
        }
        let (word, detail) = answer?;
        match word.as_str() {
            "first" => Ok(Begun::First(asked)),
            "processed" => Ok(Begun::Processed),
            "in progress" => detail.parse().map(Duration::from_millis).map(Begun::InProgress).map_err(|_| strange()),
            "stale" => detail.parse().map(Begun::Stale).map_err(|_| strange()),
            _ => Err(strange()),
        }
    }

    /// Whether the event counts as processed now; if not, another has taken it.
    pub(super) async fn confirm(&self, claim: &Claim) -> Result<bool, Problem> {
        let arguments = [&claim.token, &millis(self.settings.keep), &attempt(claim)];
        self.say(&self.confirm, claim, &arguments, "processed").await
    }

    /// The same, again and again until there is an answer or the time is up.
    pub(super) async fn confirm_patiently(&self, claim: &Claim) -> Result<bool, Problem> {
        let arguments = [&claim.token, &millis(self.settings.keep), &attempt(claim)];
        self.say_patiently(&self.confirm, claim, &arguments, "processed").await
    }

    /// Says something again and again until there is an answer or the time of a commit is up.
    async fn say_patiently(
        &self,
        script: &Script,
        claim: &Claim,
        arguments: &[&String],
        yes: &str,
    ) -> Result<bool, Problem> {
        let deadline = Instant::now() + self.settings.commit_timeout;
        let mut pause = FIRST_PAUSE;
        let mut last = None;
        loop {
            match timeout_at(deadline, self.say(script, claim, arguments, yes)).await {
                Ok(Err(problem)) if problem.kind != Kind::Refused => last = Some(problem),
                Ok(answer) => return answer,
                Err(_) => return Err(last.unwrap_or_else(Problem::silent)),
            }
            tracing::debug!(event = %claim.event, consumer = %claim.consumer, why = ?last, yes, "it is tried again");
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Whether the next delivery may come; if not, it is there already.
    pub(super) async fn release(&self, claim: &Claim) -> Result<bool, Problem> {
        let arguments = [&claim.token, &millis(self.settings.keep)];
        self.say(&self.release, claim, &arguments, "released").await
    }

    /// Whether the claim is still ours and lasts longer; if not, another has it.
    pub(super) async fn extend(&self, claim: &Claim) -> Result<bool, Problem> {
        let arguments = [&claim.token, &millis(self.settings.claim), &attempt(claim)];
        self.say(&self.extend, claim, &arguments, "extended").await
    }

    /// The mark may have been made despite any problem but that of no connection.
    pub(super) async fn mark(&self, claim: &Claim, ttl: Duration) -> Result<Marked, Problem> {
        let arguments = [&claim.token, &millis(ttl)];
        let mut answer = self.ask(&self.mark, claim, &arguments).await;
        if is_worth_another_try(&answer) {
            answer = self.ask(&self.mark, claim, &arguments).await.map_err(Problem::after_a_try);
        }
        let (word, _) = answer?;
        match word.as_str() {
            "first" => Ok(Marked::First),
            "in progress" => Ok(Marked::InProgress),
            "processed" => Ok(Marked::Processed),
            _ => Err(strange()),
        }
    }

    /// Whether a mark was taken back, which is tried for as long as a commit; if not, it is not there or not ours.
    pub(super) async fn unmark(&self, claim: &Claim) -> Result<bool, Problem> {
        self.say_patiently(&self.unmark, claim, &[&claim.token], "unmarked").await
    }

    /// What every server says to a command, by its address.
    pub(super) async fn ask_servers(&self, command: redis::Cmd) -> Result<Vec<(String, Value)>, Problem> {
        self.on_link(async |link: &Link| link.send_to_all(command).await).await
    }

    async fn say(&self, script: &Script, claim: &Claim, arguments: &[&String], yes: &str) -> Result<bool, Problem> {
        match self.ask_again(script, claim, arguments).await?.0.as_str() {
            word if word == yes => Ok(true),
            "lost" => Ok(false),
            _ => Err(strange()),
        }
    }

    /// Asks, and once more on a new connection if the first one broke.
    async fn ask_again(
        &self,
        script: &Script,
        claim: &Claim,
        arguments: &[&String],
    ) -> Result<(String, String), Problem> {
        let answer = self.ask(script, claim, arguments).await;
        if is_worth_another_try(&answer) { self.ask(script, claim, arguments).await } else { answer }
    }

    async fn ask(&self, script: &Script, claim: &Claim, arguments: &[&String]) -> Result<(String, String), Problem> {
        let arguments: Vec<&str> = arguments.iter().map(|argument| argument.as_str()).collect();
        let value = self.on_link(async |link: &Link| script.run(link, &claim.key, &arguments).await).await?;
        redis::from_redis_value(value).map_err(|_| strange())
    }

    async fn on_link<T>(&self, send: impl AsyncFnOnce(&Link) -> redis::RedisResult<T>) -> Result<T, Problem> {
        let link = self.links.link().await?;
        let problem = match timeout(self.settings.response_timeout, send(&link)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Problem::of_answer(&error),
            Err(_) => Problem::silent(),
        };
        if problem.needs_another_connection() {
            self.links.retire(&link);
        }
        Err(problem)
    }
}

fn is_worth_another_try<T>(answer: &Result<T, Problem>) -> bool {
    matches!(answer, Err(problem) if problem.kind == Kind::Broken)
}

fn strange() -> Problem {
    Problem::new(Kind::Refused, "Redis answered with something that no script of the inbox answers")
}

fn attempt(claim: &Claim) -> String {
    claim.attempt.map(|attempt| attempt.to_string()).unwrap_or_default()
}

fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}
