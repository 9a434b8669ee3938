//! What the operating system tells the relay.

use tokio::signal::unix::{self, SignalKind};

use crate::exit::{BY_SIGNAL, Failure};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop, because of this signal.
    Stop(i32),
    /// Read the configuration again.
    Reload,
}

/// Signals, from the moment this was made.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    /// A reload was asked for while somebody waited for a stop only.
    reload: bool,
}

impl Signals {
    pub fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            reload: false,
        })
    }

    /// The next thing to do.
    pub async fn next(&mut self) -> Signal {
        if std::mem::take(&mut self.reload) {
            return Signal::Reload;
        }
        self.receive().await
    }

    async fn receive(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop(SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => Signal::Stop(SignalKind::interrupt().as_raw_value()),
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }

    /// Waits for a signal to stop; a wish for a reload is remembered.
    pub async fn stop(&mut self) -> i32 {
        loop {
            match self.receive().await {
                Signal::Stop(number) => return number,
                Signal::Reload => self.reload = true,
            }
        }
    }

    /// From now on a signal to stop ends the process. What is under way is left to its leases.
    pub fn end_at_once_on_the_next(mut self) {
        tokio::spawn(async move {
            let number = self.stop().await;
            tracing::error!(signal = number, "told again to stop: ending at once; what is under way comes again");
            std::process::exit(BY_SIGNAL + number);
        });
    }
}
