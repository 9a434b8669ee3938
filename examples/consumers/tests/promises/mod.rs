//! What every consumer promises, whatever its broker.

use std::time::Duration;

use postrider::inbox::{Attempt, Guard, Inbox};
use testkit::eventually;

use crate::support::{Broker, PATIENCE, PAUSE, Scene, delivery, stuttering};

/// How far a server's clock may be from ours.
const CLOCKS: Duration = Duration::from_millis(20);

/// Makes one test per promise for a broker.
macro_rules! promises {
    ($broker:ty) => {
        crate::promises::promises! { $broker:
            r62_duplicates_have_one_effect
            r64_what_is_in_progress_is_not_acknowledged_and_comes_again_after_a_pause
            what_is_stale_is_not_acknowledged_until_the_newer_one_is_handled
            r63_a_handler_that_fails_gets_the_event_again
            r63_a_handler_that_panics_gets_the_event_again
            r67_an_inbox_that_fails_before_or_after_the_handler_leads_to_a_repeat
            r66_a_consumer_that_dies_in_the_middle_loses_nothing
            a_stop_lets_the_handler_finish_and_acknowledges
        }
    };
    ($broker:ty: $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $promise() {
                crate::promises::$promise::<$broker>().await;
            }
        )*
    };
}
pub(crate) use promises;

pub async fn r62_duplicates_have_one_effect<B: Broker>() {
    let scene = Scene::<B>::start().await;
    let events = scene.outbox.enqueue(40).await;
    let _relay = scene.outbox.relay(stuttering(scene.broker.sink()));
    let (one, other) = (scene.run(0), scene.run(1));
    scene.each_once(&events).await;
    assert!(scene.inbox.known() >= events.len(), "there were {} duplicates", scene.inbox.known());
    one.stop().await;
    other.stop().await;
    assert_eq!(scene.broker.pending().await, 0);
    assert_eq!(scene.work.order().len(), events.len());
}

pub async fn r64_what_is_in_progress_is_not_acknowledged_and_comes_again_after_a_pause<B: Broker>() {
    let scene = Scene::<B>::start().await;
    let events = scene.outbox.enqueue(1).await;
    // As if another process had it.
    let begun = scene.inbox.inner.begin(&delivery(events[0])).await.expect("the inbox answers");
    let guard = begun.first().expect("nobody has had it");
    let (_relay, running) = (scene.relay(), scene.run(0));
    eventually(PATIENCE, || async { scene.inbox.in_progress().len() >= 3 }).await;
    let told = scene.inbox.in_progress();
    assert!(told[2] - told[0] >= PAUSE * 2 - CLOCKS, "it comes again without a pause: {:?}", told[2] - told[0]);
    assert_eq!(scene.work.tries(events[0]), 0);
    guard.release().await.expect("it is released");
    scene.each_once(&events).await;
    running.stop().await;
}

pub async fn what_is_stale_is_not_acknowledged_until_the_newer_one_is_handled<B: Broker>() {
    let scene = Scene::<B>::start().await;
    let events = scene.outbox.enqueue(1).await;
    let newer = delivery(events[0]).with_attempt(Attempt { replayed: 0, number: 1_000_000 });
    let begin = async || scene.inbox.inner.begin(&newer).await.expect("the inbox answers").first().expect("a guard");
    begin().await.release().await.expect("it is released");
    let (_relay, running) = (scene.relay(), scene.run_subject(0, scene.subject().refuse_older_attempts()));
    eventually(PATIENCE, || async { scene.inbox.stale().len() >= 3 }).await;
    let told = scene.inbox.stale();
    assert!(told[2] - told[0] >= PAUSE * 2 - CLOCKS, "it comes again without a pause: {:?}", told[2] - told[0]);
    begin().await.commit().await.expect("it commits");
    scene.settled().await;
    assert!(scene.work.order().is_empty(), "the older one was handled");
    assert!(scene.inbox.known() > 0);
    running.stop().await;
}

pub async fn r63_a_handler_that_fails_gets_the_event_again<B: Broker>() {
    let scene = Scene::<B>::start().await;
    scene.work.fail_first(2);
    let events = scene.outbox.enqueue(6).await;
    let (_relay, one, other) = (scene.relay(), scene.run(0), scene.run(1));
    scene.each_once(&events).await;
    for event in &events {
        assert_eq!(scene.work.tries(*event), 3);
    }
    one.stop().await;
    other.stop().await;
}

pub async fn r63_a_handler_that_panics_gets_the_event_again<B: Broker>() {
    let scene = Scene::<B>::start().await;
    scene.work.panic_first();
    let events = scene.outbox.enqueue(3).await;
    let (_relay, running) = (scene.relay(), scene.run(0));
    scene.each_once(&events).await;
    running.stop().await;
}

pub async fn r67_an_inbox_that_fails_before_or_after_the_handler_leads_to_a_repeat<B: Broker>() {
    let scene = Scene::<B>::start().await;
    let events = scene.outbox.enqueue(1).await;
    scene.inbox.refuse(2, 2);
    let (_relay, running) = (scene.relay(), scene.run(0));
    eventually(PATIENCE, || async { scene.inbox.committed() == 1 }).await;
    scene.settled().await;
    assert_eq!(scene.work.tries(events[0]), 3, "the handler runs again for each commit that failed");
    running.stop().await;
}

pub async fn r66_a_consumer_that_dies_in_the_middle_loses_nothing<B: Broker>() {
    let scene = Scene::<B>::start().await;
    scene.work.close();
    let events = scene.outbox.enqueue(12).await;
    let (_relay, dies) = (scene.relay(), scene.run(0));
    eventually(PATIENCE, || async { scene.work.begun() > 0 }).await;
    dies.kill().await;
    assert!(scene.work.order().is_empty());
    let survives = scene.run(1);
    scene.work.open();
    scene.each_once(&events).await;
    survives.stop().await;
}

pub async fn a_stop_lets_the_handler_finish_and_acknowledges<B: Broker>() {
    let scene = Scene::<B>::start().await;
    scene.work.close();
    let events = scene.outbox.enqueue(1).await;
    let (_relay, running) = (scene.relay(), scene.run(0));
    eventually(PATIENCE, || async { scene.work.begun() == 1 }).await;
    running.ask();
    scene.work.open();
    running.stop().await;
    assert_eq!(scene.work.effects(events[0]), 1);
    scene.settled().await;
    assert_eq!(scene.inbox.begun(), 1, "it did not come again");
}
