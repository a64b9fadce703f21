//! A format's interface to the operations.
//!
//! A format encodes bytes: how an inode, a directory entry and a map of blocks are stored on the
//! disk, which blocks are free, and in which order its checker needs to find them. It makes changes
//! in the cache and returns those that others may have to wait for. It does not deal with trees of
//! directories, open files, renaming or `fsync`.

use crate::core::Core;
use crate::cut::Cut;
use crate::features::{DelayedAllocation, InlineData, OrphanList, Recovery};
use crate::limits::Limits;
use crate::node::Node;
use crate::pending::Ids;
use crate::quota::{Quota, QuotaKind};
use seekless_cache::Config;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::operate::{SetAttr, StatVfs, XattrMode};
use seekless_fs::{FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
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

/// The blocks of a volume that files may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataArea {
    /// All of them; metadata may lie among them.
    pub blocks: Extent,
    /// Number of blocks that are free or in use together, counted from the first on.
    pub unit: u64,
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
    /// Contents that wait for their place, or [`Absent`](crate::Absent).
    type DelayedAllocation: DelayedAllocation<Self::Map>;
    /// Contents in inodes, or [`Absent`](crate::Absent).
    type InlineData: InlineData<Self::Map>;
    /// Files being deleted or cut, or [`Absent`](crate::Absent).
    type OrphanList: OrphanList<Self::Map>;
    /// Recovery from a crash while it is in use, or [`Absent`](crate::Absent).
    type Recovery: Recovery<Self::Map>;

    // Features that it may lack.

    /// Contents that wait for their place, if the format has that.
    fn delayed_allocation(&mut self) -> Option<&mut Self::DelayedAllocation> {
        None
    }

    /// Contents in inodes, if the format has that.
    fn inline_data(&mut self) -> Option<&mut Self::InlineData> {
        None
    }

    /// The list of files that are being deleted or cut, if the format has one.
    fn orphan_list(&mut self) -> Option<&mut Self::OrphanList> {
        None
    }

    /// The recovery of a volume that was opened for that, if the format has it.
    fn recovery(&mut self) -> Option<&mut Self::Recovery> {
        None
    }

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

    /// The names of quota files in the root, where none are given. By default, there are none.
    fn quota_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes the quota of an id to the file of its kind. By default, there is none.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] and [`FsError::TooLarge`] if the file has no room for it; nothing has
    /// changed then.
    fn put_quota(
        &mut self,
        _core: &mut Core<Self::Map>,
        _kind: QuotaKind,
        _id: u32,
        _quota: &Quota,
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

    /// The flags that a file of this kind can have, as `FS_IOC_SETFLAGS` has them; those of others
    /// never change. By default, there are none.
    fn settable_flags(&self, _kind: FileKind) -> u32 {
        0
    }

    /// Gives a node those of its settable flags that are among `flags`, and no others.
    fn set_flags(&self, _node: &mut Node<Self::Map>, _flags: u32) {}

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
    /// [`FsError::NoSpace`] if there is no room for any change; [`FsError::Device`];
    /// [`FsError::ReadOnly`] when a write has failed before.
    fn before_change(&mut self, _core: &mut Core<Self::Map>) -> Result<bool, FsError> {
        Ok(false)
    }

    /// Called on last close of a file. The format may drop its preallocation for the inode.
    fn released(&mut self, _ino: Ino) {}

    /// Called before files without names are released at the end: a volume that has no room for other
    /// changes gets room by these.
    fn releasing(&mut self) {}

    /// Called before the file system is closed and the last changes are written.
    fn closing(&mut self) {}

    /// Whether a directory may have more in it than links can count: it has one link
    /// from then on, whatever comes and goes (ext4's `dir_nlink`). By default, no.
    fn goes_uncounted(&self, _node: &Node<Self::Map>) -> bool {
        false
    }

    // Contents of files.

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

    /// The bytes of the longest file, where a file has blocks for its whole length. By default, files
    /// may have holes.
    fn longest_without_holes(&self) -> Option<u64> {
        None
    }

    /// All runs of a file: its contents, map blocks and attributes.
    fn everything(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Cut, FsError>;

    /// Gives runs back. Returns the changes with which the disk has them as free.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] if some of them are free already; [`FsError::Device`].
    fn free_runs(&mut self, core: &mut Core<Self::Map>, runs: &[Extent]) -> Result<Ids, FsError>;

    /// The device that the format has put between the volume and its device, if any: all else that
    /// is written or discarded goes there too.
    fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        None
    }

    /// Whether the volume itself asks that its device is told of freed blocks. By default, it does
    /// not.
    fn asks_for_discards(&self) -> bool {
        false
    }

    /// The blocks that files may have; `None` for a volume that was not clean when it was opened, and
    /// of which a block that is marked as free may be in use.
    fn data_area(&self) -> Option<DataArea>;

    /// The parts of a run of the volume that are free. It begins and ends between the units of
    /// [`DataArea`].
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    fn free_parts(
        &mut self,
        core: &mut Core<Self::Map>,
        run: Extent,
    ) -> Result<Vec<Extent>, FsError>;

    /// The runs of a file's contents and map blocks.
    fn runs_of(&mut self, core: &mut Core<Self::Map>, ino: Ino) -> Result<Vec<Extent>, FsError>;

    /// The runs of a file's attributes.
    fn attribute_runs(
        &mut self,
        core: &mut Core<Self::Map>,
        ino: Ino,
    ) -> Result<Vec<Extent>, FsError>;

    /// Reads bytes of a snapshot of the volume; they lie within its size.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on formats without snapshots, as by default; [`FsError::Corrupt`];
    /// errors of the device.
    fn read_snapshot(&self, _ino: Ino, _offset: ByteLen, _buf: &mut [u8]) -> Result<(), FsError> {
        Err(FsError::Unsupported("snapshots".into()))
    }

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
