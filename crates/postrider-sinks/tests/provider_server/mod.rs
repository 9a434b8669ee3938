//! A server that speaks the formats of Slack, Telegram and WhatsApp. It takes only requests that the real ones would
//! take, word for word, and keeps what was wrong with the others.
#![allow(dead_code)] // each test uses a part of it

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::provider::{
    CHANNEL_MESSAGE_ID, CORRELATION_ID, PROVIDER, ProviderConfig, ProviderSink, RECIPIENT, SlackConfig, TelegramConfig,
    WhatsappConfig,
};
use postrider_sinks::setting::Secret;
use serde_json::{Map, Value, json};

use crate::support::{Received, Reply, Server, message};

pub const SLACK_TOKEN: &str = "xoxb-1-canary-slack-token";
pub const TELEGRAM_TOKEN: &str = "4711:canary-telegram-token";
pub const WHATSAPP_TOKEN: &str = "EAAcanaryWhatsappToken";
pub const NUMBER_ID: &str = "106540352242922";

/// A request that is as it should be.
#[derive(Debug, Clone)]
pub struct Call {
    pub provider: &'static str,
    /// Empty for questions that are no messages.
    pub recipient: String,
    pub method: String,
    pub body: Value,
}

/// The server, with what it got.
pub struct Api {
    pub server: Server,
    pub calls: Arc<Mutex<Vec<Call>>>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Api {
    pub async fn start(answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let (calls, complaints) = <(Arc<Mutex<Vec<Call>>>, Arc<Mutex<Vec<String>>>)>::default();
        let (log, wrong) = (calls.clone(), complaints.clone());
        let server = Server::start(move |request| match examine(request) {
            Ok(call) => {
                let reply = answer(&call);
                log.lock().expect("not poisoned").push(call);
                reply
            }
            Err(complaint) => {
                wrong.lock().expect("not poisoned").push(complaint);
                http(599, "", "complaint")
            }
        });
        Self { server: server.await, calls, complaints }
    }

    /// All messages so far; panics if there was a request that a provider would not understand.
    pub fn take(&self) -> Vec<Call> {
        let complaints = std::mem::take(&mut *self.complaints.lock().expect("not poisoned"));
        assert!(complaints.is_empty(), "{complaints:#?}");
        std::mem::take(&mut *self.calls.lock().expect("not poisoned"))
    }

    /// A configuration that leads here.
    pub fn config(&self) -> ProviderConfig {
        let mut config = ProviderConfig::default();
        let mut slack = SlackConfig::new(Secret::new(SLACK_TOKEN));
        slack.endpoint = self.server.url("/slack/api");
        let mut telegram = TelegramConfig::new(Secret::new(TELEGRAM_TOKEN));
        telegram.endpoint = self.server.url("/telegram/");
        let mut whatsapp = WhatsappConfig::new(Secret::new(WHATSAPP_TOKEN), NUMBER_ID);
        whatsapp.endpoint = self.server.url("/whatsapp");
        (config.slack, config.telegram, config.whatsapp) = (Some(slack), Some(telegram), Some(whatsapp));
        config.allow_addresses = vec!["127.0.0.1".into()];
        (config.connect_timeout, config.timeout) = (Duration::from_secs(30), Duration::from_secs(30));
        config
    }

    pub fn sink(&self) -> ProviderSink {
        ProviderSink::new(&self.config()).expect("a sink")
    }
}

pub fn to(provider: &str, recipient: &str, payload: Value) -> ClaimedMessage {
    let mut message = message("chat", "reply", Payload::Json(payload.to_string()));
    for (name, value) in
        [(PROVIDER, provider), (RECIPIENT, recipient), (CORRELATION_ID, "corr-1"), (CHANNEL_MESSAGE_ID, "chan-1")]
    {
        message.headers.insert(name.into(), value.into());
    }
    message
}

pub async fn send(sink: &ProviderSink, message: ClaimedMessage) -> Outcome {
    sink.publish(&[message]).await.remove(0)
}

/// Whether a request is one that the provider would understand, and what it says.
fn examine(request: &Received) -> Result<Call, String> {
    let expect = |good: bool, what: &str| if good { Ok(()) } else { Err(format!("{what}: {:?}", request.lines)) };
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    expect(request.lines[0] == format!("POST {} HTTP/1.1", request.path), "the method is not POST")?;
    expect(header("content-type") == Some("application/json; charset=utf-8"), "the content type")?;
    expect(header("user-agent").is_some_and(|agent| agent.starts_with("postrider/")), "the user agent")?;
    let body: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
    let fields = body.as_object().ok_or("the body is no object")?;
    let bearer = |token: &str| header("authorization") == Some(format!("Bearer {token}").as_str());
    let call = |provider, recipient: &Value, method: &str| {
        let recipient = recipient.as_str().map_or_else(|| recipient.to_string(), str::to_owned);
        Call { provider, recipient, method: method.to_owned(), body: body.clone() }
    };
    let quiet = Value::String(String::new());
    if let Some(method) = request.path.strip_prefix("/slack/api/") {
        expect(bearer(SLACK_TOKEN), "Slack's token")?;
        return match method {
            "auth.test" => Ok(call("slack", &quiet, method)),
            "chat.postMessage" => slack(fields).map(|()| call("slack", &body["channel"], method)),
            _ => Err(format!("Slack has no method {method}")),
        };
    }
    if let Some(method) = request.path.strip_prefix(&format!("/telegram/bot{TELEGRAM_TOKEN}/")) {
        expect(header("authorization").is_none(), "Telegram's token is in the path only")?;
        return match method {
            "getMe" => Ok(call("telegram", &quiet, method)),
            "sendMessage" => telegram(fields).map(|()| call("telegram", &body["chat_id"], method)),
            _ => Err(format!("Telegram has no method {method}")),
        };
    }
    expect(request.path == format!("/whatsapp/v25.0/{NUMBER_ID}/messages"), "no provider has this path")?;
    expect(bearer(WHATSAPP_TOKEN), "WhatsApp's token")?;
    whatsapp(fields).map(|()| call("whatsapp", &body["to"], "messages"))
}

/// A field's name, whether it must be there, and what it must be.
type Field = (&'static str, bool, fn(&Value) -> bool);

/// No field may be wrong, missing or unknown.
fn shape(fields: &Map<String, Value>, known: &[Field]) -> Result<(), String> {
    let unknown = fields.keys().find(|name| !known.iter().any(|(known, ..)| known == name));
    if let Some(name) = unknown {
        return Err(format!("unknown field {name}"));
    }
    for (name, required, good) in known {
        match fields.get(*name) {
            Some(value) if good(value) => {}
            None if !required => {}
            other => return Err(format!("{name} is {other:?}")),
        }
    }
    Ok(())
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn slack(fields: &Map<String, Value>) -> Result<(), String> {
    let metadata = |value: &Value| text(&value["event_type"]) && value["event_payload"].is_object();
    let known: [Field; 6] = [
        ("channel", true, text),
        ("text", true, text),
        ("mrkdwn", false, Value::is_boolean),
        ("metadata", false, metadata),
        ("blocks", false, Value::is_array),
        ("thread_ts", false, text),
    ];
    shape(fields, &known)
}

fn telegram(fields: &Map<String, Value>) -> Result<(), String> {
    let chat = |value: &Value| value.is_i64() || value.as_str().is_some_and(|name| name.starts_with('@'));
    let known: [Field; 4] = [
        ("chat_id", true, chat),
        ("text", true, text),
        ("parse_mode", false, text),
        ("disable_notification", false, Value::is_boolean),
    ];
    shape(fields, &known)
}

fn whatsapp(fields: &Map<String, Value>) -> Result<(), String> {
    let body = |value: &Value| {
        text(&value["body"])
            && value.as_object().is_some_and(|text| text.keys().all(|name| name == "body" || name == "preview_url"))
    };
    let is_text = fields.get("type") == Some(&json!("text"));
    let known: [Field; 7] = [
        ("messaging_product", true, |value| value == "whatsapp"),
        ("recipient_type", true, |value| value == "individual"),
        ("to", true, text),
        ("type", true, |value| value == "text" || value == "template"),
        ("text", is_text, body),
        ("template", !is_text, Value::is_object),
        ("biz_opaque_callback_data", true, |value| value.as_str().is_some_and(|data| data.len() <= 512)),
    ];
    shape(fields, &known)
}

/// An answer with any body.
pub fn http(status: u16, lines: &str, body: &str) -> Reply {
    let head = format!("HTTP/1.1 {status} Whatever\r\n{lines}content-length: {}\r\n\r\n", body.len());
    Reply::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

/// As the provider of a request says that all is well.
pub fn fine(call: &Call) -> Reply {
    let body = match (call.provider, call.method.as_str()) {
        ("slack", "auth.test") => json!({ "ok": true, "url": "https://example.slack.com/", "user_id": "U1" }),
        ("slack", _) => json!({
            "ok": true, "channel": call.recipient, "ts": "1503435956.000247",
            "message": { "text": call.body["text"], "type": "message", "subtype": "bot_message" },
        }),
        ("telegram", "getMe") => json!({ "ok": true, "result": { "id": 4711, "is_bot": true, "first_name": "Bot" } }),
        ("telegram", _) => json!({
            "ok": true, "result": { "message_id": 7, "chat": { "id": 1 }, "date": 1, "text": call.body["text"] },
        }),
        _ => json!({
            "messaging_product": "whatsapp", "contacts": [{ "input": call.recipient, "wa_id": call.recipient }],
            "messages": [{ "id": "wamid.HBgLMTY1MDM4Nzk0MzkVAgARGBI" }],
        }),
    };
    http(200, "content-type: application/json\r\n", &body.to_string())
}

pub fn slack_error(error: &str) -> Reply {
    http(200, "", &json!({ "ok": false, "error": error }).to_string())
}

pub fn telegram_error(code: u16, description: &str, parameters: Option<Value>) -> Reply {
    let mut body = json!({ "ok": false, "error_code": code, "description": description });
    if let Some(parameters) = parameters {
        body["parameters"] = parameters;
    }
    http(code, "content-type: application/json\r\n", &body.to_string())
}

pub fn whatsapp_error(status: u16, code: u64, subcode: Option<u64>, lines: &str) -> Reply {
    let mut body = json!({ "error": {
        "message": format!("(#{code}) canary"), "type": "OAuthException", "code": code,
        "error_data": { "messaging_product": "whatsapp", "details": "canary" }, "fbtrace_id": "Az8or2yhqkZfEZ-_4Qn_Bam",
    } });
    if let Some(subcode) = subcode {
        body["error"]["error_subcode"] = subcode.into();
    }
    http(status, lines, &body.to_string())
}
