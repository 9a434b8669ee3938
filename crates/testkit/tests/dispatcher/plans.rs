//! Every statement is prepared on the real server, and no plan reads the whole table.

use std::time::{Duration, Instant};

use postrider::postgres::statements::{EnqueueStatements, StoreStatements};
use postrider::store::{ClaimRequest, Order};
use postrider::{Layout, Store};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr};
use uuid::Uuid;

use crate::leases::steal;
use crate::scene::OnPostgres;

/// Statements that run while messages flow, with the types of their parameters' nulls left to the server.
const HOT: [&str; 19] = [
    "claim",
    "claim_fair",
    "claim_suspects",
    "claim_ordered",
    "claim_fair_ordered",
    "claim_suspects_ordered",
    "sweep",
    "next_due",
    "next_coming",
    "ack",
    "ack by id",
    "ack_delete",
    "nack",
    "nack by id",
    "bury",
    "release",
    "extend",
    "extend by id",
    "purge_delivered",
];

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let scene = OnPostgres::new().await;
    let (store, producer) =
        (StoreStatements::render(&Layout::default()), EnqueueStatements::render(&Layout::default()));
    let mut all = store.all();
    all.extend([
        ("enqueue_one", &*producer.enqueue_one.plain),
        ("enqueue_one with a dedupe key", &producer.enqueue_one.deduplicating),
        ("enqueue_many", &producer.enqueue_many.plain),
        ("enqueue_many with dedupe keys", &producer.enqueue_many.deduplicating),
        ("enqueue_find", &producer.enqueue_find),
    ]);
    assert_eq!(all.len(), 44);
    for (name, sql) in all {
        assert!(!sql.contains('{') || sql.contains("'{}'"), "{name} has a placeholder left:\n{sql}");
        let prepared = scene.pool.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{name}: {:?}\n{sql}", prepared.err());
    }
}

/// What an operator runs, where a plan that reads delivered rows would be found out late.
const OPERATOR: [&str; 8] =
    ["overview", "dead", "count_dead", "replay", "discard", "purge_delivered_as", "purge_dead_as", "message"];

/// The plans of statements as PostgreSQL would keep them for any parameters.
async fn generic_plans(scene: &OnPostgres, which: &[&str]) -> Vec<(&'static str, String)> {
    let statements = StoreStatements::render(&Layout::default());
    let mut connection = scene.pool.acquire().await.expect("a connection");
    connection.execute("set plan_cache_mode = force_generic_plan").await.expect("a setting");
    let mut plans = Vec::new();
    for (name, sql) in statements.all().into_iter().filter(|(name, _)| which.contains(name)) {
        let parameters = (1..=12).rev().find(|number| sql.contains(&format!("${number}:"))).expect("parameters");
        connection.execute(AssertSqlSafe(format!("prepare checked as {sql}"))).await.expect(name);
        let nulls = vec!["null"; parameters].join(", ");
        let rows = connection.fetch_all(AssertSqlSafe(format!("explain execute checked({nulls})"))).await.expect(name);
        let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        plans.push((name, lines.join("\n")));
        connection.execute("deallocate checked").await.expect("it was prepared");
    }
    assert_eq!(plans.len(), which.len());
    plans
}

fn check(plans: Vec<(&'static str, String)>) {
    for (name, plan) in plans {
        assert!(!plan.contains("Seq Scan on outbox_messages"), "{name} reads the whole table:\n{plan}");
        assert!(!plan.contains("JIT"), "{name} would be compiled at run time:\n{plan}");
    }
}

#[tokio::test]
async fn no_plan_made_on_an_empty_table_reads_it_whole() {
    check(generic_plans(&OnPostgres::new().await, &HOT).await);
}

#[tokio::test]
async fn r40_no_plan_reads_the_whole_table_beside_100_000_finished_rows() {
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at)
        select 'shop', 'order', '{}', 'delivered', 1, now() from generate_series(1, 100000);
        insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, 1000)";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    check(generic_plans(&scene, &HOT).await);
    sqlx::raw_sql("analyze outbox_messages").execute(&scene.pool).await.expect("statistics");
    check(generic_plans(&scene, &HOT).await);
    let backlog = "insert into outbox_messages (namespace, topic, payload)
        select 'shop', 'order', '{}' from generate_series(1, 100000)";
    sqlx::raw_sql(backlog).execute(&scene.pool).await.expect("rows");
    sqlx::raw_sql("analyze outbox_messages").execute(&scene.pool).await.expect("statistics");
    check(generic_plans(&scene, &HOT).await);
}

/// The finished index is walked from its dead rows only.
#[tokio::test]
async fn s21_no_operator_s_plan_reads_delivered_rows() {
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, payload, status, attempts, delivered_at)
        select 'shop', 'order', '{}', 'delivered', 1, now() from generate_series(1, 100000);
        insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, 1000);
        insert into outbox_messages (namespace, topic, payload, status)
        select 'shop', 'order', '{}', 'dead' from generate_series(1, 1000)";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    for analysed in [false, true] {
        if analysed {
            sqlx::raw_sql("analyze outbox_messages").execute(&scene.pool).await.expect("statistics");
        }
        for (name, plan) in generic_plans(&scene, &OPERATOR).await {
            assert!(!plan.contains("Seq Scan on outbox_messages"), "{name} reads the whole table:\n{plan}");
            if name == "overview" {
                assert!(!plan.contains("delivered"), "{name} reads delivered rows:\n{plan}");
            }
        }
    }
}

/// A claim finds the first row of a key by an index, however many wait behind it and however many came before it.
#[tokio::test]
async fn r59_a_claim_passes_over_10_000_messages_that_wait_for_their_key() {
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, key, payload, status, attempts, delivered_at)
        select 'shop', 'order', 'stuck', '{}', 'delivered', 1, now() from generate_series(1, 50000);
        insert into outbox_messages (namespace, topic, key, payload, next_attempt_at)
        values ('shop', 'order', 'stuck', '{}', now() + interval '1 hour');
        insert into outbox_messages (namespace, topic, key, payload)
        select 'shop', 'order', 'stuck', '{}' from generate_series(1, 10000);
        insert into outbox_messages (namespace, topic, key, payload)
        select 'shop', 'order', 'key ' || n % 20000, '{}' from generate_series(1, 40000) as n";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    check(generic_plans(&scene, &HOT).await);
    sqlx::raw_sql("analyze outbox_messages").execute(&scene.pool).await.expect("statistics");
    check(generic_plans(&scene, &HOT).await);
    let request = ClaimRequest { waits: Order::Key, ..steal(500, Duration::from_secs(60)) };
    let mut took = Vec::new();
    for _ in 0..8 {
        let begun = Instant::now();
        let claimed = scene.store.claim(&request).await.expect("the store claims").messages;
        took.push(begun.elapsed());
        assert_eq!(claimed.len(), 500);
        assert!(claimed.iter().all(|message| message.key.as_deref() != Some("stuck")));
    }
    // Half of them will do: a busy machine makes some slow, and a plan that reads everything each of them.
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
}

/// While every key has a message under way there is nothing to take, and a claim need not read the backlog to its end to know that.
#[tokio::test]
async fn r60_a_claim_does_not_read_a_backlog_whose_keys_are_all_under_way() {
    let scene = OnPostgres::new().await;
    let fill = "insert into outbox_messages (namespace, topic, key, payload)
        select 'shop', 'order', 'key ' || n % 500, '{}' from generate_series(1, 20000) as n";
    sqlx::raw_sql(fill).execute(&scene.pool).await.expect("rows");
    sqlx::raw_sql("vacuum analyze outbox_messages").execute(&scene.pool).await.expect("statistics");
    let request = ClaimRequest { waits: Order::Key, followers: 0, ..steal(1_000, Duration::from_secs(60)) };
    assert_eq!(scene.store.claim(&request).await.expect("the store claims").messages.len(), 500);
    let statements = StoreStatements::render(&Layout::default());
    let sql = format!("explain (analyze, timing off) {}", statements.claim_ordered.as_deref().expect("it has keys"));
    let claim = sqlx::query(AssertSqlSafe(sql)).bind(None::<Vec<String>>).bind(None::<Uuid>).bind(10_i32);
    let claim =
        claim.bind(1_000_i64).bind(Uuid::from_u128(1)).bind(60_000_000_i64).bind(1_000_000_i64).bind(0_i64).bind(false);
    let lines = claim.fetch_all(&scene.pool).await.expect("a plan");
    let plan: Vec<String> = lines.iter().map(|row| row.get(0)).collect();
    let passed_over = plan.iter().filter_map(|line| line.trim().strip_prefix("Rows Removed by Filter: "));
    let most = passed_over.map(|number| number.parse::<u64>().expect("a number")).max();
    let plan = plan.join("\n");
    assert!(most.is_none_or(|most| most <= 1_000), "nothing is taken, and many were looked at:\n{plan}");
}
