//! From a producer's transaction to a consumer in Python, through SNS.
#![cfg(all(feature = "sns", feature = "sqs"))]

#[path = "support/aws.rs"]
mod aws;

use std::sync::Arc;

use aws::{Queue, access, shared, unique};
use postrider_sinks::{SnsClient, SnsConfig};
use testkit::brokers::journey::{Consumer, travel};

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_and_header_arrives_at_a_python_consumer() {
    let port = shared().await.port();
    let queue = Queue::create(port, &unique("journey")).await;
    let mut config = SnsConfig::default();
    config.aws = access(port);
    let client = SnsClient::new(&config).expect("a client");
    let topics = aws_sdk_sns::Client::new(&aws::plain(port).await);
    let made = topics.create_topic().name(unique("journey")).send().await.expect("created");
    let topic = made.topic_arn().expect("an ARN").to_owned();
    let subscribe = topics.subscribe().topic_arn(&topic).protocol("sqs").endpoint(queue.arn().await);
    subscribe.attributes("RawMessageDelivery", "true").send().await.expect("subscribed");
    let sink = client.sink(topic.parse().expect("a destination")).expect("a sink");
    let arguments = [format!("http://127.0.0.1:{port}"), queue.name.clone()];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/sqs.py");
    travel(Arc::new(sink), 200_000, Consumer::new(script, arguments)).await;
}
