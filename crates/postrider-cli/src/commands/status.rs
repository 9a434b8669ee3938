//! `postrider status`.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comfy_table::Color;
use postrider::operate::Tally;
use postrider::{State, Use};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::args::{Colour, Status};
use crate::config::Source;
use crate::exit::Failure;
use crate::output::{self, line, number, plain, span};
use crate::target::{self, Missing, Opened};

pub async fn run(arguments: Status, colour: Colour) -> Result<ExitCode, Failure> {
    let sources = arguments.target.sources()?;
    let coloured = output::is_coloured(colour, &std::io::stdout());
    if arguments.watch {
        return watch(&sources, &arguments, coloured).await;
    }
    let mut code = super::done();
    for (name, source) in &sources {
        // A source that does not answer hides no other.
        match look(name, source, &arguments).await {
            Ok(now) => now.print(None, &arguments, coloured)?,
            Err(failure) => {
                code = tell_of_failure(name, &failure, arguments.json)?;
            }
        }
    }
    Ok(code)
}

async fn look(name: &str, source: &Source, arguments: &Status) -> Result<Snapshot, Failure> {
    let opened = open(name, source).await?;
    Snapshot::take(&opened, arguments).await
}

async fn open(name: &str, source: &Source) -> Result<Opened, Failure> {
    let opened = target::open(name.to_owned(), source, Missing::Refuse).await?;
    opened.sees_messages(Use::Read).await?;
    Ok(opened)
}

fn tell_of_failure(name: &str, failure: &Failure, as_json: bool) -> Result<ExitCode, Failure> {
    match as_json {
        true => output::json(&json!({ "source": name, "error": failure.to_string() }))?,
        false => eprintln!("postrider: {failure}"),
    }
    Ok(failure.into())
}

/// Shows it until the operator ends it.
async fn watch(sources: &[(String, Source)], arguments: &Status, coloured: bool) -> Result<ExitCode, Failure> {
    let redraw = std::io::stdout().is_terminal() && !arguments.json;
    let mut before: BTreeMap<&str, Snapshot> = BTreeMap::new();
    let mut opened: BTreeMap<&str, Opened> = BTreeMap::new();
    let mut ticks = tokio::time::interval(arguments.every.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(super::done()),
        }
        let mut taken = Vec::new();
        for (name, source) in sources {
            taken.push((name.as_str(), look_again(name, source, &mut opened, arguments).await));
        }
        if redraw {
            // Home and clear to the end, so that the picture does not flicker.
            print!("\u{1b}[H\u{1b}[J");
        }
        for (name, now) in taken {
            match now {
                Ok(now) => {
                    now.print(before.get(name), arguments, coloured)?;
                    before.insert(name, now);
                }
                Err(failure) => {
                    tell_of_failure(name, &failure, arguments.json)?;
                }
            }
        }
        std::io::stdout().flush()?;
    }
}

/// Looks over the connections of before, or connects.
async fn look_again<'a>(
    name: &'a str,
    source: &Source,
    opened: &mut BTreeMap<&'a str, Opened>,
    arguments: &Status,
) -> Result<Snapshot, Failure> {
    if !opened.contains_key(name) {
        opened.insert(name, open(name, source).await?);
    }
    match opened.get(name) {
        Some(source) => Snapshot::take(source, arguments).await,
        None => Err(Failure::failed("it is not open")),
    }
}

/// What a source holds at a moment.
struct Snapshot {
    name: String,
    tallies: Vec<Tally>,
    taken: Instant,
}

impl Snapshot {
    async fn take(source: &Opened, arguments: &Status) -> Result<Self, Failure> {
        let operator = source.store.operator();
        let scope = source.within(arguments.scope.to_store())?;
        let tallies = operator.overview(&scope, !arguments.no_delivered).await?;
        Ok(Self { name: source.name.clone(), tallies, taken: Instant::now() })
    }

    fn sum(&self, state: State, of: impl Fn(&Tally) -> u64) -> u64 {
        self.tallies.iter().filter(|tally| tally.state == state).map(of).sum()
    }

    fn oldest_due(&self) -> Duration {
        let pending = self.tallies.iter().filter(|tally| tally.state == State::Pending && tally.due > 0);
        pending.map(|tally| tally.oldest).max().unwrap_or_default()
    }

    /// Messages per second: since the picture before, or of the last minute. There is no telling where delivered
    /// messages are not kept, or some were deleted since.
    fn delivered_rate(&self, before: Option<&Snapshot>) -> Option<f64> {
        let delivered = |snapshot: &Snapshot| snapshot.sum(State::Delivered, |tally| tally.messages);
        match before {
            _ if delivered(self) == 0 => None,
            Some(before) => {
                let passed = self.taken.duration_since(before.taken).as_secs_f64().max(0.001);
                delivered(self).checked_sub(delivered(before)).map(|more| more as f64 / passed)
            }
            None => Some(self.sum(State::Delivered, |tally| tally.last_minute) as f64 / 60.0),
        }
    }

    fn print(&self, before: Option<&Snapshot>, arguments: &Status, coloured: bool) -> Result<(), Failure> {
        match arguments.json {
            true => output::json(&self.to_json(before)),
            false => line(&self.to_text(before, coloured, arguments.no_delivered)),
        }
    }

    fn to_json(&self, before: Option<&Snapshot>) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let topics = self.tallies.iter().map(|tally| {
            json!({
                "namespace": tally.namespace, "topic": tally.topic, "state": tally.state.as_str(),
                "messages": tally.messages, "last_minute": tally.last_minute, "due": tally.due,
                "oldest_seconds": tally.oldest.as_secs_f64(),
            })
        });
        json!({
            "source": self.name,
            "at": output::time(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)),
            "pending": self.sum(State::Pending, |tally| tally.messages),
            "due": self.sum(State::Pending, |tally| tally.due),
            "processing": self.sum(State::Processing, |tally| tally.messages),
            "delivered": self.sum(State::Delivered, |tally| tally.messages),
            "dead": self.sum(State::Dead, |tally| tally.messages),
            "oldest_due_seconds": self.oldest_due().as_secs_f64(),
            "delivered_per_second": self.delivered_rate(before),
            "pending_last_minute": self.sum(State::Pending, |tally| tally.last_minute),
            "topics": topics.collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, before: Option<&Snapshot>, coloured: bool, no_delivered: bool) -> String {
        let mut table = output::table(
            &["namespace", "topic", "pending", "due", "processing", "delivered", "dead", "oldest due", "delivered/min"],
            coloured,
        );
        for ((namespace, topic), row) in self.by_topic() {
            let dead = match row.dead {
                0 => number(0),
                dead => output::marked(&dead.to_string(), Color::Red).set_alignment(comfy_table::CellAlignment::Right),
            };
            let delivered = if no_delivered { "-".to_owned() } else { row.delivered.to_string() };
            table.add_row(vec![
                output::cell(&plain(namespace)),
                output::cell(&plain(topic)),
                number(row.pending),
                number(row.due),
                number(row.processing),
                number(delivered),
                dead,
                number(if row.due > 0 { span(row.oldest_due) } else { "-".into() }),
                number(if no_delivered { "-".to_owned() } else { row.delivered_last_minute.to_string() }),
            ]);
        }
        let sum = |state| self.sum(state, |tally| tally.messages);
        let due = self.sum(State::Pending, |tally| tally.due);
        let mut text = format!(
            "{}: {} pending ({due} due{}), {} processing, {} dead",
            self.name,
            sum(State::Pending),
            if due > 0 { format!(", the oldest for {}", span(self.oldest_due())) } else { String::new() },
            sum(State::Processing),
            sum(State::Dead),
        );
        if !no_delivered {
            let rate = self.delivered_rate(before).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
            text += &format!(", {} delivered ({rate}/s)", sum(State::Delivered));
        }
        match self.tallies.is_empty() {
            true => format!("{text}\nthere are no messages"),
            false => format!("{text}\n{table}"),
        }
    }

    fn by_topic(&self) -> BTreeMap<(&str, &str), Row> {
        let mut rows: BTreeMap<(&str, &str), Row> = BTreeMap::new();
        for tally in &self.tallies {
            let row = rows.entry((&tally.namespace, &tally.topic)).or_default();
            match tally.state {
                State::Pending => {
                    (row.pending, row.due, row.oldest_due) = (tally.messages, tally.due, tally.oldest);
                }
                State::Processing => row.processing = tally.messages,
                State::Delivered => {
                    (row.delivered, row.delivered_last_minute) = (tally.messages, tally.last_minute);
                }
                State::Dead => row.dead = tally.messages,
            }
        }
        rows
    }
}

#[derive(Default)]
struct Row {
    pending: u64,
    due: u64,
    oldest_due: Duration,
    processing: u64,
    delivered: u64,
    delivered_last_minute: u64,
    dead: u64,
}
