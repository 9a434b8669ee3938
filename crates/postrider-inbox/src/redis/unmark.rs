//! Taking back a mark whose caller did not learn of it.
//!
//! A mark may have been made although its call fails or is given up. Its event is not handled, so it must not count as
//! processed. This is done as well as possible: a process that dies, or a server that stays away for longer than a commit
//! is tried, leaves the mark.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::script::{Claim, Verbs};

/// Takes the mark back when it is dropped, unless the caller was told what to do.
pub(super) struct Unmark {
    verbs: Arc<Verbs>,
    claim: Option<Claim>,
}

impl Unmark {
    pub(super) fn new(verbs: &Arc<Verbs>, claim: &Claim) -> Self {
        Self { verbs: verbs.clone(), claim: Some(claim.clone()) }
    }

    /// There is nothing to take back.
    pub(super) fn forget(mut self) {
        self.claim = None;
    }
}

impl Drop for Unmark {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let (event, consumer) = (claim.event, claim.consumer.clone());
        let Ok(runtime) = Handle::try_current() else {
            tracing::warn!(%event, %consumer, "an event may count as processed although it was not handled");
            return;
        };
        let verbs = self.verbs.clone();
        runtime.spawn(async move {
            let mut answer = verbs.unmark(&claim).await;
            if let Ok(false) = answer {
                // What was sent over a connection that is given up may arrive after this.
                tokio::time::sleep(verbs.settings.response_timeout).await;
                answer = verbs.unmark(&claim).await;
            }
            if let Err(problem) = answer {
                tracing::warn!(%event, %consumer, why = %problem, "an event may count as processed although it was not handled");
            }
        });
    }
}
