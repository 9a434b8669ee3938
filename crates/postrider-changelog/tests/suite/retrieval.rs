//! Reading: entries after a place, in order, and cursors that are refused where they do not belong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use postrider_changelog::{
    After, ChangelogError, Cursor, DEFAULT_LIMIT, FollowConfig, LARGEST_LIMIT, Page, Reader, Versionstamp, follow,
};

use crate::scene::{Kind, Scene, stamp, users};

/// Writes entries of these versions by hand.
async fn fill<S: Scene>(scene: &S, versions: impl IntoIterator<Item = u128>) {
    let row = |version: u128| {
        let bytes = match S::KIND {
            Kind::Postgres => format!("'\\x{}'::bytea", stamp(version, 0)),
            Kind::MySql | Kind::Sqlite => format!("x'{}'", stamp(version, 0)),
        };
        let payload = "{\"json\":{\"version\":1,\"mutations\":[]}}";
        format!("('{}', {bytes}, 'work {version}', '{payload}')", uuid::Uuid::now_v7())
    };
    let rows: Vec<_> = versions.into_iter().map(row).collect();
    let sql = format!("insert into postrider_changelog (id, versionstamp, uow_id, payload) values {}", rows.join(", "));
    scene.run(&sql).await.expect("it is filled");
}

fn versions(page: &Page) -> Vec<u128> {
    page.entries.iter().map(|entry| entry.versionstamp.transaction_version().get()).collect()
}

fn at(version: u128, user_version: u16) -> After {
    After::Versionstamp(stamp(version, user_version).parse().expect("it is a stamp"))
}

async fn list<S: Scene>(scene: &S, after: After, limit: u32) -> Page {
    scene.changelog().list(after, limit).await.expect("it can be read")
}

pub async fn s1_48_entries_are_listed_in_their_order<S: Scene>() {
    let scene = S::start().await;
    // Bytes and not numbers with a sign decide, and not the order in which they were written.
    let mut all = vec![65_536, 1, 256, 127, 255, 128, 65_535, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 79, (1 << 80) - 1];
    fill(&scene, all.clone()).await;
    all.sort_unstable();
    let page = list(&scene, After::Beginning, 0).await;
    assert_eq!(versions(&page), all);
    assert!(!page.more);
    // Page by page it is the same.
    let (mut found, mut after) = (Vec::new(), After::Beginning);
    loop {
        let page = list(&scene, after, 5).await;
        found.extend(versions(&page));
        after = page.next.into();
        if !page.more {
            break;
        }
    }
    assert_eq!(found, all);
    let last = list(&scene, after, 5).await;
    assert!(last.entries.is_empty() && !last.more);
    assert_eq!(After::Cursor(last.next), after);
}

pub async fn s1_48_a_page_has_a_limit<S: Scene>() {
    let scene = S::start().await;
    fill(&scene, 1..=1_005).await;
    for (limit, found) in
        [(0, DEFAULT_LIMIT), (1, 1), (1_000, 1_000), (1_001, LARGEST_LIMIT), (u32::MAX, LARGEST_LIMIT)]
    {
        let page = list(&scene, After::Beginning, limit).await;
        assert_eq!(page.entries.len(), found as usize, "{limit}");
        assert!(page.more);
        assert_eq!(page.next.versionstamp().to_string(), stamp(found.into(), 0));
        let page = list(&scene, page.next.into(), limit).await;
        assert_eq!(versions(&page)[0], u128::from(found) + 1);
    }
    let rest = list(&scene, at(1_000, 0), 5).await;
    assert_eq!(versions(&rest), [1_001, 1_002, 1_003, 1_004, 1_005]);
    assert!(!rest.more);
    assert!(list(&scene, at(1_000, 0), 4).await.more);
    assert_eq!((DEFAULT_LIMIT, LARGEST_LIMIT), (100, 1_000));
}

pub async fn s1_49_only_entries_strictly_after_a_stamp_are_listed<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada", "eve", "joe"]).await;
    scene.users(&["max", "sue"]).await;
    scene.users(&["tim"]).await;
    for (after, expected) in [
        (After::Beginning, vec![1, 2, 3]),
        (After::Versionstamp(Versionstamp::ZERO), vec![1, 2, 3]),
        (at(0, u16::MAX), vec![1, 2, 3]),
        (at(1, 0), vec![2, 3]),
        // Between two mutations of an entry lies no other entry.
        (at(1, 1), vec![2, 3]),
        (at(1, u16::MAX), vec![2, 3]),
        (at(2, 0), vec![3]),
        (at(2, 1), vec![3]),
        (at(3, 0), vec![]),
        (at(4, 0), vec![]),
        (After::Versionstamp(Versionstamp::MAX), vec![]),
    ] {
        let page = list(&scene, after, 0).await;
        assert_eq!(versions(&page), expected, "{after:?}");
        // The cursor goes on where the stamp did, never before it.
        let next = list(&scene, page.next.into(), 0).await;
        assert!(next.entries.is_empty(), "{after:?}");
    }
    let text = stamp(2, 0).to_uppercase();
    assert_eq!(versions(&list(&scene, text.parse().expect("it is a stamp"), 0).await), [3]);
}

pub async fn s1_51_reading_changes_nothing<S: Scene>() {
    let scene = S::start().await;
    for name in ["ada", "eve", "joe"] {
        scene.users(&[name]).await;
    }
    let columns = ["id", "uow_id", "payload", "ref_map", "created_at"].map(|column| S::text(column)).join(", ");
    let rows = format!("select {columns} from postrider_changelog order by versionstamp");
    let before = scene.rows(&rows).await;
    // Each reader has a place of its own, and may read the same again.
    let first = list(&scene, After::Beginning, 2).await;
    for _ in 0..2 {
        assert_eq!(versions(&list(&scene, first.next.into(), 2).await), [3]);
        assert_eq!(versions(&list(&scene, After::Beginning, 2).await), [1, 2]);
    }
    assert_eq!(scene.rows(&rows).await, before);
    assert_eq!(scene.count("postrider_cursors").await, 0);
    // A cursor is text that can be kept anywhere.
    let kept: After = first.next.to_string().parse().expect("it is a cursor");
    assert_eq!(versions(&list(&scene, kept, 0).await), [3]);
}

pub async fn s1_49_who_follows_sees_every_entry_once<S: Scene>() {
    let scene = S::start().await;
    let config = FollowConfig { poll_interval: Duration::from_millis(5), page: 3 };
    let entries = follow(Arc::new(scene.changelog()), After::Beginning, config);
    let reading = entries.take(24).map(|entry| entry.expect("it can be read")).collect::<Vec<_>>();
    let writing = async {
        let writers = (0..6).map(|writer| {
            let scene = &scene;
            async move {
                for number in 0..4 {
                    scene.users(&[format!("user {writer} {number}").as_str()]).await;
                }
            }
        });
        futures::future::join_all(writers).await;
    };
    let (read, _) = tokio::time::timeout(Duration::from_secs(60), join(reading, writing)).await.expect("in time");
    let stamps: Vec<_> = read.iter().map(|(entry, _)| entry.versionstamp.to_string()).collect();
    assert_eq!(stamps, scene.stamps().await);
    let (last, cursor) = read.last().expect("there is one");
    assert_eq!((cursor.versionstamp(), cursor.entry()), (last.versionstamp, Some(last.id)));
    // It goes on from any cursor.
    let (_, middle) = &read[10];
    let entries = follow(Arc::new(scene.changelog()), (*middle).into(), FollowConfig::default());
    let next = Box::pin(entries).next().await.expect("it never ends").expect("it can be read");
    assert_eq!(next.0.id, read[11].0.id);
}

pub async fn s1_51_a_cursor_of_another_database_is_refused<S: Scene>() {
    let (here, there) = (S::start().await, S::start().await);
    here.users(&["ada"]).await;
    there.users(&["ada"]).await;
    let page = list(&there, After::Beginning, 0).await;
    let beginning = Cursor::beginning(page.store);
    for cursor in [page.next, beginning] {
        let error = here.changelog().list(cursor.into(), 0).await.expect_err("it is of another one");
        let ChangelogError::OtherStore { store, found } = error else { panic!("{error:?}") };
        assert_eq!((store, found), (list(&here, After::Beginning, 0).await.store, page.store));
        let reset =
            here.changelog().acquire("reader", uuid::Uuid::now_v7(), Duration::from_secs(60), cursor.into()).await;
        assert!(matches!(reset, Err(ChangelogError::OtherStore { .. })), "{reset:?}");
    }
    assert_eq!(here.count("postrider_cursors").await, 0);
}

pub async fn s1_51_a_cursor_from_after_a_restored_backup_is_refused<S: Scene>() {
    let scene = S::start().await;
    for name in ["ada", "eve", "joe", "max"] {
        scene.users(&[name]).await;
    }
    let (before, after) = (list(&scene, After::Beginning, 2).await.next, list(&scene, After::Beginning, 3).await.next);
    // The backup is from before the third one.
    let bytes =
        if S::KIND == Kind::Postgres { format!("'\\x{}'::bytea", stamp(2, 0)) } else { format!("x'{}'", stamp(2, 0)) };
    scene.run(&format!("delete from postrider_changelog where versionstamp > {bytes}")).await.expect("it is cut");
    scene.run("delete from users where id in ('joe', 'max')").await.expect("it is cut");
    scene.set_counter("2").await;
    let lost = |error: Result<Page, ChangelogError>| match error {
        Err(ChangelogError::LostHistory(cursor)) => assert_eq!(cursor, after),
        other => panic!("{other:?}"),
    };
    lost(scene.changelog().list(after.into(), 0).await);
    // Also when something else has taken its place.
    for name in ["tim", "tom", "jim"] {
        scene.users(&[name]).await;
    }
    assert_eq!(scene.stamps().await.len(), 5);
    lost(scene.changelog().list(after.into(), 0).await);
    assert_eq!(versions(&list(&scene, before.into(), 0).await), [3, 4, 5]);
    // A stamp alone is not checked.
    assert_eq!(versions(&list(&scene, after.versionstamp().into(), 0).await), [4, 5]);
}

pub async fn s1_48_the_newest_entry_is_the_head<S: Scene>() {
    let scene = S::start().await;
    let head = scene.changelog().head().await.expect("it can be read");
    assert_eq!(head, Cursor::beginning(head.store()));
    scene.users(&["ada"]).await;
    scene.changelog().commit(&users(&["eve"])).await.expect("it is committed");
    let head = scene.changelog().head().await.expect("it can be read");
    assert_eq!(head.versionstamp().to_string(), stamp(2, 0));
    assert_eq!(head, list(&scene, After::Beginning, 0).await.next);
    assert!(list(&scene, head.into(), 0).await.entries.is_empty());
}

pub async fn s1_48_an_entry_is_read_as_it_was_written<S: Scene>() {
    let scene = S::start().await;
    let work = users(&["ada"]);
    scene.changelog().commit(&work).await.expect("it is committed");
    let entry = list(&scene, After::Beginning, 0).await.entries.remove(0);
    let (payload, references) = scene.texts().await.remove(0);
    assert_eq!(entry.payload.get(), payload);
    assert_eq!((entry.ref_map.clone(), references), (None::<BTreeMap<_, _>>, None));
    let sent = serde_json::to_value(&entry).expect("it is JSON");
    let keys: Vec<_> = sent.as_object().expect("it is one").keys().cloned().collect();
    assert_eq!(keys, ["createdAt", "id", "payload", "refMap", "uowId", "versionstamp"]);
    assert_eq!(sent["uowId"], work.id());
    assert_eq!(sent["versionstamp"], stamp(1, 0));
    assert!(!format!("{entry:?}").contains("ada"), "{entry:?}");
}
