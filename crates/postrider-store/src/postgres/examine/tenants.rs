//! Whether the application's role is confined to one tenant: what the catalog says, and a proof.

use postrider_core::operate::Finding;
use postrider_core::store::StoreError;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PostgresStore, proof};
use crate::postgres::error::for_relay;
use crate::postgres::protect::{APPLICATION, is_ours, keys_check_of, own_rows_of, strict_own_rows_of};
use crate::postgres::{KEYS_CHECK, statements};
use crate::tenant::TenantSetting;

const NAME: &str = "tenants";
const PROTECT: &str = "run as the table's owner: postrider migrate --row-level-security";

impl PostgresStore {
    /// Whether row-level security confines the application's role to one tenant, as far as the catalog tells. Changes nothing.
    pub async fn examine_tenants(
        &self,
        application: &str,
        setting: &TenantSetting,
    ) -> Result<Vec<Finding>, StoreError> {
        self.look_at_tenants(application, setting).await.map_err(|error| for_relay("examine the tenants", error))
    }

    /// Proves it: as the application's role, in a transaction that is rolled back, it tries to see and to write what is
    /// another tenant's. For that the role that asks must be a member of the application's.
    pub async fn prove_tenants(&self, application: &str, setting: &TenantSetting) -> Result<Finding, StoreError> {
        proof::prove(self, application, setting).await.map_err(|error| for_relay("prove the tenants apart", error))
    }

    async fn look_at_tenants(&self, application: &str, setting: &TenantSetting) -> Result<Vec<Finding>, sqlx::Error> {
        let Some(tenant) = &self.layout.tenant else {
            let what = format!(
                "the layout {:?} has no column for the tenant, so that nothing can confine the application",
                self.layout.name
            );
            return Ok(vec![Finding::problem(NAME, what, "name the column in the layout, if the table has one")]);
        };
        let tenant = as_the_catalog_has_it(&tenant.name);
        let (wanted, confines) = own_rows_of(setting, &tenant);
        let key = self.layout.dedupe_key.as_ref().map(|key| as_the_catalog_has_it(&key.name));
        let keys = key.map(|key| keys_check_of(&tenant, &key));
        let protect = Protect::of(self, &wanted, keys.as_ref().map(|(written, _)| written.as_str()));
        let sql = self.text(include_str!("../../../sql/postgres/examine_tenants.sql"));
        let ours = self.layout.is_ours();
        let mut given = self
            .place()?
            .add(application.to_owned())?
            .add(confines)?
            // Somebody else's may have any name.
            .add(ours.then(|| format!("{}{KEYS_CHECK}", self.names.table())))?
            .add(keys.as_ref().map(|(_, read)| read.clone()))?
            .add(setting.name().to_owned())?;
        for table in ["changelog", "settings", "cursors", "audit", "migrations"] {
            given = given.add(format!("{}{table}", self.names.prefix()))?;
        }
        given = given.add(strict_own_rows_of(setting, &tenant).to_vec())?;
        let rows = self.ask(sql, given).await?;
        let Some(row) = rows.first() else {
            let place = format!("{}.{}", statements::schema(&self.names), self.names.table());
            return Ok(vec![Finding::problem(NAME, format!("there is no table {place}"), "run postrider migrate")]);
        };
        if !row.try_get::<bool, _>("is_there")? {
            let what = format!("there is no role {application:?}, so nothing can be said of it");
            return Ok(vec![Finding::problem(NAME, what, "name the role that the application logs in as")]);
        }
        let mut findings = self.row_security(row, &protect)?;
        if keys.is_some() && row.try_get("secured")? && !row.try_get::<bool, _>("keys_checked")? {
            findings.push(Finding::problem(
                NAME,
                "no valid constraint ties dedupe keys to tenants: one tenant can learn by a plain insert whether another has a key",
                protect.keys,
            ));
        }
        findings.extend(power(row)?);
        if !row.try_get::<bool, _>("superuser")? {
            findings.extend(self.detours(row)?);
            findings.extend(self.privileges(row)?);
        }
        if let Some(name) = row.try_get::<Option<String>, _>("defaulted")? {
            let resets: String = row.try_get("resets")?;
            findings.push(Finding::problem(
                NAME,
                format!("{name} has a default for the role or the database: a transaction that sets no tenant has one"),
                format!("run: {resets}"),
            ));
        } else if row.try_get("preset")? {
            let name = setting.name();
            findings.push(Finding::problem(
                NAME,
                format!("{name} has a default in the server's configuration, or for the role that asks: a transaction that sets no tenant has one"),
                format!("take {name} out of postgresql.conf and of the options of connections, and reload the server"),
            ));
        }
        if findings.is_empty() {
            let role: String = row.try_get("role")?;
            let what =
                format!("row security is forced and confines the role {role} to the tenant in {}", setting.name());
            findings.push(Finding::fine(NAME, what));
        }
        Ok(findings)
    }

    fn row_security(&self, row: &PgRow, protect: &Protect) -> Result<Vec<Finding>, sqlx::Error> {
        let mut findings = Vec::new();
        if !row.try_get::<bool, _>("secured")? {
            findings.push(Finding::problem(
                NAME,
                "row security is not enabled: every role that may read the table sees every tenant",
                &protect.enable,
            ));
            return Ok(findings);
        }
        if !row.try_get::<bool, _>("forced")? {
            findings.push(Finding::problem(
                NAME,
                "row security is not forced: the table's owner sees every tenant",
                self.text("run: alter table {table} force row level security"),
            ));
        }
        if !row.try_get::<bool, _>("enqueues")? {
            findings.push(Finding::problem(
                NAME,
                "no policy lets the application's role write: it cannot enqueue",
                &protect.policy,
            ));
        }
        let wider: Vec<Wider> =
            serde_json::from_str(row.try_get("wider")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let role: String = row.try_get("role")?;
        findings.extend(wider.iter().map(|policy| self.wider(policy, &role, protect)));
        Ok(findings)
    }

    /// A policy of ours is never to be dropped: the relay and the operators see the rows by it.
    fn wider(&self, policy: &Wider, role: &str, protect: &Protect) -> Finding {
        let name = format!("\"{}\"", policy.name.replace('"', "\"\""));
        let Wider { name: plain, by, .. } = policy;
        let is_ours = self.layout.is_ours() && is_ours(plain);
        // A run for other roles than before is refused unless it is told to replace them.
        let again = match plain != APPLICATION || (policy.itself && policy.shared) {
            true => format!("{PROTECT} --replace-roles"),
            false => PROTECT.to_owned(),
        };
        if policy.strict {
            let what = format!("with the policy {plain} an empty setting is an error, and not no tenant");
            let alter = format!("run as the table's owner: alter policy {name} on {{table}} {}", protect.confines);
            return Finding::warning(NAME, what, if is_ours { again } else { self.text(&alter) });
        }
        let confines = is_ours && plain == APPLICATION;
        if !policy.itself && !confines {
            let lenders = by.join(", ");
            let what = format!(
                "the policy {plain} holds for the application's role {role} as a member of {lenders}: it may see more than its tenant"
            );
            let or = if is_ours { "" } else { "let the policy name other roles, or " };
            return Finding::problem(NAME, what, format!("{or}run: revoke {lenders} from {role}"));
        }
        let what = format!(
            "the policy {plain} holds for the application's role and is not the one that confines it: it may see more than its tenant"
        );
        let fix = match is_ours {
            true => again,
            false => {
                self.text(&format!("take the role out of the policy's roles, or run: drop policy {name} on {{table}}"))
            }
        };
        Finding::problem(NAME, what, fix)
    }

    /// Ways to the rows that lead past the policies.
    fn detours(&self, row: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
        let mut findings = Vec::new();
        let role: String = row.try_get("role")?;
        for view in row.try_get::<Vec<String>, _>("views")? {
            let name = view.rsplit_once("view ").map_or(view.as_str(), |(_, name)| name);
            let fix = match view.starts_with("view ") {
                true => format!("run: alter view {name} set (security_invoker = true)"),
                false => format!("run: revoke all on {name} from {role}, public"),
            };
            let what = format!("the {view} shows the table to the application's role with the rights of its owner");
            findings.push(Finding::problem(NAME, what, fix));
        }
        for table in row.try_get::<Vec<String>, _>("kin")? {
            findings.push(Finding::problem(
                NAME,
                format!("the table {table} is above or below the outbox by inheritance, and the application's role may use it: there the outbox's policies do not hold"),
                format!("take the outbox out of the inheritance, or run: revoke all on {table} from {role}, public"),
            ));
        }
        for function in row.try_get::<Vec<String>, _>("mighty")? {
            findings.push(Finding::problem(
                NAME,
                format!(
                    "the function {function} names the table and runs with the rights of its owner, from whom row security hides nothing; the application's role may call it"
                ),
                format!("give it an owner that is confined, or run: revoke execute on function {function} from {role}, public"),
            ));
        }
        for function in row.try_get::<Vec<String>, _>("functions")? {
            findings.push(Finding::warning(
                NAME,
                format!(
                    "the function {function} names the table and runs with the rights of its owner; the application's role may call it"
                ),
                format!("see that it keeps to one tenant, or run: revoke execute on function {function} from {role}, public"),
            ));
        }
        Ok(findings)
    }

    fn privileges(&self, row: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
        let mut findings = Vec::new();
        let role: String = row.try_get("role")?;
        // Owning says it all.
        if row.try_get::<bool, _>("owns")? {
            return Ok(findings);
        }
        let held: Vec<Privilege> =
            serde_json::from_str(row.try_get("held")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let held = |what, verbs: &[&str]| Held::of(&held, &role, what, verbs);
        if let Some(dangerous) = held("table", &["truncate", "references", "trigger"]) {
            findings.push(Finding::problem(
                NAME,
                format!("the role {role} has the privilege {}, which no policy holds back", dangerous.verbs),
                format!("run: {}", dangerous.revoke()),
            ));
        }
        // What an application does with rows of its own in its own table is its own matter.
        if let Some(needless) = held("table", &["update", "delete", "select"]).filter(|_| self.layout.is_ours()) {
            findings.push(Finding::warning(
                NAME,
                format!("the role {role} has {} on the table, more than it needs to enqueue", needless.verbs),
                format!(
                    "give it what postrider migrate --print-grants --row-level-security prints after you run: {}",
                    needless.revoke()
                ),
            ));
        }
        for (what, called, why) in [
            ("changelog", "the changelog's table changelog", "whose entries have no tenant: they are those of all"),
            (
                "settings",
                "the changelog's table settings",
                "where all who write to the changelog wait for each other, of whatever tenant",
            ),
            (
                "cursors",
                "the changelog's table cursors",
                "which tell how far consumers have read the entries of all, and quote errors about them",
            ),
            ("audit", "the audit table", "which names messages of all tenants and what operators did to them"),
            ("sequence", "the sequences", "which tell how much all tenants send, and number the messages of all"),
        ] {
            let Some(held) = held(what, &[]) else { continue };
            findings.push(Finding::problem(
                NAME,
                format!("the role {role} has {} on {called}, {why}", held.verbs),
                format!("run: {}", held.revoke()),
            ));
        }
        if let Some(versions) = held("versions", &[]) {
            let what = format!("the role {role} has {} on the table of versions", versions.verbs);
            let fix = format!("run: {}", versions.revoke());
            findings.push(match versions.verbs == "select" {
                true => Finding::warning(NAME, format!("{what}, which it does not need"), fix),
                false => {
                    Finding::problem(NAME, format!("{what}: it can keep the relay of all tenants from starting"), fix)
                }
            });
        }
        Ok(findings)
    }
}

/// A column's name as the catalog prints it.
fn as_the_catalog_has_it(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A policy that holds for the application's role and is not the one that confines it.
#[derive(serde::Deserialize)]
struct Wider {
    name: String,
    /// It names the role, or holds for all.
    itself: bool,
    /// The roles that the application's is a member of, and by which it holds.
    by: Vec<String>,
    /// It names other roles, too.
    shared: bool,
    /// It confines, but fails on an empty setting.
    strict: bool,
}

/// What mends a table without protection: a command for our own, statements for somebody else's.
struct Protect {
    enable: String,
    policy: String,
    keys: String,
    /// What a policy that confines says.
    confines: String,
}

impl Protect {
    fn of(store: &PostgresStore, confines: &str, keys: Option<&str>) -> Self {
        let clauses = format!("using ({confines}) with check ({confines})");
        if store.layout.is_ours() {
            return Self { enable: PROTECT.into(), policy: PROTECT.into(), keys: PROTECT.into(), confines: clauses };
        }
        let run = |sql: &str| store.text(&format!("run as the table's owner: {sql}"));
        Self {
            enable: run("alter table {table} enable row level security; alter table {table} force row level security"),
            policy: run(&format!("create policy tenants on {{table}} {clauses}")),
            keys: run(&format!("alter table {{table}} add check ({})", keys.unwrap_or("true"))),
            confines: clauses,
        }
    }
}

/// What it is of, the thing's own name, the verb, and who holds it.
type Privilege = (String, String, String, String);

/// Privileges that the application's role has, itself, because everybody has them, or by roles that it may become.
struct Held<'a> {
    role: &'a str,
    /// What they are on, as `revoke` names it.
    things: String,
    verbs: String,
    others: Vec<&'a str>,
}

impl<'a> Held<'a> {
    /// Those of something that are among the verbs, or all; none if there are none.
    fn of(held: &'a [Privilege], role: &'a str, what: &str, among: &[&str]) -> Option<Self> {
        let (mut verbs, mut others, mut things): (Vec<&str>, Vec<&str>, Vec<&str>) = Default::default();
        for (of, thing, verb, holder) in held {
            if of != what || !(among.is_empty() || among.contains(&verb.as_str())) {
                continue;
            }
            verbs.push(verb);
            things.push(thing);
            others.extend(Some(holder.as_str()).filter(|holder| *holder != role));
        }
        for names in [&mut verbs, &mut others, &mut things] {
            names.sort_unstable();
            names.dedup();
        }
        let kind = if what == "sequence" { "sequence " } else { "" };
        (!verbs.is_empty()).then(|| Self {
            role,
            things: format!("{kind}{}", things.join(", ")),
            verbs: verbs.join(", "),
            others,
        })
    }

    /// Takes them away: the role's own and everybody's, and the roles that lend it others.
    fn revoke(&self) -> String {
        let own = format!("revoke {} on {} from {}, public", self.verbs, self.things, self.role);
        let lent = self.others.iter().map(|other| format!("; revoke {other} from {}", self.role));
        std::iter::once(own).chain(lent).collect()
    }
}

/// What a role is, and what it may become.
fn power(row: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
    let role: String = row.try_get("role")?;
    let own = "let the application log in as a role of its own with what postrider migrate --print-grants prints";
    if row.try_get("superuser")? {
        let what = format!("the application's role {role} is a superuser: no policy holds for it");
        return Ok(vec![Finding::problem(NAME, what, format!("{own}, or run: alter role {role} nosuperuser"))]);
    }
    let mut findings = Vec::new();
    if row.try_get("bypasses")? {
        let what = format!("the application's role {role} has BYPASSRLS: no policy holds for it");
        findings.push(Finding::problem(NAME, what, format!("run: alter role {role} nobypassrls")));
    }
    if row.try_get("owns")? {
        let what = format!("the application's role {role} owns the table, so it can switch row security off");
        findings.push(Finding::problem(NAME, what, own));
    }
    for (flag, what, mend) in [
        ("replicates", "has REPLICATION: it may read the log of all changes", "alter role {role} noreplication"),
        (
            "creates_roles",
            "has CREATEROLE: before PostgreSQL 16 it may give itself other roles",
            "alter role {role} nocreaterole",
        ),
        (
            "owns_schema",
            "owns the schema, so it may drop the table and make another",
            "alter schema {schema} owner to {owner}",
        ),
        (
            "owns_database",
            "owns the database, so it may drop what is in it",
            "alter database {database} owner to {owner}",
        ),
    ] {
        if row.try_get(flag)? {
            let mut fix = format!("run: {mend}").replace("{role}", &role);
            for name in ["schema", "database", "owner"] {
                fix = fix.replace(&format!("{{{name}}}"), row.try_get(name)?);
            }
            findings.push(Finding::problem(NAME, format!("the application's role {role} {what}"), fix));
        }
    }
    let powers: Vec<String> = row.try_get("powers")?;
    for (other, power) in row.try_get::<Vec<String>, _>("becomes")?.iter().zip(&powers) {
        findings.push(Finding::problem(
            NAME,
            format!("the application's role {role} is a member of {other}, which {power}: SET ROLE is enough"),
            format!("run: revoke {other} from {role}"),
        ));
    }
    Ok(findings)
}
