//! How a server is started when the usual way does not do.

use std::path::PathBuf;

use anyhow::Result;

use super::MariaDb;

/// Settings that let many tests use a server. There is no binary log unless one is asked for.
const ALWAYS: &[(&str, &str)] = &[
    ("bind-address", "127.0.0.1"),
    ("max-connections", "400"),
    ("innodb-buffer-pool-size", "256M"),
    ("innodb-log-file-size", "128M"),
    ("skip-name-resolve", "1"),
];

/// Settings that give up durability for speed.
const FAST: &[(&str, &str)] =
    &[("innodb-flush-log-at-trx-commit", "0"), ("sync-binlog", "0"), ("innodb-doublewrite", "0")];

/// Options of a private server; see [`MariaDb::builder`].
#[derive(Debug, Clone, Default)]
pub struct MariaDbOptions {
    durable: bool,
    settings: Vec<(String, String)>,
    pub(super) parent: Option<PathBuf>,
}

impl MariaDbOptions {
    /// Leaves syncing on, so that commits survive a crash and benchmarks tell the truth.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Sets a server variable; wins over the defaults of this module.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts the data directory under `parent`, for instance on a certain disk, instead of the temporary directory.
    pub fn directory(mut self, parent: impl Into<PathBuf>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// Starts the server.
    pub async fn start(self) -> Result<MariaDb> {
        MariaDb::start_with(self).await
    }

    /// The lines of an option file. Later lines win, so those of the caller come last.
    pub(super) fn configuration(&self) -> String {
        let fast = if self.durable { &[] } else { FAST };
        let ours = ALWAYS.iter().chain(fast).map(|(name, value)| line(name, value));
        let callers = self.settings.iter().map(|(name, value)| line(name, value));
        std::iter::once("[mariadbd]\n".to_owned()).chain(ours).chain(callers).collect()
    }
}

/// One line of an option file; a value is quoted so that nothing in it begins a comment.
fn line(name: &str, value: &str) -> String {
    format!("{name} = \"{value}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durable_mode_leaves_syncing_alone() {
        assert!(MariaDb::builder().configuration().contains("flush-log-at-trx-commit = \"0\""));
        assert!(!MariaDb::builder().durable().configuration().contains("flush-log"));
    }

    #[test]
    fn settings_of_the_caller_come_last() {
        let text = MariaDb::builder().setting("max-connections", "7").configuration();
        assert!(text.ends_with("max-connections = \"7\"\n"));
    }
}
