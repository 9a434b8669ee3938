//! What the doctor says of an application's role, on databases that are set up right, and wrong in every way we know.

use anyhow::Result;
use postrider::operate::Severity::{Problem, Warning};
use postrider::operate::{Finding, Severity};
use postrider::{AnyStore, TenantSetting};
use uuid::Uuid;

use crate::scene::{Scene, one};

/// What a relay's catalog look finds.
async fn look(scene: &Scene) -> Result<Vec<Finding>> {
    let store = scene.open(scene.roles.relay()).await?;
    let findings = store.examine_tenants(scene.roles.producer(), &TenantSetting::default()).await?;
    store.close().await;
    Ok(findings)
}

/// What comes of trying, as the superuser, who may become anybody.
async fn prove(scene: &Scene) -> Result<Finding> {
    prove_by(scene, &scene.open("postgres").await?).await
}

async fn prove_by(scene: &Scene, store: &AnyStore) -> Result<Finding> {
    let before = scene.count().await?;
    let proof = store.prove_tenants(scene.roles.producer(), &TenantSetting::default()).await?;
    assert_eq!(scene.count().await?, before, "nothing stays behind");
    Ok(proof)
}

/// A protected outbox with rows of a tenant, and of none.
async fn well_set() -> Result<Scene> {
    let scene = Scene::protected().await?;
    scene.put(Some(Uuid::new_v4()), 3).await?;
    scene.put(None, 3).await?;
    Ok(scene)
}

fn sql_of(finding: &Finding) -> String {
    let fix = finding.fix.as_deref().expect("a fix");
    fix.rsplit_once("run: ").expect("a fix to run").1.to_owned()
}

/// Breaks a database that was right; the look says the word, and after its fix all is right again.
async fn breaks_and_mends(scene: &Scene, wrong: &str, severity: Severity, word: &str) -> Result<()> {
    let (application, relay) = (scene.roles.producer(), scene.roles.relay());
    scene.run(&wrong.replace("{app}", application).replace("{owner}", scene.owner()).replace("{relay}", relay)).await?;
    let finding = one(&look(scene).await?, severity, word);
    scene.run(&sql_of(&finding)).await?;
    all_is_well(scene).await
}

async fn all_is_well(scene: &Scene) -> Result<()> {
    let findings = look(scene).await?;
    assert!(matches!(&findings[..], [fine] if fine.severity == Severity::Fine), "{findings:#?}");
    Ok(())
}

#[tokio::test]
async fn s11_a_confined_application_is_proved_to_be() -> Result<()> {
    let scene = well_set().await?;
    all_is_well(&scene).await?;
    let proof = prove(&scene).await?;
    assert!(proof.severity == Severity::Fine && proof.is_examined() && proof.what.contains("6 rows"), "{proof}");
    Ok(())
}

#[tokio::test]
async fn s11_who_may_not_become_the_application_says_so_and_how_to_allow_it() -> Result<()> {
    let scene = well_set().await?;
    let operator = scene.open(scene.roles.operator()).await?;
    let proof = prove_by(&scene, &operator).await?;
    assert!(!proof.is_examined() && proof.severity == Severity::Fine, "{proof}");
    let (_, grant) = proof.what.rsplit_once("run: ").expect("how to allow it");
    scene.run(grant).await?;
    let proof = prove_by(&scene, &operator).await?;
    assert!(proof.is_examined() && proof.severity == Severity::Fine, "{proof}");
    all_is_well(&scene).await?;
    // Who may not read the outbox cannot tell.
    let owner = scene.open("postgres").await?;
    let nobody = owner.examine_tenants("nobody_at_all", &TenantSetting::default()).await?;
    one(&nobody, Problem, "no role \"nobody_at_all\"");
    Ok(())
}

#[tokio::test]
async fn s11_row_security_that_is_disabled_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    scene.run("alter table outbox_messages disable row level security").await?;
    one(&look(&scene).await?, Problem, "not enabled");
    let proof = prove(&scene).await?;
    assert!(proof.severity == Problem && proof.what.contains("sees rows that were there"), "{proof}");
    scene.protect().await?;
    all_is_well(&scene).await
}

#[tokio::test]
async fn s11_an_application_that_owns_the_table_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    scene.run(&format!("alter table outbox_messages owner to {}", scene.roles.producer())).await?;
    one(&look(&scene).await?, Problem, "owns the table");
    scene.run("alter table outbox_messages no force row level security").await?;
    one(&look(&scene).await?, Problem, "not forced");
    let proof = prove(&scene).await?;
    assert!(proof.severity == Problem && proof.what.contains("deletes the message of one"), "{proof}");
    scene.run(&format!("alter table outbox_messages owner to {}", scene.owner())).await?;
    scene.protect().await?;
    breaks_and_mends(&scene, "grant {owner} to {app}", Problem, "is a member of").await
}

#[tokio::test]
async fn s11_an_application_that_is_a_superuser_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    scene.run(&format!("alter role {} superuser", scene.roles.producer())).await?;
    let proof = prove(&scene).await?;
    assert!(proof.severity == Problem && proof.what.contains("as no tenant it sees"), "{proof}");
    breaks_and_mends(&scene, "alter role {app} superuser", Problem, "is a superuser").await
}

#[tokio::test]
async fn s11_an_application_with_bypassrls_is_a_problem_also_by_membership() -> Result<()> {
    let scene = well_set().await?;
    breaks_and_mends(&scene, "alter role {app} bypassrls", Problem, "BYPASSRLS").await?;
    let role = format!("mighty_{}", Uuid::new_v4().simple());
    scene.run(&format!("create role {role} bypassrls nologin")).await?;
    breaks_and_mends(&scene, &format!("grant {role} to {{app}}"), Problem, "is a member of").await
}

#[tokio::test]
async fn s11_a_view_that_shows_the_table_with_the_rights_of_its_owner_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    let view = "create view waiting as select * from outbox_messages; ";
    scene.run(view).await?;
    all_is_well(&scene).await?;
    breaks_and_mends(&scene, "grant select on waiting to {app}", Problem, "view public.waiting shows").await?;
    scene.run("alter view waiting reset (security_invoker)").await?;
    scene.run(&format!("revoke all on waiting from {}", scene.roles.producer())).await?;
    let second = "create view second as select topic from waiting; grant select (topic) on second to {app}";
    breaks_and_mends(&scene, second, Problem, "view public.second shows").await?;
    let copy = "create materialized view copied as select * from outbox_messages; grant select on copied to {app}";
    breaks_and_mends(&scene, copy, Problem, "materialized view public.copied").await
}

#[tokio::test]
async fn s11_a_policy_that_widens_what_the_application_sees_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    for wider in [
        "create policy wide on outbox_messages using (true)",
        "create policy wide on outbox_messages for insert to {app} with check (true)",
        "create policy wide on outbox_messages for select to {app} using (tenant_id is null)",
    ] {
        breaks_and_mends(&scene, wider, Problem, "policy wide").await?;
    }
    scene.run("alter policy postrider_application on outbox_messages using (true)").await?;
    one(&look(&scene).await?, Problem, "policy postrider_application");
    let proof = prove(&scene).await?;
    assert!(
        proof.severity == Problem && proof.what.contains("as another tenant it sees the message of one"),
        "{proof}"
    );
    scene.protect().await?;
    // What the relay may see, the application may become.
    scene.run(&format!("grant {} to {}", scene.roles.relay(), scene.roles.producer())).await?;
    scene.run(&sql_of(&one(&look(&scene).await?, Problem, "policy postrider_relay"))).await?;
    all_is_well(&scene).await?;
    // A restrictive one only takes away.
    scene.run("create policy narrow on outbox_messages as restrictive using (true)").await?;
    all_is_well(&scene).await
}

#[tokio::test]
async fn s11_no_advice_takes_a_policy_of_ours_away() -> Result<()> {
    let scene = well_set().await?;
    let (application, relay, operator) = (scene.roles.producer(), scene.roles.relay(), scene.roles.operator());
    let lent = format!("lent_{}", Uuid::new_v4().simple());
    scene.run(&format!("create role {lent} nologin; grant {operator} to {lent}")).await?;
    for (wrong, mend) in [
        ("alter role {app} superuser", "run: alter role {app} nosuperuser"),
        ("grant {relay} to {app}", "run: revoke {relay} from {app}"),
        // Only the first step of the way is the application's.
        ("grant {lent} to {app}", "run: revoke {lent} from {app}"),
        (
            "alter policy postrider_application on outbox_messages using (true)",
            "postrider migrate --row-level-security",
        ),
        (
            "alter policy postrider_relay on outbox_messages to {relay}, {app}",
            "postrider migrate --row-level-security --replace-roles",
        ),
    ] {
        let of_this =
            |text: &str| text.replace("{app}", application).replace("{relay}", relay).replace("{lent}", &lent);
        scene.run(&of_this(wrong)).await?;
        let findings = look(&scene).await?;
        let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(!said.iter().any(|said| said.contains("drop policy")), "{wrong}: {said:#?}");
        let mend = of_this(mend);
        let told = findings.iter().find(|finding| finding.severity == Problem && finding.to_string().ends_with(&mend));
        let Some(told) = told else { panic!("{wrong}: nothing says {mend:?}: {said:#?}") };
        match told.fix.as_deref().and_then(|fix| fix.split_once("run: ")) {
            Some((_, sql)) => scene.run(sql).await?,
            None => {
                let owner = scene.open(scene.owner()).await?;
                let replace = mend.contains("--replace-roles");
                owner.protect_tenants(&scene.protection().replace_roles(replace)).await?;
            }
        }
        all_is_well(&scene).await?;
        scene.open(relay).await?.check_row_security().await?;
    }
    Ok(())
}

#[tokio::test]
async fn s11_a_default_of_the_tenant_is_taken_away_where_it_was_given() -> Result<()> {
    let scene = well_set().await?;
    let tenant = "set app.current_tenant_id = '0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d'";
    let database = scene.database.name();
    for of in ["role {app}", "role {app} in database {database}", "database {database}"] {
        let of = of.replace("{database}", database);
        breaks_and_mends(&scene, &format!("alter {of} {tenant}"), Problem, "has a default").await?;
    }
    // In two places at once.
    let both = format!("alter role {{app}} {tenant}; alter role {{app}} in database {database} {tenant}");
    breaks_and_mends(&scene, &both, Problem, "has a default").await
}

#[tokio::test]
async fn s11_a_policy_with_which_an_empty_setting_is_an_error_shows_and_lets_write_nothing() -> Result<()> {
    let scene = well_set().await?;
    let confines = "(tenant_id = current_setting('app.current_tenant_id', true)::uuid)";
    scene
        .run(&format!("alter policy postrider_application on outbox_messages using {confines} with check {confines}"))
        .await?;
    let finding = one(&look(&scene).await?, Warning, "an empty setting is an error");
    assert!(!finding.to_string().contains("sees more"), "{finding}");
    let proof = prove(&scene).await?;
    assert!(proof.severity == Warning && proof.what.contains("an empty setting is an error"), "{proof}");
    assert!(proof.fix.as_deref().is_some_and(|fix| fix.contains("nullif(current_setting(")), "{proof}");
    assert!(!proof.what.contains("not confined"), "{proof}");
    scene.protect().await?;
    all_is_well(&scene).await?;
    // What raises an error for a tenant that is set proves nothing.
    let raising = "create function refuse() returns trigger language plpgsql as $$ begin
          if new.tenant_id::text is distinct from current_setting('app.current_tenant_id', true) then raise 'not yours'; end if;
          return new;
        end $$;
        create trigger refuse before insert on outbox_messages for each row execute function refuse()";
    scene.run(raising).await?;
    let proof = prove(&scene).await?;
    assert!(proof.severity == Problem && proof.what.contains("SQLSTATE P0001"), "{proof}");
    assert!(!proof.what.contains("not confined"), "{proof}");
    Ok(())
}

#[tokio::test]
async fn s11_privileges_beyond_the_least_are_told() -> Result<()> {
    let scene = well_set().await?;
    for (grant, severity, word) in [
        ("grant truncate on outbox_messages to {app}", Problem, "truncate"),
        (
            "grant references (id) on outbox_messages to {app}; grant trigger on outbox_messages to {app}",
            Problem,
            "trigger",
        ),
        ("grant update, delete on outbox_messages to {app}", Warning, "more than it needs"),
        ("grant select on postrider_changelog to {app}", Problem, "table changelog"),
        (
            "grant insert (uow_id) on postrider_changelog to {app}",
            Problem,
            "has insert on the changelog's table changelog",
        ),
        (
            "grant select, update on postrider_settings to {app}",
            Problem,
            "has update on the changelog's table settings",
        ),
        ("grant select on postrider_cursors to {app}", Problem, "table cursors"),
        ("grant select, insert, delete on postrider_audit to {app}", Problem, "on the audit table"),
        ("grant select, update, delete on postrider_migrations to {app}", Problem, "on the table of versions"),
        ("grant select on postrider_migrations to {app}", Warning, "on the table of versions"),
        ("grant usage, select, update on all sequences in schema public to {app}", Problem, "sequences"),
    ] {
        breaks_and_mends(&scene, grant, severity, word).await?;
    }
    let default = "alter role {app} set app.current_tenant_id = '0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d'";
    breaks_and_mends(&scene, default, Problem, "has a default").await?;
    let shouted = default.replace("app.current_tenant_id", "\"App.Current_Tenant_Id\"");
    scene.run(&shouted.replace("{app}", scene.roles.producer())).await?;
    let finding = one(&look(&scene).await?, Problem, "has a default");
    // A session that knows the name from before would take it for the one in small letters.
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql_of(&finding))).execute(&scene.pool("postgres").await?).await?;
    all_is_well(&scene).await?;
    Ok(())
}

#[tokio::test]
async fn s11_what_everybody_may_is_taken_from_everybody() -> Result<()> {
    let scene = well_set().await?;
    for (grant, severity, word) in [
        ("grant truncate on outbox_messages to public", Problem, "truncate"),
        ("grant delete on outbox_messages to public", Warning, "more than it needs"),
        ("grant select on postrider_changelog to public", Problem, "table changelog"),
        ("grant select on postrider_audit to public", Problem, "on the audit table"),
        (
            "create materialized view copied as select * from outbox_messages; grant select on copied to public",
            Problem,
            "materialized view public.copied",
        ),
    ] {
        breaks_and_mends(&scene, grant, severity, word).await?;
    }
    Ok(())
}

#[tokio::test]
async fn s11_a_function_with_the_rights_of_who_sees_all_is_a_problem_and_any_other_worth_a_warning() -> Result<()> {
    let scene = well_set().await?;
    let made = "create function {name}() returns bigint language sql security definer {body}; alter function {name}() owner to {by}";
    let bodies = [
        ("peek", "as 'select count(*) from outbox_messages'"),
        ("shout", "as 'select count(*) from OUTBOX_MESSAGES'"),
        ("parsed", "begin atomic select count(*) from outbox_messages; end"),
    ];
    // The owner sees nothing while row security is forced.
    let owners = [("postgres", Problem), (scene.roles.relay(), Problem), (scene.owner(), Warning)];
    for ((name, body), (owner, severity)) in bodies.into_iter().zip(owners) {
        let made = made.replace("{name}", name).replace("{body}", body).replace("{by}", owner);
        breaks_and_mends(&scene, &made, severity, &format!("function {name}()")).await?;
    }
    let mighty = format!("mighty_{}", Uuid::new_v4().simple());
    scene.run(&format!("create role {mighty} bypassrls nologin; alter function parsed() owner to {mighty}")).await?;
    breaks_and_mends(&scene, "grant execute on function parsed() to public", Problem, "function parsed()").await
}

#[tokio::test]
async fn s11_a_table_above_or_below_that_shows_the_rows_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    scene.run("create table above (like outbox_messages)").await?;
    let above = "alter table outbox_messages inherit above; grant select (topic) on above to {app}";
    breaks_and_mends(&scene, above, Problem, "table public.above").await?;
    scene.run("create table below () inherits (outbox_messages)").await?;
    all_is_well(&scene).await?;
    breaks_and_mends(&scene, "grant select on below to public", Problem, "table public.below").await
}

#[tokio::test]
async fn s11_a_tenant_in_the_server_s_configuration_is_a_problem() -> Result<()> {
    let tenant = "0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d";
    let server = testkit::Postgres::builder().setting("app.current_tenant_id", tenant).start().await?;
    let scene = Scene::on(&server).await?;
    scene.protect().await?;
    one(&look(&scene).await?, Problem, "has a default");
    Ok(())
}

#[tokio::test]
async fn s11_what_an_application_may_become_counts_though_it_does_not_inherit_it() -> Result<()> {
    let scene = well_set().await?;
    let lent = format!("lent_{}", Uuid::new_v4().simple());
    scene.run(&format!("create role {lent} nologin; alter role {} noinherit", scene.roles.producer())).await?;
    for (grant, severity, word) in [
        ("grant truncate on outbox_messages to {lent}; grant {lent} to {app}", Problem, "truncate"),
        (
            "revoke all on outbox_messages from {lent}; grant delete on outbox_messages to {lent}; grant {lent} to {app}",
            Warning,
            "more than it needs",
        ),
        (
            "revoke all on outbox_messages from {lent}; grant select on postrider_changelog to {lent}; grant {lent} to {app}",
            Problem,
            "table changelog",
        ),
    ] {
        breaks_and_mends(&scene, &grant.replace("{lent}", &lent), severity, word).await?;
    }
    Ok(())
}

#[tokio::test]
async fn s11_powers_that_lead_around_row_security_are_problems() -> Result<()> {
    let scene = well_set().await?;
    breaks_and_mends(&scene, "alter role {app} replication", Problem, "REPLICATION").await?;
    let version: i32 =
        sqlx::query_scalar("select current_setting('server_version_num')::int").fetch_one(&scene.admin).await?;
    if version < 160_000 {
        breaks_and_mends(&scene, "alter role {app} createrole", Problem, "CREATEROLE").await?;
    }
    for role in ["pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"] {
        breaks_and_mends(&scene, &format!("grant {role} to {{app}}"), Problem, "files of the server").await?;
    }
    breaks_and_mends(&scene, "alter schema public owner to {app}", Problem, "owns the schema").await?;
    let database = format!("alter database {} owner to {{app}}", scene.database.name());
    breaks_and_mends(&scene, &database, Problem, "owns the database").await
}

#[tokio::test]
async fn s11_a_constraint_of_keys_by_name_only_is_a_problem_and_put_right() -> Result<()> {
    let scene = well_set().await?;
    let by_name = "alter table outbox_messages drop constraint outbox_messages_dedupe_check, add constraint outbox_messages_dedupe_check check (true)";
    scene.run(by_name).await?;
    one(&look(&scene).await?, Problem, "ties dedupe keys to tenants");
    assert_eq!(scene.protect().await?.len(), 3, "dropped, added and validated");
    all_is_well(&scene).await
}

#[tokio::test]
async fn s11_a_proof_by_who_sees_no_row_is_none() -> Result<()> {
    let scene = well_set().await?;
    scene.run(&format!("grant {} to {}", scene.roles.producer(), scene.owner())).await?;
    let proof = prove_by(&scene, &scene.open(scene.owner()).await?).await?;
    assert!(!proof.is_examined() && proof.what.contains("shows no row"), "{proof}");
    Ok(())
}

#[tokio::test]
async fn s11_without_the_constraint_of_keys_or_a_policy_to_write_it_is_a_problem() -> Result<()> {
    let scene = well_set().await?;
    scene.run("alter table outbox_messages drop constraint outbox_messages_dedupe_check").await?;
    one(&look(&scene).await?, Problem, "ties dedupe keys to tenants");
    let proof = prove(&scene).await?;
    assert!(
        proof.severity == Problem && proof.what.contains("as another tenant it writes with the key of one"),
        "{proof}"
    );
    scene.protect().await?;
    all_is_well(&scene).await?;
    scene.run("drop policy postrider_application on outbox_messages").await?;
    one(&look(&scene).await?, Problem, "cannot enqueue");
    let proof = prove(&scene).await?;
    assert!(proof.severity == Problem && proof.what.contains("cannot enqueue"), "{proof}");
    let elsewhere = scene.open("postgres").await?;
    scene.protect().await?;
    let other = TenantSetting::new("shop.tenant")?;
    one(&elsewhere.examine_tenants(scene.roles.producer(), &other).await?, Problem, "policy postrider_application");
    Ok(())
}
