//! Building a client installs no crypto provider for the process, and works with the one that a program installed. A
//! process of its own, because there is one provider in each.

mod support;

use postrider_sinks::HttpClient;
use support::{destination, local};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};

#[test]
fn the_crypto_provider_is_left_to_the_program() {
    let build = || {
        let client = HttpClient::new(&local()).expect("a client");
        client.sink(destination("https://example.com/")).expect("TLS works");
    };
    build();
    assert!(CryptoProvider::get_default().is_none(), "a library installed a provider");
    aws_lc_rs::default_provider().install_default().expect("the first one");
    build();
}
