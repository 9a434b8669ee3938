//! The binary `postrider`, as its users run it: against real PostgreSQL, MariaDB and SQLite.

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
#[path = "binary/health.rs"]
mod health;
#[path = "binary/injection.rs"]
mod injection;
#[path = "binary/packaging.rs"]
mod packaging;
#[path = "binary/reload.rs"]
mod reload;
#[path = "binary/roles.rs"]
mod roles;
#[path = "binary/secrets.rs"]
mod secrets;
#[path = "binary/signals.rs"]
mod signals;
#[path = "binary/support.rs"]
mod support;
#[path = "binary/wire.rs"]
mod wire;
