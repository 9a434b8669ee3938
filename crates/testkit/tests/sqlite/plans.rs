//! Every statement is prepared, and no plan of a hot one reads the whole table.

use postrider::Layout;
use postrider::sqlite::statements::{EnqueueStatements, StoreStatements};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr};

use super::scene::OnFile;

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let scene = OnFile::new().await;
    let (store, producer) =
        (StoreStatements::render(&Layout::default()), EnqueueStatements::render(&Layout::default()));
    let mut all = store.all();
    let inserts = producer.enqueue.texts().iter().chain(producer.enqueue_deduplicating.texts());
    all.extend(inserts.map(|sql| ("enqueue", &**sql)));
    all.push(("enqueue_find", &producer.enqueue_find));
    for (name, sql) in all {
        assert!(!sql.contains('{') || sql.contains("'{}'"), "{name} has a placeholder left:\n{sql}");
        let prepared = scene.store.pool().prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{name}: {:?}\n{sql}", prepared.err());
    }
}

/// Looked at by hand, or when the clock was set back; they read all waiting rows, but no finished one.
const READS_WAITING_ROWS: [&str; 5] = ["stats", "overview", "clock_ahead", "clock_waits", "clock_fresh"];

#[tokio::test]
async fn with_many_finished_rows_every_plan_uses_an_index() {
    let scene = OnFile::new().await;
    let fill = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 100000)
        insert into outbox_messages (namespace, topic, payload, status)
        select 'shop', 'order.placed', n, case when n % 1000 = 0 then 'pending' else 'delivered' end from numbers";
    scene.store.pool().execute(fill).await.expect("rows");
    for analysed in [false, true] {
        if analysed {
            scene.store.pool().execute("analyze").await.expect("statistics");
        }
        for (name, sql) in scene.store.statements().all() {
            let explain = AssertSqlSafe(format!("explain query plan {sql}"));
            let rows = sqlx::query(explain).fetch_all(scene.store.pool()).await.expect(name);
            let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
            let reads_all = |line: &&String| {
                let table = ["outbox_messages", "row", "next", "head", "there", "mine", "earlier", "follower"];
                let scan = table.iter().any(|name| line.starts_with(&format!("SCAN {name}")));
                scan && !["due_idx", "lane_idx", "lease_idx", "dead_idx"].iter().any(|index| line.contains(index))
            };
            if name == "overview" {
                assert!(!plan.iter().any(|line| line.contains("delivered_idx")), "{name}:\n{}", plan.join("\n"));
            }
            if ["extend", "ack", "ack_delete", "nack", "bury", "release"].contains(&name) {
                let by_number = "SEARCH row USING INTEGER PRIMARY KEY (rowid=?)";
                assert!(plan.iter().any(|line| line == by_number), "{name}:\n{}", plan.join("\n"));
                assert!(!plan.iter().any(|line| line.contains("lease_idx")), "{name}:\n{}", plan.join("\n"));
            }
            let newest = name.starts_with("look") || name.starts_with("doorbell");
            // Asked for on purpose.
            if name == "overview_delivered" {
                continue;
            }
            let bad: Vec<&String> = plan.iter().filter(reads_all).collect();
            // The newest row is found by walking backwards, one row.
            assert!(bad.len() <= usize::from(newest), "{name} reads the whole table:\n{}\n{sql}", plan.join("\n"));
            let waiting = READS_WAITING_ROWS.contains(&name)
                || newest
                || ["next_due", "next_coming"].contains(&name)
                || name == "sweep_look";
            let sorts = plan.iter().any(|line| line.contains("USE TEMP B-TREE FOR ORDER BY"));
            assert!(
                waiting || !sorts || name.starts_with("claim") || name == "dead_pick" || name == "dead",
                "{name} sorts:\n{}",
                plan.join("\n")
            );
            if analysed && std::env::var("SHOW_PLANS").is_ok() {
                println!("--- {name}\n{}\n", plan.join("\n"));
            }
        }
    }
}
