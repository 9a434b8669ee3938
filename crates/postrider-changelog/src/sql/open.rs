//! The changelog of a store, whatever database it is on.

use std::sync::Arc;

use postrider_store::AnyStore;

use super::Changelog;
use crate::{ChangelogError, Reader};

/// The changelog beside an outbox, for programs that read it on every database.
pub fn open(store: &AnyStore) -> Result<Arc<dyn Reader>, ChangelogError> {
    Ok(match store {
        #[cfg(feature = "postgres")]
        AnyStore::Postgres(store) => {
            let changelog = Changelog::new(store.pool().clone(), store.names().clone());
            Arc::new(changelog.behind_pooler(store.is_behind_pooler()))
        }
        #[cfg(feature = "mysql")]
        AnyStore::MySql(store) => Arc::new(Changelog::new(store.pool().clone(), store.names().clone())),
        #[cfg(feature = "sqlite")]
        AnyStore::Sqlite(store) => Arc::new(Changelog::new(store.pool().clone(), store.names().clone())),
        #[allow(unreachable_patterns)] // where this crate has a database that another one asked the store for
        _ => {
            return Err(ChangelogError::Invalid(format!(
                "this program was built without the changelog on {}",
                store.kind()
            )));
        }
    })
}
