//! SQL text, rendered once from validated names. No other module puts SQL together.
//!
//! The planner must guess small however large the table is: above a cost of 100,000 PostgreSQL compiles a plan
//! with its JIT, which takes thirty milliseconds where the claim itself takes three. So scans that a parameter
//! bounds have a literal limit inside it as well, because a generic plan takes a parameter for a tenth of the
//! table, and sets of namespaces and lanes are unnested from an array, which the planner takes for ten rows.
//!
//! Rows are updated by their address through a join. A condition that always holds (`between 0 and 2147483647`)
//! makes the planner expect one row of the other side, so that it visits addresses one by one even if the plan was
//! made while the table was empty, when reading all of it seemed cheaper, and is still in use at the first spike.
//! For the same reason the fence says `(status = 'processing') is true`: said plainly, the planner would rather
//! walk the index of leases, which it believes to be empty, once per row.

use postrider_core::operate::REPLAYED;
use postrider_core::store::{LARGEST_CLAIM, LONGEST_RUN, SUSPECT_AFTER};

use crate::LANES_PER_CLAIM;
use crate::names::Names;
use crate::sql::{Sql, fill};

/// The channel that rings; the payload says for which table.
pub const CHANNEL: &str = "postrider";

/// The schema where nothing else is said.
pub(super) fn schema(names: &Names) -> &str {
    names.schema().unwrap_or("public")
}

/// The name that the doorbell's locks and rings go by.
pub fn bell(names: &Names) -> String {
    format!("postrider:{}.{}", schema(names), names.table())
}

/// What a producer runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct EnqueueStatements {
    pub enqueue_one: InsertStatement,
    pub enqueue_many: InsertStatement,
    pub enqueue_find: Sql,
}

impl EnqueueStatements {
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let insert = |template| InsertStatement {
            plain: render(names, template, &[("{unless_duplicate}", "")]).into(),
            deduplicating: render(names, template, &[("{unless_duplicate}", UNLESS_DUPLICATE)]).into(),
        };
        Self {
            enqueue_one: insert(include_str!("../../sql/postgres/enqueue_one.sql")),
            enqueue_many: insert(include_str!("../../sql/postgres/enqueue_many.sql")),
            enqueue_find: render(names, include_str!("../../sql/postgres/enqueue_find.sql"), &[]).into(),
        }
    }
}

/// A statement that inserts, for rows with and without dedupe keys.
#[derive(Debug)]
pub struct InsertStatement {
    /// For rows without a dedupe key; it need not look for duplicates.
    pub plain: Sql,
    /// Skips rows whose dedupe key is there already.
    pub deduplicating: Sql,
}

/// Names the predicate of the partial index, or PostgreSQL would not find it.
const UNLESS_DUPLICATE: &str = "on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing";

/// A statement about leased rows, for both ways to find them.
#[derive(Debug)]
pub struct LeaseStatement {
    /// Looks where the rows were when they were claimed.
    pub by_address: Sql,
    /// Looks them up by id, for rows that moved since.
    pub by_id: Sql,
}

/// What a relay runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct StoreStatements {
    pub claim: Sql,
    pub claim_fair: Sql,
    pub claim_suspects: Sql,
    pub claim_ordered: Sql,
    pub claim_fair_ordered: Sql,
    pub claim_suspects_ordered: Sql,
    pub extend: LeaseStatement,
    pub ack: LeaseStatement,
    pub ack_delete: LeaseStatement,
    pub nack: LeaseStatement,
    pub bury: LeaseStatement,
    pub release: LeaseStatement,
    pub sweep: Sql,
    pub purge_delivered: Sql,
    pub purge_dead: Sql,
    pub stats: Sql,
    pub next_due: Sql,
    pub next_coming: Sql,
    pub doorbell_arm: Sql,
    pub doorbell_disarm: Sql,
    pub doorbell_ring: Sql,
    pub overview: Sql,
    pub overview_delivered: Sql,
    pub dead: Sql,
    pub count_dead: Sql,
    pub message: Sql,
    pub replay: Sql,
    pub discard: Sql,
    pub purge_delivered_as: Sql,
    pub purge_dead_as: Sql,
    pub count_purge_delivered: Sql,
    pub count_purge_dead: Sql,
    pub audit: Sql,
}

impl StoreStatements {
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let sql = |template| Sql::from(render(names, template, &[]));
        let turn = |template, alias, turn| render(names, template, &[("{as_mine}", alias), ("{and_in_turn}", turn)]);
        let free = |template| Sql::from(turn(template, "", ""));
        let ordered = |template| Sql::from(turn(template, " as mine", " and {in_turn}"));
        let leased = |template| LeaseStatement {
            by_address: render(names, template, &[("{found}", "row.ctid = given.address")]).into(),
            by_id: render(names, template, &[("{found}", "given.address is not null")]).into(),
        };
        let finished = |template, status| render(names, template, &[("{old}", OLD), ("{finished}", status)]).into();
        let purge = |status| finished(include_str!("../../sql/postgres/purge.sql"), status);
        let purge_as = |status| finished(include_str!("../../sql/postgres/purge_as.sql"), status);
        let count_purge = |status| finished(include_str!("../../sql/postgres/count_purge.sql"), status);
        Self {
            claim: sql(include_str!("../../sql/postgres/claim.sql")),
            claim_fair: free(include_str!("../../sql/postgres/claim_fair.sql")),
            claim_suspects: free(include_str!("../../sql/postgres/claim_suspects.sql")),
            claim_ordered: sql(include_str!("../../sql/postgres/claim_ordered.sql")),
            claim_fair_ordered: ordered(include_str!("../../sql/postgres/claim_fair.sql")),
            claim_suspects_ordered: ordered(include_str!("../../sql/postgres/claim_suspects.sql")),
            extend: leased(include_str!("../../sql/postgres/extend.sql")),
            ack: leased(include_str!("../../sql/postgres/ack.sql")),
            ack_delete: leased(include_str!("../../sql/postgres/ack_delete.sql")),
            nack: leased(include_str!("../../sql/postgres/nack.sql")),
            bury: leased(include_str!("../../sql/postgres/bury.sql")),
            release: leased(include_str!("../../sql/postgres/release.sql")),
            sweep: sql(include_str!("../../sql/postgres/sweep.sql")),
            purge_delivered: purge("delivered"),
            purge_dead: purge("dead"),
            stats: sql(include_str!("../../sql/postgres/stats.sql")),
            next_due: sql(include_str!("../../sql/postgres/next_due.sql")),
            next_coming: sql(include_str!("../../sql/postgres/next_coming.sql")),
            doorbell_arm: sql(include_str!("../../sql/postgres/doorbell_arm.sql")),
            doorbell_disarm: sql(include_str!("../../sql/postgres/doorbell_disarm.sql")),
            doorbell_ring: sql(include_str!("../../sql/postgres/doorbell_ring.sql")),
            overview: sql(include_str!("../../sql/postgres/overview.sql")),
            overview_delivered: sql(include_str!("../../sql/postgres/overview_delivered.sql")),
            dead: sql(include_str!("../../sql/postgres/dead.sql")),
            count_dead: sql(include_str!("../../sql/postgres/count_dead.sql")),
            message: sql(include_str!("../../sql/postgres/message.sql")),
            replay: sql(include_str!("../../sql/postgres/replay.sql")),
            discard: sql(include_str!("../../sql/postgres/discard.sql")),
            purge_delivered_as: purge_as("delivered"),
            purge_dead_as: purge_as("dead"),
            count_purge_delivered: count_purge("delivered"),
            count_purge_dead: count_purge("dead"),
            audit: sql(include_str!("../../sql/postgres/audit.sql")),
        }
    }

    /// Every statement with its name, so that a test can prepare them all.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let leased: [(_, _, &LeaseStatement); 6] = [
            ("extend", "extend by id", &self.extend),
            ("ack", "ack by id", &self.ack),
            ("ack_delete", "ack_delete by id", &self.ack_delete),
            ("nack", "nack by id", &self.nack),
            ("bury", "bury by id", &self.bury),
            ("release", "release by id", &self.release),
        ];
        let mut all: Vec<(&'static str, &str)> = vec![
            ("claim", &self.claim),
            ("claim_fair", &self.claim_fair),
            ("claim_suspects", &self.claim_suspects),
            ("claim_ordered", &self.claim_ordered),
            ("claim_fair_ordered", &self.claim_fair_ordered),
            ("claim_suspects_ordered", &self.claim_suspects_ordered),
            ("sweep", &self.sweep),
            ("purge_delivered", &self.purge_delivered),
            ("purge_dead", &self.purge_dead),
            ("stats", &self.stats),
            ("next_due", &self.next_due),
            ("next_coming", &self.next_coming),
            ("doorbell_arm", &self.doorbell_arm),
            ("doorbell_disarm", &self.doorbell_disarm),
            ("doorbell_ring", &self.doorbell_ring),
            ("overview", &self.overview),
            ("overview_delivered", &self.overview_delivered),
            ("dead", &self.dead),
            ("count_dead", &self.count_dead),
            ("message", &self.message),
            ("replay", &self.replay),
            ("discard", &self.discard),
            ("purge_delivered_as", &self.purge_delivered_as),
            ("purge_dead_as", &self.purge_dead_as),
            ("count_purge_delivered", &self.count_purge_delivered),
            ("count_purge_dead", &self.count_purge_dead),
            ("audit", &self.audit),
        ];
        for (by_address, by_id, statement) in leased {
            all.push((by_address, &statement.by_address));
            all.push((by_id, &statement.by_id));
        }
        all
    }
}

/// The rows that a purge takes; one caller at a time.
const OLD: &str = "picked as materialized (
  select ctid, attempts as few
  from {table}
  where status = '{finished}' and updated_at <= now() - $3::bigint * interval '1 microsecond'
    and {in_scope}
    and (select pg_try_advisory_xact_lock(hashtextextended('{bell} purge', 0)))
  order by updated_at
  limit $4::bigint
  for update skip locked
)";

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 17] = [
    // The audit table's line of a change; none if nothing was changed.
    (
        "{noted}",
        "noted as (
  insert into {audit} (who, action, asked, messages, ids)
  select $10::text, $11::text, $12::text::jsonb, count(*), jsonb_agg(id order by died, id) from changed having count(*) > 0
)",
    ),
    // The dead messages that an operator changes.
    (
        "{picked}",
        "picked as materialized (
  select ctid, attempts as few, updated_at as died
  from {table}
  where {asked}
  order by updated_at, id
  limit $9::bigint
  for update skip locked
)",
    ),
    // An operator's filter: $1 namespaces, $2 tenant, $3 topic, $4 key, $5 ids, $6 since, $7 until, $8 part of the
    // error, all or null. The times are compared with in any case, so that they bound the walk through the index.
    (
        "{asked}",
        "status = 'dead' and {in_scope}
    and ($3::text is null or topic = $3::text)
    and ($4::text is null or key = $4::text)
    and ($5::uuid[] is null or id = any ($5::uuid[]))
    and updated_at >= coalesce($6::timestamptz, '-infinity') and updated_at < coalesce($7::timestamptz, 'infinity')
    and ($8::text is null or position(lower($8::text) in lower(coalesce(last_error, ''))) > 0)",
    ),
    // What anybody may have written there who is not us counts as never.
    (
        "{times_replayed}",
        "case when row.headers ->> '{replayed}' ~ '^[0-9]+$' then left(row.headers ->> '{replayed}', 9)::int else 0 end",
    ),
    (
        "{tally}",
        "namespace, topic, status, count(*) as messages, \
         count(*) filter (where updated_at > now() - interval '1 minute') as last_minute, 0::bigint as due, \
         min(updated_at) as oldest, now() as now",
    ),
    (
        "{record}",
        "id, namespace, topic, key, tenant_id, dedupe_key, status, attempts, max_attempts, last_error, headers::text as headers, \
         next_attempt_at, locked_by, locked_until, created_at, updated_at, delivered_at",
    ),
    // Leases the rows that a claim picked.
    (
        "{take}",
        "update {table} as row
set status = 'processing', attempts = attempts + 1, locked_by = $5::uuid,
    locked_until = now() + $6::bigint * interval '1 microsecond', updated_at = now()
from picked
where row.ctid = picked.ctid and {few}
returning {claimed}",
    ),
    (
        "{fence}",
        "row.id = given.id and row.locked_by = given.worker and row.attempts = given.attempt and (row.status = 'processing') is true \
         and given.attempt between 0 and 2147483647",
    ),
    // No earlier row of the same key is open. The planner counts what this costs for every row that it expects, so it is
    // made to expect few.
    (
        "{in_turn}",
        "(mine.key is null or not exists (
      select from {table} as earlier
      where earlier.namespace = mine.namespace and earlier.key = mine.key and earlier.seq < mine.seq
        and earlier.status in ('pending', 'processing')))
      and mine.seq between (select 0::bigint) and (select 9223372036854775807)",
    ),
    (
        "{in_scope}",
        "($1::text[] is null or namespace = any ($1::text[])) and ($2::uuid is null or tenant_id = $2::uuid)",
    ),
    ("{suspect}", "attempts >= least({suspect_after}, coalesce(max_attempts, $3::int) - 1)"),
    ("{size}", "pg_column_size(payload) + coalesce(octet_length(payload_bytes), 0)"),
    ("{size_of_row}", "pg_column_size(row.payload) + coalesce(octet_length(row.payload_bytes), 0)"),
    ("{tenant}", "coalesce(tenant_id, '00000000-0000-0000-0000-000000000000')"),
    (
        "{claimed}",
        "row.id, row.namespace, row.topic, row.key, row.tenant_id, row.dedupe_key, row.payload::text as payload, \
         row.payload_bytes, case when row.headers <> '{}' then row.headers::text end as headers, row.attempts, row.max_attempts, \
         row.created_at, row.seq, row.ctid::text as address, now() as claimed_at",
    ),
    ("{few}", "picked.few between 0 and 2147483647"),
    // Skips from one namespace with pending rows to the next, through the index on due rows.
    (
        "{namespaces}",
        "namespaces(namespace, due_at) as (
  (select namespace, next_attempt_at from {table}
   where $1::text[] is null and status = 'pending'
   order by namespace, next_attempt_at limit 1)
  union all
  select next.* from namespaces as last, lateral (
    select namespace, next_attempt_at from {table}
    where status = 'pending' and namespace > last.namespace
    order by namespace, next_attempt_at limit 1) as next
)",
    ),
];

/// Puts names and fragments into a template, and leaves its header comment out.
#[doc(hidden)]
pub fn render(names: &Names, template: &str, own: &[(&str, &str)]) -> String {
    let (schema, prefix, name) = (schema(names), names.prefix(), names.table());
    let values = [
        ("{table}", format!("\"{schema}\".\"{name}\"")),
        ("{schema}", format!("\"{schema}\"")),
        ("{uuid_v7}", format!("\"{schema}\".\"{prefix}uuid_v7\"")),
        ("{enqueue}", format!("\"{schema}\".\"{prefix}enqueue\"")),
        ("{function}", format!("\"{prefix}enqueue\"")),
        ("{migrations}", format!("\"{schema}\".\"{prefix}migrations\"")),
        ("{audit}", format!("\"{schema}\".\"{prefix}audit\"")),
        ("{audit_numbers}", format!("\"{schema}\".\"{prefix}audit_no\"")),
        ("{changelog}", format!("\"{schema}\".\"{prefix}changelog\"")),
        ("{changelog_uow}", format!("\"{prefix}changelog_uow\"")),
        ("{changelog_stamp}", format!("\"{prefix}changelog_stamp\"")),
        ("{settings}", format!("\"{schema}\".\"{prefix}settings\"")),
        ("{cursors}", format!("\"{schema}\".\"{prefix}cursors\"")),
        ("{cursors_stamp}", format!("\"{prefix}cursors_stamp\"")),
        ("{replayed}", REPLAYED.to_owned()),
        ("{name}", name.to_owned()),
        ("{bell}", bell(names)),
        ("{channel}", CHANNEL.to_owned()),
        ("{suspect_after}", SUSPECT_AFTER.to_string()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
        ("{lanes_per_claim}", LANES_PER_CLAIM.to_string()),
        ("{longest_run}", LONGEST_RUN.to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(FRAGMENTS).chain(values))
}
