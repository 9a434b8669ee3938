//! How a server is started when the usual way does not do.

use std::path::PathBuf;

use anyhow::Result;

use super::Postgres;

/// Settings that make a server fast and let many tests use it.
const ALWAYS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("max_connections", "300"),
    ("shared_buffers", "128MB"),
];

/// Settings that give up durability for speed.
const FAST: &[(&str, &str)] = &[("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")];

/// Options of a private server; see [`Postgres::builder`].
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    durable: bool,
    settings: Vec<(String, String)>,
    pub(super) parent: Option<PathBuf>,
}

impl PostgresOptions {
    /// Leaves syncing on, so that commits survive a crash and benchmarks tell the truth.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Sets a parameter of `postgresql.conf`; wins over the defaults of this module.
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
    pub async fn start(self) -> Result<Postgres> {
        Postgres::start_with(self).await
    }

    /// The lines for `postgresql.conf`. Later lines win, so those of the caller come last.
    pub(super) fn configuration(&self) -> String {
        let fast = if self.durable { &[] } else { FAST };
        let ours = ALWAYS.iter().chain(fast).map(|(name, value)| line(name, value));
        let callers = self.settings.iter().map(|(name, value)| line(name, value));
        ours.chain(callers).collect()
    }
}

/// One line of `postgresql.conf`, with the value quoted.
pub(super) fn line(name: &str, value: &str) -> String {
    format!("{name} = '{}'\n", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durable_mode_leaves_syncing_alone() {
        assert!(Postgres::builder().configuration().contains("fsync = 'off'"));
        let durable = Postgres::builder().durable().configuration();
        assert!(
            !durable.contains("fsync") && !durable.contains("synchronous_commit") && !durable.contains("full_page")
        );
    }

    #[test]
    fn settings_of_the_caller_come_last_and_are_quoted() {
        let text =
            Postgres::builder().setting("shared_buffers", "1GB").setting("log_line_prefix", "it's").configuration();
        assert!(text.ends_with("shared_buffers = '1GB'\nlog_line_prefix = 'it''s'\n"));
    }
}
