//! The log; a process of its own, because a process has one log.

use anyhow::Result;
use channel_replies::scene::{Scene, impatient};
use channel_replies::stub::Provider;
use sqlx::AssertSqlSafe;
use testkit::log::Log;
use uuid::Uuid;

#[tokio::test]
async fn s4_36_s4_37_claims_sends_retries_and_deaths_are_logged_with_correlation_and_message_ids() -> Result<()> {
    let log = Log::listen();
    let scene = Scene::start().await?;
    let program = scene.run(&impatient()?).await?;
    program.webhook(scene.tenants[0], "m-1", "hello canary").await?;
    scene.until("sent", 1).await?;
    program.stub.set(Provider::Down);
    program.webhook(scene.tenants[0], "m-2", "hello canary").await?;
    scene.until("dead", 1).await?;
    let revoke = format!("revoke insert on channel_outbox from {}", scene.app_role);
    sqlx::raw_sql(AssertSqlSafe(revoke)).execute(&scene.owner).await?;
    program.webhook(scene.tenants[0], "m-3", "hello canary").await?;
    program.stop().await?;

    let text = log.text();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains("channel_replies")).collect();
    let said = |step: &str, message: Uuid, correlation: &str| {
        let parts = [step.to_owned(), format!("{message}"), format!("correlation_id=\"{correlation}\"")];
        ours.iter().filter(|line| parts.iter().all(|part| line.contains(part.as_str()))).count()
    };
    let rows =
        "select channel_message_id, payload #>> '{providers,channels,correlation_id}', status from channel_outbox";
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(rows).fetch_all(&scene.relay).await?;
    assert_eq!(rows.len(), 2);
    for (message, correlation, status) in rows {
        let steps = ["step=\"claim\"", "step=\"sent\"", "step=\"retry\"", "step=\"dead\""];
        let counted = steps.map(|step| said(step, message, &correlation));
        assert_eq!(counted, if status == "sent" { [1, 1, 0, 0] } else { [5, 0, 4, 1] }, "{status}");
    }
    let failed = "select id, correlation_id from channel_messages where status = 'dispatch_failed'";
    let (message, correlation): (Uuid, String) = sqlx::query_as(failed).fetch_one(&scene.owner).await?;
    assert_eq!(said("enqueue failed", message, &correlation), 1);
    assert!(!ours.iter().any(|line| line.contains("canary")), "no text of anybody is in our lines");
    Ok(())
}
