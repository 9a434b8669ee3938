//! Switching protection on and off.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use postrider::{AnyStore, Connect, Dispatcher, PublishError, TenantSetting, callback};
use testkit::{MariaDb, eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scene::{CHECKED, Scene, state};

/// Whether row security is enabled and forced, and how many policies and checks of ours there are.
async fn found(scene: &Scene) -> Result<(bool, bool, i64, i64)> {
    let sql =
        "select relrowsecurity, relforcerowsecurity, (select count(*) from pg_policy where polrelid = pg_class.oid),
        (select count(*) from pg_constraint where conrelid = pg_class.oid and convalidated
           and conname in ('outbox_messages_dedupe_check', 'outbox_messages_tenant_check'))
        from pg_class where oid = 'outbox_messages'::regclass";
    Ok(sqlx::query_as(sql).fetch_one(&scene.admin).await?)
}

/// The checks of ours, valid or not.
async fn checks(scene: &Scene) -> Result<Vec<String>> {
    let sql = "select conname::text from pg_constraint where conrelid = 'outbox_messages'::regclass
        and conname in ('outbox_messages_dedupe_check', 'outbox_messages_tenant_check') order by 1";
    Ok(sqlx::query_scalar(sql).fetch_all(&scene.admin).await?)
}

/// The relay delivers everything that is there.
async fn delivers_all(scene: &Scene) -> Result<()> {
    let relay = scene.open(scene.roles.relay()).await?;
    let stop = CancellationToken::new();
    let sink = callback(|_| async { Ok::<(), PublishError>(()) });
    let running = tokio::spawn(Dispatcher::builder_shared(relay.store(), Arc::new(sink)).build()?.run(stop.clone()));
    let left = "select count(*) from outbox_messages where status <> 'delivered'";
    let done =
        || async { sqlx::query_scalar::<_, i64>(left).fetch_one(&scene.admin).await.is_ok_and(|left| left == 0) };
    eventually(Duration::from_secs(120), done).await;
    stop.cancel();
    assert_eq!(running.await?.abandoned, 0);
    Ok(())
}

#[tokio::test]
async fn s08_a_refusal_leaves_no_constraint_behind_and_the_relay_delivers_the_row_in_the_way() -> Result<()> {
    let scene = Scene::new().await?;
    let insert = "insert into outbox_messages (namespace, topic, payload, tenant_id, dedupe_key) values ('n', 't', '1', gen_random_uuid(), 'k')";
    scene.run(insert).await?;
    // What a run that was cut off has left.
    let left =
        "alter table outbox_messages add constraint outbox_messages_dedupe_check check (dedupe_key <> 'k') not valid";
    for before in [None, Some(left)] {
        if let Some(before) = before {
            scene.run(before).await?;
        }
        scene.protect().await.expect_err("a row is in the way");
        assert_eq!(checks(&scene).await?, [""; 0], "{before:?}");
    }
    delivers_all(&scene).await
}

#[tokio::test]
async fn s08_a_refusal_under_forced_row_security_leaves_no_constraint_behind_either() -> Result<()> {
    let scene = Scene::protected().await?;
    scene.put(None, 1).await?;
    let store = scene.open(scene.owner()).await?;
    // The owner does not see the row before the constraint is validated.
    store.protect_tenants(&scene.protection().require_tenant(true)).await.expect_err("a row has no tenant");
    assert_eq!(checks(&scene).await?, ["outbox_messages_dedupe_check"], "what was there stays");
    delivers_all(&scene).await
}

#[tokio::test]
async fn s08_who_waits_for_the_table_lets_others_pass_and_tries_again() -> Result<()> {
    let scene = Scene::new().await?;
    let mut holder = scene.admin.begin().await?;
    sqlx::query("select id from outbox_messages").fetch_all(&mut *holder).await?;
    let (store, protection) = (scene.open(scene.owner()).await?, scene.protection());
    let running = tokio::spawn(async move { store.protect_tenants(&protection).await });
    let waits = || async {
        let sql = "select exists (select from pg_locks where not granted and relation = 'outbox_messages'::regclass)";
        sqlx::query_scalar::<_, bool>(sql).fetch_one(&scene.admin).await.expect("locks")
    };
    eventually(Duration::from_secs(120), waits).await;
    eventually(Duration::from_secs(120), || async { !waits().await }).await;
    assert!(!running.is_finished(), "it tries again");
    holder.commit().await?;
    assert!(!running.await??.is_empty());
    assert_eq!(found(&scene).await?, (true, true, 4, 1));
    Ok(())
}

#[tokio::test]
async fn s08_taking_the_protection_back_disables_what_no_policy_is_left_for() -> Result<()> {
    let scene = Scene::protected().await?;
    let store = scene.open(scene.owner()).await?;
    for policy in ["application", "relay", "operator", "reader"] {
        scene.run(&format!("drop policy postrider_{policy} on outbox_messages")).await?;
    }
    assert_eq!(store.row_security_left().await?, Some(Vec::new()), "nobody sees anything");
    store.unprotect_tenants().await?;
    assert_eq!(found(&scene).await?, (false, false, 0, 0));
    assert_eq!(store.row_security_left().await?, None);
    scene.protect().await?;
    scene.run("create policy theirs on outbox_messages using (true)").await?;
    store.unprotect_tenants().await?;
    assert_eq!(store.row_security_left().await?, Some(vec!["theirs".to_owned()]));
    Ok(())
}

#[tokio::test]
async fn s08_a_second_run_of_the_protection_changes_nothing_and_it_can_be_taken_back() -> Result<()> {
    let scene = Scene::new().await?;
    let store = scene.open(scene.owner()).await?;
    let printed = store.protect_tenants_pending(&scene.protection()).await?;
    assert_eq!(found(&scene).await?, (false, false, 0, 0), "printing changes nothing");
    assert_eq!(scene.protect().await?, printed);
    assert_eq!(found(&scene).await?, (true, true, 4, 1));
    assert_eq!(scene.protect().await?, [""; 0]);
    assert_eq!(store.protect_tenants_pending(&scene.protection()).await?, [""; 0]);
    let printed = store.unprotect_tenants_pending().await?;
    assert_eq!(store.unprotect_tenants().await?, printed);
    assert_eq!(found(&scene).await?, (false, false, 0, 0));
    assert_eq!(store.unprotect_tenants().await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn s08_what_somebody_changed_is_put_right_and_nothing_else() -> Result<()> {
    let scene = Scene::protected().await?;
    scene.run("create policy theirs on outbox_messages as restrictive using (true)").await?;
    scene.run("alter policy postrider_application on outbox_messages using (true)").await?;
    scene.run("alter table outbox_messages no force row level security").await?;
    let ran = scene.protect().await?;
    assert_eq!(ran.len(), 3, "{ran:#?}");
    assert!(ran[0].starts_with("drop policy postrider_application"), "{ran:#?}");
    assert_eq!(found(&scene).await?, (true, true, 5, 1));
    let elsewhere = scene.protection().setting(TenantSetting::new("shop.tenant")?);
    let store = scene.open(scene.owner()).await?;
    // The application's and the reader's; the others name no setting.
    assert_eq!(store.protect_tenants(&elsewhere).await?.len(), 4);
    store.unprotect_tenants().await?;
    assert_eq!(found(&scene).await?, (true, true, 1, 0), "a policy of somebody else is kept, and stays in force");
    Ok(())
}

#[tokio::test]
async fn s08_a_run_for_another_role_does_not_take_the_first_one_s_access_away_unasked() -> Result<()> {
    let scene = Scene::protected().await?;
    let other = format!("other_{}", &Uuid::new_v4().simple().to_string()[..12]);
    scene.run(&format!("create role {other} login")).await?;
    let roles = &scene.roles;
    let store = scene.open(scene.owner()).await?;
    for changed in [
        postrider::Roles::new(&other, roles.relay(), roles.operator())?,
        postrider::Roles::new(roles.producer(), &other, roles.operator())?,
    ] {
        let protection = postrider::TenantProtection::new(changed)?;
        for refused in [store.protect_tenants(&protection).await, store.protect_tenants_pending(&protection).await] {
            let refused = refused.expect_err("somebody would lose access").to_string();
            assert!(refused.contains("is for the role") && refused.contains("group"), "{refused}");
        }
        assert_eq!(scene.protect().await?, [""; 0], "nothing was changed");
        store.protect_tenants(&protection.replace_roles(true)).await?;
        let back = scene.protection().replace_roles(true);
        store.protect_tenants(&back).await?;
    }
    // Several share a policy by a group role: whoever is a member works as ever.
    let relays = format!("relays_{}", &Uuid::new_v4().simple().to_string()[..12]);
    scene.run(&format!("create role {relays} nologin; grant {} to {relays}", roles.relay())).await?;
    scene.run(&format!("grant {relays} to {other}")).await?;
    scene.open(&other).await?.check_row_security().await?;
    Ok(())
}

#[tokio::test]
async fn s08_roles_that_will_be_shown_no_row_and_keys_that_no_tenant_sees_are_told_before() -> Result<()> {
    let scene = Scene::new().await?;
    let store = scene.open(scene.owner()).await?;
    assert_eq!(store.protection_warnings(&scene.protection()).await?, [""; 0]);
    let guest = format!("guest_{}", &Uuid::new_v4().simple().to_string()[..12]);
    scene.run(&format!("create role {guest} login; grant select (topic) on outbox_messages to {guest}")).await?;
    let key = format!("{}/order 1", Uuid::new_v4());
    let message = postrider::Message::json("shop", "order", &1).dedupe_key(&key);
    scene.open("postgres").await?.enqueue(vec![message]).await?;
    // A relay that logs in as the table's owner is blind from then on.
    let relay = scene.pool(scene.owner()).await?;
    let warnings = store.protection_warnings(&scene.protection()).await?;
    let says = |word: &str| warnings.iter().any(|warning| warning.contains(word));
    assert!(
        warnings.len() == 3 && says(&guest) && says(scene.owner()) && says("rows without a tenant"),
        "{warnings:#?}"
    );
    assert!(!format!("{warnings:?}").contains(&key), "{warnings:#?}");
    relay.close().await;
    scene.run(&format!("grant {} to {guest}", scene.roles.relay())).await?;
    let told = |warnings: Vec<String>| warnings.iter().any(|warning| warning.contains(&guest));
    assert!(!told(store.protection_warnings(&scene.protection()).await?), "a member of a role has its policy");
    Ok(())
}

#[tokio::test]
async fn s08_the_connections_of_who_protects_are_no_other_sessions() -> Result<()> {
    let scene = Scene::new().await?;
    let AnyStore::Postgres(store) = scene.open(scene.owner()).await? else { panic!("it is PostgreSQL") };
    let held = [store.pool().acquire().await?, store.pool().acquire().await?];
    assert_eq!(store.protection_warnings(&scene.protection()).await?, [""; 0]);
    let relay = scene.pool(scene.owner()).await?;
    let warnings = store.protection_warnings(&scene.protection()).await?;
    assert!(matches!(&warnings[..], [one] if one.contains("has 1 other session now")), "{warnings:#?}");
    drop((held, relay));
    Ok(())
}

#[tokio::test]
async fn s08_rows_in_the_way_are_told_without_their_values_and_nothing_is_enabled() -> Result<()> {
    let scene = Scene::new().await?;
    let insert = "insert into outbox_messages (namespace, topic, payload, tenant_id, dedupe_key) values ('n', 't', '\"CANARY\"', gen_random_uuid(), 'CANARY')";
    scene.run(insert).await?;
    let store = scene.open(scene.owner()).await?;
    let refused = store.protect_tenants(&scene.protection()).await.expect_err("a row is in the way");
    let said = format!("{refused} {refused:?}");
    assert!(said.contains("does not begin with their tenant's id") && !said.contains("CANARY"), "{said}");
    assert!(!found(&scene).await?.0);
    let (_, find) = said.split_once("found with: ").context("how to find them")?;
    let find = find.split_once(" StoreError").map_or(find, |(find, _)| find);
    let ids: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(find.to_owned())).fetch_all(&scene.admin).await?;
    assert_eq!(ids.len(), 1);
    scene.run("delete from outbox_messages").await?;
    scene.protect().await?;
    assert_eq!(found(&scene).await?, (true, true, 4, 1));
    Ok(())
}

#[tokio::test]
async fn s08_rows_without_a_tenant_are_refused_if_that_is_asked_for() -> Result<()> {
    let scene = Scene::protected().await?;
    scene.put(None, 1).await?;
    let store = scene.open(scene.owner()).await?;
    let strict = scene.protection().require_tenant(true);
    let refused = store.protect_tenants(&strict).await.expect_err("a row has none");
    assert!(refused.to_string().contains("have no tenant"), "{refused}");
    scene.run("delete from outbox_messages").await?;
    store.protect_tenants(&strict).await?;
    let insert = "insert into outbox_messages (namespace, topic, payload) values ('n', 't', '1')";
    let refused = sqlx::query(insert).execute(&scene.admin).await.expect_err("not even a superuser's");
    assert_eq!(state(&refused), CHECKED);
    assert_eq!(scene.protect().await?, [""; 0], "who does not ask for it again does not loosen it");
    Ok(())
}

#[tokio::test]
async fn s23_a_role_that_is_not_there_and_an_account_that_does_not_own_the_table_are_refused() -> Result<()> {
    let scene = Scene::new().await?;
    let roles = postrider::Roles::new(scene.roles.producer(), "nobody_at_all", scene.roles.operator())?;
    let protection = postrider::TenantProtection::new(roles)?;
    let refused = scene.open(scene.owner()).await?.protect_tenants(&protection).await.expect_err("no such role");
    assert!(refused.to_string().contains("no role \"nobody_at_all\""), "{refused}");
    for role in [scene.roles.producer(), scene.roles.relay(), scene.roles.operator()] {
        scene.open(role).await?.protect_tenants(&scene.protection()).await.expect_err("not the owner");
    }
    assert!(!found(&scene).await?.0);
    Ok(())
}

#[tokio::test]
async fn s08_databases_without_row_security_say_so_and_what_they_do_instead() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = Connect { create: true, ..Connect::default() };
    let sqlite = AnyStore::connect(&format!("sqlite:{}/shop.db", directory.path().display()), &options).await?;
    let database = MariaDb::shared().await?.create_database().await?;
    let mysql = AnyStore::connect(&database.url(), &options).await?;
    let protection = postrider::TenantProtection::new(postrider::Roles::new("app", "relay", "ops")?)?;
    for (store, name) in [(sqlite, "SQLite"), (mysql, "MySQL")] {
        let setting = TenantSetting::default();
        for refused in [
            store.protect_tenants(&protection).await.expect_err("none"),
            store.protect_tenants_pending(&protection).await.expect_err("none"),
            store.unprotect_tenants().await.expect_err("none"),
            store.examine_tenants("app", &setting).await.expect_err("none"),
            store.prove_tenants("app", &setting).await.expect_err("none"),
        ] {
            let said = refused.to_string();
            assert!(said.contains(name) && said.contains("no row-level security") && said.contains("scope"), "{said}");
        }
    }
    Ok(())
}
