//! A proof that the application's role is confined, by trying.
//!
//! In a transaction that is rolled back it becomes that role, writes a message for one new tenant, and then tries as another
//! new tenant, and as none, to see, write, change and delete what is not its own, and to learn of the other's dedupe keys.
//! Real rows are looked for as well: a few that the asking role sees.
//!
//! A table of another shape may want a tenant that is there, and columns that we know nothing of, so that a message of a new
//! tenant cannot be written. But a policy is asked before constraints are: where one of them answers, the policy let it pass.

use postrider_core::operate::Finding;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{DENIED, PostgresStore};
use crate::layout::IdKind;
use crate::postgres::error::sqlstate;
use crate::tenant::TenantSetting;

const NAME: &str = "tenants-proof";
/// "Check violation", what a constraint answers.
const CHECKED: &str = "23514";
/// What constraints answer: class 23.
const CONSTRAINED: &str = "23";
/// Who has no tenant.
const NOBODY: &str = "no tenant";
/// How many rows of others are looked for.
const SAMPLE: i64 = 100;

/// What became of a statement: how many rows, or the SQLSTATE.
type Answer = Result<u64, String>;

struct Trial<'a> {
    connection: &'a mut PgConnection,
    setting: &'a TenantSetting,
    store: &'a PostgresStore,
    /// Row security hides rows from who asks, so that an empty sample tells nothing.
    is_blind: bool,
}

pub(super) async fn prove(
    store: &PostgresStore,
    application: &str,
    setting: &TenantSetting,
) -> Result<Finding, sqlx::Error> {
    let is_blind = store.blindness().await?.is_some();
    let mut transaction = store.runner.pool.begin().await?;
    let finding = Trial { connection: &mut transaction, setting, store, is_blind }.run(application).await;
    transaction.rollback().await?;
    finding
}

impl Trial<'_> {
    async fn run(&mut self, application: &str) -> Result<Finding, sqlx::Error> {
        let sample = self.store.statement("select {raw_id}::text from {table} limit $1::bigint");
        let query = sqlx::query_scalar::<_, String>(AssertSqlSafe(sample)).persistent(false).bind(SAMPLE);
        let Ok(rows) = query.fetch_all(&mut *self.connection).await else {
            return Ok(Finding::not_examined(
                NAME,
                "this role may not read the outbox; ask as the relay or the operator",
            ));
        };
        let me: String = sqlx::query_scalar("select quote_ident(current_user)")
            .persistent(false)
            .fetch_one(&mut *self.connection)
            .await?;
        let role = format!("\"{}\"", application.replace('"', "\"\""));
        if let Err(state) = self.attempt(&format!("set local role {role}"), &[]).await? {
            let why = match state.as_str() {
                DENIED => format!("the role {me} may not become {role}; to allow it, run: grant {role} to {me}"),
                state => format!("the role {me} could not become {role} (SQLSTATE {state})"),
            };
            return Ok(Finding::not_examined(NAME, why));
        }
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        self.become_tenant(&one.to_string()).await?;
        let written = self.insert(one, Some(one), None).await?;
        let ours = self.store.layout().is_ours();
        if let Err(state) = written
            && (ours || !state.starts_with(CONSTRAINED))
        {
            let what =
                format!("the role {role} cannot enqueue for the tenant in {} (SQLSTATE {state})", self.setting.name());
            let fix = match ours {
                true => {
                    "give it what postrider migrate --print-grants prints, and a policy with postrider migrate --row-level-security"
                }
                false => "let it insert, and give it a policy for rows of its tenant, as the table's owner",
            };
            return Ok(Finding::problem(NAME, what, fix));
        }
        let (mut crossed, mut raised) = (Vec::new(), Vec::new());
        for (who, tenant) in [("another tenant", other.to_string()), (NOBODY, String::new())] {
            self.become_tenant(&tenant).await?;
            let (crossings, errors) = self.crossings(one, other, &rows).await?;
            crossed.extend(crossings.into_iter().map(|what| format!("as {who} it {what}")));
            raised.extend(errors.into_iter().map(|state| (who, state)));
        }
        if crossed.is_empty()
            && let Some(finding) = self.not_told(&role, &raised)
        {
            return Ok(finding);
        }
        Ok(match crossed.is_empty() {
            true if rows.is_empty() && self.is_blind => Finding::not_examined(
                NAME,
                format!(
                    "row security shows no row to the role {me}, so that none of another tenant could be looked for; ask as the relay or the operator"
                ),
            ),
            true => {
                let tried = rows.len();
                let and = if ours { ", and one of its own" } else { "" };
                let what = format!(
                    "as {role} nothing of another tenant could be seen or written (looked for {tried} rows{and})"
                );
                Finding::fine(NAME, what)
            }
            false => {
                let what = format!("the role {role} is not confined to its tenant: {}", crossed.join(", "));
                Finding::problem(NAME, what, "mend what the other findings tell, and ask again")
            }
        })
    }

    /// An error shows and writes nothing. Who has no tenant may well meet one; who has a tenant may meet one for any reason, so that
    /// nothing is proved.
    fn not_told(&self, role: &str, raised: &[(&str, String)]) -> Option<Finding> {
        let (who, state) = raised.iter().find(|(who, _)| *who != NOBODY).or(raised.first())?;
        let name = self.setting.name();
        Some(match *who == NOBODY {
            true => Finding::warning(
                NAME,
                format!(
                    "as {role} nothing of another tenant could be seen or written, but an empty setting is an error with its policy \
                     (SQLSTATE {state}), and {name} is empty on a connection on which a transaction has set it before"
                ),
                format!(
                    "let the policy say nullif(current_setting('{name}', true), '')::uuid, so that it is no tenant"
                ),
            ),
            false => Finding::problem(
                NAME,
                format!(
                    "as {who} the role {role} met an error (SQLSTATE {state}), which is neither allowed nor refused: nothing is proved"
                ),
                "see which policy, trigger or function raises it, mend that, and ask again",
            ),
        })
    }

    /// What can be done to the message of one tenant, and to rows that were there; and the SQLSTATEs of what is neither allowed nor
    /// refused by right.
    async fn crossings(
        &mut self,
        one: Uuid,
        other: Uuid,
        rows: &[String],
    ) -> Result<(Vec<&'static str>, Vec<String>), sqlx::Error> {
        let ours = self.store.layout().is_ours();
        let these = match (&self.store.layout().id.kind, self.store.layout().id_kind) {
            (None, IdKind::Uuid) => "{raw_id} = any ($1::text[]::uuid[])",
            (None, IdKind::Integer) => "{raw_id} = any ($1::text[]::bigint[])",
            (Some(_), _) => "{raw_id}::text = any ($1::text[])",
        };
        let [select, lock, update, delete] = [
            format!("select {{raw_id}} from {{table}} where {these}"),
            format!("select {{raw_id}} from {{table}} where {these} for update skip locked"),
            format!("update {{table}} set last_error = last_error where {these}"),
            format!("delete from {{table}} where {these}"),
        ]
        .map(|sql| self.store.statement(&sql));
        let message = [one.to_string()];
        let mut tries = vec![
            ("sees rows that were there", self.attempt(&select, rows).await?),
            ("writes for one", self.insert(Uuid::new_v4(), Some(one), None).await?),
            ("writes without a tenant", self.insert(Uuid::new_v4(), None, None).await?),
        ];
        if ours {
            tries.extend([
                ("sees the message of one", self.attempt(&select, &message).await?),
                ("changes the message of one", self.attempt(&update, &message).await?),
                (
                    "writes with the key of one",
                    self.insert(Uuid::new_v4(), Some(other), Some(format!("{one}/key"))).await?,
                ),
                ("deletes the message of one", self.attempt(&delete, &message).await?),
            ]);
        } else {
            // Locking them asks for the same as changing them, and changes nothing.
            tries.push(("may change rows that were there", self.attempt(&lock, rows).await?));
        }
        let (mut crossed, mut raised) = (Vec::new(), Vec::new());
        for (what, answer) in tries {
            match answer {
                Ok(0) => {}
                Err(state) if state == DENIED || (ours && state == CHECKED) => {}
                Ok(_) => crossed.push(what),
                // The policy let it pass; a unique index that answers tells of the key as well.
                Err(state) if state.starts_with(CONSTRAINED) => crossed.push(what),
                Err(state) => raised.push(state),
            }
        }
        Ok((crossed, raised))
    }

    async fn become_tenant(&mut self, tenant: &str) -> Result<(), sqlx::Error> {
        let query = sqlx::query("select set_config($1::text, $2::text, true)").persistent(false);
        query.bind(self.setting.name()).bind(tenant).execute(&mut *self.connection).await.map(|_| ())
    }

    async fn insert(&mut self, id: Uuid, tenant: Option<Uuid>, key: Option<String>) -> Result<Answer, sqlx::Error> {
        let sql = match self.store.layout().is_ours() {
            true => {
                "insert into {table} (id, namespace, topic, tenant_id, dedupe_key, payload) \
                     values ($1::uuid, 'postrider', 'doctor', $2::uuid, $3::text, 'null')"
            }
            // The tenant alone: what else is missing is told after the policy was asked.
            false => "insert into {table} ({column}) select $2::uuid where $1::uuid is not null and $3::text is null",
        };
        let column = self.store.layout().tenant.as_ref().map_or("tenant_id", |column| column.name.as_str());
        let sql = self.store.text(sql).replace("{column}", &format!("\"{column}\""));
        self.save().await?;
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false).bind(id).bind(tenant).bind(key);
        let answer = query.execute(&mut *self.connection).await;
        self.answer(answer.map(|done| done.rows_affected())).await
    }

    /// Runs a statement about some rows, or one without parameters.
    async fn attempt(&mut self, sql: &str, rows: &[String]) -> Result<Answer, sqlx::Error> {
        self.save().await?;
        let mut query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(false);
        if sql.contains("$1") {
            query = query.bind(rows.to_vec());
        }
        let answer = query.execute(&mut *self.connection).await;
        self.answer(answer.map(|done| done.rows_affected())).await
    }

    async fn save(&mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("savepoint doctor").execute(&mut *self.connection).await.map(|_| ())
    }

    /// An answer of the database goes on; a connection that fails does not.
    async fn answer(&mut self, answer: Result<u64, sqlx::Error>) -> Result<Answer, sqlx::Error> {
        let error = match answer {
            Ok(rows) => return Ok(Ok(rows)),
            Err(error) => error,
        };
        let Some(state) = sqlstate(&error) else { return Err(error) };
        sqlx::raw_sql("rollback to savepoint doctor").execute(&mut *self.connection).await?;
        Ok(Err(state))
    }
}
