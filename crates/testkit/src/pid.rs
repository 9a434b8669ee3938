//! Questions about processes, answered from `/proc`.
//!
//! Only ask about processes that this test process has started: numbers of others may be reused at any time.

use std::fs;

use nix::unistd::Pid;

/// True when the process is gone, or is a zombie that only waits to be reaped.
pub(crate) fn has_ended(pid: Pid) -> bool {
    stat(pid).is_none_or(|(state, _)| state == 'Z')
}

/// The processes whose parent is `parent`.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent))
        .collect()
}

/// State and parent of a process.
fn stat(pid: Pid) -> Option<(char, Pid)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the second field is the name in parentheses, and may itself contain spaces and parentheses
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, Pid::from_raw(fields.next()?.parse().ok()?)))
}
