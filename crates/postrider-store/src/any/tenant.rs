//! Keeping tenants apart, on databases that can.

use postrider_core::message::{Enqueued, Message};
use postrider_core::operate::Finding;
use postrider_core::store::StoreError;
use uuid::Uuid;

use super::AnyStore;
use crate::enqueue::EnqueueError;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use crate::tenant::no_row_security;
use crate::tenant::{Sight, TenantProtection, TenantSetting, Use};

/// Runs an expression on PostgreSQL; the others say that they have no row-level security.
macro_rules! on_postgres {
    ($any:expr, $store:ident => $body:expr) => {
        match $any {
            #[cfg(feature = "postgres")]
            AnyStore::Postgres($store) => $body,
            #[cfg(feature = "mysql")]
            AnyStore::MySql(_) => Err(no_row_security("MySQL")),
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(_) => Err(no_row_security("SQLite")),
        }
    };
}

#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
impl AnyStore {
    /// Keeps tenants apart by row-level security, and answers the statements that were run. PostgreSQL only; the others
    /// answer with an error that says what they do instead.
    pub async fn protect_tenants(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        on_postgres!(self, store => store.protect_tenants(protection).await)
    }

    /// What [`protect_tenants`](Self::protect_tenants) would run now; writes nothing.
    pub async fn protect_tenants_pending(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        on_postgres!(self, store => store.protect_tenants_pending(protection).await)
    }

    /// What [`protect_tenants`](Self::protect_tenants) does to others that they may not expect, such as roles that will be shown no row.
    pub async fn protection_warnings(&self, protection: &TenantProtection) -> Result<Vec<String>, StoreError> {
        on_postgres!(self, store => store.protection_warnings(protection).await)
    }

    /// Takes back what [`protect_tenants`](Self::protect_tenants) did, and answers the statements that were run.
    pub async fn unprotect_tenants(&self) -> Result<Vec<String>, StoreError> {
        on_postgres!(self, store => store.unprotect_tenants().await)
    }

    /// What [`unprotect_tenants`](Self::unprotect_tenants) would run now; writes nothing.
    pub async fn unprotect_tenants_pending(&self) -> Result<Vec<String>, StoreError> {
        on_postgres!(self, store => store.unprotect_tenants_pending().await)
    }

    /// The policies of others, if row-level security is enabled; none if it is not.
    pub async fn row_security_left(&self) -> Result<Option<Vec<String>>, StoreError> {
        on_postgres!(self, store => store.row_security_left().await)
    }

    /// Whether row-level security confines the application's role to one tenant, as far as the catalog tells. Changes nothing.
    pub async fn examine_tenants(
        &self,
        application: &str,
        setting: &TenantSetting,
    ) -> Result<Vec<Finding>, StoreError> {
        on_postgres!(self, store => store.examine_tenants(application, setting).await)
    }

    /// Proves it by trying, as the application's role, in a transaction that is rolled back.
    pub async fn prove_tenants(&self, application: &str, setting: &TenantSetting) -> Result<Finding, StoreError> {
        on_postgres!(self, store => store.prove_tenants(application, setting).await)
    }

    /// Refuses a role from which row-level security hides rows: a dispatcher of that role would find nothing to do, or not all, and say
    /// that it is well. Cheap enough for a health check. Where there is no row-level security all is well.
    pub async fn check_row_security(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.check_row_security().await,
            #[allow(unreachable_patterns)] // where PostgreSQL is the only database
            _ => Ok(()),
        }
    }

    /// How much of the messages row-level security shows to the role that this store logs in as.
    pub async fn sight(&self, of: Use) -> Result<Sight, StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.sight(of).await,
            #[allow(unreachable_patterns)] // where PostgreSQL is the only database
            _ => Ok(Sight::All),
        }
    }

    /// [`enqueue`](Self::enqueue) in a transaction of this tenant, where there is row-level security.
    pub async fn enqueue_as(
        &self,
        tenant: Uuid,
        setting: &TenantSetting,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => {
                let failed = |error| EnqueueError::Database(store.failed(error).into());
                let mut transaction = store.begin().await.map_err(failed)?;
                let set = setting.set(&mut transaction, tenant).await;
                set.map_err(|error| EnqueueError::Database(error.into()))?;
                let enqueued = store.outbox().enqueue_many(&mut transaction, messages).await?;
                transaction.commit().await.map_err(failed)?;
                Ok(enqueued)
            }
            #[allow(unreachable_patterns)] // where PostgreSQL is the only database
            _ => self.enqueue(messages).await,
        }
    }
}
