//! Draining a backlog through a real sink, and looking at its destination whether everything is there.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use postrider::Sink;

use super::{Outcome, Side, Stage, bare_loop, drain};
use crate::bench::destination::{Place, read_all};
use crate::bench::ledger::Ledger;
use crate::bench::server::Site;
use crate::bench::sink::Counted;
use crate::output;

pub async fn run(stage: Stage<'_>, site: &dyn Site, side: Side) -> Result<Outcome> {
    let destination = stage.destination.context("the scenario has no destination")?;
    // Calls are made at the same time, so nothing is said about order here.
    let arrivals = Arc::new(bare_loop::unordered(&stage.scenario.with));
    let Place { sink, reader } = destination.place(&arrivals).await?;
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
    use crate::bench::scenario::Parameters;

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
