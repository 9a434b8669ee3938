//! What a table lacks for leases, and what says which rows were sent.
//!
//! Rows that were sent long ago must not look as if they waited, neither to the layout nor after what somebody is told to run.

use super::{Guesser, Kind, Layout, TEXT, is_mark, is_status, may_be_mark};
use crate::layout::table::{Database, TableColumn};

/// Something that a lease needs.
#[derive(Clone, Copy)]
pub(super) enum Need {
    Status,
    Words,
    Attempts,
    Due,
    Lock,
}

impl Need {
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Status => "a status",
            Self::Words => "words for all states",
            Self::Attempts => "a count of attempts",
            Self::Due => "a time of the next attempt",
            Self::Lock => "a time until or since when a row is locked",
        }
    }

    /// What a column for it may be called: the first name that is free. All of them are known to a guess.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Status => &["status", "state", "delivery_status"],
            Self::Words => &[],
            Self::Attempts => &["attempts", "attempt_count", "tries"],
            Self::Due => &["next_attempt_at", "due_at", "available_at"],
            Self::Lock => &["locked_until", "lease_until", "claimed_until"],
        }
    }
}

impl Guesser<'_> {
    /// What says that rows were sent, and cannot be gone by: rows that were sent long ago would be sent again.
    pub(super) fn unmapped(&mut self, layout: &Layout, lacking: &[Need]) {
        let lacks = lacking.iter().map(|need| need.what()).collect::<Vec<_>>().join(", ");
        let found = self.unusable_status(layout, lacking, &lacks).or_else(|| match &layout.delivered_at {
            Some(_) => None,
            None => self.mark().or_else(|| self.possible_mark(layout, lacking)),
        });
        let elsewhere = self.table.database != Database::Postgres;
        let found = found.or_else(|| {
            elsewhere.then(|| {
                let alter = self.alter(layout, lacking);
                format!(
                    "claim: the table lacks {lacks}, and rows can be locked while they are published on PostgreSQL only; {alter}, then guess again"
                )
            })
        });
        self.wrong.extend(found);
    }

    fn unusable_status(&self, layout: &Layout, lacking: &[Need], lacks: &str) -> Option<String> {
        let TableColumn { name, type_name, kind, .. } = self.table.columns.iter().find(|column| is_status(column))?;
        if !TEXT.contains(kind) {
            return Some(format!(
                "status: {name:?} says which rows have been sent, and is {type_name}: those rows would be sent again; make it text or an enum, with a word for each of pending, processing, delivered and dead, then guess again"
            ));
        }
        let alter = self.alter(layout, lacking);
        Some(format!(
            "status: {name:?} says which rows have been sent, and cannot be used because the table lacks {lacks}: those rows would be sent again; {alter}, then guess again"
        ))
    }

    /// A column that says by yes or no that a row was sent.
    fn mark(&self) -> Option<String> {
        let column = self.table.columns.iter().find(|column| is_mark(column))?;
        let (database, name) = (self.table.database, &column.name);
        let quoted = database.quoted(name);
        let is_set = match (column.kind, &*column.base) {
            (Kind::Boolean, _) => Some(quoted),
            (Kind::Integer, _) => Some(format!("{quoted} <> 0")),
            (Kind::Other, "bit") if database == Database::MySql => Some(format!("{quoted} <> 0")),
            // Nobody but its owner knows which of its words mean that a row was sent.
            _ => None,
        };
        let add = self.add_delivered_at(name, is_set.as_deref());
        Some(format!(
            "delivered_at: {name:?} says which rows have been sent, and a layout needs the time at which they were: those rows would be sent again, and deleted; {add}; and have its readers go by that column, then guess again"
        ))
    }

    /// What to run so that a time says of the rows that they were sent.
    fn add_delivered_at(&self, mark: &str, is_set: Option<&str>) -> String {
        let (database, place) = (self.table.database, &self.table.place);
        let present = if database == Database::Sqlite { "1" } else { database.now() };
        let name = ["delivered_at", "published_at", "sent_at", "processed_at"];
        let name = name.into_iter().find(|name| self.has_not(name)).unwrap_or("dispatched_at");
        let set = match is_set {
            Some(is_set) => format!("update {place} set {name} = {present} where {is_set}"),
            None => format!("then set it in every row of which {mark:?} says that it was sent"),
        };
        format!("run: alter table {place} add column {name} {}; {set}", database.time())
    }

    /// A flag, or a time that some rows have and others have not, of which nothing is known.
    fn possible_mark(&self, layout: &Layout, lacking: &[Need]) -> Option<String> {
        let free = |column: &&TableColumn| !self.taken.contains(&column.name.as_str());
        let is_mark = |column: &&TableColumn| may_be_mark(self.table.database, column);
        let column = self.table.columns.iter().filter(free).find(is_mark)?;
        let name = &column.name;
        let use_it = match self.kinds.time.contains(&column.kind) && !column.not_null {
            true => "name it as delivered_at in the layout".to_owned(),
            false => format!("{}, then guess again", self.add_delivered_at(name, None)),
        };
        let otherwise = match self.table.database {
            Database::Postgres => "use the layout as it is".to_owned(),
            // Rows cannot be locked there while they are published.
            _ => format!("{}, then guess again", self.alter(layout, lacking)),
        };
        Some(format!(
            "delivered_at: {name:?} may say which rows have been sent: those rows would be sent again, and deleted; if it does, {use_it}; otherwise {otherwise}"
        ))
    }

    /// What to run so that the table has what it lacks. Rows that were sent stay sent.
    fn alter(&self, layout: &Layout, lacking: &[Need]) -> String {
        let (database, place) = (self.table.database, &self.table.place);
        let add: Vec<String> = lacking.iter().filter_map(|need| self.added(*need)).collect();
        let mut run: Vec<String> = match database {
            _ if add.is_empty() => {
                return "have the status allow a word for each of pending, processing, delivered and dead".to_owned();
            }
            Database::Sqlite => add.iter().map(|column| format!("alter table {place} {column}")).collect(),
            _ => vec![format!("alter table {place} {}", add.join(", "))],
        };
        let new_status = lacking.iter().find(|need| matches!(need, Need::Status)).and_then(|need| self.free(*need));
        if let (Some(status), Some(sent)) = (new_status, &layout.delivered_at) {
            let sent = database.quoted(&sent.name);
            run.push(format!("update {place} set {status} = 'delivered' where {sent} is not null"));
        }
        format!("run: {}", run.join("; "))
    }

    fn added(&self, need: Need) -> Option<String> {
        let (time, now) = (self.table.database.time(), self.table.database.now());
        let kind = match need {
            Need::Words => return None,
            Need::Status => "varchar(20) not null default 'pending'".to_owned(),
            Need::Attempts => "int not null default 0".to_owned(),
            Need::Due => format!("{time} not null default {now}"),
            Need::Lock => time.to_owned(),
        };
        Some(format!("add column {} {kind}", self.free(need)?))
    }

    /// A name that no column has, of whatever type.
    fn free(&self, need: Need) -> Option<&'static str> {
        need.names().iter().copied().find(|name| self.has_not(name))
    }

    fn has_not(&self, name: &str) -> bool {
        !self.table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name))
    }
}
