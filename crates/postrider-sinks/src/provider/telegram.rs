//! Telegram: `sendMessage` of the Bot API.
//!
//! The token is a part of the path, so no error and no log has the address. Errors come with their status and
//! `{"ok": false, "error_code": …, "description": "…", "parameters": {…}}`; what they mean:
//!
//! | `error_code` | `description` | outcome |
//! |---|---|---|
//! | 429 | | retry, not before `parameters.retry_after` seconds |
//! | 500 and above, 408, 409 | | retry |
//! | 401, 404 | | retry: the token or the endpoint must be mended |
//! | 400 | with `parameters.migrate_to_chat_id` | sent again at once, to the chat that the group became |
//! | 400 | any other, such as chat not found, message is too long, not enough rights | reject |
//! | 403 | the bot was blocked or kicked, is no member, cannot begin a conversation or write to bots; the user is deactivated | reject |
//! | 403 | any other | retry: Telegram is known to say so during problems of its own |
//!
//! The recipient is a chat's number or an `@name`. There is no idempotency key, so a message whose answer was lost may
//! appear twice.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::Outcome;
use serde_json::{Map, Value, json};

use super::adapter::{Adapter, Outbound};
use super::config::TelegramConfig;
use super::endpoint::{Answer, Endpoint};
use super::outcome::{Judged, Verdict, by_status};
use crate::http::HttpClient;
use crate::http::outcome::LONGEST_RETRY_AFTER;
use crate::problem::ConfigProblem;
use crate::setting::Secret;

/// Sends messages as a bot of Telegram.
#[derive(Debug)]
pub(super) struct TelegramAdapter {
    endpoint: Endpoint,
    token: Secret,
}

impl TelegramAdapter {
    pub(super) fn new(client: &HttpClient, config: &TelegramConfig) -> Result<Self, ConfigProblem> {
        let endpoint = Endpoint::new(client, "telegram.endpoint", &config.endpoint, None)?;
        Ok(Self { endpoint, token: config.token.clone() })
    }

    async fn call(&self, method: &str, request: &Value) -> Result<Answer, Outcome> {
        self.endpoint.post(&format!("bot{}/{method}", self.token.expose()), request).await
    }
}

fn request(outbound: &Outbound<'_>) -> Result<Map<String, Value>, String> {
    let chat: Value = match (outbound.recipient.parse::<i64>(), outbound.recipient.strip_prefix('@')) {
        (Ok(number), _) => number.into(),
        (_, Some(name)) if !name.is_empty() => outbound.recipient.into(),
        _ => return Err("its recipient is neither a chat's number nor an @name".into()),
    };
    let mut request =
        Map::from_iter([("chat_id".to_owned(), chat), ("text".to_owned(), outbound.payload.plain().into())]);
    outbound.payload.extend(&mut request, outbound.provider, &["chat_id"])?;
    Ok(request)
}

/// The chat that a group became, if that is why Telegram refused.
fn moved_to(answer: &Answer) -> Option<i64> {
    answer.body.as_ref().filter(|body| body["ok"] == false)?["parameters"]["migrate_to_chat_id"].as_i64()
}

/// What Telegram's answer means. See the table above.
fn judge(answer: &Answer) -> Judged {
    let body = answer.body.as_ref();
    match body.and_then(|body| body["ok"].as_bool()) {
        Some(true) if answer.status.is_success() => return Judged::new(Verdict::Sent, "Telegram has it"),
        Some(false) => {}
        _ => return by_status("Telegram", answer.status, answer.retry_after),
    }
    let field = |name: &str| body.map_or(&Value::Null, |body| &body[name]);
    let code = field("error_code").as_u64().unwrap_or(u64::from(answer.status.as_u16()));
    let after = field("parameters")["retry_after"].as_u64().filter(|seconds| *seconds > 0);
    let after = after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER)).or(answer.retry_after);
    let (verdict, words) = meaning(code, &field("description").as_str().unwrap_or_default().to_ascii_lowercase());
    Judged::new(verdict, format!("Telegram answered {code}: {words}")).after(after)
}

/// What descriptions say of a 400. They may quote the message, so these words take their place.
const BAD_REQUESTS: [(&str, &str); 10] = [
    ("chat not found", "there is no such chat, or the bot was never in it"),
    ("user not found", "there is no such user"),
    ("peer_id_invalid", "there is no such chat"),
    ("message is too long", "the text is too long"),
    ("message text is empty", "the text is empty"),
    ("can't parse entities", "the markup in its text is wrong"),
    ("upgraded to a supergroup", "the group became another chat"),
    ("not enough rights", "the bot may not write in this chat"),
    ("have no rights", "the bot may not write in this chat"),
    ("chat_write_forbidden", "the bot may not write in this chat"),
];

/// What descriptions say of a 403 that is final.
const FORBIDDEN: [(&str, &str); 6] = [
    ("blocked by the user", "the user blocked the bot"),
    ("was kicked", "the bot was put out of the chat"),
    ("user is deactivated", "the user is gone"),
    ("can't initiate conversation", "the user must write to the bot first"),
    ("is not a member", "the bot is not in the chat"),
    ("can't send messages to bots", "bots do not get messages of bots"),
];

fn meaning(code: u64, description: &str) -> (Verdict, &'static str) {
    let find = |known: &[(&str, &'static str)]| {
        known.iter().find(|(text, _)| description.contains(text)).map(|(_, words)| *words)
    };
    match code {
        429 => (Verdict::Limited, "too many messages"),
        401 | 404 => (Verdict::Account, "it does not know the bot; mend telegram.token or telegram.endpoint"),
        400 => (Verdict::Refused, find(&BAD_REQUESTS).unwrap_or("the message cannot be sent as it is")),
        403 => match find(&FORBIDDEN) {
            Some(words) => (Verdict::Refused, words),
            None => (Verdict::Transient, "it is forbidden, for a reason that is not known to be final"),
        },
        _ => (Verdict::Transient, "it has a problem"),
    }
}

#[async_trait]
impl Adapter for TelegramAdapter {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        let mut request = match request(outbound) {
            Ok(request) => request,
            Err(why) => return Outcome::Unsendable(why),
        };
        let mut answer = self.call("sendMessage", &Value::Object(request.clone())).await;
        if let Some(chat) = answer.as_ref().ok().and_then(moved_to) {
            request.insert("chat_id".into(), chat.into());
            answer = self.call("sendMessage", &Value::Object(request)).await;
        }
        match answer {
            Ok(answer) => judge(&answer).outcome(),
            Err(outcome) => outcome,
        }
    }

    /// Asks Telegram who the bot is.
    async fn ready(&self) -> Result<(), String> {
        self.endpoint.ready().await?;
        match self.call("getMe", &json!({})).await {
            Ok(answer) => judge(&answer).ready(),
            Err(_) => Err("no answer".into()),
        }
    }
}
