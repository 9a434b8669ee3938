//! Consumers in Python and TypeScript, as the guide shows them, share an inbox with consumers in Rust: whoever handles an
//! event, it is handled for all.
#![cfg(all(feature = "redis", feature = "postgres", feature = "mysql", feature = "sqlite"))]

#[path = "languages/party.rs"]
mod party;
#[path = "languages/redis.rs"]
mod redis;
#[path = "languages/sql.rs"]
mod sql;
