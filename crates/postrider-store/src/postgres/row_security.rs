//! Whether row security hides rows from a role.
//!
//! To a relay that row security blinds the table looks empty: it would start, report that it is well, and deliver nothing. A policy
//! that merely holds for its role is not enough, because it may be the application's, which shows the rows of one tenant or
//! none; so only policies with the condition `true` count, and a restrictive policy with any other condition takes rows away again.
//!
//! An operator who looks may be shown less on purpose: the rows of a tenant that its session has set. What is told is a
//! session that is shown nothing, or nobody knows how much, because "no messages" would be a wrong answer.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::Row;

use super::PostgresStore;
use super::error::for_relay;
use crate::tenant::{Sight, Use};

/// What row security hides from a role.
pub(super) struct Hidden {
    pub role: String,
    /// No policy with the condition true lets it select, update and delete.
    uncovered: bool,
    /// Restrictive policies with another condition than true.
    guards: Vec<String>,
    /// What a policy for the role may be called.
    free_name: String,
    /// How much is shown in this session: 3 all, 2 what it asks for, 1 some, 0 nothing.
    reads: i32,
    changes: i32,
}

impl Hidden {
    /// Whether all rows are shown to the role whatever its session says, as a relay must have it.
    fn is_nothing(&self) -> bool {
        !self.uncovered && self.guards.is_empty()
    }

    /// What hides them.
    pub fn why(&self) -> String {
        let uncovered = "no policy with the condition true lets it select, update and delete";
        let guards = match &self.guards[..] {
            [] => None,
            [guard] => Some(format!("the restrictive policy {guard} has another condition than true")),
            guards => Some(format!("the restrictive policies {} have other conditions than true", guards.join(", "))),
        };
        let why: Vec<String> = self.uncovered.then(|| uncovered.to_owned()).into_iter().chain(guards).collect();
        why.join(", and ")
    }

    /// What shows them, as a template.
    pub fn mend(&self) -> String {
        let Self { role, free_name, .. } = self;
        let policy = format!("create policy {free_name} on {{table}} to {role} using (true) with check (true)");
        let guards = self.guards.iter().map(|guard| format!("drop policy {guard} on {{table}}"));
        self.uncovered.then_some(policy).into_iter().chain(guards).collect::<Vec<_>>().join("; ")
    }

    /// What to do about a restrictive policy besides dropping it.
    pub fn before_mending(&self) -> &'static str {
        if self.guards.is_empty() { "" } else { "let restrictive policies name the application's role only, or " }
    }
}

impl PostgresStore {
    /// Refuses a role to which policies do not show all rows, to select, update and delete: a dispatcher of that role would find
    /// nothing to do, or not all, and say that it is well. Ask before one is run, and from a health check, because policies can be made
    /// while it runs. One look into the catalog.
    pub async fn check_row_security(&self) -> Result<(), StoreError> {
        match self.blindness().await.map_err(failed)? {
            None => Ok(()),
            Some(hidden) => {
                let what = format!(
                    "row security hides rows of {{table}} from the relay's role {}, so that it would deliver nothing or not all: {}; {}run as the table's owner: {}",
                    hidden.role,
                    hidden.why(),
                    hidden.before_mending(),
                    hidden.mend()
                );
                Err(StoreError::new(StoreErrorKind::Refused, self.text(&what)))
            }
        }
    }

    /// How much of the messages row security shows to the role, as its session is.
    pub async fn sight(&self, of: Use) -> Result<Sight, StoreError> {
        let Some(hidden) = self.blindness().await.map_err(failed)? else { return Ok(Sight::All) };
        let much = match of {
            Use::Read => hidden.reads,
            Use::Change => hidden.changes,
        };
        let from = format!("messages from the role {}", hidden.role);
        let ask = "ask as a role that sees all, such as the operator of postrider migrate --row-level-security, or let the session set the tenant that you ask for";
        Ok(match much {
            3 => Sight::All,
            2 => Sight::Asked,
            1 => Sight::Part(format!("row security may hide {from}, so this may not be all; {ask}")),
            _ => Sight::Nothing(format!("row security hides all {from}; {ask}")),
        })
    }

    /// What row security hides from the current role; none if a relay sees all.
    pub(super) async fn blindness(&self) -> Result<Option<Hidden>, sqlx::Error> {
        let sql = self.text(include_str!("../../sql/postgres/row_security.sql"));
        let rows = self.ask(sql, self.place()?).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let hidden = Hidden {
            role: row.try_get("role")?,
            uncovered: row.try_get("uncovered")?,
            guards: row.try_get("guards")?,
            free_name: row.try_get("free_name")?,
            reads: row.try_get("reads")?,
            changes: row.try_get("changes")?,
        };
        Ok((row.try_get("active")? && !hidden.is_nothing()).then_some(hidden))
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    for_relay("look at row security", error)
}
