//! What the example promises, by requirement, against a private PostgreSQL.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use channel_replies::ingress::ABANDONED_AFTER;
use channel_replies::scene::{self, PATIENCE, Scene, few_at_a_time, impatient, without_worker};
use channel_replies::schema::begin_as;
use channel_replies::settings::Settings;
use channel_replies::stub::{Provider, Stub};
use postrider::RetryPolicy;
use sqlx::AssertSqlSafe;
use testkit::{Postgres, Proxy, Signal, Worker, show, within};

#[tokio::test]
async fn s4_20_s4_22_only_an_executed_outcome_is_enqueued() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    let tenant = scene.tenants[0];
    for (id, text, expected) in [
        ("m-1", "forbidden", (200, "denied_policy")),
        ("m-2", "broken", (500, "dispatch_failed")),
        ("m-3", "hello", (200, "executed")),
        ("m-3", "hello", (200, "executed")),
    ] {
        let (code, status) = program.webhook(tenant, id, text).await?;
        assert_eq!((code, status.as_str()), expected, "{id}");
        assert_eq!(scene.message(id).await?, expected.1);
        let rows: i64 = scene.replies().await?.values().sum();
        assert_eq!(rows, i64::from(id == "m-3"), "after {id}");
    }
    let row = "select provider, recipient_id, status, payload ->> 'text' from channel_outbox";
    let row: (String, String, String, String) = sqlx::query_as(row).fetch_one(&scene.relay).await?;
    assert_eq!(row, ("whatsapp".into(), "+15550100".into(), "pending".into(), "you said hello".into()));
    program.stop().await
}

#[tokio::test]
async fn s4_21_s4_40_an_enqueue_that_fails_is_a_500_and_dispatch_failed() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    let revoke = format!("revoke insert on channel_outbox from {}", scene.app_role);
    sqlx::raw_sql(AssertSqlSafe(revoke)).execute(&scene.owner).await?;
    let answer = program.webhook(scene.tenants[0], "m-1", "hello").await?;
    assert_eq!(answer, (500, "dispatch_failed".into()));
    assert_eq!(scene.message("m-1").await?, "dispatch_failed", "nothing says that it was executed");
    assert!(scene.replies().await?.is_empty());
    program.stop().await
}

#[tokio::test]
async fn s4_21_a_repetition_takes_over_what_could_not_be_enqueued() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    let may = async |verb: &str| {
        let sql = format!("{verb} {}", scene.app_role);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&scene.owner).await
    };
    may("revoke insert on channel_outbox from").await?;
    for _ in 0..2 {
        assert_eq!(program.webhook(scene.tenants[0], "m-1", "hello").await?, (500, "dispatch_failed".into()));
    }
    may("grant insert on channel_outbox to").await?;
    let again = (0..5).map(|_| program.webhook(scene.tenants[0], "m-1", "hello"));
    for (code, status) in futures::future::try_join_all(again).await? {
        assert!(matches!((code, status.as_str()), (200, "executed") | (202, "accepted")), "{code} {status}");
    }
    assert_eq!(program.webhook(scene.tenants[0], "m-1", "hello").await?, (200, "executed".into()));
    assert_eq!(scene.replies().await?["pending"], 1, "of five repetitions at once one was executed");
    let messages: i64 = sqlx::query_scalar("select count(*) from channel_messages").fetch_one(&scene.owner).await?;
    assert_eq!(messages, 1);
    program.stop().await
}

#[tokio::test]
async fn s4_21_what_a_crash_left_accepted_is_taken_over() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    // Whoever reserved it has died, or so it looks.
    let reserved = "insert into channel_messages
                      (id, tenant_id, provider, provider_message_id, sender_id, correlation_id, status, reservation)
                    values (gen_random_uuid(), $1, 'whatsapp', 'm-1', '+15550100', 'c', 'accepted', gen_random_uuid())";
    sqlx::query(reserved).bind(scene.tenants[0]).execute(&scene.owner).await?;
    let (code, status) = program.webhook(scene.tenants[0], "m-1", "hello").await?;
    assert_eq!((code, status.as_str()), (202, "accepted"), "perhaps it is still alive");
    assert!(scene.replies().await?.is_empty());
    let later = "update channel_messages set reserved_at = reserved_at - make_interval(secs => $1)";
    sqlx::query(later).bind(ABANDONED_AFTER.as_secs_f64()).execute(&scene.owner).await?;
    assert_eq!(program.webhook(scene.tenants[0], "m-1", "hello").await?, (200, "executed".into()));
    assert_eq!(scene.replies().await?["pending"], 1);
    program.stop().await
}

#[tokio::test]
async fn s4_21_who_was_taken_for_dead_comes_too_late_and_leaves_no_second_reply() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    // Nobody can write a reply for now.
    let mut locked = scene.owner.begin().await?;
    sqlx::raw_sql("lock table channel_outbox in exclusive mode").execute(&mut *locked).await?;
    let first = program.webhook(scene.tenants[0], "m-1", "hello");
    let second = async {
        let waiting = async |count: i64| {
            let sql =
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            let waits = async || {
                sqlx::query_scalar::<_, i64>(sql).fetch_one(&scene.owner).await.is_ok_and(|waits| waits == count)
            };
            within(PATIENCE, "somebody who waits", waits).await
        };
        waiting(1).await?;
        let later = "update channel_messages set reserved_at = reserved_at - make_interval(secs => $1)";
        sqlx::query(later).bind(ABANDONED_AFTER.as_secs_f64() + 1.0).execute(&scene.owner).await?;
        let second = program.webhook(scene.tenants[0], "m-1", "hello");
        let release = async {
            waiting(2).await?;
            Ok(locked.rollback().await?)
        };
        Ok(tokio::try_join!(second, release)?.0)
    };
    let (first, second) = tokio::try_join!(first, second)?;
    assert_eq!(second, (200, "executed".into()));
    assert!(matches!((first.0, &*first.1), (200, "executed") | (202, "accepted")), "{first:?}");
    assert_eq!(scene.replies().await?["pending"], 1);
    program.stop().await
}

#[tokio::test]
async fn s4_21_the_answer_is_what_the_table_says_although_the_answer_to_the_commit_was_lost() -> Result<()> {
    let mut scene = Scene::start().await?;
    let server = (Ipv4Addr::LOCALHOST, Postgres::shared().await?.port());
    let proxy = Proxy::start(server.into()).await?;
    scene.app = scene::pool(&scene.database.url_via(proxy.port()), &scene.app_role).await?;
    let program = scene.run(&without_worker()?).await?;
    // A message that was reserved before, so that the second commit is the one with the reply.
    let slow =
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); return new; end $$;
                create trigger slow before insert on channel_outbox for each row execute function slow()";
    sqlx::raw_sql(slow).execute(&scene.owner).await?;
    let cut = async {
        let reserved = async || scene.message("m-1").await.is_ok();
        within(PATIENCE, "a reservation", reserved).await?;
        proxy.cut_reply_containing(b"COMMIT\0");
        anyhow::Ok(())
    };
    let (answer, armed) = tokio::join!(program.webhook(scene.tenants[0], "m-1", "hello"), cut);
    armed?;
    assert_eq!(proxy.cuts(), 1, "the answer to the commit got lost");
    assert_eq!(answer?, (200, "executed".into()));
    assert_eq!((scene.message("m-1").await?.as_str(), scene.replies().await?["pending"]), ("executed", 1));
    program.stop().await
}

#[tokio::test]
async fn s4_19_a_tenant_sees_and_writes_its_own_rows_only_and_the_relay_sees_all() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&without_worker()?).await?;
    for (at, tenant) in scene.tenants.into_iter().enumerate() {
        program.webhook(tenant, &format!("m-{at}"), "hello").await?;
    }
    assert_eq!(scene.replies().await?["pending"], 2, "the relay");
    for tenant in scene.tenants {
        let mut transaction = begin_as(&scene.app, tenant).await?;
        let seen: Vec<uuid::Uuid> =
            sqlx::query_scalar("select tenant_id from channel_outbox").fetch_all(&mut *transaction).await?;
        assert_eq!(seen, [tenant]);
        let forged = "update channel_messages set tenant_id = $1";
        let other = scene.tenants.into_iter().find(|other| *other != tenant);
        assert!(sqlx::query(forged).bind(other).execute(&mut *transaction).await.is_err(), "it cannot be given away");
    }
    let nobody: i64 = sqlx::query_scalar("select count(*) from channel_outbox").fetch_one(&scene.app).await?;
    assert_eq!(nobody, 0, "a session without a tenant sees nothing");
    assert!(
        sqlx::query("select from channel_messages").execute(&scene.relay).await.is_err(),
        "not the relay's business"
    );
    program.stop().await
}

#[tokio::test]
async fn s4_30_the_worker_runs_in_the_program_when_channels_are_on() -> Result<()> {
    let scene = Scene::start().await?;
    for (file, ingress, worker) in [
        ("", true, true),
        ("[channels.ingress]\nenabled = false", false, false),
        ("[channels.outbox]\nenabled = false", true, false),
        ("[channels.ingress]\nenabled = false\n[channels.outbox]\nenabled = true", false, true),
    ] {
        let program = scene.run(&Settings::read(file, |_| None)?).await?;
        assert_eq!((program.address.is_some(), program.works()), (ingress, worker), "{file}");
        program.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn s4_33_s4_32_the_stub_gets_everything_and_only_notes_it() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&impatient()?).await?;
    program.webhook(scene.tenants[0], "m-1", "hello").await?;
    scene.until("sent", 1).await?;
    let row = "select channel_message_id::text, payload #>> '{providers,channels,correlation_id}' from channel_outbox";
    let (message, correlation): (String, String) = sqlx::query_as(row).fetch_one(&scene.relay).await?;
    let [sent] = &program.stub.sent()[..] else { panic!("one") };
    assert_eq!((sent.provider.as_str(), sent.recipient.as_str(), sent.attempt), ("whatsapp", "+15550100", 1));
    assert_eq!((sent.channel_message_id.as_ref(), sent.correlation_id.as_ref()), (Some(&message), Some(&correlation)));
    // The adapter has nothing to send with: its answers come from a flag and from the no-op adapter.
    let source = include_str!("../src/stub.rs");
    assert!(!source.contains("Tcp") && !source.contains("http") && !source.contains("reqwest"));
    program.stop().await
}

#[tokio::test]
async fn s4_34_s4_35_the_outbox_settings_have_defaults_and_variables() -> Result<()> {
    let defaults = Settings::read("", |_| None)?;
    let outbox = &defaults.outbox;
    assert!(defaults.ingress && outbox.enabled);
    assert_eq!((outbox.poll_interval, outbox.lock_timeout), (Duration::from_secs(1), Duration::from_secs(60)));
    assert_eq!((outbox.claim_batch_size, outbox.max_attempts), (20, 5));
    assert_eq!(
        (outbox.backoff.base, outbox.backoff.jitter_min, outbox.backoff.jitter_max),
        (Duration::from_secs(2), 0.8, 1.2)
    );
    let file = "[channels.outbox]\nenabled = true\nmax_attempts = 7\nclaim_batch_size = 3\npoll_interval_seconds = 5";
    let set = Settings::read(file, |name| {
        let value = match name.strip_prefix("VALINOR_CHANNELS_OUTBOX_")? {
            "ENABLED" => "false",
            "POLL_INTERVAL_SECONDS" => "4",
            "LOCK_TIMEOUT_SECONDS" => "120",
            "MAX_ATTEMPTS" => "9",
            "BASE_RETRY_SECONDS" => "0.5",
            "JITTER_MIN" => "1",
            "JITTER_MAX" => "2",
            _ => return None,
        };
        Some(value.into())
    })?;
    let outbox = &set.outbox;
    assert_eq!(
        (outbox.enabled, outbox.max_attempts, outbox.claim_batch_size),
        (false, 9, 3),
        "variables win over the file"
    );
    assert_eq!((outbox.poll_interval, outbox.lock_timeout), (Duration::from_secs(4), Duration::from_secs(120)));
    let delays =
        [(1, 0.0), (1, 0.999), (3, 0.0), (30, 0.0)].map(|(attempts, random)| outbox.backoff.delay(attempts, random));
    assert_eq!(delays[0], Duration::from_millis(500));
    assert!(delays[1] > Duration::from_millis(990) && delays[1] < Duration::from_secs(1));
    assert_eq!(delays[2..], [Duration::from_secs(2), Duration::from_secs(50)], "later and later, and bounded");
    for (file, named) in [
        ("max_attempts = 0", "max_attempts"),
        ("jitter_min = 2", "jitter_min"),
        ("poll_interval_seconds = 30", "poll_interval_seconds"),
        ("lock_timeout_seconds = -1", "lock_timeout_seconds"),
        ("max_atempts = 3", "max_atempts"),
    ] {
        let error = Settings::read(&format!("[channels.outbox]\n{file}"), |_| None).expect_err(file);
        assert!(format!("{error:#}").contains(named), "{error:#}");
    }
    let wrong = Settings::read("", |name| (name == "VALINOR_CHANNELS_OUTBOX_ENABLED").then(|| "perhaps".into()));
    assert!(wrong.expect_err("no").to_string().contains("VALINOR_CHANNELS_OUTBOX_ENABLED"));
    Ok(())
}

#[tokio::test]
async fn s4_26_s4_38_operators_see_pending_sent_and_dead() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&impatient()?).await?;
    program.webhook(scene.tenants[0], "m-1", "hello").await?;
    scene.until("sent", 1).await?;
    program.stub.set(Provider::Down);
    program.webhook(scene.tenants[0], "m-2", "hello").await?;
    scene.until("dead", 1).await?;
    program.stop().await?;
    let waiting = scene.run(&without_worker()?).await?;
    waiting.webhook(scene.tenants[1], "m-3", "hello").await?;
    let seen = scene.replies().await?;
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [("dead".into(), 1), ("pending".into(), 1), ("sent".into(), 1)]);
    let dead = "select attempt_count, last_error from channel_outbox where status = 'dead'";
    let (attempts, error): (i32, String) = sqlx::query_as(dead).fetch_one(&scene.relay).await?;
    assert_eq!(attempts, 5);
    assert!(error.contains("the provider is down"), "{error}");
    waiting.stop().await
}

#[tokio::test]
async fn s4_43_a_rollout_begins_with_the_worker_off() -> Result<()> {
    let scene = Scene::start().await?;
    let before = scene.run(&without_worker()?).await?;
    for number in 0..3 {
        assert_eq!(before.webhook(scene.tenants[0], &format!("m-{number}"), "hello").await?.0, 200);
    }
    assert!(!before.works());
    assert_eq!((scene.replies().await?["pending"], before.stub.calls()), (3, 0));
    before.stop().await?;
    let after = scene.run(&impatient()?).await?;
    scene.until("sent", 3).await?;
    assert_eq!(after.stub.calls(), 3);
    after.stop().await
}

#[tokio::test]
async fn s4_44_accepted_is_written_on_the_way_in_only() -> Result<()> {
    let scene = Scene::start().await?;
    // The database itself notes every word that is written, and by what.
    let history = "drop trigger history on channel_outbox;
                   create trigger history after insert or update on channel_messages for each row execute function note()";
    sqlx::raw_sql(history).execute(&scene.owner).await?;
    let program = scene.run(&impatient()?).await?;
    let all = ["m-1 hello", "m-2 forbidden", "m-3 broken", "m-1 hello", "m-3 broken", "m-2 forbidden"];
    for (id, text) in all.iter().filter_map(|message| message.split_once(' ')) {
        program.webhook(scene.tenants[0], id, text).await?;
    }
    scene.until("sent", 1).await?;
    let written = "select concat_ws(' ', after ->> 'provider_message_id', verb, after ->> 'status') from history order by after ->> 'provider_message_id', no";
    let written: Vec<String> = sqlx::query_scalar(written).fetch_all(&scene.owner).await?;
    let expected = [
        "m-1 INSERT accepted",
        "m-1 UPDATE executed",
        "m-2 INSERT accepted",
        "m-2 UPDATE denied_policy",
        "m-3 INSERT accepted",
        "m-3 UPDATE dispatch_failed",
        "m-3 UPDATE accepted",
        "m-3 UPDATE dispatch_failed",
    ];
    let why = "accepted on the way in, one last word each, nothing for a repetition of what is done, and a way in for the other";
    assert_eq!(written, expected, "{why}");
    program.stop().await
}

#[tokio::test]
async fn s4_27_a_reply_whose_worker_was_cut_off_is_sent_by_another() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&impatient()?).await?;
    program.stub.set(Provider::Hanging);
    program.webhook(scene.tenants[0], "m-1", "hello").await?;
    within(PATIENCE, "a send", async || program.stub.calls() == 1).await?;
    assert_eq!(scene.replies().await?["sending"], 1);
    program.cut_off().await;
    let next = scene.run(&impatient()?).await?;
    scene.until("sent", 1).await?;
    assert_eq!(next.stub.calls(), 1);
    next.stop().await
}

#[tokio::test]
async fn s4_39_retries_wait_within_their_bounds_and_the_adapters_error_is_in_the_row() -> Result<()> {
    let scene = Scene::start().await?;
    let program = scene.run(&impatient()?).await?;
    program.stub.set(Provider::Down);
    program.webhook(scene.tenants[0], "m-1", "hello").await?;
    scene.until("dead", 1).await?;
    let waits = scene.waits("m-1").await?;
    let bounds = [(80, 120), (160, 240), (320, 480), (640, 960)];
    let within = |(wait, (least, most)): (&i64, (i64, i64))| (least..=most).contains(wait);
    assert!(waits.len() == 4 && waits.iter().zip(bounds).all(within), "{waits:?}");
    let error: String = sqlx::query_scalar("select last_error from channel_outbox").fetch_one(&scene.relay).await?;
    assert!(error.contains("the provider is down"), "{error}");
    program.stop().await
}

#[tokio::test]
async fn s4_40_two_workers_share_the_replies_and_send_none_twice() -> Result<()> {
    let scene = Scene::start().await?;
    let waiting = scene.run(&without_worker()?).await?;
    for number in 0..30 {
        waiting.webhook(scene.tenants[number % 2], &format!("m-{number}"), "hello").await?;
    }
    waiting.stop().await?;
    let stubs = [Stub::default(), Stub::default()];
    stubs.iter().for_each(|stub| stub.set(Provider::Hanging));
    let settings = few_at_a_time()?;
    let two = [scene.run_with(&settings, stubs[0].clone()).await?, scene.run_with(&settings, stubs[1].clone()).await?];
    within(PATIENCE, "that both have some", async || stubs.iter().all(|stub| stub.calls() > 0)).await?;
    stubs.iter().for_each(|stub| stub.set(Provider::Up));
    scene.until("sent", 30).await?;
    for program in two {
        program.stop().await?;
    }
    let sent: Vec<_> = stubs.iter().flat_map(Stub::sent).map(|sent| sent.channel_message_id).collect();
    assert_eq!((sent.len(), sent.iter().collect::<HashSet<_>>().len()), (30, 30));
    Ok(())
}

#[tokio::test]
async fn s4_34_s4_35_s4_42_the_program_reads_a_file_and_its_environment_and_is_all_there_is() -> Result<()> {
    let scene = Scene::start().await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("channels.toml");
    // The file switches the worker off and takes one reply at a time; the environment has the last word about the first.
    std::fs::write(&file, "[channels.outbox]\nenabled = false\nclaim_batch_size = 1\npoll_interval_seconds = 0.1\n")?;
    let url = |role: &str| scene.database.url().replacen("://postgres", &format!("://{role}"), 1);
    let (app, relay) = (url(&scene.app_role), url(&scene.app_role.replace("_app", "_relay")));
    let start = |variables: &[(&str, &str)]| {
        let ours =
            [("DATABASE_URL", &*app), ("VALINOR_RELAY_DATABASE_URL", &*relay), ("VALINOR_LISTEN", "127.0.0.1:0")];
        let file = file.to_str().unwrap_or_default();
        Worker::spawn(env!("CARGO_BIN_EXE_valinor"), &[file], &[&ours[..], variables, &[("RUST_LOG", "warn")]].concat())
    };
    let mut off = start(&[])?;
    let address = off.wait_for_line(|line| line.starts_with("http://"), PATIENCE).await?;
    let address = address.trim_start_matches("http://").trim_end_matches("/webhooks/whatsapp").parse()?;
    let body = |id: &str| {
        serde_json::json!({"tenant": scene.tenants[0], "message_id": id, "sender": "+15550100", "text": "hi"})
            .to_string()
    };
    assert_eq!(show::http(address, "POST", "/webhooks/whatsapp", Some(&body("m-1"))).await?.0, 200);
    for path in ["/outbox", "/channel_outbox", "/outbox/dead", "/"] {
        assert_eq!(show::http(address, "GET", path, None).await?.0, 404, "there is no HTTP interface to the outbox");
    }
    off.signal(Signal::SIGTERM)?;
    assert!(off.wait(PATIENCE).await?.success());
    assert_eq!(scene.replies().await?["pending"], 1, "the file had the worker off");
    let mut on = start(&[("VALINOR_CHANNELS_OUTBOX_ENABLED", "true")])?;
    scene.until("sent", 1).await?;
    on.signal(Signal::SIGTERM)?;
    assert!(on.wait(PATIENCE).await?.success(), "it stops in good order");
    let mut wrong = start(&[("VALINOR_CHANNELS_OUTBOX_MAX_ATTEMPTS", "none")])?;
    assert!(!wrong.wait(PATIENCE).await?.success(), "nonsense is refused");
    Ok(())
}

#[tokio::test]
async fn s4_45_s4_46_a_reply_outlives_an_outage_and_an_outage_makes_no_storm() -> Result<()> {
    let scene = Scene::start().await?;
    let stub = Stub::default();
    stub.set(Provider::Down);
    let waiting = scene.run(&without_worker()?).await?;
    for number in 0..40 {
        waiting.webhook(scene.tenants[number % 2], &format!("m-{number}"), "hello").await?;
    }
    waiting.stop().await?;
    let program = scene.run_with(&impatient()?, stub.clone()).await?;
    within(PATIENCE, "the first failures", async || stub.calls() >= 10).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = stub.calls();
    assert!(calls < 40, "{calls} calls: not even one for each reply in three seconds");
    assert_eq!(scene.replies().await?.get("dead"), None, "nobody's attempts are used up");
    stub.set(Provider::Up);
    scene.until("sent", 40).await?;
    program.stop().await
}
