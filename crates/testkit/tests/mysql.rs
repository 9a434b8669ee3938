//! What only the MySQL store promises, on a private MariaDB.

#[path = "mysql/commit_unknown.rs"]
mod commit_unknown;
#[path = "mysql/conflicts.rs"]
mod conflicts;
#[path = "mysql/dedupe.rs"]
mod dedupe;
#[path = "mysql/delivery.rs"]
mod delivery;
#[path = "mysql/isolation.rs"]
mod isolation;
#[path = "mysql/locks.rs"]
mod locks;
#[path = "mysql/migrations.rs"]
mod migrations;
#[path = "mysql/plans.rs"]
mod plans;
#[path = "mysql/procedure.rs"]
mod procedure;
#[path = "mysql/scene.rs"]
mod scene;
#[path = "mysql/sea_orm.rs"]
mod sea_orm;
#[path = "mysql/server.rs"]
mod server;
#[path = "mysql/sessions.rs"]
mod sessions;
