//! Comparing the table with its layout.

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::StoreError;

use super::PostgresStore;
use super::error::for_relay;
use super::statements::render;
use crate::layout::Layout;
use crate::layout::guess::Guess;
use crate::layout::table::{Table, TableColumn};
use crate::layout::verdict::{self, Catalog};

impl Catalog for PostgresStore {
    fn expected(&self) -> &Layout {
        self.layout()
    }

    fn place(&self) -> String {
        render(&self.names, "{table}", &[])
    }

    async fn read(&self) -> Result<Option<Table>, StoreError> {
        self.table().await
    }

    async fn glance(&self) -> Result<Option<Table>, StoreError> {
        self.table().await
    }

    async fn look(&self, table: &Table, column: &TableColumn) -> Result<Vec<String>, StoreError> {
        self.sample(table, column).await
    }
}

impl PostgresStore {
    /// Compares the table with its layout, and says what is missing, wrong or slow. Changes nothing.
    pub async fn check_layout(&self) -> Result<Vec<Finding>, StoreError> {
        let mut findings = verdict::check(self).await?;
        if let Some(blind) = self.blind().await? {
            // Privileges alone let nobody claim what row security hides.
            findings.retain(|finding| finding.name != verdict::PRIVILEGES || finding.severity > Severity::Fine);
            findings.push(blind);
        }
        Ok(findings)
    }

    /// Says what row security hides from the role, because a relay would not start.
    async fn blind(&self) -> Result<Option<Finding>, StoreError> {
        let hidden = self.blindness().await.map_err(|error| for_relay("look at row security", error))?;
        Ok(hidden.map(|hidden| {
            let what = format!("row security hides rows from the role {}: {}", hidden.role, hidden.why());
            let fix = format!("{}run as the table's owner: {}", hidden.before_mending(), hidden.mend());
            Finding::problem(verdict::ROW_SECURITY, what, self.text(&fix))
        }))
    }

    /// Proposes a layout for the table that the names say; none if there is no such table.
    pub async fn guess_layout(&self) -> Result<Option<Guess>, StoreError> {
        verdict::propose(self).await
    }

    /// Refuses a table that its layout cannot be worked with on.
    pub(crate) async fn refuse_other_tables(&self) -> Result<(), StoreError> {
        verdict::refuse_others(self).await
    }
}
