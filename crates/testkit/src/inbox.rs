//! The conformance suite of the inbox seam: the same promises, kept by every inbox.
//!
//! An inbox implements [`Harness`] and calls [`inbox_conformance!`](crate::inbox_conformance!) once; each promise becomes a
//! test of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider::inbox::{Attempt, ConsumerName, Delivery, Entry, Guard, Inbox, InboxError, Once, RunError, run_once};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::wait::eventually;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait before a delivery that another handles is tried again.
const AGAIN: Duration = Duration::from_millis(2);
/// Deliveries of one event at once.
const CROWD: usize = 16;
const KEEP: Duration = Duration::from_secs(600);

/// The test side of one inbox.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The inbox.
    type Inbox: Inbox + 'static;

    /// How many events [`r64_of_sixteen_deliveries_at_once_one_has_its_effect`] delivers sixteen times each.
    fn events() -> usize;

    /// Whether the effect of a handler that failed is undone with its transaction.
    const IS_EXACT: bool;

    /// An empty inbox, and nothing in the record of effects.
    fn start() -> impl Future<Output = Self> + Send;

    /// The inbox as one more process sees it. It answers and does not wait while another delivery is handled.
    fn inbox(&self) -> impl Future<Output = Self::Inbox> + Send;

    /// Does what a handler does, and records it: in the guard's transaction if it has one.
    fn effect(&self, guard: &mut <Self::Inbox as Inbox>::Guard, event: Uuid) -> impl Future<Output = ()> + Send;

    /// How often the handler's effect has happened, by event.
    fn effects(&self) -> impl Future<Output = HashMap<Uuid, usize>> + Send;
}

/// Makes one test per promise for a [`Harness`].
#[macro_export]
macro_rules! inbox_conformance {
    ($harness:ty) => {
        $crate::inbox_conformance! { $harness:
            the_first_delivery_is_first_and_every_later_one_already_processed
            s3_22_a_duplicate_does_not_run_the_handler_again
            c23_an_event_counts_as_processed_only_once_its_guard_is_committed
            a_failed_handler_lets_the_next_delivery_in
            a_handler_that_panics_lets_the_next_delivery_in
            a_handler_that_is_given_up_lets_the_next_delivery_in
            a_released_guard_lets_the_next_delivery_in
            every_consumer_handles_an_event_for_itself
            events_do_not_stand_in_each_other_s_way
            r64_while_one_delivery_is_handled_the_others_are_told_so
            r64_of_sixteen_deliveries_at_once_one_has_its_effect
            s3_18_marking_says_whether_it_was_processed_already
            s3_23_of_sixteen_marks_at_once_one_is_the_first
            what_was_marked_is_processed_for_a_guard_and_the_other_way_round
            what_is_being_handled_cannot_be_marked
            an_older_attempt_that_comes_late_is_refused
            an_older_attempt_of_what_was_processed_is_a_duplicate
            a_replay_is_newer_than_what_came_before_it
            without_an_attempt_nothing_comes_late
        }
    };
    ($harness:ty: $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $promise() {
                let harness = <$harness as $crate::inbox::Harness>::start().await;
                $crate::inbox::$promise(&std::sync::Arc::new(harness)).await;
            }
        )*
    };
}

/// A size, times what `POSTRIDER_TEST_SCALE` says.
pub fn scaled(size: usize) -> usize {
    size * std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).expect("a plain name")
}

fn delivery() -> Delivery {
    Delivery::new(consumer("mailer"), Uuid::now_v7())
}

fn attempt(number: u32) -> Attempt {
    Attempt { replayed: 0, number }
}

async fn begin<I: Inbox>(inbox: &I, delivery: &Delivery) -> Entry<I::Guard> {
    inbox.begin(delivery).await.expect("the inbox answers")
}

async fn first<I: Inbox>(inbox: &I, delivery: &Delivery) -> I::Guard {
    begin(inbox, delivery).await.first().expect("it is the first delivery")
}

async fn process(inbox: &impl Inbox, delivery: &Delivery) {
    first(inbox, delivery).await.commit().await.expect("it commits");
}

async fn mark(inbox: &impl Inbox, delivery: &Delivery) -> Result<bool, InboxError> {
    inbox.check_and_mark_processed(&delivery.consumer, delivery.event, KEEP).await
}

/// Waits until the next delivery is let in, and lets go of it.
async fn let_in(inbox: &impl Inbox, delivery: &Delivery) {
    eventually(PATIENCE, || async {
        match begin(inbox, delivery).await {
            Entry::First(guard) => {
                guard.release().await.expect("it is released");
                true
            }
            Entry::InProgress(_) => false,
            other => panic!("the event is not free but {}", name(&other)),
        }
    })
    .await;
}

fn name<G>(entry: &Entry<G>) -> &'static str {
    match entry {
        Entry::First(_) => "first",
        Entry::InProgress(_) => "in progress",
        Entry::AlreadyProcessed => "already processed",
        Entry::Stale { .. } => "stale",
    }
}

pub async fn the_first_delivery_is_first_and_every_later_one_already_processed(harness: &Arc<impl Harness>) {
    let (one, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    process(&one, &delivery).await;
    for inbox in [&one, &other, &one] {
        assert!(begin(inbox, &delivery).await.is_already_processed());
    }
}

pub async fn s3_22_a_duplicate_does_not_run_the_handler_again<H: Harness>(harness: &Arc<H>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    let handle = async |guard: &mut _| {
        harness.effect(guard, delivery.event).await;
        Ok::<_, ()>(7)
    };
    let ran = run_once(&inbox, &delivery, handle).await.expect("it runs");
    assert!(ran == Once::Ran(7) && ran.may_ack());
    for _ in 0..3 {
        let again = run_once(&inbox, &delivery, handle).await.expect("it answers");
        assert!(again == Once::AlreadyProcessed && again.may_ack());
    }
    assert_eq!(harness.effects().await, HashMap::from([(delivery.event, 1)]));
}

pub async fn c23_an_event_counts_as_processed_only_once_its_guard_is_committed(harness: &Arc<impl Harness>) {
    let (one, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    let guard = first(&one, &delivery).await;
    assert_eq!(name(&begin(&other, &delivery).await), "in progress");
    guard.commit().await.expect("it commits");
    assert_eq!(name(&begin(&other, &delivery).await), "already processed");
}

pub async fn a_failed_handler_lets_the_next_delivery_in<H: Harness>(harness: &Arc<H>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    let fail = async |guard: &mut _| {
        harness.effect(guard, Uuid::nil()).await;
        Err::<(), _>("the mail server is down")
    };
    for _ in 0..3 {
        let failed = run_once(&inbox, &delivery, fail).await.expect_err("the handler fails");
        assert!(matches!(failed, RunError::Handler("the mail server is down")), "{failed:?}");
    }
    let_in(&inbox, &delivery).await;
    let effects = harness.effects().await.get(&Uuid::nil()).copied().unwrap_or_default();
    assert_eq!(effects, if H::IS_EXACT { 0 } else { 3 });
}

pub async fn a_handler_that_panics_lets_the_next_delivery_in<H: Harness>(harness: &Arc<H>) {
    let (inbox, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    let panics = {
        let delivery = delivery.clone();
        tokio::spawn(async move {
            let _guard = first(&inbox, &delivery).await;
            panic!("the handler panics, as this test wants it to");
        })
    };
    assert!(panics.await.expect_err("it panics").is_panic());
    let_in(&other, &delivery).await;
}

pub async fn a_handler_that_is_given_up_lets_the_next_delivery_in(harness: &Arc<impl Harness>) {
    let (inbox, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    let for_ever = async |_: &mut _| std::future::pending::<Result<(), ()>>().await;
    let limit = Duration::from_millis(200);
    tokio::time::timeout(limit, run_once(&inbox, &delivery, for_ever)).await.expect_err("it is given up");
    let_in(&other, &delivery).await;
}

pub async fn a_released_guard_lets_the_next_delivery_in(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    for _ in 0..3 {
        first(&inbox, &delivery).await.release().await.expect("it is released");
    }
    process(&inbox, &delivery).await;
}

pub async fn every_consumer_handles_an_event_for_itself(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let mailer = delivery();
    process(&inbox, &mailer).await;
    for name in ["biller", "mailer:", "maile", "Mailer"] {
        let other = Delivery::new(consumer(name), mailer.event);
        process(&inbox, &other).await;
        assert!(begin(&inbox, &other).await.is_already_processed());
    }
}

pub async fn events_do_not_stand_in_each_other_s_way(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    for _ in 0..20 {
        process(&inbox, &delivery()).await;
    }
}

pub async fn r64_while_one_delivery_is_handled_the_others_are_told_so(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    let guard = first(&inbox, &delivery).await;
    for _ in 0..CROWD {
        let other = harness.inbox().await;
        let ran = run_once(&other, &delivery, async |_: &mut _| Ok::<_, ()>(())).await.expect("it answers");
        assert!(matches!(ran, Once::InProgress(_)) && !ran.may_ack(), "{ran:?}");
    }
    guard.commit().await.expect("it commits");
}

pub async fn r64_of_sixteen_deliveries_at_once_one_has_its_effect<H: Harness>(harness: &Arc<H>) {
    let events: Arc<Vec<Uuid>> = Arc::new((0..H::events()).map(|_| Uuid::now_v7()).collect());
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (harness, inbox, events) = (harness.clone(), harness.inbox().await, events.clone());
        crowd.spawn(async move { deliver_all(&*harness, inbox, &events).await });
    }
    crowd.join_all().await;
    let effects = harness.effects().await;
    assert_eq!(effects.len(), events.len(), "effects were lost");
    let twice = effects.values().filter(|count| **count != 1).count();
    assert_eq!(twice, 0, "events had their effect more than once");
}

/// Delivers every event until it counts as processed, as a broker does that is told nothing else.
async fn deliver_all<H: Harness>(harness: &H, inbox: H::Inbox, events: &[Uuid]) {
    let mut open = events.to_vec();
    while !open.is_empty() {
        let mut again = Vec::new();
        for event in open {
            let delivery = Delivery::new(consumer("mailer"), event);
            let handle = async |guard: &mut _| {
                harness.effect(guard, event).await;
                Ok::<_, ()>(())
            };
            let may_ack = match run_once(&inbox, &delivery, handle).await {
                Ok(once) => once.may_ack(),
                Err(RunError::Inbox(error)) if error.is_transient() => false,
                Err(error) => panic!("the inbox fails: {error:?}"),
            };
            if !may_ack {
                again.push(event);
                tokio::time::sleep(AGAIN).await;
            }
        }
        open = again;
    }
}

pub async fn s3_18_marking_says_whether_it_was_processed_already(harness: &Arc<impl Harness>) {
    let (one, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    assert!(!mark(&one, &delivery).await.expect("it answers"));
    for inbox in [&one, &other, &one] {
        assert!(mark(inbox, &delivery).await.expect("it answers"));
    }
}

pub async fn s3_23_of_sixteen_marks_at_once_one_is_the_first<H: Harness>(harness: &Arc<H>) {
    for _ in 0..20 {
        let delivery = delivery();
        let mut crowd = JoinSet::new();
        for _ in 0..CROWD {
            let (inbox, delivery) = (harness.inbox().await, delivery.clone());
            crowd.spawn(async move {
                loop {
                    match mark(&inbox, &delivery).await {
                        Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
                        answer => return answer.expect("it answers"),
                    }
                }
            });
        }
        let already = crowd.join_all().await;
        assert_eq!(already.iter().filter(|already| !**already).count(), 1);
    }
}

pub async fn what_was_marked_is_processed_for_a_guard_and_the_other_way_round(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let (marked, committed) = (delivery(), delivery());
    assert!(!mark(&inbox, &marked).await.expect("it answers"));
    assert!(begin(&inbox, &marked).await.is_already_processed());
    process(&inbox, &committed).await;
    assert!(mark(&inbox, &committed).await.expect("it answers"));
}

pub async fn what_is_being_handled_cannot_be_marked(harness: &Arc<impl Harness>) {
    let (one, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    let guard = first(&one, &delivery).await;
    let refused = mark(&other, &delivery).await.expect_err("somebody handles it");
    assert!(matches!(refused, InboxError::InProgress { event } if event == delivery.event), "{refused:?}");
    guard.release().await.expect("it is released");
    assert!(!mark(&other, &delivery).await.expect("it answers"), "it was never processed");
}

pub async fn an_older_attempt_that_comes_late_is_refused(harness: &Arc<impl Harness>) {
    let (one, other) = (harness.inbox().await, harness.inbox().await);
    let delivery = delivery();
    let newer = delivery.clone().with_attempt(attempt(3));
    first(&one, &newer).await.release().await.expect("it is released");
    for late in [1, 2] {
        let late = delivery.clone().with_attempt(attempt(late));
        let Entry::Stale { seen } = begin(&other, &late).await else { panic!("the older attempt was let in") };
        assert_eq!(seen, attempt(3));
        let ran = run_once(&other, &late, async |_: &mut _| Ok::<_, ()>(())).await.expect("it answers");
        assert!(ran == Once::Stale && !ran.may_ack());
    }
    // The same attempt may come again, from the broker; so may a newer one.
    first(&other, &newer).await.release().await.expect("it is released");
    process(&other, &delivery.with_attempt(attempt(4))).await;
}

pub async fn an_older_attempt_of_what_was_processed_is_a_duplicate(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    process(&inbox, &delivery.clone().with_attempt(attempt(3))).await;
    for number in [1, 3, 4] {
        let again = delivery.clone().with_attempt(attempt(number));
        assert!(begin(&inbox, &again).await.is_already_processed());
    }
}

pub async fn a_replay_is_newer_than_what_came_before_it(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    let last = delivery.clone().with_attempt(attempt(20));
    first(&inbox, &last).await.release().await.expect("it is released");
    let replayed = delivery.with_attempt(Attempt { replayed: 1, number: 1 });
    first(&inbox, &replayed).await.release().await.expect("it is released");
    assert_eq!(name(&begin(&inbox, &last).await), "stale");
    process(&inbox, &replayed).await;
}

pub async fn without_an_attempt_nothing_comes_late(harness: &Arc<impl Harness>) {
    let inbox = harness.inbox().await;
    let delivery = delivery();
    let newer = delivery.clone().with_attempt(attempt(3));
    first(&inbox, &newer).await.release().await.expect("it is released");
    first(&inbox, &delivery).await.release().await.expect("it is released");
    // Whoever does not look has not forgotten for the others.
    let late = delivery.clone().with_attempt(attempt(2));
    assert_eq!(name(&begin(&inbox, &late).await), "stale");
    process(&inbox, &delivery).await;
}
