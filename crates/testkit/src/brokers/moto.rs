//! A private moto: the programming interfaces of AWS on loopback.
//!
//! Promise: a server of its own on a free loopback port, empty at first, gone with the test process however that ends.
//! It keeps everything in memory: after a restart it is empty again. Fails when it is not installed (the error names the
//! script that installs it), and with its log when it does not start.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::venv;
use crate::guard::Guard;
use crate::home::Home;
use crate::port::{on_free_port, was_taken};

/// A queue may be emptied as often as somebody likes; AWS wants a minute in between.
const SETTINGS: &str = "export MOTO_SQS_ENFORCE_STRICT_QUEUE_PURGE_BEHAVIOUR=false\n";
const POLL_EVERY: Duration = Duration::from_millis(10);
const RELEASED_WITHIN: Duration = Duration::from_secs(120);

/// A running moto. Dropping it ends it.
pub struct Moto {
    port: u16,
    guard: Mutex<Guard>,
}

impl Moto {
    /// Starts a server. Blocks: async callers use `spawn_blocking`.
    pub fn start() -> Result<Self> {
        let python = venv::python()?;
        let home = Home::of_caller("postrider-moto-")?;
        let script = home.path().join("start.sh");
        let mut guard = Guard::new(home, "KILL", &["/bin/sh".into(), OsString::from(&script)])?;
        let port = on_free_port(|port| {
            let text = format!("{SETTINGS}exec {} -m moto.server -H 127.0.0.1 -p {port}\n", python.display());
            std::fs::write(&script, text).context("cannot write the start script")?;
            start(&mut guard, port)
        })?;
        Ok(Self { port, guard: Mutex::new(guard) })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server, and all it has.
    pub fn kill(&self) -> Result<()> {
        self.guard().stop()
    }

    /// Starts the killed server again, empty, on the same port.
    pub fn restart(&self) -> Result<()> {
        let mut guard = self.guard();
        guard.stop()?;
        let deadline = Instant::now() + RELEASED_WITHIN;
        while let Err(error) = start(&mut guard, self.port) {
            if !was_taken(&error) || Instant::now() > deadline {
                return Err(error.context("cannot start moto again"));
            }
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another process may answer on the port, so our own log must say that it is up as well.
fn start(guard: &mut Guard, port: u16) -> Result<()> {
    let up = format!("Running on http://127.0.0.1:{port}");
    let before = guard.home().log_after(0).matches(&up).count();
    guard.start_until(|_, home| {
        home.log_after(0).matches(&up).count() > before && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    })
}
