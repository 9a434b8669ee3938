//! The inbox on PostgreSQL keeps every promise of the inbox seam, and its own.

mod sql;

use std::collections::HashMap;

use postrider_inbox::{
    Delivery, Entry, Guard, Inbox, InboxError, InboxTables, Meanwhile, PostgresGuard, PostgresInbox, run_once,
};
use sea_orm::{DatabaseConnection, SqlxPostgresConnector};
use sql::{PATIENCE, Scene, Suite, attempt, begin, delivery, first, inbox, messages, soon, write};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Row, SqlSafeStr, Transaction};
use testkit::{Database, Proxy, eventually};
use tokio_postgres::NoTls;
use uuid::Uuid;

struct OnPostgres {
    server: &'static testkit::Postgres,
    database: Database,
    pool: PgPool,
}

impl Scene for OnPostgres {
    type Db = Postgres;

    async fn start() -> Self {
        let server = testkit::Postgres::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = database.pool_with(|options| options.max_connections(20)).await.expect("it answers");
        let scene = Self { server, database, pool };
        inbox(&scene).migrate().await.expect("the tables are made");
        scene.run("create table effects (event uuid not null)").await.expect("the ledger is made");
        scene
    }

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn patient_pool(&self) -> PgPool {
        self.pool.clone()
    }

    fn sea_orm(&self) -> DatabaseConnection {
        SqlxPostgresConnector::from_sqlx_postgres_pool(self.pool.clone())
    }

    async fn run_in(transaction: &mut Transaction<'_, Postgres>, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **transaction).await.map(drop)
    }

    async fn ledger(&self) -> HashMap<Uuid, usize> {
        let rows = sqlx::query_as("select event, count(*) from effects group by event").fetch_all(&self.pool).await;
        let rows: Vec<(Uuid, i64)> = rows.expect("the ledger can be read");
        rows.into_iter().map(|(event, count)| (event, count as usize)).collect()
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

    /// With many rows, and a plan as PostgreSQL would keep it for any parameter.
    async fn plan(&self, sql: &str) -> String {
        for (table, columns, values) in
            [("inbox_messages", "", ""), ("inbox_attempts", ", replayed, attempt", ", 0, 1")]
        {
            let fill = format!(
                "insert into {table} (consumer, event_id{columns}, expires_at) select 'mailer', gen_random_uuid(){values}, \
                 now() + (n - 10) * interval '1 second' from generate_series(1, 20000) as n; analyze {table}"
            );
            self.run(&fill).await.expect("it is filled");
        }
        // Not handed back to the pool with what is set and prepared on it.
        let mut connection = self.pool.acquire().await.expect("it answers").detach();
        let explain = format!(
            "set plan_cache_mode = force_generic_plan; prepare explained (bigint) as {sql}; explain execute explained (10)"
        );
        let lines = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut connection).await.expect("it is explained");
        let plan: Vec<String> = lines.iter().map(|line| line.get(0)).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        plan
    }

    async fn catalog(&self) -> String {
        let columns = "select table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '') \
             || coalesce(collation_name, '') from information_schema.columns where table_name like 'inbox%' order by 1";
        let indexes = "select indexname || ' ' || indexdef from pg_indexes where tablename like 'inbox%' order by 1";
        let mut catalog = Vec::new();
        for sql in [columns, indexes] {
            let lines: Vec<String> = sqlx::query_scalar(sql).fetch_all(&self.pool).await.expect("it answers");
            catalog.extend(lines);
        }
        catalog.join("\n")
    }

    const NOW: &'static str = "now()";

    fn in_hours(hours: i64) -> String {
        format!("now() + interval '{hours} hours'")
    }

    async fn other_schema(&self) -> Option<String> {
        Some("shop".into())
    }
}

testkit::inbox_conformance!(Suite<OnPostgres>);
sql_promises!(OnPostgres);

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_passes_over_an_error_has_not_processed_the_event() {
    let scene = OnPostgres::start().await;
    let inbox = inbox(&scene);
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<OnPostgres>(guard.transaction(), delivery.event).await;
    // PostgreSQL answers the commit of such a transaction with a rollback, and no driver makes an error of it.
    OnPostgres::run_in(guard.transaction(), "select 1 / 0").await.expect_err("it fails");
    let refused = guard.commit().await.expect_err("nothing was committed");
    assert!(matches!(refused, InboxError::Conflict(_)) && refused.is_transient(), "{refused:?}");
    assert_eq!((scene.ledger().await.len(), messages(&scene).await), (0, 0));
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_a_connection_that_is_killed_leaves_neither_effect_nor_row() {
    let scene = OnPostgres::start().await;
    let inbox = inbox(&scene);
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<OnPostgres>(guard.transaction(), delivery.event).await;
    scene.server.terminate_backends(scene.database.name()).await.expect("the connections are cut");
    let failed = guard.commit().await.expect_err("the connection is gone");
    assert!(matches!(failed, InboxError::Unavailable(_)) && failed.is_transient(), "{failed:?}");
    let mut guard = loop {
        // The pool finds out connection by connection.
        match inbox.begin(&delivery).await {
            Ok(Entry::First(guard)) => break guard,
            Ok(Entry::InProgress(_)) => {}
            Ok(other) => panic!("it was never processed, but {other:?}"),
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    };
    write::<OnPostgres>(guard.transaction(), delivery.event).await;
    guard.commit().await.expect("it commits");
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn r63_a_commit_whose_answer_is_lost_is_found_out_by_the_next_delivery() {
    let scene = OnPostgres::start().await;
    let proxy = Proxy::start(([127, 0, 0, 1], scene.server.port()).into()).await.expect("the proxy starts");
    let pool = PgPool::connect(&scene.database.url_via(proxy.port())).await.expect("it answers");
    let inbox = PostgresInbox::new(pool, InboxTables::default());
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<OnPostgres>(guard.transaction(), delivery.event).await;
    proxy.cut_reply_containing(b"COMMIT\0");
    let lost = guard.commit().await.expect_err("the answer is lost");
    assert!(matches!(lost, InboxError::Unavailable(_)), "{lost:?}");
    assert_eq!(proxy.cuts(), 1);
    assert!(begin(&inbox, &delivery).await.is_already_processed());
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_entered_in_a_transaction_of_tokio_postgres() {
    let scene = OnPostgres::start().await;
    let tables = InboxTables::default();
    let connect = async || {
        let (client, connection) =
            tokio_postgres::connect(&scene.database.url(), NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        client
    };
    let (mut one, mut two) = (connect().await, connect().await);
    let (delivery, other) = (delivery(), delivery());
    for ends_with_commit in [false, true] {
        let transaction = one.transaction().await.expect("it begins");
        assert!(matches!(tables.enter(&transaction, &delivery).await.expect("it answers"), Entry::First(())));
        transaction.execute("insert into effects values ($1)", &[&delivery.event]).await.expect("it is written");
        match ends_with_commit {
            true => transaction.commit().await.expect("it commits"),
            false => transaction.rollback().await.expect("it is rolled back"),
        }
    }
    inbox(&scene).note_attempt(&other.clone().with_attempt(attempt(0, 2))).await.expect("it is noted");
    let transaction = one.transaction().await.expect("it begins");
    assert!(tables.enter(&transaction, &delivery).await.expect("it answers").is_already_processed());
    let late = other.clone().with_attempt(attempt(0, 1));
    assert!(matches!(tables.enter(&transaction, &late).await.expect("it answers"), Entry::Stale { .. }));
    assert!(matches!(tables.enter(&transaction, &other).await.expect("it answers"), Entry::First(())));
    let second = two.transaction().await.expect("it begins");
    assert!(matches!(soon(tables.enter(&second, &other)).await.expect("it answers"), Entry::InProgress(_)));
    second.execute("select 1", &[]).await.expect("it is still usable");
    second.rollback().await.expect("it is rolled back");
    transaction.execute("insert into effects values ($1)", &[&other.event]).await.expect("it is written");
    transaction.commit().await.expect("it commits");
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1), (other.event, 1)]));
}

/// A transaction whose snapshot is older than the commit of the same event.
async fn late<'a>(pool: &PgPool, level: &str) -> Result<Transaction<'a, Postgres>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    OnPostgres::run_in(&mut transaction, &format!("set transaction isolation level {level}")).await?;
    OnPostgres::run_in(&mut transaction, "select 1 from effects").await?;
    Ok(transaction)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_isolation_level_lets_an_event_in_twice() {
    let scene = OnPostgres::start().await;
    for meanwhile in [Meanwhile::Answer, Meanwhile::Wait] {
        let tables = InboxTables::builder().meanwhile(meanwhile).build().expect("it is acceptable");
        for level in ["read committed", "repeatable read", "serializable"] {
            let delivery = delivery();
            let mut before = late(&scene.pool, level).await.expect("it begins");
            let mut transaction = late(&scene.pool, level).await.expect("it begins");
            assert!(matches!(tables.enter(&mut transaction, &delivery).await.expect("it answers"), Entry::First(())));
            write::<OnPostgres>(&mut transaction, delivery.event).await;
            if meanwhile == Meanwhile::Answer {
                let mut during = late(&scene.pool, level).await.expect("it begins");
                let entry = soon(tables.enter(&mut during, &delivery)).await.expect("it answers");
                assert!(matches!(entry, Entry::InProgress(_)), "{level}: {entry:?}");
                during.rollback().await.expect("it is rolled back");
            }
            transaction.commit().await.expect("it commits");
            let entry = tables.enter(&mut before, &delivery).await;
            match level {
                "read committed" => assert!(entry.expect("it answers").is_already_processed()),
                _ => assert!(matches!(entry, Err(InboxError::Conflict(_))), "{level}: {entry:?}"),
            }
            let mut after = late(&scene.pool, level).await.expect("it begins");
            assert!(tables.enter(&mut after, &delivery).await.expect("it answers").is_already_processed(), "{level}");
        }
    }
    assert_eq!(scene.ledger().await.into_values().collect::<Vec<_>>(), [1; 6]);
}

/// One try at an event: whether it is done with. PostgreSQL may refuse any statement of such a transaction, not only the
/// entry and the commit, to keep it apart from others; a consumer then tries again.
async fn try_at(scene: &OnPostgres, level: &str, delivery: &Delivery) -> bool {
    let refused = |error: sqlx::Error| {
        let code = error.as_database_error().and_then(|error| error.code().map(String::from));
        assert_eq!(code.as_deref(), Some("40001"), "{error:?}");
    };
    let Ok(mut transaction) = late(&scene.pool, level).await.map_err(refused) else { return false };
    match InboxTables::default().enter(&mut transaction, delivery).await {
        Ok(Entry::First(())) => {
            let written = OnPostgres::run_in(&mut transaction, &sql::effect(delivery.event)).await;
            let ended = match written {
                Ok(()) => transaction.commit().await,
                Err(error) => Err(error),
            };
            ended.map_err(refused).is_ok()
        }
        Ok(entry) => entry.is_already_processed(),
        Err(error) => {
            assert!(error.is_transient(), "{error:?}");
            false
        }
    }
}

/// Sixteen consumers at each isolation level.
async fn at_level(level: &str) {
    let scene = OnPostgres::start().await;
    let events: Vec<Delivery> = (0..40).map(|_| delivery()).collect();
    let consumers = (0..16).map(|_| async {
        for delivery in &events {
            while !try_at(&scene, level, delivery).await {}
        }
    });
    futures::future::join_all(consumers).await;
    let ledger = scene.ledger().await;
    assert_eq!((ledger.len(), ledger.values().sum()), (events.len(), events.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_under_repeatable_read_sixteen_consumers_have_one_effect() {
    at_level("repeatable read").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_under_serializable_sixteen_consumers_have_one_effect() {
    at_level("serializable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_takes_no_lock_is_waited_for_and_not_doubled() {
    let scene = OnPostgres::start().await;
    for commits in [true, false] {
        let delivery = delivery();
        let mut theirs = scene.pool.begin().await.expect("it begins");
        let insert = format!("insert into inbox_messages (consumer, event_id) values ('mailer', '{}')", delivery.event);
        OnPostgres::run_in(&mut theirs, &insert).await.expect("it is written");
        let ours = tokio::spawn({
            let (inbox, delivery) = (inbox(&scene), delivery.clone());
            async move { inbox.begin(&delivery).await.expect("it answers") }
        });
        let waits = "select count(*) from pg_locks where not granted and locktype = 'transactionid' and database is null \
                     and pid in (select pid from pg_stat_activity where datname = current_database())";
        eventually(PATIENCE, || async { scene.number(waits).await == 1 }).await;
        match commits {
            true => theirs.commit().await.expect("it commits"),
            false => theirs.rollback().await.expect("it is rolled back"),
        }
        let entry = ours.await.expect("it does not panic");
        assert_eq!((entry.is_already_processed(), entry.first().is_some()), (commits, !commits));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_no_statement_is_prepared_by_name() {
    let scene = OnPostgres::start().await;
    let tables = InboxTables::builder().behind_pooler(true).build().expect("it is acceptable");
    let inbox = PostgresInbox::new(scene.pool.clone(), tables);
    let mut guard = first(&inbox, &delivery().with_attempt(attempt(0, 1))).await;
    let named: i64 =
        sqlx::query_scalar("select count(*) from pg_prepared_statements where statement like '%inbox_messages%'")
            .persistent(false)
            .fetch_one(&mut **guard.transaction())
            .await
            .expect("it answers");
    assert_eq!(named, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_passes_over_what_somebody_has_locked() {
    let scene = OnPostgres::start().await;
    let fill = "insert into inbox_messages select 'mailer', gen_random_uuid(), now(), now() - n * interval '1 second' from generate_series(1, 4) as n";
    scene.run(fill).await.expect("it is filled");
    let mut holder = scene.pool.begin().await.expect("it begins");
    OnPostgres::run_in(&mut holder, "select from inbox_messages order by expires_at limit 1 for update")
        .await
        .expect("it is locked");
    assert_eq!(inbox(&scene).purge_all().await.expect("it purges"), 3);
    holder.rollback().await.expect("it is rolled back");
    assert_eq!(inbox(&scene).purge_all().await.expect("it purges"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_keeps_the_row_out_is_an_error_and_no_processed_event() {
    let scene = OnPostgres::start().await;
    let trigger = "create function nothing() returns trigger language plpgsql as 'begin return null; end'; \
                   create trigger nothing before insert on inbox_messages for each row execute function nothing()";
    scene.run(trigger).await.expect("it is made");
    for meanwhile in [Meanwhile::Answer, Meanwhile::Wait] {
        let tables = InboxTables::builder().meanwhile(meanwhile).build().expect("it is acceptable");
        let refused = PostgresInbox::new(scene.pool.clone(), tables).begin(&delivery()).await;
        assert!(matches!(refused, Err(InboxError::Failed(_))), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_runs_in_a_spawned_task() {
    let scene = OnPostgres::start().await;
    let (inbox, delivery) = (inbox(&scene), delivery());
    let event = delivery.event;
    let task = tokio::spawn(async move {
        run_once(&inbox, &delivery, async |guard: &mut PostgresGuard| {
            let text = delivery.event.to_string();
            sqlx::query("insert into effects (event) values ($1::uuid)")
                .bind(text)
                .execute(&mut **guard.transaction())
                .await
        })
        .await
    });
    assert!(task.await.expect("it does not panic").expect("it runs").may_ack());
    assert_eq!(scene.ledger().await, HashMap::from([(event, 1)]));
}
