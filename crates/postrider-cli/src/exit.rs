//! How the program ends.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; `run` stopped as it was told to |
//! | 1 | failed: the database, a sink or the work itself; `doctor` found a problem; a message of `bench` was lost, repeated or out of order |
//! | 2 | wrong usage or a configuration that was refused; nothing was done |
//! | 3 | `run` stopped, but publishes were still under way when the grace period was over; their leases decide |
//! | 128 + n | `run` was told twice to stop, by signal n, and ended at once; `bench` was told once |

use std::process::ExitCode;

use postrider::StoreError;
use postrider_changelog::ChangelogError;

/// Publishes were abandoned.
pub const ABANDONED: u8 = 3;
/// What a second signal adds its number to.
pub const BY_SIGNAL: i32 = 128;

/// Why the program could not do what it was told to.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
}

impl Failure {
    /// The work failed.
    pub fn failed(what: impl Into<String>) -> Self {
        Self { code: 1, what: what.into() }
    }

    /// The program was called wrongly; nothing was done.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { code: 2, what: what.into() }
    }
}

impl Failure {
    /// The same, with something said before it.
    pub fn after(mut self, before: &str) -> Self {
        self.what.insert_str(0, before);
        self
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::failed(with_causes(&error))
    }
}

impl From<ChangelogError> for Failure {
    fn from(error: ChangelogError) -> Self {
        Self::failed(with_causes(&error))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

/// An error with what caused it, each said once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Says what went wrong, on standard error, and gives the exit code.
pub fn report(failure: &Failure) -> ExitCode {
    eprintln!("postrider: {}", failure.what);
    failure.into()
}
