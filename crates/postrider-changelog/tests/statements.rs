//! Which statements a unit of work sends, and in which order. A process has one log, so this is a program of its own.

mod scene;

use postrider_changelog::{Column, Id, Input, Schema, TableBuilder, UnitOfWork};
use scene::{Kind, OnMySql, OnPostgres, OnSqlite, Scene, blog, post};
use testkit::log::Log;

/// The statements that were sent since a place in the log, in their order and without quotes, as sqlx tells of them.
fn statements(log: &Log, since: usize) -> Vec<String> {
    let field = |line: &str, name: &str| {
        let (_, after) = line.split_once(&format!("{name}=\""))?;
        let after = after.replace("\\\"", "").replace("\\n", " ").replace('`', "");
        let (text, _) = after.split_once('"')?;
        Some(text.trim().to_lowercase()).filter(|text| !text.is_empty())
    };
    let text = log.text()[since..].to_owned();
    let lines = text.lines().filter(|line| line.contains("sqlx::query: summary="));
    lines.filter_map(|line| field(line, "db.statement").or_else(|| field(line, "summary"))).collect()
}

/// Commits a unit of work and answers what was sent, without what opens connections and begins and ends transactions.
async fn sent<S: Scene>(log: &Log, scene: &S, work: &UnitOfWork) -> Vec<String> {
    let since = log.text().len();
    scene.changelog().commit(work).await.expect("it is committed");
    let kept =
        |statement: &String| !["begin", "commit", "pragma", "set "].iter().any(|word| statement.starts_with(word));
    statements(log, since).into_iter().filter(kept).collect()
}

fn by_internal(id: &Id) -> Input {
    Input::internal(id.internal().expect("it is known"))
}

/// Posts, users, and rows that refer to both.
fn linked() -> Schema {
    let posts =
        TableBuilder::new("posts").physical("blog_posts").external_id(Column::text("slug").physical("post_slug"));
    Schema::builder("linked")
        .table(TableBuilder::new("users"))
        .table(posts.internal_id("post_number").version("post_version"))
        .table(
            TableBuilder::new("links")
                .physical("kinds")
                .column(Column::reference("post", "posts").physical("an_integer"))
                .column(Column::reference("user", "users").physical("a_big")),
        )
        .build()
        .expect("the schema is right")
}

async fn in_order<S: Scene>(log: &Log) {
    let (scene, blog) = (S::start().await, blog());
    let users = scene.users(&["ada", "eve"]).await.created;
    let mut work = UnitOfWork::new();
    for number in 0..4 {
        let author = by_internal(&users[number % 2]);
        let values = post(&format!("post {number}"), author).into_iter().chain([("editorId", by_internal(&users[0]))]);
        work.create(&blog.posts, values).expect("it is right");
    }
    work.delete(&blog.posts, "post 0").expect("it is right");
    let sent = sent(log, &scene, &work).await;
    // What each one does, and to which table: a reservation, the mutations, the references, the entry.
    let reservation: &[_] = match S::KIND {
        Kind::Postgres => &["insert settings"],
        Kind::MySql => &["insert settings", "select settings"],
        Kind::Sqlite => &["insert settings", "update settings"],
    };
    let created: &[_] =
        if S::KIND == Kind::MySql { &["insert blog_posts", "select blog_posts"] } else { &["insert blog_posts"] };
    let mut expected = reservation.to_vec();
    (0..4).for_each(|_| expected.extend(created));
    expected.extend(["delete blog_posts", "select users", "insert changelog"]);
    let tables = ["changelog", "settings", "blog_posts", "users"];
    let short = |statement: &String| {
        let verb = statement.split_whitespace().next().unwrap_or_default();
        let named = |table: &&&str| {
            ["into ", "from ", "update "].iter().any(|word| {
                [
                    format!("{word}{table}"),
                    format!("{word}postrider_{table}"),
                    format!("{word}public.postrider_{table}"),
                ]
                .iter()
                .any(|text| statement.contains(text))
            })
        };
        format!("{verb} {}", tables.iter().find(named).copied().unwrap_or(statement.as_str()))
    };
    let found: Vec<_> = sent.iter().map(short).collect();
    assert_eq!(found, expected, "{:?}: {sent:#?}", S::KIND);
}

async fn one_query_for_each_table<S: Scene>(log: &Log) {
    let (scene, blog, linked) = (S::start().await, blog(), linked());
    let mut work = UnitOfWork::new();
    for name in ["ada", "eve", "joe"] {
        work.create(&blog.users, [("id", name.into()), ("name", name.into())]).expect("it is right");
        work.create(&blog.posts, post(&format!("by {name}"), name)).expect("it is right");
    }
    let created = scene.changelog().commit(&work).await.expect("it is committed").created;
    let links = linked.table("links").expect("it is declared");
    let mut work = UnitOfWork::new();
    for pair in created.chunks(2) {
        for _ in 0..2 {
            work.create(&links, [("user", by_internal(&pair[0])), ("post", by_internal(&pair[1]))])
                .expect("it is right");
        }
    }
    let sent = sent(log, &scene, &work).await;
    for table in ["users", "blog_posts"] {
        let from = format!(" from {table} ");
        let count =
            sent.iter().filter(|statement| statement.starts_with("select") && statement.contains(&from)).count();
        assert_eq!(count, 1, "{:?}, {table}: {sent:#?}", S::KIND);
    }
    let (_, references) = scene.texts().await.remove(1);
    let references: serde_json::Value = serde_json::from_str(&references.expect("there are some")).expect("it is JSON");
    let expected = ["ada", "ada", "eve", "eve", "joe", "joe"]
        .into_iter()
        .enumerate()
        .flat_map(|(at, name)| [(format!("{at}.user"), name.to_owned()), (format!("{at}.post"), format!("by {name}"))]);
    assert_eq!(references, serde_json::Value::from_iter(expected));
}

async fn all<S: Scene>(log: &Log) {
    in_order::<S>(log).await;
    one_query_for_each_table::<S>(log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_10_s1_44_s1_56_the_version_is_reserved_first_and_references_are_looked_up_last_with_one_query_for_each_table()
 {
    let log = Log::listen();
    all::<OnPostgres>(&log).await;
    all::<OnMySql>(&log).await;
    all::<OnSqlite>(&log).await;
}
