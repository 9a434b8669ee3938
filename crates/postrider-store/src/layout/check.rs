//! Descriptions that make no sense are refused before any SQL is made of them.

use std::collections::BTreeMap;

use postrider_core::store::{Finished, Purge, StoreError, StoreErrorKind};

use super::{Ability, ClaimBy, Column, IdKind, Lanes, Layout, PRESETS, PayloadKind, Text, preset};

/// PostgreSQL's limit of an identifier, and MySQL's is longer.
const LONGEST_IDENTIFIER: usize = 63;

/// A layout was refused; nothing of it has been near any SQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum LayoutError {
    #[error("the layout {layout:?} names no column for {what}, which {why} needs; name it, or choose another claim")]
    Missing { layout: String, what: &'static str, why: &'static str },
    #[error(
        "the layout {layout:?} has {found:?} as the name of a column or type; use letters, digits and underscores, at most {LONGEST_IDENTIFIER}"
    )]
    BadName { layout: String, found: String },
    #[error("the layout {layout:?} uses the column {column:?} both for {one} and for {other}; name each column once")]
    Twice { layout: String, column: String, one: &'static str, other: &'static str },
    #[error("the layout {layout:?}: {why}")]
    Wrong { layout: String, why: String },
    #[error("there is no layout {name:?}; known are {}", super::PRESETS.join(", "))]
    Unknown { name: String },
}

impl Layout {
    /// Refuses to delete dead rows by their age where nothing says since when they are dead: a row would go by the time of its
    /// creation, and one that waited for long would be deleted as soon as it is given up.
    pub(crate) fn check_purge(&self, purge: &Purge) -> Result<(), StoreError> {
        let says_when = self.updated_at.is_some() || self.last_attempt_at.is_some();
        if purge.finished == Finished::Delivered || says_when || !self.can(Ability::Dead) {
            return Ok(());
        }
        let text = format!(
            "dead messages of the layout {:?} cannot be deleted by age (keep_dead, purge --dead): no column says since when they are dead; name updated_at or last_attempt_at, or discard them by id",
            self.name
        );
        Err(StoreError::new(StoreErrorKind::Refused, text))
    }

    /// Refuses a description that makes no sense, with the missing column named.
    pub fn check(&self) -> Result<(), LayoutError> {
        self.check_names()?;
        self.check_identity()?;
        self.check_claim()?;
        self.check_words()?;
        self.check_ids()
    }

    fn wrong(&self, why: impl Into<String>) -> LayoutError {
        LayoutError::Wrong { layout: self.name.to_string(), why: why.into() }
    }

    fn missing(&self, what: &'static str, why: &'static str) -> LayoutError {
        LayoutError::Missing { layout: self.name.to_string(), what, why }
    }

    /// Every column with what it is for.
    pub fn columns(&self) -> Vec<(&'static str, &Column)> {
        let mut all = vec![("id", &self.id), ("payload", &self.payload)];
        for (what, text) in [("namespace", &self.namespace), ("topic", &self.topic)] {
            all.extend(text.column().map(|column| (what, column)));
        }
        let optional = [
            ("key", &self.key),
            ("tenant", &self.tenant),
            ("dedupe_key", &self.dedupe_key),
            ("payload_bytes", &self.payload_bytes),
            ("headers", &self.headers),
            ("status", &self.status),
            ("locked_by", &self.locked_by),
            ("locked_until", &self.locked_until),
            ("locked_at", &self.locked_at),
            ("attempts", &self.attempts),
            ("max_attempts", &self.max_attempts),
            ("next_attempt_at", &self.next_attempt_at),
            ("seq", &self.seq),
            ("last_error", &self.last_error),
            ("created_at", &self.created_at),
            ("updated_at", &self.updated_at),
            ("last_attempt_at", &self.last_attempt_at),
            ("delivered_at", &self.delivered_at),
        ];
        all.extend(optional.into_iter().filter_map(|(what, column)| Some((what, column.as_ref()?))));
        all
    }

    fn check_names(&self) -> Result<(), LayoutError> {
        let columns = self.columns();
        let names = columns.iter().map(|(_, column)| *column).chain(self.fields.values());
        let names = names.flat_map(|column| std::iter::once(&column.name).chain(&column.kind));
        if let Some(bad) = names.into_iter().find(|name| !is_identifier(name)) {
            return Err(LayoutError::BadName { layout: self.name.to_string(), found: bad.chars().take(80).collect() });
        }
        for name in self.fields.keys() {
            if name.is_empty()
                || name.len() > 128
                // Messages have the names of their headers in lower case, whoever wrote them.
                || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
            {
                return Err(
                    self.wrong(format!("{name:?} is no name of a header; use lower-case letters, digits and - _ ."))
                );
            }
        }
        // A time of the last attempt may serve as the time of the lock, and nothing else may serve twice.
        let mut seen = BTreeMap::new();
        for (what, column) in columns {
            if let Some(one) = seen.insert(&column.name, what)
                && (one, what) != ("locked_at", "last_attempt_at")
            {
                let (layout, column) = (self.name.to_string(), column.name.clone());
                return Err(LayoutError::Twice { layout, column, one, other: what });
            }
        }
        for text in [&self.namespace, &self.topic] {
            if let Text::Fixed { fixed } = text {
                postrider_core::name::check("namespace or topic", fixed)
                    .map_err(|error| self.wrong(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Statements and migrations go by the name of a preset, so another table must not bear it.
    fn check_identity(&self) -> Result<(), LayoutError> {
        if !PRESETS.contains(&&*self.name) {
            return Ok(());
        }
        let known = preset(&self.name)?.named(self.names.clone());
        let columns = |layout: &Self| {
            layout.columns().into_iter().map(|(what, column)| (what, column.name.clone())).collect::<Vec<_>>()
        };
        let same = match self.is_ours() {
            true => *self == known,
            // Whether a namespace or a topic is a column is up to the owner.
            false => columns(self).iter().all(|column| columns(&known).contains(column)),
        };
        match same {
            true => Ok(()),
            false => Err(self.wrong(
                "this is the name of a layout that Postrider knows, and its columns are others; give it another name",
            )),
        }
    }

    fn check_claim(&self) -> Result<(), LayoutError> {
        let lease = matches!(self.claim, ClaimBy::Lease | ClaimBy::LockTimeout);
        let why = match self.claim {
            ClaimBy::Lease => "a claim by lease",
            ClaimBy::LockTimeout => "a claim by lock time-out",
            ClaimBy::RowLock => "a claim by row lock",
        };
        if self.claim == ClaimBy::Lease && self.locked_until.is_none() {
            return Err(self.missing("locked_until", why));
        }
        if self.claim == ClaimBy::LockTimeout && self.locked_at.is_none() {
            return Err(self.missing("locked_at", why));
        }
        if lease && self.status.is_none() {
            return Err(self.missing("status", why));
        }
        // The attempt's number is the fence between two claims of one row.
        if lease && self.attempts.is_none() {
            return Err(self.missing("attempts", why));
        }
        if lease && self.next_attempt_at.is_none() {
            return Err(self.missing("next_attempt_at", why));
        }
        if !lease && (self.status.is_some() || self.next_attempt_at.is_some()) {
            return Err(self.wrong(
                "rows with a status or a next_attempt_at are claimed by lease or by lock_timeout, not by row_lock; name locked_until or locked_at",
            ));
        }
        if self.lock_timeout.as_secs() == 0 || self.lock_timeout.as_secs() > 86_400 {
            return Err(self.wrong("lock_timeout must be from one second to one day"));
        }
        if self.batch == 0 || self.batch > 1_000 {
            return Err(self.wrong("batch must be from 1 to 1000"));
        }
        Ok(())
    }

    fn check_words(&self) -> Result<(), LayoutError> {
        match (&self.status, &self.words) {
            (Some(_), None) => {
                return Err(self.wrong(
                    "the status column has no words; say what pending, processing, delivered and dead are called",
                ));
            }
            (None, Some(_)) => return Err(self.missing("status", "a table with words for its states")),
            _ => {}
        }
        if let Some(words) = &self.words {
            let all = [
                Some(&words.pending),
                words.failed.as_ref(),
                Some(&words.processing),
                Some(&words.delivered),
                Some(&words.dead),
            ];
            let all: Vec<&String> = all.into_iter().flatten().collect();
            for (at, word) in all.iter().enumerate() {
                let fine = |b: u8| b.is_ascii_alphanumeric() || b"_-.: ".contains(&b);
                if word.is_empty() || word.len() > 63 || !word.bytes().all(fine) {
                    return Err(self
                        .wrong(format!("{word:?} is no word for a state; use up to 63 letters, digits and _ - . :")));
                }
                if all[..at].contains(word) {
                    return Err(self.wrong(format!("the word {word:?} stands for two states; each needs its own")));
                }
            }
            if self.give_up_after.is_some() {
                return Err(self.wrong("give_up_after is for tables without a word for dead messages; leave it out"));
            }
        }
        if self.dead_after_failed && self.words.as_ref().is_none_or(|words| words.failed.is_none()) {
            return Err(self.wrong("dead_after_failed needs a word for failed messages"));
        }
        match self.give_up_after {
            Some(_) if self.attempts.is_none() => Err(self.missing("attempts", "give_up_after")),
            Some(_) if self.delivered_at.is_none() => Err(self.missing("delivered_at", "give_up_after")),
            Some(number) if number == 0 || number > 1_000 => Err(self.wrong("give_up_after must be from 1 to 1000")),
            None if self.words.is_none() && self.attempts.is_some() => Err(self
                .wrong("attempts are counted, and nothing says after how many a message is dead; set give_up_after")),
            _ => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), LayoutError> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if self.id_salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > 63 || !salt.bytes().all(fine)) {
            return Err(self.wrong("id_salt must be up to 63 letters, digits and _ - ."));
        }
        if self.tenant_required && self.tenant.is_none() {
            return Err(self.missing("tenant", "tenant_required"));
        }
        if self.key_required && self.key.is_none() {
            return Err(self.missing("key", "key_required"));
        }
        if self.dedupe_required && self.dedupe_key.is_none() {
            return Err(self.missing("dedupe_key", "dedupe_required"));
        }
        if self.payload_kind == PayloadKind::Bytes && self.payload_bytes.is_some() {
            return Err(self.wrong("the payload is bytes already; leave payload_bytes out"));
        }
        if self.indexed_like_ours && (self.seq.is_none() || self.key.is_none() || self.id_kind == IdKind::Integer) {
            return Err(self.missing("seq and key", "a table that is indexed like ours"));
        }
        if self.claim == ClaimBy::RowLock && (self.lanes.is_some() || self.indexed_like_ours) {
            return Err(
                self.wrong("lanes and indexed_like_ours are for claims by lease or by lock time-out; leave them out")
            );
        }
        if self.lanes == Some(Lanes::Tenants) && !self.tenant_required {
            return Err(self.wrong("shares for each tenant need rows that have one; set tenant_required"));
        }
        if self.lanes.is_some() && self.tenant.is_none() {
            return Err(self.missing("tenant", "fair shares"));
        }
        Ok(())
    }
}

/// What may become a quoted identifier.
fn is_identifier(name: &str) -> bool {
    let first = name.as_bytes().first();
    first.is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.len() <= LONGEST_IDENTIFIER
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::super::{PRESETS, preset};
    use super::*;

    #[test]
    fn every_preset_makes_sense() {
        for name in PRESETS {
            preset(name).expect("known").check().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn what_a_claim_needs_and_the_layout_lacks_is_named() {
        let lacking = |change: fn(&mut Layout)| {
            let mut layout = preset("modkit").expect("known");
            change(&mut layout);
            layout.check().expect_err("refused").to_string()
        };
        assert!(lacking(|layout| layout.locked_until = None).contains("no column for locked_until"));
        assert!(lacking(|layout| layout.attempts = None).contains("no column for attempts"));
        assert!(lacking(|layout| layout.next_attempt_at = None).contains("no column for next_attempt_at"));
        assert!(lacking(|layout| layout.claim = ClaimBy::LockTimeout).contains("no column for locked_at"));
        assert!(lacking(|layout| layout.claim = ClaimBy::RowLock).contains("not by row_lock"));
        assert!(lacking(|layout| layout.words = None).contains("words"));
        assert!(lacking(|layout| layout.last_error = Some("status".into())).contains("both for"));
    }

    #[test]
    fn another_table_does_not_bear_the_name_of_one_that_is_known() {
        let names = crate::names::Names::default();
        let bare = Layout::bare("postrider", names.clone(), "id", "payload");
        assert!(bare.check().expect_err("refused").to_string().contains("another name"));
        let other = Layout { last_error: Some("problem".into()), ..preset("talkie").expect("known") };
        assert!(other.check().expect_err("refused").to_string().contains("another name"));
        let mut own = preset("modkit").expect("known");
        own.name = "own".into();
        own.last_error = Some("problem".into());
        assert_eq!(own.check(), Ok(()));
        assert_eq!(preset("postrider").expect("known").named(names).check(), Ok(()));
    }

    #[test]
    fn a_header_in_capitals_is_refused_because_no_message_has_it() {
        let mut layout = preset("debezium").expect("known");
        layout.fields.insert("Event-Id".to_owned(), "type".into());
        assert!(layout.check().expect_err("refused").to_string().contains("lower-case"));
    }

    #[test]
    fn s01_nothing_that_could_leave_its_quotes_is_a_column_or_a_type() {
        for bad in ["", "a b", "a\"b", "a'b", "a;drop table x", "a.b", "ä", "1a", "a-b", "a\0", "{table}", "$1"] {
            let mut layout = preset("modkit").expect("known");
            layout.last_error = Some(bad.into());
            assert!(layout.check().is_err(), "{bad:?} was accepted as a column");
            layout.last_error = Some(Column::typed("last_error", bad));
            assert!(layout.check().is_err(), "{bad:?} was accepted as a type");
        }
    }
}
