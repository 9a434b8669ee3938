//! Every statement is prepared on the real server, and none reads the whole table or more of an index than it needs.

use std::time::Duration;

use postrider::mysql::statements::{EnqueueStatements, StoreStatements};
use postrider::operate::{Change, Filter};
use postrider::store::{ClaimOrder, ClaimRequest, Delivered, Finished, Nack, Order, Purge, Scope};
use postrider::{Layout, Operator, Store};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr};
use uuid::Uuid;

use crate::scene::{OnMySql, replay, request};

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let scene = OnMySql::new().await;
    let (store, producer) =
        (StoreStatements::render(&Layout::default()), EnqueueStatements::render(&Layout::default()));
    let all: Vec<_> = store.all().into_iter().chain(producer.all()).collect();
    assert!(all.len() > 100, "{}", all.len());
    for (name, sql) in all {
        assert!(!sql.contains('{'), "{name} has a placeholder left:\n{sql}");
        let prepared = scene.pool.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{name}: {:?}\n{sql}", prepared.err());
    }
}

/// Fills a table with finished rows, and a few of the others.
async fn fill(scene: &OnMySql, pending: u32) {
    let digits = "(select 0 as d union all select 1 union all select 2 union all select 3 union all select 4 union all select 5 union all select 6 union all select 7 union all select 8 union all select 9)";
    let numbers = format!("select 1 from {digits} as a, {digits} as b, {digits} as c, {digits} as d, {digits} as e");
    scene.execute(format!("insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at, updated_at)
        select 'shop', 'order', '{{}}', 'delivered', 1, utc_timestamp(6), timestampadd(hour, -1, utc_timestamp(6)) from ({numbers}) as many")).await;
    scene
        .execute(format!(
            "insert into outbox_messages (namespace, topic, payload)
        select 'shop', 'order', '{{}}' from ({numbers} limit {pending}) as many"
        ))
        .await;
    scene.execute(format!("insert into outbox_messages (namespace, topic, payload, status, attempts, updated_at)
        select 'shop', 'order', '{{}}', 'dead', 1, timestampadd(hour, -1, utc_timestamp(6)) from ({numbers} limit 200) as many")).await;
    scene.execute(format!("insert into outbox_messages (namespace, topic, payload, status, attempts, locked_by, locked_until)
        select 'shop', 'order', '{{}}', 'processing', 1, '{}', timestampadd(hour, 1, utc_timestamp(6)) from ({numbers} limit 50) as many", Uuid::new_v4())).await;
}

/// How many rows and index entries a verb made the server read. There is one connection, so its counters are the verb's.
async fn reads<T>(scene: &OnMySql, verb: impl Future<Output = T>) -> (u64, T) {
    (&scene.pool).execute("flush status").await.expect("counters are reset");
    let answer = verb.await;
    let rows = (&scene.pool).fetch_all("show session status like 'Handler_read%'").await.expect("counters");
    let sum = rows.iter().map(|row| row.get::<String, _>(1).parse::<u64>().expect("a number")).sum();
    (sum, answer)
}

#[tokio::test]
async fn r40_no_verb_reads_more_than_its_rows_beside_100_000_finished_ones() {
    let scene = OnMySql::with(|options| options.max_connections(1)).await;
    fill(&scene, 20_000).await;
    for analyzed in [false, true] {
        if analyzed {
            scene.execute("analyze table outbox_messages").await;
        }
        check(&scene, analyzed).await;
    }
}

async fn check(scene: &OnMySql, analyzed: bool) {
    let store = &scene.store;
    let shop = Scope { namespaces: Some(vec!["none".into(), "shop".into()]), tenant: None };
    let mut counts = Vec::new();
    for scope in [Scope::all(), shop] {
        let ten = ClaimRequest { limit: 10, scope: scope.clone(), ..request() };
        let (count, claimed) = reads(scene, store.claim(&ten)).await;
        let messages = claimed.expect("claimed").messages;
        assert_eq!(messages.len(), 10);
        counts.push(("claim", count));
        let leases: Vec<_> = messages.iter().map(|message| message.lease).collect();
        let (count, renewed) = reads(scene, store.extend(&leases, Duration::from_secs(60))).await;
        assert!(renewed.expect("renewed").iter().all(Option::is_some));
        counts.push(("extend", count));
        let nacks: Vec<_> = leases[..3]
            .iter()
            .map(|lease| Nack { lease: *lease, delay: Duration::from_secs(60), error: "no".into() })
            .collect();
        counts.push(("nack", reads(scene, async { store.nack(&nacks).await.expect("nacked") }).await.0));
        counts.push((
            "ack",
            reads(scene, async { store.ack(&leases[3..6], Delivered::Keep).await.expect("acked") }).await.0,
        ));
        counts.push((
            "ack with loss",
            reads(scene, async { store.ack(&leases, Delivered::Keep).await.expect("acked") }).await.0,
        ));
        let fair = ClaimRequest { order: ClaimOrder::Fair { after: None }, ..ten.clone() };
        let (count, claimed) = reads(scene, store.claim(&fair)).await;
        assert_eq!(claimed.expect("claimed").messages.len(), 10);
        counts.push(("fair claim", count));
        let suspects = ClaimRequest { order: ClaimOrder::Suspects, ..ten };
        counts.push((
            "suspects",
            reads(scene, async { store.claim(&suspects).await.expect("claimed").messages }).await.0,
        ));
        counts.push(("next_due", reads(scene, async { store.next_due(&scope).await.expect("looked") }).await.0));
        for finished in [Finished::Delivered, Finished::Dead] {
            let purge = Purge { scope: scope.clone(), finished, older_than: Duration::from_secs(60), limit: 10 };
            let (count, purged) = reads(scene, store.purge(&purge)).await;
            assert_eq!(purged.expect("purged"), 10);
            counts.push(("purge", count));
        }
        let replay = replay(scope.clone(), 5);
        counts.push(("replay", reads(scene, async { store.replay(&replay).await.expect("replayed") }).await.0));
        let filter = Filter { scope: scope.clone(), ..Filter::default() };
        let named = Filter { ids: Some(vec![Uuid::new_v4()]), ..filter.clone() };
        counts.push(("dead by id", reads(scene, async { store.dead(&named, None, 5).await.expect("listed") }).await.0));
        let discard = Change { filter: filter.clone(), ..replay.clone() };
        counts.push(("discard", reads(scene, async { store.discard(&discard).await.expect("discarded") }).await.0));
        counts.push(("message", reads(scene, async { store.message(Uuid::new_v4()).await.expect("looked") }).await.0));
        counts.push(("audit", reads(scene, async { store.audit(5).await.expect("read") }).await.0));
        // There are 200 dead rows at first.
        let (count, listed) = reads(scene, store.dead(&filter, None, 5)).await;
        assert_eq!(listed.expect("listed").len(), 5);
        assert!(count < 1_000, "the list read {count} rows, analyzed {analyzed}");
        let (count, dead) = reads(scene, store.count_dead(&filter)).await;
        assert!(dead.expect("counted") > 100);
        assert!(count < 1_000, "the count of dead rows read {count} rows, analyzed {analyzed}");
        // Looks at the first thousand due rows of each namespace, and at their keys.
        let (count, swept) = reads(scene, store.sweep(&scope, 5, 10)).await;
        swept.expect("swept");
        assert!(count < 5_000, "the sweep read {count} rows, analyzed {analyzed}");
        // Counts what waits, runs and is dead, but not what is delivered.
        let (count, stats) = reads(scene, store.stats(&scope)).await;
        assert!(stats.expect("counted").pending > 19_000);
        assert!(count < 25_000, "the count read {count} rows, analyzed {analyzed}");
        let (count, tallies) = reads(scene, store.overview(&scope, false)).await;
        assert_eq!(tallies.expect("counted").len(), 3);
        assert!(count < 50_000, "the overview read {count} rows, analyzed {analyzed}");
    }
    for (verb, count) in counts {
        assert!(count < 150, "{verb} read {count} rows, analyzed {analyzed}");
    }
}

#[tokio::test]
async fn r59_a_claim_with_order_per_key_reads_a_few_rows_for_each_of_its_own() {
    let scene = OnMySql::with(|options| options.max_connections(1)).await;
    fill(&scene, 20_000).await;
    scene.execute("update outbox_messages set `key` = concat('key ', seq mod 5000) where status = 'pending'").await;
    scene.execute("update outbox_messages set `key` = 'key 1' where status = 'delivered'").await;
    for analyzed in [false, true] {
        if analyzed {
            scene.execute("analyze table outbox_messages").await;
        }
        let orders = [ClaimOrder::Due, ClaimOrder::Fair { after: None }];
        for order in orders {
            let ten = ClaimRequest { limit: 10, waits: Order::Key, order, ..request() };
            let (count, claimed) = reads(&scene, scene.store.claim(&ten)).await;
            assert_eq!(claimed.expect("claimed").messages.len(), 10);
            assert!(count < 600, "{:?} read {count} rows, analyzed {analyzed}", ten.order);
        }
    }
}
