//! The checkers of a run at rest. I3 and I6 are looked at as things happen (see [`books`](super::books)), and I7 while the
//! run comes to rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use postrider::State;
use postrider::store::Order;
use uuid::Uuid;

use super::books::{Books, Nature};
use super::counts::Counts;
use super::rows::Row;
use super::world::World;

/// Namespace, tenant and key of messages that go out in order.
type Line<'a> = (&'a str, Option<Uuid>, &'a str);

fn line(books: &Books, id: Uuid) -> Option<Line<'_>> {
    let (_, written) = books.ledger.get(books.names.get(&id)?)?;
    Some((&written.namespace, written.tenant, written.key.as_deref()?))
}

/// Checks everything, and counts.
pub fn check(world: &World) -> (Vec<String>, Counts) {
    let mut books = world.books();
    let mut found = Vec::new();
    ledger_and_outbox_agree(&books, &mut found);
    nothing_is_lost(&books, &mut found);
    let duplicates = repeats_have_reasons(&books, &mut found);
    if world.plan.order == Order::Key {
        keys_are_in_order(&books, &mut found);
    }
    only_the_exhausted_and_refused_are_dead(&books, &mut found);
    if books.counts.sink_faults == 0 && books.claims.iter().all(|claim| !claim.disturbed) {
        without_faults_one_attempt_is_enough(&books, &mut found);
    }
    let of = |status: State| books.seen.values().filter(|row| row.status == status).count() as u64;
    let (delivered, dead) = (of(State::Delivered), of(State::Dead));
    let messages = books.ledger.len() as u64;
    books.breaches.extend(found);
    let (duplicates, bound) = duplicates;
    let counts = Counts { runs: 1, messages, delivered, dead, duplicates, bound, ..books.counts };
    (std::mem::take(&mut books.breaches), counts)
}

fn ledger_and_outbox_agree(books: &Books, found: &mut Vec<String>) {
    let committed: BTreeSet<Uuid> = books.ledger.values().map(|(id, _)| *id).collect();
    let rows: BTreeSet<Uuid> = books.seen.values().map(|row| row.id).collect();
    let names = |ids: Vec<&Uuid>| ids.into_iter().map(|id| books.name(*id)).collect::<BTreeSet<_>>();
    if committed != rows || rows.len() != books.seen.len() {
        let (no_row, no_entry) =
            (names(committed.difference(&rows).collect()), names(rows.difference(&committed).collect()));
        found.push(format!("I1: committed and no row: {no_row:?}; a row and not committed: {no_entry:?}"));
    }
}

fn nothing_is_lost(books: &Books, found: &mut Vec<String>) {
    let arrived: HashSet<&Uuid> = books.arrivals.iter().collect();
    for row in books.seen.values() {
        let name = books.name(row.id);
        match row.status {
            State::Dead => {}
            State::Delivered if arrived.contains(&row.id) => {}
            State::Delivered => found.push(format!("I2: {name} is lost: it is delivered and never arrived")),
            status => found.push(format!("I2: {name} is still {status:?} after {} attempts", row.attempts)),
        }
    }
}

/// I4. Answers how many duplicates there are, and how many there may be.
fn repeats_have_reasons(books: &Books, found: &mut Vec<String>) -> (u64, u64) {
    // By message: arrivals, the most arrivals of disturbed claims, and claims that arrived undisturbed.
    let mut messages: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
    for claim in books.claims.iter().filter(|claim| claim.arrivals > 0) {
        let of = messages.entry(books.names.get(&claim.id).copied().unwrap_or(usize::MAX)).or_default();
        of.0 += u64::from(claim.arrivals);
        match claim.disturbed {
            true => of.1 += u64::from(claim.publishes),
            false => of.2 += 1,
        }
        if claim.arrivals > claim.publishes {
            let (name, times) = (books.name(claim.id), claim.arrivals);
            found.push(format!("I4: attempt {} of {name} arrived {times} times", claim.attempt));
        }
    }
    let (mut duplicates, mut bound) = (0, 0);
    for (number, (arrivals, disturbed, undisturbed)) in messages {
        let most = disturbed + undisturbed.min(1);
        duplicates += arrivals - 1;
        bound += most - 1;
        if arrivals > most {
            found.push(format!("I4: m{number} arrived {arrivals} times; faults explain {most}"));
        }
    }
    (duplicates, bound)
}

/// I5. A dead message is skipped; if it arrives after all, nobody knew.
fn keys_are_in_order(books: &Books, found: &mut Vec<String>) {
    let seqs: HashMap<Uuid, i64> =
        books.seen.iter().filter(|(_, row)| row.status != State::Dead).map(|(seq, row)| (row.id, *seq)).collect();
    let (mut last, mut known): (HashMap<Line<'_>, i64>, _) = (HashMap::new(), HashSet::new());
    for id in books.arrivals.iter().filter(|id| known.insert(**id)) {
        let (Some(line), Some(seq)) = (line(books, *id), seqs.get(id)) else { continue };
        if last.insert(line, *seq).is_some_and(|before| before > *seq) {
            found.push(format!("I5: {} first arrived after a later one of its key", books.name(*id)));
        }
    }
}

fn only_the_exhausted_and_refused_are_dead(books: &Books, found: &mut Vec<String>) {
    for row in books.seen.values() {
        let name = books.name(row.id);
        let nature = books.names.get(&row.id).and_then(|number| books.ledger.get(number)).map(|(_, it)| it.nature);
        if row.attempts > row.allowed {
            found.push(format!("I8: {name} had {} attempts of {}", row.attempts, row.allowed));
        }
        if row.status == State::Dead && row.attempts < row.allowed && !books.refused.contains(&row.id) {
            found.push(format!("I8: {name} is dead after {} attempts of {}", row.attempts, row.allowed));
        }
        if row.status == State::Delivered && nature != Some(Nature::Good) {
            found.push(format!("I8: {name} is delivered and was never taken"));
        }
    }
}

fn without_faults_one_attempt_is_enough(books: &Books, found: &mut Vec<String>) {
    for row in books.seen.values().filter(|row| row.status == State::Delivered && row.attempts != 1) {
        found.push(format!("R27: {} took {} attempts without a fault", books.name(row.id), row.attempts));
    }
}

/// I7: once faults are over, no lease stands long after its end.
pub struct Overdue {
    /// The database's time when faults were over.
    since: i64,
    longest: Duration,
}

impl Overdue {
    /// Begins when faults are over. A lease, two polls and a sweep are enough for relays that have nothing else to do; what
    /// there is to publish takes its time. Suspects are published one by one, taking turns with all others, and those of one
    /// key are found one per sweep.
    pub fn new(world: &World) -> Self {
        let (plan, books) = (&world.plan, world.books());
        let count = |rows: &mut dyn Iterator<Item = &Row>| u32::try_from(rows.count()).unwrap_or(u32::MAX);
        let open = count(&mut books.rows.values().filter(|row| row.is_open()));
        let suspects =
            count(&mut books.rows.values().filter(|row| row.status == State::Processing && row.is_suspect()));
        let publish = plan.publish_takes + plan.latency * 6;
        let crowd = publish * open + (publish * 2 + plan.sweep + plan.poll) * suspects;
        Self { since: world.now_micros(), longest: plan.lease + plan.poll * 2 + plan.sweep + crowd }
    }

    pub fn breach(&self, world: &World) -> Option<String> {
        let (now, books) = (world.now_micros(), world.books());
        let mut taken: HashSet<Line<'_>> = HashSet::new();
        for row in books.rows.values().filter(|row| row.is_open()) {
            let line = line(&books, row.id).filter(|_| world.plan.order == Order::Key);
            // Who stands behind another of its key waits for that.
            let waits = line.is_some_and(|line| !taken.insert(line));
            let over = row.locked_until.map_or(now, |until| until.max(self.since));
            let overdue = Duration::from_micros(u64::try_from(now - over).unwrap_or(0));
            if row.is_expired(now) && !waits && overdue > self.longest {
                let (name, longest) = (books.name(row.id), self.longest);
                return Some(format!("I7: the lease of {name} ended {overdue:?} ago, {longest:?} may be"));
            }
        }
        None
    }
}
