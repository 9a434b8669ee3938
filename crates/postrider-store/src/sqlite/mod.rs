//! The outbox on SQLite 3.35 and newer.
