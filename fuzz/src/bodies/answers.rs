//! What destinations answer: any bytes over a real connection on loopback.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use postrider::sinks::provider::{ProviderConfig, SlackConfig, TelegramConfig, WhatsappConfig};
use postrider::sinks::setting::Secret;
use postrider::sinks::{HttpClient, HttpConfig, HttpSink, ProviderSink};
use postrider::{ClaimedMessage, Outcome, Payload, Sink};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::content::claimed;
use super::{CANARY, RUNTIME};

const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// A server that says to each request what it was told to say, and hangs up.
struct Parrot {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
}

static PARROT: LazyLock<Parrot> = LazyLock::new(|| {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let listener = RUNTIME.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a free port");
    let address = listener.local_addr().expect("an address");
    RUNTIME.spawn(serve(listener, answer.clone()));
    Parrot { address, answer }
});

async fn serve(listener: TcpListener, answer: Arc<Mutex<Vec<u8>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Who hangs up early is of no interest.
        let _ended = say(stream, &answer).await;
    }
}

/// The whole request is read first: a connection that is closed over unread bytes is reset, and the answer lost with it.
async fn say(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    while !is_whole(&request) {
        match stream.read(&mut chunk).await? {
            0 => return Ok(()),
            read => request.extend_from_slice(&chunk[..read]),
        }
    }
    stream.write_all(answer).await?;
    stream.shutdown().await
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn publish(sink: &impl Sink, message: ClaimedMessage, answer: Vec<u8>) -> Outcome {
    *PARROT.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    let mut outcomes = RUNTIME.block_on(sink.publish(&[message]));
    assert_eq!(outcomes.len(), 1, "one outcome for each message");
    let outcome = outcomes.remove(0);
    // An answer may repeat the message, and what is said of it is stored and shown.
    assert!(!format!("{outcome:?}").contains(CANARY), "{outcome:?}");
    if let Outcome::Retry { after: Some(after), .. } = outcome {
        assert!(after <= LONGEST_WAIT, "{after:?}");
    }
    outcome
}

/// Any bytes in place of a receiver's answer: the message is delivered only if they are an answer that says so.
pub fn http_answer(data: &[u8]) {
    static SINK: LazyLock<HttpSink> = LazyLock::new(|| {
        let mut config = HttpConfig::default();
        config.allow_addresses = vec!["127.0.0.1".into()];
        config.timeout = Duration::from_secs(5);
        let url = format!("http://{}/hooks", PARROT.address);
        let _context = RUNTIME.enter();
        HttpClient::new(&config).expect("a client").sink(url.parse().expect("a URL")).expect("a sink")
    });
    let outcome = publish(&*SINK, claimed("shop", "order.placed", Payload::Json("1".into())), data.to_vec());
    if outcome.is_delivered() {
        let status = String::from_utf8_lossy(data).into_owned();
        assert!(status.trim_start().starts_with("HTTP/1.") && status.contains(" 2"), "{outcome:?} for {status:?}");
    }
}

const STATUSES: [&str; 8] =
    ["200 OK", "201 Created", "302 Found", "400 Bad Request", "401 No", "404 No", "429 Slow", "503 Down"];

/// A chat provider's JSON behind one of a few status lines: a person counts as told only if the provider says so.
pub fn provider_answer(data: &[u8]) {
    static SINK: LazyLock<ProviderSink> = LazyLock::new(|| {
        let base = format!("http://{}", PARROT.address);
        let mut slack = SlackConfig::new(Secret::new("xoxb-1"));
        let mut telegram = TelegramConfig::new(Secret::new("1:a"));
        let mut whatsapp = WhatsappConfig::new(Secret::new("t"), "1");
        (slack.endpoint, telegram.endpoint, whatsapp.endpoint) = (base.clone(), base.clone(), base);
        let mut config = ProviderConfig::default();
        (config.slack, config.telegram, config.whatsapp) = (Some(slack), Some(telegram), Some(whatsapp));
        config.allow_addresses = vec!["127.0.0.1".into()];
        let _context = RUNTIME.enter();
        ProviderSink::builder().config(config).build().expect("a sink")
    });
    let [which, status, body @ ..] = data else { return };
    let provider = ["slack", "telegram", "whatsapp"][usize::from(*which) % 3];
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let mut message = claimed("shop", "told", Payload::Json(format!(r#"{{"text": "{CANARY}"}}"#)));
    let recipient = if provider == "slack" { "C1" } else { "4912345" };
    message.headers = [("provider", provider), ("recipient", recipient)].map(|(a, b)| (a.into(), b.into())).into();
    let mut answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    let outcome = publish(&*SINK, message, answer);
    if outcome.is_delivered() {
        let said: serde_json::Value = serde_json::from_slice(body).expect("it was understood");
        let is_sent = match provider {
            "whatsapp" => said["messages"][0]["id"].is_string(),
            _ => said["ok"] == true,
        };
        assert!(is_sent && status.starts_with('2'), "{provider} did not say so: {status}");
    }
}
