//! Draining a backlog through a real sink, and looking at its destination whether everything is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider::Sink;

use super::bare_loop::{self, Handling};
use super::{Outcome, Side, Stage, drain};
use crate::bench::destination::{Place, read_all};
use crate::bench::ledger::Ledger;
use crate::bench::letter::Letters;
use crate::bench::scenario::Parameters;
use crate::bench::server::Site;
use crate::bench::sink::Counted;
use crate::output;

/// Before it is measured a server gets a part of the work, so that its first steps fall on neither side.
const WARM_UP: u32 = 10;
/// How long a sink may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ASKS_EVERY: Duration = Duration::from_millis(100);

/// Lets a server that was started for this do some work. Somebody else's gets nothing that is not measured.
pub async fn warm_up(stage: Stage<'_>) -> Result<()> {
    stage.progress.say(format!("{}: warming up", stage.scenario.name));
    let with = Parameters { messages: stage.scenario.with.messages.div_ceil(WARM_UP), ..stage.scenario.with.clone() };
    let (there, ledger) = (Arc::new(bare_loop::unordered(&with)), bare_loop::unordered(&with));
    let destination = stage.destination.context("the scenario has no destination")?;
    let Place { sink, reader: Some(_reader) } = destination.place(&there).await? else { return Ok(()) };
    until_ready(&*sink).await?;
    let numbers: Vec<u32> = (0..with.messages).collect();
    let handling = Handling::Sink { sink, letters: Letters::of(&with), calls: with.concurrency };
    handling.hand_on(&numbers, &ledger).await
}

async fn until_ready(sink: &dyn Sink) -> Result<()> {
    let began = Instant::now();
    while let Err(why) = sink.ready().await {
        ensure!(began.elapsed() < READY_WITHIN, "the sink is not ready: {why}");
        tokio::time::sleep(ASKS_EVERY).await;
    }
    Ok(())
}

pub async fn run(stage: Stage<'_>, site: &dyn Site, side: Side) -> Result<Outcome> {
    let destination = stage.destination.context("the scenario has no destination")?;
    // Calls are made at the same time, so nothing is said about order here.
    let arrivals = Arc::new(bare_loop::unordered(&stage.scenario.with));
    let Place { sink, reader } = destination.place(&arrivals).await?;
    until_ready(&*sink).await?;
    let (mut outcome, handed) = through(stage, site, side, sink).await?;
    // What the sink itself says is missing need not be looked for.
    if let Some(mut reader) = reader.filter(|_| outcome.broken.is_empty()) {
        let messages = stage.scenario.with.messages;
        read_all(&mut *reader, &arrivals, messages).await?;
        outcome.broken = verdict(&arrivals, handed.saturating_sub(messages));
    }
    Ok(outcome)
}

/// Drains through a sink, which is gone afterwards; also answers how many messages it was handed.
async fn through(stage: Stage<'_>, site: &dyn Site, side: Side, sink: Arc<dyn Sink>) -> Result<(Outcome, u32)> {
    let counted = Arc::new(Counted::new(sink));
    let sink: Arc<dyn Sink> = counted.clone();
    let stage = Stage { sink: Some(&sink), ..stage };
    let outcome = match side {
        Side::Ours => drain::run(stage, site).await?,
        _ => bare_loop::run(stage, site, side.table()).await?,
    };
    Ok((outcome, counted.handed()))
}

/// All that is wrong at the destination. What was sent again, because its answer did not come in time, may be there again: at
/// least once is the contract, and a slow machine breaks nothing.
fn verdict(arrivals: &Ledger, sent_again: u32) -> Vec<String> {
    let [repeated, ..] = arrivals.faults();
    let too_many = repeated.saturating_sub(sent_again);
    let mut found = arrivals.verdict_but_repeats();
    if too_many > 0 {
        let how_many = output::messages(too_many.into());
        found.push(format!("{how_many} arrived more than once, without having been sent again"));
    }
    found.into_iter().map(|what| format!("at the destination, {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(numbers: impl IntoIterator<Item = u32>) -> Ledger {
        let ledger = Ledger::new(10, &Parameters::default());
        numbers.into_iter().for_each(|n| ledger.note_number(n));
        ledger
    }

    #[test]
    fn everything_once_is_well() {
        assert_eq!(verdict(&arrivals(0..10), 0), [""; 0]);
    }

    #[test]
    fn what_is_not_there_is_lost_whatever_the_sink_said() {
        assert_eq!(verdict(&arrivals(0..9), 5), ["at the destination, 1 message never arrived"]);
    }

    #[test]
    fn a_repeat_must_have_been_sent_again() {
        let twice = || arrivals((0..10).chain([3, 4]));
        assert_eq!(verdict(&twice(), 2), [""; 0]);
        let found = verdict(&twice(), 1);
        assert_eq!(found, ["at the destination, 1 message arrived more than once, without having been sent again"]);
    }
}
