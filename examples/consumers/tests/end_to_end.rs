//! From `enqueue` in a transaction, through a relay that delivers everything several times, to exactly one effect per
//! event: 500 events through every broker, to two consumers that share an inbox.

mod support;

use support::{Amqp, Broker, Kafka, Nats, Redis, Scene, Webhook, stuttering};

const EVENTS: usize = 500;

async fn travel<B: Broker>() {
    let scene = Scene::<B>::start().await;
    let events = scene.outbox.enqueue(EVENTS).await;
    let _relay = scene.outbox.relay(stuttering(scene.broker.sink()));
    let consumers = [scene.run(0), scene.run(1)];
    scene.each_once(&events).await;
    for consumer in consumers {
        consumer.stop().await;
    }
    assert_eq!(scene.broker.pending().await, 0, "something was not acknowledged");
    assert!(scene.inbox.known() >= EVENTS, "only {} were duplicates", scene.inbox.known());
    assert_eq!(scene.inbox.committed(), EVENTS);
    assert_eq!(scene.work.order().len(), EVENTS);
}

macro_rules! travel {
    ($($way:ident: $broker:ty)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $way() {
                travel::<$broker>().await;
            }
        )*
    };
}

travel! {
    r62_each_event_has_one_effect_through_kafka: Kafka
    r62_each_event_has_one_effect_through_nats: Nats
    r62_each_event_has_one_effect_through_rabbitmq: Amqp
    r62_each_event_has_one_effect_through_redis_streams: Redis
    r62_each_event_has_one_effect_through_webhooks: Webhook
}
