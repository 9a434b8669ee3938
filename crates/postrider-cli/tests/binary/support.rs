//! The real binary, real databases, and a receiver for webhooks.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Database, MariaDb, MySqlDatabase, Postgres, Source, within};
use tokio::process::Command;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A database of its own, and a directory for files.
pub struct Site {
    pub url: String,
    pub directory: TempDir,
    _database: Kept,
}

#[allow(dead_code)] // they are dropped with their databases
enum Kept {
    Postgres(Database),
    MySql(Box<MySqlDatabase>),
    Sqlite,
}

impl Site {
    pub async fn postgres() -> Result<Self> {
        let database = Postgres::shared().await?.create_database().await?;
        Ok(Self { url: database.url(), directory: tempfile::tempdir()?, _database: Kept::Postgres(database) })
    }

    pub async fn mariadb() -> Result<Self> {
        let database = MariaDb::shared().await?.create_database().await?;
        Ok(Self { url: database.url(), directory: tempfile::tempdir()?, _database: Kept::MySql(Box::new(database)) })
    }

    pub async fn sqlite() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let url = format!("sqlite:{}", directory.path().join("outbox.db").display());
        Ok(Self { url, directory, _database: Kept::Sqlite })
    }

    /// One of each kind.
    pub async fn each() -> Result<[Self; 3]> {
        Ok([Self::postgres().await?, Self::mariadb().await?, Self::sqlite().await?])
    }

    /// Brings the schema up to date with the binary.
    pub async fn migrated(self) -> Result<Self> {
        self.postrider(&["migrate"]).await?.succeeded()?;
        Ok(self)
    }

    /// Runs a command about this database to its end.
    pub async fn postrider(&self, arguments: &[&str]) -> Result<Ran> {
        self.postrider_with(arguments, &[], None).await
    }

    /// The same with more variables, and with something on standard input.
    pub async fn postrider_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
        input: Option<&str>,
    ) -> Result<Ran> {
        let mut all = vec![("POSTRIDER_DATABASE_URL", self.url.as_str())];
        if arguments.first() == Some(&"run") {
            all.push(("POSTRIDER__ADMIN__LISTEN", "127.0.0.1:0"));
        }
        all.extend(variables);
        postrider(arguments, &all, input, self.directory.path()).await
    }

    /// Direct access, to look and to prepare.
    pub async fn source(&self) -> Result<Source> {
        Source::connect(&self.url, "tests", 4).await
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// How many rows are in a state.
    pub async fn count(&self, status: &str) -> Result<i64> {
        self.source().await?.count(&format!("select count(*) from outbox_messages where status = '{status}'")).await
    }
}

/// A command that ended.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    pub fn succeeded(self) -> Result<Self> {
        ensure!(self.status.success(), "it failed: {self:#?}");
        Ok(self)
    }

    pub fn failed_with(self, code: i32) -> Result<Self> {
        ensure!(self.code() == code, "not {code}: {self:#?}");
        Ok(self)
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {self:#?}"))
    }

    /// Standard output as JSON lines.
    pub fn json_lines(&self) -> Result<Vec<Value>> {
        self.out.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// All that was printed.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

fn command(arguments: &[&str], variables: &[(&str, &str)], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command
        .args(arguments)
        .env_clear()
        .env("USER", "tester")
        .envs(variables.iter().copied())
        .current_dir(directory)
        .kill_on_drop(true);
    command
}

/// Runs the binary to its end with these variables only.
pub async fn postrider(
    arguments: &[&str],
    variables: &[(&str, &str)],
    input: Option<&str>,
    directory: &Path,
) -> Result<Ran> {
    use tokio::io::AsyncWriteExt as _;
    let mut child = command(arguments, variables, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.unwrap_or("").as_bytes()).await?;
    drop(stdin);
    let ended = tokio::time::timeout(PATIENCE * 2, child.wait_with_output()).await.context("it does not end")??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { status: ended.status, out: text(ended.stdout), err: text(ended.stderr) })
}

/// A running `postrider run` of the binary under test.
pub struct Relay(testkit::relay::Relay);

impl Relay {
    /// Starts it; logs are JSON, and the admin endpoint takes any free port unless the variables say otherwise.
    pub fn spawn(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        let mut all = vec![("POSTRIDER__LOG__FORMAT", "json"), ("POSTRIDER__ADMIN__LISTEN", "127.0.0.1:0")];
        all.extend(variables);
        let whole: Vec<&str> = ["run"].iter().chain(arguments).copied().collect();
        Ok(Self(testkit::relay::Relay::start(command(&whole, &all, Path::new("/")))?))
    }

    /// Starts it with a configuration file, and waits until it delivers.
    pub async fn with_config(config: &Path) -> Result<Self> {
        let relay = Self::spawn(&["--config", &config.display().to_string()], &[])?;
        relay.until_it_delivers().await?;
        Ok(relay)
    }
}

impl Deref for Relay {
    type Target = testkit::relay::Relay;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Relay {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// What a webhook brought.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Arrival {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A receiver of webhooks on loopback that notes every arrival.
#[derive(Clone)]
pub struct Receiver {
    pub url: String,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    answer: Arc<Mutex<Answer>>,
}

/// What the receiver answers.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    pub status: u16,
    pub after: Duration,
}

impl Receiver {
    pub async fn start() -> Result<Self> {
        Self::start_on(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn start_on(address: std::net::SocketAddr) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let receiver = Self {
            url: format!("http://{}", listener.local_addr()?),
            arrivals: Arc::default(),
            answer: Arc::new(Mutex::new(Answer { status: 200, after: Duration::ZERO })),
        };
        let ours = receiver.clone();
        let app = axum::Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let ours = ours.clone();
            async move { ours.receive(&uri, &headers, body).await }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(receiver)
    }

    async fn receive(&self, uri: &Uri, headers: &HeaderMap, body: Bytes) -> StatusCode {
        let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        self.arrivals().push(Arrival { path: uri.path().to_owned(), headers, body: body.to_vec() });
        let answer = *self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::time::sleep(answer.after).await;
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn arrivals(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers so from now on.
    pub fn answer(&self, status: u16, after: Duration) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Answer { status, after };
    }

    /// Waits for so many arrivals.
    pub async fn until(&self, count: usize) -> Result<Vec<Arrival>> {
        within(PATIENCE, &format!("{count} arrivals"), || async { self.arrivals().len() >= count }).await?;
        Ok(self.arrivals().clone())
    }
}

/// A configuration from a database to a receiver.
pub fn config(url: &str, receiver: &str, more: &str) -> String {
    format!(
        r#"
[source.shop]
url = "{url}"
retry_base = "100ms"
retry_max = "1s"
{more}

[sink.hooks]
type = "http"
allow_addresses = ["127.0.0.0/8"]

[[route]]
sink = "hooks"
destination = "{receiver}/hooks"
"#
    )
}
