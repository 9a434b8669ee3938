//! Orders over HTTP. [`place`] is what this example is about: the order and the message about it are written in one
//! transaction, so that there is never one without the other.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use postrider::{EnqueueError, Message, Outbox};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use uuid::Uuid;

/// What a customer sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    item: String,
    quantity: i32,
}

/// What is stored, answered to the customer, and told to the world.
#[derive(Debug, Serialize)]
pub struct Order {
    id: Uuid,
    item: String,
    quantity: i32,
}

/// Writes an order and its message, and takes the goods from stock, in one transaction.
pub async fn place(pool: &PgPool, outbox: &Outbox, new: NewOrder) -> Result<Order, OrderError> {
    let order = check(new)?;
    let mut transaction = pool.begin().await?;

    sqlx::query("insert into orders (id, item, quantity) values ($1, $2, $3)")
        .bind(order.id)
        .bind(&order.item)
        .bind(order.quantity)
        .execute(&mut *transaction)
        .await?;

    // The message: a row in the same database. Nobody sees it before the commit, and a rollback takes it away.
    let id = order.id.to_string();
    let message = Message::json("shop", "order.placed", &order).key(&id).dedupe_key(&id);
    let enqueued = outbox.enqueue(&mut transaction, message).await?;

    let taken = sqlx::query("update stock set quantity = quantity - $2 where item = $1 and quantity >= $2")
        .bind(&order.item)
        .bind(order.quantity)
        .execute(&mut *transaction)
        .await?;
    if taken.rows_affected() == 0 {
        // Returning drops the transaction, which rolls it back: neither the order nor its message was ever there.
        return Err(OrderError::OutOfStock);
    }

    transaction.commit().await?;
    tracing::info!(order = %order.id, event_id = %enqueued.id(), "order placed");
    Ok(order)
}

fn check(new: NewOrder) -> Result<Order, OrderError> {
    let item = new.item.trim().to_owned();
    if item.is_empty() || item.len() > 100 || item.chars().any(char::is_control) {
        return Err(OrderError::Invalid("item must have from 1 to 100 characters".into()));
    }
    if !(1..=1_000).contains(&new.quantity) {
        return Err(OrderError::Invalid("quantity must be from 1 to 1000".into()));
    }
    Ok(Order { id: Uuid::now_v7(), item, quantity: new.quantity })
}

/// Why there is no order. The customer is told what to do, and nothing about our insides.
#[derive(Debug)]
pub enum OrderError {
    /// The request is wrong, and why.
    Invalid(String),
    /// There is not enough of the item.
    OutOfStock,
    /// Our own trouble; it goes to the log only.
    Internal(anyhow::Error),
}

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        Self::Internal(error.into())
    }
}

impl From<EnqueueError> for OrderError {
    fn from(error: EnqueueError) -> Self {
        Self::Internal(error.into())
    }
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        let (status, reason) = match self {
            Self::Invalid(reason) => (StatusCode::BAD_REQUEST, reason),
            Self::OutOfStock => (StatusCode::CONFLICT, "not enough of this item in stock".to_owned()),
            Self::Internal(error) => {
                tracing::error!("an order failed: {error:#}");
                (StatusCode::INTERNAL_SERVER_ERROR, "the order was not placed; please try again".to_owned())
            }
        };
        (status, Json(serde_json::json!({ "error": reason }))).into_response()
    }
}

struct Shop {
    pool: PgPool,
    outbox: Outbox,
}

/// The HTTP interface: `POST /orders` with `{"item": …, "quantity": …}`.
pub fn router(pool: PgPool, outbox: Outbox) -> Router {
    Router::new().route("/orders", post(post_order)).with_state(Arc::new(Shop { pool, outbox }))
}

/// Reads the body whatever its content type says, so that a plain `curl -d` works.
async fn post_order(State(shop): State<Arc<Shop>>, body: Bytes) -> Result<(StatusCode, Json<Order>), OrderError> {
    let new = serde_json::from_slice(&body).map_err(|error| OrderError::Invalid(error.to_string()))?;
    let order = place(&shop.pool, &shop.outbox, new).await?;
    Ok((StatusCode::CREATED, Json(order)))
}

/// Makes the shop's own tables and fills the shelves.
pub async fn prepare(pool: &PgPool) -> Result<(), sqlx::Error> {
    let tables = "
        create table if not exists orders (
          id uuid primary key, item text not null, quantity int not null, placed_at timestamptz not null default now());
        create table if not exists stock (item text primary key, quantity int not null);
        insert into stock values ('lamp', 100), ('chair', 100), ('table', 100)
        on conflict (item) do update set quantity = excluded.quantity";
    sqlx::raw_sql(tables).execute(pool).await?;
    Ok(())
}
