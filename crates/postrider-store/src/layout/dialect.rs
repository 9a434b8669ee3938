//! A layout in the words of MySQL and SQLite: what the placeholders of their templates stand for.
//!
//! `{attempts}` is a column, `{row.attempts}` the same of a certain row. Where the table lacks a column its placeholder is what
//! comes nearest: a null, or the time of another column. What a verb writes (`{set_acked}`) is put together here, so that a
//! template need not know which columns there are. What follows after a space is a parameter: the present for times and for
//! what a verb writes (`{due ?4}`), the usual number of attempts for what compares with it (`{may_try ?3}`).
//!
//! The two databases differ in how they count time and join texts, and that is a [`Dialect`]. MySQL carries assignments out
//! one after the other, so none here reads a column that one before it has written.

mod insert;

use std::time::Duration;

use postrider_core::store::{SUSPECT_AFTER, StoreError, StoreErrorKind};

use self::insert::dedupe;
pub(crate) use self::insert::{Given, header, inserted};
use super::{ClaimBy, Column, Counts, IdKind, Layout, LayoutError, PayloadKind, Text, Words};

/// How a database says what all of them can do.
pub(crate) struct Dialect {
    /// What it is called, in errors.
    pub name: &'static str,
    /// The present where a placeholder is not given it.
    pub now: &'static str,
    /// The usual number of attempts where a placeholder is not given it.
    pub allowed: &'static str,
    /// Parameters: the worker and the lease of a claim, the lease of a renewal, and what a row is settled with.
    pub worker: &'static str,
    pub lease: &'static str,
    pub renewed: &'static str,
    pub error: &'static str,
    pub delay: &'static str,
    /// What a row is found by again, where it has no number of ours.
    pub number: Number,
    /// The type of a column that holds a UUID as sixteen bytes.
    pub bytes: &'static str,
    /// Such a UUID as text, and back.
    pub id_text: fn(&str) -> String,
    pub id_bytes: fn(&str) -> String,
    /// Whether a text has no other characters than hexadecimal digits.
    pub is_hex: fn(&str) -> String,
    /// A time, and microseconds later.
    pub later: fn(&str, &str) -> String,
    /// When time begins, and the microseconds between two times.
    pub epoch: &'static str,
    pub between: fn(&str, &str) -> String,
    /// Microseconds later than a time if there are any, and otherwise another time.
    pub later_or: fn(&str, &str, &str) -> String,
    pub least: &'static str,
    pub concat: fn(&[&str]) -> String,
    /// The first characters of a text.
    pub left: fn(&str, u32) -> String,
    /// How many bytes a column of text holds, and one of bytes.
    pub size: fn(&str) -> String,
    pub size_of_bytes: fn(&str) -> String,
    /// A payload of JSON as text, and text as such a payload.
    pub json_text: fn(&str) -> String,
    pub text_json: fn(&str) -> String,
    /// Headers with more of them, those that are null left out.
    pub headers: fn(&str, &[(String, String)]) -> String,
    /// Headers with one more replay.
    pub replayed: fn(&str) -> String,
    /// When a new row is due, and what it is made of.
    pub due: &'static str,
    pub due_given: &'static [Given],
    /// Whether producers write when a row was made, because the database's clock need not be theirs.
    pub writes_times: bool,
}

/// What rows are found by again in a table without numbers of ours.
pub(crate) enum Number {
    /// A number that every row has, whatever the columns are.
    #[cfg(feature = "sqlite")]
    Hidden(&'static str),
    /// The primary key.
    #[cfg(feature = "mysql")]
    Id,
}

/// What the placeholder of a layout stands for; nothing if it is none of a layout's.
pub(crate) fn resolve(dialect: &Dialect, layout: &Layout, placeholder: &str) -> Option<String> {
    let (name, parameter) = match placeholder.split_once(' ') {
        Some((name, parameter)) => (name, Some(parameter)),
        None => (placeholder, None),
    };
    if let ("raw", Some(given)) = (name, parameter) {
        return Some(raw(dialect, &layout.id, given));
    }
    let (alias, name) = match name.split_once('.') {
        Some((alias, name)) => (format!("{alias}."), name),
        None => (String::new(), name),
    };
    let row = Row { dialect, layout, alias: &alias, parameter };
    row.column(name).or_else(|| row.condition(name)).or_else(|| row.written(name)).or_else(|| dedupe(layout, name))
}

impl Layout {
    /// Refuses what only PostgreSQL can do.
    pub(crate) fn check_for(&self, dialect: &Dialect) -> Result<(), LayoutError> {
        let database = dialect.name;
        let why = match self {
            _ if self.claim == ClaimBy::RowLock => format!(
                "its rows are claimed by locking them, and held row locks are for PostgreSQL; on {database} name locked_until or locked_at, and a status"
            ),
            _ if self.name == "valinor" => format!(
                "its tenants are kept apart by row-level security, which PostgreSQL has and {database} has not; describe the table as a layout of your own if you can do without"
            ),
            _ if self.id_kind == IdKind::Integer => format!(
                "its ids are whole numbers, and these are for PostgreSQL; on {database} an id is a UUID, as text or as sixteen bytes"
            ),
            _ => return Ok(()),
        };
        Err(LayoutError::Wrong { layout: self.name.to_string(), why })
    }
}

impl Layout {
    /// A lease that is longer than a lock counts.
    pub(crate) fn lease_too_long(&self, lease: Duration) -> StoreError {
        let (timeout, name) = (self.lock_timeout, &self.name);
        let text = format!(
            "the lease of {lease:?} is longer than the lock_timeout of {timeout:?} of the layout {name:?}, after which others take the message; shorten the lease or raise lock_timeout"
        );
        StoreError::new(StoreErrorKind::Refused, text)
    }

    /// What a table cannot do.
    pub(crate) fn not_made_for(&self, what: &str, database: &str) -> StoreError {
        let text = format!(
            "the layout {:?} cannot do {what} on {database}: that takes the indexes of Postrider's own table; see postrider layout check",
            self.name
        );
        StoreError::new(StoreErrorKind::Refused, text)
    }
}

/// The text of a literal. None holds a backslash, which MySQL would read in its own way.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// In backticks: in double quotes a column that is not there would be a text.
fn quoted(column: &Column) -> String {
    format!("`{}`", column.name)
}

/// A UUID that was given as text, as the column has it.
fn raw(dialect: &Dialect, column: &Column, given: &str) -> String {
    match column.kind.as_deref() == Some(dialect.bytes) {
        true => (dialect.id_bytes)(given),
        false => given.to_owned(),
    }
}

/// A row of the table in a statement.
struct Row<'a> {
    dialect: &'a Dialect,
    layout: &'a Layout,
    /// Empty, or the row's name with a dot after it.
    alias: &'a str,
    parameter: Option<&'a str>,
}

impl Row<'_> {
    fn of(&self, column: &Column) -> String {
        format!("{}{}", self.alias, quoted(column))
    }

    fn or(&self, column: &Option<Column>, otherwise: &str) -> String {
        column.as_ref().map_or_else(|| otherwise.to_owned(), |column| self.of(column))
    }

    fn text(&self, text: &Text) -> String {
        match text {
            Text::Column(column) => self.of(column),
            Text::Fixed { fixed } => literal(fixed),
        }
    }

    fn uuid(&self, column: &Column) -> String {
        match column.kind.as_deref() == Some(self.dialect.bytes) {
            true => (self.dialect.id_text)(&self.of(column)),
            false => self.of(column),
        }
    }

    fn uuid_or_null(&self, column: &Option<Column>) -> String {
        column.as_ref().map_or_else(|| "null".to_owned(), |column| self.uuid(column))
    }

    fn now(&self) -> &str {
        self.parameter.unwrap_or(self.dialect.now)
    }

    /// A column, or what comes nearest to it.
    fn column(&self, name: &str) -> Option<String> {
        let layout = self.layout;
        Some(match name {
            "id" => self.uuid(&layout.id),
            "raw_id" => self.of(&layout.id),
            "listed_id" => self.listed_id(),
            "number" => self.number(),
            // The same as it is read.
            #[cfg(feature = "mysql")]
            "row_key" => match &self.dialect.number {
                Number::Id if !layout.is_ours() => self.uuid(&layout.id),
                _ => self.number(),
            },
            "namespace" => self.text(&layout.namespace),
            "topic" => self.text(&layout.topic),
            "key" => self.or(&layout.key, "null"),
            "tenant_id" => self.uuid_or_null(&layout.tenant),
            "dedupe_key" => self.or(&layout.dedupe_key, "null"),
            "payload" => self.payload(),
            "payload_bytes" => match layout.payload_kind {
                PayloadKind::Bytes => format!("coalesce({}, '')", self.of(&layout.payload)),
                _ => self.or(&layout.payload_bytes, "null"),
            },
            "size" => self.size(),
            "headers" => self.headers(),
            "state" => self.state(),
            "attempts" => self.attempts(),
            // The attempt of a row that has just been delivered.
            "acked_attempt" => match layout.counts {
                Counts::Claims => self.attempts(),
                Counts::Failures => format!("{} + 1", self.attempts()),
            },
            "turn" => self.turn(),
            // Where claims go by turns, after the other columns that are read.
            "and_turn" if layout.goes_by_turns() => format!(", {} as turn", self.turn()),
            "and_turn" => String::new(),
            "max_attempts" => self.or(&layout.max_attempts, "null"),
            "due_at" => self.or(&layout.next_attempt_at, &self.created_at()),
            "locked" => self.or(&layout.locked_until, &self.or(&layout.locked_at, "null")),
            "lease_end" => self.lease_end(),
            // In the order of our index, and otherwise of one that need not have more than the end of the lease.
            "lease_order" if layout.is_ours() => {
                [&layout.locked_until, &layout.updated_at, &layout.seq].map(|column| self.or(column, "null")).join(", ")
            }
            "lease_order" => format!("{}, {}", self.column("locked")?, self.number()),
            "locked_by" => self.uuid_or_null(&layout.locked_by),
            "last_error" => self.or(&layout.last_error, "null"),
            "created_at" => self.created_at(),
            "updated_at" => self.or(&layout.updated_at, "null"),
            "touched" => self.touched(),
            // Since when a row is dead, for lists: one that says no time is in them, too.
            "died" if layout.is_ours() => self.touched(),
            "died" => format!("coalesce({}, {})", self.touched(), self.dialect.epoch),
            "delivered_at" => self.or(&layout.delivered_at, "null"),
            _ => return None,
        })
    }

    fn number(&self) -> String {
        let layout = self.layout;
        match (&self.dialect.number, &layout.seq) {
            (_, Some(seq)) if layout.is_ours() => self.of(seq),
            #[cfg(feature = "sqlite")]
            (Number::Hidden(name), _) => format!("{}{name}", self.alias),
            #[cfg(feature = "mysql")]
            (Number::Id, _) => self.of(&layout.id),
        }
    }

    /// The id by which rows are listed. Those whose id is no UUID come first, as the nil UUID that they are shown with does, so that a
    /// list that goes on after one of them does not meet it again.
    fn listed_id(&self) -> String {
        let text = self.uuid(&self.layout.id);
        let id = match &self.dialect.number {
            #[cfg(feature = "sqlite")]
            Number::Hidden(_) => text.clone(),
            #[cfg(feature = "mysql")]
            Number::Id => self.of(&self.layout.id),
        };
        if self.layout.is_ours() {
            return id;
        }
        let digits = format!("replace({text}, '-', '')");
        format!("case when length({digits}) = 32 and {} then {id} else '' end", (self.dialect.is_hex)(&digits))
    }

    fn created_at(&self) -> String {
        self.or(&self.layout.created_at, self.now())
    }

    /// A count that was never written is none.
    fn attempts(&self) -> String {
        match &self.layout.attempts {
            Some(column) if self.layout.is_ours() => self.of(column),
            Some(column) => format!("coalesce({}, 0)", self.of(column)),
            None => "0".to_owned(),
        }
    }

    /// What a claim leaves as it is and a replay does not: the due time, counted from when the row was written.
    fn turn(&self) -> String {
        match (&self.layout.next_attempt_at, &self.layout.created_at) {
            (Some(due), created) if self.layout.goes_by_turns() => {
                let since = self.or(created, self.dialect.epoch);
                format!("coalesce({}, 0)", (self.dialect.between)(&since, &self.of(due)))
            }
            _ => "0".to_owned(),
        }
    }

    fn lock_timeout(&self) -> String {
        self.layout.lock_timeout.as_micros().to_string()
    }

    fn lease_end(&self) -> String {
        match (&self.layout.locked_until, &self.layout.locked_at) {
            (Some(until), _) => self.of(until),
            (None, Some(at)) => (self.dialect.later)(&self.of(at), &self.lock_timeout()),
            (None, None) => "null".to_owned(),
        }
    }

    /// When the row was changed last, as far as it says so.
    fn touched(&self) -> String {
        let layout = self.layout;
        let times = [&layout.delivered_at, &layout.last_attempt_at, &layout.created_at];
        let times: Vec<String> = times.into_iter().flatten().map(|column| self.of(column)).collect();
        match (&layout.updated_at, &times[..]) {
            (Some(column), _) => self.of(column),
            (None, []) => self.now().to_owned(),
            (None, [time]) => time.clone(),
            (None, times) => format!("coalesce({})", times.join(", ")),
        }
    }

    fn payload(&self) -> String {
        let payload = self.of(&self.layout.payload);
        match self.layout.payload_kind {
            _ if self.layout.is_ours() => payload,
            PayloadKind::Json | PayloadKind::Text => {
                format!("coalesce({}, 'null')", (self.dialect.json_text)(&payload))
            }
            PayloadKind::Bytes => "null".to_owned(),
        }
    }

    fn size(&self) -> String {
        let payload = (self.dialect.size)(&self.of(&self.layout.payload));
        let bytes = self.layout.payload_bytes.as_ref().map(|bytes| (self.dialect.size_of_bytes)(&self.of(bytes)));
        let bytes = bytes.map(|size| format!(" + coalesce({size}, 0)")).unwrap_or_default();
        match self.layout.is_ours() {
            true => format!("{payload}{bytes}"),
            // A null has no size at all.
            false => format!("coalesce({payload}, 1){bytes}"),
        }
    }

    /// The headers as JSON text, with the columns that travel as headers.
    fn headers(&self) -> String {
        if self.layout.fields.is_empty() {
            return self.or(&self.layout.headers, "'{}'");
        }
        let value = |column: &Column| match column.name == self.layout.id.name {
            true => self.uuid(&self.layout.id),
            false => self.of(column),
        };
        let fields = self.layout.fields.iter().map(|(name, column)| (literal(name), value(column)));
        let fields: Vec<_> = fields.collect();
        let with = |own: &str| (self.dialect.headers)(own, &fields);
        let Some(column) = &self.layout.headers else { return with("'{}'") };
        // What is no object is answered as it is, and found out when it is read: to merge with it would fail for all rows.
        let (own, text) = (self.of(column), (self.dialect.json_text)(&self.of(column)));
        format!(
            "case when {own} is null then {} when json_valid({text}) = 0 then {text} when lower(json_type({text})) = 'object' then {} else {text} end",
            with("'{}'"),
            with(&own)
        )
    }

    fn state(&self) -> String {
        if self.layout.is_ours() {
            return self.or(&self.layout.status, "null");
        }
        let states = ["processing", "delivered", "dead"];
        let cases = states.map(|state| format!("when {} then '{state}'", self.condition(state).unwrap_or_default()));
        format!("case {} else 'pending' end", cases.join(" "))
    }

    /// A condition that the row meets or not.
    fn condition(&self, name: &str) -> Option<String> {
        let layout = self.layout;
        let is = |words: Vec<&String>| {
            let status = self.or(&layout.status, "null");
            match &words[..] {
                [word] => format!("{status} = {}", literal(word)),
                words => {
                    format!("{status} in ({})", words.iter().map(|word| literal(word)).collect::<Vec<_>>().join(", "))
                }
            }
        };
        Some(match (name, &layout.words) {
            ("pending", Some(words)) => is(waiting(words)),
            ("processing", Some(words)) => is(vec![&words.processing]),
            ("delivered", Some(words)) => is(vec![&words.delivered]),
            ("dead", Some(words)) => is(vec![&words.dead]),
            ("pending" | "processing" | "delivered" | "dead", None) => "1 = 0".to_owned(),
            ("due", _) => self.is_over(layout.next_attempt_at.as_ref(), "<=", self.now(), "1 = 1"),
            ("undated", _) => match &layout.next_attempt_at {
                Some(at) if !layout.is_ours() => format!("{} is null", self.of(at)),
                _ => "1 = 0".to_owned(),
            },
            ("lease_over", _) => match (&layout.locked_until, &layout.locked_at) {
                (Some(_), _) => self.is_over(layout.locked_until.as_ref(), "<", self.now(), "1 = 0"),
                (None, at) => {
                    let since = (self.dialect.later)(self.now(), &format!("-{}", self.lock_timeout()));
                    self.is_over(at.as_ref(), "<", &since, "1 = 0")
                }
            },
            ("allowed", _) => {
                let usual = self.parameter.unwrap_or(self.dialect.allowed);
                layout
                    .max_attempts
                    .as_ref()
                    .map_or_else(|| usual.to_owned(), |column| format!("coalesce({}, {usual})", self.of(column)))
            }
            ("may_try", _) => format!("{} < {}", self.column("attempts")?, self.condition("allowed")?),
            ("spent", _) => format!("{} >= {}", self.column("attempts")?, self.condition("allowed")?),
            ("suspect", _) => format!(
                "({} >= {}({SUSPECT_AFTER}, {} - 1))",
                self.column("attempts")?,
                self.dialect.least,
                self.condition("allowed")?
            ),
            // The row was tried before, or was given back.
            ("tried", Some(Words { failed: Some(failed), .. })) => {
                format!("({} > 0 or {})", self.column("attempts")?, is(vec![failed]))
            }
            ("tried", _) => format!("{} > 0", self.column("attempts")?),
            _ => return None,
        })
    }

    /// Whether a time is over. One that was never written is: a row that is due at no time is due, and one that somebody left behind
    /// without saying when is nobody's.
    fn is_over(&self, time: Option<&Column>, comparison: &str, end: &str, without: &str) -> String {
        match time.map(|time| self.of(time)) {
            Some(time) if self.layout.is_ours() => format!("{time} {comparison} {end}"),
            Some(time) => format!("({time} {comparison} {end} or {time} is null)"),
            None => without.to_owned(),
        }
    }

    /// What a verb writes: assignments with commas between.
    fn written(&self, name: &str) -> Option<String> {
        let (layout, dialect, now) = (self.layout, self.dialect, self.now());
        let word = |pick: fn(&Words) -> &String| layout.words.as_ref().map(|words| literal(pick(words)));
        let waiting_again = || word(|words| words.failed.as_ref().unwrap_or(&words.pending));
        let given_up = || if layout.dead_after_failed { waiting_again() } else { word(|words| &words.dead) };
        let attempts = |change: &str| layout.attempts.as_ref().map(|_| format!("{}{change}", self.attempts()));
        let error = match layout.last_error_limit {
            Some(limit) => (dialect.left)(dialect.error, limit),
            None => dialect.error.to_owned(),
        };
        let mut set = Assignments::default();
        match name {
            "set_taken" => {
                set.put_some(&layout.status, word(|words| &words.processing));
                set.put_some(&layout.attempts, attempts(" + 1"));
                set.put_some(
                    &layout.locked_by,
                    layout.locked_by.as_ref().map(|column| raw(dialect, column, dialect.worker)),
                );
                self.lock(&mut set, dialect.lease);
                if layout.last_attempt_at != layout.locked_at {
                    set.put(&layout.last_attempt_at, now);
                }
            }
            "set_renewed" => self.lock(&mut set, dialect.renewed),
            "set_acked" => {
                set.put_some(&layout.status, word(|words| &words.delivered));
                self.free(&mut set);
                if layout.counts == Counts::Failures {
                    set.put_some(&layout.attempts, attempts(" - 1"));
                }
                set.put(&layout.delivered_at, now);
            }
            "set_nacked" => {
                set.put_some(&layout.status, waiting_again());
                self.free(&mut set);
                set.put(&layout.last_error, &error);
                set.put(&layout.next_attempt_at, &(dialect.later)(now, dialect.delay));
            }
            "set_buried" => {
                set.put_some(&layout.status, given_up());
                self.free(&mut set);
                set.put(&layout.last_error, &error);
            }
            "set_released" => {
                // An owner whose state machine knows no way back from there has a word for those that are tried again.
                let back = if layout.dead_after_failed { waiting_again() } else { word(|words| &words.pending) };
                set.put_some(&layout.status, back);
                set.put_some(&layout.attempts, attempts(" - 1"));
                self.free(&mut set);
                let last = layout.last_error.as_ref().map(|column| format!("coalesce({error}, {})", self.of(column)));
                set.put_some(&layout.last_error, last);
                let due = layout.next_attempt_at.as_ref();
                set.put_some(
                    &layout.next_attempt_at,
                    due.map(|column| (dialect.later_or)(now, dialect.delay, &self.of(column))),
                );
            }
            "set_swept" => {
                set.put_some(&layout.last_error, self.swept_error());
                set.put_some(&layout.status, given_up());
                self.free(&mut set);
            }
            "set_entombed" => set.put_some(&layout.status, word(|words| &words.dead)),
            "set_replayed" => {
                set.put_some(&layout.status, word(|words| &words.pending));
                set.put(&layout.attempts, "0");
                set.put(&layout.next_attempt_at, now);
                self.free(&mut set);
                let counted = |column: &Column| {
                    let (own, count) = (self.of(column), (dialect.replayed)(&self.of(column)));
                    // There is no place for it in what is no JSON.
                    let valid = || format!("json_valid({})", (dialect.json_text)(&own));
                    if layout.is_ours() { count } else { format!("case when {} then {count} else {own} end", valid()) }
                };
                let count = layout.headers.as_ref().map(counted);
                set.put_some(&layout.headers, count);
            }
            _ => return None,
        }
        set.put(&layout.updated_at, now);
        Some(set.0.join(", "))
    }

    fn lock(&self, set: &mut Assignments, lease: &str) {
        set.put(&self.layout.locked_until, &(self.dialect.later)(self.now(), lease));
        set.put(&self.layout.locked_at, self.now());
    }

    /// The time of the last attempt stays where it also says until when the row is locked.
    fn free(&self, set: &mut Assignments) {
        set.put(&self.layout.locked_by, "null");
        set.put(&self.layout.locked_until, "null");
        if self.layout.locked_at != self.layout.last_attempt_at {
            set.put(&self.layout.locked_at, "null");
        }
    }

    /// What the sweep says of a row: it waited with all its attempts spent, or the worker of its last attempt died.
    fn swept_error(&self) -> Option<String> {
        let (pending, attempts) = (self.condition("pending")?, self.column("attempts")?);
        let concat = self.dialect.concat;
        let before = format!("coalesce({}, '')", concat(&[&self.column("last_error")?, "' '"]));
        let spent = concat(&[&before, "'(given up: all '", &attempts, "' attempts are spent)'"]);
        let died = concat(&[
            "'delivery unknown: the worker of the last allowed attempt ('",
            &attempts,
            "') stopped before it said how the attempt ended'",
        ]);
        let error = format!("case when {pending} then {spent} else {died} end");
        Some(self.layout.last_error_limit.map_or_else(|| error.clone(), |limit| (self.dialect.left)(&error, limit)))
    }
}

/// The words of rows that wait.
pub(crate) fn waiting(words: &Words) -> Vec<&String> {
    std::iter::once(&words.pending).chain(&words.failed).collect()
}

/// Assignments to the columns that are there.
#[derive(Default)]
struct Assignments(Vec<String>);

impl Assignments {
    fn put(&mut self, column: &Option<Column>, value: &str) {
        if let Some(column) = column {
            self.0.push(format!("{} = {value}", quoted(column)));
        }
    }

    fn put_some(&mut self, column: &Option<Column>, value: Option<String>) {
        if let Some(value) = value {
            self.put(column, &value);
        }
    }
}
