//! r02: the answer to COMMIT is lost, and the producer tries again with the same dedupe key.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use postrider::Enqueued;
use sqlx::{Connection, PgConnection};
use testkit::{Mode, Postgres, Proxy};

use super::fixture::{Fixture, order};

const ROUNDS: u64 = 50;

#[tokio::test]
async fn r02_a_retry_after_a_lost_commit_finds_the_first_message() -> Result<()> {
    let fixture = Fixture::new().await?;
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, Postgres::shared().await?.port()));
    let proxy = Proxy::start(upstream).await?;
    let url = fixture.database.url_via(proxy.port());
    for round in 0..ROUNDS {
        // in the even rounds the answer is lost, in the odd ones the commit itself
        let reaches_the_database = round % 2 == 0;
        let key = format!("round {round}");
        let first = order(round).dedupe_key(&key);
        let first_id = first.id();
        let mut connection = PgConnection::connect(&url).await?;
        let mut transaction = connection.begin().await?;
        assert_eq!(fixture.outbox.enqueue(&mut transaction, first).await?, Enqueued::New(first_id));
        if reaches_the_database {
            proxy.cut_reply_containing(b"COMMIT\0");
        } else {
            proxy.set(Mode::Reset);
        }
        assert!(transaction.commit().await.is_err(), "the producer must not learn what happened");
        proxy.set(Mode::Pass);

        let second = order(round).dedupe_key(&key);
        let second_id = second.id();
        let expected = if reaches_the_database { Enqueued::Already(first_id) } else { Enqueued::New(second_id) };
        assert_eq!(fixture.enqueue(second).await?, expected, "round {round}");
    }
    assert_eq!(fixture.count("select count(distinct dedupe_key) from outbox_messages").await?, 50);
    assert_eq!(fixture.ids().await?.len(), 50);
    Ok(())
}
