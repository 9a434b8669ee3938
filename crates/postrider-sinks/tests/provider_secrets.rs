//! Tokens, recipients and what messages say are in no log, error, outcome or debug output, whatever goes wrong; the
//! producer's ids are in the log. Telegram's token is a part of the address, which is the easiest of all to let slip.
#![cfg(feature = "provider")]

mod provider_server;
mod support;

use std::time::Duration;

use postrider_core::Sink;
use postrider_sinks::provider::{CORRELATION_ID, Outbound, ProviderConfig, ProviderSink, SlackConfig, TelegramConfig};
use postrider_sinks::setting::Secret;
use provider_server::{NUMBER_ID, SLACK_TOKEN, TELEGRAM_TOKEN, WHATSAPP_TOKEN, send, to};
use serde_json::json;
use support::{Received, Reply, Server};
use testkit::log::Log;

/// Every canary has this, the tokens as well.
const CANARY: &str = "canary";

/// Answers with everything it was sent: in the reason, in headers, and in every field that a provider's error has.
fn echo(case: &str, request: &Received) -> Reply {
    let said =
        format!("{} {}", request.lines.join(" "), String::from_utf8_lossy(&request.body)).replace(['\r', '\n'], " ");
    let code: u16 = case.parse().unwrap_or(200);
    let body = match case {
        "slack" => json!({ "ok": false, "error": said, "warning": said }),
        "telegram" => json!({ "ok": false, "error_code": 400, "description": said, "parameters": { "x": said } }),
        "whatsapp" => {
            json!({ "error": { "message": said, "type": said, "code": 100, "error_data": { "details": said }, "fbtrace_id": said } })
        }
        _ => json!(said),
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} {said}\r\nx-echo: {said}\r\nlocation: {}\r\nretry-after: {said}\r\ncontent-length: {}\r\n\r\n",
        request.path,
        body.len()
    );
    match case {
        "broken" => Reply::Reset(said.into_bytes()),
        "slow" => Reply::Silence,
        _ => Reply::Bytes([head.into_bytes(), body.into_bytes()].concat()),
    }
}

fn config(base: &str) -> ProviderConfig {
    let mut config = ProviderConfig::default();
    let mut slack = SlackConfig::new(Secret::new(SLACK_TOKEN));
    slack.endpoint = format!("{base}/canary-path");
    let mut telegram = TelegramConfig::new(Secret::new(TELEGRAM_TOKEN));
    telegram.endpoint = base.to_owned();
    let mut whatsapp = postrider_sinks::provider::WhatsappConfig::new(Secret::new(WHATSAPP_TOKEN), NUMBER_ID);
    whatsapp.endpoint = base.to_owned();
    (config.slack, config.telegram, config.whatsapp) = (Some(slack), Some(telegram), Some(whatsapp));
    config.allow_addresses = vec!["127.0.0.1".into()];
    (config.connect_timeout, config.timeout) = (Duration::from_millis(300), Duration::from_millis(300));
    config
}

const CASES: [&str; 16] = [
    "200", "302", "400", "401", "403", "404", "413", "429", "500", "503", "slack", "telegram", "whatsapp", "broken",
    "slow", "closed",
];

#[tokio::test]
async fn no_canary_is_seen_and_ids_are() {
    let log = Log::listen();

    let closed = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")));
    let mut seen = Vec::new();
    for case in CASES {
        let server = Server::start(move |request| echo(case, request)).await;
        let base = if case == "closed" { format!("http://{closed}") } else { server.url("") };
        let config = config(&base);
        seen.push(serde_json::to_string(&config).expect("it can be shown").replace("canary-path", ""));
        seen.push(format!("{config:?}").replace("canary-path", ""));
        let sink = ProviderSink::new(&config).expect("a sink");
        for (provider, recipient) in [("slack", "C-canary"), ("telegram", "@canary"), ("whatsapp", "canary-number")] {
            let message = to(
                provider,
                recipient,
                json!({ "text": "canary-text", "links": [{ "url": "https://canary.example/" }] }),
            );
            seen.push(format!("{:?}", Outbound::of(&message)));
            seen.push(format!("{:?}", Outbound::of(&message).expect("good").payload));
            let mut odd = to(provider, recipient, json!({ "text": "canary-text" }));
            odd.headers.insert(CORRELATION_ID.into(), "canary with spaces".into());
            for message in
                [message, odd, to("canary-provider", "x", json!({})), to(provider, recipient, json!("canary"))]
            {
                let outcome = send(&sink, message).await;
                seen.push(format!("{outcome:?} {outcome:#?}"));
            }
        }
        seen.push(format!("{sink:?} {:?}", sink.ready().await));
        assert!(case == "closed" || server.take().len() >= 6, "{case} was asked");
    }
    for wrong in ["xoxb canary", "canary\n"] {
        let mut config = config("http://127.0.0.1:9");
        config.telegram = Some(TelegramConfig::new(Secret::new(wrong)));
        config.slack = Some(SlackConfig::new(Secret::new(wrong)));
        config.slack.as_mut().expect("Slack").endpoint = "https://canary:canary@canary/".into();
        seen.push(format!("{:?} {:?}", ProviderSink::new(&config).expect_err("refused"), config.problems()));
    }

    for text in &seen {
        assert!(!text.contains(CANARY), "{text}");
    }
    let log = log.text();
    assert!(log.contains("TRACE") && log.contains("log DEBUG reqwest"), "the log was listened to: {log}");
    let found = log.lines().find(|line| line.contains(CANARY));
    assert!(found.is_none(), "{found:?}");
    let told = log.lines().filter(|line| line.contains("a message for a provider has its outcome"));
    let with_ids = told.clone().filter(|line| {
        ["event_id=", "correlation_id=\"corr-1\"", "channel_message_id=\"chan-1\"", "provider=\"telegram\"", "outcome="]
            .iter()
            .all(|part| line.contains(part))
    });
    assert!(with_ids.count() >= CASES.len(), "the producer's ids are in the log");
    assert!(told.clone().any(|line| !line.contains("correlation_id")), "what is no id is not");
}
