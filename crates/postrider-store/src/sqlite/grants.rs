//! What stands for privileges where there are no roles.

use super::SqliteStore;
use crate::grants::Roles;

impl SqliteStore {
    /// Says what the accounts of the operating system need, because SQLite has no roles of its own.
    pub fn grants(&self, roles: &Roles) -> String {
        let (producer, relay, operator) = (roles.producer(), roles.relay(), roles.operator());
        let reader = roles.reader().map_or_else(String::new, |reader| {
            format!("-- Whoever only looks ({reader}) needs the same: readers write -shm, too.\n")
        });
        format!(
            "-- SQLite has no roles: who may write the file may do everything with it. Let the accounts of the operating
-- system that run the producer ({producer}), the relay ({relay}) and the operator's commands ({operator}) share a group, give the
-- file and its directory to that group, and nothing to others:
--   chgrp GROUP DIRECTORY FILE FILE-wal FILE-shm
--   chmod 2770 DIRECTORY
--   chmod 660 FILE FILE-wal FILE-shm
-- The directory must be writable too, because -wal and -shm are made in it. Start the programs with umask 007.
{reader}"
        )
    }
}
