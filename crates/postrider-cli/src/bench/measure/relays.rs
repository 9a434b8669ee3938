//! Several relays on one database, each in a process of its own.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::drain::settled;
use super::{Outcome, Stage, fill};
use crate::bench::ledger::Ledger;
use crate::bench::meter::{Measured, Meter};
use crate::bench::relay::{Said, Told, VARIABLE};
use crate::bench::server::{Site, Table};

/// No news for so long means that nothing comes any more.
const STALLED_AFTER: std::time::Duration = std::time::Duration::from_secs(90);

pub async fn run(stage: Stage<'_>, site: &dyn Site) -> Result<Outcome> {
    fill(stage, site, Table::Ours).await?;
    site.settle_down().await?;
    let with = &stage.scenario.with;
    let mut relays = Vec::new();
    for _ in 0..with.relays {
        relays.push(Process::start(&Told { url: site.url().to_owned(), with: with.clone() }).await?);
    }
    let ledger = Arc::new(Ledger::new(with.messages, with));
    let meter = Meter::start(stage.server).await?;
    let complete = until_all_arrived(&mut relays, with.messages).await;
    let mut ended = Vec::new();
    for relay in relays {
        ended.push(relay.stop().await?);
    }
    let measured = meter.stop(with.messages).await?;
    complete?;
    let (mut cpu, mut peak, mut abandoned) = (0.0, None, 0);
    for said in ended {
        let Said::Ended { bits, faults, cpu_us, peak_memory, abandoned: cut_off } = said else { continue };
        ledger.merge(&bits, faults);
        cpu += cpu_us;
        peak = peak.max(peak_memory);
        abandoned += cut_off;
    }
    let mut broken = ledger.verdict();
    broken.extend(settled(site, abandoned).await?);
    let measured = Measured { own_cpu_us: cpu / f64::from(with.messages.max(1)), peak_memory: peak, ..measured };
    Ok(Outcome { measured, broken })
}

/// Lets all begin at once, and adds up what they say until it is enough.
async fn until_all_arrived(relays: &mut [Process], messages: u32) -> Result<()> {
    let (said, mut news) = mpsc::unbounded_channel();
    let mut listening = JoinSet::new();
    for (at, relay) in relays.iter_mut().enumerate() {
        relay.orders.as_mut().context("a relay was stopped already")?.write_all(b"go\n").await?;
        let (said, mut lines) = (said.clone(), relay.lines.take().context("a relay is listened to already")?);
        let enough = relay.enough.clone();
        listening.spawn(async move {
            loop {
                let line = tokio::select! {
                    line = lines.next_line() => line,
                    () = enough.cancelled() => return (at, Ok(lines)),
                };
                match line.map_err(anyhow::Error::from).and_then(|line| Said::read(line.as_deref())) {
                    Ok(Said::Arrived { count }) => drop(said.send((at, count))),
                    Ok(_) => return (at, Err(anyhow::anyhow!("a relay ended by itself"))),
                    Err(error) => return (at, Err(error)),
                }
            }
        });
    }
    drop(said);
    let mut counts = vec![0; relays.len()];
    while counts.iter().sum::<u32>() < messages {
        match tokio::time::timeout(STALLED_AFTER, news.recv()).await {
            Ok(Some((at, count))) => counts[at] = count,
            Ok(None) => break,
            Err(_) => bail!("{} of {messages} messages never arrived", messages - counts.iter().sum::<u32>()),
        }
    }
    relays.iter().for_each(|relay| relay.enough.cancel());
    while let Some(ended) = listening.join_next().await {
        let (at, lines) = ended?;
        relays[at].lines = Some(lines?);
    }
    Ok(())
}

/// A relay in another process, which ends with this one.
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    enough: tokio_util::sync::CancellationToken,
}

impl Process {
    /// Starts it and waits until it is connected.
    async fn start(told: &Told) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "relay"])
            // Not by an argument, which everybody could read: the address may have a password in it.
            .env(VARIABLE, serde_json::to_string(told)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("a relay cannot be started")?;
        let orders = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().context("a relay has no output")?).lines();
        match Said::read(lines.next_line().await?.as_deref())? {
            Said::Ready => Ok(Self { child, orders, lines: Some(lines), enough: Default::default() }),
            _ => bail!("a relay did not get ready"),
        }
    }

    /// Closes its orders, and reads what it says last.
    async fn stop(mut self) -> Result<Said> {
        drop(self.orders.take());
        let mut lines = self.lines.take().context("a relay did not work to its end")?;
        loop {
            match Said::read(lines.next_line().await?.as_deref())? {
                Said::Ended { bits, faults, cpu_us, peak_memory, abandoned } => {
                    self.child.wait().await?;
                    return Ok(Said::Ended { bits, faults, cpu_us, peak_memory, abandoned });
                }
                _ => continue,
            }
        }
    }
}
