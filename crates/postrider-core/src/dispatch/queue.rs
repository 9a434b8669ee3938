//! Rows that wait to be published: the lanes they are in, and the lines behind them.
//!
//! Rows that are ready stand in *lanes* (namespace, topic, tenant), which take turns, so that what was claimed of a hot lane
//! does not come before everything else. Within a lane they go in the order in which they came.
//!
//! With [`Order::Key`] one row of a key is ready or under way, and the others stand in the key's line until it is out of
//! the way: delivered, or written as dead. If it will be tried again, its line is taken out and given back. A row that is
//! ready may be taken at once, so nobody who takes one has to know about order.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use tokio::time::Instant;
use uuid::Uuid;

use crate::store::{ClaimedMessage, Order};

/// A claimed row that is not under way yet.
pub(super) struct Waiting {
    pub message: ClaimedMessage,
    pub asked: Instant,
    pub trusted_until: Instant,
    /// Its place among all that came.
    pub place: u64,
}

/// Namespace, tenant and key.
type Key = (String, Option<Uuid>, String);

/// What waits for one key.
#[derive(Default)]
struct Line {
    /// In the order of their claim, which is that of `seq`.
    followers: VecDeque<Waiting>,
    /// How many rows of the key are ready, under way, or have an outcome that is not written yet.
    ahead: usize,
}

/// A lane's namespace and topic, as a hash, and its tenant. Two topics that have the same hash share their turns; two tenants
/// never do.
pub(super) type LaneId = (u64, Option<Uuid>);

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    order: Order,
    /// What is ready in each lane, by their places; none is empty.
    lanes: HashMap<LaneId, VecDeque<Waiting>>,
    /// All lanes, the one whose turn is next first.
    turns: VecDeque<LaneId>,
    lines: HashMap<Key, Line>,
    came: u64,
    hasher: RandomState,
}

impl Queue {
    pub fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    fn key(&self, message: &ClaimedMessage) -> Option<Key> {
        let (namespace, tenant, key) = message.line().filter(|_| self.order == Order::Key)?;
        Some((namespace.to_owned(), tenant, key.to_owned()))
    }

    pub fn add(&mut self, mut row: Waiting) {
        row.place = self.came;
        self.came += 1;
        if let Some(key) = self.key(&row.message) {
            let line = self.lines.entry(key).or_default();
            if line.ahead > 0 {
                return line.followers.push_back(row);
            }
            line.ahead = 1;
        }
        self.lane_of(&row.message).push_back(row);
    }

    /// The lane of a message, which gets its turn after the others if it is a new one.
    fn lane_of(&mut self, message: &ClaimedMessage) -> &mut VecDeque<Waiting> {
        let id = (self.hasher.hash_one((&message.namespace, &message.topic)), message.tenant_id);
        self.lanes.entry(id).or_insert_with(|| {
            self.turns.push_back(id);
            VecDeque::new()
        })
    }

    /// How many rows stand in lines.
    pub fn in_line(&self) -> usize {
        self.lines.values().map(|line| line.followers.len()).sum()
    }

    /// The lane that has its turn after `before` others.
    pub fn turn(&self, before: usize) -> Option<LaneId> {
        self.turns.get(before).copied()
    }

    /// The next row of a lane.
    pub fn front(&self, lane: LaneId) -> Option<&Waiting> {
        self.lanes.get(&lane)?.front()
    }

    /// Takes the next row of a lane. Others of its key wait until it has [`passed`](Self::passed). Call
    /// [`turn_over`](Self::turn_over) when the lane has had enough.
    pub fn pop(&mut self, lane: LaneId) -> Option<Waiting> {
        self.lanes.get_mut(&lane)?.pop_front()
    }

    /// The lane with `before` others before it has had its turn, and comes last now.
    pub fn turn_over(&mut self, before: usize) {
        let Some(lane) = self.turns.remove(before) else { return };
        match self.lanes.get(&lane).is_some_and(|rows| !rows.is_empty()) {
            true => self.turns.push_back(lane),
            false => drop(self.lanes.remove(&lane)),
        }
    }

    /// Takes the row that stands behind one under way, to go in the same call, if `fits` says so of it.
    pub fn pop_follower(
        &mut self,
        of: &ClaimedMessage,
        fits: impl FnOnce(&ClaimedMessage, Instant) -> bool,
    ) -> Option<Waiting> {
        let line = self.lines.get_mut(&self.key(of)?)?;
        line.followers.front().filter(|row| fits(&row.message, row.trusted_until))?;
        line.ahead += 1;
        line.followers.pop_front()
    }

    /// A row is out of the way; answers whether that made another one ready.
    pub fn passed(&mut self, message: &ClaimedMessage) -> bool {
        let Some(key) = self.key(message) else { return false };
        let Some(line) = self.lines.get_mut(&key) else { return false };
        line.ahead = line.ahead.saturating_sub(1);
        if line.ahead > 0 {
            return false;
        }
        let Some(next) = line.followers.pop_front() else {
            self.lines.remove(&key);
            return false;
        };
        line.ahead = 1;
        // Where it would be without order: neither before what came before it in its lane, nor behind what came after it.
        let lane = self.lane_of(&next.message);
        let at = lane.partition_point(|row| row.place < next.place);
        lane.insert(at, next);
        true
    }

    /// Takes out those that stand behind a row.
    pub fn take_followers(&mut self, of: &ClaimedMessage) -> Vec<Waiting> {
        let line = self.key(of).and_then(|key| self.lines.get_mut(&key));
        line.map(|line| line.followers.drain(..).collect()).unwrap_or_default()
    }

    /// Takes out the rows whose trust ends before `then`, and without order per key also what stands behind them in their lanes, which
    /// would overtake them. With it, what stands behind a row of a key was claimed together with it and expires with it.
    /// Those in lines come first, else they are in the order in which they came. Answers whether others are ready.
    pub fn take_expiring(&mut self, then: Instant) -> (Vec<Waiting>, bool) {
        let mut expiring = Vec::new();
        for line in self.lines.values_mut() {
            let (over, rest) = line.followers.drain(..).partition(|row| row.trusted_until <= then);
            line.followers = rest;
            expiring.extend::<VecDeque<_>>(over);
        }
        let mut ready = Vec::new();
        for lane in self.lanes.values_mut() {
            let mut overtakes = false;
            let (over, rest) = lane.drain(..).partition(|row| {
                overtakes |= self.order == Order::None && row.trusted_until <= then;
                overtakes || row.trusted_until <= then
            });
            *lane = rest;
            ready.extend::<VecDeque<_>>(over);
        }
        expiring.sort_unstable_by_key(|row| row.place);
        expiring.extend(self.all_passed(ready));
        self.drop_empty_lanes();
        (expiring, !self.lanes.is_empty())
    }

    fn drop_empty_lanes(&mut self) {
        self.lanes.retain(|_, rows| !rows.is_empty());
        self.turns.retain(|lane| self.lanes.contains_key(lane));
    }

    /// Takes out all rows, those in lines first, else in the order in which they came.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = self.lines.values_mut().flat_map(|line| line.followers.drain(..)).collect();
        let ready: Vec<Waiting> = std::mem::take(&mut self.lanes).into_values().flatten().collect();
        self.turns.clear();
        all.sort_unstable_by_key(|row| row.place);
        all.extend(self.all_passed(ready));
        all
    }

    /// Rows that were ready are out of the way. In the order in which they came, so that what follows from it is the same
    /// every time.
    fn all_passed(&mut self, mut ready: Vec<Waiting>) -> Vec<Waiting> {
        ready.sort_unstable_by_key(|row| row.place);
        for row in &ready {
            self.passed(&row.message);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, RowAddress};
    use crate::store::Payload;
    use std::time::Duration;

    fn row(key: Option<&str>, number: u128, trusted_until: Instant) -> Waiting {
        let lease =
            Lease { id: Uuid::from_u128(number), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "t".into(), Payload::Json("{}".into()));
        message.key = key.map(str::to_owned);
        Waiting { message, asked: trusted_until, trusted_until, place: 0 }
    }

    fn queue(order: Order, keys: &[Option<&str>], then: Instant) -> Queue {
        let mut queue = Queue::new(order);
        keys.iter().zip(0..).for_each(|(key, number)| queue.add(row(*key, number, then)));
        queue
    }

    fn ready(queue: &Queue) -> Vec<u128> {
        queue.turns.iter().flat_map(|lane| &queue.lanes[lane]).map(|row| row.message.id.as_u128()).collect()
    }

    /// Takes one row of the lane whose turn it is.
    fn pop(queue: &mut Queue) -> Option<Waiting> {
        let row = queue.pop(queue.turn(0)?);
        queue.turn_over(0);
        row
    }

    #[test]
    fn one_row_of_a_key_is_ready_and_the_next_once_it_has_passed() {
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), None, None, Some("b"), Some("a")], Instant::now());
        assert_eq!(ready(&queue), [0, 2, 3, 4]);
        let first = pop(&mut queue).expect("one is ready");
        assert_eq!(ready(&queue), [2, 3, 4], "the next of the key waits while the first is under way");
        assert!(queue.passed(&first.message));
        assert_eq!(ready(&queue), [1, 2, 3, 4]);
    }

    #[test]
    fn a_row_that_becomes_ready_overtakes_none_that_came_before_it() {
        let mut queue = queue(Order::Key, &[Some("a"), None, Some("b"), Some("a"), Some("c")], Instant::now());
        assert_eq!((ready(&queue), queue.in_line()), (vec![0, 1, 2, 4], 1));
        let first = pop(&mut queue).expect("one is ready");
        assert!(queue.passed(&first.message));
        assert_eq!((ready(&queue), queue.in_line()), (vec![1, 2, 3, 4], 0));
    }

    #[test]
    fn r24_lanes_take_turns_and_keep_their_own_order() {
        let mut queue = Queue::new(Order::None);
        for (number, tenant) in [7, 7, 7, 7, 8, 9, 8].into_iter().enumerate() {
            let mut row = row(None, number as u128, Instant::now());
            row.message.tenant_id = Some(Uuid::from_u128(tenant));
            queue.add(row);
        }
        let taken: Vec<u128> = std::iter::from_fn(|| pop(&mut queue)).map(|row| row.message.id.as_u128()).collect();
        assert_eq!(taken, [0, 4, 5, 1, 6, 2, 3]);
        assert!(queue.turns.is_empty() && queue.lanes.is_empty());
    }

    #[test]
    fn without_order_all_are_ready() {
        assert_eq!(ready(&queue(Order::None, &[Some("a"), Some("a"), Some("a")], Instant::now())), [0, 1, 2]);
    }

    #[test]
    fn a_line_that_is_taken_out_leaves_its_key_free() {
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), Some("a")], Instant::now());
        let head = pop(&mut queue).expect("one is ready").message;
        assert_eq!(queue.take_followers(&head).len(), 2);
        assert!(!queue.passed(&head) && queue.lines.is_empty());
    }

    #[test]
    fn rows_that_go_in_one_call_are_waited_for_together() {
        let now = Instant::now();
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), Some("a")], now);
        let head = pop(&mut queue).expect("one is ready").message;
        assert!(queue.pop_follower(&head, |_, _| false).is_none());
        let second = queue.pop_follower(&head, |_, _| true).expect("it fits").message;
        assert!(!queue.passed(&second), "the first has not");
        assert!(queue.passed(&head));
        assert_eq!(ready(&queue), [2]);
    }

    #[test]
    fn a_row_that_expires_is_not_overtaken_by_those_behind_it_in_its_lane() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let mut queue = Queue::new(Order::None);
        for (number, then) in [(1, later), (2, now), (3, later)] {
            queue.add(row(None, number, then));
        }
        let mut other = row(None, 4, later);
        other.message.topic = "other".into();
        queue.add(other);
        let (expiring, more) = queue.take_expiring(now);
        assert_eq!(expiring.iter().map(|row| row.message.id.as_u128()).collect::<Vec<_>>(), [2, 3]);
        assert!(more);
        assert_eq!(ready(&queue), [1, 4]);
    }

    #[test]
    fn rows_expire_with_their_line() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), None], now);
        let mut other = row(Some("b"), 7, later);
        other.message.topic = "other".into();
        queue.add(other);
        let (expiring, more) = queue.take_expiring(now);
        assert!(expiring.len() == 3 && more);
        assert_eq!((ready(&queue), queue.lines.len()), (vec![7], 1));
        assert_eq!(queue.take_all().len(), 1);
        assert!(queue.lines.is_empty());
    }
}
