//! The new image: what stays is copied, what moves goes to its new place, and
//! bitmaps, descriptors and superblocks follow.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "values are of our own plan and of structures that the survey checked"
)]

use super::quota::{self, Charges, Patch};
use super::room::split;
use super::survey::{Survey, join};
use super::uses_extents;
use crate::checksum::crc32c;
use crate::dir::Directory;
use crate::encode::mapping::{Map, Piece, block_map, extent_tree};
use crate::encode::rewrite::{self, InodeChange};
use crate::encode::sums::seal_superblock;
use crate::group::Counts;
use crate::inline;
use crate::inode::Inode;
use crate::journal::empty;
use crate::ondisk::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, MMP_MAGIC, MMP_SEQ_CLEAN, MmpBlock, STATE_VALID, flags,
    incompat, ro_compat,
};
use rayon::prelude::*;
use seekless_device::BlockDevice;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::plan::{ObjectId, Placed, Plan};
use seekless_fs::{FileKind, FsError, Inspect, Location, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba, Lbn};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the block of multiple mount protection that its checksum covers.
const MMP_SUMMED: usize = std::mem::offset_of!(MmpBlock, mmp_checksum);

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// A survey and a plan for it.
pub(crate) struct Writer<'a> {
    pub(crate) survey: &'a Survey<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// What a group's new summary is made from.
#[derive(Default)]
struct GroupCount {
    inodes: Vec<u32>,
    directories: u32,
    /// Changes of what users, groups and projects are charged for.
    charges: [Charges; 3],
}

impl Writer<'_> {
    pub(crate) fn run(&self) -> Result<(), FsError> {
        self.copy_fixed()?;
        self.write_data()?;
        let counts = self.write_inodes()?;
        self.write_quota(&counts)?;
        self.write_summaries(&counts)
    }

    fn block_size(&self) -> u64 {
        u64::from(self.survey.volume.sb.block_size)
    }

    pub(super) fn seed(&self) -> Option<u32> {
        let sb = &self.survey.volume.sb;
        sb.has_metadata_csum().then_some(sb.checksum_seed)
    }

    pub(super) fn put(&self, block: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        let at = ByteLen::new(block.get() * self.block_size());
        self.device.write(Lba::containing(at), bytes)?;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }

    /// The new number of an inode: moved ones by plan, the others keep theirs.
    pub(super) fn renumber(&self, old: Ino) -> Option<Ino> {
        match self.survey.object(old) {
            Some(object) => Some(self.plan.inodes[object.index()]),
            None => self.survey.pinned.binary_search(&old).ok().map(|_| old),
        }
    }

    // ---- what stays ------------------------------------------------------

    /// Blocks in use that are neither room for what moves nor written anew.
    fn fixed(&self) -> Result<Vec<Extent>, FsError> {
        let sb = &self.survey.volume.sb;
        let unit = self.survey.cluster;
        let mut not_copied: Vec<Extent> = self
            .survey
            .room
            .iter()
            .map(|run| Extent::new(BlockNo::new(run.start.get() * unit), run.len * unit))
            .collect();
        for group in 0..sb.groups {
            let desc = self.survey.volume.group_desc(GroupNo::new(group))?;
            not_copied.push(Extent::new(desc.inode_table(), sb.itable_blocks()));
            not_copied.push(Extent::new(desc.block_bitmap(), 1));
            not_copied.push(Extent::new(desc.inode_bitmap(), 1));
        }
        not_copied.extend(self.journal()?.iter().copied());
        not_copied.sort_unstable();
        let mut fixed = Vec::new();
        let mut at = BlockNo::ZERO;
        for run in not_copied.into_iter().chain([Extent::new(BlockNo::new(sb.blocks), 0)]) {
            if run.start > at {
                fixed.push(Extent::new(at, run.start.saturating_since(at)));
            }
            at = at.max(run.end());
        }
        Ok(fixed)
    }

    /// Where the journal lies, its first block first.
    fn journal(&self) -> Result<Vec<Extent>, FsError> {
        let ino = Ino::new(self.survey.volume.sb.raw.s_journal_inum.get());
        if ino == Ino::ZERO {
            return Ok(Vec::new());
        }
        let inode = self.survey.volume.inode(ino)?;
        let map = self.survey.volume.block_map(&inode)?;
        Ok(map.runs.iter().map(|run| run.extent).collect())
    }

    fn copy_fixed(&self) -> Result<(), FsError> {
        let most = (COPY_BYTES / self.block_size()).max(1);
        for run in self.fixed()? {
            let mut at = 0;
            while at < run.len {
                let blocks = (run.len - at).min(most);
                let mut buf = vec![0; (blocks * self.block_size()) as usize];
                let from = run.start.saturating_add(at);
                self.survey.volume.read_bytes(from, 0, &mut buf)?;
                self.put(from, &buf)?;
                at += blocks;
            }
        }
        self.write_mmp()?;
        self.write_orphan_file()?;
        self.write_journal()
    }

    /// The block of multiple mount protection: nobody has the new image in use.
    fn write_mmp(&self) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        if !sb.has_incompat(incompat::MMP) {
            return Ok(());
        }
        let at = BlockNo::new(sb.raw.s_mmp_block.get());
        let mut block = vec![0; self.block_size() as usize];
        self.survey.volume.read_bytes(at, 0, &mut block)?;
        let (head, _) = block.split_at_mut(size_of::<MmpBlock>());
        let Ok(mmp) = MmpBlock::mut_from_bytes(head) else { return Ok(()) };
        if mmp.mmp_magic.get() != MMP_MAGIC {
            return Ok(());
        }
        mmp.mmp_seq = MMP_SEQ_CLEAN.into();
        if let Some(seed) = self.seed() {
            mmp.mmp_checksum = crc32c(seed, &mmp.as_bytes()[..MMP_SUMMED]).into();
        }
        self.put(at, &block)
    }

    /// An empty journal in the old one's place: what it held is in the files
    /// already.
    fn write_journal(&self) -> Result<(), FsError> {
        let Some(first) = self.journal()?.first().map(|run| run.start) else { return Ok(()) };
        let mut block = vec![0; self.block_size() as usize];
        self.survey.volume.read_bytes(first, 0, &mut block)?;
        empty(&mut block);
        self.put(first, &block)
    }

    // ---- what moves ------------------------------------------------------

    fn write_data(&self) -> Result<(), FsError> {
        let mut pieces = Vec::new();
        for at in 0..self.survey.moved.len() {
            let object = ObjectId::new(at as u32);
            let new = self.survey.pieces(object, self.plan.data(object));
            let new = split(&new, &self.survey.shared);
            // What several files have lies where it lay, and is copied as it is.
            let written = new.iter().filter(|piece| !piece.unwritten && !self.survey.stays(piece));
            pieces.extend(written.map(|piece| forward::Piece {
                object,
                placed: Placed { lbn: piece.lbn, extent: piece.extent },
            }));
        }
        Forward {
            block_size: self.survey.volume.sb.block_size,
            device: self.device,
            progress: self.progress,
            contents: self,
        }
        .run(pieces)
    }

    fn fill_directory(&self, ino: Ino, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let volume = self.survey.volume;
        let inode = volume.inode(ino)?;
        let dir = Directory::new(volume, &inode);
        let place = dir.place();
        let inodes = volume.sb.raw.s_inodes_count.get();
        let hashed = volume.is_hashed(&inode);
        let new = self.renumber(ino).unwrap_or(ino);
        for (at, block) in (lbn..).zip(out.chunks_mut(self.block_size() as usize)) {
            block.copy_from_slice(&dir.block(Lbn::new(at))?);
            rewrite::entries(block, inodes, &|old| self.renumber(old), place)?;
            if let Some(seed) = self.seed() {
                let seed = rewrite::inode_seed(seed, new, inode.core.i_generation.get());
                rewrite::seal_directory_block(block, Lbn::new(at), hashed, seed, place)?;
            }
        }
        Ok(())
    }

    fn fill_file(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let bs = self.block_size();
        let (mut at, end) = (lbn, lbn + out.len() as u64 / bs);
        let runs = &self.survey.moved(object).runs;
        let first = runs.partition_point(|run| run.lbn.get() + run.extent.len <= lbn);
        for run in &runs[first..] {
            if at >= end {
                break;
            }
            let skip = at - run.lbn.get();
            let blocks = (run.extent.len - skip).min(end - at);
            let from = ((at - lbn) * bs) as usize;
            let part = &mut out[from..from + (blocks * bs) as usize];
            self.survey.volume.read_bytes(run.extent.start.saturating_add(skip), 0, part)?;
            at += blocks;
        }
        Ok(())
    }

    // ---- inodes ----------------------------------------------------------

    fn write_inodes(&self) -> Result<Vec<GroupCount>, FsError> {
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
                None => slot.copy_from_slice(&self.survey.volume.inode_bytes(Ino::new(ino))?),
            }
            count.inodes.push(ino - first);
        }
        let table_at = self.survey.volume.group_desc(group)?.inode_table();
        self.put(table_at, &table)?;
        Ok(count)
    }

    /// Adds bytes to what an object's owners are charged for.
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

    /// Writes an object's inode; returns how many bytes more than before it
    /// occupies.
    fn rewrite_inode(&self, object: ObjectId, out: &mut [u8]) -> Result<i64, FsError> {
        let volume = self.survey.volume;
        let moved = self.survey.moved(object);
        let inode = volume.inode(moved.ino)?;
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
        out.copy_from_slice(inode.raw());
        let inodes = volume.sb.raw.s_inodes_count.get();
        rewrite::inode(out, to, &change, inodes, self.seed(), &|old| self.renumber(old))?;
        Ok(charge)
    }

    fn map(
        &self,
        inode: &Inode,
        pieces: &[Mapping],
        seed: Option<u32>,
        blocks: &mut dyn Iterator<Item = BlockNo>,
    ) -> Result<Map, FsError> {
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
    fn write_quota(&self, counts: &[GroupCount]) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        if !sb.has_ro_compat(ro_compat::QUOTA) {
            return Ok(());
        }
        for (kind, ino) in quota::files(sb) {
            let mut charges = Charges::new();
            for (&id, &bytes) in counts.iter().flat_map(|count| &count.charges[kind]) {
                *charges.entry(id).or_default() += bytes;
            }
            let inode = self.survey.volume.inode(ino)?;
            for Patch { offset, value } in quota::patches(self.survey.volume, ino, &charges)? {
                self.patch_fixed_file(&inode, offset, value)?;
            }
        }
        Ok(())
    }

    /// Replaces eight bytes of a file that stays where it is.
    fn patch_fixed_file(&self, inode: &Inode, offset: u64, value: u64) -> Result<(), FsError> {
        let bs = self.block_size();
        let Some(run) = self.survey.volume.map_block(inode, Lbn::new(offset / bs))? else {
            return Ok(());
        };
        let at = Lba::containing(ByteLen::new(run.extent.start.get() * bs));
        let mut block = vec![0; bs as usize];
        self.device.read(at, &mut block)?;
        let inside = (offset % bs) as usize;
        block[inside..inside + 8].copy_from_slice(&value.to_le_bytes());
        self.put(run.extent.start, &block)
    }

    // ---- summaries -------------------------------------------------------

    /// Clusters that are free on the new image.
    fn free_clusters(&self) -> Vec<Extent> {
        let mut used: Vec<Extent> = self.plan.data.iter().map(|placed| placed.extent).collect();
        used.extend(self.plan.overhead.iter().copied());
        used.sort_unstable();
        join(&mut used);
        let mut free = Vec::new();
        let mut used = used.into_iter().peekable();
        for room in &self.survey.room {
            let mut at = room.start;
            while let Some(run) = used.next_if(|run| run.start < room.end()) {
                if run.start > at {
                    free.push(Extent::new(at, run.start.saturating_since(at)));
                }
                at = run.end();
            }
            if at < room.end() {
                free.push(Extent::new(at, room.end().saturating_since(at)));
            }
        }
        free
    }

    fn write_summaries(&self, counts: &[GroupCount]) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        let free = self.free_clusters();
        let mut descriptors = Vec::new();
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for (group, count) in (0u32..).zip(counts) {
            let (desc, group_free) = self.write_group(GroupNo::new(group), count, &free)?;
            free_blocks += group_free * self.survey.cluster;
            free_inodes += sb.inodes_per_group - count.inodes.len() as u32;
            descriptors.extend_from_slice(&desc);
        }
        self.write_superblocks(&descriptors, free_blocks, free_inodes)
    }

    /// Writes a group's bitmaps; returns its descriptor and free clusters.
    fn write_group(
        &self,
        group: GroupNo,
        count: &GroupCount,
        free: &[Extent],
    ) -> Result<(Vec<u8>, u64), FsError> {
        let sb = &self.survey.volume.sb;
        let old = self.survey.volume.group_desc(group)?;
        let lazy = sb.has_metadata_csum() || sb.has_ro_compat(ro_compat::GDT_CSUM);
        let bits = u64::from(sb.clusters_per_group());
        let first = sb.group_blocks(group).start.get() / self.survey.cluster;
        let clusters = sb.group_blocks(group).len.div_ceil(self.survey.cluster);
        let mut bitmap = vec![0xFF; self.block_size() as usize];
        let mut free_here = 0;
        let from = free.partition_point(|run| run.end().get() <= first);
        for run in &free[from..] {
            let (low, high) = (
                run.start.get().max(first) - first,
                (run.end().get().min(first + clusters)).saturating_sub(first),
            );
            if low >= high {
                break;
            }
            for bit in low..high {
                bitmap[(bit / 8) as usize] &= !(1 << (bit % 8));
            }
            free_here += high - low;
        }
        let mut flags = old.raw().bg_flags.get();
        if free_here != u64::from(old.free_clusters()) {
            flags &= !BG_BLOCK_UNINIT;
        }
        let mut block_sum = 0;
        if !lazy || flags & BG_BLOCK_UNINIT == 0 {
            self.put(old.block_bitmap(), &bitmap)?;
            block_sum = self.bitmap_sum(&bitmap, bits);
        }
        let mut inode_sum = 0;
        if count.inodes.is_empty() && lazy {
            flags |= BG_INODE_UNINIT;
        } else {
            flags &= !BG_INODE_UNINIT;
            let bitmap = self.inode_bitmap(&count.inodes);
            self.put(old.inode_bitmap(), &bitmap)?;
            inode_sum = self.bitmap_sum(&bitmap, u64::from(sb.inodes_per_group));
        }
        let free_inodes = sb.inodes_per_group - count.inodes.len() as u32;
        let unused = match (lazy, count.inodes.last()) {
            (false, _) => 0,
            (true, None) => sb.inodes_per_group,
            (true, Some(last)) => sb.inodes_per_group - last - 1,
        };
        let counts = Counts {
            flags,
            free_clusters: free_here as u32,
            free_inodes,
            directories: count.directories,
            unused,
            block_sum,
            inode_sum,
        };
        Ok((self.survey.volume.recounted(&old, &counts)?, free_here))
    }

    fn bitmap_sum(&self, bitmap: &[u8], bits: u64) -> u32 {
        match self.seed() {
            Some(seed) => crc32c(seed, &bitmap[..(bits / 8) as usize]),
            None => 0,
        }
    }

    fn inode_bitmap(&self, inodes: &[u32]) -> Vec<u8> {
        let mut bitmap = vec![0xFF; self.block_size() as usize];
        for bit in 0..self.survey.volume.sb.inodes_per_group {
            bitmap[bit as usize / 8] &= !(1 << (bit % 8));
        }
        for &bit in inodes {
            bitmap[bit as usize / 8] |= 1 << (bit % 8);
        }
        bitmap
    }

    /// Superblocks and descriptors with all their copies, the primary
    /// superblock last: it makes the image one.
    fn write_superblocks(
        &self,
        descriptors: &[u8],
        free_blocks: u64,
        free_inodes: u32,
    ) -> Result<(), FsError> {
        let volume = self.survey.volume;
        let sb = &volume.sb;
        let bs = self.block_size() as usize;
        let mut raw = sb.raw.clone();
        raw.s_free_blocks_count_lo = (free_blocks as u32).into();
        if super::is_64bit(self.survey.image) {
            raw.s_free_blocks_count_hi = ((free_blocks >> 32) as u32).into();
        }
        raw.s_free_inodes_count = free_inodes.into();
        raw.s_feature_incompat = (raw.s_feature_incompat.get() & !incompat::RECOVER).into();
        raw.s_state = (raw.s_state.get() | STATE_VALID).into();
        let first_orphan = self.first_orphan()?;
        // Copies are made for file systems at rest.
        raw.s_last_orphan = 0.into();
        let ro_compat = raw.s_feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT;
        raw.s_feature_ro_compat = ro_compat.into();
        let per_block = sb.descs_per_block() as usize * usize::from(sb.desc_size);
        let mut tables = descriptors.chunks(per_block).map(|part| {
            let mut block = part.to_vec();
            block.resize(bs, 0);
            block
        });
        let tables: Vec<Vec<u8>> = tables.by_ref().collect();
        for group in (0..sb.groups).rev() {
            let group = GroupNo::new(group);
            for (nr, block) in volume.descriptor_copy_blocks(group) {
                if let Some(table) = tables.get(nr as usize) {
                    self.put(block, table)?;
                }
            }
            if !sb.group_has_super(group) {
                continue;
            }
            if group == GroupNo::ZERO {
                raw.s_last_orphan = first_orphan.get().into();
                raw.s_feature_ro_compat = sb.raw.s_feature_ro_compat;
            }
            seal_superblock(&mut raw, group.get());
            let (block, inset) = if group == GroupNo::ZERO {
                (sb.superblock_block(), if bs > 1024 { 1024 } else { 0 })
            } else {
                (sb.group_blocks(group).start, 0)
            };
            let mut bytes = vec![0; bs];
            volume.read_bytes(block, 0, &mut bytes)?;
            bytes[inset..inset + 1024].copy_from_slice(raw.as_bytes());
            self.put(block, &bytes)?;
        }
        Ok(())
    }
}

/// A run as an encoder of maps takes it.
pub(super) fn piece_of(run: &Mapping) -> Piece {
    let placed = Placed { lbn: run.lbn, extent: run.extent };
    Piece { placed, unwritten: run.unwritten }
}

impl Contents for Writer<'_> {
    fn is_whole(&self, _object: ObjectId) -> bool {
        false
    }

    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let moved = self.survey.moved(object);
        if moved.kind == FileKind::Directory {
            self.fill_directory(moved.ino, lbn, out)
        } else {
            self.fill_file(object, lbn, out)
        }
    }
}
