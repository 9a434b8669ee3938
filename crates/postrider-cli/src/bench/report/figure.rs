//! Figures: what is taken of each round, and median and spread over the rounds.

use serde::{Deserialize, Serialize};

use crate::bench::measure::{Round, Side};
use crate::bench::meter::{Latency, Measured};
use crate::bench::scenario::Kind;

/// Which direction is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// Something that is measured of each side in each round.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub better: Better,
    read: fn(&Measured) -> Option<f64>,
}

macro_rules! latency {
    ($field:ident, $part:ident) => {
        |measured| measured.$field.map(|latency: Latency| latency.$part)
    };
}

pub const RATE: Metric =
    Metric { name: "messages_per_second", better: Better::More, read: |measured| Some(measured.rate()) };
pub const P50: Metric = Metric { name: "latency_p50_ms", better: Better::Less, read: latency!(latency, p50) };
pub const P99: Metric = Metric { name: "latency_p99_ms", better: Better::Less, read: latency!(latency, p99) };
pub const SERVER_CPU: Metric =
    Metric { name: "server_cpu_us", better: Better::Less, read: |measured| measured.server_cpu_us };
pub const OWN_CPU: Metric =
    Metric { name: "own_cpu_us", better: Better::Less, read: |measured| Some(measured.own_cpu_us) };
pub const LOG: Metric = Metric { name: "log_bytes", better: Better::Less, read: |measured| measured.log_bytes };
pub const MEMORY: Metric = Metric {
    name: "peak_memory_bytes",
    better: Better::Less,
    read: |measured| measured.peak_memory.map(|bytes| bytes as f64),
};

/// All of them.
pub const METRICS: [&Metric; 9] = [
    &RATE,
    &P50,
    &P99,
    &Metric { name: "pick_up_p50_ms", better: Better::Less, read: latency!(pick_up, p50) },
    &Metric { name: "pick_up_p99_ms", better: Better::Less, read: latency!(pick_up, p99) },
    &SERVER_CPU,
    &OWN_CPU,
    &LOG,
    &MEMORY,
];

/// The figure that a scenario is about.
pub fn headline(kind: Kind) -> &'static Metric {
    if kind.is_of_latency() { &P50 } else { &RATE }
}

/// Median, smallest and largest over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub rounds: usize,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max, rounds) = (*values.first()?, *values.last()?, values.len());
        let middle = rounds / 2;
        let median = if rounds % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, min, max, rounds })
    }

    /// Whether no value of one is within the range of the other.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.max < other.min || other.max < self.min
    }
}

/// A figure of one side.
pub fn of_side(rounds: &[Round], side: Side, metric: &Metric) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|round| (metric.read)(round.get(&side)?)))
}

/// Ours to another side in the same round.
pub fn ratio(rounds: &[Round], to: Side, metric: &Metric) -> Option<Spread> {
    let of_round = |round: &Round| {
        let (ours, other) = ((metric.read)(round.get(&Side::Ours)?)?, (metric.read)(round.get(&to)?)?);
        (other > 0.0).then_some(ours / other)
    };
    Spread::of(rounds.iter().filter_map(of_round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let spread = Spread::of([3.0, 1.0, 10.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max, spread.rounds), (3.0, 1.0, 10.0, 3));
        assert_eq!(Spread::of([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn ranges_that_touch_are_not_apart() {
        let spread = |min, max| Spread { median: min, min, max, rounds: 3 };
        assert!(spread(1.0, 2.0).is_apart_from(&spread(2.1, 3.0)) && spread(2.1, 3.0).is_apart_from(&spread(1.0, 2.0)));
        assert!(!spread(1.0, 2.0).is_apart_from(&spread(2.0, 3.0)));
    }
}
