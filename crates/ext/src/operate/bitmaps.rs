//! Bitmaps of groups: checked when they come from the disk, made where none was ever written
//! (`BLOCK_UNINIT`, `INODE_UNINIT`), with their sums in the descriptors; and tables of inodes that
//! were never written.

use super::descriptor::{Bitmap, DescriptorFields};
use super::search::{full, has_bit};
use super::{Core, Ext};
use crate::encode::sums::bitmap_sum;
use crate::group::{Counts, Group};
use crate::ondisk::{BG_INODE_ZEROED, GroupDesc, ro_compat};
use crate::superblock::verify;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, range};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo};

/// Sets some bits.
fn set(bitmap: &mut [u8], bits: std::ops::Range<u64>) {
    for bit in bits {
        if let Some(byte) = bitmap.get_mut(index(bit >> 3)) {
            *byte |= 1 << (bit & 7);
        }
    }
}

impl Ext {
    /// Whether the flags of descriptors count: only with checksums.
    fn is_lazy(&self) -> bool {
        self.has_sums() || self.volume.sb.has_ro_compat(ro_compat::GDT_CSUM)
    }

    fn state(&self, number: GroupNo) -> Result<DescriptorFields, FsError> {
        let found = self.states.get(index(number.get())).copied();
        found.ok_or_else(|| self.no_group(number))
    }

    fn state_mut(&mut self, number: GroupNo) -> Result<&mut DescriptorFields, FsError> {
        let none = self.no_group(number);
        self.states.get_mut(index(number.get())).ok_or(none)
    }

    pub(super) fn no_group(&self, number: GroupNo) -> FsError {
        let groups = u64::from(self.volume.sb.groups);
        let place = Location::of("group").in_group(number);
        range("group", u64::from(number.get()), groups, place)
    }

    /// The inodes at the start of a group's table that may have been used.
    pub(super) fn used_part(&self, number: GroupNo) -> Result<u32, FsError> {
        let all = self.volume.sb.inodes_per_group;
        let unused = if self.is_lazy() { self.state(number)?.unused } else { 0 };
        Ok(all.saturating_sub(unused))
    }

    fn was_never_written(&self, number: GroupNo, which: Bitmap) -> Result<bool, FsError> {
        Ok(self.is_lazy() && self.state(number)?.flags & which.uninit() != 0)
    }

    fn place_of(&self, number: GroupNo, which: Bitmap) -> Result<BlockNo, FsError> {
        let places = self.places(number)?;
        Ok(match which {
            Bitmap::Blocks => places.block_bitmap,
            Bitmap::Inodes => places.inode_bitmap,
        })
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
        let at = self.place_of(number, which)?;
        let len = self.volume.block_len();
        if self.has_sums() && !Self::is_checked(core, at) {
            let bytes = core.cache.blocks_mut().read(at, 0, len)?;
            let sb = &self.volume.sb;
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
            Self::note_checked(core, at);
        }
        core.cache.blocks_mut().read(at, 0, len).map(Some)
    }

    /// Changes a bitmap; `None` if `change` finds too few free bits, and then nothing is changed.
    pub(super) fn change_bitmap<R>(
        &mut self,
        core: &mut Core,
        (number, which): (GroupNo, Bitmap),
        role: Role,
        change: impl FnOnce(&mut [u8]) -> Result<Option<R>, FsError>,
    ) -> Result<Option<(R, ChangeId)>, FsError> {
        if self.bitmap(core, number, which)?.is_none() {
            self.make_bitmap(core, number, which)?;
        }
        debug_assert!(!self.was_never_written(number, which)?, "it is made before it is changed");
        let at = self.place_of(number, which)?;
        let len = self.volume.block_len();
        let sb = &self.volume.sb;
        let (seed, bits) = (sb.checksum_seed, u64::from(which.bits(sb)));
        let summed = self.has_sums();
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
        if !self.has_sums() {
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
    pub(super) fn make_bitmap(
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
        let sb = &self.volume.sb;
        let sum = bitmap_sum(sb.checksum_seed, &bytes, which.bits(sb).into());
        let at = self.place_of(number, which)?;
        debug_assert_eq!(bytes.len(), self.volume.block_len(), "a bitmap is one block");
        core.cache.changes().fill(at, bytes.len(), role, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        Self::note_checked(core, at);
        self.state_mut(number)?.flags &= !which.uninit();
        self.stale.insert(number);
        self.note_sum(number, which, sum)
    }

    /// The bytes of a bitmap that was never written. Nothing is changed.
    pub(super) fn first_bitmap(&self, number: GroupNo, which: Bitmap) -> Result<Vec<u8>, FsError> {
        let sb = &self.volume.sb;
        let mut bytes = vec![0; self.volume.block_len()];
        let all = u64::from(sb.block_size) * 8;
        let (used, own) = match which {
            Bitmap::Blocks => {
                let run = sb.group_blocks(number);
                for fixed in self.metadata.iter().filter(|fixed| fixed.overlaps(run)) {
                    let from = fixed.start.max(run.start) - run.start;
                    set(&mut bytes, from..fixed.end().min(run.end()) - run.start);
                }
                (bytes.iter().map(|byte| byte.count_ones()).sum(), run.len)
            }
            Bitmap::Inodes => (0, u64::from(sb.inodes_per_group)),
        };
        debug_assert!(u64::from(used) <= own && own <= all, "the metadata lie in the group");
        set(&mut bytes, own..all);
        let summary = self.groups.summary(number).unwrap_or_default();
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
    pub(super) fn note_used(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        slot: u32,
    ) -> Result<(), FsError> {
        if !self.is_lazy() {
            return Ok(());
        }
        // A group in use has a block bitmap.
        self.make_bitmap(core, number, Bitmap::Blocks)?;
        let sb = &self.volume.sb;
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
            let table = self.places(number)?.inode_table;
            for within in from..to + 1 {
                let at = table + within;
                let len = self.volume.block_len();
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
        let sb = &self.volume.sb;
        while let Some(number) = self.stale.first().copied() {
            let per_block = sb.descs_per_block().max(1);
            let at = sb.descriptor_block(number.get() / per_block);
            let slot = number.get() % per_block;
            let skip = index(slot) * index(sb.desc_size);
            let summary = self.groups.summary(number).unwrap_or_default();
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
            let bytes = self.volume.recounted(&self.volume.descriptor(number)?, &counts)?;
            debug_assert!(
                skip + bytes.len() <= self.volume.block_len(),
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
    pub(super) fn is_set(
        &self,
        core: &mut Core,
        number: GroupNo,
        which: Bitmap,
        bit: u32,
    ) -> Result<bool, FsError> {
        Ok(self.bitmap(core, number, which)?.is_some_and(|bitmap| has_bit(bitmap, bit)))
    }
}

/// The volume's own metadata, in order: superblocks, descriptors and the blocks reserved for more
/// of them, bitmaps, tables, and the `log`.
pub(super) fn metadata(
    volume: &crate::volume::Volume,
    all: &[Group],
    mut log: Vec<Extent>,
) -> Vec<Extent> {
    let mut fixed: Vec<Extent> =
        all.iter().flat_map(|group| volume.group_metadata(group)).collect();
    fixed.append(&mut log);
    fixed.retain(|run| run.len > 0);
    fixed.sort_unstable_by_key(|run| (run.start, run.len));
    fixed.dedup();
    fixed
}
