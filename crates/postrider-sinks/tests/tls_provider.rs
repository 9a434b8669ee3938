//! A program that chose no crypto provider can connect with TLS all the same, and one is chosen no earlier than that. A
//! process of its own, because there is one provider in each.
#![cfg(all(feature = "nats", feature = "redis"))]

use std::time::Duration;

use postrider_core::Sink;
use postrider_sinks::{NatsConfig, NatsSink, RedisConfig, RedisSink};
use tokio_rustls::rustls::crypto::CryptoProvider;

#[tokio::test]
async fn a_provider_is_chosen_when_a_connection_is_made_and_not_before() {
    // A port where nobody is: it is given back before anybody connects.
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")));
    let mut redis = RedisConfig::default();
    redis.urls = vec![format!("rediss://{nobody}")];
    let redis = RedisSink::new(&redis, "shop".parse().expect("a destination")).expect("a sink");
    let mut nats = NatsConfig::default();
    nats.servers = vec![format!("tls://{nobody}")];
    nats.connect_timeout = Duration::from_secs(1);
    let nats = NatsSink::new(&nats, "shop".parse().expect("a destination")).expect("a sink");
    assert!(CryptoProvider::get_default().is_none(), "making a sink leaves the choice to the program");
    assert!(redis.ready().await.is_err());
    assert!(CryptoProvider::get_default().is_some(), "the library would panic without one");
    assert!(nats.ready().await.is_err());
}
