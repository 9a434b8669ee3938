//! `postrider audit`.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::args::{Audit, Colour};
use crate::exit::Failure;
use crate::output::{self, line, plain, short_time, time};

pub async fn run(arguments: Audit, colour: Colour) -> Result<ExitCode, Failure> {
    let opened = arguments.target.open().await?;
    let entries = opened.store.operator().audit_before(arguments.before, arguments.limit).await?;
    if arguments.json {
        for entry in &entries {
            let asked: Value = serde_json::from_str(&entry.asked).unwrap_or_else(|_| json!(entry.asked));
            output::json(&json!({
                "number": entry.seq, "at": time(entry.at_micros), "who": entry.who, "action": entry.action, "asked": asked,
                "messages": entry.messages, "ids": entry.ids,
            }))?;
        }
        return Ok(super::done());
    }
    if entries.is_empty() {
        line("nothing was done by operators yet")?;
        return Ok(super::done());
    }
    let mut table = output::table(
        &["number", "at", "who", "action", "messages", "asked"],
        output::is_coloured(colour, &std::io::stdout()),
    );
    for entry in &entries {
        table.add_row(vec![
            output::number(entry.seq),
            output::cell(&short_time(entry.at_micros)),
            output::cell(&plain(&entry.who)),
            output::cell(&plain(&entry.action)),
            output::number(entry.messages),
            output::cell(&plain(&entry.asked)),
        ]);
    }
    line(&table.to_string())?;
    Ok(super::done())
}
