//! RabbitMQ: a queue with manual acks and a prefetch limit.
//!
//! An event that is not handled is kept, in its place among the prefetched, and tried again after its pause. It is not given back:
//! RabbitMQ would bring it again at once, and count that against the queue's delivery limit, so that an outage of the inbox
//! would be a loss. Only what is not Postrider's is given back, after a pause, so that a limit can move it away. If the connection breaks, RabbitMQ takes all back that was not acknowledged;
//! [`run`] ends with the error, and whoever called it calls it again.

use futures::{StreamExt, TryStreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use postrider::inbox::Inbox;
use tokio_util::sync::CancellationToken;

use crate::{Answer, Consumer, Handler};

/// Where messages come from.
#[derive(Clone)]
pub struct Settings {
    /// The broker, such as `amqp://user:password@localhost:5672/%2f`.
    pub url: String,
    /// The queue; it must be there.
    pub queue: String,
    /// How many events are handled at once, which is also how many are prefetched.
    pub at_once: u16,
}

/// Consumes until it is stopped; what has begun by then is finished.
pub async fn run<I, H>(consumer: &Consumer<I, H>, settings: &Settings, stop: CancellationToken) -> lapin::Result<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let connection = Connection::connect(&settings.url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(settings.at_once, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions { no_ack: false, ..BasicConsumeOptions::default() };
    let queue = settings.queue.as_str().into();
    let deliveries = channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?;
    let handle = async |delivery| on_delivery(consumer, delivery, &stop).await;
    deliveries.take_until(stop.cancelled()).try_for_each_concurrent(usize::from(settings.at_once), handle).await?;
    if !stop.is_cancelled() {
        // The queue was deleted, or its server went away: the caller is to begin anew.
        return Err(std::io::Error::other("the broker has ended the consumer").into());
    }
    // What was prefetched and not begun goes back to the queue now.
    connection.close(200, "stopped".into()).await
}

async fn on_delivery<I, H>(consumer: &Consumer<I, H>, delivery: Delivery, stop: &CancellationToken) -> lapin::Result<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let header = |name: &str| match delivery.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str()),
        _ => None,
    };
    loop {
        let answer = consumer.on_message(header, &delivery.data).await;
        let Some(wait) = answer.again_after() else {
            return delivery.acker.ack(BasicAckOptions::default()).await.map(drop);
        };
        let is_stopped = stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none();
        if is_stopped || matches!(answer, Answer::Foreign(_)) {
            return delivery.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await.map(drop);
        }
    }
}
