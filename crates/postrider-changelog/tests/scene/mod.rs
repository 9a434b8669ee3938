//! A database with a blog in it, the same on each: what the tests of the changelog stand on.

#![allow(dead_code)] // not every test file uses all of it

use std::future::Future;
use std::sync::Arc;

use postrider_changelog::{Changelog, Column, Committed, Database, Input, Schema, Table, TableBuilder, UnitOfWork};
use postrider_core::Store;
use postrider_store::{MySqlStore, Names, PostgresStore, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Row, Sqlite, Transaction};
use tempfile::TempDir;

/// Connections of a pool: more than there are writers.
const CONNECTIONS: u32 = 40;

/// A row as text.
pub type Cells = Vec<Option<String>>;

/// Which database it is, where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MySql,
    Sqlite,
}

/// All that a unit of work may change, to see that nothing was.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    pub counter: Option<String>,
    pub stamps: Vec<String>,
    pub users: Vec<Cells>,
    pub posts: Vec<Cells>,
    pub kinds: Vec<Cells>,
    pub notes: Vec<Cells>,
}

/// A database with the tables of a blog, and a changelog.
pub trait Scene: Sized + Send + Sync + 'static {
    type Db: Database;

    const KIND: Kind;

    /// A database of its own, migrated.
    fn start() -> impl Future<Output = Self> + Send {
        async {
            let scene = Self::bare().await;
            scene.migrate().await;
            scene
        }
    }

    /// The same before Postrider's migrations.
    fn bare() -> impl Future<Output = Self> + Send;

    /// Runs Postrider's migrations.
    fn migrate(&self) -> impl Future<Output = ()> + Send;

    fn pool(&self) -> &Pool<Self::Db>;

    /// Runs a text.
    fn run(&self, sql: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Rows of columns that are text.
    fn rows(&self, sql: &str) -> impl Future<Output = Vec<Cells>> + Send;

    /// Runs a text in a transaction.
    fn run_in(
        transaction: &mut Transaction<'_, Self::Db>,
        sql: &str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Rows of columns that are text, in a transaction.
    fn rows_in(transaction: &mut Transaction<'_, Self::Db>, sql: &str) -> impl Future<Output = Vec<Cells>> + Send;

    /// The outbox beside it.
    fn store(&self) -> Arc<dyn Store>;

    /// A column as text.
    fn text(column: &str) -> String {
        match Self::KIND {
            Kind::Postgres => format!("({column})::text"),
            Kind::MySql => format!("cast({column} as char)"),
            Kind::Sqlite => format!("cast({column} as text)"),
        }
    }

    /// Bytes as hexadecimal digits in lower case.
    fn hex(column: &str) -> String {
        match Self::KIND {
            Kind::Postgres => format!("encode({column}, 'hex')"),
            Kind::MySql | Kind::Sqlite => format!("lower(hex({column}))"),
        }
    }

    /// The name of the settings' key, which MySQL wants in quotes.
    fn key() -> &'static str {
        if Self::KIND == Kind::MySql { "`key`" } else { "key" }
    }

    /// A transaction that is going to write.
    fn begin(&self) -> impl Future<Output = Transaction<'static, Self::Db>> + Send {
        async {
            let begun = match Self::KIND {
                Kind::Sqlite => self.pool().begin_with("begin immediate").await,
                Kind::Postgres | Kind::MySql => self.pool().begin().await,
            };
            begun.expect("it begins")
        }
    }

    /// How many rows a table has.
    fn count(&self, table: &str) -> impl Future<Output = i64> + Send {
        async move { self.number(&format!("select {} from {table}", Self::text("count(*)"))).await }
    }

    /// The text of the counter.
    fn counter(&self) -> impl Future<Output = Option<String>> + Send {
        async {
            let sql = format!("select value from postrider_settings where {} = 'changelog.version'", Self::key());
            self.rows(&sql).await.pop().map(|mut row| row.remove(0).expect("it is not null"))
        }
    }

    /// Sets the counter.
    fn set_counter(&self, value: &str) -> impl Future<Output = ()> + Send {
        async move {
            let key = Self::key();
            let old = format!("delete from postrider_settings where {key} = 'changelog.version'");
            self.run(&old).await.expect("it is deleted");
            let new = format!("insert into postrider_settings ({key}, value) values ('changelog.version', '{value}')");
            self.run(&new).await.expect("it is set");
        }
    }

    /// The stamps of all entries in their order, as the table holds them.
    fn stamps(&self) -> impl Future<Output = Vec<String>> + Send {
        async {
            let hex = Self::hex("versionstamp");
            let rows = self.rows(&format!("select {hex} from postrider_changelog order by versionstamp")).await;
            rows.into_iter().map(|mut row| row.remove(0).expect("it is not null")).collect()
        }
    }

    /// Payload and references of all entries in their order, as the table holds them.
    fn texts(&self) -> impl Future<Output = Vec<(String, Option<String>)>> + Send {
        async {
            let (payload, references) = (Self::text("payload"), Self::text("ref_map"));
            let sql = format!("select {payload}, {references} from postrider_changelog order by versionstamp");
            let row = |mut row: Cells| (row.remove(0).expect("it is not null"), row.remove(0));
            self.rows(&sql).await.into_iter().map(row).collect()
        }
    }

    /// The mutations of all entries in their order, without what superjson adds.
    fn mutations(&self) -> impl Future<Output = Vec<Vec<serde_json::Value>>> + Send {
        async {
            let read = |(payload, _): (String, _)| {
                let payload: serde_json::Value = serde_json::from_str(&payload).expect("it is JSON");
                assert_eq!(payload["json"]["version"], 1);
                payload["json"]["mutations"].as_array().expect("it is a list").clone()
            };
            self.texts().await.into_iter().map(read).collect()
        }
    }

    /// All that a unit of work may change.
    fn state(&self) -> impl Future<Output = State> + Send {
        async {
            let all = |columns: &[&str], table: &str, order: &str| {
                let columns: Vec<_> = columns.iter().map(|column| Self::text(column)).collect();
                format!("select {} from {table} order by {order}", columns.join(", "))
            };
            let posts = ["post_slug", "post_title", "views", "post_version", "author_number", "editor_number"];
            State {
                counter: self.counter().await,
                stamps: self.stamps().await,
                users: self.rows(&all(&["id", "name", "email", "invited_by", "_version"], "users", "id")).await,
                posts: self.rows(&all(&posts, "blog_posts", "post_slug")).await,
                kinds: self.rows(&all(&["id", "a_text", "an_integer", "_version"], "kinds", "id")).await,
                notes: self.rows(&all(&["id", "note", "_version"], "notes", "id")).await,
            }
        }
    }

    /// Commits users of these names, which are their ids too, in one unit of work.
    fn users(&self, names: &[&str]) -> impl Future<Output = Committed> + Send {
        async move { self.changelog().commit(&users(names)).await.expect("it is committed") }
    }

    /// Makes the database give internal ids that are seen wherever they leak.
    fn count_from(&self, number: i64) -> impl Future<Output = ()> + Send {
        async move {
            for (table, column) in [("users", "_internal_id"), ("blog_posts", "post_number")] {
                let sql = match Self::KIND {
                    Kind::Postgres => format!("alter table {table} alter column {column} restart with {number}"),
                    Kind::MySql => format!("alter table {table} auto_increment = {number}"),
                    Kind::Sqlite => {
                        format!("insert into sqlite_sequence (name, seq) values ('{table}', {})", number - 1)
                    }
                };
                self.run(&sql).await.expect("it counts from there");
            }
        }
    }

    /// A changelog that is on.
    fn changelog(&self) -> Changelog<Self::Db> {
        Changelog::new(self.pool().clone(), Names::default()).enabled(true)
    }

    /// A number.
    fn number(&self, sql: &str) -> impl Future<Output = i64> + Send {
        async {
            let rows = self.rows(sql).await;
            rows[0][0].as_deref().expect("it is not null").parse().expect("it is a number")
        }
    }
}

/// A unit of work that creates users of these names, which are their ids too.
pub fn users(names: &[&str]) -> UnitOfWork {
    let (blog, mut work) = (blog(), UnitOfWork::new());
    for name in names {
        work.create(&blog.users, [("id", (*name).into()), ("name", (*name).into())]).expect("it is right");
    }
    work
}

/// The columns of a post.
pub fn post<'a>(slug: &str, author: impl Into<Input>) -> [(&'a str, Input); 3] {
    [("slug", slug.into()), ("title", "Notes".into()), ("authorId", author.into())]
}

/// The stamp of a version, as 24 digits.
pub fn stamp(version: u128, user_version: u16) -> String {
    format!("{version:020x}{user_version:04x}")
}

/// The tables of the blog, as units of work know them.
pub struct Blog {
    pub schema: Schema,
    pub users: Table,
    pub posts: Table,
    pub kinds: Table,
    pub notes: Table,
}

/// Users, their posts, a table with a column of each kind, and one that nobody outside is to know of.
pub fn blog() -> Blog {
    let schema = Schema::builder("blog")
        .table(
            TableBuilder::new("users")
                .column(Column::text("name"))
                .column(Column::text("email").nullable())
                .column(Column::reference("invitedBy", "users").physical("invited_by").nullable()),
        )
        .table(
            TableBuilder::new("posts")
                .physical("blog_posts")
                .external_id(Column::text("slug").physical("post_slug"))
                .internal_id("post_number")
                .version("post_version")
                .column(Column::text("title").physical("post_title"))
                .column(Column::integer("views").default_value(0))
                .column(Column::reference("authorId", "users").physical("author_number"))
                .column(Column::reference("editorId", "users").physical("editor_number").nullable())
                .column(Column::timestamp("createdAt").physical("created_at").default_now()),
        )
        .table(
            TableBuilder::new("kinds")
                .column(Column::text("text").physical("a_text").nullable())
                .column(Column::uuid("uuid").physical("a_uuid").nullable())
                .column(Column::integer("integer").physical("an_integer").nullable())
                .column(Column::big_integer("big").physical("a_big").nullable())
                .column(Column::float("float").physical("a_float").nullable())
                .column(Column::decimal("decimal").physical("a_decimal").nullable())
                .column(Column::boolean("boolean").physical("a_boolean").nullable())
                .column(Column::timestamp("time").physical("a_time").nullable())
                .column(Column::timestamp("second").physical("a_second").nullable())
                .column(Column::json("json").physical("a_json").nullable())
                .column(Column::binary("binary").physical("a_binary").nullable()),
        )
        .table(TableBuilder::new("notes").column(Column::text("text").physical("note")).internal())
        .build()
        .expect("the schema is right");
    let table = |name| schema.table(name).expect("it is declared");
    Blog {
        users: table("users"),
        posts: table("posts"),
        kinds: table("kinds"),
        notes: table("notes"),
        schema: schema.clone(),
    }
}

/// What every scene does with its pool.
macro_rules! run_with_sqlx {
    ($db:ty, $store:ty) => {
        async fn migrate(&self) {
            let store = <$store>::new(self.pool.clone(), Names::default());
            store.migrate().await.expect("it is migrated");
        }

        fn pool(&self) -> &Pool<$db> {
            &self.pool
        }

        async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
        }

        async fn rows(&self, sql: &str) -> Vec<Cells> {
            let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await;
            rows.expect("it can be read").iter().map(cells).collect()
        }

        async fn run_in(transaction: &mut Transaction<'_, $db>, sql: &str) -> Result<(), sqlx::Error> {
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **transaction).await.map(drop)
        }

        async fn rows_in(transaction: &mut Transaction<'_, $db>, sql: &str) -> Vec<Cells> {
            let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut **transaction).await;
            rows.expect("it can be read").iter().map(cells).collect()
        }

        fn store(&self) -> Arc<dyn Store> {
            Arc::new(<$store>::new(self.pool.clone(), Names::default()))
        }
    };
}

fn cells<R: Row>(row: &R) -> Cells
where
    usize: sqlx::ColumnIndex<R>,
    for<'r> Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    (0..row.len()).map(|at| row.get(at)).collect()
}

pub struct OnPostgres {
    pub server: &'static testkit::Postgres,
    pub database: testkit::Database,
    pub pool: Pool<Postgres>,
}

impl Scene for OnPostgres {
    type Db = Postgres;

    const KIND: Kind = Kind::Postgres;

    async fn bare() -> Self {
        let server = testkit::Postgres::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = database.pool_with(|options| options.max_connections(CONNECTIONS)).await.expect("it answers");
        let scene = Self { server, database, pool };
        scene
            .run(
                "create table users (_internal_id bigint generated always as identity primary key, id text not null unique, _version bigint not null, name text not null, email text, invited_by bigint references users);
                 create table blog_posts (post_number bigint generated always as identity primary key, post_slug text not null unique, post_version bigint not null, post_title text not null, views int not null, author_number bigint not null references users, editor_number bigint, created_at timestamptz not null);
                 create table kinds (_internal_id bigint generated always as identity primary key, id text not null unique, _version bigint not null, a_text text, a_uuid uuid, an_integer bigint, a_big bigint, a_float float8, a_decimal numeric(10, 2), a_boolean boolean, a_time timestamptz, a_second timestamptz(0), a_json jsonb, a_binary bytea);
                 create table notes (_internal_id bigint generated always as identity primary key, id text not null unique, _version bigint not null, note text)",
            )
            .await
            .expect("the blog is made");
        scene
    }

    run_with_sqlx!(Postgres, PostgresStore);
}

pub struct OnMySql {
    pub database: testkit::MySqlDatabase,
    pub pool: Pool<MySql>,
}

impl Scene for OnMySql {
    type Db = MySql;

    const KIND: Kind = Kind::MySql;

    async fn bare() -> Self {
        let server = testkit::MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let options = MySqlPoolOptions::new().max_connections(CONNECTIONS);
        let pool = options.connect_with(database.access().clone()).await.expect("it answers");
        let scene = Self { database, pool };
        scene
            .run(
                "create table users (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, name text not null, email text, invited_by bigint, foreign key (invited_by) references users (_internal_id)) character set utf8mb4;
                 create table blog_posts (post_number bigint auto_increment primary key, post_slug varchar(190) not null unique, post_version bigint not null, post_title text not null, views int not null, author_number bigint not null, editor_number bigint, created_at datetime(3) not null, foreign key (author_number) references users (_internal_id)) character set utf8mb4;
                 create table kinds (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, a_text text, a_uuid char(36), an_integer bigint, a_big bigint, a_float double, a_decimal decimal(10, 2), a_boolean boolean, a_time datetime(3), a_second datetime(0), a_json json, a_binary longblob) character set utf8mb4;
                 create table notes (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, note text) character set utf8mb4",
            )
            .await
            .expect("the blog is made");
        scene
    }

    run_with_sqlx!(MySql, MySqlStore);
}

pub struct OnSqlite {
    pub pool: Pool<Sqlite>,
    pub options: SqliteConnectOptions,
    pub directory: TempDir,
}

impl Scene for OnSqlite {
    type Db = Sqlite;

    const KIND: Kind = Kind::Sqlite;

    async fn bare() -> Self {
        let directory = TempDir::new().expect("a directory");
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("blog.db"))
            .create_if_missing(true)
            .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
            .busy_timeout(std::time::Duration::from_secs(60));
        let pools = SqlitePoolOptions::new().max_connections(CONNECTIONS);
        let pool = pools.connect_with(options.clone()).await.expect("the file opens");
        let scene = Self { pool, options, directory };
        scene
            .run(
                "create table users (_internal_id integer primary key autoincrement, id text not null unique, _version integer not null, name text not null, email text, invited_by integer references users);
                 create table blog_posts (post_number integer primary key autoincrement, post_slug text not null unique, post_version integer not null, post_title text not null, views integer not null, author_number integer not null references users, editor_number integer, created_at integer not null);
                 create table kinds (_internal_id integer primary key autoincrement, id text not null unique, _version integer not null, a_text text, a_uuid text, an_integer integer, a_big integer, a_float real, a_decimal text, a_boolean integer, a_time integer, a_second integer, a_json text, a_binary blob);
                 create table notes (_internal_id integer primary key autoincrement, id text not null unique, _version integer not null, note text)",
            )
            .await
            .expect("the blog is made");
        scene
    }

    run_with_sqlx!(Sqlite, SqliteStore);
}
