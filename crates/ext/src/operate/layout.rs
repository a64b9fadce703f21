//! The part of a volume that does not change while it is in use: geometry, features, and the places
//! of its metadata.

use super::descriptor::Bitmap;
use crate::group::Group;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::field::{index, range};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};

/// The places of a group's parts.
#[derive(Clone, Copy)]
struct Places {
    block_bitmap: BlockNo,
    inode_bitmap: BlockNo,
    inode_table: BlockNo,
}

/// The layout of a volume.
pub(super) struct Layout {
    /// As it was opened: its counts are not kept up to date.
    volume: Volume,
    places: Vec<Places>,
    /// The volume's own metadata: superblocks, descriptors, bitmaps, tables; in order.
    metadata: Vec<Extent>,
}

impl Layout {
    /// The layout of a volume with these groups; `log` has the runs of its journal.
    pub(super) fn new(volume: Volume, all: &[Group], log: Vec<Extent>) -> Self {
        let metadata = metadata(&volume, all, log);
        Self { places: all.iter().map(places).collect(), metadata, volume }
    }

    /// The volume as it was opened.
    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The superblock as it was found.
    pub(super) fn sb(&self) -> &Super {
        &self.volume.sb
    }

    /// Bytes in a block, as a length in memory.
    pub(super) fn block_len(&self) -> usize {
        self.volume.block_len()
    }

    /// Whether metadata have checksums.
    pub(super) fn has_sums(&self) -> bool {
        self.volume.sb.has_metadata_csum()
    }

    /// Whether the flags of descriptors count: only with checksums.
    pub(super) fn is_lazy(&self) -> bool {
        self.volume.sb.has_group_checksums()
    }

    /// The error for a number that no group has.
    pub(super) fn no_group(&self, number: GroupNo) -> FsError {
        let groups = u64::from(self.volume.sb.groups);
        let place = Location::of("group").in_group(number);
        range("group", u64::from(number.get()), groups, place)
    }

    fn places(&self, number: GroupNo) -> Result<&Places, FsError> {
        self.places.get(index(number.get())).ok_or_else(|| self.no_group(number))
    }

    /// The block of a bitmap.
    pub(super) fn bitmap(&self, number: GroupNo, which: Bitmap) -> Result<BlockNo, FsError> {
        let places = self.places(number)?;
        Ok(match which {
            Bitmap::Blocks => places.block_bitmap,
            Bitmap::Inodes => places.inode_bitmap,
        })
    }

    /// The first block of a group's inode table.
    pub(super) fn table(&self, number: GroupNo) -> Result<BlockNo, FsError> {
        Ok(self.places(number)?.inode_table)
    }

    /// The group of an inode, and its place in the table.
    pub(super) fn slot(&self, ino: Ino) -> Result<(GroupNo, u32), FsError> {
        self.volume.sb.inode_slot(ino)
    }

    /// The number of an inode of a group.
    pub(super) fn ino_at(&self, number: GroupNo, slot: u32) -> Ino {
        debug_assert!(slot < self.volume.sb.inodes_per_group, "slot {slot} of a group");
        debug_assert!(number.get() < self.volume.sb.groups, "group {number}");
        let per_group = u64::from(self.volume.sb.inodes_per_group);
        let before = u64::from(number.get()) * per_group;
        let ino = before + u64::from(slot) + 1;
        Ino::new(u32::try_from(ino).unwrap_or(u32::MAX))
    }

    /// Where an inode lies: its block, and the byte in it.
    pub(super) fn inode_place(&self, ino: Ino) -> Result<(BlockNo, usize), FsError> {
        let (group, slot) = self.slot(ino)?;
        let bsize = u64::from(self.volume.sb.block_size);
        let byte = u64::from(slot) * u64::from(self.volume.sb.inode_size);
        let within = byte / bsize;
        let at = self.table(group)? + within;
        debug_assert!(
            byte % bsize + u64::from(self.volume.sb.inode_size) <= bsize,
            "an inode lies in one block"
        );
        Ok((at, index(byte % bsize)))
    }

    /// Checks that a run lies in the volume, and in no metadata.
    pub(super) fn check_data(&self, run: Extent, place: Location) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let outside = run.end().get() > sb.blocks || run.start < sb.first_block;
        debug_assert!(run.len > 0, "a run has blocks");
        let before = self.metadata.partition_point(|fixed| fixed.end() <= run.start);
        let meets = self.metadata.get(before).is_some_and(|fixed| fixed.overlaps(run));
        if outside || meets {
            return Err(range("block number", run.start.get(), sb.blocks, place));
        }
        Ok(())
    }

    /// Blocks of the volume's own metadata.
    pub(super) fn metadata_blocks(&self) -> u64 {
        self.metadata.iter().map(|run| run.len).sum()
    }

    /// The volume's own metadata in a run of blocks.
    pub(super) fn metadata_in(&self, run: Extent) -> impl Iterator<Item = Extent> {
        self.metadata.iter().copied().filter(move |fixed| fixed.overlaps(run))
    }
}

fn places(group: &Group) -> Places {
    Places {
        block_bitmap: group.block_bitmap(),
        inode_bitmap: group.inode_bitmap(),
        inode_table: group.inode_table(),
    }
}

/// The volume's own metadata, in order: superblocks, descriptors and the blocks reserved for more
/// of them, bitmaps, tables, and the `log`.
fn metadata(volume: &Volume, all: &[Group], mut log: Vec<Extent>) -> Vec<Extent> {
    let mut fixed: Vec<Extent> =
        all.iter().flat_map(|group| volume.descriptors().metadata(group)).collect();
    fixed.append(&mut log);
    fixed.retain(|run| run.len > 0);
    fixed.sort_unstable_by_key(|run| (run.start, run.len));
    fixed.dedup();
    fixed
}
