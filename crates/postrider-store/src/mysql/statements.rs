//! SQL text, rendered once from validated names. No other module puts SQL together.
//!
//! Only what MariaDB 10.6 and MySQL 8.0.16 have in common, and nothing that depends on the session: identifiers are in
//! backticks (`sql_mode` may hold ANSI_QUOTES), texts are joined with `concat` (`||` may mean "or"), no literal holds a
//! backslash, times come from `utc_timestamp`.
//!
//! Hot statements name their index. A plan is made anew for each execution from statistics that are minutes old, and
//! the optimizer would sometimes rather read the table.
//!
//! There are no array parameters, so a statement about a list is rendered for lists of 1, 2, 4 and so on; a list is filled
//! up to the next size with its last item. Lists stay below a thousand, where MariaDB turns `in (…)` into a subquery.

use postrider_core::operate::REPLAYED;
use postrider_core::store::{LARGEST_CLAIM, SUSPECT_AFTER};

use crate::names::Names;
use crate::sql::{Portioned, Sql, fill};

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
}

impl EnqueueStatements {
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let insert = |duplicate| {
            let template = include_str!("../../sql/mysql/enqueue.sql");
            let template = render(names, template, &[("{unless_duplicate}", duplicate)]);
            let row = render(names, NEW_ROW, &[]);
            Portioned::render_lists(&template, &[("{items}", &row, ",\n  ")], MOST_MESSAGES)
        };
        let find = |lock| {
            let template = render(names, include_str!("../../sql/mysql/enqueue_find.sql"), &[("{lock}", lock)]);
            let key = "(namespace = ? and topic = ? and dedupe_key = ?)";
            Portioned::render_lists(&template, &[("{items}", key, " or ")], MOST_MESSAGES)
        };
        Self {
            enqueue: insert(""),
            enqueue_keyed: insert("on duplicate key update seq = seq"),
            enqueue_turn: Portioned::render(&render(names, template!("enqueue_turn"), &[]), "?", MOST_MESSAGES),
            enqueue_find: find(""),
            enqueue_written: Portioned::render(&render(names, template!("enqueue_written"), &[]), "?", MOST_MESSAGES),
            enqueue_find_now: find("lock in share mode"),
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

const NEW_ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, \
    coalesce(timestampadd(microsecond, ?, {epoch}), timestampadd(microsecond, ?, {now}), {now}), ?)";

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

/// What a relay runs.
#[derive(Debug)]
#[allow(missing_docs)] // one `.sql` file each
pub struct StoreStatements {
    pub next_namespace: Sql,
    pub namespace_head: Sql,
    pub next_lane: Sql,
    pub claim_expired: Scoped,
    pub claim_suspects: Scoped,
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
    pub sweep_spent: Sql,
    pub sweep_keys: Sql,
    pub sweep_lock: Portioned,
    pub sweep_bury: Portioned,
    pub sweep_suspects: Scoped,
    pub purge_delivered: FinishedStatement,
    pub purge_dead: FinishedStatement,
    pub purge_delete: Portioned,
    pub purge_lock: Sql,
    pub purge_unlock: Sql,
    pub stats: Scoped,
    pub next_lease: Scoped,
    pub next_coming: Sql,
    pub next_coming_lease: Scoped,
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
    /// Renders the statements for these names.
    pub fn render(names: &Names) -> Self {
        let sql = |template| Sql::from(render(names, template, &[]));
        let rows = |template| Portioned::render(&render(names, template, &[]), "?", MOST_ROWS);
        let cases = |template| {
            let lists = [("{items}", "?", ", "), ("{cases}", "when ? then ?", " ")];
            Portioned::render_lists(&render(names, template, &[]), &lists, MOST_CASES)
        };
        let leased =
            |lock| Portioned::render(&render(names, template!("settle_find"), &[("{lock}", lock)]), "?", MOST_ROWS);
        let deleted = |template| {
            let lists = [("{items}", "?", ", "), ("{numbers}", "cast(? as signed) as number", " union select ")];
            Portioned::render_lists(&render(names, template, &[]), &lists, MOST_ROWS)
        };
        let scoped = |template| scoped(names, template, &[]);
        let finished = |template, status| {
            let with = |lease| self::scoped(names, template, &[("{finished}", status), ("{unleased}", lease)]);
            FinishedStatement { unleased: with("locked_until is null"), leased: with("locked_until is not null") }
        };
        Self {
            next_namespace: sql(template!("next_namespace")),
            namespace_head: sql(template!("namespace_head")),
            next_lane: sql(template!("next_lane")),
            claim_expired: self::scoped(names, template!("claim_expired"), &FREE),
            claim_suspects: self::scoped(names, template!("claim_suspects"), &FREE),
            claim_due: render(names, template!("claim_due"), &FREE).into(),
            claim_lane: render(names, template!("claim_lane"), &FREE).into(),
            claim_expired_ordered: self::scoped(names, template!("claim_expired"), &ORDERED),
            claim_suspects_ordered: self::scoped(names, template!("claim_suspects"), &ORDERED),
            claim_due_ordered: render(names, template!("claim_due"), &ORDERED).into(),
            claim_lane_ordered: render(names, template!("claim_lane"), &ORDERED).into(),
            claim_front: sql(template!("claim_front")),
            claim_near: rows(template!("claim_near")),
            claim_turn: rows(template!("claim_turn")),
            claim_run: sql(template!("claim_run")),
            claim_follow: rows(template!("claim_follow")),
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
            sweep_spent: sql(template!("sweep_spent")),
            sweep_keys: sql(template!("sweep_keys")),
            sweep_lock: rows(template!("sweep_lock")),
            sweep_bury: rows(template!("sweep_bury")),
            sweep_suspects: scoped(template!("sweep_suspects")),
            purge_delivered: finished(template!("purge"), "delivered"),
            purge_dead: finished(template!("purge"), "dead"),
            purge_delete: deleted(template!("purge_delete")),
            purge_lock: sql(template!("purge_lock")),
            purge_unlock: sql(template!("purge_unlock")),
            stats: scoped(template!("stats")),
            next_lease: self::scoped(names, template!("next_lease"), &[("{lease}", "is not null")]),
            next_coming: sql(template!("next_coming")),
            next_coming_lease: self::scoped(
                names,
                template!("next_lease"),
                &[("{lease}", ">= timestampadd(microsecond, -?, {now})")],
            ),
            overview: scoped(template!("overview")),
            overview_delivered: scoped(template!("overview_delivered")),
            dead: finished(template!("dead"), "dead"),
            dead_ids: rows(template!("dead_ids")),
            dead_pick: finished(template!("dead_pick"), "dead"),
            dead_pick_ids: rows(template!("dead_pick_ids")),
            count_dead: scoped(template!("count_dead")),
            message: sql(template!("message")),
            replay: rows(template!("replay")),
            note: sql(template!("note")),
            count_purge_delivered: finished(template!("count_purge"), "delivered"),
            count_purge_dead: finished(template!("count_purge"), "dead"),
            audit: sql(template!("audit")),
        }
    }

    /// Every statement with its name, so that a test can prepare them all.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
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
            ("purge_lock", &self.purge_lock),
            ("purge_unlock", &self.purge_unlock),
            ("message", &self.message),
            ("note", &self.note),
            ("audit", &self.audit),
        ];
        let scoped: [(_, &Scoped); 24] = [
            ("claim_expired_ordered", &self.claim_expired_ordered),
            ("claim_suspects_ordered", &self.claim_suspects_ordered),
            ("next_coming_lease", &self.next_coming_lease),
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
        for (name, statement) in scoped {
            all.push((name, &statement.all));
            all.extend(texts(name, &statement.some));
        }
        let lists: [(_, &Portioned); 19] = [
            ("claim_near", &self.claim_near),
            ("claim_turn", &self.claim_turn),
            ("claim_follow", &self.claim_follow),
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
        all
    }
}

fn texts<'a>(name: &'static str, statement: &'a Portioned) -> impl Iterator<Item = (&'static str, &'a str)> {
    statement.texts().iter().map(move |sql| (name, &**sql))
}

fn scoped(names: &Names, template: &str, own: &[(&str, &str)]) -> Scoped {
    let with = |scope| {
        let own: Vec<_> = own.iter().copied().chain([("{in_scope}", scope)]).collect();
        render(names, template, &own)
    };
    Scoped {
        all: with("and {of_tenant}").into(),
        some: Portioned::render(&with("and {of_tenant} and namespace in ({items})"), "?", MOST_NAMESPACES),
    }
}

/// Pieces that several statements share, so that they cannot come to differ. One may hold those after it.
const FRAGMENTS: [(&str, &str); 18] = [
    // No earlier row of the same key is open.
    ("{in_turn}", "(mine.`key` is null or not ({has_earlier}))"),
    (
        "{has_earlier}",
        "exists (select 1 from {table} as earlier force index ({name}_key_idx) where earlier.status = 'pending' \
         and earlier.namespace = mine.namespace and earlier.`key` = mine.`key` and earlier.seq < mine.seq) \
         or exists (select 1 from {table} as earlier force index ({name}_key_idx) where earlier.status = 'processing' \
         and earlier.namespace = mine.namespace and earlier.`key` = mine.`key` and earlier.seq < mine.seq)",
    ),
    (
        "{has_later}",
        "exists (select 1 from {table} as later force index ({name}_key_idx) where later.status = 'pending' \
         and later.namespace = mine.namespace and later.`key` = mine.`key` and later.seq > mine.seq) \
         or exists (select 1 from {table} as later force index ({name}_key_idx) where later.status = 'processing' \
         and later.namespace = mine.namespace and later.`key` = mine.`key` and later.seq > mine.seq)",
    ),
    ("{line}", "seq, {size} as size, status, attempts, max_attempts, tenant_id, next_attempt_at, locked_until"),
    // An operator's filter beyond the scope: topic twice, key twice, since twice, until twice, part of the error twice, all
    // or null.
    (
        "{asked}",
        "and (? is null or topic = ?)
  and (? is null or `key` = ?)
  and (? is null or updated_at >= timestampadd(microsecond, ?, {epoch}))
  and (? is null or updated_at < timestampadd(microsecond, ?, {epoch}))
  and (? is null or instr(lower(coalesce(last_error, '')), lower(?)) > 0)",
    ),
    // What anybody may have written there who is not us counts as never.
    (
        "{times_replayed}",
        "case when json_unquote(json_extract(headers, '$.\"{replayed}\"')) regexp '^[0-9]+$'
      then cast(left(json_unquote(json_extract(headers, '$.\"{replayed}\"')), 9) as unsigned) else 0 end",
    ),
    (
        "{tally}",
        "namespace, topic, status, count(*) as messages, \
         count(case when updated_at > timestampadd(minute, -1, {now}) then 1 end) as last_minute, \
         count(null) as due, timestampdiff(microsecond, min(updated_at), {now}) as oldest",
    ),
    (
        "{record}",
        "id, namespace, topic, `key`, tenant_id, dedupe_key, status, attempts, max_attempts, last_error, headers, \
         coalesce({micros_of} next_attempt_at), 0) as next_attempt_at, locked_by, {micros_of} locked_until) as locked_until, \
         coalesce({micros_of} created_at), 0) as created_at, coalesce({micros_of} updated_at), 0) as died_at, \
         {micros_of} delivered_at) as delivered_at",
    ),
    // A row is ours if it is one of those that this worker took with this attempt. Its number finds it, its id decides.
    ("{fence}", "seq in ({items}) and {ours}"),
    ("{ours}", "id in ({items}) and locked_by = ? and attempts = ? and status = 'processing'"),
    ("{of_tenant}", "(? is null or tenant_id = ?)"),
    ("{suspect}", "(attempts >= least({suspect_after}, coalesce(max_attempts, ?) - 1))"),
    ("{size}", "octet_length(payload) + coalesce(octet_length(payload_bytes), 0)"),
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
        ("{replayed}", REPLAYED.to_owned()),
        ("{turns}", within(&format!("{prefix}turns"))),
        ("{enqueue}", within(&format!("{prefix}enqueue"))),
        ("{database}", in_database(names)),
        ("{add_index}", within(&format!("{prefix}add_index"))),
        ("{purge_lock}", lock(names, "purge")),
        ("{migrate_lock}", lock(names, "migrate")),
        ("{name}", name.to_owned()),
        ("{suspect_after}", SUSPECT_AFTER.to_string()),
        ("{largest_claim}", LARGEST_CLAIM.to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(FRAGMENTS).chain(values))
}
