//! What the table of entries looks like, as the database's own catalog tells it.

use std::time::{Duration, SystemTime};

use postrider_changelog::{After, Reader};

use crate::scene::{Cells, Kind, Scene, stamp, users};

/// Name, type, and whether it may be null, of each column.
async fn columns<S: Scene>(scene: &S, table: &str) -> Vec<(String, String, bool)> {
    let sql = match S::KIND {
        Kind::Postgres => format!(
            "select column_name::text, udt_name::text, is_nullable::text from information_schema.columns where table_name = '{table}' order by ordinal_position"
        ),
        Kind::MySql => format!(
            "select cast(column_name as char), cast(column_type as char), cast(is_nullable as char) from information_schema.columns where table_schema = database() and table_name = '{table}' order by ordinal_position"
        ),
        Kind::Sqlite => format!(
            "select name, lower(type), case \"notnull\" when 1 then 'NO' else 'YES' end from pragma_table_info('{table}')"
        ),
    };
    let column = |row: Cells| {
        let mut row = row.into_iter().flatten();
        let mut next = || row.next().expect("it is not null");
        (next(), next(), next() == "YES")
    };
    scene.rows(&sql).await.into_iter().map(column).collect()
}

/// The unique keys of one column each.
async fn unique_columns<S: Scene>(scene: &S, table: &str) -> Vec<String> {
    let sql = match S::KIND {
        Kind::Postgres => format!(
            "select a.attname::text from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0] where i.indrelid = '{table}'::regclass and i.indisunique and i.indnatts = 1 order by 1"
        ),
        Kind::MySql => format!(
            "select cast(max(column_name) as char) from information_schema.statistics where table_schema = database() and table_name = '{table}' and non_unique = 0 group by index_name having count(*) = 1 order by 1"
        ),
        Kind::Sqlite => format!(
            "select c.name from pragma_index_list('{table}') as i, pragma_index_info(i.name) as c where i.\"unique\" order by 1"
        ),
    };
    scene.rows(&sql).await.into_iter().map(|mut row| row.remove(0).expect("it is not null")).collect()
}

/// An entry written by hand, with everything that has to be given.
fn insert<S: Scene>(stamp: &str, uow_id: &str, payload: &str, references: &str) -> String {
    let bytes = match S::KIND {
        Kind::Postgres => format!("'\\x{stamp}'::bytea"),
        Kind::MySql | Kind::Sqlite => format!("x'{stamp}'"),
    };
    format!(
        "insert into postrider_changelog (id, versionstamp, uow_id, payload, ref_map) values ('00000000-0000-7000-8000-000000000000', {bytes}, {uow_id}, {payload}, {references})"
    )
}

pub async fn s1_20_s1_28_s1_29_an_entry_has_these_columns_and_no_others<S: Scene>() {
    let scene = S::start().await;
    let types = match S::KIND {
        Kind::Postgres => ["uuid", "bytea", "text", "json", "json", "timestamptz"],
        Kind::MySql => ["char(36)", "binary(12)", "varbinary(512)", "longtext", "longtext", "datetime(6)"],
        Kind::Sqlite => ["text", "blob", "text", "text", "text", "integer"],
    };
    let names = ["id", "versionstamp", "uow_id", "payload", "ref_map", "created_at"];
    let expected: Vec<_> = names
        .into_iter()
        .zip(types)
        .map(|(name, kind)| (name.to_owned(), kind.to_owned(), name == "ref_map"))
        .collect();
    let found = columns(&scene, "postrider_changelog").await;
    assert_eq!(found, expected);
}

pub async fn s1_20_an_entry_has_an_id_of_its_own<S: Scene>() {
    let scene = S::start().await;
    scene.users(&["ada"]).await;
    scene.users(&["eve"]).await;
    let sql = format!("select {} from postrider_changelog order by versionstamp", S::text("id"));
    let ids: Vec<_> = scene.rows(&sql).await.into_iter().map(|mut row| row.remove(0).expect("not null")).collect();
    assert_ne!(ids[0], ids[1]);
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    let listed: Vec<_> = page.entries.iter().map(|entry| entry.id.to_string()).collect();
    assert_eq!(listed, ids);
}

pub async fn s1_21_s1_26_s1_27_stamps_and_ids_of_units_of_work_are_unique_and_indexed<S: Scene>() {
    let scene = S::start().await;
    let unique = unique_columns(&scene, "postrider_changelog").await;
    assert_eq!(unique, ["uow_id", "versionstamp"]);
    scene.run(&insert::<S>(&stamp(1, 0), "'one'", "'{}'", "null")).await.expect("it is right");
    for (stamp, uow_id) in [
        (stamp(1, 0), "'two'"),
        (stamp(2, 0), "'one'"),
        (stamp(2, 0), "null"),
        // Thirteen bytes.
        (stamp(2, 0) + "00", "'two'"),
    ] {
        let sql = insert::<S>(&stamp, uow_id, "'{}'", "null");
        scene.run(&sql).await.expect_err("it is refused");
    }
    // MySQL fills up with zeros.
    if S::KIND != Kind::MySql {
        scene.run(&insert::<S>("01", "'two'", "'{}'", "null")).await.expect_err("it is too short");
    }
    assert_eq!(scene.stamps().await, [stamp(1, 0)]);
    scene.run(&insert::<S>(&stamp(2, 0), "'ONE'", "'{}'", "null")).await.expect("it is another id");
}

pub async fn s1_22_an_entry_has_the_id_of_its_unit_of_work<S: Scene>() {
    let scene = S::start().await;
    let work = users(&["ada"]);
    scene.changelog().commit(&work).await.expect("it is committed");
    let rows = scene.rows(&format!("select {} from postrider_changelog", S::text("uow_id"))).await;
    assert_eq!(rows, [[Some(work.id().to_owned())]]);
}

pub async fn s1_23_s1_24_payload_and_references_are_json<S: Scene>() {
    let scene = S::start().await;
    for (payload, references) in [("null", "null"), ("'no json'", "null"), ("'{}'", "'no json'")] {
        // MariaDB's JSON functions stop at 32 levels, so nothing looks into the payload there.
        if S::KIND == Kind::MySql && payload == "'no json'" {
            continue;
        }
        let sql = insert::<S>(&stamp(1, 0), "'one'", payload, references);
        scene.run(&sql).await.expect_err("it is refused");
    }
    scene.run(&insert::<S>(&stamp(1, 0), "'one'", "'{}'", "'{}'")).await.expect("it is right");
    scene.run(&insert::<S>(&stamp(2, 0), "'two'", "'{}'", "null")).await.expect("it is right");
}

pub async fn s1_25_an_entry_has_the_databases_time<S: Scene>() {
    let scene = S::start().await;
    let before = SystemTime::now() - Duration::from_secs(60);
    scene.run(&insert::<S>(&stamp(1, 0), "'one'", "'{}'", "null")).await.expect("it is right");
    scene.set_counter("1").await;
    scene.users(&["ada"]).await;
    let after = SystemTime::now() + Duration::from_secs(60);
    let page = scene.changelog().list(After::Beginning, 0).await.expect("it can be read");
    assert_eq!(page.entries.len(), 2);
    for entry in &page.entries {
        assert!(before < entry.created_at && entry.created_at < after, "{:?}", entry.created_at);
    }
    let update = "update postrider_changelog set created_at = null";
    scene.run(update).await.expect_err("it is never null");
}
