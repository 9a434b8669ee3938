//! The binary `postrider`, as its users run it: against real PostgreSQL, MariaDB and SQLite.

#[cfg(feature = "bench")]
#[path = "binary/bench.rs"]
mod bench;
#[path = "binary/brokers.rs"]
mod brokers;
#[path = "binary/changelog.rs"]
mod changelog;
#[path = "binary/commands.rs"]
mod commands;
#[path = "binary/configuration.rs"]
mod configuration;
#[path = "binary/dead.rs"]
mod dead;
#[path = "binary/exhaustion.rs"]
mod exhaustion;
#[path = "binary/health.rs"]
mod health;
#[path = "binary/injection.rs"]
mod injection;
#[path = "binary/layout.rs"]
mod layout;
#[path = "binary/layout_grants.rs"]
mod layout_grants;
#[path = "binary/layout_marks.rs"]
mod layout_marks;
#[path = "binary/layout_odd.rs"]
mod layout_odd;
#[path = "binary/layout_shapes.rs"]
mod layout_shapes;
#[path = "binary/layout_verdicts.rs"]
mod layout_verdicts;
#[path = "binary/layout_words.rs"]
mod layout_words;
#[path = "binary/packaging.rs"]
mod packaging;
#[path = "binary/reload.rs"]
mod reload;
#[path = "binary/roles.rs"]
mod roles;
#[path = "binary/row_security.rs"]
mod row_security;
#[path = "binary/secrets.rs"]
mod secrets;
#[path = "binary/signals.rs"]
mod signals;
#[path = "binary/support.rs"]
mod support;
#[path = "binary/tenants.rs"]
mod tenants;
#[path = "binary/wire.rs"]
mod wire;
