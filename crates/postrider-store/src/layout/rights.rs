//! Which columns producers, relays and operators write: what they must be allowed to, and what must have a value without them.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::table::Database;
use super::{Column, Layout};

impl Layout {
    /// The columns that a producer writes.
    pub(crate) fn inserted(&self) -> Vec<&Column> {
        let optional = [
            &self.key,
            &self.tenant,
            &self.dedupe_key,
            &self.payload_bytes,
            &self.headers,
            &self.next_attempt_at,
            &self.max_attempts,
            &self.status,
        ];
        let always = [Some(&self.id), self.namespace.column(), self.topic.column(), Some(&self.payload)];
        let fields = self.written_fields().map(|(_, column)| column);
        always.into_iter().flatten().chain(optional.into_iter().flatten()).chain(fields).collect()
    }

    /// The columns by which a producer finds a message that is there already.
    pub(crate) fn dedupe_columns(&self) -> Vec<&Column> {
        [self.namespace.column(), self.topic.column(), self.dedupe_key.as_ref()].into_iter().flatten().collect()
    }

    /// The columns that a relay changes.
    pub(crate) fn changed(&self) -> Vec<&Column> {
        let columns = [
            &self.status,
            &self.locked_by,
            &self.locked_until,
            &self.locked_at,
            &self.attempts,
            &self.next_attempt_at,
            &self.last_error,
            &self.updated_at,
            &self.last_attempt_at,
            &self.delivered_at,
        ];
        let mut changed: Vec<&Column> = Vec::new();
        for column in columns.into_iter().flatten() {
            // The time of the last attempt may be the time of the lock.
            if !changed.contains(&column) {
                changed.push(column);
            }
        }
        // A lock on a row needs the right to change something of it.
        if changed.is_empty() { vec![&self.id] } else { changed }
    }

    /// The lists of columns that the grants of a table are about, by their placeholders.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn granted(&self, database: Database) -> [(&'static str, String); 5] {
        let list = |columns: Vec<&Column>| {
            let mut names: Vec<String> = Vec::new();
            for column in columns {
                let name = database.quoted(&column.name);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names.join(", ")
        };
        let found = std::iter::once(&self.id).chain(self.dedupe_columns()).collect();
        let replayed = self.changed().into_iter().chain(&self.headers).collect();
        let hidden = ["payload", "payload_bytes"];
        let own = self.columns().into_iter().filter(|(what, _)| !hidden.contains(what)).map(|(_, column)| column);
        [
            ("{inserted}", list(self.inserted())),
            ("{found}", list(found)),
            ("{changed}", list(self.changed())),
            ("{replayed}", list(replayed)),
            ("{seen}", list(own.chain(self.fields.values()).collect())),
        ]
    }
}
