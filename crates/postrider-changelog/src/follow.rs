//! Entries as they are committed, without an end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream};

use crate::{After, ChangelogError, Cursor, DEFAULT_LIMIT, Entry, Reader};

/// How a changelog is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowConfig {
    /// How often to look for new entries when there were none.
    pub poll_interval: Duration,
    /// How many entries are read at a time.
    pub page: u32,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self { poll_interval: Duration::from_millis(200), page: DEFAULT_LIMIT }
    }
}

/// Every entry after a place, each with the cursor to go on from; it never ends by itself. After an error it looks again
/// from where it was, so whoever goes on reading misses nothing.
pub fn follow(
    reader: Arc<dyn Reader>,
    after: After,
    config: FollowConfig,
) -> impl Stream<Item = Result<(Entry, Cursor), ChangelogError>> + Send {
    let start = Following { reader, after, config, read: VecDeque::new(), wait: false };
    stream::unfold(start, |mut following| async move {
        let next = following.next().await;
        Some((next, following))
    })
}

struct Following {
    reader: Arc<dyn Reader>,
    after: After,
    config: FollowConfig,
    read: VecDeque<(Entry, Cursor)>,
    /// Whether to wait before the next look, because the last one found nothing or failed.
    wait: bool,
}

impl Following {
    async fn next(&mut self) -> Result<(Entry, Cursor), ChangelogError> {
        loop {
            if let Some(next) = self.read.pop_front() {
                return Ok(next);
            }
            if std::mem::replace(&mut self.wait, true) {
                tokio::time::sleep(self.config.poll_interval).await;
            }
            let page = self.reader.list(self.after, self.config.page).await?;
            self.after = page.next.into();
            self.wait = !page.more;
            let store = page.store;
            let with_cursor = |entry: Entry| {
                let cursor = Cursor::at(store, &entry);
                (entry, cursor)
            };
            self.read = page.entries.into_iter().map(with_cursor).collect();
        }
    }
}
