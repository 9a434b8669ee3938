//! `postrider changelog`.

use std::collections::BTreeSet;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::{Cell, Color};
use futures::StreamExt as _;
use postrider_changelog::{
    After, ConsumerState, Cursor, Entry, FollowConfig, LARGEST_LIMIT, Reader, Versionstamp, follow,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{
    Changelog, ChangelogChange, ChangelogForget, ChangelogList, ChangelogPlace, ChangelogReset, Colour, Target,
};
use crate::exit::{Failure, with_causes};
use crate::output::{self, line, plain, short_time, span, time};
use crate::target::Opened;

/// How many entries are listed unless it is said.
const LISTED: u64 = 100;

pub async fn run(changelog: Changelog, colour: Colour) -> Result<ExitCode, Failure> {
    let coloured = output::is_coloured(colour, &std::io::stdout());
    match changelog {
        Changelog::List(list) if list.follow => self::follow_on(list).await,
        Changelog::List(list) => self::list(list, coloured).await,
        Changelog::Consumers(consumers) => {
            self::consumers(&open(&consumers.target).await?, consumers.json, coloured).await
        }
        Changelog::Reset(reset) => self::reset(reset).await,
        Changelog::Forget(forget) => self::forget(forget).await,
    }
}

async fn open(target: &Target) -> Result<Arc<dyn Reader>, Failure> {
    reader(&target.open().await?)
}

/// Entries have no tenant, so a source for one of them has nothing to say of them.
fn reader(opened: &Opened) -> Result<Arc<dyn Reader>, Failure> {
    opened.refuse_one_tenant("entries of the changelog have no tenant: they are those of all")?;
    Ok(postrider_changelog::open(&opened.store)?)
}

/// An entry with the cursor to go on from, as the HTTP stream gives it.
#[derive(Serialize)]
struct Line<'a> {
    cursor: Cursor,
    entry: &'a Entry,
}

async fn list(arguments: ChangelogList, coloured: bool) -> Result<ExitCode, Failure> {
    let reader = open(&arguments.target).await?;
    let limit = arguments.limit.unwrap_or(LISTED);
    let mut after = arguments.after.unwrap_or_default();
    let mut headings = vec!["versionstamp", "created", "unit of work", "mutations", "tables"];
    headings.extend(arguments.payload.then_some("payload"));
    let mut table = output::table(&headings, coloured);
    let mut listed = 0;
    let (next, more) = loop {
        let wanted = u32::try_from(limit - listed).unwrap_or(u32::MAX).min(LARGEST_LIMIT);
        let page = reader.list(after, wanted).await?;
        after = page.next.into();
        listed += page.entries.len() as u64;
        for entry in &page.entries {
            match arguments.json {
                true => output::json(&Line { cursor: Cursor::at(page.store, entry), entry })?,
                false => drop(table.add_row(cells(entry, arguments.payload))),
            }
        }
        if !page.more || listed >= limit {
            break (page.next, page.more);
        }
    };
    if arguments.json {
        return Ok(super::done());
    }
    match listed {
        0 => line("no entries")?,
        _ => line(&table.to_string())?,
    }
    let said = if more { "there are more; go on with" } else { "go on later with" };
    line(&format!("{said} --after {next}"))?;
    Ok(super::done())
}

fn cells(entry: &Entry, with_payload: bool) -> Vec<Cell> {
    let (mutations, tables) = summary(entry);
    let mut cells = vec![
        output::cell(&entry.versionstamp.to_string()),
        output::cell(&short_time(micros(entry.created_at))),
        output::cell(&plain(&entry.uow_id)),
        output::number(mutations),
        output::cell(&tables),
    ];
    cells.extend(with_payload.then(|| output::cell(&plain(entry.payload.get()))));
    cells
}

/// How many mutations an entry has, and in which tables. What cannot be read is not counted.
fn summary(entry: &Entry) -> (String, String) {
    let Ok(payload) = entry.payload() else { return ("?".into(), "?".into()) };
    let names = payload.mutations.iter().map(|mutation| plain(&format!("{}.{}", mutation.namespace, mutation.table)));
    let tables: Vec<String> = names.collect::<BTreeSet<_>>().into_iter().collect();
    (payload.mutations.len().to_string(), tables.join(", "))
}

/// Lists entries as they are committed, until the operator ends it.
async fn follow_on(arguments: ChangelogList) -> Result<ExitCode, Failure> {
    let reader = open(&arguments.target).await?;
    let after = arguments.after.unwrap_or_default();
    let mut entries = pin!(follow(reader, after, FollowConfig::default()));
    let (mut left, mut troubled) = (arguments.limit.unwrap_or(u64::MAX), false);
    // One for all entries, and asked first: while there is a backlog an entry is always there.
    let mut told_to_end = pin!(tokio::signal::ctrl_c());
    while left > 0 {
        let next = tokio::select! {
            biased;
            _ = &mut told_to_end => None,
            next = entries.next() => next,
        };
        match next {
            None => break,
            Some(Ok((entry, cursor))) => {
                (left, troubled) = (left - 1, false);
                match arguments.json {
                    true => output::json(&Line { cursor, entry: &entry })?,
                    false => line(&in_one_line(&entry, arguments.payload))?,
                }
            }
            Some(Err(error)) if error.is_transient() => {
                // Told once: it looks again until the database answers.
                if !std::mem::replace(&mut troubled, true) {
                    eprintln!("postrider: {}; looking again until it answers", with_causes(&error));
                }
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    Ok(super::done())
}

fn in_one_line(entry: &Entry, with_payload: bool) -> String {
    let (mutations, tables) = summary(entry);
    let created = short_time(micros(entry.created_at));
    let mut text = format!("{} {created} {} {mutations} {tables}", entry.versionstamp, plain(&entry.uow_id));
    if with_payload {
        text = format!("{text} {}", plain(entry.payload.get()));
    }
    text
}

fn micros(moment: SystemTime) -> i64 {
    i64::try_from(moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

async fn consumers(reader: &Arc<dyn Reader>, as_json: bool, coloured: bool) -> Result<ExitCode, Failure> {
    let consumers = reader.consumers().await?;
    if as_json {
        consumers.iter().try_for_each(|consumer| output::json(&to_json(consumer)))?;
        return Ok(super::done());
    }
    if consumers.is_empty() {
        line("no consumers")?;
        return Ok(super::done());
    }
    let mut table = output::table(&["name", "position", "behind", "held by", "held back", "why"], coloured);
    for consumer in &consumers {
        let since = consumer.failed_since.and_then(|since| SystemTime::now().duration_since(since).ok());
        table.add_row(vec![
            output::cell(&plain(&consumer.name)),
            output::cell(&position(consumer.cursor.versionstamp())),
            output::number(consumer.behind),
            output::cell(&consumer.held_by.map_or_else(|| "-".into(), |owner| owner.to_string())),
            match since {
                Some(since) => output::marked(&format!("for {}", span(since)), Color::Red),
                None => output::cell("-"),
            },
            output::cell(&plain(consumer.last_error.as_deref().unwrap_or("-"))),
        ]);
    }
    line(&table.to_string())?;
    Ok(super::done())
}

fn position(stamp: Versionstamp) -> String {
    if stamp == Versionstamp::ZERO { "beginning".into() } else { stamp.to_string() }
}

fn to_json(consumer: &ConsumerState) -> Value {
    json!({
        "name": consumer.name,
        "versionstamp": consumer.cursor.versionstamp(),
        "cursor": consumer.cursor,
        "behind": u64::try_from(consumer.behind).unwrap_or(u64::MAX),
        "held_by": consumer.held_by,
        "held_back_since": consumer.failed_since.map(|since| time(micros(since))),
        "last_error": consumer.last_error,
    })
}

async fn find(reader: &Arc<dyn Reader>, name: &str) -> Result<ConsumerState, Failure> {
    let consumers = reader.consumers().await?;
    let names: Vec<String> = consumers.iter().map(|consumer| plain(&consumer.name)).collect();
    let found = consumers.into_iter().find(|consumer| consumer.name == name);
    found.ok_or_else(|| match names.is_empty() {
        true => Failure::failed(format!("there is no consumer {name:?}, and no other")),
        false => Failure::failed(format!("there is no consumer {name:?}; there are {}", names.join(", "))),
    })
}

async fn reset(arguments: ChangelogReset) -> Result<ExitCode, Failure> {
    let ChangelogReset { name, to, change } = arguments;
    let reader = open_to_change(&change).await?;
    let before = find(&reader, &name).await?;
    let to = match to {
        ChangelogPlace::Head => After::Cursor(reader.head().await?),
        ChangelogPlace::After(after) => after,
    };
    // A cursor that is not of this changelog is refused before anything else is said.
    reader.list(to, 1).await?;
    let from = position(before.cursor.versionstamp());
    if change.yes && !reader.reset(&name, to).await? {
        return Err(gone(&name));
    }
    let place = match to {
        // Where it went is known when it is there: a stamp may be of no entry.
        After::Versionstamp(_) if change.yes => position(find(&reader, &name).await?.cursor.versionstamp()),
        After::Versionstamp(stamp) if stamp != Versionstamp::ZERO => format!("the newest entry up to {stamp}"),
        After::Cursor(cursor) => position(cursor.versionstamp()),
        _ => position(Versionstamp::ZERO),
    };
    tell(
        &change,
        &before,
        json!({ "reset": change.yes, "from": from, "to": place }),
        &match change.yes {
            true => format!("{name} was moved from {from} to {place}"),
            false => format!("{name} would be moved from {from} to {place}"),
        },
    )
}

async fn forget(arguments: ChangelogForget) -> Result<ExitCode, Failure> {
    let ChangelogForget { name, change } = arguments;
    let reader = open_to_change(&change).await?;
    let before = find(&reader, &name).await?;
    let from = position(before.cursor.versionstamp());
    if change.yes && !reader.forget(&name).await? {
        return Err(gone(&name));
    }
    tell(
        &change,
        &before,
        json!({ "forgotten": change.yes, "from": from }),
        &match change.yes {
            true => format!("{name} at {from} was forgotten"),
            false => format!("{name} at {from} would be forgotten; if it comes again it begins anew"),
        },
    )
}

async fn open_to_change(change: &ChangelogChange) -> Result<Arc<dyn Reader>, Failure> {
    reader(&change.target.open_to_change().await?)
}

fn gone(name: &str) -> Failure {
    Failure::failed(format!("consumer {name:?} went away meanwhile; nothing was changed"))
}

/// Says what was done, or would be.
fn tell(change: &ChangelogChange, before: &ConsumerState, mut done: Value, said: &str) -> Result<ExitCode, Failure> {
    if change.json {
        done["name"] = before.name.clone().into();
        done["dry_run"] = (!change.yes).into();
        done["held_by"] = json!(before.held_by);
        output::json(&done)?;
        return Ok(super::done());
    }
    line(&plain(said))?;
    if before.held_by.is_some() {
        line(if change.yes {
            "Whoever read for it lost its lease."
        } else {
            "Whoever reads for it would lose its lease."
        })?;
    }
    if !change.yes {
        line("Nothing was changed. Add --yes to do it.")?;
    }
    Ok(super::done())
}
