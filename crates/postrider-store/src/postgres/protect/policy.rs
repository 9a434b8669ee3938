//! The policies that keep tenants apart, as they are made and as the catalog tells of them.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::tenant::{TenantProtection, TenantSetting};

pub(in crate::postgres) const APPLICATION: &str = "postrider_application";
const RELAY: &str = "postrider_relay";
const OPERATOR: &str = "postrider_operator";
const READER: &str = "postrider_reader";

/// The column of our own table that says whose a row is.
const TENANT: &str = "tenant_id";

/// The names of all of them.
pub(super) const NAMES: [&str; 4] = [APPLICATION, RELAY, OPERATOR, READER];
/// What each of them is for, in the same order.
pub(super) const TASKS: [&str; 4] = ["application", "relay", "operator", "reader"];

/// A policy as the catalog has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub name: String,
    permissive: bool,
    command: String,
    pub roles: Vec<String>,
    sees: Option<String>,
    writes: Option<String>,
}

impl Policy {
    pub fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: row.try_get("name")?,
            permissive: row.try_get("permissive")?,
            command: row.try_get("command")?,
            roles: row.try_get("roles")?,
            sees: row.try_get("sees")?,
            writes: row.try_get("writes")?,
        })
    }
}

/// A policy that should be there.
pub(super) struct Wanted {
    pub policy: Policy,
    pub create: String,
}

/// An expression as it is written, and as PostgreSQL writes it.
struct Expression {
    written: String,
    read: String,
}

/// No setting, or an empty one, is no tenant: equal to nothing, and no error. A text that is no UUID is an error, because
/// whoever sets one has a mistake that seeing nothing would hide.
fn own_rows(setting: &TenantSetting, tenant: &str) -> Expression {
    let name = setting.name();
    Expression {
        written: format!("{tenant} = nullif(current_setting('{name}', true), '')::uuid"),
        read: format!("({tenant} = (NULLIF(current_setting('{name}'::text, true), ''::text))::uuid)"),
    }
}

fn all_rows() -> Expression {
    Expression { written: "true".into(), read: "true".into() }
}

fn own_rows_or_all(setting: &TenantSetting) -> Expression {
    let (name, own) = (setting.name(), own_rows(setting, TENANT));
    Expression {
        written: format!("nullif(current_setting('{name}', true), '') is null or {}", own.written),
        read: format!("((NULLIF(current_setting('{name}'::text, true), ''::text) IS NULL) OR {})", own.read),
    }
}

/// What confines an application, for the doctor: as it is written, and as the catalog has it.
pub(in crate::postgres) fn own_rows_of(setting: &TenantSetting, tenant: &str) -> (String, String) {
    let Expression { written, read } = own_rows(setting, tenant);
    (written, read)
}

/// The same without the care for an empty setting, as the catalog has it: then it is an error to look.
pub(in crate::postgres) fn strict_own_rows_of(setting: &TenantSetting, tenant: &str) -> [String; 2] {
    let name = setting.name();
    ["", ", true"].map(|missing_ok| format!("({tenant} = (current_setting('{name}'::text{missing_ok}))::uuid)"))
}

/// Whether a policy of this name is ours.
pub(in crate::postgres) fn is_ours(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The policies of a protection.
pub(super) fn policies(protection: &TenantProtection) -> Vec<Wanted> {
    let (roles, setting) = (&protection.roles, &protection.setting);
    let mut wanted = vec![
        for_all(APPLICATION, roles.producer(), own_rows(setting, TENANT)),
        for_all(RELAY, roles.relay(), all_rows()),
        for_all(OPERATOR, roles.operator(), all_rows()),
    ];
    wanted.extend(roles.reader().map(|reader| for_select(reader, own_rows_or_all(setting))));
    wanted
}

fn for_all(name: &str, role: &str, rows: Expression) -> Wanted {
    let Expression { written, read } = rows;
    Wanted {
        create: format!("create policy {name} on {{table}} to \"{role}\" using ({written}) with check ({written})"),
        policy: Policy {
            name: name.into(),
            permissive: true,
            command: "*".into(),
            roles: vec![role.into()],
            sees: Some(read.clone()),
            writes: Some(read),
        },
    }
}

fn for_select(role: &str, rows: Expression) -> Wanted {
    let Expression { written, read } = rows;
    Wanted {
        create: format!("create policy {READER} on {{table}} for select to \"{role}\" using ({written})"),
        policy: Policy {
            name: READER.into(),
            permissive: true,
            command: "r".into(),
            roles: vec![role.into()],
            sees: Some(read),
            writes: None,
        },
    }
}
