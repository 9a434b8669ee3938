//! What becomes of finished rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider::state::State;
use postrider::store::{Delivered, Finished, Purge, Store};
use postrider::{Dispatcher, MemoryStore, Scope};

use crate::scene::{OnPostgres, Recorder, Running, enqueue, message, until};

#[tokio::test(start_paused = true)]
async fn delivered_rows_are_deleted_or_purged_by_age_as_configured() {
    let store = MemoryStore::new();
    let kept = enqueue(&store, message("order.placed").dedupe_key("order-1")).await;
    enqueue(&store, message("order.placed")).await;
    let builder = Dispatcher::builder(store.clone(), Recorder::accepting()).delivered(Delivered::Delete);
    let running = Running::start(builder.purge_delivered_after(Duration::from_secs(3600)));
    until("one is gone", || store.enqueued().len() == 1).await;
    until("the other is delivered", || store.enqueued()[0].status == State::Delivered).await;
    assert_eq!(store.enqueued()[0].id, kept, "a row with a dedupe key stays for late retries of its producer");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    assert!(store.enqueued().is_empty(), "it was not purged");
    let _ended = running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r41_purging_under_load_deletes_finished_rows_only_and_holds_no_lock_for_long() {
    let scene = OnPostgres::new().await;
    let old = "insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at, updated_at)
        select 'shop', 'old', '{}', 'delivered', 1, now() - interval '2 days', now() - interval '2 days'
        from generate_series(1, 20000);
        create table deleted (status text);
        create function note_deleted() returns trigger language plpgsql as
          $$ begin insert into deleted values (old.status); return old; end $$;
        create trigger note before delete on outbox_messages for each row execute function note_deleted()";
    sqlx::raw_sql(old).execute(&scene.pool).await.expect("rows");
    let stop = Arc::new(AtomicBool::new(false));
    let probe = tokio::spawn(probe(scene.pool.clone(), stop.clone()));
    let sink = Recorder::accepting();
    let running = Running::start(scene.dispatcher(sink));
    let purge = Purge {
        scope: Scope::all(),
        finished: Finished::Delivered,
        older_than: Duration::from_secs(3600),
        limit: 1_000,
    };
    let mut purged = 0;
    while purged < 20_000 {
        let _new = scene.enqueue(message("new")).await;
        purged += scene.store.purge(&purge).await.expect("a purge");
    }
    stop.store(true, Ordering::Relaxed);
    let probes = probe.await.expect("no probe waited for a lock over 100 ms");
    assert!(probes > 0);
    let _ended = running.stop().await;
    let others: i64 = sqlx::query_scalar("select count(*) from deleted where status <> 'delivered'")
        .fetch_one(&scene.pool)
        .await
        .expect("it can be read");
    assert_eq!(others, 0, "a row that was not finished was deleted");
}

/// Locks live rows again and again, each time for at most 100 ms.
async fn probe(pool: sqlx::PgPool, stop: Arc<AtomicBool>) -> usize {
    let mut probes = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut transaction = pool.begin().await.expect("a transaction begins");
        sqlx::query("set local lock_timeout = '100ms'").execute(&mut *transaction).await.expect("a setting");
        sqlx::query("select id from outbox_messages where status = 'pending' order by id limit 5 for update")
            .execute(&mut *transaction)
            .await
            .expect("the rows are not locked for longer than 100 ms");
        transaction.rollback().await.expect("it ends");
        probes += 1;
    }
    probes
}
