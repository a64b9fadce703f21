//! Inode tables: inodes at their new numbers, with their new maps.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own plan and of structures that the survey checked"
)]

use super::{GroupCount, RelayoutWriter, piece_of};
use crate::encode::mapping::{EncodedMap, Piece, block_map, extent_tree};
use crate::encode::rewrite::{self, InodeChange};
use crate::inline;
use crate::inode::Inode;
use crate::ondisk::{flags, ro_compat};
use crate::quota::files;
use crate::relayout::quota::{self, Charges, QuotaPatch};
use crate::relayout::uses_extents;
use rayon::prelude::*;
use seekless_fs::plan::ObjectId;
use seekless_fs::{FileKind, FsError, Inspect, Location, Mapping};
use seekless_units::{BlockNo, ByteLen, GroupNo, Ino, Lba, Lbn};

impl RelayoutWriter<'_> {
    pub(super) fn write_inodes(&self) -> Result<Vec<GroupCount>, FsError> {
        let sb = &self.survey.volume.sb;
        let mut placed: Vec<(u32, Option<ObjectId>)> =
            self.survey.pinned.iter().map(|ino| (ino.get(), None)).collect();
        let objects = (0..self.survey.moved.len()).map(|at| ObjectId::new(at as u32));
        placed.extend(objects.map(|o| (self.plan.inodes[o.index()].get(), Some(o))));
        placed.sort_unstable_by_key(|&(ino, _)| ino);
        (0..sb.groups)
            .into_par_iter()
            .map(|group| {
                let first = group * sb.inodes_per_group + 1;
                let from = placed.partition_point(|&(ino, _)| ino < first);
                let to =
                    placed.partition_point(|&(ino, _)| ino - 1 < first - 1 + sb.inodes_per_group);
                self.write_table(GroupNo::new(group), first, &placed[from..to])
            })
            .collect()
    }

    fn write_table(
        &self,
        group: GroupNo,
        first: u32,
        placed: &[(u32, Option<ObjectId>)],
    ) -> Result<GroupCount, FsError> {
        let mut count = GroupCount::default();
        let Some(&(last, _)) = placed.last() else { return Ok(count) };
        debug_assert!(
            placed.is_sorted_by(|one, next| one.0 < next.0),
            "each inode of a group is placed once"
        );
        debug_assert!(
            last - first < self.survey.volume.sb.inodes_per_group,
            "inode {last} is in group {group}"
        );
        let size = usize::from(self.survey.volume.sb.inode_size);
        let used = (last - first + 1) as usize * size;
        let mut table = vec![0; used.next_multiple_of(self.block_size() as usize)];
        for &(ino, object) in placed {
            let at = (ino - first) as usize * size;
            let slot = &mut table[at..at + size];
            match object {
                Some(object) => {
                    let charge = self.rewrite_inode(object, slot)?;
                    if charge != 0 {
                        self.charge(object, charge, &mut count.charges)?;
                    }
                    count.directories +=
                        u32::from(self.survey.moved(object).kind == FileKind::Directory);
                }
                // A reserved inode that was never written has no checksum yet.
                None => slot.copy_from_slice(&self.survey.volume.inodes().bytes(Ino::new(ino))?),
            }
            count.inodes.push(ino - first);
        }
        let table_at = self.survey.volume.descriptors().read_checked(group)?.inode_table();
        self.put(table_at, &table)?;
        Ok(count)
    }

    /// Adds bytes to the usage of an object's owners.
    fn charge(
        &self,
        object: ObjectId,
        bytes: i64,
        charges: &mut [Charges; 3],
    ) -> Result<(), FsError> {
        let attr = self.survey.image.attr(self.survey.moved(object).ino)?;
        for (charges, owner) in charges.iter_mut().zip([attr.uid, attr.gid, attr.project]) {
            *charges.entry(owner).or_default() += bytes;
        }
        Ok(())
    }

    /// Writes an object's inode; returns the change of its owners' usage in bytes.
    fn rewrite_inode(&self, object: ObjectId, out: &mut [u8]) -> Result<i64, FsError> {
        let volume = self.survey.volume;
        let moved = self.survey.moved(object);
        let inode = volume.inodes().read(moved.ino)?;
        let to = self.plan.inodes[object.index()];
        let generation = inode.core.i_generation.get();
        let owns = self.survey.owns_xattr_block(object);
        let mut change = InodeChange {
            i_block: None,
            file_acl: None,
            blocks: 0,
            inline_entries: Vec::new(),
            inline_directory: false,
            owner: self.survey.owners.get(&moved.ino).copied(),
            next_orphan: self.survey.orphans.next(moved.ino),
        };
        if let Some(old) = moved.xattr_block {
            change.file_acl = self.move_xattr_block(old, owns)?;
        }
        if moved.kind == FileKind::Directory && inode.has_flag(flags::INLINE_DATA) {
            change.inline_directory = true;
            change.inline_entries = inline::entry_ranges(&inode)?;
        }
        let mut charge = 0;
        let mapped = !moved.runs.is_empty() || !moved.map.is_empty();
        if mapped {
            let unit = self.survey.cluster;
            let pieces = self.survey.pieces(object, self.plan.data(object));
            let needed = self.survey.map_blocks(object, &pieces);
            let seed = self.seed().map(|seed| rewrite::inode_seed(seed, to, generation));
            let blocks = self.plan.overhead(object).skip(usize::from(owns));
            let mut blocks = blocks.map(|at| BlockNo::new(at.get() * unit));
            let map = self.map(&inode, &pieces, seed, &mut blocks)?;
            for (block, bytes) in &map.blocks {
                self.put(*block, bytes)?;
            }
            change.i_block = Some(map.i_block);
            let more = (needed as i64 - moved.map.len() as i64) * unit as i64;
            charge = more * self.block_size() as i64;
            // Counted in blocks in huge files, else in sectors.
            let huge = inode.has_flag(flags::HUGE_FILE);
            change.blocks = if huge { more } else { charge / 512 };
        }
        debug_assert_eq!(out.len(), inode.raw().len(), "an inode keeps its size");
        out.copy_from_slice(inode.raw());
        let inodes = volume.sb.raw.s_inodes_count.get();
        rewrite::inode(out, to, &change, inodes, self.seed(), &|old| self.renumber(old))?;
        Ok(if quota::counts_blocks(inode.core.i_flags.get()) { charge } else { 0 })
    }

    fn map(
        &self,
        inode: &Inode,
        pieces: &[Mapping],
        seed: Option<u32>,
        blocks: &mut dyn Iterator<Item = BlockNo>,
    ) -> Result<EncodedMap, FsError> {
        let bs = self.survey.volume.sb.block_size;
        let pieces: Vec<Piece> = pieces.iter().map(piece_of).collect();
        if uses_extents(inode.core.i_flags.get()) {
            extent_tree(&pieces, bs, seed, blocks)
        } else {
            block_map(&pieces, bs, blocks)
        }
    }

    /// The new place of an attribute block; its owner writes it there.
    fn move_xattr_block(&self, old: BlockNo, owns: bool) -> Result<Option<BlockNo>, FsError> {
        let unit = self.survey.cluster;
        let Some(owner) = self.survey.xattr_owner.get(&old) else { return Ok(None) };
        let Some(new) = self.plan.overhead(*owner).next() else { return Ok(None) };
        let new = BlockNo::new(new.get() * unit);
        if owns {
            let place = Location::of("attribute block").in_block(old);
            let mut bytes = self.survey.volume.block(old, place)?.to_vec();
            let seed = self.seed();
            rewrite::xattr_block(&mut bytes, new, seed, &|old| self.renumber(old), place)?;
            self.put(new, &bytes)?;
        }
        Ok(Some(new))
    }

    /// Charges users, groups and projects for maps that grew or shrank.
    pub(super) fn write_quota(&self, counts: &[GroupCount]) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        if !sb.has_ro_compat(ro_compat::QUOTA) {
            return Ok(());
        }
        for (kind, ino) in files(sb) {
            let mut charges = Charges::new();
            for (&id, &bytes) in counts.iter().flat_map(|count| &count.charges[kind]) {
                *charges.entry(id).or_default() += bytes;
            }
            let inode = self.survey.volume.inodes().read(ino)?;
            for QuotaPatch { offset, value } in quota::patches(self.survey.volume, ino, &charges)? {
                self.patch_fixed_file(&inode, offset, value)?;
            }
        }
        Ok(())
    }

    /// Replaces eight bytes of a file that stays where it is.
    fn patch_fixed_file(&self, inode: &Inode, offset: u64, value: u64) -> Result<(), FsError> {
        let bs = self.block_size();
        let Some(run) = self.survey.volume.maps().map_block(inode, Lbn::new(offset / bs))? else {
            return Ok(());
        };
        let at = Lba::containing(ByteLen::new(run.extent.start.get() * bs));
        let mut block = vec![0; bs as usize];
        self.device.read(at, &mut block)?;
        let inside = (offset % bs) as usize;
        block[inside..inside + 8].copy_from_slice(&value.to_le_bytes());
        self.put(run.extent.start, &block)
    }
}
