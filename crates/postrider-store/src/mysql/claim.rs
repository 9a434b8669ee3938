//! Claiming: one short transaction that locks candidates, passing over those that others have, and leases some of them.
//!
//! What is there is looked up before the transaction begins, without locks, so that an idle poll locks nothing.

use postrider_core::store::{ClaimOrder, ClaimRequest, Claimed, LARGEST_CLAIM, Lane, Order};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::claim_order::Near;
use super::claimed::{Taken, claimed};
use super::run::{Work, begin, commit, execute, fetch, roll_back};
use super::scope::Within;
use super::statements::{FlatStatements, OurStatements, Scoped, Shape, StoreStatements, Walk};
use super::types::{Bound, RowKey, uuid_or_null};
use crate::claimed::Unreadable;
use crate::clock::micros;
use crate::pick::{fitting, share};
use crate::sql::Sql;
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

pub(super) struct Claim<'a> {
    pub statements: &'a StoreStatements,
    pub request: &'a ClaimRequest,
    pub within: Within,
}

/// What a claim took: messages, and rows that are none.
#[derive(Default)]
pub(super) struct Outcome {
    pub claimed: Claimed,
    pub unreadable: Vec<Unreadable<Taken>>,
}

/// A row that this transaction has locked and may take.
pub(super) struct Candidate {
    pub row: RowKey,
    pub size: u64,
    /// Since when it has been waiting, in microseconds since 1970.
    pub since: i64,
}

/// The statements that lock candidates in our own table.
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
    /// It is in scope, and its first row is due.
    gets: bool,
}

impl Work for Claim<'_> {
    type Answer = Outcome;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Outcome, sqlx::Error> {
        if self.limit() == 0 {
            return Ok(Outcome::default());
        }
        match (&self.request.order, &self.statements.walk) {
            (ClaimOrder::Due, Walk::Ours(ours)) => self.claim_due(connection, ours).await,
            (ClaimOrder::Due, Walk::Flat(flat)) => self.claim_flat(connection, flat).await,
            (ClaimOrder::Fair { after }, Walk::Ours(ours)) => self.claim_fair(connection, ours, after.as_ref()).await,
            // The store has refused it.
            (ClaimOrder::Fair { .. }, Walk::Flat(_)) => Ok(Outcome::default()),
            (ClaimOrder::Suspects, Walk::Ours(ours)) => self.claim_suspects(connection, Some(ours)).await,
            (ClaimOrder::Suspects, Walk::Flat(_)) => self.claim_suspects(connection, None).await,
        }
    }
}

impl Claim<'_> {
    fn candidates<'a>(&'a self, ours: &'a OurStatements) -> Candidates<'a> {
        let all = self.statements;
        match self.request.waits {
            Order::None => Candidates {
                expired: &all.claim_expired,
                suspects: &all.claim_suspects,
                due: &ours.claim_due,
                lane: &ours.claim_lane,
            },
            Order::Key => Candidates {
                expired: &ours.claim_expired_ordered,
                suspects: &ours.claim_suspects_ordered,
                due: &ours.claim_due_ordered,
                lane: &ours.claim_lane_ordered,
            },
        }
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.request.limit.min(LARGEST_CLAIM)).unwrap_or(usize::MAX)
    }

    /// Expired leases first, then an equal share for each namespace in scope, the longest due first, until there are
    /// enough: with more namespaces than room, the rest are not even looked at.
    async fn claim_due(&self, connection: &mut MySqlConnection, ours: &OurStatements) -> Result<Outcome, sqlx::Error> {
        let mut heads = self.within.heads(connection, ours).await?;
        heads.retain(|head| head.is_due());
        heads.sort_by_key(|head| head.due_in);
        begin(connection).await?;
        let statements = self.candidates(ours);
        let mut picked = self.expired(connection, statements.expired).await?;
        let room = self.limit() - picked.len();
        let mut due = Vec::new();
        for head in &heads {
            if due.len() >= room {
                break;
            }
            let share = share(room, heads.len());
            let Near { mut rows, moves } = match self.request.waits {
                Order::None => Near::default(),
                Order::Key => self.near(connection, ours, &head.namespace, share).await?,
            };
            // Further back only if nothing was found, and not if most of it waits for what somebody is publishing: that moves on by
            // itself, and all of a backlog would be read to find out that every key is taken. Now and then it is, for what stands
            // behind it.
            let everything = self.request.thorough && rows.len() < share;
            if everything || rows.is_empty() && !moves {
                let mut bound = Bound::default();
                bound.add(head.namespace.clone()).add(self.request.max_attempts).tenant(self.within.tenant);
                bound.count(share);
                rows = self.read(&fetch(connection, statements.due, bound).await?)?;
            }
            due.extend(rows);
        }
        due.sort_unstable_by(|one, other| (one.since, &one.row).cmp(&(other.since, &other.row)));
        picked.extend(due);
        self.cut(&mut picked);
        if self.request.waits == Order::Key {
            let places = self.in_turn(connection, ours, &mut picked).await?;
            let runs = self.runs(connection, ours, &picked, places).await?;
            picked.extend(runs);
            self.cut(&mut picked);
        }
        self.take(connection, &picked, None).await
    }

    /// Expired leases first, then what has been due for longest. A look without locks says whether there is anything.
    async fn claim_flat(
        &self,
        connection: &mut MySqlConnection,
        flat: &FlatStatements,
    ) -> Result<Outcome, sqlx::Error> {
        if !self.within.is_due(connection, &[&flat.next_due, &flat.undated, &self.statements.next_lease]).await? {
            return Ok(Outcome::default());
        }
        begin(connection).await?;
        let mut picked = self.expired(connection, &self.statements.claim_expired).await?;
        let room = self.limit() - picked.len();
        let mut due = Vec::new();
        for statement in flat.claim_due.iter().filter(|_| room > 0) {
            let before = |bound: &mut Bound| {
                bound.add(self.request.max_attempts);
            };
            let after = |bound: &mut Bound| {
                bound.count(room);
            };
            due.extend(self.read(&self.within.fetch(connection, statement, 1, before, after).await?)?);
        }
        due.sort_unstable_by(|one, other| (one.since, &one.row).cmp(&(other.since, &other.row)));
        due.truncate(room);
        picked.extend(due);
        self.cut(&mut picked);
        self.take(connection, &picked, None).await
    }

    async fn claim_suspects(
        &self,
        connection: &mut MySqlConnection,
        ours: Option<&OurStatements>,
    ) -> Result<Outcome, sqlx::Error> {
        begin(connection).await?;
        let statement = ours.map_or(&self.statements.claim_suspects, |ours| self.candidates(ours).suspects);
        let mut picked = self.expired(connection, statement).await?;
        if let (Order::Key, Some(ours)) = (self.request.waits, ours) {
            self.in_turn(connection, ours, &mut picked).await?;
        }
        self.take(connection, &picked, None).await
    }

    /// An equal share for each lane after the given one. The next claim goes on after the last lane that got
    /// something if this one was cut short, so that no lane loses its turn, and begins anew if it went round.
    async fn claim_fair(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        after: Option<&Lane>,
    ) -> Result<Outcome, sqlx::Error> {
        let lanes = self.lanes(connection, ours, after).await?;
        let given = lanes.iter().filter(|head| head.gets).count();
        let share = share(self.limit(), given);
        begin(connection).await?;
        let (mut picked, mut lane_of) = (Vec::new(), Vec::new());
        for head in lanes.iter().filter(|head| head.gets) {
            let mut bound = Bound::default();
            bound.add(head.lane.namespace.clone()).add(head.lane.topic.clone()).add(head.tenant.map(Uuid::hyphenated));
            bound.add(self.request.max_attempts).count(share);
            picked.extend(self.read(&fetch(connection, self.candidates(ours).lane, bound).await?)?);
            lane_of.resize(picked.len(), &head.lane);
        }
        let last_lane = match self.cut(&mut picked) {
            true => picked.len().checked_sub(1).map(|last| lane_of[last].clone()),
            false if given == LANES_PER_CLAIM || lanes.len() == LANES_LOOKED_AT => {
                lanes.last().map(|head| head.lane.clone())
            }
            false => None,
        };
        if self.request.waits == Order::Key {
            self.in_turn(connection, ours, &mut picked).await?;
        }
        self.take(connection, &picked, last_lane).await
    }

    /// Skips from one lane with pending rows to the next, until enough of them get something.
    async fn lanes(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
        after: Option<&Lane>,
    ) -> Result<Vec<LaneHead>, sqlx::Error> {
        let (mut lanes, mut given): (Vec<LaneHead>, _) = (Vec::new(), 0);
        while given < LANES_PER_CLAIM && lanes.len() < LANES_LOOKED_AT {
            let last = lanes.last().map(|head| (&head.lane, head.tenant));
            let last = last.or_else(|| after.map(|lane| (lane, Some(lane.tenant))));
            let mut bound = Bound::default();
            let (namespace, topic) = last.map_or(("", ""), |(lane, _)| (&lane.namespace, &lane.topic));
            // An empty text comes after null and before every id.
            let tenant = last.and_then(|(_, tenant)| tenant).map_or_else(String::new, |tenant| tenant.to_string());
            bound.add(namespace.to_owned()).add(namespace.to_owned()).add(topic.to_owned());
            bound.add(namespace.to_owned()).add(topic.to_owned()).add(tenant);
            let rows = fetch(connection, &ours.next_lane, bound).await?;
            let Some(row) = rows.first() else { break };
            let tenant = uuid_or_null(row, 2)?;
            let lane =
                Lane { namespace: row.try_get(0)?, topic: row.try_get(1)?, tenant: tenant.unwrap_or(Uuid::nil()) };
            let gets = row.try_get::<i64, _>(3)? <= 0 && self.request.scope.contains(&lane.namespace, tenant);
            given += usize::from(gets);
            lanes.push(LaneHead { lane, tenant, gets });
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
        self.read(&self.within.fetch(connection, statement, 1, before, after).await?)
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
        last_lane: Option<Lane>,
    ) -> Result<Outcome, sqlx::Error> {
        if picked.is_empty() {
            roll_back(connection).await?;
            return Ok(Outcome { claimed: Claimed { messages: Vec::new(), last_lane }, unreadable: Vec::new() });
        }
        let mut numbers: Vec<RowKey> = picked.iter().map(|row| row.row.clone()).collect();
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
            if self.shape().worker {
                bound.uuid(self.request.worker);
            }
            if self.shape().lease {
                bound.add(micros(self.request.lease));
            }
            bound.rows(portion);
            execute(connection, sql, bound).await?;
        }
        let (messages, unreadable) = claimed(&rows, self.request.worker, self.request.waits, self.shape())?;
        commit(connection).await?;
        Ok(Outcome { claimed: Claimed { messages, last_lane }, unreadable })
    }

    pub(super) fn shape(&self) -> Shape {
        self.statements.shape
    }

    /// Reads candidates.
    pub(super) fn read(&self, rows: &[MySqlRow]) -> Result<Vec<Candidate>, sqlx::Error> {
        let candidate = |row: &MySqlRow| {
            let (size, since): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
            let row = RowKey::read(row, 0, self.shape())?;
            Ok(Candidate { row, size: u64::try_from(size).unwrap_or(0), since })
        };
        rows.iter().map(candidate).collect()
    }
}
