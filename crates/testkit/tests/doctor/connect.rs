//! Opening an outbox by its URL: what goes wrong is told without the URL, its user or its password.

use std::error::Error;
use std::time::Duration;

use postrider::{AnyStore, Connect, Message, StoreError, StoreErrorKind};
use sqlx::AssertSqlSafe;
use testkit::{MariaDb, Postgres};

use crate::scene::{OnMySql, OnPostgres, open};

/// Words that must not come out again.
const USER: &str = "canary_user";
const PASSWORD: &str = "canary-password";

/// An error with everything beneath it, as logs write it.
fn whole(error: &dyn Error) -> String {
    let beneath = error.source().map(|source| format!(": {}", whole(source))).unwrap_or_default();
    format!("{error} {error:?}{beneath}")
}

fn is_silent(error: &StoreError) {
    let text = whole(error);
    for word in [USER, PASSWORD, "canary"] {
        assert!(!text.contains(word), "{text}");
    }
}

async fn refused(url: &str, kind: StoreErrorKind, word: &str) {
    let options = Connect { connect_timeout: Duration::from_secs(5), ..Connect::default() };
    let error = match AnyStore::connect(url, &options).await {
        Err(error) => error,
        Ok(store) => {
            assert!(!format!("{store:?}").contains("canary"), "{store:?}");
            store.ping().await.expect_err(word)
        }
    };
    is_silent(&error);
    assert!(error.to_string().contains(word), "{error}");
    assert_eq!(error.kind(), kind, "{error}");
}

#[tokio::test]
async fn s16_a_url_that_cannot_be_used_is_refused_without_being_told() {
    use StoreErrorKind::{Refused, Unavailable};
    let login = format!("{USER}:{PASSWORD}");
    for (url, kind, word) in [
        (format!("oracle://{login}@host/db"), Refused, "postgres://"),
        (format!("{login}@host/db"), Refused, "sqlite:"),
        (String::new(), Refused, "mysql://"),
        (format!("postgres://{USER}:{PASSWORD}/x@host/db"), Refused, "percent-encoded"),
        (format!("postgres://{login}@host:port/db"), Refused, "percent-encoded"),
        (format!("mysql://{USER}:{PASSWORD}#?@host:99999/db"), Refused, "percent-encoded"),
        (format!("postgres://{login}@host/db?sslmode={PASSWORD}"), Refused, "sslmode"),
        (format!("postgres://{login}@host/db?{PASSWORD}=1"), Refused, "not known"),
        (format!("mysql://{login}@host/db?pasword={PASSWORD}"), Refused, "not known"),
        (format!("postgres://{USER}:12#{PASSWORD}@host/db"), Refused, "percent-encoded"),
        (format!("postgres://{USER}:12?{PASSWORD}@host/db"), Refused, "percent-encoded"),
        (format!("mysql://{USER}:12#{PASSWORD}@host/db"), Refused, "percent-encoded"),
        (format!("postgres://127.0.0.1:1/{PASSWORD}@host/db"), Unavailable, "percent-encoded"),
        (format!("mysql://127.0.0.1:1/{PASSWORD}@host/db"), Unavailable, "percent-encoded"),
        (format!("postgres://{login}@127.0.0.1:1/db"), Unavailable, "cannot be reached"),
        (format!("mariadb://{login}@127.0.0.1:1/db"), Unavailable, "cannot be reached"),
        (format!("postgres://{login}@no-such-host.invalid/db"), Unavailable, "cannot be reached"),
        (format!("sqlite:/nowhere/{PASSWORD}.db"), Unavailable, "missing"),
        ("sqlite:".into(), Refused, "names no file"),
        ("sqlite::memory:".into(), Refused, "names no file"),
    ] {
        refused(&url, kind, word).await;
    }
}

#[tokio::test]
async fn s16_a_host_that_never_answers_is_given_up_in_time() {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = deaf.local_addr().expect("it has one").port();
    for scheme in ["postgres", "mysql"] {
        let options = Connect { connect_timeout: Duration::from_millis(200), ..Connect::default() };
        let url = format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/db");
        let store = AnyStore::connect(&url, &options).await.expect("nothing is connected yet");
        let error = store.ping().await.expect_err("nobody answers");
        is_silent(&error);
        assert!(error.to_string().contains("within 0.2 s"), "{error}");
    }
}

/// A PostgreSQL of its own that asks for passwords.
async fn with_passwords() -> Postgres {
    let server = Postgres::start().await.expect("a private PostgreSQL starts");
    let admin = sqlx::PgPool::connect(&server.url("postgres")).await.expect("it connects");
    let create = format!("create role {USER} login password 'another'");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&admin).await.expect("a role");
    let hba = server.data_dir().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).expect("the rules");
    std::fs::write(&hba, format!("host all {USER} 127.0.0.1/32 scram-sha-256\n{rules}")).expect("other rules");
    sqlx::raw_sql("select pg_reload_conf()").execute(&admin).await.expect("it reads them");
    server
}

#[tokio::test]
async fn s16_a_refused_login_is_told_without_the_user_and_by_every_verb() {
    let server = with_passwords().await;
    let url = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", server.port());
    testkit::eventually(Duration::from_secs(120), || async { open(&url).await.ping().await.is_err() }).await;
    refused(&url, StoreErrorKind::Refused, "refused the login").await;
    let maria = crate::scene::mariadb().await;
    let maria_url = format!("mysql://{USER}:{PASSWORD}@127.0.0.1:{}/x", maria.port());
    refused(&maria_url, StoreErrorKind::Refused, "refused the login").await;
    for url in [url, maria_url] {
        let store = open(&url).await;
        is_silent(&store.migrate().await.expect_err("nobody is let in"));
        is_silent(&store.check_schema().await.expect_err("nobody is let in"));
        is_silent(&store.examine().await.expect_err("nobody is let in"));
        is_silent(&store.store().stats(&postrider::Scope::all()).await.expect_err("nobody is let in"));
        let error = store.enqueue(vec![Message::json("shop", "order", &1)]).await.expect_err("nobody is let in");
        assert!(!whole(&error).contains("canary"), "{}", whole(&error));
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_and_tls_that_is_not_spoken_are_told() {
    let server = crate::scene::postgres().await;
    refused(&server.url("canary_database"), StoreErrorKind::Refused, "no database of that name").await;
    let url = format!("{}?sslmode=require", server.url("postgres"));
    refused(&url, StoreErrorKind::Refused, "TLS").await;
    let maria: &MariaDb = crate::scene::mariadb().await;
    let database = maria.create_database().await.expect("a database is made");
    let url = format!("mysql://postrider:only-for-tests@127.0.0.1:{}/x?ssl-mode=required", maria.port());
    refused(&url, StoreErrorKind::Refused, "TLS").await;
    let missing = database.url().replace(database.name(), "canary_database");
    refused(&missing, StoreErrorKind::Refused, "no database of that name").await;
}

/// What every database has in common: nothing is there, a look writes nothing, then all is there.
async fn lives(store: &AnyStore, kind: &str) {
    assert_eq!(store.kind(), kind);
    store.ping().await.expect("it answers");
    let refused = store.check_schema().await.expect_err("there is no outbox");
    assert_eq!(refused.kind(), StoreErrorKind::Schema);
    assert!(refused.to_string().contains("run postrider migrate"), "{refused}");
    let pending = store.pending().await.expect("it can be looked at");
    let again = store.pending().await.expect("it can be looked at");
    assert_eq!(pending, again);
    let versions: Vec<i32> = pending.iter().map(|(version, ..)| *version).collect();
    assert!(pending.iter().all(|(_, name, sql)| !name.is_empty() && !sql.contains("{table}")));
    assert!(pending[0].2.contains("postrider_migrations") && pending[0].2.contains("outbox_messages"));
    assert_eq!(store.migrate().await.expect("the migrations run"), versions);
    assert!(store.pending().await.expect("it can be looked at").is_empty());
    store.check_schema().await.expect("the outbox is there");
    let messages = vec![Message::json("shop", "order", &1), Message::json("shop", "order", &2)];
    let enqueued = store.enqueue(messages).await.expect("they are written");
    assert!(enqueued.iter().all(|message| message.is_new()));
    let stats = store.store().stats(&postrider::Scope::all()).await.expect("it counts");
    assert_eq!(stats.pending, 2);
    let bad = vec![Message::json("shop", "order", &3), Message::json("", "order", &4)];
    assert!(store.enqueue(bad).await.is_err());
    let stats = store.store().stats(&postrider::Scope::all()).await.expect("it counts");
    assert_eq!(stats.pending, 2, "if one is refused, none is written");
}

#[tokio::test]
async fn every_database_opens_by_its_url_from_nothing_to_an_outbox() {
    let scene = OnPostgres::empty().await;
    let store = open(&scene.database.url()).await;
    store.pending().await.expect("it can be looked at");
    assert!(!scene.has("postrider_migrations").await, "a look wrote something");
    lives(&store, "postgres").await;
    let scene = OnMySql::empty(crate::scene::mariadb().await).await;
    let store = open(&scene.database.url()).await;
    store.pending().await.expect("it can be looked at");
    assert!(!scene.has("postrider_migrations").await, "a look wrote something");
    lives(&store, "mysql").await;
    let directory = tempfile::tempdir().expect("a directory");
    for (at, prefix) in ["sqlite:", "sqlite://"].into_iter().enumerate() {
        let url = format!("{prefix}{}/{at}.db", directory.path().display());
        assert!(AnyStore::connect(&url, &Connect::default()).await.is_err(), "nobody asked for the file to be made");
        let options = Connect { create: true, ..Connect::default() };
        lives(&AnyStore::connect(&url, &options).await.expect("the file is made"), "sqlite").await;
        open(&url).await.check_schema().await.expect("the file is there now");
    }
}

#[tokio::test]
async fn pending_sql_and_the_script_make_what_migrate_makes() {
    let scene = OnPostgres::empty().await;
    let store = open(&scene.database.url()).await;
    for (_, _, sql) in store.pending().await.expect("it can be looked at") {
        scene.run(&sql).await;
    }
    store.check_schema().await.expect("the outbox is there");
    let names = postrider::Names::in_schema("other").expect("a good name");
    let options = Connect { layout: postrider::Layout::postrider(names), ..Connect::default() };
    let other = AnyStore::connect(&scene.database.url(), &options).await.expect("a good URL");
    let first = other.pending().await.expect("it can be looked at").remove(0).2;
    assert!(first.contains("create schema \"other\""), "{first}");
    scene.run(&other.script()).await;
    other.check_schema().await.expect("the script makes the schema");
    scene.run("insert into postrider_migrations (version, name) values (9999, 'newer')").await;
    for error in [store.pending().await.map(drop), store.check_schema().await, store.migrate().await.map(drop)] {
        let error = error.expect_err("it is newer");
        assert_eq!(error.kind(), StoreErrorKind::Schema);
        assert!(error.to_string().contains("newer"), "{error}");
    }
}

/// Runs SQL in the program of the server, with a database or without.
fn in_mariadb(scene: &OnMySql, database: Option<&str>, sql: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let url: url_parts::Parts = url_parts::of(&scene.database.url());
    let port = scene.database.access().get_port().to_string();
    let mut program = Command::new("mariadb")
        .args(["--protocol=tcp", "-h", "127.0.0.1", "-P", &port, "-u", &url.user])
        .arg(format!("-p{}", url.password))
        .args(database)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program of the server is installed");
    program.stdin.take().expect("it reads").write_all(sql.as_bytes()).expect("it reads");
    let ended = program.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn s23_the_grants_run_in_the_program_of_the_server_without_a_database() {
    let scene = OnMySql::empty(crate::scene::mariadb().await).await;
    let store = open(&scene.database.url()).await;
    store.migrate().await.expect("the migrations run");
    in_mariadb(&scene, None, &store.grants(&scene.roles));
    open(&scene.url(scene.roles.relay())).await.check_schema().await.expect("a relay may start");
    let strange = open("mysql://u:p@127.0.0.1/my-%60shop").await.grants(&scene.roles);
    assert!(strange.contains("`my-``shop`.`outbox_messages`"), "{strange}");
    let nowhere = open("mysql://u:p@127.0.0.1").await.grants(&scene.roles);
    assert!(nowhere.contains(" `outbox_messages`"), "{nowhere}");
}

#[tokio::test]
async fn the_script_and_pending_sql_run_in_the_program_of_the_server() {
    let scene = OnMySql::empty(crate::scene::mariadb().await).await;
    let run = |sql: String| in_mariadb(&scene, Some(scene.database.name()), &sql);
    let store = open(&scene.database.url()).await;
    for (_, _, sql) in store.pending().await.expect("it can be looked at") {
        run(sql);
    }
    store.check_schema().await.expect("the outbox is there");
    assert!(store.migrate().await.expect("nothing is left").is_empty());
    // Each of its statements can be run again.
    run(store.script());
    store.enqueue(vec![Message::json("shop", "order", &1).dedupe_key("one")]).await.expect("producers have turns");
}

/// The user and the password of a URL.
mod url_parts {
    pub struct Parts {
        pub user: String,
        pub password: String,
    }

    pub fn of(url: &str) -> Parts {
        let (_, rest) = url.split_once("://").expect("a scheme");
        let (login, _) = rest.split_once('@').expect("a login");
        let (user, password) = login.split_once(':').expect("a password");
        Parts { user: user.into(), password: password.replace("%2D", "-") }
    }
}
