//! Every preset's migration makes exactly the table that its owners describe: columns, types, defaults, checks, indexes, enums and
//! policies, as the server's catalog has them.

use postrider::PostgresStore;
use postrider::layout::{Layout, PRESETS, preset};
use sqlx::PgPool;
use testkit::Database;

/// What the catalog says of a table, a line each.
#[derive(Debug, PartialEq)]
struct Described {
    columns: Vec<String>,
    constraints: Vec<String>,
    indexes: Vec<String>,
}

const COLUMNS: &str = "
    select column_name || ' ' || case when data_type = 'character varying' then 'varchar(' || character_maximum_length || ')' else udt_name end
           || case when is_nullable = 'NO' then ' not null' else '' end
           || coalesce(' default ' || column_default, '')
    from information_schema.columns where table_schema = 'public' and table_name = $1 order by ordinal_position";

const CONSTRAINTS: &str = "
    select pg_get_constraintdef(oid) from pg_constraint where conrelid = ('public.' || quote_ident($1))::regclass and contype <> 'n'
    order by contype, 1";

/// What follows the table's name, so that the indexes' own names do not count. The primary key is a constraint.
const INDEXES: &str = "
    select case when indisunique then 'unique ' else '' end || substring(pg_get_indexdef(indexrelid) from ' USING (.*)$')
    from pg_index where indrelid = ('public.' || quote_ident($1))::regclass and not indisprimary order by 1";

async fn lines(pool: &PgPool, sql: &'static str, table: &str) -> Vec<String> {
    sqlx::query_scalar(sql).bind(table.to_owned()).fetch_all(pool).await.expect("the catalog answers")
}

async fn described(pool: &PgPool, table: &str) -> Described {
    Described {
        columns: lines(pool, COLUMNS, table).await,
        constraints: lines(pool, CONSTRAINTS, table).await,
        indexes: lines(pool, INDEXES, table).await,
    }
}

pub(super) async fn empty() -> (Database, PgPool) {
    let server = testkit::Postgres::shared().await.expect("the server starts");
    let database = server.create_database().await.expect("the database is created");
    let pool = database.pool().await.expect("the database answers");
    (database, pool)
}

pub(super) async fn made(layout: Layout) -> (PostgresStore, PgPool) {
    let (_, pool) = empty().await;
    let store = PostgresStore::with_layout(pool.clone(), layout).expect("the layout makes sense");
    store.migrate().await.expect("the migrations run");
    (store, pool)
}

/// The application's own tables, which `valinor` refers to.
pub(super) async fn channels(pool: &PgPool) {
    let sql = "create table tenants (id uuid primary key); create table channel_messages (id uuid primary key, tenant_id uuid)";
    sqlx::raw_sql(sql).execute(pool).await.expect("they can be made");
}

async fn table_of(name: &str) -> Described {
    let layout = preset(name).expect("known");
    let (_, pool) = empty().await;
    channels(&pool).await;
    let store = PostgresStore::with_layout(pool.clone(), layout.clone()).expect("the layout makes sense");
    store.migrate().await.expect("the migrations run");
    described(&pool, layout.names.table()).await
}

fn is(described: &[String], expected: &[&str]) {
    assert_eq!(described, expected.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
}

#[tokio::test]
async fn s0_18_the_shared_table_has_the_modkit_name_columns_and_indexes() {
    assert_eq!(Layout::modkit().names.table(), "modkit_outbox_events");
    let table = table_of("modkit").await;
    is(
        &table.columns,
        &[
            "id uuid not null",
            "namespace text not null",
            "topic text not null",
            "tenant_id uuid",
            "dedupe_key text",
            "payload jsonb not null",
            "status text not null",
            "attempts int4 not null default 0",
            "next_attempt_at timestamptz not null default now()",
            "locked_by uuid",
            "locked_until timestamptz",
            "last_error text",
            "created_at timestamptz not null default now()",
            "updated_at timestamptz not null default now()",
        ],
    );
    is(
        &table.constraints,
        &[
            "CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'delivered'::text, 'dead'::text])))",
            "PRIMARY KEY (id)",
        ],
    );
    is(
        &table.indexes,
        &[
            "btree (locked_until)",
            "btree (status, next_attempt_at)",
            "unique btree (namespace, topic, dedupe_key) WHERE (dedupe_key IS NOT NULL)",
        ],
    );
}

#[tokio::test]
async fn s2_13_the_table_has_these_columns() {
    assert_eq!(Layout::talkie().names.table(), "outbox");
    let table = table_of("talkie").await;
    is(
        &table.columns,
        &[
            "id uuid not null default gen_random_uuid()",
            "topic text not null",
            "key text",
            "payload_json jsonb not null",
            "idempotency_key text not null",
            "status text not null default 'pending'::text",
            "retry_count int4 not null default 0",
            "last_error text",
            "last_attempt_at timestamptz",
            "next_attempt_at timestamptz not null default now()",
            "published_at timestamptz",
            "created_at timestamptz not null default now()",
        ],
    );
    is(
        &table.constraints,
        &[
            "CHECK ((status = ANY (ARRAY['pending'::text, 'publishing'::text, 'published'::text, 'failed'::text, 'dead_lettered'::text])))",
            "PRIMARY KEY (id)",
            "UNIQUE (topic, idempotency_key)",
        ],
    );
    is(
        &table.indexes,
        &[
            "btree (last_attempt_at) WHERE (status = 'publishing'::text)",
            "btree (next_attempt_at) WHERE (status = ANY (ARRAY['failed'::text, 'dead_lettered'::text]))",
            "btree (next_attempt_at) WHERE (status = ANY (ARRAY['pending'::text, 'failed'::text]))",
            "unique btree (topic, idempotency_key)",
        ],
    );
}

#[tokio::test]
async fn s3_01_s3_02_s3_03_s3_10_the_table_is_the_locked_schema() {
    assert_eq!(Layout::packfinderz().names.table(), "outbox_events");
    let table = table_of("packfinderz").await;
    is(
        &table.columns,
        &[
            "id uuid not null",
            "event_type event_type_enum not null",
            "aggregate_type aggregate_type_enum not null",
            "aggregate_id uuid not null",
            "payload_json jsonb not null",
            "created_at timestamptz not null default now()",
            "published_at timestamptz",
            "attempt_count int4 not null default 0",
            "last_error text",
        ],
    );
    is(&table.constraints, &["PRIMARY KEY (id)"]);
    is(&table.indexes, &["btree (aggregate_type, aggregate_id)", "btree (event_type)", "btree (published_at)"]);
}

async fn words(pool: &PgPool, kind: &str) -> Vec<String> {
    let sql = "select enumlabel::text from pg_enum join pg_type on pg_type.oid = enumtypid where typname = $1 order by enumsortorder";
    sqlx::query_scalar(sql).bind(kind.to_owned()).fetch_all(pool).await.expect("the catalog answers")
}

#[tokio::test]
async fn s3_05_the_aggregate_types_are_these_eight() {
    let (_, pool) = made(Layout::packfinderz()).await;
    is(
        &words(&pool, "aggregate_type_enum").await,
        &["vendor_order", "checkout_group", "license", "store", "media", "ledger_event", "notification", "ad"],
    );
}

#[tokio::test]
async fn s3_06_s3_07_s3_08_the_event_types_are_these_eighteen() {
    let (_, pool) = made(Layout::packfinderz()).await;
    is(
        &words(&pool, "event_type_enum").await,
        &[
            "order_created",
            "order_state_changed",
            "line_item_state_changed",
            "license_status_changed",
            "media_uploaded",
            "payment_settled",
            "cash_collected",
            "vendor_payout_recorded",
            "notification_requested",
            "order_expired",
            "order_canceled",
            "reservation_released",
            "ad_created",
            "ad_updated",
            "ad_paused",
            "ad_activated",
            "ad_expired",
            "ad_daily_rollup_ready",
        ],
    );
}

#[tokio::test]
async fn s4_01_s4_02_s4_05_s4_06_s4_07_s4_09_s4_11_s4_12_s4_13_s4_14_s4_15_s4_16_s4_17_s4_18_the_table_has_these_columns_and_indexes()
 {
    assert_eq!(Layout::valinor().names.table(), "channel_outbox");
    let table = table_of("valinor").await;
    is(
        &table.columns,
        &[
            "id uuid not null default gen_random_uuid()",
            "tenant_id uuid not null",
            "channel_message_id uuid not null",
            "provider text not null",
            "recipient_id text not null",
            "payload jsonb not null",
            "status text not null",
            "attempt_count int4 not null default 0",
            "max_attempts int4 not null default 5",
            "next_attempt_at timestamptz not null default now()",
            "last_error text",
            "locked_at timestamptz",
            "sent_at timestamptz",
            "created_at timestamptz not null default now()",
            "updated_at timestamptz not null default now()",
        ],
    );
    is(
        &table.constraints,
        &[
            "CHECK ((status = ANY (ARRAY['pending'::text, 'sending'::text, 'sent'::text, 'dead'::text])))",
            "FOREIGN KEY (channel_message_id) REFERENCES channel_messages(id) ON DELETE CASCADE",
            "FOREIGN KEY (tenant_id) REFERENCES tenants(id) ON DELETE CASCADE",
            "PRIMARY KEY (id)",
        ],
    );
    is(
        &table.indexes,
        &[
            "btree (channel_message_id)",
            "btree (status, next_attempt_at) WHERE (status = ANY (ARRAY['pending'::text, 'sending'::text]))",
            "btree (tenant_id, status, next_attempt_at)",
        ],
    );
}

#[tokio::test]
async fn s4_19_row_level_security_is_on_and_the_policy_is_the_tenant_s() {
    let (_, pool) = empty().await;
    channels(&pool).await;
    let store = PostgresStore::with_layout(pool.clone(), Layout::valinor()).expect("the layout makes sense");
    store.migrate().await.expect("the migrations run");
    let on: bool = sqlx::query_scalar("select relrowsecurity from pg_class where relname = 'channel_outbox'")
        .fetch_one(&pool)
        .await
        .expect("the catalog answers");
    assert!(on);
    let policies: Vec<(String, String, String)> =
        sqlx::query_as("select cmd, qual, with_check from pg_policies where tablename = 'channel_outbox'")
            .fetch_all(&pool)
            .await
            .expect("the catalog answers");
    let condition = "(tenant_id = (NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid)";
    assert_eq!(policies, [("ALL".to_owned(), condition.to_owned(), condition.to_owned())]);
}

#[tokio::test]
async fn c22_a_table_has_updated_at_exactly_where_its_layout_writes_it() {
    for name in PRESETS {
        let (layout, table) = (preset(name).expect("known"), table_of(name).await);
        let has = table.columns.iter().any(|column| column.starts_with("updated_at "));
        assert_eq!(has, layout.updated_at.is_some(), "{name}");
    }
}

#[tokio::test]
async fn the_event_router_s_table_is_left_as_it_is_unless_delivered_rows_stay() {
    let bare = table_of("debezium").await;
    let columns = [
        "id uuid not null",
        "aggregatetype varchar(255) not null",
        "aggregateid varchar(255) not null",
        "type varchar(255) not null",
        "payload jsonb",
    ];
    is(&bare.columns, &columns);
    is(&bare.constraints, &["PRIMARY KEY (id)"]);
    is(&bare.indexes, &[]);
    let kept = table_of("debezium_keep").await;
    is(&kept.columns[..5], &columns);
    // Each has a default or may be null: producers need not know it.
    is(
        &kept.columns[5..],
        &[
            "status text not null default 'pending'::text",
            "attempts int4 not null default 0",
            "next_attempt_at timestamptz not null default now()",
            "locked_by uuid",
            "locked_until timestamptz",
            "last_error text",
            "created_at timestamptz not null default now()",
            "updated_at timestamptz not null default now()",
            "delivered_at timestamptz",
        ],
    );
    is(
        &kept.constraints,
        &[
            "CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'delivered'::text, 'dead'::text])))",
            "PRIMARY KEY (id)",
        ],
    );
    is(
        &kept.indexes,
        &[
            "btree (locked_until) WHERE (status = 'processing'::text)",
            "btree (next_attempt_at) WHERE (status = 'pending'::text)",
            "btree (status, updated_at) WHERE (status = ANY (ARRAY['delivered'::text, 'dead'::text]))",
        ],
    );
}

#[tokio::test]
async fn a_table_that_is_there_already_is_taken_as_it_is() {
    let (_, pool) = empty().await;
    let theirs = "create table outbox (id uuid primary key, topic text not null, idempotency_key text not null, mine int not null default 7)";
    sqlx::raw_sql(theirs).execute(&pool).await.expect("it can be made");
    let before = described(&pool, "outbox").await;
    let store = PostgresStore::with_layout(pool.clone(), Layout::talkie()).expect("the layout makes sense");
    assert_eq!(store.migrate().await.expect("the migrations run"), [3], "the audit table alone");
    assert_eq!(described(&pool, "outbox").await, before);
    assert_eq!(store.migrate().await.expect("the migrations run"), [] as [i32; 0]);
}

#[tokio::test]
async fn a_router_s_table_that_is_there_gets_the_columns_for_keeping_and_its_rows_are_due() {
    let (store, pool) = made(Layout::debezium()).await;
    drop(store);
    sqlx::raw_sql("insert into outboxevent values (gen_random_uuid(), 'order', '7', 'placed', '{\"total\": 1}')")
        .execute(&pool)
        .await
        .expect("their producer knows five columns");
    let names = postrider::Names::existing(None, "keep_", "outboxevent").expect("fine");
    let store = PostgresStore::with_layout(pool.clone(), Layout::debezium_keep().named(names)).expect("it makes sense");
    assert_eq!(store.migrate().await.expect("the migrations run"), [2, 3]);
    let waiting: i64 =
        sqlx::query_scalar("select count(*) from outboxevent where status = 'pending' and next_attempt_at <= now()")
            .fetch_one(&pool)
            .await
            .expect("counted");
    assert_eq!(waiting, 1);
}

#[tokio::test]
async fn two_layouts_live_in_one_schema() {
    let (_, pool) = empty().await;
    for layout in [Layout::default(), Layout::modkit(), Layout::talkie(), Layout::packfinderz()] {
        let store = PostgresStore::with_layout(pool.clone(), layout).expect("the layout makes sense");
        assert!(!store.migrate().await.expect("the migrations run").is_empty());
        assert!(store.pending().await.expect("read").is_empty());
    }
}

#[tokio::test]
async fn columns_are_not_added_while_somebody_else_works_with_the_table_and_nobody_waits_for_it() {
    let (_, pool) = made(Layout::debezium()).await;
    let mut other = pool.begin().await.expect("begun");
    sqlx::query("select from outboxevent").execute(&mut *other).await.expect("read");
    let store = PostgresStore::with_layout(pool.clone(), Layout::debezium_keep()).expect("the layout makes sense");
    let began = std::time::Instant::now();
    let error = store.migrate().await.expect_err("the table is in use");
    assert!(error.kind().is_transient() && began.elapsed() < std::time::Duration::from_secs(20), "{error}");
    other.rollback().await.expect("ended");
    store.migrate().await.expect("it can be run again");
}
