//! What only the MySQL store promises, on a private MariaDB.

#[path = "mysql/server.rs"]
mod server;
