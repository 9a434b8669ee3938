//! The sink amqp against a broker that a test plays: answers that a real one gives only by chance, or when it is ill.
#![cfg(feature = "amqp")]

#[path = "support/amqp_peer.rs"]
mod amqp_peer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use amqp_peer::Peer;
use postrider_core::{ClaimedMessage, Outcome, Sink};
use postrider_sinks::{AmqpClient, AmqpConfig, AmqpSink};
use testkit::sinks::message;
use testkit::{eventually, quickly};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(180);

/// Where something is not answered: longer than a machine stands still, and not too long to wait for.
const LIMIT: Duration = Duration::from_secs(6);

async fn listen() -> (TcpListener, AmqpConfig) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut config = AmqpConfig::default();
    config.addresses = vec![format!("amqp://127.0.0.1:{}", listener.local_addr().expect("an address").port())];
    (config.timeout, config.connect_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    (listener, config)
}

fn sink(config: &AmqpConfig) -> AmqpSink {
    AmqpClient::new(config).expect("a client").sink("orders".parse().expect("a destination")).expect("a sink")
}

fn batch(count: usize) -> Vec<ClaimedMessage> {
    (0..count).map(message).collect()
}

fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r51_one_confirm_for_many_leaves_no_doubt_which_of_them_came_back() {
    let (listener, config) = listen().await;
    let returned = [3, 7, 12, 13];
    let broker = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener, 0).await?;
        for nacked in [false, true] {
            let all = peer.publisheds(20).await?;
            for at in returned {
                peer.give_back(&all[at]).await?;
            }
            match nacked {
                false => peer.ack(&all[19], true).await?,
                true => peer.nack(&all[19], true).await?,
            }
        }
        peer.obey().await
    });
    let sink = sink(&config);
    let outcomes = sink.publish(&batch(20)).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        let is_back = matches!(outcome, Outcome::Retry { why, .. } if why.contains("no queue"));
        assert_eq!((is_back, *outcome == Outcome::Accepted), (returned.contains(&at), !returned.contains(&at)), "{at}");
    }
    for (at, outcome) in sink.publish(&batch(20)).await.iter().enumerate() {
        let Outcome::Retry { why, .. } = outcome else { panic!("{at}: {outcome:?}") };
        assert_eq!(why.contains("no queue"), returned.contains(&at), "{at}: {why}");
    }
    assert_eq!(sink.publish(&batch(1)).await, [Outcome::Accepted], "the channel lives on");
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_a_refused_message_is_dead_and_of_its_neighbours_only_the_unconfirmed_are_sent_again() {
    let (listener, config) = listen().await;
    let batch = batch(6);
    let guilty = batch[3].payload.as_bytes().to_vec();
    let (tell, told) = oneshot::channel();
    let broker = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener, 0).await?;
        let all = peer.publisheds(6).await?;
        peer.ack(&all[1], true).await?;
        peer.close_channel(all[0].channel, 406).await?;
        let mut alone = Vec::new();
        while alone.len() < 4 {
            let message = peer.published().await?;
            match message.body == guilty {
                true => peer.close_channel(message.channel, 406).await?,
                false => peer.ack(&message, false).await?,
            }
            alone.push(message.body);
        }
        let _ = tell.send(alone);
        peer.obey().await
    });
    let outcomes = sink(&config).publish(&batch).await;
    assert_eq!(
        kinds(&outcomes),
        ["accepted", "accepted", "accepted", "reject", "accepted", "accepted"],
        "{outcomes:?}"
    );
    assert!(!format!("{outcomes:?}").contains("canary"), "the broker's words are not passed on");
    let alone = timeout(PATIENCE, told).await.expect("in time").expect("told");
    let expected: Vec<_> = batch[2..].iter().map(|message| message.payload.as_bytes().to_vec()).collect();
    assert_eq!(alone, expected, "in their order, and no more than needed");
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_time_limit_nothing_is_sent_again() {
    let (listener, mut config) = listen().await;
    (config.timeout, config.connect_timeout) = (LIMIT, LIMIT);
    let (tell, told) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let broker = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener, 0).await?;
        let all = peer.publisheds(5).await?;
        peer.close_channel(all[0].channel, 406).await?;
        // The first that is sent alone gets no answer, so the time is up with it.
        peer.published().await?;
        let a_while_later = async {
            let _ = ended.await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let more = tokio::select! {
            more = peer.published() => more.is_ok(),
            () = a_while_later => false,
        };
        let _ = tell.send(more);
        peer.obey().await
    });
    let sink = sink(&config);
    // There are channels at hand for all of them.
    for ready in futures::future::join_all((0..4).map(|_| sink.ready())).await {
        assert_eq!(ready, Ok(()));
    }
    // Nobody answers, so only the limit ends it.
    let outcomes = timeout(PATIENCE, sink.publish(&batch(5))).await.expect("it ends");
    assert_eq!(kinds(&outcomes), ["unknown"; 5], "{outcomes:?}");
    let _ = end.send(());
    assert!(
        !timeout(PATIENCE, told).await.expect("in time").expect("told"),
        "something was sent although nobody waits for it"
    );
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_an_alarm_in_the_middle_of_a_batch_leaves_the_rest_unknown_and_wedges_nothing() {
    let (listener, mut config) = listen().await;
    (config.timeout, config.connect_timeout) = (LIMIT, LIMIT);
    let (clear, cleared) = oneshot::channel::<()>();
    let broker = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener, 0).await?;
        let all = peer.publisheds(4).await?;
        peer.ack(&all[1], true).await?;
        peer.block().await?;
        let _ = cleared.await;
        peer.unblock().await?;
        let _ = peer.obey().await;
        // In case the client thinks that it needs another connection.
        Peer::accept(&listener, 0).await?.obey().await
    });
    let sink = sink(&config);
    let batch = batch(4);
    let outcomes = sink.publish(&batch).await;
    assert_eq!(kinds(&outcomes), ["accepted", "accepted", "unknown", "unknown"], "{outcomes:?}");
    // It knows without asking.
    quickly(Duration::from_secs(1), || async {
        assert_eq!(kinds(&sink.publish(&batch).await), ["busy"; 4]);
        assert!(sink.ready().await.expect_err("not ready").contains("alarm"));
    })
    .await;
    let _ = clear.send(());
    eventually(PATIENCE, || async { sink.publish(&batch).await == [const { Outcome::Accepted }; 4] }).await;
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r50_a_connection_without_heartbeats_is_given_up_before_it_is_needed() {
    let (listener, mut config) = listen().await;
    // Long enough that no machine stands still for two of them.
    config.heartbeat = Duration::from_secs(3);
    let (tell, told) = oneshot::channel();
    let broker = tokio::spawn(async move {
        let mut silent = Peer::accept(&listener, 3).await?;
        let message = silent.published().await?;
        silent.ack(&message, false).await?;
        // Not a word from now on, but the connection is there. Nothing is read, so nothing is answered.
        let mut next = Peer::accept(&listener, 3).await?;
        let _ = tell.send(());
        let _silent = silent;
        next.obey().await
    });
    let sink = sink(&config);
    assert_eq!(sink.publish(&batch(1)).await, [Outcome::Accepted]);
    // The time without a sign of life is the very thing.
    tokio::time::sleep(Duration::from_millis(7_500)).await;
    // What is sent to who is silent would be unknown.
    assert_eq!(sink.publish(&batch(1)).await, [Outcome::Accepted]);
    timeout(PATIENCE, told).await.expect("in time").expect("another connection");
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_confirms_nothing_costs_the_others_nothing() {
    let (listener, mut config) = listen().await;
    (config.timeout, config.connect_timeout) = (LIMIT, LIMIT);
    let (connections, enough) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (count, sick) = (connections.clone(), b"{\"number\":13}".to_vec());
    let broker = tokio::spawn(async move {
        while let Ok(mut peer) = Peer::accept(&listener, 0).await {
            count.fetch_add(1, Ordering::Relaxed);
            while let Ok(message) = peer.published().await {
                if message.body != sick {
                    peer.ack(&message, false).await.expect("written");
                }
            }
        }
    });
    let sink = Arc::new(sink(&config));
    let (others, stop) = (sink.clone(), enough.clone());
    let well = tokio::spawn(async move {
        let mut outcomes = Vec::new();
        while stop.load(Ordering::Relaxed) == 0 {
            outcomes.extend(others.publish(&batch(1)).await);
        }
        outcomes
    });
    for _ in 0..3 {
        assert_eq!(kinds(&sink.publish(&[message(13)]).await), ["unknown"]);
    }
    enough.store(1, Ordering::Relaxed);
    let outcomes = well.await.expect("it ran");
    assert!(outcomes.len() > 10 && outcomes.iter().all(|outcome| *outcome == Outcome::Accepted), "{outcomes:?}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r50_a_connection_that_went_silent_costs_one_publish_and_the_next_one_has_another() {
    let (listener, mut config) = listen().await;
    // It is asked whether it still answers, and there is time left for another.
    (config.timeout, config.connect_timeout) = (2 * LIMIT, LIMIT);
    config.heartbeat = Duration::from_secs(600);
    let broker = tokio::spawn(async move {
        let mut silent = Peer::accept(&listener, 0).await?;
        silent.published().await?;
        let mut next = Peer::accept(&listener, 0).await?;
        let _silent = silent;
        next.obey().await
    });
    let sink = sink(&config);
    // Channels at hand on the silent connection must not be taken.
    for ready in futures::future::join_all((0..4).map(|_| sink.ready())).await {
        assert_eq!(ready, Ok(()));
    }
    assert_eq!(kinds(&sink.publish(&batch(2)).await), ["unknown"; 2]);
    assert_eq!(sink.publish(&batch(2)).await, [Outcome::Accepted, Outcome::Accepted]);
    broker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_whether_it_is_ready_leaves_no_channels_behind() {
    let (listener, mut config) = listen().await;
    config.channels = 2;
    let open = Arc::new(AtomicUsize::new(0));
    let told = open.clone();
    let broker = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener, 0).await?;
        peer.tell_open_channels(told);
        peer.obey().await
    });
    let sink = sink(&config);
    for _ in 0..30 {
        assert_eq!(sink.ready().await, Ok(()));
    }
    eventually(PATIENCE, || async { open.load(Ordering::Relaxed) <= 2 }).await;
    assert_eq!(sink.publish(&batch(1)).await, [Outcome::Accepted]);
    broker.abort();
}
