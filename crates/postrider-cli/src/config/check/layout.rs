//! Checks of layouts, and of what a source asks of its table.

use std::collections::BTreeSet;

use postrider::Layout;
use postrider::layout::{Ability, ClaimBy, IdKind, PRESETS, Text};

use super::{Check, suggest};
use crate::config::database::Database;
use crate::config::model::{Delivered, Order, Source};
use crate::config::problem::KeyPath;

impl Check<'_> {
    pub(super) fn layouts(&mut self) {
        let config = self.config;
        for (name, layout) in &config.layout {
            let path = KeyPath::from(["layout", name]);
            if PRESETS.contains(&&**name) {
                self.refuse(path, "this is the name of a layout that is known; call yours otherwise");
            } else if let Err(error) = (Layout { name: name.clone().into(), ..layout.clone() }).check() {
                self.refuse(path, &error.to_string());
            } else if !config.source.values().any(|source| source.layout == *name) {
                self.warn(path, "no source has this layout; name it in a source's layout, or remove it");
            }
        }
    }

    /// What the source wants, its table must be able to.
    pub(super) fn layout(&mut self, path: &KeyPath, source: &Source, database: Option<Database>) {
        let at = path.key("layout");
        if !PRESETS.contains(&&*source.layout) && !self.declared.layouts.contains(&source.layout) {
            let presets = PRESETS.iter().map(|name| (*name).to_owned());
            let known: BTreeSet<String> = presets.chain(self.declared.layouts.iter().cloned()).collect();
            let said = format!("there is no such layout; {}", suggest(&source.layout, &known, "layout"));
            return self.refuse(at, &said);
        }
        let layout = &source.described;
        if layout.is_ours() {
            if source.lock_timeout.is_some() {
                self.refuse(path.key("lock_timeout"), "the layout \"postrider\" has leases; set lease instead");
            }
            return;
        }
        let elsewhere =
            layout.claim == ClaimBy::RowLock || layout.name == "valinor" || layout.id_kind == IdKind::Integer;
        if elsewhere && matches!(database, Some(Database::MySql | Database::Sqlite)) {
            self.refuse(at.clone(), "this layout is for PostgreSQL; docs/reference/stores.md says which work here");
        }
        if source.table.is_empty() && !self.tree.has(&path.key("table")) {
            self.refuse(at, "this layout does not say which table it is of; add table");
        }
        self.locks(path, source, layout);
        self.wishes(path, source, layout);
    }

    fn locks(&mut self, path: &KeyPath, source: &Source, layout: &Layout) {
        let name = &layout.name;
        if let Some(timeout) = source.lock_timeout {
            if layout.can(Ability::LeaseLength) {
                let said = format!("the layout {name:?} has leases, and no time-out of locks; set lease instead");
                self.refuse(path.key("lock_timeout"), &said);
            } else if timeout.as_secs() == 0 || timeout.as_secs() > 86_400 {
                self.refuse(path.key("lock_timeout"), "it must be from 1s to 1d; change it");
            }
        }
        if !layout.can(Ability::LeaseLength) && source.lease > layout.lock_timeout {
            let said = format!(
                "it is longer than the lock_timeout of {:?} of the layout {name:?}, after which others take the message; \
                 shorten it, or set lock_timeout",
                layout.lock_timeout
            );
            self.refuse(path.key("lease"), &said);
        }
        if layout.claim == ClaimBy::RowLock && source.batch_size > layout.batch {
            let said = format!(
                "batch_size is {}, and the layout {name:?} locks at most {} rows while they are published; lower it",
                source.batch_size, layout.batch
            );
            self.refuse(path.key("batch_size"), &said);
        }
    }

    fn wishes(&mut self, path: &KeyPath, source: &Source, layout: &Layout) {
        let name = &layout.name;
        let cannot = |ability: Ability| format!("the layout {name:?} cannot do this: {}; remove it", ability.without());
        if let Some(number) = layout.give_up_after
            && source.max_attempts != number
        {
            let said = format!(
                "max_attempts is {}, and a row of the layout {name:?} is dead after {number} attempts, whoever looks at it; \
                 remove it",
                source.max_attempts
            );
            self.refuse(path.key("max_attempts"), &said);
        }
        if source.order == Order::Key && !layout.can(Ability::OrderByKey) {
            self.refuse(path.key("order"), &cannot(Ability::OrderByKey));
        }
        if source.delivered == Delivered::Keep && !layout.can(Ability::Delivered) {
            self.refuse(path.key("delivered"), &cannot(Ability::Delivered));
        }
        if source.tenant.is_some() && !layout.can(Ability::Tenants) {
            self.refuse(path.key("tenant"), &cannot(Ability::Tenants));
        }
        if let (Some(namespaces), Text::Fixed { fixed }) = (&source.namespaces, &layout.namespace)
            && !namespaces.contains(fixed)
        {
            let said =
                format!("every message of the layout {name:?} is of the namespace {fixed:?}; name that, or remove it");
            self.refuse(path.key("namespaces"), &said);
        }
        if source.changelog.enabled {
            let said =
                "a changelog is beside Postrider's own table only; give it a source with the layout \"postrider\"";
            self.refuse(path.key("changelog").key("enabled"), said);
        }
    }
}
