//! `postrider purge`.

use std::process::ExitCode;

use postrider::store::{self, Purge};

use super::Decision;
use crate::args::{self, Finished};
use crate::exit::Failure;
use crate::output::{self, messages};

/// Rows per statement, so that none holds locks for long.
const CHUNK: u32 = 1_000;

pub async fn run(arguments: args::Purge) -> Result<ExitCode, Failure> {
    let opened = arguments.target.open_to_change_messages().await?;
    let operator = opened.store.operator();
    let finished = match arguments.state {
        Finished::Delivered => store::Finished::Delivered,
        Finished::Dead => store::Finished::Dead,
    };
    let scope = opened.within(arguments.scope.to_store())?;
    let purge = Purge { scope, finished, older_than: arguments.older_than, limit: CHUNK };
    let found = operator.count_purge(&purge).await?;
    let decision = arguments.consent.decide(found);
    let deleted = match decision {
        Decision::Act => {
            let bar = output::progress(found, "deleted");
            let (who, mut deleted) = (arguments.consent.who(), 0);
            loop {
                let rows = operator.purge_as(&who, &purge).await?;
                deleted += rows;
                bar.set_position(deleted);
                if rows == 0 || deleted >= found {
                    bar.finish_and_clear();
                    break deleted;
                }
            }
        }
        Decision::DryRun | Decision::Differs => 0,
    };
    super::tell(arguments.json, decision, found, deleted, "deleted")?;
    if decision == Decision::Act && deleted < found {
        let left = messages(found - deleted);
        return Err(Failure::failed(format!(
            "{left} were left: another purge or relay may be at work on them; try again"
        )));
    }
    super::code(decision, found)
}
