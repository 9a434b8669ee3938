//! Every kind of value: what the payload says is what the table holds.

use std::collections::BTreeMap;
use std::time::SystemTime;

use postrider_changelog::{After, ChangelogError, Date, Input, Operation, Reader, UnitOfWork, Value};
use serde_json::json;

use crate::scene::{Kind, Scene, blog, post};

/// A column by its user-facing name, and how the table tells it.
fn told<S: Scene>(column: &str) -> String {
    let physical = match column {
        "integer" => "an_integer".to_owned(),
        other => format!("a_{other}"),
    };
    match (column, S::KIND) {
        ("binary", _) => format!("case when {physical} is null then null else {} end", S::hex(&physical)),
        ("float", Kind::Sqlite) => {
            format!("case when {physical} is null then null else printf('%!.17g', {physical}) end")
        }
        ("boolean", Kind::Postgres) => format!("{physical}::int::text"),
        ("time" | "second", Kind::Postgres) => {
            format!("to_char({physical} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
        }
        ("time" | "second", Kind::MySql) => {
            format!(
                "concat(date_format({physical}, '%Y-%m-%dT%H:%i:%s.'), lpad(floor(microsecond({physical}) / 1000), 3, '0'), 'Z')"
            )
        }
        _ => S::text(&physical),
    }
}

/// Whether a cell of the table says the same as the payload.
fn same(column: &str, kind: Kind, value: &Value, cell: Option<&str>) -> bool {
    let Some(cell) = cell else { return *value == Value::Null };
    match (column, value) {
        ("text" | "uuid" | "decimal", Value::Text(text)) => text == cell,
        ("integer", Value::Number(number)) => cell.parse::<i64>().is_ok_and(|cell| cell as f64 == *number),
        ("big", Value::BigInt(number)) => number.to_string() == cell,
        ("float", Value::Number(number)) => {
            let cell: f64 = cell.replace("Infinity", "inf").parse().expect("it is a number");
            // SQLite's text of a number may be off by its last bit; another test looks at that.
            if kind == Kind::Sqlite {
                return cell.to_bits().abs_diff(number.to_bits()) <= 1;
            }
            cell.to_bits() == number.to_bits() || (cell.is_nan() && number.is_nan())
        }
        ("boolean", Value::Bool(yes)) => cell == if *yes { "1" } else { "0" },
        ("time" | "second", Value::Date(date)) if kind == Kind::Sqlite => date.millis().to_string() == cell,
        ("time" | "second", Value::Date(date)) => date.to_string() == cell,
        ("json", value) => {
            let cell: serde_json::Value = serde_json::from_str(cell).expect("it is JSON");
            value.to_json().expect("it is JSON") == cell
        }
        ("binary", Value::Bytes(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == cell,
        _ => false,
    }
}

fn date(text: &str) -> Value {
    text.parse::<Date>().expect("it is a time").into()
}

/// Values of each column.
fn cases(kind: Kind) -> Vec<(&'static str, Vec<Value>)> {
    let mut floats: Vec<Value> =
        [0.0, 1.5, 1e300, 5e-324, 0.1, -1e-7, f64::MAX, f64::MIN, 123_456_789.123_456_79, 1e22, -0.0]
            .map(Value::Number)
            .into();
    if kind == Kind::Postgres {
        floats.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::Number));
    }
    vec![
        ("text", vec!["".into(), "Grüße 🚂".into(), "it's \"quoted\" \\ `x`; drop table users; --".into(), " ".into()]),
        ("uuid", vec!["0190b5a0-7c3e-7000-8000-00000000000A".into(), "00000000-0000-0000-0000-000000000000".into()]),
        ("integer", vec![0.into(), (1_i64 << 53).into(), (-(1_i64 << 53)).into(), 7.into()]),
        ("big", vec![i64::MIN.into(), i64::MAX.into(), 0.into(), 5.into(), (-1).into()]),
        ("float", floats),
        (
            "decimal",
            vec![
                "1.005".into(),
                "-0.5".into(),
                "12345678.99".into(),
                2.5.into(),
                "0".into(),
                "-1.995".into(),
                3.into(),
            ],
        ),
        ("boolean", vec![true.into(), false.into()]),
        (
            "time",
            vec![
                date("1970-01-01T00:00:00.000Z"),
                date("1969-12-31T23:59:59.999Z"),
                date("2024-02-29T12:34:56.789Z"),
                date("1900-01-01T00:00:00.001Z"),
                date("2199-12-31T23:59:59.999Z"),
            ],
        ),
        (
            "second",
            vec![
                date("2024-02-29T12:34:56.789Z"),
                date("2024-02-29T12:34:56.499Z"),
                date("1969-12-31T23:59:59.999Z"),
                date("2024-12-31T23:59:59.500Z"),
            ],
        ),
        (
            "json",
            vec![
                json!({ "b": [1, 2.5, null, true, "x"], "a": { "": {} } }).into(),
                json!([]).into(),
                json!("text").into(),
                json!(1).into(),
                json!(false).into(),
            ],
        ),
        ("binary", vec![Value::Bytes(vec![]), Value::Bytes(vec![0, 255, 1]), Value::Bytes((0..=255).collect())]),
    ]
}

pub async fn s1_40_s1_41_the_payload_says_what_the_table_holds<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let cases = cases(S::KIND);
    let rounds = cases.iter().map(|(_, values)| values.len()).max().unwrap_or_default();
    let mut seed = UnitOfWork::new();
    for round in 0..rounds {
        seed.create(&blog.kinds, [("id", format!("updated {round}").into())]).expect("it is right");
    }
    scene.changelog().enabled(false).commit(&seed).await.expect("it is committed");
    let mut work = UnitOfWork::new();
    for round in 0..rounds {
        let given =
            || cases.iter().filter_map(|(column, values)| Some((*column, Input::from(values.get(round)?.clone()))));
        let id = ("id", format!("created {round}").into());
        work.create(&blog.kinds, given().chain([id])).expect("it is right");
        work.update(&blog.kinds, format!("updated {round}"), given()).expect("it is right");
    }
    scene.changelog().commit(&work).await.expect("it is committed");
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let payload = page.entries[0].payload().expect("it can be read");
    assert_eq!(payload.mutations.len(), 2 * rounds);
    for mutation in payload.mutations {
        let values = match mutation.operation {
            Operation::Create { values } => {
                assert_eq!(values.len(), cases.len());
                values
            }
            Operation::Update { set, .. } => set,
            other => panic!("{other:?} was not recorded"),
        };
        for (column, value) in values {
            let sql = format!("select {} from kinds where id = '{}'", told::<S>(&column), mutation.external_id);
            let cell = scene.rows(&sql).await.remove(0).remove(0);
            let place = format!("{} {column}: {cell:?}, told as {:?}", mutation.external_id, value.to_json());
            assert!(same(&column, S::KIND, &value, cell.as_deref()), "{place}");
        }
    }
}

pub async fn s1_40_s1_41_values_arrive_as_they_were_given<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    let mut given = Vec::new();
    for (column, values) in cases(S::KIND) {
        for value in values {
            // These are rounded or written anew by the database, and SQLite knows one zero.
            let zero = matches!(value, Value::Number(number) if number == 0.0 || number.is_nan());
            if matches!(column, "uuid" | "decimal" | "second") || column == "float" && zero {
                continue;
            }
            work.create(&blog.kinds, [(column, value.clone().into())]).expect("it is right");
            // Big integers are big integers whatever they were given as.
            let value = match (column, value) {
                ("big", Value::Number(number)) => Value::BigInt((number as i64).into()),
                (_, value) => value,
            };
            given.push((column, value));
        }
    }
    scene.changelog().commit(&work).await.expect("it is committed");
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let payload = page.entries[0].payload().expect("it can be read");
    for (mutation, (column, value)) in payload.mutations.iter().zip(given) {
        let Operation::Create { values } = &mutation.operation else { panic!("it is another operation") };
        assert!(values[column] == value, "{column}: {:?} became {:?}", value.to_json(), values[column].to_json());
        let others = values.iter().filter(|(other, _)| *other != column);
        assert!(others.into_iter().all(|(_, value)| *value == Value::Null));
    }
}

pub async fn s1_41_the_payload_is_superjson_and_references_are_plain_json<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let ada = scene.users(&["ada"]).await.created.remove(0);
    let mut work = UnitOfWork::new();
    let values = [
        ("id", "one".into()),
        ("time", date("2024-02-29T12:00:00.000Z").into()),
        ("big", 5.into()),
        ("binary", vec![1_u8, 2].into()),
    ];
    work.create(&blog.kinds, values).expect("it is right");
    let author = Input::internal(ada.internal().expect("it is known"));
    work.create(&blog.posts, post("first", author)).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let (text, references) = scene.texts().await.remove(1);
    let whole: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let values = &whole["json"]["mutations"][0]["values"];
    assert_eq!(values["time"], "2024-02-29T12:00:00.000Z");
    assert_eq!(values["big"], "5");
    let meta = &whole["meta"]["values"];
    assert_eq!(meta["mutations.0.values.time"], json!(["Date"]));
    assert_eq!(meta["mutations.0.values.big"], json!(["bigint"]));
    assert_eq!(meta["mutations.1.values.createdAt"], json!(["Date"]));
    let references: serde_json::Value = serde_json::from_str(&references.expect("there is one")).expect("it is JSON");
    assert_eq!(references, json!({ "1.authorId": "ada" }));
}

pub async fn s1_40_numbers_that_are_not_finite_are_refused_where_they_cannot_be_stored<S: Scene>() {
    if S::KIND == Kind::Postgres {
        return; // it stores them: see what the table holds
    }
    let (scene, blog) = (S::start().await, blog());
    scene.pool().close().await;
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut created = UnitOfWork::new();
        created.create(&blog.kinds, [("float", number.into())]).expect("it is right");
        let mut updated = UnitOfWork::new();
        updated.update(&blog.kinds, "one", [("float", number.into())]).expect("it is right");
        for work in [created, updated] {
            let error = scene.changelog().commit(&work).await.expect_err("it cannot be stored");
            assert!(matches!(error, ChangelogError::Invalid(_)), "{error:?}");
        }
    }
}

pub async fn s1_40_defaults_and_the_databases_time_are_told<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    scene.users(&["ada"]).await;
    let before = Date::from(SystemTime::now()).millis() - 5_000;
    let mut work = UnitOfWork::new();
    work.create(&blog.posts, post("first", "ada")).expect("it is right");
    work.create(&blog.posts, post("second", "ada").into_iter().chain([("views", 3.into())])).expect("it is right");
    work.create(&blog.kinds, [("id", "one".into()), ("time", Input::now())]).expect("it is right");
    work.update(&blog.kinds, "one", [("time", Input::now())]).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let after = Date::from(SystemTime::now()).millis() + 5_000;
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let payload = page.entries[1].payload().expect("it can be read");
    let values: Vec<&BTreeMap<String, Value>> = payload
        .mutations
        .iter()
        .map(|mutation| match &mutation.operation {
            Operation::Create { values } => values,
            Operation::Update { set, .. } => set,
            other => panic!("{other:?} was not recorded"),
        })
        .collect();
    assert_eq!(values[0]["views"], 0.into());
    assert_eq!(values[1]["views"], 3.into());
    assert_eq!(values[0]["editorId"], Value::Null);
    let Value::Date(now) = values[0]["createdAt"] else { panic!("it is no time") };
    assert!((before..after).contains(&now.millis()), "{now}");
    // One time in the whole unit of work.
    assert!(values[1]["createdAt"] == now.into() && values[2]["time"] == now.into() && values[3]["time"] == now.into());
    let rows = scene.rows(&format!("select {} from kinds", told::<S>("time"))).await;
    assert!(same("time", S::KIND, &now.into(), rows[0][0].as_deref()), "{now} {rows:?}");
    let sql = told::<S>("time").replace("a_time", "created_at");
    for row in scene.rows(&format!("select {sql} from blog_posts")).await {
        assert!(same("time", S::KIND, &now.into(), row[0].as_deref()), "{now} {row:?}");
    }
    assert_eq!(scene.number(&format!("select {} from blog_posts", S::text("sum(views)"))).await, 3);
}

pub async fn s1_40_a_value_becomes_null<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let mut work = UnitOfWork::new();
    let given = cases(S::KIND).into_iter().map(|(column, values)| (column, values[0].clone().into()));
    work.create(&blog.kinds, given.chain([("id", "one".into())])).expect("it is right");
    let nothing = cases(S::KIND).into_iter().map(|(column, _)| (column, Value::Null.into()));
    work.update(&blog.kinds, "one", nothing).expect("it is right");
    scene.changelog().commit(&work).await.expect("it is committed");
    let mutations = scene.mutations().await.remove(0);
    let set = mutations[1]["set"].as_object().expect("it is one");
    assert_eq!(set.len(), cases(S::KIND).len());
    assert!(set.values().all(|value| value.is_null()));
    for (column, _) in cases(S::KIND) {
        let rows = scene.rows(&format!("select {} from kinds", told::<S>(column))).await;
        assert_eq!(rows, [[None]], "{column}");
    }
}

pub async fn s1_40_s1_47_a_time_that_a_database_cannot_hold_is_refused<S: Scene>() {
    let (scene, blog) = (S::start().await, blog());
    let last = "9999-12-31T23:59:59.000Z".parse::<Date>().expect("it is a time").millis();
    let fine = (1..1_000).step_by(83).filter_map(|millis| Date::from_millis(last + millis));
    for time in [Date::MIN, Date::MAX].into_iter().chain(fine) {
        let before = scene.state().await;
        let mut work = UnitOfWork::new();
        work.create(&blog.kinds, [("id", time.to_string().into()), ("time", time.into())]).expect("it is right");
        match scene.changelog().commit(&work).await {
            Ok(_) => {
                let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
                let payload = page.entries.last().expect("there is one").payload().expect("it can be read");
                let Operation::Create { values } = &payload.mutations[0].operation else { panic!("another operation") };
                assert_eq!(values["time"].to_json(), Value::from(time).to_json());
                assert!(values["time"] == time.into(), "{time} became {:?}", values["time"]);
            }
            Err(error) => {
                assert!(matches!(error, ChangelogError::Invalid(_) | ChangelogError::Failed(_)), "{time}: {error:?}");
                assert_eq!(scene.state().await, before);
            }
        }
    }
}
