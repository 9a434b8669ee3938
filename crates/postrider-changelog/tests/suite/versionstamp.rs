//! Where a transaction's version comes from, and what its stamp looks like.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use postrider_changelog::{After, Change, ChangelogError, Id, Operation, Reader, UnitOfWork, Versionstamp};

use crate::scene::{Kind, Scene, blog, stamp, users};

/// An entry of the caller's own.
fn change(external_id: &str, values: BTreeMap<String, postrider_changelog::Value>) -> Vec<Change> {
    let operation = Operation::Create { values };
    vec![Change { namespace: "own".into(), table: "things".into(), external_id: external_id.into(), operation }]
}

pub async fn s1_8_the_counter_is_an_unsigned_integer_in_the_settings<S: Scene>() {
    let scene = S::start().await;
    for (name, counter) in [("ada", "1"), ("eve", "2"), ("joe", "3")] {
        scene.users(&[name]).await;
        assert_eq!(scene.counter().await.as_deref(), Some(counter));
    }
    scene.set_counter("99999999999999999999").await;
    scene.users(&["sue"]).await;
    assert_eq!(scene.counter().await.as_deref(), Some("100000000000000000000"));
}

pub async fn s1_8_s1_11_versions_go_beyond_64_bits<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["first"]).await;
    let largest = u128::from(u64::MAX);
    scene.set_counter(&largest.to_string()).await;
    scene.users(&["second"]).await;
    scene.users(&["third"]).await;
    assert_eq!(scene.counter().await, Some((largest + 2).to_string()));
    let expected = [stamp(1, 0), stamp(largest + 1, 0), stamp(largest + 2, 0)];
    assert_eq!(scene.stamps().await, expected);
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let listed: Vec<_> = page.entries.iter().map(|entry| entry.versionstamp.to_string()).collect();
    assert_eq!(listed, expected);
    let before: Versionstamp = stamp(largest + 1, 0).parse().expect("it is a stamp");
    let page = scene.changelog().list(before.into(), 0).await.expect("it can be read");
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].versionstamp.transaction_version().get(), largest + 2);
}

pub async fn s1_8_s1_45_the_last_version_is_used_and_then_no_more<S: Scene>() {
    let scene = S::start().await;
    let last = (1_u128 << 80) - 1;
    scene.set_counter(&(last - 1).to_string()).await;
    let committed = scene.users(&["last"]).await;
    assert_eq!(committed.versionstamp.expect("it is on").to_string(), "ffffffffffffffffffff0000");
    assert_eq!(scene.counter().await, Some(last.to_string()));
    let before = scene.state().await;
    for _ in 0..2 {
        let error = scene.changelog().commit(&users(&["late"])).await.expect_err("there is none left");
        assert!(matches!(error, ChangelogError::Exhausted) && !error.is_transient(), "{error:?}");
    }
    assert_eq!(scene.state().await, before);
}

pub async fn s1_9_s1_19_the_first_version_is_1<S: Scene>() {
    let scene = S::start().await;
    assert_eq!(scene.counter().await, None);
    let committed = scene.users(&["ada"]).await;
    assert_eq!(committed.versionstamp.expect("it is on").to_string(), stamp(1, 0));
    assert_eq!(scene.counter().await.as_deref(), Some("1"));
    assert_eq!(scene.stamps().await, [stamp(1, 0)]);
}

pub async fn s1_9_s1_19_of_sixteen_first_users_each_has_a_version_of_its_own<S: Scene>() {
    let scene = S::start().await;
    let names: Vec<_> = (0..16).map(|number| format!("user {number}")).collect();
    let committed = join_all(names.iter().map(|name| async { scene.users(&[name.as_str()]).await })).await;
    let mut versions: Vec<_> = committed.iter().map(|done| done.versionstamp.expect("it is on").to_string()).collect();
    versions.sort();
    let expected: Vec<_> = (1..=16).map(|version| stamp(version, 0)).collect();
    assert_eq!(versions, expected);
    assert_eq!(scene.stamps().await, expected);
    assert_eq!(scene.counter().await.as_deref(), Some("16"));
}

pub async fn s1_10_who_has_reserved_keeps_other_writers_waiting_until_the_commit<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    assert_eq!(reservation.version().map(|version| version.get()), Some(1));
    let work = users(&["second"]);
    let mut second = std::pin::pin!(changelog.commit(&work));
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
    assert!(waited.is_err(), "it did not wait");
    changelog
        .append(&mut transaction, reservation, "first", change("1", BTreeMap::new()))
        .await
        .expect("it is written");
    // Readers are not kept waiting, and see what is committed only.
    assert!(changelog.list(After::Beginning, 0).await.expect("it can be read").entries.is_empty());
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(waited.is_err(), "it did not wait");
    transaction.commit().await.expect("it is committed");
    let committed = second.await.expect("it is committed");
    assert_eq!(committed.versionstamp.expect("it is on").to_string(), stamp(2, 0));
    let page = changelog.list(After::Beginning, 0).await.expect("it can be read");
    assert_eq!(page.entries[0].uow_id, "first");
    assert_eq!(page.entries[1].uow_id, work.id());
}

pub async fn s1_11_a_stamp_is_ten_bytes_of_version_and_two_of_user_version<S: Scene>() {
    let scene = S::start().await;
    let version = 0x0102_0304_0506_0708_090a_u128;
    scene.set_counter(&(version - 1).to_string()).await;
    scene.users(&["ada", "eve"]).await;
    assert_eq!(scene.stamps().await, ["0102030405060708090a0000"]);
    let length = if S::KIND == Kind::Postgres { "octet_length(versionstamp)" } else { "length(versionstamp)" };
    assert_eq!(scene.number(&format!("select {} from postrider_changelog", S::text(length))).await, 12);
    let mutations = scene.mutations().await.remove(0);
    assert_eq!(mutations[1]["versionstamp"], "0102030405060708090a0001");
}

pub async fn s1_12_s1_35_mutations_are_numbered_from_zero_and_the_entry_has_zero<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["someone"]).await;
    scene.users(&["ada", "eve", "joe"]).await;
    assert_eq!(scene.stamps().await, [stamp(1, 0), stamp(2, 0)]);
    let mutations = scene.mutations().await.remove(1);
    let stamps: Vec<_> = mutations.iter().map(|mutation| mutation["versionstamp"].as_str().expect("text")).collect();
    assert_eq!(stamps, [stamp(2, 0), stamp(2, 1), stamp(2, 2)]);
}

pub async fn s1_13_the_order_of_stamps_is_the_order_of_commits<S: Scene>() {
    let scene = S::start().await;
    scene.changelog().enabled(false).commit(&users(&["ada"])).await.expect("it is committed");
    let writers = (0..24).map(|writer| {
        let scene = &scene;
        async move {
            let changelog = scene.changelog();
            let mut transaction = scene.begin().await;
            let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..5))).await;
            let rows = S::rows_in(&mut transaction, &format!("select {} from users", S::text("_version"))).await;
            let seen = rows[0][0].clone().expect("it is not null");
            S::run_in(&mut transaction, "update users set _version = _version + 1").await.expect("it is written");
            let values = BTreeMap::from([("seen".to_owned(), seen.into())]);
            let changes = change("1", values);
            changelog.append(&mut transaction, reservation, &writer.to_string(), changes).await.expect("it is written");
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..5))).await;
            transaction.commit().await.expect("it is committed");
        }
    });
    join_all(writers).await;
    let mutations = scene.mutations().await;
    assert_eq!(mutations.len(), 24);
    for (before, mutations) in mutations.iter().enumerate() {
        assert_eq!(mutations[0]["values"]["seen"], before.to_string());
    }
    let expected: Vec<_> = (1..=24).map(|version| stamp(version, 0)).collect();
    assert_eq!(scene.stamps().await, expected);
}

pub async fn s1_13_a_transaction_with_an_older_snapshot_is_refused_or_in_order<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada"]).await;
    let levels: &[&'static str] = match S::KIND {
        Kind::Postgres => &["begin isolation level repeatable read", "begin isolation level serializable"],
        Kind::MySql => &["start transaction with consistent snapshot"],
        Kind::Sqlite => &["begin deferred"],
    };
    for (at, level) in levels.iter().enumerate() {
        let mut transaction = scene.pool().begin_with(*level).await.expect("it begins");
        S::rows_in(&mut transaction, "select id from users").await;
        scene.users(&[&format!("first {at}")]).await;
        let newest = scene.stamps().await.len() as u128;
        let work = users(&[&format!("second {at}")]);
        match scene.changelog().apply(&mut transaction, &work).await {
            // MariaDB lets it go on unless innodb_snapshot_isolation is on, and the version is the right one.
            Ok(applied) if S::KIND == Kind::MySql => {
                assert_eq!(applied.versionstamp.expect("it is on").to_string(), stamp(newest + 1, 0));
                transaction.commit().await.expect("it is committed");
            }
            Ok(_) => panic!("{level}: it went on with what it saw before"),
            Err(error) => {
                assert!(matches!(error, ChangelogError::Conflict(_)) && error.is_transient(), "{level}: {error:?}");
                transaction.rollback().await.expect("it is rolled back");
                let mut again = scene.pool().begin_with(*level).await.expect("it begins");
                let applied = scene.changelog().apply(&mut again, &work).await.expect("it is repeated");
                assert_eq!(applied.versionstamp.expect("it is on").to_string(), stamp(newest + 1, 0));
                again.commit().await.expect("it is committed");
            }
        }
    }
    let expected: Vec<_> = (1..=1 + 2 * levels.len() as u128).map(|version| stamp(version, 0)).collect();
    assert_eq!(scene.stamps().await, expected);
    assert_eq!(scene.count("users").await, expected.len() as i64);
}

pub async fn s1_13_who_waits_under_a_stricter_isolation_gets_a_conflict_or_the_next_version<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada"]).await;
    let levels: &[&'static str] = match S::KIND {
        Kind::Postgres => &["begin isolation level repeatable read", "begin isolation level serializable"],
        Kind::MySql => &["start transaction"],
        Kind::Sqlite => &["begin deferred"],
    };
    for (at, level) in levels.iter().enumerate() {
        let changelog = scene.changelog();
        let mut first = scene.begin().await;
        changelog.apply(&mut first, &users(&[&format!("first {at}")])).await.expect("it is done");
        let mut second = scene.pool().begin_with(*level).await.expect("it begins");
        let work = users(&[&format!("second {at}")]);
        let done = {
            let mut waiting = std::pin::pin!(changelog.apply(&mut second, &work));
            assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "it did not wait");
            first.commit().await.expect("it is committed");
            waiting.await
        };
        match (S::KIND, done) {
            (Kind::Postgres, Err(error)) => {
                assert!(matches!(error, ChangelogError::Conflict(_)) && error.is_transient(), "{level}: {error:?}");
                second.rollback().await.expect("it is rolled back");
                changelog.commit(&work).await.expect("it is repeated");
            }
            (Kind::MySql | Kind::Sqlite, Ok(_)) => second.commit().await.expect("it is committed"),
            (_, other) => panic!("{level}: {other:?}"),
        }
    }
    let expected: Vec<_> = (1..=1 + 2 * levels.len() as u128).map(|version| stamp(version, 0)).collect();
    assert_eq!(scene.stamps().await, expected);
}

pub async fn s1_14_a_rollback_gives_the_version_back<S: Scene>() {
    let scene = S::start().await;
    let changelog = scene.changelog();
    // Also the very first one, which made the counter.
    let mut transaction = scene.begin().await;
    changelog.apply(&mut transaction, &users(&["never"])).await.expect("it is done");
    transaction.rollback().await.expect("it is rolled back");
    assert_eq!(scene.counter().await, None);
    scene.users(&["ada"]).await;
    let mut transaction = scene.begin().await;
    let reservation = changelog.reserve(&mut transaction).await.expect("it reserves");
    assert_eq!(reservation.version().map(|version| version.get()), Some(2));
    drop(transaction);
    changelog.commit(&users(&["ada"])).await.expect_err("it is there already");
    assert_eq!(scene.counter().await.as_deref(), Some("1"));
    scene.users(&["eve"]).await;
    assert_eq!(scene.stamps().await, [stamp(1, 0), stamp(2, 0)]);
}

pub async fn s1_15_s1_16_s1_17_s1_18_each_database_has_a_strategy_of_its_own<S: Scene>() {
    let scene = S::start().await;
    let texts: BTreeMap<_, _> = scene.changelog().texts().into_iter().collect();
    let words = |name: &str| texts.get(name).map(|sql| sql.split_whitespace().collect::<Vec<_>>().join(" "));
    let reserve = words("reserve").expect("there is one");
    assert!(reserve.starts_with("insert into") && reserve.contains("'changelog.version'"), "{reserve}");
    match S::KIND {
        Kind::Postgres => {
            assert!(
                reserve.contains("on conflict (key) do update") && reserve.contains("returning value"),
                "{reserve}"
            );
            assert_eq!(words("reserved"), None);
        }
        Kind::MySql => {
            assert!(reserve.contains("on duplicate key update"), "{reserve}");
            // LAST_INSERT_ID has 64 bits, and is stale after a plain insert.
            assert!(!reserve.to_lowercase().contains("last_insert_id"), "{reserve}");
            assert!(words("reserved").is_some_and(|sql| sql.starts_with("select value")));
        }
        Kind::Sqlite => {
            assert!(
                reserve.contains("on conflict (key) do update") && reserve.contains("returning value"),
                "{reserve}"
            );
            assert!(words("reserved").is_some_and(|sql| sql.starts_with("update")));
        }
    }
}

pub async fn s1_17_a_unit_of_work_has_the_right_to_write_before_it_reads<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada", "eve"]).await;
    // Each one reads before it writes, also where nothing is reserved. After a plain `begin` SQLite would refuse those whose
    // turn came after another one had written.
    for enabled in [false, true] {
        let writers = (0..12).map(|_| async {
            let mut work = UnitOfWork::new();
            work.check(&blog().users, Id::external("eve").with_version(0)).expect("it is right");
            work.update(&blog().users, "ada", [("invitedBy", "ada".into())]).expect("it is right");
            scene.changelog().enabled(enabled).commit(&work).await
        });
        for done in join_all(writers).await {
            done.expect("it waits for its turn");
        }
    }
    assert_eq!(scene.counter().await.as_deref(), Some("13"));
    assert_eq!(scene.number(&format!("select {} from users where id = 'ada'", S::text("_version"))).await, 24);
}

pub async fn s1_18_s1_19_an_older_insert_id_of_the_connection_does_not_disturb<S: Scene>() {
    let scene = S::start().await;
    scene.count_from(987_654_321).await;
    for version in 1..=3 {
        let mut transaction = scene.begin().await;
        let name = format!("user {version}");
        let insert = format!("insert into users (id, _version, name) values ('{name}', 0, 'somebody')");
        S::run_in(&mut transaction, &insert).await.expect("it is inserted");
        let reservation = scene.changelog().reserve(&mut transaction).await.expect("it reserves");
        assert_eq!(reservation.version().map(|version| version.get()), Some(version));
        let changes = change(&name, BTreeMap::new());
        let appended = scene.changelog().append(&mut transaction, reservation, &name, changes).await;
        assert_eq!(appended.expect("it is written").map(|found| found.to_string()), Some(stamp(version, 0)));
        transaction.commit().await.expect("it is committed");
    }
    assert_eq!(scene.counter().await.as_deref(), Some("3"));
}
