//! Checks of the limits of tenants.

use std::collections::HashMap;

use postrider::TenantLimit;
use uuid::Uuid;

use super::Check;
use crate::config::dispatcher::tenant_of;
use crate::config::model::Source;
use crate::config::problem::KeyPath;

impl Check<'_> {
    pub(super) fn tenant_limits(&mut self, path: &KeyPath, source: &Source) {
        let limits = &source.tenant_limits;
        let path = path.key("tenant_limits");
        self.limit(&path, limits.each(), None);
        let mut named: HashMap<Uuid, &str> = HashMap::new();
        for (name, limit) in &limits.tenants {
            let path = path.key("tenants").key(name);
            self.limit(&path, limit.to_dispatcher(), limits.rate);
            match tenant_of(name) {
                None => self.refuse(path, "this is not a UUID; name the tenant by its id"),
                Some(tenant) if tenant.is_nil() => {
                    self.refuse(path, "the nil UUID stands for no tenant; give the tenant's own id");
                }
                Some(tenant) => match named.insert(tenant, name) {
                    Some(other) => self.refuse(path, &format!("{other:?} is the same tenant; keep one of the two")),
                    None if source.tenant.is_some_and(|only| only != tenant) => {
                        self.warn(path, "it has no effect: the source takes messages of another tenant only");
                    }
                    None => {}
                },
            }
        }
    }

    /// The dispatcher knows what a limit may be. A burst without a rate may belong to the rate `of_all`.
    fn limit(&mut self, path: &KeyPath, limit: TenantLimit, of_all: Option<u32>) {
        let mut limit = limit;
        limit.rate = limit.rate.or(of_all.filter(|rate| *rate > 0));
        for error in limit.problems() {
            self.refuse(path.key(error.setting()), &error.to_string());
        }
    }
}
