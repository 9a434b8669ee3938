//! Migrations: DDL is not transactional here, so each step can be run again, and a failure half way is repaired.

use postrider::mysql::migrate::{LATEST, script};
use postrider::{Layout, Message, MySqlStore, Names, Operator, Scope, Store, StoreErrorKind};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, MySqlPool};

use crate::scene::{empty, replay, request, run};

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

/// A restore without data, or somebody who found a table without any.
#[tokio::test]
async fn s3_turns_that_are_missing_are_filled_in_by_every_run() {
    let pool = empty().await.pool().await.expect("it answers");
    let store = MySqlStore::new(pool.clone(), Names::default());
    for lost in ["slot < 0", "slot = 7", "true"] {
        run(&pool, "create table if not exists postrider_turns (slot smallint unsigned not null primary key)")
            .await
            .expect("a table");
        run(&pool, format!("delete from postrider_turns where {lost}")).await.expect("lost");
        store.migrate().await.expect("migrated");
        let count = sqlx::query_scalar::<_, i64>("select count(*) from postrider_turns where slot between 0 and 65535");
        assert_eq!(count.fetch_one(&pool).await.expect("a number"), 8_192, "{lost}");
    }
}

#[tokio::test]
async fn s3_a_migration_does_not_wait_for_a_producer_that_has_its_turn() {
    let pool = empty().await.pool().await.expect("it answers");
    let store = MySqlStore::new(pool.clone(), Names::default());
    store.migrate().await.expect("migrated");
    let mut open = pool.begin().await.expect("begun");
    let keyed = Message::json("shop", "t", &1).dedupe_key("k");
    store.outbox().enqueue(&mut open, keyed).await.expect("enqueued");
    let again = tokio::time::timeout(std::time::Duration::from_secs(5), store.migrate()).await;
    assert!(again.expect("it does not wait").expect("migrated").is_empty());
    open.rollback().await.expect("rolled back");
}

#[tokio::test]
async fn a_run_that_stopped_anywhere_is_repaired_by_the_next() {
    let steps = script(&Layout::default()).len();
    assert!(steps > 5, "every version has its statements and its note");
    for done in 0..=steps {
        let pool = empty().await.pool().await.expect("it answers");
        for statement in script(&Layout::default()).into_iter().take(done) {
            run(&pool, statement).await.expect("the step runs by hand");
        }
        let store = MySqlStore::new(pool.clone(), Names::default());
        let ran = store.migrate().await.expect("repaired");
        // The last step fills in the turns, which every run does.
        assert_eq!(ran.is_empty(), done + 1 >= steps, "after {done} steps: {ran:?}");
        works(&pool, &store).await;
    }
}

#[tokio::test]
async fn a_database_at_version_2_migrates_and_keeps_its_rows() {
    let pool = empty().await.pool().await.expect("it answers");
    let script = script(&Layout::default());
    let noted = script.iter().position(|statement| statement.contains("(2, 'enqueue_procedure')")).expect("a note");
    for statement in script.into_iter().take(noted + 1) {
        run(&pool, statement).await.expect("it runs");
    }
    let rows = "insert into outbox_messages (namespace, topic, payload, status, last_error)
        values ('shop', 'a', '1', 'dead', 'no'), ('shop', 'b', '2', 'delivered', null), ('shop', 'c', '3', 'pending', null)";
    run(&pool, rows).await.expect("rows");
    let checksum = "select group_concat(concat_ws('|', id, topic, payload, headers, status, last_error, updated_at) order by seq) from outbox_messages";
    let checksum = || async { sqlx::query_scalar::<_, String>(checksum).fetch_one(&pool).await.expect("rows") };
    let before = checksum().await;
    let store = MySqlStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await.expect("migrated"), [3, 4, 5]);
    assert_eq!(checksum().await, before);
    assert_eq!(store.replay(&replay(Scope::all(), 10)).await.expect("replayed").len(), 1);
    assert_eq!(store.audit(10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn a_database_at_version_4_gets_the_changelog_and_keeps_its_rows() {
    let pool = empty().await.pool().await.expect("it answers");
    let script = script(&Layout::default());
    let noted = script.iter().position(|statement| statement.contains("(4, 'order_by_key')")).expect("a note");
    for statement in script.into_iter().take(noted + 1) {
        run(&pool, statement).await.expect("it runs");
    }
    let rows = "insert into outbox_messages (namespace, topic, `key`, payload, status, last_error)
        values ('shop', 'a', 'k', '1', 'dead', 'no'), ('shop', 'b', 'k', '2', 'delivered', null), ('shop', 'c', 'k', '3', 'pending', null)";
    run(&pool, rows).await.expect("rows");
    let checksum = "select group_concat(concat_ws('|', id, topic, payload, headers, status, last_error, updated_at) order by seq) from outbox_messages";
    let checksum = || async { sqlx::query_scalar::<_, String>(checksum).fetch_one(&pool).await.expect("rows") };
    let before = checksum().await;
    let store = MySqlStore::new(pool.clone(), Names::default());
    assert_eq!(store.migrate().await.expect("migrated"), [5]);
    assert_eq!(checksum().await, before);
    let settings = sqlx::query_as::<_, (String, String)>("select `key`, value from postrider_settings");
    let settings = settings.fetch_all(&pool).await.expect("settings");
    assert!(
        matches!(&settings[..], [(key, id)] if key == "store.id" && id.parse::<uuid::Uuid>().is_ok()),
        "{settings:?}"
    );
    let empty = "select (select count(*) from postrider_changelog) + (select count(*) from postrider_cursors)";
    assert_eq!(sqlx::query_scalar::<_, i64>(empty).fetch_one(&pool).await.expect("a number"), 0);
}

/// A second run by hand must not give the changelog another id: cursors of consumers hold it.
#[tokio::test]
async fn the_changelogs_id_stays_when_the_script_is_run_again() {
    let pool = empty().await.pool().await.expect("it answers");
    let id = || async {
        let sql = "select value from postrider_settings where `key` = 'store.id'";
        sqlx::query_scalar::<_, String>(sql).fetch_one(&pool).await.expect("an id")
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        for statement in script(&Layout::default()) {
            run(&pool, statement).await.expect("it runs");
        }
        ids.push(id().await);
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn an_entry_is_kept_as_it_was_written_and_has_its_own_stamp_and_unit_of_work() {
    let pool = empty().await.pool().await.expect("it answers");
    MySqlStore::new(pool.clone(), Names::default()).migrate().await.expect("migrated");
    // Deeper than MariaDB's JSON functions look.
    let payload = format!("{}1.0,  \"\\u0000\"{}", "[".repeat(40), "]".repeat(40));
    let insert = async |stamp: &[u8], unit: &str| {
        let sql = "insert into postrider_changelog (versionstamp, uow_id, payload) values (?, ?, ?)";
        sqlx::query(sql).bind(stamp).bind(unit).bind(&payload).execute(&pool).await
    };
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "two").await.expect("written");
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], "one").await.expect("written");
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], "one ").await.expect("a space makes a difference");
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0], "One").await.expect("case makes a difference");
    for (stamp, unit) in [(&[9; 12][..], "one"), (&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "new"), (&[9; 13], "long")] {
        assert!(insert(stamp, unit).await.is_err(), "{unit}");
    }
    let sql = "select convert(uow_id using utf8mb4), payload from postrider_changelog order by versionstamp";
    let read: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(&pool).await.expect("entries");
    assert_eq!(read.iter().map(|(unit, _)| unit.as_str()).collect::<Vec<_>>(), ["one", "two", "one ", "One"]);
    assert!(read.iter().all(|(_, read)| *read == payload), "{read:?}");
    let two = "insert into postrider_cursors (name, versionstamp) values ('a', '123456789012'), ('a ', '123456789012')";
    run(&pool, two).await.expect("two consumers");
}

#[tokio::test]
async fn the_longest_prefixes_stay_apart() {
    let pool = empty().await.pool().await.expect("it answers");
    for (last, table) in [('a', "first"), ('b', "second")] {
        let names = Names::unqualified(&format!("{}{last}", "p".repeat(47)), table).expect("good names");
        let store = MySqlStore::new(pool.clone(), names);
        assert_eq!(store.migrate().await.expect("migrated"), (1..=LATEST).collect::<Vec<_>>());
        works(&pool, &store).await;
    }
}

#[tokio::test]
async fn the_script_can_be_run_again_over_everything() {
    let pool = empty().await.pool().await.expect("it answers");
    for statement in [script(&Layout::default()), script(&Layout::default())].concat() {
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
    assert_eq!(store.migrate().await.expect("migrated"), [2, 3, 4, 5]);
    works(&admin, &store).await;
}

/// The rights that `docs/guides/any-language.md` names are enough for a producer.
#[tokio::test]
async fn s1_a_producer_needs_the_documented_rights_and_no_others() {
    let database = empty().await;
    let admin = database.pool().await.expect("it answers");
    let store = MySqlStore::new(admin.clone(), Names::default());
    store.migrate().await.expect("migrated");
    let guide = include_str!("../../../../docs/guides/any-language.md");
    let (_, grants) = guide.split_once("create user if not exists shop_app").expect("the guide names the rights");
    let (grants, _) = grants.split_once("```").expect("the block ends");
    let (name, user) = (database.name(), &database.name()[..20]);
    let grants = format!("create user shop_app{grants}").replace("shop_app", user);
    let grants = grants
        .replace(" on procedure ", &format!(" on procedure {name}."))
        .replace(" on outbox", &format!(" on {name}.outbox"));
    let grants = grants.replace(" on postrider_turns", &format!(" on {name}.postrider_turns"));
    run(&admin, grants).await.expect("rights");
    let access: MySqlConnectOptions = database.access().clone().username(user).password("choose-one");
    let weak = MySqlPool::connect_with(access).await.expect("it may connect");
    for key in [None, Some("k"), Some("k")] {
        let message = key.into_iter().fold(Message::json("shop", "t", &1), |message, key| message.dedupe_key(key));
        let mut transaction = weak.begin().await.expect("begun");
        store.outbox().enqueue(&mut transaction, message).await.expect("it may");
        transaction.commit().await.expect("committed");
    }
    for options in ["null", r#"'{"dedupe_key": "p"}'"#, r#"'{"dedupe_key": "p"}'"#] {
        run(&weak, format!("call postrider_enqueue('shop', 't', '1', {options})")).await.expect("it may");
    }
    run(&weak, "insert into outbox_messages (namespace, topic, payload) values ('shop', 't', '1')")
        .await
        .expect("it may");
    assert!(run(&weak, "delete from outbox_messages").await.is_err(), "it may not delete");
    run(&admin, format!("revoke update on {name}.outbox_messages from {user}; flush privileges"))
        .await
        .expect("revoked");
    let mut transaction = weak.begin().await.expect("begun");
    store.outbox().enqueue(&mut transaction, Message::json("shop", "t", &1)).await.expect("no key, no right to update");
    transaction.rollback().await.expect("rolled back");
    assert_eq!(store.claim(&request()).await.expect("claimed").messages.len(), 5);
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
        assert_eq!(store.migrate().await.expect("migrated"), (1..=LATEST).collect::<Vec<_>>());
        works(&pool, &store).await;
        store.purge(&crate::scene::purge()).await.expect("purged");
    }
    let count = AssertSqlSafe(format!("select count(*) from `{}`.outbox_messages", other.name()));
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&pool).await.expect("a number"), 2);
}

/// The outbox's database is named, and the session has none selected.
#[tokio::test]
async fn a_session_without_a_database_works_if_the_outbox_names_its_own() {
    let (selected, other) = (empty().await, empty().await);
    let pool = selected.pool_with(|options| options.max_connections(1)).await.expect("it answers");
    let store = MySqlStore::new(pool.clone(), Names::in_schema(other.name()).expect("a good name"));
    store.migrate().await.expect("migrated");
    run(&pool, format!("drop database {}", selected.name())).await.expect("none is selected any more");
    works(&pool, &store).await;
    run(&pool, format!("update {}.outbox_messages set status = 'delivered', updated_at = '2000-01-01'", other.name()))
        .await
        .expect("finished");
    assert_eq!(store.purge(&crate::scene::purge()).await.expect("purged"), 2);
    let mut transaction = pool.begin().await.expect("begun");
    store.outbox().enqueue(&mut transaction, Message::json("shop", "t", &1)).await.expect("enqueued");
    transaction.commit().await.expect("committed");
    let leases: Vec<_> =
        store.claim(&request()).await.expect("claimed").messages.iter().map(|message| message.lease).collect();
    let acked = store.ack(&leases, postrider::store::Delivered::Delete).await.expect("acked");
    assert_eq!(acked, [postrider::Settled::Done]);
}
