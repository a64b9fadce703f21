//! The maps of files: the inodes in which they begin, and the space that they take.

use super::allocate::BlockAllocator;
use super::layout::Layout;
use super::node::InodeTables;
use super::sums::Checksums;
use std::sync::Arc;

/// How maps of files are changed.
#[derive(Clone, Copy)]
pub(super) struct MapRules {
    /// Only the order of writes keeps any order: blocks of extent trees are changed in copies,
    /// except for changes within one sector.
    pub(super) shadows: bool,
    /// Allocation is delayed until write-back.
    pub(super) delays: bool,
}

/// The maps of files.
pub(super) struct FileMaps {
    layout: Arc<Layout>,
    tables: InodeTables,
    sums: Checksums,
    space: BlockAllocator,
    rules: MapRules,
}

impl FileMaps {
    /// The maps of a volume, whose blocks are taken from `space`.
    pub(super) fn new(layout: Arc<Layout>, space: BlockAllocator, rules: MapRules) -> Self {
        let tables = InodeTables::new(Arc::clone(&layout));
        let sums = Checksums::new(Arc::clone(&layout));
        Self { layout, tables, sums, space, rules }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn tables(&self) -> &InodeTables {
        &self.tables
    }

    pub(super) fn sums(&self) -> &Checksums {
        &self.sums
    }

    pub(super) fn space(&mut self) -> &mut BlockAllocator {
        &mut self.space
    }

    /// The space, to be looked at.
    pub(super) fn free_space(&self) -> &BlockAllocator {
        &self.space
    }

    pub(super) fn rules(&self) -> MapRules {
        self.rules
    }
}
