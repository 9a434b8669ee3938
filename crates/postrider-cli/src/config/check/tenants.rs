//! Checks of how tenants are kept apart.

use postrider::{Roles, TenantSetting};

use super::Check;
use crate::config::database::Database;
use crate::config::model::{RowLevelSecurity, Source, Tenants};
use crate::config::problem::KeyPath;

impl Check<'_> {
    pub(super) fn tenants(&mut self, source_path: &KeyPath, source: &Source, database: Option<Database>) {
        let path = source_path.key("tenants");
        let Tenants { row_level_security, application_role, setting } = &source.tenants;
        if let Err(error) = TenantSetting::new(setting) {
            self.refuse(path.key("setting"), &error.to_string());
        }
        if let Some(role) = application_role
            && let Err(error) = Roles::new(role, "relay", "operator")
        {
            self.refuse(path.key("application_role"), &error.to_string().replace("producer role", "application role"));
        }
        if *row_level_security == RowLevelSecurity::Off {
            return;
        }
        if matches!(database, Some(Database::MySql | Database::Sqlite)) {
            let said = "this database has no row-level security: remove it, and scope relays and operators to a tenant";
            self.refuse(path.key("row_level_security"), said);
        } else if source.described.tenant.is_none() {
            let said = format!(
                "the layout {:?} has no column for the tenant, so that nothing can confine the application; remove it, or name the column in the layout",
                source.described.name
            );
            self.refuse(path.key("row_level_security"), &said);
        } else if application_role.is_none() {
            let said = "it says nothing of whose rights to look at; add application_role, the role that the application logs in as";
            self.refuse(path.key("row_level_security"), said);
        }
    }
}
