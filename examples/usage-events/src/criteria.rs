//! What the outbox has to keep, one function each: it does something, looks, and says how it was seen.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use postrider::Enqueued;
use tokio::process::Command;
use uuid::Uuid;

use crate::chat::{NewTurn, Outcome, Refused, TurnFinished};
use crate::world::{TOKENS, World};

/// A turn that ends has one event, in the transaction that debits it; nothing else has any.
pub async fn one_row_or_none(world: &World) -> Result<String> {
    let (chat, tenant) = (&world.chat, world.chat.welcome(1_000).await?);
    let before = world.rows(None).await?;
    let empty = NewTurn { request_id: Uuid::now_v7(), prompt: " ".into() };
    ensure!(chat.begin(tenant, &empty).await? == Err(Refused::BadPrompt), "an empty prompt was taken");
    let turn = world.begun(tenant).await?;
    chat.tokens_left(tenant).await?;
    let mut transaction = world.store.pool().begin().await?;
    chat.finish_in(&mut transaction, tenant, turn, Outcome::Completed).await?;
    transaction.rollback().await?;
    ensure!(world.rows(None).await? == before, "there is an event of something that was refused, read or rolled back");
    ensure!(
        chat.state(turn).await? == "running" && chat.tokens_left(tenant).await? == 1_000,
        "a rollback left something"
    );

    ensure!(chat.finish(tenant, turn, Outcome::Completed).await?.is_new(), "the turn has no event of its own");
    ensure!(!chat.finish(tenant, turn, Outcome::Aborted).await?.is_new(), "the turn ended twice");
    ensure!(world.rows(None).await? == before + 1, "the turn does not have one event");
    let left = chat.tokens_left(tenant).await?;
    ensure!(
        chat.state(turn).await? == "completed" && left == 1_000 - TOKENS,
        "the event is without its debit: {left} left"
    );
    Ok("a refused prompt, a read and a rolled back end wrote none; a turn that ended, and ended again, wrote one"
        .into())
}

/// Several end a turn at the same time.
pub async fn losers_are_told(world: &World) -> Result<String> {
    let tenant = world.chat.welcome(1_000).await?;
    let turn = world.begun(tenant).await?;
    let before = world.rows(None).await?;
    let answers = try_join_all((0..8).map(|_| world.chat.finish(tenant, turn, Outcome::Completed))).await?;
    let winners: Vec<Uuid> = answers.iter().filter(|answer| answer.is_new()).map(Enqueued::id).collect();
    ensure!(winners.len() == 1, "{} of 8 wrote the event", winners.len());
    ensure!(answers.iter().all(|answer| answer.id() == winners[0]), "a loser was told of another row");
    ensure!(world.rows(None).await? == before + 1, "there is more than one row");
    ensure!(world.chat.tokens_left(tenant).await? == 1_000 - TOKENS, "the turn was debited more than once");
    Ok("of 8 that ended a turn at once, 1 wrote the event and 7 were told its id; it was debited once".into())
}

/// Two dispatchers share the work, and no event is given to both.
pub async fn dispatchers_share(world: &World) -> Result<String> {
    let tenant = world.chat.welcome(1_000_000).await?;
    for _ in 0..15 {
        try_join_all((0..8).map(|_| world.turn(tenant))).await?;
    }
    let waiting = usize::try_from(world.rows(Some("pending")).await?)?;
    // Nothing is delivered until both have got something, so that neither does all of it.
    world.billing.shut(true);
    let both = [world.dispatch("one")?, world.dispatch("two")?];
    let names = || world.billing.heard().iter().map(|(from, _)| *from).collect::<HashSet<_>>();
    testkit::within(Duration::from_secs(10), "that both have events", async || names().len() == 2).await?;
    world.billing.shut(false);
    world.delivered().await?;
    for dispatcher in both {
        dispatcher.stop().await?;
    }
    let heard = world.billing.heard();
    let events: HashSet<Uuid> = heard.iter().map(|(_, event)| *event).collect();
    ensure!(heard.len() == waiting && events.len() == waiting, "{waiting} events, {} deliveries", heard.len());
    let again: i64 = sqlx::query_scalar("select count(*) from modkit_outbox_events where attempts <> 1")
        .fetch_one(world.store.pool())
        .await?;
    ensure!(again == 0, "{again} events were claimed more than once");
    let ones = heard.iter().filter(|(from, _)| *from == "one").count();
    Ok(format!("two delivered {ones} and {} events, each once and at its first claim", waiting - ones))
}

/// A process dies with an event in its hands.
pub async fn a_crash_is_outlived(world: &World) -> Result<String> {
    let tenant = world.chat.welcome(1_000).await?;
    world.turn(tenant).await?;
    let program = std::env::current_exe()?;
    let dead = Command::new(program).arg(crate::DIES).arg(&world.url).status().await?;
    ensure!(dead.code().is_none(), "no signal ended the process: {dead}");
    ensure!(world.rows(Some("processing")).await? == 1, "it had claimed nothing");
    let dispatcher = world.dispatch("the next one")?;
    world.delivered().await?;
    dispatcher.stop().await?;
    let claims = "with claims as (
                    select after ->> 'id' as id, (after ->> 'attempts')::int as attempt,
                           (after ->> 'locked_until')::timestamptz as locked_until, (after ->> 'updated_at')::timestamptz as claimed
                    from history where after ->> 'status' = 'processing')
                  select (extract(epoch from second.claimed - first.locked_until) * 1000)::bigint
                  from claims as first join claims as second using (id) where (first.attempt, second.attempt) = (1, 2)";
    let late: i64 = sqlx::query_scalar(claims).fetch_one(world.store.pool()).await?;
    ensure!(late >= 0, "the event was taken {} ms before its lease was over", -late);
    ensure!(world.billing.owed(tenant).await? == TOKENS, "the turn was not billed");
    Ok(format!("a process was ended while it published; another claimed the event {late} ms after the lease was over"))
}

/// Billing is down for a while.
pub async fn retries_come_later_and_later(world: &World) -> Result<String> {
    let tenant = world.chat.welcome(1_000).await?;
    world.billing.fail(4);
    world.turn(tenant).await?;
    let dispatcher = world.dispatch("patient")?;
    world.delivered().await?;
    dispatcher.stop().await?;
    let failures = "select (extract(epoch from (after ->> 'next_attempt_at')::timestamptz - (after ->> 'updated_at')::timestamptz) * 1000)::bigint,
                           after ->> 'last_error'
                    from history where after ->> 'status' = 'pending' and (after ->> 'attempts')::int > 0 order by no desc limit 4";
    let mut failures: Vec<(i64, String)> = sqlx::query_as(failures).fetch_all(world.store.pool()).await?;
    failures.reverse();
    let waits: Vec<i64> = failures.iter().map(|(wait, _)| *wait).collect();
    // The formula: twice the delay each time, of which at least half is waited.
    let longest = [100, 200, 400, 800];
    let fits = |(wait, longest): (&i64, &i64)| (longest / 2 - 1..=longest + 1).contains(wait);
    ensure!(waits.len() == 4 && waits.iter().zip(&longest).all(fits), "the waits were {waits:?} ms");
    ensure!(failures.iter().all(|(_, error)| error == "billing is down"), "an error is missing: {failures:?}");
    Ok(format!("billing failed 4 times; the event waited {waits:?} ms, and each time the row said why"))
}

/// Billing answers, and the answer gets lost.
pub async fn twice_is_billed_once(world: &World) -> Result<String> {
    let tenant = world.chat.welcome(1_000).await?;
    let before = world.billing.heard().len();
    world.billing.mute(2);
    let turn = world.turn(tenant).await?;
    let dispatcher = world.dispatch("forgetful")?;
    world.delivered().await?;
    dispatcher.stop().await?;
    let times = world.billing.heard().len() - before;
    ensure!(times == 3, "it was delivered {times} times");
    let payload = "select payload::text from modkit_outbox_events where payload ->> 'turn_id' = $1";
    let payload: String = sqlx::query_scalar(payload).bind(turn.to_string()).fetch_one(world.store.pool()).await?;
    let event: TurnFinished = serde_json::from_str(&payload).context("the payload is no finished turn")?;
    ensure!(!world.billing.bill(&event).await?, "a copy under another event id was billed");
    ensure!(world.billing.owed(tenant).await? == TOKENS, "the turn was billed more than once");
    Ok("a turn was delivered 3 times, and told of once more under no event id at all: it was billed once".into())
}
