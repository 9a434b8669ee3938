//! Promises of the inbox in the consumer's own database, the same on each: beyond the suite that every inbox passes.

#![allow(dead_code)] // not every test file uses all of it

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use postrider_inbox::{
    Attempt, ConsumerName, Database, Delivery, Entry, Guard, Inbox, InboxError, InboxTables, Meanwhile, SqlGuard,
    SqlInbox,
};
use sea_orm::{DatabaseConnection, TransactionTrait};
use sqlx::{Pool, Transaction};
use testkit::eventually;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub const PATIENCE: Duration = Duration::from_secs(120);
/// Who has not answered within this waits.
const A_WHILE: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_secs(3600);

/// A database with an inbox, and a ledger beside it that handlers write.
pub trait Scene: Sized + Send + Sync + 'static {
    type Db: Database;

    /// An empty database, with the default tables and the ledger `effects (event)`.
    fn start() -> impl Future<Output = Self> + Send;

    /// Connections that do not wait for long.
    fn pool(&self) -> &Pool<Self::Db>;

    /// Connections that wait.
    fn patient_pool(&self) -> impl Future<Output = Pool<Self::Db>> + Send;

    fn sea_orm(&self) -> DatabaseConnection;

    /// Runs a text in a transaction.
    fn run_in(
        transaction: &mut Transaction<'_, Self::Db>,
        sql: &str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// How often each event had its effect.
    fn ledger(&self) -> impl Future<Output = HashMap<Uuid, usize>> + Send;

    /// Runs a text.
    fn run(&self, sql: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Prepares a statement.
    fn prepare(&self, sql: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// A number that the database answers.
    fn number(&self, sql: &str) -> impl Future<Output = i64> + Send;

    /// How the database would run a statement with one number as its parameter.
    fn plan(&self, sql: &str) -> impl Future<Output = String> + Send;

    /// The tables and indexes of the inbox, as the database describes them.
    fn catalog(&self) -> impl Future<Output = String> + Send;

    /// The time, and a time from now, in SQL.
    const NOW: &'static str;
    fn in_hours(hours: i64) -> String;

    /// Another schema that is there, or nothing if there are none.
    fn other_schema(&self) -> impl Future<Output = Option<String>> + Send;
}

/// Makes one test per promise for a [`Scene`].
#[macro_export]
macro_rules! sql_promises {
    ($scene:ty) => {
        $crate::sql_promises! { $scene:
            the_effect_and_the_row_are_there_together_or_not_at_all
            a_transaction_that_ended_under_the_guard_is_not_taken_for_a_commit
            an_event_is_entered_in_a_consumer_s_own_transaction
            an_event_is_entered_in_a_transaction_of_sea_orm
            while_a_transaction_has_the_event_others_are_told_so_and_stay_usable
            who_waits_finds_out_what_became_of_it
            a_row_of_any_program_counts_and_is_kept_for_a_week
            an_older_attempt_leaves_no_row_behind
            the_newest_attempt_is_kept
            what_is_past_its_time_is_forgotten_in_pieces
            what_is_past_its_time_counts_until_it_is_purged
            an_application_keeps_it_clean
            a_purge_goes_by_the_index
            every_statement_can_be_prepared
            tables_are_made_by_any_number_of_processes_at_once
            a_script_makes_what_a_migration_makes
            an_inbox_has_the_names_and_the_time_that_it_is_given
            without_tables_it_says_what_to_do
            another_unique_index_is_an_error_and_no_processed_event
            an_error_after_the_row_was_written_leaves_no_row
            an_event_whose_effect_was_undone_is_taken_back
            a_second_entry_in_one_transaction_is_already_processed
            a_guard_dropped_after_its_transaction_ended_leaves_no_bad_connection
            a_handler_that_committed_and_failed_leaves_no_row
            a_released_guard_leaves_another_one_s_row_alone
            what_would_be_forgotten_too_soon_is_not_marked
        }
    };
    ($scene:ty: $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $promise() {
                $crate::sql::$promise(&<$scene as $crate::sql::Scene>::start().await).await;
            }
        )*
    };
}

pub fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).expect("a plain name")
}

pub fn delivery() -> Delivery {
    Delivery::new(consumer("mailer"), Uuid::now_v7())
}

pub fn attempt(replayed: u32, number: u32) -> Attempt {
    Attempt { replayed, number }
}

pub fn inbox<S: Scene>(scene: &S) -> SqlInbox<S::Db> {
    SqlInbox::new(scene.pool().clone(), InboxTables::default())
}

/// Begins until it is told something else than that somebody has it.
pub async fn begin<DB: Database>(inbox: &SqlInbox<DB>, delivery: &Delivery) -> Entry<SqlGuard<DB>> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            match inbox.begin(delivery).await.expect("the inbox answers") {
                Entry::InProgress(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                other => return other,
            }
        }
    })
    .await
    .expect("the event is let go of")
}

pub async fn first<DB: Database>(inbox: &SqlInbox<DB>, delivery: &Delivery) -> SqlGuard<DB> {
    begin(inbox, delivery).await.first().expect("it is the first delivery")
}

/// What must not wait for anybody.
pub async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, answer).await.expect("it answers and does not wait")
}

fn is_in_progress<G>(entry: &Entry<G>) -> bool {
    matches!(entry, Entry::InProgress(_))
}

pub async fn messages<S: Scene>(scene: &S) -> i64 {
    scene.number("select count(*) from inbox_messages").await
}

pub async fn the_effect_and_the_row_are_there_together_or_not_at_all<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let delivery = delivery();
    let mut guard = first(&inbox, &delivery).await;
    write::<S>(guard.transaction(), delivery.event).await;
    guard.release().await.expect("it is released");
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (0, 0));

    let mut guard = first(&inbox, &delivery).await;
    write::<S>(guard.transaction(), delivery.event).await;
    drop(guard);
    let mut guard = first(&inbox, &delivery).await;
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (0, 0));

    write::<S>(guard.transaction(), delivery.event).await;
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (0, 0), "nobody sees it before the commit");
    guard.commit().await.expect("it commits");
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1)]));
    assert_eq!(messages(scene).await, 1);
}

pub async fn a_transaction_that_ended_under_the_guard_is_not_taken_for_a_commit<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let delivery = delivery();
    // As often as the pool may need to hand out the same connection again, which must be as good as new.
    for _ in 0..10 {
        let mut guard = first(&inbox, &delivery).await;
        write::<S>(guard.transaction(), delivery.event).await;
        // What a server does by itself after a deadlock, or with a disk that is full.
        S::run_in(guard.transaction(), "rollback").await.expect("it is rolled back");
        let refused = guard.commit().await.expect_err("nothing was committed");
        let said = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert!(refused.is_transient() && said.contains("must not pass over"), "{refused:?}");
        assert_eq!((scene.ledger().await.len(), messages(scene).await), (0, 0));
    }
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

pub async fn an_event_is_entered_in_a_consumer_s_own_transaction<S: Scene>(scene: &S) {
    let tables = InboxTables::default();
    let delivery = delivery();
    for ends_with_commit in [false, true] {
        let mut transaction = scene.pool().begin().await.expect("it begins");
        assert!(matches!(tables.enter(&mut transaction, &delivery).await.expect("it answers"), Entry::First(())));
        write::<S>(&mut transaction, delivery.event).await;
        match ends_with_commit {
            true => transaction.commit().await.expect("it commits"),
            false => transaction.rollback().await.expect("it is rolled back"),
        }
    }
    let mut transaction = scene.pool().begin().await.expect("it begins");
    for _ in 0..2 {
        assert!(tables.enter(&mut transaction, &delivery).await.expect("it answers").is_already_processed());
    }
    // A duplicate does not spoil what else is done.
    let other = self::delivery();
    assert!(matches!(tables.enter(&mut transaction, &other).await.expect("it answers"), Entry::First(())));
    assert!(tables.enter(&mut transaction, &other).await.expect("it answers").is_already_processed());
    write::<S>(&mut transaction, other.event).await;
    transaction.commit().await.expect("it commits");
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1), (other.event, 1)]));
}

pub async fn an_event_is_entered_in_a_transaction_of_sea_orm<S: Scene>(scene: &S) {
    use sea_orm::ConnectionTrait;
    let (tables, connection) = (InboxTables::default(), scene.sea_orm());
    let (delivery, other) = (delivery(), delivery());
    for ends_with_commit in [false, true] {
        let transaction = connection.begin().await.expect("it begins");
        assert!(matches!(tables.enter(&transaction, &delivery).await.expect("it answers"), Entry::First(())));
        transaction.execute_unprepared(&effect(delivery.event)).await.expect("it is written");
        match ends_with_commit {
            true => transaction.commit().await.expect("it commits"),
            false => transaction.rollback().await.expect("it is rolled back"),
        }
    }
    inbox(scene).note_attempt(&other.clone().with_attempt(attempt(0, 2))).await.expect("it is noted");
    let transaction = connection.begin().await.expect("it begins");
    assert!(tables.enter(&transaction, &delivery).await.expect("it answers").is_already_processed());
    let late = other.clone().with_attempt(attempt(0, 1));
    let entry = tables.enter(&transaction, &late).await.expect("it answers");
    assert!(matches!(entry, Entry::Stale { seen } if seen == attempt(0, 2)), "{entry:?}");
    assert!(matches!(tables.enter(&transaction, &other).await.expect("it answers"), Entry::First(())));
    // Somebody else is told that it is being handled, here too.
    let second = connection.begin().await.expect("it begins");
    assert!(is_in_progress(&soon(tables.enter(&second, &other)).await.expect("it answers")));
    second.rollback().await.expect("it is rolled back");
    transaction.execute_unprepared(&effect(other.event)).await.expect("it is written");
    transaction.commit().await.expect("it commits");
    assert_eq!(scene.ledger().await, HashMap::from([(delivery.event, 1), (other.event, 1)]));
}

pub async fn while_a_transaction_has_the_event_others_are_told_so_and_stay_usable<S: Scene>(scene: &S) {
    let tables = InboxTables::default();
    let (delivery, before) = (delivery(), delivery());
    // One that knows of the event from before its end, so that it need not write to find out.
    let mut one = scene.pool().begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut one, &delivery).await.expect("it answers"), Entry::First(())));
    let mut other = scene.pool().begin().await.expect("it begins");
    for _ in 0..3 {
        assert!(is_in_progress(&soon(tables.enter(&mut other, &delivery)).await.expect("it answers")));
    }
    one.rollback().await.expect("it is rolled back");
    assert!(matches!(tables.enter(&mut other, &delivery).await.expect("it answers"), Entry::First(())));
    assert!(matches!(tables.enter(&mut other, &before).await.expect("it answers"), Entry::First(())));
    write::<S>(&mut other, delivery.event).await;
    other.commit().await.expect("it commits");
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (1, 2));
}

pub async fn who_waits_finds_out_what_became_of_it<S: Scene>(scene: &S) {
    let tables = InboxTables::builder().meanwhile(Meanwhile::Wait).build().expect("it is acceptable");
    let waiting = SqlInbox::new(scene.patient_pool().await, tables);
    for commits in [false, true] {
        let delivery = delivery();
        let guard = first(&waiting, &delivery).await;
        let (inbox, same) = (waiting.clone(), delivery.clone());
        let mut second = tokio::spawn(async move { inbox.begin(&same).await.expect("it answers") });
        assert!(tokio::time::timeout(A_WHILE, &mut second).await.is_err(), "it did not wait");
        match commits {
            true => guard.commit().await.expect("it commits"),
            false => guard.release().await.expect("it is released"),
        }
        let entry = tokio::time::timeout(PATIENCE, second).await.expect("it ends").expect("it answers");
        assert_eq!((entry.is_already_processed(), entry.first().is_some()), (commits, !commits));
    }
}

pub async fn a_row_of_any_program_counts_and_is_kept_for_a_week<S: Scene>(scene: &S) {
    let delivery = delivery();
    let insert = format!("insert into inbox_messages (consumer, event_id) values ('mailer', '{}')", delivery.event);
    scene.run(&insert).await.expect("it is written");
    scene.run(&insert).await.expect_err("there is one row for each event");
    assert!(inbox(scene).begin(&delivery).await.expect("it answers").is_already_processed());
    let kept = |from, to| {
        format!(
            "select count(*) from inbox_messages where processed_at <= {} and expires_at > {} and expires_at <= {}",
            S::in_hours(1),
            S::in_hours(from),
            S::in_hours(to)
        )
    };
    assert_eq!(scene.number(&kept(7 * 24 - 1, 7 * 24 + 1)).await, 1);
    // Whatever way the id is written.
    let upper = Uuid::now_v7();
    let text = upper.to_string().to_uppercase();
    scene
        .run(&format!("insert into inbox_messages (consumer, event_id) values ('mailer', '{text}')"))
        .await
        .expect("it is written");
    let again = Delivery::new(consumer("mailer"), upper);
    assert!(inbox(scene).begin(&again).await.expect("it answers").is_already_processed());
}

pub async fn an_older_attempt_leaves_no_row_behind<S: Scene>(scene: &S) {
    let (inbox, tables) = (inbox(scene), InboxTables::default());
    let delivery = delivery();
    let (late, newer) = (delivery.clone().with_attempt(attempt(0, 1)), delivery.clone().with_attempt(attempt(0, 2)));
    inbox.note_attempt(&newer).await.expect("it is noted");
    let mut transaction = scene.pool().begin().await.expect("it begins");
    let entry = tables.enter(&mut transaction, &late).await.expect("it answers");
    assert!(matches!(entry, Entry::Stale { seen } if seen == attempt(0, 2)), "{entry:?}");
    transaction.commit().await.expect("it commits");
    assert_eq!(messages(scene).await, 0);
    assert!(matches!(begin(&inbox, &late).await, Entry::Stale { .. }));
    assert_eq!(messages(scene).await, 0);
    first(&inbox, &newer).await.commit().await.expect("it commits");
    // Processed wins.
    assert!(begin(&inbox, &late).await.is_already_processed());
}

pub async fn the_newest_attempt_is_kept<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let delivery = delivery();
    for (replayed, number) in [(0, 2), (0, 1), (1, 1), (0, 9), (1, u32::MAX), (1, 7)] {
        let this = delivery.clone().with_attempt(attempt(replayed, number));
        inbox.note_attempt(&this).await.expect("it is noted");
    }
    assert_eq!(scene.number("select count(*) from inbox_attempts").await, 1);
    assert_eq!(scene.number("select replayed from inbox_attempts").await, 1);
    assert_eq!(scene.number("select attempt from inbox_attempts").await, i64::from(u32::MAX));
    inbox.note_attempt(&self::delivery()).await.expect("there is nothing to note");
    assert_eq!(scene.number("select count(*) from inbox_attempts").await, 1);
    scene.run(&format!("update inbox_attempts set expires_at = {}", S::NOW)).await.expect("time passes");
    inbox.note_attempt(&delivery.with_attempt(attempt(2, 1))).await.expect("it is noted");
    let kept = format!("select count(*) from inbox_attempts where expires_at > {}", S::in_hours(6 * 24));
    assert_eq!(scene.number(&kept).await, 1);
}

/// Processes events, each with an attempt, so that both tables have as many rows.
async fn process<S: Scene>(scene: &S, events: usize) -> Vec<Delivery> {
    let inbox = inbox(scene);
    let mut done = Vec::new();
    for _ in 0..events {
        let delivery = delivery().with_attempt(attempt(0, 1));
        first(&inbox, &delivery).await.commit().await.expect("it commits");
        done.push(delivery);
    }
    done
}

async fn pass_time<S: Scene>(scene: &S, deliveries: &[Delivery]) {
    for table in ["inbox_messages", "inbox_attempts"] {
        for delivery in deliveries {
            let sql =
                format!("update {table} set expires_at = {} where event_id = '{}'", S::in_hours(-1), delivery.event);
            scene.run(&sql).await.expect("time passes");
        }
    }
}

pub async fn what_is_past_its_time_is_forgotten_in_pieces<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let done = process(scene, 25).await;
    assert_eq!(inbox.purge_all().await.expect("it purges"), 0, "nothing is past its time");
    pass_time(scene, &done[..20]).await;
    for (purged, left) in [(16, 17), (16, 9), (8, 5), (0, 5)] {
        assert_eq!(inbox.purge(8).await.expect("it purges"), purged);
        assert_eq!(messages(scene).await, left);
        assert_eq!(scene.number("select count(*) from inbox_attempts").await, left);
    }
    for delivery in &done[20..] {
        assert!(begin(&inbox, delivery).await.is_already_processed(), "what is not past its time was purged");
    }
    pass_time(scene, &done).await;
    assert_eq!(inbox.purge_all().await.expect("it purges"), 10);
}

pub async fn what_is_past_its_time_counts_until_it_is_purged<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let done = process(scene, 1).await;
    pass_time(scene, &done).await;
    assert!(begin(&inbox, &done[0]).await.is_already_processed());
    assert!(inbox.check_and_mark_processed(&done[0].consumer, done[0].event, HOUR).await.expect("it answers"));
    assert_eq!(inbox.purge_all().await.expect("it purges"), 2);
    first(&inbox, &done[0]).await.release().await.expect("it is released");
}

pub async fn an_application_keeps_it_clean<S: Scene>(scene: &S) {
    let inbox = inbox(scene);
    let done = process(scene, 3).await;
    let stop = CancellationToken::new();
    let cleaner = tokio::spawn({
        let (inbox, stop) = (inbox.clone(), stop.clone());
        async move { inbox.keep_clean(Duration::from_millis(5), stop).await }
    });
    for delivery in &done {
        eventually(PATIENCE, || async {
            pass_time(scene, std::slice::from_ref(delivery)).await;
            let left = format!("select count(*) from inbox_messages where event_id = '{}'", delivery.event);
            scene.number(&left).await == 0
        })
        .await;
    }
    stop.cancel();
    tokio::time::timeout(PATIENCE, cleaner).await.expect("it stops").expect("it does not panic");
}

pub async fn a_purge_goes_by_the_index<S: Scene>(scene: &S) {
    let texts: HashMap<_, _> = InboxTables::default().texts::<S::Db>().into_iter().collect();
    for (name, table) in [("purge_messages", "inbox_messages"), ("purge_attempts", "inbox_attempts")] {
        let plan = scene.plan(&texts[name]).await;
        assert!(plan.contains(&format!("{table}_expires_idx")), "{name} does not use its index:\n{plan}");
    }
}

pub async fn every_statement_can_be_prepared<S: Scene>(scene: &S) {
    for meanwhile in [Meanwhile::Answer, Meanwhile::Wait] {
        let tables = InboxTables::builder().meanwhile(meanwhile).build().expect("it is acceptable");
        let texts = tables.texts::<S::Db>();
        assert!(texts.len() >= 9);
        for (name, sql) in texts {
            assert!(!sql.contains(['{', '}']), "{name} has a placeholder left:\n{sql}");
            let prepared = scene.prepare(&sql).await;
            assert!(prepared.is_ok(), "{name}: {:?}\n{sql}", prepared.err());
        }
    }
}

pub async fn tables_are_made_by_any_number_of_processes_at_once<S: Scene>(scene: &S) {
    let pool = scene.patient_pool().await;
    for round in 0..3 {
        let tables = InboxTables::builder().messages(&format!("m{round}")).attempts(&format!("a{round}"));
        let tables = tables.build().expect("it is acceptable");
        let crowd = (0..8).map(|_| tables.migrate(&pool));
        for made in futures::future::join_all(crowd).await {
            made.expect("the tables are made");
        }
        let inbox = SqlInbox::new(pool.clone(), tables);
        inbox.migrate().await.expect("a second time does no harm");
        first(&inbox, &delivery()).await.commit().await.expect("it commits");
        assert_eq!(scene.number(&format!("select count(*) from m{round}")).await, 1);
    }
}

pub async fn a_script_makes_what_a_migration_makes<S: Scene>(scene: &S) {
    let made = scene.catalog().await;
    assert!(made.contains("inbox_messages_expires_idx") && made.contains("inbox_attempts_expires_idx"), "{made}");
    scene.run("drop table inbox_messages").await.expect("it is dropped");
    scene.run("drop table inbox_attempts").await.expect("it is dropped");
    assert_ne!(scene.catalog().await, made);
    let script = InboxTables::default().script::<S::Db>();
    for _ in 0..2 {
        scene.run(&script).await.expect("the script runs");
        assert_eq!(scene.catalog().await, made);
    }
}

pub async fn an_inbox_has_the_names_and_the_time_that_it_is_given<S: Scene>(scene: &S) {
    let schema = scene.other_schema().await;
    let builder = InboxTables::builder().messages("handled").attempts("seen").keep(HOUR);
    let builder = schema.iter().fold(builder, |builder, schema| builder.schema(schema));
    let inbox = SqlInbox::new(scene.pool().clone(), builder.build().expect("it is acceptable"));
    inbox.migrate().await.expect("the tables are made");
    scene.run(&inbox.tables().script::<S::Db>()).await.expect("the script can be run again");
    let delivery = delivery().with_attempt(attempt(0, 1));
    first(&inbox, &delivery).await.commit().await.expect("it commits");
    let within = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
    let insert = format!("insert into {within}handled (consumer, event_id) values ('other', '{}')", delivery.event);
    scene.run(&insert).await.expect("it is written");
    for (table, rows) in [("handled", 2), ("seen", 1)] {
        let kept = format!(
            "select count(*) from {within}{table} where expires_at > {} and expires_at <= {}",
            S::NOW,
            S::in_hours(2)
        );
        assert_eq!(scene.number(&kept).await, rows, "{table}");
    }
    let marked = inbox.check_and_mark_processed(&consumer("marker"), delivery.event, 100 * HOUR).await;
    assert!(!marked.expect("it answers"));
    let kept = format!("select count(*) from {within}handled where expires_at > {}", S::in_hours(99));
    assert_eq!(scene.number(&kept).await, 1);
    assert_eq!(messages(scene).await, 0, "it is in another table");
    assert_eq!(inbox.purge_all().await.expect("it purges"), 0);
}

pub async fn without_tables_it_says_what_to_do<S: Scene>(scene: &S) {
    let tables = InboxTables::builder().messages("nowhere").build().expect("it is acceptable");
    let failed = SqlInbox::new(scene.pool().clone(), tables).begin(&delivery()).await.expect_err("there is no table");
    let said = std::error::Error::source(&failed).map(ToString::to_string).unwrap_or_default();
    assert!(said.contains("run its migrations") && !failed.is_transient(), "{failed:?}");
}

pub async fn another_unique_index_is_an_error_and_no_processed_event<S: Scene>(scene: &S) {
    scene.run("alter table inbox_messages add column tenant int not null default 1").await.expect("it is added");
    scene.run("create unique index inbox_one_each on inbox_messages (tenant)").await.expect("it is made");
    let inbox = inbox(scene);
    let (one, other) = (delivery(), delivery());
    first(&inbox, &one).await.commit().await.expect("it commits");
    // Often, because who is refused must not find the event held by what was refused before.
    for _ in 0..20 {
        let refused = inbox.begin(&other).await.expect_err("the other index is in the way");
        assert!(matches!(refused, InboxError::Failed(_)), "{refused:?}");
        let refused = inbox.check_and_mark_processed(&other.consumer, other.event, HOUR).await;
        assert!(matches!(refused, Err(InboxError::Failed(_))), "{refused:?}");
    }
    assert!(begin(&inbox, &one).await.is_already_processed());
    assert_eq!(messages(scene).await, 1);
}

pub async fn an_error_after_the_row_was_written_leaves_no_row<S: Scene>(scene: &S) {
    let tables = InboxTables::builder().attempts("nowhere").build().expect("it is acceptable");
    let mut transaction = scene.pool().begin().await.expect("it begins");
    let late = delivery().with_attempt(attempt(0, 1));
    tables.enter(&mut transaction, &late).await.expect_err("the attempt cannot be looked for");
    // As a consumer does that has not read what to do.
    let _ = transaction.commit().await;
    assert_eq!(messages(scene).await, 0);
}

pub async fn an_event_whose_effect_was_undone_is_taken_back<S: Scene>(scene: &S) {
    use sea_orm::ConnectionTrait;
    let (tables, inbox) = (InboxTables::default(), inbox(scene));
    let (done, undone) = (delivery(), delivery());
    let mut transaction = scene.pool().begin().await.expect("it begins");
    for delivery in [&done, &undone] {
        assert!(matches!(tables.enter(&mut transaction, delivery).await.expect("it answers"), Entry::First(())));
    }
    write::<S>(&mut transaction, done.event).await;
    S::run_in(&mut transaction, "savepoint of_one").await.expect("it is set");
    write::<S>(&mut transaction, undone.event).await;
    S::run_in(&mut transaction, "rollback to savepoint of_one").await.expect("it is undone");
    tables.leave(&mut transaction, &undone).await.expect("it is taken back");
    transaction.commit().await.expect("it commits");
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (1, 1));
    assert!(begin(&inbox, &done).await.is_already_processed());
    first(&inbox, &undone).await.release().await.expect("it is released");

    let transaction = scene.sea_orm().begin().await.expect("it begins");
    assert!(matches!(tables.enter(&transaction, &undone).await.expect("it answers"), Entry::First(())));
    tables.leave(&transaction, &undone).await.expect("it is taken back");
    transaction.execute_unprepared(&effect(done.event)).await.expect("it is still usable");
    transaction.commit().await.expect("it commits");
    assert_eq!(messages(scene).await, 1);
}

pub async fn a_second_entry_in_one_transaction_is_already_processed<S: Scene>(scene: &S) {
    let (tables, delivery) = (InboxTables::default(), delivery());
    let mut transaction = scene.pool().begin().await.expect("it begins");
    assert!(matches!(tables.enter(&mut transaction, &delivery).await.expect("it answers"), Entry::First(())));
    assert!(tables.enter(&mut transaction, &delivery).await.expect("it answers").is_already_processed());
}

pub async fn a_guard_dropped_after_its_transaction_ended_leaves_no_bad_connection<S: Scene>(scene: &S) {
    let (inbox, delivery) = (inbox(scene), delivery());
    for _ in 0..10 {
        let mut guard = first(&inbox, &delivery).await;
        S::run_in(guard.transaction(), "rollback").await.expect("it is rolled back");
        drop(guard);
    }
    let mut guard = first(&inbox, &delivery).await;
    write::<S>(guard.transaction(), delivery.event).await;
    guard.commit().await.expect("it commits");
    assert_eq!((scene.ledger().await.len(), messages(scene).await), (1, 1));
}

pub async fn a_handler_that_committed_and_failed_leaves_no_row<S: Scene>(scene: &S) {
    let (inbox, delivery) = (inbox(scene), delivery());
    let mut guard = first(&inbox, &delivery).await;
    S::run_in(guard.transaction(), "commit").await.expect("it is committed");
    let told = guard.release().await.expect_err("it is told");
    let said = std::error::Error::source(&told).map(ToString::to_string).unwrap_or_default();
    assert!(matches!(told, InboxError::Failed(_)) && said.contains("commits"), "{told:?}");
    assert_eq!(messages(scene).await, 0);
    first(&inbox, &delivery).await.commit().await.expect("it commits");
}

pub async fn a_released_guard_leaves_another_one_s_row_alone<S: Scene>(scene: &S) {
    let (inbox, delivery) = (inbox(scene), delivery());
    let mut undone = first(&inbox, &delivery).await;
    S::run_in(undone.transaction(), "rollback").await.expect("it is rolled back");
    first(&inbox, &delivery).await.commit().await.expect("it commits");
    let _ = undone.release().await;
    assert!(begin(&inbox, &delivery).await.is_already_processed());
}

pub async fn what_would_be_forgotten_too_soon_is_not_marked<S: Scene>(scene: &S) {
    let tables = InboxTables::builder().redelivery_horizon(HOUR).build().expect("it is acceptable");
    let inbox = SqlInbox::new(scene.pool().clone(), tables);
    for (ttl, is_good) in [(Duration::ZERO, false), (HOUR / 2, false), (Duration::MAX, false), (HOUR, true)] {
        let marked = inbox.check_and_mark_processed(&consumer("mailer"), Uuid::now_v7(), ttl).await;
        assert_eq!(marked.is_ok(), is_good, "{ttl:?}: {marked:?}");
        assert!(is_good || matches!(marked, Err(InboxError::Config(_))), "{marked:?}");
    }
    assert_eq!(messages(scene).await, 1);
}

/// What writes an effect.
pub fn effect(event: Uuid) -> String {
    format!("insert into effects (event) values ('{event}')")
}

/// An effect.
pub async fn write<S: Scene>(transaction: &mut Transaction<'_, S::Db>, event: Uuid) {
    S::run_in(transaction, &effect(event)).await.expect("the effect is written");
}

/// A scene as the suite of all inboxes wants it.
pub struct Suite<S>(pub S);

impl<S: Scene> testkit::inbox::Harness for Suite<S> {
    type Inbox = SqlInbox<S::Db>;
    const IS_EXACT: bool = true;

    fn events() -> usize {
        testkit::inbox::scaled(1_000)
    }

    async fn start() -> Self {
        Self(S::start().await)
    }

    async fn inbox(&self) -> Self::Inbox {
        inbox(&self.0)
    }

    async fn effect(&self, guard: &mut SqlGuard<S::Db>, event: Uuid) {
        write::<S>(guard.transaction(), event).await;
    }

    async fn effects(&self) -> HashMap<Uuid, usize> {
        self.0.ledger().await
    }
}
