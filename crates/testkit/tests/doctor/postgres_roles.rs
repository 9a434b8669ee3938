//! Roles that may too much or too little, and row security that hides rows or hides none.

use postrider::operate::Finding;
use postrider::operate::Severity::{Problem, Warning};

use crate::scene::{OnPostgres, all_fine, one, open};

#[tokio::test]
async fn s11_a_superuser_and_the_tables_owner_are_warned_of() {
    let scene = OnPostgres::new().await;
    let findings = open(&scene.database.url()).await.examine().await.expect("examined");
    one(&findings, "role", Warning, "superuser");
    scene.run(&format!("alter table outbox_messages owner to {}", scene.roles.relay())).await;
    let owner = one(&scene.examine().await, "role", Warning, "owns the table");
    assert!(owner.fix.expect("a fix").contains("--print-grants"));
}

#[tokio::test]
async fn s23_each_privilege_that_a_relay_lacks_is_found_and_mended() {
    let scene = OnPostgres::new().await;
    let relay = scene.roles.relay().to_owned();
    for revoke in [
        "usage on schema public",
        "select on outbox_messages",
        "update (locked_until) on outbox_messages",
        "delete on outbox_messages",
        "select on postrider_migrations",
    ] {
        // Everybody may use the schema public unless that is taken away too.
        scene.run(&format!("revoke {revoke} from {relay}, public")).await;
        scene.shows_and_mends("privileges", Problem, "lacks 1").await;
    }
    scene.run(&format!("grant insert on outbox_messages to {relay}")).await;
    scene.shows_and_mends("privileges", Problem, "lacks 1").await;
}

/// The policies of an outbox with tenants: an application sees its own.
const TENANTS: &str = "create policy tenants on outbox_messages to {producer}
    using (tenant_id::text = current_setting('app.tenant', true))";

async fn with_tenants() -> OnPostgres {
    let scene = OnPostgres::new().await;
    scene.run(&TENANTS.replace("{producer}", scene.roles.producer())).await;
    scene
}

async fn found(scene: &OnPostgres, severity: postrider::operate::Severity, word: &str) -> Finding {
    one(&scene.examine().await, "row-security", severity, word)
}

#[tokio::test]
async fn s11_policies_without_row_security_then_a_relay_without_a_policy_then_all_is_well() {
    let scene = with_tenants().await;
    let disabled = found(&scene, Problem, "not enabled").await;
    scene.mend(&disabled).await;
    let hidden = found(&scene, Problem, "delivers nothing").await;
    let store = open(&scene.url(scene.roles.relay())).await;
    open(&scene.database.url())
        .await
        .enqueue(vec![postrider::Message::json("shop", "order", &1)])
        .await
        .expect("enqueued");
    let pending = || async { store.store().stats(&postrider::Scope::all()).await.expect("it counts").pending };
    assert_eq!(pending().await, 0, "the relay sees nothing indeed");
    scene.mend(&hidden).await;
    assert_eq!(pending().await, 1);
    all_fine(&scene.examine().await);
}

#[tokio::test]
async fn s11_row_security_that_is_not_forced_is_found_and_mended() {
    let scene = with_tenants().await;
    scene.mend(&found(&scene, Problem, "not enabled").await).await;
    scene.mend(&found(&scene, Problem, "delivers nothing").await).await;
    scene.run("alter table outbox_messages no force row level security").await;
    scene.shows_and_mends("row-security", Warning, "not forced").await;
}

#[tokio::test]
async fn s11_a_relay_with_bypassrls_is_warned_of() {
    let scene = with_tenants().await;
    scene.mend(&found(&scene, Problem, "not enabled").await).await;
    scene.run(&format!("alter role {} bypassrls", scene.roles.relay())).await;
    let bypasses = found(&scene, Warning, "BYPASSRLS").await;
    assert!(bypasses.fix.expect("a fix").contains("policy"));
    let superuser = open(&scene.database.url()).await.examine().await.expect("examined");
    one(&superuser, "row-security", Warning, "superuser");
}

#[tokio::test]
async fn s11_a_view_of_a_superuser_that_shows_every_tenant_is_found_and_mended() {
    let scene = with_tenants().await;
    scene.mend(&found(&scene, Problem, "not enabled").await).await;
    scene.mend(&found(&scene, Problem, "delivers nothing").await).await;
    all_fine(&scene.examine().await);
    scene.run("create view waiting as select * from outbox_messages where status = 'pending'").await;
    scene.shows_and_mends("row-security", Warning, "view public.waiting").await;
}
