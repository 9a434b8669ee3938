//! The demo: a customer that places orders over HTTP and looks at what the world was told.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::delivery::World;

const PATIENCE: Duration = Duration::from_secs(30);

/// Places five orders of which one delivery fails at first, and one order that is rolled back.
pub async fn run(address: SocketAddr, pool: &PgPool, world: &World) -> Result<()> {
    let mut received = world.received();
    println!("\nFive orders; the first delivery fails once:");
    world.fail_once();
    let mut placed = Vec::new();
    for (item, quantity) in [("lamp", 2), ("chair", 4), ("table", 1), ("lamp", 1), ("chair", 2)] {
        let (status, order) = post(address, &json!({ "item": item, "quantity": quantity })).await?;
        ensure!(status == 201, "the shop answered {status}: {order}");
        println!("  placed     {quantity} × {item}");
        placed.push(order["id"].as_str().context("an order has an id")?.parse::<Uuid>()?);
    }
    let all = received.wait_for(|received| placed.iter().all(|order| received.contains(order)));
    tokio::time::timeout(PATIENCE, all).await.context("not every order was delivered in time")??;

    println!("\nOne order that is rolled back, because there are not so many lamps:");
    let before = count(pool).await?;
    let (status, answer) = post(address, &json!({ "item": "lamp", "quantity": 999 })).await?;
    println!("  refused    {status} {answer}");
    ensure!(status == 409 && count(pool).await? == before, "a refused order left something behind");
    println!("  no order, no message: the outbox has {before} messages, as before");

    println!("\nOne that makes no sense:");
    let (status, answer) = post(address, &json!({ "item": "lamp", "quantity": 0 })).await?;
    println!("  refused    {status} {answer}");
    ensure!(status == 400, "bad input must be refused");
    println!("\nAll {} orders were delivered.", placed.len());
    Ok(())
}

async fn count(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar("select count(*) from outbox_messages").fetch_one(pool).await?)
}

/// Just enough HTTP for one request: posts an order, answers the status and the JSON that came back.
pub async fn post(address: SocketAddr, order: &Value) -> Result<(u16, Value)> {
    let body = order.to_string();
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).context("no status")?.parse()?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok((status, serde_json::from_str(body)?))
}
