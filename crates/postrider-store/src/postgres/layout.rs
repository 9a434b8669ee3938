//! A layout in PostgreSQL's words: what the placeholders of the templates stand for.
//!
//! `{attempts}` is a column, `{row.attempts}` the same of a certain row. Where the table lacks a column its placeholder is what
//! comes nearest: a null, or the time of another column. What a verb writes (`{set_acked}`) is put together here, so that a
//! template need not know which columns there are.

use postrider_core::operate::REPLAYED;
use postrider_core::sabotage::{self, Defect};

use crate::layout::{ClaimBy, Column, Counts, IdKind, Lanes, Layout, PayloadKind, Text};

/// A tenant for rows without one, so that lanes can be compared.
const NO_TENANT: &str = "'00000000-0000-0000-0000-000000000000'";

/// What the placeholder of a layout stands for; nothing if it is none of a layout's. `alias` is empty, or the row's name with a
/// dot after it.
pub(super) fn resolve(layout: &Layout, placeholder: &str) -> Option<String> {
    if let Some(given) = placeholder.strip_prefix("raw ") {
        return Some(raw(layout, given));
    }
    if let Some(given) = placeholder.strip_prefix("raws ") {
        return Some(match layout.id_kind {
            IdKind::Uuid => given.to_owned(),
            IdKind::Integer => format!("array(select {} from unnest({given}) as given)", raw(layout, "given")),
        });
    }
    let (alias, name) = match placeholder.split_once('.') {
        Some((alias, name)) => (format!("{alias}."), name),
        None => (String::new(), placeholder),
    };
    let row = Row { layout, alias: &alias };
    row.column(name)
        .or_else(|| row.condition(name))
        .or_else(|| lane(layout, name))
        .or_else(|| written(layout, name))
        .or_else(|| inserted(layout, name))
}

/// The text of a literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A list of literals.
fn any_of<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(|word| literal(word)).collect::<Vec<_>>().join(", ")
}

fn quoted(column: &Column) -> String {
    format!("\"{}\"", column.name)
}

/// A whole number that a UUID of ours was made of (see [`Row::id`]); none for any other UUID.
fn raw(layout: &Layout, given: &str) -> String {
    let digits = format!("replace(({given})::text, '-', '')");
    match layout.id_kind {
        IdKind::Uuid => given.to_owned(),
        IdKind::Integer => format!(
            "case when left({digits}, 15) = {} || '00' and substr({digits}, 17, 1) = '8' \
             then ('x' || substr({digits}, 16, 1) || substr({digits}, 18))::bit(64)::bigint end",
            id_prefix(layout)
        ),
    }
}

/// The first 13 hexadecimal digits of the ids that are made of whole numbers: 48 bits of the names of the database and the table, then
/// the version. UUIDs of version 8 are for such uses. The number's 16 digits follow: two zeros and its first digit, the variant, the
/// other 15. The database says its own name, so that an application and a relay that reach it by different addresses agree. How it is
/// made must never change: ids are on the wire. A subquery, so that it is made once and not for every row.
fn id_prefix(layout: &Layout) -> String {
    let names = [Some(super::statements::schema(&layout.names)), Some(layout.names.table()), layout.id_salt.as_deref()];
    let rest: String = names.into_iter().flatten().map(|name| format!(".\"{}\"", name.replace('"', "\"\""))).collect();
    let name = format!("'\"' || replace(current_database()::text, '\"', '\"\"') || {}", literal(&format!("\"{rest}")));
    format!("(select left(encode(sha256(convert_to({name}, 'UTF8')), 'hex'), 12) || '8')")
}

/// A row of the table in a statement.
struct Row<'a> {
    layout: &'a Layout,
    alias: &'a str,
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
            Text::Column(column) if column.kind.is_some() => format!("{}::text", self.of(column)),
            Text::Column(column) => self.of(column),
            Text::Fixed { fixed } => format!("{}::text", literal(fixed)),
        }
    }

    fn optional_text(&self, column: &Option<Column>) -> String {
        column.as_ref().map_or_else(|| "null::text".to_owned(), |column| self.text(&Text::Column(column.clone())))
    }

    /// The id as a UUID.
    fn id(&self) -> String {
        let id = self.of(&self.layout.id);
        match self.layout.id_kind {
            IdKind::Uuid => id,
            IdKind::Integer => {
                let digits = format!("lpad(to_hex({id}::bigint), 16, '0')");
                let prefix = id_prefix(self.layout);
                format!("({prefix} || '00' || left({digits}, 1) || '8' || substr({digits}, 2))::uuid")
            }
        }
    }

    /// A column, or what comes nearest to it.
    fn column(&self, name: &str) -> Option<String> {
        let layout = self.layout;
        Some(match name {
            "id" => self.id(),
            "raw_id" => self.of(&layout.id),
            "namespace" => self.text(&layout.namespace),
            "topic" => self.text(&layout.topic),
            "key" => self.optional_text(&layout.key),
            "tenant_id" => self.or(&layout.tenant, "null::uuid"),
            "tenant" => format!("coalesce({}, {NO_TENANT})", self.or(&layout.tenant, "null::uuid")),
            "dedupe_key" => self.optional_text(&layout.dedupe_key),
            "payload" => self.payload(),
            "payload_bytes" => self.payload_bytes(),
            "size" => self.size(),
            "headers" => self.headers(),
            "state" => self.state(),
            "attempts" => self.attempts(),
            "max_attempts" => match layout.give_up_after {
                Some(number) => format!("least({}, {number})", self.or(&layout.max_attempts, "null::int")),
                None => self.or(&layout.max_attempts, "null::int"),
            },
            "due_at" => self.or(&layout.next_attempt_at, &self.created_at()),
            "locked" => self.or(&layout.locked_until, &self.or(&layout.locked_at, "null::timestamptz")),
            "lease_end" => self.lease_end(),
            "locked_by" => self.or(&layout.locked_by, "null::uuid"),
            "address" if layout.goes_by_turns() => format!("{}::text", self.turn()),
            "address" => format!("{}ctid::text", self.alias),
            // In the place of a worker.
            "turn" => format!("lpad(to_hex({}), 32, '0')::uuid", self.turn()),
            "seq" => self.or(&layout.seq, "0::bigint"),
            "tie" => match &layout.seq {
                Some(seq) => self.of(seq),
                None => format!("{}, {}", self.created_at(), self.of(&layout.id)),
            },
            "last_error" => self.or(&layout.last_error, "null::text"),
            "created_at" => self.created_at(),
            "touched" => self.touched(),
            // Since when a row is dead, for lists, which must not meet again what says no time.
            "died" if layout.is_ours() => self.touched(),
            "died" => {
                let times = [&layout.updated_at, &layout.delivered_at, &layout.last_attempt_at, &layout.created_at];
                let times = times.into_iter().flatten().map(|column| format!("{}, ", self.of(column)));
                format!("coalesce({}timestamptz 'epoch')", times.collect::<String>())
            }
            "delivered_at" => self.or(&layout.delivered_at, "null::timestamptz"),
            // This claim's number.
            "attempt" => match layout.claim {
                ClaimBy::RowLock => format!("{} + 1", self.attempts()),
                _ => self.attempts(),
            },
            _ => return None,
        })
    }

    /// A count that was never written is none, and so is one below zero: a fence could not tell such attempts apart.
    fn attempts(&self) -> String {
        match &self.layout.attempts {
            Some(column) if self.layout.is_ours() => self.of(column),
            Some(column) => format!("greatest({}, 0)", self.of(column)),
            None => "0".to_owned(),
        }
    }

    fn created_at(&self) -> String {
        self.or(&self.layout.created_at, "now()")
    }

    /// What a claim leaves as it is and a replay does not: the due time, counted from when the row was written. Between times that are
    /// infinite or were never written there is nothing to count, and a subtraction would fail the whole claim.
    fn turn(&self) -> String {
        let since = self.or(&self.layout.created_at, "timestamptz 'epoch'");
        let due = self.or(&self.layout.next_attempt_at, &since);
        format!(
            "case when isfinite({due}) and isfinite({since}) then (extract(epoch from ({due} - {since})) * 1000000)::bigint else 0 end"
        )
    }

    fn lease_end(&self) -> String {
        match (&self.layout.locked_until, &self.layout.locked_at) {
            (Some(until), _) => self.of(until),
            (None, Some(at)) => format!("({} + {})", self.of(at), lock_timeout(self.layout)),
            (None, None) => "null::timestamptz".to_owned(),
        }
    }

    /// When the row was changed last, as far as it says so.
    fn touched(&self) -> String {
        let layout = self.layout;
        match &layout.updated_at {
            Some(column) => self.of(column),
            None => {
                let times = [&layout.delivered_at, &layout.last_attempt_at, &layout.created_at];
                let times: Vec<String> = times.into_iter().flatten().map(|column| self.of(column)).collect();
                match times.is_empty() {
                    true => "now()".to_owned(),
                    false => format!("coalesce({}, now())", times.join(", ")),
                }
            }
        }
    }

    fn payload(&self) -> String {
        let payload = self.of(&self.layout.payload);
        match self.layout.payload_kind {
            PayloadKind::Json if self.layout.is_ours() => format!("{payload}::text"),
            PayloadKind::Json | PayloadKind::Text => format!("coalesce({payload}::text, 'null')"),
            PayloadKind::Bytes => "null::text".to_owned(),
        }
    }

    fn payload_bytes(&self) -> String {
        match self.layout.payload_kind {
            PayloadKind::Bytes => format!("coalesce({}, ''::bytea)", self.of(&self.layout.payload)),
            _ => self.or(&self.layout.payload_bytes, "null::bytea"),
        }
    }

    fn size(&self) -> String {
        let payload = self.of(&self.layout.payload);
        let bytes =
            self.layout.payload_bytes.as_ref().map(|bytes| format!(" + coalesce(octet_length({}), 0)", self.of(bytes)));
        match self.layout.is_ours() {
            true => format!("pg_column_size({payload}){}", bytes.unwrap_or_default()),
            // A null has no size at all.
            false => format!("coalesce(pg_column_size({payload}), 1){}", bytes.unwrap_or_default()),
        }
    }

    /// The headers as JSON text, with the columns that travel as headers; null if there are none.
    fn headers(&self) -> String {
        let own = self.layout.headers.as_ref().map(|column| self.of(column));
        if self.layout.fields.is_empty() {
            return own.map_or_else(
                || "null::text".to_owned(),
                |own| format!("case when {own} <> '{{}}' then {own}::text end"),
            );
        }
        let fields = self.layout.fields.iter().map(|(name, column)| match column.name == self.layout.id.name {
            true => format!("{}, {}::text", literal(name), self.id()),
            false => format!("{}, {}::text", literal(name), self.of(column)),
        });
        let fields = format!("jsonb_strip_nulls(jsonb_build_object({}))", fields.collect::<Vec<_>>().join(", "));
        match own {
            Some(own) => format!("(coalesce({own}, '{{}}') || {fields})::text"),
            None => format!("{fields}::text"),
        }
    }

    fn state(&self) -> String {
        if self.layout.is_ours() {
            return self.or(&self.layout.status, "null::text");
        }
        let states = ["pending", "processing", "delivered", "dead"];
        let cases = states.map(|state| format!("when {} then '{state}'", self.condition(state).unwrap_or_default()));
        format!("case {} else 'pending' end", cases.join(" "))
    }

    /// A condition that the row meets or not.
    fn condition(&self, name: &str) -> Option<String> {
        let layout = self.layout;
        let is = |words: &[&String]| {
            let status = layout.status.as_ref().map(|status| self.of(status))?;
            Some(match words {
                [word] => format!("{status} = {}", literal(word)),
                words => format!("{status} in ({})", any_of(words.iter().copied())),
            })
        };
        let delivered_at = layout.delivered_at.as_ref().map(|column| self.of(column));
        let spent = match (&layout.attempts, layout.give_up_after) {
            (Some(_), Some(number)) => Some((self.attempts(), number)),
            _ => None,
        };
        Some(match (name, &layout.words) {
            ("pending", Some(words)) => {
                let waiting: Vec<&String> = std::iter::once(&words.pending).chain(&words.failed).collect();
                is(&waiting)?
            }
            // Where tenants are found by an index of their own. Said plainly, the planner would rather go by a partial index of what
            // waits, and walk the rows of all tenants; a word that it does not know beforehand proves no predicate.
            ("waiting", Some(words)) => match (layout.lanes, &layout.status) {
                (Some(Lanes::Tenants), Some(status)) if status.kind.is_none() && words.failed.is_none() => {
                    format!("{} = (select {}::text)", self.of(status), literal(&words.pending))
                }
                _ => self.condition("pending")?,
            },
            ("waiting", None) => self.condition("pending")?,
            ("processing", Some(words)) => is(&[&words.processing])?,
            ("delivered", Some(words)) => is(&[&words.delivered])?,
            ("dead", Some(words)) => is(&[&words.dead])?,
            ("open", Some(words)) => {
                let open: Vec<&String> =
                    std::iter::once(&words.pending).chain(&words.failed).chain([&words.processing]).collect();
                is(&open)?
            }
            ("pending" | "open", None) => match (delivered_at, spent) {
                (Some(at), Some((attempts, number))) => format!("{at} is null and {attempts} < {number}"),
                (Some(at), None) => format!("{at} is null"),
                (None, _) => "true".to_owned(),
            },
            ("processing", None) => "false".to_owned(),
            ("delivered", None) => delivered_at.map_or_else(|| "false".to_owned(), |at| format!("{at} is not null")),
            ("dead", None) => match (delivered_at, spent) {
                (Some(at), Some((attempts, number))) => format!("{at} is null and {attempts} >= {number}"),
                _ => "false".to_owned(),
            },
            // By the index of due times, if there is such a column; what no time is written for is always due.
            ("due", _) => layout
                .next_attempt_at
                .as_ref()
                .map_or_else(|| "true".to_owned(), |at| format!("{} <= now()", self.of(at))),
            ("undated", _) => match &layout.next_attempt_at {
                Some(at) if !layout.is_ours() => format!("{} is null", self.of(at)),
                _ => "false".to_owned(),
            },
            ("due_or_undated", _) => match &layout.next_attempt_at {
                Some(at) if !layout.is_ours() => format!("({0} <= now() or {0} is null)", self.of(at)),
                _ => self.condition("due")?,
            },
            // By the index of locks.
            ("lease_ended", _) => match (&layout.locked_until, &layout.locked_at) {
                (Some(until), _) => format!("{} < now()", self.of(until)),
                (None, Some(at)) => format!("{} < now() - {}", self.of(at), lock_timeout(layout)),
                (None, None) => "false".to_owned(),
            },
            // A row that somebody left behind without saying when is nobody's.
            ("unlocked", _) => match layout.locked_until.as_ref().or(layout.locked_at.as_ref()) {
                Some(lock) if !layout.is_ours() => format!("{} is null", self.of(lock)),
                _ => "false".to_owned(),
            },
            ("lease_over", _) if layout.is_ours() || layout.claim == ClaimBy::RowLock => {
                self.condition("lease_ended")?
            }
            ("lease_over", _) => format!("({} or {})", self.condition("lease_ended")?, self.condition("unlocked")?),
            // Where no word says that a row is dead, the layout says after how many attempts it is.
            ("allowed", _) => match (&layout.max_attempts, layout.give_up_after) {
                (Some(column), None) => format!("coalesce({}, $3::int)", self.of(column)),
                (None, None) => "$3::int".to_owned(),
                (Some(column), Some(number)) => {
                    format!("least({}, {number}, greatest($3::int, 2147483647))", self.of(column))
                }
                (None, Some(number)) => format!("least({number}, greatest($3::int, 2147483647))"),
            },
            // A row with a dedupe key stays for a producer's late retry, if it can.
            ("deletable", _) => match layout.claim {
                ClaimBy::RowLock => "true".to_owned(),
                _ if sabotage::has(Defect::DedupeKeyDeleted) => "true".to_owned(),
                _ => format!("{} is null", self.column("dedupe_key")?),
            },
            ("may_try", _) => format!("{} < {}", self.column("attempts")?, self.condition("allowed")?),
            ("spent", _) => format!("{} >= {}", self.column("attempts")?, self.condition("allowed")?),
            _ => return None,
        })
    }
}

fn lock_timeout(layout: &Layout) -> String {
    format!("interval '{} microseconds'", layout.lock_timeout.as_micros())
}

/// How the lanes of a fair claim are told apart and walked through.
fn lane(layout: &Layout, name: &str) -> Option<String> {
    let row = Row { layout, alias: "" };
    let column = |name| row.column(name);
    let (namespace, topic, tenant) = (column("namespace")?, column("topic")?, column("tenant")?);
    Some(match (layout.lanes?, name) {
        (Lanes::Topics, "lane_order") => format!("{namespace}, {topic}, {tenant}"),
        (Lanes::Topics, "in_lane") => {
            format!("{namespace} = lane.namespace and {topic} = lane.topic and {tenant} = lane.tenant")
        }
        (Lanes::Tenants, "lane_order") => column("tenant_id")?,
        (Lanes::Tenants, "in_lane") => format!("{} = lane.tenant", column("tenant_id")?),
        _ => return None,
    })
}

/// What a verb writes: assignments with commas between.
fn written(layout: &Layout, name: &str) -> Option<String> {
    let row = Row { layout, alias: "row." };
    let held = layout.claim == ClaimBy::RowLock;
    // In a transaction that is open since the claim, `now()` is the time of the claim.
    let now = if held { "clock_timestamp()" } else { "now()" };
    let words = layout.words.as_ref();
    let word = |pick: fn(&crate::layout::Words) -> &String| words.map(|words| literal(pick(words)));
    let waiting_again = words.map(|words| literal(words.failed.as_ref().unwrap_or(&words.pending)));
    let mut set = Assignments::default();
    let attempts = layout.attempts.as_ref().map(|_| row.attempts());
    let less = attempts.as_ref().map(|attempts| format!("{attempts} - 1"));
    // The time of the last attempt stays where it also says until when the row is locked.
    let freed_at = layout.locked_at.as_ref().filter(|at| Some(*at) != layout.last_attempt_at.as_ref());
    let free = |set: &mut Assignments| {
        set.set(layout.locked_by.as_ref(), "null");
        set.set(layout.locked_until.as_ref(), "null");
        set.set(freed_at, "null");
    };
    let error = match layout.last_error_limit {
        Some(limit) => format!("left(given.error, {limit})"),
        None => "given.error".to_owned(),
    };
    let lock = |set: &mut Assignments, lease: &str| {
        let from = if sabotage::has(Defect::WorkersClock) { "to_timestamp(0)" } else { "now()" };
        set.set(layout.locked_until.as_ref(), &format!("{from} + {lease}::bigint * interval '1 microsecond'"));
        set.set(layout.locked_at.as_ref(), "now()");
    };
    match name {
        "set_taken" => {
            set.if_some(layout.status.as_ref(), word(|words| &words.processing));
            set.if_some(layout.attempts.as_ref(), attempts.map(|attempts| format!("greatest({attempts}, 0) + 1")));
            set.set(layout.locked_by.as_ref(), "$5::uuid");
            lock(&mut set, "$6");
            if layout.last_attempt_at != layout.locked_at {
                set.set(layout.last_attempt_at.as_ref(), "now()");
            }
        }
        "set_renewed" => lock(&mut set, "$5"),
        "set_acked" => {
            set.if_some(layout.status.as_ref(), word(|words| &words.delivered));
            free(&mut set);
            if layout.counts == Counts::Failures && !held {
                set.if_some(layout.attempts.as_ref(), less);
            }
            set.set(layout.delivered_at.as_ref(), now);
        }
        "set_nacked" => {
            set.if_some(layout.status.as_ref(), waiting_again);
            free(&mut set);
            if held {
                set.set(layout.attempts.as_ref(), "given.attempt");
            }
            set.set(layout.last_error.as_ref(), &error);
            set.set(layout.next_attempt_at.as_ref(), "now() + given.delay * interval '1 microsecond'");
        }
        "set_buried" => {
            let dead = if layout.dead_after_failed { waiting_again } else { word(|words| &words.dead) };
            set.if_some(layout.status.as_ref(), dead);
            free(&mut set);
            if let Some(number) = layout.give_up_after {
                set.set(layout.attempts.as_ref(), &format!("greatest(given.attempt, {number})"));
            }
            set.set(layout.last_error.as_ref(), &error);
        }
        "set_released" => {
            // An owner whose state machine knows no way back from there has a word for those that are tried again.
            let back = if layout.dead_after_failed { waiting_again } else { word(|words| &words.pending) };
            set.if_some(layout.status.as_ref(), back);
            if !held {
                set.if_some(layout.attempts.as_ref(), less);
            }
            free(&mut set);
            let last = layout.last_error.as_ref().map(|column| format!("coalesce({error}, {})", row.of(column)));
            set.if_some(layout.last_error.as_ref(), last);
            let due = layout.next_attempt_at.as_ref().map(|column| {
                format!(
                    "case when given.delay > 0 then now() + given.delay * interval '1 microsecond' else {} end",
                    row.of(column)
                )
            });
            set.if_some(layout.next_attempt_at.as_ref(), due);
        }
        "set_swept" => {
            let dead = if layout.dead_after_failed { waiting_again } else { word(|words| &words.dead) };
            set.if_some(layout.status.as_ref(), dead);
            free(&mut set);
            set.if_some(layout.last_error.as_ref(), swept_error(layout));
        }
        "set_entombed" => set.if_some(layout.status.as_ref(), word(|words| &words.dead)),
        "set_replayed" => {
            set.if_some(layout.status.as_ref(), word(|words| &words.pending));
            if !sabotage::has(Defect::ReplayKeepsAttempts) {
                set.set(layout.attempts.as_ref(), "0");
            }
            set.set(layout.next_attempt_at.as_ref(), "now()");
            free(&mut set);
            let count = layout.headers.as_ref().map(|column| replayed(&row.of(column)));
            set.if_some(layout.headers.as_ref(), count);
        }
        _ => return None,
    }
    set.set(layout.updated_at.as_ref(), now);
    // A table where nothing is to be written has one column that can be written as it is.
    if set.0.is_empty() {
        set.set(Some(&layout.id), &row.of(&layout.id));
    }
    Some(set.0.join(", "))
}

/// Assignments to the columns that are there.
#[derive(Default)]
struct Assignments(Vec<String>);

impl Assignments {
    fn set(&mut self, column: Option<&Column>, value: &str) {
        if let Some(column) = column {
            self.0.push(format!("{} = {value}", quoted(column)));
        }
    }

    fn if_some(&mut self, column: Option<&Column>, value: Option<String>) {
        if let Some(value) = value {
            self.set(column, &value);
        }
    }
}

/// What the sweep says of a row: it waited with all its attempts spent, or the worker of its last attempt died.
fn swept_error(layout: &Layout) -> Option<String> {
    let row = Row { layout, alias: "row." };
    let (pending, attempts) = (row.condition("pending")?, row.column("attempts")?);
    let last_error = row.column("last_error")?;
    let said = format!(
        "case when {pending} then coalesce({last_error} || ' ', '') || '(given up: all ' || {attempts} || ' attempts are spent)' \
         else 'delivery unknown: the worker of the last allowed attempt (' || {attempts} || ') stopped before it said how the attempt ended' end"
    );
    Some(match layout.last_error_limit {
        Some(limit) => format!("left({said}, {limit})"),
        None => said,
    })
}

/// Headers with one more replay. What anybody may have written there who is not us counts as never.
fn replayed(headers: &str) -> String {
    format!(
        "{headers} || jsonb_build_object('{REPLAYED}', (case when {headers} ->> '{REPLAYED}' ~ '^[0-9]+$' then left({headers} ->> '{REPLAYED}', 9)::int else 0 end + 1)::text)"
    )
}

/// What a producer writes: columns, values and the index of dedupe keys.
fn inserted(layout: &Layout, name: &str) -> Option<String> {
    let due = "coalesce(timestamptz 'epoch' + <deliver_at> * interval '1 microsecond', now() + <delay> * interval '1 microsecond', now())";
    let mut pairs: Vec<(String, String)> = vec![(quoted(&layout.id), "<id>".to_owned())];
    let mut used = vec!["id"];
    let mut add = |column: Option<&Column>, value: &str, uses: &'static [&'static str]| {
        if let Some(column) = column {
            let schema = super::statements::schema(&layout.names);
            let cast = match &column.kind {
                // The words are an enum of the table's own schema.
                Some(kind) if !column.values.is_empty() => format!("::\"{schema}\".\"{kind}\""),
                Some(kind) => format!("::\"{kind}\""),
                None => String::new(),
            };
            pairs.push((quoted(column), format!("{value}{cast}")));
            used.extend(uses);
        }
    };
    add(layout.namespace.column(), "<namespace>", &["namespace"]);
    add(layout.topic.column(), "<topic>", &["topic"]);
    add(layout.key.as_ref(), "<key>", &["key"]);
    add(layout.tenant.as_ref(), "<tenant_id>", &["tenant_id"]);
    let dedupe = if layout.dedupe_required { "coalesce(<dedupe_key>, <id>::text)" } else { "<dedupe_key>" };
    add(layout.dedupe_key.as_ref(), dedupe, &["dedupe_key"]);
    match layout.payload_kind {
        PayloadKind::Json => add(Some(&layout.payload), "<payload>::jsonb", &["payload"]),
        PayloadKind::Text => add(Some(&layout.payload), "<payload>", &["payload"]),
        PayloadKind::Bytes => add(
            Some(&layout.payload),
            "coalesce(<payload_bytes>, convert_to(<payload>, 'UTF8'))",
            &["payload_bytes", "payload"],
        ),
    }
    add(layout.payload_bytes.as_ref(), "<payload_bytes>", &["payload_bytes"]);
    add(layout.headers.as_ref(), "coalesce(<headers>::jsonb, '{}')", &["headers"]);
    for (header, column) in layout.written_fields() {
        add(Some(column), &format!("(<headers>::jsonb ->> {})", literal(header)), &["headers"]);
    }
    add(layout.next_attempt_at.as_ref(), due, &["deliver_at", "delay"]);
    if layout.max_attempts.is_some() {
        let value = layout.usual_max_attempts.map(|number| format!("coalesce(<max_attempts>, {number})"));
        add(layout.max_attempts.as_ref(), value.as_deref().unwrap_or("<max_attempts>"), &["max_attempts"]);
    }
    if let (false, Some(words)) = (layout.is_ours(), &layout.words) {
        add(layout.status.as_ref(), &literal(&words.pending), &[]);
    }
    let list = |pick: fn(&(String, String)) -> &String| pairs.iter().map(pick).cloned().collect::<Vec<_>>().join(", ");
    Some(match name {
        "insert_columns" => list(|pair| &pair.0),
        "insert_values" => list(|pair| &pair.1),
        // The server must be told the types of parameters that this table has no use for.
        "unused" => {
            let all = GIVEN.iter().filter(|(name, _)| !used.contains(name));
            let all: Vec<String> = all.map(|(name, _)| format!("<{name}>")).collect();
            if all.is_empty() { String::new() } else { format!(" and num_nulls({}) is not null", all.join(", ")) }
        }
        "given_namespace" => match &layout.namespace {
            Text::Column(_) => "<namespace>".to_owned(),
            Text::Fixed { fixed } => literal(fixed),
        },
        "dedupe_columns" => {
            let columns = [layout.namespace.column(), layout.topic.column(), layout.dedupe_key.as_ref()];
            columns.into_iter().flatten().map(quoted).collect::<Vec<_>>().join(", ")
        }
        "dedupe_predicate" if layout.dedupe_required => String::new(),
        "dedupe_predicate" => layout
            .dedupe_key
            .as_ref()
            .map(|column| format!(" where {} is not null", quoted(column)))
            .unwrap_or_default(),
        _ => return None,
    })
}

/// What a producer gives of each message, with its type, in the order of the parameters.
pub(super) const GIVEN: [(&str, &str); 12] = [
    ("id", "uuid"),
    ("namespace", "text"),
    ("topic", "text"),
    ("key", "text"),
    ("tenant_id", "uuid"),
    ("dedupe_key", "text"),
    ("payload", "text"),
    ("payload_bytes", "bytea"),
    ("headers", "text"),
    ("deliver_at", "bigint"),
    ("delay", "bigint"),
    ("max_attempts", "int"),
];
