//! Each reference consumer against its real broker, from a transaction on. See `promises` for what all of them keep.

mod promises;
mod support;

mod amqp {
    crate::promises::promises!(crate::support::Amqp);
}

mod kafka {
    use crate::support::{Kafka, Scene};

    crate::promises::promises!(Kafka);

    #[tokio::test(flavor = "multi_thread")]
    async fn an_event_that_fails_holds_up_those_behind_it() {
        let scene = Scene::<Kafka>::start().await;
        scene.work.fail_first(2);
        // Of one key, and so in one partition.
        let events = scene.outbox.enqueue_of(5, 1).await;
        let (_relay, running) = (scene.relay(), scene.run(0));
        scene.each_once(&events).await;
        assert_eq!(scene.work.order(), events);
        running.stop().await;
    }
}

mod nats {
    use testkit::eventually;

    use crate::support::{ACK_WAIT, Nats, PATIENCE, Scene};

    crate::promises::promises!(Nats);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_handler_keeps_its_message() {
        let scene = Scene::<Nats>::start().await;
        scene.work.close();
        let events = scene.outbox.enqueue(1).await;
        let (_relay, one, other) = (scene.relay(), scene.run(0), scene.run(1));
        eventually(PATIENCE, || async { scene.work.begun() == 1 }).await;
        // There is no condition for what must not happen.
        tokio::time::sleep(ACK_WAIT * 2).await;
        scene.work.open();
        scene.each_once(&events).await;
        assert_eq!(scene.inbox.begun(), 1, "the message was given to another");
        one.stop().await;
        other.stop().await;
    }
}

mod redis_streams {
    use redis::AsyncCommands;
    use testkit::eventually;

    use crate::support::{Broker, PATIENCE, Redis, STREAM, Scene};

    crate::promises::promises!(Redis);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_message_without_an_event_id_is_kept_and_holds_nobody_up() {
        let scene = Scene::<Redis>::start().await;
        let mut redis = scene.broker.observer.clone();
        let _: String = redis.xadd(STREAM, "*", &[("payload", "{\"number\":7}")]).await.expect("added");
        let events = scene.outbox.enqueue(5).await;
        let (_relay, running) = (scene.relay(), scene.run(0));
        scene.done(&events).await;
        eventually(PATIENCE, || async { scene.outbox.is_empty().await && scene.broker.pending().await == 1 }).await;
        running.stop().await;
        assert_eq!(scene.broker.pending().await, 1, "it is still there");
        assert_eq!(scene.work.order().len(), events.len());
    }
}

#[path = "webhook/mod.rs"]
mod webhook;
