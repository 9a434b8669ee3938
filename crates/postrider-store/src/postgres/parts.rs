//! Tables that a relay must not work on: those that consist of several, and those that it may not settle in.
//!
//! Statements find the rows that they picked by their addresses, and an address is unique within one table only: in a partitioned
//! table, or in one that others inherit from, a claim would take rows of other parts along, delivered ones too. To compare the
//! parts as well would cost every claim of a plain table. So such tables are refused before the first statement that picks.

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::Row;

use super::PostgresStore;
use super::error::for_relay;
use super::store::Bound;
use crate::sql::Sql;

impl PostgresStore {
    /// Refuses a table that is partitioned, that others inherit from, or that is none, and one that is indexed like ours where that
    /// hides rows. Looks once; a table that is not there is left to the statement that misses it.
    pub(crate) async fn refuse_parts(&self) -> Result<(), StoreError> {
        self.has_addresses.get_or_try_init(|| self.look_once()).await.copied()
    }

    async fn look_once(&self) -> Result<(), StoreError> {
        self.look_for_parts().await?;
        // Claims there walk from value to value, and would pass over rows for good that the layout is wrong about.
        match self.layout.indexed_like_ours && !self.layout.is_ours() {
            true => self.refuse_other_tables().await,
            false => Ok(()),
        }
    }

    /// Refuses a role that may not claim and settle in a table of another shape: what it publishes could not be marked.
    pub(crate) async fn refuse_missing_privileges(&self) -> Result<(), StoreError> {
        if self.layout.is_ours() {
            return Ok(());
        }
        let findings = self.check_layout().await?;
        let lacks = |finding: &&Finding| finding.name == "layout-privileges" && finding.severity == Severity::Problem;
        match findings.iter().find(lacks) {
            None => Ok(()),
            Some(Finding { what, fix, .. }) => {
                let text = format!("{what}; {}", fix.as_deref().unwrap_or("see postrider layout check"));
                Err(StoreError::new(StoreErrorKind::Refused, text))
            }
        }
    }

    async fn look_for_parts(&self) -> Result<(), StoreError> {
        let sql = Sql::from(self.text(include_str!("../../sql/postgres/layout_table.sql")));
        let arguments = || {
            let mut bound = Bound::default();
            bound.add(super::statements::schema(&self.names).to_owned()).add(self.names.table().to_owned());
            bound.add(format!("{}audit", self.names.prefix()));
            bound.finish()
        };
        let rows = self.runner.fetch("look at the table", &sql, arguments).await?;
        let unfit = rows.first().map(|row| row.try_get::<Option<String>, _>("unfit")).transpose();
        match unfit.map_err(|error| for_relay("look at the table", error))?.flatten() {
            None => Ok(()),
            Some(unfit) => Err(StoreError::new(
                StoreErrorKind::Schema,
                self.text(&format!(
                    "{{table}} is {unfit}, and Postrider works on plain tables without parts: it finds rows by their addresses, which are \
                     unique within one table only; name a plain table, or one of the parts as a source of its own"
                )),
            )),
        }
    }
}
