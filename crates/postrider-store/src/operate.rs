//! What the operator's verbs have in common on every store: the checks before SQL, and the audit table's words.

#[cfg(any(feature = "sqlite", feature = "memory"))]
use std::time::Duration;

use postrider_core::operate::{Action, Change, Filter, LARGEST_CHANGE, Position, Tally};
use postrider_core::state::State;
use postrider_core::store::{Finished, Purge, Scope, StoreError, StoreErrorKind};
use serde_json::{Map, Value, json};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite", test))]
use uuid::Uuid;

/// The longest name of who asked, in bytes.
const LONGEST_WHO: usize = 200;

/// The last microsecond of the year 9999; no database has a message from after it.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
const LAST_MICRO: i64 = 253_402_300_799_999_999;

/// What "lately" means in an overview. Databases with a clock of their own have it in their SQL.
#[cfg(any(feature = "sqlite", feature = "memory"))]
pub(crate) const LATELY: Duration = Duration::from_secs(60);

/// A line that is written to the audit table if something was changed.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub who: String,
    pub action: Action,
    /// What was asked for, as JSON.
    pub asked: String,
}

impl Note {
    /// About a change, which is checked.
    pub fn of_change(action: Action, change: &Change) -> Result<Self, StoreError> {
        check(&change.filter)?;
        let mut asked = asked_of(&change.filter);
        asked.insert("limit".into(), json!(cut(change.limit)));
        Ok(Self { who: checked_who(&change.who)?, action, asked: Value::Object(asked).to_string() })
    }

    /// About a purge.
    pub fn of_purge(who: &str, purge: &Purge) -> Result<Self, StoreError> {
        let who = checked_who(who)?;
        check_texts(scope_texts(&purge.scope))?;
        let mut asked = scope_of(&purge.scope);
        let finished = match purge.finished {
            Finished::Delivered => State::Delivered,
            Finished::Dead => State::Dead,
        };
        asked.insert("finished".into(), json!(finished.as_str()));
        asked.insert("older_than_seconds".into(), json!(purge.older_than.as_secs_f64()));
        asked.insert("limit".into(), json!(purge.limit));
        Ok(Self { who, action: Action::Purge, asked: Value::Object(asked).to_string() })
    }
}

/// Refuses what no message can have, because a database would refuse it with a text that nobody understands.
pub(crate) fn check(filter: &Filter) -> Result<(), StoreError> {
    let own = [("topic", &filter.topic), ("key", &filter.key), ("error", &filter.error)];
    let own = own.into_iter().filter_map(|(what, text)| text.as_deref().map(|text| (what, text)));
    check_texts(scope_texts(&filter.scope).chain(own))
}

fn scope_texts(scope: &Scope) -> impl Iterator<Item = (&'static str, &str)> {
    scope.namespaces.iter().flatten().map(|name| ("namespace", name.as_str()))
}

fn check_texts<'a>(texts: impl Iterator<Item = (&'static str, &'a str)>) -> Result<(), StoreError> {
    for (what, text) in texts {
        if text.contains('\0') {
            return Err(refused(format!(
                "the filter's {what} holds the NUL character, which no message has; remove it"
            )));
        }
    }
    Ok(())
}

fn checked_who(who: &str) -> Result<String, StoreError> {
    if who.trim().is_empty() {
        return Err(refused("it is not said who asks; give a name for the audit table".into()));
    }
    if who.len() > LONGEST_WHO {
        let length = who.len();
        return Err(refused(format!(
            "the name of who asks has {length} bytes, the limit is {LONGEST_WHO}; shorten it"
        )));
    }
    if who.chars().any(char::is_control) {
        return Err(refused("the name of who asks holds a control character; remove it".into()));
    }
    Ok(who.to_owned())
}

fn refused(context: String) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, context)
}

/// What was asked for, without what was not given.
fn asked_of(filter: &Filter) -> Map<String, Value> {
    let mut asked = scope_of(&filter.scope);
    let mut given = |name: &str, value: Option<Value>| value.map(|value| asked.insert(name.into(), value));
    given("topic", filter.topic.as_ref().map(|topic| json!(topic)));
    given("key", filter.key.as_ref().map(|key| json!(key)));
    given("ids", filter.ids.as_ref().map(|ids| json!(ids)));
    given("since_micros", filter.since_micros.map(|micros| json!(micros)));
    given("until_micros", filter.until_micros.map(|micros| json!(micros)));
    given("error", filter.error.as_ref().map(|error| json!(error)));
    asked
}

fn scope_of(scope: &Scope) -> Map<String, Value> {
    let namespaces = scope.namespaces.as_ref().map(|names| ("namespaces".to_owned(), json!(names)));
    let tenant = scope.tenant.map(|tenant| ("tenant".to_owned(), json!(tenant)));
    namespaces.into_iter().chain(tenant).collect()
}

/// A number of messages, cut to the largest.
pub(crate) fn cut(limit: u32) -> u32 {
    limit.min(LARGEST_CHANGE)
}

/// The times between which the wanted messages died, from the first, which is meant, to the second, which is not; kept
/// within what every database can compare with.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn between(filter: &Filter, after: Option<Position>) -> (Option<i64>, Option<i64>) {
    let since = filter.since_micros.into_iter().chain(after.map(|position| position.updated_at_micros)).max();
    (since.map(within), filter.until_micros.map(within))
}

/// A time that every database can compare with.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn within(micros: i64) -> i64 {
    micros.clamp(0, LAST_MICRO)
}

/// Tallies in the order of their names, and of a message's life.
pub(crate) fn in_order(mut tallies: Vec<Tally>) -> Vec<Tally> {
    let life = |state: State| State::ALL.iter().position(|known| *known == state);
    tallies.sort_by(|a, b| (&a.namespace, &a.topic, life(a.state)).cmp(&(&b.namespace, &b.topic, life(b.state))));
    tallies
}

/// Ids as the audit table has them.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn ids_text(ids: &[Uuid]) -> String {
    json!(ids).to_string()
}

/// Reads ids of the audit table.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) fn read_ids(text: &str) -> Result<Vec<Uuid>, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Reads a word of the `status` column.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) fn read_state(word: &str) -> Result<State, sqlx::Error> {
    State::parse(word).ok_or_else(|| sqlx::Error::Decode(format!("{word:?} is no state of a message").into()))
}

/// Where the columns of a whole row are, as in the fragment `{record}`; the payload only if one message was asked for.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod column {
    pub const ID: usize = 0;
    pub const NAMESPACE: usize = 1;
    pub const TOPIC: usize = 2;
    pub const KEY: usize = 3;
    pub const TENANT: usize = 4;
    pub const DEDUPE_KEY: usize = 5;
    pub const STATUS: usize = 6;
    pub const ATTEMPTS: usize = 7;
    pub const MAX_ATTEMPTS: usize = 8;
    pub const LAST_ERROR: usize = 9;
    pub const HEADERS: usize = 10;
    pub const NEXT_ATTEMPT_AT: usize = 11;
    pub const LOCKED_BY: usize = 12;
    pub const LOCKED_UNTIL: usize = 13;
    pub const CREATED_AT: usize = 14;
    pub const UPDATED_AT: usize = 15;
    pub const DELIVERED_AT: usize = 16;
    pub const PAYLOAD: usize = 17;
    pub const PAYLOAD_BYTES: usize = 18;
}

/// Makes the functions that read an operator's rows. Databases differ in how ids, texts, keys and times are read, and in nothing
/// else; each reader takes a row and the number of a column. Rows that are no messages are shown, too.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! row_readers {
    ($row:ty { id: $id:path, id_or_null: $id_or_null:path, text: $text:path, key: $key:path, time: $time:path, time_or_null: $time_or_null:path }) => {
        fn number(row: &$row, at: usize) -> Result<u64, sqlx::Error> {
            row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0))
        }

        fn record(row: &$row) -> Result<Record, sqlx::Error> {
            use crate::operate::column;

            Ok(Record {
                id: $id(row, column::ID)?,
                namespace: $text(row, column::NAMESPACE)?,
                topic: $text(row, column::TOPIC)?,
                key: $key(row, column::KEY)?,
                tenant_id: $id_or_null(row, column::TENANT)?,
                dedupe_key: $key(row, column::DEDUPE_KEY)?,
                state: crate::operate::read_state(row.try_get(column::STATUS)?)?,
                attempts: row.try_get(column::ATTEMPTS)?,
                max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
                last_error: row.try_get(column::LAST_ERROR)?,
                // The error of a row whose headers are none says so.
                headers: crate::claimed::headers(Some(&$text(row, column::HEADERS)?)).unwrap_or_default(),
                payload: None,
                next_attempt_at_micros: $time(row, column::NEXT_ATTEMPT_AT)?,
                locked_by: $id_or_null(row, column::LOCKED_BY)?,
                locked_until_micros: $time_or_null(row, column::LOCKED_UNTIL)?,
                created_at_micros: $time(row, column::CREATED_AT)?,
                updated_at_micros: $time(row, column::UPDATED_AT)?,
                delivered_at_micros: $time_or_null(row, column::DELIVERED_AT)?,
            })
        }

        fn with_payload(row: &$row) -> Result<Record, sqlx::Error> {
            use crate::operate::column;
            use postrider_core::store::Payload;

            let payload = match row.try_get(column::PAYLOAD_BYTES)? {
                Some(bytes) => Payload::Bytes(bytes),
                None => Payload::Json(row.try_get(column::PAYLOAD)?),
            };
            Ok(Record { payload: Some(payload), ..record(row)? })
        }

        /// A line of the audit table, as `audit.sql` has it.
        fn entry(row: &$row) -> Result<AuditEntry, sqlx::Error> {
            Ok(AuditEntry {
                at_micros: $time(row, 0)?,
                who: row.try_get(1)?,
                action: row.try_get(2)?,
                asked: row.try_get(3)?,
                messages: number(row, 4)?,
                ids: crate::operate::read_ids(row.try_get(5)?)?,
                seq: row.try_get(6)?,
            })
        }
    };
}
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) use row_readers;

#[cfg(test)]
mod tests {
    use super::*;

    fn change(who: &str, filter: Filter) -> Change {
        Change { who: who.into(), filter, limit: 5_000 }
    }

    #[test]
    fn a_note_says_what_was_given_and_nothing_else() {
        let note = Note::of_change(Action::Replay, &change("ann", Filter::default())).expect("it is sound");
        assert_eq!(note.asked, r#"{"limit":1000}"#);
        let id = Uuid::from_u128(7);
        let filter = Filter {
            scope: Scope { namespaces: Some(vec!["shop".into()]), tenant: Some(id) },
            topic: Some("t".into()),
            key: Some("k".into()),
            ids: Some(vec![id]),
            since_micros: Some(1),
            until_micros: Some(2),
            error: Some("say \"no\"".into()),
        };
        let note = Note::of_change(Action::Discard, &change("ann", filter)).expect("it is sound");
        let expected = json!({
            "namespaces": ["shop"], "tenant": id, "topic": "t", "key": "k", "ids": [id], "since_micros": 1,
            "until_micros": 2, "error": "say \"no\"", "limit": 1_000,
        });
        assert_eq!(serde_json::from_str::<Value>(&note.asked).expect("it is JSON"), expected);
    }

    #[test]
    fn who_asks_must_have_a_name_that_can_be_read() {
        for bad in ["", "  ", "a\0b", "a\nb", &"x".repeat(201)] {
            let refused = Note::of_change(Action::Replay, &change(bad, Filter::default()));
            assert_eq!(refused.expect_err("no good name").kind(), StoreErrorKind::Refused);
        }
    }

    #[test]
    fn a_filter_that_no_database_could_be_asked_is_refused() {
        let nul = || Some("a\0b".to_owned());
        for filter in [
            Filter { topic: nul(), ..Filter::default() },
            Filter { key: nul(), ..Filter::default() },
            Filter { error: nul(), ..Filter::default() },
            Filter { scope: Scope::namespace("a\0b"), ..Filter::default() },
        ] {
            assert!(check(&filter).expect_err("NUL").to_string().contains("NUL"));
        }
    }

    #[test]
    fn a_page_begins_at_its_position_and_times_stay_in_bounds() {
        let filter = Filter { since_micros: Some(5), until_micros: Some(i64::MAX), ..Filter::default() };
        let after = |micros| Some(Position { updated_at_micros: micros, id: Uuid::nil() });
        assert_eq!(between(&filter, after(9)), (Some(9), Some(LAST_MICRO)));
        assert_eq!(between(&filter, after(i64::MIN)), (Some(5), Some(LAST_MICRO)));
        assert_eq!(between(&Filter::default(), None), (None, None));
        assert_eq!(within(i64::MIN), 0);
    }
}
