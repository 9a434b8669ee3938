//! Databases with an outbox and its three roles, and what the tests ask of findings.

use postrider::examine::Thresholds;
use postrider::operate::{Finding, Severity};
use postrider::{AnyStore, Connect, Roles};
use sqlx::{AssertSqlSafe, MySqlPool, PgPool};
use testkit::{Database, MariaDb, MySqlDatabase, Postgres};
use tokio::sync::OnceCell;

/// The password of the roles.
pub const PASSWORD: &str = "known-to-all-tests";

/// A server as a careful user runs it.
pub async fn postgres() -> &'static Postgres {
    static SERVER: OnceCell<Postgres> = OnceCell::const_new();
    let start = || async {
        let options = Postgres::builder().durable().setting("max_prepared_transactions", "10");
        options.start().await.expect("a private PostgreSQL starts")
    };
    SERVER.get_or_init(start).await
}

/// A server as a careful user runs it.
pub async fn mariadb() -> &'static MariaDb {
    static SERVER: OnceCell<MariaDb> = OnceCell::const_new();
    let start = || async { MariaDb::builder().durable().start().await.expect("a private MariaDB starts") };
    SERVER.get_or_init(start).await
}

/// Names that no other test has; servers have roles for all databases together.
fn roles(database: &str) -> Roles {
    let unique = &database["test_".len()..][..12];
    let [producer, relay, operator] = ["producer", "relay", "operator"].map(|role| format!("{role}_{unique}"));
    Roles::new(&producer, &relay, &operator).expect("good names")
}

/// The statements of a text, without its comments.
pub fn statements(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let statements = lines.join("\n");
    statements.split(';').map(|sql| sql.trim().to_owned()).filter(|sql| !sql.is_empty()).collect()
}

pub async fn open(url: &str) -> AnyStore {
    AnyStore::connect(url, &Connect::default()).await.expect("a good URL")
}

/// What tests do with an outbox on either database. The drivers' pools take the same calls and have no type in common.
macro_rules! verbs {
    () => {
        pub async fn run(&self, sql: &str) {
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.admin).await.expect(sql);
        }

        /// What a new relay would be told.
        pub async fn examine(&self) -> Vec<Finding> {
            self.examine_as(self.roles.relay(), &Thresholds::default()).await
        }

        pub async fn examine_as(&self, role: &str, thresholds: &Thresholds) -> Vec<Finding> {
            let store = open(&self.url(role)).await;
            let findings = store.examine_within(thresholds).await.expect("it can be examined");
            store.close().await;
            findings
        }

        /// Runs a finding's SQL.
        pub async fn mend(&self, finding: &Finding) {
            for sql in sql_of(finding) {
                self.run(&sql).await;
            }
        }

        /// Shows a finding, with its fix, that is gone after the fix.
        pub async fn shows_and_mends(&self, name: &str, severity: Severity, word: &str) {
            let finding = one(&self.examine().await, name, severity, word);
            self.mend(&finding).await;
            all_fine(&self.examine().await);
        }

        /// On a database without an outbox: every schema but ours is told.
        pub async fn tells_every_other_schema(&self) {
            let store = open(&self.database.url()).await;
            let missing = one(&store.examine().await.expect("examined"), "schema", Severity::Problem, "no outbox yet");
            assert_eq!(missing.fix.as_deref(), Some("run postrider migrate"));
            store.migrate().await.expect("the migrations run");
            let findings = store.examine().await.expect("examined");
            assert!(!above_fine(&findings).iter().any(|finding| finding.name == "schema"), "{findings:#?}");
            self.run("delete from postrider_migrations where version = 2").await;
            one(&store.examine().await.expect("examined"), "schema", Severity::Problem, "version 2");
            self.run("insert into postrider_migrations (version, name) values (2, 'x'), (9999, 'newer')").await;
            one(&store.examine().await.expect("examined"), "schema", Severity::Problem, "9999");
        }
    };
}

/// An outbox on PostgreSQL with the privileges that `grants` prints.
pub struct OnPostgres {
    pub database: Database,
    pub admin: PgPool,
    pub roles: Roles,
}

impl OnPostgres {
    pub async fn new() -> Self {
        let scene = Self::empty().await;
        let store = open(&scene.database.url()).await;
        store.migrate().await.expect("the migrations run");
        let grants = store.grants(&scene.roles);
        for sql in statements(&grants) {
            scene.run(&sql).await;
        }
        scene
    }

    /// Without an outbox.
    pub async fn empty() -> Self {
        let database = postgres().await.create_database().await.expect("a database is made");
        let admin = database.pool().await.expect("it connects");
        let scene = Self { roles: roles(database.name()), database, admin };
        for role in [scene.roles.producer(), scene.roles.relay(), scene.roles.operator()] {
            scene.run(&format!("create role {role} login password '{PASSWORD}'")).await;
        }
        scene
    }

    pub async fn has(&self, table: &str) -> bool {
        let sql = "select exists (select from pg_class where relname = $1)";
        sqlx::query_scalar(sql).bind(table).fetch_one(&self.admin).await.expect("the catalog answers")
    }

    /// The database's URL for a role.
    pub fn url(&self, role: &str) -> String {
        self.database.url().replace("postgres@", &format!("{role}:{PASSWORD}@"))
    }

    verbs!();
}

/// An outbox on MariaDB with the privileges that `grants` prints.
pub struct OnMySql {
    pub database: MySqlDatabase,
    pub admin: MySqlPool,
    pub roles: Roles,
}

impl OnMySql {
    pub async fn new() -> Self {
        Self::on(mariadb().await).await
    }

    pub async fn on(server: &MariaDb) -> Self {
        let scene = Self::empty(server).await;
        let store = open(&scene.database.url()).await;
        store.migrate().await.expect("the migrations run");
        for sql in statements(&store.grants(&scene.roles)) {
            scene.run(&sql).await;
        }
        scene
    }

    /// Without an outbox.
    pub async fn empty(server: &MariaDb) -> Self {
        let database = server.create_database().await.expect("a database is made");
        let admin = database.pool().await.expect("it connects");
        let scene = Self { roles: roles(database.name()), database, admin };
        for role in [scene.roles.producer(), scene.roles.relay(), scene.roles.operator()] {
            scene.run(&format!("create user {role} identified by '{PASSWORD}'")).await;
        }
        scene
    }

    pub async fn has(&self, table: &str) -> bool {
        let sql =
            "select count(*) > 0 from information_schema.tables where table_schema = database() and table_name = ?";
        sqlx::query_scalar(sql).bind(table).fetch_one(&self.admin).await.expect("the catalog answers")
    }

    /// The database's URL for an account.
    pub fn url(&self, role: &str) -> String {
        let port = self.database.access().get_port();
        format!("mariadb://{role}:{PASSWORD}@127.0.0.1:{port}/{}", self.database.name())
    }

    verbs!();
}

/// The SQL that a fix tells to run: all that comes after `run:`.
pub fn sql_of(finding: &Finding) -> Vec<String> {
    let fix = finding.fix.as_deref().expect("a fix");
    let (_, sql) = fix.split_once("run: ").expect("a fix to run");
    sql.split("; ").map(str::to_owned).collect()
}

pub fn above_fine(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.severity > Severity::Fine).collect()
}

pub fn all_fine(findings: &[Finding]) {
    assert!(findings.len() > 8, "{findings:#?}");
    assert!(above_fine(findings).is_empty(), "{:#?}", above_fine(findings));
    assert!(findings.iter().all(|finding| finding.fix.is_none()), "{findings:#?}");
}

/// The names of the checks that could not be made; each says so first.
pub fn not_examined(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().filter(|finding| !finding.is_examined()).map(|finding| finding.name).collect()
}

/// Their names, which scripts may look for.
pub fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.name).collect()
}

/// The one finding above fine with this name, which says this word.
pub fn one(findings: &[Finding], name: &str, severity: Severity, word: &str) -> Finding {
    let named: Vec<&Finding> = above_fine(findings).into_iter().filter(|finding| finding.name == name).collect();
    let [finding] = named[..] else { panic!("not one {name}: {findings:#?}") };
    assert_eq!(finding.severity, severity, "{finding}");
    assert!(finding.what.contains(word), "{finding} does not say {word}");
    finding.clone()
}

/// A consumer of the changelog that does not get on is named, with since when; what it was told is not.
pub fn names_the_consumer(findings: &[Finding]) {
    let finding = one(findings, "changelog-consumers", Severity::Warning, "\"search\"");
    assert!(finding.what.contains("since 2026-01-02T03:04:05Z"), "{finding}");
    assert!(finding.fix.as_deref().is_some_and(|fix| fix.contains("postrider_cursors")), "{finding}");
    assert!(!finding.to_string().contains("CANARY"), "{finding}");
}

/// Before version 5 there are no consumers to look at, and the missing version is told.
pub fn names_the_missing_version(findings: &[Finding]) {
    one(findings, "schema", Severity::Problem, "version 5");
    assert!(!names(findings).contains(&"changelog-consumers"), "{findings:#?}");
}
