//! Every input that the fuzzer has kept is tried again by an ordinary test: what was found stays mended, where no fuzzer runs.

#![allow(missing_docs)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../../../fuzz/src/bodies.rs"]
mod bodies;
#[allow(dead_code)] // what other tests share
mod named;

/// What an input may take, in a debug build on a busy machine. It is about time that grows with the square of a length.
const LONGEST: Duration = Duration::from_secs(60);

fn replay(target: &str, run: fn(&[u8])) {
    let inputs = named::root().join("fuzz/corpus").join(target);
    let inputs = fs::read_dir(&inputs).unwrap_or_else(|error| panic!("{}: {error}", inputs.display()));
    let mut paths: Vec<_> = inputs.map(|entry| entry.expect("an input").path()).collect();
    paths.sort();
    assert!(paths.len() > 5, "only {} inputs for {target}", paths.len());
    for path in paths {
        try_one(&path, run);
    }
}

fn try_one(path: &Path, run: fn(&[u8])) {
    let data = fs::read(path).expect("an input can be read");
    let began = Instant::now();
    let done = std::panic::catch_unwind(|| run(&data));
    assert!(done.is_ok(), "{} makes it panic", path.display());
    assert!(began.elapsed() < LONGEST, "{} takes {:?}", path.display(), began.elapsed());
}

#[test]
fn s25_no_input_of_the_corpus_makes_a_target_panic_or_hang() {
    for (target, run) in bodies::TARGETS {
        replay(target, run);
    }
}

#[test]
fn s25_every_target_of_the_fuzzer_is_replayed() {
    let corpus = fs::read_dir(named::root().join("fuzz/corpus")).expect("a corpus");
    let mut names: Vec<String> = corpus
        .map(|entry| entry.expect("a target").file_name().to_string_lossy().into_owned())
        // The binary's own tests replay it, see `config/tests/noise.rs`.
        .filter(|name| name != "configuration")
        .collect();
    names.sort();
    let mut replayed: Vec<&str> = bodies::TARGETS.iter().map(|(name, _)| *name).collect();
    replayed.sort_unstable();
    assert_eq!(names, replayed);
}
