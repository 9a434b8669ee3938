//! Shows what the outbox of channel replies promises, with how it was checked. Read `lib.rs` first.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use channel_replies::scene::{PATIENCE, PROVIDER, Scene, few_at_a_time, impatient, without_worker};
use channel_replies::schema::begin_as;
use channel_replies::settings::Settings;
use channel_replies::stub::{Provider, Stub};
use sqlx::{AssertSqlSafe, PgPool};
use testkit::log::Log;
use testkit::show::Proof;
use testkit::within;
use uuid::Uuid;

const REPLIES: usize = 30;

#[tokio::main]
async fn main() -> Result<()> {
    let log = Log::listen();
    let mut proof = Proof::default();
    println!("Starting a private PostgreSQL …");
    let scene = Scene::start().await?;
    println!("\nExecution and enqueue, with the worker off");
    execution(&scene, &mut proof).await?;
    println!("\nTenants");
    tenants(&scene, &mut proof).await?;
    println!("\nThe worker");
    rollout(&scene, &mut proof).await?;
    workers(&scene, &mut proof).await?;
    outage(&scene, &mut proof).await?;
    crash(&scene, &mut proof).await?;
    death(&scene, &mut proof).await?;
    println!("\nWhat operators see");
    operators(&scene, &log, &mut proof).await?;
    proof.end()
}

async fn execution(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let program = scene.run(&without_worker()?).await?;
    let tenant = scene.tenants[0];
    let executed = program.webhook(tenant, "m-1", "hello").await? == (200, "executed".into());
    let again = program.webhook(tenant, "m-1", "hello").await? == (200, "executed".into());
    let denied = program.webhook(tenant, "m-2", "forbidden").await? == (200, "denied_policy".into());
    let failed = program.webhook(tenant, "m-3", "broken").await? == (500, "dispatch_failed".into());
    let one = scene.replies().await?.into_iter().eq([("pending".to_owned(), 1)]);
    let how = "one executed, repeated, denied and broken each: one row";
    proof.see("only what was executed is enqueued", how, executed && again && denied && failed && one);

    let may = async |verb: &str| {
        let sql = verb.replace("{app}", &scene.app_role);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&scene.owner).await
    };
    may("revoke insert on channel_outbox from {app}").await?;
    let refused = program.webhook(tenant, "m-4", "hello").await? == (500, "dispatch_failed".into());
    may("grant insert on channel_outbox to {app}").await?;
    let kept = scene.message("m-4").await? == "dispatch_failed" && scene.replies().await?.values().sum::<i64>() == 1;
    let how = "the right to insert was taken away: 500, and dispatch_failed in the table";
    proof.see("an enqueue that fails fails the request", how, refused && kept);
    let taken = program.webhook(tenant, "m-4", "hello").await? == (200, "executed".into());
    let two = scene.replies().await?.into_iter().eq([("pending".to_owned(), 2)]);
    let how = "the provider repeated the webhook, and the reply was enqueued";
    proof.see("a message that failed is taken over by its repetition", how, taken && two);
    program.stop().await
}

async fn tenants(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let [ours, theirs] = scene.tenants;
    let seen =
        [count(&scene.app, Some(ours)).await?, count(&scene.app, Some(theirs)).await?, count(&scene.app, None).await?];
    let relay: i64 = sqlx::query_scalar("select count(*) from channel_outbox").fetch_one(&scene.relay).await?;
    let how = "its own 2, the other tenant 0, without a tenant 0, the relay 2";
    proof.see("a tenant sees its own rows only, the relay all", how, seen == [2, 0, 0] && relay == 2);
    let mut transaction = begin_as(&scene.app, theirs).await?;
    let forged = "insert into channel_outbox (tenant_id, channel_message_id, provider, recipient_id, payload, status)
                  select $1, gen_random_uuid(), 'whatsapp', 'x', '{}', 'pending'";
    let forged = sqlx::query(forged).bind(ours).execute(&mut *transaction).await;
    let refused = forged.is_err_and(|error| error.to_string().contains("row-level security"));
    proof.see("a tenant writes no row of another", "the server refused it", refused);
    Ok(())
}

/// The replies that a tenant sees.
async fn count(app: &PgPool, tenant: Option<Uuid>) -> Result<i64> {
    let mut transaction = match tenant {
        Some(tenant) => begin_as(app, tenant).await?,
        None => app.begin().await?,
    };
    Ok(sqlx::query_scalar("select count(*) from channel_outbox").fetch_one(&mut *transaction).await?)
}

async fn rollout(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let program = scene.run(&impatient()?).await?;
    let sent = scene.until("sent", 2).await.is_ok() && program.works();
    let how = "replies waited while the worker was off, and went once it was on";
    proof.see("a rollout begins with the worker off", how, sent);
    let to = program.stub.sent();
    let whole = to.len() == 2 && to.iter().all(|to| to.provider == PROVIDER && to.recipient == "+15550100");
    proof.see("an adapter gets provider, recipient and payload", "the stub got two replies and sent nothing", whole);
    let off = Settings::read("[channels.ingress]\nenabled = false", |_| None)?;
    let off = scene.run(&off).await?;
    proof.see("without channels there is no worker", "started with ingress off", !off.works() && off.address.is_none());
    program.stop().await
}

async fn workers(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let stubs = [Stub::default(), Stub::default()];
    // Nothing is sent until both have got something, so that neither does all of it.
    stubs.iter().for_each(|stub| stub.set(Provider::Hanging));
    let waiting = scene.run(&without_worker()?).await?;
    for number in 0..REPLIES {
        waiting.webhook(scene.tenants[number % 2], &format!("shared-{number}"), "hello").await?;
    }
    waiting.stop().await?;
    let settings = few_at_a_time()?;
    let two = [scene.run_with(&settings, stubs[0].clone()).await?, scene.run_with(&settings, stubs[1].clone()).await?];
    let both = async || stubs.iter().all(|stub| stub.calls() > 0);
    within(PATIENCE, "that both workers have replies", both).await?;
    stubs.iter().for_each(|stub| stub.set(Provider::Up));
    scene.until("sent", 2 + REPLIES as i64).await?;
    for program in two {
        program.stop().await?;
    }
    let sent = stubs.map(|stub| stub.sent());
    let each: HashSet<_> = sent.iter().flatten().map(|sent| &sent.channel_message_id).collect();
    let how = format!(
        "one sent {} of {REPLIES} replies, the other {}, and no reply was sent twice",
        sent[0].len(),
        sent[1].len()
    );
    let once = each.len() == REPLIES && sent[0].len() + sent[1].len() == REPLIES;
    proof.see("two workers never have the same reply", &how, once);
    Ok(())
}

async fn outage(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let program = scene.run(&impatient()?).await?;
    program.stub.set(Provider::Down);
    for number in 0..REPLIES {
        program.webhook(scene.tenants[number % 2], &format!("outage-{number}"), "hello").await?;
    }
    let failing = async || program.stub.calls() >= 10;
    within(Duration::from_secs(10), "ten failures", failing).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Without a breaker each reply would be tried at once and then every 0.1 to 1.6 seconds until it is dead.
    let calls = program.stub.calls();
    let dead = scene.replies().await?.get("dead").copied().unwrap_or(0);
    let how = format!("{calls} calls in two seconds for {REPLIES} replies, {dead} dead");
    proof.see("an outage makes no storm", &how, calls < REPLIES && dead == 0);
    program.stub.set(Provider::Up);
    let all = scene.until("sent", 2 + 2 * REPLIES as i64).await.is_ok();
    proof.see("replies outlive an outage", "the provider came back, and all were sent", all);
    program.stop().await
}

async fn crash(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let program = scene.run(&impatient()?).await?;
    program.stub.set(Provider::Hanging);
    program.webhook(scene.tenants[0], "crash-1", "hello").await?;
    scene.until("sending", 1).await?;
    within(Duration::from_secs(10), "a send", async || program.stub.calls() == 1).await?;
    program.cut_off().await;
    let next = scene.run(&impatient()?).await?;
    let all = scene.until("sent", 3 + 2 * REPLIES as i64).await.is_ok();
    let how = "a worker was cut off while it sent; another took the row after lock_timeout_seconds";
    proof.see("a row left sending is taken again", how, all);
    next.stop().await
}

async fn death(scene: &Scene, proof: &mut Proof) -> Result<()> {
    let program = scene.run(&impatient()?).await?;
    program.stub.set(Provider::Down);
    program.webhook(scene.tenants[0], "death-1", "hello").await?;
    let dead = scene.until("dead", 1).await.is_ok();
    let row = "select attempt_count, max_attempts, last_error from channel_outbox where status = 'dead'";
    let row: (i32, i32, Option<String>) = sqlx::query_as(row).fetch_one(&scene.relay).await?;
    let spent = (row.0, row.1) == (5, 5) && row.2.is_some();
    let how = format!("{} calls for one reply, the row stays with its last_error", program.stub.calls());
    proof.see("after five attempts a reply is dead", &how, dead && spent && program.stub.calls() == 5);
    let waits = scene.waits("death-1").await?;
    let bounds = [(80, 120), (160, 240), (320, 480), (640, 960)];
    let within =
        waits.len() == 4 && waits.iter().zip(bounds).all(|(wait, (least, most))| (least..=most).contains(wait));
    let how = format!("its four retries waited {waits:?} ms: 100 ms, doubled each time, times 0.8 to 1.2");
    proof.see("retries come later and later, within their bounds", &how, within);
    program.stop().await
}

async fn operators(scene: &Scene, log: &Log, proof: &mut Proof) -> Result<()> {
    let waiting = scene.run(&without_worker()?).await?;
    waiting.webhook(scene.tenants[1], "waits-1", "hello").await?;
    waiting.stop().await?;
    let replies = scene.replies().await?;
    println!("         select status, count(*) from channel_outbox group by status: {replies:?}");
    let all = ["pending", "sent", "dead"].iter().all(|status| replies.contains_key(*status));
    proof.see("pending, sent and dead replies can be told apart", "the query above, under the relay's role", all);
    let rows = "select channel_message_id, payload #>> '{providers,channels,correlation_id}' from channel_outbox where status = 'dead'";
    let (message, correlation): (Uuid, String) = sqlx::query_as(rows).fetch_one(&scene.relay).await?;
    let text = log.text();
    let said = |step: &str| {
        let parts = [format!("step=\"{step}\""), message.to_string(), format!("correlation_id=\"{correlation}\"")];
        text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let steps = ["claim", "retry", "dead"].iter().all(|step| said(step)) && text.contains("step=\"sent\"");
    let how = "claim, retry, dead and sent, with correlation_id and channel_message_id";
    proof.see("each step is in the log, and the ids are in the row", how, steps);
    let failed = text.lines().any(|line| line.contains("enqueue failed") && line.contains("channel_message_id"));
    proof.see("an enqueue that failed is in the log", "with the same ids", failed);
    Ok(())
}
