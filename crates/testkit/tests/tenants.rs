//! Tenants kept apart: by row-level security on PostgreSQL, and by the scope of every statement on all databases.

#[path = "tenants/application.rs"]
mod application;
#[path = "tenants/confined.rs"]
mod confined;
#[path = "tenants/keys.rs"]
mod keys;
#[path = "tenants/layouts.rs"]
mod layouts;
#[path = "tenants/plans.rs"]
mod plans;
#[path = "tenants/privileges.rs"]
mod privileges;
#[path = "tenants/protection.rs"]
mod protection;
#[path = "tenants/roles.rs"]
mod roles;
#[path = "tenants/scene.rs"]
mod scene;
#[path = "tenants/scopes.rs"]
mod scopes;
#[path = "tenants/transactions.rs"]
mod transactions;
