//! Free space, by the findings of the check. Clusters that the bitmaps mark as used come last.

use crate::check::checker::Checker;
use crate::superblock::Super;
use seekless_fs::bits::Bits;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent, GroupNo};
use std::ops::Range;

/// Clusters that a repair allocates: those found unused. A crash may leave them unmarked in a bitmap.
/// Without bigalloc a cluster is a block.
pub(in crate::check) struct Space {
    used: Bits,
    /// Clusters that the bitmaps on the disk mark as used, once one is asked for. An inode whose
    /// mode or size is yet to be mended has claimed none of its blocks, and they are marked.
    marked: Option<Bits>,
    /// The first cluster that was not looked at, among those that are not marked.
    next: u64,
    /// The same, of all.
    next_marked: u64,
}

impl Space {
    pub(in crate::check) fn new(used: Bits) -> Self {
        Self { used, marked: None, next: 0, next_marked: 0 }
    }

    /// Takes a cluster of the volume: one that is not marked as used, if there is one; `None` when
    /// none is free. Returns its first block.
    pub(in crate::check) fn cluster(&mut self, checker: &Checker) -> Option<BlockNo> {
        let all = clusters_in(checker.sb(), whole(checker.sb()));
        let marked = self.marked.get_or_insert_with(|| marked_clusters(checker));
        let mut at = self.next.max(all.start);
        while at < all.end {
            let cluster = at;
            at += 1;
            if !marked.get(index(cluster)) && self.used.set(index(cluster)) {
                self.next = at;
                return Some(first_block(checker.sb(), cluster));
            }
        }
        self.next = at;
        at = self.next_marked.max(all.start);
        while at < all.end {
            let cluster = at;
            at += 1;
            if self.used.set(index(cluster)) {
                self.next_marked = at;
                return Some(first_block(checker.sb(), cluster));
            }
        }
        self.next_marked = at;
        None
    }

    /// Takes the first cluster of a run that is not marked as used; returns its first block.
    pub(super) fn unmarked_in(&mut self, checker: &Checker, run: Extent) -> Option<BlockNo> {
        let marked = self.marked.get_or_insert_with(|| marked_clusters(checker));
        let mut clusters = clusters_in(checker.sb(), run);
        let found = clusters.find(|&at| !marked.get(index(at)) && self.used.set(index(at)))?;
        Some(first_block(checker.sb(), found))
    }

    /// Takes the first cluster of a run, also one that a bitmap marks as used; returns its first
    /// block.
    pub(super) fn cluster_in(&mut self, sb: &Super, run: Extent) -> Option<BlockNo> {
        let found = clusters_in(sb, run).find(|&at| self.used.set(index(at)))?;
        Some(first_block(sb, found))
    }

    /// Gives the clusters that lie in a run back: nothing leads to them.
    pub(super) fn give(&mut self, sb: &Super, run: Extent) {
        for at in clusters_in(sb, run) {
            self.used.clear(index(at));
            self.next = self.next.min(at);
            self.next_marked = self.next_marked.min(at);
        }
    }
}

/// All blocks of a volume.
fn whole(sb: &Super) -> Extent {
    Extent::new(sb.first_block, sb.blocks - sb.first_block.get())
}

/// The clusters all of whose blocks lie in a run.
fn clusters_in(sb: &Super, run: Extent) -> Range<u64> {
    let ratio = u64::from(sb.cluster_ratio);
    run.start.get().div_ceil(ratio)..run.end().get() / ratio
}

fn first_block(sb: &Super, cluster: u64) -> BlockNo {
    BlockNo::new(cluster * u64::from(sb.cluster_ratio))
}

/// The clusters that readable bitmaps mark as used.
fn marked_clusters(checker: &Checker) -> Bits {
    let volume = &checker.volume;
    let mut marked = Bits::new(index(volume.sb.clusters()));
    for number in (0..volume.sb.groups).map(GroupNo::new) {
        let Ok(group) = volume.descriptors().read(number) else { continue };
        let clusters = volume.sb.clusters_of(volume.sb.group_blocks(number));
        // No bitmap tells which ones are free.
        if checker.lost_block_bitmaps.contains(&number) {
            clusters.for_each(|at| {
                marked.set(index(at));
            });
            continue;
        }
        if group.block_uninit() {
            continue;
        }
        // An unreadable bitmap marks nothing.
        let Ok(bitmap) = volume.bitmaps().blocks(&group) else { continue };
        for (bit, at) in (0u64..).zip(clusters) {
            let byte = bitmap.get(index(bit >> 3)).copied().unwrap_or_default();
            if byte & (1 << (bit & 7)) != 0 {
                marked.set(index(at));
            }
        }
    }
    marked
}
