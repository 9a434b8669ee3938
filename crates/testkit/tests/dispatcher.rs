//! The dispatcher's promises: in memory with time standing still where only rules matter, on a private PostgreSQL
//! where the database does.

#[path = "dispatcher/breaker.rs"]
mod breaker;
#[path = "dispatcher/config.rs"]
mod config;
#[path = "dispatcher/delivery.rs"]
mod delivery;
#[path = "dispatcher/failure.rs"]
mod failure;
#[path = "dispatcher/fairness.rs"]
mod fairness;
#[path = "dispatcher/leases.rs"]
mod leases;
#[path = "dispatcher/limits.rs"]
mod limits;
#[path = "dispatcher/observe.rs"]
mod observe;
#[path = "dispatcher/order.rs"]
mod order;
#[path = "dispatcher/plans.rs"]
mod plans;
#[path = "dispatcher/pooler.rs"]
mod pooler;
#[path = "dispatcher/retention.rs"]
mod retention;
#[path = "dispatcher/routes.rs"]
mod routes;
#[path = "dispatcher/scene.rs"]
mod scene;
#[path = "dispatcher/shutdown.rs"]
mod shutdown;
#[path = "dispatcher/wake.rs"]
mod wake;
