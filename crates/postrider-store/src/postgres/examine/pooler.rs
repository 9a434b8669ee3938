//! Whether a pooler in transaction mode is in between.
//!
//! Two connections are open at the same time. If the server calls both by the same process id, they share it, and
//! somebody in between gives it to whoever has a transaction. A pooler gives out the connection that was used last, so
//! the second one gets the first one's unless others are busy; a few tries make up for that.

use postrider_core::operate::Finding;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::PostgresStore;

const TRIES: usize = 5;

pub(super) async fn look(store: &PostgresStore) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "pooler";
    let shared = is_shared(store).await?;
    Ok(match (shared, store.runner.behind_pooler) {
        (true, false) => Finding::problem(
            NAME,
            "a pooler in transaction mode is between us and the server, and this source does not know: prepared statements fail and no bell rings",
            "set behind_pooler for this source (in code PostgresStore::behind_pooler, with statement_cache_capacity(0)), or connect to the server itself",
        ),
        (false, true) => Finding::warning(
            NAME,
            "behind_pooler is set, but each connection keeps its server: messages wait for the next poll without need",
            "leave behind_pooler out if no pooler in transaction mode is in between",
        ),
        (true, true) => Finding::fine(NAME, "a pooler in transaction mode is in between, and this source knows"),
        (false, false) => {
            Finding::fine(NAME, "each connection keeps its server, no pooler in transaction mode was noticed")
        }
    })
}

async fn is_shared(store: &PostgresStore) -> Result<bool, sqlx::Error> {
    let options = store.runner.pool.connect_options();
    let mut first = options.connect().await?;
    let mut second = options.connect().await?;
    let mut shared = false;
    for _ in 0..TRIES {
        let (one, two) = (pid(&mut first).await?, pid(&mut second).await?);
        if one == two {
            shared = true;
            break;
        }
    }
    first.close().await?;
    second.close().await?;
    Ok(shared)
}

/// In a transaction, because asking takes several messages.
async fn pid(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let pid = sqlx::query_scalar("select pg_backend_pid()").persistent(false).fetch_one(&mut *transaction).await?;
    transaction.rollback().await?;
    Ok(pid)
}
