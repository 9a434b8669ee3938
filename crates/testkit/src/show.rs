//! What the programs in `examples/` have in common when they show what they promise: a list of criteria with how each was
//! seen, a dispatcher at work, a sink that is watched, a note of every version of every row, and a plain HTTP request.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use postrider::{BatchFor, ClaimedMessage, Dispatcher, Ended, Outcome, Sink};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What was shown so far. Each criterion is printed with how it was seen.
#[derive(Debug, Default)]
pub struct Proof {
    seen: usize,
    broken: usize,
    left_out: usize,
}

impl Proof {
    /// Something was looked at.
    pub fn see(&mut self, criterion: &str, how: &str, holds: bool) {
        self.seen += 1;
        self.broken += usize::from(!holds);
        println!("{}  {criterion}\n        {how}", if holds { "ok    " } else { "BROKEN" });
    }

    /// Something was tried: how it was seen, or what went wrong.
    pub fn tell(&mut self, criterion: &str, seen: Result<String>) {
        match seen {
            Ok(how) => self.see(criterion, &how, true),
            Err(why) => self.see(criterion, &format!("{why:#}"), false),
        }
    }

    /// Something cannot be shown here.
    pub fn leave_out(&mut self, criterion: &str, why: &str) {
        self.left_out += 1;
        println!("--      {criterion}\n        {why}");
    }

    /// Says how it went; an error unless all that was looked at holds.
    pub fn end(self) -> Result<()> {
        let Self { seen, broken, left_out } = self;
        let left_out = if left_out == 0 { String::new() } else { format!(" {left_out} could not be shown here.") };
        ensure!(broken == 0, "{broken} of {seen} do not hold.{left_out}");
        println!("\nAll {seen} hold.{left_out}");
        Ok(())
    }
}

/// A dispatcher at work. Dropped, it ends in the middle of whatever it does.
pub struct Running {
    task: JoinHandle<Ended>,
    stop: CancellationToken,
}

impl Running {
    /// Starts it.
    pub fn start(dispatcher: Dispatcher) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(dispatcher.run(stop.clone())), stop }
    }

    /// Lets it finish what it has begun; an error if something was cut off.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let Ended { abandoned } = (&mut self.task).await?;
        ensure!(abandoned == 0, "{abandoned} publishes were cut off");
        Ok(())
    }

    /// Cuts it off, and waits until it does nothing more.
    pub async fn cut_off(mut self) {
        self.task.abort();
        // The end is what was asked for, however it came about.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// SQL that notes every version of a table's rows on PostgreSQL in `history`: its number, the verb, and the row before and after
/// as JSON. What passes quickly can be looked at afterwards.
pub fn history(table: &str) -> String {
    format!(
        "create table history (no bigserial primary key, verb text not null, before jsonb, after jsonb not null);
         create function note() returns trigger language plpgsql security definer as $$ begin
           insert into public.history (verb, before, after)
           values (tg_op, case tg_op when 'UPDATE' then to_jsonb(old) end, to_jsonb(new));
           return new;
         end $$;
         create trigger history after insert or update on {table} for each row execute function note()"
    )
}

/// Asks a server on this machine; answers the code and the body.
pub async fn http(address: SocketAddr, method: &str, path: &str, json: Option<&str>) -> Result<(u16, String)> {
    let body = json.unwrap_or_default();
    let content = json.map(|body| format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{}\r\n",
        content.unwrap_or_default()
    );
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("nobody listens on {address}"))?;
    stream.write_all((head + body).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer.split(' ').nth(1).context("it is no HTTP")?.parse()?;
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// A way to a sink that notes who took what, and can be held up or keep its answers to itself. Clones share what they note.
#[derive(Clone)]
pub struct Watched {
    inner: Arc<dyn Sink>,
    name: &'static str,
    taken: Arc<Mutex<Vec<(&'static str, Uuid)>>>,
    held: watch::Sender<bool>,
    answers: bool,
}

impl Watched {
    /// Lets everything through.
    pub fn new(inner: Arc<dyn Sink>) -> Self {
        Self { inner, name: "", taken: Arc::default(), held: watch::Sender::new(false), answers: true }
    }

    /// The same for somebody of this name.
    pub fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// The same through another sink.
    pub fn through(&self, inner: Arc<dyn Sink>) -> Self {
        Self { inner, ..self.clone() }
    }

    /// Publishes, and never says so.
    pub fn without_answers(self) -> Self {
        Self { answers: false, ..self }
    }

    /// Takes everything and lets nothing through, or the end of that.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Who was given what.
    pub fn taken(&self) -> Vec<(&'static str, Uuid)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All that were given something.
    pub fn names(&self) -> HashSet<&'static str> {
        self.taken().into_iter().map(|(name, _)| name).collect()
    }
}

#[async_trait]
impl Sink for Watched {
    fn max_batch(&self) -> usize {
        self.inner.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.inner.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.inner.batch_for(message)
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    fn keeps_order_for(&self, message: &ClaimedMessage) -> bool {
        self.inner.keeps_order_for(message)
    }

    fn minds_outages(&self) -> bool {
        self.inner.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let ids = batch.iter().map(|message| (self.name, message.id));
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        // We hold the other end.
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        let outcomes = self.inner.publish(batch).await;
        if self.answers { outcomes } else { std::future::pending().await }
    }

    async fn ready(&self) -> Result<(), String> {
        self.inner.ready().await
    }
}
