//! Who switches the changelog on, and what there is while it is off.

use std::time::Duration;

use postrider_changelog::{After, Changelog, Cursor, Reader, UnitOfWork};
use postrider_core::Scope;
use postrider_core::store::{Finished, Purge};
use postrider_store::Names;

use crate::scene::{Scene, blog, users};

pub async fn s1_1_s1_2_s1_3_it_is_off_until_the_application_switches_it_on<S: Scene>() {
    let scene = S::start().await;
    let plain = Changelog::new(scene.pool().clone(), Names::default());
    assert!(!plain.is_enabled());
    let committed = plain.commit(&users(&["ada"])).await.expect("it is committed");
    assert_eq!(committed.versionstamp, None);
    assert_eq!(scene.count("users").await, 1);
    assert_eq!(scene.count("postrider_changelog").await, 0);
    assert_eq!(scene.counter().await, None);
    // The same schema and the same unit of work leave an entry where the application says so.
    let committed = plain.clone().enabled(true).commit(&users(&["eve"])).await.expect("it is committed");
    assert!(committed.versionstamp.is_some());
    assert_eq!(scene.count("postrider_changelog").await, 1);
    assert!(!plain.clone().enabled(true).enabled(false).is_enabled());
}

pub async fn s1_4_the_tables_are_there_whether_it_is_on_or_not<S: Scene>() {
    let scene = S::start().await;
    for (table, rows) in [("postrider_changelog", 0), ("postrider_cursors", 0), ("postrider_settings", 1)] {
        assert_eq!(scene.count(table).await, rows, "{table}");
    }
    let sql = format!("select {} from postrider_settings", S::key());
    assert_eq!(scene.rows(&sql).await, [[Some("store.id".to_owned())]]);
}

pub async fn s1_5_s1_50_while_it_is_off_nothing_is_written_and_the_list_is_empty<S: Scene>() {
    let scene = S::start().await;
    let off = scene.changelog().enabled(false);
    let mut work = users(&["ada"]);
    work.update(&blog().users, "ada", [("email", "ada@example.org".into())]).expect("it is right");
    off.commit(&work).await.expect("it is committed");
    let page = off.list(After::Beginning, 0).await.expect("it can be read");
    assert!(page.entries.is_empty() && !page.more);
    assert_eq!(page.next, Cursor::beginning(page.store));
    assert_eq!(off.head().await.expect("it can be read"), Cursor::beginning(page.store));
    assert_eq!(scene.stamps().await, [""; 0]);
    assert_eq!(scene.counter().await, None);
}

pub async fn s1_5_s1_50_what_was_written_is_listed_after_it_is_switched_off_again<S: Scene>() {
    let scene = S::start().await;
    let committed = scene.users(&["ada"]).await;
    let off = scene.changelog().enabled(false);
    let page = off.list(After::Beginning, 0).await.expect("it can be read");
    assert_eq!(page.entries.len(), 1);
    assert_eq!(Some(page.entries[0].versionstamp), committed.versionstamp);
    off.commit(&users(&["eve"])).await.expect("it is committed");
    let later = off.list(page.next.into(), 0).await.expect("it can be read");
    assert!(later.entries.is_empty());
    assert_eq!(scene.count("users").await, 2);
    assert_eq!(scene.count("postrider_changelog").await, 1);
    assert_eq!(scene.counter().await.as_deref(), Some("1"));
}

pub async fn s1_6_a_unit_of_work_leaves_one_entry_however_many_rows_it_changes<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada", "eve", "joe"]).await;
    assert_eq!(scene.count("postrider_changelog").await, 1);
    let mut work = UnitOfWork::new();
    for name in ["ada", "eve"] {
        work.update(&blog().users, name, [("email", "both@example.org".into())]).expect("it is right");
    }
    work.delete(&blog().users, "joe").expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(scene.count("postrider_changelog").await, 2);
    let counts: Vec<_> = scene.mutations().await.iter().map(Vec::len).collect();
    assert_eq!(counts, [3, 3]);
    // Where nothing is recorded there is nothing to tell.
    let committed = scene.changelog().commit(&UnitOfWork::new()).await.expect("it is committed");
    assert_eq!(committed.versionstamp, None);
    assert_eq!(scene.stamps().await.len(), 2);
    assert_eq!(scene.counter().await.as_deref(), Some("2"));
}

pub async fn s1_7_entries_are_kept_whatever_the_store_purges<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada"]).await;
    for finished in [Finished::Delivered, Finished::Dead] {
        let purge = Purge { scope: Scope::all(), finished, older_than: Duration::ZERO, limit: 1_000 };
        assert_eq!(scene.store().purge(&purge).await.expect("it purges"), 0);
    }
    let reader = scene.changelog();
    let first = reader.acquire("reader", uuid::Uuid::now_v7(), Duration::from_secs(60), After::Beginning).await;
    let lease = first.expect("it answers").expect("nobody has it");
    let page = reader.list(lease.cursor.into(), 0).await.expect("it can be read");
    reader.advance(&lease, Some(&page.next), Duration::from_secs(60)).await.expect("it advances");
    assert!(reader.forget("reader").await.expect("it forgets"));
    assert_eq!(scene.count("postrider_changelog").await, 1);
    assert_eq!(reader.list(After::Beginning, 0).await.expect("it can be read").entries.len(), 1);
}
