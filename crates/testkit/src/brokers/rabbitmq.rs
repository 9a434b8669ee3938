//! A private RabbitMQ.
//!
//! Promise: a node of its own on free loopback ports, with its own port mapper and cookie, that is gone with the test
//! process however that ends. It can be killed and started again at the same port with its data. Fails when RabbitMQ is
//! not installed (the error names the package), and with its log when it does not start.
//!
//! It takes about ten seconds to start, so a test binary shares one and gives each test queues of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guard::Guard;
use crate::home::Home;
use crate::port::{free_port, on_free_port, was_taken};

const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
const POLL_EVERY: Duration = Duration::from_millis(10);
/// How long the port of a killed server may stay in the way of the next start.
const RELEASED_WITHIN: Duration = Duration::from_secs(120);

/// An account that may do everything on the virtual host `/`.
pub const USER: &str = "postrider";
/// An account that may only read.
pub const READER: &str = "reader";
/// The password of both.
pub const PASSWORD: &str = "canary-broker-password";

/// The largest message that the server takes: far less than it would by itself, so that a larger one costs little.
pub const MAX_MESSAGE_SIZE: usize = 4_000_000;

/// What a server shows to clients that speak TLS; all in PEM.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority whose clients are trusted.
    pub authority: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// A running RabbitMQ. Dropping it ends it.
pub struct RabbitMq {
    ports: Ports,
    guard: Mutex<Guard>,
    environment: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    tls: u16,
    mapper: u16,
    distribution: u16,
}

impl RabbitMq {
    /// Starts a server; it speaks TLS on a port of its own if it has certificates. Blocks: async callers use
    /// `spawn_blocking`.
    pub fn start(certificates: Option<&Certificates>) -> Result<Self> {
        let server = find("rabbitmq-server")?;
        let home = Home::create("postrider-rabbitmq-", None)?;
        let directory = home.path().to_path_buf();
        write(&directory, "definitions.json", &definitions())?;
        write(&directory, "enabled_plugins", "[].\n")?;
        if let Some(certificates) = certificates {
            write(&directory, "authority.pem", &certificates.authority)?;
            write(&directory, "certificate.pem", &certificates.certificate)?;
            write(&directory, "key.pem", &certificates.key)?;
        }
        let mut others = Ports { amqp: 0, tls: free_port()?, mapper: free_port()?, distribution: free_port()? };
        // The guard's command is fixed, so what changes with the ports is in a file.
        let script = directory.join("start.sh");
        let mut guard = Guard::new(home, "KILL", &["/bin/sh".into(), OsString::from(&script)])?;
        let mut environment = Vec::new();
        let amqp = on_free_port(|port| {
            others.amqp = port;
            environment = variables(&directory, others);
            write(&directory, "rabbitmq.conf", &configuration(&directory, others, certificates.is_some()))?;
            write(&directory, "start.sh", &start_script(&environment, others, &server))?;
            start(&mut guard)
        })?;
        Ok(Self { ports: Ports { amqp, ..others }, guard: Mutex::new(guard), environment })
    }

    /// The port for AMQP on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// The port for AMQP over TLS on 127.0.0.1.
    pub fn tls_port(&self) -> u16 {
        self.ports.tls
    }

    /// Kills the server; what it has on disk, it keeps.
    pub fn kill(&self) -> Result<()> {
        self.guard().stop()
    }

    /// Starts the killed server again, on the same ports.
    pub fn restart(&self) -> Result<()> {
        let mut guard = self.guard();
        guard.stop()?;
        let deadline = Instant::now() + RELEASED_WITHIN;
        while let Err(error) = start(&mut guard) {
            if !(was_taken(&error) || error.to_string().contains("eaddrinuse")) || Instant::now() > deadline {
                return Err(error.context("cannot start RabbitMQ again"));
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// Runs `rabbitmqctl` against this node. Blocks for some seconds.
    pub fn control(&self, arguments: &[&str]) -> Result<String> {
        let program = find("rabbitmqctl")?;
        let mut command: Command = self.guard().home().command(program);
        let variables = self.environment.iter().map(|(name, value)| (name, value));
        let output = command.envs(variables).args(arguments).output().context("cannot run rabbitmqctl")?;
        if !output.status.success() {
            bail!("rabbitmqctl {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(program: &str) -> Result<PathBuf> {
    let path = Path::new(PROGRAMS).join(program);
    match path.is_file() {
        true => Ok(path),
        false => bail!("{program} is not there: install the Debian package rabbitmq-server"),
    }
}

/// Each start logs that it is complete, so there must be one more such line than before.
fn start(guard: &mut Guard) -> Result<()> {
    const COMPLETE: &str = "Server startup complete";
    let before = guard.home().log_after(0).matches(COMPLETE).count();
    guard.start_until(|_, home| home.log_after(0).matches(COMPLETE).count() > before)
}

/// Also the control program needs these.
fn variables(directory: &Path, ports: Ports) -> Vec<(String, String)> {
    let at = |name: &str| directory.join(name).display().to_string();
    let erlang = "+S 2:2 +sbwt none -noinput -kernel inet_dist_use_interface {127,0,0,1}";
    [
        ("HOME", directory.display().to_string()),
        ("ERL_EPMD_PORT", ports.mapper.to_string()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODENAME", format!("postrider-{}@localhost", ports.amqp)),
        ("RABBITMQ_DIST_PORT", ports.distribution.to_string()),
        ("RABBITMQ_MNESIA_BASE", at("mnesia")),
        ("RABBITMQ_LOG_BASE", at("logs")),
        ("RABBITMQ_LOGS", "-".into()),
        ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", at("generated")),
        ("RABBITMQ_SCHEMA_DIR", at("schema")),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", erlang.into()),
        // The start script then becomes the server, and has no child that would outlive it.
        ("RABBITMQ_ALLOW_INPUT", "1".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The port mapper dies with the server, however that ends.
fn start_script(environment: &[(String, String)], ports: Ports, server: &Path) -> String {
    let variables: String = environment.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
    format!(
        "{variables}setpriv --pdeathsig KILL epmd -port {} -address 127.0.0.1 &\nexec {}\n",
        ports.mapper,
        server.display()
    )
}

fn configuration(directory: &Path, ports: Ports, tls: bool) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let mut text = format!(
        "listeners.tcp.1 = 127.0.0.1:{}\n\
         load_definitions = {}\n\
         log.console = true\n\
         log.console.level = info\n\
         log.file = false\n\
         disk_free_limit.absolute = 1MB\n\
         max_message_size = {MAX_MESSAGE_SIZE}\n",
        ports.amqp,
        at("definitions.json")
    );
    if tls {
        text += &format!(
            "listeners.ssl.1 = 127.0.0.1:{}\n\
             ssl_options.cacertfile = {}\n\
             ssl_options.certfile = {}\n\
             ssl_options.keyfile = {}\n\
             ssl_options.verify = verify_peer\n\
             ssl_options.fail_if_no_peer_cert = false\n",
            ports.tls,
            at("authority.pem"),
            at("certificate.pem"),
            at("key.pem")
        );
    }
    text
}

fn definitions() -> String {
    let user = |name: &str, tags: &str| serde_json::json!({ "name": name, "password": PASSWORD, "tags": tags });
    let may = |name: &str, configure: &str, write: &str| serde_json::json!({ "user": name, "vhost": "/", "configure": configure, "write": write, "read": ".*" });
    serde_json::json!({
        "users": [user(USER, "administrator"), user(READER, "")],
        "vhosts": [{ "name": "/" }],
        "permissions": [may(USER, ".*", ".*"), may(READER, "^$", "^$")],
    })
    .to_string()
}

/// The server's account must be able to read it.
fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(directory.join(name), text).with_context(|| format!("cannot write {name}"))
}
