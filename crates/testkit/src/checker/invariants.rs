//! The invariants, each a query that answers what breaks it.
//!
//! They hold of a database at rest: nobody produces, nobody relays, and every message is delivered or dead.

/// An invariant: its id in the list of checkers, what a breach means, and the query that finds breaches.
pub(super) struct Invariant {
    pub id: &'static str,
    pub breach: &'static str,
    pub sql: &'static str,
}

/// Invariants without parameters.
pub(super) const PLAIN: &[Invariant] = &[
    Invariant {
        id: "I1",
        breach: "in the ledger and not in the outbox, or the other way round",
        sql: "select coalesce(ledger.id, row.id)::text from ledger full join outbox_messages as row using (id) \
              where ledger.id is null or row.id is null",
    },
    Invariant {
        id: "I2",
        breach: "neither dead nor delivered, or not at the destination: lost",
        sql: "select id || ' ' || status from outbox_messages as row where status <> 'dead' \
              and (status <> 'delivered' or not exists (select from arrivals where arrivals.id = row.id))",
    },
    Invariant {
        id: "I3",
        breach: "arrived, but no message is committed that has these contents",
        sql: "select arrivals.id::text from arrivals where not exists ( \
                select from outbox_messages as row where row.id = arrivals.id and row.topic = arrivals.topic \
                  and row.key is not distinct from arrivals.key and row.tenant_id is not distinct from arrivals.tenant_id \
                  and md5(coalesce(row.payload_bytes, convert_to(row.payload::text, 'utf8'))) = arrivals.digest)",
    },
    Invariant {
        id: "I6",
        breach: "claimed while another lease was still good",
        sql: "select id || ' attempt ' || attempts from changes \
              where was = 'processing' and became = 'processing' and locked_until_was >= decided_at",
    },
    Invariant {
        id: "I6",
        breach: "settled by a worker that did not hold the lease",
        sql: "select id || ' attempt ' || attempts || ' became ' || became || ' by ' || made_by from changes \
              where was = 'processing' and became <> 'processing' and made_by <> locked_by_was::text \
              and not (became = 'dead' and locked_until_was < decided_at)",
    },
    Invariant {
        id: "I6",
        breach: "delivered by an attempt that had not arrived",
        sql: "select id || ' attempt ' || attempts from changes where became = 'delivered' and not exists ( \
                select from arrivals where arrivals.id = changes.id and arrivals.attempt = changes.attempts \
                  and arrivals.at <= changes.at)",
    },
];

/// How rows changed, by kind of change; the state machine decides which kinds may be.
pub(super) const CHANGES: &str =
    "select was, became, attempts - attempts_were, min(id::text) from changes group by 1, 2, 3";

/// I1: what a producer was told is committed, and is not there. `$1` ids.
pub(super) const TOLD: Invariant = Invariant {
    id: "I1",
    breach: "told to be committed, and not in the outbox",
    sql: "select id::text from unnest($1::uuid[]) as told(id) where not exists ( \
            select from outbox_messages as row where row.id = told.id)",
};

/// I7: `$1` how long after its end a lease may still stand, in milliseconds.
pub(super) const EXPIRED: Invariant = Invariant {
    id: "I7",
    breach: "under a lease that ended long ago",
    sql: "select id::text from outbox_messages where status = 'processing' \
          and locked_until < clock_timestamp() - $1::bigint * interval '1 millisecond'",
};

/// I8: `$1` attempts allowed.
pub(super) const ATTEMPTS: Invariant = Invariant {
    id: "I8",
    breach: "more attempts than allowed, or dead with attempts left, or waiting with none",
    sql: "select id || ' ' || status || ' after ' || attempts from outbox_messages \
          where attempts > coalesce(max_attempts, $1::int) \
             or status = 'dead' and attempts < coalesce(max_attempts, $1::int) \
             or status = 'pending' and attempts >= coalesce(max_attempts, $1::int)",
};
