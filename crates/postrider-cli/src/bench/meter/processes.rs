//! The CPU that a server on this machine has used, by `/proc`.

use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// How far the start of a process may be from what the server says, which counts whole seconds.
const TOLERANCE: f64 = 5.0;
/// What a PostgreSQL backend's title begins with.
const BACKEND: &str = "postgres: ";

/// A process and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    root: i32,
}

/// What `/proc/PID/stat` says, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    /// Of the process itself.
    own: u64,
    /// Of children that have ended and were waited for.
    ended: u64,
    started: u64,
}

impl Tree {
    /// The server of a PostgreSQL backend, if that backend is here and works for this database.
    pub fn of_backend(backend: i32, database: &str) -> Option<Self> {
        let title = fs::read(format!("/proc/{backend}/cmdline")).ok()?;
        let title = String::from_utf8_lossy(&title);
        let is_ours = title.starts_with(BACKEND) && title.contains(database);
        is_ours.then(|| Some(Self { root: Stat::of(backend)?.parent }))?
    }

    /// A server's only process, if it has run for as long as the server says.
    pub fn of_server(pid: i32, uptime: Duration) -> Option<Self> {
        let since_boot: f64 = fs::read_to_string("/proc/uptime").ok()?.split(' ').next()?.parse().ok()?;
        let runs_for = since_boot - seconds(Stat::of(pid)?.started)?.as_secs_f64();
        ((runs_for - uptime.as_secs_f64()).abs() < TOLERANCE).then_some(Self { root: pid })
    }

    /// All that it has used so far. A child that ends in between is counted by its parent from then on.
    pub fn cpu(&self) -> Option<Duration> {
        let root = Stat::of(self.root)?;
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let children = pids.filter(|pid| Stat::of(*pid).is_some_and(|stat| stat.parent == self.root));
        Some(seconds(root.own + root.ended)? + children.filter_map(on_cpu).sum::<Duration>())
    }
}

/// What a process with one thread has used. Clock ticks are a hundredth of a second each, which is more than a connection uses for
/// many a message, so the scheduler's own count is taken where there is one.
fn on_cpu(pid: i32) -> Option<Duration> {
    let exact = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let exact = exact.and_then(|text| text.split_whitespace().next()?.parse().ok());
    exact.map(Duration::from_nanos).or_else(|| seconds(Stat::of(pid)?.own))
}

/// Clock ticks as a time.
fn seconds(ticks: u64) -> Option<Duration> {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in brackets, may have anything in it; the fields after it are numbers.
    fn read(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: number(11)? + number(12)?,
            ended: number(13)? + number(14)?,
            started: number(19)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_no_obstacle() {
        let line = "7 (post) gres: x) S 3 7 7 0 -1 4194560 1 0 0 0 11 22 33 44 20 0 1 0 555 1 2";
        assert_eq!(Stat::read(line), Some(Stat { parent: 3, own: 33, ended: 77, started: 555 }));
        assert_eq!(Stat::read("7 (x) S 3"), None);
    }

    #[test]
    fn another_process_is_not_taken_for_the_server() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert_eq!(Tree::of_backend(own, "postrider_bench_x"), None);
        assert_eq!(Tree::of_server(own, Duration::from_secs(1_000_000)), None);
        assert_eq!(Tree::of_backend(-1, "x"), None);
    }

    #[test]
    fn this_process_has_used_some_time() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert!(Tree { root: own }.cpu().is_some());
    }
}
