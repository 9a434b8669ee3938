//! What claims read beside many finished rows.

use postrider::Layout;
use postrider::postgres::statements::StoreStatements;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use crate::scene::Scene;

/// How many pages a statement reads, as the server counts them.
fn pages(plan: &str) -> u64 {
    let buffers = plan.lines().find(|line| line.contains("Buffers: shared")).expect("the plan says what was read");
    let counts = buffers.split_whitespace().filter_map(|word| word.split_once('='));
    counts.filter(|(what, _)| ["hit", "read"].contains(what)).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn s4_16_r24_a_fair_claim_does_not_read_what_was_sent() {
    let layout = Layout::valinor();
    let scene = Scene::of(layout.clone()).await;
    let fill = "
        insert into tenants select ('00000000-0000-0000-0000-00000000000' || n)::uuid from generate_series(1, 5) as n;
        insert into channel_messages select id, id from tenants;
        insert into channel_outbox (tenant_id, channel_message_id, provider, recipient_id, payload, next_attempt_at, status)
          select id, id, 'slack', 'U1', '{}', now() - n * interval '1 ms', case when id::text like '%5' then 'pending' else 'sent' end
          from tenants, generate_series(1, 20000) as n;
        alter table channel_outbox set (autovacuum_enabled = false)";
    scene.run(fill).await;
    scene.run("vacuum analyze channel_outbox").await;
    let statements = StoreStatements::render(&layout);
    let (_, sql) = *statements.all().iter().find(|(name, _)| *name == "claim_fair").expect("it has fair claims");
    let mut connection = scene.pool.acquire().await.expect("a connection");
    connection.execute("set plan_cache_mode = force_generic_plan").await.expect("a setting");
    connection.execute(AssertSqlSafe(format!("prepare checked as {sql}"))).await.expect("it is SQL");
    let asked =
        "null, null, 5, 10, gen_random_uuid(), 30000000, 1000000000, '', '', '00000000-0000-0000-0000-000000000000'";
    let explain = format!("explain (analyze, buffers) execute checked({asked})");
    let rows = connection.fetch_all(AssertSqlSafe(explain)).await.expect("a plan");
    let plan: String = rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect();
    assert!(pages(&plan) < 300, "{} pages were read:\n{plan}", pages(&plan));
}
