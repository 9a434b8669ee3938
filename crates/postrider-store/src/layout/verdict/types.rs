//! Whether columns have types that the statements can use.

use postrider_core::operate::Finding;

use super::{TYPES, all};
use crate::layout::table::{Database, Kind, Table, TableColumn};
use crate::layout::{Column, IdKind, Layout, PayloadKind};

const OTHER: &str = "name another column, or leave it out";

pub(super) fn look(layout: &Layout, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (what, column) in all(layout) {
        let Some(there) = table.column(&column.name) else { continue };
        // The id may travel as a header as well.
        if what != "id" && column.name == layout.id.name {
            continue;
        }
        let seen = Seen { layout, database: table.database, what: &what, column, there };
        findings.extend(seen.wrong());
    }
    findings
}

/// A column of the layout as it was found.
struct Seen<'a> {
    layout: &'a Layout,
    database: Database,
    what: &'a str,
    column: &'a Column,
    there: &'a TableColumn,
}

impl Seen<'_> {
    fn refuse(&self, wanted: &str, fix: impl Into<String>) -> Option<Finding> {
        let (what, TableColumn { name, type_name, .. }) = (self.what, self.there);
        let what = format!("the column {name:?}, which the layout has for {what}, is {type_name}; it must be {wanted}");
        Some(Finding::problem(TYPES, what, fix))
    }

    fn only(&self, kinds: &[Kind], wanted: &str, fix: &str) -> Option<Finding> {
        if kinds.contains(&self.there.kind) { None } else { self.refuse(wanted, fix) }
    }

    /// Nothing can be written to a column that the database computes.
    fn computed(&self) -> Option<Finding> {
        let (what, name) = (self.what, &self.there.name);
        let what = format!(
            "the column {name:?}, which the layout has for {what}, is computed by the database, and a relay writes to it"
        );
        let is_written = self.layout.changed().iter().any(|column| column.name == self.column.name);
        (self.there.computed && is_written).then(|| Finding::problem(TYPES, what, OTHER))
    }

    fn wrong(&self) -> Option<Finding> {
        if let Some(computed) = self.computed() {
            return Some(computed);
        }
        let postgres = self.database == Database::Postgres;
        match self.what {
            "id" => self.id(),
            "tenant" => self.uuid(OTHER),
            "locked_by" => self.uuid("leave locked_by out; the attempt's number alone is the fence then"),
            "payload" => self.payload(),
            "payload_bytes" => self.only(&[Kind::Bytes], if postgres { "bytea" } else { "bytes" }, OTHER),
            "headers" if postgres => self.only(&[Kind::Jsonb], "jsonb", OTHER),
            "headers" => self.only(&[Kind::Json, Kind::Text], "text or JSON", OTHER),
            "attempts" | "max_attempts" | "seq" => self.only(&[Kind::Integer], "a whole number", OTHER),
            "status" => self.only(&[Kind::Text, Kind::Enum], "text or an enum", OTHER),
            "last_error" => self.last_error(),
            "next_attempt_at" | "locked_until" | "locked_at" | "created_at" | "updated_at" | "last_attempt_at"
            | "delivered_at" => self.time(),
            _ if postgres => self.text(),
            // The same words are texts and bytes there.
            _ => self.only(&[Kind::Text, Kind::Enum, Kind::Bytes, Kind::Uuid], "text", OTHER),
        }
    }

    fn id(&self) -> Option<Finding> {
        match (self.database, self.layout.id_kind, self.there.kind) {
            (Database::MySql | Database::Sqlite, ..) => self.uuid("give the table such a key"),
            (_, IdKind::Uuid, Kind::Uuid) | (_, IdKind::Integer, Kind::Integer) => None,
            (_, _, Kind::Integer) => self.refuse("uuid", "say id_kind = \"integer\""),
            (_, _, Kind::Uuid) => self.refuse("a whole number", "say id_kind = \"uuid\""),
            _ => self.refuse("uuid or a whole number", "give the table such a key"),
        }
    }

    /// Where there is no such type a UUID is a text, or sixteen bytes if the layout says so.
    fn uuid(&self, fix: &str) -> Option<Finding> {
        let name = &self.there.name;
        let Some(bytes) = self.database.uuid_bytes() else { return self.only(&[Kind::Uuid], "uuid", fix) };
        match (self.there.kind, self.column.kind.as_deref() == Some(bytes)) {
            (Kind::Bytes, true) | (Kind::Text | Kind::Uuid, false) => None,
            (Kind::Bytes, false) => {
                self.refuse("text", format!("write {{ column = {name:?}, type = {bytes:?} }} in the layout"))
            }
            (Kind::Text | Kind::Uuid, true) => self.refuse("sixteen bytes, as the layout says", "leave its type out"),
            _ => self.refuse("a UUID, as text or as sixteen bytes", fix),
        }
    }

    fn payload(&self) -> Option<Finding> {
        const KIND: &str = "say payload_kind = \"json\", \"text\" or \"bytes\" as the column is";
        let kinds: &[Kind] = match (self.database, self.layout.payload_kind) {
            (_, PayloadKind::Bytes) => &[Kind::Bytes],
            (Database::Postgres, PayloadKind::Json) => &[Kind::Json, Kind::Jsonb],
            (Database::Postgres, PayloadKind::Text) => &[Kind::Text],
            (Database::MySql | Database::Sqlite, _) => &[Kind::Json, Kind::Text],
        };
        let wanted = match (self.database, self.layout.payload_kind) {
            (Database::Postgres, PayloadKind::Bytes) => "bytea",
            (_, PayloadKind::Bytes) => "bytes",
            (Database::Postgres, PayloadKind::Json) => "jsonb or json",
            _ => "text",
        };
        self.only(kinds, wanted, KIND)
    }

    fn last_error(&self) -> Option<Finding> {
        match self.there.length {
            _ if self.there.kind != Kind::Text => self.refuse("text", OTHER),
            Some(length) if self.layout.last_error_limit.is_none_or(|limit| limit > length) => {
                self.refuse("long enough for an error", format!("say last_error_limit = {length}"))
            }
            _ => None,
        }
    }

    fn time(&self) -> Option<Finding> {
        let name = &self.there.name;
        match (self.database, self.there.kind) {
            (Database::Sqlite, _) => self.only(&[Kind::Integer], "a whole number, microseconds since 1970", OTHER),
            (_, Kind::Time) => None,
            (Database::Postgres, Kind::LocalTime) => Some(Finding::warning(
                TYPES,
                format!("the column {name:?} has no time zone; it is read and written as UTC"),
                "see that everybody else writes UTC there, or make it timestamptz",
            )),
            (_, Kind::LocalTime) => Some(Finding::warning(
                TYPES,
                format!(
                    "the column {name:?} gets the time of each writer's own time zone; it is read and written as UTC"
                ),
                "make its default utc_timestamp(6), and see that everybody writes UTC there",
            )),
            (Database::Postgres, _) => self.refuse("timestamptz or timestamp", OTHER),
            _ => self.refuse("datetime or timestamp", OTHER),
        }
    }

    /// A text may be in a column of any type, if the layout says which: it is cast then.
    fn text(&self) -> Option<Finding> {
        let TableColumn { name, base, kind, .. } = self.there;
        match &self.column.kind {
            None if *kind == Kind::Text => None,
            Some(said) if said == base => None,
            None => self.refuse("text", format!("write {{ column = {name:?}, type = {base:?} }} in the layout")),
            Some(said) => self.refuse(&format!("{said:?}, as the layout says"), format!("say type = {base:?}")),
        }
    }
}
