//! From a producer's transaction to a consumer in Python, through SQS.
#![cfg(feature = "sqs")]

#[path = "support/aws.rs"]
mod aws;

use std::sync::Arc;

use aws::{Queue, access, shared, unique};
use postrider_sinks::{SqsClient, SqsConfig};
use testkit::brokers::journey::{Consumer, travel};

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_and_header_arrives_at_a_python_consumer() {
    let port = shared().await.port();
    let queue = Queue::create(port, &unique("journey")).await;
    let mut config = SqsConfig::default();
    config.aws = access(port);
    let client = SqsClient::new(&config).expect("a client");
    let sink = client.sink(queue.name.parse().expect("a destination")).expect("a sink");
    let arguments = [format!("http://127.0.0.1:{port}"), queue.name.clone()];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/sqs.py");
    travel(Arc::new(sink), 900_000, Consumer::new(script, arguments)).await;
}
