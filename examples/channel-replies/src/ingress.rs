//! Webhooks: reserve the message, execute it, and put the reply into the outbox together with the message's last word.
//!
//! Only what was executed has a reply. If the reply cannot be enqueued the request fails: the message is `dispatch_failed`, the
//! caller gets 500, and nothing claims to have been answered. Providers repeat a webhook that failed, and a repetition takes over
//! what was `dispatch_failed`, and what is still `accepted` although whoever reserved it must have died. Each time a message is
//! taken over it is executed again; where something went wrong, the answer is what the table says in the end.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use postrider::sinks::provider::CHANNEL_MESSAGE_ID;
use postrider::{Message, Outbox};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::schema::begin_as;

/// What a provider's webhook brings. A real one is verified first, and its tenant is looked up.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)] // the fields say it
pub struct Incoming {
    pub tenant: Uuid,
    pub message_id: String,
    pub sender: String,
    pub text: String,
}

/// What came of a message.
enum Executed {
    Reply(String),
    Denied,
    Failed,
}

/// Runs a message. An agent does this in earnest; here a word decides.
fn execute(text: &str) -> Executed {
    match text {
        "forbidden" => Executed::Denied,
        "broken" => Executed::Failed,
        _ => Executed::Reply(format!("you said {text}")),
    }
}

/// The last word about a message. `accepted` is none of them: it is written on the way in only.
#[derive(Clone, Copy)]
enum Terminal {
    Executed,
    Denied,
    DispatchFailed,
}

impl Terminal {
    fn word(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Denied => "denied_policy",
            Self::DispatchFailed => "dispatch_failed",
        }
    }
}

/// How long a message may be `accepted`. After that whoever reserved it is taken for dead; longer than any execution lasts.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(120);

/// Whose turn a message is. Who has taken it over has another reservation, and the earlier one writes nothing any more.
#[derive(Clone, Copy)]
struct Reservation {
    message: Uuid,
    reservation: Uuid,
}

/// What came of an attempt to reserve a message.
enum Reserved {
    Ours(Reservation),
    /// It is done, or somebody is at it: the status.
    Earlier(String),
}

/// The webhooks' side of the program, with the application's role.
#[derive(Clone)]
pub struct Ingress {
    pool: PgPool,
    outbox: Outbox,
}

type Answer = (StatusCode, Json<Value>);

impl Ingress {
    /// An ingress on a pool of the application's role.
    pub fn new(pool: PgPool, outbox: Outbox) -> Self {
        Self { pool, outbox }
    }

    /// `POST /webhooks/{provider}`.
    pub fn router(self) -> Router {
        let receive = |State(ingress): State<Self>, Path(provider): Path<String>, Json(incoming): Json<Incoming>| async move {
            ingress.receive(&provider, incoming).await
        };
        Router::new().route("/webhooks/{provider}", post(receive)).with_state(self)
    }

    async fn receive(&self, provider: &str, incoming: Incoming) -> Answer {
        let reserved = match self.reserve(provider, &incoming).await {
            Ok(Reserved::Ours(reserved)) => reserved,
            // Providers repeat themselves; what is done or under way is not done again.
            Ok(Reserved::Earlier(status)) => return answer(&status),
            Err(error) => {
                tracing::error!(%error, "a message could not be accepted");
                return answer("not accepted");
            }
        };
        let message = reserved.message;
        let last = match execute(&incoming.text) {
            Executed::Reply(text) => match self.finish_with_reply(reserved, provider, &incoming, &text).await {
                Ok(()) => return answer(Terminal::Executed.word()),
                Err(error) => {
                    let correlation_id = correlation(message);
                    tracing::error!(%error, correlation_id, channel_message_id = %message, "enqueue failed");
                    Terminal::DispatchFailed
                }
            },
            Executed::Denied => Terminal::Denied,
            Executed::Failed => Terminal::DispatchFailed,
        };
        match self.settle(reserved, incoming.tenant, last).await {
            Ok(status) => answer(&status),
            Err(error) => {
                tracing::error!(%error, channel_message_id = %message, "nobody knows what became of a message");
                answer("unknown")
            }
        }
    }

    /// Writes the message as `accepted`, or takes over an earlier one with the same id that nobody works on any more.
    async fn reserve(&self, provider: &str, incoming: &Incoming) -> Result<Reserved, sqlx::Error> {
        let (message, reservation) = (Uuid::now_v7(), Uuid::new_v4());
        let mut transaction = begin_as(&self.pool, incoming.tenant).await?;
        let insert = "insert into channel_messages
                        (id, tenant_id, provider, provider_message_id, sender_id, correlation_id, status, reservation)
                      values ($1, $2, $3, $4, $5, $6, 'accepted', $7)
                      on conflict (tenant_id, provider, provider_message_id)
                      do update set status = 'accepted', reservation = excluded.reservation, reserved_at = now()
                      where channel_messages.status = 'dispatch_failed'
                         or channel_messages.status = 'accepted'
                            and channel_messages.reserved_at < now() - make_interval(secs => $8)
                      returning id";
        let insert = sqlx::query_scalar(insert).bind(message).bind(incoming.tenant).bind(provider);
        let insert = insert.bind(&incoming.message_id).bind(&incoming.sender).bind(correlation(message));
        let insert = insert.bind(reservation).bind(ABANDONED_AFTER.as_secs_f64());
        if let Some(message) = insert.fetch_optional(&mut *transaction).await? {
            transaction.commit().await?;
            return Ok(Reserved::Ours(Reservation { message, reservation }));
        }
        let earlier =
            "select status from channel_messages where tenant_id = $1 and provider = $2 and provider_message_id = $3";
        let earlier = sqlx::query_scalar(earlier).bind(incoming.tenant).bind(provider).bind(&incoming.message_id);
        Ok(Reserved::Earlier(earlier.fetch_one(&mut *transaction).await?))
    }

    /// The reply and the last word in one transaction: both are there, or neither is.
    async fn finish_with_reply(
        &self,
        reserved: Reservation,
        provider: &str,
        incoming: &Incoming,
        text: &str,
    ) -> anyhow::Result<()> {
        let message = reserved.message;
        let mut transaction = begin_as(&self.pool, incoming.tenant).await?;
        // The table has no column for the correlation id, so it travels in the payload, where no provider looks.
        let payload = json!({"text": text, "providers": {"channels": {"correlation_id": correlation(message)}}});
        let reply = Message::json("channels", provider.to_owned(), &payload)
            .key(&incoming.sender)
            .tenant(incoming.tenant)
            .header(CHANNEL_MESSAGE_ID, message.to_string());
        self.outbox.enqueue(&mut transaction, reply).await?;
        let ours = end(&mut transaction, reserved, Terminal::Executed).await?;
        anyhow::ensure!(ours, "somebody else has taken the message over");
        Ok(transaction.commit().await?)
    }

    /// Writes the last word unless it is there, and answers what the table says. The answer to a commit may have been lost: then
    /// the word is there already, and it counts.
    async fn settle(&self, reserved: Reservation, tenant: Uuid, last: Terminal) -> Result<String, sqlx::Error> {
        let mut transaction = begin_as(&self.pool, tenant).await?;
        end(&mut transaction, reserved, last).await?;
        let status = sqlx::query_scalar("select status from channel_messages where id = $1").bind(reserved.message);
        let status = status.fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(status)
    }
}

/// Gives a message its last word if it is still `accepted` and ours; answers whether it was.
async fn end(
    transaction: &mut sqlx::PgTransaction<'_>,
    reserved: Reservation,
    word: Terminal,
) -> Result<bool, sqlx::Error> {
    let update = "update channel_messages set status = $3 where id = $1 and reservation = $2 and status = 'accepted'";
    let update = sqlx::query(update).bind(reserved.message).bind(reserved.reservation).bind(word.word());
    Ok(update.execute(&mut **transaction).await?.rows_affected() == 1)
}

/// What ties logs together, from the webhook to the provider.
fn correlation(message: Uuid) -> String {
    format!("webhook-{message}")
}

/// What failed is the caller's to repeat; a denial is an answer.
fn answer(status: &str) -> Answer {
    let code = match status {
        "accepted" => StatusCode::ACCEPTED,
        "executed" | "denied_policy" => StatusCode::OK,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (code, Json(json!({ "status": status })))
}
