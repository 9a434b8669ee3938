//! Entries of the caller's own: reserve and append in a transaction that does something else besides.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use postrider_changelog::{After, Change, ChangelogError, Date, Operation, Reader, Value};

use crate::scene::{Scene, stamp};

fn change(external_id: &str, operation: Operation) -> Change {
    Change { namespace: "own".into(), table: "things".into(), external_id: external_id.into(), operation }
}

fn created(values: impl IntoIterator<Item = (&'static str, Value)>) -> Operation {
    Operation::Create { values: values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

/// Every kind of value that superjson has.
fn values() -> Vec<(&'static str, Value)> {
    let date = Value::Date(Date::from_millis(1_709_208_000_123).expect("it is a time"));
    let set = Value::Set(vec![1.into(), "two".into(), date.clone()]);
    let map = Value::Map(vec![("a".into(), date.clone()), (1.into(), set.clone()), (Value::Null, Value::Undefined)]);
    vec![
        ("undefined", Value::Undefined),
        ("null", Value::Null),
        ("bool", true.into()),
        ("number", 1.5.into()),
        ("negative zero", (-0.0).into()),
        ("infinity", f64::INFINITY.into()),
        ("big", Value::BigInt(BigInt::from(u64::MAX) * 1_000_000)),
        ("text", "Grüße 🚂 \0 \" \\ '".into()),
        ("date", date.clone()),
        ("bytes", Value::Bytes(vec![0, 1, 255])),
        ("list", Value::Array(vec![Value::Undefined, date.clone(), Value::Array(vec![])])),
        ("object", Value::Object(BTreeMap::from([("a.b\\c".to_owned(), date), ("".to_owned(), map.clone())]))),
        ("set", set),
        ("map", map),
    ]
}

pub async fn s1_41_an_own_entry_may_hold_everything_that_superjson_has<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    S::run_in(&mut transaction, "insert into users (id, _version, name) values ('ada', 0, 'Ada')")
        .await
        .expect("it is written");
    let changes = vec![
        change("one", created(values())),
        change(
            "two",
            Operation::Update {
                set: BTreeMap::from([("nan".to_owned(), f64::NAN.into())]),
                check_version: Some(i64::MAX),
            },
        ),
        change("three", Operation::Delete { check_version: Some(7) }),
    ];
    let appended = changelog.append(&mut transaction, reservation, "own", changes).await.expect("it is written");
    transaction.commit().await.expect("it is committed");
    assert_eq!(appended.expect("it is on").to_string(), stamp(1, 0));
    assert_eq!(scene.count("users").await, 1);
    let page = changelog.list(After::Beginning, 0).await.expect("it can be read");
    assert_eq!(page.entries[0].uow_id, "own");
    let mutations = page.entries[0].payload().expect("it can be read").mutations;
    let Operation::Create { values: found } = &mutations[0].operation else { panic!("it is another operation") };
    assert_eq!(found.len(), values().len());
    for (key, value) in values() {
        assert!(found[key] == value, "{key}: {:?}", found[key]);
    }
    let Operation::Update { set, check_version } = &mutations[1].operation else { panic!("it is another operation") };
    assert!(matches!(set["nan"], Value::Number(number) if number.is_nan()));
    assert_eq!(*check_version, Some(i64::MAX));
    assert_eq!(mutations[2].operation, Operation::Delete { check_version: Some(7) });
    let stamps: Vec<_> = mutations.iter().map(|mutation| mutation.versionstamp.to_string()).collect();
    assert_eq!(stamps, [stamp(1, 0), stamp(1, 1), stamp(1, 2)]);
    assert_eq!(scene.mutations().await[0][0]["schema"], "own");
}

pub async fn s1_14_s1_44_an_own_entry_is_rolled_back_with_its_transaction<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    S::run_in(&mut transaction, "insert into users (id, _version, name) values ('ada', 0, 'Ada')")
        .await
        .expect("it is written");
    let changes = vec![change("one", created([]))];
    changelog.append(&mut transaction, reservation, "own", changes).await.expect("it is written");
    transaction.rollback().await.expect("it is rolled back");
    assert_eq!((scene.count("users").await, scene.count("postrider_changelog").await), (0, 0));
    assert_eq!(scene.counter().await, None);
}

pub async fn s1_5_an_own_entry_is_not_written_while_it_is_off<S: Scene>() {
    let scene = S::start().await;
    let off = scene.changelog().enabled(false);
    let mut transaction = scene.begin().await;
    let reservation = off.reserve(&mut transaction).await.expect("it does nothing");
    assert_eq!(reservation.version(), None);
    let appended = off.append(&mut transaction, reservation, "own", vec![change("one", created([]))]).await;
    assert_eq!(appended.expect("it does nothing"), None);
    transaction.commit().await.expect("it is committed");
    assert_eq!(scene.count("postrider_changelog").await, 0);
    assert_eq!(scene.counter().await, None);
}

pub async fn s1_22_s1_47_an_own_entry_says_something_under_an_id_of_its_own<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    for (id, changes) in
        [("own", vec![]), ("", vec![change("one", created([]))]), ("a\0b", vec![change("one", created([]))])]
    {
        let mut transaction = scene.begin().await;
        let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
        let error = changelog.append(&mut transaction, reservation, id, changes).await.expect_err("it is refused");
        assert!(matches!(error, ChangelogError::Invalid(_)), "{error:?}");
        transaction.rollback().await.expect("it is rolled back");
    }
    for first in [true, false] {
        let mut transaction = scene.begin().await;
        let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
        let changes = vec![change("one", created([]))];
        match changelog.append(&mut transaction, reservation, "own", changes).await {
            Ok(_) if first => transaction.commit().await.expect("it is committed"),
            Err(ChangelogError::AlreadyCommitted { uow_id, .. }) if !first => {
                assert_eq!(uow_id, "own");
                transaction.rollback().await.expect("it is rolled back");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.stamps().await, [stamp(1, 0)]);
    assert_eq!(scene.counter().await.as_deref(), Some("1"));
}
