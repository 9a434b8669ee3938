//! Connecting by URL, looking for what is set up wrong, and the privileges of an outbox's roles, on private servers that
//! sync to disk as a user's would.

#[path = "doctor/connect.rs"]
mod connect;
#[path = "doctor/grants.rs"]
mod grants;
#[path = "doctor/mysql.rs"]
mod mysql;
#[path = "doctor/mysql_server.rs"]
mod mysql_server;
#[path = "doctor/postgres.rs"]
mod postgres;
#[path = "doctor/postgres_roles.rs"]
mod postgres_roles;
#[path = "doctor/scene.rs"]
mod scene;
#[path = "doctor/sqlite.rs"]
mod sqlite;
#[path = "doctor/tls.rs"]
mod tls;
