//! The documentation is held against the source: the tests that `docs/guarantees.md` names exist and are run, every
//! Rust example compiles, every SQL example runs, links lead somewhere, and lists of metrics, settings and columns are
//! complete.

#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::store::{Capabilities, Delivered, Finished, Purge};
use postrider::{
    Dispatcher, MemoryStore, Message, MySqlStore, Names, PostgresStore, PublishError, Scope, SqliteStore, Store,
    callback,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

mod named;
#[path = "guarantees/scenarios.rs"]
mod scenarios;
#[path = "guarantees/supply.rs"]
mod supply;

use named::{CHANGELOG, Fate, INBOX, SINKS, fate, list_of, read, root};

// The examples of the documentation; compiled here, and some are tests.
#[path = "../../../docs/snippets/changelog.rs"]
#[allow(dead_code)]
mod changelog;
#[path = "../../../docs/snippets/consumers.rs"]
#[allow(dead_code)]
mod consumers;
#[path = "../../../docs/snippets/dispatcher.rs"]
#[allow(dead_code)]
mod dispatcher;
#[path = "../../../docs/snippets/events.rs"]
#[allow(dead_code)]
mod events;
#[path = "../../../docs/snippets/producers.rs"]
#[allow(dead_code)]
mod producers;
#[path = "../../../docs/snippets/readme.rs"]
#[allow(dead_code)]
mod readme;
#[path = "../../../docs/snippets/tenants.rs"]
#[allow(dead_code)]
mod tenants;
#[path = "../../../docs/snippets/testing.rs"]
mod testing;

/// All files below a directory whose names end so.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The pages of the documentation.
fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = files(&root().join("docs"), ".md")?;
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
            .map(|page| root().join(page)),
    );
    Ok(pages)
}

/// The fenced blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == format!("```{language}") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// The last section of the page: what tests have found to be broken.
const NOT_KEPT: &str = "\n## Not kept yet\n";

/// A test that a guarantee names: `| scenarios | test | binary | file |`.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    scenarios: Vec<String>,
    test: String,
    binary: String,
    file: String,
}

fn named(page: &str) -> Vec<Named> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("| `"));
    rows.filter_map(|row| {
        let cells: Vec<String> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [scenarios, test, binary, file] = cells.try_into().ok()?;
        let scenarios = scenarios.split(',').map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect();
        Some(Named { scenarios, test, binary, file })
    })
    .collect()
}

/// Says what is wrong with a row, given the sources of its file and of whatever lists tests for suites. What is kept is
/// shown by a test that runs; what is not kept yet has a test that is ignored.
fn problem(row: &Named, source: &str, list: Option<&str>, kept: bool) -> Option<String> {
    let Named { scenarios, test, file, .. } = row;
    match (kept, fate(test, source, list)) {
        (_, Fate::Missing) => return Some(format!("{file} has no test {test}")),
        (_, Fate::Unused) => {
            return Some(format!("{test} of {file} is no test and not in the list of a suite, so nobody runs it"));
        }
        (true, Fate::Ignored) => {
            return Some(format!("{test} of {file} is ignored, so it shows nothing: list it as not kept yet"));
        }
        (false, Fate::Run) => return Some(format!("{test} of {file} is run: list it under its promise")),
        (true, Fate::Run) | (false, Fate::Ignored) => {}
    }
    let missing = scenarios.iter().find(|id| {
        let id = id.to_lowercase().replace('.', "_");
        !format!("_{test}_").contains(&format!("_{id}_"))
    });
    missing.map(|id| format!("{test} does not carry {id} in its name"))
}

#[test]
fn every_test_that_a_guarantee_names_exists_and_is_run() -> Result<()> {
    let page = read("docs/guarantees.md")?;
    let (promises, not_kept) = page.split_once(NOT_KEPT).unwrap_or((&page, ""));
    let kept = named(promises).into_iter().map(|row| (row, true));
    let rows: Vec<_> = kept.chain(named(not_kept).into_iter().map(|row| (row, false))).collect();
    ensure!(rows.len() > 50, "only {} tests are named", rows.len());
    let mut problems = Vec::new();
    for (row, kept) in rows {
        problems.extend(problem(&row, &read(&row.file)?, list_of(&row.file)?.as_deref(), kept));
        let of_crate = row.file.split('/').nth(1).unwrap_or_default();
        let binary = match row.file.split_once("/tests/") {
            _ if row.file.contains("src/conformance/") => "conformance_*".to_owned(),
            _ if row.file == INBOX => "postrider-inbox *".to_owned(),
            _ if row.file == SINKS => "postrider-sinks *".to_owned(),
            _ if row.file.starts_with(CHANGELOG) => "postrider-changelog databases".to_owned(),
            Some((_, rest)) if !row.file.contains("/src/") => {
                let test = rest.split(['/', '.']).next().unwrap_or_default();
                if of_crate == "testkit" { test.to_owned() } else { format!("{of_crate} {test}") }
            }
            _ => of_crate.to_owned(),
        };
        if binary != row.binary {
            problems.push(format!("{} is run by {binary}, not by {}", row.test, row.binary));
        }
    }
    ensure!(problems.is_empty(), "docs/guarantees.md is wrong:\n{}", problems.join("\n"));
    Ok(())
}

#[test]
fn a_test_that_does_not_exist_or_is_not_run_is_found_out() {
    let page = "| scenarios | test | binary | file |\n|---|---|---|---|\n| R11 | `r11_late` | `b` | `f.rs` |\n";
    let rows = named(page);
    assert_eq!(rows.len(), 1);
    let kept = |source: &str, list| problem(&rows[0], source, list, true);
    assert_eq!(kept("#[tokio::test]\nasync fn r11_late() {", None), None);
    assert_eq!(kept("async fn r11_late<P>() {", Some("  r11_late\n")), None);
    assert_eq!(kept("#[ignore]\nfn other() {}\n\n#[test]\nfn r11_late() {", None), None);
    assert!(kept("#[test]\nfn r11_later() {", None).is_some());
    assert!(kept("#[test]\nfn other() {}\n\nfn r11_late() {", None).is_some());
    assert!(kept("async fn r11_late() {", Some("r11_later")).is_some());
    assert!(kept("#[test]\n#[ignore = \"bug\"]\nfn r11_late() {", None).is_some());
    assert!(kept("    #[test]\n    #[ignore = \"bug\"]\n    fn r11_late() {", None).is_some());
    assert!(problem(&rows[0], "#[test]\nfn r11_late() {", None, false).is_some());
    assert!(problem(&named(&page.replace("R11 ", "R1 "))[0], "#[test]\nfn r11_late() {", None, true).is_some());
}

#[test]
fn each_promise_has_tests() -> Result<()> {
    let page = read("docs/guarantees.md")?;
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    for number in 1..=13 {
        let section = sections.iter().find(|section| section.starts_with(&format!("{number}. ")));
        let section = section.with_context(|| format!("promise {number} is missing"))?;
        ensure!(!named(section).is_empty(), "promise {number} names no test");
    }
    Ok(())
}

/// Lines without their indentation, so that a part of a function can be shown.
fn plain(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_rust_example_of_the_documentation_is_compiled() -> Result<()> {
    let mut sources = files(&root().join("docs/snippets"), ".rs")?;
    sources.extend(files(&root().join("examples"), ".rs")?);
    let sources = sources.iter().map(|path| Ok(plain(&read(path)?))).collect::<Result<Vec<_>>>()?;
    for page in pages()? {
        for block in blocks(&read(&page)?, "rust") {
            let known = sources.iter().any(|source| source.contains(&plain(&block)));
            ensure!(known, "an example of {} is in no file that is compiled:\n{block}", page.display());
        }
    }
    Ok(())
}

/// Modules in other languages are run by tests as they are in these files; the guide shows some of them and names all.
#[test]
fn every_consumer_in_another_language_is_shown_as_it_is_tested() -> Result<()> {
    let page = read("docs/guides/idempotent-consumer.md")?;
    for (language, ending) in [("python", ".py"), ("typescript", ".ts")] {
        let paths = files(&root().join("docs/snippets"), ending)?;
        for path in &paths {
            let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
            ensure!(page.contains(&format!("(../snippets/{name})")), "the guide does not name {name}");
        }
        let tested = paths.iter().map(read).collect::<Result<BTreeSet<_>>>()?;
        let shown = blocks(&page, language);
        ensure!(!shown.is_empty(), "the guide shows nothing in {language}");
        for block in shown {
            let name = block.lines().next().unwrap_or_default().to_owned();
            ensure!(tested.contains(&(block + "\n")), "what begins with {name:?} is in no file");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_sql_example_of_the_documentation_runs() -> Result<()> {
    let server = testkit::Postgres::shared().await?;
    for page in pages()? {
        let blocks = blocks(&read(&page)?, "sql");
        if blocks.is_empty() {
            continue;
        }
        let pool = server.create_database().await?.pool().await?;
        PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
        sqlx::raw_sql("create table orders (id bigint primary key)").execute(&pool).await?;
        for block in blocks {
            let outcome = sqlx::raw_sql(AssertSqlSafe(block.clone())).execute(&pool).await;
            outcome.with_context(|| format!("an example of {} fails:\n{block}", page.display()))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_mysql_example_of_the_documentation_runs() -> Result<()> {
    let server = testkit::MariaDb::shared().await?;
    for page in pages()? {
        let pool = server.create_database().await?.pool().await?;
        MySqlStore::new(pool.clone(), Names::default()).migrate().await?;
        sqlx::raw_sql("create table orders (id bigint primary key)").execute(&pool).await?;
        for block in blocks(&read(&page)?, "mysql") {
            let outcome = sqlx::raw_sql(AssertSqlSafe(block.clone())).execute(&pool).await;
            outcome.with_context(|| format!("an example of {} fails:\n{block}", page.display()))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_sqlite_example_of_the_documentation_runs() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (number, page) in pages()?.iter().enumerate() {
        let store = SqliteStore::open(directory.path().join(format!("{number}.db"))).await?;
        store.migrate().await?;
        sqlx::raw_sql("create table orders (id integer primary key)").execute(store.pool()).await?;
        for block in blocks(&read(page)?, "sqlite") {
            let outcome = sqlx::raw_sql(AssertSqlSafe(block.clone())).execute(store.pool()).await;
            outcome.with_context(|| format!("an example of {} fails:\n{block}", page.display()))?;
        }
    }
    Ok(())
}

/// A row of the table of capabilities, as whether each column says yes.
fn capability(page: &str, name: &str) -> Option<Vec<bool>> {
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` |")))?;
    Some(row.trim_end_matches('|').split('|').map(|cell| cell.trim().starts_with("yes")).collect())
}

#[tokio::test]
async fn the_table_of_capabilities_says_what_the_stores_say() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let postgres = testkit::Postgres::shared().await?.create_database().await?.pool().await?;
    let mysql = testkit::MariaDb::shared().await?.create_database().await?.pool().await?;
    let stores: [Box<dyn Store>; 4] = [
        Box::new(PostgresStore::new(postgres, Names::default())),
        Box::new(MySqlStore::new(mysql, Names::default())),
        Box::new(SqliteStore::open(directory.path().join("outbox.db")).await?),
        Box::new(MemoryStore::new()),
    ];
    let said = stores.iter().map(|store| store.capabilities()).collect::<Vec<_>>();
    let page = read("docs/reference/stores.md")?;
    let column = |what: fn(&Capabilities) -> bool| Some(said.iter().map(what).collect::<Vec<bool>>());
    assert_eq!(capability(&page, "rings"), column(|can| can.rings));
    assert_eq!(capability(&page, "parallel_writers"), column(|can| can.parallel_writers));
    assert_eq!(capability(&page, "server_clock"), column(|can| can.server_clock));
    assert_eq!(capability(&page, "fair"), column(|can| can.fair));
    assert_eq!(capability(&page, "order_by_key"), column(|can| can.order_by_key));
    Ok(())
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() -> Result<()> {
    for page in pages()? {
        let text = read(&page)?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let is_local = !target.is_empty() && !target.contains("://");
            let directory = page.parent().context("a page is in a directory")?;
            ensure!(!is_local || directory.join(target).exists(), "{} links to {link}", page.display());
        }
    }
    Ok(())
}

/// All words in a text that begin so.
fn words(text: &str, prefix: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(prefix) && word.len() > prefix.len()).map(str::to_owned).collect()
}

#[test]
fn the_list_of_metrics_is_complete() -> Result<()> {
    let names = |text: &str| -> BTreeSet<String> {
        let quoted = text.split('"').filter(|part| part.starts_with("postrider_") && !part.contains(['{', ' ', ',']));
        quoted.filter(|part| !part.ends_with("_test")).map(str::to_owned).collect()
    };
    let mut source = BTreeSet::new();
    for file in [
        "crates/postrider-core/src/dispatch/observe.rs",
        "crates/postrider-core/src/route.rs",
        "crates/postrider-cli/src/relay/changelog/signs.rs",
        "crates/postrider-cli/src/relay/mod.rs",
        "crates/postrider-cli/src/relay/telemetry.rs",
    ] {
        source.extend(names(&read(file)?));
    }
    for file in files(&root().join("crates/postrider-sinks/src"), ".rs")? {
        source.extend(names(&read(file)?));
    }
    source.remove("postrider_sinks");
    // A name in Slack's metadata.
    source.remove("postrider_message");
    source.remove("postrider_core");
    let documented = words(&read("docs/operations/monitor.md")?, "postrider_");
    assert_eq!(documented, source);
    Ok(())
}

#[test]
fn every_setting_of_the_dispatcher_is_documented() -> Result<()> {
    let source = read("crates/postrider-core/src/dispatch/config.rs")?;
    let page = read("docs/guides/dispatcher.md")?;
    let setters = source.lines().filter_map(|line| line.strip_prefix("    pub fn ")?.split_once("(mut self"));
    let names: Vec<&str> = setters.map(|(name, _)| name).collect();
    ensure!(names.len() > 15, "only {} settings were found", names.len());
    for name in names {
        ensure!(page.contains(&format!("| `{name}` |")), "docs/guides/dispatcher.md does not tell of {name}");
    }
    Ok(())
}

#[tokio::test]
async fn every_column_and_index_is_documented() -> Result<()> {
    let pool = testkit::Postgres::shared().await?.create_database().await?.pool().await?;
    PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
    let names = "
        select column_name::text from information_schema.columns where table_name = 'outbox_messages'
        union all select indexname::text from pg_indexes where tablename = 'outbox_messages'";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&pool).await?;
    ensure!(names.len() > 20, "only {} columns and indexes were found", names.len());
    let page = read("docs/reference/schema.md")?;
    for name in names {
        ensure!(page.contains(&format!("| `{name}` |")), "docs/reference/schema.md does not tell of {name}");
    }
    Ok(())
}

/// Makes the role that a page describes, and a pool that works as it.
async fn pool_as(role: &str, page: &str, database: &testkit::Database, admin: &PgPool) -> Result<PgPool> {
    let name = format!("{role}_{}", Uuid::new_v4().simple());
    let grants = blocks(&read(page)?, "sql").into_iter().find(|block| block.contains(&format!("create role {role};")));
    let grants = grants.with_context(|| format!("{page} does not make the role {role}"))?.replace(role, &name);
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(admin).await?;
    let set_role: std::sync::Arc<str> = format!("set role {name}").into();
    let adapt = |options: PgPoolOptions| {
        options.after_connect(move |connection, _| {
            let set_role = AssertSqlSafe(set_role.clone());
            Box::pin(async move { sqlx::query(set_role).execute(connection).await.map(|_| ()) })
        })
    };
    database.pool_with(adapt).await
}

#[tokio::test]
async fn the_documented_privileges_are_enough() -> Result<()> {
    let database = testkit::Postgres::shared().await?.create_database().await?;
    let admin = database.pool().await?;
    PostgresStore::new(admin.clone(), Names::default()).migrate().await?;
    let app = pool_as("shop_app", "docs/guides/any-language.md", &database, &admin).await?;
    let relay = pool_as("relay", "docs/operations/recover.md", &database, &admin).await?;

    let message = || Message::json("shop", "order.placed", &7).dedupe_key("7");
    let mut transaction = app.begin().await?;
    let outbox = postrider::Outbox::default();
    assert!(outbox.enqueue(&mut transaction, message()).await?.is_new());
    assert!(!outbox.enqueue(&mut transaction, message()).await?.is_new());
    sqlx::query("select postrider_enqueue('shop', 'order.placed', '8')").execute(&mut *transaction).await?;
    sqlx::query("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order.placed', '9')")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    ensure!(sqlx::query("delete from outbox_messages").execute(&app).await.is_err(), "a producer may delete");

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let _ = tell.send(message.id);
        async move { if message.attempts == 1 { Err(PublishError::retry("again")) } else { Ok(()) } }
    });
    let store = PostgresStore::new(relay, Names::default());
    assert!(store.pending().await?.is_empty(), "a relay looks at the schema before it starts");
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder(store.clone(), sink)
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .delivered(Delivered::Delete)
        .purge_delivered_after(Duration::ZERO);
    let running = tokio::spawn(dispatcher.build()?.run(stop.clone()));
    for _ in 0..6 {
        told.recv().await.context("the dispatcher ended")?;
    }
    stop.cancel();
    let _ended = running.await?;
    let purge = Purge { scope: Scope::all(), finished: Finished::Delivered, older_than: Duration::ZERO, limit: 10 };
    store.purge(&purge).await?;
    assert_eq!(store.stats(&Scope::all()).await?.pending, 0);
    assert_eq!(sqlx::query_scalar::<_, i64>("select count(*) from outbox_messages").fetch_one(&admin).await?, 0);
    Ok(())
}

/// Whether a session sits in an open transaction, or the row of a message is locked by anybody.
async fn is_held(pool: &PgPool, id: Uuid) -> Result<bool, sqlx::Error> {
    let open =
        "select exists (select from pg_stat_activity where datname = current_database() and state like 'idle in%')";
    let row = "select 1 from outbox_messages where id = $1 for update skip locked";
    let open: bool = sqlx::query_scalar(open).fetch_one(pool).await?;
    let row: Option<i32> = sqlx::query_scalar(row).bind(id).fetch_optional(pool).await?;
    Ok(open || row.is_none())
}

#[tokio::test]
async fn p5_no_transaction_is_open_while_a_sink_is_called() -> Result<()> {
    let database = testkit::Postgres::shared().await?.create_database().await?;
    let (pool, watch) = (database.pool().await?, database.pool().await?);
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    let mut transaction = pool.begin().await?;
    let messages = (0..10).map(|order| Message::json("shop", "order.placed", &order));
    let enqueued = store.outbox().enqueue_many(&mut transaction, messages).await?;
    transaction.commit().await?;
    let first = enqueued[0].id();
    let mut holder = pool.begin().await?;
    sqlx::query("select from outbox_messages where id = $1 for update").bind(first).execute(&mut *holder).await?;
    assert!(is_held(&watch, first).await?, "what is looked for must be found when it is there");
    holder.rollback().await?;

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let (watch, tell) = (watch.clone(), tell.clone());
        async move {
            let held = is_held(&watch, message.id).await.map_err(|error| error.to_string())?;
            let _ = tell.send(held);
            Ok::<(), PublishError>(())
        }
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Dispatcher::builder(store.clone(), sink).concurrency(1).build()?.run(stop.clone()));
    for _ in 0..10 {
        assert_eq!(told.recv().await, Some(false), "something is held while the sink is called");
    }
    stop.cancel();
    assert_eq!(running.await?.abandoned, 0);
    Ok(())
}
