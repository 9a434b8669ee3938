//! What an entry says.

use std::collections::BTreeMap;

use postrider_changelog::{
    After, Change, ChangelogError, Column, Id, Input, Operation, Reader, Schema, TableBuilder, UnitOfWork, Value,
};
use serde_json::json;

use crate::scene::{Kind, Scene, blog, post, stamp, users};

pub async fn s1_30_an_entry_says_what_the_tables_hold<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let changelog = scene.changelog();
    let mut work = UnitOfWork::with_id("first").expect("an id");
    let ada = work.create(&blog.users, [("id", "ada".into()), ("name", "Ada".into())]).expect("it is right");
    work.create(&blog.posts, post("notes", &ada)).expect("it is right");
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

pub async fn s1_30_s1_31_s1_32_s1_33_mutations_have_the_form_of_version_1<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada", "eve", "joe", "sue"]).await;
    let mut work = UnitOfWork::new();
    work.create(&blog.users, [("id", "max".into()), ("name", "Max".into()), ("invitedBy", "ada".into())])
        .expect("it is right");
    work.update(&blog.users, "ada", [("email", "ada@example.org".into())]).expect("it is right");
    work.update_checked(&blog.users, Id::external("eve").with_version(0), [("name", "Eve".into())])
        .expect("it is right");
    work.delete(&blog.users, "joe").expect("it is right");
    work.delete_checked(&blog.users, Id::external("sue").with_version(0)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutation = |at: u16, op: &str, id: &str, more: serde_json::Value| {
        let mut mutation = json!({
            "op": op, "schema": "blog", "namespace": "blog", "table": "users", "externalId": id, "versionstamp": stamp(2, at),
        });
        mutation.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        mutation
    };
    let expected = [
        mutation(0, "create", "max", json!({ "values": { "name": "Max", "email": null, "invitedBy": "ada" } })),
        mutation(1, "update", "ada", json!({ "set": { "email": "ada@example.org" } })),
        mutation(2, "update", "eve", json!({ "set": { "name": "Eve" }, "checkVersion": 0 })),
        mutation(3, "delete", "joe", json!({})),
        mutation(4, "delete", "sue", json!({ "checkVersion": 0 })),
    ];
    assert_eq!(scene.mutations().await[1], expected);
    let (text, references) = scene.texts().await.remove(1);
    assert_eq!(references, None);
    let whole: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let keys: Vec<_> = whole["json"].as_object().expect("it is one").keys().collect();
    assert_eq!(keys, ["mutations", "version"]);
}

pub async fn s1_34_mutations_are_in_the_order_in_which_they_were_recorded<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    let ids = ["z", "a", "m", "b"];
    for id in ids {
        work.create(&blog.users, [("id", id.into()), ("name", id.into())]).expect("it is right");
        work.create(&blog.posts, post(id, id)).expect("it is right");
        work.update(&blog.users, id, [("name", "other".into())]).expect("it is right");
        work.delete(&blog.posts, id).expect("it is right");
    }
    scene.changelog().commit(&work).await.expect("it is committed");
    let found: Vec<_> = scene.mutations().await[0]
        .iter()
        .map(|mutation| format!("{} {} {}", mutation["op"], mutation["table"], mutation["externalId"]))
        .collect();
    let expected: Vec<_> = ids
        .iter()
        .flat_map(|id| {
            [("create", "users"), ("create", "posts"), ("update", "users"), ("delete", "posts")]
                .map(|(op, table)| format!("{op:?} {table:?} {id:?}"))
        })
        .collect();
    assert_eq!(found, expected);
}

pub async fn s1_36_checks_are_not_told<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada", "eve"]).await;
    let mut work = UnitOfWork::new();
    work.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    work.update(&blog.users, "eve", [("name", "Eve".into())]).expect("it is right");
    work.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(1);
    assert_eq!(mutations.len(), 1);
    assert_eq!(mutations[0]["versionstamp"], stamp(2, 0));
    // A unit of work that only checks has nothing to tell, and takes no version.
    let mut work = UnitOfWork::new();
    work.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    let committed = scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(committed.versionstamp, None);
    assert_eq!(scene.counter().await.as_deref(), Some("2"));
    assert_eq!(scene.stamps().await.len(), 2);
}

pub async fn s1_37_internal_tables_are_written_and_not_told_of<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    work.create(&blog.notes, [("id", "one".into()), ("text", "secret words".into())]).expect("it is right");
    let committed = scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(committed.versionstamp, None);
    assert_eq!(committed.created.len(), 1);
    assert_eq!(scene.counter().await, None);
    let mut work = users(&["ada"]);
    work.update(&blog.notes, "one", [("text", "other secret words".into())]).expect("it is right");
    work.create(&blog.notes, [("id", "two".into()), ("text", "secret words".into())]).expect("it is right");
    work.delete(&blog.notes, "one").expect("it is right");
    work.create(&blog.users, [("id", "eve".into()), ("name", "eve".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let found = scene.rows("select id, note from notes").await;
    assert_eq!(found, [[Some("two".to_owned()), Some("secret words".to_owned())]]);
    let mutations = scene.mutations().await.remove(0);
    let told: Vec<_> = mutations.iter().map(|mutation| mutation["externalId"].as_str().expect("text")).collect();
    assert_eq!(told, ["ada", "eve"]);
    assert_eq!(mutations[1]["versionstamp"], stamp(1, 1));
    let (text, _) = scene.texts().await.remove(0);
    assert!(!text.contains("secret") && !text.contains("notes"), "{text}");
}

pub async fn s1_37_postriders_own_tables_are_not_told_of<S: Scene>() {
    let scene = S::start().await;
    let schema = Schema::builder("own")
        .table(
            TableBuilder::new("settings")
                .physical("postrider_settings")
                .external_id(Column::text("key"))
                .internal_id("id")
                .version("value"),
        )
        .build()
        .expect("the schema is right");
    let settings = schema.table("settings").expect("it is declared");
    let mut work = UnitOfWork::new();
    work.create(&settings, [("key", "some.setting".into())]).expect("it is right");
    let committed = scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(committed.versionstamp, None);
    assert_eq!(scene.count("postrider_settings").await, 2);
    assert_eq!(scene.counter().await, None);
    let mut work = users(&["ada"]);
    work.delete(&settings, "some.setting").expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(0);
    assert_eq!(mutations.len(), 1);
    assert_eq!(mutations[0]["table"], "users");
}

pub async fn s1_28_s1_38_each_mutation_has_the_namespace_of_its_schema<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let staff = Schema::builder("staff")
        .table(TableBuilder::new("people").physical("users").column(Column::text("name")))
        .build()
        .expect("the schema is right");
    let mut work = UnitOfWork::new();
    work.create(&blog.users, [("id", "ada".into()), ("name", "Ada".into())]).expect("it is right");
    let people = staff.table("people").expect("it is declared");
    work.create(&people, [("id", "eve".into()), ("name", "Eve".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(0);
    for (mutation, (namespace, table)) in mutations.iter().zip([("blog", "users"), ("staff", "people")]) {
        assert_eq!(mutation["schema"], namespace);
        assert_eq!(mutation["namespace"], namespace);
        assert_eq!(mutation["table"], table);
    }
    let whole: serde_json::Value = serde_json::from_str(&scene.texts().await[0].0).expect("it is JSON");
    assert!(whole.get("namespace").is_none() && whole["json"].get("namespace").is_none());
}

pub async fn s1_42_names_are_those_that_users_see<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let mut work = UnitOfWork::new();
    work.create(&blog.posts, post("first", "ada")).expect("it is right");
    work.update(&blog.posts, "first", [("title", "Other".into()), ("editorId", "ada".into())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(1);
    let keys: Vec<_> = mutations[0]["values"].as_object().expect("it is one").keys().collect();
    assert_eq!(keys, ["authorId", "createdAt", "editorId", "title", "views"]);
    let keys: Vec<_> = mutations[1]["set"].as_object().expect("it is one").keys().collect();
    assert_eq!(keys, ["editorId", "title"]);
    let (text, _) = scene.texts().await.remove(1);
    for physical in ["blog_posts", "post_", "author_number", "editor_number", "created_at", "_version", "_internal_id"]
    {
        assert!(!text.contains(physical), "{physical} is in {text}");
    }
}

fn changes(count: usize) -> Vec<Change> {
    let operation = Operation::Delete { check_version: None };
    let change = |at: usize| Change {
        namespace: "n".into(),
        table: "t".into(),
        external_id: at.to_string(),
        operation: operation.clone(),
    };
    (0..count).map(change).collect()
}

pub async fn s1_43_65536_mutations_have_stamps<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    changelog.append(&mut transaction, reservation, "all", changes(65_536)).await.expect("they fit");
    transaction.commit().await.expect("it is committed");
    let (text, _) = scene.texts().await.remove(0);
    assert_eq!(text.matches("\"versionstamp\"").count(), 65_536);
    assert!(text.contains(&stamp(1, 0)) && text.contains(&stamp(1, u16::MAX)));
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    let error = changelog.append(&mut transaction, reservation, "more", changes(65_537)).await;
    assert!(matches!(error, Err(ChangelogError::TooManyMutations { count: 65_537 })), "{error:?}");
}

pub async fn s1_43_one_mutation_more_is_refused_before_any_sql<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    for at in 0..65_536 {
        work.delete(&blog.users, at.to_string()).expect("it is right");
    }
    // What nobody is told of needs no stamp.
    work.check(&blog.users, Id::external("ada").with_version(0)).expect("it is right");
    work.delete(&blog.notes, "one").expect("it is right");
    let mut more = work.clone();
    more.delete(&blog.users, "65536").expect("it is right");
    // Whoever asks a closed pool for a connection gets another error.
    scene.pool().close().await;
    let error = scene.changelog().commit(&more).await.expect_err("there are too many");
    assert!(matches!(error, ChangelogError::TooManyMutations { count: 65_537 }), "{error:?}");
    assert!(error.to_string().contains("65537") && !error.is_transient(), "{error}");
    let error = scene.changelog().commit(&work).await.expect_err("the pool is closed");
    assert!(matches!(error, ChangelogError::Failed(_)), "{error:?}");
}

pub async fn s1_43_a_unit_of_work_of_65536_mutations_is_committed<S: Scene>() {
    // One statement each: the others take too long for what it shows.
    if S::KIND != Kind::Sqlite {
        return;
    }
    let (scene, blog) = (S::start().await, blog());
    let fill = "with recursive n (i) as (select 0 union all select i + 1 from n where i < 65535) insert into kinds (id, _version) select cast(i as text), 0 from n";
    scene.run(fill).await.expect("it is filled");
    let mut work = UnitOfWork::new();
    for at in 0..65_536 {
        work.delete(&blog.kinds, at.to_string()).expect("it is right");
    }
    scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(scene.count("kinds").await, 0);
    let (text, _) = scene.texts().await.remove(0);
    assert_eq!(text.matches("\"versionstamp\"").count(), 65_536);
}

pub async fn s1_47_what_cannot_be_written_is_refused_before_any_sql<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    let big = postrider_changelog::Value::BigInt(num_bigint::BigInt::from(i64::MAX) + 1);
    let reference = Value::from(serde_json::json!({ "__fragno_ref": "0.text" }));
    let refused: [(&str, Value); 13] = [
        ("json", reference),
        ("text", 1.into()),
        ("text", "a\0b".into()),
        ("uuid", "no uuid".into()),
        ("integer", ((1_i64 << 53) + 1).into()),
        ("integer", 1.5.into()),
        ("big", big),
        ("float", "1".into()),
        ("decimal", "1e5".into()),
        ("boolean", 1.into()),
        ("time", "2024-02-29T12:00:00.000Z".into()),
        ("json", Value::Object(BTreeMap::from([("a".to_owned(), Value::Set(Vec::new()))]))),
        ("binary", "text".into()),
    ];
    for (column, value) in refused {
        let error = work.create(&blog.kinds, [(column, value.clone().into())]).expect_err("it does not fit");
        assert!(matches!(&error, ChangelogError::Invalid(why) if why.contains(column)), "{error:?}");
        let error = work.update(&blog.kinds, "one", [(column, value.into())]).expect_err("it does not fit");
        assert!(matches!(&error, ChangelogError::Invalid(why) if why.contains(column)), "{error:?}");
    }
    for error in [
        work.create(&blog.users, [("name", Value::Null.into())]).map(drop),
        work.create(&blog.users, []).map(drop),
        work.create(&blog.users, [("name", "Ada".into()), ("age", 1.into())]).map(drop),
        work.create(&blog.users, [("name", "Ada".into()), ("name", "Eve".into())]).map(drop),
        work.create(&blog.users, [("id", "".into()), ("name", "Ada".into())]).map(drop),
        work.create(&blog.users, [("id", "x".repeat(513).into()), ("name", "Ada".into())]).map(drop),
        work.create(&blog.users, [("name", Input::now())]).map(drop),
        work.create(&blog.users, [("name", Input::internal(1))]).map(drop),
        work.create(&blog.users, [("name", "Ada".into()), ("invitedBy", 1.into())]).map(drop),
        work.update(&blog.users, "ada", []),
        work.update(&blog.users, "ada", [("id", "eve".into())]),
        work.update_checked(&blog.users, "ada", [("name", "Eve".into())]),
        work.delete_checked(&blog.users, "ada"),
        work.check(&blog.users, "ada"),
        UnitOfWork::with_id("").map(drop),
        UnitOfWork::with_id("x".repeat(513)).map(drop),
        UnitOfWork::with_id("a\0b").map(drop),
    ] {
        assert!(matches!(error, Err(ChangelogError::Invalid(_))), "{error:?}");
    }
    assert!(work.is_empty());
    scene.pool().close().await;
}
