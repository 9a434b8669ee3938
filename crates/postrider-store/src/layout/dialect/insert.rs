//! What a producer writes to a table, and what of a message goes where.

use postrider_core::message::NewRow;

use super::{Dialect, literal, quoted, raw};
use crate::layout::{Column, Layout, PayloadKind};

/// What a producer gives of a message, in the order of the parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    Id,
    Namespace,
    Topic,
    Key,
    Tenant,
    DedupeKey,
    /// The dedupe key, or the id where there is none.
    DedupeKeyOrId,
    Payload,
    PayloadBytes,
    /// The bytes of the payload, whether it is JSON or not.
    PayloadAsBytes,
    Headers,
    /// One of the headers.
    Header(String),
    #[cfg(feature = "mysql")]
    DeliverAt,
    #[cfg(feature = "mysql")]
    Delay,
    #[cfg(feature = "sqlite")]
    DueAt,
    MaxAttempts,
    CreatedAt,
    UpdatedAt,
}

/// What an `insert` says: columns, a row of values, and what these are.
#[derive(Debug)]
pub(crate) struct Inserted {
    pub columns: String,
    pub row: String,
    pub given: Vec<Given>,
}

/// The index of dedupe keys, as `on conflict` wants it.
pub(super) fn dedupe(layout: &Layout, name: &str) -> Option<String> {
    Some(match (name, &layout.dedupe_key) {
        ("dedupe_columns", _) => {
            let columns = [layout.namespace.column(), layout.topic.column(), layout.dedupe_key.as_ref()];
            columns.into_iter().flatten().map(quoted).collect::<Vec<_>>().join(", ")
        }
        ("dedupe_predicate", Some(column)) if !layout.dedupe_required => {
            format!(" where {} is not null", quoted(column))
        }
        ("dedupe_predicate", _) => String::new(),
        _ => return None,
    })
}

/// What a producer writes.
pub(crate) fn inserted(dialect: &Dialect, layout: &Layout) -> Inserted {
    let (mut pairs, mut given): (Vec<(String, String)>, Vec<Given>) = (Vec::new(), Vec::new());
    let mut add = |column: Option<&Column>, value: &str, of: &[Given]| {
        if let Some(column) = column {
            pairs.push((quoted(column), value.to_owned()));
            given.extend_from_slice(of);
        }
    };
    add(Some(&layout.id), &raw(dialect, &layout.id, "?"), &[Given::Id]);
    add(layout.namespace.column(), "?", &[Given::Namespace]);
    add(layout.topic.column(), "?", &[Given::Topic]);
    add(layout.key.as_ref(), "?", &[Given::Key]);
    if let Some(tenant) = &layout.tenant {
        add(Some(tenant), &raw(dialect, tenant, "?"), &[Given::Tenant]);
    }
    let key = if layout.dedupe_required { Given::DedupeKeyOrId } else { Given::DedupeKey };
    add(layout.dedupe_key.as_ref(), "?", &[key]);
    match layout.payload_kind {
        PayloadKind::Json if !layout.is_ours() => {
            add(Some(&layout.payload), &(dialect.text_json)("?"), &[Given::Payload]);
        }
        PayloadKind::Json | PayloadKind::Text => add(Some(&layout.payload), "?", &[Given::Payload]),
        PayloadKind::Bytes => add(Some(&layout.payload), "?", &[Given::PayloadAsBytes]),
    }
    add(layout.payload_bytes.as_ref(), "?", &[Given::PayloadBytes]);
    add(layout.headers.as_ref(), "?", &[Given::Headers]);
    for (header, column) in layout.written_fields() {
        add(Some(column), &raw(dialect, column, "?"), &[Given::Header(header.clone())]);
    }
    add(layout.next_attempt_at.as_ref(), dialect.due, dialect.due_given);
    let attempts = layout.usual_max_attempts.map(|number| format!("coalesce(?, {number})"));
    add(layout.max_attempts.as_ref(), attempts.as_deref().unwrap_or("?"), &[Given::MaxAttempts]);
    if dialect.writes_times {
        add(layout.created_at.as_ref(), "?", &[Given::CreatedAt]);
        add(layout.updated_at.as_ref(), "?", &[Given::UpdatedAt]);
    }
    if let (false, Some(words)) = (layout.is_ours(), &layout.words) {
        add(layout.status.as_ref(), &literal(&words.pending), &[]);
    }
    let list = |pick: fn(&(String, String)) -> &String| pairs.iter().map(pick).cloned().collect::<Vec<_>>().join(", ");
    Inserted { columns: list(|pair| &pair.0), row: format!("({})", list(|pair| &pair.1)), given }
}

/// A header of a message that is written to a column of its own.
pub(crate) fn header(row: &NewRow, name: &str) -> Option<String> {
    row.headers_given().get(name).and_then(|value| value.as_str()).map(str::to_owned)
}
