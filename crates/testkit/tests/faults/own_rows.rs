//! A dispatcher that claims its own rows again while it still publishes them.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::inside::{Inside, LEASE, bounds};
use super::scene::Scene;

const MESSAGES: usize = 10;

/// Refuses renewals: what changes a lease and nothing else.
const NO_RENEWAL: &str = "
create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no renewal today'; end $$;
create trigger no_renewal before update on outbox_messages for each row
when (old.status = new.status and old.attempts = new.attempts and old.locked_until is distinct from new.locked_until)
execute function refuse();";

/// The first attempt ends while the second is under way: what it settles must not count for the second.
#[tokio::test]
async fn r12_a_late_settle_after_the_same_worker_claimed_the_row_again_is_refused() -> Result<()> {
    let scene = Scene::new().await?;
    sqlx::raw_sql(NO_RENEWAL).execute(&scene.pool).await?;
    scene.enqueue("again", MESSAGES).await?;
    let relay = Inside::start(&scene, &scene.database.url(), LEASE * 3 / 2, |builder| builder).await?;
    scene.finished(Duration::from_secs(120)).await?;
    let (ended, _) = relay.stop().await?;
    ensure!(ended.abandoned == 0, "{ended:?}");
    let report = scene.check(bounds(MESSAGES as i64)).await?;
    ensure!(report.reclaims >= MESSAGES as i64, "it did not claim its rows again: {report:?}");
    Ok(())
}
