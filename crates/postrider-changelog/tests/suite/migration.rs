//! Databases from before the changelog.

use postrider_changelog::{After, ChangelogError, Reader};

use crate::scene::{Scene, stamp, users};

pub async fn s1_46_without_the_tables_a_unit_of_work_fails_and_nothing_is_written<S: Scene>() {
    let scene = S::bare().await;
    let error = scene.changelog().commit(&users(&["ada"])).await.expect_err("there is no table");
    assert!(matches!(error, ChangelogError::Schema(_)), "{error:?}");
    assert!(error.to_string().contains("migrate") && !error.is_transient(), "{error}");
    assert_eq!(scene.count("users").await, 0);
    let error = scene.changelog().list(After::Beginning, 0).await.expect_err("there is no table");
    assert!(matches!(error, ChangelogError::Schema(_)), "{error:?}");
    scene.migrate().await;
    let committed = scene.users(&["ada"]).await;
    assert_eq!(committed.versionstamp.expect("it is on").to_string(), stamp(1, 0));
}

pub async fn s1_46_without_the_table_of_entries_the_rows_are_rolled_back<S: Scene>() {
    let scene = S::start().await;
    scene.run("alter table postrider_changelog rename to elsewhere").await.expect("it is renamed");
    let error = scene.changelog().commit(&users(&["ada"])).await.expect_err("there is no table");
    assert!(matches!(error, ChangelogError::Schema(_)), "{error:?}");
    assert_eq!(scene.count("users").await, 0);
    assert_eq!(scene.counter().await, None);
    scene.run("alter table elsewhere rename to postrider_changelog").await.expect("it is renamed");
    let committed = scene.users(&["ada"]).await;
    assert_eq!(committed.versionstamp.expect("it is on").to_string(), stamp(1, 0));
}

/// Takes a database back to version 4 of the store's tables.
async fn before_the_changelog<S: Scene>() -> S {
    let scene = S::start().await;
    for table in ["postrider_changelog", "postrider_cursors", "postrider_settings"] {
        scene.run(&format!("drop table {table}")).await.expect("it is dropped");
    }
    scene.run("delete from postrider_migrations where version >= 5").await.expect("it is deleted");
    scene
}

async fn versions<S: Scene>(scene: &S) -> i64 {
    scene.number(&format!("select {} from postrider_migrations", S::text("max(version)"))).await
}

pub async fn s1_58_the_tables_come_with_version_5_of_the_schema<S: Scene>() {
    let scene = before_the_changelog::<S>().await;
    assert_eq!(versions(&scene).await, 4);
    let error = scene.changelog().commit(&users(&["ada"])).await.expect_err("there is no table");
    assert!(matches!(error, ChangelogError::Schema(_)), "{error:?}");
    assert_eq!(scene.count("users").await, 0);
    scene.migrate().await;
    assert!(versions(&scene).await >= 5);
    let store = scene.changelog().head().await.expect("it can be read").store();
    scene.users(&["ada"]).await;
    assert_eq!(scene.stamps().await, [stamp(1, 0)]);
    // Once more changes nothing.
    scene.migrate().await;
    assert_eq!(scene.stamps().await, [stamp(1, 0)]);
    assert_eq!(scene.changelog().head().await.expect("it can be read").store(), store);
}

pub async fn s1_59_who_does_not_switch_it_on_notices_nothing<S: Scene>() {
    let scene = before_the_changelog::<S>().await;
    let off = scene.changelog().enabled(false);
    // Not even the migration is needed.
    off.commit(&users(&["ada"])).await.expect("it is committed");
    scene.migrate().await;
    off.commit(&users(&["eve"])).await.expect("it is committed");
    scene.run("insert into users (id, _version, name) values ('joe', 0, 'Joe')").await.expect("it is written");
    assert_eq!(scene.count("users").await, 3);
    assert_eq!(scene.count("postrider_changelog").await, 0);
    assert_eq!(scene.counter().await, None);
}
