//! Work that goes on when who waits for it gives up.

use std::sync::{Mutex, PoisonError};

use postrider_core::store::{StoreError, StoreErrorKind};
use tokio::sync::watch;

/// How it ended, for everybody who waits; nothing while it goes on.
type Outcome = Option<Result<(), (StoreErrorKind, String)>>;

/// Work in a task of its own, at most once at a time: who comes while it goes on waits for the same.
#[derive(Debug, Default)]
pub(super) struct Flight(Mutex<Option<watch::Receiver<Outcome>>>);

impl Flight {
    /// Waits for the work that goes on, or else begins this one and waits for it.
    pub async fn join(
        &self,
        work: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) -> Result<(), StoreError> {
        let mut outcome = self.current_or(work);
        let ended = outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        match ended {
            Ok(Some(Err((kind, text)))) => Err(StoreError::new(kind, text)),
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "the store's task for noting and repairing times stopped half way; it is tried again",
            )),
        }
    }

    fn current_or(
        &self,
        work: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) -> watch::Receiver<Outcome> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |outcome: &&watch::Receiver<Outcome>| outcome.borrow().is_none() && outcome.has_changed().is_ok();
        if let Some(outcome) = current.as_ref().filter(goes_on) {
            return outcome.clone();
        }
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            let ended = work.await.map_err(|error| (error.kind(), with_cause(&error)));
            sender.send_replace(Some(ended));
        });
        current.insert(receiver).clone()
    }
}

/// An error's text with that of its cause, because the cause itself cannot be given to several who wait.
fn with_cause(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
