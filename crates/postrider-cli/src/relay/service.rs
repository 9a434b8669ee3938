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

/// Tells the watchdog that the relay is alive, as long as it makes progress. If it does not, systemd restarts it.
pub async fn watch(current: Current) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return };
    let mut ticks = tokio::time::interval((limit / 3).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        let health = current.health();
        match health.good {
            true => notify(&[NotifyState::Watchdog]),
            false => tracing::error!(health = %health.body, "no progress; the watchdog is not told"),
        }
    }
}
