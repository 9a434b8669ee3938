//! A database with a blog in it, the same on each: what the tests of the changelog stand on.

#![allow(dead_code)] // not every test file uses all of it

use std::future::Future;

use postrider_changelog::{Changelog, Column, Database, Schema, Table, TableBuilder};
use postrider_store::{MySqlStore, Names, PostgresStore, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Row, Sqlite};
use tempfile::TempDir;

/// Connections of a pool: more than there are writers.
const CONNECTIONS: u32 = 40;

/// A row as text.
pub type Cells = Vec<Option<String>>;

/// A database with the tables of a blog, and a changelog.
pub trait Scene: Sized + Send + Sync + 'static {
    type Db: Database;

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

pub struct OnPostgres {
    pub server: &'static testkit::Postgres,
    pub database: testkit::Database,
    pub pool: Pool<Postgres>,
}

impl Scene for OnPostgres {
    type Db = Postgres;

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

    async fn migrate(&self) {
        let store = PostgresStore::new(self.pool.clone(), Names::default());
        store.migrate().await.expect("it is migrated");
    }

    fn pool(&self) -> &Pool<Postgres> {
        &self.pool
    }

    async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
    }

    async fn rows(&self, sql: &str) -> Vec<Cells> {
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await.expect("it can be read");
        rows.iter().map(|row| (0..row.len()).map(|at| row.get(at)).collect()).collect()
    }
}

pub struct OnMySql {
    pub database: testkit::MySqlDatabase,
    pub pool: Pool<MySql>,
}

impl Scene for OnMySql {
    type Db = MySql;

    async fn bare() -> Self {
        let server = testkit::MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let options = MySqlPoolOptions::new().max_connections(CONNECTIONS);
        let pool = options.connect_with(database.access().clone()).await.expect("it answers");
        let scene = Self { database, pool };
        scene
            .run(
                "create table users (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, name text not null, email text, invited_by bigint, foreign key (invited_by) references users (_internal_id)) character set utf8mb4;
                 create table blog_posts (post_number bigint auto_increment primary key, post_slug varchar(190) not null unique, post_version bigint not null, post_title text not null, views int not null, author_number bigint not null, editor_number bigint, created_at datetime(3) not null, foreign key (author_number) references users (_internal_id));
                 create table kinds (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, a_text text, a_uuid char(36), an_integer bigint, a_big bigint, a_float double, a_decimal decimal(10, 2), a_boolean boolean, a_time datetime(3), a_second datetime(0), a_json json, a_binary longblob) character set utf8mb4;
                 create table notes (_internal_id bigint auto_increment primary key, id varchar(190) not null unique, _version bigint not null, note text)",
            )
            .await
            .expect("the blog is made");
        scene
    }

    async fn migrate(&self) {
        let store = MySqlStore::new(self.pool.clone(), Names::default());
        store.migrate().await.expect("it is migrated");
    }

    fn pool(&self) -> &Pool<MySql> {
        &self.pool
    }

    async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
    }

    async fn rows(&self, sql: &str) -> Vec<Cells> {
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await.expect("it can be read");
        rows.iter().map(|row| (0..row.len()).map(|at| row.get(at)).collect()).collect()
    }
}

pub struct OnSqlite {
    pub pool: Pool<Sqlite>,
    pub options: SqliteConnectOptions,
    pub directory: TempDir,
}

impl Scene for OnSqlite {
    type Db = Sqlite;

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

    async fn migrate(&self) {
        let store = SqliteStore::new(self.pool.clone(), Names::default());
        store.migrate().await.expect("it is migrated");
    }

    fn pool(&self) -> &Pool<Sqlite> {
        &self.pool
    }

    async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.map(drop)
    }

    async fn rows(&self, sql: &str) -> Vec<Cells> {
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await.expect("it can be read");
        rows.iter().map(|row| (0..row.len()).map(|at| row.get(at)).collect()).collect()
    }
}
