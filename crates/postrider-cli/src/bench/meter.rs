//! What a piece of work costs: time, CPU here and at the server, bytes of the server's log, memory.
//!
//! What cannot be measured is left out, and never guessed.

pub mod memory;
pub mod processes;

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::server::{Server, Used};

/// Figures of one side in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub messages: u64,
    pub seconds: f64,
    /// CPU of the process that did it, per message, in microseconds. Where relays have processes of their own, theirs.
    pub own_cpu_us: f64,
    /// CPU of the server's processes, per message, in microseconds. Whatever else the server did meanwhile is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_us: Option<f64>,
    /// Bytes of the server's log, per message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<f64>,
    /// The most memory that the process had meanwhile. Where several relays have processes of their own, the largest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// From the time at which a message was to be written to the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// From the first statement of its transaction to the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick_up: Option<Latency>,
}

impl Measured {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    /// By an HDR histogram, to three digits.
    pub fn of(durations: impl Iterator<Item = Duration>) -> Result<Self> {
        let mut histogram = hdrhistogram::Histogram::<u64>::new(3)?;
        for duration in durations {
            histogram.record(u64::try_from(duration.as_nanos())?)?;
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Ok(Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1e6 })
    }
}

/// CPU that this process has used.
pub fn own_cpu() -> Duration {
    let part = |time: nix::sys::time::TimeVal| {
        Duration::new(u64::try_from(time.tv_sec()).unwrap_or(0), u32::try_from(time.tv_usec() * 1_000).unwrap_or(0))
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |used| part(used.user_time()) + part(used.system_time()))
}

/// Runs from its start to its stop. Nothing else goes on in the process meanwhile.
pub struct Meter<'a> {
    server: &'a dyn Server,
    used: Used,
    memory: bool,
    own_cpu: Duration,
    began: Instant,
}

impl<'a> Meter<'a> {
    pub async fn start(server: &'a dyn Server) -> Result<Self> {
        let used = server.used().await?;
        let memory = memory::forget_peak();
        Ok(Self { server, used, memory, own_cpu: own_cpu(), began: Instant::now() })
    }

    /// What so many messages cost.
    pub async fn stop(self, messages: u32) -> Result<Measured> {
        let (took, own_cpu) = (self.began.elapsed(), own_cpu().saturating_sub(self.own_cpu));
        let peak_memory = if self.memory { memory::peak() } else { None };
        let now = self.server.used().await?;
        let each = |total: f64| total / f64::from(messages.max(1));
        let server_cpu = now.cpu.zip(self.used.cpu).map(|(now, before)| now.saturating_sub(before));
        let log = now.log.zip(self.used.log).map(|(now, before)| now.saturating_sub(before));
        Ok(Measured {
            messages: messages.into(),
            seconds: took.as_secs_f64(),
            own_cpu_us: each(own_cpu.as_secs_f64() * 1e6),
            server_cpu_us: server_cpu.map(|cpu| each(cpu.as_secs_f64() * 1e6)),
            log_bytes: log.map(|bytes| each(bytes as f64)),
            peak_memory,
            latency: None,
            pick_up: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_durations() {
        let latency = Latency::of((1..=1_000).map(Duration::from_millis)).expect("a histogram");
        assert!((latency.p50 - 500.0).abs() < 1.0 && (latency.p99 - 990.0).abs() < 1.0 && latency.max >= 1_000.0);
    }

    #[test]
    fn work_costs_cpu() {
        let before = own_cpu();
        while own_cpu() == before {
            std::hint::spin_loop();
        }
        assert!(own_cpu() > before);
    }
}
