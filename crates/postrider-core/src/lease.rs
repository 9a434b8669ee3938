//! The right to publish one message, until a time on the database's clock.
//!
//! A lease is named by row, worker and attempt. Attempts grow with every claim, so the attempt number is the
//! fencing token: when the lease ran out and somebody claimed the row again, be it the very same worker,
//! what the earlier attempt still wants to write no longer matches and touches nothing.
//!
//! A release gives its attempt back, so the next claim by the same worker carries the same token. That is
//! sound because a lease is settled once: a worker that released a row holds nothing it could settle later,
//! and a release whose answer was lost is never sent again. A replay begins to count anew as well: it is an
//! operator's act on a dead row, long after the publish that its old attempts began has ended or timed out.

use uuid::Uuid;

/// Where a row was when it was claimed, so that a store can find it again without its index. A hint only:
/// a store that does not find the leased row there looks for it by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowAddress(pub u64);

/// A claim of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The row.
    pub id: Uuid,
    /// Who claimed it.
    pub worker: Uuid,
    /// The attempt this claim began; the fencing token.
    pub attempt: i32,
    /// Where the row was.
    pub address: RowAddress,
}
