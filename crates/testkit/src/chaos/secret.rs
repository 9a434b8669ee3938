//! I10: secrets and payload markers that must not be printed anywhere.
//!
//! They are planted in the relays' configurations and in every message, and looked for in all that relays print.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};

/// The relays' password at the database.
pub const DATABASE_PASSWORD: &str = "canary-of-the-database";
/// The relays' password at the broker.
pub const BROKER_PASSWORD: &str = "canary-of-the-broker";
/// A word in every payload.
pub const PAYLOAD: &str = "canary-of-the-payload";
/// The value of a header of every message.
pub const HEADER: &str = "canary-of-the-header";

/// What all of them begin with.
const CANARY: &str = "canary-of-the-";
/// What a line is cut down to in a report.
const SHOWN: usize = 300;

/// The lines of a text that hold a secret.
pub fn leaks(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.contains(CANARY)).map(|line| line.chars().take(SHOWN).collect())
}

/// What one pass over a file of a relay finds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    /// Lines with a secret.
    pub leaks: Vec<String>,
    /// Lines that tell of a settle that was refused.
    pub leases_lost: usize,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads a file line by line; logs at the level of traces are large.
pub fn search(file: &Path) -> Result<Found> {
    let mut reader = BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?);
    let (mut found, mut line) = (Found::default(), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        found.leaks.extend(leaks(&text));
        found.leases_lost += usize::from(text.contains("\"message\":\"lease lost"));
        found.bytes += line.len() as u64;
        line.clear();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i10_finds_each_secret_and_counts_lost_leases() -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let text = format!(
            "{{\"message\":\"fine\"}}\n{{\"url\":\"{DATABASE_PASSWORD}\"}}\n{{\"message\":\"lease lost: somebody else\"}}\n\
             {BROKER_PASSWORD}\n{PAYLOAD}\n{HEADER}"
        );
        std::fs::write(file.path(), &text)?;
        let found = search(file.path())?;
        assert_eq!((found.leaks.len(), found.leases_lost, found.bytes), (4, 1, text.len() as u64));
        Ok(())
    }
}
