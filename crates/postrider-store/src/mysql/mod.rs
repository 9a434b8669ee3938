//! The outbox on MariaDB 10.6 and MySQL 8.0 and newer.
