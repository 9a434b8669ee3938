//! Migrations run once, together, or not at all.

use std::error::Error as _;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use postrider::names::Names;
use postrider::operate::{Change, Filter};
use postrider::postgres::migrate;
use postrider::store::{Finished, Purge};
use postrider::{Message, Operator, PostgresStore, Scope, StoreErrorKind};
use sqlx::{AssertSqlSafe, PgPool};
use testkit::Postgres;

/// What runs on an empty database.
fn all() -> Vec<i32> {
    since(1)
}

/// What runs on a database that lacks this version and all later ones.
fn since(version: i32) -> Vec<i32> {
    (version..=migrate::LATEST).collect()
}

async fn empty_database() -> Result<PgPool> {
    Postgres::shared().await?.create_database().await?.pool().await
}

/// Everything in a schema: relations, and functions.
async fn things(pool: &PgPool, schema: &str) -> Result<Vec<String>> {
    let sql = "select relname::text from pg_class join pg_namespace n on n.oid = relnamespace where nspname = $1 and relkind <> 't'
               union all select proname::text from pg_proc join pg_namespace n on n.oid = pronamespace where nspname = $1 order by 1";
    Ok(sqlx::query_scalar(sql).bind(schema).fetch_all(pool).await?)
}

#[tokio::test]
async fn a_second_run_does_nothing() -> Result<()> {
    let pool = empty_database().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await?, all());
    let before = things(&pool, "public").await?;
    assert!(store.migrate().await?.is_empty());
    assert_eq!(things(&pool, "public").await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_runs_at_once_share_the_work() -> Result<()> {
    let database = Postgres::shared().await?.create_database().await?;
    let runs = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(async move {
            let pool = database.pool_with(|options| options.max_connections(1)).await?;
            anyhow::Ok(PostgresStore::new(pool, Names::in_schema("shared")?).migrate().await?)
        })
    });
    let ran = try_join_all(runs).await?.into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(ran.concat(), all());
    Ok(())
}

#[tokio::test]
async fn a_failure_half_way_leaves_nothing_and_can_be_repeated() -> Result<()> {
    let pool = empty_database().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    // version 2 creates a function of this name, version 1 nothing that is in its way
    let arguments = "text, text, jsonb, text, uuid, text, jsonb, timestamptz, int, bytea, text";
    let obstacle = format!("create function postrider_enqueue({arguments}) returns int language sql as 'select 1'");
    sqlx::raw_sql(AssertSqlSafe(obstacle)).execute(&pool).await?;
    let error = store.migrate().await.err().context("the obstacle was overlooked")?;
    assert!(error.to_string().starts_with("migrate failed"), "{error}");
    let source = error.source().context("no source")?.to_string();
    assert!(source.contains("postrider_enqueue") || source.contains("already exists"), "{source}");
    assert_eq!(things(&pool, "public").await?, ["postrider_enqueue"]);

    sqlx::raw_sql("drop function postrider_enqueue").execute(&pool).await?;
    assert_eq!(store.migrate().await?, all());
    Ok(())
}

#[tokio::test]
async fn an_index_in_the_way_stops_the_first_version_whole() -> Result<()> {
    let pool = empty_database().await?;
    sqlx::raw_sql("create table mine (a int); create index outbox_messages_due_idx on mine (a)").execute(&pool).await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    assert!(store.migrate().await.is_err());
    assert_eq!(things(&pool, "public").await?, ["mine", "outbox_messages_due_idx"]);
    sqlx::raw_sql("drop table mine").execute(&pool).await?;
    assert_eq!(store.migrate().await?, all());
    Ok(())
}

#[tokio::test]
async fn two_outboxes_live_in_one_schema() -> Result<()> {
    let pool = empty_database().await?;
    let names = [Names::new("app", "one_", "one_messages")?, Names::new("app", "two_", "two_messages")?];
    for names in &names {
        assert_eq!(PostgresStore::new(pool.clone(), names.clone()).migrate().await?, all());
    }
    for (number, names) in names.iter().enumerate() {
        let mut transaction = pool.begin().await?;
        let outbox = PostgresStore::new(pool.clone(), names.clone()).outbox();
        for _ in 0..=number {
            assert!(outbox.enqueue(&mut transaction, Message::json("shop", "x", &number)).await?.is_new());
        }
        transaction.commit().await?;
    }
    let counts: (i64, i64) =
        sqlx::query_as("select (select count(*) from app.one_messages), (select count(*) from app.two_messages)")
            .fetch_one(&pool)
            .await?;
    assert_eq!(counts, (1, 2));
    for function in ["one_enqueue", "one_uuid_v7", "two_enqueue", "two_uuid_v7"] {
        assert!(things(&pool, "app").await?.iter().any(|name| name == function), "{function}");
    }
    assert!(things(&pool, "public").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_newer_schema_is_refused() -> Result<()> {
    let pool = empty_database().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    sqlx::raw_sql("insert into postrider_migrations (version, name) values (99, 'from the future')")
        .execute(&pool)
        .await?;
    let error = store.migrate().await.err().context("the newer version was overlooked")?;
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    let text = error.to_string();
    assert!(text.contains("version 99") && text.contains(&format!("up to {}", migrate::LATEST)), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_script_makes_the_same_schema_and_migrations_go_on_from_it() -> Result<()> {
    let (ours, theirs) = (empty_database().await?, empty_database().await?);
    let names = Names::default();
    PostgresStore::new(ours.clone(), names.clone()).migrate().await?;
    sqlx::raw_sql(AssertSqlSafe(migrate::script(&postrider::Layout::postrider(names.clone()))))
        .execute(&theirs)
        .await?;
    assert_eq!(things(&theirs, "public").await?, things(&ours, "public").await?);
    assert!(PostgresStore::new(theirs, names).migrate().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_database_at_version_2_migrates_and_keeps_its_rows() -> Result<()> {
    let pool = empty_database().await?;
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0003 audit").context("the script has the third version")?;
    sqlx::raw_sql(AssertSqlSafe(older.to_owned())).execute(&pool).await?;
    let rows = "insert into outbox_messages (namespace, topic, payload, status, last_error)
        values ('shop', 'a', '1', 'dead', 'no'), ('shop', 'b', '2', 'delivered', null), ('shop', 'c', '3', 'pending', null)";
    sqlx::raw_sql(rows).execute(&pool).await?;
    let all = "select row(m.*)::text from outbox_messages m order by seq";
    let before: Vec<String> = sqlx::query_scalar(all).fetch_all(&pool).await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await?, since(3));
    assert_eq!(sqlx::query_scalar::<_, String>(all).fetch_all(&pool).await?, before);
    let replay = Change { who: "ann".into(), filter: Filter::default(), limit: 10 };
    assert_eq!(store.replay(&replay).await?.len(), 1);
    assert_eq!(store.audit(10).await?.len(), 1);
    Ok(())
}

/// A claim that waits for the index holds as much of the table as who reads it. If the migration then wanted the table for
/// itself, that would be a deadlock.
#[tokio::test]
async fn version_4_waits_for_nobody_who_reads() -> Result<()> {
    let pool = empty_database().await?;
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0004 order").context("the script has the fourth version")?;
    sqlx::raw_sql(AssertSqlSafe(older.to_owned())).execute(&pool).await?;
    let mut reader = pool.begin().await?;
    sqlx::query("select 1 from outbox_messages for update").fetch_all(&mut *reader).await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    assert_eq!(tokio::time::timeout(Duration::from_secs(120), store.migrate()).await??, since(4));
    reader.rollback().await?;
    let cache: i64 = sqlx::query_scalar("select cache_size from pg_sequences").fetch_one(&pool).await?;
    assert_eq!(cache, 1);
    Ok(())
}

/// On a large table the index is made beforehand, without keeping writers out.
#[tokio::test]
async fn version_4_takes_an_index_that_is_there() -> Result<()> {
    let pool = empty_database().await?;
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0004 order").context("the script has the fourth version")?;
    sqlx::raw_sql(AssertSqlSafe(older.to_owned())).execute(&pool).await?;
    let index = "create index concurrently outbox_messages_key_idx on outbox_messages
        (namespace, key, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq)
        where status in ('pending', 'processing') and key is not null";
    sqlx::raw_sql(index).execute(&pool).await?;
    assert_eq!(PostgresStore::new(pool.clone(), Names::default()).migrate().await?, since(4));
    Ok(())
}

#[tokio::test]
async fn a_database_at_version_4_gets_the_changelog_and_keeps_its_rows() -> Result<()> {
    let pool = empty_database().await?;
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0005 changelog").context("the script has the fifth version")?;
    sqlx::raw_sql(AssertSqlSafe(older.to_owned())).execute(&pool).await?;
    let rows = "insert into outbox_messages (namespace, topic, key, payload, status, last_error)
        values ('shop', 'a', 'k', '1', 'dead', 'no'), ('shop', 'b', 'k', '2', 'delivered', null), ('shop', 'c', 'k', '3', 'pending', null)";
    sqlx::raw_sql(rows).execute(&pool).await?;
    let all = "select row(m.*)::text from outbox_messages m order by seq";
    let before: Vec<String> = sqlx::query_scalar(all).fetch_all(&pool).await?;
    // A claim under way does not stop it: the new tables are nobody's yet.
    let mut reader = pool.begin().await?;
    sqlx::query("select 1 from outbox_messages for update").fetch_all(&mut *reader).await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    assert_eq!(tokio::time::timeout(Duration::from_secs(120), store.migrate()).await??, since(5));
    reader.rollback().await?;
    assert_eq!(sqlx::query_scalar::<_, String>(all).fetch_all(&pool).await?, before);
    let settings: Vec<(String, String)> =
        sqlx::query_as("select key, value from postrider_settings").fetch_all(&pool).await?;
    assert!(
        matches!(&settings[..], [(key, id)] if key == "store.id" && id.parse::<uuid::Uuid>().is_ok()),
        "{settings:?}"
    );
    let empty = "select (select count(*) from postrider_changelog) + (select count(*) from postrider_cursors)";
    assert_eq!(sqlx::query_scalar::<_, i64>(empty).fetch_one(&pool).await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_entry_is_kept_as_it_was_written_and_has_its_own_stamp_and_unit_of_work() -> Result<()> {
    let pool = empty_database().await?;
    PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
    let insert = async |stamp: &[u8], unit: &str| {
        let sql = r#"insert into postrider_changelog (versionstamp, uow_id, payload) values ($1, $2, '{"b":1.0,  "a":"\u0000"}')"#;
        sqlx::query(sql).bind(stamp).bind(unit).execute(&pool).await
    };
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "two").await?;
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], "one").await?;
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], "one ").await?;
    for (stamp, unit) in [(&[9; 12][..], "one"), (&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "new"), (&[9; 11], "short")] {
        assert!(insert(stamp, unit).await.is_err(), "{unit}");
    }
    let read: Vec<(String, String)> =
        sqlx::query_as("select uow_id, payload::text from postrider_changelog order by versionstamp")
            .fetch_all(&pool)
            .await?;
    assert_eq!(read.iter().map(|(unit, _)| unit.as_str()).collect::<Vec<_>>(), ["one", "two", "one "]);
    assert!(read.iter().all(|(_, payload)| payload == r#"{"b":1.0,  "a":"\u0000"}"#), "{read:?}");
    let short = "insert into postrider_cursors (name, versionstamp) values ('c', '123')";
    assert!(sqlx::raw_sql(short).execute(&pool).await.is_err());
    Ok(())
}

/// An operator needs rights on two tables, and none on the numbers' sequence.
#[tokio::test]
async fn an_operator_needs_rights_on_tables_only() -> Result<()> {
    let database = Postgres::shared().await?.create_database().await?;
    let pool = database.pool_with(|options| options.max_connections(1)).await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    let role = "do $$ begin create role plain_operator; exception when duplicate_object then null; end $$;
        grant select, update, delete on outbox_messages to plain_operator;
        grant select, insert on postrider_audit to plain_operator;
        insert into outbox_messages (namespace, topic, payload, status)
        values ('shop', 'a', '1', 'dead'), ('shop', 'b', '2', 'dead'), ('shop', 'c', '3', 'dead'), ('shop', 'd', '4', 'delivered');
        set role plain_operator";
    sqlx::raw_sql(role).execute(&pool).await?;
    let one = Change { who: "ann".into(), filter: Filter::default(), limit: 1 };
    assert_eq!(store.replay(&one).await?.len(), 1);
    assert_eq!(store.discard(&one).await?.len(), 1);
    let purge = |finished| Purge { scope: Scope::all(), finished, older_than: Duration::ZERO, limit: 10 };
    assert_eq!(store.purge_as("ann", &purge(Finished::Dead)).await?, 1);
    assert_eq!(store.purge_as("ann", &purge(Finished::Delivered)).await?, 1);
    assert_eq!(store.overview(&Scope::all(), true).await?.len(), 1);
    assert_eq!(store.audit(10).await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_role_that_owns_its_schema_needs_no_more() -> Result<()> {
    let database = Postgres::shared().await?.create_database().await?;
    let pool = database.pool_with(|options| options.max_connections(1)).await?;
    let role = "do $$ begin create role plain_owner; exception when duplicate_object then null; end $$";
    sqlx::raw_sql(role).execute(&pool).await?;
    sqlx::raw_sql("create schema plain authorization plain_owner; set role plain_owner").execute(&pool).await?;
    assert_eq!(PostgresStore::new(pool.clone(), Names::in_schema("plain")?).migrate().await?, all());
    let owner = "select tableowner::text from pg_tables where schemaname = 'plain' and tablename = 'outbox_messages'";
    let owner: String = sqlx::query_scalar(owner).fetch_one(&pool).await?;
    assert_eq!(owner, "plain_owner");
    Ok(())
}
