//! For how long an event may be remembered.

use std::time::Duration;

/// Ten years, the longest time that anything is kept for: clocks and databases have an end.
pub(crate) const LONGEST_KEEP: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);

/// Why an event cannot be remembered for such a time, if it may be delivered again for as long as the horizon.
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) fn keep_problem(keep: Duration, horizon: Option<Duration>) -> Option<String> {
    if keep < Duration::from_millis(1) || keep > LONGEST_KEEP {
        return Some(format!("events cannot be kept for {keep:?}; give from 1 millisecond to ten years"));
    }
    let horizon = horizon.filter(|horizon| keep < *horizon)?;
    Some(format!(
        "events are kept for {keep:?}, but may be delivered again for {horizon:?}: a late duplicate would be handled again; keep them for at least that long"
    ))
}
