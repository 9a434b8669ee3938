//! From `enqueue` in a transaction, through a relay that delivers everything several times, to a handler that writes in the
//! guard's own transaction: its effect is there exactly once, although every third handler fails after it.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consumers::redis_streams::{Settings, run};
use consumers::{Consumer, Handler, Pause, keep};
use postrider::inbox::{Delivery, InboxTables, PostgresGuard, PostgresInbox};
use sqlx::PgPool;
use support::{Broker, PATIENCE, PAUSE, Redis, STREAM, Scene, name, stuttering};
use testkit::{Postgres, eventually};
use tokio_util::sync::CancellationToken;

const EVENTS: i64 = 200;

/// Writes its effect in the guard's transaction, and fails now and then after that.
#[derive(Clone, Default)]
struct Ledger(Arc<AtomicUsize>);

impl Handler<PostgresGuard> for Ledger {
    type Error = sqlx::Error;

    async fn handle(&self, delivery: &Delivery, _: &[u8], guard: &mut PostgresGuard) -> Result<(), sqlx::Error> {
        let effect = sqlx::query("insert into effects (event) values ($1)").bind(delivery.event);
        effect.execute(&mut **guard.transaction()).await?;
        match self.0.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => Err(sqlx::Error::Protocol("it fails, as this test wants it to".into())),
            _ => Ok(()),
        }
    }
}

/// How many effects there are, and of how many events.
async fn effects(pool: &PgPool) -> (i64, i64) {
    sqlx::query_as("select count(*), count(distinct event) from effects").fetch_one(pool).await.expect("it counts")
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_an_effect_in_the_inbox_s_database_happens_exactly_once() {
    let database = Postgres::shared().await.expect("PostgreSQL").create_database().await.expect("a database");
    let pool = database.pool().await.expect("a pool");
    sqlx::query("create table effects (event uuid not null)").execute(&pool).await.expect("created");
    let inbox = PostgresInbox::new(pool.clone(), InboxTables::default());
    inbox.migrate().await.expect("migrated");
    let scene = Scene::<Redis>::start().await;
    scene.outbox.enqueue(usize::try_from(EVENTS).expect("a number")).await;
    let _relay = scene.outbox.relay(stuttering(scene.broker.sink()));
    let (ledger, stop) = (Ledger::default(), CancellationToken::new());
    let start = |number: usize| {
        let pause = Pause { shortest: PAUSE, longest: PAUSE, failed: PAUSE };
        let consumer = Consumer::new(name(), inbox.clone(), ledger.clone()).pause(pause);
        let (url, member, group) = (scene.broker.server.url(), format!("process-{number}"), name().to_string());
        let settings = Settings { url, stream: STREAM.into(), group, member, at_once: 4, idle: PAUSE };
        let stop = stop.clone();
        tokio::spawn(async move { keep(&stop, PAUSE, || run(&consumer, &settings, stop.clone())).await })
    };
    let (dies, lives) = (start(0), start(1));
    eventually(PATIENCE, || async { effects(&pool).await.1 > EVENTS / 4 }).await;
    dies.abort();
    eventually(PATIENCE, || async { effects(&pool).await.1 == EVENTS }).await;
    scene.settled().await;
    stop.cancel();
    lives.await.expect("it ends well");
    assert_eq!(effects(&pool).await, (EVENTS, EVENTS));
    assert!(ledger.0.load(Ordering::SeqCst) > usize::try_from(EVENTS).expect("a number"), "no handler failed");
}
