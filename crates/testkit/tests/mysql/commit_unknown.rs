//! r02: the answer to COMMIT is lost, and the producer tries again with the same dedupe key.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use postrider::Enqueued;
use sqlx::{Connection, MySqlConnection};
use testkit::{MariaDb, Mode, Proxy};

use super::scene::{OnMySql, message};

const ROUNDS: usize = 50;
/// How an answer begins that says "done" to a statement which touched no row: seven bytes, the first packet.
const DONE: [u8; 7] = [7, 0, 0, 1, 0, 0, 0];

#[tokio::test]
async fn r02_a_retry_after_a_lost_commit_finds_the_first_message() -> Result<()> {
    let scene = OnMySql::new().await;
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, MariaDb::shared().await?.port()));
    let proxy = Proxy::start(upstream).await?;
    let url = scene.database.url_via(proxy.port());
    for round in 0..ROUNDS {
        // in the even rounds the answer is lost, in the odd ones the commit itself
        let reaches_the_database = round % 2 == 0;
        let first = message().dedupe_key(format!("round {round}"));
        let first_id = first.id();
        let mut connection = MySqlConnection::connect(&url).await?;
        let mut transaction = connection.begin().await?;
        let outbox = scene.store.outbox();
        assert_eq!(outbox.enqueue(&mut transaction, first).await?, Enqueued::New(first_id));
        if reaches_the_database {
            proxy.cut_reply_containing(&DONE);
        } else {
            proxy.set(Mode::Reset);
        }
        assert!(transaction.commit().await.is_err(), "the producer must not learn what happened");
        proxy.set(Mode::Pass);

        let second = message().dedupe_key(format!("round {round}"));
        let expected = if reaches_the_database { Enqueued::Already(first_id) } else { Enqueued::New(second.id()) };
        assert_eq!(scene.enqueue(&scene.pool, vec![second]).await?, [expected], "round {round}");
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from outbox_messages").fetch_one(&scene.pool).await?;
    assert_eq!(rows, i64::try_from(ROUNDS)?);
    Ok(())
}
