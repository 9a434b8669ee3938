//! Comparing the table with its layout.

use postrider_core::operate::Finding;
use postrider_core::store::StoreError;

use super::MySqlStore;
use super::statements::render;
use crate::layout::Layout;
use crate::layout::guess::Guess;
use crate::layout::table::{Table, TableColumn};
use crate::layout::verdict::{self, Catalog};

impl Catalog for MySqlStore {
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
        self.table_alone().await
    }

    async fn look(&self, table: &Table, column: &TableColumn) -> Result<Vec<String>, StoreError> {
        self.sample(table, column).await
    }
}

impl MySqlStore {
    /// Compares the table with its layout, and says what is missing, wrong or slow. Changes nothing.
    pub async fn check_layout(&self) -> Result<Vec<Finding>, StoreError> {
        verdict::check(self).await
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
