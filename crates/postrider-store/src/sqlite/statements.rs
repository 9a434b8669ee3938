//! SQL text, rendered once from validated names. No other module puts SQL together.
//!
//! A verb and its `commit` are one text, and so one trip to the thread that sqlx runs SQLite on. Lists of plain values
//! travel as one JSON parameter; lists of leases as rows of `values`, which SQLite reads faster. Few parameters are
//! numbered; the thousands of a list are not, because a numbered one is looked up among all of them.

use postrider_core::operate::REPLAYED;
use postrider_core::store::{LARGEST_CLAIM, LONGEST_RUN, SUSPECT_AFTER};

use crate::LANES_PER_CLAIM;
use crate::names::Names;
use crate::sql::{Sql, fill};

/// What a producer runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct EnqueueStatements {
    pub enqueue: crate::sql::Portioned,
    pub enqueue_deduplicating: crate::sql::Portioned,
    pub enqueue_find: Sql,
}

/// The most rows of one `insert`; thirteen values each.
const LARGEST_INSERT: usize = 256;

impl EnqueueStatements {
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let insert = |unless_duplicate| {
            let own = [("{unless_duplicate}", unless_duplicate)];
            let template = render(names, include_str!("../../sql/sqlite/enqueue.sql"), &own);
            crate::sql::Portioned::render(&template, "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", LARGEST_INSERT)
        };
        Self {
            enqueue: insert(""),
            enqueue_deduplicating: insert(UNLESS_DUPLICATE),
            enqueue_find: render(names, include_str!("../../sql/sqlite/enqueue_find.sql"), &[]).into(),
        }
    }
}

/// Names the predicate of the partial index, or SQLite would not find it.
const UNLESS_DUPLICATE: &str = "on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing";

/// A text on its own, and as the last of its transaction.
#[derive(Debug)]
pub struct Step {
    /// Leaves the transaction open.
    pub open: Sql,
    /// Commits.
    pub last: Sql,
}

impl Step {
    fn new(sql: String) -> Self {
        Self { last: format!("{sql};\ncommit").into(), open: sql.into() }
    }
}

/// A statement about a list of leases, for lists of several lengths. A list in between takes the next longer one: what
/// is not bound is null and matches nothing. So a batch is one statement, and few stay prepared.
#[derive(Debug)]
pub struct Padded(Vec<(usize, Step)>);

/// How many leases a statement is made for.
const LENGTHS: [usize; 5] = [1, 8, 64, 256, 1024];

impl Padded {
    /// `{items}` becomes rows of `columns` parameters.
    fn render(template: &str, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let of_length = |length: usize| {
            let items = vec![row.as_str(); length].join(",");
            (length, Step::new(template.replace("{items}", &items)))
        };
        Self(LENGTHS.into_iter().map(of_length).collect())
    }

    /// Splits a list into portions with the statement for each.
    pub(super) fn split<'a, T>(&'a self, items: &'a [T]) -> impl Iterator<Item = (&'a Step, &'a [T])> {
        let longest = LENGTHS[LENGTHS.len() - 1];
        items.chunks(longest).filter_map(|portion| {
            let fitting = self.0.iter().find(|(length, _)| *length >= portion.len());
            fitting.map(|(_, step)| (step, portion))
        })
    }
}

/// What a relay runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct StoreStatements {
    pub begin: Sql,
    pub clock_advance: Sql,
    pub clock_leases: Sql,
    pub clock_waits: Sql,
    pub clock_fresh: Sql,
    pub clock_ahead: Sql,
    pub look: Sql,
    pub look_suspects: Sql,
    pub claim: Step,
    pub claim_fair: Step,
    pub claim_picked: Step,
    pub claim_suspects: Step,
    pub claim_ordered: Step,
    pub claim_fair_ordered: Step,
    pub claim_suspects_ordered: Step,
    pub extend: Padded,
    pub ack: Padded,
    pub ack_delete: Padded,
    pub nack: Padded,
    pub bury: Padded,
    pub release: Padded,
    pub sweep_look: Sql,
    pub sweep: Step,
    pub purge_delivered_look: Sql,
    pub purge_dead_look: Sql,
    pub purge_delivered: Step,
    pub purge_dead: Step,
    pub stats: Sql,
    pub next_due: Sql,
    pub next_coming: Sql,
    pub doorbell_arm: Sql,
    pub doorbell_version: Sql,
    pub doorbell_look: Sql,
    pub overview: Sql,
    pub overview_delivered: Sql,
    pub dead: Sql,
    pub dead_pick: Step,
    pub count_dead: Sql,
    pub message: Sql,
    pub replay: Step,
    pub discard: Step,
    pub note: Step,
    pub count_purge_delivered: Sql,
    pub count_purge_dead: Sql,
    pub audit: Sql,
}

impl StoreStatements {
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let text = |template| render(names, template, &[]);
        let sql = |template| Sql::from(text(template));
        let step = |template| Step::new(text(template));
        let look = |which| render(names, include_str!("../../sql/sqlite/look.sql"), &[("{which}", which)]).into();
        let finished = |template, finished| render(names, template, &[("{finished}", finished)]);
        let purge_look = |word| finished(include_str!("../../sql/sqlite/purge_look.sql"), word).into();
        let purge = |word| Step::new(finished(include_str!("../../sql/sqlite/purge.sql"), word));
        let count_purge = |word| finished(include_str!("../../sql/sqlite/count_purge.sql"), word).into();
        let leased = |template, columns| Padded::render(&text(template), columns);
        let lanes = [next_lane("?6", "?7", "?8"), next_lane("last.namespace", "last.topic", "last.tenant")];
        let claim_fair = |in_turn| {
            let own = [("{and_in_turn}", in_turn), ("{next_lane_first}", &*lanes[0]), ("{next_lane}", &*lanes[1])];
            Step::new(render(names, include_str!("../../sql/sqlite/claim_fair.sql"), &own))
        };
        let claim_suspects = |alias, in_turn| {
            let own = [("{as_mine}", alias), ("{and_in_turn}", in_turn)];
            Step::new(render(names, include_str!("../../sql/sqlite/claim_suspects.sql"), &own))
        };
        Self {
            begin: sql(include_str!("../../sql/sqlite/begin.sql")),
            clock_advance: sql(include_str!("../../sql/sqlite/clock_advance.sql")),
            clock_leases: sql(include_str!("../../sql/sqlite/clock_leases.sql")),
            clock_waits: sql(include_str!("../../sql/sqlite/clock_waits.sql")),
            clock_fresh: sql(include_str!("../../sql/sqlite/clock_fresh.sql")),
            clock_ahead: sql(include_str!("../../sql/sqlite/clock_ahead.sql")),
            look: look("not {suspect}"),
            look_suspects: look("{suspect}"),
            claim: step(include_str!("../../sql/sqlite/claim.sql")),
            claim_fair: claim_fair(""),
            claim_ordered: step(include_str!("../../sql/sqlite/claim_ordered.sql")),
            claim_fair_ordered: claim_fair(&IN_TURN.replace("mine.", "head.")),
            claim_suspects_ordered: claim_suspects(" as mine", IN_TURN),
            claim_picked: step(include_str!("../../sql/sqlite/claim_picked.sql")),
            claim_suspects: claim_suspects("", ""),
            extend: leased(include_str!("../../sql/sqlite/extend.sql"), 4),
            ack: leased(include_str!("../../sql/sqlite/ack.sql"), 4),
            ack_delete: leased(include_str!("../../sql/sqlite/ack_delete.sql"), 4),
            nack: leased(include_str!("../../sql/sqlite/nack.sql"), 6),
            bury: leased(include_str!("../../sql/sqlite/bury.sql"), 5),
            release: leased(include_str!("../../sql/sqlite/release.sql"), 6),
            sweep_look: sql(include_str!("../../sql/sqlite/sweep_look.sql")),
            sweep: step(include_str!("../../sql/sqlite/sweep.sql")),
            purge_delivered_look: purge_look("delivered"),
            purge_dead_look: purge_look("dead"),
            purge_delivered: purge("delivered"),
            purge_dead: purge("dead"),
            stats: sql(include_str!("../../sql/sqlite/stats.sql")),
            next_due: sql(include_str!("../../sql/sqlite/next_due.sql")),
            next_coming: sql(include_str!("../../sql/sqlite/next_coming.sql")),
            doorbell_arm: sql(include_str!("../../sql/sqlite/doorbell_arm.sql")),
            doorbell_version: sql(include_str!("../../sql/sqlite/doorbell_version.sql")),
            doorbell_look: sql(include_str!("../../sql/sqlite/doorbell_look.sql")),
            overview: sql(include_str!("../../sql/sqlite/overview.sql")),
            overview_delivered: sql(include_str!("../../sql/sqlite/overview_delivered.sql")),
            dead: sql(include_str!("../../sql/sqlite/dead.sql")),
            dead_pick: step(include_str!("../../sql/sqlite/dead_pick.sql")),
            count_dead: sql(include_str!("../../sql/sqlite/count_dead.sql")),
            message: sql(include_str!("../../sql/sqlite/message.sql")),
            replay: step(include_str!("../../sql/sqlite/replay.sql")),
            discard: step(include_str!("../../sql/sqlite/discard.sql")),
            note: step(include_str!("../../sql/sqlite/note.sql")),
            count_purge_delivered: count_purge("delivered"),
            count_purge_dead: count_purge("dead"),
            audit: sql(include_str!("../../sql/sqlite/audit.sql")),
        }
    }

    /// Every statement with its name, so that a test can prepare them all. Those about leases are for one of them.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let mut all: Vec<(&'static str, &str)> = vec![
            ("clock_advance", &self.clock_advance),
            ("clock_leases", &self.clock_leases),
            ("clock_waits", &self.clock_waits),
            ("clock_fresh", &self.clock_fresh),
            ("clock_ahead", &self.clock_ahead),
            ("look", &self.look),
            ("look_suspects", &self.look_suspects),
            ("claim", &self.claim.open),
            ("claim_fair", &self.claim_fair.open),
            ("claim_picked", &self.claim_picked.open),
            ("claim_suspects", &self.claim_suspects.open),
            ("claim_ordered", &self.claim_ordered.open),
            ("claim_fair_ordered", &self.claim_fair_ordered.open),
            ("claim_suspects_ordered", &self.claim_suspects_ordered.open),
            ("sweep_look", &self.sweep_look),
            ("sweep", &self.sweep.open),
            ("purge_delivered_look", &self.purge_delivered_look),
            ("purge_dead_look", &self.purge_dead_look),
            ("purge_delivered", &self.purge_delivered.open),
            ("purge_dead", &self.purge_dead.open),
            ("stats", &self.stats),
            ("next_due", &self.next_due),
            ("next_coming", &self.next_coming),
            ("doorbell_look", &self.doorbell_look),
            ("overview", &self.overview),
            ("overview_delivered", &self.overview_delivered),
            ("dead", &self.dead),
            ("dead_pick", &self.dead_pick.open),
            ("count_dead", &self.count_dead),
            ("message", &self.message),
            ("replay", &self.replay.open),
            ("discard", &self.discard.open),
            ("note", &self.note.open),
            ("count_purge_delivered", &self.count_purge_delivered),
            ("count_purge_dead", &self.count_purge_dead),
            ("audit", &self.audit),
        ];
        let leased = [
            ("extend", &self.extend),
            ("ack", &self.ack),
            ("ack_delete", &self.ack_delete),
            ("nack", &self.nack),
            ("bury", &self.bury),
            ("release", &self.release),
        ];
        all.extend(leased.map(|(name, statement)| (name, &*statement.0[0].1.open)));
        all
    }
}

/// No earlier row of the same key is open.
const IN_TURN: &str = " and (mine.key is null or not exists (
      select 1 from {table} as earlier
      where earlier.namespace = mine.namespace and earlier.key = mine.key and earlier.seq < mine.seq
        and earlier.status in ('pending', 'processing')))";

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 20] = [
    ("{and_in_turn}", IN_TURN),
    // An operator's filter: ?1 namespaces, ?2 tenant, ?3 topic, ?4 key, ?5 ids (a JSON array), ?6 since, ?7 until, ?8 part
    // of the error, all or null. The times are compared with in any case, so that they bound the walk through the index.
    (
        "{asked}",
        "status = 'dead' and {in_scope}
    and (?3 is null or topic = ?3)
    and (?4 is null or key = ?4)
    and (?5 is null or id in (select value from json_each(?5)))
    and updated_at >= coalesce(?6, -9223372036854775808) and updated_at < coalesce(?7, 9223372036854775807)
    and (?8 is null or instr(lower(coalesce(last_error, '')), lower(?8)) > 0)",
    ),
    // What anybody may have written there who is not us counts as never.
    (
        "{times_replayed}",
        "min(max(cast(coalesce(json_extract(headers, '$.\"{replayed}\"'), 0) as integer), 0), 999999999)",
    ),
    (
        "{tally}",
        "namespace, topic, status, count(*) as messages, count(*) filter (where updated_at > ?4) as last_minute, \
         0 as due, min(updated_at) as oldest",
    ),
    (
        "{record}",
        "id, namespace, topic, key, tenant_id, dedupe_key, status, attempts, max_attempts, last_error, headers, \
         next_attempt_at, locked_by, locked_until, created_at, updated_at, delivered_at",
    ),
    // Leases the rows that a claim picked.
    (
        "{take}",
        "update {table}
set status = 'processing', attempts = attempts + 1, locked_by = ?6, locked_until = ?4 + ?7, updated_at = ?4
where seq in (select seq from picked)
returning {claimed}",
    ),
    // Where the row was, or wherever it is by its id.
    (
        "{found}",
        "row.seq = coalesce(
    (select there.seq from {table} as there where there.seq = given.seq and there.id = given.id),
    (select there.seq from {table} as there where there.id = given.id))",
    ),
    // The plus hides the status from the planner, which would rather walk the index of leases for each one given.
    (
        "{fence}",
        "row.id = given.id and row.locked_by = given.worker and row.attempts = given.attempt and +row.status = 'processing'",
    ),
    ("{in_scope}", "(?1 is null or namespace in (select value from json_each(?1))) and (?2 is null or tenant_id = ?2)"),
    (
        "{lane_in_scope}",
        "(?1 is null or lanes.namespace in (select value from json_each(?1))) and (?2 is null or lanes.tenant = ?2)",
    ),
    ("{suspect}", "(attempts >= min({suspect_after}, coalesce(max_attempts, ?3) - 1))"),
    ("{size}", "length(cast(payload as blob)) + coalesce(length(payload_bytes), 0)"),
    ("{row_size}", "length(cast(row.payload as blob)) + coalesce(length(row.payload_bytes), 0)"),
    (
        "{claimed}",
        "id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, \
         case when headers <> '{}' then headers end as headers, attempts, max_attempts, created_at, seq",
    ),
    // Skips from one namespace with pending rows to the next, through the index on due rows.
    (
        "{namespaces}",
        "namespaces(namespace) as (
  select (select namespace from {table} where ?1 is null and status = 'pending' order by namespace limit 1)
  union all
  select (select next.namespace from {table} as next
          where next.status = 'pending' and next.namespace > last.namespace order by next.namespace limit 1)
  from namespaces as last where last.namespace is not null
),
wanted(namespace) as (
  select namespace from namespaces where namespace is not null
  union all
  select value from json_each(?1)
)",
    ),
    ("{tenant}", "coalesce(tenant_id, {nil})"),
    ("{nil}", "'00000000-0000-0000-0000-000000000000'"),
    // Milliseconds since 1970 in 48 bits, then version, variant and 74 random bits.
    (
        "{uuid_v7}",
        "lower(substr(printf('%012x', {millis}), 1, 8) || '-' || substr(printf('%012x', {millis}), 9) \
         || '-7' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) \
         || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))",
    ),
    ("{millis}", "cast((julianday('now') - 2440587.5) * 86400000 as integer)"),
    ("{now}", "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"),
];

/// The first row of the lane after a given one: another tenant, or else another topic, or else another namespace.
fn next_lane(namespace: &str, topic: &str, tenant: &str) -> String {
    format!(
        "coalesce(
    (select seq from {{table}} where status = 'pending' and namespace = {namespace} and topic = {topic} and {{tenant}} > {tenant}
     order by {{tenant}} limit 1),
    (select seq from {{table}} where status = 'pending' and namespace = {namespace} and topic > {topic}
     order by topic, {{tenant}} limit 1),
    (select seq from {{table}} where status = 'pending' and namespace > {namespace}
     order by namespace, topic, {{tenant}} limit 1))"
    )
}

/// Puts names and fragments into a template, and leaves its header comment out.
#[doc(hidden)]
pub fn render(names: &Names, template: &str, own: &[(&str, &str)]) -> String {
    let (prefix, name) = (names.prefix(), names.table());
    // SQLite knows attached databases by such names; there is none, and the error says so.
    let schema = names.schema().map(|schema| format!("\"{schema}\".")).unwrap_or_default();
    let values = [
        ("{table}", format!("{schema}\"{name}\"")),
        ("{clock}", format!("{schema}\"{prefix}clock\"")),
        ("{migrations}", format!("{schema}\"{prefix}migrations\"")),
        ("{audit}", format!("{schema}\"{prefix}audit\"")),
        ("{changelog}", format!("{schema}\"{prefix}changelog\"")),
        ("{settings}", format!("{schema}\"{prefix}settings\"")),
        ("{cursors}", format!("{schema}\"{prefix}cursors\"")),
        ("{replayed}", REPLAYED.to_owned()),
        ("{name}", name.to_owned()),
        ("{uuid_pattern}", uuid_pattern()),
        ("{suspect_after}", SUSPECT_AFTER.to_string()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
        ("{lanes_per_claim}", LANES_PER_CLAIM.to_string()),
        ("{longest_run}", LONGEST_RUN.to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(FRAGMENTS).chain(values))
}

/// What a UUID looks like, for `glob`.
fn uuid_pattern() -> String {
    let hex = |digits| "[0-9a-f]".repeat(digits);
    [8, 4, 4, 4, 12].map(hex).join("-")
}
