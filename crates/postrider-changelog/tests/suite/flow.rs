//! A unit of work is done in full with its entry, or not at all.

use std::time::Duration;

use futures::future::join;
use postrider_changelog::{ChangelogError, Id, Input, UnitOfWork, Value, Violation};

use crate::scene::{Kind, Scene, blog, post, stamp, users};

/// Commits it, and sees that nothing at all was written.
async fn refused<S: Scene>(scene: &S, work: &UnitOfWork) -> ChangelogError {
    let before = scene.state().await;
    let error = scene.changelog().commit(work).await.expect_err("it is refused");
    assert_eq!(scene.state().await, before, "{error:?}");
    error
}

/// Something that succeeds before the operation that does not.
fn begun() -> UnitOfWork {
    users(&["before"])
}

pub async fn s1_44_rows_and_entry_are_committed_together<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut transaction = scene.begin().await;
    let mut work = users(&["ada"]);
    work.create(&blog.posts, post("first", "ada")).expect("it is right");
    let applied = scene.changelog().apply(&mut transaction, &work).await.expect("it is done");
    assert_eq!(applied.versionstamp.expect("it is on").to_string(), stamp(1, 0));
    assert_eq!(applied.created.len(), 2);
    // Its own transaction sees all of it, and nobody else does.
    let inside = format!("select {} from postrider_changelog", S::text("count(*)"));
    assert_eq!(S::rows_in(&mut transaction, &inside).await, [[Some("1".to_owned())]]);
    assert_eq!((scene.count("users").await, scene.count("postrider_changelog").await), (0, 0));
    transaction.commit().await.expect("it is committed");
    assert_eq!((scene.count("users").await, scene.count("postrider_changelog").await), (1, 1));
}

pub async fn s1_44_a_caller_who_rolls_back_leaves_nothing<S: Scene>() {
    let scene = S::start().await;
    let before = scene.state().await;
    let mut transaction = scene.begin().await;
    scene.changelog().apply(&mut transaction, &users(&["ada"])).await.expect("it is done");
    transaction.rollback().await.expect("it is rolled back");
    assert_eq!(scene.state().await, before);
}

pub async fn s1_45_an_older_version_is_a_conflict_and_nothing_is_written<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let mut work = UnitOfWork::new();
    work.update(&blog.users, "ada", [("name", "Ada".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    for version in [0, 2, -1] {
        let ada = Id::external("ada").with_version(version);
        let mut updated = begun();
        updated.update_checked(&blog.users, &ada, [("name", "other".into())]).expect("it is right");
        let mut deleted = begun();
        deleted.delete_checked(&blog.users, &ada).expect("it is right");
        let mut checked = begun();
        checked.check(&blog.users, &ada).expect("it is right");
        for work in [updated, deleted, checked] {
            let error = refused(&scene, &work).await;
            let ChangelogError::VersionConflict { table, external_id, version: found } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((table.as_str(), external_id.as_str(), *found), ("users", "ada", version));
            assert!(!error.is_transient());
        }
    }
    let ada = Id::external("ada").with_version(1);
    let mut work = UnitOfWork::new();
    work.check(&blog.users, &ada).expect("it is right");
    work.update_checked(&blog.users, &ada, [("name", "other".into())]).expect("it is right");
    work.delete_checked(&blog.users, ada.with_version(2)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(scene.counter().await.as_deref(), Some("3"));
}

pub async fn s1_45_of_two_checked_updates_at_once_one_is_a_conflict<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let changelog = scene.changelog();
    let work = |name: &str| {
        let mut work = UnitOfWork::new();
        let ada = Id::external("ada").with_version(0);
        work.update_checked(&blog.users, ada, [("name", name.into())]).expect("it is right");
        work
    };
    let (one, other) = (work("one"), work("other"));
    let (first, second) = join(changelog.commit(&one), changelog.commit(&other)).await;
    assert_ne!(first.is_ok(), second.is_ok());
    let error = first.and(second).expect_err("one is refused");
    assert!(matches!(error, ChangelogError::VersionConflict { .. }), "{error:?}");
    assert_eq!(scene.number(&format!("select {} from users", S::text("_version"))).await, 1);
    assert_eq!(scene.stamps().await, [stamp(1, 0), stamp(2, 0)]);
}

pub async fn s1_45_a_check_holds_until_the_commit<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    // The changelog is off, so that it is the row itself that is waited for.
    let changelog = scene.changelog().enabled(false);
    let mut checking = users(&["eve"]);
    checking.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    let mut transaction = scene.begin().await;
    changelog.apply(&mut transaction, &checking).await.expect("it is done");
    let mut work = UnitOfWork::new();
    work.update(&blog.users, "ada", [("name", "other".into())]).expect("it is right");
    let mut update = std::pin::pin!(changelog.commit(&work));
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut update).await;
    assert!(waited.is_err(), "it did not wait");
    transaction.commit().await.expect("it is committed");
    update.await.expect("it is committed");
    let error = changelog.commit(&checking).await.expect_err("it was changed");
    assert!(matches!(error, ChangelogError::VersionConflict { .. } | ChangelogError::Constraint { .. }), "{error:?}");
    let mut checking = UnitOfWork::new();
    checking.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    let error = changelog.commit(&checking).await.expect_err("it was changed");
    assert!(matches!(error, ChangelogError::VersionConflict { .. }), "{error:?}");
}

pub async fn s1_45_a_row_that_is_not_there_fails_the_unit_of_work<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let mut updated = begun();
    updated.update(&blog.users, "nobody", [("name", "other".into())]).expect("it is right");
    let mut deleted = begun();
    deleted.delete(&blog.users, "nobody").expect("it is right");
    // An id is the same only if every character is.
    let mut otherwise = begun();
    otherwise.update(&blog.users, "ADA", [("name", "other".into())]).expect("it is right");
    let mut blank = begun();
    blank.delete(&blog.users, "ada ").expect("it is right");
    for (work, id) in [(updated, "nobody"), (deleted, "nobody"), (otherwise, "ADA"), (blank, "ada ")] {
        let error = refused(&scene, &work).await;
        let ChangelogError::Missing { table, external_id } = error else { panic!("{error:?}") };
        assert_eq!((table.as_str(), external_id.as_str()), ("users", id));
    }
    let mut checked = begun();
    checked.check(&blog.users, Id::external("nobody").with_version(0)).expect("it is right");
    let error = refused(&scene, &checked).await;
    assert!(matches!(error, ChangelogError::VersionConflict { .. }), "{error:?}");
}

pub async fn s1_45_a_constraint_fails_the_unit_of_work<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let mut twice = begun();
    twice.create(&blog.users, [("id", "ada".into()), ("name", "other".into())]).expect("it is right");
    let error = refused(&scene, &twice).await;
    let unique = matches!(error, ChangelogError::Constraint { violation: Violation::Unique, constraint: Some(_) });
    assert!(unique && !error.is_transient(), "{error:?}");
    let mut referred = begun();
    referred.create(&blog.posts, post("first", "ada")).expect("it is right");
    referred.delete(&blog.users, "ada").expect("it is right");
    let error = refused(&scene, &referred).await;
    assert!(matches!(error, ChangelogError::Constraint { violation: Violation::ForeignKey, .. }), "{error:?}");
    // The text does not fit into the column.
    if S::KIND != Kind::Sqlite {
        let mut large = begun();
        large
            .create(&blog.posts, post("first", "ada").into_iter().chain([("views", (1_i64 << 40).into())]))
            .expect("it is right");
        let error = refused(&scene, &large).await;
        assert!(matches!(error, ChangelogError::Failed(_)), "{error:?}");
    }
    scene.users(&["eve"]).await;
    assert_eq!(scene.stamps().await, [stamp(1, 0), stamp(2, 0)]);
}

pub async fn s1_45_an_error_leaves_connections_that_can_be_used<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada"]).await;
    for _ in 0..50 {
        scene.changelog().commit(&users(&["before", "ada"])).await.expect_err("it is there already");
    }
    scene.users(&["eve"]).await;
    assert_eq!(scene.stamps().await, [stamp(1, 0), stamp(2, 0)]);
}

pub async fn s1_22_a_unit_of_work_is_committed_once<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada", "eve"]).await;
    let mut created = UnitOfWork::with_id("create").expect("an id");
    created.create(&blog.users, [("id", "joe".into()), ("name", "joe".into())]).expect("it is right");
    // Without a key of its own in the table.
    let mut unnamed = UnitOfWork::with_id("unnamed").expect("an id");
    unnamed.update(&blog.users, "eve", [("name", "other".into())]).expect("it is right");
    let mut checked = UnitOfWork::with_id("checked").expect("an id");
    checked
        .update_checked(&blog.users, Id::external("ada").with_version(0), [("name", "other".into())])
        .expect("it is right");
    let mut deleted = UnitOfWork::with_id("deleted").expect("an id");
    deleted.delete(&blog.users, "joe").expect("it is right");
    for (work, version) in [(created, 2), (unnamed, 3), (checked, 4), (deleted, 5)] {
        scene.changelog().commit(&work).await.expect("it is committed");
        for _ in 0..2 {
            let error = refused(&scene, &work).await;
            let ChangelogError::AlreadyCommitted { uow_id, versionstamp } = &error else { panic!("{error:?}") };
            assert_eq!(uow_id, work.id());
            assert_eq!(versionstamp.expect("it is known").to_string(), stamp(version, 0));
            assert!(!error.is_transient());
        }
    }
}

pub async fn s1_22_of_two_units_of_work_with_one_id_one_is_committed<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    for round in 0..4 {
        let mut work = UnitOfWork::with_id(format!("round {round}")).expect("an id");
        work.update(&blog.users, "ada", [("name", "other".into())]).expect("it is right");
        let changelog = scene.changelog();
        let (first, second) = join(changelog.commit(&work), changelog.commit(&work)).await;
        assert_ne!(first.is_ok(), second.is_ok());
        let (Ok(committed), Err(error)) = (if first.is_ok() { (first, second) } else { (second, first) }) else {
            panic!("one is committed and one is not")
        };
        let ChangelogError::AlreadyCommitted { versionstamp, .. } = error else { panic!("{error:?}") };
        assert_eq!(versionstamp, committed.versionstamp);
    }
    assert_eq!(scene.number(&format!("select {} from users", S::text("_version"))).await, 4);
    assert_eq!(scene.counter().await.as_deref(), Some("5"));
}

pub async fn s1_22_ids_of_units_of_work_are_the_same_only_if_every_character_is<S: Scene>() {
    let scene = S::start().await;
    for (at, id) in ["one", "ONE", "öne", "one\t", "one ", "one  ", " one"].into_iter().enumerate() {
        let mut work = UnitOfWork::with_id(id).expect("an id");
        let name = format!("user {at}");
        work.create(&blog().users, [("id", name.as_str().into()), ("name", "x".into())]).expect("it is right");
        scene.changelog().commit(&work).await.expect("it is another one");
    }
    assert_eq!(scene.stamps().await.len(), 7);
}

pub async fn s1_39_ids_that_were_created_are_answered<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.count_from(987_654_321).await;
    let mut work = UnitOfWork::new();
    let recorded = work.create(&blog.users, [("name", Input::from(Value::from("Ada")))]).expect("it is right");
    let created = scene.changelog().commit(&work).await.expect("it is committed").created;
    assert_eq!(created[0].as_str(), recorded.as_str());
    assert_eq!(created[0].version(), Some(0));
    let sql = format!("select {}, id from users", S::text("_internal_id"));
    let expected = [created[0].internal().map(|id| id.to_string()), Some(recorded.to_string())];
    assert_eq!(scene.rows(&sql).await, [expected]);
    let off = scene.changelog().enabled(false).commit(&users(&["eve"])).await.expect("it is committed");
    assert_eq!(off.created[0].internal(), created[0].internal().map(|id| id + 1));
}
