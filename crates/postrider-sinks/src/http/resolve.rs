//! Looking names up. What is answered to the HTTP client was checked, and the client connects to exactly that: there is
//! no second look-up in which a name could lead elsewhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::{AddressPolicy, Refused};

/// Looks names up.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a host.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Looks names up as the system does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// A look-up whose answers are checked.
#[derive(Clone)]
pub(super) struct Resolver {
    pub lookup: Arc<dyn Lookup>,
    pub policy: AddressPolicy,
}

/// Why a name led nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unresolved {
    #[error("the host's name cannot be looked up")]
    Failed(#[source] io::Error),
    #[error("the host's name has no address")]
    Nothing,
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Resolver {
    /// The addresses of a host. If one of them is refused all are: a name that leads to the inside as well as to the
    /// outside is up to no good.
    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let addresses = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.lookup.lookup(host).await.map_err(Unresolved::Failed)?,
        };
        if addresses.is_empty() {
            return Err(Unresolved::Nothing);
        }
        addresses.iter().try_for_each(|address| self.policy.check(*address))?;
        Ok(addresses)
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.addresses(name.as_str()).await?;
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
