//! What happened in a run, line by line with the simulated time. Written only when somebody wants to read it: a run that
//! breaks something is run once more with its story. Nothing in it comes from outside the simulation (no id, no real
//! time), so that the same seed tells the same story to the byte.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The most lines that are kept; older ones are left out.
const LONGEST: usize = 20_000;

#[derive(Clone)]
pub struct Story {
    begun: Instant,
    lines: Option<Arc<Mutex<Lines>>>,
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<String>,
    left_out: usize,
}

impl Story {
    pub fn new(told: bool) -> Self {
        Self { begun: Instant::now(), lines: told.then(Arc::default) }
    }

    pub fn tell(&self, line: impl FnOnce() -> String) {
        let Some(lines) = &self.lines else { return };
        let at = self.begun.elapsed().as_secs_f64();
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.kept.len() == LONGEST {
            lines.kept.pop_front();
            lines.left_out += 1;
        }
        lines.kept.push_back(format!("{at:9.3}  {}", line()));
    }

    pub fn text(&self) -> String {
        let Some(lines) = &self.lines else { return String::new() };
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if lines.left_out > 0 {
            let _ = writeln!(text, "({} earlier lines are left out)", lines.left_out);
        }
        lines.kept.iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        text
    }
}
