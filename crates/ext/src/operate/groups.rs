//! Groups of blocks: bitmaps checked when they come from the disk, made where none was ever written
//! (`BLOCK_UNINIT`, `INODE_UNINIT`), with their sums in the descriptors; tables of inodes that were
//! never written.

use super::descriptor::{Bitmap, DescriptorFields};
use super::layout::Layout;
use super::map::Core;
use super::search::{first_free, flip, full, has_bit};
use super::sums::{is_checked, note_checked};
use crate::encode::sums::bitmap_sum;
use crate::group::{Counts, Group};
use crate::ondisk::{BG_INODE_ZEROED, GroupDesc};
use crate::superblock::{Super, verify};
use seekless_cache::{ChangeId, Role};
use seekless_fs::extents::append;
use seekless_fs::field::{index, invalid, low32};
use seekless_fs::{FsError, Location};
use seekless_live::Ids;
use seekless_placement::inode::{InodePlace, InodePlacement, NewInode, Windows};
use seekless_placement::{GroupSummary, Groups, Shape};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Sets some bits.
fn set(bitmap: &mut [u8], bits: std::ops::Range<u64>) {
    for bit in bits {
        if let Some(byte) = bitmap.get_mut(index(bit >> 3)) {
            *byte |= 1 << (bit & 7);
        }
    }
}

/// Changes of a group's counts.
#[derive(Clone, Copy, Default)]
struct Delta {
    blocks: i32,
    inodes: i32,
    directories: i32,
}

/// The groups of a volume: their counts, and their bitmaps in the cache.
pub(super) struct BlockGroups {
    layout: Arc<Layout>,
    /// Flags and checksums of the descriptors.
    states: Vec<DescriptorFields>,
    summaries: Groups,
    /// Groups whose descriptors on the disk are out of date.
    stale: BTreeSet<GroupNo>,
    /// The policy for inodes, which follows every change of the counts.
    policy: Box<dyn InodePlacement>,
    /// Groups whose counts in the descriptors are hints, until they are first changed: a crash may
    /// have left them out of date.
    hinted: BTreeSet<GroupNo>,
}

impl BlockGroups {
    /// The groups of a volume, with the counts of their descriptors.
    pub(super) fn new(layout: Arc<Layout>, all: &[Group], policy: Box<dyn InodePlacement>) -> Self {
        let summaries = summaries(layout.sb(), all);
        let states = all.iter().map(DescriptorFields::of).collect();
        let (stale, hinted) = (BTreeSet::new(), BTreeSet::new());
        Self { layout, states, summaries, stale, policy, hinted }
    }

    /// Takes the counts of all groups for hints.
    pub(super) fn distrust_counts(&mut self) {
        self.hinted = (0..self.layout.sb().groups).map(GroupNo::new).collect();
    }

    /// Counts what is free in a group, by its bitmaps, if that is not known.
    fn count(&mut self, core: &mut Core, number: GroupNo) -> Result<(), FsError> {
        if !self.hinted.contains(&number) {
            return Ok(());
        }
        let sb = self.layout.sb();
        let (blocks, inodes) = (low32(sb.group_blocks(number).len), sb.inodes_per_group);
        let mut free = |which: Bitmap, bits: u32| -> Result<u32, FsError> {
            let bitmap = self.bitmap(core, number, which)?.unwrap_or_default();
            let is_free = |bit: &u32| !has_bit(bitmap, *bit);
            Ok(low32(seekless_fs::field::wide((0..bits).filter(is_free).count())))
        };
        let (nbfree, nifree) = (free(Bitmap::Blocks, blocks)?, free(Bitmap::Inodes, inodes)?);
        let told = self.summaries.summary(number).unwrap_or_default();
        self.summaries.set(number, GroupSummary { nbfree, nifree, ..told });
        self.policy.blocks_changed(i64::from(nbfree) - i64::from(told.nbfree));
        self.stale.insert(number);
        self.hinted.remove(&number);
        Ok(())
    }

    /// Brings the counts of a group in line with its bitmaps; it has so many directories less.
    pub(super) fn recount(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        surplus_directories: i64,
    ) -> Result<(), FsError> {
        self.count(core, number)?;
        let place = Location::of("group descriptor").in_group(number);
        let wrong = || invalid("used_dirs", surplus_directories.unsigned_abs(), place);
        let directories = i32::try_from(-surplus_directories).map_err(|_| wrong())?;
        self.account(number, Delta { directories, ..Delta::default() })
    }

    /// The counts of free blocks, free inodes and directories.
    pub(super) fn summaries(&self) -> &Groups {
        &self.summaries
    }

    fn state(&self, number: GroupNo) -> Result<DescriptorFields, FsError> {
        let found = self.states.get(index(number.get())).copied();
        found.ok_or_else(|| self.layout.no_group(number))
    }

    fn state_mut(&mut self, number: GroupNo) -> Result<&mut DescriptorFields, FsError> {
        let none = self.layout.no_group(number);
        self.states.get_mut(index(number.get())).ok_or(none)
    }

    /// The inodes at the start of a group's table that may have been used.
    pub(super) fn used_part(&self, number: GroupNo) -> Result<u32, FsError> {
        let all = self.layout.sb().inodes_per_group;
        let unused = if self.layout.is_lazy() { self.state(number)?.unused } else { 0 };
        Ok(all.saturating_sub(unused))
    }

    fn was_never_written(&self, number: GroupNo, which: Bitmap) -> Result<bool, FsError> {
        Ok(self.layout.is_lazy() && self.state(number)?.flags & which.uninit() != 0)
    }

    /// A bitmap as it is; `None` if it was never written: only metadata is in use then.
    pub(super) fn bitmap<'a>(
        &self,
        core: &'a mut Core,
        number: GroupNo,
        which: Bitmap,
    ) -> Result<Option<&'a [u8]>, FsError> {
        if self.was_never_written(number, which)? {
            return Ok(None);
        }
        let at = self.layout.bitmap(number, which)?;
        let len = self.layout.block_len();
        if self.layout.has_sums() && !is_checked(core, at) {
            let bytes = core.cache.blocks_mut().read(at, 0, len)?;
            let sb = self.layout.sb();
            let mut computed = bitmap_sum(sb.checksum_seed, bytes, which.bits(sb).into());
            let state = self.state(number)?;
            let mut stored = match which {
                Bitmap::Blocks => state.block_sum,
                Bitmap::Inodes => state.inode_sum,
            };
            if index(sb.desc_size) < size_of::<GroupDesc>() {
                (computed, stored) = (computed & 0xFFFF, stored & 0xFFFF);
            }
            verify(stored, computed, Location::of(which.name()).in_group(number).in_block(at))?;
            note_checked(core, at);
        }
        core.cache.blocks_mut().read(at, 0, len).map(Some)
    }

    /// Changes a bitmap; `None` if `change` finds too few free bits, and then nothing is changed.
    fn change_bitmap<R>(
        &mut self,
        core: &mut Core,
        (number, which): (GroupNo, Bitmap),
        role: Role,
        change: impl FnOnce(&mut [u8]) -> Result<Option<R>, FsError>,
    ) -> Result<Option<(R, ChangeId)>, FsError> {
        self.count(core, number)?;
        if self.bitmap(core, number, which)?.is_none() {
            self.make_bitmap(core, number, which)?;
        }
        debug_assert!(!self.was_never_written(number, which)?, "it is made before it is changed");
        let at = self.layout.bitmap(number, which)?;
        let len = self.layout.block_len();
        let sb = self.layout.sb();
        let (seed, bits) = (sb.checksum_seed, u64::from(which.bits(sb)));
        let summed = self.layout.has_sums();
        let edited = core.cache.changes().edit(at, 0, len, role, |bitmap| {
            let done = change(bitmap)?.ok_or_else(|| full("space"))?;
            Ok((done, if summed { bitmap_sum(seed, bitmap, bits) } else { 0 }))
        });
        match edited {
            Ok(((done, sum), id)) => {
                self.note_sum(number, which, sum)?;
                Ok(Some((done, id)))
            }
            Err(FsError::NoSpace(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes the sum of a changed bitmap: it may be read again before its descriptor is written.
    fn note_sum(&mut self, number: GroupNo, which: Bitmap, sum: u32) -> Result<(), FsError> {
        if !self.layout.has_sums() {
            return Ok(());
        }
        let state = self.state_mut(number)?;
        match which {
            Bitmap::Blocks => state.block_sum = sum,
            Bitmap::Inodes => state.inode_sum = sum,
        }
        self.stale.insert(number);
        Ok(())
    }

    /// Makes a bitmap that was never written (`ext4_init_block_bitmap`, `ext4_init_inode_bitmap`):
    /// bits of the volume's own metadata and past the group's end are set.
    fn make_bitmap(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        which: Bitmap,
    ) -> Result<(), FsError> {
        if !self.was_never_written(number, which)? {
            return Ok(());
        }
        let bytes = self.first_bitmap(number, which)?;
        let role = match which {
            Bitmap::Blocks => Role::BitmapSet,
            Bitmap::Inodes => Role::InodeBitmapSet,
        };
        let sb = self.layout.sb();
        let sum = bitmap_sum(sb.checksum_seed, &bytes, which.bits(sb).into());
        let at = self.layout.bitmap(number, which)?;
        debug_assert_eq!(bytes.len(), self.layout.block_len(), "a bitmap is one block");
        core.cache.changes().fill(at, bytes.len(), role, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        note_checked(core, at);
        self.state_mut(number)?.flags &= !which.uninit();
        self.stale.insert(number);
        self.note_sum(number, which, sum)
    }

    /// The bytes of a bitmap that was never written. Nothing is changed.
    pub(super) fn first_bitmap(&self, number: GroupNo, which: Bitmap) -> Result<Vec<u8>, FsError> {
        let sb = self.layout.sb();
        let mut bytes = vec![0; self.layout.block_len()];
        let all = u64::from(sb.block_size) * 8;
        let (used, own) = match which {
            Bitmap::Blocks => {
                let run = sb.group_blocks(number);
                for fixed in self.layout.metadata_in(run) {
                    let from = fixed.start.max(run.start) - run.start;
                    set(&mut bytes, from..fixed.end().min(run.end()) - run.start);
                }
                (bytes.iter().map(|byte| byte.count_ones()).sum(), run.len)
            }
            Bitmap::Inodes => (0, u64::from(sb.inodes_per_group)),
        };
        debug_assert!(u64::from(used) <= own && own <= all, "the metadata lie in the group");
        set(&mut bytes, own..all);
        let summary = self.summaries.summary(number).unwrap_or_default();
        let (told, free) = match which {
            Bitmap::Blocks => (summary.nbfree, own - u64::from(used)),
            Bitmap::Inodes => (summary.nifree, own),
        };
        if u64::from(told) != free {
            let place = Location::of("group descriptor").in_group(number);
            return Err(invalid("free count", u64::from(told), place));
        }
        Ok(bytes)
    }

    /// Notes that an inode of a group is in use (`ext4_mark_inode_used`): the slots before it no
    /// longer count as never used.
    fn note_used(&mut self, core: &mut Core, number: GroupNo, slot: u32) -> Result<(), FsError> {
        if !self.layout.is_lazy() {
            return Ok(());
        }
        // A group in use has a block bitmap.
        self.make_bitmap(core, number, Bitmap::Blocks)?;
        let sb = self.layout.sb();
        let flags = self.state(number)?.flags;
        let before = self.used_part(number)?;
        if slot < before {
            return Ok(());
        }
        if flags & BG_INODE_ZEROED == 0 {
            let size = u64::from(sb.inode_size);
            let block = u64::from(sb.block_size).max(1);
            let from = (u64::from(before) * size).div_ceil(block);
            let to = (u64::from(slot) * size) / block;
            let table = self.layout.table(number)?;
            for within in from..to + 1 {
                let at = table + within;
                let len = self.layout.block_len();
                core.cache.changes().fill(at, len, Role::TableInit, |_| Ok(()))?;
            }
        }
        debug_assert!(slot < sb.inodes_per_group, "slot {slot} of a group");
        let unused = sb.inodes_per_group - slot - 1;
        debug_assert!(unused < self.state(number)?.unused, "slots once used stay so");
        self.state_mut(number)?.unused = unused;
        self.stale.insert(number);
        Ok(())
    }

    /// Brings the descriptors of groups up to date in the cache, with their
    /// checksums.
    pub(super) fn write_descriptors(&mut self, core: &mut Core) -> Result<(), FsError> {
        let sb = self.layout.sb();
        while let Some(number) = self.stale.first().copied() {
            let per_block = sb.descs_per_block().max(1);
            let at = sb.descriptor_block(number.get() / per_block);
            let slot = number.get() % per_block;
            let skip = index(slot) * index(sb.desc_size);
            let summary = self.summaries.summary(number).unwrap_or_default();
            let DescriptorFields { flags, unused, block_sum, inode_sum } = self.state(number)?;
            let counts = Counts {
                flags,
                free_clusters: summary.nbfree,
                free_inodes: summary.nifree,
                directories: summary.ndir,
                unused,
                block_sum,
                inode_sum,
            };
            let bytes = self
                .layout
                .volume()
                .descriptors()
                .recounted(&self.layout.volume().descriptors().read(number)?, &counts)?;
            debug_assert!(
                skip + bytes.len() <= self.layout.block_len(),
                "a descriptor lies in one block"
            );
            core.cache.changes().edit(at, skip, bytes.len(), Role::Summary, |desc| {
                desc.copy_from_slice(&bytes);
                Ok(())
            })?;
            self.stale.remove(&number);
        }
        Ok(())
    }

    /// Whether a bit of a bitmap is set.
    fn is_set(
        &self,
        core: &mut Core,
        number: GroupNo,
        which: Bitmap,
        bit: u32,
    ) -> Result<bool, FsError> {
        Ok(self.bitmap(core, number, which)?.is_some_and(|bitmap| has_bit(bitmap, bit)))
    }

    /// Whether an inode is in use, and not the volume's own.
    pub(super) fn is_in_use(&self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        let (group, slot) = self.layout.slot(ino)?;
        Ok(!self.layout.volume().sb.is_own(ino)
            && self.is_set(core, group, Bitmap::Inodes, slot)?)
    }

    /// Changes the counts of a group.
    fn account(&mut self, number: GroupNo, delta: Delta) -> Result<(), FsError> {
        let place = Location::of("group descriptor").in_group(number);
        let wrong = || invalid("free count", u64::from(number.get()), place);
        let old = self.summaries.summary(number).ok_or_else(wrong)?;
        let sum = |count: u32, by: i32| count.checked_add_signed(by).ok_or_else(wrong);
        let new = GroupSummary {
            ndir: sum(old.ndir, delta.directories)?,
            nbfree: sum(old.nbfree, delta.blocks)?,
            nifree: sum(old.nifree, delta.inodes)?,
            nffree: 0,
        };
        self.summaries.set(number, new);
        if delta.blocks != 0 {
            self.policy.blocks_changed(delta.blocks.into());
        }
        self.stale.insert(number);
        Ok(())
    }

    /// Takes the blocks of a group that are chosen by its bitmap.
    pub(super) fn take_bits(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        choose: impl FnOnce(&[u8]) -> Option<Range<u32>>,
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let run = self.layout.sb().group_blocks(number);
        let which = (number, Bitmap::Blocks);
        let taken = self.change_bitmap(core, which, Role::BitmapSet, |bitmap| {
            let found = choose(bitmap);
            debug_assert!(
                found.iter().cloned().flatten().all(|bit| !has_bit(bitmap, bit)),
                "blocks are free before they are taken"
            );
            Ok(found.inspect(|run| run.clone().for_each(|bit| flip(bitmap, bit))))
        })?;
        let Some((bits, id)) = taken else { return Ok(None) };
        let at = run.start + u64::from(bits.start);
        let run = Extent::new(at, seekless_fs::field::wide(bits.len()));
        // The bitmap of a damaged image may have it free.
        self.layout.check_data(run, Location::of("block bitmap").in_group(number))?;
        let blocks = -i32::try_from(bits.len()).unwrap_or(i32::MAX);
        self.account(number, Delta { blocks, ..Delta::default() })?;
        Ok(Some((run, id)))
    }

    /// The parts of a run that are free.
    pub(super) fn free_parts(&self, core: &mut Core, run: Extent) -> Result<Vec<Extent>, FsError> {
        let mut free = Vec::new();
        let mut at = run.start;
        while at < run.end() {
            let number = self.summaries.shape().group_of(at);
            let group = self.layout.sb().group_blocks(number);
            let end = group.end().min(run.end());
            let made;
            let bitmap = match self.bitmap(core, number, Bitmap::Blocks)? {
                Some(bitmap) => bitmap,
                None => {
                    made = self.first_bitmap(number, Bitmap::Blocks)?;
                    &made
                }
            };
            for block in (0..end - at).map(|within| at + within) {
                if !has_bit(bitmap, low32(block - group.start)) {
                    append(&mut free, block);
                }
            }
            at = end;
        }
        Ok(free)
    }

    /// Gives runs back, and returns the changes that do.
    pub(super) fn give(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        for &run in runs {
            let mut at = run.start;
            while at < run.end() {
                let number = self.summaries.shape().group_of(at);
                let group = self.layout.sb().group_blocks(number);
                let end = group.end().min(run.end());
                let bit = |at: BlockNo| u32::try_from(at - group.start).unwrap_or(u32::MAX);
                debug_assert!(at >= group.start, "block {at} lies in group {number}");
                let bits = bit(at)..bit(end);
                debug_assert_eq!(bits.len(), index(end - at), "a bit for each block");
                let place = Location::of("block bitmap").in_group(number);
                let which = (number, Bitmap::Blocks);
                let given = self.change_bitmap(core, which, Role::BitmapClear, |bitmap| {
                    if let Some(free) = bits.clone().find(|&bit| !has_bit(bitmap, bit)) {
                        return Err(invalid("free block", u64::from(free), place));
                    }
                    bits.clone().for_each(|bit| flip(bitmap, bit));
                    Ok(Some(()))
                })?;
                debug_assert!(given.is_some(), "there is nothing to be found");
                ids.extend(given.map(|((), id)| id));
                let blocks = i32::try_from(bits.len()).unwrap_or(i32::MAX);
                self.account(number, Delta { blocks, ..Delta::default() })?;
                debug_assert!(end > at, "each round does some");
                at = end;
            }
        }
        Ok(ids)
    }

    /// Takes a free inode of a group: the first one from a slot on, or else the first one.
    pub(super) fn take_inode(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        from: u32,
        is_directory: bool,
    ) -> Result<Option<(Ino, ChangeId)>, FsError> {
        let per_group = self.layout.sb().inodes_per_group;
        let which = (number, Bitmap::Inodes);
        let taken = self.change_bitmap(core, which, Role::InodeBitmapSet, |bitmap| {
            let found =
                first_free(bitmap, per_group, from).or_else(|| first_free(bitmap, per_group, 0));
            debug_assert!(
                found.is_none_or(|slot| slot < per_group && !has_bit(bitmap, slot)),
                "an inode is free before it is taken"
            );
            Ok(found.inspect(|&slot| flip(bitmap, slot)))
        })?;
        let Some((slot, id)) = taken else { return Ok(None) };
        let ino = self.layout.ino_at(number, slot);
        if self.layout.volume().sb.is_own(ino) {
            let place = Location::of("inode bitmap").in_group(number);
            return Err(invalid("free inode", u64::from(ino.get()), place));
        }
        self.note_used(core, number, slot)?;
        let directories = i32::from(is_directory);
        self.account(number, Delta { inodes: -1, directories, ..Delta::default() })?;
        Ok(Some((ino, id)))
    }

    /// Gives an inode back.
    pub(super) fn give_inode(
        &mut self,
        core: &mut Core,
        at: InodePlace,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        let place = Location::of("inode bitmap").in_group(at.group);
        let which = (at.group, Bitmap::Inodes);
        let given = self.change_bitmap(core, which, Role::InodeBitmapClear, |bitmap| {
            if !has_bit(bitmap, at.slot) {
                return Err(invalid("free inode", u64::from(ino.get()), place));
            }
            flip(bitmap, at.slot);
            Ok(Some(()))
        })?;
        debug_assert!(given.is_some(), "there is nothing to be found");
        let directories = if is_directory { -1 } else { 0 };
        self.account(at.group, Delta { inodes: 1, directories, ..Delta::default() })?;
        self.policy.given_back(at, is_directory);
        Ok(())
    }

    /// Where the policy wants a new inode, and the groups to search.
    pub(super) fn place_inode(
        &mut self,
        new: &NewInode<'_>,
    ) -> (InodePlace, Box<dyn Iterator<Item = GroupNo>>) {
        let goal = self.policy.goal(&self.summaries, new);
        (goal, self.policy.order(&self.summaries, goal))
    }

    /// Tells the policy for inodes where a search for one has ended.
    pub(super) fn inode_placed(
        &mut self,
        new: &NewInode<'_>,
        goal: InodePlace,
        at: Option<InodePlace>,
    ) {
        self.policy.taken(new, goal, at);
    }

    /// Whether the policy for inodes uses the hash of a new name.
    pub(super) fn hashes(&self, is_directory: bool) -> bool {
        self.policy.hashes(is_directory)
    }

    /// The windows of the policy for inodes, if it has any.
    pub(super) fn windows(&mut self) -> Option<&mut Windows> {
        self.policy.windows()
    }
}

fn summaries(sb: &Super, all: &[Group]) -> Groups {
    let shape = Shape {
        ncg: sb.groups,
        ipg: sb.inodes_per_group,
        fpg: sb.blocks_per_group,
        fsize: sb.block_size,
        frag: 1,
        size: sb.blocks,
        skip: low32(sb.first_block.get()),
    };
    let mut groups = Groups::new(shape, |number| {
        let table = all.get(index(number.get())).map(Group::inode_table);
        table.map_or_else(|| shape.base(number), |at| at + sb.itable_blocks())
    });
    for group in all {
        let summary = GroupSummary {
            ndir: group.used_dirs(),
            nbfree: group.free_clusters(),
            nifree: group.free_inodes(),
            nffree: 0,
        };
        groups.set(group.number, summary);
    }
    groups
}
