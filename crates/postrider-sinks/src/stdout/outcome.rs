//! What a failed write means for the messages of a batch.
//!
//! | what happened | outcome |
//! |---|---|
//! | all lines written and flushed | accepted |
//! | the reader closed the pipe | retry, and the sink is not ready any more |
//! | another error, lines written before it | unknown |
//! | another error, lines after it | retry |
//! | the line cannot be made (payload is not JSON) | unsendable |

use std::io::{Error, ErrorKind};

use postrider_core::Outcome;

/// The outcome of a message whose line was begun (or not) when writing failed.
pub(super) fn of_error(error: &Error, begun: bool) -> Outcome {
    match error.kind() {
        ErrorKind::BrokenPipe => Outcome::retry(CLOSED),
        kind if begun => Outcome::Unknown(format!("writing to standard output failed: {kind}")),
        kind => Outcome::retry(format!("writing to standard output failed: {kind}")),
    }
}

/// Why the sink is not ready once its reader is gone.
pub(super) const CLOSED: &str = "standard output is closed: whoever read it is gone";
