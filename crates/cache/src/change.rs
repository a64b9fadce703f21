//! A format's description of a change: its bytes, their meaning, and the changes that must be on
//! the disk before it.

use std::num::NonZeroU32;

/// The meaning of a change to the format. The update discipline decides by it when the change is
/// written, never its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Contents of a regular file or symlink.
    Data,
    /// Contents that replace others: those that have moved, where the old place is given up, or a
    /// hole. The replaced contents must not be lost.
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
    TableInit,
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
    /// Some block numbers, or fragments of the last block, taken out of an inode, with the size
    /// that goes with it. Others stay, and so do the changes they wait for.
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
    /// Counts that can be rebuilt from the bitmaps; the superblock.
    Summary,
}

/// The kinds of dependency that are counted: of changes that wait or are waited for, and of
/// actions that wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Kind {
    /// Directory blocks with entries that wait.
    Directory,
    /// Inodes that wait, or are waited for.
    Inode,
    /// Newly allocated blocks.
    NewBlock,
    /// Bitmaps that are waited for.
    Bitmap,
    /// Block numbers in inodes.
    Pointer,
    /// Indirect blocks with block numbers that wait.
    IndirectBlock,
    /// Block numbers in indirect blocks.
    IndirectPointer,
    /// Fragments to be freed.
    FreeFragments,
    /// Blocks to be freed.
    FreeBlocks,
    /// Inodes to be freed.
    FreeInode,
    /// New names.
    NameAdded,
    /// New directories.
    DirectoryMade,
    /// Removed names.
    NameRemoved,
}

impl Kind {
    /// All of them: `Kind as usize` is the place of one.
    pub const ALL: [Self; 13] = [
        Self::Directory,
        Self::Inode,
        Self::NewBlock,
        Self::Bitmap,
        Self::Pointer,
        Self::IndirectBlock,
        Self::IndirectPointer,
        Self::FreeFragments,
        Self::FreeBlocks,
        Self::FreeInode,
        Self::NameAdded,
        Self::DirectoryMade,
        Self::NameRemoved,
    ];
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
            | Self::DirectoryInit => Kind::NewBlock,
            Self::InodeInit
            | Self::InodeClear
            | Self::TableInit
            | Self::LinkCount
            | Self::LinkDrop
            | Self::Attributes => Kind::Inode,
            Self::InodeBitmapSet
            | Self::InodeBitmapClear
            | Self::BitmapSet
            | Self::BitmapClear
            | Self::Summary => Kind::Bitmap,
            Self::PointerSet
            | Self::SizeExtend
            | Self::PointerMove
            | Self::DirectoryExtend
            | Self::PointerClear
            | Self::PointerCut => Kind::Pointer,
            Self::IndirectInit | Self::IndirectClear => Kind::IndirectBlock,
            Self::IndirectSet => Kind::IndirectPointer,
            Self::EntryAdd => Kind::NameAdded,
            Self::EntryAddDirectory => Kind::DirectoryMade,
            Self::EntryChange | Self::EntryRemove => Kind::Directory,
        }
    }

    /// Whether it is contents of a file, which no format seals.
    pub(crate) const fn is_contents(self) -> bool {
        matches!(self, Self::Data | Self::DataMove | Self::TargetInit | Self::AttributesInit)
    }

    /// Whether it is contents of a file, which a journal need not log.
    pub(crate) const fn is_data(self) -> bool {
        matches!(self, Self::Data | Self::DataMove)
    }

    /// Whether it makes earlier changes void that lie wholly under it and have
    /// not been written.
    pub(crate) const fn makes_void(self) -> bool {
        matches!(self, Self::PointerClear | Self::InodeClear | Self::IndirectClear)
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

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Roles(u32);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// Those of a list.
    #[must_use]
    pub const fn of(list: &[Role]) -> Self {
        const { assert!((Role::Summary as u32) < u32::BITS, "each role has a bit") };
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Those of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a role is among them.
    #[must_use]
    pub const fn contain(self, role: Role) -> bool {
        self.0 >> role as u32 & 1 != 0
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
    /// A change that needs no waiting.
    pub const COMMITTED: Self = Self { slot: 0, generation: None };
}

/// Bytes to be put at a place.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The first byte, from the start of the place the change names.
    pub offset: u32,
    /// The new bytes.
    pub bytes: &'a [u8],
}

/// The outcome of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// To be waited for.
    pub id: ChangeId,
    /// It took the place of an earlier change to the same bytes, which will
    /// never be on the disk. Only where that was asked for.
    pub replaced: bool,
}
