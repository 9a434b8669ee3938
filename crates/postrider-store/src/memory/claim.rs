//! Which rows a claim takes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use postrider_core::lease::{Lease, RowAddress};
use postrider_core::state::{Event, State, transition};
use postrider_core::store::{
    ClaimOrder, ClaimRequest, Claimed, ClaimedMessage, LARGEST_CLAIM, LONGEST_RUN, Lane, Order,
};
use uuid::Uuid;

use super::table::{StoredMessage, Table};
use crate::clock::{between, micros};
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

impl Table {
    pub fn claim(&mut self, request: &ClaimRequest, now: i64) -> Claimed {
        let (picked, last_lane) = match &request.order {
            ClaimOrder::Due => (self.pick_due(request, now), None),
            ClaimOrder::Fair { after } => self.pick_fair(request, after.as_ref(), now),
            ClaimOrder::Suspects => (self.expired(request, now, true).iter().map(|row| row.seq).collect(), None),
        };
        let mut messages: Vec<_> = picked.iter().filter_map(|seq| self.take(*seq, request, now)).collect();
        match request.waits {
            Order::None => messages.sort_by_key(|(written, _)| *written),
            Order::Key => messages.sort_by_key(|((_, seq), _)| *seq),
        }
        Claimed { messages: messages.into_iter().map(|(_, message)| message).collect(), last_lane }
    }

    /// Expired leases first, then an equal share for each namespace in scope, the longest due first.
    fn pick_due(&self, request: &ClaimRequest, now: i64) -> Vec<i64> {
        let mut rows = self.expired(request, now, false);
        let mut due = self.due(request, now);
        let namespaces = due.iter().map(|row| &row.namespace).collect::<BTreeSet<_>>().len();
        let room = limit(request) - rows.len();
        keep_share(&mut due, |row| row.namespace.clone(), room.div_ceil(namespaces.max(1)));
        rows.extend(due);
        cut(&mut rows, request);
        if request.waits == Order::Key {
            let runs = self.runs(&rows, request, now);
            rows.extend(runs);
            cut(&mut rows, request);
        }
        rows.iter().map(|row| row.seq).collect()
    }

    /// An equal share for each lane after the given one. The next claim goes on after the last lane that got
    /// something if this one was cut short, so that no lane loses its turn, and begins anew if it went round.
    fn pick_fair(&self, request: &ClaimRequest, after: Option<&Lane>, now: i64) -> (Vec<i64>, Option<Lane>) {
        let pending = self.rows.values().filter(|row| row.status == State::Pending);
        // Each lane, and whether it gets a share: it is in scope, and its first row is due.
        let mut lanes: BTreeMap<Lane, bool> = BTreeMap::new();
        for row in pending {
            let gets = row.is_due(now) && request.scope.contains(&row.namespace, row.tenant_id);
            *lanes.entry(lane_of(row)).or_default() |= gets;
        }
        let from = after.map_or(Unbounded, |lane| Excluded(lane.clone()));
        let (mut looked_at, mut given) = (0, BTreeSet::new());
        let mut last = None;
        for (lane, gets) in lanes.range((from, Unbounded)).take(LANES_LOOKED_AT) {
            (looked_at, last) = (looked_at + 1, Some(lane));
            given.extend(gets.then_some(lane));
            if given.len() == LANES_PER_CLAIM {
                break;
            }
        }
        let mut rows = self.due(request, now);
        rows.retain(|row| given.contains(&lane_of(row)));
        keep_share(&mut rows, lane_of, limit(request).div_ceil(given.len().max(1)));
        rows.sort_by_key(|row| lane_of(row));
        let was_cut = cut(&mut rows, request);
        let last = match was_cut {
            true => rows.last().map(|row| lane_of(row)),
            false => last.filter(|_| given.len() == LANES_PER_CLAIM || looked_at == LANES_LOOKED_AT).cloned(),
        };
        (rows.iter().map(|row| row.seq).collect(), last)
    }

    /// What comes after rows that are the first of their keys and may be taken with them, the second of each key before
    /// the third of any.
    fn runs(&self, heads: &[&StoredMessage], request: &ClaimRequest, now: i64) -> Vec<&StoredMessage> {
        let lines = self.lines();
        let mut runs: Vec<(usize, &StoredMessage)> = Vec::new();
        for line in heads.iter().filter_map(|head| lines.get(&line_of(head)?)) {
            let ready = |row: &&StoredMessage| {
                let expired = row.is_expired(now) && !row.is_suspect(request.max_attempts);
                (row.is_due(now) || expired) && may_claim(row, request)
            };
            runs.extend(line.iter().copied().take(LONGEST_RUN as usize).take_while(ready).enumerate().skip(1));
        }
        runs.sort_by_key(|(place, _)| *place);
        runs.truncate(request.followers as usize);
        runs.into_iter().map(|(_, row)| row).collect()
    }

    /// The rows of each line that are not finished, in their order.
    fn lines(&self) -> HashMap<Line<'_>, Vec<&StoredMessage>> {
        let open = self.rows.values().filter(|row| matches!(row.status, State::Pending | State::Processing));
        let mut lines: HashMap<_, Vec<_>> = HashMap::new();
        for row in open {
            if let Some(key) = line_of(row) {
                lines.entry(key).or_default().push(row);
            }
        }
        lines
    }

    /// Drops rows that wait for an earlier one of their key.
    fn keep_first_of_key(&self, rows: &mut Vec<&StoredMessage>, request: &ClaimRequest) {
        if request.waits == Order::Key {
            let lines = self.lines();
            let first = |row: &StoredMessage| Some(lines.get(&line_of(row)?)?.first()?.seq);
            rows.retain(|row| first(row).is_none_or(|first| first == row.seq));
        }
    }

    fn expired(&self, request: &ClaimRequest, now: i64, suspects: bool) -> Vec<&StoredMessage> {
        let eligible = |row: &&StoredMessage| {
            row.is_expired(now) && may_claim(row, request) && row.is_suspect(request.max_attempts) == suspects
        };
        let mut rows: Vec<_> = self.rows.values().filter(eligible).collect();
        self.keep_first_of_key(&mut rows, request);
        rows.sort_by_key(|row| (row.locked_until_micros, row.seq));
        rows.truncate(limit(request));
        rows
    }

    fn due(&self, request: &ClaimRequest, now: i64) -> Vec<&StoredMessage> {
        let mut rows: Vec<_> = self.rows.values().filter(|row| row.is_due(now) && may_claim(row, request)).collect();
        self.keep_first_of_key(&mut rows, request);
        rows.sort_by_key(|row| (row.next_attempt_at_micros, row.seq));
        rows
    }

    /// Leases a row; answers when it was written, and the message.
    fn take(&mut self, seq: i64, request: &ClaimRequest, now: i64) -> Option<((i64, i64), ClaimedMessage)> {
        let row = self.rows.get_mut(&seq)?;
        row.status = transition(row.status, Event::Claim)?;
        row.attempts += 1;
        row.locked_by = Some(request.worker);
        row.locked_until_micros = Some(now.saturating_add(micros(request.lease)));
        row.updated_at_micros = now;
        Some(((row.created_at_micros, row.seq), claimed(row, request.worker, now)))
    }
}

fn claimed(row: &StoredMessage, worker: Uuid, now: i64) -> ClaimedMessage {
    let row = row.clone();
    let lease = Lease { id: row.id, worker, attempt: row.attempts, address: RowAddress::default() };
    let mut message = ClaimedMessage::new(lease, row.namespace, row.topic, row.payload);
    message.key = row.key;
    message.tenant_id = row.tenant_id;
    message.dedupe_key = row.dedupe_key;
    message.headers = row.headers;
    message.max_attempts = row.max_attempts;
    message.created_at_micros = row.created_at_micros;
    message.age = between(row.created_at_micros, now);
    message
}

fn may_claim(row: &StoredMessage, request: &ClaimRequest) -> bool {
    !row.is_spent(request.max_attempts) && request.scope.contains(&row.namespace, row.tenant_id)
}

fn limit(request: &ClaimRequest) -> usize {
    usize::try_from(request.limit.min(LARGEST_CLAIM)).unwrap_or(usize::MAX)
}

/// Namespace, tenant and key: what is delivered in order.
type Line<'a> = (&'a str, Option<Uuid>, &'a str);

fn line_of(row: &StoredMessage) -> Option<Line<'_>> {
    row.key.as_deref().map(|key| (row.namespace.as_str(), row.tenant_id, key))
}

fn lane_of(row: &StoredMessage) -> Lane {
    let tenant = row.tenant_id.unwrap_or(Uuid::nil());
    Lane { namespace: row.namespace.clone(), topic: row.topic.clone(), tenant }
}

/// Keeps the first rows of each group.
fn keep_share<K: Ord>(rows: &mut Vec<&StoredMessage>, group: impl Fn(&StoredMessage) -> K, share: usize) {
    let mut kept: BTreeMap<K, usize> = BTreeMap::new();
    rows.retain(|row| {
        let count = kept.entry(group(row)).or_default();
        *count += 1;
        *count <= share
    });
}

/// Cuts rows down to the request's number and size; answers whether any had to go. The first row always stays.
fn cut(rows: &mut Vec<&StoredMessage>, request: &ClaimRequest) -> bool {
    let mut size = 0_u64;
    let fits = rows.iter().take_while(|row| {
        let room = size < request.max_bytes.max(1);
        size = size.saturating_add(row.payload.as_bytes().len() as u64);
        room
    });
    let (before, keep) = (rows.len(), fits.count().min(limit(request)));
    rows.truncate(keep);
    keep < before
}
