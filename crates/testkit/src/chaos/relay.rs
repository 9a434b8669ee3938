//! The relays of a run: real `postrider run` processes, one for each place, and those that were there before.
//!
//! Promise: a relay ends with the process that started it, also when that is killed: `setpriv` has the kernel see to it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::Command;

use super::broker::Broker;
use super::place::Place;
use super::plan::Plan;
use super::secret::{self, Found};
use crate::Signal;
use crate::pid::has_ended;
use crate::relay::Relay;

/// How long a claim lasts where faults are about; short, so that what a dead relay held comes again soon.
pub const LEASE: Duration = Duration::from_secs(4);
/// Each relay's leases are longer than those of the one before it by this, so that they tell whose a claim is.
const LONGER: Duration = Duration::from_millis(1);
/// After so many relays they begin anew; what the first one claimed is long over.
const LENGTHS: usize = 500;
/// How long it lasts where none are: nothing may look like one, however busy the machine is.
const GENTLE_LEASE: Duration = Duration::from_secs(60);
/// How long a publish may take, likewise.
const PUBLISH: Duration = Duration::from_secs(2);
const GENTLE_PUBLISH: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_secs(20);
/// Attempts allowed; nothing in a run comes near.
pub const MAX_ATTEMPTS: i32 = 200;

/// How relays are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a claim lasts at least.
    pub lease: Duration,
    /// Rows per claim; a relay has up to four times as many in its hand.
    pub batch: usize,
    concurrency: usize,
    /// How long a publish may take before its outcome is unknown.
    pub publish: Duration,
}

impl Settings {
    /// Those for a plan: without kills there is no bound to keep small, and large batches are quick.
    pub fn of(plan: &Plan) -> Self {
        match plan.is_gentle() {
            true => Self { lease: GENTLE_LEASE, batch: 200, concurrency: 32, publish: GENTLE_PUBLISH },
            false => Self { lease: LEASE, batch: 16, concurrency: 16, publish: PUBLISH },
        }
    }

    /// The most messages that a relay has claimed and not settled: what a fault of it may repeat.
    pub fn in_flight(&self) -> usize {
        self.batch * 4
    }

    /// How long after its end a lease may stand: two polls and a sweep interval.
    pub fn overdue(&self) -> Duration {
        2 * POLL + self.lease_of(LENGTHS - 1) / 2
    }

    /// How long the claims of a process last, by its number.
    fn lease_of(&self, number: usize) -> Duration {
        self.lease + LONGER * u32::try_from(number % LENGTHS).unwrap_or(0)
    }
}

/// One process.
pub struct Member {
    /// The process.
    pub relay: Relay,
    /// Its account at the database, which no other process has.
    pub account: String,
    /// How long its claims last, as those of no other.
    pub lease: Duration,
    /// Whether nothing came between it and the database so far, so that it knows all that it did there.
    pub is_untouched: bool,
}

/// All relays of a run.
pub struct Fleet {
    plan: Plan,
    settings: Settings,
    directory: TempDir,
    /// Those that run, by place.
    pub members: Vec<Member>,
    started: usize,
    /// What those printed that have ended.
    ended: BTreeMap<String, Found>,
}

impl Fleet {
    /// Starts the relays of a plan and waits until all deliver.
    pub async fn start(plan: &Plan, place: &Place, broker: &Broker) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("postrider-chaos-").tempdir()?;
        let settings = Settings::of(plan);
        let (members, ended) = (Vec::new(), BTreeMap::new());
        let mut fleet = Self { plan: plan.clone(), settings, directory, members, started: 0, ended };
        for _ in 0..plan.relays {
            let member = fleet.launch(place, broker).await?;
            fleet.members.push(member);
        }
        for member in &fleet.members {
            member.relay.until_it_delivers().await?;
        }
        Ok(fleet)
    }

    /// How they are configured.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// How many processes there were so far.
    pub fn started(&self) -> usize {
        self.started
    }

    /// Starts another relay, which has no place yet, without waiting for it.
    pub async fn launch(&mut self, place: &Place, broker: &Broker) -> Result<Member> {
        self.started += 1;
        let account = format!("relay_{}", self.started);
        place.admit(&account).await?;
        let file = self.directory.path().join(format!("{account}.toml"));
        let lease = self.settings.lease_of(self.started);
        let text = self.configuration(&place.relay_url(&account), lease, &broker.configuration(self.settings.publish));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.plan.binary).args(["run", "--config"]).arg(&file);
        command.env_remove("POSTRIDER_DATABASE_URL");
        let relay = Relay::start(command).context("are the tools of the Debian package util-linux there?")?;
        Ok(Member { relay, account, lease, is_untouched: true })
    }

    fn configuration(&self, url: &str, lease: Duration, sink: &str) -> String {
        let Settings { batch, concurrency, publish, .. } = self.settings;
        format!(
            "[relay]\nshutdown_grace = \"{}s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\nlevel = \"{}\"\n\n\
             [source.chaos]\nurl = \"{url}\"\nconnections = 4\norder = \"key\"\nbatch_size = {batch}\n\
             concurrency = {concurrency}\npoll_interval = \"{}ms\"\nlease = \"{}ms\"\npublish_timeout = \"{}s\"\n\
             max_attempts = {MAX_ATTEMPTS}\nretry_base = \"100ms\"\nretry_max = \"1s\"\n\n{sink}",
            GRACE.as_secs(),
            self.plan.log_level,
            POLL.as_millis(),
            lease.as_millis(),
            publish.as_secs() + 1,
        )
    }

    /// Kills the relay in a place with SIGKILL, and gives the place to another; answers how many messages the dead one held.
    pub async fn kill(&mut self, at: usize, next: Member, place: &Place) -> Result<usize> {
        let mut old = std::mem::replace(&mut self.members[at], next);
        old.relay.signal(Signal::SIGKILL)?;
        old.relay.ended(GRACE).await?;
        let held = place.held(old.lease).await?;
        self.bury(old).await?;
        Ok(held)
    }

    /// Gives a place to another relay, and stops the one that was there in good order.
    pub async fn replace(&mut self, at: usize, next: Member) -> Result<()> {
        let old = std::mem::replace(&mut self.members[at], next);
        self.retire(old).await
    }

    /// Those that have ended although nobody ended them.
    pub fn gone(&self) -> Vec<String> {
        let pid = |member: &Member| i32::try_from(member.relay.pid().ok()?).ok().map(Pid::from_raw);
        let is_gone = |member: &&Member| pid(member).is_none_or(has_ended);
        self.members.iter().filter(is_gone).map(|member| member.account.clone()).collect()
    }

    /// Stops all of them in good order; answers what all that ever ran printed.
    pub async fn stop(mut self) -> Result<BTreeMap<String, Found>> {
        for member in std::mem::take(&mut self.members) {
            self.retire(member).await?;
        }
        Ok(self.ended)
    }

    async fn retire(&mut self, mut member: Member) -> Result<()> {
        let code = member.relay.stop().await?;
        let tail = || member.relay.log().lines().rev().take(5).collect::<Vec<_>>().join("\n");
        ensure!(code == 0, "R27: {} was told to stop and ended with {code}:\n{}", member.account, tail());
        self.bury(member).await
    }

    /// Looks through what an ended relay printed; its files go with it.
    async fn bury(&mut self, member: Member) -> Result<()> {
        let directory = member.relay.directory().to_path_buf();
        if let Some(keep) = &self.plan.keep {
            std::fs::create_dir_all(keep)?;
            std::fs::copy(directory.join("err"), keep.join(format!("{}.log", member.account)))?;
        }
        let found = tokio::task::spawn_blocking(move || printed(&directory)).await??;
        self.ended.insert(member.account, found);
        Ok(())
    }

    /// Where the configurations are.
    pub fn configuration_of(&self, account: &str) -> PathBuf {
        self.directory.path().join(format!("{account}.toml"))
    }
}

fn printed(directory: &Path) -> Result<Found> {
    let mut found = secret::search(&directory.join("err"))?;
    let out = secret::search(&directory.join("out"))?;
    found.leaks.extend(out.leaks);
    found.bytes += out.bytes;
    Ok(found)
}
