//! Slack: `chat.postMessage` of the Web API.
//!
//! Errors come with status 200 and `{"ok": false, "error": "…"}`; what their codes mean:
//!
//! | `error` | outcome |
//! |---|---|
//! | `ratelimited`, `rate_limited`, `message_limit_exceeded`, and status 429 | retry, not before `Retry-After` |
//! | `service_unavailable`, `request_timeout`, `team_added_to_org`, `org_login_required`, and status 5xx | retry |
//! | `internal_error`, `fatal_error` | unknown: Slack says that a part of it may have worked |
//! | `not_authed`, `invalid_auth`, `account_inactive`, `token_revoked`, `token_expired`, `missing_scope`, `no_permission`, `access_denied`, `accesslimited`, `ekm_access_denied`, `enterprise_is_restricted`, `not_allowed_token_type`, `team_access_not_granted`, `two_factor_setup_required`, `messages_tab_disabled`, `metadata_must_be_sent_from_app`, `method_deprecated`, `deprecated_endpoint` | retry: the token, the app or the workspace must be mended |
//! | `channel_not_found`, `not_in_channel`, `is_archived`, `restricted_action` and those that begin so, `user_not_found`, `cannot_dm_bot` | reject: this recipient cannot get it |
//! | `msg_too_long`, `no_text`, `invalid_blocks`, `invalid_blocks_format`, `msg_blocks_too_long`, `too_many_attachments`, `attachment_payload_limit_exceeded`, `invalid_arguments`, `invalid_arg_name`, `invalid_array_arg`, `invalid_metadata_format`, `invalid_metadata_schema`, `metadata_too_large`, `markdown_text_conflict`, `cannot_reply_to_message`, `as_user_not_supported`, `slack_connect_file_link_sharing_blocked` | reject: this message cannot be sent |
//! | any other | retry |
//!
//! The recipient is a channel's id or name, or a user's id. `chat.postMessage` has no documented idempotency key
//! (`client_msg_id` appears only in two of its errors), so a message whose answer was lost may appear twice. The event
//! id is in the message's metadata, where a reader can tell such twins.

use async_trait::async_trait;
use postrider_core::Outcome;
use serde_json::{Map, Value, json};

use super::adapter::{Adapter, Correlation, Outbound, plain_id};
use super::config::SlackConfig;
use super::endpoint::{Answer, Endpoint};
use super::outcome::{Judged, Verdict, by_status};
use crate::http::HttpClient;
use crate::problem::ConfigProblem;

/// Slack cuts off what is longer, and says nothing.
const LONGEST_TEXT: usize = 40_000;
/// What `event_type` of the metadata says.
const EVENT_TYPE: &str = "postrider_message";

/// Sends messages to Slack.
#[derive(Debug)]
pub(super) struct SlackAdapter {
    endpoint: Endpoint,
    metadata: bool,
}

impl SlackAdapter {
    pub(super) fn new(client: &HttpClient, config: &SlackConfig) -> Result<Self, ConfigProblem> {
        let endpoint = Endpoint::new(client, "slack.endpoint", &config.endpoint, Some(&config.token))?;
        Ok(Self { endpoint, metadata: config.metadata })
    }

    fn request(&self, outbound: &Outbound<'_>) -> Result<Value, String> {
        let payload = &outbound.payload;
        let own = payload.for_provider(outbound.provider);
        let mut request = Map::from_iter([("channel".to_owned(), outbound.recipient.into())]);
        // Who writes Slack's markup writes the whole text in it.
        if !own.is_some_and(|own| own.contains_key("text") || own.contains_key("markdown_text")) {
            let text = escape(&payload.plain());
            if text.chars().count() > LONGEST_TEXT {
                return Err(format!("its text is longer than {LONGEST_TEXT} characters, and Slack would cut it off"));
            }
            request.extend([("text".to_owned(), text.into()), ("mrkdwn".to_owned(), false.into())]);
        }
        if self.metadata {
            request.insert("metadata".into(), metadata(&outbound.correlation));
        }
        payload.extend(&mut request, outbound.provider, &["channel", "token"])?;
        Ok(request.into())
    }
}

/// In Slack's text these three begin markup, also when markup is switched off: `<!channel>` rings for everybody.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Slack limits metadata, and no message should die of a long id.
fn metadata(correlation: &Correlation<'_>) -> Value {
    let ids = [
        ("event_id", Some(correlation.event_id.to_string())),
        ("correlation_id", plain_id(correlation.correlation_id).map(str::to_owned)),
        ("channel_message_id", plain_id(correlation.channel_message_id).map(str::to_owned)),
    ];
    let ids: Map<String, Value> =
        ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?.into()))).collect();
    json!({ "event_type": EVENT_TYPE, "event_payload": ids })
}

/// What Slack's answer means. See the table above.
fn judge(answer: &Answer) -> Judged {
    let body = answer.body.as_ref();
    let error = match (body.and_then(|body| body["ok"].as_bool()), body.and_then(|body| body["error"].as_str())) {
        (Some(true), _) if answer.status.is_success() => return Judged::new(Verdict::Sent, "Slack has it"),
        (Some(false), Some(error)) => error,
        _ => return by_status("Slack", answer.status, answer.retry_after),
    };
    let (verdict, words) = meaning(error);
    // A code is a word; what is none may be anything.
    let is_code = error.len() <= 64 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let code = if is_code { error } else { "an error that is no code" };
    Judged::new(verdict, format!("Slack answered {code}: {words}")).after(answer.retry_after)
}

fn meaning(error: &str) -> (Verdict, &'static str) {
    match error {
        "ratelimited" | "rate_limited" | "message_limit_exceeded" => (Verdict::Limited, "too many messages"),
        "service_unavailable" | "request_timeout" | "team_added_to_org" | "org_login_required" => {
            (Verdict::Transient, "it has a problem that passes")
        }
        "internal_error" | "fatal_error" => (Verdict::Doubtful, "it failed, and may have sent it all the same"),
        "not_authed"
        | "invalid_auth"
        | "account_inactive"
        | "token_revoked"
        | "token_expired"
        | "not_allowed_token_type" => (Verdict::Account, "mend slack.token"),
        "missing_scope"
        | "no_permission"
        | "access_denied"
        | "accesslimited"
        | "ekm_access_denied"
        | "enterprise_is_restricted"
        | "team_access_not_granted"
        | "two_factor_setup_required"
        | "messages_tab_disabled"
        | "metadata_must_be_sent_from_app"
        | "method_deprecated"
        | "deprecated_endpoint" => (Verdict::Account, "mend the app's scopes or the workspace's settings"),
        "channel_not_found" => (Verdict::Refused, "there is no such channel, or the app cannot see it"),
        "not_in_channel" => (Verdict::Refused, "the app is not in the channel; invite it and replay the message"),
        "is_archived" => (Verdict::Refused, "the channel is archived"),
        "user_not_found" | "cannot_dm_bot" => (Verdict::Refused, "there is nobody who could get it"),
        error if error.starts_with("restricted_action") => (Verdict::Refused, "the app may not post in this channel"),
        "msg_too_long"
        | "no_text"
        | "invalid_blocks"
        | "invalid_blocks_format"
        | "msg_blocks_too_long"
        | "too_many_attachments"
        | "attachment_payload_limit_exceeded"
        | "invalid_arguments"
        | "invalid_arg_name"
        | "invalid_array_arg"
        | "invalid_metadata_format"
        | "invalid_metadata_schema"
        | "metadata_too_large"
        | "markdown_text_conflict"
        | "cannot_reply_to_message"
        | "as_user_not_supported"
        | "slack_connect_file_link_sharing_blocked" => (Verdict::Refused, "the message cannot be sent as it is"),
        _ => (Verdict::Transient, "this error is not known to be final"),
    }
}

#[async_trait]
impl Adapter for SlackAdapter {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        let request = match self.request(outbound) {
            Ok(request) => request,
            Err(why) => return Outcome::Unsendable(why),
        };
        match self.endpoint.post("chat.postMessage", &request).await {
            Ok(answer) => judge(&answer).outcome(),
            Err(outcome) => outcome,
        }
    }

    /// Asks Slack whether the token is good.
    async fn ready(&self) -> Result<(), String> {
        self.endpoint.ready().await?;
        match self.endpoint.post("auth.test", &json!({})).await {
            Ok(answer) => judge(&answer).ready(),
            Err(_) => Err("no answer".into()),
        }
    }
}
