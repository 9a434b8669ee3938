//! Writing rows around the dedupe keys that are there already; the same for every database and driver.

use std::collections::HashMap;

use postrider_core::message::{Enqueued, NewRow};
use uuid::Uuid;

use super::EnqueueError;

/// A row with the same dedupe key can be deleted between the insert and the look; a few rounds settle that.
const ROUNDS: usize = 3;

/// How rows get into a caller's transaction.
pub(crate) trait Writer: Send {
    /// Inserts rows and skips those whose dedupe key is there already, after waiting for the transaction that has it;
    /// answers the ids that were written.
    fn write(&mut self, rows: &[&NewRow]) -> impl Future<Output = Result<Vec<Uuid>, EnqueueError>> + Send;

    /// Finds the rows that hold the dedupe keys of these; pairs of a position, counted from 0, and the id found.
    fn find(&mut self, rows: &[&NewRow]) -> impl Future<Output = Result<Vec<(usize, Uuid)>, EnqueueError>> + Send;

    /// Whether the database may hide rows that hold a dedupe key; asked when none was found after all rounds.
    fn hides(&mut self, _rows: &[&NewRow]) -> impl Future<Output = Result<bool, EnqueueError>> + Send {
        std::future::ready(Ok(false))
    }
}

/// Writes rows and answers for each, in their order.
pub(crate) async fn insert_rows(writer: &mut impl Writer, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    let mut rounds = Rounds::new(rows);
    while let Some(open) = rounds.open() {
        if let Some(open) = rounds.written(writer.write(&open).await?) {
            rounds.found(writer.find(&open).await?);
        }
    }
    match rounds.still_open() {
        Some(open) if writer.hides(&open).await? => Err(EnqueueError::KeyHidden),
        _ => rounds.answers(),
    }
}

/// Which rows are still open, apart from how they are written, so that synchronous drivers use it too.
pub(crate) struct Rounds<'a> {
    rows: &'a [NewRow],
    open: Vec<&'a NewRow>,
    answers: HashMap<Uuid, Enqueued>,
    left: usize,
}

impl<'a> Rounds<'a> {
    pub fn new(rows: &'a [NewRow]) -> Self {
        Self { rows, open: rows.iter().collect(), answers: HashMap::with_capacity(rows.len()), left: ROUNDS }
    }

    /// The rows to write next, unless all have an answer or it took too many rounds.
    pub fn open(&mut self) -> Option<Vec<&'a NewRow>> {
        self.left = self.left.checked_sub(1)?;
        self.still_open()
    }

    /// Takes the ids that were written; answers the rows to find.
    pub fn written(&mut self, ids: Vec<Uuid>) -> Option<Vec<&'a NewRow>> {
        self.answers.extend(ids.into_iter().map(|id| (id, Enqueued::New(id))));
        self.close_answered();
        self.still_open()
    }

    /// Takes what was found: positions among the rows to find, and ids.
    pub fn found(&mut self, found: Vec<(usize, Uuid)>) {
        let answer = |(at, id): (usize, Uuid)| self.open.get(at).map(|row| (row.id, Enqueued::Already(id)));
        let found: Vec<_> = found.into_iter().filter_map(answer).collect();
        self.answers.extend(found);
        self.close_answered();
    }

    /// The answers, in the order of the rows.
    pub fn answers(&self) -> Result<Vec<Enqueued>, EnqueueError> {
        self.rows.iter().map(|row| self.answers.get(&row.id).copied().ok_or(EnqueueError::KeyContended)).collect()
    }

    fn close_answered(&mut self) {
        self.open.retain(|row| !self.answers.contains_key(&row.id));
    }

    fn still_open(&self) -> Option<Vec<&'a NewRow>> {
        (!self.open.is_empty()).then(|| self.open.clone())
    }
}
