//! Free ports on loopback.
//!
//! Ports are taken from below the range that the kernel gives to outgoing connections and to `bind(0)`, so that a
//! server can be stopped and started again without losing its port to a passer-by. A port belongs to the test process
//! that got it until that process ends, also while nobody listens there: the sign of it is a socket without a file,
//! which the kernel takes away with the process. Programs that are no tests know nothing of that and can still take the
//! port: [`on_free_port`] then tries another.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
const ATTEMPTS: usize = 10;

/// The signs of the ports that this process has.
static OURS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Calls `start` with a free port, and again with another one when the port was taken meanwhile.
pub(crate) fn on_free_port(mut start: impl FnMut(u16) -> Result<()>) -> Result<u16> {
    for _ in 1..ATTEMPTS {
        let port = free_port()?;
        match start(port) {
            Ok(()) => return Ok(port),
            Err(error) if was_taken(&error) => continue,
            Err(error) => return Err(error),
        }
    }
    let port = free_port()?;
    start(port).map(|()| port)
}

/// True when a server could not start because its port is in use.
pub(crate) fn was_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").to_lowercase().contains("address already in use")
}

/// A port that is free at this moment, and that no other test gets.
pub fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let port = FIRST + u16::try_from(random % u64::from(COUNT))?;
        let Ok(sign) = sign(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            OURS.lock().unwrap_or_else(PoisonError::into_inner).push(sign);
            return Ok(port);
        }
    }
    bail!("no free port found on loopback between {FIRST} and {}", FIRST + COUNT)
}

/// What shows others that a port is taken; there can be only one.
fn sign(port: u16) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("postrider-test-port-{port}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_port_that_somebody_got_is_got_by_nobody_else_though_nobody_listens() -> Result<()> {
        let port = free_port()?;
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(sign(port).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse));
        Ok(())
    }

    #[test]
    fn another_port_is_tried_when_the_first_was_taken() -> Result<()> {
        let mut tried = 0;
        on_free_port(|_| {
            tried += 1;
            if tried < 3 { Err(anyhow!("could not bind: Address already in use")) } else { Ok(()) }
        })?;
        assert_eq!(tried, 3);
        Ok(())
    }

    #[test]
    fn other_failures_are_not_repeated() {
        let mut tried = 0;
        let outcome = on_free_port(|_| {
            tried += 1;
            Err(anyhow!("disk full"))
        });
        assert!(outcome.is_err());
        assert_eq!(tried, 1);
    }
}
