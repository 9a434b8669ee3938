//! The whole way: messages in a store, a real dispatcher, and providers that refuse, ask to wait and recover.
#![cfg(feature = "provider")]

mod provider_server;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::{Dispatcher, Ended, Message, Sink, State};
use postrider_sinks::provider::{CHANNEL_MESSAGE_ID, CORRELATION_ID, PROVIDER, ProviderSink, RECIPIENT};
use postrider_store::MemoryStore;
use postrider_store::memory::StoredMessage;
use provider_server::{Api, fine, slack_error, telegram_error};
use serde_json::json;
use testkit::within;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(180);

fn to(provider: &str, recipient: &str, text: &str) -> Message {
    Message::json("chat", "reply", &json!({ "text": text }))
        .header(PROVIDER, provider)
        .header(RECIPIENT, recipient)
        .header(CORRELATION_ID, "corr-1")
        .header(CHANNEL_MESSAGE_ID, "chan-1")
}

async fn enqueue(store: &MemoryStore, messages: impl IntoIterator<Item = Message>) {
    let mut transaction = store.begin();
    store.outbox().enqueue_many(&mut transaction, messages).await.expect("enqueued");
    transaction.commit();
}

/// A dispatcher under way, and how to end it.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Ended>,
}

impl Running {
    fn start(store: &MemoryStore, sink: impl Sink, attempts: u32) -> Self {
        let dispatcher = Dispatcher::builder(store.clone(), sink).max_attempts(attempts);
        let dispatcher = dispatcher.backoff(Duration::from_millis(20), Duration::from_millis(100));
        let dispatcher = dispatcher.shutdown_grace(Duration::from_millis(500)).build().expect("a dispatcher");
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(dispatcher.run(stop.clone())), stop }
    }

    async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await.expect("it ended");
    }
}

fn count(store: &MemoryStore, state: State) -> usize {
    store.enqueued().iter().filter(|message| message.status == state).count()
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    within(PATIENCE, what, || std::future::ready(condition())).await.expect(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_asked_to_wait_comes_again_and_who_is_refused_is_dead() {
    let asked = AtomicUsize::new(0);
    let api = Api::start(move |call| match call.recipient.as_str() {
        "429" if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
            telegram_error(429, "Too Many Requests: retry after 1", Some(json!({ "retry_after": 1 })))
        }
        "C-gone" => slack_error("is_archived"),
        _ => fine(call),
    })
    .await;
    let store = MemoryStore::new();
    let messages = [
        to("telegram", "429", "a"),
        to("slack", "C-gone", "b"),
        to("whatsapp", "4915", "c"),
        to("pigeon", "x", "d"),
        to("slack", "C1", "e"),
    ];
    enqueue(&store, messages).await;
    let began = tokio::time::Instant::now();
    let running = Running::start(&store, api.sink(), 3);
    wait_for("all have ended", || count(&store, State::Delivered) + count(&store, State::Dead) == 5).await;
    running.stop().await;
    let of = |recipient: &str| -> StoredMessage {
        store.enqueued().into_iter().find(|message| message.headers[RECIPIENT] == recipient).expect("it is there")
    };
    let limited = of("429");
    assert_eq!((limited.status, limited.attempts), (State::Delivered, 2));
    assert!(began.elapsed() >= Duration::from_secs(1), "it waited for as long as it was asked to");
    let gone = of("C-gone");
    assert_eq!((gone.status, gone.attempts), (State::Dead, 1));
    assert!(gone.last_error.as_deref().is_some_and(|why| why.contains("is_archived")), "{:?}", gone.last_error);
    let nobody = of("x");
    assert_eq!((nobody.status, nobody.attempts), (State::Dead, 1));
    assert!(nobody.last_error.as_deref().is_some_and(|why| why.contains("no adapter")), "{:?}", nobody.last_error);
    assert_eq!((of("4915").status, of("C1").status), (State::Delivered, State::Delivered));
    assert_eq!(api.take().len(), 5, "two for the one that waited, one for each other, none for the pigeon");
}

const BACKLOG: usize = 40;
const OTHERS: usize = 20;
/// Long enough for both attempts of every message, if they were made.
const OUTAGE: Duration = Duration::from_secs(3);

/// Slack refuses the token until it is mended. Others go on meanwhile if there are any, and not one message dies
/// although each has two attempts only.
async fn revoked_token(others: bool) {
    let mended = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicUsize::new(0));
    let (is_mended, refusals) = (mended.clone(), refused.clone());
    let api = Api::start(move |call| match call.provider == "slack" && !is_mended.load(Ordering::SeqCst) {
        true => {
            refusals.fetch_add(1, Ordering::SeqCst);
            slack_error("token_revoked")
        }
        false => fine(call),
    })
    .await;
    let mut config = api.config();
    if !others {
        (config.telegram, config.whatsapp) = (None, None);
    }
    let store = MemoryStore::new();
    enqueue(&store, (0..BACKLOG).map(|at| to("slack", "C1", &format!("s{at}")))).await;
    let expected = if others { OTHERS } else { 0 };
    enqueue(&store, (0..expected).map(|at| to("telegram", "1", &format!("t{at}")))).await;
    let running = Running::start(&store, ProviderSink::new(&config).expect("a sink"), 2);
    let began = tokio::time::Instant::now();
    wait_for("the outage lasts, and the others have theirs", || {
        began.elapsed() > OUTAGE && count(&store, State::Delivered) == expected
    })
    .await;
    assert_eq!(count(&store, State::Dead), 0);
    let refusals = refused.load(Ordering::SeqCst);
    assert!((10..BACKLOG).contains(&refusals), "{refusals} requests were made while Slack refused the token");
    mended.store(true, Ordering::SeqCst);
    wait_for("all are delivered", || count(&store, State::Delivered) == BACKLOG + expected).await;
    running.stop().await;
    let mut texts: Vec<String> = api
        .take()
        .into_iter()
        .filter(|call| call.method == "chat.postMessage")
        .map(|call| call.body["text"].to_string())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), BACKLOG, "each of them was posted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_costs_no_message_and_holds_up_no_other_provider() {
    revoked_token(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_of_the_only_provider_costs_no_message() {
    revoked_token(false).await;
}
