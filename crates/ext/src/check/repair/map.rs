//! Rewritten maps of files: in fresh blocks, to which the inode then points.

use super::Work;
use super::inode::InodeMut;
use super::journal::JournalRepair;
use super::superblock::{self, byte_of};
use crate::check::salvage::salvage;
use crate::check::seen::CheckedInode;
use crate::check::shared::{self, Owned};
use crate::encode::mapping::{Piece, block_map, blocks_of_map, extent_tree, push};
use crate::encode::rewrite::seal_extent_block;
use crate::ondisk::{flags, ro_compat, special};
use crate::reserved::OwnFile;
use crate::superblock::Super;
use seekless_fs::field::{index, wide};
use seekless_fs::plan::Placed;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::collections::HashSet;

impl Work<'_> {
    /// Whether a block was claimed twice.
    pub(super) fn is_claimed_twice(&self, block: BlockNo) -> bool {
        let mut clusters = self.checker.sb().clusters_of(Extent::new(block, 1));
        clusters.any(|at| self.checker.twice.get(index(at)) || self.checker.fixed.get(index(at)))
    }

    /// Takes a block of the volume, with bigalloc the first of a cluster; `None` when none is free.
    pub(super) fn take_block(&mut self) -> Option<BlockNo> {
        self.space.cluster(self.checker)
    }

    /// Takes the first `count` blocks of a file; none if fewer are free. With bigalloc, blocks of a
    /// file lie in a cluster as they lie in the file.
    pub(super) fn take_blocks(&mut self, count: u64) -> Option<Vec<BlockNo>> {
        let ratio = u64::from(self.checker.sb().cluster_ratio);
        let mut blocks: Vec<BlockNo> = Vec::new();
        for lbn in 0..count {
            let next = match blocks.last() {
                Some(&last) if !lbn.is_multiple_of(ratio) => Some(last + 1),
                _ => self.take_block(),
            };
            match next {
                Some(block) => blocks.push(block),
                None => {
                    self.give_blocks(&blocks);
                    return None;
                }
            }
        }
        Some(blocks)
    }

    /// Gives blocks with all of their clusters back: nothing leads to them.
    pub(super) fn give_blocks(&mut self, blocks: &[BlockNo]) {
        let sb = self.checker.sb();
        let ratio = u64::from(sb.cluster_ratio);
        for &block in blocks {
            let first = BlockNo::new(block.get() / ratio * ratio);
            self.space.give(sb, Extent::new(first, ratio));
        }
    }

    /// Rewrites the map of a file from the readable pieces. Blocks that are claimed twice are
    /// copied.
    pub(super) fn map(&mut self, ino: Ino) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let old = volume.inodes().read(ino)?;
        let mut found = salvage(volume, &old)?;
        if old.kind() == Some(FileKind::Symlink) {
            found.cut(1);
        }
        if volume.sb.own_file(ino) == Some(OwnFile::Orphans) {
            found.cut(old.len.div_ceil(u64::from(volume.sb.block_size)));
        }
        // Bad blocks are left as they are; the primary superblock would be useless as one.
        let is_bad_list = ino.get() == special::BAD_BLOCKS;
        let primary = volume.descriptors().copies(GroupNo::ZERO);
        // A directory has neither holes nor blocks that were never written.
        let is_dir = old.kind() == Some(FileKind::Directory);
        let mut next = Lbn::ZERO;
        for piece in &mut found.pieces {
            piece.unwritten &= !is_dir;
            let run = &mut piece.placed;
            run.lbn = if is_dir { next } else { run.lbn };
            next = run.lbn + run.extent.len;
        }
        let moved = self.clusters_to_move(&found.pieces);
        let ratio = u64::from(volume.sb.cluster_ratio);
        let mut copy = None;
        let mut pieces: Vec<Piece> = Vec::new();
        for piece in found.pieces {
            let Placed { lbn, extent } = piece.placed;
            for n in 0..extent.len {
                let (lbn, block) = (lbn + n, extent.start + n);
                if is_bad_list && primary.iter().any(|run| run.overlaps(Extent::new(block, 1))) {
                    continue;
                }
                let cluster = lbn.get() / ratio;
                let mut at = block;
                if !is_bad_list && moved.contains(&cluster) {
                    let start = match copy {
                        Some((of, start)) if of == cluster => Some(start),
                        _ => self.take_block(),
                    };
                    let Some(start) = start else { return self.sacrifice(ino, block) };
                    copy = Some((cluster, start));
                    at = start + lbn.get() % ratio;
                    self.copy_block(block, at)?;
                }
                let placed = Placed { lbn, extent: Extent::new(at, 1) };
                push(&mut pieces, Piece { placed, unwritten: piece.unwritten });
            }
        }
        let mut inode = InodeMut::read(volume, self.disk, ino)?;
        if !self.put_map(&mut inode, &pieces)? {
            return Ok(false);
        }
        inode.write(volume, self.disk)?;
        Ok(true)
    }

    /// Without room for a copy of a block that several files have, one of them is cleared: the
    /// first, as in e2fsck, or else this one; never a directory. One is cleared in a round: that
    /// makes room for the others.
    fn sacrifice(&mut self, ino: Ino, block: BlockNo) -> Result<bool, FsError> {
        if std::mem::replace(&mut self.has_sacrificed, true) {
            return Ok(true);
        }
        let checker = self.checker;
        // A journal can be made again, a file cannot.
        if let Some(journal) = self.journal_with(block)? {
            JournalRepair::of(self).discard(journal)?;
            return Ok(true);
        }
        let is_file = |seen: &CheckedInode| seen.kind != FileKind::Directory && !seen.is_special;
        let earlier = checker.seen.iter().take_while(|(other, _)| *other < ino);
        for (other, _) in earlier.filter(|(_, seen)| is_file(seen)) {
            let inode = checker.volume.inodes().read(other)?;
            if !checker.volume.maps().has_blocks(&inode) {
                continue;
            }
            if salvage(&checker.volume, &inode)?.has_part_of(&checker.volume.sb, block) {
                self.change(other, InodeMut::clear)?;
                return Ok(true);
            }
        }
        if !checker.seen.get(ino).is_some_and(is_file) {
            return Ok(false);
        }
        self.change(ino, InodeMut::clear)?;
        Ok(true)
    }

    /// The journal's inode, if a block belongs to it.
    fn journal_with(&self, block: BlockNo) -> Result<Option<Ino>, FsError> {
        let volume = &self.checker.volume;
        let ino = Ino::new(volume.sb.raw.s_journal_inum.get());
        if volume.sb.own_file(ino) != Some(OwnFile::Journal) {
            return Ok(None);
        }
        let inode = volume.inodes().read(ino)?;
        Ok(salvage(volume, &inode)?.has_part_of(&volume.sb, block).then_some(ino))
    }

    /// The logical clusters of a file whose blocks are copied: something else has the physical one,
    /// or blocks lie in it otherwise than in the file.
    fn clusters_to_move(&self, pieces: &[Piece]) -> HashSet<u64> {
        let ratio = u64::from(self.checker.sb().cluster_ratio);
        let mut moved = HashSet::new();
        let mut last = None;
        for Placed { lbn, extent } in pieces.iter().map(|piece| piece.placed) {
            for n in 0..extent.len {
                let (lbn, block) = ((lbn + n).get(), (extent.start + n).get());
                let (logical, physical) = (lbn / ratio, block / ratio);
                let is_beside = last.is_none_or(|(of, at)| (of == logical) == (at == physical));
                let is_in_line = lbn % ratio == block % ratio;
                if self.checker.twice.get(index(physical)) || !is_in_line || !is_beside {
                    moved.insert(logical);
                }
                last = Some((logical, physical));
            }
        }
        moved
    }

    /// Gives each file its own copy of the blocks that it shares, then clears the feature. There is
    /// room for all, as the check has counted: a file keeps its old map until all of its copies are on
    /// the disk.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn unshare(&mut self) -> Result<bool, FsError> {
        let checker = self.checker;
        let mut owned = Owned::new(checker)?;
        for ino in shared::inodes(checker) {
            let inode = checker.volume.inodes().read(ino)?;
            let no_space = || FsError::NoSpace("no cluster for a copy".into());
            let take = &mut || self.space.cluster(checker).ok_or_else(no_space);
            let Some(apart) = owned.part(checker, &inode, take)? else { continue };
            for (from, to) in apart.copies {
                self.copy_block(from, to)?;
            }
            let mut inode = InodeMut::read(&checker.volume, self.disk, ino)?;
            if !self.put_map(&mut inode, &apart.pieces)? {
                return Ok(false);
            }
            inode.write(&checker.volume, self.disk)?;
        }
        self.disk.flush()?;
        superblock::clear_feature(self.disk, ro_compat::SHARED_BLOCKS)?;
        Ok(true)
    }

    fn copy_block(&mut self, from: BlockNo, to: BlockNo) -> Result<(), FsError> {
        debug_assert_ne!(from, to, "a block in use is not free");
        let sb = self.checker.sb();
        let bytes = self.disk.read(byte_of(sb, from), index(sb.block_size))?;
        self.disk.put(byte_of(sb, to), &bytes)
    }

    /// Gives an inode in memory a map of these pieces, and writes its blocks to the disk; whether
    /// there was room.
    pub(super) fn put_map(
        &mut self,
        inode: &mut InodeMut,
        pieces: &[Piece],
    ) -> Result<bool, FsError> {
        let sb = self.checker.sb();
        let size = sb.block_size;
        let has_extents = inode.has_flag(flags::EXTENTS);
        let needed = blocks_of_map(pieces, has_extents, size);
        let mut blocks = Vec::new();
        for _ in 0..needed {
            match self.take_block() {
                Some(block) => blocks.push(block),
                None => return Ok(false),
            }
        }
        debug_assert!(
            blocks.iter().all(|block| block.get().is_multiple_of(u64::from(sb.cluster_ratio))),
            "a cluster has one block of a map"
        );
        let mut given = blocks.into_iter();
        let made = if has_extents {
            let seed = sb.has_metadata_csum().then(|| inode.seed(&self.checker.volume));
            extent_tree(pieces, size, seed, &mut given)
        } else {
            block_map(pieces, size, &mut given)
        };
        let map = match made {
            // Past the reach of a map of this kind.
            Err(FsError::NoSpace(_)) => return Ok(false),
            made => made?,
        };
        debug_assert!(given.next().is_none(), "the map takes the blocks that were counted");
        for (at, bytes) in &map.blocks {
            self.disk.put(byte_of(sb, *at), bytes)?;
        }
        self.disk.flush()?;
        inode.set_map(map.i_block);
        let has_attributes =
            inode.core().i_file_acl_lo.get() != 0 || inode.core().i_file_acl_high.get() != 0;
        let runs = pieces.iter().map(|piece| piece.placed.extent);
        let clusters = count_clusters(sb, runs) + needed + u64::from(has_attributes);
        inode.set_sectors(clusters * sectors_per_cluster(sb));
        Ok(true)
    }

    /// Renews the checksums of the blocks of an extent tree.
    pub(super) fn seal_map(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(ino)?;
        let seed = volume.inodes().seed(&inode);
        for node in volume.maps().block_map(&inode)?.index {
            let at = byte_of(&volume.sb, node.block);
            let mut bytes = self.disk.read(at, volume.block_len())?;
            let place = Location::of("extent block").in_inode(ino).in_block(node.block);
            seal_extent_block(&mut bytes, seed, place)?;
            self.disk.put(at, &bytes)?;
        }
        Ok(())
    }
}

/// Sectors in a cluster, in which `i_blocks` counts.
pub(super) fn sectors_per_cluster(sb: &Super) -> u64 {
    u64::from(sb.block_size >> 9) * u64::from(sb.cluster_ratio)
}

/// The clusters of runs in the order of a file; neighbours may share one.
pub(super) fn count_clusters(sb: &Super, runs: impl Iterator<Item = Extent>) -> u64 {
    let (mut count, mut last) = (0u64, None);
    for cluster in runs.flat_map(|run| sb.clusters_of(run)) {
        count += u64::from(sb.cluster_ratio == 1 || last != Some(cluster));
        last = Some(cluster);
    }
    count
}

/// Pieces of a file that begins with its first block and has no holes.
pub(super) fn contiguous(blocks: &[BlockNo]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (n, &block) in blocks.iter().enumerate() {
        let lbn = seekless_units::Lbn::new(wide(n));
        let placed = Placed { lbn, extent: Extent::new(block, 1) };
        push(&mut pieces, Piece { placed, unwritten: false });
    }
    pieces
}
