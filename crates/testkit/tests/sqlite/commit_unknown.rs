//! r02: a producer gives up in the middle of a commit and tries again with the same dedupe key.

use std::pin::pin;

use anyhow::Result;
use postrider::Enqueued;

use super::scene::{OnFile, message};

const ROUNDS: usize = 50;
/// A commit may be over before it was given up; such a round shows nothing and is made up for.
const MOST_ROUNDS: usize = 4 * ROUNDS;

#[tokio::test]
async fn r02_a_retry_after_a_commit_that_was_given_up_finds_the_first_message() -> Result<()> {
    let scene = OnFile::new().await;
    let (outbox, mut found, mut unknown, mut round) = (scene.store.outbox(), 0, 0, 0);
    while unknown < ROUNDS {
        round += 1;
        assert!(round <= MOST_ROUNDS, "only {unknown} producers did not learn what happened");
        let first = message().dedupe_key(format!("round {round}"));
        let first_id = first.id();
        let mut transaction = scene.store.pool().begin_with("begin immediate").await?;
        outbox.enqueue(&mut transaction, first).await?;
        // Sent to the thread that has the file, and not waited for.
        {
            let commit = pin!(transaction.commit());
            unknown += usize::from(futures::poll!(commit).is_pending());
        }
        let second = message().dedupe_key(format!("round {round}"));
        let second_id = second.id();
        let mut transaction = scene.store.pool().begin_with("begin immediate").await?;
        match outbox.enqueue(&mut transaction, second).await? {
            Enqueued::New(id) => assert_eq!(id, second_id, "the first was rolled back"),
            Enqueued::Already(id) => {
                assert_eq!(id, first_id);
                found += 1;
            }
        }
        transaction.commit().await?;
    }
    println!("r02: {found} of {round} commits went through");
    let rows: i64 = sqlx::query_scalar("select count(*) from outbox_messages").fetch_one(scene.store.pool()).await?;
    assert_eq!(rows, i64::try_from(round)?);
    Ok(())
}
