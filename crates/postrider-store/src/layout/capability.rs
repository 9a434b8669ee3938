//! What a table can do, by what it has.

use std::fmt;

use super::{ClaimBy, Counts, IdKind, Lanes, Layout, PayloadKind, Text};

/// Something that a store promises on Postrider's own table, and that another table may lack the columns for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Ability {
    /// Messages can be written with `enqueue`.
    Enqueue,
    /// Messages of several namespaces, each claimed, counted and scoped apart.
    Namespaces,
    /// Messages of any topic.
    Topics,
    /// A key of a message.
    Keys,
    /// A tenant of a message, and scopes of one tenant.
    Tenants,
    /// Messages with nothing but a topic and a payload.
    Plain,
    /// A dedupe key of a message.
    DedupeKeys,
    /// Headers of any name.
    Headers,
    /// Payloads that are not JSON.
    Bytes,
    /// A delivery time, and a backoff that outlives the process.
    Delays,
    /// A number of attempts of a message's own.
    MaxAttempts,
    /// The dispatcher's number of attempts holds for messages without one of their own.
    UsualAttempts,
    /// Attempts are counted in the row.
    Attempts,
    /// An attempt whose worker died counts, so that a message which kills its worker is given up in the end.
    CountsCrashes,
    /// Attempts say how often the message was claimed, not only how often it failed.
    CountsClaims,
    /// A claim needs no open transaction and no connection.
    Leases,
    /// The lease may be of any length; otherwise the layout says how long it is.
    LeaseLength,
    /// The row says who has it, and nobody else can settle it, not even with its attempt's number.
    Worker,
    /// The row is marked as being published.
    Processing,
    /// A message can be given up.
    Dead,
    /// Delivered rows can stay.
    Delivered,
    /// The row says what went wrong last.
    LastError,
    /// The row says when it was written.
    Created,
    /// The row says when it was changed last.
    Updated,
    /// The row says when it was delivered.
    DeliveredAt,
    /// Rows have the order in which they were written.
    Sequence,
    /// An equal share for each tenant.
    FairShares,
    /// An equal share for each topic.
    FairTopics,
    /// An equal share for each namespace, however much of the others waits.
    NamespaceShares,
    /// Order per key.
    OrderByKey,
    /// Operators' replays are counted in the row.
    CountsReplays,
}

impl Ability {
    /// All of them.
    pub const ALL: [Self; 31] = [
        Self::Enqueue,
        Self::Namespaces,
        Self::Topics,
        Self::Keys,
        Self::Tenants,
        Self::Plain,
        Self::DedupeKeys,
        Self::Headers,
        Self::Bytes,
        Self::Delays,
        Self::MaxAttempts,
        Self::UsualAttempts,
        Self::Attempts,
        Self::CountsCrashes,
        Self::CountsClaims,
        Self::Leases,
        Self::LeaseLength,
        Self::Worker,
        Self::Processing,
        Self::Dead,
        Self::Delivered,
        Self::LastError,
        Self::Created,
        Self::Updated,
        Self::DeliveredAt,
        Self::Sequence,
        Self::FairShares,
        Self::FairTopics,
        Self::NamespaceShares,
        Self::OrderByKey,
        Self::CountsReplays,
    ];

    /// Its name in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Namespaces => "namespaces",
            Self::Topics => "topics",
            Self::Keys => "keys",
            Self::Tenants => "tenants",
            Self::Plain => "plain",
            Self::DedupeKeys => "dedupe-keys",
            Self::Headers => "headers",
            Self::Bytes => "bytes",
            Self::Delays => "delays",
            Self::MaxAttempts => "max-attempts",
            Self::UsualAttempts => "usual-attempts",
            Self::Attempts => "attempts",
            Self::CountsCrashes => "counts-crashes",
            Self::CountsClaims => "counts-claims",
            Self::Leases => "leases",
            Self::LeaseLength => "lease-length",
            Self::Worker => "worker",
            Self::Processing => "processing",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::LastError => "last-error",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::DeliveredAt => "delivered-at",
            Self::Sequence => "sequence",
            Self::FairShares => "fair-shares",
            Self::FairTopics => "fair-topics",
            Self::NamespaceShares => "namespace-shares",
            Self::OrderByKey => "order-by-key",
            Self::CountsReplays => "counts-replays",
        }
    }

    /// What is lost without it, and what takes its place.
    pub fn without(self) -> &'static str {
        match self {
            Self::Enqueue => "producers insert rows with SQL of their own: the database numbers the rows",
            Self::Namespaces => "all messages are of one namespace",
            Self::Topics => "topics are those that the table knows",
            Self::Keys => "messages have no key",
            Self::Tenants => "messages have no tenant, and no scope of one",
            Self::Plain => {
                "every message needs more than a topic and a payload: a key, a tenant, a dedupe key or certain headers"
            }
            Self::DedupeKeys => "messages have no dedupe key",
            Self::Headers => "messages have no headers but those that the layout has columns for",
            Self::Bytes => "payloads are JSON",
            Self::Delays => {
                "a backoff is kept in the relay's memory; another relay, or this one after a restart, tries at once"
            }
            Self::MaxAttempts => "the same number of attempts holds for all",
            Self::UsualAttempts => "the table says how many attempts a message has, not the dispatcher",
            Self::Attempts => "attempts are counted in the relay's memory",
            Self::CountsCrashes => "a message whose worker dies is tried again without end",
            Self::CountsClaims => "attempts are failures; a delivery takes its own back",
            Self::Leases => {
                "each claim holds a transaction and a connection open while it is published; claims are small and time-limited"
            }
            Self::LeaseLength => "every lease lasts as long as the layout's lock_timeout says",
            Self::Worker => "the attempt's number and the due time are the fence",
            Self::Processing => "what is being published looks as if it waited",
            Self::Dead => {
                "a message that is refused for good stays, is tried again rarely, and is logged as an error each time"
            }
            Self::Delivered => "delivered rows are deleted",
            Self::LastError => "errors are in the log only",
            Self::Created => "the age of a message is not known",
            Self::Updated => {
                "the time of the last change is taken from other columns; where none says when a row was tried last, dead rows are not deleted by age"
            }
            Self::DeliveredAt => "when a message was delivered is known by its last change only",
            Self::Sequence => "messages written at the same time are claimed in the order of their ids",
            Self::FairShares => "what has been due for longest is claimed first, whoever it is of",
            Self::FairTopics => "a busy topic delays the others",
            Self::NamespaceShares => "what has been due for longest is claimed first, whatever its namespace",
            Self::OrderByKey => "messages are delivered without order",
            Self::CountsReplays => "a replayed message does not say so; the audit table does",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Layout {
    /// Whether the table can do something.
    pub fn can(&self, ability: Ability) -> bool {
        let held = self.claim == ClaimBy::RowLock;
        match ability {
            Ability::Enqueue => self.id_kind == IdKind::Uuid,
            Ability::Namespaces => matches!(self.namespace, Text::Column(_)),
            Ability::Topics => matches!(&self.topic, Text::Column(column) if column.values.is_empty()),
            Ability::Keys => self.key.is_some(),
            Ability::Tenants => self.tenant.is_some(),
            Ability::Plain => {
                let required = self.key_required || self.tenant_required || self.dedupe_required;
                !required && self.written_fields().next().is_none()
            }
            Ability::DedupeKeys => self.dedupe_key.is_some(),
            Ability::Headers => self.headers.is_some(),
            Ability::Bytes => self.payload_bytes.is_some() || self.payload_kind == PayloadKind::Bytes,
            Ability::Delays => self.next_attempt_at.is_some(),
            Ability::MaxAttempts => self.max_attempts.is_some(),
            Ability::UsualAttempts => self.usual_max_attempts.is_none() && self.give_up_after.is_none(),
            Ability::Attempts => self.attempts.is_some(),
            Ability::CountsCrashes => self.attempts.is_some() && !held,
            Ability::CountsClaims => self.attempts.is_some() && !held && self.counts == Counts::Claims,
            Ability::Leases | Ability::Processing => !held,
            Ability::LeaseLength => self.claim == ClaimBy::Lease,
            Ability::Worker => self.locked_by.is_some(),
            Ability::Dead => self.words.is_some() || self.give_up_after.is_some(),
            Ability::Delivered => self.keeps_delivered(),
            Ability::LastError => self.last_error.is_some(),
            Ability::Created => self.created_at.is_some(),
            Ability::Updated => self.updated_at.is_some(),
            Ability::DeliveredAt => self.delivered_at.is_some(),
            Ability::Sequence => self.seq.is_some(),
            Ability::FairShares => self.lanes.is_some(),
            Ability::FairTopics => self.lanes == Some(Lanes::Topics),
            Ability::NamespaceShares | Ability::OrderByKey => self.indexed_like_ours,
            Ability::CountsReplays => self.headers.is_some(),
        }
    }

    /// What the table cannot do.
    pub fn lacks(&self) -> impl Iterator<Item = Ability> + '_ {
        Ability::ALL.into_iter().filter(|ability| !self.can(*ability))
    }
}
