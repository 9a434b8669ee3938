//! The line of JSON that a job prints. Programs in other languages print the same fields.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ledger::Ledger;

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub peer: &'static str,
    pub job: &'static str,
    pub messages: u32,
    pub seconds: f64,
    pub per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Latency>,
    pub missing: u32,
    pub repeated: u32,
    pub foreign: u32,
    /// Rows that were not settled although all messages arrived.
    pub open: i64,
    pub ok: bool,
    pub settings: BTreeMap<String, String>,
}

impl Report {
    /// Takes over what the ledger says.
    pub fn checked(mut self, ledger: &Ledger) -> Self {
        (self.missing, self.repeated, self.foreign) = (ledger.missing(), ledger.repeated(), ledger.foreign());
        self.ok = self.missing == 0 && self.repeated == 0 && self.foreign == 0 && self.open == 0;
        self
    }
}

/// Percentiles by nearest rank, in milliseconds.
#[derive(Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Latency {
    /// Of nanoseconds.
    pub fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let rank = |share: f64| ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1;
        let ms = |at: usize| values[at] as f64 / 1e6;
        (!values.is_empty()).then(|| Self { p50: ms(rank(0.5)), p99: ms(rank(0.99)), max: ms(values.len() - 1) })
    }
}
