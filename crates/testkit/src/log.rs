//! All that a process logs, for tests that look for secrets in it.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps what is logged from [`Log::listen`] on, at every level, through `tracing` and through the `log` facade.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens to the whole process.
    ///
    /// # Panics
    ///
    /// If somebody listens already: a process has one log.
    pub fn listen() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).expect("nobody else listens");
        log::set_boxed_logger(Box::new(log.clone())).expect("nobody else listens");
        log::set_max_level(log::LevelFilter::Trace);
        log
    }

    /// All that was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("log {} {}: {}\n", record.level(), record.target(), record.args());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line.as_bytes());
    }

    fn flush(&self) {}
}
