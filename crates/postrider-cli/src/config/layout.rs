//! From the layout that a source names to the table it means, and what follows from that for the rest of its settings.

use postrider::layout::{Ability, ClaimBy, PRESETS, preset};
use postrider::{InvalidName, Layout, Names};

use super::model::{Config, Delivered, Source};
use super::problem::KeyPath;
use super::tree::Node;

/// What was written of a source, and is not there by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    pub prefix: bool,
    pub table: bool,
    pub lease: bool,
    pub batch_size: bool,
    pub max_attempts: bool,
    pub delivered: bool,
}

impl Written {
    fn in_tree(tree: &Node, source: &str) -> Self {
        let has = |key| tree.has(&KeyPath::from(["source", source, key]));
        Self {
            prefix: has("prefix"),
            table: has("table"),
            lease: has("lease"),
            batch_size: has("batch_size"),
            max_attempts: has("max_attempts"),
            delivered: has("delivered"),
        }
    }
}

impl Config {
    /// Finds out what the sources' tables look like. Where that fails the check says why.
    pub(super) fn describe(&mut self, tree: &Node) {
        for (name, source) in &mut self.source {
            // What is wrong is refused by the check, with its place.
            let _refused_later = match self.layout.get(&source.layout) {
                Some(own) if !PRESETS.contains(&&*source.layout) => {
                    let own = Layout { name: source.layout.clone().into(), ..own.clone() };
                    source.describe(own, Written::in_tree(tree, name))
                }
                _ => match preset(&source.layout) {
                    Ok(known) => source.describe(known, Written::in_tree(tree, name)),
                    Err(_) => Ok(()),
                },
            };
        }
    }
}

impl Source {
    /// Takes a layout, and the settings that follow from it where nothing else was written.
    pub fn describe(&mut self, layout: Layout, written: Written) -> Result<(), InvalidName> {
        self.written = written;
        if layout.is_ours() {
            self.described = Layout::postrider(match &self.schema {
                Some(schema) => Names::new(schema, &self.prefix, &self.table)?,
                None => Names::unqualified(&self.prefix, &self.table)?,
            });
            return Ok(());
        }
        let is_known = PRESETS.contains(&&*layout.name);
        if !written.prefix {
            self.prefix = match is_known {
                true => layout.names.prefix().to_owned(),
                false => format!("postrider_{}_", layout.name.to_ascii_lowercase().replace('-', "_")),
            };
        }
        if !written.table {
            self.table = if is_known { layout.names.table().to_owned() } else { String::new() };
        }
        let lock_timeout = self.lock_timeout.unwrap_or(layout.lock_timeout);
        self.described = Layout { lock_timeout, ..layout };
        self.follow(written);
        let names = Names::existing(self.schema.as_deref(), &self.prefix, &self.table)?;
        self.described = self.described.clone().named(names);
        Ok(())
    }

    fn follow(&mut self, written: Written) {
        let layout = &self.described;
        if !written.lease && !layout.can(Ability::LeaseLength) {
            self.lease = layout.lock_timeout;
        }
        if !written.batch_size && layout.claim == ClaimBy::RowLock {
            self.batch_size = layout.batch;
        }
        if let (false, Some(number)) = (written.max_attempts, layout.give_up_after) {
            self.max_attempts = number;
        }
        if !written.delivered && !layout.can(Ability::Delivered) {
            self.delivered = Delivered::Delete;
        }
    }
}
