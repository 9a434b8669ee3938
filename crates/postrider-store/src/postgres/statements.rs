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

use postrider_core::sabotage::{self, Defect};
use postrider_core::store::{LARGEST_CLAIM, LONGEST_RUN, SUSPECT_AFTER};

use super::layout;
use crate::layout::{ClaimBy, Lanes, Layout};
use crate::names::Names;
use crate::sql::{Sql, fill, resolved};
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

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
    pub enqueue_hidden: Sql,
}

impl EnqueueStatements {
    /// Renders the statements for this table.
    pub fn render(layout: &Layout) -> Self {
        let parameters = layout::GIVEN.iter().zip(1..);
        let parameter = parameters.map(|((name, kind), at)| (format!("<{name}>"), format!("${at}::{kind}")));
        let element = layout::GIVEN.iter().map(|(name, _)| (format!("<{name}>"), format!("given.{name}")));
        let insert = |plain, deduplicating, values: Vec<(String, String)>| {
            let given = |template, unless_duplicate| {
                let sql = render_for(layout, template, &[("{unless_duplicate}", unless_duplicate)]);
                Sql::from(values.iter().fold(sql, |sql, (placeholder, value)| sql.replace(placeholder, value)))
            };
            let unless_duplicate = if layout.dedupe_key.is_some() { UNLESS_DUPLICATE } else { "" };
            InsertStatement { plain: given(plain, ""), deduplicating: given(deduplicating, unless_duplicate) }
        };
        let one = include_str!("../../sql/postgres/enqueue_one.sql");
        let all = include_str!("../../sql/postgres/enqueue_all.sql");
        let many = include_str!("../../sql/postgres/enqueue_many.sql");
        Self {
            enqueue_one: insert(one, one, parameter.collect()),
            enqueue_many: insert(all, many, element.collect()),
            enqueue_find: render_for(layout, include_str!("../../sql/postgres/enqueue_find.sql"), &[]).into(),
            enqueue_hidden: render_for(layout, include_str!("../../sql/postgres/enqueue_hidden.sql"), &[]).into(),
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
const UNLESS_DUPLICATE: &str = "on conflict ({dedupe_columns}){dedupe_predicate} do nothing";

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
    pub claim_fair: Option<Sql>,
    pub claim_suspects: Sql,
    pub claim_ordered: Option<Sql>,
    pub claim_fair_ordered: Option<Sql>,
    pub claim_suspects_ordered: Option<Sql>,
    pub extend: LeaseStatement,
    pub ack: LeaseStatement,
    pub ack_delete: LeaseStatement,
    pub nack: LeaseStatement,
    pub bury: LeaseStatement,
    pub release: LeaseStatement,
    pub sweep: Sql,
    pub entomb: Option<Sql>,
    pub purge_delivered: Sql,
    pub purge_dead: Sql,
    pub stats: Sql,
    pub next_due: Sql,
    pub next_coming: Option<Sql>,
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
    /// Renders the statements for this table. Those that it is not indexed for are left out.
    pub fn render(layout: &Layout) -> Self {
        let sql = |template| Sql::from(render_for(layout, template, &[]));
        let turn =
            |template, alias, turn| render_for(layout, template, &[("{as_mine}", alias), ("{and_in_turn}", turn)]);
        let free = |template| Sql::from(turn(template, "", ""));
        let ordered = |template| Sql::from(turn(template, " as mine", " and {in_turn}"));
        let leased = |template| LeaseStatement {
            by_address: render_for(layout, template, &[("{found}", "row.ctid = given.address")]).into(),
            by_id: render_for(layout, template, &[("{found}", "given.address is not null")]).into(),
        };
        let finished = |template, [old, row]: [&str; 2]| {
            render_for(layout, template, &[("{old}", OLD), ("{finished}", old), ("{finished_row}", row)]).into()
        };
        let purge = |state| finished(include_str!("../../sql/postgres/purge.sql"), state);
        let purge_as = |state| finished(include_str!("../../sql/postgres/purge_as.sql"), state);
        let count_purge = |state| finished(include_str!("../../sql/postgres/count_purge.sql"), state);
        let (delivered, dead) = (["{delivered}", "{row.delivered}"], ["{dead}", "{row.dead}"]);
        let delivered = match sabotage::has(Defect::PurgeOfProcessing) {
            true => ["({delivered} or {processing})", "({row.delivered} or {row.processing})"],
            false => delivered,
        };
        let by_namespace = layout.indexed_like_ours;
        let pick = |ours, flat| sql(if by_namespace { ours } else { flat });
        let in_order = |template| by_namespace.then(|| ordered(template));
        let fair = include_str!("../../sql/postgres/claim_fair.sql");
        let suspects = include_str!("../../sql/postgres/claim_suspects.sql");
        Self {
            claim: pick(
                include_str!("../../sql/postgres/claim.sql"),
                include_str!("../../sql/postgres/claim_flat.sql"),
            ),
            claim_fair: layout.lanes.map(|_| free(fair)),
            claim_suspects: free(suspects),
            claim_ordered: by_namespace.then(|| sql(include_str!("../../sql/postgres/claim_ordered.sql"))),
            claim_fair_ordered: layout.lanes.and_then(|_| in_order(fair)),
            claim_suspects_ordered: in_order(suspects),
            extend: leased(include_str!("../../sql/postgres/extend.sql")),
            ack: leased(include_str!("../../sql/postgres/ack.sql")),
            ack_delete: leased(include_str!("../../sql/postgres/ack_delete.sql")),
            nack: leased(sabotage::spoil(
                Defect::NackWithoutToken,
                include_str!("../../sql/postgres/nack.sql"),
                "{fence}",
                "{row.raw_id} = {raw given.id}",
            )),
            bury: leased(include_str!("../../sql/postgres/bury.sql")),
            release: leased(include_str!("../../sql/postgres/release.sql")),
            sweep: pick(
                include_str!("../../sql/postgres/sweep.sql"),
                include_str!("../../sql/postgres/sweep_flat.sql"),
            ),
            entomb: layout.dead_after_failed.then(|| sql(include_str!("../../sql/postgres/entomb.sql"))),
            purge_delivered: purge(delivered),
            purge_dead: purge(dead),
            stats: sql(include_str!("../../sql/postgres/stats.sql")),
            next_due: pick(
                include_str!("../../sql/postgres/next_due.sql"),
                include_str!("../../sql/postgres/next_due_flat.sql"),
            ),
            next_coming: by_namespace.then(|| sql(include_str!("../../sql/postgres/next_coming.sql"))),
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
            purge_delivered_as: purge_as(delivered),
            purge_dead_as: purge_as(dead),
            count_purge_delivered: count_purge(delivered),
            count_purge_dead: count_purge(dead),
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
            ("claim_suspects", &self.claim_suspects),
            ("sweep", &self.sweep),
            ("purge_delivered", &self.purge_delivered),
            ("purge_dead", &self.purge_dead),
            ("stats", &self.stats),
            ("next_due", &self.next_due),
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
        let optional = [
            ("claim_fair", &self.claim_fair),
            ("claim_ordered", &self.claim_ordered),
            ("claim_fair_ordered", &self.claim_fair_ordered),
            ("claim_suspects_ordered", &self.claim_suspects_ordered),
            ("next_coming", &self.next_coming),
            ("entomb", &self.entomb),
        ];
        all.extend(optional.into_iter().filter_map(|(name, sql)| Some((name, &**sql.as_ref()?))));
        for (by_address, by_id, statement) in leased {
            all.push((by_address, &statement.by_address));
            all.push((by_id, &statement.by_id));
        }
        all
    }
}

/// The rows that a purge takes; one caller at a time.
const OLD: &str = "picked as materialized (
  select ctid, {attempts} as few
  from {table}
  where {finished} and {touched} <= now() - $3::bigint * interval '1 microsecond'
    and {in_scope}
    and (select pg_try_advisory_xact_lock(hashtextextended('{bell} purge', 0)))
  order by {touched}
  limit $4::bigint
  for update skip locked
)";

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 12] = [
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
  select ctid, {attempts} as few, {touched} as died
  from {table}
  where {asked}
  order by {touched}, {raw_id}
  limit $9::bigint
  for update skip locked
)",
    ),
    // An operator's filter: $1 namespaces, $2 tenant, $3 topic, $4 key, $5 ids, $6 since, $7 until, $8 part of the
    // error, all or null. The times are compared with in any case, so that they bound the walk through the index.
    (
        "{asked}",
        "{dead} and {in_scope}
    and ($3::text is null or {topic} = $3::text)
    and ($4::text is null or {key} = $4::text)
    and ($5::uuid[] is null or {raw_id} = any ({raws $5::uuid[]}))
    and {died} >= coalesce($6::timestamptz, '-infinity') and {died} < coalesce($7::timestamptz, 'infinity')
    and ($8::text is null or position(lower($8::text) in lower(coalesce({last_error}, ''))) > 0)",
    ),
    ("{tally_of_processing}", "{namespace}::text, {topic}::text, 'processing'::text, {tally}"),
    ("{tally_of_delivered}", "{namespace}::text, {topic}::text, 'delivered'::text, {tally}"),
    ("{tally_of_dead}", "{namespace}::text, {topic}::text, 'dead'::text, {tally}"),
    (
        "{tally}",
        "count(*) as messages, count(*) filter (where {touched} > now() - interval '1 minute') as last_minute, \
         0::bigint as due, min({touched})::timestamptz as oldest, now() as now",
    ),
    (
        "{record}",
        "{id} as id, {namespace}::text, {topic}::text, {key}::text, {tenant_id}, {dedupe_key}::text, {state}, {attempts}::int, \
         {max_attempts}::int, {last_error}::text, coalesce({headers}, '{}') as headers, {due_at}::timestamptz, {locked_by}, \
         ({lease_end})::timestamptz, {created_at}::timestamptz, ({died})::timestamptz, {delivered_at}::timestamptz",
    ),
    // No earlier row of the same line (namespace, tenant, key) is open. The planner counts what this costs for every row that it expects, so it is
    // made to expect few.
    (
        "{in_turn}",
        "({mine.key} is null or not exists (
      select from {table} as earlier
      where {earlier.namespace} = {mine.namespace} and {earlier.tenant} = {mine.tenant} and {earlier.key} = {mine.key} and {earlier.seq} < {mine.seq}
        and {earlier.open}))
      and {mine.seq} between (select 0::bigint) and (select 9223372036854775807)",
    ),
    (
        "{in_scope}",
        "($1::text[] is null or {namespace} = any ($1::text[])) and ($2::uuid is null or {tenant_id} = $2::uuid)",
    ),
    ("{few}", "picked.few between 0 and 2147483647"),
    // Skips from one namespace with pending rows to the next, through the index on due rows.
    (
        "{namespaces}",
        "namespaces(namespace, due_at) as (
  (select {namespace}, {due_at} from {table}
   where $1::text[] is null and {pending}
   order by {namespace}, {due_at} limit 1)
  union all
  select next.* from namespaces as last, lateral (
    select {namespace}, {due_at} from {table}
    where {pending} and {namespace} > last.namespace
    order by {namespace}, {due_at} limit 1) as next
)",
    ),
];

/// What a claim answers of a row.
const CLAIMED: &str = "{row.id} as id, coalesce({row.namespace}::text, ''), coalesce({row.topic}::text, ''), {row.key}::text, {row.tenant_id}, {row.dedupe_key}::text, \
     {row.payload} as payload, {row.payload_bytes}, {row.headers} as headers, ({row.attempt})::int, {row.max_attempts}::int, \
     coalesce({row.created_at}::timestamptz, now()), coalesce({row.seq}::bigint, 0), {row.address} as address, now() as claimed_at";

/// The same of our own table, whose columns are never null and of the right types.
const CLAIMED_OF_OURS: &str = "{row.id} as id, {row.namespace}, {row.topic}, {row.key}, {row.tenant_id}, {row.dedupe_key}, \
     {row.payload} as payload, {row.payload_bytes}, {row.headers} as headers, {row.attempt}, {row.max_attempts}, \
     {row.created_at}, {row.seq}, row.ctid::text as address, now() as claimed_at";

/// Leases the rows that a claim picked, or answers them where the claim is the lock on the row. The server must be told the
/// types of parameters that a table has no use for.
fn take(layout: &Layout) -> String {
    let unused = match (layout.claim, &layout.locked_by) {
        (ClaimBy::RowLock, _) => " and $5::uuid is not null and $6::bigint is not null",
        (ClaimBy::LockTimeout, None) => " and $5::uuid is not null and $6::bigint is not null",
        (ClaimBy::LockTimeout, Some(_)) => " and $6::bigint is not null",
        (ClaimBy::Lease, None) => " and $5::uuid is not null",
        (ClaimBy::Lease, Some(_)) => "",
    };
    let claimed = if layout.is_ours() { CLAIMED_OF_OURS } else { CLAIMED };
    match layout.claim {
        ClaimBy::RowLock => format!(
            "select {claimed}\nfrom picked join {{table}} as row on row.ctid = picked.ctid\nwhere {{few}}{unused}"
        ),
        _ => format!(
            "update {{table}} as row\nset {{set_taken}}\nfrom picked\nwhere row.ctid = picked.ctid and {{few}}{unused}\nreturning {claimed}"
        ),
    }
}

/// What still is ours. A row that is locked in our transaction is, as long as it waits.
fn fence(layout: &Layout) -> String {
    let mut conditions = vec!["{row.raw_id} = {raw given.id}".to_owned()];
    if sabotage::has(Defect::NoFence) {
        return conditions.remove(0);
    }
    match layout.claim {
        ClaimBy::RowLock => {
            conditions.push("({row.pending}) is true".to_owned());
            conditions.extend(layout.attempts.is_some().then(|| "{row.attempts} = given.attempt - 1".to_owned()));
        }
        ClaimBy::Lease | ClaimBy::LockTimeout => {
            conditions.extend(layout.locked_by.is_some().then(|| "{row.locked_by} = given.worker".to_owned()));
            conditions.extend(layout.goes_by_turns().then(|| "{row.turn} = given.worker".to_owned()));
            let by_attempt = !sabotage::has(Defect::FenceByWorkerOnly);
            conditions.extend(by_attempt.then(|| "{row.attempts} = given.attempt".to_owned()));
            conditions.push("({row.processing}) is true".to_owned());
        }
    }
    conditions.push("given.attempt between 0 and 2147483647".to_owned());
    conditions.join(" and ")
}

/// The lane after a given one, and whether a fair claim gives it a share: it is in scope, and its first row is due.
fn next_lane(layout: &Layout, [namespace, topic, tenant]: [&str; 3]) -> String {
    match layout.lanes {
        // Tenants are found in an index that has their finished rows too, so each is looked at, whether rows wait or not.
        Some(Lanes::Tenants) => format!(
            "
    select coalesce(head.namespace, ''), ''::text, hop.tenant, coalesce(head.is_due and {{lane_in_scope}}, false) as gets
    from (
      select {{tenant_id}} as tenant from {{table}}
      where {{tenant_id}} > {tenant} and ({namespace}, {topic}) is not null
      order by {{tenant_id}} limit 1) as hop
    left join lateral (
      select {{namespace}} as namespace, hop.tenant, {{due}} as is_due from {{table}}
      where {{waiting}} and {{tenant_id}} = hop.tenant
      order by {{due_at}} limit 1) as head on true"
        ),
        _ => format!(
            "
    select head.namespace, head.topic, head.tenant, coalesce(head.is_due and {{lane_in_scope}}, false) as gets
    from (
      select {{namespace}} as namespace, {{topic}} as topic, {{tenant}} as tenant, {{due}} as is_due from {{table}}
      where {{pending}} and ({{namespace}}, {{topic}}, {{tenant}}) > ({namespace}, {topic}, {tenant})
      order by {{lane_order}}, {{due_at}} limit 1) as head"
        ),
    }
}

/// Puts a layout's columns, names and fragments into a template, and leaves its header comment out.
pub(super) fn render_for(layout: &Layout, template: &str, own: &[(&str, &str)]) -> String {
    let (take, fence) = (take(layout), fence(layout));
    let suspect = "{attempts} >= least({suspect_after}, {allowed} - 1)";
    let after_given = next_lane(layout, ["$8::text", "$9::text", "$10::uuid"]);
    let after_last = next_lane(layout, ["last.namespace", "last.topic", "last.tenant"]);
    let pieces = [
        ("{take}", take.as_str()),
        ("{fence}", fence.as_str()),
        ("{suspect}", suspect),
        ("{lane_after_given}", &after_given),
        ("{lane_after_last}", &after_last),
        (
            "{lane_in_scope}",
            "($1::text[] is null or head.namespace = any ($1::text[])) and ($2::uuid is null or head.tenant = $2::uuid)",
        ),
    ];
    let own: Vec<(&str, &str)> = own.iter().copied().chain(pieces).chain(FRAGMENTS).collect();
    resolved(&render(&layout.names, template, &own), |placeholder| layout::resolve(layout, placeholder))
}

/// Puts names into a template, and leaves its header comment out.
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
        ("{name}", name.to_owned()),
        ("{bell}", bell(names)),
        ("{channel}", CHANNEL.to_owned()),
        ("{suspect_after}", SUSPECT_AFTER.to_string()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
        ("{lanes_per_claim}", LANES_PER_CLAIM.to_string()),
        ("{lanes_looked_at}", LANES_LOOKED_AT.to_string()),
        ("{longest_run}", LONGEST_RUN.to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(values))
}
