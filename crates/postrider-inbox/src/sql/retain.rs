//! Forgetting what is past its time, in small pieces, by the database's clock. Until then it counts as processed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Value;
use super::database::Database;
use super::inbox::SqlInbox;
use crate::InboxError;

/// Rows of each table that one transaction deletes.
const CHUNK: u32 = 1_000;

impl<DB: Database> SqlInbox<DB> {
    /// Deletes up to `limit` rows of each table whose time is past, the oldest first, and answers how many. What somebody
    /// has locked is left for the next time.
    pub async fn purge(&self, limit: u32) -> Result<u64, InboxError> {
        let statements = self.tables.statements::<DB>()?;
        let limit = [Value::Number(limit.into())];
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        let mut purged = 0;
        for purge in [&statements.purge_messages, &statements.purge_attempts] {
            if let Some(before) = &statements.before_purge {
                DB::change(&mut connection, before, &[]).await?;
            }
            purged += DB::change(&mut connection, purge, &limit).await?;
        }
        Ok(purged)
    }

    /// Deletes all rows whose time is past, a thousand of each table at a time, and answers how many.
    pub async fn purge_all(&self) -> Result<u64, InboxError> {
        let mut purged = 0;
        loop {
            match self.purge(CHUNK).await? {
                0 => return Ok(purged),
                some => purged += some,
            }
        }
    }

    /// Purges now and then until it is told to stop. Spawn it; one process is enough, more do no harm. An error is logged,
    /// and it is tried again at the next turn.
    pub async fn keep_clean(&self, interval: Duration, stop: CancellationToken) {
        let rounds = async {
            loop {
                match self.purge_all().await {
                    Ok(0) => {}
                    Ok(purged) => tracing::debug!(purged, table = self.tables.messages(), "the inbox was purged"),
                    Err(error) => {
                        let error = &error as &(dyn std::error::Error + 'static);
                        tracing::warn!(
                            error,
                            table = self.tables.messages(),
                            "the inbox was not purged; it is tried again"
                        );
                    }
                }
                tokio::time::sleep(interval).await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }
}
