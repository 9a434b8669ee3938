//! A layout for a table that nobody has described yet: by the names and types of its columns.
//!
//! It is a proposal. What was chosen without being certain is said, so that a person looks at it.

mod called;
mod lacking;

use self::lacking::Need;
use super::table::{Database, Kind, Table, TableColumn};
use super::{ClaimBy, Column, Counts, IdKind, Lanes, Layout, PayloadKind, Text, Words};
use crate::names::Names;

/// A proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guess {
    /// The layout.
    pub layout: Layout,
    /// What a person should look at.
    pub unsure: Vec<String>,
    /// Why it cannot be used as it is, and what the table lacks.
    pub wrong: Vec<String>,
}

/// A name without what people write differently.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

const TEXT: [Kind; 2] = [Kind::Text, Kind::Enum];

/// Whether a column looks like a status, of whatever type.
pub(crate) fn is_status(column: &TableColumn) -> bool {
    (TEXT.contains(&column.kind) || matches!(column.kind, Kind::Integer | Kind::Boolean | Kind::Other))
        && called::STATUS.contains(&plain(&column.name).as_str())
}

/// Whether a column looks as if it said that a row was sent: by yes or no, in whatever type, or by a time that is no time to
/// the database.
pub(crate) fn is_mark(column: &TableColumn) -> bool {
    let name = plain(&column.name);
    match column.kind {
        _ if column.computed => false,
        Kind::Boolean => called::is_mark(&name) || called::speaks_of_sending(&column.name),
        Kind::Integer | Kind::Text | Kind::Enum | Kind::Other => {
            called::is_mark(&name) || (is_left_out(column) && called::DELIVERED_AT.contains(&name.as_str()))
        }
        _ => false,
    }
}

/// Whether a column may say which rows were sent, though nothing is known by its name: it is short enough for a flag, or a time that
/// only some rows have.
pub(crate) fn may_be_mark(database: Database, column: &TableColumn) -> bool {
    let name = plain(&column.name);
    if column.computed || column.is_key || called::is_for_something_else(&name) {
        return false;
    }
    let left_out = is_left_out(column);
    let speaks = left_out && (called::speaks_of_sending(&column.name) || is_like_a_status(&name));
    let is_time_there = || ["at", "on", "date", "time"].iter().any(|end| column.name.ends_with(end));
    match column.kind {
        Kind::Boolean => true,
        Kind::Time | Kind::LocalTime => !column.not_null,
        // Any number may be a time there.
        Kind::Integer if database == Database::Sqlite && !column.not_null && is_time_there() => true,
        Kind::Integer => speaks || (left_out && (is_small(column) || column.usual_is(&["0"]))),
        Kind::Text | Kind::Enum => {
            let of_few = !column.words.is_empty() || column.usual_is(&called::NO) || column.usual_is(&called::PENDING);
            let length = column.declared_length();
            speaks || length == Some(1) || (left_out && (of_few || length.is_some_and(|length| length <= SHORT)))
        }
        Kind::Other => speaks || is_bit(column),
        _ => false,
    }
}

/// The most characters of a text that is taken for a flag.
const SHORT: u32 = 8;

/// Whether producers may leave it out, as they do with what a relay writes.
fn is_left_out(column: &TableColumn) -> bool {
    !column.not_null || column.has_default
}

fn is_like_a_status(plain: &str) -> bool {
    plain.ends_with("status") || plain.ends_with("state")
}

fn is_small(column: &TableColumn) -> bool {
    matches!(column.base.as_str(), "int2" | "tinyint" | "smallint")
}

/// Types of one digit or character that are neither numbers nor texts to us.
fn is_bit(column: &TableColumn) -> bool {
    matches!(column.base.as_str(), "bit" | "char") || ["numeric(1,0)", "decimal(1,0)"].contains(&&*column.type_name)
}

/// Whether a column looks like the time at which a row was sent, for those that were.
pub(crate) fn is_sent_at(column: &TableColumn) -> bool {
    matches!(column.kind, Kind::Time | Kind::LocalTime)
        && !column.not_null
        && called::DELIVERED_AT.contains(&plain(&column.name).as_str())
}

/// What kinds a purpose may have, by database: texts, texts that may be ids, times, UUIDs, headers.
struct Kinds {
    text: &'static [Kind],
    text_or_id: &'static [Kind],
    time: &'static [Kind],
    uuid: &'static [Kind],
    headers: &'static [Kind],
}

fn kinds(database: Database) -> Kinds {
    match database {
        Database::Postgres => Kinds {
            text: &TEXT,
            text_or_id: &[Kind::Text, Kind::Uuid, Kind::Enum, Kind::Integer],
            time: &[Kind::Time, Kind::LocalTime],
            uuid: &[Kind::Uuid],
            headers: &[Kind::Jsonb],
        },
        Database::MySql => Kinds {
            text: &TEXT,
            text_or_id: &[Kind::Text, Kind::Bytes, Kind::Enum, Kind::Uuid],
            time: &[Kind::Time, Kind::LocalTime],
            uuid: &[Kind::Uuid, Kind::Text, Kind::Bytes],
            headers: &[Kind::Json, Kind::Text],
        },
        Database::Sqlite => Kinds {
            text: &TEXT,
            text_or_id: &[Kind::Text, Kind::Bytes],
            time: &[Kind::Integer],
            uuid: &[Kind::Text, Kind::Bytes],
            headers: &[Kind::Text],
        },
    }
}

/// Proposes a layout for a table. `sampled` are the words that its status column was seen with, where nothing restricts them; none if
/// it may not be read.
pub(crate) fn guess(table: &Table, names: &Names, sampled: Option<&[String]>) -> Guess {
    let kinds = kinds(table.database);
    Guesser { table, kinds, taken: Vec::new(), unsure: Vec::new(), wrong: Vec::new() }.guess(names, sampled)
}

struct Guesser<'a> {
    table: &'a Table,
    kinds: Kinds,
    taken: Vec<&'a str>,
    unsure: Vec<String>,
    wrong: Vec<String>,
}

impl<'a> Guesser<'a> {
    /// The column with the likeliest name, if its type fits. No column is taken twice.
    fn find(&mut self, names: &[&str], kinds: &[Kind]) -> Option<&'a TableColumn> {
        let fits = |name: &&str| {
            self.table.columns.iter().find(|column| {
                plain(&column.name) == **name
                    && kinds.contains(&column.kind)
                    && !self.taken.contains(&column.name.as_str())
            })
        };
        let found = names.iter().find_map(fits)?;
        self.taken.push(&found.name);
        Some(found)
    }

    fn column(&mut self, names: &[&str], kinds: &[Kind]) -> Option<Column> {
        self.find(names, kinds).map(|column| Column::from(column.name.as_str()))
    }

    fn doubt(&mut self, text: impl Into<String>) {
        self.unsure.push(text.into());
    }

    fn guess(mut self, names: &Names, sampled: Option<&[String]>) -> Guess {
        if let Some(unfit) = &self.table.unfit {
            self.wrong.push(format!("{} is {}; {}", self.table.place, unfit.what, unfit.fix));
        }
        let id = self.id();
        let payload = self.payload();
        let mut layout = Layout::bare("guessed", names.clone(), &id, &payload);
        self.kinds(&mut layout);
        self.message(&mut layout);
        self.progress(&mut layout);
        self.claim(&mut layout, sampled);
        self.fields(&mut layout);
        self.indexes(&mut layout);
        if self.table.unfit.is_some() {
            // Whatever else is said would be about another table.
            self.wrong.truncate(1);
        }
        Guess { layout, unsure: self.unsure, wrong: self.wrong }
    }

    fn id(&mut self) -> String {
        let key = self.table.columns.iter().find(|column| column.is_key);
        let kinds = [self.kinds.uuid, &[Kind::Integer]].concat();
        let key = key.filter(|key| kinds.contains(&key.kind));
        // Where numbers are no ids, another column may be one.
        let other = key.filter(|key| key.kind == Kind::Integer && self.table.database != Database::Postgres);
        if let Some(uuid) = other.and_then(|_| self.unique_uuid()) {
            self.taken.push(&uuid.name);
            return uuid.name.clone();
        }
        if let Some(key) = key {
            self.taken.push(&key.name);
            return key.name.clone();
        }
        match self.find(&called::ID, &kinds) {
            Some(id) if self.is_unique(id) => id.name.clone(),
            Some(id) => {
                let make = self.table.create_index(true, &[&id.name], None);
                self.wrong.push(format!("id: nothing keeps {:?} unique; name another column, or run: {make}", id.name));
                id.name.clone()
            }
            None => {
                let needed = "id: no column of type uuid or a whole number is the primary key; a layout needs one that is unique";
                self.wrong.push(needed.to_owned());
                "id".to_owned()
            }
        }
    }

    /// A column that is called like an id, can hold a UUID and is unique.
    fn unique_uuid(&self) -> Option<&'a TableColumn> {
        let called = |name: &&str| {
            let fits = |column: &&TableColumn| plain(&column.name) == **name && self.kinds.uuid.contains(&column.kind);
            self.table.columns.iter().find(|column| fits(column) && self.is_unique(column))
        };
        called::ID.iter().find_map(called)
    }

    fn is_unique(&self, column: &TableColumn) -> bool {
        let alone = |columns: &[String]| matches!(columns, [only] if only.eq_ignore_ascii_case(&column.name));
        self.table.indexes.iter().any(|index| index.unique && index.predicate.is_none() && alone(&index.columns))
    }

    fn payload(&mut self) -> String {
        let kinds = [Kind::Jsonb, Kind::Json, Kind::Text, Kind::Bytes];
        if let Some(payload) = self.find(&called::PAYLOAD, &kinds) {
            return payload.name.clone();
        }
        let json = |column: &&TableColumn| {
            matches!(column.kind, Kind::Jsonb | Kind::Json) && !called::HEADERS.contains(&plain(&column.name).as_str())
        };
        match self.table.columns.iter().find(json) {
            Some(payload) => {
                self.taken.push(&payload.name);
                self.doubt(format!("payload: {:?} is the first column with JSON in it", payload.name));
                payload.name.clone()
            }
            None => {
                self.wrong.push("payload: no column looks like a payload; name it".to_owned());
                "payload".to_owned()
            }
        }
    }

    fn kinds(&mut self, layout: &mut Layout) {
        let id = self.table.column(&layout.id.name);
        if id.is_some_and(|id| id.kind == Kind::Integer) {
            layout.id_kind = IdKind::Integer;
            if self.table.database != Database::Postgres {
                self.wrong.push("id: ids that are whole numbers are for PostgreSQL; give the table a UUID that is unique, as text or as sixteen bytes".to_owned());
            }
        } else if let Some(id) = id {
            layout.id = self.said_uuid(id);
        }
        layout.payload_kind = match self.table.column(&layout.payload.name).map(|payload| payload.kind) {
            Some(Kind::Text) if self.table.database == Database::Postgres => {
                self.doubt("payload_kind: the payload is text, which is taken for JSON");
                PayloadKind::Text
            }
            Some(Kind::Bytes) => PayloadKind::Bytes,
            _ => PayloadKind::Json,
        };
    }

    /// What a message is made of.
    fn message(&mut self, layout: &mut Layout) {
        let table = layout.names.table().to_owned();
        match self.find(&called::NAMESPACE, self.kinds.text) {
            Some(namespace) => layout.namespace = Text::Column(self.said(namespace)),
            None => self.doubt(format!("namespace: there is no column for it; all messages are of {table:?}")),
        }
        match self.find(&called::TOPIC, self.kinds.text) {
            Some(topic) => {
                if !["topic", "eventtype", "aggregatetype"].contains(&plain(&topic.name).as_str()) {
                    self.doubt(format!("topic: {:?} is taken for it", topic.name));
                }
                layout.topic = Text::Column(self.said(topic));
            }
            None => self.doubt(format!("topic: there is no column for it; all messages are of {table:?}")),
        }
        if let Some(key) = self.find(&called::KEY, self.kinds.text_or_id) {
            (layout.key, layout.key_required) = (Some(self.said(key)), key.not_null);
        }
        if let Some(tenant) = self.find(&called::TENANT, self.kinds.uuid) {
            (layout.tenant, layout.tenant_required) = (Some(self.said_uuid(tenant)), tenant.not_null);
        }
        let bytes: &[Kind] =
            if self.table.database == Database::MySql { &[Kind::Text, Kind::Bytes] } else { &[Kind::Text] };
        if let Some(dedupe) = self.find(&called::DEDUPE_KEY, bytes) {
            (layout.dedupe_key, layout.dedupe_required) = (Some(said_plainly(dedupe)), dedupe.not_null);
        }
        if layout.payload_kind != PayloadKind::Bytes {
            layout.payload_bytes = self.column(&called::PAYLOAD_BYTES, &[Kind::Bytes]);
        }
        layout.headers = self.column(&called::HEADERS, self.kinds.headers);
    }

    /// What the row says of its attempts and times.
    fn progress(&mut self, layout: &mut Layout) {
        if let Some(attempts) = self.find(&called::ATTEMPTS, &[Kind::Integer]) {
            layout.attempts = Some(said_plainly(attempts));
            let claims = plain(&attempts.name) == "attempts";
            layout.counts = if claims { Counts::Claims } else { Counts::Failures };
            let counted = if claims { "claims" } else { "failures" };
            self.doubt(format!("counts: {:?} is taken to count {counted}", attempts.name));
        }
        if let Some(max) = self.find(&called::MAX_ATTEMPTS, &[Kind::Integer]) {
            layout.max_attempts = Some(said_plainly(max));
            let usual = max.usual.as_ref().and_then(|usual| usual.parse().ok());
            layout.usual_max_attempts = usual.or(max.not_null.then_some(10));
        }
        layout.next_attempt_at = self.column(&called::NEXT_ATTEMPT_AT, self.kinds.time);
        layout.seq = self.column(&called::SEQ, &[Kind::Integer]);
        if let Some(error) = self.find(&called::LAST_ERROR, &[Kind::Text]) {
            (layout.last_error, layout.last_error_limit) = (Some(said_plainly(error)), error.length);
        }
        layout.created_at = self.column(&called::CREATED_AT, self.kinds.time);
        layout.updated_at = self.column(&called::UPDATED_AT, self.kinds.time);
        layout.last_attempt_at = self.column(&called::LAST_ATTEMPT_AT, self.kinds.time);
        // A time that every row has says nothing of what was sent.
        let delivered = self.find(&called::DELIVERED_AT, self.kinds.time);
        layout.delivered_at = delivered.filter(|column| !column.not_null).map(said_plainly);
    }

    /// How rows are claimed: by a lease if the table has what that takes, and otherwise by a lock on the row.
    fn claim(&mut self, layout: &mut Layout, sampled: Option<&[String]>) {
        let until = self.column(&called::LOCKED_UNTIL, self.kinds.time);
        let at = self.column(&called::LOCKED_AT, self.kinds.time);
        let status = self.find(&called::STATUS, self.kinds.text);
        let words = status.and_then(|status| self.words(status, sampled));
        let lock = until.is_some() || at.is_some() || layout.last_attempt_at.is_some();
        let needed = [
            (status.is_some(), Need::Status),
            (status.is_none() || words.is_some(), Need::Words),
            (layout.attempts.is_some(), Need::Attempts),
            (layout.next_attempt_at.is_some(), Need::Due),
            (lock, Need::Lock),
        ];
        let lacking: Vec<Need> = needed.into_iter().filter(|(there, _)| !there).map(|(_, need)| need).collect();
        if !lacking.is_empty() {
            self.unmapped(layout, &lacking);
            return self.row_lock(layout, &lacking);
        }
        layout.status = status.map(said_plainly);
        layout.words = words;
        layout.locked_by = self.find(&called::LOCKED_BY, self.kinds.uuid).map(|owner| self.said_uuid(owner));
        if let Some(owner) = self.find(&called::LOCKED_BY, &[Kind::Text, Kind::Integer]) {
            self.doubt(format!("locked_by: {:?} is no UUID, so it is left alone", owner.name));
        }
        if until.is_some() {
            (layout.claim, layout.locked_until) = (ClaimBy::Lease, until);
            return;
        }
        layout.claim = ClaimBy::LockTimeout;
        layout.locked_at = at.or_else(|| {
            self.doubt("locked_at: the time of the last attempt is taken for the time of the lock");
            layout.last_attempt_at.clone()
        });
        self.doubt("lock_timeout: nothing in the table says how long a lock counts; it is 5m");
    }

    fn row_lock(&mut self, layout: &mut Layout, lacking: &[Need]) {
        layout.claim = ClaimBy::RowLock;
        let lacks: Vec<&str> = lacking.iter().map(|need| need.what()).collect();
        self.doubt(format!(
            "claim: rows are locked while they are published, because the table lacks {}",
            lacks.join(", ")
        ));
        if let Some(due) = layout.next_attempt_at.take() {
            self.doubt(format!("next_attempt_at: {:?} is left alone", due.name));
        }
        match (&layout.delivered_at, &layout.attempts) {
            (Some(_), Some(_)) => {
                layout.give_up_after = Some(10);
                self.doubt(
                    "give_up_after: nothing in the table says after how many attempts a message is dead; it is 10",
                );
            }
            (None, _) => {
                layout.attempts = None;
                self.doubt("delivered_at: nothing says that a row was delivered, so delivered rows are deleted");
            }
            (Some(_), None) => {}
        }
    }

    /// What the states are called.
    fn words(&mut self, status: &TableColumn, sampled: Option<&[String]>) -> Option<Words> {
        let restricted = !status.words.is_empty();
        let known = if restricted { &status.words } else { sampled.unwrap_or_default() };
        if sampled.is_none() && !restricted {
            let (role, name) = (&self.table.role, &status.name);
            self.doubt(format!("words: the role {role} may not read {name:?}, so no row was looked at; guess again as one that may, or see that the words are right"));
        }
        let pick =
            |names: &[&str]| names.iter().find_map(|name| known.iter().find(|word| plain(word) == *name)).cloned();
        // What new rows get counts for more than what some row has, where nothing else says it.
        let usual = status.usual_word().filter(|usual| !restricted || known.contains(usual));
        let usual = usual.filter(|usual| !restricted || called::PENDING.contains(&plain(usual).as_str()));
        let failed = pick(&called::FAILED);
        let dead = pick(&called::DEAD);
        // A table with one word for what failed means that it was given up.
        let (dead, failed) = if dead.is_none() && restricted { (failed, None) } else { (dead, failed) };
        let found = [
            (usual.or_else(|| pick(&called::PENDING)), "pending"),
            (pick(&called::PROCESSING), "processing"),
            (pick(&called::DELIVERED), "delivered"),
            (dead, "dead"),
        ];
        let mut words = Vec::new();
        for (word, state) in found {
            match word {
                Some(word) => words.push(word),
                None if restricted => {
                    self.doubt(format!(
                        "words: {:?} allows {}, and none of them is taken for {state}",
                        status.name,
                        status.words.join(", ")
                    ));
                    return None;
                }
                None => {
                    let why = if sampled.is_some() { "no row of the sample says" } else { "nothing says" };
                    self.doubt(format!("words: {why} what {state} is called; it is {state:?} here"));
                    words.push(state.to_owned());
                }
            }
        }
        let [pending, processing, delivered, dead] = <[String; 4]>::try_from(words).ok()?;
        let chosen = [&pending, &processing, &delivered, &dead].into_iter().chain(&failed).collect::<Vec<_>>();
        let left: Vec<&str> = known.iter().filter(|word| !chosen.contains(word)).map(String::as_str).collect();
        if !left.is_empty() {
            self.doubt(format!("words: rows that are {} are neither claimed nor counted", left.join(", ")));
        }
        self.doubt_failed(&dead, failed.as_deref());
        Some(Words { pending, failed, processing, delivered, dead })
    }

    /// A word for what failed may mean that a row waits to be tried again, or that it was given up. Nothing in a table says which.
    fn doubt_failed(&mut self, dead: &str, failed: Option<&str>) {
        if let Some(failed) = failed {
            self.doubt(format!("words: {failed:?} is taken for rows that wait for their next attempt, and they are published again; if they were given up, make it the word for dead, and leave failed out"));
            self.doubt("dead_after_failed: if the table's owner wants rows to be failed before they are dead, set it");
        } else if called::FAILED.contains(&plain(dead).as_str()) {
            self.doubt(format!("words: {dead:?} is taken for rows that were given up, and they are not published; if they wait for their next attempt, make it the word for failed, and name another for dead"));
        }
    }

    /// Columns that travel as headers: types, and what producers must write.
    fn fields(&mut self, layout: &mut Layout) {
        // The outbox event router sends the id as a header too.
        if layout.topic.column().is_some_and(|topic| plain(&topic.name) == "aggregatetype") {
            layout.fields.insert("id".to_owned(), layout.id.clone());
        }
        for (header, names) in [
            (postrider_core::message::EVENT_TYPE, called::EVENT_TYPE.as_slice()),
            (postrider_core::message::AGGREGATE_TYPE, called::AGGREGATE_TYPE.as_slice()),
        ] {
            if let Some(column) = self.find(names, self.kinds.text) {
                layout.fields.insert(header.to_owned(), self.said(column));
            }
        }
        // What a registry of events and the sink for chat providers look for, also where the topic or the key is taken from it.
        let named = |column: Option<&Column>, names: &[&str]| {
            column.filter(|column| names.contains(&plain(&column.name).as_str())).cloned()
        };
        let (topic, key) = (layout.topic.column(), layout.key.as_ref());
        let twice = [
            (postrider_core::message::EVENT_TYPE, named(topic, &called::EVENT_TYPE)),
            ("provider", named(topic, &["provider"])),
            ("recipient", named(key, &["recipient", "recipientid"])),
        ];
        for (header, column) in twice {
            if let Some(column) = column {
                layout.fields.entry(header.to_owned()).or_insert(column);
            }
        }
        let used: Vec<String> = layout.columns().into_iter().map(|(_, column)| column.name.clone()).collect();
        for column in &self.table.columns {
            let free = !self.taken.contains(&column.name.as_str()) && !used.contains(&column.name);
            // What says that a row was sent is nothing that producers have to say.
            let free = free && !is_mark(column) && !is_status(column);
            if free && column.not_null && !column.has_default && self.kinds.text_or_id.contains(&column.kind) {
                let header = kebab(&column.name);
                self.unsure
                    .push(format!("fields: {:?} must be written, and travels as the header {header:?}", column.name));
                layout.fields.insert(header, self.said(column));
            }
        }
    }

    /// A column with its type, where that is not text and has to be said.
    fn said(&self, column: &TableColumn) -> Column {
        let values = if column.kind == Kind::Enum { column.words.clone() } else { Vec::new() };
        let cast = self.table.database == Database::Postgres && column.kind != Kind::Text;
        // What is too long is refused before SQL: a refusal of the database would end the transaction of whoever enqueues.
        let max_length = column.length.filter(|_| column.kind == Kind::Text);
        Column { name: column.name.clone(), kind: cast.then(|| column.base.clone()), values, max_length }
    }

    /// A column with a UUID in it.
    fn said_uuid(&self, column: &TableColumn) -> Column {
        match self.table.database.uuid_bytes() {
            Some(bytes) if column.kind == Kind::Bytes => Column::typed(&column.name, bytes),
            _ => said_plainly(column),
        }
    }

    fn indexes(&mut self, layout: &mut Layout) {
        let name = |column: &Option<Column>| column.as_ref().map(|column| column.name.clone());
        if let (Some(tenant), Some(status), Some(due)) =
            (name(&layout.tenant), name(&layout.status), name(&layout.next_attempt_at))
        {
            let wanted = [tenant, status, due];
            if layout.tenant_required
                && self.table.indexes.iter().any(|index| index.predicate.is_none() && index.columns == wanted)
            {
                layout.lanes = Some(Lanes::Tenants);
            }
        }
        if self.table.columns.iter().any(|column| column.kind == Kind::LocalTime) {
            self.doubt("times: some have no time zone, and are read and written as UTC");
        }
    }
}

/// A column whose purpose says its type.
fn said_plainly(column: &TableColumn) -> Column {
    Column::from(column.name.as_str())
}

/// `channelMessageId` and `channel_message_id` as `channel-message-id`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        match c {
            '_' => text.push('-'),
            c if c.is_ascii_uppercase() && !text.is_empty() && !text.ends_with('-') => {
                text.push('-');
                text.push(c.to_ascii_lowercase());
            }
            c => text.push(c.to_ascii_lowercase()),
        }
    }
    text.trim_matches('-').to_owned()
}
