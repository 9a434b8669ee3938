//! The least privileges of an outbox's roles.

use super::PostgresStore;
use super::statements::{render, schema};
use crate::grants::Roles;

impl PostgresStore {
    /// SQL that gives the roles what they need and nothing else. The roles must be there already.
    pub fn grants(&self, roles: &Roles) -> String {
        let audit = format!("\"{}\".\"{}audit\"", schema(&self.names), self.names.prefix());
        let roles = roles.quoted(|role| format!("\"{role}\""));
        let mut own: Vec<(&str, &str)> = roles.iter().map(|(name, role)| (*name, role.as_str())).collect();
        own.push(("{audit}", &audit));
        render(&self.names, include_str!("../../sql/postgres/grants.sql"), &own).trim_start().to_owned()
    }
}
