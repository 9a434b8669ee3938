//! Tables that consist of several: an address is unique within one of them only.

use std::time::Duration;

use postrider::layout::Layout;
use postrider::operate::{Change, Filter, Operator};
use postrider::store::{ClaimOrder, ClaimRequest, Finished, LARGEST_CLAIM, Order, Purge, Scope, StoreError};
use postrider::{AnyStore, Connect, StoreErrorKind};
use postrider::{PostgresStore, Store};
use sqlx::PgPool;
use uuid::Uuid;

use crate::tables;

const PARTITIONED: &str = "
    alter table modkit_outbox_events rename to plain;
    create table modkit_outbox_events (like plain including defaults) partition by hash (id);
    create table first_part partition of modkit_outbox_events for values with (modulus 2, remainder 0);
    create table second_part partition of modkit_outbox_events for values with (modulus 2, remainder 1);
    drop table plain";
const INHERITED: &str = "create table child () inherits (modkit_outbox_events)";
const OURS_INHERITED: &str = "create table child () inherits (outbox_messages)";
const VIEW: &str =
    "alter table modkit_outbox_events rename to plain; create view modkit_outbox_events as select * from plain";

fn request() -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit: 10,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(30),
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    }
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, verb: &str, why: &str) {
    let error = answer.expect_err(verb);
    assert_eq!(error.kind(), StoreErrorKind::Schema, "{verb}: {error}");
    assert!(error.to_string().contains(why), "{verb}: {error}");
}

async fn nothing_is_changed(pool: &PgPool, url: &str, layout: Layout, why: &str) {
    let store = || PostgresStore::with_layout(pool.clone(), layout.clone()).expect("the layout makes sense");
    let change = Change { who: "night shift".into(), filter: Filter::default(), limit: 10 };
    let purge = Purge { scope: Scope::all(), finished: Finished::Delivered, older_than: Duration::ZERO, limit: 10 };
    is_refused(store().claim(&request()).await, "claim", why);
    is_refused(store().claim(&ClaimRequest { order: ClaimOrder::Suspects, ..request() }).await, "suspects", why);
    is_refused(store().sweep(&Scope::all(), 10, 10).await, "sweep", why);
    is_refused(store().purge(&purge).await, "purge", why);
    is_refused(store().purge_as("night shift", &purge).await, "purge by an operator", why);
    is_refused(store().replay(&change).await, "replay", why);
    is_refused(store().discard(&change).await, "discard", why);
    let options = Connect { layout, ..Connect::default() };
    let relay = AnyStore::connect(url, &options).await.expect("opened");
    is_refused(relay.check_relay().await, "the start of a relay", why);
}

#[tokio::test]
async fn a_table_of_several_parts_is_refused_before_a_claim_takes_rows_of_another_part() {
    for (layout, made, why) in [
        (Layout::modkit(), PARTITIONED, "partitioned"),
        (Layout::modkit(), INHERITED, "inherited from"),
        (Layout::modkit(), VIEW, "no table"),
        (Layout::default(), OURS_INHERITED, "inherited from"),
    ] {
        let (database, pool) = tables::empty().await;
        let store = PostgresStore::with_layout(pool.clone(), layout.clone()).expect("the layout makes sense");
        store.migrate().await.expect("the migrations run");
        sqlx::raw_sql(made).execute(&pool).await.expect("made");
        nothing_is_changed(&pool, &database.url(), layout, why).await;
    }
}

#[tokio::test]
async fn one_part_of_a_table_is_a_plain_table() {
    let (_, pool) = tables::made(Layout::modkit()).await;
    sqlx::raw_sql(PARTITIONED).execute(&pool).await.expect("made");
    let part = postrider::Names::existing(None, "part_", "first_part").expect("a name");
    let store = PostgresStore::with_layout(pool, Layout::modkit().named(part)).expect("the layout makes sense");
    assert!(store.claim(&request()).await.expect("claimed").messages.is_empty());
}
