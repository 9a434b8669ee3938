//! The least privileges of an outbox's accounts.

use super::MySqlStore;
use super::statements::render_in;
use crate::grants::Roles;

impl MySqlStore {
    /// SQL that gives the accounts what they need and nothing else. They must be there already; one without a host is
    /// meant for every host, as MySQL reads it.
    pub fn grants(&self, roles: &Roles) -> String {
        let roles = roles.quoted(quoted);
        let own: Vec<(&str, &str)> = roles.iter().map(|(name, role)| (*name, role.as_str())).collect();
        let template = include_str!("../../sql/mysql/grants.sql");
        render_in(self.database().as_deref(), &self.names, template, &own).trim_start().to_owned()
    }
}

/// In backticks, which mean the same whatever `sql_mode` says.
fn quoted(role: &str) -> String {
    match role.split_once('@') {
        Some((name, host)) => format!("`{name}`@`{host}`"),
        None => format!("`{role}`"),
    }
}
