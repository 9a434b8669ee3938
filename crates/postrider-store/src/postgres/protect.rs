//! Row-level security for tenants, on request.
//!
//! What should be there is compared with what the catalog has, and only what differs is run, so that a second run changes
//! nothing and takes no lock. Rows that speak against a constraint are looked for first. Then it is done in three transactions:
//! constraints, not valid, so that the table is locked for a moment only; then they are validated, which reads the table beside the
//! traffic; and when no row speaks against them the policies are made and enabled together, so that the relay never meets a table
//! that hides its rows.
//!
//! A constraint that is not valid holds for every row that is written, also for one that was wrong before: claims and settles of
//! such a row fail, and with them those of all others in the same statement. So none stays behind when a run is refused.
//!
//! Stages that keep everybody out of the table wait for their lock for a moment only, because who waits for such a lock holds up
//! all who come later; then they let the others pass and try again.

mod policy;

use std::time::Duration;

use postrider_core::sabotage::{self, Defect};
use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

pub(super) use policy::{APPLICATION, is_ours, own_rows_of, strict_own_rows_of};
use policy::{NAMES, Policy, TASKS, policies};

use super::PostgresStore;
use super::error::{for_relay, sqlstate};
use super::migrate;
use super::statements::{render, schema};
use crate::names::Names;
use crate::tenant::TenantProtection;

/// A row that does not satisfy a constraint.
const CHECK_VIOLATION: &str = "23514";

/// For how long a stage waits for the table at a time, and how often; between tries others have their turn.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '2s'";
const LOCK_TRIES: usize = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(500);
/// A role's limit is not meant for reading the whole table once.
const NO_TIMEOUT: &str = "set local statement_timeout = 0";

/// A check of rows, with the ending of its name.
struct Check {
    suffix: &'static str,
    text: &'static str,
    /// The same, as the catalog has it.
    read: &'static str,
    /// What is wrong with rows that are in its way.
    wrong: &'static str,
}

/// What `enqueue` checks, for those who do not go through it. Without it a tenant could learn by a plain insert, from
/// the unique index, whether another's key is there.
const KEYS: Check = Check {
    suffix: super::KEYS_CHECK,
    text: "tenant_id is null or dedupe_key is null or starts_with(dedupe_key, tenant_id::text || '/') \
           or starts_with(dedupe_key, replace(tenant_id::text, '-', '') || '/')",
    read: "CHECK (((tenant_id IS NULL) OR (dedupe_key IS NULL) OR starts_with(dedupe_key, ((tenant_id)::text || '/'::text)) \
           OR starts_with(dedupe_key, (replace((tenant_id)::text, '-'::text, ''::text) || '/'::text))))",
    wrong: "have a dedupe key that does not begin with their tenant's id and '/'",
};

const TENANT: Check = Check {
    suffix: "_tenant_check",
    text: "tenant_id is not null",
    read: "CHECK ((tenant_id IS NOT NULL))",
    wrong: "have no tenant",
};

/// Rows that hold a key which only a tenant's rows should, and that no tenant sees.
const TENANTLESS: &str =
    "tenant_id is null and dedupe_key ~ '^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})/'";

/// What follows the definition of a constraint that is not valid.
const NOT_VALID: &str = " NOT VALID";

/// What ties dedupe keys to tenants, for the doctor: as it is written, and as the catalog has it.
pub(super) fn keys_check_of(tenant: &str, dedupe_key: &str) -> (String, String) {
    let of = |text: &str| text.replace("tenant_id", "\0").replace("dedupe_key", dedupe_key).replace('\0', tenant);
    (of(KEYS.text), of(KEYS.read))
}

impl Check {
    fn name(&self, names: &Names) -> String {
        format!("{}{}", names.table(), self.suffix)
    }

    /// What finds the rows in its way.
    fn find(&self) -> String {
        format!("select id from {{table}} where not ({})", self.text)
    }
}

/// The checks that a protection asks for.
fn checks(protection: &TenantProtection) -> &'static [Check] {
    const ALL: [Check; 2] = [KEYS, TENANT];
    if protection.require_tenant { &ALL } else { &ALL[..1] }
}

/// When a statement is run; those of one stage are one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Constrain,
    Validate,
    Enable,
}

/// What the catalog has.
struct Found {
    is_there: bool,
    enabled: bool,
    forced: bool,
    missing: Vec<String>,
    /// The checks, each with its name and its definition.
    checks: Vec<(String, String)>,
    policies: Vec<Policy>,
}

impl Found {
    /// The definition of the check of this name.
    fn check(&self, name: &str) -> Option<&str> {
        self.checks.iter().find(|(found, _)| found == name).map(|(_, definition)| definition.as_str())
    }
}

impl PostgresStore {
    /// Keeps tenants apart by row-level security, enabled and forced, and answers the statements that were run: none if
    /// all was there already. The roles must be there; their privileges are a matter of [`grants`](Self::grants).
    ///
    /// Rows that are in the way are a refusal that leaves the table as it was. It never loosens the check for rows without a
    /// tenant; [`unprotect_tenants`](Self::unprotect_tenants) does.
    /// What a run would do to others is told in the log; [`protection_warnings`](Self::protection_warnings) tells it before.
    pub async fn protect_tenants(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        self.refuse_others()?;
        for warning in self.protection_warnings(protection).await? {
            tracing::warn!(schema = schema(&self.names), table = self.names.table(), "{warning}");
        }
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let looked = self.refuse_rows_in_the_way(&mut connection, protection).await;
        self.or_withdraw(&mut connection, looked).await?;
        let mut ran = self.stage(&mut connection, protection, Stage::Constrain).await?;
        // The owner under forced row security sees no rows, so that only now it may turn out that some are in the way.
        let validated = self.stage(&mut connection, protection, Stage::Validate).await;
        ran.extend(self.or_withdraw(&mut connection, validated).await?);
        ran.extend(self.stage(&mut connection, protection, Stage::Enable).await?);
        Ok(ran)
    }

    /// What [`protect_tenants`](Self::protect_tenants) does to others that they may not expect: roles that will be shown no row, such as
    /// a relay's that was not named, and rows without a tenant whose dedupe keys look like a tenant's. Changes nothing.
    pub async fn protection_warnings(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        self.refuse_others()?;
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        run(&mut transaction, NO_TIMEOUT).await.map_err(failed)?;
        let warnings = self.look_for_warnings(&mut transaction, protection).await.map_err(failed)?;
        transaction.rollback().await.map_err(failed)?;
        Ok(warnings)
    }

    async fn look_for_warnings(
        &self,
        connection: &mut PgConnection,
        protection: &TenantProtection,
    ) -> Result<Vec<String>, sqlx::Error> {
        let sql = render(&self.names, include_str!("../../sql/postgres/protection_hidden.sql"), &[]);
        let named: Vec<&str> = named(protection).map(|(_, role)| role).collect();
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false).bind(schema(&self.names));
        let query = query.bind(self.names.table()).bind(named).bind(&NAMES[..]).bind(self.sessions_of_ours());
        let rows = query.fetch_all(&mut *connection).await?;
        let mut warnings = Vec::new();
        for row in rows {
            let (role, sessions): (String, i64) = (row.try_get("role")?, row.try_get("sessions")?);
            let now = match sessions {
                0 => String::new(),
                1 => ", and has 1 other session now".to_owned(),
                sessions => format!(", and has {sessions} other sessions now"),
            };
            warnings.push(render(
                &self.names,
                &format!("the role {role} may use {{table}} and gets no policy, so it will be shown no row{now}; name it as one of the roles, or make it a member of one"),
                &[],
            ));
        }
        // The table may not be there yet, where only printing is asked for.
        if look(connection, &self.names, &[]).await?.is_there {
            let find = format!("select id from {{table}} where {TENANTLESS}");
            let sql = render(&self.names, &format!("select exists ({find})"), &[]);
            let query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
            if query.fetch_one(&mut *connection).await? {
                warnings.push(format!(
                    "rows without a tenant have a dedupe key that begins with a UUID and '/'; where that is a tenant's, the application cannot enqueue with \
                     the key, because it does not see who holds it; they are found with: {}",
                    render(&self.names, &find, &[])
                ));
            }
        }
        Ok(warnings)
    }

    /// How many sessions this pool has besides the one that asks. Behind a pooler nobody knows.
    fn sessions_of_ours(&self) -> i64 {
        match self.runner.behind_pooler {
            true => 0,
            false => i64::from(self.runner.pool.size()) - 1,
        }
    }

    /// Looks for rows that a constraint would not let pass, before there is one.
    async fn refuse_rows_in_the_way(
        &self,
        connection: &mut PgConnection,
        protection: &TenantProtection,
    ) -> Result<(), StoreError> {
        let mut transaction = connection.begin().await.map_err(failed)?;
        run(&mut transaction, NO_TIMEOUT).await.map_err(failed)?;
        let found = look(&mut transaction, &self.names, &[]).await.map_err(failed)?;
        for check in checks(protection).iter().filter(|check| found.check(&check.name(&self.names)) != Some(check.read))
        {
            let sql = render(&self.names, &format!("select exists ({})", check.find()), &[]);
            let query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
            if query.fetch_one(&mut *transaction).await.map_err(failed)? {
                return Err(self.rows_in_the_way(check));
            }
        }
        transaction.rollback().await.map_err(failed)
    }

    /// Runs a stage; where others hold the table, a few times.
    async fn stage(
        &self,
        connection: &mut PgConnection,
        protection: &TenantProtection,
        stage: Stage,
    ) -> Result<Vec<String>, StoreError> {
        let mut tries = 1;
        loop {
            match self.try_stage(connection, protection, stage).await {
                Err(error) if error.kind() == StoreErrorKind::Conflict && tries < LOCK_TRIES => {
                    tries += 1;
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn try_stage(
        &self,
        connection: &mut PgConnection,
        protection: &TenantProtection,
        stage: Stage,
    ) -> Result<Vec<String>, StoreError> {
        let mut transaction = connection.begin().await.map_err(failed)?;
        migrate::lock(&mut transaction, &self.names).await.map_err(failed)?;
        let steps = plan(&mut transaction, &self.names, protection).await?;
        let steps: Vec<String> = steps.into_iter().filter(|(at, _)| *at == stage).map(|(_, sql)| sql).collect();
        let limit = if stage == Stage::Validate { NO_TIMEOUT } else { LOCK_TIMEOUT };
        run(&mut transaction, limit).await.map_err(failed)?;
        for sql in &steps {
            self.step(&mut transaction, sql).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(steps)
    }

    /// After a failure takes away constraints that are not valid: of this run, or of one that was cut off.
    async fn or_withdraw<T>(
        &self,
        connection: &mut PgConnection,
        done: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if done.is_err() {
            let withdrawn = self.take_back(connection, |found| unvalidated(&self.names, found)).await;
            if let Err(error) = withdrawn {
                tracing::error!(
                    schema = schema(&self.names), table = self.names.table(), %error,
                    "constraints that are not valid stay behind and may fail claims; run postrider migrate --no-row-level-security"
                );
            }
        }
        done
    }

    /// Runs what takes something back; where others hold the table, a few times.
    async fn take_back(
        &self,
        connection: &mut PgConnection,
        steps: impl Fn(&Found) -> Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut tries = 1;
        loop {
            match self.try_take_back(connection, &steps).await {
                Err(error) if error.kind() == StoreErrorKind::Conflict && tries < LOCK_TRIES => {
                    tries += 1;
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn try_take_back(
        &self,
        connection: &mut PgConnection,
        steps: impl Fn(&Found) -> Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut transaction = connection.begin().await.map_err(failed)?;
        migrate::lock(&mut transaction, &self.names).await.map_err(failed)?;
        let steps = steps(&look(&mut transaction, &self.names, &[]).await.map_err(failed)?);
        run(&mut transaction, LOCK_TIMEOUT).await.map_err(failed)?;
        for sql in &steps {
            self.step(&mut transaction, sql).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(steps)
    }

    /// What [`protect_tenants`](Self::protect_tenants) would run now; writes nothing.
    pub async fn protect_tenants_pending(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        self.refuse_others()?;
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        let steps = plan(&mut transaction, &self.names, protection).await?;
        transaction.rollback().await.map_err(failed)?;
        Ok(steps.into_iter().map(|(_, sql)| sql).collect())
    }

    /// Takes back what [`protect_tenants`](Self::protect_tenants) did, and answers the statements that were run. While other
    /// policies are there row-level security stays enabled, and the relay needs one of them;
    /// [`row_security_left`](Self::row_security_left) tells.
    pub async fn unprotect_tenants(&self) -> Result<Vec<String>, StoreError> {
        self.refuse_others()?;
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        self.take_back(&mut connection, |found| removal(&self.names, found)).await
    }

    /// The policies of others, if row-level security is enabled; none if it is not.
    pub async fn row_security_left(&self) -> Result<Option<Vec<String>>, StoreError> {
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let found = look(&mut connection, &self.names, &[]).await.map_err(failed)?;
        let others = found.policies.into_iter().map(|policy| policy.name);
        let others = others.filter(|name| !NAMES.contains(&name.as_str()));
        Ok(found.enabled.then(|| others.collect()))
    }

    /// What [`unprotect_tenants`](Self::unprotect_tenants) would run now; writes nothing.
    pub async fn unprotect_tenants_pending(&self) -> Result<Vec<String>, StoreError> {
        self.refuse_others()?;
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        let found = look(&mut transaction, &self.names, &[]).await.map_err(failed)?;
        transaction.rollback().await.map_err(failed)?;
        Ok(removal(&self.names, &found))
    }

    /// A table of another shape is protected by its owner.
    fn refuse_others(&self) -> Result<(), StoreError> {
        if self.layout.is_ours() {
            return Ok(());
        }
        let text = format!(
            "the table of the layout {:?} is its owner's, and so are its policies; see docs/guides/tenants.md for the policy that a relay needs",
            self.layout.name
        );
        Err(StoreError::new(StoreErrorKind::Refused, text))
    }

    async fn step(&self, connection: &mut PgConnection, sql: &str) -> Result<(), StoreError> {
        tracing::info!(schema = schema(&self.names), sql, "protecting tenants");
        run(connection, sql).await.map_err(|error| self.refused(sql, error))
    }

    /// The server's text names a row that is in the way of a constraint with all its values, so we say it ourselves.
    fn refused(&self, sql: &str, error: sqlx::Error) -> StoreError {
        let about = |check: &&Check| sql.contains(&format!("\"{}\"", check.name(&self.names)));
        match [KEYS, TENANT].iter().find(about) {
            Some(check) if sqlstate(&error).as_deref() == Some(CHECK_VIOLATION) => self.rows_in_the_way(check),
            _ => failed(error),
        }
    }

    fn rows_in_the_way(&self, check: &Check) -> StoreError {
        let what = format!(
            "protect the tenants failed: rows {}, nothing was enabled; mend or delete them and run it again, they are found with: {}",
            check.wrong,
            render(&self.names, &check.find(), &[])
        );
        StoreError::new(StoreErrorKind::Refused, what)
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map(|_| ())
}

fn failed(error: sqlx::Error) -> StoreError {
    for_relay("protect the tenants", error)
}

async fn look(connection: &mut PgConnection, names: &Names, roles: &[&str]) -> Result<Found, sqlx::Error> {
    let table = render(names, include_str!("../../sql/postgres/protection.sql"), &[]);
    let query = sqlx::query(AssertSqlSafe(table)).persistent(false);
    let row = query.bind(schema(names)).bind(names.table()).bind(roles).fetch_one(&mut *connection).await?;
    let rows = render(names, include_str!("../../sql/postgres/protection_policies.sql"), &[]);
    let query = sqlx::query(AssertSqlSafe(rows)).persistent(false);
    let rows = query.bind(schema(names)).bind(names.table()).fetch_all(connection).await?;
    let checks: Vec<String> = row.try_get("checks")?;
    Ok(Found {
        is_there: row.try_get("is_there")?,
        enabled: row.try_get("enabled")?,
        forced: row.try_get("forced")?,
        missing: row.try_get("missing")?,
        checks: checks.iter().filter_map(|check| check.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect(),
        policies: rows.iter().map(Policy::read).collect::<Result<_, _>>()?,
    })
}

/// What is missing, in the order of its stages.
async fn plan(
    connection: &mut PgConnection,
    names: &Names,
    protection: &TenantProtection,
) -> Result<Vec<(Stage, String)>, StoreError> {
    let roles: Vec<&str> = named(protection).map(|(_, role)| role).collect();
    let found = look(connection, names, &roles).await.map_err(failed)?;
    if let Some(role) = found.missing.first() {
        let what = format!(
            "there is no role {role:?} on the server; create it first: create role \"{role}\" login, and give it what postrider migrate --print-grants prints"
        );
        return Err(StoreError::new(StoreErrorKind::Refused, what));
    }
    if !protection.replace_roles {
        refuse_to_replace(&found, protection)?;
    }
    let mut steps = Vec::new();
    let mut step = |stage, template: &str| steps.push((stage, render(names, template, &[])));
    for check in checks(protection) {
        let (name, text) = (check.name(names), check.text);
        let definition = found.check(&name);
        if definition == Some(check.read) {
            continue;
        }
        if definition.and_then(|definition| definition.strip_suffix(NOT_VALID)) != Some(check.read) {
            if definition.is_some() {
                step(Stage::Constrain, &format!("alter table {{table}} drop constraint \"{name}\""));
            }
            let add = format!("alter table {{table}} add constraint \"{name}\" check ({text}) not valid");
            step(Stage::Constrain, &add);
        }
        step(Stage::Validate, &format!("alter table {{table}} validate constraint \"{name}\""));
    }
    let wanted = policies(protection);
    for policy in found.policies.iter().filter(|policy| NAMES.contains(&policy.name.as_str())) {
        if !wanted.iter().any(|wanted| wanted.policy == *policy) {
            step(Stage::Enable, &format!("drop policy {} on {{table}}", policy.name));
        }
    }
    for wanted in wanted.iter().filter(|wanted| !found.policies.contains(&wanted.policy)) {
        step(Stage::Enable, &wanted.create);
    }
    for (is_so, verb) in
        [(found.enabled, "enable"), (found.forced || sabotage::has(Defect::RowSecurityNotForced), "force")]
    {
        if !is_so {
            step(Stage::Enable, &format!("alter table {{table}} {verb} row level security"));
        }
    }
    Ok(steps)
}

/// The roles of a protection, each with what the command line calls it.
fn named(protection: &TenantProtection) -> impl Iterator<Item = (&'static str, &str)> {
    let roles = &protection.roles;
    let reader = roles.reader().map(|reader| ("reader", reader));
    [("application", roles.producer()), ("relay", roles.relay()), ("operator", roles.operator())]
        .into_iter()
        .chain(reader)
}

/// A policy is for one role: making it one for another takes the first one's rows away.
fn refuse_to_replace(found: &Found, protection: &TenantProtection) -> Result<(), StoreError> {
    for policy in &found.policies {
        let Some(task) = NAMES.iter().zip(TASKS).find(|(name, _)| **name == policy.name).map(|(_, task)| task) else {
            continue;
        };
        let wanted = named(protection).find(|(named, _)| *named == task).map(|(_, role)| role);
        if let Some(role) = policy.roles.iter().find(|role| Some(role.as_str()) != wanted) {
            let instead = wanted.map_or_else(|| "without one".to_owned(), |wanted| format!("for {wanted:?}"));
            let what = format!(
                "the policy {} is for the role {role:?}, and a run {instead} would take its rows away; name {role:?} again, or to have several make \
                 them members of a group role and name that, or say that roles are to be replaced (--replace-roles)",
                policy.name
            );
            return Err(StoreError::new(StoreErrorKind::Refused, what));
        }
    }
    Ok(())
}

fn removal(names: &Names, found: &Found) -> Vec<String> {
    let (ours, others): (Vec<&Policy>, Vec<&Policy>) =
        found.policies.iter().partition(|policy| NAMES.contains(&policy.name.as_str()));
    let mut steps = Vec::new();
    let mut step = |template: &str| steps.push(render(names, template, &[]));
    // Row security without a policy would let nobody see anything.
    if others.is_empty() {
        for (is_so, verb) in [(found.forced, "no force"), (found.enabled, "disable")] {
            if is_so {
                step(&format!("alter table {{table}} {verb} row level security"));
            }
        }
    }
    ours.iter().for_each(|policy| step(&format!("drop policy {} on {{table}}", policy.name)));
    steps.extend(dropped(names, |name| found.check(name).is_some()));
    steps
}

/// Takes away constraints of ours that are not valid.
fn unvalidated(names: &Names, found: &Found) -> Vec<String> {
    dropped(names, |name| found.check(name).is_some_and(|definition| definition.ends_with(NOT_VALID)))
}

fn dropped(names: &Names, which: impl Fn(&String) -> bool) -> Vec<String> {
    let named = [KEYS, TENANT].iter().map(|check| check.name(names)).filter(which).collect::<Vec<_>>();
    let drop = |name: &String| format!("alter table {{table}} drop constraint \"{name}\"");
    named.iter().map(|name| render(names, &drop(name), &[])).collect()
}
