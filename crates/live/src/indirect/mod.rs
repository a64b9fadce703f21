//! Files that are mapped by twelve numbers in the inode and three trees of
//! indirect blocks: those of UFS, ext2 and ext3.
//!
//! A block of a file is one or several units of block numbers; only where it is
//! several can the last block of a short file be a part of one, its **tail**.
//!
//! - `geometry`: the way to a block; `map`: numbers looked up, entered and moved;
//! - `write`: blocks made or grown, bytes put in;
//! - `gather`: new blocks moved into one piece;
//! - `truncate`: files made shorter or longer; `cut`: the blocks that they lose;
//! - `runs`: where it lies.

mod cut;
mod gather;
mod geometry;
mod map;
mod runs;
mod truncate;
mod write;

pub use geometry::BlockPath;
pub use map::Path;

use crate::core::Core;
use crate::cut::Cut;
use crate::table::Table;
use cut::MapCut;
use geometry::MapGeometry;
use map::BlockMap;
use runs::MapWalk;
use seekless_cache::{ChangeId, Role};
use seekless_fs::{FsError, Mapping};
use seekless_units::{BlockNo, Extent, Ino};

/// Block numbers in the inode itself.
pub const DIRECT: usize = 12;

/// The block numbers in an inode; zero for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trees {
    /// Of the first blocks of the file.
    pub direct: [u64; DIRECT],
    /// Of the trees, which have one to three levels of indirect blocks.
    pub indirect: [u64; 3],
}

/// A format's data of a file, with the block numbers in its inode.
pub trait Mapped {
    /// The numbers.
    fn trees(&self) -> &Trees;
    /// The numbers, to be changed.
    fn trees_mut(&mut self) -> &mut Trees;
}

/// The purpose of a new block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose<W> {
    /// Contents, at the place that the policy was asked for.
    Data(W),
    /// An indirect block, this many levels above contents.
    Indirect(u32),
}

/// Bytes in a block of a file, and in the unit of block numbers, of which a block has one or
/// several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Bytes in a block of a file.
    pub block: u32,
    /// Bytes in a unit; divides `block`.
    pub unit: u32,
}

/// The maps of files that are mapped in this way, and the space that they take. As with
/// [`Format`](crate::Format), inodes given by number are in memory.
pub trait Indirect {
    /// A format's own data of a file.
    type Map: Mapped;
    /// The inodes that the block numbers stand in.
    type Table: Table<Map = Self::Map>;
    /// The place that a policy is asked for, for a block of contents.
    type Wanted: Copy;

    /// The inodes that the block numbers stand in.
    fn table(&self) -> &Self::Table;

    /// Bytes in a block of a file, and in the unit of block numbers.
    fn units(&self) -> Units;

    /// Bytes of a block number in an indirect block.
    fn pointer_width(&self) -> usize;

    /// The block number at a byte of an indirect block.
    fn pointer_at(&self, bytes: &[u8], at: usize) -> u64;

    /// Puts a block number into the first bytes of some.
    fn put_pointer(&self, bytes: &mut [u8; 8], number: u64);

    /// Whether the last block of a file may be a hole. By default it is none: a check of
    /// FFS cuts such a file to the last block it has.
    fn may_end_in_hole(&self) -> bool {
        false
    }

    /// Most bytes of a file, as far as the map does not limit it.
    fn max_size(&self) -> u64;

    /// Units of the volume.
    fn volume(&self) -> u64;

    /// Checks a block number from the disk: the run of `units` units lies in the volume, in one
    /// block, and in no metadata.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn check_run(&self, ino: Ino, number: u64, units: u32) -> Result<BlockNo, FsError>;

    /// Where the policy would like a block of contents, by the blocks in front of it in its map.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn wanted(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
    ) -> Result<Self::Wanted, FsError>;

    /// Takes a run of `count` units in one block.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn take(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
        count: u32,
        purpose: Purpose<Self::Wanted>,
    ) -> Result<(BlockNo, ChangeId), FsError>;

    /// As [`Indirect::take`], for a tail that cannot grow where it lies.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn take_larger(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
        count: u32,
        wanted: Self::Wanted,
    ) -> Result<(BlockNo, ChangeId), FsError>;

    /// Gives runs back.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn give(&mut self, core: &mut Core<Self::Map>, runs: &[Extent]) -> Result<(), FsError>;

    /// Lets a run grow where it lies from `old` to `new` units, if it can.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn extend(
        &mut self,
        core: &mut Core<Self::Map>,
        at: BlockNo,
        old: u32,
        new: u32,
    ) -> Result<Option<ChangeId>, FsError>;

    /// A new block of a regular file lies at `at`: as many blocks of its end, it
    /// among them, shall be moved into one piece if none of them is on the disk.
    /// None, if fewer than two.
    fn gathers(&self, wanted: Self::Wanted, at: BlockNo) -> u32;

    /// Takes as many whole blocks in one piece as there are in `blocks`, which hold
    /// the last blocks of a file up to `lbn`; `None` where that does not pay, or
    /// there is no such piece.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn take_cluster(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
        blocks: &[BlockNo],
    ) -> Result<Option<(Extent, ChangeId)>, FsError>;
}

/// The files of such maps. All functions fail as those of [`Format`](crate::Format) do; those
/// that take space with [`FsError::NoSpace`] when there is none, and those that lengthen a file
/// with [`FsError::TooLarge`] beyond the length that can be mapped.
pub struct Files<'a, F: Indirect> {
    maps: &'a mut F,
    core: &'a mut Core<F::Map>,
    geometry: MapGeometry,
}

impl<'a, F: Indirect> Files<'a, F> {
    /// The files of a volume that is in use.
    pub fn of(maps: &'a mut F, core: &'a mut Core<F::Map>) -> Self {
        let geometry = MapGeometry::of(maps);
        Self { maps, core, geometry }
    }

    /// The way to a block, if the format can map it.
    #[must_use]
    pub fn way(&self, lbn: u64) -> Option<BlockPath> {
        self.geometry.way(lbn)
    }

    /// Where a block of a file begins; `None` for a hole.
    pub fn lookup_block(&mut self, ino: Ino, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        self.map().lookup(ino, lbn)
    }

    /// The runs of a regular file's contents, counted in fragments.
    pub fn mapped_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        MapWalk::new(self.maps, self.core).contents(ino)
    }

    /// The runs that hold a file: contents and indirect blocks.
    pub fn runs_of(&mut self, ino: Ino) -> Result<Vec<Extent>, FsError> {
        MapWalk::new(self.maps, self.core).everything(ino)
    }

    /// A fragment of a file, as far as its map is in the cache, that is not on the
    /// disk and in none of some runs: there should be none. Nothing is read for
    /// it, so that builds which check do the same as those which do not.
    pub fn unnoted(maps: &F, core: &Core<F::Map>, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        runs::unnoted(maps, core, ino, noted)
    }

    /// All runs of a file: its contents and indirect blocks.
    pub fn all_blocks(&mut self, ino: Ino) -> Result<Cut, FsError> {
        MapCut::new(self.maps, self.core, ino).everything()
    }

    /// The map of a file.
    fn map(&mut self) -> BlockMap<'_, F> {
        BlockMap::new(self.maps, self.core)
    }

    /// Writes size, sectors and block numbers.
    fn put_blocks(
        &mut self,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        self.map().put_blocks(ino, role, after)
    }
}
