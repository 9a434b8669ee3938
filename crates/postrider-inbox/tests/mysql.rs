//! The inbox on MariaDB (or MySQL, see `testkit::mariadb`) keeps every promise of the inbox seam, and its own.

mod sql;

use std::collections::HashMap;

use postrider_inbox::{Entry, Guard, Inbox, InboxError, InboxTables, MySqlGuard, MySqlInbox, run_once};
use sea_orm::{DatabaseConnection, SqlxMySqlConnector};
use sql::{Scene, Suite, begin, delivery, first, inbox, messages, soon, write};
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlPool, Row, SqlSafeStr, Transaction};
use testkit::{MariaDb, MySqlDatabase, Proxy};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

struct OnMySql {
    server: &'static MariaDb,
    database: MySqlDatabase,
    pool: MySqlPool,
}

impl Scene for OnMySql {
    type Db = MySql;

    async fn start() -> Self {
        let server = MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = database.pool_with(|options| options.max_connections(20)).await.expect("it answers");
        let scene = Self { server, database, pool };
        inbox(&scene).migrate().await.expect("the tables are made");
        scene.run("create table effects (event char(36) not null)").await.expect("the ledger is made");
        scene
    }

    fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    async fn patient_pool(&self) -> MySqlPool {
        self.pool.clone()
    }

    fn sea_orm(&self) -> DatabaseConnection {
        SqlxMySqlConnector::from_sqlx_mysql_pool(self.pool.clone())
    }

    async fn run_in(transaction: &mut Transaction<'_, MySql>, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **transaction).await.map(drop)
    }

    async fn ledger(&self) -> HashMap<Uuid, usize> {
        let rows = sqlx::query_as("select event, count(*) from effects group by event").fetch_all(&self.pool).await;
        let rows: Vec<(Hyphenated, i64)> = rows.expect("the ledger can be read");
        rows.into_iter().map(|(event, count)| (event.into_uuid(), count as usize)).collect()
    }

    async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
    }

    async fn prepare(&self, sql: &str) -> Result<(), sqlx::Error> {
        self.pool.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await.map(drop)
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.expect("it answers")
    }

    /// No table is read as a whole, and none is sorted.
    async fn plan(&self, sql: &str) -> String {
        let explain = AssertSqlSafe(format!("explain {sql}"));
        let lines = sqlx::query(explain).bind(10_i64).fetch_all(&self.pool).await.expect("it is explained");
        let text = |line: &sqlx::mysql::MySqlRow, column: &str| -> String {
            line.try_get::<Option<String>, _>(column)
                .unwrap_or_else(|_| {
                    line.get::<Option<Vec<u8>>, _>(column).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                })
                .unwrap_or_default()
        };
        for line in &lines {
            let (table, access, extra) = (text(line, "table"), text(line, "type"), text(line, "Extra"));
            assert!(table.starts_with('<') || access != "ALL", "{table} is read as a whole");
            assert!(!extra.contains("filesort"), "{table} is sorted");
        }
        lines.iter().map(|line| text(line, "key")).collect::<Vec<_>>().join("\n")
    }

    async fn catalog(&self) -> String {
        let mut catalog = String::new();
        for table in ["inbox_messages", "inbox_attempts"] {
            let row = sqlx::query(AssertSqlSafe(format!("show create table {table}"))).fetch_one(&self.pool).await;
            catalog += &row.map(|row| row.get::<String, _>(1)).unwrap_or_default();
        }
        catalog
    }

    const NOW: &'static str = "utc_timestamp(6)";

    fn in_hours(hours: i64) -> String {
        format!("utc_timestamp(6) + interval {hours} hour")
    }

    async fn other_schema(&self) -> Option<String> {
        Some(self.server.create_database().await.expect("it is created").name().to_owned())
    }
}

testkit::inbox_conformance!(Suite<OnMySql>);
sql_promises!(OnMySql);

#[tokio::test(flavor = "multi_thread")]
async fn r63_a_connection_that_is_killed_leaves_neither_effect_nor_row() {
    let scene = OnMySql::start().await;
    let inbox = inbox(&scene);
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<OnMySql>(guard.transaction(), delivery.event).await;
    let id: u64 =
        sqlx::query_scalar("select connection_id()").fetch_one(&mut **guard.transaction()).await.expect("it answers");
    scene.run(&format!("kill connection {id}")).await.expect("it is killed");
    let failed = guard.commit().await.expect_err("the connection is gone");
    assert!(matches!(failed, InboxError::Unavailable(_)) && failed.is_transient(), "{failed:?}");
    assert_eq!((scene.ledger().await.len(), messages(&scene).await), (0, 0));
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_a_commit_whose_answer_is_lost_is_found_out_by_the_next_delivery() {
    /// Done, and neither in a transaction nor with rows: only a commit is answered like that here.
    const COMMITTED: &[u8] = &[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    let scene = OnMySql::start().await;
    let proxy = Proxy::start(([127, 0, 0, 1], scene.server.port()).into()).await.expect("the proxy starts");
    let pool = MySqlPool::connect(&scene.database.url_via(proxy.port())).await.expect("it answers");
    let inbox = MySqlInbox::new(pool, InboxTables::default());
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<OnMySql>(guard.transaction(), delivery.event).await;
    proxy.cut_reply_containing(COMMITTED);
    let lost = guard.commit().await.expect_err("the answer is lost");
    assert!(matches!(lost, InboxError::Unavailable(_)), "{lost:?}");
    assert_eq!(proxy.cuts(), 1);
    assert!(begin(&inbox, &delivery).await.is_already_processed());
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_at_once_keeps_the_session_s_own_patience() {
    let scene = OnMySql::start().await;
    let delivery = delivery();
    let _guard = first(&inbox(&scene), &delivery).await;
    let mut transaction = scene.pool.begin().await.expect("it begins");
    let tables = InboxTables::default();
    assert!(matches!(soon(tables.enter(&mut transaction, &delivery)).await.expect("it answers"), Entry::InProgress(_)));
    let patience: i64 = sqlx::query_scalar("select cast(@@session.innodb_lock_wait_timeout as signed)")
        .fetch_one(&mut *transaction)
        .await
        .expect("it answers");
    assert_eq!(patience, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_an_error_that_passes_and_nothing_is_kept() {
    let scene = OnMySql::start().await;
    scene
        .run("create table stock (id int primary key, pieces int not null); insert into stock values (1, 5), (2, 5)")
        .await
        .expect("it is made");
    let tables = InboxTables::builder().meanwhile(postrider_inbox::Meanwhile::Wait).build().expect("it is acceptable");
    let (held, wanted) = (delivery(), delivery());
    let mut one = scene.pool.begin().await.expect("it begins");
    let mut two = scene.pool.begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut one, &held).await.expect("it answers"), Entry::First(())));
    // The second one has changed more, so that the first is the one that the server gives up.
    for sql in ["update stock set pieces = 4 where id = 1", "update stock set pieces = 4 where id = 2"] {
        OnMySql::run_in(&mut two, sql).await.expect("it is written");
    }
    assert!(matches!(tables.enter(&mut two, &wanted).await.expect("it answers"), Entry::First(())));
    let waiting = tokio::spawn({
        let tables = tables.clone();
        let held = held.clone();
        async move { tables.enter(&mut two, &held).await }
    });
    let waits = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
    testkit::eventually(sql::PATIENCE, || async { scene.number(waits).await >= 1 }).await;
    let conflict = tables.enter(&mut one, &wanted).await;
    let other = match conflict {
        Err(ref error) => {
            assert!(matches!(error, InboxError::Conflict(_)) && error.is_transient(), "{error:?}");
            drop(one);
            let entry = waiting.await.expect("it does not panic").expect("it answers");
            matches!(entry, Entry::First(()))
        }
        // The server has given up the other one.
        Ok(Entry::First(())) => matches!(waiting.await.expect("it does not panic"), Err(InboxError::Conflict(_))),
        Ok(other) => panic!("nobody has processed it, but {other:?}"),
    };
    assert!(other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_passes_over_what_somebody_has_locked() {
    let scene = OnMySql::start().await;
    let events: Vec<Uuid> = (0..4).map(|_| Uuid::now_v7()).collect();
    for event in &events {
        let sql = format!(
            "insert into inbox_messages (consumer, event_id, expires_at) values ('mailer', '{event}', utc_timestamp(6))"
        );
        scene.run(&sql).await.expect("it is written");
    }
    let mut holder = scene.pool.begin().await.expect("it begins");
    let lock =
        format!("select * from inbox_messages where consumer = 'mailer' and event_id = '{}' for update", events[0]);
    OnMySql::run_in(&mut holder, &lock).await.expect("it is locked");
    assert_eq!(inbox(&scene).purge_all().await.expect("it purges"), 3);
    holder.rollback().await.expect("it is rolled back");
    assert_eq!(inbox(&scene).purge_all().await.expect("it purges"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_wait_that_is_given_up_undoes_the_transaction_it_is_an_error() {
    let server = MariaDb::builder().setting("innodb-rollback-on-timeout", "ON").start().await.expect("it starts");
    let database = server.create_database().await.expect("the database is created");
    let pool = database.pool().await.expect("it answers");
    let tables = InboxTables::default();
    tables.migrate(&pool).await.expect("the tables are made");
    let (held, own) = (delivery(), delivery());
    let mut one = pool.begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut one, &held).await.expect("it answers"), Entry::First(())));
    let mut two = pool.begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut two, &own).await.expect("it answers"), Entry::First(())));
    // What the second one has entered is gone, and a commit of the rest would lose it.
    let gone = soon(tables.enter(&mut two, &held)).await.expect_err("the transaction is undone");
    assert!(matches!(gone, InboxError::Conflict(_)) && gone.is_transient(), "{gone:?}");
    two.commit().await.expect("the server says nothing");
    // With a guard there is nothing else in the transaction.
    let inbox = MySqlInbox::new(pool.clone(), tables);
    assert!(matches!(inbox.begin(&held).await.expect("it answers"), Entry::InProgress(_)));
    one.rollback().await.expect("it is rolled back");
    first(&inbox, &own).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_truncates_and_fails_leaves_no_row() {
    let scene = OnMySql::start().await;
    let (inbox, delivery) = (inbox(&scene), delivery());
    let failed = run_once(&inbox, &delivery, async |guard: &mut MySqlGuard| {
        OnMySql::run_in(guard.transaction(), "truncate table effects").await.expect("it is truncated");
        Err::<(), _>("the handler fails")
    });
    failed.await.expect_err("the handler fails");
    assert_eq!(messages(&scene).await, 0);
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_keeps_nobody_from_entering() {
    let scene = OnMySql::start().await;
    scene
        .run("insert into inbox_messages (consumer, event_id, expires_at) values ('mailer', uuid(), utc_timestamp(6))")
        .await
        .expect("it is written");
    scene
        .run("create trigger slow before delete on inbox_messages for each row set @slept = sleep(3)")
        .await
        .expect("it is made");
    let purge = tokio::spawn({
        let inbox = inbox(&scene);
        async move { inbox.purge(10).await }
    });
    let name = scene.database.name();
    let sleeps =
        format!("select count(*) from information_schema.processlist where db = '{name}' and state = 'User sleep'");
    testkit::eventually(sql::PATIENCE, || async { scene.number(&sleeps).await == 1 }).await;
    let entry = inbox(&scene).begin(&delivery()).await.expect("it answers");
    assert!(matches!(entry, Entry::First(_)), "{entry:?}");
    assert_eq!(purge.await.expect("it does not panic").expect("it purges"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_runs_in_a_spawned_task() {
    let scene = OnMySql::start().await;
    let (inbox, delivery) = (inbox(&scene), delivery());
    let event = delivery.event;
    let task = tokio::spawn(async move {
        run_once(&inbox, &delivery, async |guard: &mut MySqlGuard| {
            let text = delivery.event.to_string();
            sqlx::query("insert into effects (event) values (?)").bind(text).execute(&mut **guard.transaction()).await
        })
        .await
    });
    assert!(task.await.expect("it does not panic").expect("it runs").may_ack());
    assert_eq!(scene.ledger().await, HashMap::from([(event, 1)]));
}
