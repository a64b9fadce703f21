//! What a format has to say for the operations to work on it.
//!
//! A format knows bytes: how an inode, a directory entry and a map of blocks
//! stand on the disk, what is free, and in which order its checker needs to find
//! them. It makes changes in the cache and returns what others may have to wait
//! for. It knows nothing of names as trees of directories, of who holds a file, of
//! renaming or of `fsync`.

use crate::core::Core;
use crate::naming::Names;
use crate::node::Node;
use crate::removal::Cut;
use crate::write_back::Stand;
use seekless_cache::{ChangeId, Config, Role};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::operate::{NewFile, SetAttr, Space, XattrMode};
use seekless_fs::{FileKind, FsError, Location, Mapping, Timestamp, Xattr};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::sync::Arc;

/// Changes that must all be on the disk for something to be.
pub type Ids = SmallVec<[ChangeId; 3]>;

/// What must hold on the disk between inodes and the names that lead to them, so
/// that a check repairs what a crash leaves without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOrder {
    /// An inode has at least as many links as there are names that lead to it; one
    /// that is in use without a name gets one (`fsck_ffs -p`).
    LinksFirst,
    /// An inode with links has a name; a name of an inode without links is taken
    /// away, and links are counted (`e2fsck -p`).
    LinksLast,
}

/// What holds for a volume as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The root directory.
    pub root: Ino,
    /// Inode numbers are below this.
    pub inodes: u32,
    /// Bytes in a block of a file.
    pub block: u32,
    /// Bytes in the unit of block numbers; divides `block`.
    pub unit: u32,
    /// Longest name, in bytes.
    pub name_max: usize,
    /// Most names of a file.
    pub link_max: u16,
    /// Longest target of a symlink, in bytes.
    pub target_max: usize,
    /// Most bytes of a directory.
    pub dir_max: u64,
    /// Bytes that no directory entry crosses a multiple of, and that a directory's
    /// length is a multiple of.
    pub dir_unit: usize,
    /// What a check needs of inodes and names.
    pub names: NameOrder,
    /// Directories are given other names even where a check could not follow by
    /// itself, had a crash come in between.
    pub moves_dirs: bool,
}

impl Limits {
    /// Units of block numbers that bytes take.
    #[must_use]
    pub fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.unit).max(1))).unwrap_or(u32::MAX)
    }
}

/// A directory entry, used or not.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Where it begins in its unit, in bytes.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// Bytes that it needs of them; none if it is not used.
    pub needed: usize,
    /// The inode: zero where the entry is not used.
    pub ino: Ino,
    /// What the inode is, as the format records it.
    pub kind: u8,
    /// Whether it is a name for all who look.
    pub is_name: bool,
    /// The name; empty where the entry is not used.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Whether it leads anywhere.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ino != Ino::ZERO
    }

    /// Bytes behind what it needs.
    #[must_use]
    pub fn slack(&self) -> usize {
        self.len.saturating_sub(self.needed)
    }
}

/// Where an entry fits in a unit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Where it may begin.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// The entry it is taken from, which becomes as short as it can be.
    pub behind: Option<usize>,
}

/// What was moved in a unit so that an entry fits.
#[derive(Debug)]
pub struct Compacted<'a> {
    /// Where the entry may begin.
    pub at: usize,
    /// Bytes up to the next one.
    pub len: usize,
    /// The bytes of the unit that may have changed, the entry's among them.
    pub changed: std::ops::Range<usize>,
    /// The names that were moved, and where each begins now.
    pub moved: SmallVec<[(&'a [u8], usize); 16]>,
}

/// How the entries of linear directories stand in their units: the number of the
/// inode, the bytes up to the next entry, the kind, the name.
pub trait Codec {
    /// Where the number of the inode stands in an entry.
    const INO: usize;
    /// Where the bytes up to the next entry stand, which are two.
    const LEN: usize;
    /// Where the kind stands, which is one byte.
    const KIND: usize;

    /// The entries of a unit, up to the first that is wrong. `place` is the unit's.
    fn entries<'a>(
        &self,
        unit: &'a [u8],
        place: Location,
    ) -> impl Iterator<Item = Result<Entry<'a>, FsError>>;

    /// Bytes that an entry with a name of so many bytes takes.
    fn needed(name_len: usize) -> usize;

    /// The kind that a code stands for.
    fn kind_of(code: u8) -> Option<FileKind>;

    /// The code of a kind.
    fn code_of(&self, kind: FileKind) -> u8;

    /// The longest entry that can get a place in a unit, others moved if need be.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn room(&self, unit: &[u8], place: Location) -> Result<usize, FsError> {
        self.entries(unit, place)
            .try_fold(unit.len(), |left, entry| Ok(left.saturating_sub(entry?.needed)))
    }

    /// Where an entry fits without moving others: at an unused one, or behind
    /// what another needs. `None` when only [`Codec::compact`] helps.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn fit(&self, unit: &[u8], place: Location, needed: usize) -> Result<Option<Room>, FsError> {
        let mut loose = None;
        for entry in self.entries(unit, place) {
            let entry = entry?;
            if !entry.is_used() && entry.len >= needed {
                return Ok(Some(Room { at: entry.at, len: entry.len, behind: None }));
            }
            if loose.is_none() && entry.is_used() && entry.slack() >= needed {
                let at = entry.at.saturating_add(entry.needed);
                loose = Some(Room { at, len: entry.slack(), behind: Some(entry.at) });
            }
        }
        Ok(loose)
    }

    /// Moves the used entries of a unit, which was `old`, to its start.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn compact<'a>(
        &self,
        old: &'a [u8],
        unit: &mut [u8],
        place: Location,
        _needed: usize,
    ) -> Result<Compacted<'a>, FsError> {
        unit.fill(0);
        let mut at = 0usize;
        let mut moved = SmallVec::new();
        for entry in self.entries(old, place) {
            let entry = entry?;
            if !entry.is_used() {
                continue;
            }
            let len = entry.needed;
            self.put(unit, &Entry { at, len, ..entry });
            moved.push((entry.name, at));
            at = at.saturating_add(len);
        }
        let len = unit.len().saturating_sub(at);
        Ok(Compacted { at, len, changed: 0..unit.len(), moved })
    }

    /// The bytes of a unit around one of them that have a chain of entries of their
    /// own, and are written together or not at all: none, where there are no such.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn chain_at(
        &self,
        unit: &[u8],
        _place: Location,
        _at: usize,
    ) -> Result<std::ops::Range<usize>, FsError> {
        Ok(0..unit.len())
    }

    /// Fills a unit with entries that are not used.
    fn blank(&self, unit: &mut [u8]) {
        unit.fill(0);
        self.put_len(unit, 0, unit.len());
    }

    /// Writes an entry at its place in a unit, and zeros behind its name as far as
    /// it reaches.
    fn put(&self, unit: &mut [u8], entry: &Entry<'_>);

    /// Sets the bytes up to the next entry of the one at byte `at` of a unit.
    fn put_len(&self, unit: &mut [u8], at: usize, len: usize);

    /// The number of an inode as it stands in an entry.
    fn ino_bytes(&self, ino: Ino) -> [u8; 4];
}

/// Where a name goes in a directory, and what was changed so that it can.
#[derive(Clone, Debug, Default)]
pub struct NamePlace {
    /// The unit, which has room for it; `None` where any unit with room will do.
    pub unit: Option<u64>,
    /// Units with names that lie elsewhere than before; new ones are among them.
    pub rewritten: SmallVec<[u64; 4]>,
    /// What must be on the disk for new units to be reached.
    pub reached: Ids,
}

/// What a new inode's contents are, and what they wait for.
#[derive(Default)]
pub struct Contents {
    /// Where they lie, if they have a place of their own.
    pub run: Option<Extent>,
    /// What the inode must not be on the disk before.
    pub after: Ids,
}

/// A format whose images can be changed while they are in use.
///
/// Every function may fail with [`FsError::Device`], and with
/// [`FsError::Corrupt`] where the image contradicts its format; further errors are
/// named. Inodes given by number are in memory, unless it says otherwise.
pub trait Format: Send + Sized {
    /// What it knows of a file besides what every format does: where its blocks
    /// are.
    type Map: Clone + std::fmt::Debug + Default + Send;
    /// How it is opened.
    type Options;
    /// How its files get their names.
    type Names: Names<Self>;

    // The volume.

    /// Opens an image, and changes nothing of it.
    ///
    /// # Errors
    /// As [`Live::open`](crate::Live::open).
    fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: Self::Options,
    ) -> Result<(Self, Core<Self::Map>), FsError>;

    /// What holds for the volume.
    fn limits(&self) -> &Limits;

    /// Writes to the device that the image is in use, or, to `close` it, that it
    /// is as clean as it was found.
    fn mark(&mut self, core: &mut Core<Self::Map>, close: bool) -> Result<(), FsError>;

    /// Writes to the device that an error has made changes impossible, for the next check
    /// to look at all of the volume. Nothing else is written any more. By default,
    /// nothing: a volume in use is not clean anyway.
    ///
    /// # Errors
    /// As [`Live::open`](crate::Live::open).
    fn note_failure(
        &mut self,
        _core: &mut Core<Self::Map>,
        _error: &FsError,
    ) -> Result<(), FsError> {
        Ok(())
    }

    /// Brings counts that follow from others up to date in the cache.
    fn put_summaries(&mut self, core: &mut Core<Self::Map>) -> Result<(), FsError>;

    /// Whether names that differ in case alone are the same. By default, they are not.
    fn ignores_case(&self) -> bool {
        false
    }

    /// What `statvfs(3)` tells.
    fn space(&self, core: &Core<Self::Map>) -> Space;

    // Inodes.

    /// An inode that is in use, from its bytes; it need not be in memory.
    ///
    /// # Errors
    /// [`FsError::NotFound`] when it is not in use.
    fn load(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Node<Self::Map>, FsError>;

    /// Writes times, mode, owner and the like, for which nothing waits.
    fn put_attributes(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<(), FsError>;

    /// The flags of an inode as `FS_IOC_GETFLAGS` has them.
    fn shown_flags(&self, node: &Node<Self::Map>) -> u32;

    /// The sectors of 512 bytes that a file is said to hold (`st_blocks`). By default,
    /// those that it holds.
    fn shown_sectors(&self, node: &Node<Self::Map>) -> u64 {
        node.sectors
    }

    /// What is set of the attributes that are to be set: what the format cannot keep is
    /// left out or refused. By default, all.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`].
    fn accepted(&self, _node: &Node<Self::Map>, set: &SetAttr) -> Result<SetAttr, FsError> {
        Ok(*set)
    }

    /// A time as the format can keep it.
    fn representable(&self, time: Timestamp) -> Timestamp;

    /// Where a name goes that is about to be added to a directory, for which it may
    /// be changed. By default, anywhere.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn place_name(
        &mut self,
        _core: &mut Core<Self::Map>,
        _dir: Ino,
        _name: &[u8],
    ) -> Result<NamePlace, FsError> {
        Ok(NamePlace::default())
    }

    /// Hears that nobody holds a file any more that was held. What is kept in memory so that
    /// it can grow in one place may go.
    fn released(&mut self, _ino: Ino) {}

    /// Hears that the file system is about to be closed, before the last changes are written.
    fn closing(&mut self) {}

    /// Notes on the disk, for who mounts it after a crash, that a file in memory goes
    /// once nobody holds it, or, with links, is being cut to its length; or that this
    /// is over. A file made as good as unused is off the list by that. Only asked for
    /// where there is a journal; by default there is no such list.
    fn note_orphan(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
        _is: bool,
    ) -> Result<(), FsError> {
        Ok(())
    }

    /// The files that a crash has left on the list, which are in memory then.
    fn orphans(&mut self, _core: &mut Core<Self::Map>) -> Result<Vec<Ino>, FsError> {
        Ok(Vec::new())
    }

    /// Gives back what a file has behind a length, its end among it if that is later.
    fn cut_behind(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        len: u64,
    ) -> Result<(), FsError> {
        if len < core.node(ino)?.size { self.truncate(core, ino, len) } else { Ok(()) }
    }

    /// How far the operation under way can cut a file that is to have a length: to
    /// that, or less far. Only asked for where there is a journal.
    fn cut_at_once(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
        len: u64,
    ) -> Result<u64, FsError> {
        Ok(len)
    }

    /// Bytes of a file that one operation writes or allocates at most. Only asked for
    /// where there is a journal.
    fn piece(&self, _core: &Core<Self::Map>) -> u64 {
        u64::MAX
    }

    /// Whether a directory may have more in it than links can count: it has one link
    /// from then on, whatever comes and goes (ext4's `dir_nlink`). By default, no.
    fn goes_uncounted(&self, _node: &Node<Self::Map>) -> bool {
        false
    }

    // What files hold.

    /// The contents of a file, if they are in its inode and nowhere else. By default,
    /// no file has them there.
    fn contents_inside(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
    ) -> Result<Option<Vec<u8>>, FsError> {
        Ok(None)
    }

    /// Whether a directory has its names in its inode and nowhere else. By default, none
    /// has. Such are only met under disciplines that do not order single writes.
    fn has_names_inside(
        &mut self,
        _core: &mut Core<Self::Map>,
        _dir: Ino,
    ) -> Result<bool, FsError> {
        Ok(false)
    }

    /// The names of such a directory as one unit, which may be shorter than others. Room
    /// in it is found by [`Codec::fit`] alone, after [`Format::place_name`] has said that
    /// there is some; nothing in it is compacted.
    fn names_inside(&mut self, _core: &mut Core<Self::Map>, dir: Ino) -> Result<Vec<u8>, FsError> {
        debug_assert!(false, "directory {dir} has its names in blocks");
        Err(crate::node::gone(dir))
    }

    /// Writes such a unit into the inode.
    fn put_names_inside(
        &mut self,
        _core: &mut Core<Self::Map>,
        dir: Ino,
        _unit: &[u8],
    ) -> Result<(), FsError> {
        debug_assert!(false, "directory {dir} has its names in blocks");
        Err(crate::node::gone(dir))
    }

    /// Where a block of a file begins; `None` for a hole.
    fn lookup_block(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError>;

    /// Writes bytes, as many as there is space for. The number is returned.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when there is none at all; [`FsError::TooLarge`].
    fn write_bytes(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError>;

    // Contents that wait for their place (delayed allocation).

    /// Whether bytes that are to be written to a regular file can wait for their place
    /// where it has no blocks for them. Then it is ready for them: it may be as long, it has no
    /// contents in its inode, and what lies between its end and `offset` reads as zeros.
    /// By default, nothing waits, and nothing else of this is asked for.
    ///
    /// # Errors
    /// [`FsError::TooLarge`]; [`FsError::NoSpace`].
    fn delays(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
        _offset: u64,
        _len: u64,
    ) -> Result<bool, FsError> {
        Ok(false)
    }

    /// What a file's map says of a block, and the first block behind it for which that may
    /// be otherwise.
    fn stand_of(
        &mut self,
        _core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
    ) -> Result<(Stand, u64), FsError> {
        debug_assert!(false, "nothing of inode {ino} waits");
        Ok((Stand::Written, lbn.saturating_add(1)))
    }

    /// Blocks that who changes something now may take, those that are reserved for
    /// contents which wait among them.
    fn room(&self, _core: &Core<Self::Map>) -> u64 {
        0
    }

    /// Blocks that a file's map grows by at most when so many more of its blocks, in so many
    /// runs, get a place.
    fn most_map_blocks(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
        _runs: u64,
        _blocks: u64,
    ) -> Result<u64, FsError> {
        Ok(0)
    }

    /// Gives contents of a file a place where its map has a hole: the first of the blocks,
    /// as many as lie in one run, which is returned. The length that the disk is told of
    /// goes as far ([`Node::record_up_to`]).
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; nothing has changed then.
    fn place(
        &mut self,
        _core: &mut Core<Self::Map>,
        ino: Ino,
        _lbn: u64,
        _contents: &[Box<[u8]>],
    ) -> Result<Extent, FsError> {
        debug_assert!(false, "nothing of inode {ino} waits");
        Err(crate::node::gone(ino))
    }

    /// Writes the length of a file, as far as the disk is told of it.
    fn put_size(&mut self, _core: &mut Core<Self::Map>, ino: Ino) -> Result<(), FsError> {
        debug_assert!(false, "nothing of inode {ino} waits");
        Ok(())
    }

    /// Gives a file another length.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; [`FsError::TooLarge`].
    fn truncate(&mut self, core: &mut Core<Self::Map>, ino: Ino, len: u64) -> Result<(), FsError>;

    /// Sees that a range has blocks, which read as zeros where there was none. On
    /// failure the file is as long as before.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; [`FsError::TooLarge`].
    fn allocate_range(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        from: u64,
        to: Option<u64>,
        keep_size: bool,
    ) -> Result<(), FsError>;

    /// All runs of a file: its contents, what maps them, its attributes.
    fn everything(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Cut, FsError>;

    /// Gives runs back.
    fn free_runs(&mut self, core: &mut Core<Self::Map>, runs: &[Extent]) -> Result<(), FsError>;

    /// The runs that hold a file's contents and what maps them.
    fn runs_of(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Vec<Extent>, FsError>;

    /// The runs that hold a file's attributes.
    fn attribute_runs(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
    ) -> Result<Vec<Extent>, FsError>;

    /// The runs of a file's contents, counted in units of block numbers.
    fn mapped_runs(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
    ) -> Result<Vec<Mapping>, FsError>;

    /// A unit of a file, as far as its map is in the cache, that is not on the disk
    /// and in none of some runs: there should be none. Nothing may be read for it,
    /// so that builds which check do the same as those which do not.
    fn unnoted(&self, core: &Core<Self::Map>, ino: Ino, noted: &[Extent]) -> Option<BlockNo>;

    // Extended attributes.

    /// A file's attributes.
    fn xattrs(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Vec<Xattr>, FsError>;

    /// Sets or, without a value, removes an attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoAttribute`], [`FsError::NoSpace`],
    /// [`FsError::Unsupported`].
    fn set_xattr(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError>;
}

/// A format with inodes that lie in tables, to which names in directories lead, and
/// which count them.
///
/// Functions fail as those of [`Format`] do.
pub trait Linked: Format {
    /// How its directories stand.
    type Codec: Codec;

    /// How its directories stand.
    fn codec(&self) -> &Self::Codec;

    /// Whether an inode is in use, and not about to be given back; it need not be
    /// in memory.
    fn is_in_use(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<bool, FsError>;

    /// Refuses what cannot be made in this format.
    ///
    /// # Errors
    /// [`FsError::Invalid`], [`FsError::Unsupported`].
    fn check_new(&self, new: &NewFile<'_>) -> Result<(), FsError>;

    /// Takes an inode for a file that gets its first name in a directory.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn take_inode(
        &mut self,
        core: &mut Core<Self::Map>,
        parent: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError>;

    /// Gives an inode back, which is in memory no more.
    fn give_inode(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError>;

    /// Gives a node for a new file what only this format has: its generation, its
    /// time of birth, the numbers of a device, what it inherits from the directory
    /// that it is made in. It is not in memory yet.
    fn fit_new(
        &mut self,
        core: &mut Core<Self::Map>,
        parent: Ino,
        node: &mut Node<Self::Map>,
        new: &NewFile<'_>,
    ) -> Result<(), FsError>;

    /// Writes a whole new inode, after what must be on the disk before.
    fn put_new(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// Writes the number of links, after what must be on the disk before:
    /// [`Role::LinkCount`] where others wait for it, [`Role::LinkDrop`] where a count
    /// that is too high does no harm.
    fn put_links(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// Makes an inode as good as unused, after what must be on the disk before.
    /// Without blocks there is none that could get a second owner, and no hurry where
    /// nothing leads to it any more.
    fn put_cleared(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        has_blocks: bool,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError>;

    /// The run that holds an inode.
    fn inode_run(&self, ino: Ino) -> Result<Extent, FsError>;

    /// Whether the target of a symlink stands in its inode.
    fn keeps_in_inode(&self, target: &[u8]) -> bool;

    /// The first block of a new file, of `len` bytes.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn first_block(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError>;

    /// Appends to a directory. What is returned must be on the disk for the bytes
    /// to be reached.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    fn append(
        &mut self,
        core: &mut Core<Self::Map>,
        dir: Ino,
        bytes: &[u8],
    ) -> Result<ChangeId, FsError>;
}
