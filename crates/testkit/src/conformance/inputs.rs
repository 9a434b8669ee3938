//! The one table of inputs that every producer must refuse, and the one of extremes that every producer must take.

use uuid::Uuid;

use super::given::{Body, Given};

/// Who refuses an input of a producer that is not Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The client library: the protocol has no way to send it.
    Client,
    /// The types `text` and `jsonb`, before our function is called.
    Type,
    /// `postrider_enqueue`.
    Function,
}

const TENANT: Uuid = Uuid::from_u128(0x0192_3abc_def0_7123_8456_789a_bcde_f012);

type Change = Box<dyn Fn(&mut Given, String)>;

fn with(change: impl FnOnce(&mut Given)) -> Given {
    let mut given = Given::default();
    change(&mut given);
    given
}

fn json(text: impl Into<String>) -> Given {
    with(|given| given.body = Body::Json(text.into()))
}

fn bytes(content_type: impl Into<String>, length: usize) -> Given {
    with(|given| given.body = Body::Bytes { content_type: content_type.into(), bytes: vec![0xff; length] })
}

fn header(name: impl Into<String>, value: impl Into<String>) -> Given {
    with(|given| given.headers.push((name.into(), value.into())))
}

fn tenant(dedupe_key: String) -> Given {
    with(|given| (given.tenant, given.dedupe_key) = (Some(TENANT), Some(dedupe_key)))
}

fn headers(count: usize) -> Given {
    with(|given| given.headers = (0..count).map(|n| (format!("x-{n}"), "value".into())).collect())
}

fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2))
}

/// Inputs that must be refused, each with a name for the test's output.
pub fn refused() -> Vec<(String, By, Given)> {
    let mut all = Vec::new();
    let fields: [(&str, Change); 2] = [
        ("namespace", Box::new(|given, text| given.namespace = text)),
        ("topic", Box::new(|given, text| given.topic = text)),
    ];
    for (field, set) in fields {
        for text in ["", "a b", "a\nb", "a\n", "naïve", "a'b", "a\"b", "a;b", "a\u{7f}", "a%", "a\\", "{table}", "$1"]
        {
            all.push((format!("{field} {text:?}"), By::Function, with(|given| set(given, text.into()))));
        }
        all.push((format!("{field} with NUL"), By::Client, with(|given| set(given, "a\0b".into()))));
        all.push((format!("{field} of 201 bytes"), By::Function, with(|given| set(given, "x".repeat(201)))));
    }
    let fields: [(&str, Change); 2] = [
        ("key", Box::new(|given, text| given.key = Some(text))),
        ("dedupe key", Box::new(|given, text| given.dedupe_key = Some(text))),
    ];
    for (field, set) in fields {
        for text in ["", "a\nb", "a\r", "\t", "a\u{7f}b", "a\u{85}b", "\u{1}"] {
            all.push((format!("{field} {text:?}"), By::Function, with(|given| set(given, text.into()))));
        }
        all.push((format!("{field} with NUL"), By::Client, with(|given| set(given, "a\0b".into()))));
        all.push((format!("{field} of 513 bytes"), By::Function, with(|given| set(given, "é".repeat(257)))));
    }
    let others =
        refused_headers().into_iter().chain(refused_payloads()).chain(refused_tenants()).chain(refused_numbers());
    all.extend(others.map(|(name, by, given)| (name.to_owned(), by, given)));
    all
}

fn refused_headers() -> Vec<(&'static str, By, Given)> {
    vec![
        ("65 headers", By::Function, headers(65)),
        ("10,000 headers", By::Function, headers(10_000)),
        ("an empty header name", By::Function, header("", "v")),
        ("a header name with a space", By::Function, header("a b", "v")),
        ("a header name with a colon", By::Function, header("a:b", "v")),
        ("a header name with an umlaut", By::Function, header("ä", "v")),
        ("a header name with a line end", By::Function, header("a\n", "v")),
        ("a header name with NUL", By::Type, header("a\0", "v")),
        ("a header name of 129 bytes", By::Function, header("x".repeat(129), "v")),
        ("a reserved header", By::Function, header("postrider-id", "v")),
        ("a reserved header in upper case", By::Function, header("POSTRIDER-ID", "v")),
        ("a header value with CR LF", By::Function, header("a", "v\r\nevil: 1")),
        ("a header value with NUL", By::Type, header("a", "v\0")),
        ("a header value with C1", By::Function, header("a", "v\u{9f}")),
        ("a header value of 4,097 bytes", By::Function, header("a", "v".repeat(4_097))),
        ("a content type with LF", By::Function, bytes("text/plain\nx: y", 1)),
        ("a content type with NUL", By::Client, bytes("text/plain\0", 1)),
        ("a content type of 4,097 bytes", By::Function, bytes("t".repeat(4_097), 1)),
    ]
}

fn refused_payloads() -> Vec<(&'static str, By, Given)> {
    vec![
        ("bytes over the limit", By::Function, bytes("text/plain", 1024 * 1024 + 1)),
        ("JSON over the limit", By::Function, json(format!("\"{}\"", "x".repeat(1024 * 1024 - 1)))),
        ("JSON with NUL", By::Type, json(r#"{"a": "\u0000"}"#)),
        ("JSON with NUL in a name", By::Type, json(r#"{"\u0000": 1}"#)),
        ("JSON with a lone high surrogate", By::Type, json(r#""\ud800""#)),
        ("JSON with a lone low surrogate", By::Type, json(r#"["\udc00"]"#)),
        ("JSON with two high surrogates", By::Type, json(r#""\ud800\ud800""#)),
        ("JSON of 128 levels", By::Function, json(nested(128))),
        (
            "JSON of 128 levels with nothing inside",
            By::Function,
            json(format!("{}{}", "[".repeat(128), "]".repeat(128))),
        ),
        ("JSON of 129 levels", By::Function, json(format!("[{}]", nested(128)))),
        ("JSON of 10,000 levels", By::Function, json(nested(10_000))),
        ("a number beyond numeric", By::Type, json("1e200000")),
    ]
}

fn refused_tenants() -> Vec<(&'static str, By, Given)> {
    let (hyphenated, simple) = (TENANT.to_string(), TENANT.simple().to_string());
    vec![
        ("no tenant in the dedupe key", By::Function, tenant("order/7".into())),
        ("another tenant's dedupe key", By::Function, tenant(format!("{}/7", Uuid::from_u128(7)))),
        ("the tenant in upper case", By::Function, tenant(format!("{}/7", hyphenated.to_uppercase()))),
        ("the simple form in upper case", By::Function, tenant(format!("{}/7", simple.to_uppercase()))),
        ("the tenant without a slash", By::Function, tenant(hyphenated.clone())),
        ("the tenant and another separator", By::Function, tenant(format!("{hyphenated}:7"))),
        ("the tenant and other hex", By::Function, tenant(format!("{hyphenated}0/7"))),
        ("the simple form and other hex", By::Function, tenant(format!("{simple}ab/7"))),
        ("a space before the tenant", By::Function, tenant(format!(" {hyphenated}/7"))),
        ("a slash before the tenant", By::Function, tenant(format!("/{hyphenated}/7"))),
        ("the tenant in braces", By::Function, tenant(format!("{{{hyphenated}}}/7"))),
        ("the tenant as an URN", By::Function, tenant(format!("urn:uuid:{hyphenated}/7"))),
        ("part of the tenant", By::Function, tenant(format!("{}/7", &hyphenated[..35]))),
        ("the tenant further back", By::Function, tenant(format!("x/{hyphenated}/7"))),
        ("some of the hyphens", By::Function, tenant(format!("{}/7", hyphenated.replacen('-', "", 1)))),
        ("a wildcard", By::Function, tenant("%/7".into())),
    ]
}

fn refused_numbers() -> Vec<(&'static str, By, Given)> {
    vec![
        ("no attempts", By::Function, with(|given| given.max_attempts = Some(0))),
        ("1,001 attempts", By::Function, with(|given| given.max_attempts = Some(1_001))),
        ("attempts beyond int", By::Type, with(|given| given.max_attempts = Some(u32::MAX))),
        ("a time before 1970", By::Function, with(|given| given.deliver_at = Some(-1))),
        ("a time after 9999", By::Function, with(|given| given.deliver_at = Some(253_402_300_800))),
    ]
}

/// Extremes that must be taken.
pub fn accepted() -> Vec<(&'static str, Given)> {
    vec![
        ("nothing but the necessary", Given::default()),
        ("the longest namespace", with(|given| given.namespace = "x".repeat(200))),
        ("every allowed character", with(|given| given.topic = "aZ09._-:/".into())),
        ("the longest key", with(|given| given.key = Some("é".repeat(256)))),
        ("the longest dedupe key", with(|given| given.dedupe_key = Some("x".repeat(512)))),
        ("a key of spaces and quotes", with(|given| given.key = Some(" '\"\\ ; -- ".into()))),
        ("64 headers", headers(64)),
        ("the longest header", header("x".repeat(128), "é".repeat(2_048))),
        ("a header in upper case", header("X-Kind", "A")),
        ("the hyphenated tenant", tenant(format!("{TENANT}/7"))),
        ("the simple tenant", tenant(format!("{}/7", TENANT.simple()))),
        ("the tenant and nothing after the slash", tenant(format!("{TENANT}/"))),
        ("a tenant without a dedupe key", with(|given| given.tenant = Some(TENANT))),
        ("one attempt", with(|given| given.max_attempts = Some(1))),
        ("1,000 attempts", with(|given| given.max_attempts = Some(1_000))),
        ("the first time", with(|given| given.deliver_at = Some(0))),
        ("the last time", with(|given| given.deliver_at = Some(253_402_300_799))),
        ("no bytes", bytes("text/plain", 0)),
        ("bytes at the limit", bytes("text/plain", 1024 * 1024)),
        ("JSON at the limit", json(format!("\"{}\"", "x".repeat(1024 * 1024 - 2)))),
        ("JSON of 126 levels", json(nested(126))),
        ("JSON null", json("null")),
        ("a surrogate pair", json(r#""\ud83d\ude00 \\u0000""#)),
        ("a long number", json("123456789012345678901234567890.5e-7")),
    ]
}
