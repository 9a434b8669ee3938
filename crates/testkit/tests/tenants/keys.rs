//! Dedupe keys: the same key of two tenants, and what one learns of the other's.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::{Dispatcher, Outbox, PublishError, Scope, callback, tenant};
use testkit::eventually;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scene::{CHECKED, Scene, order, state};

#[tokio::test]
async fn s09_the_same_key_of_two_tenants_is_two_messages_and_both_are_delivered() -> Result<()> {
    let scene = Scene::protected().await?;
    let tenants = [Uuid::new_v4(), Uuid::new_v4()];
    let (pool, outbox) = (scene.application().await?, Outbox::default());
    for is_new in [true, false] {
        for one in tenants {
            let mut transaction = pool.begin().await?;
            tenant::set(&mut transaction, one).await?;
            let message = order(one, 1).dedupe_key(format!("{one}/order 1"));
            assert_eq!(outbox.enqueue(&mut transaction, message).await?.is_new(), is_new);
            transaction.commit().await?;
        }
    }
    let relay = scene.open(scene.roles.relay()).await?;
    let sink = callback(|_| async { Ok::<(), PublishError>(()) });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Dispatcher::builder_shared(relay.store(), Arc::new(sink)).build()?.run(stop.clone()));
    let delivered = "select count(distinct tenant_id) from outbox_messages where status = 'delivered'";
    let both =
        || async { sqlx::query_scalar(delivered).fetch_one(&scene.admin).await.is_ok_and(|tenants: i64| tenants == 2) };
    eventually(Duration::from_secs(120), both).await;
    stop.cancel();
    assert_eq!(running.await?.abandoned, 0);
    assert_eq!(relay.store().stats(&Scope::all()).await?.pending, 0);
    Ok(())
}

#[tokio::test]
async fn s09_a_tenant_learns_nothing_of_another_s_keys_by_trying_them() -> Result<()> {
    let scene = Scene::protected().await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    let there = format!("{two}/order 1");
    let store = scene.open("postgres").await?;
    store.enqueue(vec![order(two, 1).dedupe_key(&there)]).await?;
    let pool = scene.application().await?;
    let simple = format!("{}/order 1", two.simple());
    let mut answers = Vec::new();
    for key in
        [there, format!("{two}/order 2"), simple, format!("{}/ORDER", two.to_string().to_uppercase()), "plain".into()]
    {
        for (tenant, conflict) in
            [(one, ""), (one, " on conflict do nothing"), (two, ""), (two, " on conflict do nothing")]
        {
            let sql = format!(
                "insert into outbox_messages (namespace, topic, payload, tenant_id, dedupe_key) values ('shop', 'order', '1', '{tenant}', '{key}'){conflict}"
            );
            let mut transaction = pool.begin().await?;
            tenant::set(&mut transaction, one).await?;
            let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *transaction).await;
            let refused = refused.expect_err("a key of another tenant");
            answers.push((tenant == one, state(&refused)));
        }
    }
    // The same answer whether the key is there or not, and never one of the unique index.
    assert!(answers.iter().all(|(own, state)| *state == if *own { CHECKED } else { "42501" }), "{answers:?}");
    let found = Outbox::default();
    let mut transaction = pool.begin().await?;
    tenant::set(&mut transaction, one).await?;
    found.enqueue(&mut transaction, order(one, 1).dedupe_key(format!("{two}/order 1"))).await.expect_err("before SQL");
    let seen: i64 = sqlx::query_scalar("select count(*) from outbox_messages where dedupe_key like $1")
        .bind(format!("{two}/%"))
        .fetch_one(&mut *transaction)
        .await?;
    assert_eq!((seen, scene.count().await?), (0, 1));
    Ok(())
}

#[tokio::test]
async fn s09_without_the_constraint_the_unique_index_would_tell() -> Result<()> {
    let scene = Scene::protected().await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    scene.open("postgres").await?.enqueue(vec![order(two, 1).dedupe_key(format!("{two}/1"))]).await?;
    scene.run("alter table outbox_messages drop constraint outbox_messages_dedupe_check").await?;
    let pool = scene.application().await?;
    let mut transaction = pool.begin().await?;
    tenant::set(&mut transaction, one).await?;
    let sql = format!(
        "insert into outbox_messages (namespace, topic, payload, tenant_id, dedupe_key) values ('shop', 'order', '1', '{one}', '{two}/1')"
    );
    let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *transaction).await.expect_err("it is there");
    assert_eq!(state(&refused), "23505", "this is what the constraint is for");
    Ok(())
}

#[tokio::test]
async fn s09_a_key_that_a_hidden_row_holds_is_told_as_such_and_not_to_be_tried_again() -> Result<()> {
    let scene = Scene::protected().await?;
    let tenant = Uuid::new_v4();
    let key = format!("{tenant}/order 1");
    let store = scene.open("postgres").await?;
    store.enqueue(vec![postrider::Message::json("shop", "order", &1).dedupe_key(&key)]).await?;
    let pool = scene.application().await?;
    let mut transaction = pool.begin().await?;
    tenant::set(&mut transaction, tenant).await?;
    let sql = format!(
        "select * from postrider_enqueue('shop', 'order', '1', tenant_id => '{tenant}', dedupe_key => '{key}')"
    );
    let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *transaction).await.expect_err("it is held");
    assert_eq!(state(&refused), "23505", "{refused}");
    assert!(refused.to_string().contains("does not see"), "{refused}");
    transaction.rollback().await?;
    let application = scene.open(scene.roles.producer()).await?;
    let setting = postrider::TenantSetting::default();
    for messages in [1, 2] {
        let messages = (1..=messages).map(|n| order(tenant, n).dedupe_key(format!("{tenant}/order {n}"))).collect();
        let refused = application.enqueue_as(tenant, &setting, messages).await.expect_err("it is held");
        assert!(!refused.is_retryable() && refused.to_string().contains("does not see"), "{refused}");
    }
    assert_eq!(scene.count().await?, 1);
    Ok(())
}

#[tokio::test]
async fn s08_the_nil_uuid_is_no_tenant_for_the_function_and_for_a_dispatcher_either() -> Result<()> {
    let scene = Scene::protected().await?;
    let sql =
        "select * from postrider_enqueue('shop', 'order', '1', tenant_id => '00000000-0000-0000-0000-000000000000')";
    let refused = sqlx::raw_sql(sql).execute(&scene.admin).await.expect_err("no tenant");
    assert!(state(&refused) == "22023" && refused.to_string().contains("nil UUID"), "{refused}");
    let sink = postrider::callback(|_| async { Ok::<(), postrider::PublishError>(()) });
    let store = scene.open(scene.roles.relay()).await?.store();
    let scope = postrider::Scope { namespaces: None, tenant: Some(Uuid::nil()) };
    let dispatcher = postrider::Dispatcher::builder_shared(store, std::sync::Arc::new(sink)).scope(scope).build();
    assert!(dispatcher.err().is_some_and(|error| error.to_string().contains("nil UUID")));
    Ok(())
}
