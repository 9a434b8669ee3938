//! From the configuration of a source to the parts that work on it, so that what is checked is what runs.

use std::sync::Arc;

use postrider::layout::ClaimBy;
use postrider::store::{Delivered as Fate, Order as Waits};
use postrider::{Dispatcher, DispatcherBuilder, Scope, Sink, Store, TenantLimit, TenantLimits};
use uuid::Uuid;

use super::model::{self, Config, Delivered, Order, Relay, Route, Source};

impl Config {
    /// The routes for the messages of a source.
    pub fn routes_of(&self, source: &str) -> impl Iterator<Item = &Route> {
        let of_source = move |route: &&Route| route.source.as_ref().is_none_or(|wanted| wanted == source);
        self.route.iter().filter(|route| !route.changelog).filter(of_source)
    }

    /// The routes for the entries of a source's changelog, with their places.
    pub fn changelog_routes_of(&self, source: &str) -> impl Iterator<Item = (usize, &Route)> {
        let of_source = move |route: &Route| route.changelog && route.source.as_deref() == Some(source);
        self.route.iter().enumerate().filter(move |(_, route)| of_source(route))
    }

    /// Whether messages of a source are taken: not if it is there for its changelog only.
    pub fn dispatches(&self, name: &str) -> bool {
        let Some(source) = self.source.get(name) else { return false };
        let read =
            source.changelog.enabled && (source.changelog.serve || self.changelog_routes_of(name).next().is_some());
        !read || self.routes_of(name).next().is_some()
    }
}

impl Source {
    /// Whose messages are taken.
    pub fn scope(&self) -> Scope {
        Scope { namespaces: self.namespaces.clone(), tenant: self.tenant }
    }

    /// A dispatcher with the settings of the source, which has this name in metrics and logs.
    pub fn dispatcher(
        &self,
        name: &str,
        relay: &Relay,
        store: Arc<dyn Store>,
        sink: Arc<dyn Sink>,
    ) -> DispatcherBuilder {
        let mut builder = Dispatcher::builder_shared(store, sink)
            .name(name)
            .scope(self.scope())
            .order(match self.order {
                Order::None => Waits::None,
                Order::Key => Waits::Key,
            })
            .batch_size(self.batch_size)
            .concurrency(self.concurrency)
            .poll_interval(self.poll_interval)
            .lease(self.lease)
            .publish_timeout(self.publish_timeout)
            .max_attempts(self.max_attempts)
            .backoff(self.retry_base, self.retry_max)
            .shutdown_grace(relay.shutdown_grace)
            .delivered(match self.delivered {
                Delivered::Keep => Fate::Keep,
                Delivered::Delete => Fate::Delete,
            });
        builder = builder.tenant_limits(self.tenant_limits.to_dispatcher());
        if self.tenant_metrics {
            builder = builder.tenant_metrics(self.tenant_metrics_max);
        }
        // Each claim keeps a connection and its rows' locks: one is published while the next is taken.
        if self.described.claim == ClaimBy::RowLock {
            builder = builder.max_rows(self.batch_size as usize * 2);
        }
        if let Some(age) = self.keep_delivered {
            builder = builder.purge_delivered_after(age);
        }
        if let Some(age) = self.keep_dead {
            builder = builder.purge_dead_after(age);
        }
        builder
    }
}

/// The tenant that a name in the configuration stands for. In variables there are no hyphens.
pub(super) fn tenant_of(name: &str) -> Option<Uuid> {
    name.replace('_', "-").parse().ok()
}

impl model::TenantLimits {
    /// What holds for all tenants that have no limits of their own.
    pub(super) fn each(&self) -> TenantLimit {
        limit(self.rate, self.burst, self.in_flight)
    }

    fn to_dispatcher(&self) -> TenantLimits {
        let single = self.tenants.iter().filter_map(|(name, limit)| Some((tenant_of(name)?, limit)));
        single.fold(TenantLimits::each(self.each()), |limits, (tenant, limit)| {
            limits.tenant(tenant, limit.to_dispatcher())
        })
    }
}

impl model::TenantLimit {
    pub(super) fn to_dispatcher(&self) -> TenantLimit {
        limit(self.rate, self.burst, self.in_flight)
    }
}

fn limit(rate: Option<u32>, burst: Option<u32>, in_flight: Option<u32>) -> TenantLimit {
    let mut limit = TenantLimit::none();
    (limit.rate, limit.burst, limit.in_flight) = (rate, burst, in_flight);
    limit
}
