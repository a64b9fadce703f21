//! Files moved within their image, step by step through its own journal.
//!
//! A step copies data to free blocks and flushes them, then commits all changed metadata as one
//! transaction: inodes, blocks of maps, bitmaps, descriptors, the superblock. It is written home
//! and retired before the next step begins. So the image is consistent at any moment, after a
//! recovery by `e2fsck`, the kernel, or the next run. Blocks freed by a step are written only by
//! later steps, when the log has no transaction that could bring older contents back: nothing is
//! revoked.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own plan and of structures that the survey checked"
)]

use super::Relayout;
use super::quota::{self, Charges};
use super::survey::Survey;
use super::write::piece_of;
use crate::encode::mapping::{EncodedMap, block_map, extent_tree};
use crate::encode::rewrite::{self, InodeChange};
use crate::encode::sums::{bitmap_sum, seal_superblock};
use crate::group::Counts;
use crate::journal::{LogWriter, recover_home};
use crate::ondisk::{
    BG_BLOCK_UNINIT, InodeCore, SUPERBLOCK_IN_BLOCK, Superblock, compat, flags, incompat, ro_compat,
};
use crate::quota::files;
use crate::volume::Volume;
use seekless_cache::{Log, LogCopy, LogTransaction, Stage};
use seekless_device::BlockDevice;
use seekless_fs::extents::union;
use seekless_fs::patches::Patches;
use seekless_fs::plan::in_place::{Changed, Copied, Occupied, Step, StepLimits};
use seekless_fs::plan::{ObjectId, Placed, Space};
use seekless_fs::{FileKind, FsError, Inspect, Location, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Lba, Lbn};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Bytes of data that a step copies, at most.
const STEP_BYTES: u64 = 64 << 20;

/// Bytes at the beginning of a file that a trial copies: a score looks there for the segments of a
/// program.
const TRIAL_BYTES: u64 = 4096;

impl Occupied for Survey<'_> {
    fn data(&self, object: ObjectId) -> Vec<Placed> {
        let runs = self.moved(object).runs.iter().filter(|run| !self.stays(run));
        let mut data: Vec<Placed> = Vec::new();
        for run in runs {
            match data.last_mut() {
                Some(last)
                    if last.extent.end() == run.extent.start
                        && last.lbn + last.extent.len == run.lbn =>
                {
                    last.extent.len += run.extent.len;
                }
                _ => data.push(Placed { lbn: run.lbn, extent: run.extent }),
            }
        }
        data
    }

    fn map(&self, object: ObjectId) -> Vec<BlockNo> {
        self.moved(object).map.clone()
    }

    fn map_needed(&self, object: ObjectId, data: &[Placed]) -> u64 {
        self.map_blocks(object, &self.pieces(object, data))
    }
}

impl Relayout<'_> {
    /// The places of files, for a rearrangement in place, and the free space: blocks of attributes
    /// stay, as do inodes.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for volumes without a journal, with clusters of several
    /// blocks, with blocks that files share, or with protection against multiple mounts.
    pub fn in_place(&self) -> Result<(&dyn Occupied, Space), FsError> {
        let sb = &self.survey.volume.sb;
        let lacks = |what: &str| Err(FsError::Unsupported(format!("{what} in place")));
        if self.survey.cluster > 1 {
            return lacks("rearranging a volume with bigalloc");
        }
        if sb.has_ro_compat(ro_compat::SHARED_BLOCKS) {
            return lacks("rearranging a volume with shared_blocks");
        }
        if !sb.has_compat(compat::HAS_JOURNAL) {
            return lacks("rearranging a volume without a journal (tune2fs -j makes one)");
        }
        // Another host could use it meanwhile.
        if sb.has_incompat(incompat::MMP) {
            return lacks("rearranging a volume with mmp (tune2fs -O ^mmp turns it off)");
        }
        let mut free = Vec::new();
        for group in (0..sb.groups).map(GroupNo::new) {
            free.extend(self.survey.volume.bitmaps().group_summary(group)?.free);
        }
        Ok((&self.survey, Space { free: union(free), ..self.survey.space() }))
    }

    /// Opens the image on `device` for changes; it is the examined one, and nobody else changes it.
    /// Nothing is written before the first step. `wall` is the time of day.
    ///
    /// # Errors
    /// As [`LogWriter::open`] and [`Relayout::in_place`].
    pub fn mover(
        &self,
        device: Arc<dyn BlockDevice>,
        wall: Box<dyn Fn() -> Timestamp + Send>,
    ) -> Result<Mover<'_>, FsError> {
        self.in_place()?;
        Ok(Mover {
            survey: &self.survey,
            log: LogWriter::open(device.clone(), wall)?,
            device,
            is_begun: false,
            maps: HashMap::new(),
            groups: HashMap::new(),
            descriptors: HashMap::new(),
            copies_contents: true,
        })
    }
}

/// Writes the transactions of an image's journal home, as a mount does; whether there were any.
///
/// # Errors
/// As opening the image, and errors of the device.
pub fn recover(device: &Arc<dyn BlockDevice>) -> Result<bool, FsError> {
    let volume = Volume::open(device.clone(), false)?;
    let waits = volume.sb.has_incompat(incompat::RECOVER);
    if waits {
        recover_home(&mut Patches::new(device.clone()), None)?;
    }
    Ok(waits)
}

/// A group's current bitmap and counts.
struct GroupState {
    bitmap: Vec<u8>,
    counts: Counts,
}

/// A rearrangement in place under way.
#[allow(missing_debug_implementations)]
pub struct Mover<'a> {
    survey: &'a Survey<'a>,
    device: Arc<dyn BlockDevice>,
    log: LogWriter,
    /// Whether the image is marked as having its journal in use.
    is_begun: bool,
    /// Changed maps of objects.
    maps: HashMap<ObjectId, Vec<BlockNo>>,
    /// Groups in which blocks were taken or freed.
    groups: HashMap<GroupNo, GroupState>,
    /// Changed blocks of descriptors.
    descriptors: HashMap<BlockNo, Vec<u8>>,
    copies_contents: bool,
}

/// Blocks of a transaction by their homes.
type Copies = BTreeMap<BlockNo, Vec<u8>>;

impl Mover<'_> {
    /// Limits of one step, so that it fits in one transaction.
    #[must_use]
    pub fn limits(&self) -> StepLimits {
        let most = usize::try_from(self.log.most()).unwrap_or(usize::MAX);
        StepLimits {
            blocks: (STEP_BYTES / self.block_size()).max(1),
            // For each, a block of an inode table, and mostly none of a map.
            objects: (most / 3).max(1),
            // For each, a bitmap and a block of descriptors.
            groups: (most / 8).max(2),
        }
    }

    /// Leaves contents of files in place, but for their first 4 KiB, for a device that is thrown
    /// away: everything else is as after a real run.
    pub fn without_contents(&mut self) {
        self.copies_contents = false;
    }

    fn block_size(&self) -> u64 {
        u64::from(self.survey.volume.sb.block_size)
    }

    fn seed(&self) -> Option<u32> {
        let sb = &self.survey.volume.sb;
        sb.has_metadata_csum().then_some(sb.checksum_seed)
    }

    fn lba(&self, block: BlockNo) -> Lba {
        Lba::containing(ByteLen::new(block.get() * self.block_size()))
    }

    fn read(&self, block: BlockNo) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; self.block_size() as usize];
        self.device.read(self.lba(block), &mut bytes)?;
        Ok(bytes)
    }

    /// A block in the version of the current transaction.
    fn logged<'c>(
        &self,
        copies: &'c mut Copies,
        block: BlockNo,
    ) -> Result<&'c mut Vec<u8>, FsError> {
        Ok(match copies.entry(block) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => slot.insert(self.read(block)?),
        })
    }

    /// Does a step; when it returns, the step is on the disk.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] for a step that the journal cannot hold; errors of the device. The
    /// image is then as before the step, perhaps after a recovery.
    pub fn apply(&mut self, step: &Step) -> Result<(), FsError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            for stage in self.log.start()? {
                stage.perform(self.device.as_ref(), true)?;
            }
        }
        for copy in &step.copies {
            self.copy(copy)?;
        }
        let mut copies = Copies::new();
        let mut charges: [Charges; 3] = Default::default();
        for changed in &step.changed {
            self.remap(changed, &mut copies, &mut charges)?;
        }
        self.charge(&charges, &mut copies)?;
        self.recount(step, &mut copies)?;
        self.commit(&copies)
    }

    /// Marks the end of the changes.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn finish(mut self) -> Result<(), FsError> {
        if !self.is_begun {
            return Ok(());
        }
        for stage in self.log.close()? {
            stage.perform(self.device.as_ref(), true)?;
        }
        self.device.flush()?;
        Ok(())
    }

    /// Copies the written blocks of a run to its new place.
    fn copy(&self, copy: &Copied) -> Result<(), FsError> {
        let moved = self.survey.moved(copy.object);
        let is_shortened = !self.copies_contents && moved.kind == FileKind::Regular;
        debug_assert!(copy.to.len > 0, "a run has blocks");
        debug_assert!(
            !copy.to.overlaps(Extent::new(copy.from, copy.to.len)),
            "blocks are copied to others"
        );
        let (from, mut to) = (copy.lbn.get(), copy.lbn.get() + copy.to.len);
        if is_shortened {
            to = to.min(TRIAL_BYTES.div_ceil(self.block_size()));
        }
        let most = (COPY_BYTES / self.block_size()).max(1);
        let first = moved.runs.partition_point(|run| run.lbn.get() + run.extent.len <= from);
        for run in moved.runs[first..].iter().take_while(|run| run.lbn.get() < to) {
            if run.unwritten {
                continue;
            }
            let mut at = run.lbn.get().max(from);
            let end = (run.lbn.get() + run.extent.len).min(to);
            while at < end {
                let blocks = most.min(end - at);
                let mut bytes = vec![0; (blocks * self.block_size()) as usize];
                self.device.read(self.lba(copy.from + (at - from)), &mut bytes)?;
                self.device.write(self.lba(copy.to.start + (at - from)), &bytes)?;
                at += blocks;
            }
        }
        Ok(())
    }

    /// Lets an object's inode lead to its new places. New blocks of its map are written at once,
    /// since they are free; those that it keeps go through the journal.
    fn remap(
        &mut self,
        changed: &Changed,
        copies: &mut Copies,
        charges: &mut [Charges; 3],
    ) -> Result<(), FsError> {
        let object = changed.object;
        let moved = self.survey.moved(object);
        let at = self.survey.image.inode_location(moved.ino)?;
        let size = usize::from(self.survey.volume.sb.inode_size);
        let offset = at.offset as usize;
        let block = self.logged(copies, at.block)?;
        let mut raw = block[offset..offset + size].to_vec();
        let place = Location::of("inode").in_inode(moved.ino);
        let (core, _) =
            InodeCore::read_from_prefix(&raw).map_err(|_| seekless_fs::field::truncated(place))?;
        let map = self.map(changed, core.i_generation.get())?;
        debug_assert_eq!(map.blocks.len(), changed.map.len(), "a place for each block of the map");
        let old = self.maps.get(&object).unwrap_or(&moved.map);
        let more = changed.map.len() as i64 - old.len() as i64;
        for (block, bytes) in map.blocks {
            if !old.contains(&block) {
                self.device.write(self.lba(block), &bytes)?;
            } else if self.read(block)? != bytes {
                copies.insert(block, bytes);
            }
        }
        let bytes = more * self.block_size() as i64;
        // Counted in blocks in huge files, else in sectors.
        let huge = core.i_flags.get() & flags::HUGE_FILE != 0;
        let change = InodeChange {
            i_block: Some(map.i_block),
            file_acl: None,
            blocks: if huge { more } else { bytes / 512 },
            inline_entries: Vec::new(),
            inline_directory: false,
            owner: None,
            next_orphan: None,
        };
        let inodes = self.survey.volume.sb.raw.s_inodes_count.get();
        rewrite::inode(&mut raw, moved.ino, &change, inodes, self.seed(), &Some)?;
        self.logged(copies, at.block)?[offset..offset + size].copy_from_slice(&raw);
        if more != 0 && quota::counts_blocks(core.i_flags.get()) {
            let attr = self.survey.image.attr(moved.ino)?;
            for (charges, owner) in charges.iter_mut().zip([attr.uid, attr.gid, attr.project]) {
                *charges.entry(owner).or_default() += bytes;
            }
        }
        self.maps.insert(object, changed.map.clone());
        Ok(())
    }

    /// The new map of an object.
    fn map(&self, changed: &Changed, generation: u32) -> Result<EncodedMap, FsError> {
        let moved = self.survey.moved(changed.object);
        let pieces = self.survey.pieces(changed.object, &changed.data);
        let pieces: Vec<_> = pieces.iter().map(piece_of).collect();
        let bs = self.survey.volume.sb.block_size;
        let blocks = &mut changed.map.iter().copied();
        if moved.extents {
            let seed = self.seed().map(|seed| rewrite::inode_seed(seed, moved.ino, generation));
            extent_tree(&pieces, bs, seed, blocks)
        } else {
            block_map(&pieces, bs, blocks)
        }
    }

    /// Brings the quota files up to date.
    fn charge(&self, charges: &[Charges; 3], copies: &mut Copies) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        if !sb.has_ro_compat(ro_compat::QUOTA) || charges.iter().all(Charges::is_empty) {
            return Ok(());
        }
        // In the state after the previous steps.
        let volume = Volume::open(self.device.clone(), true)?;
        for (kind, ino) in files(sb) {
            let charges = &charges[kind];
            let inode = volume.inodes().read(ino)?;
            for patch in quota::patches(&volume, ino, charges)? {
                let lbn = Lbn::new(patch.offset / self.block_size());
                let Some(run) = volume.maps().map_block(&inode, lbn)? else { continue };
                let inside = (patch.offset % self.block_size()) as usize;
                let block = self.logged(copies, run.extent.start)?;
                block[inside..inside + 8].copy_from_slice(&patch.value.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Updates bitmaps, descriptors and the superblock.
    fn recount(&mut self, step: &Step, copies: &mut Copies) -> Result<(), FsError> {
        let mut touched: BTreeMap<GroupNo, ()> = BTreeMap::new();
        let mut free: i64 = 0;
        let taken = step.taken.iter().map(|run| (*run, true));
        for (run, is_taken) in taken.chain(step.freed.iter().map(|run| (*run, false))) {
            free += if is_taken { -(run.len as i64) } else { run.len as i64 };
            for (group, first, len) in self.in_groups(run) {
                touched.insert(group, ());
                self.mark(group, first, len, is_taken)?;
            }
        }
        for group in touched.into_keys() {
            self.put_group(group, copies)?;
        }
        if free != 0 {
            self.put_superblock(free, copies)?;
        }
        Ok(())
    }

    /// A run by groups: the first bit in each, and the number of bits.
    fn in_groups(&self, run: Extent) -> Vec<(GroupNo, u64, u64)> {
        let sb = &self.survey.volume.sb;
        let base = sb.group_blocks(GroupNo::ZERO).start.get();
        let per_group = u64::from(sb.blocks_per_group);
        let mut parts = Vec::new();
        debug_assert!(run.end().get() <= sb.blocks, "{run} lies in the volume");
        let (mut at, mut left) = (run.start.get() - base, run.len);
        while left > 0 {
            let (group, first) = (at / per_group, at % per_group);
            let len = left.min(per_group - first);
            parts.push((GroupNo::new(group as u32), first, len));
            at += len;
            left -= len;
        }
        parts
    }

    /// Sets or clears bits of a group's bitmap.
    fn mark(
        &mut self,
        group: GroupNo,
        first: u64,
        len: u64,
        is_taken: bool,
    ) -> Result<(), FsError> {
        if !self.groups.contains_key(&group) {
            let state = self.group(group)?;
            self.groups.insert(group, state);
        }
        let Some(state) = self.groups.get_mut(&group) else { return Ok(()) };
        for bit in first..first + len {
            let (byte, mask) = (&mut state.bitmap[(bit / 8) as usize], 1 << (bit % 8));
            debug_assert_eq!(*byte & mask == 0, is_taken, "bit {bit} of group {group}");
            if is_taken {
                *byte |= mask;
            } else {
                *byte &= !mask;
            }
        }
        let counts = &mut state.counts;
        let blocks = len as u32;
        debug_assert!(!is_taken || blocks <= counts.free_clusters, "free blocks are counted");
        counts.free_clusters = match is_taken {
            true => counts.free_clusters - blocks,
            false => counts.free_clusters + blocks,
        };
        Ok(())
    }

    /// A group as it was at the beginning.
    fn group(&self, number: GroupNo) -> Result<GroupState, FsError> {
        let volume = self.survey.volume;
        let sb = &volume.sb;
        let group = volume.descriptors().read_checked(number)?;
        let mut bitmap = vec![0xFF; self.block_size() as usize];
        let start = sb.group_blocks(number).start.get();
        let mut free_clusters = 0;
        for run in volume.bitmaps().group_summary(number)?.free {
            free_clusters += run.len as u32;
            for bit in run.start.get() - start..run.end().get() - start {
                bitmap[(bit / 8) as usize] &= !(1 << (bit % 8));
            }
        }
        let raw = group.raw();
        let high = u32::from(raw.bg_inode_bitmap_csum_hi.get()) << 16;
        let counts = Counts {
            flags: raw.bg_flags.get() & !BG_BLOCK_UNINIT,
            free_clusters,
            free_inodes: group.free_inodes(),
            directories: group.used_dirs(),
            unused: group.itable_unused(),
            block_sum: 0,
            inode_sum: high | u32::from(raw.bg_inode_bitmap_csum_lo.get()),
        };
        Ok(GroupState { bitmap, counts })
    }

    fn put_group(&mut self, number: GroupNo, copies: &mut Copies) -> Result<(), FsError> {
        let volume = self.survey.volume;
        let sb = &volume.sb;
        let group = volume.descriptors().read_checked(number)?;
        let Some(state) = self.groups.get_mut(&number) else { return Ok(()) };
        let bits = u64::from(sb.clusters_per_group());
        let seed = sb.has_metadata_csum().then_some(sb.checksum_seed);
        state.counts.block_sum = seed.map_or(0, |seed| bitmap_sum(seed, &state.bitmap, bits));
        let desc = volume.descriptors().recounted(&group, &state.counts)?;
        copies.insert(group.block_bitmap(), state.bitmap.clone());
        let per_block = sb.descs_per_block();
        let block = sb.descriptor_block(number.get() / per_block);
        let at = (number.get() % per_block) as usize * usize::from(sb.desc_size);
        if !self.descriptors.contains_key(&block) {
            let bytes = self.read(block)?;
            self.descriptors.insert(block, bytes);
        }
        let Some(bytes) = self.descriptors.get_mut(&block) else { return Ok(()) };
        debug_assert!(at + desc.len() <= bytes.len(), "a descriptor lies in one block");
        bytes[at..at + desc.len()].copy_from_slice(&desc);
        copies.insert(block, bytes.clone());
        Ok(())
    }

    fn put_superblock(&self, more_free: i64, copies: &mut Copies) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        let first = sb.superblock_block();
        let at =
            if self.block_size() > SUPERBLOCK_IN_BLOCK as u64 { SUPERBLOCK_IN_BLOCK } else { 0 };
        let block = self.logged(copies, first)?;
        let place = Location::of("superblock");
        let (raw, _) = Superblock::mut_from_prefix(&mut block[at..])
            .map_err(|_| seekless_fs::field::truncated(place))?;
        let is_wide = sb.has_incompat(incompat::BIT64);
        let high = if is_wide { u64::from(raw.s_free_blocks_count_hi.get()) << 32 } else { 0 };
        let old = high | u64::from(raw.s_free_blocks_count_lo.get());
        let new = old
            .checked_add_signed(more_free)
            .ok_or_else(|| seekless_fs::field::invalid("s_free_blocks_count", old, place))?;
        raw.s_free_blocks_count_lo = (new as u32).into();
        if is_wide {
            raw.s_free_blocks_count_hi = ((new >> 32) as u32).into();
        }
        seal_superblock(raw, 0);
        Ok(())
    }

    /// Commits blocks as one transaction, behind all earlier writes, and writes them home.
    fn commit(&mut self, copies: &Copies) -> Result<(), FsError> {
        let list: Vec<LogCopy<'_>> =
            copies.iter().map(|(&home, bytes)| LogCopy { home, bytes }).collect();
        debug_assert!(
            copies.values().all(|bytes| bytes.len() as u64 == self.block_size()),
            "blocks are logged as a whole"
        );
        let transaction = LogTransaction { revokes: &[], copies: &list };
        for stage in self.log.encode(&transaction)? {
            stage.perform(self.device.as_ref(), true)?;
        }
        let mut home = Stage::default();
        for (&block, bytes) in copies {
            home.push(self.lba(block), bytes, COPY_BYTES as usize);
        }
        home.perform(self.device.as_ref(), true)?;
        // The first of these flushes.
        for stage in self.log.retire(1) {
            stage.perform(self.device.as_ref(), true)?;
        }
        Ok(())
    }
}
