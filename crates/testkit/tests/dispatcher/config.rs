//! Settings that cannot work are refused when the dispatcher is built.

use std::time::Duration;

use postrider::dispatch::DispatcherBuilder;
use postrider::{Dispatcher, MemoryStore};

use crate::scene::Recorder;

fn refused(adapt: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder) -> String {
    let built = adapt(Dispatcher::builder(MemoryStore::new(), Recorder::accepting())).build();
    built.err().expect("it was accepted").to_string()
}

#[test]
fn s0_64_a_poll_interval_over_a_third_of_the_lease_is_refused_and_both_values_are_named() {
    let error = refused(|builder| builder.lease(Duration::from_secs(3)).poll_interval(Duration::from_secs(2)));
    assert!(error.contains("poll_interval (2s)") && error.contains("a third of the lease (1s)"), "{error}");
}

#[test]
fn values_that_disagree_or_are_out_of_range_are_refused() {
    let second = Duration::from_secs(1);
    for (error, named) in [
        (refused(|builder| builder.batch_size(0)), "batch_size"),
        (refused(|builder| builder.batch_size(1_001)), "batch_size"),
        (refused(|builder| builder.batch_size(10).max_rows(9)), "max_rows"),
        (refused(|builder| builder.concurrency(0)), "concurrency"),
        (refused(|builder| builder.max_attempts(0)), "max_attempts"),
        (refused(|builder| builder.lease(Duration::from_millis(1))), "lease"),
        (refused(|builder| builder.publish_timeout(Duration::ZERO)), "publish_timeout"),
        (refused(|builder| builder.poll_interval(Duration::ZERO)), "poll_interval"),
        (refused(|builder| builder.lease(second).poll_interval(second / 4).store_timeout(second)), "store_timeout"),
        (refused(|builder| builder.backoff(second * 2, second)), "backoff max_delay"),
        (refused(|builder| builder.max_bytes(0)), "max_bytes"),
    ] {
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn the_defaults_agree() {
    assert!(Dispatcher::builder(MemoryStore::new(), Recorder::accepting()).build().is_ok());
}
