//! What a format says of a change: which bytes, what they mean, and what must
//! be on the disk before them.

use std::num::NonZeroU32;

/// What a change means to the format. The update discipline decides by it when
/// the change is written, never what it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Contents of a regular file or symlink.
    Data,
    /// Contents that take the place of others: of those that have moved, where
    /// the old place is given up, or of a hole. What was there must not be lost.
    DataMove,
    /// A new target of a symlink that has a block of its own and is looked at by a
    /// check.
    TargetInit,
    /// A new list of extended attributes.
    AttributesInit,
    /// A new inode.
    InodeInit,
    /// An inode without blocks made as good as unused.
    InodeClear,
    /// A block of inodes made ready before first use (UFS2).
    InodeBlockInit,
    /// An inode taken in a bitmap.
    InodeBitmapSet,
    /// An inode given back in a bitmap.
    InodeBitmapClear,
    /// Blocks taken in a bitmap.
    BitmapSet,
    /// Blocks given back in a bitmap.
    BitmapClear,
    /// A block number in an inode, with the size that goes with it.
    PointerSet,
    /// A length that goes before the block numbers behind the old one, which
    /// stand elsewhere.
    SizeExtend,
    /// A block number in an inode that takes the place of another, which is
    /// given up.
    PointerMove,
    /// A directory's end, and the block number if it has one more: names are
    /// lost that lie behind the end.
    DirectoryExtend,
    /// All block numbers taken out of an inode, with the size that goes with it.
    PointerClear,
    /// Some block numbers, or fragments of the last block, taken out of an inode,
    /// with the size that goes with it. Others stay, and with them what they wait
    /// for.
    PointerCut,
    /// A block number in an indirect block.
    IndirectSet,
    /// Block numbers taken out of an indirect block.
    IndirectClear,
    /// A new indirect block, empty.
    IndirectInit,
    /// A new block of a directory, with its first entries.
    DirectoryInit,
    /// A new name.
    EntryAdd,
    /// A new directory's name.
    EntryAddDirectory,
    /// A name that leads to another inode than before.
    EntryChange,
    /// A name less.
    EntryRemove,
    /// A number of links that is to come true before a name more is there.
    LinkCount,
    /// A number of links that follows a name less: until it is written it is too
    /// high, which harms nothing.
    LinkDrop,
    /// Times, mode, owner and the like.
    Attributes,
    /// Counts that can be made anew from the bitmaps; the superblock.
    Summary,
}

/// The kinds of dependency that are counted, by the names `vmstat -m` has for
/// them (the first thirteen of FreeBSD's `softdep.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Kind {
    /// Directory blocks with entries that wait.
    PageDep,
    /// Inodes that wait, or are waited for.
    InodeDep,
    /// Newly allocated blocks.
    NewBlk,
    /// Bitmaps that are waited for.
    BmSafeMap,
    /// Block numbers in inodes.
    AllocDirect,
    /// Indirect blocks with block numbers that wait.
    IndirDep,
    /// Block numbers in indirect blocks.
    AllocIndir,
    /// Fragments to be freed.
    FreeFrag,
    /// Blocks to be freed.
    FreeBlks,
    /// Inodes to be freed.
    FreeFile,
    /// New names.
    DirAdd,
    /// New directories.
    MkDir,
    /// Removed names.
    DirRem,
}

impl Kind {
    /// All of them, in the order of `vmstat -m`.
    pub const ALL: [Self; 13] = [
        Self::PageDep,
        Self::InodeDep,
        Self::NewBlk,
        Self::BmSafeMap,
        Self::AllocDirect,
        Self::IndirDep,
        Self::AllocIndir,
        Self::FreeFrag,
        Self::FreeBlks,
        Self::FreeFile,
        Self::DirAdd,
        Self::MkDir,
        Self::DirRem,
    ];

    /// The name `vmstat -m` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PageDep => "pagedep",
            Self::InodeDep => "inodedep",
            Self::NewBlk => "newblk",
            Self::BmSafeMap => "bmsafemap",
            Self::AllocDirect => "allocdirect",
            Self::IndirDep => "indirdep",
            Self::AllocIndir => "allocindir",
            Self::FreeFrag => "freefrag",
            Self::FreeBlks => "freeblks",
            Self::FreeFile => "freefile",
            Self::DirAdd => "diradd",
            Self::MkDir => "mkdir",
            Self::DirRem => "dirrem",
        }
    }
}

impl Role {
    /// How a change of this role is counted while it is in the graph.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Data
            | Self::DataMove
            | Self::TargetInit
            | Self::AttributesInit
            | Self::DirectoryInit => Kind::NewBlk,
            Self::InodeInit
            | Self::InodeClear
            | Self::InodeBlockInit
            | Self::LinkCount
            | Self::LinkDrop
            | Self::Attributes => Kind::InodeDep,
            Self::InodeBitmapSet
            | Self::InodeBitmapClear
            | Self::BitmapSet
            | Self::BitmapClear
            | Self::Summary => Kind::BmSafeMap,
            Self::PointerSet
            | Self::SizeExtend
            | Self::PointerMove
            | Self::DirectoryExtend
            | Self::PointerClear
            | Self::PointerCut => Kind::AllocDirect,
            Self::IndirectInit | Self::IndirectClear => Kind::IndirDep,
            Self::IndirectSet => Kind::AllocIndir,
            Self::EntryAdd => Kind::DirAdd,
            Self::EntryAddDirectory => Kind::MkDir,
            Self::EntryChange | Self::EntryRemove => Kind::PageDep,
        }
    }

    /// Whether it is what a file holds, which no format seals.
    pub(crate) const fn is_contents(self) -> bool {
        matches!(self, Self::Data | Self::DataMove | Self::TargetInit | Self::AttributesInit)
    }

    /// Whether it is what a file holds, which a journal need not log.
    pub(crate) const fn is_data(self) -> bool {
        matches!(self, Self::Data | Self::DataMove)
    }

    /// Whether it makes earlier changes void that lie wholly under it and have
    /// not been written.
    pub(crate) const fn makes_void(self) -> bool {
        matches!(self, Self::PointerClear | Self::InodeClear | Self::IndirectClear)
    }

    /// Whether BSD's kernels write it later under every discipline.
    pub(crate) const fn is_delayed_by_bsd(self) -> bool {
        matches!(
            self,
            Self::InodeBitmapSet
                | Self::InodeBitmapClear
                | Self::BitmapSet
                | Self::BitmapClear
                | Self::Attributes
                | Self::Summary
        )
    }

    /// Whether FreeBSD's ext2fs waited for it under every discipline.
    pub(crate) const fn is_waited_for_by_ext2fs(self) -> bool {
        matches!(
            self,
            Self::DirectoryInit
                | Self::EntryAdd
                | Self::EntryAddDirectory
                | Self::EntryChange
                | Self::EntryRemove
                | Self::IndirectInit
        )
    }

    /// How long a block first changed in this way may wait, as the syncer
    /// counts it: that of files, of directories or of inodes.
    #[must_use]
    pub const fn age(self) -> Age {
        match self {
            Self::Data | Self::DataMove | Self::TargetInit => Age::File,
            Self::DirectoryInit
            | Self::EntryAdd
            | Self::EntryAddDirectory
            | Self::EntryChange
            | Self::EntryRemove => Age::Directory,
            _ => Age::Inode,
        }
    }
}

/// Which of the syncer's delays a block is under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// Contents of files.
    File,
    /// Directories.
    Directory,
    /// Inodes, bitmaps, indirect blocks.
    Inode,
}

/// A change that was made. It can be waited for; one that is on the disk, or
/// that no order asks for, is [`ChangeId::COMMITTED`] or equals it in effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChangeId {
    pub(crate) slot: u32,
    /// `None`: on the disk.
    pub(crate) generation: Option<NonZeroU32>,
}

impl ChangeId {
    /// What nobody needs to wait for.
    pub const COMMITTED: Self = Self { slot: 0, generation: None };
}

/// Bytes to be put at a place.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The first byte, from the start of the place the change names.
    pub offset: u32,
    /// What shall stand there.
    pub bytes: &'a [u8],
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// To be waited for.
    pub id: ChangeId,
    /// It took the place of an earlier change to the same bytes, which will
    /// never be on the disk. Only where that was asked for.
    pub replaced: bool,
}
