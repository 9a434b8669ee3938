//! Rows that wait to be published, and the lines behind them.
//!
//! With [`Order::Key`] one row of a key is ready or under way, and the others stand in the key's line until it is out of
//! the way: delivered, or written as dead. If it will be tried again, its line is taken out and given back. A row that is
//! ready may be taken at once, so nobody who takes one has to know about order.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::store::{ClaimedMessage, Order};

/// A claimed row that is not under way yet.
pub(super) struct Waiting {
    pub message: ClaimedMessage,
    pub asked: Instant,
    pub trusted_until: Instant,
    /// Its place among all that came.
    pub place: u64,
}

/// Namespace and key.
type Key = (String, String);

/// What waits for one key.
#[derive(Default)]
struct Line {
    /// In the order of their claim, which is that of `seq`.
    followers: VecDeque<Waiting>,
    /// How many rows of the key are ready, under way, or have an outcome that is not written yet.
    ahead: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    order: Order,
    /// By their places.
    ready: VecDeque<Waiting>,
    lines: HashMap<Key, Line>,
    came: u64,
}

impl Queue {
    pub fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    fn key(&self, message: &ClaimedMessage) -> Option<Key> {
        let key = message.key.as_ref().filter(|_| self.order == Order::Key)?;
        Some((message.namespace.clone(), key.clone()))
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
        self.ready.push_back(row);
    }

    /// How many rows stand in lines.
    pub fn in_line(&self) -> usize {
        self.lines.values().map(|line| line.followers.len()).sum()
    }

    /// The next row that is ready.
    pub fn front(&self) -> Option<&Waiting> {
        self.ready.front()
    }

    /// Takes the next row that is ready. Others of its key wait until it has [`passed`](Self::passed).
    pub fn pop(&mut self) -> Option<Waiting> {
        self.ready.pop_front()
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
        // Where it would be without order: neither before what came before it, nor behind what came after it.
        let at = self.ready.partition_point(|row| row.place < next.place);
        self.ready.insert(at, next);
        true
    }

    /// Takes out those that stand behind a row.
    pub fn take_followers(&mut self, of: &ClaimedMessage) -> Vec<Waiting> {
        let line = self.key(of).and_then(|key| self.lines.get_mut(&key));
        line.map(|line| line.followers.drain(..).collect()).unwrap_or_default()
    }

    /// Takes out the rows whose trust ends before `then`; answers whether others are ready.
    pub fn take_expiring(&mut self, then: Instant) -> (Vec<Waiting>, bool) {
        let mut expiring = Vec::new();
        for line in self.lines.values_mut() {
            let (over, rest) = line.followers.drain(..).partition(|row| row.trusted_until <= then);
            line.followers = rest;
            expiring.extend::<VecDeque<_>>(over);
        }
        let (over, rest): (VecDeque<_>, VecDeque<_>) = self.ready.drain(..).partition(|row| row.trusted_until <= then);
        self.ready = rest;
        for row in &over {
            self.passed(&row.message);
        }
        expiring.extend(over);
        (expiring, !self.ready.is_empty())
    }

    /// Takes out all rows.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = self.lines.values_mut().flat_map(|line| line.followers.drain(..)).collect();
        let ready = std::mem::take(&mut self.ready);
        for row in &ready {
            self.passed(&row.message);
        }
        all.extend(ready);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, RowAddress};
    use crate::store::Payload;
    use std::time::Duration;
    use uuid::Uuid;

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
        queue.ready.iter().map(|row| row.message.id.as_u128()).collect()
    }

    #[test]
    fn one_row_of_a_key_is_ready_and_the_next_once_it_has_passed() {
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), None, None, Some("b"), Some("a")], Instant::now());
        assert_eq!(ready(&queue), [0, 2, 3, 4]);
        let first = queue.pop().expect("one is ready");
        assert_eq!(ready(&queue), [2, 3, 4], "the next of the key waits while the first is under way");
        assert!(queue.passed(&first.message));
        assert_eq!(ready(&queue), [1, 2, 3, 4]);
    }

    #[test]
    fn a_row_that_becomes_ready_overtakes_none_that_came_before_it() {
        let mut queue = queue(Order::Key, &[Some("a"), None, Some("b"), Some("a"), Some("c")], Instant::now());
        assert_eq!((ready(&queue), queue.in_line()), (vec![0, 1, 2, 4], 1));
        let first = queue.pop().expect("one is ready");
        assert!(queue.passed(&first.message));
        assert_eq!((ready(&queue), queue.in_line()), (vec![1, 2, 3, 4], 0));
    }

    #[test]
    fn without_order_all_are_ready() {
        assert_eq!(ready(&queue(Order::None, &[Some("a"), Some("a"), Some("a")], Instant::now())), [0, 1, 2]);
    }

    #[test]
    fn a_line_that_is_taken_out_leaves_its_key_free() {
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), Some("a")], Instant::now());
        let head = queue.pop().expect("one is ready").message;
        assert_eq!(queue.take_followers(&head).len(), 2);
        assert!(!queue.passed(&head) && queue.lines.is_empty());
    }

    #[test]
    fn rows_that_go_in_one_call_are_waited_for_together() {
        let now = Instant::now();
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), Some("a")], now);
        let head = queue.pop().expect("one is ready").message;
        assert!(queue.pop_follower(&head, |_, _| false).is_none());
        let second = queue.pop_follower(&head, |_, _| true).expect("it fits").message;
        assert!(!queue.passed(&second), "the first has not");
        assert!(queue.passed(&head));
        assert_eq!(ready(&queue), [2]);
    }

    #[test]
    fn rows_expire_with_their_line() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let mut queue = queue(Order::Key, &[Some("a"), Some("a"), None], now);
        queue.add(row(Some("b"), 7, later));
        let (expiring, more) = queue.take_expiring(now);
        assert!(expiring.len() == 3 && more);
        assert_eq!((ready(&queue), queue.lines.len()), (vec![7], 1));
        assert_eq!(queue.take_all().len(), 1);
        assert!(queue.lines.is_empty());
    }
}
