//! SQL text, rendered once from validated names and a layout. No other module puts SQL together but `layout`.
//!
//! A verb and its `commit` are one text, and so one trip to the thread that sqlx runs SQLite on. Lists of plain values
//! travel as one JSON parameter; lists of leases as rows of `values`, which SQLite reads faster. Few parameters are
//! numbered; the thousands of a list are not, because a numbered one is looked up among all of them.

use postrider_core::store::{LARGEST_CLAIM, LONGEST_RUN};

use super::layout;
use crate::layout::Layout;
use crate::layout::dialect::{Given, inserted};
use crate::names::Names;
use crate::sql::{Sql, fill, resolved};
use crate::{LANES_LOOKED_AT, LANES_PER_CLAIM};

/// What a producer runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct EnqueueStatements {
    pub enqueue: crate::sql::Portioned,
    pub enqueue_deduplicating: crate::sql::Portioned,
    pub enqueue_find: Sql,
    /// What each row of an insert is made of.
    pub(super) given: Vec<Given>,
}

/// The most rows of one `insert`; up to thirteen values each.
const LARGEST_INSERT: usize = 256;

impl EnqueueStatements {
    /// Renders the statements for this table.
    pub fn render(layout: &Layout) -> Self {
        let written = inserted(&layout::DIALECT, layout);
        let insert = |unless_duplicate: &str| {
            let own = [("{unless_duplicate}", unless_duplicate), ("{insert_columns}", written.columns.as_str())];
            let template = render_for(layout, include_str!("../../sql/sqlite/enqueue.sql"), &own);
            crate::sql::Portioned::render(&template, &written.row, LARGEST_INSERT)
        };
        Self {
            enqueue: insert(""),
            enqueue_deduplicating: insert(if layout.dedupe_key.is_some() { UNLESS_DUPLICATE } else { "" }),
            enqueue_find: render_for(layout, include_str!("../../sql/sqlite/enqueue_find.sql"), &[]).into(),
            given: written.given,
        }
    }
}

/// Names the predicate of the partial index, or SQLite would not find it.
const UNLESS_DUPLICATE: &str = "on conflict ({dedupe_columns}){dedupe_predicate} do nothing";

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
    pub claim_fair: Option<Step>,
    pub claim_picked: Step,
    pub claim_suspects: Step,
    pub claim_ordered: Option<Step>,
    pub claim_fair_ordered: Option<Step>,
    pub claim_suspects_ordered: Option<Step>,
    pub extend: Padded,
    pub ack: Padded,
    pub ack_delete: Padded,
    pub nack: Padded,
    pub bury: Padded,
    pub bury_unreadable: Step,
    pub release: Padded,
    pub sweep_look: Sql,
    pub sweep: Step,
    pub entomb: Option<Step>,
    pub purge_delivered_look: Sql,
    pub purge_dead_look: Sql,
    pub purge_delivered: Step,
    pub purge_dead: Step,
    pub stats: Sql,
    pub next_due: Sql,
    pub next_coming: Option<Sql>,
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
    /// Renders the statements for this table. What walks through the index of namespaces or of keys is for our own; for
    /// others there are statements that need no more than an index on the due time.
    pub fn render(layout: &Layout) -> Self {
        let text = |template| render_for(layout, template, &[]);
        let sql = |template| Sql::from(text(template));
        let step = |template| Step::new(text(template));
        let ours = layout.is_ours();
        let pick = |ours_is, flat| if ours { ours_is } else { flat };
        let look = |which| {
            let template =
                pick(include_str!("../../sql/sqlite/look.sql"), include_str!("../../sql/sqlite/look_flat.sql"));
            render_for(layout, template, &[("{which}", which)]).into()
        };
        let finished = |template, finished| render_for(layout, template, &[("{finished}", finished)]);
        let time = |template| Sql::from(render_for(layout, template, &clock_conditions(layout)));
        let purge_look = |word| finished(include_str!("../../sql/sqlite/purge_look.sql"), word).into();
        let purge = |word| Step::new(finished(include_str!("../../sql/sqlite/purge.sql"), word));
        let count_purge = |word| finished(include_str!("../../sql/sqlite/count_purge.sql"), word).into();
        let leased = |template, columns| Padded::render(&text(template), columns);
        let lanes = [next_lane("?6", "?7", "?8"), next_lane("last.namespace", "last.topic", "last.tenant")];
        let claim_fair = |in_turn| {
            let own = [("{and_in_turn}", in_turn), ("{next_lane_first}", &*lanes[0]), ("{next_lane}", &*lanes[1])];
            ours.then(|| Step::new(render_for(layout, include_str!("../../sql/sqlite/claim_fair.sql"), &own)))
        };
        let claim_suspects = |alias, in_turn| {
            let own = [("{as_mine}", alias), ("{and_in_turn}", in_turn)];
            Step::new(render_for(layout, include_str!("../../sql/sqlite/claim_suspects.sql"), &own))
        };
        Self {
            begin: sql(include_str!("../../sql/sqlite/begin.sql")),
            clock_advance: sql(include_str!("../../sql/sqlite/clock_advance.sql")),
            clock_leases: sql(include_str!("../../sql/sqlite/clock_leases.sql")),
            clock_waits: time(include_str!("../../sql/sqlite/clock_waits.sql")),
            clock_fresh: time(include_str!("../../sql/sqlite/clock_fresh.sql")),
            clock_ahead: time(include_str!("../../sql/sqlite/clock_ahead.sql")),
            look: look("not {suspect}"),
            look_suspects: look("{suspect}"),
            claim: step(pick(
                include_str!("../../sql/sqlite/claim.sql"),
                include_str!("../../sql/sqlite/claim_flat.sql"),
            )),
            claim_fair: claim_fair(""),
            claim_ordered: ours.then(|| step(include_str!("../../sql/sqlite/claim_ordered.sql"))),
            claim_fair_ordered: claim_fair(&IN_TURN.replace("mine.", "head.")),
            claim_suspects_ordered: ours.then(|| claim_suspects(" as mine", IN_TURN)),
            claim_picked: step(include_str!("../../sql/sqlite/claim_picked.sql")),
            claim_suspects: claim_suspects("", ""),
            extend: leased(include_str!("../../sql/sqlite/extend.sql"), 4),
            ack: leased(include_str!("../../sql/sqlite/ack.sql"), 4),
            ack_delete: leased(include_str!("../../sql/sqlite/ack_delete.sql"), 4),
            nack: leased(include_str!("../../sql/sqlite/nack.sql"), 6),
            bury: leased(include_str!("../../sql/sqlite/bury.sql"), 5),
            bury_unreadable: step(include_str!("../../sql/sqlite/bury_unreadable.sql")),
            release: leased(include_str!("../../sql/sqlite/release.sql"), 6),
            sweep_look: sql(pick(
                include_str!("../../sql/sqlite/sweep_look.sql"),
                include_str!("../../sql/sqlite/sweep_look_flat.sql"),
            )),
            sweep: step(include_str!("../../sql/sqlite/sweep.sql")),
            entomb: layout.dead_after_failed.then(|| step(include_str!("../../sql/sqlite/entomb.sql"))),
            purge_delivered_look: purge_look("{delivered}"),
            purge_dead_look: purge_look("{dead}"),
            purge_delivered: purge("{delivered}"),
            purge_dead: purge("{dead}"),
            stats: sql(include_str!("../../sql/sqlite/stats.sql")),
            next_due: sql(pick(
                include_str!("../../sql/sqlite/next_due.sql"),
                include_str!("../../sql/sqlite/next_due_flat.sql"),
            )),
            next_coming: ours.then(|| sql(include_str!("../../sql/sqlite/next_coming.sql"))),
            doorbell_arm: sql(include_str!("../../sql/sqlite/doorbell_arm.sql")),
            doorbell_version: sql(include_str!("../../sql/sqlite/doorbell_version.sql")),
            doorbell_look: sql(pick(
                include_str!("../../sql/sqlite/doorbell_look.sql"),
                include_str!("../../sql/sqlite/doorbell_look_flat.sql"),
            )),
            overview: sql(include_str!("../../sql/sqlite/overview.sql")),
            overview_delivered: sql(include_str!("../../sql/sqlite/overview_delivered.sql")),
            dead: sql(include_str!("../../sql/sqlite/dead.sql")),
            dead_pick: step(include_str!("../../sql/sqlite/dead_pick.sql")),
            count_dead: sql(include_str!("../../sql/sqlite/count_dead.sql")),
            message: sql(include_str!("../../sql/sqlite/message.sql")),
            replay: step(include_str!("../../sql/sqlite/replay.sql")),
            discard: step(include_str!("../../sql/sqlite/discard.sql")),
            note: step(include_str!("../../sql/sqlite/note.sql")),
            count_purge_delivered: count_purge("{delivered}"),
            count_purge_dead: count_purge("{dead}"),
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
            ("claim_picked", &self.claim_picked.open),
            ("claim_suspects", &self.claim_suspects.open),
            ("bury_unreadable", &self.bury_unreadable.open),
            ("sweep_look", &self.sweep_look),
            ("sweep", &self.sweep.open),
            ("purge_delivered_look", &self.purge_delivered_look),
            ("purge_dead_look", &self.purge_dead_look),
            ("purge_delivered", &self.purge_delivered.open),
            ("purge_dead", &self.purge_dead.open),
            ("stats", &self.stats),
            ("next_due", &self.next_due),
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
        let optional = [
            ("claim_fair", &self.claim_fair),
            ("claim_ordered", &self.claim_ordered),
            ("claim_fair_ordered", &self.claim_fair_ordered),
            ("claim_suspects_ordered", &self.claim_suspects_ordered),
            ("entomb", &self.entomb),
        ];
        all.extend(optional.into_iter().filter_map(|(name, step)| Some((name, &*step.as_ref()?.open))));
        all.extend(self.next_coming.as_ref().map(|sql| ("next_coming", &**sql)));
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

/// No earlier row of the same line (namespace, tenant, key) is open.
const IN_TURN: &str = " and (mine.key is null or not exists (
      select 1 from {table} as earlier
      where earlier.namespace = mine.namespace and earlier.key = mine.key and earlier.tenant_id is mine.tenant_id and earlier.seq < mine.seq
        and earlier.status in ('pending', 'processing')))";

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 16] = [
    ("{and_in_turn}", IN_TURN),
    // An operator's filter: ?1 namespaces, ?2 tenant, ?3 topic, ?4 key, ?5 ids (a JSON array), ?6 since, ?7 until, ?8 part
    // of the error, all or null. The times are compared with in any case, so that they bound the walk through the index.
    (
        "{asked}",
        "{dead} and {in_scope}
    and (?3 is null or {topic} = ?3)
    and (?4 is null or {key} = ?4)
    and (?5 is null or {raw_id} in (select {raw value} from json_each(?5)))
    and {died} >= coalesce(?6, -9223372036854775808) and {died} < coalesce(?7, 9223372036854775807)
    and (?8 is null or instr(lower(coalesce({last_error}, '')), lower(?8)) > 0)",
    ),
    (
        "{tally}",
        "count(*) as messages, count(*) filter (where {touched} > ?4) as last_minute, 0 as due, min({touched}) as oldest",
    ),
    (
        "{record}",
        "{id}, {namespace}, {topic}, {key}, {tenant_id}, {dedupe_key}, {state}, {attempts}, {max_attempts}, {last_error}, \
         {headers}, {due_at}, {locked_by}, {lease_end}, {created_at}, {died}, {delivered_at}",
    ),
    // Leases the rows that a claim picked.
    (
        "{take}",
        "update {table}
set {set_taken ?4}
where {number} in (select seq from picked)
returning {claimed}",
    ),
    // Where the row was, or wherever it is by its id.
    (
        "{found}",
        "{row.number} = coalesce(
    (select {there.number} from {table} as there where {there.number} = given.seq and {same_id}),
    (select {there.number} from {table} as there where {there.raw_id} = {raw given.id}))",
    ),
    (
        "{in_scope}",
        "(?1 is null or {namespace} in (select value from json_each(?1))) and (?2 is null or {tenant_id} = ?2)",
    ),
    ("{lane_gets}", "row.next_attempt_at <= ?4 and {lane_in_scope}"),
    (
        "{lane_in_scope}",
        "(?1 is null or row.namespace in (select value from json_each(?1))) and (?2 is null or coalesce(row.tenant_id, {nil}) = ?2)",
    ),
    (
        "{claimed}",
        "{id}, {namespace}, {topic}, {key}, {tenant_id}, {dedupe_key}, {payload}, {payload_bytes}, \
         nullif({headers}, '{}') as headers, {attempts}, {max_attempts}, {created_at}, {number}{and_turn}",
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
     order by {{tenant}}, next_attempt_at limit 1),
    (select seq from {{table}} where status = 'pending' and namespace = {namespace} and topic > {topic}
     order by topic, {{tenant}}, next_attempt_at limit 1),
    (select seq from {{table}} where status = 'pending' and namespace > {namespace}
     order by namespace, topic, {{tenant}}, next_attempt_at limit 1))"
    )
}

/// Whether a row has the given id. A table that was there may have the digits in upper case, or no hyphens.
fn same_id(layout: &Layout, alias: &str) -> String {
    match layout.is_ours() || layout.id.kind.is_some() {
        true => format!("{{{alias}.raw_id}} = {{raw given.id}}"),
        false => format!("lower(replace({{{alias}.raw_id}}, '-', '')) = replace(given.id, '-', '')"),
    }
}

/// The bits of a turn that a lease has room for, see [`super::types::with_turn`].
pub(super) const SHORT_TURN: i64 = 0xFF_FFFF;

/// What still is ours. The plus hides the status from the planner, which would rather walk the index of leases for each one
/// given.
fn fence(layout: &Layout) -> String {
    let worker = match (&layout.locked_by, layout.goes_by_turns()) {
        (Some(_), _) => " and {row.locked_by} = given.worker".to_owned(),
        (None, true) => format!(" and {{row.turn}} & {SHORT_TURN} = given.worker"),
        (None, false) => String::new(),
    };
    let id = same_id(layout, "row");
    format!("{id}{worker} and {{row.attempts}} = given.attempt and +{{row.processing}}")
}

/// How rows tell what they wait for when the clock was set back, see clock.rs. Where a row does not say when it was changed,
/// a delay cannot be told from a time of the day, and stays.
fn clock_conditions(layout: &Layout) -> [(&'static str, &'static str); 4] {
    match layout.updated_at.is_some() && layout.created_at.is_some() {
        true => [
            ("{touch}", ", {updated_at} = ?1"),
            ("{or_delayed_later}", " or {attempts} = 0 and {updated_at} = {created_at} + 1 and {created_at} > ?1"),
            ("{or_delayed}", " or {updated_at} = {created_at} + 1"),
            (
                "{waited}",
                "({attempts} > 0 or {updated_at} not in ({created_at}, {created_at} + 1)
    or {updated_at} = {created_at} + 1 and {number} <= (select newest from {clock}))",
            ),
        ],
        false => [("{touch}", ""), ("{or_delayed_later}", ""), ("{or_delayed}", ""), ("{waited}", "{tried}")],
    }
}

/// Puts a layout's columns, names and fragments into a template, and leaves its header comment out.
fn render_for(layout: &Layout, template: &str, own: &[(&str, &str)]) -> String {
    let fence = fence(layout);
    let there = same_id(layout, "there");
    let of_worker = if layout.locked_by.is_some() { " and {row.locked_by} = ?3" } else { "" };
    let pieces = [("{fence}", fence.as_str()), ("{of_worker}", of_worker)];
    let own: Vec<(&str, &str)> =
        own.iter().copied().chain(pieces).chain(FRAGMENTS).chain([("{same_id}", there.as_str())]).collect();
    resolved(&render(&layout.names, template, &own), |placeholder| layout::resolve(layout, placeholder))
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
        ("{name}", name.to_owned()),
        ("{uuid_pattern}", uuid_pattern()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
        ("{lanes_per_claim}", LANES_PER_CLAIM.to_string()),
        ("{lanes_looked_at}", LANES_LOOKED_AT.to_string()),
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
