//! Telling a transaction whose it is, whatever driver opened it.
//!
//! `set_config` with `is_local` ends with the transaction, so that a pooled connection has no tenant for its next user, also
//! behind a pooler. It takes its values as parameters, which `SET LOCAL` does not.

use sqlx::{Postgres, Transaction};
use uuid::Uuid;

#[cfg(feature = "diesel-async")]
use super::enqueue::DieselTransaction;
use crate::tenant::{SetTenantError, TenantSetting, TenantTransaction};

/// $1 the setting, $2 the tenant
const SET: &str = "select set_config($1::text, $2::text, true)";

impl TenantTransaction for &mut Transaction<'_, Postgres> {
    async fn set_tenant(self, setting: &TenantSetting, tenant: Uuid) -> Result<(), SetTenantError> {
        let query = sqlx::query(SET).persistent(false).bind(setting.name()).bind(tenant.to_string());
        query.execute(&mut **self).await.map(|_| ()).map_err(|error| SetTenantError::Database(error.into()))
    }
}

#[cfg(feature = "tokio-postgres")]
impl TenantTransaction for &tokio_postgres::Transaction<'_> {
    async fn set_tenant(self, setting: &TenantSetting, tenant: Uuid) -> Result<(), SetTenantError> {
        use tokio_postgres::types::Type;
        let tenant = tenant.to_string();
        let answer = self.query_typed(SET, &[(&setting.name(), Type::TEXT), (&tenant, Type::TEXT)]).await;
        answer.map(|_| ()).map_err(|error| SetTenantError::Database(error.into()))
    }
}

#[cfg(feature = "sea-orm")]
impl TenantTransaction for &sea_orm::DatabaseTransaction {
    async fn set_tenant(self, setting: &TenantSetting, tenant: Uuid) -> Result<(), SetTenantError> {
        use sea_orm::{ConnectionTrait, DbBackend, Statement};
        if self.get_database_backend() != DbBackend::Postgres {
            return Err(SetTenantError::NotPostgres);
        }
        let values = [setting.name().into(), tenant.to_string().into()];
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, SET, values);
        self.query_one_raw(statement).await.map(|_| ()).map_err(|error| SetTenantError::Database(error.into()))
    }
}

#[cfg(feature = "diesel-async")]
impl TenantTransaction for DieselTransaction<'_> {
    async fn set_tenant(self, setting: &TenantSetting, tenant: Uuid) -> Result<(), SetTenantError> {
        use diesel::sql_query;
        use diesel::sql_types::Text;
        use diesel_async::RunQueryDsl;
        let query = sql_query(SET).bind::<Text, _>(setting.name()).bind::<Text, _>(tenant.to_string());
        query.execute(self.0).await.map(|_| ()).map_err(|error| SetTenantError::Database(error.into()))
    }
}
