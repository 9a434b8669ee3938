//! s01: names that are words of SQL work, because every name is quoted wherever it stands.

use anyhow::Result;
use postrider::names::Names;
use postrider::postgres::migrate::LATEST;
use postrider::{Message, PostgresStore};
use testkit::Postgres;

#[tokio::test]
async fn s01_words_of_sql_are_ordinary_names() -> Result<()> {
    let pool = Postgres::shared().await?.create_database().await?.pool().await?;
    for (schema, prefix, table) in
        [("select", "from_", "table"), ("user", "null", "order"), ("_", "_", "_"), ("row", "row", "row")]
    {
        let store = PostgresStore::new(pool.clone(), Names::new(schema, prefix, table)?);
        assert_eq!(store.migrate().await?, (1..=LATEST).collect::<Vec<_>>(), "{schema}.{table}");
        let outbox = store.outbox();
        let mut transaction = pool.begin().await?;
        for _ in 0..2 {
            let _one = outbox.enqueue(&mut transaction, Message::json("shop", "x", &1).dedupe_key("a")).await?;
            let _many = outbox
                .enqueue_many(&mut transaction, ["b", "c"].map(|key| Message::json("shop", "x", &1).dedupe_key(key)))
                .await?;
        }
        let call = format!("select is_new from \"{schema}\".\"{prefix}enqueue\"('shop', 'x', '1', dedupe_key => 'd')");
        let is_new: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(call)).fetch_one(&mut *transaction).await?;
        assert!(is_new);
        transaction.commit().await?;
        let count = format!("select count(*) from \"{schema}\".\"{table}\"");
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&pool).await?;
        assert_eq!(count, 4, "{schema}.{table}");
    }
    Ok(())
}

#[tokio::test]
async fn s01_the_longest_names_work_and_nothing_is_cut_off() -> Result<()> {
    let pool = Postgres::shared().await?.create_database().await?.pool().await?;
    let names = Names::new(&"s".repeat(63), &"p".repeat(48), &"t".repeat(49))?;
    PostgresStore::new(pool.clone(), names).migrate().await?;
    let cut: i64 = sqlx::query_scalar(
        "select count(*) from (select conname as name from pg_constraint where connamespace = repeat('s', 63)::regnamespace and contype <> 'n'
           union all select relname from pg_class where relnamespace = repeat('s', 63)::regnamespace and relkind in ('r', 'i', 'S')
           union all select proname from pg_proc where pronamespace = repeat('s', 63)::regnamespace) as made
         where name !~ '(_pkey|_check|_idx|_seq_seq|^t+|p(uuid_v7|enqueue|migrations|audit|audit_no)|p(settings|cursors|cursors_stamp|changelog|changelog_uow|changelog_stamp))$'",
    )
    .fetch_one(&pool)
    .await?;
    assert_eq!(cut, 0);
    Ok(())
}
