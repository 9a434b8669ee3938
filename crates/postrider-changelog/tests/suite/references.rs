//! References are told by external ids, and internal ids stay inside.

use postrider_changelog::{After, ChangelogError, Id, Input, Operation, Reader, UnitOfWork, Value};
use serde_json::json;

use crate::scene::{Scene, blog, post, users};

/// Where internal ids begin, so that one is seen wherever it leaks.
const INTERNAL: i64 = 987_654_321;

/// Ada and Eve with internal ids that are easily found.
async fn start<S: Scene>() -> (S, Id, Id) {
    let scene = S::start().await;
    scene.count_from(INTERNAL).await;
    let mut created = scene.users(&["ada", "eve"]).await.created;
    let (eve, ada) = (created.remove(1), created.remove(0));
    assert_eq!((ada.internal(), eve.internal()), (Some(INTERNAL), Some(INTERNAL + 1)));
    (scene, ada, eve)
}

fn by_internal(id: &Id) -> Input {
    Input::internal(id.internal().expect("it is known"))
}

/// The references of the last entry.
async fn references<S: Scene>(scene: &S) -> serde_json::Value {
    let (_, references) = scene.texts().await.pop().expect("there is one");
    references.map_or(serde_json::Value::Null, |text| serde_json::from_str(&text).expect("it is JSON"))
}

pub async fn s1_39_s1_52_an_external_id_is_told_as_it_is<S: Scene>() {
    let (scene, ada, eve) = start::<S>().await;
    let mut work = UnitOfWork::new();
    // As an id that knows both, as an id that knows one, and as text.
    work.create(&blog().posts, post("first", &ada)).expect("it is right");
    work.create(&blog().posts, post("second", Id::external("eve"))).expect("it is right");
    work.update(&blog().posts, "first", [("editorId", "eve".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(1);
    assert_eq!(mutations[0]["values"]["authorId"], "ada");
    assert_eq!(mutations[1]["values"]["authorId"], "eve");
    assert_eq!(mutations[2]["set"]["editorId"], "eve");
    assert_eq!(references(&scene).await, serde_json::Value::Null);
    let columns = [S::text("author_number"), S::text("editor_number")].join(", ");
    let rows = scene.rows(&format!("select {columns} from blog_posts order by post_slug")).await;
    let text = |id: &Id| id.internal().map(|id| id.to_string());
    assert_eq!(rows, [[text(&ada), text(&eve)], [text(&eve), None]]);
}

pub async fn s1_53_s1_54_an_internal_id_becomes_a_placeholder<S: Scene>() {
    let (scene, ada, eve) = start::<S>().await;
    let mut work = UnitOfWork::new();
    work.update(&blog().users, "ada", [("email", "ada@example.org".into())]).expect("it is right");
    work.create(&blog().posts, post("first", by_internal(&ada)).into_iter().chain([("editorId", by_internal(&eve))]))
        .expect("it is right");
    work.check(&blog().users, Id::external("eve").with_version(0)).expect("it is right");
    work.create(&blog().notes, [("text", "nobody is told".into())]).expect("it is right");
    work.update(&blog().users, "eve", [("invitedBy", by_internal(&ada))]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    // The number is that of the mutation in the payload.
    let mutations = scene.mutations().await.remove(1);
    assert_eq!(mutations[1]["values"]["authorId"], json!({ "__fragno_ref": "1.authorId" }));
    assert_eq!(mutations[1]["values"]["editorId"], json!({ "__fragno_ref": "1.editorId" }));
    assert_eq!(mutations[2]["set"]["invitedBy"], json!({ "__fragno_ref": "2.invitedBy" }));
    let expected = json!({ "1.authorId": "ada", "1.editorId": "eve", "2.invitedBy": "ada" });
    assert_eq!(references(&scene).await, expected);
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let payload = page.entries[1].resolved().expect("it can be read");
    let Operation::Create { values } = &payload.mutations[1].operation else { panic!("it is another operation") };
    assert_eq!((&values["authorId"], &values["editorId"]), (&Value::from("ada"), &Value::from("eve")));
    let rows = scene.rows(&format!("select {} from blog_posts", S::text("author_number"))).await;
    assert_eq!(rows, [[ada.internal().map(|id| id.to_string())]]);
}

pub async fn s1_55_internal_ids_are_nowhere_in_an_entry<S: Scene>() {
    let (scene, ada, eve) = start::<S>().await;
    let blog = blog();
    let mut work = UnitOfWork::new();
    work.create(&blog.posts, post("first", by_internal(&ada)).into_iter().chain([("editorId", by_internal(&eve))]))
        .expect("it is right");
    work.create(&blog.posts, post("second", &eve)).expect("it is right");
    work.create(&blog.users, [("id", "joe".into()), ("name", "joe".into()), ("invitedBy", by_internal(&eve))])
        .expect("it is right");
    work.update(&blog.posts, "second", [("editorId", by_internal(&ada))]).expect("it is right");
    work.update_checked(&blog.users, &ada, [("invitedBy", (&eve).into())]).expect("it is right");
    work.delete(&blog.posts, "first").expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let lowest = format!("select {} from users", S::text("min(_internal_id)"));
    assert_eq!(scene.number(&lowest).await, INTERNAL);
    for (payload, references) in scene.texts().await {
        let all = payload + references.as_deref().unwrap_or_default();
        assert!(!all.contains("98765432"), "{all}");
    }
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let sent = serde_json::to_string(&page.entries).expect("it is JSON");
    assert!(!sent.contains("98765432"), "{sent}");
}

pub async fn s1_56_a_row_of_the_same_unit_of_work_is_found<S: Scene>() {
    let (scene, ..) = start::<S>().await;
    let blog = blog();
    // The next internal id is known in advance, so only a look after the mutations can find it.
    let mut work = UnitOfWork::new();
    let joe = work.create(&blog.users, [("id", "joe".into()), ("name", "joe".into())]).expect("it is right");
    work.create(&blog.posts, post("first", Input::internal(INTERNAL + 2))).expect("it is right");
    work.create(&blog.posts, post("second", &joe)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(references(&scene).await, json!({ "1.authorId": "joe" }));
    assert_eq!(scene.mutations().await[1][2]["values"]["authorId"], "joe");
    // And an external id is told as it is after the unit of work.
    let sql = format!("select {} from blog_posts order by post_slug", S::text("author_number"));
    let number = Some((INTERNAL + 2).to_string());
    assert_eq!(scene.rows(&sql).await, [[number.clone()], [number]]);
}

pub async fn s1_57_a_reference_to_nothing_fails_the_unit_of_work<S: Scene>() {
    let (scene, ada, _) = start::<S>().await;
    let blog = blog();
    scene
        .changelog()
        .enabled(false)
        .commit(&{
            let mut work = UnitOfWork::new();
            work.create(&blog.posts, post("there", &ada)).expect("it is right");
            work
        })
        .await
        .expect("it is committed");
    let cases: [(&str, Input, &str); 6] = [
        ("create", Input::internal(5), "editorId"),
        ("update", Input::internal(5), "editorId"),
        ("create", "nobody".into(), "editorId"),
        ("update", "nobody".into(), "editorId"),
        ("create", "nobody".into(), "authorId"),
        ("update", "nobody".into(), "authorId"),
    ];
    for (verb, input, column) in cases {
        let mut work = users(&["before"]);
        let by_internal = matches!(input, Input::Internal(_));
        match (verb, column) {
            ("create", "authorId") => work.create(&blog.posts, post("first", input)).map(drop),
            ("create", _) => {
                work.create(&blog.posts, post("first", &ada).into_iter().chain([(column, input)])).map(drop)
            }
            _ => work.update(&blog.posts, "there", [(column, input)]),
        }
        .expect("it is right");
        // Where nobody is told an internal id is written as it was given.
        let levels: &[bool] = if by_internal { &[true] } else { &[true, false] };
        for &enabled in levels {
            let before = scene.state().await;
            let error = scene.changelog().enabled(enabled).commit(&work).await.expect_err("it is refused");
            assert_eq!(scene.state().await, before, "{verb} {column} {error:?}");
            let ChangelogError::Unresolved { operation, column: found, table } = &error else {
                panic!("{verb} {column}: {error:?}")
            };
            assert_eq!((*operation, found.as_str(), table.as_str()), (1, column, "users"));
            assert!(!error.is_transient());
        }
    }
}

pub async fn s1_52_a_reference_may_be_null<S: Scene>() {
    let (scene, ada, eve) = start::<S>().await;
    let blog = blog();
    let mut work = UnitOfWork::new();
    work.create(&blog.posts, post("first", &ada).into_iter().chain([("editorId", (&eve).into())]))
        .expect("it is right");
    work.update(&blog.posts, "first", [("editorId", Value::Null.into())]).expect("it is right");
    work.create(&blog.posts, post("second", &ada)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(1);
    assert_eq!(mutations[0]["values"]["editorId"], "eve");
    assert_eq!(mutations[1]["set"], json!({ "editorId": null }));
    assert_eq!(mutations[2]["values"]["editorId"], serde_json::Value::Null);
    assert_eq!(references(&scene).await, serde_json::Value::Null);
    let rows = scene.rows(&format!("select {} from blog_posts", S::text("editor_number"))).await;
    assert_eq!(rows, [[None], [None]]);
    let mut work = UnitOfWork::new();
    let error = work.update(&blog.posts, "first", [("authorId", Value::Null.into())]).expect_err("it is refused");
    assert!(matches!(error, ChangelogError::Invalid(_)), "{error:?}");
}
