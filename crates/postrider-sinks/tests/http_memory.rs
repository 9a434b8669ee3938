//! R57: no answer fills the memory. A process of its own, because it is its memory that is measured.

mod support;

use std::sync::atomic::Ordering;

use postrider_core::Sink;
use postrider_sinks::HttpClient;
use support::{Received, Reply, Server, destination, json, local, message};

const PATHS: [&str; 4] = ["/body", "/head", "/line", "/chunks"];

fn behave(request: &Received) -> Reply {
    let endless = |head: &str, more: &[u8]| Reply::Endless(head.as_bytes().to_vec(), more.to_vec());
    match request.path.as_str() {
        "/body" => endless("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 16_384]),
        "/head" => endless("HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n".repeat(1_000).as_slice()),
        "/line" => endless("HTTP/1.1 200 OK\r\nx: ", &[b'x'; 16_384]),
        _ => {
            endless("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n".repeat(1_000).as_slice())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_endless_answers_do_not_fill_the_memory() {
    let server = Server::start(behave).await;
    let mut config = local();
    config.breaker_failures = 1_000;
    let client = HttpClient::new(&config).expect("a client");
    let publish = async |path: &str| {
        let sink = client.sink(destination(&server.url(path))).expect("a sink");
        sink.publish(&[message("shop", "order", json("{}"))]).await;
    };
    for path in PATHS {
        publish(path).await;
    }
    let before = resident_kib();
    server.sent.store(0, Ordering::Relaxed);
    let rounds = 10;
    for _ in 0..rounds {
        for path in PATHS {
            publish(path).await;
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "it grew by {grown} KiB");
    // What the kernel buffers on both sides is counted as sent.
    let each = server.sent.load(Ordering::Relaxed) / (PATHS.len() * rounds);
    assert!(each < 12 * 1024 * 1024, "{each} bytes were taken of each answer");
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
