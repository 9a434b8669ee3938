//! The producer's side against a real PostgreSQL: every driver, and every promise about enqueue.

#![allow(missing_docs)]

mod producers {
    mod bad_input;
    mod commit_unknown;
    mod dedupe;
    mod diesel;
    mod fixture;
    mod injection;
    mod languages;
    mod ledger;
    mod migrations;
    mod producer;
    mod refusal;
    mod registry;
    mod reserved_names;
    mod schema;
    mod sea_orm;
    mod sqlx;
    mod suite;
    mod tenants;
    mod tokio_postgres;
    mod trace;
}
