//! What each answer of a provider means for a message: every error of the tables in the adapters' modules.
#![cfg(feature = "provider")]

mod provider_server;
mod support;

use std::time::Duration;

use postrider_core::{Outcome, Sink};
use postrider_sinks::provider::ProviderSink;
use provider_server::{Api, fine, http, send, slack_error, telegram_error, to, whatsapp_error};
use serde_json::json;
use support::{Reply, Server};

/// The outcome must be of this kind, and ask for this wait. None of the provider's words are passed on.
fn check(what: &str, outcome: &Outcome, kind: &str, after: Option<u64>) {
    assert_eq!(outcome.kind(), kind, "{what}: {outcome:?}");
    if let Outcome::Retry { after: given, .. } = outcome {
        assert_eq!(*given, after.map(Duration::from_secs), "{what}");
    }
    assert!(!format!("{outcome:?}").contains("canary"), "{what}: {outcome:?}");
}

const SLACK: &[(&str, &[&str])] = &[
    (
        "retry",
        &[
            "ratelimited",
            "rate_limited",
            "message_limit_exceeded",
            "service_unavailable",
            "request_timeout",
            "team_added_to_org",
            "org_login_required",
            "not_authed",
            "invalid_auth",
            "account_inactive",
            "token_revoked",
            "token_expired",
            "missing_scope",
            "no_permission",
            "access_denied",
            "accesslimited",
            "ekm_access_denied",
            "enterprise_is_restricted",
            "not_allowed_token_type",
            "team_access_not_granted",
            "two_factor_setup_required",
            "messages_tab_disabled",
            "metadata_must_be_sent_from_app",
            "method_deprecated",
            "deprecated_endpoint",
            "an_error_of_tomorrow",
            "canary with spaces",
        ],
    ),
    ("unknown", &["internal_error", "fatal_error"]),
    (
        "reject",
        &[
            "channel_not_found",
            "not_in_channel",
            "is_archived",
            "restricted_action",
            "restricted_action_read_only_channel",
            "restricted_action_thread_only_channel",
            "user_not_found",
            "cannot_dm_bot",
            "msg_too_long",
            "no_text",
            "invalid_blocks",
            "invalid_blocks_format",
            "msg_blocks_too_long",
            "too_many_attachments",
            "attachment_payload_limit_exceeded",
            "invalid_arguments",
            "invalid_arg_name",
            "invalid_array_arg",
            "invalid_metadata_format",
            "invalid_metadata_schema",
            "metadata_too_large",
            "markdown_text_conflict",
            "cannot_reply_to_message",
            "as_user_not_supported",
            "slack_connect_file_link_sharing_blocked",
        ],
    ),
];

/// A sink for each message: a provider that fails so often is left alone.
fn fresh(api: &Api) -> ProviderSink {
    api.sink()
}

/// The same for where no answer comes.
fn impatient(api: &Api) -> ProviderSink {
    let mut config = api.config();
    (config.connect_timeout, config.timeout) = (Duration::from_secs(4), Duration::from_secs(4));
    ProviderSink::new(&config).expect("a sink")
}

#[tokio::test]
async fn slacks_errors_are_what_its_table_says() {
    let api = Api::start(|call| slack_error(call.body["text"].as_str().unwrap_or_default())).await;
    for (kind, errors) in SLACK {
        for error in *errors {
            let outcome = send(&fresh(&api), to("slack", "C1", json!({ "text": error }))).await;
            check(error, &outcome, kind, None);
            assert!(
                error.contains("canary") || format!("{outcome:?}").contains(error),
                "the code is kept: {outcome:?}"
            );
        }
    }
    assert_eq!(api.take().len(), SLACK.iter().map(|(_, errors)| errors.len()).sum::<usize>(), "one request for each");
}

#[tokio::test]
async fn telegrams_errors_are_what_its_table_says() {
    let table: &[(u16, &str, &str, Option<u64>)] = &[
        (400, "Bad Request: chat not found", "reject", None),
        (400, "Bad Request: user not found", "reject", None),
        (400, "Bad Request: PEER_ID_INVALID", "reject", None),
        (400, "Bad Request: message is too long", "reject", None),
        (400, "Bad Request: message text is empty", "reject", None),
        (400, "Bad Request: can't parse entities: unsupported start tag \"canary\" at byte offset 0", "reject", None),
        (400, "Bad Request: not enough rights to send text messages to the chat", "reject", None),
        (400, "Bad Request: have no rights to send a message", "reject", None),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", "reject", None),
        (400, "Bad Request: canary", "reject", None),
        (403, "Forbidden: bot was blocked by the user", "reject", None),
        (403, "Forbidden: bot was kicked from the supergroup chat", "reject", None),
        (403, "Forbidden: user is deactivated", "reject", None),
        (403, "Forbidden: bot can't initiate conversation with a user", "reject", None),
        (403, "Forbidden: bot is not a member of the channel chat", "reject", None),
        (403, "Forbidden: bot can't send messages to bots", "reject", None),
        (403, "Forbidden: bot can't send messages to the user", "retry", None),
        (401, "Unauthorized", "retry", None),
        (404, "Not Found", "retry", None),
        (409, "Conflict: canary", "retry", None),
        (429, "Too Many Requests: retry after 35", "retry", Some(35)),
        (500, "Internal Server Error", "retry", None),
        (502, "Bad Gateway", "retry", None),
    ];
    let api = Api::start(|call| {
        let (code, description) = call.body["text"].as_str().and_then(|text| text.split_once(' ')).expect("a row");
        let parameters = description.contains("35").then(|| json!({ "retry_after": 35 }));
        telegram_error(code.parse().expect("a code"), description, parameters)
    })
    .await;
    for (code, description, kind, after) in table {
        let text = format!("{code} {description}");
        let outcome = send(&fresh(&api), to("telegram", "-100123", json!({ "text": text }))).await;
        check(&text, &outcome, kind, *after);
        assert!(format!("{outcome:?}").contains(&format!("Telegram answered {code}: ")), "{outcome:?}");
    }
    assert_eq!(api.take().len(), table.len());
}

#[tokio::test]
async fn a_group_that_became_another_chat_gets_its_message_there() {
    let api = Api::start(|call| match call.recipient.as_str() {
        "-1" => telegram_error(
            400,
            "Bad Request: group chat was upgraded to a supergroup chat",
            Some(json!({ "migrate_to_chat_id": -1001234567890_i64 })),
        ),
        // A group that moves for ever is asked twice, not for ever.
        "-2" => telegram_error(
            400,
            "Bad Request: group chat was upgraded to a supergroup chat",
            Some(json!({ "migrate_to_chat_id": -2 })),
        ),
        _ => fine(call),
    })
    .await;
    let sink = api.sink();
    assert_eq!(send(&sink, to("telegram", "-1", json!({ "text": "hi" }))).await, Outcome::Accepted);
    let calls = api.take();
    assert_eq!(calls.iter().map(|call| call.recipient.as_str()).collect::<Vec<_>>(), ["-1", "-1001234567890"]);
    assert_eq!(calls[0].body["text"], calls[1].body["text"]);
    check("-2", &send(&sink, to("telegram", "-2", json!({ "text": "hi" }))).await, "reject", None);
    assert_eq!(api.take().len(), 2);
}

/// Status, code, subcode.
type Row = (u16, u64, Option<u64>);

#[tokio::test]
async fn whatsapps_errors_are_what_its_table_says() {
    let mut table: Vec<(Row, &str)> = Vec::new();
    let mut add = |status: u16, kind: &'static str, codes: &[u64]| {
        table.extend(codes.iter().map(|code| ((status, *code, None), kind)))
    };
    add(400, "retry", &[4, 17, 32, 613, 80007, 131048, 131056, 133016]);
    add(429, "retry", &[130429]);
    add(500, "retry", &[1, 131000]);
    add(503, "retry", &[2, 131016, 131057, 133004]);
    add(401, "retry", &[0, 190]);
    add(403, "retry", &[3, 10, 200, 219, 299, 368, 131005, 131031]);
    add(400, "retry", &[33, 131037, 131042, 131045, 133005, 133006, 133008, 133010, 133015]);
    add(400, "reject", &[100, 131008, 131009, 131021, 131026, 131030, 131047, 131049, 131050, 131051, 131052, 131053]);
    add(
        400,
        "reject",
        &[130472, 130497, 132000, 132001, 132005, 132007, 132012, 132015, 132016, 132068, 132069, 135000],
    );
    add(404, "reject", &[132001]);
    // What is not in the table is tried again, also with a status that says otherwise.
    add(400, "retry", &[199, 300, 131999, 999_999]);
    table.push(((400, 100, Some(33)), "retry"));
    let api = Api::start(|call| {
        let row = call.body["text"]["body"].as_str().expect("text");
        let (status, code, subcode): Row = serde_json::from_str(row).expect("a row");
        whatsapp_error(status, code, subcode, "")
    })
    .await;
    for (row, kind) in &table {
        let text = serde_json::to_string(row).expect("JSON");
        let outcome = send(&fresh(&api), to("whatsapp", "4915112345678", json!({ "text": text }))).await;
        check(&text, &outcome, kind, None);
        assert!(format!("{outcome:?}").contains(&format!("WhatsApp answered {}: ", row.1)), "{outcome:?}");
    }
    assert_eq!(api.take().len(), table.len());
}

/// The same for all of them: who is asked to wait waits, and an answer that is none says as much as its status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_in_a_providers_format_goes_by_its_status() {
    let elsewhere = Server::start(|_| http(200, "", r#"{"ok": true, "messages": [{"id": "x"}]}"#)).await;
    let location = elsewhere.url("/slack/api/chat.postMessage");
    let html = "<html><body>canary</body></html>";
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"ok\": true, \"messages\": [{\"id\": \"x\"}]";
    let long = format!("{{\"ok\": true, \"messages\": [{{\"id\": \"x\"}}], \"x\": \"{}\"}}", "x".repeat(2_000_000));
    let answer = move |case: &str| match case {
        "limit" => http(429, "retry-after: 30\r\n", html),
        "limit without a time" => http(429, "", ""),
        "overload" => http(503, "retry-after: 9\r\n", html),
        "gateway" => http(502, "", html),
        "redirect" => http(307, &format!("location: {location}\r\n"), ""),
        "forbidden by a proxy" => http(403, "", html),
        "not found by a proxy" => http(404, "", html),
        "too large for a proxy" => http(413, "", html),
        "html" => http(200, "content-type: text/html\r\n", html),
        "empty" => http(200, "", ""),
        "other JSON" => http(200, "", "[]"),
        "not even ok" => http(200, "", r#"{"ok": "true", "messages": "x"}"#),
        "good news with a bad status" => http(500, "", r#"{"ok": true, "messages": [{"id": "x"}]}"#),
        "too long" => http(200, "", &long),
        "endless" => Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 16_384]),
        "cut off" => Reply::Close(cut.as_bytes().to_vec()),
        "cut off with a limit" => {
            Reply::Close(b"HTTP/1.1 429 No\r\nretry-after: 30\r\ncontent-length: 9\r\n\r\n{".to_vec())
        }
        "garbage" => Reply::Close(b"canary\r\n\r\n".to_vec()),
        "lost" => Reply::Close(Vec::new()),
        "reset" => Reply::Reset(Vec::new()),
        "silence" => Reply::Silence,
        other => panic!("{other}"),
    };
    let table: &[(&str, &str, Option<u64>)] = &[
        ("limit", "retry", Some(30)),
        ("limit without a time", "retry", None),
        ("overload", "retry", Some(9)),
        ("gateway", "retry", None),
        ("redirect", "retry", None),
        ("forbidden by a proxy", "retry", None),
        ("not found by a proxy", "retry", None),
        ("too large for a proxy", "reject", None),
        ("html", "unknown", None),
        ("empty", "unknown", None),
        ("other JSON", "unknown", None),
        ("not even ok", "unknown", None),
        ("good news with a bad status", "retry", None),
        ("too long", "unknown", None),
        ("endless", "unknown", None),
        ("cut off", "unknown", None),
        ("cut off with a limit", "retry", Some(30)),
        ("garbage", "unknown", None),
        ("lost", "unknown", None),
        ("reset", "unknown", None),
        ("silence", "unknown", None),
    ];
    let api = Api::start(move |call| {
        let text = if call.provider == "whatsapp" { &call.body["text"]["body"] } else { &call.body["text"] };
        answer(text.as_str().expect("text"))
    })
    .await;
    for (provider, recipient) in [("slack", "C1"), ("telegram", "1"), ("whatsapp", "491511")] {
        for (case, kind, after) in table {
            let sink = if *case == "silence" { impatient(&api) } else { fresh(&api) };
            let outcome = send(&sink, to(provider, recipient, json!({ "text": case }))).await;
            check(&format!("{provider}: {case}"), &outcome, kind, *after);
        }
    }
    assert_eq!(api.take().len(), 3 * table.len(), "nothing is tried twice within one attempt");
    assert_eq!(elsewhere.take().len(), 0, "redirects are not followed");
}

#[tokio::test]
async fn providers_own_ways_to_ask_for_a_wait_are_heeded() {
    let api = Api::start(|call| match (call.provider, call.recipient.as_str()) {
        ("slack", _) => http(429, "retry-after: 7\r\n", r#"{"ok": false, "error": "ratelimited"}"#),
        ("telegram", "1") => telegram_error(429, "Too Many Requests", Some(json!({ "retry_after": 11 }))),
        ("telegram", "2") => telegram_error(429, "Too Many Requests", Some(json!({ "retry_after": 0 }))),
        ("telegram", _) => telegram_error(429, "Too Many Requests", Some(json!({ "retry_after": 99_999_999_u64 }))),
        _ => whatsapp_error(429, 130429, None, "retry-after: 13\r\n"),
    })
    .await;
    let sink = api.sink();
    for (provider, recipient, after) in [
        ("slack", "C1", Some(7)),
        ("telegram", "1", Some(11)),
        ("telegram", "2", None),
        ("telegram", "3", Some(86_400)),
        ("whatsapp", "1", Some(13)),
    ] {
        check(provider, &send(&sink, to(provider, recipient, json!({ "text": "x" }))).await, "retry", after);
    }
}

#[tokio::test]
async fn nothing_was_sent_if_there_was_no_connection() {
    let api = Api::start(fine).await;
    let config = api.config();
    drop(api);
    let sink = ProviderSink::new(&config).expect("a sink");
    for provider in ["slack", "telegram", "whatsapp"] {
        let outcome = send(&sink, to(provider, "1", json!({ "text": "x" }))).await;
        assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent")), "{outcome:?}");
    }
    let why = sink.ready().await.expect_err("nobody is there");
    assert!(["slack: ", "telegram: ", "whatsapp: "].iter().all(|name| why.contains(name)), "{why}");
}

/// A sink is ready if one of its providers is; what a provider says of its token counts, what a proxy says does not.
#[tokio::test]
async fn a_provider_that_refuses_the_token_is_not_ready() {
    let only = |api: &Api, provider: &str| {
        let mut config = api.config();
        config.slack.take_if(|_| provider != "slack");
        config.telegram.take_if(|_| provider != "telegram");
        config.whatsapp.take_if(|_| provider != "whatsapp");
        ProviderSink::new(&config).expect("a sink")
    };
    let good = Api::start(fine).await;
    let bad = Api::start(|call| match call.provider {
        "slack" => slack_error("invalid_auth"),
        _ => telegram_error(401, "Unauthorized", None),
    })
    .await;
    let proxy = Api::start(|_| http(403, "", "<html>")).await;
    for (provider, mend) in [("slack", "mend slack.token"), ("telegram", "mend telegram.token")] {
        assert_eq!(only(&good, provider).ready().await, Ok(()));
        assert_eq!(only(&proxy, provider).ready().await, Ok(()));
        assert!(only(&bad, provider).ready().await.expect_err(provider).contains(mend));
    }
    assert_eq!(bad.sink().ready().await, Ok(()), "WhatsApp takes connections");
    assert!(good.take().iter().all(|call| call.recipient.is_empty()), "nobody gets a message by that");
}
