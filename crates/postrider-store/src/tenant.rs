//! Keeping tenants apart in the database itself, where it can: row-level security on PostgreSQL.
//!
//! An application says in each transaction whose it is ([`set`]), and a policy of the table lets it see and write the rows
//! of that tenant only. What switches this on is a [`TenantProtection`]. MySQL and SQLite have no such thing: there the
//! scope of a dispatcher or an operator is part of every statement, and nothing holds back an application that writes
//! statements of its own.

use postrider_core::store::{StoreError, StoreErrorKind};
#[cfg(feature = "postgres")]
use uuid::Uuid;

#[cfg(feature = "postgres")]
use crate::enqueue::DriverError;
use crate::grants::Roles;

/// The setting that says whose a transaction is, unless another is chosen.
pub const DEFAULT_SETTING: &str = "app.current_tenant_id";
/// PostgreSQL's limit for a name.
const LONGEST_SETTING: usize = 63;

/// The name of the setting that says whose a transaction is. PostgreSQL wants a dot in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSetting(String);

impl Default for TenantSetting {
    fn default() -> Self {
        Self(DEFAULT_SETTING.into())
    }
}

impl TenantSetting {
    /// Checks a name, such as `app.current_tenant_id`.
    pub fn new(name: &str) -> Result<Self, InvalidSetting> {
        if name.len() > LONGEST_SETTING {
            return Err(InvalidSetting::TooLong);
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        if let Some(found) = name.chars().find(|c| !plain(*c)) {
            return Err(InvalidSetting::BadCharacter { found });
        }
        let is_part = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        match name.contains('.') && name.split('.').all(is_part) {
            true => Ok(Self(name.into())),
            false => Err(InvalidSetting::NoParts),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Says whose the transaction is, until it ends; see [`set`].
    #[cfg(feature = "postgres")]
    pub async fn set<T: TenantTransaction>(&self, transaction: T, tenant: Uuid) -> Result<(), SetTenantError> {
        transaction.set_tenant(self, tenant).await
    }
}

/// The name of a setting was refused; it has not been near any SQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidSetting {
    #[error("the tenant setting's name holds {found:?}; use lower-case ASCII letters, digits, _ and a dot")]
    BadCharacter { found: char },
    #[error(
        "the tenant setting's name is not two names with a dot between, each beginning with a letter; write one such as {DEFAULT_SETTING}"
    )]
    NoParts,
    #[error("the tenant setting's name is longer than {LONGEST_SETTING} characters; shorten it")]
    TooLong,
}

/// Says whose the transaction is, until it commits or rolls back: the connection goes back to its pool without a tenant.
/// For the setting [`DEFAULT_SETTING`]; [`TenantSetting::set`] is for another.
///
/// A savepoint that is rolled back takes back what was set after it. On SeaORM a transaction that is not on PostgreSQL is
/// refused.
///
/// ```
/// # async fn place(outbox: postrider_store::Outbox, pool: sqlx::PgPool, tenant: uuid::Uuid, message: postrider_core::Message) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// postrider_store::tenant::set(&mut transaction, tenant).await?;
/// outbox.enqueue(&mut transaction, message.tenant(tenant)).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "postgres")]
pub async fn set<T: TenantTransaction>(transaction: T, tenant: Uuid) -> Result<(), SetTenantError> {
    TenantSetting::default().set(transaction, tenant).await
}

/// A transaction on PostgreSQL that can be told whose it is: those that [`CallerTransaction`](crate::CallerTransaction)
/// names, passed in the same way.
#[cfg(feature = "postgres")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PostgreSQL transaction that can be told whose it is",
    note = "pass the transaction by reference; on a plain connection the tenant would stay behind for the next user of it"
)]
pub trait TenantTransaction: Send {
    /// Sets the tenant for the rest of the transaction. Called by [`set`].
    fn set_tenant(
        self,
        setting: &TenantSetting,
        tenant: Uuid,
    ) -> impl Future<Output = Result<(), SetTenantError>> + Send;
}

/// The tenant could not be set.
#[cfg(feature = "postgres")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetTenantError {
    /// The transaction is on a database that has no row-level security; nothing was sent.
    #[error("only PostgreSQL keeps tenants apart by row-level security; this transaction is on another database")]
    NotPostgres,
    /// The database refused it; the transaction must be rolled back.
    #[error("the database did not take the tenant; roll the transaction back")]
    Database(#[source] DriverError),
}

/// How tenants are kept apart by row-level security: which role sees what.
///
/// | role | sees and writes |
/// |---|---|
/// | application (the producer of [`Roles`]) | rows of the tenant that the transaction has set; nothing without one |
/// | relay, operator | all rows, each by a policy of its own |
/// | reader, if there is one | reads the rows of the tenant that is set, or all if none is |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantProtection {
    pub(crate) roles: Roles,
    pub(crate) setting: TenantSetting,
    pub(crate) require_tenant: bool,
    pub(crate) replace_roles: bool,
}

impl TenantProtection {
    /// For these roles, which must differ: a role that is two of them would see what the wider one sees.
    pub fn new(roles: Roles) -> Result<Self, SameRole> {
        let named = [Some(roles.producer()), Some(roles.relay()), Some(roles.operator()), roles.reader()];
        let named: Vec<&str> = named.into_iter().flatten().collect();
        match named.iter().enumerate().find(|(at, role)| named[..*at].contains(role)) {
            Some((_, role)) => Err(SameRole { role: (*role).to_owned() }),
            None => Ok(Self { roles, setting: TenantSetting::default(), require_tenant: false, replace_roles: false }),
        }
    }

    /// Another setting than [`DEFAULT_SETTING`].
    pub fn setting(mut self, setting: TenantSetting) -> Self {
        self.setting = setting;
        self
    }

    /// Whether rows without a tenant are refused, whoever writes them.
    pub fn require_tenant(mut self, yes: bool) -> Self {
        self.require_tenant = yes;
        self
    }

    /// Whether a policy that is there for another role is made one for the role that is named now. Without it that is refused, because
    /// the first role would be shown no row any more.
    pub fn replace_roles(mut self, yes: bool) -> Self {
        self.replace_roles = yes;
        self
    }
}

/// One role was named for two tasks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the role {role:?} is named for two tasks, so the tenants would not be kept apart; give each task a role of its own"
)]
pub struct SameRole {
    role: String,
}

/// What somebody wants of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Use {
    Read,
    Change,
}

/// How much of the messages row-level security shows to a role. Where there is no row-level security it is all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sight {
    /// All of them.
    All,
    /// Those of a tenant that its session has set: fewer, and on purpose.
    Asked,
    /// Perhaps not all; why, and what to do.
    Part(String),
    /// None, so that an empty answer says nothing; why, and what to do.
    Nothing(String),
}

/// What databases without row-level security answer.
#[cfg_attr(not(any(feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn no_row_security(database: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        format!(
            "{database} has no row-level security: tenants are kept apart by the scope in every statement of a dispatcher and an \
             operator, and not from an application that writes statements of its own; use PostgreSQL, or a database per tenant"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s08_nothing_that_could_leave_its_quotes_is_a_setting() {
        for good in ["app.current_tenant_id", "a.b", "_a.b2.c"] {
            assert_eq!(TenantSetting::new(good).expect("a good name").name(), good);
        }
        for bad in
            ["", "tenant", ".", "a.", ".a", "a..b", "a.1", "A.b", "a.b'", "a.b\"", "a.b c", "a.b;", "a.ä", "a.b\0"]
        {
            assert!(TenantSetting::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert_eq!(TenantSetting::new(&format!("a.{}", "b".repeat(62))), Err(InvalidSetting::TooLong));
    }

    #[test]
    fn s08_one_role_cannot_have_two_tasks() {
        let roles =
            |reader| Roles::new("app", "relay", "ops").and_then(|roles| roles.with_reader(reader)).expect("good");
        assert!(TenantProtection::new(roles("desk")).is_ok());
        assert!(TenantProtection::new(roles("app")).is_err());
        let shared = Roles::new("app", "app", "ops").expect("good names");
        assert!(TenantProtection::new(shared).expect_err("one role twice").to_string().contains("\"app\""));
    }
}
