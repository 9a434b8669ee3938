//! Google Pub/Sub: the official emulator where it is installed, and a fake of our own everywhere.
//!
//! The emulator comes with the package `google-cloud-cli-pubsub-emulator` of Google's own repository, so it cannot be had
//! on every machine. The [`Fake`] speaks the same protocol, keeps what it has while it is stopped, and fails on command,
//! which the emulator cannot. [`Server::start`] takes the emulator if it is there and prints which of the two runs.

mod client;
mod emulator;
mod fake;
mod grpc;
mod wire;

use anyhow::Result;

pub use client::{Client, Received};
pub use emulator::Emulator;
pub use fake::{Fake, Request};

/// The project of everything here. Neither of the two asks for more than a name.
pub const PROJECT: &str = "postrider-test";

/// The emulator or the fake.
pub enum Server {
    /// Google's own.
    Emulator(Emulator),
    /// Ours.
    Fake(Fake),
}

impl Server {
    /// Starts the emulator, or the fake where there is no emulator.
    pub async fn start() -> Result<Self> {
        let server = match Emulator::is_installed() {
            true => Self::Emulator(Emulator::start().await?),
            false => Self::Fake(Fake::start().await?),
        };
        println!("Pub/Sub is played by {}", server.name());
        Ok(server)
    }

    /// Which of the two it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Emulator(_) => "the official emulator",
            Self::Fake(_) => "our own fake",
        }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        match self {
            Self::Emulator(emulator) => emulator.port(),
            Self::Fake(fake) => fake.port(),
        }
    }
}
