//! MySQL has no signal from one connection to another, so there is no bell: dispatchers poll.

use async_trait::async_trait;
use postrider_core::doorbell::{Armed, Doorbell};
use postrider_core::store::StoreError;

pub(super) struct NoDoorbell;

#[async_trait]
impl Doorbell for NoDoorbell {
    async fn arm(&mut self) -> Result<Armed, StoreError> {
        Ok(Armed::Never)
    }

    async fn disarm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), StoreError> {
        std::future::pending().await
    }
}
