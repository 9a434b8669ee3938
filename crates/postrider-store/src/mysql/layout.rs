//! MySQL's words for what a layout needs. Nothing here depends on the session, as in `statements`.

use postrider_core::operate::REPLAYED;

use crate::layout::Layout;
use crate::layout::dialect::{self, Dialect, Given, Number};

/// Stands for the value that is given for a row: a `case` with one arm for each row of the list.
pub(super) const CASE: &str = "<case>";

pub(super) const DIALECT: Dialect = Dialect {
    name: "MySQL",
    now: "utc_timestamp(6)",
    allowed: "?",
    worker: "?",
    lease: "?",
    renewed: "?",
    error: CASE,
    delay: CASE,
    number: Number::Id,
    bytes: "binary",
    id_text: |bytes| {
        let hyphens = [9, 14, 19, 24];
        let digits = format!("lower(hex({bytes}))");
        hyphens.iter().fold(digits, |text, at| format!("insert({text}, {at}, 0, '-')"))
    },
    id_bytes: |text| format!("unhex(replace({text}, '-', ''))"),
    is_hex: |text| format!("{text} not regexp '[^0-9a-fA-F]'"),
    later: |time, micros| format!("timestampadd(microsecond, {micros}, {time})"),
    epoch: "timestamp '1970-01-01 00:00:00'",
    between: |since, until| format!("timestampdiff(microsecond, {since}, {until})"),
    later_or: |time, micros, otherwise| format!("coalesce(timestampadd(microsecond, {micros}, {time}), {otherwise})"),
    least: "least",
    concat: |texts| format!("concat({})", texts.join(", ")),
    left: |text, length| format!("left({text}, {length})"),
    size: |column| format!("octet_length({column})"),
    size_of_bytes: |column| format!("octet_length({column})"),
    // The type JSON is neither text nor bytes.
    json_text: |payload| format!("convert({payload} using utf8mb4)"),
    text_json: |text| format!("convert({text} using utf8mb4)"),
    headers: |own, fields| {
        let fields = fields.iter().map(|(name, value)| format!("{name}, convert({value} using utf8mb4)"));
        let fields = fields.collect::<Vec<_>>().join(", ");
        // A null in what is merged takes the name away.
        format!("convert(json_merge_patch({own}, json_object({fields})) using utf8mb4)")
    },
    replayed: |headers| {
        let value = format!("json_unquote(json_extract({headers}, '$.\"{REPLAYED}\"'))");
        // What anybody may have written there who is not us counts as never.
        let before = format!("case when {value} regexp '^[0-9]+$' then cast(left({value}, 9) as unsigned) else 0 end");
        format!("json_set({headers}, '$.\"{REPLAYED}\"', cast({before} + 1 as char))")
    },
    due: "coalesce(timestampadd(microsecond, ?, timestamp '1970-01-01 00:00:00'), timestampadd(microsecond, ?, utc_timestamp(6)), utc_timestamp(6))",
    due_given: &[Given::DeliverAt, Given::Delay],
    writes_times: false,
};

/// What the placeholder of a layout stands for; nothing if it is none of a layout's.
pub(super) fn resolve(layout: &Layout, placeholder: &str) -> Option<String> {
    index(layout, placeholder).or_else(|| dialect::resolve(&DIALECT, layout, placeholder))
}

/// Which index a statement must use. Of another table only the primary key is known by its name.
fn index(layout: &Layout, placeholder: &str) -> Option<String> {
    let own = match placeholder {
        "by_number" => return Some(" force index (primary)".to_owned()),
        "by_id" if !layout.is_ours() => return Some(" force index (primary)".to_owned()),
        "by_id" => "id",
        "by_due" => "due",
        "by_lane" => "lane",
        "by_lease" => "lease",
        "by_dedupe_key" => "dedupe",
        _ => return None,
    };
    Some(if layout.is_ours() { format!(" force index ({}_{own}_idx)", layout.names.table()) } else { String::new() })
}
