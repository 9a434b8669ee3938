//! Each role does its work under forced row-level security, and fails at every statement that is not its work.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::operate::{Change, Filter};
use postrider::store::{Finished, Purge};
use postrider::{AnyStore, Connect, Dispatcher, Message, PublishError, Scope, Sight, Use, callback, tenant};
use sqlx::AssertSqlSafe;
use testkit::{MariaDb, eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scene::{DENIED, Scene, order, state};

/// So long that what arrives sooner was rung for, however busy the machine is.
const POLL: Duration = Duration::from_secs(240);

/// Who runs a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Application,
    Relay,
    Operator,
    Reader,
}
use Role::{Application, Operator, Reader, Relay};

/// Statements with who may run them, and how many of the three rows each of them reaches: one is the application's.
const MATRIX: [(&str, &[(Role, u64)]); 41] = [
    (
        "insert into outbox_messages (namespace, topic, payload, tenant_id) values ('n', 't', '1', '{own}')",
        &[(Application, 1)],
    ),
    ("insert into outbox_messages (namespace, topic, payload, tenant_id) values ('n', 't', '1', '{other}')", &[]),
    ("insert into outbox_messages (namespace, topic, payload) values ('n', 't', '1')", &[]),
    ("select * from postrider_enqueue('n', 't', '1', tenant_id => '{own}')", &[(Application, 1)]),
    ("select * from postrider_enqueue('n', 't', '1', tenant_id => '{other}')", &[]),
    ("select id, topic from outbox_messages", &[(Application, 1), (Relay, 3), (Operator, 3), (Reader, 3)]),
    ("select status, headers, last_error from outbox_messages", &[(Relay, 3), (Operator, 3), (Reader, 3)]),
    ("select payload from outbox_messages", &[(Relay, 3), (Operator, 3)]),
    ("select payload_bytes from outbox_messages", &[(Relay, 3), (Operator, 3)]),
    ("select * from outbox_messages for update", &[(Relay, 3), (Operator, 3)]),
    ("update outbox_messages set status = 'pending', attempts = 0", &[(Relay, 3), (Operator, 3)]),
    ("update outbox_messages set headers = '{}'", &[(Operator, 3)]),
    ("update outbox_messages set tenant_id = '{other}'", &[]),
    ("update outbox_messages set payload = '2'", &[]),
    ("delete from outbox_messages", &[(Relay, 3), (Operator, 3)]),
    ("truncate outbox_messages", &[]),
    ("alter table outbox_messages disable row level security", &[]),
    ("alter table outbox_messages no force row level security", &[]),
    ("create policy mine on outbox_messages using (true)", &[]),
    ("drop policy postrider_application on outbox_messages", &[]),
    ("alter policy postrider_application on outbox_messages using (true)", &[]),
    ("alter table outbox_messages drop constraint outbox_messages_dedupe_check", &[]),
    ("create trigger mine after insert on outbox_messages execute function postrider_uuid_v7()", &[]),
    ("set role {owner}", &[]),
    ("set role {relay}", &[(Relay, 0)]),
    ("set session authorization {relay}", &[(Relay, 0)]),
    ("select version from postrider_migrations limit 1", &[(Relay, 1), (Operator, 1), (Reader, 1)]),
    ("select count(*) from postrider_audit", &[(Operator, 1), (Reader, 1)]),
    ("delete from postrider_audit", &[]),
    ("select count(*) from postrider_changelog", &[(Relay, 1), (Operator, 1)]),
    (
        "insert into postrider_changelog (versionstamp, uow_id, payload) values (decode(repeat('00', 12), 'hex'), 'u', '1')",
        &[],
    ),
    ("update postrider_changelog set uow_id = uow_id", &[]),
    ("delete from postrider_changelog", &[]),
    ("select count(*) from postrider_settings", &[(Relay, 1), (Operator, 1)]),
    ("insert into postrider_settings (key, value) values ('k', 'v')", &[]),
    ("update postrider_settings set value = value", &[]),
    ("delete from postrider_settings", &[]),
    ("select count(*) from postrider_cursors", &[(Relay, 1), (Operator, 1)]),
    ("insert into postrider_cursors (name, versionstamp) values ('c', decode(repeat('00', 12), 'hex'))", &[(Relay, 1)]),
    ("update postrider_cursors set fence = 0", &[(Relay, 0), (Operator, 0)]),
    ("delete from postrider_cursors", &[(Relay, 0), (Operator, 0)]),
];

#[tokio::test]
async fn s23_under_row_security_each_role_fails_at_every_statement_it_should_not_run() -> Result<()> {
    let scene = Scene::protected().await?;
    let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
    for tenant in [Some(own), Some(other), None] {
        scene.put(tenant, 1).await?;
    }
    for role in [Application, Relay, Operator, Reader] {
        let name = match role {
            Application => scene.roles.producer(),
            Relay => scene.roles.relay(),
            Operator => scene.roles.operator(),
            Reader => scene.roles.reader().expect("a reader"),
        };
        let pool = scene.pool(name).await?;
        for (sql, allowed) in MATRIX {
            let sql = sql
                .replace("{own}", &own.to_string())
                .replace("{other}", &other.to_string())
                .replace("{owner}", scene.owner())
                .replace("{relay}", scene.roles.relay());
            let mut transaction = pool.begin().await?;
            if role == Application {
                tenant::set(&mut transaction, own).await?;
            }
            let answer = sqlx::query(AssertSqlSafe(sql.clone())).persistent(false).execute(&mut *transaction).await;
            transaction.rollback().await?;
            match (answer, allowed.iter().find(|(allowed, _)| *allowed == role)) {
                (Ok(done), Some((_, rows))) => assert_eq!(done.rows_affected(), *rows, "{role:?} {sql}"),
                (Err(error), None) => assert_eq!(state(&error), DENIED, "{role:?} {sql}: {error}"),
                (answer, expected) => panic!("{role:?} may {expected:?}: {sql}: {answer:?}"),
            }
        }
    }
    Ok(())
}

/// What a reader may do with the library, and what not.
async fn look(reader: &AnyStore, dead: u64) -> Result<()> {
    reader.check_schema().await?;
    let operator = reader.operator();
    assert_eq!(operator.count_dead(&Filter::default()).await?, dead);
    assert_eq!(operator.dead(&Filter::default(), None, 10).await?.len() as u64, dead);
    assert!(!operator.overview(&Scope::all(), true).await?.is_empty());
    operator.audit(10).await?;
    let change = Change { who: "tests".into(), filter: Filter::default(), limit: 10 };
    operator.replay(&change).await.expect_err("it changes nothing");
    operator.discard(&change).await.expect_err("it changes nothing");
    let purge = Purge { scope: Scope::all(), finished: Finished::Dead, older_than: Duration::ZERO, limit: 10 };
    operator.purge_as("tests", &purge).await.expect_err("it changes nothing");
    let id = operator.dead(&Filter::default(), None, 1).await?[0].id;
    operator.message(id).await.expect_err("it reads no payload");
    reader.enqueue(vec![Message::json("shop", "order", &1)]).await.expect_err("it writes nothing");
    Ok(())
}

#[tokio::test]
async fn s23_under_forced_row_security_relay_operator_and_reader_do_all_their_work() -> Result<()> {
    let scene = Scene::protected().await?;
    let relay = scene.open(scene.roles.relay()).await?;
    let operator = scene.open(scene.roles.operator()).await?;
    relay.check_relay().await?;
    operator.check_schema().await?;
    let application = scene.open(scene.roles.producer()).await?;
    let one = Uuid::new_v4();
    let setting = postrider::TenantSetting::default();
    let sink = callback(|message| async move {
        match message.topic.as_str() {
            "bad" => Err(PublishError::reject("no such thing")),
            _ => Ok::<(), PublishError>(()),
        }
    });
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder_shared(relay.store(), Arc::new(sink)).poll_interval(POLL).lease(4 * POLL);
    let running = tokio::spawn(dispatcher.build()?.run(stop.clone()));
    for n in 0..20 {
        // One after the other, so that the doorbell is used, too.
        application.enqueue_as(one, &setting, vec![order(one, n)]).await?;
        let settled = || async {
            relay.store().stats(&Scope::all()).await.is_ok_and(|stats| stats.pending + stats.processing == 0)
        };
        eventually(POLL / 2, settled).await;
    }
    application.enqueue_as(one, &setting, vec![Message::json("shop", "bad", &1).tenant(one)]).await?;
    let dead = || async { operator.store().stats(&Scope::all()).await.is_ok_and(|stats| stats.dead == 1) };
    eventually(POLL / 2, dead).await;
    stop.cancel();
    assert_eq!(running.await?.abandoned, 0);
    look(&scene.open(scene.roles.reader().expect("a reader")).await?, 1).await?;
    let change = Change { who: "tests".into(), filter: Filter::default(), limit: 10 };
    assert_eq!(operator.operator().replay(&change).await?.len(), 1);
    let purge = Purge { scope: Scope::all(), finished: Finished::Delivered, older_than: Duration::ZERO, limit: 100 };
    assert_eq!(operator.operator().purge_as("tests", &purge).await?, 20);
    assert_eq!(operator.operator().audit(10).await?.len(), 2);
    for store in [&relay, &operator] {
        let findings = store.examine().await?;
        let wrong = |finding: &&postrider::operate::Finding| {
            ["row-security", "role", "privileges"].contains(&finding.name) && finding.fix.is_some()
        };
        assert_eq!(findings.iter().find(wrong), None);
    }
    Ok(())
}

#[tokio::test]
async fn s11_a_relay_from_which_row_security_hides_rows_is_refused_and_told_what_mends_it() -> Result<()> {
    let scene = Scene::protected().await?;
    scene.open(scene.roles.relay()).await?.check_relay().await?;
    scene.open("postgres").await?.check_relay().await?;
    // The owner under forced row security has no policy, and those of the application and the reader do not show all.
    let [application, reader] = [scene.roles.producer(), scene.roles.reader().expect("a reader")];
    scene.run(&format!("grant select on postrider_migrations to {application}")).await?;
    for role in [scene.owner(), application, reader] {
        let store = scene.open(role).await?;
        let refused = store.check_relay().await.expect_err(role).to_string();
        assert!(refused.contains(&format!("from the relay's role {role}")), "{refused}");
        store.check_schema().await?;
        let hides = |finding: &postrider::operate::Finding| {
            finding.name == "row-security" && finding.fix.is_some() && finding.what.contains("hides rows")
        };
        assert!(store.examine().await?.iter().any(hides), "{role}");
        let (_, mend) = refused.rsplit_once("owner: ").expect("what mends it");
        scene.run(mend).await?;
        store.check_relay().await?;
        assert!(!store.examine().await?.iter().any(hides), "{role}");
    }
    scene.run("drop policy postrider_relay on outbox_messages").await?;
    scene.open(scene.roles.relay()).await?.check_relay().await.expect_err("its policy is gone");
    scene.run("alter table outbox_messages disable row level security").await?;
    scene.open(scene.roles.relay()).await?.check_relay().await?;
    Ok(())
}

#[tokio::test]
async fn s11_each_role_knows_how_much_row_security_shows_it() -> Result<()> {
    let scene = Scene::protected().await?;
    let reader = scene.roles.reader().expect("a reader");
    let sight = |url: String, of: Use| async move {
        let store = AnyStore::connect(&url, &Connect::default()).await?;
        let sight = store.sight(of).await?;
        store.close().await;
        anyhow::Ok(sight)
    };
    let asks = |role: &str| format!("{}?options=-c%20app.current_tenant_id%3D{}", scene.url(role), Uuid::new_v4());
    for role in ["postgres", scene.roles.operator(), scene.roles.relay()] {
        for of in [Use::Read, Use::Change] {
            assert_eq!(sight(scene.url(role), of).await?, Sight::All, "{role}");
        }
    }
    assert_eq!(sight(scene.url(reader), Use::Read).await?, Sight::All);
    assert_eq!(sight(asks(reader), Use::Read).await?, Sight::Asked);
    assert_eq!(sight(asks(scene.roles.producer()), Use::Change).await?, Sight::Asked);
    for (role, of) in [
        (scene.owner(), Use::Read),
        (scene.roles.producer(), Use::Read),
        (scene.owner(), Use::Change),
        (reader, Use::Change),
    ] {
        let Sight::Nothing(why) = sight(scene.url(role), of).await? else { panic!("{role} {of:?}") };
        assert!(why.contains(&format!("from the role {role}")), "{why}");
    }
    scene.run(&format!("create policy theirs on outbox_messages to {} using (topic = 'x')", scene.owner())).await?;
    assert!(matches!(sight(scene.url(scene.owner()), Use::Read).await?, Sight::Part(_)));
    scene.run("create policy guard on outbox_messages as restrictive using (false)").await?;
    assert!(matches!(sight(scene.url(scene.roles.operator()), Use::Read).await?, Sight::Nothing(_)));
    scene.run("alter table outbox_messages disable row level security").await?;
    assert_eq!(sight(scene.url(scene.owner()), Use::Read).await?, Sight::All);
    Ok(())
}

/// What hides rows from a relay that a policy with the condition true shows all of them.
const GUARDS: [&str; 3] = [
    "create policy guard on outbox_messages as restrictive using (tenant_id = nullif(current_setting('app.current_tenant_id', true), '')::uuid)",
    "create policy guard on outbox_messages as restrictive for delete to {relay} using (false)",
    "create policy guard on outbox_messages as restrictive for update using (true) with check (status <> 'delivered')",
];

#[tokio::test]
async fn s11_a_relay_from_which_a_restrictive_policy_hides_rows_is_refused_and_told_what_mends_it() -> Result<()> {
    let scene = Scene::protected().await?;
    let relay = scene.open(scene.roles.relay()).await?;
    let is_told = |findings: Vec<postrider::operate::Finding>| {
        findings.iter().any(|finding| finding.name == "row-security" && finding.what.contains("policy guard"))
    };
    for guard in GUARDS {
        scene.run(&guard.replace("{relay}", scene.roles.relay())).await?;
        let refused = relay.check_relay().await.expect_err(guard).to_string();
        assert!(refused.contains("restrictive policy guard"), "{refused}");
        assert!(is_told(relay.examine().await?), "{guard}");
        let (_, mend) = refused.rsplit_once("owner: ").expect("what mends it");
        scene.run(mend).await?;
        relay.check_relay().await?;
        assert!(!is_told(relay.examine().await?), "{guard}");
    }
    let application = scene.roles.producer();
    for harmless in [
        "create policy guard on outbox_messages as restrictive using (true)".to_owned(),
        format!("create policy other on outbox_messages as restrictive to {application} using (false)"),
        "create policy written on outbox_messages as restrictive for insert with check (topic <> 'x')".to_owned(),
    ] {
        scene.run(&harmless).await?;
        relay.check_relay().await?;
    }
    Ok(())
}

#[tokio::test]
async fn s23_on_mariadb_a_reader_looks_and_does_nothing_else() -> Result<()> {
    let database = MariaDb::shared().await?.create_database().await?;
    let admin = AnyStore::connect(&database.url(), &Connect::default()).await?;
    admin.migrate().await?;
    let unique = &database.name()["test_".len()..][..12];
    let reader = format!("reader_{unique}");
    let others = ["app", "relay", "operator"].map(|role| format!("{role}_{unique}"));
    let roles = postrider::Roles::new(&others[0], &others[1], &others[2])?.with_reader(&reader)?;
    let pool = database.pool().await?;
    for account in others.iter().chain([&reader]) {
        let sql = format!("create user {account} identified by 'known-to-all-tests'");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await?;
    }
    sqlx::raw_sql(AssertSqlSafe(admin.grants(&roles))).execute(&pool).await?;
    admin.enqueue(vec![Message::json("shop", "order", &1)]).await?;
    sqlx::raw_sql("update outbox_messages set status = 'dead'").execute(&pool).await?;
    let port = database.access().get_port();
    let url = format!("mariadb://{reader}:known-to-all-tests@127.0.0.1:{port}/{}", database.name());
    look(&AnyStore::connect(&url, &Connect::default()).await?, 1).await
}
