//! Claims that walk through indexes like ours come to no row that has no value there, so such a table is refused.

use postrider::layout::Layout;
use postrider::operate::Severity;
use postrider::store::{ClaimOrder, ClaimRequest, LARGEST_CLAIM, Order, Scope};
use postrider::{Names, PostgresStore, Store};
use std::time::Duration;
use uuid::Uuid;

use crate::scene::Scene;

/// Postrider's own table under another name, as a team would have it that copied it.
fn copied() -> Layout {
    let names = Names::default();
    Layout { name: "copied".into(), names: names.clone(), ..Layout::postrider(names) }
}

async fn problems(store: &PostgresStore) -> Vec<String> {
    let findings = store.check_layout().await.expect("checked");
    let problems = findings.into_iter().filter(|finding| finding.severity == Severity::Problem);
    problems.map(|finding| format!("{}; {}", finding.what, finding.fix.unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_table_that_is_indexed_like_ours_is_refused_where_rows_would_never_be_claimed() {
    let scene = Scene::of(Layout::default()).await;
    let table = scene.store.names().table().to_owned();
    let open = || PostgresStore::with_layout(scene.pool.clone(), copied()).expect("the layout makes sense");
    let request = ClaimRequest {
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
    };
    assert_eq!(problems(&open()).await, [""; 0]);
    open().claim(&request).await.expect("nothing is wrong");
    for column in ["next_attempt_at", "namespace"] {
        let alter = |what: &str| sqlx::AssertSqlSafe(format!("alter table {table} alter {column} {what} not null"));
        sqlx::raw_sql(alter("drop")).execute(&scene.pool).await.expect("altered");
        let told = problems(&open()).await;
        let says = |text: &str| {
            text.contains(&format!("{column:?} may be null"))
                && text.contains("never claimed")
                && text.contains("set not null")
        };
        assert!(told.len() == 1 && says(&told[0]) && told[0].contains("leave indexed_like_ours out"), "{told:?}");
        let refused = open().claim(&request).await.expect_err("such rows would wait for ever").to_string();
        assert!(says(&refused), "{refused}");
        let guessed = open().guess_layout().await.expect("looked").expect("there");
        assert!(!guessed.layout.indexed_like_ours, "a guess does not go by it");
        sqlx::raw_sql(alter("set")).execute(&scene.pool).await.expect("altered");
    }
}

#[tokio::test]
async fn a_table_whose_ids_may_be_null_is_refused() {
    let scene = Scene::of(Layout::modkit()).await;
    assert_eq!(problems(&scene.store).await, [""; 0]);
    scene
        .run(
            "alter table modkit_outbox_events drop constraint modkit_outbox_events_pkey, add unique (id);
             alter table modkit_outbox_events alter id drop not null",
        )
        .await;
    let told = problems(&scene.store).await;
    assert!(told.len() == 1 && told[0].contains("\"id\"") && told[0].contains("may be null"), "{told:?}");
}
