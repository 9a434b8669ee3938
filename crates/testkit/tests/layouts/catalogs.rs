//! The presets that MySQL and SQLite have too: their migrations make the same tables there as on PostgreSQL, in the types of those databases, as the
//! databases' own catalogs say. See `tables.rs` for PostgreSQL.

use postrider::layout::{Layout, preset};
use postrider::{MySqlStore, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tempfile::TempDir;
use testkit::MariaDb;

/// What a catalog says of a table: a line for each column and index, and the words that its status takes.
#[derive(Debug, PartialEq)]
struct Described {
    columns: Vec<String>,
    key: String,
    indexes: Vec<String>,
    words: Vec<String>,
}

/// The words of the check on the status, in the text that the table was made with.
fn words(made: &str) -> Vec<String> {
    let made = made.to_lowercase().replace(['`', '"'], "").replace("_ascii", "").replace("_utf8mb4", "");
    let (_, list) = made.split_once("status in (").expect("the status is checked");
    let (list, _) = list.split_once(')').expect("it ends");
    list.split(',').map(|word| word.trim_matches([' ', '\'', '\\']).to_owned()).collect()
}

/// A column in one line. Ids that the database makes are long expressions.
fn column(name: &str, kind: &str, not_null: bool, default: Option<&str>) -> String {
    let not_null = if not_null { " not null" } else { "" };
    let default = default.map(|default| match default.trim_matches(['(', ')', '\'']).to_lowercase() {
        made if made.contains("md5") || made.contains("randomblob") => " default uuid".to_owned(),
        now if now.contains("utc_timestamp") || now.contains("julianday") => " default now".to_owned(),
        other => format!(" default {other}"),
    });
    format!("{name} {kind}{not_null}{}", default.unwrap_or_default())
}

async fn on_mysql(layout: &Layout) -> Described {
    let server = MariaDb::shared().await.expect("the server starts");
    let database = server.create_database().await.expect("the database is created");
    let pool: MySqlPool =
        MySqlPoolOptions::new().max_connections(5).connect_with(database.access().clone()).await.expect("it answers");
    let store = MySqlStore::with_layout(pool.clone(), layout.clone()).expect("the layout makes sense");
    store.migrate().await.expect("the migrations run");
    let table = layout.names.table();
    let columns = "select cast(column_name as char), cast(column_type as char), is_nullable = 'NO', cast(nullif(column_default, 'NULL') as char)
                   from information_schema.columns where table_schema = database() and table_name = ? order by ordinal_position";
    let columns: Vec<(String, String, bool, Option<String>)> =
        sqlx::query_as(columns).bind(table).fetch_all(&pool).await.expect("the catalog answers");
    let indexes = "select cast(index_name as char), cast(concat(if(max(non_unique) = 0, 'unique ', ''), '(', group_concat(column_name order by seq_in_index separator ', '), ')') as char)
                   from information_schema.statistics where table_schema = database() and table_name = ? group by index_name order by 2";
    let indexes: Vec<(String, String)> =
        sqlx::query_as(indexes).bind(table).fetch_all(&pool).await.expect("the catalog answers");
    let made = sqlx::query(AssertSqlSafe(format!("show create table `{table}`"))).fetch_one(&pool).await.expect("told");
    let (key, indexes): (Vec<_>, Vec<_>) = indexes.into_iter().partition(|(name, _)| name == "PRIMARY");
    let line = |(name, kind, not_null, default): &(String, String, bool, Option<String>)| {
        // MariaDB says how wide a number is shown.
        column(name, &kind.replace("int(11)", "int"), *not_null, default.as_deref())
    };
    Described {
        columns: columns.iter().map(line).collect(),
        key: key.into_iter().map(|(_, columns)| columns).collect(),
        indexes: indexes.into_iter().map(|(_, columns)| columns).collect(),
        words: words(&made.get::<String, _>(1)),
    }
}

async fn on_sqlite(layout: &Layout) -> Described {
    let directory = TempDir::new().expect("a directory");
    let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
    let store = SqliteStore::open_with_layout(options, layout.clone()).await.expect("the file opens");
    store.migrate().await.expect("the migrations run");
    let (pool, table): (&SqlitePool, &str) = (store.pool(), layout.names.table());
    let columns = "select name, type, \"notnull\" = 1, dflt_value, pk from pragma_table_info(?1) order by cid";
    let columns: Vec<(String, String, bool, Option<String>, i64)> =
        sqlx::query_as(columns).bind(table).fetch_all(pool).await.expect("the catalog answers");
    let indexes = "select case when list.\"unique\" then 'unique ' else '' end
             || '(' || (select group_concat(name, ', ') from (select name from pragma_index_info(list.name) order by seqno)) || ')'
             || coalesce(substr(made.sql, instr(made.sql, ' where ')), '')
         from pragma_index_list(?1) as list left join sqlite_master as made on made.name = list.name and made.sql like '% where %'
         where list.origin <> 'pk' order by 1";
    let indexes: Vec<String> =
        sqlx::query_scalar(indexes).bind(table).fetch_all(pool).await.expect("the catalog answers");
    let made: String = sqlx::query_scalar("select sql from sqlite_master where type = 'table' and name = ?1")
        .bind(table)
        .fetch_one(pool)
        .await
        .expect("the catalog answers");
    let key = columns.iter().filter(|(.., place)| *place > 0).map(|(name, ..)| format!("unique ({name})")).collect();
    let line = |(name, kind, not_null, default, _): &(String, String, bool, Option<String>, i64)| {
        column(name, &kind.to_lowercase(), *not_null, default.as_deref())
    };
    Described { columns: columns.iter().map(line).collect(), key, indexes, words: words(&made) }
}

fn expected(columns: &[&str], indexes: &[&str], words: &[&str]) -> Described {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    Described { columns: owned(columns), key: "unique (id)".to_owned(), indexes: owned(indexes), words: owned(words) }
}

const OURS: [&str; 4] = ["pending", "processing", "delivered", "dead"];
const TALKIE: [&str; 5] = ["pending", "publishing", "published", "failed", "dead_lettered"];

#[tokio::test]
async fn s0_18_the_shared_table_has_the_modkit_columns_on_mysql() {
    let columns = [
        "id char(36) not null",
        "namespace varchar(200) not null",
        "topic varchar(200) not null",
        "tenant_id char(36)",
        "dedupe_key varbinary(512)",
        "payload longtext not null",
        "status varchar(16) not null",
        "attempts int not null default 0",
        "next_attempt_at datetime(6) not null default now",
        "locked_by char(36)",
        "locked_until datetime(6)",
        "last_error longtext",
        "created_at datetime(6) not null default now",
        "updated_at datetime(6) not null default now",
    ];
    // Indexes by lock begin with the status, because there are no partial ones; keys are bytes of up to 512.
    let indexes = ["(status, locked_until)", "(status, next_attempt_at)", "unique (dedupe_key, namespace, topic)"];
    assert_eq!(on_mysql(&Layout::modkit()).await, expected(&columns, &indexes, &OURS));
}

#[tokio::test]
async fn s0_18_the_shared_table_has_the_modkit_columns_on_sqlite() {
    let columns = [
        "id text not null",
        "namespace text not null",
        "topic text not null",
        "tenant_id text",
        "dedupe_key text",
        "payload text not null",
        "status text not null",
        "attempts integer not null default 0",
        "next_attempt_at integer not null default now",
        "locked_by text",
        "locked_until integer",
        "last_error text",
        "created_at integer not null default now",
        "updated_at integer not null default now",
    ];
    let indexes = [
        "(locked_until)",
        "(status, next_attempt_at)",
        "unique (namespace, topic, dedupe_key) where dedupe_key is not null",
    ];
    assert_eq!(on_sqlite(&Layout::modkit()).await, expected(&columns, &indexes, &OURS));
}

#[tokio::test]
async fn s2_13_the_talkie_table_has_its_columns_on_mysql() {
    let columns = [
        "id char(36) not null default uuid",
        "topic varchar(200) not null",
        "key varbinary(512)",
        "payload_json longtext not null",
        "idempotency_key varbinary(512) not null",
        "status varchar(16) not null default pending",
        "retry_count int not null default 0",
        "last_error longtext",
        "last_attempt_at datetime(6)",
        "next_attempt_at datetime(6) not null default now",
        "published_at datetime(6)",
        "created_at datetime(6) not null default now",
    ];
    let indexes = ["(status, last_attempt_at)", "(status, next_attempt_at)", "unique (topic, idempotency_key)"];
    assert_eq!(on_mysql(&Layout::talkie()).await, expected(&columns, &indexes, &TALKIE));
}

#[tokio::test]
async fn s2_13_the_talkie_table_has_its_columns_on_sqlite() {
    let columns = [
        "id text not null default uuid",
        "topic text not null",
        "key text",
        "payload_json text not null",
        "idempotency_key text not null",
        "status text not null default pending",
        "retry_count integer not null default 0",
        "last_error text",
        "last_attempt_at integer",
        "next_attempt_at integer not null default now",
        "published_at integer",
        "created_at integer not null default now",
    ];
    let indexes = [
        "(last_attempt_at) where status = 'publishing'",
        "(next_attempt_at) where status in ('failed', 'dead_lettered')",
        "(next_attempt_at) where status in ('pending', 'failed')",
        "unique (topic, idempotency_key)",
    ];
    assert_eq!(on_sqlite(&Layout::talkie()).await, expected(&columns, &indexes, &TALKIE));
}

#[tokio::test]
async fn the_router_s_table_has_its_columns_and_those_of_a_lease_on_mysql() {
    let columns = [
        "id char(36) not null",
        "aggregatetype varchar(255) not null",
        "aggregateid varchar(255) not null",
        "type varchar(255) not null",
        "payload longtext",
        "status varchar(16) not null default pending",
        "attempts int not null default 0",
        "next_attempt_at datetime(6) not null default now",
        "locked_by char(36)",
        "locked_until datetime(6)",
        "last_error longtext",
        "created_at datetime(6) not null default now",
        "updated_at datetime(6) not null default now",
        "delivered_at datetime(6)",
    ];
    let indexes = ["(status, locked_until)", "(status, next_attempt_at)", "(status, updated_at)"];
    assert_eq!(on_mysql(&preset("debezium_keep").expect("known")).await, expected(&columns, &indexes, &OURS));
}

#[tokio::test]
async fn the_router_s_table_has_its_columns_and_those_of_a_lease_on_sqlite() {
    let columns = [
        "id text not null",
        "aggregatetype text not null",
        "aggregateid text not null",
        "type text not null",
        "payload text",
        "status text not null default pending",
        "attempts integer not null default 0",
        "next_attempt_at integer not null default 0",
        "locked_by text",
        "locked_until integer",
        "last_error text",
        "created_at integer not null default 0",
        "updated_at integer not null default 0",
        "delivered_at integer",
    ];
    let indexes = [
        "(locked_until) where status = 'processing'",
        "(next_attempt_at) where status = 'pending'",
        "(updated_at) where status = 'dead'",
        "(updated_at) where status = 'delivered'",
    ];
    assert_eq!(on_sqlite(&preset("debezium_keep").expect("known")).await, expected(&columns, &indexes, &OURS));
}
