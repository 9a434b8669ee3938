//! Each mode, seen through an upstream that echoes.

use super::*;
use crate::wait::eventually;
use std::sync::Mutex;

const SOON: Duration = Duration::from_secs(120);
/// Long enough for loopback to deliver what is not held back.
const SILENCE: Duration = Duration::from_millis(100);

/// An upstream that echoes, and remembers what it got and how many clients have closed.
#[derive(Default)]
struct Echo {
    got: Mutex<Vec<u8>>,
    closed: AtomicUsize,
}

impl Echo {
    async fn start() -> Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let echo = Arc::new(Self::default());
        let server = Arc::clone(&echo);
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&server).serve(peer));
            }
        });
        Ok((echo, address))
    }

    async fn serve(self: Arc<Self>, mut peer: TcpStream) {
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = peer.read(&mut chunk).await {
            self.got.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend_from_slice(&chunk[..count]);
            let _ = peer.write_all(&chunk[..count]).await;
        }
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock().unwrap_or_else(|poisoned| poisoned.into_inner())).into_owned()
    }
}

async fn setup() -> Result<(Arc<Echo>, Proxy, TcpStream)> {
    let (echo, address) = Echo::start().await?;
    let proxy = Proxy::start(address).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, "a").await?, "a");
    Ok((echo, proxy, client))
}

async fn ask(client: &mut TcpStream, text: &str) -> Result<String> {
    client.write_all(text.as_bytes()).await?;
    let mut reply = vec![0; 64];
    let count = tokio::time::timeout(SOON, client.read(&mut reply)).await??;
    Ok(String::from_utf8_lossy(&reply[..count]).into_owned())
}

async fn is_silent(client: &mut TcpStream) -> bool {
    tokio::time::timeout(SILENCE, client.read(&mut [0; 8])).await.is_err()
}

#[tokio::test]
async fn pass_carries_both_ways_and_counts_connections() -> Result<()> {
    let (echo, proxy, client) = setup().await?;
    assert_eq!(proxy.connections(), 1);
    drop(client);
    eventually(SOON, || async { proxy.connections() == 0 }).await;
    assert_eq!(echo.closed.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test]
async fn delay_holds_back_each_direction_of_an_open_connection() -> Result<()> {
    let (_echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::Delay(SILENCE));
    let asked = Instant::now();
    assert_eq!(ask(&mut client, "b").await?, "b");
    assert!(asked.elapsed() >= 2 * SILENCE);
    Ok(())
}

#[tokio::test]
async fn a_switch_during_a_delay_takes_effect_at_once() -> Result<()> {
    let (_echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::Delay(Duration::from_secs(3600)));
    client.write_all(b"b").await?;
    assert!(is_silent(&mut client).await);
    proxy.set(Mode::Pass);
    assert_eq!(ask(&mut client, "").await?, "b");
    Ok(())
}

#[tokio::test]
async fn blackhole_swallows_and_keeps_connections_open() -> Result<()> {
    let (echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::Blackhole);
    client.write_all(b"b").await?;
    let mut late = TcpStream::connect(proxy.address()).await?;
    late.write_all(b"c").await?;
    assert!(is_silent(&mut client).await && is_silent(&mut late).await);
    assert_eq!((echo.got().as_str(), proxy.connections()), ("a", 2));
    Ok(())
}

#[tokio::test]
async fn a_close_in_a_blackhole_reaches_the_upstream_only_when_the_network_is_back() -> Result<()> {
    let (echo, proxy, client) = setup().await?;
    proxy.set(Mode::Blackhole);
    drop(client);
    tokio::time::sleep(SILENCE).await;
    assert_eq!(echo.closed.load(Ordering::SeqCst), 0);
    proxy.set(Mode::Pass);
    eventually(SOON, || async { echo.closed.load(Ordering::SeqCst) == 1 }).await;
    Ok(())
}

#[tokio::test]
async fn a_direction_that_lost_bytes_stays_silent_but_new_connections_work() -> Result<()> {
    let (echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::Blackhole);
    client.write_all(b"b").await?;
    assert!(is_silent(&mut client).await);
    proxy.set(Mode::Pass);
    client.write_all(b"c").await?;
    assert!(is_silent(&mut client).await);
    assert_eq!(echo.got(), "a");
    assert_eq!(ask(&mut TcpStream::connect(proxy.address()).await?, "d").await?, "d");
    Ok(())
}

#[tokio::test]
async fn half_open_passes_requests_and_swallows_replies() -> Result<()> {
    let (echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::HalfOpen);
    client.write_all(b"b").await?;
    eventually(SOON, || async { echo.got() == "ab" }).await;
    assert!(is_silent(&mut client).await);
    Ok(())
}

#[tokio::test]
async fn reset_ends_open_and_new_connections_with_rst() -> Result<()> {
    let (_echo, proxy, mut client) = setup().await?;
    proxy.set(Mode::Reset);
    let error = client.read(&mut [0; 8]).await;
    assert!(error.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
    let mut late = TcpStream::connect(proxy.address()).await?;
    let error = late.read(&mut [0; 8]).await;
    assert!(error.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
    eventually(SOON, || async { proxy.connections() == 0 }).await;
    Ok(())
}

#[tokio::test]
async fn a_cut_loses_one_reply_and_closes_both_sides() -> Result<()> {
    let (echo, proxy, mut client) = setup().await?;
    let mut other = TcpStream::connect(proxy.address()).await?;
    proxy.cut_reply_containing(b"COMMIT\0");
    assert_eq!(ask(&mut other, "ROLLBACK\0").await?, "ROLLBACK\0");
    assert_eq!(ask(&mut client, "COMMIT\0").await?, "");
    assert!(echo.got().ends_with("COMMIT\0"));
    eventually(SOON, || async { echo.closed.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(ask(&mut other, "COMMIT\0").await?, "COMMIT\0");
    assert_eq!(proxy.cuts(), 1);
    Ok(())
}

#[tokio::test]
async fn a_reply_to_a_chosen_request_is_cut_in_the_middle_and_no_other() -> Result<()> {
    let (echo, proxy, mut client) = setup().await?;
    let mut other = TcpStream::connect(proxy.address()).await?;
    proxy.cut_replies_to(b"Q....COMMIT", 1);
    assert_eq!(ask(&mut other, "the word COMMIT alone").await?, "the word COMMIT alone");
    assert_eq!(ask(&mut client, "Q....COMMIT\0").await?, "Q....C", "half of it arrives");
    assert_eq!(ask(&mut client, "").await?, "", "and then the connection is closed");
    assert!(echo.got().ends_with("Q....COMMIT\0"), "the request has passed as a whole");
    eventually(SOON, || async { echo.closed.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(ask(&mut other, "Q....COMMIT\0").await?, "Q....COMMIT\0", "it is used up");
    assert_eq!(proxy.cuts(), 1);
    Ok(())
}

#[tokio::test]
async fn connections_that_lose_bytes_or_are_reset_are_counted_once() -> Result<()> {
    let (_echo, proxy, mut client) = setup().await?;
    let mut idle = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut idle, "b").await?, "b");
    proxy.set(Mode::HalfOpen);
    client.write_all(b"c").await?;
    client.write_all(b"d").await?;
    eventually(SOON, || async { proxy.harmed() == 1 }).await;
    proxy.set(Mode::Reset);
    eventually(SOON, || async { proxy.connections() == 0 }).await;
    assert_eq!((proxy.harmed(), proxy.accepted()), (2, 2), "the idle one was reset, too");
    Ok(())
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_port_and_connections() -> Result<()> {
    let (_echo, proxy, mut client) = setup().await?;
    let address = proxy.address();
    drop(proxy);
    assert!(matches!(client.read(&mut [0; 8]).await, Ok(0) | Err(_)));
    eventually(SOON, || async { TcpStream::connect(address).await.is_err() }).await;
    Ok(())
}

#[tokio::test]
async fn an_unreachable_upstream_resets_the_client() -> Result<()> {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
    let proxy = Proxy::start(gone).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert!(client.read(&mut [0; 8]).await.is_err());
    Ok(())
}
