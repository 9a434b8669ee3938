//! The least privileges of an outbox's accounts.

use super::MySqlStore;
use super::statements::render_in;
use crate::grants::Roles;
use crate::layout::table::Database;

impl MySqlStore {
    /// SQL that gives the accounts what they need and nothing else. They must be there already; one without a host is
    /// meant for every host, as MySQL reads it.
    pub fn grants(&self, roles: &Roles) -> String {
        let reader = roles.reader().map(quoted);
        let roles = roles.quoted(quoted);
        let mut own: Vec<(&str, &str)> = roles.iter().map(|(name, role)| (*name, role.as_str())).collect();
        let database = self.database();
        let render = |template, own: &[(&str, &str)]| render_in(database.as_deref(), &self.names, template, own);
        let columns = self.layout().granted(Database::MySql);
        own.extend(columns.iter().map(|(placeholder, list)| (*placeholder, list.as_str())));
        let of_keys = match self.layout().dedupe_key {
            Some(_) => render(include_str!("../../sql/mysql/grants_layout_keys.sql"), &own),
            None => String::new(),
        };
        own.push(("{of_keys}", of_keys.trim_end()));
        let (all, reading) = match self.layout().is_ours() {
            true => (include_str!("../../sql/mysql/grants.sql"), include_str!("../../sql/mysql/grants_reader.sql")),
            // Another layout has no procedure and no changelog of ours.
            false => (
                include_str!("../../sql/mysql/grants_layout.sql"),
                include_str!("../../sql/mysql/grants_layout_reader.sql"),
            ),
        };
        let mut text = render(all, &own).trim_start().to_owned();
        if let Some(reader) = &reader {
            own.push(("{reader}", reader));
            text.push_str(&render(reading, &own));
        }
        text
    }
}

/// In backticks, which mean the same whatever `sql_mode` says.
fn quoted(role: &str) -> String {
    match role.split_once('@') {
        Some((name, host)) => format!("`{name}`@`{host}`"),
        None => format!("`{role}`"),
    }
}
