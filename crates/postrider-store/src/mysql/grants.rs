//! The least privileges of an outbox's accounts.

use super::MySqlStore;
use super::statements::render;
use crate::grants::Roles;

impl MySqlStore {
    /// SQL that gives the accounts what they need and nothing else. They must be there already; one without a host is
    /// meant for every host, as MySQL reads it.
    pub fn grants(&self, roles: &Roles) -> String {
        let within = |name: String| match self.names.schema() {
            Some(schema) => format!("`{schema}`.`{name}`"),
            None => format!("`{name}`"),
        };
        let audit = within(format!("{}audit", self.names.prefix()));
        let roles = roles.quoted(quoted);
        let mut own: Vec<(&str, &str)> = roles.iter().map(|(name, role)| (*name, role.as_str())).collect();
        own.push(("{audit}", &audit));
        render(&self.names, include_str!("../../sql/mysql/grants.sql"), &own).trim_start().to_owned()
    }
}

/// In backticks, which mean the same whatever `sql_mode` says.
fn quoted(role: &str) -> String {
    match role.split_once('@') {
        Some((name, host)) => format!("`{name}`@`{host}`"),
        None => format!("`{role}`"),
    }
}
