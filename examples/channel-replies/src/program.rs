//! The program: webhooks where channels are on, and the worker where it is on. Nothing of it is a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use postrider::Ended;
use postrider::sinks::provider::Adapter;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ingress::Ingress;
use crate::settings::Settings;
use crate::worker;

/// What runs.
pub struct Program {
    /// Where webhooks are taken; nowhere if channels are off.
    pub address: Option<SocketAddr>,
    webhooks: Option<JoinHandle<std::io::Result<()>>>,
    worker: Option<JoinHandle<Ended>>,
    stop: CancellationToken,
}

impl Program {
    /// Starts what is on. `app` and `relay` are connections of the two roles.
    pub async fn start(
        app: PgPool,
        relay: PgPool,
        adapters: impl IntoIterator<Item = (String, Arc<dyn Adapter>)>,
        listen: SocketAddr,
        settings: &Settings,
    ) -> Result<Self> {
        let stop = CancellationToken::new();
        let worker = worker::start(relay, adapters, &settings.outbox, stop.clone())?;
        let (mut address, mut webhooks) = (None, None);
        if settings.ingress {
            let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
            address = Some(listener.local_addr()?);
            let ingress = Ingress::new(app, worker::outbox(&settings.outbox)?);
            let server = axum::serve(listener, ingress.router()).with_graceful_shutdown(stop.clone().cancelled_owned());
            webhooks = Some(tokio::spawn(server.into_future()));
        }
        Ok(Self { address, webhooks, worker, stop })
    }

    /// Whether the worker runs.
    pub fn works(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| !worker.is_finished())
    }

    /// Waits for the end of a part, which only comes if something is wrong.
    pub async fn failed(&mut self) -> Result<()> {
        let webhooks = async {
            match &mut self.webhooks {
                Some(task) => task.await,
                None => std::future::pending().await,
            }
        };
        let worker = async {
            match &mut self.worker {
                Some(task) => task.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = webhooks => bail!("webhooks are not taken any more: {ended:?}"),
            ended = worker => bail!("the worker does not run any more: {ended:?}"),
        }
    }

    /// Stops in good order.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        if let Some(worker) = self.worker {
            let Ended { abandoned } = worker.await?;
            ensure!(abandoned == 0, "{abandoned} sends were cut off");
        }
        if let Some(webhooks) = self.webhooks {
            webhooks.await??;
        }
        Ok(())
    }

    /// Cuts the worker off in the middle of what it does: what is being sent stays so.
    pub async fn cut_off(mut self) {
        self.stop.cancel();
        if let Some(worker) = self.worker.take() {
            worker.abort();
            // The end is what was asked for, however it came about.
            let _ = worker.await;
        }
    }
}
