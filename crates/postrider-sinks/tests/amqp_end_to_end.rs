//! From a producer's transaction to a consumer in Python, through RabbitMQ.
#![cfg(feature = "amqp")]

#[path = "support/rabbit.rs"]
mod rabbit;

use std::sync::Arc;

use postrider_sinks::AmqpClient;
use rabbit::{Plain, config, shared, unique};
use testkit::brokers::journey::{Consumer, travel};
use testkit::brokers::rabbitmq::{PASSWORD, USER};

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_and_header_arrives_at_a_python_consumer() {
    let queue = unique("journey");
    let port = shared().await.server.port();
    Plain::connect(port).await.declare(&queue).await;
    let client = AmqpClient::new(&config(port)).expect("a client");
    let sink = client.sink(queue.parse().expect("a destination")).expect("a sink");
    let arguments = [port.to_string(), USER.into(), PASSWORD.into(), queue];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/amqp.py");
    let lines = travel(Arc::new(sink), 1_000_000, Consumer::new(script, arguments)).await;
    for line in lines {
        assert_eq!((&line["type"], &line["delivery_mode"]), (&"order_placed".into(), &2.into()));
        assert_eq!(line["content_type"], line["headers"]["content-type"]);
    }
}
