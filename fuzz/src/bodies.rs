//! What is done with any bytes, one function per target: parse them as Postrider would, and check what must hold of whatever
//! was accepted. The fuzzer calls these, and so does the test that replays the corpus (`crates/testkit/tests/corpus.rs`).
//!
//! A target fails by a panic, and by taking long: `scripts/fuzz` gives an input ten seconds.

#[path = "bodies/answers.rs"]
mod answers;
#[path = "bodies/content.rs"]
mod content;

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use postrider::changelog::{After, Cursor, Date, Payload, Versionstamp, decode, encode};
use postrider::inbox::{ConsumerName, Delivery, Wire};
use postrider::message::RESERVED_HEADER_PREFIX;
use postrider::sinks::http::retry_after;
use postrider::sinks::setting::duration;
use postrider::sinks::{HttpClient, HttpConfig};
use postrider::{
    AnyStore, Connect, Destination, EventEnvelope, Layout, Limits, Message, MySqlStore, Names, PostgresStore,
    TenantSetting,
};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;

/// What an input holds in place of a secret. It must not come out again.
const CANARY: &str = "canary7";

/// A target's name and body.
type Target = (&'static str, fn(&[u8]));

/// Every target with its name, which is also that of its corpus.
pub const TARGETS: [Target; 15] = [
    ("envelope", envelope),
    ("headers", headers),
    ("names", names),
    ("retry_after", retry_after_header),
    ("cursor", cursor),
    ("superjson", superjson),
    ("layout", layout),
    ("webhook_url", webhook_url),
    ("database_url", database_url),
    ("time", time),
    ("destination", content::destination),
    ("payload", content::payload),
    ("content", content::content),
    ("http_answer", answers::http_answer),
    ("provider_answer", answers::provider_answer),
];

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// An event's envelope: what is read is written and read again as the same.
pub fn envelope(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<EventEnvelope<serde_json::Value>>(data) else { return };
    // A time beyond what the format can say is refused when it is written.
    let Ok(written) = serde_json::to_vec(&read) else { return };
    let again = serde_json::from_slice::<EventEnvelope<serde_json::Value>>(&written).expect("it was written by us");
    assert_eq!(again, read);
}

/// A producer's headers, one `name: value` per line, and what a consumer reads from them.
pub fn headers(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let message = lines
        .iter()
        .fold(Message::json("shop", "order.placed", &1), |message, (name, value)| message.header(*name, *value));
    if let Ok(row) = message.into_row(&Limits::default()) {
        for (name, value) in row.headers_given() {
            let value = value.as_str().expect("a header is text");
            assert!(!name.to_ascii_lowercase().starts_with(RESERVED_HEADER_PREFIX), "{name:?} is ours");
            assert!(!value.chars().chain(name.chars()).any(char::is_control), "{name:?} would break a wire");
        }
    }
    let consumer = ConsumerName::new("mailer").expect("a plain name");
    let header = |wanted: &str| lines.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    for wire in [Wire::Broker, Wire::Http] {
        let plain = Delivery::read(&consumer, wire, header);
        let numbered = Delivery::read_with_attempt(&consumer, wire, header);
        assert_eq!(plain.map(|delivery| delivery.event), numbered.map(|delivery| delivery.event));
    }
}

/// Names that become SQL, and those that are bound.
pub fn names(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let is_plain = |name: &str| {
        let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        name.bytes().all(rest) && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut parts = text.split('\n');
    let [schema, prefix, table] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    if let Ok(names) = Names::new(schema, prefix, table) {
        let given = [names.schema().unwrap_or_default(), names.prefix(), names.table()];
        assert_eq!(given, [schema, prefix, table]);
        assert!(given.iter().all(|name| is_plain(name) && name.len() <= 63), "{given:?}");
    }
    if postrider::name::check("topic", text).is_ok() {
        assert!(text.bytes().all(|b| b.is_ascii_graphic()) && (1..=200).contains(&text.len()));
    }
    if let Ok(setting) = TenantSetting::new(text) {
        // It stands in a policy and is set by name: a dot and words, and nothing that ends a quotation.
        assert_eq!(setting.name(), text);
        assert!(
            text.contains('.') && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')),
            "{text:?}"
        );
    }
}

/// `Retry-After` of a receiver: nothing, or a time within bounds.
pub fn retry_after_header(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(wait) = retry_after(text, UNIX_EPOCH + Duration::from_secs(1_700_000_000)) {
        assert!(!wait.is_zero() && wait <= Duration::from_secs(24 * 3_600), "{wait:?}");
    }
}

/// A cursor of the changelog, and the versionstamp in it: there is one text for each.
pub fn cursor(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(cursor) = text.parse::<Cursor>() {
        let written = cursor.to_string();
        assert_eq!(written.parse::<Cursor>().expect("it was written by us"), cursor);
    }
    if let Ok(stamp) = text.parse::<Versionstamp>() {
        assert_eq!(stamp.to_string(), text.to_ascii_lowercase());
    }
    let either = text.parse::<Cursor>().is_ok() || text.parse::<Versionstamp>().is_ok();
    assert_eq!(text.parse::<After>().is_ok(), either);
}

/// Lengths of time and dates: what is read is written and read again as the same.
pub fn time(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match duration::parse(text) {
        Ok(length) => assert_eq!(duration::parse(&duration::format(length)), Ok(length)),
        // A number with a wrong unit is repeated; anything else may be a secret that got into the wrong place.
        Err(problem) => {
            assert!(text.starts_with(|c: char| c.is_ascii_digit()) || !problem.contains(CANARY), "{problem}")
        }
    }
    if let Ok(date) = text.parse::<Date>() {
        assert_eq!(date.to_string(), text);
        assert_eq!(Date::from_millis(date.millis()), Some(date));
    }
}

/// Superjson, and a changelog's payload in it: what is read is written and read again as the same.
pub fn superjson(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(value) = decode(text) {
        // Not every value can be read by everybody; `check` says which.
        if value.check().is_ok() {
            let written = encode(&value);
            let again = decode(&written).expect("it was written by us");
            assert_eq!(encode(&again), written);
        }
    }
    let _ = Payload::from_superjson(text);
}

/// A description of somebody else's table: it is refused, or every statement is rendered from it in full.
pub fn layout(data: &[u8]) {
    let Ok(layout) = serde_json::from_slice::<Layout>(data) else { return };
    let _context = RUNTIME.enter();
    static POSTGRES: LazyLock<sqlx::PgPool> =
        LazyLock::new(|| PgPoolOptions::new().connect_lazy("postgres://nobody@127.0.0.1:1/none").expect("a URL"));
    static MYSQL: LazyLock<sqlx::MySqlPool> =
        LazyLock::new(|| MySqlPoolOptions::new().connect_lazy("mysql://nobody@127.0.0.1:1/none").expect("a URL"));
    let is_sound = layout.check().is_ok();
    let postgres = PostgresStore::with_layout(POSTGRES.clone(), layout.clone());
    let mysql = MySqlStore::with_layout(MYSQL.clone(), layout);
    assert!(is_sound || (postgres.is_err() && mysql.is_err()), "a layout that makes no sense was taken");
}

/// A webhook's destination: it is refused, or does not lead to an address that is not public.
pub fn webhook_url(data: &[u8]) {
    static CLIENT: LazyLock<HttpClient> = LazyLock::new(|| {
        let mut config = HttpConfig::default();
        config.allow_plain_http = true;
        HttpClient::new(&config).expect("a client")
    });
    let Some(text) = text(data) else { return };
    let Ok(destination) = text.parse::<Destination>() else { return };
    match CLIENT.sink(destination) {
        Err(problem) => assert!(!problem.to_string().contains(CANARY), "a path may hold a token: {problem}"),
        Ok(_) => {
            let url = url::Url::parse(text).ok();
            let literal = url.as_ref().and_then(url::Url::host).and_then(|host| match host {
                url::Host::Ipv4(address) => Some(IpAddr::from(address)),
                url::Host::Ipv6(address) => Some(IpAddr::from(address)),
                url::Host::Domain(_) => None,
            });
            assert!(literal.is_none_or(is_public), "{literal:?} is not public");
        }
    }
}

/// The library's own idea of an address inside, apart from our tables.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(a) => {
            !(a.is_loopback() || a.is_private() || a.is_link_local() || a.is_unspecified() || a.is_multicast())
        }
        IpAddr::V6(a) => {
            !(a.is_loopback()
                || a.is_unspecified()
                || a.is_multicast()
                || a.is_unique_local()
                || a.is_unicast_link_local())
        }
    }
}

/// A database's URL: it is refused, and what is said then holds nothing of it; or a pool is made, which connects later.
pub fn database_url(data: &[u8]) {
    let Some(text) = text(data) else { return };
    // A file would be opened.
    if text.starts_with("sqlite") {
        return;
    }
    if let Err(error) = RUNTIME.block_on(AnyStore::connect(text, &Connect::default())) {
        assert!(!format!("{error} {error:?}").contains(CANARY), "a URL may hold a password: {error}");
    }
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));
