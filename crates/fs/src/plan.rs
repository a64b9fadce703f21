//! A complete layout: every inode number and every extent.
//!
//! A format states its [`Demand`] (objects with inodes and runs of blocks) and its [`Space`] (inode
//! slots and free runs). A planner, which is independent of the format, answers with a [`Plan`].
//! The format then writes the image.
//!
//! Blocks are counted in the unit of allocation: clusters, if a format allocates several blocks at
//! once.

pub mod in_place;

use crate::FsError;
use seekless_device::BlockDevice;
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lbn};
use std::borrow::Cow;

/// An object with an inode, in the format's own numbering from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(u32);

impl ObjectId {
    /// Wraps an index.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Extra free space of a volume sized to its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spare {
    /// Absolute, in bytes.
    pub bytes: ByteLen,
    /// Relative to the volume, in hundredths of a percent.
    pub share: u32,
}

impl Spare {
    /// Number of blocks of this size in `bytes`, rounded up.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if the number exceeds that of any volume.
    pub fn blocks(self, block_size: u64) -> Result<u64, FsError> {
        const MOST: u64 = 1 << 48;
        let blocks = self.bytes.get().div_ceil(block_size.max(1));
        if blocks < MOST {
            return Ok(blocks);
        }
        Err(FsError::Invalid(format!("{} bytes of free space are too many", self.bytes)))
    }

    /// The share of a volume left for contents, in hundredths of a percent. `reserve` is in the
    /// same unit.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if less than 5% is left.
    pub fn left(self, reserve: u32) -> Result<u64, FsError> {
        const LEAST: u64 = 500;
        let left = 10_000u64.saturating_sub(u64::from(reserve) + u64::from(self.share));
        if left >= LEAST {
            return Ok(left);
        }
        Err(FsError::Invalid(
            "the free space and the reserve leave less than 5% of the volume for contents".into(),
        ))
    }
}

/// A run of an object's logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First logical block.
    pub lbn: Lbn,
    /// Blocks; never zero.
    pub len: u64,
}

impl Run {
    /// Places the runs so that no two are contiguous: the minimum number of extents if each run is
    /// contiguous but no neighbours are.
    #[must_use]
    pub fn apart(runs: &[Self]) -> Vec<Placed> {
        let mut start = 0;
        let place = |run: &Self| {
            let extent = Extent::new(BlockNo::new(start), run.len);
            start += run.len + 1;
            Placed { lbn: run.lbn, extent }
        };
        runs.iter().map(place).collect()
    }
}

/// A volume to be made with its contents, in the layout of a plan.
pub trait NewVolume {
    /// The objects to be placed. Their numbers are those of the source's nodes.
    fn demand(&self) -> &dyn Demand;

    /// The space available to them.
    fn space(&self) -> Space;

    /// Bytes of the unit of [`Space`] and [`Demand`].
    fn block_size(&self) -> u32;

    /// The length of the volume. A device to write it to has at least this length.
    fn size(&self) -> ByteLen;

    /// Files whose times lie outside the range of the format's; they get the nearest time inside.
    fn clamped_times(&self) -> usize;

    /// The other block touched with a run of an object's blocks, if two objects share one. By
    /// default, none do.
    fn shared_block(&self, _object: ObjectId, _run: Run) -> Option<(ObjectId, Run)> {
        None
    }

    /// The byte of the volume at which unit 0 of [`Space`] begins.
    fn origin(&self) -> ByteLen {
        ByteLen::ZERO
    }

    /// The objects that are not nodes of the source, by the paths that they have in the volume.
    fn added_paths(&self) -> Vec<(Cow<'_, [u8]>, ObjectId)> {
        Vec::new()
    }

    /// The objects that are not nodes of the source and continue files of older images without a
    /// path.
    fn older_files(&self) -> &[(ObjectId, OlderFile)] {
        &[]
    }

    /// Free ranges of bytes in units that are not free as a whole, in order: the start of each and
    /// its length.
    fn free_parts(&self) -> Vec<(ByteLen, ByteLen)> {
        Vec::new()
    }

    /// Writes the volume to a device that reads as zeros. `progress` is called with the number of
    /// bytes of every write, possibly from several threads.
    ///
    /// # Errors
    /// Errors of the source or the device. The device then contains no valid image.
    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError>;
}

/// The file of an older image that an object of a new volume continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OlderFile {
    /// Index of the image.
    pub image: usize,
    /// Its inode there.
    pub ino: Ino,
    /// Whether it keeps the blocks of its contents.
    pub keeps_blocks: bool,
}

/// An image to be laid out again, in a new image.
pub trait Rearrange {
    /// The objects to be placed.
    fn demand(&self) -> &dyn Demand;

    /// The space available to them.
    fn space(&self) -> Space;

    /// The object of an inode in the old image.
    fn object(&self, ino: Ino) -> Option<ObjectId>;

    /// Blocks that are allocated together.
    fn cluster_blocks(&self) -> u64;

    /// The length of the new image.
    fn size(&self) -> ByteLen;

    /// Writes the new image to a device that reads as zeros. `progress` is called with the number
    /// of bytes of every write, possibly from several threads.
    ///
    /// # Errors
    /// The errors of the old image and the device. The device then contains no valid image.
    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError>;
}

/// The objects to be placed.
pub trait Demand: Sync {
    /// Number of objects.
    fn objects(&self) -> usize;

    /// The inode number of the object, if the format fixes it.
    fn fixed_ino(&self, object: ObjectId) -> Option<Ino>;

    /// Whether the object is a directory.
    fn is_directory(&self, object: ObjectId) -> bool;

    /// Appends the logical runs that need blocks to `runs`, in order.
    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>);

    /// Blocks needed for the map itself if the data is placed as in `data` (sorted by logical
    /// block, neighbours joined), and for separate attributes.
    fn overhead_blocks(&self, object: ObjectId, data: &[Placed]) -> u64;

    /// How many of the overhead blocks contain attributes; they are the first ones.
    fn attribute_blocks(&self, _object: ObjectId) -> u64 {
        0
    }

    /// The object whose overhead has the attributes of `object`: another one where several share a
    /// block.
    fn attribute_owner(&self, object: ObjectId) -> Option<ObjectId> {
        (self.attribute_blocks(object) > 0).then_some(object)
    }

    /// Whether the object's blocks are placed already and must stay there (the journal, for
    /// example). Pinned objects have no part in the plan.
    fn is_pinned(&self, object: ObjectId) -> bool;

    /// All objects that are not pinned, in the order in which a walk of the tree reads their
    /// blocks, with directories listed in the format's order.
    fn walk_order(&self) -> Vec<ObjectId>;

    /// The same objects in the order in which such a walk accesses inodes.
    fn inode_order(&self) -> Vec<ObjectId>;

    /// The objects that a directory names, if the format lets them have other numbers than in an
    /// older volume.
    fn named_in(&self, _directory: ObjectId) -> Vec<ObjectId> {
        Vec::new()
    }

    /// The directory in which such a walk comes to a directory. `None` for the root, and for a
    /// directory without a name.
    fn parent(&self, _directory: ObjectId) -> Option<ObjectId> {
        None
    }
}

/// The space available for placement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Free inode numbers as (first, count), in order.
    pub inodes: Vec<(Ino, u32)>,
    /// Free runs of blocks, in order, not touching.
    pub free: Vec<Extent>,
    /// The inode tables, in order, so that inodes can be placed near the blocks of their files.
    pub tables: Vec<InodeTable>,
    /// Inodes in one block of an inode table.
    pub inodes_per_block: u32,
    /// Whether the volume counts the unused inodes at the end of each table, which are not read
    /// ahead (`bg_itable_unused` of ext4).
    pub counts_unused: bool,
}

impl Space {
    /// Inodes of a table before its first free one.
    #[must_use]
    pub fn used_before(&self, table: &InodeTable) -> u32 {
        let at = self.inodes.partition_point(|&(first, count)| first + count <= table.first);
        self.inodes.get(at).map_or(table.count, |&(first, _)| {
            if first <= table.first { 0 } else { (first - table.first).min(table.count) }
        })
    }
}

/// A group's inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeTable {
    /// First inode.
    pub first: Ino,
    /// Number of inodes.
    pub count: u32,
    /// The blocks of the table.
    pub blocks: Extent,
    /// The group's own blocks.
    pub group: Extent,
}

/// A run of an object's blocks with its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// First logical block.
    pub lbn: Lbn,
    /// Physical blocks.
    pub extent: Extent,
}

/// A layout: one inode number per object, and the locations of its blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// By object; 0 for pinned objects.
    pub inodes: Vec<Ino>,
    /// Data of object i: `data[data_start[i]..data_start[i + 1]]`, sorted by
    /// logical block, neighbours merged.
    pub data: Vec<Placed>,
    /// See `data`.
    pub data_start: Vec<u32>,
    /// Blocks for maps and attributes, likewise.
    pub overhead: Vec<Extent>,
    /// See `overhead`.
    pub overhead_start: Vec<u32>,
}

/// The layout of an older volume, to be kept where possible.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Base {
    /// The places that the objects of the new volume have in the older one; inode 0, and no blocks,
    /// for those that it does not have.
    pub plan: Plan,
    /// All blocks that files of the older volume use, sorted.
    pub used: Vec<Extent>,
    /// Where objects go that no hole holds: from this block on first. Without it, where they touch
    /// the fewest chunks.
    pub begin: Option<BlockNo>,
    /// Whether free blocks contain the bytes of the older volume. Else those that it used are filled
    /// first, since their chunks are new in any case.
    pub keeps_freed: bool,
    /// Gathers the inodes that differ between volumes with the same base: new objects take the
    /// first free numbers. In a volume without an older one, directories do, and other objects
    /// begin at a chunk of the inode table that leaves at least so many numbers before it free.
    pub inode_reserve: Option<u32>,
}

impl Plan {
    /// An object's data, in logical order.
    #[must_use]
    pub fn data(&self, object: ObjectId) -> &[Placed] {
        let at = object.index();
        &self.data[self.data_start[at] as usize..self.data_start[at + 1] as usize]
    }

    /// Whether it has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Adds the next object. `data` is sorted by logical block.
    pub fn push(
        &mut self,
        ino: Ino,
        data: impl IntoIterator<Item = Placed>,
        overhead: impl IntoIterator<Item = Extent>,
    ) {
        if self.is_empty() {
            self.data_start.push(0);
            self.overhead_start.push(0);
        }
        self.inodes.push(ino);
        self.data.extend(data);
        self.data_start.push(self.data.len() as u32);
        self.overhead.extend(overhead);
        self.overhead_start.push(self.overhead.len() as u32);
    }

    /// All extents of data, maps and attributes, sorted.
    #[must_use]
    pub fn extents(&self) -> Vec<Extent> {
        let data = self.data.iter().map(|placed| placed.extent);
        let mut extents: Vec<Extent> = data.chain(self.overhead.iter().copied()).collect();
        extents.sort_unstable();
        extents
    }

    /// The extents of an object's blocks for its map and attributes.
    #[must_use]
    pub fn overhead_extents(&self, object: ObjectId) -> &[Extent] {
        let at = object.index();
        &self.overhead[self.overhead_start[at] as usize..self.overhead_start[at + 1] as usize]
    }

    /// An object's blocks for its map and attributes, one by one.
    pub fn overhead(&self, object: ObjectId) -> impl Iterator<Item = BlockNo> + '_ {
        let extents = self.overhead_extents(object).iter();
        extents.flat_map(|run| (0..run.len).map(|n| run.start + n))
    }
}
