//! Faults made by hand: the engine without one of the rules it keeps, each by a
//! name. Tests of the search for crash states want every one of them found;
//! nothing else can switch one on.

/// A rule that is not kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// A name does not wait for its inode.
    EntryBeforeInode,
    /// A directory's name does not wait for the link of its `..`.
    EntryBeforeParentLink,
    /// A number in an inode does not wait for the bitmap.
    PointerBeforeBitmap,
    /// A number in an inode does not wait for the contents.
    PointerBeforeContents,
    /// A number in an indirect block does not wait for the contents.
    IndirectBeforeContents,
    /// A number in an indirect block does not wait for the length.
    IndirectBeforeLength,
    /// The data of a block are taken, and its number put down, before those of
    /// the indirect block that leads there are on the disk.
    IndirectBeforeInit,
    /// Fragments are given back before the number is gone that leads there.
    ReuseBeforeClear,
    /// The old place of a tail that moved is given back before the inode leads to
    /// the new one.
    ReuseBeforeMove,
    /// A directory's inode leads to its new place before the names may be seen that
    /// were copied there.
    MoveBeforeNames,
    /// A name that is taken from the new place of a directory counts as gone while the
    /// inode still leads to the old one.
    GoneBeforeMove,
    /// An inode is given back before it is cleared.
    InodeReusedEarly,
    /// A length becomes shorter before the numbers past it are gone from indirect
    /// blocks.
    PartialCut,
    /// A number of links falls before the name is gone.
    LinksEarly,
    /// The old name of a file goes whether the new one is there or not.
    RenameLosesBoth,
    /// A file's old name goes whether its new directory can be reached or not.
    RenameIntoTheUnreached,
    /// A directory moves below one that may still be below itself.
    RenameIntoALoop,
    /// Of two names in one directory the one that stays may come second.
    RenameOverOutOfPlace,
    /// A directory that still has a name elsewhere takes the name of another.
    RenameOverWithOlderNames,
    /// `..` turns to the new parent only after the directory has taken the name of
    /// another there.
    TurnAfterRenameOver,
    /// A name is there again before the older entry is gone.
    NameTwice,
    /// An fsync leaves out the file's contents.
    FsyncWithoutContents,
    /// An fsync leaves out the names above the file.
    FsyncWithoutNames,
    /// An fsync leaves out older names of directories.
    FsyncWithOlderNames,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::EntryBeforeInode,
        Self::EntryBeforeParentLink,
        Self::PointerBeforeBitmap,
        Self::PointerBeforeContents,
        Self::IndirectBeforeContents,
        Self::IndirectBeforeLength,
        Self::IndirectBeforeInit,
        Self::ReuseBeforeClear,
        Self::ReuseBeforeMove,
        Self::MoveBeforeNames,
        Self::GoneBeforeMove,
        Self::InodeReusedEarly,
        Self::PartialCut,
        Self::LinksEarly,
        Self::RenameLosesBoth,
        Self::RenameIntoTheUnreached,
        Self::RenameIntoALoop,
        Self::RenameOverOutOfPlace,
        Self::RenameOverWithOlderNames,
        Self::TurnAfterRenameOver,
        Self::NameTwice,
        Self::FsyncWithoutContents,
        Self::FsyncWithoutNames,
        Self::FsyncWithOlderNames,
    ];
}
