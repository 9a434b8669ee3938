//! What callers do wrong, or databases make of it, does no harm to the log.

use postrider_changelog::{
    After, Change, ChangelogError, Id, Operation, Reader, TransactionVersion, UnitOfWork, Value, Violation,
};
use sqlx::Connection;

use crate::scene::{Blog, Scene, blog};

fn deleted() -> Vec<Change> {
    let operation = Operation::Delete { check_version: None };
    vec![Change { namespace: "blog".into(), table: "users".into(), external_id: "ada".into(), operation }]
}

async fn ada<S: Scene>(scene: &S, blog: &Blog) {
    let mut work = UnitOfWork::with_id("ada").expect("an id");
    work.create(&blog.users, [("id", "ada".into()), ("name", "Ada".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
}

fn renamed(blog: &Blog, name: &str) -> UnitOfWork {
    let mut work = UnitOfWork::new();
    work.update(&blog.users, "ada", [("name", name.into())]).expect("it is right");
    work
}

pub async fn s1_13_a_reservation_that_was_undone_is_not_used<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    ada(&scene, &blog).await;
    let mut transaction = scene.begin().await;
    let mut savepoint = transaction.begin().await.expect("it begins");
    let reservation = changelog.reserve(&mut savepoint).await.expect("it is reserved");
    savepoint.rollback().await.expect("it is rolled back");
    let lost = changelog.append(&mut transaction, reservation, "late", deleted()).await;
    assert!(
        matches!(&lost, Err(ChangelogError::ReservationLost { version }) if Some(*version) == TransactionVersion::new(2)),
        "{lost:?}"
    );
    transaction.commit().await.expect("it is committed");
    // Nobody is in the next one's way.
    let next = changelog.commit(&renamed(&blog, "Next")).await.expect("it is committed").versionstamp;
    assert_eq!(next.map(|stamp| stamp.transaction_version().get()), Some(2));
    assert_eq!(scene.count("postrider_changelog").await, 2);
}

pub async fn s1_45_a_unit_of_work_that_fails_leaves_the_callers_transaction_as_it_was<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    ada(&scene, &blog).await;
    let mut work = renamed(&blog, "half");
    work.update_checked(&blog.users, Id::external("ada").with_version(7), [("name", "x".into())]).expect("it is right");
    let mut transaction = scene.begin().await;
    let failed = changelog.apply(&mut transaction, &work).await;
    assert!(matches!(failed, Err(ChangelogError::VersionConflict { .. })), "{failed:?}");
    let other = changelog.apply(&mut transaction, &renamed(&blog, "whole")).await.expect("it goes on");
    assert_eq!(
        other.versionstamp.map(|stamp| stamp.transaction_version().get()),
        Some(2),
        "the version was given back"
    );
    transaction.commit().await.expect("it is committed");
    let rows = scene.rows("select name from users").await;
    assert_eq!(rows, [vec![Some("whole".to_owned())]]);
    assert_eq!(scene.count("postrider_changelog").await, 2);
}

pub async fn s1_13_a_counter_that_went_back_is_not_taken_for_a_repeat<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    ada(&scene, &blog).await;
    let key = S::key();
    scene
        .run(&format!("update postrider_settings set value = '0' where {key} = 'changelog.version'"))
        .await
        .expect("it is set");
    let failed = changelog.commit(&renamed(&blog, "lost")).await;
    let Err(ChangelogError::Failed(why)) = &failed else { panic!("{failed:?}") };
    assert!(why.to_string().contains("changelog.version"), "{why}");
    assert_eq!(scene.rows("select name from users").await, [vec![Some("Ada".to_owned())]], "nothing was written");
}

pub async fn s1_39_ids_are_told_as_the_table_holds_them<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    ada(&scene, &blog).await;
    // Databases that do not care for case would find it.
    let mut work = UnitOfWork::new();
    work.update(&blog.users, "ADA", [("name", "x".into())]).expect("it is right");
    assert!(matches!(changelog.commit(&work).await, Err(ChangelogError::Missing { .. })));
    let mut work = UnitOfWork::new();
    let odd = "{01976F3C-7F3E-7C3E-8A43-0D5F5B5A0D11}";
    work.create(&blog.kinds, [("uuid", odd.into())]).expect("it is right");
    changelog.commit(&work).await.expect("it is committed");
    let entry = changelog.list(After::Beginning, 0).await.expect("it can be read").entries.pop().expect("there is one");
    let payload = entry.payload().expect("it can be read");
    let Operation::Create { values } = &payload.mutations[0].operation else { panic!("it is another operation") };
    let canonical = "01976f3c-7f3e-7c3e-8a43-0d5f5b5a0d11";
    assert_eq!(values["uuid"], Value::from(canonical));
    assert_eq!((&values["float"], &values["binary"]), (&Value::Null, &Value::Null));
    let rows = scene.rows(&format!("select {} from kinds", S::text("a_uuid"))).await;
    assert_eq!(rows, [vec![Some(canonical.to_owned())]]);
}

pub async fn s1_45_what_the_database_says_of_a_value_is_not_passed_on<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    let create = || {
        let mut work = UnitOfWork::new();
        work.create(&blog.users, [("id", "a-secret".into()), ("name", "x".into())]).expect("it is right");
        work
    };
    changelog.commit(&create()).await.expect("it is committed");
    let failed = changelog.commit(&create()).await.expect_err("it is there already");
    let said = format!("{failed:?}");
    let ChangelogError::Constraint { violation: Violation::Unique, constraint: Some(name) } = &failed else {
        panic!("{said}")
    };
    assert!(name.contains("id"), "{name}");
    assert!(!said.contains("secret"), "{said}");
}

pub async fn s1_45_rows_that_were_created_have_their_last_version<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    let mut work = UnitOfWork::new();
    let ada = work.create(&blog.users, [("id", "ada".into()), ("name", "Ada".into())]).expect("it is right");
    let gone = work.create(&blog.users, [("id", "gone".into()), ("name", "Gone".into())]).expect("it is right");
    work.update(&blog.users, &ada, [("name", "Ada L.".into())]).expect("it is right");
    work.delete(&blog.users, &gone).expect("it is right");
    let created = changelog.commit(&work).await.expect("it is committed").created;
    assert_eq!(created.len(), 1);
    let mut work = UnitOfWork::new();
    work.update_checked(&blog.users, &created[0], [("name", "Ada".into())]).expect("it is right");
    changelog.commit(&work).await.expect("the version is right");
}
