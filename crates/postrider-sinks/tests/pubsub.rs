//! The sink pubsub keeps the promises of every sink: against the official emulator where it is installed, and against our
//! own fake, with and without ordering keys.
#![cfg(feature = "pubsub")]

mod pubsub_support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Sink};
use postrider_sinks::Format;
use pubsub_support::{Kind, Place};
use testkit::sinks::{Ability, Arrival, Broker, message};

/// One of the two servers, and whether keys are ordering keys.
struct On<const FAKE: bool, const ORDERED: bool>(Place);

#[async_trait]
impl<const FAKE: bool, const ORDERED: bool> Broker for On<FAKE, ORDERED> {
    async fn start() -> Self {
        Self(Place::start(if FAKE { Kind::Fake } else { Kind::Best }).await)
    }

    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink> {
        let mut config = self.0.config(ORDERED);
        (config.timeout, config.connect_timeout) = (patience, patience / 2);
        self.0.bind(&config, format)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.0.arrivals().await
    }

    async fn stop(&self) {
        self.0.stop();
    }

    async fn restart(&self) {
        self.0.restart();
    }

    async fn obstruct(&self) {
        self.0.remove_topic().await;
    }

    async fn clear(&self) {
        self.0.make_topic().await;
    }

    async fn silence(&self) {
        self.0.proxy.set(testkit::Mode::HalfOpen);
    }

    async fn speak(&self) {
        self.0.proxy.set(testkit::Mode::Pass);
    }

    fn poison(&self) -> ClaimedMessage {
        let mut poison = message(0);
        match &self.0.fake {
            // Only the broker knows that this one is bad, so the whole request is refused at first.
            Some(fake) => {
                fake.refuse_attribute("poison");
                poison.headers.insert("poison".into(), "yes".into());
            }
            None => drop(poison.headers.insert("x".repeat(257), "too long a name".into())),
        }
        poison
    }

    fn too_large(&self) -> usize {
        10_000_000
    }

    fn cannot(&self, ability: Ability) -> Option<&'static str> {
        (ability == Ability::Order && !ORDERED).then_some("Pub/Sub has no order without ordering keys")
    }
}

mod best {
    testkit::sink_conformance!(crate::On<false, true>);
}

mod fake {
    testkit::sink_conformance!(crate::On<true, true>);
}

mod unordered {
    testkit::sink_conformance!(crate::On<true, false>);
}
