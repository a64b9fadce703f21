//! Features that some formats have and others lack.

use crate::core::Core;
use crate::delayed::BlockState;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::corrections::Correction;
use seekless_units::{Extent, GroupNo, Ino};

/// A feature that a format lacks: there is no value of this type.
#[derive(Clone, Copy, Debug)]
pub enum Absent {}

/// Contents that wait for their place. `M` is the format's own data of a file.
///
/// Functions fail as those of [`Format`](crate::Format) do.
pub trait DelayedAllocation<M> {
    /// Whether bytes that are to be written to a regular file can wait for their place where it has
    /// no blocks for them. Then it is ready for them: it may be as long, it has no contents in its
    /// inode, and the gap between its end and `offset` reads as zeros.
    ///
    /// # Errors
    /// [`FsError::TooLarge`]; [`FsError::NoSpace`].
    fn delays(
        &mut self,
        core: &mut Core<M>,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<bool, FsError>;

    /// The state of a block in a file's map, and the first block behind it for which that may
    /// differ.
    fn state_of(
        &mut self,
        core: &mut Core<M>,
        ino: Ino,
        lbn: u64,
    ) -> Result<(BlockState, u64), FsError>;

    /// Free blocks available to the current caller, including those reserved for delayed
    /// allocation.
    fn room(&self, core: &Core<M>) -> u64;

    /// Most blocks that a file's map grows by when this many more of its blocks, in this many runs,
    /// get a place.
    fn most_map_blocks(
        &mut self,
        core: &mut Core<M>,
        ino: Ino,
        runs: u64,
        blocks: u64,
    ) -> Result<u64, FsError>;

    /// Allocates blocks of a file where its map has a hole: the first of the blocks, as many as lie
    /// in one run, which is returned. The on-disk size goes as far
    /// ([`Node::record_up_to`](crate::Node::record_up_to)).
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; nothing has changed then.
    fn place(
        &mut self,
        core: &mut Core<M>,
        ino: Ino,
        lbn: u64,
        contents: &[Box<[u8]>],
    ) -> Result<Extent, FsError>;

    /// Writes the on-disk size of a file.
    fn put_size(&mut self, core: &mut Core<M>, ino: Ino) -> Result<(), FsError>;
}

/// Contents that are in the inode of a file and nowhere else.
///
/// Functions fail as those of [`Format`](crate::Format) do.
pub trait InlineData<M> {
    /// The contents of a regular file, if they are in its inode.
    fn contents_inside(&mut self, core: &mut Core<M>, ino: Ino)
    -> Result<Option<Vec<u8>>, FsError>;

    /// Whether a directory has its names in its inode. Such are only met under disciplines that do
    /// not order single writes.
    fn has_names_inside(&mut self, core: &mut Core<M>, dir: Ino) -> Result<bool, FsError>;

    /// The names of such a directory as one unit, which may be shorter than others. Room in it is
    /// found by [`Codec::fit`](crate::Codec::fit) alone, after
    /// [`Format::place_name`](crate::Format::place_name) has said that there is some; nothing in it
    /// is compacted.
    fn names_inside(&mut self, core: &mut Core<M>, dir: Ino) -> Result<Vec<u8>, FsError>;

    /// Writes such a unit into the inode.
    fn put_names_inside(
        &mut self,
        core: &mut Core<M>,
        dir: Ino,
        unit: &[u8],
    ) -> Result<(), FsError>;
}

/// A list on the disk of files that the mount after a crash has to delete or cut, in a format with
/// a journal: so a file is cut in several transactions. It is in use where there is a journal.
///
/// Functions fail as those of [`Format`](crate::Format) do.
pub trait OrphanList<M> {
    /// Puts a file in memory on the list, or takes it off (`is`). A file without links is on it
    /// until its last close, one with links while it is truncated. Clearing an inode takes it off
    /// as well.
    fn note_orphan(&mut self, core: &mut Core<M>, ino: Ino, is: bool) -> Result<(), FsError>;

    /// The files that a crash has left on the list, which are in memory then.
    fn orphans(&mut self, core: &mut Core<M>) -> Result<Vec<Ino>, FsError>;

    /// Frees a file's blocks behind a length, those with its end among them if that is later.
    fn cut_behind(&mut self, core: &mut Core<M>, ino: Ino, len: u64) -> Result<(), FsError>;

    /// The length to which the operation under way can truncate a file that is to have length
    /// `len`: `len`, or more.
    fn cut_at_once(&mut self, core: &mut Core<M>, ino: Ino, len: u64) -> Result<u64, FsError>;

    /// Most bytes of a file that one operation writes or allocates.
    fn piece(&self, core: &Core<M>) -> u64;
}

/// Recovery of a volume from a crash while it is in use: counts are hints until they are corrected.
/// A volume that keeps snapshots of itself can also be corrected after a check of one of these.
///
/// Functions fail as those of [`Format`](crate::Format) do.
pub trait Recovery<M> {
    /// Whether it was opened for that, and the recovery has not ended.
    fn is_under_way(&self) -> bool;

    /// Brings the counts of a group in line with its bitmaps, but for the number of directories,
    /// of which there are so many fewer.
    fn recount(
        &mut self,
        core: &mut Core<M>,
        group: GroupNo,
        surplus_directories: i64,
    ) -> Result<(), FsError>;

    /// Writes the number of sectors of a file in memory.
    fn put_sectors(&mut self, core: &mut Core<M>, ino: Ino) -> Result<(), FsError>;

    /// Whether a name may lead to an inode without links, and is none then: it shows nowhere until
    /// it is removed. By default, there are no such names.
    fn has_dead_names(&self) -> bool {
        false
    }

    /// Makes an inode that is marked as in use, and is not, one that was deleted. Returns the change
    /// that must be on the disk before it is marked as free. By default, nothing is to be done.
    fn clear_unused(&mut self, _core: &mut Core<M>, _ino: Ino) -> Result<ChangeId, FsError> {
        Ok(ChangeId::COMMITTED)
    }

    /// Ends it: the volume is sound, or must be checked when it is not in use.
    fn end(&mut self, sound: bool);

    /// Whether a check of a snapshot of the volume may correct it now. By default, it keeps no
    /// snapshots.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] if it keeps none; [`FsError::Refused`] while it is recovered from a
    /// crash, and once it must be checked when it is not in use.
    fn accept_check(&self) -> Result<(), FsError> {
        Err(FsError::Unsupported("corrections: it keeps no snapshots".into()))
    }

    /// Whether the inode, blocks or group of a correction exist. By default, they are believed.
    fn has(&self, correction: &Correction) -> bool {
        let _ = correction;
        true
    }

    /// The same for a check of a snapshot that was taken of a volume in use, whether it was opened to
    /// be recovered or not.
    fn end_check(&mut self, sound: bool) {
        self.end(sound);
    }
}

/// How far a volume has come with its recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is not recovered: it stays as clean as it was found.
    None,
    /// Not all of it has been checked.
    UnderWay,
    /// It is sound.
    Sound,
    /// Something in it can only be repaired when it is not in use.
    NeedsCheck,
}

impl Progress {
    /// Ends a recovery.
    pub fn end(&mut self, sound: bool) {
        debug_assert_ne!(*self, Self::None, "it was opened to be recovered");
        *self = if sound { Self::Sound } else { Self::NeedsCheck };
    }
}

impl<M> DelayedAllocation<M> for Absent {
    fn delays(&mut self, _: &mut Core<M>, _: Ino, _: u64, _: u64) -> Result<bool, FsError> {
        match *self {}
    }

    fn state_of(&mut self, _: &mut Core<M>, _: Ino, _: u64) -> Result<(BlockState, u64), FsError> {
        match *self {}
    }

    fn room(&self, _: &Core<M>) -> u64 {
        match *self {}
    }

    fn most_map_blocks(&mut self, _: &mut Core<M>, _: Ino, _: u64, _: u64) -> Result<u64, FsError> {
        match *self {}
    }

    fn place(
        &mut self,
        _: &mut Core<M>,
        _: Ino,
        _: u64,
        _: &[Box<[u8]>],
    ) -> Result<Extent, FsError> {
        match *self {}
    }

    fn put_size(&mut self, _: &mut Core<M>, _: Ino) -> Result<(), FsError> {
        match *self {}
    }
}

impl<M> InlineData<M> for Absent {
    fn contents_inside(&mut self, _: &mut Core<M>, _: Ino) -> Result<Option<Vec<u8>>, FsError> {
        match *self {}
    }

    fn has_names_inside(&mut self, _: &mut Core<M>, _: Ino) -> Result<bool, FsError> {
        match *self {}
    }

    fn names_inside(&mut self, _: &mut Core<M>, _: Ino) -> Result<Vec<u8>, FsError> {
        match *self {}
    }

    fn put_names_inside(&mut self, _: &mut Core<M>, _: Ino, _: &[u8]) -> Result<(), FsError> {
        match *self {}
    }
}

impl<M> OrphanList<M> for Absent {
    fn note_orphan(&mut self, _: &mut Core<M>, _: Ino, _: bool) -> Result<(), FsError> {
        match *self {}
    }

    fn orphans(&mut self, _: &mut Core<M>) -> Result<Vec<Ino>, FsError> {
        match *self {}
    }

    fn cut_behind(&mut self, _: &mut Core<M>, _: Ino, _: u64) -> Result<(), FsError> {
        match *self {}
    }

    fn cut_at_once(&mut self, _: &mut Core<M>, _: Ino, _: u64) -> Result<u64, FsError> {
        match *self {}
    }

    fn piece(&self, _: &Core<M>) -> u64 {
        match *self {}
    }
}

impl<M> Recovery<M> for Absent {
    fn is_under_way(&self) -> bool {
        match *self {}
    }

    fn recount(&mut self, _: &mut Core<M>, _: GroupNo, _: i64) -> Result<(), FsError> {
        match *self {}
    }

    fn put_sectors(&mut self, _: &mut Core<M>, _: Ino) -> Result<(), FsError> {
        match *self {}
    }

    fn end(&mut self, _: bool) {
        match *self {}
    }
}
