//! What an entry says.

use postrider_changelog::{After, Input, Operation, Reader, UnitOfWork, Value};

use crate::scene::{Scene, blog};

pub async fn s1_30_an_entry_says_what_the_tables_hold<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    let mut work = UnitOfWork::with_id("first").expect("an id");
    let ada = work.create(&blog.users, [("id", "ada".into()), ("name", "Ada".into())]).expect("it is right");
    work.create(&blog.posts, [("slug", "notes".into()), ("title", "Notes".into()), ("authorId", (&ada).into())])
        .expect("it is right");
    let committed = changelog.commit(&work).await.expect("it is committed");
    let number = committed.created[0].internal().expect("the database says it");
    let mut work = UnitOfWork::new();
    work.update(&blog.posts, "notes", [("editorId", Input::internal(number)), ("views", 7.into())])
        .expect("it is right");
    work.delete(&blog.posts, "notes").expect("it is right");
    changelog.commit(&work).await.expect("it is committed");
    let page = changelog.list(After::Beginning, 0).await.expect("it can be read");
    assert_eq!(page.entries.len(), 2);
    let first = page.entries[0].payload().expect("it can be read");
    assert_eq!(first.mutations.len(), 2);
    let Operation::Create { values } = &first.mutations[1].operation else { panic!("it is another operation") };
    assert_eq!(values["authorId"], Value::from("ada"));
    let second = page.entries[1].resolved().expect("it can be read");
    let Operation::Update { set, .. } = &second.mutations[0].operation else { panic!("it is another operation") };
    assert_eq!(set["editorId"], Value::from("ada"));
    assert_eq!(set["views"], Value::from(7));
}
