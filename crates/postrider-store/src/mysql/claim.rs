//! Claiming: one short transaction that locks candidates, passing over those that others have, and leases some of them.
//!
//! What is there is looked up before the transaction begins, without locks, so that an idle poll locks nothing.

use postrider_core::store::{ClaimOrder, ClaimRequest, Claimed, ClaimedMessage, LARGEST_CLAIM, Lane, Order};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::claimed::claimed;
use super::run::{Work, begin, commit, execute, fetch, roll_back};
use super::scope::Within;
use super::statements::{Scoped, StoreStatements};
use super::types::{Bound, uuid_or_null};
use crate::LANES_PER_CLAIM;
use crate::clock::micros;
use crate::pick::{fitting, share};
use crate::sql::Sql;

pub(super) struct Claim<'a> {
    pub statements: &'a StoreStatements,
    pub request: &'a ClaimRequest,
    pub within: Within,
}

/// A row that this transaction has locked and may take.
pub(super) struct Candidate {
    pub seq: i64,
    pub size: u64,
    /// Since when it has been waiting, in microseconds since 1970.
    pub since: i64,
}

/// The statements that lock candidates.
struct Candidates<'a> {
    expired: &'a Scoped,
    suspects: &'a Scoped,
    due: &'a Sql,
    lane: &'a Sql,
}

/// A lane that has pending rows. Rows without a tenant are apart from those of the nil UUID, though [`Lane`] has one
/// word for both.
struct LaneHead {
    lane: Lane,
    tenant: Option<Uuid>,
    is_due: bool,
}

impl Work for Claim<'_> {
    type Answer = Claimed;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Claimed, sqlx::Error> {
        if self.limit() == 0 {
            return Ok(Claimed::default());
        }
        match &self.request.order {
            ClaimOrder::Due => self.claim_due(connection).await,
            ClaimOrder::Fair { after } => self.claim_fair(connection, after.as_ref()).await,
            ClaimOrder::Suspects => self.claim_suspects(connection).await,
        }
    }
}

impl Claim<'_> {
    fn candidates(&self) -> Candidates<'_> {
        let all = self.statements;
        match self.request.waits {
            Order::None => Candidates {
                expired: &all.claim_expired,
                suspects: &all.claim_suspects,
                due: &all.claim_due,
                lane: &all.claim_lane,
            },
            Order::Key => Candidates {
                expired: &all.claim_expired_ordered,
                suspects: &all.claim_suspects_ordered,
                due: &all.claim_due_ordered,
                lane: &all.claim_lane_ordered,
            },
        }
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.request.limit.min(LARGEST_CLAIM)).unwrap_or(usize::MAX)
    }

    /// Expired leases first, then an equal share for each namespace in scope, the longest due first, until there are
    /// enough: with more namespaces than room, the rest are not even looked at.
    async fn claim_due(&self, connection: &mut MySqlConnection) -> Result<Claimed, sqlx::Error> {
        let mut heads = self.within.heads(connection, self.statements).await?;
        heads.retain(|head| head.is_due());
        heads.sort_by_key(|head| head.due_in);
        begin(connection).await?;
        let statements = self.candidates();
        let mut picked = self.expired(connection, statements.expired).await?;
        let room = self.limit() - picked.len();
        let mut due = Vec::new();
        for head in &heads {
            if due.len() >= room {
                break;
            }
            let share = share(room, heads.len());
            let mut rows = match self.request.waits {
                Order::None => Vec::new(),
                Order::Key => self.near(connection, &head.namespace, share).await?,
            };
            if rows.len() * 4 < share {
                let mut bound = Bound::default();
                bound.add(head.namespace.clone()).add(self.request.max_attempts).tenant(self.within.tenant);
                bound.count(share);
                let mut far = candidates(&fetch(connection, statements.due, bound).await?)?;
                far.retain(|row| rows.iter().all(|near| near.seq != row.seq));
                rows.extend(far);
                rows.truncate(share);
            }
            due.extend(rows);
        }
        due.sort_unstable_by_key(|row| (row.since, row.seq));
        picked.extend(due);
        self.cut(&mut picked);
        if self.request.waits == Order::Key {
            let places = self.in_turn(connection, &mut picked).await?;
            let runs = self.runs(connection, &picked, places).await?;
            picked.extend(runs);
            self.cut(&mut picked);
        }
        Ok(Claimed { messages: self.take(connection, &picked).await?, last_lane: None })
    }

    async fn claim_suspects(&self, connection: &mut MySqlConnection) -> Result<Claimed, sqlx::Error> {
        begin(connection).await?;
        let mut picked = self.expired(connection, self.candidates().suspects).await?;
        if self.request.waits == Order::Key {
            self.in_turn(connection, &mut picked).await?;
        }
        Ok(Claimed { messages: self.take(connection, &picked).await?, last_lane: None })
    }

    /// An equal share for each lane after the given one. The next claim goes on after the last lane that got
    /// something if this one was cut short, so that no lane loses its turn, and begins anew if it went round.
    async fn claim_fair(&self, connection: &mut MySqlConnection, after: Option<&Lane>) -> Result<Claimed, sqlx::Error> {
        let lanes = self.lanes(connection, after).await?;
        let in_scope = |head: &&LaneHead| self.request.scope.contains(&head.lane.namespace, head.tenant);
        let share = share(self.limit(), lanes.iter().filter(in_scope).count());
        begin(connection).await?;
        let (mut picked, mut lane_of) = (Vec::new(), Vec::new());
        for head in lanes.iter().filter(in_scope).filter(|head| head.is_due) {
            let mut bound = Bound::default();
            bound.add(head.lane.namespace.clone()).add(head.lane.topic.clone()).add(head.tenant.map(Uuid::hyphenated));
            bound.add(self.request.max_attempts).count(share);
            picked.extend(candidates(&fetch(connection, self.candidates().lane, bound).await?)?);
            lane_of.resize(picked.len(), &head.lane);
        }
        let last_lane = match self.cut(&mut picked) {
            true => picked.len().checked_sub(1).map(|last| lane_of[last].clone()),
            false => lanes.last().filter(|_| lanes.len() == LANES_PER_CLAIM).map(|head| head.lane.clone()),
        };
        if self.request.waits == Order::Key {
            self.in_turn(connection, &mut picked).await?;
        }
        Ok(Claimed { messages: self.take(connection, &picked).await?, last_lane })
    }

    /// Skips from one lane with pending rows to the next.
    async fn lanes(
        &self,
        connection: &mut MySqlConnection,
        after: Option<&Lane>,
    ) -> Result<Vec<LaneHead>, sqlx::Error> {
        let mut lanes: Vec<LaneHead> = Vec::new();
        while lanes.len() < LANES_PER_CLAIM {
            let last = lanes.last().map(|head| (&head.lane, head.tenant));
            let last = last.or_else(|| after.map(|lane| (lane, Some(lane.tenant))));
            let mut bound = Bound::default();
            let (namespace, topic) = last.map_or(("", ""), |(lane, _)| (&lane.namespace, &lane.topic));
            // An empty text comes after null and before every id.
            let tenant = last.and_then(|(_, tenant)| tenant).map_or_else(String::new, |tenant| tenant.to_string());
            bound.add(namespace.to_owned()).add(namespace.to_owned()).add(topic.to_owned());
            bound.add(namespace.to_owned()).add(topic.to_owned()).add(tenant);
            let rows = fetch(connection, &self.statements.next_lane, bound).await?;
            let Some(row) = rows.first() else { break };
            let tenant = uuid_or_null(row, 2)?;
            let lane =
                Lane { namespace: row.try_get(0)?, topic: row.try_get(1)?, tenant: tenant.unwrap_or(Uuid::nil()) };
            lanes.push(LaneHead { lane, tenant, is_due: row.try_get::<i64, _>(3)? <= 0 });
        }
        Ok(lanes)
    }

    async fn expired(
        &self,
        connection: &mut MySqlConnection,
        statement: &Scoped,
    ) -> Result<Vec<Candidate>, sqlx::Error> {
        let before = |bound: &mut Bound| {
            bound.add(self.request.max_attempts).add(self.request.max_attempts);
        };
        let after = |bound: &mut Bound| {
            bound.count(self.limit());
        };
        candidates(&self.within.fetch(connection, statement, 1, before, after).await?)
    }

    /// Cuts rows down to the request's number and size; answers whether any had to go.
    fn cut(&self, rows: &mut Vec<Candidate>) -> bool {
        let keep = fitting(rows.iter().map(|row| row.size), self.limit(), self.request.max_bytes);
        let was_cut = keep < rows.len();
        rows.truncate(keep);
        was_cut
    }

    /// Leases rows and ends the transaction.
    async fn take(
        &self,
        connection: &mut MySqlConnection,
        picked: &[Candidate],
    ) -> Result<Vec<ClaimedMessage>, sqlx::Error> {
        if picked.is_empty() {
            roll_back(connection).await?;
            return Ok(Vec::new());
        }
        let mut numbers: Vec<i64> = picked.iter().map(|row| row.seq).collect();
        numbers.sort_unstable();
        let mut rows = Vec::with_capacity(numbers.len());
        for portion in numbers.chunks(self.statements.claim_read.largest()) {
            let Some((sql, portion)) = self.statements.claim_read.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion);
            rows.extend(fetch(connection, sql, bound).await?);
        }
        if rows.len() != numbers.len() {
            let (read, locked) = (rows.len(), numbers.len());
            let text = format!("{read} rows could be read of {locked} that this transaction had locked");
            return Err(sqlx::Error::Protocol(text));
        }
        for portion in numbers.chunks(self.statements.claim_take.largest()) {
            let Some((sql, portion)) = self.statements.claim_take.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.uuid(self.request.worker).add(micros(self.request.lease)).rows(portion);
            execute(connection, sql, bound).await?;
        }
        let messages = claimed(&rows, self.request.worker, self.request.waits)?;
        commit(connection).await?;
        Ok(messages)
    }
}

pub(super) fn candidates(rows: &[MySqlRow]) -> Result<Vec<Candidate>, sqlx::Error> {
    let candidate = |row: &MySqlRow| {
        let size: i64 = row.try_get(1)?;
        Ok(Candidate { seq: row.try_get(0)?, size: u64::try_from(size).unwrap_or(0), since: row.try_get(2)? })
    };
    rows.iter().map(candidate).collect()
}
