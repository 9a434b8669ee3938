//! The least privileges of an outbox's roles.

use super::PostgresStore;
use super::statements::{render, schema};
use crate::grants::Roles;
use crate::layout::Ability;
use crate::layout::table::Database;

impl PostgresStore {
    /// SQL that gives the roles what they need and nothing else. The roles must be there already.
    pub fn grants(&self, roles: &Roles) -> String {
        self.grants_of(roles, include_str!("../../sql/postgres/grants_changelog.sql"))
    }

    /// [`grants`](Self::grants) for an outbox whose tenants are kept apart by row-level security: the producer gets nothing of the
    /// changelog, whose entries have no tenant.
    pub fn grants_with_row_security(&self, roles: &Roles) -> String {
        self.grants_of(roles, include_str!("../../sql/postgres/grants_tenants.sql"))
    }

    fn grants_of(&self, roles: &Roles, of_changelog: &str) -> String {
        if !self.layout().is_ours() {
            return self.grants_of_layout(roles);
        }
        let reader = roles.reader().map(|reader| format!("\"{reader}\""));
        let audit = format!("\"{}\".\"{}audit\"", schema(&self.names), self.names.prefix());
        let roles = roles.quoted(|role| format!("\"{role}\""));
        let mut own: Vec<(&str, &str)> = roles.iter().map(|(name, role)| (*name, role.as_str())).collect();
        own.push(("{audit}", &audit));
        let of_changelog = render(&self.names, of_changelog, &own);
        own.push(("{changelog_of_producer}", of_changelog.trim()));
        let mut text = render(&self.names, include_str!("../../sql/postgres/grants.sql"), &own).trim_start().to_owned();
        if let Some(reader) = &reader {
            own.push(("{reader}", reader));
            text.push_str(&render(&self.names, include_str!("../../sql/postgres/grants_reader.sql"), &own));
        }
        text
    }

    /// The same for a table of another layout, which has no functions and no changelog of ours.
    fn grants_of_layout(&self, roles: &Roles) -> String {
        let reader = roles.reader().map(|reader| format!("\"{reader}\""));
        let audit = format!("\"{}\".\"{}audit\"", schema(&self.names), self.names.prefix());
        let (roles, columns) = (roles.quoted(|role| format!("\"{role}\"")), self.layout().granted(Database::Postgres));
        let mut own: Vec<(&str, &str)> =
            roles.iter().chain(&columns).map(|(placeholder, value)| (*placeholder, value.as_str())).collect();
        own.push(("{audit}", &audit));
        let of_producer = match self.layout().can(Ability::Enqueue) {
            true => render(&self.names, include_str!("../../sql/postgres/grants_layout_producer.sql"), &own),
            false => "-- Rows are written by their owner, so there is nothing to allow to a producer.".to_owned(),
        };
        own.push(("{of_producer}", of_producer.trim()));
        let template = include_str!("../../sql/postgres/grants_layout.sql");
        let mut text = render(&self.names, template, &own).trim_start().to_owned();
        if let Some(reader) = &reader {
            own.push(("{reader}", reader));
            text.push_str(&render(&self.names, include_str!("../../sql/postgres/grants_layout_reader.sql"), &own));
        }
        text
    }
}
