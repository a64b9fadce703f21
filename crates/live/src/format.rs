//! A format's interface to the operations.
//!
//! A format encodes bytes: how an inode, a directory entry and a map of blocks are stored on the
//! disk, which blocks are free, and in which order its checker needs to find them. It makes changes
//! in the cache and returns those that others may have to wait for. It does not deal with trees of
//! directories, open files, renaming or `fsync`.

use crate::core::Core;
use crate::cut::Cut;
use crate::delayed::BlockState;
use crate::limits::Limits;
use crate::node::Node;
use crate::pending::Ids;
use seekless_cache::Config;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::operate::{SetAttr, StatVfs, XattrMode};
use seekless_fs::{FsError, Mapping, Timestamp, Xattr};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::sync::Arc;

/// The key of a name by which a directory is listed, other than of `.` and `..`, which come first.
pub type ListingKey = Box<dyn Fn(&[u8]) -> (u32, u32)>;

/// Where a name goes in a directory, and the changes made for it.
#[derive(Clone, Debug, Default)]
pub struct NamePlace {
    /// The unit, which has room for it; `None` where any unit with room will do.
    pub unit: Option<u64>,
    /// Units with names that lie elsewhere than before; new ones are among them.
    pub rewritten: SmallVec<[u64; 4]>,
    /// The changes that must be on the disk for new units to be reached.
    pub reached: Ids,
}

/// A format whose images can be changed while they are in use.
///
/// Every function may fail with [`FsError::Device`], and with
/// [`FsError::Corrupt`] where the image contradicts its format; further errors are
/// named. Inodes given by number are in memory, unless it says otherwise.
pub trait Format: Send + Sized {
    /// A format's own data of a file: where its blocks are.
    type Map: Clone + std::fmt::Debug + Default + Send;
    /// How it is opened.
    type Options;
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

    /// Limits and properties of the volume.
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

    /// The figures of `statvfs(3)`.
    fn space(&self, core: &Core<Self::Map>) -> StatVfs;

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

    /// The file's sectors of 512 bytes as shown to users (`st_blocks`). By default, the allocated
    /// ones.
    fn shown_sectors(&self, node: &Node<Self::Map>) -> u64 {
        node.sectors
    }

    /// The attributes to be set, without those that the format cannot keep; or an error if it
    /// refuses them. By default, all.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`].
    fn accepted(&self, _node: &Node<Self::Map>, set: &SetAttr) -> Result<SetAttr, FsError> {
        Ok(*set)
    }

    /// Touches the map's cache lines ahead of deletion (prefetch). The return value only keeps the
    /// loads from being optimized out.
    fn looked_at(_map: &Self::Map) -> u64 {
        0
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

    /// Called before each change, when all actions that are ready have been done. Writes the
    /// changes that the format must have on the disk for a crash to leave no more than its check
    /// can repair. Returns whether actions may have become ready; it is called again then.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] when a write has failed before.
    fn before_change(&mut self, _core: &mut Core<Self::Map>) -> Result<bool, FsError> {
        Ok(false)
    }

    /// Called on last close of a file. The format may drop its preallocation for the inode.
    fn released(&mut self, _ino: Ino) {}

    /// Called before the file system is closed and the last changes are written.
    fn closing(&mut self) {}

    /// Notes on the disk, for the mount after a crash, that a file in memory goes on its last
    /// close, or, with links, is being cut to its length; or that this is over. A file made as good
    /// as unused is off the list by that. Only called where there is a journal; by default there is
    /// no such list.
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

    /// Frees a file's blocks behind a length, those with its end among them if that is later.
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

    // Contents of files.

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

    /// The names of such a directory as one unit, which may be shorter than others. Room in it is
    /// found by [`Codec::fit`](crate::Codec::fit) alone, after [`Format::place_name`] has said that
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

    /// Whether bytes that are to be written to a regular file can wait for their place where it has
    /// no blocks for them. Then it is ready for them: it may be as long, it has no contents in its
    /// inode, and the gap between its end and `offset` reads as zeros. By default, nothing waits,
    /// and the other functions of this are not called.
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

    /// The state of a block in a file's map, and the first block behind it for which that may
    /// differ.
    fn stand_of(
        &mut self,
        _core: &mut Core<Self::Map>,
        ino: Ino,
        lbn: u64,
    ) -> Result<(BlockState, u64), FsError> {
        debug_assert!(false, "nothing of inode {ino} waits");
        Ok((BlockState::Written, lbn + 1))
    }

    /// Free blocks available to the current caller, including those reserved for delayed
    /// allocation.
    fn room(&self, _core: &Core<Self::Map>) -> u64 {
        0
    }

    /// Most blocks that a file's map grows by when this many more of its blocks, in this many runs,
    /// get a place.
    fn most_map_blocks(
        &mut self,
        _core: &mut Core<Self::Map>,
        _ino: Ino,
        _runs: u64,
        _blocks: u64,
    ) -> Result<u64, FsError> {
        Ok(0)
    }

    /// Allocates blocks of a file where its map has a hole: the first of the blocks, as many as lie
    /// in one run, which is returned. The on-disk size goes as far ([`Node::record_up_to`]).
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

    /// Writes the on-disk size of a file.
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

    /// All runs of a file: its contents, map blocks and attributes.
    fn everything(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Cut, FsError>;

    /// Gives runs back.
    fn free_runs(&mut self, core: &mut Core<Self::Map>, runs: &[Extent]) -> Result<(), FsError>;

    /// The runs of a file's contents and map blocks.
    fn runs_of(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Vec<Extent>, FsError>;

    /// The runs of a file's attributes.
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

    /// The order in which the system of the format lists a directory; `None` where it lists names
    /// as they lie, which is the default.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    fn listing_key(
        &mut self,
        _core: &mut Core<Self::Map>,
        _dir: Ino,
    ) -> Result<Option<ListingKey>, FsError> {
        Ok(None)
    }

    // Extended attributes.

    /// Features of the volume's flags that this engine ignores, in words.
    fn ignored_features(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether the volume stores ACLs, which are extended attributes by the names of
    /// [`AclKind`](seekless_fs::acl::AclKind) then. By default, it does not.
    fn keeps_acls(&self) -> bool {
        false
    }

    /// Whether the entries of an access ACL that are bits of the mode are taken from the mode
    /// when it is read: then it is not written when the mode changes. By default, they are
    /// stored.
    fn acls_follow_modes(&self) -> bool {
        false
    }

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
