//! Many seeds, and what they must show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::counts::Counts;
use super::run::{Report, run};
use super::sabotage::Sabotage;

/// Seeds in CI.
const SEEDS: u64 = 2_000;
/// How many seeds that break something are told of.
const EXAMPLES: usize = 10;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")))
}

/// Runs seeds on all cores; answers the sums, and what was broken, by seed.
fn run_all(seeds: u64) -> (Counts, Vec<(u64, Report)>) {
    let (next, done) = (AtomicU64::new(0), Mutex::new((Counts::default(), Vec::new())));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let report = run(seed, false, None);
                    let mut done = done.lock().expect("nobody panics while it holds this");
                    done.0.add(&report.counts);
                    if !report.breaches.is_empty() {
                        done.1.push((seed, report));
                    }
                }
            });
        }
    });
    let (counts, mut broken) = done.into_inner().expect("nobody panicked while it held this");
    broken.sort_by_key(|(seed, _)| *seed);
    (counts, broken)
}

/// How many seeds broke each invariant.
fn by_id(broken: &[(u64, Report)]) -> BTreeMap<String, usize> {
    let mut seeds = BTreeMap::new();
    for (_, report) in broken {
        let ids = report.breaches.iter().map(|breach| breach.split(':').next().unwrap_or_default());
        for id in ids.collect::<BTreeSet<_>>() {
            *seeds.entry(id.to_owned()).or_default() += 1;
        }
    }
    seeds
}

fn tell(broken: &[(u64, Report)]) -> String {
    let one = |(seed, report): &(u64, Report)| format!("seed {seed}: {}", report.breaches.join("\n    "));
    let list: Vec<String> = broken.iter().take(EXAMPLES).map(one).collect();
    let (count, ids, list) = (broken.len(), by_id(broken), list.join("\n"));
    format!("{count} seeds broke something, by invariant {ids:?}:\n{list}")
}

#[test]
fn i1_i2_i3_i4_i5_i6_i7_i8_hold_whatever_the_schedule() {
    if let Some(seed) = setting("POSTRIDER_SIM_SEED") {
        let report = run(seed, true, None);
        println!("{}{:#?}", report.story, report.counts);
        assert!(report.breaches.is_empty(), "seed {seed} broke:\n{}", report.breaches.join("\n"));
        return;
    }
    let (counts, broken) = run_all(setting("POSTRIDER_SIM_SEEDS").unwrap_or(SEEDS));
    println!("{counts:#?}");
    if let Some((seed, report)) = broken.first() {
        let again = run(*seed, true, None);
        println!(
            "{}the same: POSTRIDER_SIM_SEED={seed} cargo test -p testkit --test simulation -- i1_ --nocapture",
            again.story
        );
        assert_eq!(again.breaches, report.breaches, "seed {seed} did not break in the same way again");
    }
    assert!(broken.is_empty(), "{}", tell(&broken));
    if counts.runs >= SEEDS {
        counts.assert_that_much_happened();
    }
}

#[test]
fn a_seed_tells_the_same_story_every_time() {
    for seed in 0..60 {
        let (one, other) = (run(seed, true, None), run(seed, true, None));
        let differs = one.story.lines().zip(other.story.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed} tells two stories");
        assert_eq!(one, other, "seed {seed}");
        assert_eq!(one.counts, run(seed, false, None).counts, "seed {seed} is another one when nobody listens");
    }
}

/// Whether the checker notices, in one of the first seeds.
fn is_noticed(sabotage: Sabotage, id: &str) -> bool {
    (0..40).any(|seed| {
        let breaches = run(seed, false, Some(sabotage)).breaches;
        breaches.iter().any(|breach| breach.starts_with(&format!("{id}:")))
    })
}

#[test]
fn i1_i2_i3_i4_i5_i6_i7_i8_are_seen_broken_where_they_are() {
    for (sabotage, id) in [
        (Sabotage::FalseCommit, "I1"),
        (Sabotage::Swallowed, "I2"),
        (Sabotage::Garbled, "I3"),
        (Sabotage::Repeated, "I4"),
        (Sabotage::Overtaken, "I5"),
        (Sabotage::Meddled, "I6"),
        (Sabotage::Deserted, "I7"),
        (Sabotage::GivenUp, "I8"),
    ] {
        assert!(is_noticed(sabotage, id), "{sabotage:?} went unnoticed by {id}");
    }
}
