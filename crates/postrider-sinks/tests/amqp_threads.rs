//! The client library has a thread for each connection. However a connection ends, or never begins, its thread is gone
//! soon after. A binary of its own, because threads are counted.
#![cfg(feature = "amqp")]

#[path = "support/amqp_peer.rs"]
mod amqp_peer;

use std::time::Duration;

use amqp_peer::Peer;
use postrider_core::{Outcome, Sink};
use postrider_sinks::{AmqpClient, AmqpConfig, AmqpSink};
use testkit::sinks::message;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(30);
const TIMES: usize = 5;

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.starts_with("lapin")).count()
}

async fn none_is_left(what: &str) {
    let gone = testkit::within(PATIENCE, what, || async { threads() == 0 }).await;
    assert!(gone.is_ok(), "{what}: {} threads are left", threads());
}

fn sink(port: u16, limit: Duration) -> AmqpSink {
    let mut config = AmqpConfig::default();
    config.addresses = vec![format!("amqp://127.0.0.1:{port}")];
    (config.timeout, config.connect_timeout) = (limit, limit);
    AmqpClient::new(&config).expect("a client").sink("orders".parse().expect("a destination")).expect("a sink")
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_thread_outlives_its_connection() {
    // Nobody is there.
    let (listener, port) = listen().await;
    drop(listener);
    for _ in 0..TIMES {
        assert_eq!(sink(port, SOON).publish(&[message(1)]).await[0].kind(), "retry");
    }
    none_is_left("refused").await;

    // Somebody takes the connection and says nothing.
    let (listener, port) = listen().await;
    for _ in 0..TIMES {
        assert_eq!(sink(port, SOON).publish(&[message(1)]).await[0].kind(), "retry");
    }
    none_is_left("silent at the login").await;

    // The same, and nobody waits for the publish any more.
    for _ in 0..TIMES {
        let sink = sink(port, LATE);
        let cut = tokio::time::timeout(Duration::from_millis(50), sink.publish(&[message(1)])).await;
        assert!(cut.is_err());
    }
    drop(listener);
    none_is_left("cancelled at the login").await;

    // The login works, and then nothing is answered: the connection is given up, and another one is made.
    let (listener, port) = listen().await;
    let broker = tokio::spawn(async move {
        let mut peers = Vec::new();
        while let Ok(mut peer) = Peer::accept(&listener, 0).await {
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), peer.published()).await {
                peers.push(peer);
            }
        }
    });
    let silent = sink(port, SOON);
    for _ in 0..TIMES {
        assert!(!silent.publish(&[message(1)]).await[0].is_delivered());
    }
    drop(silent);
    none_is_left("silent after the login").await;
    broker.abort();

    // All is well until the sink goes.
    let (listener, port) = listen().await;
    let broker = tokio::spawn(async move {
        while let Ok(mut peer) = Peer::accept(&listener, 0).await {
            let _ = peer.obey().await;
        }
    });
    for _ in 0..TIMES {
        assert_eq!(sink(port, LATE).publish(&[message(1)]).await, [Outcome::Accepted]);
    }
    none_is_left("dropped").await;
    broker.abort();
}
