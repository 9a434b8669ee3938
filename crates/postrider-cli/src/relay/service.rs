//! What systemd is told, where it runs the relay.

use std::time::Duration;

use sd_notify::NotifyState;

use super::health::Current;

fn notify(state: &[NotifyState<'_>]) {
    // Where there is no systemd nothing is sent.
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd cannot be told: {error}");
    }
}

/// The relay delivers.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The relay takes over a new configuration.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The relay stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Tells the watchdog that the relay is alive, as long as no loop is stuck. If one is, systemd restarts it. It would not
/// help against a database or a sink that is down, and would hurt the sources that work.
pub async fn watch(current: Current) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return };
    let mut ticks = tokio::time::interval((limit / 3).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        match current.is_alive() {
            true => notify(&[NotifyState::Watchdog]),
            false => tracing::error!(health = %current.health().body, "a loop is stuck; the watchdog is not told"),
        }
    }
}
