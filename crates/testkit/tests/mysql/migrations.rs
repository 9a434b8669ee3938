//! Migrations: DDL is not transactional here, so each step can be run again, and a failure half way is repaired.

use postrider::mysql::migrate::{LATEST, script};
use postrider::{Message, MySqlStore, Names, Store, StoreErrorKind};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, MySqlPool};

use crate::scene::{empty, request, run};

async fn works(pool: &MySqlPool, store: &MySqlStore) {
    let mut transaction = pool.begin().await.expect("begun");
    store.outbox().enqueue(&mut transaction, Message::json("shop", "t", &1)).await.expect("enqueued");
    transaction.commit().await.expect("committed");
    let schema = store.outbox().names().schema().map_or(String::new(), |schema| format!("`{schema}`."));
    let prefix = store.outbox().names().prefix().to_owned();
    run(pool, format!("call {schema}{prefix}enqueue('shop', 't', '2', null)")).await.expect("called");
    assert_eq!(store.claim(&request()).await.expect("claimed").messages.len(), 2);
}

#[tokio::test]
async fn a_second_run_does_nothing() {
    let pool = empty().await.pool().await.expect("it answers");
    let store = MySqlStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await.expect("migrated"), (1..=LATEST).collect::<Vec<_>>());
    assert_eq!(store.migrate().await.expect("migrated"), [0_i32; 0]);
    works(&pool, &store).await;
}

#[tokio::test]
async fn a_run_that_stopped_anywhere_is_repaired_by_the_next() {
    let steps = script(&Names::default()).len();
    assert!(steps > 5, "every version has its statements and its note");
    for done in 0..=steps {
        let pool = empty().await.pool().await.expect("it answers");
        for statement in script(&Names::default()).into_iter().take(done) {
            run(&pool, statement).await.expect("the step runs by hand");
        }
        let store = MySqlStore::new(pool.clone(), Names::default());
        let ran = store.migrate().await.expect("repaired");
        assert_eq!(ran.is_empty(), done == steps, "after {done} steps: {ran:?}");
        works(&pool, &store).await;
    }
}

#[tokio::test]
async fn the_script_can_be_run_again_over_everything() {
    let pool = empty().await.pool().await.expect("it answers");
    for statement in [script(&Names::default()), script(&Names::default())].concat() {
        run(&pool, statement).await.expect("it runs");
    }
    let store = MySqlStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await.expect("nothing to do"), [0_i32; 0]);
    works(&pool, &store).await;
}

/// An account that may not create procedures fails at the second version; somebody else goes on from there.
#[tokio::test]
async fn a_missing_right_stops_half_way_and_another_account_goes_on() {
    let database = empty().await;
    let admin = database.pool().await.expect("it answers");
    let (name, user) = (database.name(), &database.name()[..20]);
    run(&admin, format!("create user {user} identified by 'only-for-tests'")).await.expect("an account");
    run(&admin, format!("grant select, insert, update, delete, create, alter, index, drop on {name}.* to {user}"))
        .await
        .expect("rights");
    let access: MySqlConnectOptions = database.access().clone().username(user).password("only-for-tests");
    let weak = MySqlPool::connect_with(access).await.expect("it may connect");
    let refused =
        MySqlStore::new(weak.clone(), Names::default()).migrate().await.expect_err("no right to create routines");
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    let versions: Vec<i32> =
        sqlx::query_scalar("select version from postrider_migrations").fetch_all(&admin).await.expect("versions");
    assert_eq!(versions, [1], "the first version is complete and noted");
    assert!(MySqlStore::new(weak, Names::default()).migrate().await.is_err(), "the lock was given back");
    let store = MySqlStore::new(admin.clone(), Names::default());
    assert_eq!(store.migrate().await.expect("migrated"), [2]);
    works(&admin, &store).await;
}

#[tokio::test]
async fn processes_that_migrate_at_once_do_not_meet() {
    let database = empty().await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        let pool = database.pool().await.expect("it answers");
        runs.push(tokio::spawn(async move { MySqlStore::new(pool, Names::default()).migrate().await }));
    }
    let mut versions = Vec::new();
    for run in runs {
        versions.extend(run.await.expect("no panic").expect("migrated"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=LATEST).collect::<Vec<_>>(), "each version ran once");
}

#[tokio::test]
async fn a_schema_from_the_future_is_refused() {
    let pool = empty().await.pool().await.expect("it answers");
    let store = MySqlStore::new(pool.clone(), Names::default());
    store.migrate().await.expect("migrated");
    run(&pool, "insert into postrider_migrations (version, name) values (999, 'later')").await.expect("noted");
    assert_eq!(store.migrate().await.expect_err("it is newer").kind(), StoreErrorKind::Schema);
}

#[tokio::test]
async fn without_its_table_every_verb_says_that_the_migrations_are_missing() {
    let pool = empty().await.pool().await.expect("it answers");
    let store = MySqlStore::new(pool, Names::default());
    let missing = store.claim(&request()).await.expect_err("there is no table");
    assert_eq!(missing.kind(), StoreErrorKind::Schema);
    assert_eq!(store.stats(&request().scope).await.expect_err("there is no table").kind(), StoreErrorKind::Schema);
}

/// Two outboxes in one database, and one in another than the connection's.
#[tokio::test]
async fn other_names_work_and_keep_apart() {
    let (database, other) = (empty().await, empty().await);
    let pool = database.pool().await.expect("it answers");
    for names in [
        Names::default(),
        Names::unqualified("second_", "second_messages").expect("good names"),
        Names::in_schema(other.name()).expect("a good name"),
    ] {
        let store = MySqlStore::new(pool.clone(), names);
        assert_eq!(store.migrate().await.expect("migrated").len(), 2);
        works(&pool, &store).await;
        store.purge(&crate::scene::purge()).await.expect("purged");
    }
    let count = AssertSqlSafe(format!("select count(*) from `{}`.outbox_messages", other.name()));
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&pool).await.expect("a number"), 2);
}
