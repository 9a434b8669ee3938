//! How far a run is: a bar on a terminal, a line per scenario elsewhere. Nothing ticks while something is measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::measure::Side;
use super::scenario::Scenario;

pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For so many pieces of work.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// What goes on now.
    pub fn now(&self, scenario: &Scenario, round: u32, rounds: u32, side: Side) {
        self.say(format!("{}: round {round} of {rounds}, {}", scenario.name, side.name()));
    }

    pub fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// A piece of work is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        match self.bar.is_hidden() {
            true => eprintln!("{text}"),
            false => self.bar.println(text),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
