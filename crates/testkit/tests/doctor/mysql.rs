//! Mis-set databases on MariaDB, each found and mended.

use std::time::Duration;

use postrider::examine::Thresholds;
use postrider::operate::Severity::{Problem, Warning};
use postrider::{MySqlStore, Names};
use sqlx::mysql::MySqlPoolOptions;

use crate::scene::{
    OnMySql, all_fine, mariadb, names, names_the_consumer, names_the_missing_version, not_examined, one, open,
};

#[tokio::test]
async fn a_healthy_database_has_nothing_above_fine() {
    let scene = OnMySql::new().await;
    #[rustfmt::skip]
    const NAMES: [&str; 21] = [
        "session", "server-version", "isolation", "sql-mode", "writable", "durability", "max-allowed-packet", "connections",
        "time-limits", "clock-skew", "long-transaction", "schema", "engine", "row-format", "collation", "index", "claim-plan",
        "turns", "role", "privileges", "changelog-consumers",
    ];
    for role in [scene.roles.relay(), scene.roles.operator()] {
        let findings = scene.examine_as(role, &Thresholds::default()).await;
        all_fine(&findings);
        assert_eq!(names(&findings), NAMES);
    }
}

#[tokio::test]
async fn what_an_account_may_not_look_at_is_not_called_examined() {
    let scene = OnMySql::new().await;
    assert_eq!(not_examined(&scene.examine().await), ["long-transaction", "turns"]);
    scene.run(&format!("grant process on *.* to {}", scene.roles.operator())).await;
    let operator = scene.examine_as(scene.roles.operator(), &Thresholds::default()).await;
    assert_eq!(not_examined(&operator), [""; 0]);
}

#[tokio::test]
async fn a_schema_that_is_missing_old_or_newer_is_found() {
    OnMySql::empty(mariadb().await).await.tells_every_other_schema().await;
}

#[tokio::test]
async fn a_session_that_would_change_data_or_wait_for_everybody_is_found() {
    let scene = OnMySql::new().await;
    for (session, name, severity, word) in [
        ("set sql_mode = ''", "session", Problem, "sql_mode"),
        ("set names latin1", "session", Problem, "character_set_client"),
        ("set session transaction isolation level serializable", "isolation", Warning, "SERIALIZABLE"),
    ] {
        let options = MySqlPoolOptions::new().after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(session).execute(connection).await.map(drop) })
        });
        let pool = options.connect(&scene.url(scene.roles.relay())).await.expect("it connects");
        let store = MySqlStore::new(pool, Names::default());
        one(&store.examine().await.expect("examined"), name, severity, word);
    }
}

#[tokio::test]
async fn every_index_that_is_missing_or_wrong_is_found_and_mended() {
    let scene = OnMySql::new().await;
    for suffix in ["id_idx", "dedupe_idx", "due_idx", "lane_idx", "lease_idx"] {
        let index = format!("outbox_messages_{suffix}");
        scene.run(&format!("alter table outbox_messages drop key {index}")).await;
        scene.shows_and_mends("index", Problem, &format!("{index} is missing")).await;
        scene.run(&format!("alter table outbox_messages drop key {index}, add key {index} (topic)")).await;
        scene.shows_and_mends("index", Problem, &format!("{index} is about topic")).await;
    }
}

#[tokio::test]
async fn a_table_that_is_made_otherwise_is_found_and_mended() {
    let scene = OnMySql::new().await;
    scene.run("alter table outbox_messages row_format = compact").await;
    scene.shows_and_mends("row-format", Warning, "Compact").await;
    scene.run("alter table outbox_messages modify dedupe_key varchar(180) character set utf8mb4 collate utf8mb4_general_ci null").await;
    scene.shows_and_mends("collation", Problem, "dedupe_key is varchar utf8mb4_general_ci").await;
    scene.run("alter table outbox_messages engine = Aria").await;
    let found = one(&scene.examine().await, "engine", Problem, "no transactions");
    scene.mend(&found).await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn turns_that_a_restore_left_out_are_found_and_mended() {
    let scene = OnMySql::new().await;
    scene.run("delete from postrider_turns where slot = 7").await;
    let operator = scene.roles.operator().to_owned();
    let found = one(&scene.examine_as(&operator, &Thresholds::default()).await, "turns", Problem, "8191 of");
    assert!(found.fix.expect("a fix").contains("postrider migrate"));
    open(&scene.database.url()).await.migrate().await.expect("the migrations run");
    all_fine(&scene.examine_as(&operator, &Thresholds::default()).await);
}

#[tokio::test]
async fn s23_each_privilege_that_a_relay_lacks_or_has_too_much_is_found() {
    let scene = OnMySql::new().await;
    let relay = scene.roles.relay().to_owned();
    for revoke in ["select", "update (locked_until)", "delete"] {
        scene.run(&format!("revoke {revoke} on outbox_messages from {relay}")).await;
        scene.shows_and_mends("privileges", Problem, "lacks 1").await;
    }
    scene.run(&format!("grant drop on outbox_messages to {relay}")).await;
    one(&scene.examine().await, "role", Warning, "drop tables");
    scene.run(&format!("revoke drop on outbox_messages from {relay}")).await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn s23_privileges_elsewhere_are_no_business_of_the_doctor() {
    let scene = OnMySql::new().await;
    let relay = scene.roles.relay().to_owned();
    // A fresh MariaDB gives this to everybody on `test` and what begins like it.
    for elsewhere in ["`elsewhere`", r"`else\_%`"] {
        scene.run(&format!("grant all privileges on {elsewhere}.* to {relay}")).await;
        all_fine(&scene.examine().await);
    }
    // Databases of tests have names like this.
    scene.run(&format!(r"grant alter, drop on `test\_%`.* to {relay}")).await;
    one(&scene.examine().await, "role", Warning, "drop tables");
}

#[tokio::test]
async fn a_transaction_that_stays_open_is_found_without_what_it_runs() {
    let scene = OnMySql::new().await;
    scene.run(&format!("grant process on *.* to {}", scene.roles.operator())).await;
    let mut transaction = scene.admin.begin().await.expect("a transaction begins");
    sqlx::raw_sql("insert into outbox_messages (namespace, topic, payload) values ('shop', 'canary', '1')")
        .execute(&mut *transaction)
        .await
        .expect("it runs");
    let thread: i64 = sqlx::query_scalar("select cast(connection_id() as signed)")
        .fetch_one(&mut *transaction)
        .await
        .expect("a thread");
    let at_once = Thresholds { transaction: Duration::ZERO, ..Thresholds::default() };
    let findings = scene.examine_as(scene.roles.operator(), &at_once).await;
    assert!(!format!("{findings:?}").contains("canary"), "{findings:#?}");
    let ours = |findings: &[postrider::operate::Finding]| {
        let says = format!("thread {thread} ");
        findings.iter().find(|finding| finding.name == "long-transaction" && finding.what.contains(&says)).cloned()
    };
    let found = ours(&findings).expect("it is found");
    assert_eq!(found.severity, Warning);
    scene.mend(&found).await;
    let is_gone = || async { ours(&scene.examine_as(scene.roles.operator(), &at_once).await).is_none() };
    testkit::eventually(Duration::from_secs(120), is_gone).await;
}

#[tokio::test]
async fn a_consumer_of_the_changelog_that_is_held_back_is_named_and_its_error_is_not() {
    let scene = OnMySql::new().await;
    scene
        .run(
            "insert into postrider_cursors (name, versionstamp, last_error, failed_since) values
               ('search', '123456789012', 'CANARY', '2026-01-02 03:04:05.678'), ('mail', '123456789012', null, null)",
        )
        .await;
    names_the_consumer(&scene.examine().await);
    scene.run("update postrider_cursors set failed_since = null").await;
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn without_the_changelogs_privileges_or_its_version_a_relay_is_told_what_to_do() {
    let scene = OnMySql::new().await;
    scene.run(&format!("revoke select on postrider_cursors from {}", scene.roles.relay())).await;
    let findings = scene.examine().await;
    all_fine(&findings);
    assert!(not_examined(&findings).contains(&"changelog-consumers"), "{findings:#?}");
    assert!(findings.iter().any(|finding| finding.what.contains("--print-grants")), "{findings:#?}");
    scene.run("drop table postrider_cursors").await;
    scene.run("delete from postrider_migrations where version = 5").await;
    names_the_missing_version(&scene.examine().await);
}
