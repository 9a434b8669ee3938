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
}

/// Writes rows and answers for each, in their order.
pub(crate) async fn insert_rows(writer: &mut impl Writer, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    let mut answers: HashMap<Uuid, Enqueued> = HashMap::with_capacity(rows.len());
    let mut open: Vec<&NewRow> = rows.iter().collect();
    for _ in 0..ROUNDS {
        for id in writer.write(&open).await? {
            answers.insert(id, Enqueued::New(id));
        }
        open.retain(|row| !answers.contains_key(&row.id));
        if open.is_empty() {
            break;
        }
        for (position, id) in writer.find(&open).await? {
            answers.extend(open.get(position).map(|row| (row.id, Enqueued::Already(id))));
        }
        open.retain(|row| !answers.contains_key(&row.id));
        if open.is_empty() {
            break;
        }
    }
    rows.iter().map(|row| answers.get(&row.id).copied().ok_or(EnqueueError::KeyContended)).collect()
}
