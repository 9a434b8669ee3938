//! For how long an event may be remembered.

use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Why an event cannot be remembered for such a time.
pub(crate) fn keep_problem(keep: Duration, longest: Duration, horizon: Option<Duration>) -> Option<String> {
    if keep < Duration::from_millis(1) || keep > longest {
        let years = longest.as_secs() / YEAR.as_secs();
        return Some(format!(
            "processed events cannot be kept for {keep:?}; use a time from 1 millisecond to {years} years"
        ));
    }
    let horizon = horizon.filter(|horizon| keep < *horizon)?;
    Some(format!(
        "processed events are kept for {keep:?}, but may be delivered again for {horizon:?} and would be handled twice; keep them for longer than that"
    ))
}
