//! SQLite's words for what a layout needs.

use postrider_core::operate::REPLAYED;

use crate::layout::Layout;
use crate::layout::dialect::{self, Dialect, Given, Number};

/// Statements are given the present, because the store's clock decides; the database's own is for rows that say no time.
pub(super) const DIALECT: Dialect = Dialect {
    name: "SQLite",
    now: "cast((julianday('now') - 2440587.5) * 86400000000 as integer)",
    allowed: "?3",
    worker: "?6",
    lease: "?7",
    renewed: "(select lease from moment)",
    error: "given.error",
    delay: "given.delay",
    number: Number::Hidden("rowid"),
    bytes: "blob",
    id_text: |bytes| {
        let part = |at, length| format!("substr(hex({bytes}), {at}, {length})");
        let parts = [part(1, 8), part(9, 4), part(13, 4), part(17, 4), part(21, 12)];
        // The digits of null are an empty text.
        format!("case when {bytes} is not null then lower({}) end", parts.join(" || '-' || "))
    },
    id_bytes: |text| format!("unhex(replace({text}, '-', ''))"),
    is_hex: |text| format!("{text} not glob '*[^0-9a-fA-F]*'"),
    later: |time, micros| format!("{time} + {micros}"),
    epoch: "0",
    between: |since, until| format!("{until} - {since}"),
    later_or: |time, micros, otherwise| format!("case when {micros} > 0 then {time} + {micros} else {otherwise} end"),
    least: "min",
    concat: |texts| texts.join(" || "),
    left: |text, length| format!("substr({text}, 1, {length})"),
    size: |column| format!("length(cast({column} as blob))"),
    size_of_bytes: |column| format!("length({column})"),
    // A column of text may hold bytes.
    json_text: |payload| format!("cast({payload} as text)"),
    text_json: str::to_owned,
    headers: |own, fields| {
        // Bytes would be refused, whatever they are.
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}, cast({value} as text)")).collect();
        // A null in what is merged takes the name away.
        format!("json_patch({own}, json_object({}))", fields.join(", "))
    },
    replayed: |headers| {
        // What anybody may have written there who is not us counts as never.
        let before = format!("cast(coalesce(json_extract({headers}, '$.\"{REPLAYED}\"'), 0) as integer)");
        format!("json_set({headers}, '$.\"{REPLAYED}\"', cast(min(max({before}, 0), 999999999) + 1 as text))")
    },
    due: "?",
    due_given: &[Given::DueAt],
    writes_times: true,
};

/// What the placeholder of a layout stands for; nothing if it is none of a layout's.
pub(super) fn resolve(layout: &Layout, placeholder: &str) -> Option<String> {
    dialect::resolve(&DIALECT, layout, placeholder)
}
