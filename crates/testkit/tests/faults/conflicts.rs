//! Deadlocks and serialisation failures of the relay's own statements: the store tries again by itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use postrider::store::{Bury, ClaimOrder, ClaimRequest, Delivered, LARGEST_CLAIM, Nack, Order, Release};
use postrider::{ClaimedMessage, Names, PostgresStore, Scope, Settled, Store};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::within;
use uuid::Uuid;

use super::load::Load;
use super::relay::{Relay, Settings};
use super::scene::Scene;

const SOON: Duration = Duration::from_secs(120);

/// Every statement that changes messages fails three times out of four, as if it were a deadlock's victim.
const TRIP: &str = "
create sequence tripped;
create function trip() returns trigger language plpgsql as $$
begin
  case nextval('tripped') % 4
    when 0 then return null;
    when 1 then raise exception 'tripped' using errcode = '40001';
    else raise exception 'tripped' using errcode = '40P01';
  end case;
end
$$;
create trigger trip before update or delete on outbox_messages for each statement execute function trip();";

async fn claim(store: &PostgresStore, limit: u32) -> Result<Vec<ClaimedMessage>> {
    let request = ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::nil(),
        limit,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(30),
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    };
    Ok(store.claim(&request).await?.messages)
}

#[tokio::test]
async fn r38_every_verb_is_tried_again_after_a_deadlock_or_serialisation_failure() -> Result<()> {
    let scene = Scene::new().await?;
    scene.enqueue("victim", 4).await?;
    sqlx::raw_sql(TRIP).execute(&scene.pool).await?;
    let store = &scene.store;
    let leases: Vec<_> = claim(store, 4).await?.iter().map(|message| message.lease).collect();
    let renewed = store.extend(&leases, Duration::from_secs(30)).await?;
    let leases: Vec<_> = renewed.into_iter().flatten().collect();
    let [first, second, third, fourth] = leases[..] else { anyhow::bail!("{} of 4 leases renewed", leases.len()) };
    let (delay, error) = (Duration::ZERO, String::from("tripped"));
    let settled = [
        store.ack(&[first], Delivered::Keep).await?,
        store.nack(&[Nack { lease: second, delay, error: error.clone() }]).await?,
        store.release(&[Release { lease: third, delay, error: None }]).await?,
        store.bury(&[Bury { lease: fourth, error }]).await?,
    ];
    ensure!(settled.concat() == [Settled::Done; 4], "{settled:?}");
    store.sweep(&Scope::all(), 10, 10).await?;
    let statuses = "select count(*) from outbox_messages where (status, attempts) in \
                    (('delivered', 1), ('pending', 1), ('pending', 0), ('dead', 1))";
    ensure!(scene.count(statuses).await? == 4);
    Ok(())
}

#[tokio::test]
async fn r38_a_relay_delivers_although_every_statement_conflicts() -> Result<()> {
    let (scene, settings) = (Scene::new().await?, Settings { lease_ms: 10_000, ..Settings::default() });
    scene.enqueue("tripped", 100).await?;
    sqlx::raw_sql(TRIP).execute(&scene.pool).await?;
    let relay = Relay::start(&scene, &settings).await?;
    scene.finished(SOON).await?;
    let surfaced = relay.printed("conflict");
    ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    // five tries and three failures of four: statements that run at the same time may take each other's turn
    println!("r38: {surfaced} conflicts reached the dispatcher");
    scene.check(settings.bounds(0)).await?;
    Ok(())
}

#[tokio::test]
async fn r38_an_ack_that_is_the_victim_of_a_real_deadlock_is_tried_again() -> Result<()> {
    let scene = Scene::new().await?;
    let ids = scene.enqueue("deadlock", 2).await?;
    let options: PgConnectOptions = scene.database.url().parse()?;
    let options = options.application_name("victim").options([("deadlock_timeout", "1500ms")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await?;
    let store = PostgresStore::new(pool, Names::default());
    let mut leases: Vec<_> = claim(&store, 2).await?.iter().map(|message| message.lease).collect();
    leases.sort_by_key(|lease| ids.iter().position(|id| *id == lease.id));

    let mut other = PgConnection::connect(&scene.database.url()).await?;
    sqlx::raw_sql("set deadlock_timeout = '60s'; begin").execute(&mut other).await?;
    touch(&mut other, ids[1]).await?;
    let ack = tokio::spawn(async move { store.ack(&leases, Delivered::Keep).await });
    let waits = "select count(*) from pg_stat_activity where application_name = 'victim' and wait_event_type = 'Lock'";
    within(SOON, "an ack that waits", || async { scene.count(waits).await.is_ok_and(|waiting| waiting == 1) }).await?;
    touch(&mut other, ids[0]).await.context("the other side was made the victim")?;
    sqlx::raw_sql("commit").execute(&mut other).await?;
    ensure!(ack.await?? == [Settled::Done; 2]);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    within(SOON, "a deadlock", || async { scene.count(deadlocks).await.is_ok_and(|seen| seen == 1) }).await
}

async fn touch(connection: &mut PgConnection, id: Uuid) -> Result<()> {
    let sql = "update outbox_messages set updated_at = updated_at where id = $1";
    sqlx::query(sql).bind(id).execute(connection).await?;
    Ok(())
}

#[tokio::test]
async fn r38_relays_work_on_a_database_that_is_serialisable_by_default() -> Result<()> {
    let (scene, settings) = (Scene::new().await?, Settings { lease_ms: 5_000, ..Settings::default() });
    let serialisable =
        format!("alter database {} set default_transaction_isolation = 'serializable'", scene.database.name());
    sqlx::raw_sql(AssertSqlSafe(serialisable)).execute(&scene.pool).await?;
    scene.enqueue("backlog", 500).await?;
    let relays = try_join_all((0..2).map(|_| Relay::start(&scene, &settings))).await?;
    let load = Load::start(&scene, 2, Duration::from_millis(5)).await?;
    scene.more_arrivals(700).await?;
    let told = load.stop().await?;
    scene.finished(SOON).await?;
    let surfaced: usize = relays.iter().map(|relay| relay.printed("conflict")).sum();
    for relay in relays {
        ensure!(relay.terminate().await?.code == Some(0), "it did not stop in good order");
    }
    println!("r38: {surfaced} conflicts reached the dispatchers, {} the producers", told.errors);
    let mut bounds = settings.bounds(0);
    bounds.told = told.committed;
    scene.check(bounds).await?;
    Ok(())
}
