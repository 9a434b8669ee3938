//! Names that the application chose, however odd they are.

use postrider_changelog::{
    After, ChangelogError, Column, Id, Input, Operation, Reader, Schema, TableBuilder, UnitOfWork, Value,
};

use crate::scene::{Kind, Scene};

const TABLE: &str = "we\"ird``; drop table users; -- ?$1{now}";
const EXTERNAL: &str = "ex\"ter`nal's ?";
const INTERNAL: &str = "in\"ter`nal $1";
const VERSION: &str = "ver\"si`on";
const TIME: &str = "ti\"me`; --";
const REFERENCE: &str = "re\"fe`rence ?1";

fn quoted<S: Scene>(name: &str) -> String {
    let quote = if S::KIND == Kind::MySql { "`" } else { "\"" };
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
}

fn schema() -> Schema {
    Schema::builder("na.me\\space \"x\"")
        .table(
            TableBuilder::new("ta.ble \"x\"")
                .physical(TABLE)
                .external_id(Column::text("i.d").physical(EXTERNAL))
                .internal_id(INTERNAL)
                .version(VERSION)
                .column(Column::timestamp("ti.me\\").physical(TIME).nullable())
                .column(Column::reference("ref.erence", "ta.ble \"x\"").physical(REFERENCE).nullable()),
        )
        .build()
        .expect("the schema is right")
}

pub async fn s1_42_odd_names_work_and_inject_nothing<S: Scene>() {
    let scene = S::start().await;
    let [internal, external, version, time, reference] =
        [INTERNAL, EXTERNAL, VERSION, TIME, REFERENCE].map(|name| quoted::<S>(name));
    let (number, text, moment) = match S::KIND {
        Kind::Postgres => ("bigint generated always as identity primary key", "text", "timestamptz"),
        Kind::MySql => ("bigint auto_increment primary key", "varchar(190)", "datetime(3)"),
        Kind::Sqlite => ("integer primary key autoincrement", "text", "integer"),
    };
    let sql = format!(
        "create table {} ({internal} {number}, {external} {text} not null unique, {version} bigint not null, {time} {moment}, {reference} bigint)",
        quoted::<S>(TABLE)
    );
    scene.run(&sql).await.expect("the database has such names");
    let (schema, at) =
        (schema(), "2024-02-29T12:00:00.000Z".parse::<postrider_changelog::Date>().expect("it is a time"));
    let table = schema.table("ta.ble \"x\"").expect("it is declared");
    let id = "'; drop table users; -- \" ` \\";
    let mut work = UnitOfWork::new();
    work.create(&table, [("i.d", id.into()), ("ti.me\\", at.into())]).expect("it is right");
    work.create(&table, [("i.d", "other".into()), ("ref.erence", id.into())]).expect("it is right");
    let created = scene.changelog().commit(&work).await.expect("it is committed").created;
    let mut work = UnitOfWork::new();
    let number = created[0].internal().expect("it is known");
    work.update(&table, "other", [("ref.erence", Input::internal(number)), ("ti.me\\", Input::now())])
        .expect("it is right");
    work.check(&table, Id::external(id).with_version(0)).expect("it is right");
    work.delete_checked(&table, Id::external(id).with_version(0)).expect("it is right");
    let error = scene.changelog().commit(&work).await.expect_err("what it refers to is gone");
    assert!(matches!(error, ChangelogError::Unresolved { .. }), "{error:?}");
    let mut work = UnitOfWork::new();
    work.update(&table, "other", [("ref.erence", Input::internal(number))]).expect("it is right");
    work.delete_checked(&table, Id::external("other").with_version(1)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    assert_eq!(scene.count("users").await, 0);
    assert_eq!(scene.count(&quoted::<S>(TABLE)).await, 1);
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let first = page.entries[0].payload().expect("it can be read").mutations.remove(0);
    assert_eq!((first.namespace.as_str(), first.table.as_str()), ("na.me\\space \"x\"", "ta.ble \"x\""));
    assert_eq!(first.external_id, id);
    let Operation::Create { values } = first.operation else { panic!("it is another operation") };
    assert!(values["ti.me\\"] == at.into());
    let second = page.entries[1].resolved().expect("it can be read").mutations.remove(0);
    let Operation::Update { set, .. } = second.operation else { panic!("it is another operation") };
    assert!(set["ref.erence"] == Value::from(id));
    for (payload, _) in scene.texts().await {
        assert!(!payload.contains("we\\\"ird") && !payload.contains("fe`rence"), "{payload}");
    }
}

pub async fn s1_42_names_that_no_database_has_are_refused<S: Scene>() {
    let long = "x".repeat(64);
    let tables = [
        TableBuilder::new("t").physical(""),
        TableBuilder::new("t").physical(&long),
        TableBuilder::new("t").physical("a\0b"),
        TableBuilder::new("t").in_schema(""),
        TableBuilder::new("t").column(Column::text("c").physical(&long)),
        TableBuilder::new("t").column(Column::text("c")).column(Column::text("c")),
        TableBuilder::new("t").column(Column::text("c").physical("_version")),
        TableBuilder::new("t").column(Column::text("id")),
        TableBuilder::new("t").column(Column::reference("r", "nowhere")),
        TableBuilder::new("t").column(Column::text("c").default_now()),
        TableBuilder::new("t").column(Column::integer("c").default_value("text")),
        TableBuilder::new("t").external_id(Column::integer("id")),
    ];
    for (at, table) in tables.into_iter().enumerate() {
        let error = Schema::builder("s").table(table).build().map(drop);
        assert!(matches!(error, Err(ChangelogError::Invalid(_))), "{at}: {error:?}");
    }
    let same = Schema::builder("s").table(TableBuilder::new("t")).table(TableBuilder::new("t")).build().map(drop);
    assert!(matches!(same, Err(ChangelogError::Invalid(_))), "{same:?}");
    assert!(matches!(Schema::builder("").build(), Err(ChangelogError::Invalid(_))));
}
