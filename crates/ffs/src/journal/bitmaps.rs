//! The groups that a recovery looks at: their bitmaps, and the counts that follow from these.

use crate::alloc::{GroupMut, count_maps, seal_group};
use crate::group::verify_group;
use crate::ondisk::{CylinderGroup, check_hash};
use crate::superblock::{Format, Super};
use crate::volume::Volume;
use seekless_fs::field::{index, low32, range, wide};
use seekless_fs::{FsError, Location};
use seekless_placement::GroupSummary;
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// Groups, by number.
#[derive(Default)]
pub(super) struct Groups {
    held: BTreeMap<GroupNo, Held>,
    /// Index blocks through which others were found: they become free behind those.
    late: BTreeMap<GroupNo, Vec<Extent>>,
    freed: Freed,
}

/// Inodes and fragments that were marked as used and become free.
#[derive(Clone, Copy, Default)]
pub(super) struct Freed {
    pub(super) inodes: u64,
    pub(super) fragments: u64,
}

struct Held {
    bytes: Vec<u8>,
    /// Directories less than its head says.
    gone: u32,
    /// Nothing shows that the head was written as a whole.
    is_doubtful: bool,
}

impl Groups {
    /// A group, read when it is first needed.
    fn held(&mut self, volume: &Volume, number: GroupNo) -> Result<&mut Held, FsError> {
        match self.held.entry(number) {
            Entry::Occupied(held) => Ok(held.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Held::read(volume, number)?)),
        }
    }

    fn with<T>(
        &mut self,
        volume: &Volume,
        number: GroupNo,
        change: impl FnOnce(&mut GroupMut<'_>) -> T,
    ) -> Result<T, FsError> {
        let held = self.held(volume, number)?;
        let mut group = GroupMut::check(&volume.sb, number, &mut held.bytes)?;
        Ok(change(&mut group))
    }

    /// Whether an inode was ever written: UFS2 does that when it is first needed.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the group's head cannot be believed.
    pub(super) fn is_written(&mut self, volume: &Volume, ino: Ino) -> Result<bool, FsError> {
        let (number, slot) = volume.sb.inode_slot(ino)?;
        if volume.sb.format == Format::Ufs1 {
            return Ok(true);
        }
        let held = self.held(volume, number)?;
        let at = offset_of!(CylinderGroup<LE>, cg_initediblk);
        Ok(volume.sb.order.get_u32(&held.bytes, at).is_some_and(|written| slot < written))
    }

    /// Whether all fragments of a run within a group are marked as used.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn are_used(&mut self, volume: &Volume, run: Extent) -> Result<bool, FsError> {
        let (number, from) = within(&volume.sb, run)?;
        self.with(volume, number, |group| {
            (from..).take(index(run.len)).all(|at| !group.fragment_is_free(at))
        })
    }

    /// Sets whether the fragments of a run within a group are free.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn set_free(
        &mut self,
        volume: &Volume,
        run: Extent,
        free: bool,
    ) -> Result<(), FsError> {
        let (number, from) = within(&volume.sb, run)?;
        let changed = self.with(volume, number, |group| {
            let wrong =
                (from..).take(index(run.len)).filter(|&at| group.fragment_is_free(at) != free);
            let wrong: Vec<u32> = wrong.collect();
            wrong.iter().for_each(|&at| group.set_fragment_free(at, free));
            wrong.len()
        })?;
        self.freed.fragments += if free { wide(changed) } else { 0 };
        Ok(())
    }

    /// Frees an index block, behind the blocks that it leads to.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn free_late(&mut self, volume: &Volume, run: Extent) -> Result<(), FsError> {
        self.late.entry(volume.sb.group_of(run.start)).or_default().push(run);
        self.set_free(volume, run, true)
    }

    /// Marks an inode as used.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn use_inode(&mut self, volume: &Volume, ino: Ino) -> Result<(), FsError> {
        let (number, slot) = volume.sb.inode_slot(ino)?;
        self.with(volume, number, |group| group.set_in_use(slot, true))
    }

    /// Frees an inode, if it is marked as used.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn free_inode(
        &mut self,
        volume: &Volume,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        let (number, slot) = volume.sb.inode_slot(ino)?;
        let was_used = self.with(volume, number, |group| {
            let was_used = group.says_in_use(slot);
            group.set_in_use(slot, false);
            was_used
        })?;
        self.freed.inodes += u64::from(was_used);
        self.held(volume, number)?.gone += u32::from(was_used && is_directory);
        Ok(())
    }

    /// Has the directories of an inode's group counted.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn doubt(&mut self, volume: &Volume, ino: Ino) -> Result<(), FsError> {
        let (number, _) = volume.sb.inode_slot(ino)?;
        self.held(volume, number)?.is_doubtful = true;
        Ok(())
    }

    /// Numbers of inodes and fragments that become free.
    pub(super) fn freed(&self) -> Freed {
        self.freed
    }

    /// Groups whose directories have to be counted, with the first inodes of them that are marked
    /// as used.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn doubtful(
        &mut self,
        volume: &Volume,
    ) -> Result<Vec<(GroupNo, Vec<Ino>)>, FsError> {
        let sb = &volume.sb;
        let mut all = Vec::new();
        for (&number, held) in self.held.iter_mut().filter(|(_, held)| held.is_doubtful) {
            let group = GroupMut::check(sb, number, &mut held.bytes)?;
            let first = number.get() * sb.ipg;
            let used = (0..sb.ipg).filter(|&slot| group.says_in_use(slot));
            all.push((number, used.map(|slot| Ino::new(first + slot)).collect()));
        }
        Ok(all)
    }

    /// Brings the counts of all groups that were looked at up to date; `directories` are those that
    /// were counted.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when a group would have fewer directories than none.
    pub(super) fn count(
        &mut self,
        sb: &Super,
        directories: &BTreeMap<GroupNo, u32>,
    ) -> Result<(), FsError> {
        for (&number, held) in &mut self.held {
            let mut group = GroupMut::check(sb, number, &mut held.bytes)?;
            let says = group.summary().ndir;
            let counted = directories.get(&number).copied();
            let place = Location::of("cylinder group").in_group(number);
            let wrong = || range("cs_ndir", u64::from(held.gone), u64::from(says), place);
            let count = counted.or_else(|| says.checked_sub(held.gone)).ok_or_else(wrong)?;
            recount(&mut group, count);
            seal_group(sb, &mut held.bytes);
        }
        Ok(())
    }

    /// The summary of a group.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn summary(
        &self,
        volume: &Volume,
        number: GroupNo,
    ) -> Result<GroupSummary, FsError> {
        let mut bytes = match self.held.get(&number) {
            Some(held) => held.bytes.clone(),
            None => Held::read(volume, number)?.bytes,
        };
        Ok(GroupMut::check(&volume.sb, number, &mut bytes)?.summary())
    }

    /// The bytes of the groups, as they are in the end.
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupNo, &[u8])> {
        self.held.iter().map(|(&number, held)| (number, held.bytes.as_slice()))
    }

    /// The bytes of a group while late blocks in it are still marked as used.
    ///
    /// # Errors
    /// As [`Groups::is_written`].
    pub(super) fn early(
        &self,
        sb: &Super,
        number: GroupNo,
        bytes: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let mut early = bytes.to_vec();
        let ours = self.late.get(&number).into_iter().flatten();
        let mut group = GroupMut::check(sb, number, &mut early)?;
        let directories = group.summary().ndir;
        for run in ours {
            let (_, from) = within(sb, *run)?;
            (from..).take(index(run.len)).for_each(|at| group.set_fragment_free(at, false));
        }
        recount(&mut group, directories);
        seal_group(sb, &mut early);
        Ok(early)
    }

    /// Whether any block becomes free behind others.
    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }
}

impl Held {
    fn read(volume: &Volume, number: GroupNo) -> Result<Self, FsError> {
        let sb = &volume.sb;
        let mut bytes = vec![0; index(sb.bsize)];
        volume.read_bytes(sb.in_group(number, sb.cblkno), 0, &mut bytes)?;
        // Which of its sectors were written is not known: bitmaps are taken as they are.
        GroupMut::check(sb, number, &mut bytes)?;
        let is_whole =
            sb.has_check_hash(check_hash::GROUP) && verify_group(sb, &bytes, number).is_ok();
        Ok(Self { bytes, gone: 0, is_doubtful: !is_whole })
    }
}

fn recount(group: &mut GroupMut<'_>, directories: u32) {
    count_maps(group);
    let counts = group.stored_counts();
    group.set_counts(&crate::make::Counts { directories, ..counts });
}

/// The group of a run, and the run's first fragment there.
fn within(sb: &Super, run: Extent) -> Result<(GroupNo, u32), FsError> {
    let number = sb.group_of(run.start);
    let place = Location::of("cylinder group").in_group(number);
    let outside = || range("block number", run.start.get(), sb.size, place);
    if number.get() >= sb.ncg {
        return Err(outside());
    }
    let blocks = sb.group_blocks(number);
    if run.end() > blocks.end() || run.end() == BlockNo::ZERO {
        return Err(outside());
    }
    Ok((number, low32(run.start - blocks.start)))
}
