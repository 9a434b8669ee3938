//! What an application sees and writes, whatever statement it runs.

use anyhow::Result;
use postrider::{EnqueueError, Outbox, TenantSetting, tenant};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use crate::scene::{DENIED, Scene, order, state};

/// Statements of an application for tenant {own}, each with what it would do to rows of {other}, and of none.
const CROSSINGS: [&str; 9] = [
    "insert into outbox_messages (namespace, topic, payload, tenant_id) values ('n', 't', '1', '{other}')",
    "insert into outbox_messages (namespace, topic, payload) values ('n', 't', '1')",
    "insert into outbox_messages (namespace, topic, payload, tenant_id) select 'n', 't', '1', t::uuid from unnest(array['{own}', '{other}']) as t",
    "select * from postrider_enqueue('n', 't', '1', tenant_id => '{other}')",
    "select * from postrider_enqueue('n', 't', '1', tenant_id => '{other}', dedupe_key => '{other}/1')",
    "select * from postrider_enqueue('n', 't', '1')",
    "update outbox_messages set tenant_id = '{own}' where tenant_id = '{other}'",
    "delete from outbox_messages",
    "select payload from outbox_messages",
];

async fn as_tenant(
    pool: &PgPool,
    tenant: Option<Uuid>,
    sql: &str,
) -> Result<Result<Vec<sqlx::postgres::PgRow>, String>> {
    let mut transaction = pool.begin().await?;
    if let Some(tenant) = tenant {
        tenant::set(&mut transaction, tenant).await?;
    }
    let answer = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(false).fetch_all(&mut *transaction).await;
    match answer {
        Ok(rows) => {
            transaction.commit().await?;
            Ok(Ok(rows))
        }
        Err(error) => {
            transaction.rollback().await?;
            Ok(Err(state(&error)))
        }
    }
}

#[tokio::test]
async fn s08_an_application_sees_and_writes_rows_of_its_tenant_only() -> Result<()> {
    let scene = Scene::protected().await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    scene.put(Some(one), 3).await?;
    scene.put(Some(two), 5).await?;
    scene.put(None, 7).await?;
    let pool = scene.application().await?;
    for (tenant, rows) in [(Some(one), 3), (Some(two), 5), (None, 0), (Some(Uuid::new_v4()), 0)] {
        let seen = as_tenant(&pool, tenant, "select id from outbox_messages").await?;
        assert_eq!(seen.expect("it may look").len(), rows, "{tenant:?}");
    }
    for sql in CROSSINGS {
        for (own, other) in [(one, two), (two, one)] {
            let sql = sql.replace("{own}", &own.to_string()).replace("{other}", &other.to_string());
            for tenant in [Some(own), None] {
                let refused = as_tenant(&pool, tenant, &sql).await?.expect_err(&sql);
                assert_eq!(refused, DENIED, "{sql}");
            }
        }
    }
    assert_eq!(scene.count().await?, 15);
    Ok(())
}

#[tokio::test]
async fn s08_wider_privileges_do_not_widen_what_an_application_reaches() -> Result<()> {
    let scene = Scene::protected().await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    scene.put(Some(one), 1).await?;
    scene.put(Some(two), 2).await?;
    scene.put(None, 3).await?;
    scene
        .run(&format!("grant select, insert, update, delete on outbox_messages to {}", scene.roles.producer()))
        .await?;
    let pool = scene.application().await?;
    for (sql, touched) in [
        ("select payload from outbox_messages", 1),
        ("select payload from outbox_messages where tenant_id is null or tenant_id = '{two}'", 0),
        ("update outbox_messages set last_error = 'x' returning id", 1),
        ("update outbox_messages set last_error = 'x' where tenant_id = '{two}' returning id", 0),
        ("delete from outbox_messages where tenant_id = '{two}' returning id", 0),
        ("select id from outbox_messages for update", 1),
    ] {
        let sql = sql.replace("{two}", &two.to_string());
        let rows = as_tenant(&pool, Some(one), &sql).await?.expect(&sql);
        assert_eq!(rows.len(), touched, "{sql}");
    }
    for give in [format!("'{two}'"), "null".to_owned()] {
        let sql = format!("update outbox_messages set tenant_id = {give}");
        assert_eq!(as_tenant(&pool, Some(one), &sql).await?.expect_err("a row cannot be given away"), DENIED);
    }
    assert_eq!(
        as_tenant(&pool, Some(one), "delete from outbox_messages returning id").await?.expect("its own").len(),
        1
    );
    assert_eq!(scene.count().await?, 5);
    Ok(())
}

#[tokio::test]
async fn s08_enqueue_answers_as_ever_within_a_tenant_and_refuses_what_is_another_s() -> Result<()> {
    let scene = Scene::protected().await?;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    let (pool, outbox) = (scene.application().await?, Outbox::default());
    let keyed = |tenant: Uuid| order(tenant, 1).dedupe_key(format!("{tenant}/order 1"));
    for expected in [true, false] {
        let mut transaction = pool.begin().await?;
        tenant::set(&mut transaction, one).await?;
        assert_eq!(outbox.enqueue(&mut transaction, keyed(one)).await?.is_new(), expected);
        transaction.commit().await?;
        let sql = format!(
            "select is_new from postrider_enqueue('shop', 'called', '1', tenant_id => '{one}', dedupe_key => '{one}/1')"
        );
        let rows = as_tenant(&pool, Some(one), &sql).await?.expect("the function writes for its caller");
        assert_eq!(sqlx::Row::get::<bool, _>(&rows[0], 0), expected);
    }
    for message in [order(two, 1), keyed(two), postrider::Message::json("shop", "order", &1)] {
        let mut transaction = pool.begin().await?;
        tenant::set(&mut transaction, one).await?;
        let refused = outbox.enqueue(&mut transaction, message).await.expect_err("not of this tenant");
        assert!(matches!(refused, EnqueueError::Database(_)) && !refused.is_retryable(), "{refused}");
    }
    let store = scene.open(scene.roles.producer()).await?;
    store.enqueue(vec![order(one, 2)]).await.expect_err("no tenant is set");
    store.enqueue_as(two, &TenantSetting::default(), vec![order(one, 2)]).await.expect_err("another one is");
    assert!(store.enqueue_as(one, &TenantSetting::default(), vec![order(one, 2)]).await?[0].is_new());
    let definer: bool = sqlx::query_scalar("select bool_or(prosecdef) from pg_proc where proname like 'postrider%'")
        .fetch_one(&scene.admin)
        .await?;
    assert!(!definer, "functions run with the rights of who calls them");
    Ok(())
}

#[tokio::test]
async fn s08_an_empty_setting_is_no_tenant_and_one_that_is_no_uuid_is_an_error() -> Result<()> {
    let scene = Scene::protected().await?;
    // Enqueue refuses the nil UUID; a plain insert may write it.
    let nil = "insert into outbox_messages (namespace, topic, payload, tenant_id) values ('shop', 'order', '1', '{nil}'), ('shop', 'order', '2', '{nil}')";
    scene.run(&nil.replace("{nil}", &Uuid::nil().to_string())).await?;
    scene.put(None, 2).await?;
    let pool = scene.application().await?;
    for (value, expected) in [("", Ok(0)), ("null", Err("22P02")), ("1", Err("22P02")), ("' or true", Err("22P02"))] {
        let mut transaction = pool.begin().await?;
        sqlx::query("select set_config('app.current_tenant_id', $1, true)")
            .bind(value)
            .execute(&mut *transaction)
            .await?;
        let seen = sqlx::query("select id from outbox_messages").fetch_all(&mut *transaction).await;
        let seen = seen.map(|rows| rows.len()).map_err(|error| state(&error));
        assert_eq!(seen, expected.map_err(str::to_owned), "{value:?}");
    }
    Ok(())
}

#[tokio::test]
async fn s08_a_reader_sees_all_tenants_or_the_one_that_it_sets_and_the_owner_none() -> Result<()> {
    let scene = Scene::protected().await?;
    let one = Uuid::new_v4();
    scene.put(Some(one), 1).await?;
    scene.put(Some(Uuid::new_v4()), 2).await?;
    scene.put(None, 4).await?;
    let reader = scene.roles.reader().expect("a reader").to_owned();
    for (role, tenant, rows) in [
        (reader.as_str(), None, 7),
        (&reader, Some(one), 1),
        (&reader, Some(Uuid::new_v4()), 0),
        (scene.owner(), None, 0),
        (scene.owner(), Some(one), 0),
    ] {
        let pool = scene.pool(role).await?;
        let seen = as_tenant(&pool, tenant, "select status from outbox_messages").await?.expect("it may look");
        assert_eq!(seen.len(), rows, "{role} {tenant:?}");
    }
    Ok(())
}
