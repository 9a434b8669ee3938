//! Mis-set PostgreSQL databases, each found and mended.

use std::time::Duration;

use postrider::examine::Thresholds;
use postrider::operate::Severity::{Problem, Warning};
use postrider::{AnyStore, Connect};
use testkit::{PgBouncer, Postgres, eventually};

use crate::scene::{
    OnPostgres, above_fine, all_fine, names, names_the_consumer, names_the_missing_version, not_examined, one, open,
    sql_of, statements,
};

#[tokio::test]
async fn a_healthy_database_has_nothing_above_fine() {
    let scene = OnPostgres::new().await;
    #[rustfmt::skip]
    const NAMES: [&str; 19] = [
        "server-version", "isolation", "writable", "durability", "autovacuum", "connections", "time-limits", "pooler",
        "clock-skew", "long-transaction", "replication-slot", "role", "privileges", "row-security", "schema", "dead-rows",
        "index", "claim-plan", "changelog-consumers",
    ];
    for role in [scene.roles.relay(), scene.roles.operator()] {
        let findings = scene.examine_as(role, &Thresholds::default()).await;
        all_fine(&findings);
        assert_eq!(names(&findings), NAMES);
    }
}

#[tokio::test]
async fn what_a_role_may_not_look_at_is_not_called_examined() {
    let scene = OnPostgres::new().await;
    assert_eq!(not_examined(&scene.examine().await), ["long-transaction"]);
    scene.run(&format!("grant pg_read_all_stats to {}", scene.roles.relay())).await;
    assert_eq!(not_examined(&scene.examine().await), [""; 0]);
    scene.run(&format!("revoke update on outbox_messages from {}", scene.roles.relay())).await;
    assert_eq!(not_examined(&scene.examine().await), ["claim-plan"]);
}

#[tokio::test]
async fn a_schema_that_is_missing_old_or_newer_is_found() {
    OnPostgres::empty().await.tells_every_other_schema().await;
}

#[tokio::test]
async fn settings_of_the_session_that_slow_or_stop_a_relay_are_found_and_mended() {
    let scene = OnPostgres::new().await;
    for (setting, name, severity, word) in [
        ("default_transaction_isolation = 'serializable'", "isolation", Warning, "serializable"),
        ("default_transaction_isolation = 'repeatable read'", "isolation", Warning, "repeatable read"),
        ("default_transaction_read_only = on", "writable", Problem, "read-only"),
        ("synchronous_commit = off", "durability", Warning, "synchronous_commit"),
    ] {
        scene.run(&format!("alter role {} set {setting}", scene.roles.relay())).await;
        scene.shows_and_mends(name, severity, word).await;
        scene.run(&format!("alter role {} reset all", scene.roles.relay())).await;
        scene.run(&format!("alter role {} in database {} reset all", scene.roles.relay(), scene.database.name())).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_found_and_mended() {
    let server = Postgres::start().await.expect("a private PostgreSQL starts");
    let store = open(&server.url("postgres")).await;
    let admin = sqlx::PgPool::connect(&server.url("postgres")).await.expect("it connects");
    let findings = store.examine().await.expect("examined");
    let unsafe_ones: Vec<_> =
        above_fine(&findings).into_iter().filter(|finding| finding.name == "durability").collect();
    assert_eq!(unsafe_ones.len(), 3, "{findings:#?}");
    assert_eq!(unsafe_ones.iter().filter(|finding| finding.severity == Problem).count(), 2);
    sqlx::raw_sql("alter system set autovacuum = off").execute(&admin).await.expect("a setting");
    sqlx::raw_sql("select pg_reload_conf()").execute(&admin).await.expect("it reads it");
    let bad = || async {
        let findings = open(&server.url("postgres")).await.examine().await.expect("examined");
        findings
            .into_iter()
            .filter(|finding| ["durability", "autovacuum"].contains(&finding.name) && finding.fix.is_some())
            .collect::<Vec<_>>()
    };
    eventually(Duration::from_secs(120), || async { bad().await.len() == 4 }).await;
    for finding in bad().await {
        for sql in sql_of(&finding) {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&admin).await.expect("the fix runs");
        }
    }
    eventually(Duration::from_secs(120), || async { bad().await.is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r42_a_pooler_that_the_source_does_not_know_of_is_found_and_one_that_is_not_there_too() {
    let scene = OnPostgres::new().await;
    let pooler =
        PgBouncer::start(crate::scene::postgres().await, scene.database.name()).await.expect("PgBouncer starts");
    let told = Connect { behind_pooler: true, ..Connect::default() };
    let through = AnyStore::connect(&pooler.url(), &told).await.expect("a good URL");
    let findings = through.examine().await.expect("examined");
    assert!(
        findings
            .iter()
            .any(|finding| finding.name == "pooler" && finding.fix.is_none() && finding.what.contains("knows")),
        "{findings:#?}"
    );
    let untold = AnyStore::connect(&pooler.url(), &Connect::default()).await.expect("a good URL");
    let found = one(&untold.examine().await.expect("examined"), "pooler", Problem, "transaction mode");
    assert!(found.fix.expect("a fix").contains("behind_pooler"));
    let direct = AnyStore::connect(&scene.url(scene.roles.relay()), &told).await.expect("a good URL");
    one(&direct.examine().await.expect("examined"), "pooler", Warning, "keeps its server");
}

#[tokio::test]
async fn r42_a_pooler_that_refuses_a_start_up_parameter_is_told_as_such() {
    let scene = OnPostgres::empty().await;
    let server = crate::scene::postgres().await;
    let pooler = PgBouncer::start(server, scene.database.name()).await.expect("PgBouncer starts");
    let told = Connect { behind_pooler: true, ..Connect::default() };
    let plain = AnyStore::connect(&pooler.url(), &told).await.expect("a good URL");
    plain.ping().await.expect("a pooler out of the box lets us in");
    plain.migrate().await.expect("the migrations run");
    let url = format!("{}?options=-c%20geqo%3Doff", pooler.url());
    let refused = AnyStore::connect(&url, &told).await.expect("a good URL").ping().await.expect_err("it is refused");
    assert_eq!(refused.kind(), postrider::StoreErrorKind::Refused);
    assert!(refused.to_string().contains("start-up parameter"), "{refused}");
}

#[tokio::test]
async fn every_index_that_is_missing_wrong_or_invalid_is_found_and_mended() {
    let scene = OnPostgres::new().await;
    for suffix in ["due_idx", "lane_idx", "lease_idx", "finished_idx", "dedupe_idx"] {
        let index = format!("outbox_messages_{suffix}");
        scene.run(&format!("drop index {index}")).await;
        mends(&scene, &format!("{index} is missing")).await;
        scene.run(&format!("update pg_index set indisvalid = false where indexrelid = '{index}'::regclass")).await;
        mends(&scene, &format!("{index} is not valid")).await;
        scene.run(&format!("drop index {index}")).await;
        scene.run(&format!("create index {index} on outbox_messages (namespace)")).await;
        mends(&scene, &format!("{index} is about other")).await;
    }
    scene.run("drop index outbox_messages_due_idx").await;
    scene.run("create index outbox_messages_due_idx on outbox_messages (namespace, next_attempt_at, seq) where status = 'dead'").await;
    mends(&scene, "due_idx is about other columns or rows").await;
    scene.run("alter table outbox_messages drop constraint outbox_messages_pkey").await;
    mends(&scene, "outbox_messages_pkey is missing").await;
}

/// The plan of a claim may be bad too while an index is.
async fn mends(scene: &OnPostgres, word: &str) {
    let finding = one(&scene.examine().await, "index", Problem, word);
    scene.mend(&finding).await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn r40_a_claim_that_would_read_the_whole_table_is_found() {
    let scene = OnPostgres::new().await;
    for setting in ["enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"] {
        scene.run(&format!("alter role {} set {setting} = off", scene.roles.relay())).await;
    }
    all_fine(&scene.examine().await);
    scene.run("insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, 2000)").await;
    scene.run("analyze outbox_messages").await;
    let found = one(&scene.examine().await, "claim-plan", Problem, "outbox_messages_due_idx");
    assert!(found.fix.expect("a fix").contains("enable_indexscan"));
    scene.run(&format!("alter role {} reset all", scene.roles.relay())).await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn transactions_that_hold_cleaning_back_are_found_without_what_they_run() {
    let scene = OnPostgres::new().await;
    let at_once = Thresholds { transaction: Duration::ZERO, ..Thresholds::default() };
    scene.run(&format!("grant pg_read_all_stats to {}", scene.roles.operator())).await;
    let mut transaction = scene.admin.begin().await.expect("a transaction begins");
    sqlx::raw_sql(
        "set transaction isolation level repeatable read; set local application_name = 'billing'; select 'canary'",
    )
    .execute(&mut *transaction)
    .await
    .expect("it runs");
    let findings = scene.examine_as(scene.roles.operator(), &at_once).await;
    let found = one(&findings, "long-transaction", Warning, "\"billing\", idle in transaction");
    assert!(!format!("{findings:?}").contains("canary"), "{findings:#?}");
    all_fine(&scene.examine_as(scene.roles.operator(), &Thresholds::default()).await);
    scene.mend(&found).await;
    // The server ends a session a moment after it was told to.
    let examine = || scene.examine_as(scene.roles.operator(), &at_once);
    eventually(Duration::from_secs(120), || async { above_fine(&examine().await).is_empty() }).await;
    all_fine(&examine().await);
    scene.run("create table kept (n int)").await;
    scene.run("begin; insert into kept values (1); prepare transaction 'it''s open'").await;
    let found =
        one(&scene.examine_as(scene.roles.operator(), &at_once).await, "prepared-transaction", Warning, "it's open");
    scene.mend(&found).await;
    all_fine(&scene.examine_as(scene.roles.operator(), &at_once).await);
}

#[tokio::test]
async fn a_replication_slot_that_nobody_reads_is_found_and_mended() {
    let scene = OnPostgres::new().await;
    scene.run("select pg_create_physical_replication_slot('forgotten', true)").await;
    let little = Thresholds { log_bytes: 0, ..Thresholds::default() };
    let found = one(&scene.examine_as(scene.roles.relay(), &little).await, "replication-slot", Warning, "forgotten");
    all_fine(&scene.examine().await);
    scene.mend(&found).await;
    all_fine(&scene.examine_as(scene.roles.relay(), &little).await);
}

#[tokio::test]
async fn a_table_that_is_not_cleaned_is_found_and_mended() {
    let scene = OnPostgres::new().await;
    scene.run("alter table outbox_messages set (autovacuum_enabled = false)").await;
    scene.run("insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, 500)").await;
    scene.run("delete from outbox_messages").await;
    let few = Thresholds { dead_rows: 100, ..Thresholds::default() };
    let examine = || scene.examine_as(scene.roles.relay(), &few);
    let is_found = || async { above_fine(&examine().await).len() == 2 };
    eventually(Duration::from_secs(120), is_found).await;
    let findings = examine().await;
    let dead = one(&findings, "dead-rows", Warning, "dead row versions");
    scene.mend(&one(&findings, "autovacuum", Warning, "off for the table")).await;
    scene.mend(&dead).await;
    eventually(Duration::from_secs(120), || async { above_fine(&examine().await).is_empty() }).await;
}

#[tokio::test]
async fn a_server_without_free_connections_is_found() {
    let scene = OnPostgres::new().await;
    let many = Thresholds { free_connections: 1_000, ..Thresholds::default() };
    one(&scene.examine_as(scene.roles.relay(), &many).await, "connections", Warning, "connections are in use");
}

#[tokio::test]
async fn names_of_ones_own_are_examined_and_granted() {
    let scene = OnPostgres::empty().await;
    let names = postrider::Names::new("shop", "bell_", "letters").expect("good names");
    let options = Connect { layout: postrider::Layout::postrider(names), ..Connect::default() };
    let store = AnyStore::connect(&scene.database.url(), &options).await.expect("a good URL");
    store.migrate().await.expect("the migrations run");
    for sql in statements(&store.grants(&scene.roles)) {
        scene.run(&sql).await;
    }
    let relay = AnyStore::connect(&scene.url(scene.roles.relay()), &options).await.expect("a good URL");
    all_fine(&relay.examine().await.expect("examined"));
    scene.run("drop index shop.letters_due_idx").await;
    let found = one(&relay.examine().await.expect("examined"), "index", Problem, "letters_due_idx");
    scene.mend(&found).await;
    all_fine(&relay.examine().await.expect("examined"));
}

#[tokio::test]
async fn a_consumer_of_the_changelog_that_is_held_back_is_named_and_its_error_is_not() {
    let scene = OnPostgres::new().await;
    scene
        .run(
            "insert into postrider_cursors (name, versionstamp, last_error, failed_since) values
               ('search', '123456789012', 'CANARY', '2026-01-02 04:04:05+01'), ('mail', '123456789012', null, null)",
        )
        .await;
    names_the_consumer(&scene.examine().await);
    scene.run("update postrider_cursors set failed_since = null").await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn without_the_changelogs_privileges_or_its_version_a_relay_is_told_what_to_do() {
    let scene = OnPostgres::new().await;
    scene.run(&format!("revoke select on postrider_cursors from {}", scene.roles.relay())).await;
    let findings = scene.examine().await;
    all_fine(&findings);
    assert!(not_examined(&findings).contains(&"changelog-consumers"), "{findings:#?}");
    assert!(findings.iter().any(|finding| finding.what.contains("--print-grants")), "{findings:#?}");
    scene.run("drop table postrider_cursors").await;
    scene.run("delete from postrider_migrations where version = 5").await;
    names_the_missing_version(&scene.examine().await);
}
