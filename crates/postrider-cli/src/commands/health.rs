//! `postrider health`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use crate::args::Health;
use crate::exit::{Failure, with_causes};
use crate::output::line;
use crate::target;

/// How long the relay may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub async fn run(arguments: Health) -> Result<ExitCode, Failure> {
    let address = match arguments.address {
        Some(address) => address,
        None => target::admin(arguments.config.as_deref())?.listen,
    };
    let path = if arguments.ready { "readyz" } else { "healthz" };
    let url = format!("http://{}/{path}", reachable(address));
    let failed = |error: reqwest::Error| Failure::failed(format!("the relay does not answer: {}", with_causes(&error)));
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().map_err(failed)?;
    let answer = client.get(url).send().await.map_err(failed)?;
    let is_well = answer.status().is_success();
    line(&answer.text().await.map_err(failed)?)?;
    Ok(if is_well { super::done() } else { ExitCode::FAILURE })
}

/// Where to ask an endpoint that listens everywhere.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
