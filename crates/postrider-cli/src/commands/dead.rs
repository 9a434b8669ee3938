//! `postrider dead`.

use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::StoreError;
use postrider::operate::{Change, Filter, LARGEST_CHANGE, Operator, REPLAYED, Record};
use postrider::store::{Payload, Scope};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

use super::Decision;
use crate::args::{self, Colour, Dead, DeadChange, DeadList, DeadReplay, DeadShow};
use crate::exit::Failure;
use crate::output::{self, line, messages, plain, short_time, time};

/// How many messages a dry run shows.
const SHOWN: u32 = 10;

pub async fn run(dead: Dead, colour: Colour) -> Result<ExitCode, Failure> {
    let coloured = output::is_coloured(colour, &std::io::stdout());
    match dead {
        Dead::List(list) => self::list(list, coloured).await,
        Dead::Show(show) => self::show(show).await,
        Dead::Replay(DeadReplay { rate, change }) => self::change(Deed::Replay(rate), change, coloured).await,
        Dead::Discard(change) => self::change(Deed::Discard, change, coloured).await,
    }
}

impl args::Filter {
    fn to_store(&self) -> Filter {
        Filter {
            scope: self.scope.to_store(),
            topic: self.topic.clone(),
            key: self.key.clone(),
            ids: Some(self.ids.clone()).filter(|ids| !ids.is_empty()),
            since_micros: self.since,
            until_micros: self.until,
            error: self.error.clone(),
        }
    }

    /// The filter of something that changes messages: it says which, or that all are meant.
    fn to_change(&self, all: bool) -> Result<Filter, Failure> {
        let filter = self.to_store();
        match (filter == Filter::default(), all) {
            (true, false) => Err(Failure::usage(
                "which messages? Give ids or a filter such as --topic, --since or --error, or --all",
            )),
            (false, true) => Err(Failure::usage("--all and a filter contradict each other; give one of them")),
            _ => Ok(filter),
        }
    }
}

async fn list(arguments: DeadList, coloured: bool) -> Result<ExitCode, Failure> {
    let opened = arguments.target.open_to_look().await?;
    let operator = opened.store.operator();
    let filter = arguments.filter.to_store();
    let filter = Filter { scope: opened.within(filter.scope)?, ..filter };
    let (mut after, mut listed) = (None, 0);
    let mut records = Vec::new();
    while listed < arguments.limit {
        let limit = u32::try_from(arguments.limit - listed).unwrap_or(u32::MAX).min(LARGEST_CHANGE);
        let page = operator.dead(&filter, after, limit).await?;
        let Some(last) = page.last() else { break };
        (after, listed) = (Some(last.position()), listed + page.len());
        match arguments.json {
            true => page.iter().try_for_each(|record| output::json(&as_json(record)))?,
            false => records.extend(page),
        }
    }
    if !arguments.json {
        print_list(&records, coloured)?;
        let all = operator.count_dead(&filter).await?;
        if all > listed as u64 {
            line(&format!("{listed} of {}; --limit shows more", messages(all)))?;
        }
    }
    Ok(super::done())
}

fn print_list(records: &[Record], coloured: bool) -> Result<(), Failure> {
    if records.is_empty() {
        return line("no dead messages");
    }
    let mut table = output::table(&["died", "id", "namespace", "topic", "key", "attempts", "error"], coloured);
    for record in records {
        table.add_row(vec![
            output::cell(&short_time(record.updated_at_micros)),
            output::cell(&record.id.to_string()),
            output::cell(&plain(&record.namespace)),
            output::cell(&plain(&record.topic)),
            output::cell(&plain(record.key.as_deref().unwrap_or(""))),
            output::number(record.attempts),
            output::cell(&shortened(&plain(record.last_error.as_deref().unwrap_or("")))),
        ]);
    }
    line(&table.to_string())
}

/// An error's beginning; `dead show` has all of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

async fn show(arguments: DeadShow) -> Result<ExitCode, Failure> {
    let opened = arguments.target.open_to_look().await?;
    let scope = opened.within(Scope { namespaces: None, tenant: arguments.tenant })?;
    let record = opened.store.operator().message(arguments.id).await?;
    let Some(record) = record.filter(|record| scope.contains(&record.namespace, record.tenant_id)) else {
        return Err(Failure::failed(format!("there is no message {}", arguments.id)));
    };
    if arguments.json {
        match arguments.no_payload {
            true => output::json(&as_json(&record))?,
            false => output::json(&WithPayload::of(&record)?)?,
        }
        return Ok(super::done());
    }
    for (name, value) in lines_of(&record) {
        line(&format!("{name:<14} {}", plain(&value)))?;
    }
    for (name, value) in &record.headers {
        line(&format!("{:<14} {}: {}", "header", plain(name), plain(value)))?;
    }
    if !arguments.no_payload {
        line(&format!("{:<14} {}", "payload", payload_text(&record)))?;
    }
    Ok(super::done())
}

fn lines_of(record: &Record) -> Vec<(&'static str, String)> {
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let attempts = match record.max_attempts {
        Some(allowed) => format!("{} of {allowed}", record.attempts),
        None => record.attempts.to_string(),
    };
    vec![
        ("id", record.id.to_string()),
        ("state", record.state.as_str().to_owned()),
        ("namespace", record.namespace.clone()),
        ("topic", record.topic.clone()),
        ("key", optional(record.key.clone())),
        ("tenant", optional(record.tenant_id.map(|tenant| tenant.to_string()))),
        ("dedupe key", optional(record.dedupe_key.clone())),
        ("attempts", attempts),
        ("replayed", record.headers.get(REPLAYED).map_or_else(|| "never".into(), |times| format!("{times} times"))),
        ("error", optional(record.last_error.clone())),
        ("created", time(record.created_at_micros)),
        ("changed", time(record.updated_at_micros)),
        ("next attempt", time(record.next_attempt_at_micros)),
        ("locked by", optional(record.locked_by.map(|worker| worker.to_string()))),
        ("locked until", optional(record.locked_until_micros.map(time))),
        ("delivered", optional(record.delivered_at_micros.map(time))),
    ]
}

/// The payload for people: JSON as the database renders it, because reading and writing it again would change numbers.
fn payload_text(record: &Record) -> String {
    match &record.payload {
        Some(Payload::Json(text)) => plain(text),
        Some(Payload::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => plain(text),
            Err(_) => format!("{} bytes; --json prints them in base64", bytes.len()),
        },
        None => "-".into(),
    }
}

fn as_json(record: &Record) -> Value {
    json!({
        "id": record.id,
        "state": record.state.as_str(),
        "namespace": record.namespace,
        "topic": record.topic,
        "key": record.key,
        "tenant": record.tenant_id,
        "dedupe_key": record.dedupe_key,
        "attempts": record.attempts,
        "max_attempts": record.max_attempts,
        "last_error": record.last_error,
        "headers": record.headers,
        "created_at": time(record.created_at_micros),
        "updated_at": time(record.updated_at_micros),
        "next_attempt_at": time(record.next_attempt_at_micros),
        "delivered_at": record.delivered_at_micros.map(time),
        "locked_by": record.locked_by,
        "locked_until": record.locked_until_micros.map(time),
    })
}

/// A message with its payload: JSON as it is, bytes in base64.
#[derive(Serialize)]
struct WithPayload<'a> {
    #[serde(flatten)]
    record: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> WithPayload<'a> {
    fn of(record: &'a Record) -> Result<Self, Failure> {
        let (payload, payload_base64) = match &record.payload {
            Some(Payload::Json(text)) => {
                let raw = serde_json::from_str(text);
                (Some(raw.map_err(|error| Failure::failed(format!("the payload is no JSON: {error}")))?), None)
            }
            Some(Payload::Bytes(bytes)) => (None, Some(STANDARD.encode(bytes))),
            None => (None, None),
        };
        Ok(Self { record: as_json(record), payload, payload_base64 })
    }
}

/// What is done to dead messages.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Put back, so many per second at most.
    Replay(Option<u32>),
    Discard,
}

impl Deed {
    fn verb(self) -> &'static str {
        match self {
            Self::Replay(_) => "replayed",
            Self::Discard => "discarded",
        }
    }

    /// How many may be changed now; waits where there is a rate.
    async fn chunk(self, ticks: &mut Interval) -> u32 {
        match self {
            Self::Replay(Some(rate)) => leave(rate, ticks).await,
            Self::Replay(None) | Self::Discard => LARGEST_CHANGE,
        }
    }

    async fn apply(self, operator: &dyn Operator, change: &Change) -> Result<usize, StoreError> {
        let changed = match self {
            Self::Replay(_) => operator.replay(change).await?,
            Self::Discard => operator.discard(change).await?,
        };
        Ok(changed.len())
    }
}

/// How often per second a limited rate gives leave.
const TICKS: u32 = 10;

async fn change(deed: Deed, arguments: DeadChange, coloured: bool) -> Result<ExitCode, Failure> {
    let filter = arguments.filter.to_change(arguments.all)?;
    let opened = arguments.target.open_to_change_messages().await?;
    let filter = Filter { scope: opened.within(filter.scope)?, ..filter };
    let operator = opened.store.operator();
    let found = operator.count_dead(&filter).await?.min(arguments.limit.unwrap_or(u64::MAX));
    let decision = arguments.consent.decide(found);
    if decision == Decision::DryRun && !arguments.json && found > 0 {
        let shown = u32::try_from(found).unwrap_or(u32::MAX).min(SHOWN);
        print_list(&operator.dead(&filter, None, shown).await?, coloured)?;
    }
    let mut changed = 0;
    let done = match decision {
        Decision::Act => act(deed, &*operator, &arguments.consent.who(), &filter, found, &mut changed).await,
        Decision::DryRun | Decision::Differs => Ok(()),
    };
    // What was done is said also when the rest failed.
    super::tell(arguments.json, decision, found, changed, deed.verb())?;
    done.map_err(|error| Failure::from(error).after(&format!("after {}: ", messages(changed))))?;
    if decision == Decision::Act && changed < found {
        let left = messages(found - changed);
        return Err(Failure::failed(format!("{left} were left: somebody else holds or changed them; try again")));
    }
    let named = filter.ids.as_ref().map_or(0, |ids| ids.len() as u64);
    if decision == Decision::Act && named > found && arguments.limit.is_none() {
        let missing = named - found;
        return Err(Failure::failed(format!("{missing} of the ids are no dead messages, or do not match the filter")));
    }
    super::code(decision, found)
}

/// Does it in chunks. Those that died first come first, so the number that was found covers them all, and a message that
/// dies again meanwhile is not replayed for ever.
async fn act(
    deed: Deed,
    operator: &dyn Operator,
    who: &str,
    filter: &Filter,
    found: u64,
    changed: &mut u64,
) -> Result<(), StoreError> {
    let bar = output::progress(found, deed.verb());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / TICKS);
    // After a stall the rate is kept as well.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while *changed < found {
        let chunk = deed.chunk(&mut ticks).await;
        let limit = u32::try_from(found - *changed).unwrap_or(u32::MAX).min(chunk);
        let change = Change { who: who.to_owned(), filter: filter.clone(), limit };
        match deed.apply(operator, &change).await? {
            0 => break,
            more => *changed += more as u64,
        }
        bar.set_position(*changed);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Waits for the next leave at a rate per second, and says for how many messages it is.
async fn leave(rate: u32, ticks: &mut Interval) -> u32 {
    // Below one message per tick, several ticks make one.
    let (chunk, every) = match rate / TICKS {
        0 => (1, TICKS.div_ceil(rate)),
        chunk => (chunk, 1),
    };
    for _ in 0..every {
        ticks.tick().await;
    }
    chunk
}
