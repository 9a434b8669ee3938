//! SQL text, rendered once from validated names and a layout. No other module puts SQL together but `layout`.
//!
//! Only what MariaDB 10.6 and MySQL 8.0.16 have in common, and nothing that depends on the session: identifiers are in
//! backticks (`sql_mode` may hold ANSI_QUOTES), texts are joined with `concat` (`||` may mean "or"), no literal holds a
//! backslash, times come from `utc_timestamp`.
//!
//! Hot statements name their index, where the table is ours. A plan is made anew for each execution from statistics that are minutes old, and
//! the optimizer would sometimes rather read the table.
//!
//! There are no array parameters, so a statement about a list is rendered for lists of 1, 2, 4 and so on; a list is filled
//! up to the next size with its last item. Lists stay below a thousand, where MariaDB turns `in (…)` into a subquery.

use postrider_core::store::LARGEST_CLAIM;

use super::layout;
use crate::layout::Layout;
use crate::layout::dialect::{Given, inserted, waiting};
use crate::names::Names;
use crate::sql::{Portioned, Sql, fill, resolved};

/// The longest list of rows in one statement.
const MOST_ROWS: usize = 512;
/// The longest list with a value for each row, which the server looks through from its beginning for every row.
const MOST_CASES: usize = 64;
/// The most messages in one insert.
const MOST_MESSAGES: usize = 128;
/// The most namespaces in a scope.
pub(super) const MOST_NAMESPACES: usize = 512;

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../sql/mysql/", $name, ".sql"))
    };
}

/// What a producer runs.
#[derive(Debug)]
pub struct EnqueueStatements {
    /// For rows without a dedupe key.
    pub enqueue: Portioned,
    /// Writes nothing where the dedupe key is there already.
    pub enqueue_keyed: Portioned,
    /// Waits until no other producer has one of the keys.
    pub enqueue_turn: Portioned,
    /// Looks in the caller's snapshot, without locks.
    pub enqueue_find: Portioned,
    /// Which of the caller's own rows were written, without locks.
    pub enqueue_written: Portioned,
    /// Looks at what is committed now, with locks.
    pub enqueue_find_now: Portioned,
    /// What each row of an insert is made of.
    pub(super) given: Vec<Given>,
}

impl EnqueueStatements {
    /// Renders the statements for this table.
    pub fn render(layout: &Layout) -> Self {
        let written = inserted(&layout::DIALECT, layout);
        let insert = |duplicate: &str| {
            let own = [("{unless_duplicate}", duplicate), ("{insert_columns}", written.columns.as_str())];
            let template = render_for(layout, template!("enqueue"), &own);
            Portioned::render_lists(&template, &[("{items}", &written.row, ",\n  ")], MOST_MESSAGES)
        };
        let find = |lock| {
            let template = render_for(layout, template!("enqueue_find"), &[("{lock}", lock)]);
            let key = render_for(layout, "({namespace} = ? and {topic} = ? and {dedupe_key} = ?)", &[]);
            Portioned::render_lists(&template, &[("{items}", &key, " or ")], MOST_MESSAGES)
        };
        let id = render_for(layout, "{raw ?}", &[]);
        let turn = render_for(layout, template!("enqueue_turn"), &[]);
        Self {
            enqueue: insert(""),
            enqueue_keyed: insert("on duplicate key update {number} = {number}"),
            enqueue_turn: Portioned::render(&turn, "?", MOST_MESSAGES),
            enqueue_find: find(""),
            enqueue_written: Portioned::render(
                &render_for(layout, template!("enqueue_written"), &[]),
                &id,
                MOST_MESSAGES,
            ),
            enqueue_find_now: find("lock in share mode"),
            given: written.given,
        }
    }

    /// Every statement with its name, so that a test can prepare them all.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let statements = [
            ("enqueue", &self.enqueue),
            ("enqueue with dedupe keys", &self.enqueue_keyed),
            ("enqueue_turn", &self.enqueue_turn),
            ("enqueue_find", &self.enqueue_find),
            ("enqueue_written", &self.enqueue_written),
            ("enqueue_find with locks", &self.enqueue_find_now),
        ];
        statements.into_iter().flat_map(|(name, statement)| texts(name, statement)).collect()
    }
}

/// What the statements that lock candidates say of order: nothing, or that none may wait for another of its key.
const FREE: [(&str, &str); 2] = [("{as_mine}", ""), ("{and_in_turn}", "")];
const ORDERED: [(&str, &str); 2] = [("{as_mine}", " as mine"), ("{and_in_turn}", " and {in_turn}")];

/// A statement for all namespaces, and for lists of them.
#[derive(Debug)]
pub struct Scoped {
    /// Whatever the namespace.
    pub all: Sql,
    /// In one of these.
    pub some: Portioned,
}

/// A statement about finished rows. Those that an operator finished by hand may still have a lease, and are apart in the
/// index.
#[derive(Debug)]
pub struct FinishedStatement {
    /// About rows without a lease, oldest first.
    pub unleased: Scoped,
    /// About the others.
    pub leased: Scoped,
}

/// How due rows are found.
#[derive(Debug)]
pub enum Walk {
    /// Through the indexes of our own table, by namespace, lane and key.
    Ours(Box<OurStatements>),
    /// By the due time alone, which is all that another table has an index for.
    Flat(Box<FlatStatements>),
}

/// What a relay runs on our own table only.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct OurStatements {
    pub next_namespace: Sql,
    pub namespace_head: Sql,
    pub next_lane: Sql,
    pub claim_due: Sql,
    pub claim_lane: Sql,
    pub claim_expired_ordered: Scoped,
    pub claim_suspects_ordered: Scoped,
    pub claim_due_ordered: Sql,
    pub claim_lane_ordered: Sql,
    pub claim_front: Sql,
    pub claim_near: Portioned,
    pub claim_turn: Portioned,
    pub claim_run: Sql,
    pub claim_follow: Portioned,
    pub sweep_spent: Sql,
    pub sweep_keys: Sql,
    pub next_coming: Sql,
    pub next_coming_lease: Scoped,
}

/// What a relay runs on other tables only.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct FlatStatements {
    /// One for each word that waiting rows have.
    pub claim_due: Vec<Scoped>,
    pub next_due: Scoped,
    pub undated: Scoped,
    pub sweep_spent: Scoped,
}

/// What a statement takes, by what the table has columns for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Rows have numbers of ours; otherwise they go by their ids.
    pub numbered: bool,
    /// The row says who has it.
    pub worker: bool,
    /// The row says until when it is leased.
    pub lease: bool,
    /// The row says what went wrong.
    pub error: bool,
    /// The due time is part of the fence.
    pub turns: bool,
}

/// What a relay runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct StoreStatements {
    pub shape: Shape,
    pub walk: Walk,
    pub claim_expired: Scoped,
    pub claim_suspects: Scoped,
    pub claim_read: Portioned,
    pub claim_take: Portioned,
    pub ack: Portioned,
    pub ack_delete: Portioned,
    pub nack: Portioned,
    pub bury: Portioned,
    pub release: Portioned,
    pub extend: Portioned,
    pub settle_find: Portioned,
    pub settle_look: Portioned,
    pub sweep_crashed: Scoped,
    pub sweep_lock: Portioned,
    pub sweep_bury: Portioned,
    pub entomb: Option<Portioned>,
    pub sweep_suspects: Scoped,
    pub purge_delivered: FinishedStatement,
    pub purge_dead: FinishedStatement,
    pub purge_delete: Portioned,
    pub purge_lock: Sql,
    pub purge_unlock: Sql,
    pub stats: Scoped,
    pub next_lease: Scoped,
    pub overview: Scoped,
    pub overview_delivered: Scoped,
    pub dead: FinishedStatement,
    pub dead_ids: Portioned,
    pub dead_pick: FinishedStatement,
    pub dead_pick_ids: Portioned,
    pub count_dead: Scoped,
    pub message: Sql,
    pub replay: Portioned,
    pub note: Sql,
    pub count_purge_delivered: FinishedStatement,
    pub count_purge_dead: FinishedStatement,
    pub audit: Sql,
}

impl StoreStatements {
    /// Renders the statements for this table.
    pub fn render(layout: &Layout) -> Self {
        let sql = |template| sql(layout, template);
        let rows = |template| rows(layout, template);
        let id = render_for(layout, "{raw ?}", &[]);
        let arm = format!("when {id} then ?");
        let cases = |template| {
            let lists = [("{items}", id.as_str(), ", "), ("{cases}", arm.as_str(), " ")];
            Portioned::render_lists(&render_for(layout, template, &[]), &lists, MOST_CASES)
        };
        let leased = |lock| {
            Portioned::render(&render_for(layout, template!("settle_find"), &[("{lock}", lock)]), &id, MOST_ROWS)
        };
        let number = number(layout);
        let deleted = |template| {
            let lists = [("{items}", id.as_str(), ", "), ("{numbers}", number.as_str(), " union select ")];
            Portioned::render_lists(&render_for(layout, template, &[]), &lists, MOST_ROWS)
        };
        let scoped = |template| scoped(layout, template, &[]);
        // Other tables have no index that has finished rows with a lease apart.
        let [unleased, is_leased] = match layout.is_ours() {
            true => ["locked_until is null", "locked_until is not null"],
            false => ["true", "false"],
        };
        let finished = |template, finished| {
            let with = |lease| self::scoped(layout, template, &[("{finished}", finished), ("{unleased}", lease)]);
            FinishedStatement { unleased: with(unleased), leased: with(is_leased) }
        };
        Self {
            shape: Shape {
                numbered: layout.is_ours(),
                worker: layout.locked_by.is_some(),
                lease: layout.locked_until.is_some(),
                error: layout.last_error.is_some(),
                turns: layout.goes_by_turns(),
            },
            walk: match layout.is_ours() {
                true => Walk::Ours(OurStatements::render(layout).into()),
                false => Walk::Flat(FlatStatements::render(layout).into()),
            },
            claim_expired: self::scoped(layout, template!("claim_expired"), &FREE),
            claim_suspects: self::scoped(layout, template!("claim_suspects"), &FREE),
            claim_read: rows(template!("claim_read")),
            claim_take: rows(template!("claim_take")),
            ack: rows(template!("ack")),
            ack_delete: deleted(template!("ack_delete")),
            nack: cases(template!("nack")),
            bury: cases(template!("bury")),
            release: cases(template!("release")),
            extend: rows(template!("extend")),
            settle_find: leased("for update skip locked"),
            settle_look: leased(""),
            sweep_crashed: scoped(template!("sweep_crashed")),
            sweep_lock: rows(template!("sweep_lock")),
            sweep_bury: rows(template!("sweep_bury")),
            entomb: layout.dead_after_failed.then(|| rows(template!("entomb"))),
            sweep_suspects: scoped(template!("sweep_suspects")),
            purge_delivered: finished(template!("purge"), "{delivered}"),
            purge_dead: finished(template!("purge"), "{dead}"),
            purge_delete: deleted(template!("purge_delete")),
            purge_lock: sql(template!("purge_lock")),
            purge_unlock: sql(template!("purge_unlock")),
            stats: scoped(template!("stats")),
            // A row of another table that says no time is nobody's, and a null is the same as itself.
            next_lease: self::scoped(
                layout,
                template!("next_lease"),
                &[("{lease}", if layout.is_ours() { "is not null" } else { "<=> {locked}" })],
            ),
            overview: scoped(template!("overview")),
            overview_delivered: scoped(template!("overview_delivered")),
            dead: finished(template!("dead"), "{dead}"),
            dead_ids: rows(template!("dead_ids")),
            dead_pick: finished(template!("dead_pick"), "{dead}"),
            dead_pick_ids: rows(template!("dead_pick_ids")),
            count_dead: scoped(template!("count_dead")),
            message: sql(template!("message")),
            replay: rows(template!("replay")),
            note: sql(template!("note")),
            count_purge_delivered: finished(template!("count_purge"), "{delivered}"),
            count_purge_dead: finished(template!("count_purge"), "{dead}"),
            audit: sql(template!("audit")),
        }
    }

    /// Every statement with its name, so that a test can prepare them all.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let mut all: Vec<(&'static str, &str)> = vec![
            ("purge_lock", &self.purge_lock),
            ("purge_unlock", &self.purge_unlock),
            ("message", &self.message),
            ("note", &self.note),
            ("audit", &self.audit),
        ];
        let scoped: [(_, &Scoped); 21] = [
            ("claim_expired", &self.claim_expired),
            ("claim_suspects", &self.claim_suspects),
            ("sweep_crashed", &self.sweep_crashed),
            ("sweep_suspects", &self.sweep_suspects),
            ("purge_delivered", &self.purge_delivered.unleased),
            ("purge_delivered by hand", &self.purge_delivered.leased),
            ("purge_dead", &self.purge_dead.unleased),
            ("purge_dead by hand", &self.purge_dead.leased),
            ("stats", &self.stats),
            ("next_lease", &self.next_lease),
            ("overview", &self.overview),
            ("overview_delivered", &self.overview_delivered),
            ("dead", &self.dead.unleased),
            ("dead by hand", &self.dead.leased),
            ("dead_pick", &self.dead_pick.unleased),
            ("dead_pick by hand", &self.dead_pick.leased),
            ("count_dead", &self.count_dead),
            ("count_purge_delivered", &self.count_purge_delivered.unleased),
            ("count_purge_delivered by hand", &self.count_purge_delivered.leased),
            ("count_purge_dead", &self.count_purge_dead.unleased),
            ("count_purge_dead by hand", &self.count_purge_dead.leased),
        ];
        all.extend(scoped.into_iter().flat_map(|(name, statement)| scoped_texts(name, statement)));
        let lists: [(_, &Portioned); 16] = [
            ("claim_read", &self.claim_read),
            ("claim_take", &self.claim_take),
            ("ack", &self.ack),
            ("ack_delete", &self.ack_delete),
            ("nack", &self.nack),
            ("bury", &self.bury),
            ("release", &self.release),
            ("extend", &self.extend),
            ("settle_find", &self.settle_find),
            ("settle_find without locks", &self.settle_look),
            ("sweep_lock", &self.sweep_lock),
            ("sweep_bury", &self.sweep_bury),
            ("purge_delete", &self.purge_delete),
            ("dead_ids", &self.dead_ids),
            ("dead_pick_ids", &self.dead_pick_ids),
            ("replay", &self.replay),
        ];
        all.extend(lists.into_iter().flat_map(|(name, statement)| texts(name, statement)));
        all.extend(self.entomb.iter().flat_map(|statement| texts("entomb", statement)));
        match &self.walk {
            Walk::Ours(ours) => all.extend(ours.all()),
            Walk::Flat(flat) => all.extend(flat.all()),
        }
        all
    }
}

impl OurStatements {
    fn render(layout: &Layout) -> Self {
        let sql = |template| sql(layout, template);
        let rows = |template| rows(layout, template);
        let with = |template, own| Sql::from(render_for(layout, template, own));
        Self {
            next_namespace: sql(template!("next_namespace")),
            namespace_head: sql(template!("namespace_head")),
            next_lane: sql(template!("next_lane")),
            claim_due: with(template!("claim_due"), &FREE),
            claim_lane: with(template!("claim_lane"), &FREE),
            claim_expired_ordered: scoped(layout, template!("claim_expired"), &ORDERED),
            claim_suspects_ordered: scoped(layout, template!("claim_suspects"), &ORDERED),
            claim_due_ordered: with(template!("claim_due"), &ORDERED),
            claim_lane_ordered: with(template!("claim_lane"), &ORDERED),
            claim_front: sql(template!("claim_front")),
            claim_near: rows(template!("claim_near")),
            claim_turn: rows(template!("claim_turn")),
            claim_run: sql(template!("claim_run")),
            claim_follow: rows(template!("claim_follow")),
            sweep_spent: sql(template!("sweep_spent")),
            sweep_keys: sql(template!("sweep_keys")),
            next_coming: sql(template!("next_coming")),
            next_coming_lease: scoped(
                layout,
                template!("next_lease"),
                &[("{lease}", ">= timestampadd(microsecond, -?, {now})")],
            ),
        }
    }

    fn all(&self) -> Vec<(&'static str, &str)> {
        let mut all: Vec<(&'static str, &str)> = vec![
            ("next_namespace", &self.next_namespace),
            ("namespace_head", &self.namespace_head),
            ("next_lane", &self.next_lane),
            ("claim_due", &self.claim_due),
            ("claim_lane", &self.claim_lane),
            ("claim_due_ordered", &self.claim_due_ordered),
            ("claim_lane_ordered", &self.claim_lane_ordered),
            ("claim_front", &self.claim_front),
            ("claim_run", &self.claim_run),
            ("next_coming", &self.next_coming),
            ("sweep_spent", &self.sweep_spent),
            ("sweep_keys", &self.sweep_keys),
        ];
        all.extend(scoped_texts("claim_expired_ordered", &self.claim_expired_ordered));
        all.extend(scoped_texts("claim_suspects_ordered", &self.claim_suspects_ordered));
        all.extend(scoped_texts("next_coming_lease", &self.next_coming_lease));
        all.extend(texts("claim_near", &self.claim_near));
        all.extend(texts("claim_turn", &self.claim_turn));
        all.extend(texts("claim_follow", &self.claim_follow));
        all
    }
}

impl FlatStatements {
    fn render(layout: &Layout) -> Self {
        let words = layout.words.as_ref().map(waiting).unwrap_or_default();
        let of_word = |word: &String| {
            let status = layout.status.as_ref().map_or("status", |column| &column.name);
            let waiting = format!("`{status}` = '{word}'");
            scoped(layout, template!("claim_due_flat"), &[("{waiting}", &waiting)])
        };
        Self {
            claim_due: words.into_iter().map(of_word).collect(),
            next_due: scoped(layout, template!("next_due_flat"), &[]),
            undated: scoped(layout, template!("undated"), &[]),
            sweep_spent: scoped(layout, template!("sweep_spent_flat"), &[]),
        }
    }

    fn all(&self) -> Vec<(&'static str, &str)> {
        let due = self.claim_due.iter().flat_map(|statement| scoped_texts("claim_due_flat", statement));
        let due = due.chain(scoped_texts("next_due_flat", &self.next_due));
        let due = due.chain(scoped_texts("undated", &self.undated));
        due.chain(scoped_texts("sweep_spent_flat", &self.sweep_spent)).collect()
    }
}

/// What a row is found by in a statement that deletes, as the index has it: there it is no constant, and would not be made
/// to fit.
fn number(layout: &Layout) -> String {
    let value = match (layout.is_ours(), layout.id.kind.as_deref() == Some(layout::DIALECT.bytes)) {
        (true, _) => "cast(? as signed)".to_owned(),
        (false, true) => render_for(layout, "{raw ?}", &[]),
        (false, false) => "cast(? as char(36) character set ascii)".to_owned(),
    };
    format!("{value} as number")
}

fn sql(layout: &Layout, template: &str) -> Sql {
    render_for(layout, template, &[]).into()
}

fn rows(layout: &Layout, template: &str) -> Portioned {
    Portioned::render(&render_for(layout, template, &[]), &render_for(layout, "{raw ?}", &[]), MOST_ROWS)
}

fn scoped_texts<'a>(name: &'static str, statement: &'a Scoped) -> impl Iterator<Item = (&'static str, &'a str)> {
    std::iter::once((name, &*statement.all)).chain(texts(name, &statement.some))
}

fn texts<'a>(name: &'static str, statement: &'a Portioned) -> impl Iterator<Item = (&'static str, &'a str)> {
    statement.texts().iter().map(move |sql| (name, &**sql))
}

fn scoped(layout: &Layout, template: &str, own: &[(&str, &str)]) -> Scoped {
    let with = |scope| {
        let own: Vec<_> = own.iter().copied().chain([("{in_scope}", scope)]).collect();
        render_for(layout, template, &own)
    };
    Scoped {
        all: with("and {of_tenant}").into(),
        some: Portioned::render(&with("and {of_tenant} and {namespace} in ({items})"), "?", MOST_NAMESPACES),
    }
}

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 13] = [
    // No earlier row of the same line (namespace, tenant, key) is open.
    ("{in_turn}", "(mine.`key` is null or not ({has_earlier}))"),
    (
        "{has_earlier}",
        "exists (select 1 from {table} as earlier force index ({name}_key_idx) where earlier.status = 'pending' \
         and earlier.namespace = mine.namespace and earlier.`key` = mine.`key` and earlier.tenant_id <=> mine.tenant_id and earlier.seq < mine.seq) \
         or exists (select 1 from {table} as earlier force index ({name}_key_idx) where earlier.status = 'processing' \
         and earlier.namespace = mine.namespace and earlier.`key` = mine.`key` and earlier.tenant_id <=> mine.tenant_id and earlier.seq < mine.seq)",
    ),
    (
        "{has_later}",
        "exists (select 1 from {table} as later force index ({name}_key_idx) where later.status = 'pending' \
         and later.namespace = mine.namespace and later.`key` = mine.`key` and later.tenant_id <=> mine.tenant_id and later.seq > mine.seq) \
         or exists (select 1 from {table} as later force index ({name}_key_idx) where later.status = 'processing' \
         and later.namespace = mine.namespace and later.`key` = mine.`key` and later.tenant_id <=> mine.tenant_id and later.seq > mine.seq)",
    ),
    ("{line}", "seq, {size} as size, status, attempts, max_attempts, tenant_id, next_attempt_at, locked_until"),
    // An operator's filter beyond the scope: topic twice, key twice, since twice, until twice, part of the error twice, all
    // or null.
    (
        "{asked}",
        "and (? is null or {topic} = ?)
  and (? is null or {key} = ?)
  and (? is null or {touched} >= timestampadd(microsecond, ?, {epoch}))
  and (? is null or {touched} < timestampadd(microsecond, ?, {epoch}))
  and (? is null or instr(lower(coalesce({last_error}, '')), lower(?)) > 0)",
    ),
    (
        "{tally}",
        "count(*) as messages, count(case when {touched} > timestampadd(minute, -1, {now}) then 1 end) as last_minute, \
         count(null) as due, timestampdiff(microsecond, min({touched}), {now}) as oldest",
    ),
    (
        "{record}",
        "{id} as id, {namespace}, {topic}, {key}, {tenant_id}, {dedupe_key}, {state}, cast({attempts} as signed), cast({max_attempts} as signed), \
         {last_error}, {headers}, coalesce({micros_of} {due_at}), 0) as next_due, {locked_by}, \
         {micros_of} {lease_end}) as lease_end, coalesce({micros_of} {created_at}), 0) as made_at, \
         coalesce({micros_of} {touched}), 0) as died_at, {micros_of} {delivered_at}) as done_at",
    ),
    ("{of_tenant}", "(? is null or {tenant_id} = ?)"),
    // 48 bits of milliseconds, then version, variant and 74 random bits. An expression, because a default may call no
    // function of ours.
    (
        "{uuid_v7}",
        "lower(concat(
    substr(lpad(hex({micros_of} {now}) div 1000), 12, '0'), 1, 8), '-',
    substr(lpad(hex({micros_of} {now}) div 1000), 12, '0'), 9, 4), '-7',
    substr(md5(uuid()), 1, 3), '-',
    substr('89ab', 1 + floor(rand() * 4), 1), substr(md5(uuid()), 1, 3), '-',
    substr(md5(uuid()), 1, 12)))",
    ),
    // Microseconds since 1970 of what follows.
    ("{micros_of}", "timestampdiff(microsecond, {epoch},"),
    ("{epoch}", "timestamp '1970-01-01 00:00:00'"),
    ("{now}", "utc_timestamp(6)"),
    ("{uuid_pattern}", "'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'"),
];

/// What still is ours: a row is, if it is one of those that this worker took with this attempt. Its number finds it, its id
/// decides.
fn fence(layout: &Layout) -> [(&'static str, String); 2] {
    let id = if layout.is_ours() { "{raw_id} in ({items}) and " } else { "" };
    let worker = if layout.locked_by.is_some() { "{locked_by} = ? and " } else { "" };
    let ours = format!("{id}{worker}{{attempts}} = ? and {{processing}}");
    [("{fence}", format!("{{number}} in ({{items}}) and {ours}")), ("{ours}", ours)]
}

/// Puts a layout's columns, names and fragments into a template, and leaves its header comment out.
fn render_for(layout: &Layout, template: &str, own: &[(&str, &str)]) -> String {
    let fence = fence(layout);
    let fence = fence.iter().map(|(placeholder, text)| (*placeholder, text.as_str()));
    let own: Vec<(&str, &str)> = own.iter().copied().chain(fence).collect();
    let resolve = |placeholder: &str| layout::resolve(layout, placeholder);
    let sql = resolved(&render(&layout.names, template, &own), resolve);
    resolved(&sql.replace(layout::CASE, "case {number} {cases} end"), resolve)
}

/// The database's name as an expression. Where none is selected it must not be null: the statements after it say what is
/// wrong.
fn in_database(names: &Names) -> String {
    names.schema().map_or("coalesce(database(), '')".to_owned(), |schema| format!("'{schema}'"))
}

/// The names of locks are known to the whole server and at most 64 characters long.
fn lock(names: &Names, purpose: &str) -> String {
    let database = in_database(names);
    format!("concat('postrider {purpose} ', md5(concat({database}, '.{}')))", names.table())
}

/// Puts names and fragments into a template, and leaves its header comment out.
#[doc(hidden)]
pub fn render(names: &Names, template: &str, own: &[(&str, &str)]) -> String {
    render_in(names.schema(), names, template, own)
}

/// [`render`] for a reader who may be connected to another database, or to none: all is said to be in this one.
pub(super) fn render_in(database: Option<&str>, names: &Names, template: &str, own: &[(&str, &str)]) -> String {
    let (prefix, name) = (names.prefix(), names.table());
    let database = database.map(|database| database.replace('`', "``"));
    let within = |name: &str| match &database {
        Some(database) => format!("`{database}`.`{name}`"),
        None => format!("`{name}`"),
    };
    let values = [
        ("{table}", within(name)),
        ("{migrations}", within(&format!("{prefix}migrations"))),
        ("{audit}", within(&format!("{prefix}audit"))),
        ("{changelog}", within(&format!("{prefix}changelog"))),
        ("{changelog_uow}", format!("`{prefix}changelog_uow`")),
        ("{changelog_refs}", format!("`{prefix}changelog_refs`")),
        ("{settings}", within(&format!("{prefix}settings"))),
        ("{cursors}", within(&format!("{prefix}cursors"))),
        ("{turns}", within(&format!("{prefix}turns"))),
        ("{enqueue}", within(&format!("{prefix}enqueue"))),
        ("{database}", in_database(names)),
        ("{add_index}", within(&format!("{prefix}add_index"))),
        ("{purge_lock}", lock(names, "purge")),
        ("{migrate_lock}", lock(names, "migrate")),
        ("{name}", name.to_owned()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(FRAGMENTS).chain(values))
}
