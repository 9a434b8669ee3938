//! A run in numbers, so that many runs can be added up.

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub runs: u64,
    pub messages: u64,
    pub delivered: u64,
    pub dead: u64,
    pub duplicates: u64,
    pub bound: u64,
    pub claims: u64,
    pub reclaims: u64,
    pub stale: u64,
    pub crashes: u64,
    pub freezes: u64,
    pub restarts: u64,
    pub jumps: u64,
    pub store_faults: u64,
    pub sink_faults: u64,
    pub effects: u64,
}

impl Counts {
    fn each(&mut self) -> [&mut u64; 16] {
        let Self { runs, messages, delivered, dead, duplicates, bound, claims, reclaims, .. } = self;
        let Self { stale, crashes, freezes, restarts, jumps, store_faults, sink_faults, effects, .. } = self;
        [
            runs,
            messages,
            delivered,
            dead,
            duplicates,
            bound,
            claims,
            reclaims,
            stale,
            crashes,
            freezes,
            restarts,
            jumps,
            store_faults,
            sink_faults,
            effects,
        ]
    }

    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.each().into_iter().zip(other.each()).for_each(|(sum, more)| *sum += *more);
    }

    /// A simulation in which nothing goes wrong shows nothing.
    pub fn assert_that_much_happened(mut self) {
        let runs = self.runs;
        let rare = self.each().into_iter().filter(|count| **count < runs / 4).count();
        assert_eq!(rare, 0, "something hardly ever happens: {self:?}");
    }
}
