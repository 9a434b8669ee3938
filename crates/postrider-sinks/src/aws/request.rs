//! Which messages share a request, and in which order requests are made.
//!
//! A request has at most ten messages and so many bytes. Requests are made at the same time, except where the destination
//! keeps an order (`.fifo`): there a request has at most one message of a group, because of several the service may
//! take a later one and not an earlier; the next of a group is sent when the one before it was taken. What comes after one
//! that failed is not sent in this call.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use postrider_core::Outcome;
use tokio::time::{Instant, timeout_at};

use super::entry::Entry;
use super::outcome::Failure;
use super::quietly;

/// The most messages of a request.
const MOST_ENTRIES: usize = 10;
/// The most requests of one call at the same time.
const MOST_REQUESTS: usize = 10;
const HELD_BACK: &str = "nothing was sent: an earlier message of its group was not taken";
const UNPREPARED: &str = "nothing was sent: the service did not tell the destination's address in time";
const TOO_LATE: &str = "nothing was sent: there was no time left";

/// One request to the service.
#[async_trait]
pub(crate) trait Service: Send + Sync {
    /// Does what is needed before anything is sent to a destination.
    async fn prepare(&self, destination: &str) -> Result<(), Failure>;

    /// Sends at most ten entries to a destination; the outcome of each, in their order.
    async fn send(&self, destination: &str, entries: &[&Entry]) -> Result<Vec<Outcome>, Failure>;
}

/// Publishes entries, each to its destination; one outcome for each, in their order.
pub(crate) async fn publish(
    service: &dyn Service,
    entries: &[(&str, &Entry)],
    max_bytes: usize,
    deadline: Instant,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = vec![None; entries.len()];
    let mut stuck: HashSet<(&str, &str)> = HashSet::new();
    for round in rounds(entries) {
        let group = |at: &usize| (entries[*at].0, entries[*at].1.group.as_str());
        let (held, free): (Vec<usize>, Vec<usize>) = round.into_iter().partition(|at| stuck.contains(&group(at)));
        for at in held {
            outcomes[at] = Some(Outcome::retry(HELD_BACK));
        }
        let requests = requests(entries, &free, max_bytes).into_iter();
        let mut answers = stream::iter(requests.map(|request| async {
            let answers = send(service, entries, &request, deadline).await;
            (request, answers)
        }))
        .buffer_unordered(MOST_REQUESTS);
        while let Some((request, answers)) = answers.next().await {
            for (at, outcome) in request.into_iter().zip(answers) {
                if matches!(outcome, Outcome::Retry { .. } | Outcome::Unknown(_)) {
                    stuck.insert(group(&at));
                }
                outcomes[at] = Some(outcome);
            }
        }
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Outcome::retry(TOO_LATE))).collect()
}

/// What may be sent at the same time, one after the other: everything, or the first of each group, then the second.
fn rounds(entries: &[(&str, &Entry)]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    for (at, (destination, entry)) in entries.iter().enumerate() {
        let round = match destination.ends_with(".fifo") {
            false => 0,
            true => {
                let next = seen.entry((destination, &entry.group)).or_default();
                *next += 1;
                *next - 1
            }
        };
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        rounds[round].push(at);
    }
    rounds
}

/// The messages of each request: of one destination, at most ten, at most so many bytes together.
fn requests(entries: &[(&str, &Entry)], of: &[usize], max_bytes: usize) -> Vec<Vec<usize>> {
    let mut requests: Vec<Vec<usize>> = Vec::new();
    let mut open: HashMap<&str, (usize, usize)> = HashMap::new();
    for at in of {
        let (destination, entry) = entries[*at];
        match open.get_mut(destination) {
            Some((request, bytes)) if requests[*request].len() < MOST_ENTRIES && *bytes + entry.size <= max_bytes => {
                *bytes += entry.size;
                requests[*request].push(*at);
            }
            _ => {
                open.insert(destination, (requests.len(), entry.size));
                requests.push(vec![*at]);
            }
        }
    }
    requests
}

/// One request; if the service refuses it because of what is in it, each message in a request of its own.
async fn send(service: &dyn Service, entries: &[(&str, &Entry)], request: &[usize], deadline: Instant) -> Vec<Outcome> {
    let alone = request.len() == 1;
    let failure = match send_once(service, entries, request, deadline).await {
        Ok(outcomes) => return outcomes,
        Err(failure) => failure,
    };
    if alone || !matches!(failure, Failure::Refused(_)) {
        return vec![failure.outcome(alone); request.len()];
    }
    let mut outcomes = Vec::with_capacity(request.len());
    for at in request {
        match send_once(service, entries, &[*at], deadline).await {
            Ok(answers) => outcomes.extend(answers),
            Err(failure) => outcomes.push(failure.outcome(true)),
        }
    }
    outcomes
}

async fn send_once(
    service: &dyn Service,
    entries: &[(&str, &Entry)],
    request: &[usize],
    deadline: Instant,
) -> Result<Vec<Outcome>, Failure> {
    let Some(first) = request.first() else { return Ok(Vec::new()) };
    if Instant::now() >= deadline {
        return Err(Failure::Later(TOO_LATE.into()));
    }
    let (destination, of) = (entries[*first].0, request.iter().map(|at| entries[*at].1).collect::<Vec<_>>());
    let prepared = timeout_at(deadline, quietly(service.prepare(destination))).await;
    prepared.unwrap_or_else(|_| Err(Failure::Later(UNPREPARED.into())))?;
    match timeout_at(deadline, quietly(service.send(destination, &of))).await {
        Ok(Ok(outcomes)) if outcomes.len() == request.len() => Ok(outcomes),
        Ok(Ok(_)) => Err(Failure::Unknown("the service did not answer for every message".into())),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure::Unknown("the service did not answer in time".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;

    fn entry(group: &str, number: usize) -> Entry {
        let body = number.to_string();
        Entry { body, attributes: Vec::new(), group: group.into(), deduplication: number.to_string(), size: 10 }
    }

    /// No service fails in parts when it is asked to, so this one does: it fails the bodies that it is told to.
    #[derive(Default)]
    struct Scripted {
        fail: HashMap<&'static str, usize>,
        refuse_together: bool,
        sent: Mutex<Vec<Vec<String>>>,
    }

    #[async_trait]
    impl Service for Scripted {
        async fn prepare(&self, _: &str) -> Result<(), Failure> {
            Ok(())
        }

        async fn send(&self, _: &str, entries: &[&Entry]) -> Result<Vec<Outcome>, Failure> {
            let bodies: Vec<String> = entries.iter().map(|entry| entry.body.clone()).collect();
            self.sent.lock().expect("not poisoned").push(bodies.clone());
            if self.refuse_together && bodies.iter().any(|body| self.fail.contains_key(body.as_str())) {
                return Err(Failure::Refused("refused".into()));
            }
            let outcome = |body: &String| match self.fail.contains_key(body.as_str()) {
                true => Outcome::retry("scripted"),
                false => Outcome::Accepted,
            };
            Ok(bodies.iter().map(outcome).collect())
        }
    }

    async fn publish_all(service: &Scripted, entries: &[(&str, &Entry)]) -> Vec<&'static str> {
        let deadline = Instant::now() + Duration::from_secs(5);
        publish(service, entries, 1_000, deadline).await.iter().map(Outcome::kind).collect()
    }

    #[test]
    fn requests_have_at_most_ten_messages_of_one_destination_and_so_many_bytes() {
        let made: Vec<Entry> = (0..25).map(|number| entry("g", number)).collect();
        let all: Vec<(&str, &Entry)> = made.iter().map(|entry| ("q", entry)).collect();
        let at: Vec<usize> = (0..25).collect();
        let lengths = |max_bytes| requests(&all, &at, max_bytes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(1_000), [10, 10, 5]);
        assert_eq!(lengths(40), [4, 4, 4, 4, 4, 4, 1]);
        let two = [("q", &made[0]), ("r", &made[1]), ("q", &made[2])];
        assert_eq!(requests(&two, &[0, 1, 2], 1_000), [vec![0, 2], vec![1]]);
    }

    #[tokio::test]
    async fn on_a_destination_with_order_nothing_overtakes_what_failed() {
        let made: Vec<Entry> = (0..9).map(|number| entry(["a", "b", "c"][number % 3], number)).collect();
        let all: Vec<(&str, &Entry)> = made.iter().map(|entry| ("q.fifo", entry)).collect();
        let service = Scripted { fail: [("4", 0)].into(), ..Scripted::default() };
        // 4 is the second of b, so 7, its third, must not be sent.
        let kinds = publish_all(&service, &all).await;
        let expected =
            ["accepted", "accepted", "accepted", "accepted", "retry", "accepted", "accepted", "retry", "accepted"];
        assert_eq!(kinds, expected);
        let sent = service.sent.lock().expect("not poisoned").clone();
        assert_eq!(sent, [vec!["0", "1", "2"], vec!["3", "4", "5"], vec!["6", "8"]]);
    }

    #[tokio::test]
    async fn without_order_the_rest_is_sent_at_once() {
        let made: Vec<Entry> = (0..9).map(|number| entry("a", number)).collect();
        let all: Vec<(&str, &Entry)> = made.iter().map(|entry| ("q", entry)).collect();
        let service = Scripted { fail: [("4", 0)].into(), ..Scripted::default() };
        let kinds = publish_all(&service, &all).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == "accepted").count(), 8);
        assert_eq!(service.sent.lock().expect("not poisoned").len(), 1);
    }

    #[tokio::test]
    async fn r59_a_request_that_is_refused_for_one_message_is_made_again_for_each() {
        let made: Vec<Entry> = (0..3).map(|number| entry("a", number)).collect();
        let all: Vec<(&str, &Entry)> = made.iter().map(|entry| ("q", entry)).collect();
        let service = Scripted { fail: [("1", 0)].into(), refuse_together: true, ..Scripted::default() };
        assert_eq!(publish_all(&service, &all).await, ["accepted", "reject", "accepted"]);
    }
}
