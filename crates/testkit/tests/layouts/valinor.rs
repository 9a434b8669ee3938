//! Seed 4 on its own table, tenants included.

use std::collections::HashSet;
use std::time::Duration;

use postrider::operate::{Filter, Operator};
use postrider::store::{Bury, ClaimOrder, ClaimRequest, Delivered, Nack, Order, Release, Scope};
use postrider::{EnqueueError, Layout, Lease, Message, Settled, Store};
use uuid::Uuid;

use crate::scene::Scene;

const ONE: Uuid = Uuid::from_u128(0xA);
const OTHER: Uuid = Uuid::from_u128(0xB);
const REPLY: Uuid = Uuid::from_u128(0xC);

fn reply(tenant: Uuid) -> Message {
    let payload = serde_json::json!({"text": "hello", "correlation_id": "c-7"});
    Message::json("channels", "slack", &payload)
        .key("U123")
        .tenant(tenant)
        .header("channel-message-id", REPLY.to_string())
}

async fn scene() -> Scene {
    let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(30), ..Layout::valinor() }).await;
    scene
        .run(
            "insert into tenants values ('00000000-0000-0000-0000-00000000000a'), ('00000000-0000-0000-0000-00000000000b');
             insert into channel_messages values ('00000000-0000-0000-0000-00000000000c', '00000000-0000-0000-0000-00000000000a')",
        )
        .await;
    scene
}

fn nack(lease: Lease) -> Nack {
    Nack { lease, delay: Duration::ZERO, error: "provider down".into() }
}

#[tokio::test]
async fn s4_03_s4_04_rows_go_with_their_tenant_and_their_message() {
    let scene = scene().await;
    scene.put(reply(ONE)).await;
    scene.put(reply(OTHER)).await;
    scene.run("delete from tenants where id = '00000000-0000-0000-0000-00000000000b'").await;
    assert_eq!(scene.claim().await.len(), 1);
    scene.run("delete from channel_messages").await;
    scene.run("update channel_outbox set locked_at = null, status = 'pending'").await;
    assert!(scene.claim().await.is_empty());
    let orphan = "insert into channel_outbox (tenant_id, channel_message_id, provider, recipient_id, payload, status)
                  values (gen_random_uuid(), gen_random_uuid(), 'slack', 'U1', '{}', 'pending')";
    assert!(sqlx::query(orphan).execute(&scene.pool).await.is_err());
}

#[tokio::test]
async fn s4_08_only_the_four_words_can_be_stored() {
    let scene = scene().await;
    scene.put(reply(ONE)).await;
    for word in ["pending", "sending", "sent", "dead", "processing"] {
        let update = sqlx::query("update channel_outbox set status = $1").bind(word).execute(&scene.pool).await;
        assert_eq!(update.is_ok(), word != "processing", "{word}");
    }
}

#[tokio::test]
async fn s4_09_s4_10_a_row_has_its_own_limit_of_five() {
    let scene = scene().await;
    let (usual, own) = (scene.put(reply(ONE)).await, scene.put(reply(ONE).max_attempts(2)).await);
    assert_eq!(scene.row(usual).await["max_attempts"], 5);
    assert_eq!(scene.row(own).await["max_attempts"], 2);
    let mut tries = [0, 0];
    for _ in 0..10 {
        for message in scene.claim_up_to(100, 10).await {
            tries[usize::from(message.id == own)] += 1;
            scene.store.nack(&[nack(message.lease)]).await.expect("nacked");
        }
    }
    assert_eq!(tries, [5, 2]);
}

#[tokio::test]
async fn s4_23_s4_24_s4_25_s4_26_a_row_goes_from_pending_to_sent_or_back_or_dead() {
    let scene = scene().await;
    let ids = [scene.put(reply(ONE)).await, scene.put(reply(ONE)).await, scene.put(reply(ONE)).await];
    assert_eq!(
        (&scene.row(ids[0]).await["status"], &scene.row(ids[0]).await["locked_at"]),
        (&"pending".into(), &().into())
    );
    let mut claimed = scene.claim().await;
    claimed.sort_by_key(|message| ids.iter().position(|id| *id == message.id));
    let row = scene.row(ids[0]).await;
    assert!(row["status"] == "sending" && row["locked_at"].is_string(), "{row}");
    let [sent, failed, dead] = [0, 1, 2].map(|at| claimed[at].lease);
    scene.store.ack(&[sent], Delivered::Keep).await.expect("acked");
    scene.store.nack(&[Nack { delay: Duration::from_secs(60), ..nack(failed) }]).await.expect("nacked");
    scene.store.bury(&[Bury { lease: dead, error: "no such recipient".into() }]).await.expect("buried");
    let row = scene.row(ids[0]).await;
    assert_eq!((&row["status"], &row["attempt_count"], &row["locked_at"]), (&"sent".into(), &0.into(), &().into()));
    assert!(row["sent_at"].is_string(), "{row}");
    let row = scene.row(ids[1]).await;
    assert_eq!(
        (&row["status"], &row["attempt_count"], &row["last_error"]),
        (&"pending".into(), &1.into(), &"provider down".into())
    );
    assert!(scene.claim().await.is_empty(), "its next attempt is later");
    let row = scene.row(ids[2]).await;
    assert_eq!((&row["status"], &row["last_error"]), (&"dead".into(), &"no such recipient".into()));
}

#[tokio::test]
async fn s4_23_a_claim_passes_over_rows_that_somebody_has_locked() {
    let scene = scene().await;
    let (theirs, ours) = (scene.put(reply(ONE)).await, scene.put(reply(ONE)).await);
    let mut other = scene.pool.begin().await.expect("begun");
    let lock = sqlx::query("select from channel_outbox where id = $1 for update").bind(theirs);
    lock.execute(&mut *other).await.expect("locked");
    let claim = tokio::time::timeout(Duration::from_secs(10), scene.claim()).await.expect("it does not wait");
    assert_eq!(claim.iter().map(|message| message.id).collect::<Vec<_>>(), [ours]);
    other.rollback().await.expect("free");
    assert_eq!(scene.lease().await.id, theirs);
}

/// Every version of every row, as the database saw it, is one of the picture's: no step was written in two halves.
#[tokio::test]
async fn s4_29_every_step_of_a_reply_is_written_whole() {
    let scene = scene().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(testkit::show::history("channel_outbox")))
        .execute(&scene.pool)
        .await
        .expect("watched");
    for _ in 0..5 {
        scene.put(reply(ONE)).await;
    }
    let claimed = scene.claim().await;
    let [sent, failed, dead, released, crashed] = [0, 1, 2, 3, 4].map(|at| claimed[at].lease);
    let store = &scene.store;
    // Some of a batch are not ours any more: the others are settled all the same, each whole.
    let lost = Lease { attempt: 9, ..crashed };
    assert_eq!(store.ack(&[sent, lost], Delivered::Keep).await.expect("acked"), [Settled::Done, Settled::LeaseLost]);
    store.nack(&[Nack { delay: Duration::from_secs(60), ..nack(failed) }]).await.expect("nacked");
    store.bury(&[Bury { lease: dead, error: "no such recipient".into() }]).await.expect("buried");
    store.release(&[Release { lease: released, delay: Duration::ZERO, error: None }]).await.expect("released");
    let broken = "select count(*) from history, jsonb_populate_record(null::channel_outbox, after) as row where not
          (row.status = 'pending' and row.locked_at is null and row.sent_at is null
             and (row.attempt_count = 0) = (row.last_error is null) and (row.attempt_count = 0 or row.next_attempt_at > row.updated_at)
        or row.status = 'sending' and row.locked_at is not null and row.sent_at is null
        or row.status = 'sent' and row.locked_at is null and row.sent_at is not null
        or row.status = 'dead' and row.locked_at is null and row.sent_at is null and row.last_error is not null)";
    let broken: i64 = sqlx::query_scalar(broken).fetch_one(&scene.pool).await.expect("counted");
    let versions: i64 =
        sqlx::query_scalar("select count(*) from history").fetch_one(&scene.pool).await.expect("counted");
    assert_eq!((broken, versions), (0, 14), "five rows, five claims, and one version for each that was settled");
}

#[tokio::test]
async fn c22_every_step_says_when_it_was_where_the_table_has_a_column_for_it() {
    let scene = scene().await;
    let id = scene.put(reply(ONE)).await;
    let mut seen = vec![scene.row(id).await["updated_at"].to_string()];
    for step in 0..3 {
        let lease = scene.lease().await;
        seen.push(scene.row(id).await["updated_at"].to_string());
        match step {
            0 => scene.store.nack(&[nack(lease)]).await.expect("nacked"),
            1 => scene.store.release(&[Release { lease, delay: Duration::ZERO, error: None }]).await.expect("released"),
            _ => scene.store.ack(&[lease], Delivered::Keep).await.expect("acked"),
        };
        seen.push(scene.row(id).await["updated_at"].to_string());
    }
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
}

#[tokio::test]
async fn s4_27_a_row_left_sending_is_taken_again_after_the_lock_time_out() {
    let scene = scene().await;
    let id = scene.put(reply(ONE)).await;
    let crashed = scene.lease().await;
    scene.run("update channel_outbox set locked_at = locked_at - interval '29 seconds'").await;
    assert!(scene.claim().await.is_empty());
    scene.run("update channel_outbox set locked_at = locked_at - interval '2 seconds'").await;
    let again = scene.lease().await;
    assert_eq!((again.id, again.attempt), (id, 2));
    assert_eq!(scene.store.ack(&[crashed], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
}

#[tokio::test]
async fn s4_28_dead_letters_stay_in_the_table() {
    let scene = scene().await;
    let id = scene.put(reply(ONE)).await;
    let lease = scene.lease().await;
    scene.store.bury(&[Bury { lease, error: "gone".into() }]).await.expect("buried");
    let dead = scene.store.dead(&Filter::default(), None, 10).await.expect("listed");
    assert_eq!((dead[0].id, dead[0].last_error.as_deref(), dead[0].tenant_id), (id, Some("gone"), Some(ONE)));
}

#[tokio::test]
async fn s4_31_only_due_pending_rows_are_claimed() {
    let scene = scene().await;
    let due = scene.put(reply(ONE)).await;
    scene.put(reply(ONE).deliver_after(Duration::from_secs(60))).await;
    for word in ["sending", "sent", "dead"] {
        let id = scene.put(reply(ONE)).await;
        let update = "update channel_outbox set status = $2, locked_at = now() where id = $1";
        sqlx::query(update).bind(id).bind(word).execute(&scene.pool).await.expect("changed");
    }
    assert_eq!(scene.claim().await.iter().map(|message| message.id).collect::<Vec<_>>(), [due]);
}

#[tokio::test]
async fn s4_37_a_message_carries_its_channel_message_and_its_correlation() {
    let scene = scene().await;
    scene.put(reply(ONE)).await;
    let message = scene.claim().await.remove(0);
    assert_eq!(message.headers.get("channel-message-id").map(String::as_str), Some(&*REPLY.to_string()));
    assert_eq!((&*message.topic, message.key.as_deref(), message.tenant_id), ("slack", Some("U123"), Some(ONE)));
    assert_eq!(message.payload.to_value().expect("JSON")["correlation_id"], "c-7");
}

#[tokio::test]
async fn c5_a_tenant_may_be_required() {
    let scene = scene().await;
    let mut transaction = scene.pool.begin().await.expect("begun");
    let without = Message::json("channels", "slack", &7).key("U123").header("channel-message-id", REPLY.to_string());
    let refused = scene.store.outbox().enqueue(&mut transaction, without).await;
    assert!(
        matches!(&refused, Err(EnqueueError::Invalid { source, .. }) if source.to_string().contains("tenant")),
        "{refused:?}"
    );
    scene.store.outbox().enqueue(&mut transaction, reply(ONE)).await.expect("the transaction is still usable");
}

fn fair(after: Option<postrider::store::Lane>, limit: u32) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        order: ClaimOrder::Fair { after },
        waits: Order::None,
        followers: 0,
        thorough: false,
    }
}

#[tokio::test]
async fn r24_a_fair_claim_gives_every_tenant_its_share() {
    let scene = scene().await;
    for _ in 0..20 {
        scene.put(reply(ONE)).await;
    }
    scene.put(reply(OTHER)).await;
    let claimed = scene.store.claim(&fair(None, 4)).await.expect("claimed");
    let tenants: HashSet<Option<Uuid>> = claimed.messages.iter().map(|message| message.tenant_id).collect();
    assert_eq!(tenants, HashSet::from([Some(ONE), Some(OTHER)]));
    assert_eq!(claimed.messages.len(), 3, "two of the one, and all that the other has");
}

#[tokio::test]
async fn s08_a_claim_keeps_to_its_tenant() {
    let scene = scene().await;
    scene.put(reply(ONE)).await;
    let theirs = scene.put(reply(OTHER)).await;
    let scope = Scope { namespaces: None, tenant: Some(OTHER) };
    let claim = ClaimRequest { scope, order: ClaimOrder::Due, ..fair(None, 10) };
    let claimed = scene.store.claim(&claim).await.expect("claimed").messages;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), [theirs]);
}

#[tokio::test]
async fn s4_40_concurrent_workers_never_claim_the_same_row() {
    let scene = scene().await;
    for _ in 0..100 {
        scene.put(reply(ONE)).await;
    }
    let workers = (0..4).map(|_| {
        let scene = Scene { store: scene.store.clone(), pool: scene.pool.clone() };
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..12 {
                seen.extend(scene.claim_up_to(5, 10).await.iter().map(|message| message.id));
            }
            seen
        })
    });
    let mut all = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        all.extend(worker.await.expect("no worker panics"));
    }
    assert_eq!((all.len(), all.iter().collect::<HashSet<_>>().len()), (100, 100));
}

#[tokio::test]
async fn s4_19_s4_40_a_tenant_sees_and_writes_its_own_rows_only() {
    let scene = scene().await;
    scene.put(reply(ONE)).await;
    scene.put(reply(OTHER)).await;
    let role = format!("app_{}", Uuid::new_v4().simple());
    let grants = format!(
        "create role {role}; grant select, insert, update, delete on channel_outbox to {role}; grant select, references on tenants, channel_messages to {role}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(grants)).execute(&scene.pool).await.expect("made");
    let mut application = scene.pool.begin().await.expect("begun");
    let become_role = format!("set local role {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(become_role)).execute(&mut *application).await.expect("done");
    let seen = async |connection: &mut sqlx::PgConnection| -> Vec<Uuid> {
        sqlx::query_scalar("select tenant_id from channel_outbox")
            .fetch_all(connection)
            .await
            .expect("no error, whatever is set")
    };
    assert!(seen(&mut application).await.is_empty(), "no setting, no tenant");
    sqlx::query("select set_config('app.current_tenant_id', '', true)").execute(&mut *application).await.expect("set");
    assert!(seen(&mut application).await.is_empty(), "an empty setting is no tenant and no error");
    sqlx::query("select set_config('app.current_tenant_id', $1, true)")
        .bind(ONE.to_string())
        .execute(&mut *application)
        .await
        .expect("set");
    assert_eq!(seen(&mut application).await, [ONE]);
    let touched =
        sqlx::query("update channel_outbox set last_error = 'x'").execute(&mut *application).await.expect("allowed");
    assert_eq!(touched.rows_affected(), 1);
    scene.store.outbox().enqueue(&mut application, reply(ONE)).await.expect("its own");
    let theirs = scene.store.outbox().enqueue(&mut application, reply(OTHER)).await;
    assert!(matches!(theirs, Err(EnqueueError::Database(_))), "{theirs:?}");
}
