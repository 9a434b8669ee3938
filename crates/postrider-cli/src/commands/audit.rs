//! `postrider audit`.

use std::process::ExitCode;

use postrider::operate::{AuditEntry, LARGEST_CHANGE, Operator};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{Audit, Colour};
use crate::exit::Failure;
use crate::output::{self, line, plain, short_time, time};

pub async fn run(arguments: Audit, colour: Colour) -> Result<ExitCode, Failure> {
    let opened = arguments.target.open().await?;
    let entries = entries(&*opened.store.operator(), &arguments, opened.only()).await?;
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
        match opened.only() {
            Some(tenant) => line(&format!("nothing was asked for tenant {tenant} by operators yet"))?,
            None => line("nothing was done by operators yet")?,
        }
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

/// The lines that are asked for; of a source for one tenant, those of what was asked for that tenant. What was asked for all of them may
/// have changed its messages too, and is not told, because it names those of others.
async fn entries(operator: &dyn Operator, arguments: &Audit, only: Option<Uuid>) -> Result<Vec<AuditEntry>, Failure> {
    let Some(only) = only else { return Ok(operator.audit_before(arguments.before, arguments.limit).await?) };
    let wanted = usize::try_from(arguments.limit.min(LARGEST_CHANGE)).unwrap_or(usize::MAX);
    let (mut before, mut found) = (arguments.before, Vec::new());
    while found.len() < wanted {
        let page = operator.audit_before(before, LARGEST_CHANGE).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        found.extend(page.into_iter().filter(|entry| is_for(entry, only)));
    }
    found.truncate(wanted);
    Ok(found)
}

/// Whether this tenant was asked for.
fn is_for(entry: &AuditEntry, tenant: Uuid) -> bool {
    let asked: Option<Value> = serde_json::from_str(&entry.asked).ok();
    asked.is_some_and(|asked| asked["tenant"].as_str().and_then(|text| text.parse().ok()) == Some(tenant))
}
