//! Limits per tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider::store::Order;
use postrider::{ClaimedMessage, Dispatcher, MemoryStore, Message, Outcome, Sink, TenantLimit, TenantLimits};
use tokio::time::Instant;
use uuid::Uuid;

use crate::scene::{Recorder, Running, enqueue, message, row, until};

const LIMITED: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

async fn enqueue_all(store: &MemoryStore, messages: usize, message: impl Fn() -> Message) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..messages {
        ids.push(enqueue(store, message()).await);
    }
    ids
}

fn rate(per_second: u32) -> TenantLimits {
    TenantLimits::each(TenantLimit::none().rate(per_second)).tenant(OTHER, TenantLimit::none().rate(1_000))
}

#[tokio::test(start_paused = true)]
async fn r24_a_tenant_over_its_rate_is_slowed_and_nobody_else() {
    let store = MemoryStore::new();
    let limited = enqueue_all(&store, 300, || message("t").tenant(LIMITED)).await;
    let other = enqueue_all(&store, 300, || message("t").tenant(OTHER)).await;
    let nobody_s = enqueue_all(&store, 300, || message("t")).await;
    let sink = Recorder::accepting();
    let begun = Instant::now();
    let running =
        Running::start(Dispatcher::builder(store.clone(), sink.clone()).batch_size(100).tenant_limits(rate(10)));
    until("all arrive", || sink.arrivals().len() >= 900).await;
    let _ended = running.stop().await;
    let arrivals = sink.arrivals();
    let within = |ids: &[Uuid], seconds: u64| {
        let in_time = |at: Instant| at <= begun + Duration::from_secs(seconds);
        arrivals.iter().filter(|arrival| ids.contains(&arrival.id) && in_time(arrival.at)).count()
    };
    assert_eq!((within(&other, 1), within(&nobody_s, 1)), (300, 300), "the others are not held up");
    for seconds in [1, 5, 10, 20] {
        let (came, most) = (within(&limited, seconds), 10 + 10 * seconds as usize);
        assert!(came <= most, "{came} of the limited tenant came within {seconds} s");
        assert!(came + 15 >= most, "only {came} of the limited tenant came within {seconds} s");
    }
    assert!(arrivals.iter().all(|arrival| arrival.attempt == 1), "waiting spends no attempts");
    assert!(limited.iter().all(|id| row(&store, *id).last_error.is_none()), "and is no error");
}

/// How many messages of each tenant are under way, and the most that ever were.
type UnderWay = HashMap<Option<Uuid>, (usize, usize)>;

/// A sink that notes how many messages of each tenant are under way at the same time.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<UnderWay>>);

#[async_trait::async_trait]
impl Sink for Watched {
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        for message in batch {
            let mut watched = self.0.lock().expect("nobody panics with it");
            let (now, most) = watched.entry(message.tenant_id).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for message in batch {
            self.0.lock().expect("nobody panics with it").entry(message.tenant_id).or_default().0 -= 1;
        }
        vec![Outcome::Accepted; batch.len()]
    }
}

#[tokio::test(start_paused = true)]
async fn r24_no_more_messages_of_a_tenant_are_published_at_once_than_may_be() {
    let store = MemoryStore::new();
    enqueue_all(&store, 200, || message("t").tenant(LIMITED)).await;
    enqueue_all(&store, 200, || message("t")).await;
    let (sink, begun) = (Watched::default(), Instant::now());
    let limits = TenantLimits::each(TenantLimit::none().in_flight(3));
    let running = Running::start(Dispatcher::builder(store.clone(), sink.clone()).tenant_limits(limits));
    let left = |tenant| {
        store
            .enqueued()
            .iter()
            .filter(|row| row.tenant_id == tenant && row.status != postrider::State::Delivered)
            .count()
    };
    until("those without a tenant are delivered", || left(None) == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "they were held up for {:?}", begun.elapsed());
    until("the others too", || left(Some(LIMITED)) == 0).await;
    // 200 messages, three at a time, of 100 ms.
    assert!(begun.elapsed() < Duration::from_secs(12), "the limit was not made use of: {:?}", begun.elapsed());
    let _ended = running.stop().await;
    let watched = sink.0.lock().expect("nobody panics with it");
    assert_eq!(watched[&Some(LIMITED)].1, 3);
    assert!(watched[&None].1 > 30, "{watched:?}");
}

#[tokio::test(start_paused = true)]
async fn r24_order_by_key_holds_for_tenants_over_their_limit_and_nobody_waits_for_them() {
    let store = MemoryStore::new();
    let mut placed = Vec::new();
    for number in 0..120 {
        // Of each key every other message is of a tenant without a limit to speak of.
        let (key, tenant) = (number % 4, if number % 8 < 4 { LIMITED } else { OTHER });
        let message = message("t").tenant(tenant).key(key.to_string());
        placed.push(((tenant, key), enqueue(&store, message).await));
    }
    let sink = Recorder::accepting();
    let builder = Dispatcher::builder(store.clone(), sink.clone()).order(Order::Key).tenant_limits(rate(5));
    let running = Running::start(builder);
    until("all arrive", || sink.arrivals().len() >= 120).await;
    let _ended = running.stop().await;
    let arrivals: Vec<Uuid> = sink.arrivals().iter().map(|arrival| arrival.id).collect();
    for wanted in [LIMITED, OTHER].into_iter().flat_map(|tenant| (0..4).map(move |key| (tenant, key))) {
        let of_line: Vec<Uuid> = placed.iter().filter(|(line, _)| *line == wanted).map(|(_, id)| *id).collect();
        let came: Vec<Uuid> = arrivals.iter().copied().filter(|id| of_line.contains(id)).collect();
        assert_eq!(came, of_line, "{wanted:?}");
    }
    let tenant_of = |id: &Uuid| placed.iter().find(|(_, placed)| placed == id).map(|((tenant, _), _)| *tenant);
    let last_of_other = arrivals.iter().rposition(|id| tenant_of(id) == Some(OTHER));
    assert!(last_of_other < Some(80), "the same keys of the limited tenant hold up others: {last_of_other:?}");
}

/// A message over its limit is claimed when it is due and when it may go, and not again and again between.
#[test]
fn r24_a_backlog_over_its_limit_costs_two_claims_per_message() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = MemoryStore::new();
            enqueue_all(&store, 1_000, || message("t").tenant(LIMITED)).await;
            let sink = Recorder::accepting();
            let running = Running::start(Dispatcher::builder(store, sink.clone()).name("d").tenant_limits(rate(10)));
            until("all arrive", || sink.arrivals().len() >= 1_000).await;
            let _ended = running.stop().await;
        });
    });
    let counters: HashMap<String, u64> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter_map(|(key, _, _, value)| match value {
            DebugValue::Counter(count) => Some((key.key().name().to_owned(), count)),
            _ => None,
        })
        .collect();
    let (claimed, limited) = (counters["postrider_claimed_total"], counters["postrider_tenant_limited_total"]);
    assert!(claimed <= 2_200, "1000 messages were claimed {claimed} times");
    assert!(limited >= 900, "{limited} were put off");
}

#[test]
fn limits_that_cannot_work_are_refused() {
    let refused = |limits: TenantLimits| {
        let built = Dispatcher::builder(MemoryStore::new(), Recorder::accepting()).tenant_limits(limits).build();
        built.err().expect("it was accepted").to_string()
    };
    let none = TenantLimit::none;
    assert_eq!(refused(TenantLimits::each(none().rate(0))), "rate is 0; it must be from 1 to 1000000");
    assert_eq!(refused(TenantLimits::each(none().in_flight(0))), "in_flight is 0; it must be from 1 to 1000000");
    let alone = refused(TenantLimits::default().tenant(LIMITED, none().burst(5)));
    assert_eq!(alone, "burst is 5; it must be given together with a rate, or not at all");
}
