//! WhatsApp: `messages` of Meta's Cloud API.
//!
//! Errors come as `{"error": {"code": …, "message": "…", "error_subcode": …, …}}`; Meta asks to go by the code. What
//! they mean:
//!
//! | `code` | outcome |
//! |---|---|
//! | 4, 17, 32, 613, 80007, 130429, 131048, 131056, 133016 | retry, not before `Retry-After`: too many messages |
//! | 1, 2, 131000, 131016, 131057, 133004 | retry: Meta has a problem |
//! | 0, 3, 10, 33, 190, 200 to 299, 368, 131005, 131031, 131037, 131042, 131045, 133005, 133006, 133008, 133010, 133015, and 100 with subcode 33 | retry: token, permissions, number, payment or account must be mended |
//! | 100, 131008, 131009, 131021, 131051, 131052, 131053, 132000 to 132999, 135000 | reject: this message cannot be sent |
//! | 130472, 130497, 131026, 131030, 131047, 131049, 131050 | reject: this recipient does not get it |
//! | any other | by its status: retry |
//!
//! The recipient is a telephone number with its country's code. Text can only be sent within 24 hours after the
//! recipient wrote (131047); outside of them give a template in `providers.whatsapp`, as `{"type": "template",
//! "template": {…}}`. "Accepted" means that Meta took it: whether it reached a telephone comes later to a webhook of
//! yours, with the event id in `biz_opaque_callback_data`. There is no idempotency key, so a message whose answer was
//! lost may appear twice.

use async_trait::async_trait;
use postrider_core::Outcome;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};

use super::adapter::{Adapter, Outbound};
use super::config::WhatsappConfig;
use super::endpoint::{Answer, Endpoint};
use super::outcome::{Judged, Verdict, by_status};
use crate::http::HttpClient;
use crate::problem::ConfigProblem;

/// Sends messages from a number of WhatsApp's Cloud API.
#[derive(Debug)]
pub(super) struct WhatsappAdapter {
    endpoint: Endpoint,
    path: String,
}

impl WhatsappAdapter {
    pub(super) fn new(client: &HttpClient, config: &WhatsappConfig) -> Result<Self, ConfigProblem> {
        let endpoint = Endpoint::new(client, "whatsapp.endpoint", &config.endpoint, Some(&config.access_token))?;
        Ok(Self { endpoint, path: format!("{}/{}/messages", config.api_version, config.phone_number_id) })
    }
}

fn request(outbound: &Outbound<'_>) -> Result<Value, String> {
    let payload = &outbound.payload;
    let mut request = Map::from_iter([
        ("messaging_product".to_owned(), "whatsapp".into()),
        ("recipient_type".to_owned(), "individual".into()),
        ("to".to_owned(), outbound.recipient.into()),
        ("biz_opaque_callback_data".to_owned(), outbound.correlation.event_id.to_string().into()),
    ]);
    // A template, an image and so on take the place of the text.
    if !payload.for_provider(outbound.provider).is_some_and(|own| own.contains_key("type")) {
        request.insert("type".into(), "text".into());
        request.insert("text".into(), json!({ "preview_url": false, "body": payload.plain() }));
    }
    payload.extend(&mut request, outbound.provider, &["messaging_product", "to"])?;
    Ok(request.into())
}

/// What Meta's answer means. See the table above.
fn judge(answer: &Answer) -> Judged {
    let Some(body) = &answer.body else { return by_status("WhatsApp", answer.status, answer.retry_after) };
    if answer.status.is_success() && body["messages"][0]["id"].is_string() {
        return Judged::new(Verdict::Sent, "WhatsApp has it");
    }
    let Some(code) = body["error"]["code"].as_u64() else {
        return by_status("WhatsApp", answer.status, answer.retry_after);
    };
    let (verdict, words) = meaning(code, body["error"]["error_subcode"].as_u64());
    let verdict = match verdict {
        Some(verdict) => verdict,
        None if answer.status == StatusCode::TOO_MANY_REQUESTS => Verdict::Limited,
        None => Verdict::Transient,
    };
    Judged::new(verdict, format!("WhatsApp answered {code}: {words}")).after(answer.retry_after)
}

fn meaning(code: u64, subcode: Option<u64>) -> (Option<Verdict>, &'static str) {
    use Verdict::{Account, Limited, Refused, Transient};
    let (verdict, words) = match (code, subcode) {
        (4 | 17 | 32 | 613 | 80007 | 130429 | 131048 | 131056 | 133016, _) => (Limited, "too many messages"),
        (1 | 2 | 131000 | 131016 | 131057 | 133004, _) => (Transient, "it has a problem that passes"),
        (0 | 190, _) => (Account, "mend whatsapp.access_token"),
        (3 | 10 | 200..=299 | 131005, _) => (Account, "mend the permissions of whatsapp.access_token"),
        // The number does not exist for this token: a mistake in the configuration, not in the message.
        (33, _) | (100, Some(33)) => (Account, "mend whatsapp.phone_number_id, or what the token may see"),
        (131037 | 131045 | 133005 | 133006 | 133008 | 133010 | 133015, _) => {
            (Account, "mend the number's registration")
        }
        (368 | 131031, _) => (Account, "the account is restricted or locked"),
        (131042, _) => (Account, "mend the account's payment"),
        (131047, _) => (Refused, "the recipient last wrote more than 24 hours ago; only a template can be sent"),
        (131026, _) => (Refused, "it cannot be delivered to this recipient"),
        (131021, _) => (Refused, "sender and recipient are the same number"),
        (131030, _) => (Refused, "the recipient is not on the list of a test number"),
        (130472 | 130497 | 131049 | 131050, _) => (Refused, "this recipient does not get such messages"),
        (132000..=132999, _) => (Refused, "the template is not there, not approved, or does not fit"),
        (100 | 131008 | 131009 | 131051 | 131052 | 131053 | 135000, _) => {
            (Refused, "the message cannot be sent as it is")
        }
        _ => return (None, "this error is not known to be final"),
    };
    (Some(verdict), words)
}

#[async_trait]
impl Adapter for WhatsappAdapter {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        let request = match request(outbound) {
            Ok(request) => request,
            Err(why) => return Outcome::Unsendable(why),
        };
        match self.endpoint.post(&self.path, &request).await {
            Ok(answer) => judge(&answer).outcome(),
            Err(outcome) => outcome,
        }
    }

    /// Whether somebody takes connections. There is no question that every token may ask.
    async fn ready(&self) -> Result<(), String> {
        self.endpoint.ready().await
    }
}
