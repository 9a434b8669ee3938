//! What row-level security does to the plans of relay and operator: nothing.

use anyhow::Result;
use postrider::Layout;
use postrider::postgres::statements::StoreStatements;
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Row as _};

use crate::scene::Scene;

/// The plans of all statements as PostgreSQL would keep them for any parameters, without the conditions that each row is
/// held against: they are the same, but PostgreSQL tries those first that cannot tell of a row by failing.
async fn plans(pool: &PgPool) -> Result<Vec<(&'static str, String)>> {
    let mut connection = pool.acquire().await?;
    connection.execute("set plan_cache_mode = force_generic_plan").await?;
    let mut plans = Vec::new();
    for (name, sql) in StoreStatements::render(&Layout::default()).all() {
        connection.execute(AssertSqlSafe(format!("prepare checked as {sql}"))).await?;
        let parameters = (1..=12).rev().find(|number| sql.contains(&format!("${number}:"))).unwrap_or(0);
        let given = if parameters == 0 { String::new() } else { format!("({})", vec!["null"; parameters].join(", ")) };
        let rows = connection.fetch_all(AssertSqlSafe(format!("explain execute checked{given}"))).await?;
        let lines = rows.iter().map(|row| row.get::<String, _>(0)).filter(|line| !line.contains("Filter: "));
        plans.push((name, lines.collect::<Vec<_>>().join("\n")));
        connection.execute("deallocate checked").await?;
    }
    Ok(plans)
}

#[tokio::test]
async fn r40_s08_under_row_security_every_statement_has_the_plan_it_had_before() -> Result<()> {
    let scene = Scene::new().await?;
    let fill = "insert into outbox_messages (namespace, topic, payload, status, attempts, tenant_id)
        select 'shop', 'order', '{}', (array['delivered', 'delivered', 'dead', 'pending'])[1 + n % 4], 1, gen_random_uuid()
        from generate_series(1, 20000) as n";
    scene.run(fill).await?;
    scene.run("alter table outbox_messages set (autovacuum_enabled = false)").await?;
    scene.run("vacuum analyze outbox_messages").await?;
    let pool = scene.pool(scene.roles.operator()).await?;
    let before = plans(&pool).await?;
    scene.protect().await?;
    let after = plans(&pool).await?;
    assert!(before.len() > 30);
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
    let changed: Vec<String> =
        changed.map(|((name, before), (_, after))| format!("{name}\n{before}\n\n{after}")).collect();
    assert!(changed.is_empty(), "{} plans changed:\n{}", changed.len(), changed.join("\n\n"));
    Ok(())
}
