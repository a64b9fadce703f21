//! The live operations: changing an image while it is in use.
//!
//! A format implements each as changes to cached blocks; the update discipline decides in which
//! order they reach the disk.

use crate::acl::AclKind;
use crate::snapshot::SnapshotFile;
use crate::{Attr, DeviceNumber, DirEntry, FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_units::{ByteLen, Ino};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

/// The kind of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewFile<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to a target.
    Symlink(&'a [u8]),
    /// A device node.
    Device(FileKind, DeviceNumber),
    /// A pipe or socket.
    Special(FileKind),
}

/// Owner and permissions of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory passes on its own (set-group-id).
    pub gid: u32,
    /// The low 12 bits of the mode, after the umask.
    pub perm: u16,
}

/// Attributes to be set; `None` leaves one unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// The low 12 bits of the mode.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: truncates the file, or extends it by a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Modification time of the contents.
    pub mtime: Option<Timestamp>,
}

/// The treatment of an existing target of a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// The target is replaced, as in POSIX.
    #[default]
    Replace,
    /// The rename fails (`RENAME_NOREPLACE`).
    KeepTarget,
    /// The two are exchanged (`RENAME_EXCHANGE`).
    Exchange,
}

/// Whether setting an extended attribute may make or replace it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// Fails if the attribute exists (`XATTR_CREATE`).
    Create,
    /// Fails if the attribute does not exist (`XATTR_REPLACE`).
    Replace,
}

/// Space and inodes of a file system, as in `statvfs(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatVfs {
    /// Bytes in a block, the unit of the counts.
    pub block_size: u32,
    /// Unit of allocation of a file, in bytes, which may be several of those blocks.
    pub file_block: u32,
    /// Blocks for data.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks available to ordinary users.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Maximum length of a name in bytes.
    pub name_max: u32,
}

/// Work that does not need the file system ([`Operate::work`]).
pub type Work = Box<dyn FnOnce() + Send>;

/// Identifier of work in progress ([`Operate::start_fsync`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun(pub NonZeroU32);

/// A range of a volume, of whose free blocks the device is told ([`Operate::trim_some`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// The first byte that has not been looked at.
    pub next: u64,
    /// The end of the range; it may lie behind the volume.
    pub end: u64,
    /// Least number of bytes of a free run that the device is told of.
    pub least: u64,
    /// Bytes that the device was told of.
    pub trimmed: u64,
}

/// Progress of an fsync in parts ([`Operate::fsync_part`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsyncParts {
    /// Number of passes over the file.
    pub passes: u32,
    /// Set when all changes are written and only a flush is missing: the number of writes of the
    /// volume that the flush has to cover.
    pub written: Option<u64>,
}

/// A file system in use. Calls are made one at a time.
///
/// Every change happens completely, as seen by later calls, or fails without an effect that they
/// see. The caller has checked permissions; the format's own restrictions (names too long, a
/// directory below itself, one link too many, immutable files) are checked here.
///
/// # Errors
/// Besides those of each call: [`FsError::Corrupt`] if the image contradicts its format,
/// [`FsError::Device`] if the device fails, [`FsError::ReadOnly`] for every change after a write
/// has failed.
pub trait Operate: Send {
    /// The root directory.
    fn root(&self) -> Ino;

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError>;

    /// A file's attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`] when no file has this number.
    fn attr(&mut self, ino: Ino) -> Result<Attr, FsError>;

    /// Sets attributes and returns the new ones.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`], [`FsError::IsDirectory`].
    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError>;

    /// A file's flags as `FS_IOC_GETFLAGS` has them (`FS_*_FL`, chattr(1)).
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on formats without flags, as by default.
    fn file_flags(&mut self, ino: Ino) -> Result<u32, FsError> {
        let _ = ino;
        Err(FsError::Unsupported("flags of files".into()))
    }

    /// Sets a file's flags; the caller may do that for each of those that change.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for a change of flags that are not obeyed, or that the format lacks.
    fn set_file_flags(&mut self, ino: Ino, flags: u32) -> Result<(), FsError> {
        let _ = (ino, flags);
        Err(FsError::Unsupported("flags of files".into()))
    }

    /// Converts an empty file into a snapshot of the volume: the snapshot keeps the state of this
    /// moment, in which the file is empty.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on formats without snapshots, as by default; [`FsError::Invalid`]
    /// for a file that is not empty, or not a regular one; [`FsError::NoSpace`];
    /// [`FsError::Refused`] for a state in which no snapshot can be taken.
    fn take_snapshot(&mut self, ino: Ino) -> Result<(), FsError> {
        let _ = ino;
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// Makes a snapshot an empty file, which may be removed as any other. The other snapshots of the
    /// volume stay as they are.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on formats without snapshots, as by default; [`FsError::Invalid`]
    /// for a file that is no snapshot; [`FsError::Refused`] for one that others have open, and for a
    /// volume that is being recovered; [`FsError::NoSpace`] if there is no room for copies that other
    /// snapshots may need.
    fn release_snapshot(&mut self, ino: Ino) -> Result<(), FsError> {
        let _ = ino;
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// The snapshots of the volume, oldest first, without their paths.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on formats without snapshots, as by default; [`FsError::Corrupt`];
    /// errors of the device.
    fn snapshots(&mut self) -> Result<Vec<SnapshotFile>, FsError> {
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// Creates a file.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NameTooLong`],
    /// [`FsError::TooManyLinks`].
    fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: NewFile<'_>,
        owner: Ownership,
    ) -> Result<Attr, FsError>;

    /// As [`Operate::make`], with permissions before the umask. The umask is applied unless the new
    /// file inherits the directory's default ACL, which replaces it.
    ///
    /// # Errors
    /// As [`Operate::make`].
    fn make_masked(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: NewFile<'_>,
        owner: Ownership,
        umask: u16,
    ) -> Result<Attr, FsError> {
        let masks = matches!(new, NewFile::Symlink(_)) || !self.has_default_acl(dir)?;
        let perm = if masks { owner.perm & !(umask & 0o777) } else { owner.perm };
        self.make(dir, name, new, Ownership { perm, ..owner })
    }

    /// Adds a name for a file.
    ///
    /// # Errors
    /// As [`Operate::make`]; [`FsError::NotPermitted`] for a directory.
    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, FsError>;

    /// Removes a name of a file other than a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`FsError::IsDirectory`].
    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NotEmpty`].
    fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Renames, within a directory or across.
    ///
    /// # Errors
    /// Those of [`Operate::make`], [`Operate::unlink`] and [`Operate::rmdir`]; [`FsError::Invalid`]
    /// for moving a directory into its own subtree.
    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError>;

    /// Reads a file; fewer bytes than requested only at its end. Holes are zeros.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    fn read(&mut self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError>;

    /// Writes to a file. Fewer bytes than given are written only if space runs out on the way.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when not one byte fits; [`FsError::TooLarge`].
    fn write(&mut self, ino: Ino, offset: ByteLen, bytes: &[u8]) -> Result<usize, FsError>;

    /// Allocates a range so that later writes to it do not run out of space; it reads as zeros.
    /// With `keep_size` the length stays.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], and then the length is as before; [`FsError::Unsupported`] if the
    /// format cannot.
    fn allocate(
        &mut self,
        ino: Ino,
        offset: ByteLen,
        len: ByteLen,
        keep_size: bool,
    ) -> Result<(), FsError>;

    /// The present locations of a file's contents, in logical order and in units of
    /// [`StatVfs::block_size`]; ranges not covered are holes. Empty for contents in the inode.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a file other than a regular one.
    fn data_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError>;

    /// Visits the entries of a directory, including `.` and `..`, from the one after the entry with
    /// the given cookie (0: from the start).
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    fn read_dir(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError>;

    /// A symlink's target.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for other kinds of files.
    fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>, FsError>;

    /// Extended attributes, sorted by name.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn xattrs(&mut self, ino: Ino) -> Result<Vec<Xattr>, FsError>;

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoAttribute`], [`FsError::NoSpace`],
    /// [`FsError::Unsupported`] if the format has none.
    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`].
    fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Names of the volume's features that this engine ignores.
    fn ignored_features(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Files whose contents the volume has changed by itself since the last call: what others have
    /// read of them may be out of date. By default, there are none.
    fn take_rewritten(&mut self) -> Vec<Ino> {
        Vec::new()
    }

    /// The quota files that the volume has and that do not follow its usage, since quotas of their
    /// kind are not kept. By default, there are none.
    ///
    /// # Errors
    /// As [`Operate::lookup`].
    fn stale_quota_files(&mut self) -> Result<Vec<&'static str>, FsError> {
        Ok(Vec::new())
    }

    /// Whether the volume stores ACLs: then `set_xattr`, `set_attr` and `make` keep them consistent
    /// with the mode, and new files inherit them. By default, it does not.
    fn keeps_acls(&self) -> bool {
        false
    }

    /// Whether a directory has an ACL that new files in it inherit.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    fn has_default_acl(&mut self, _dir: Ino) -> Result<bool, FsError> {
        Ok(false)
    }

    /// Sets an ACL, in the form of its extended attribute, or, without a value, removes it. The
    /// mode follows the access ACL, and an ACL equivalent to the mode is not stored.
    /// `keeps_setgid`: the caller is in the file's group, or has the capability to set set-group-id
    /// without; otherwise a new access ACL clears set-group-id. Setting an ACL as an extended
    /// attribute has the effect of `keeps_setgid`.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an invalid list; [`FsError::NoAttribute`] when there is none to
    /// remove; [`FsError::NoSpace`]; [`FsError::Unsupported`] if the volume stores none, and on
    /// symlinks.
    fn set_acl(
        &mut self,
        _ino: Ino,
        _kind: AclKind,
        _value: Option<&[u8]>,
        _keeps_setgid: bool,
    ) -> Result<(), FsError> {
        Err(FsError::Unsupported("ACLs on this volume".into()))
    }

    /// Keeps a file's contents although its last name may be removed, because the file is open.
    /// Calls are counted.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    fn hold(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Undoes one [`Operate::hold`]; the last one of a file without names frees the file.
    ///
    /// # Errors
    /// As any change.
    fn release(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Makes a file durable, with its attributes and the names that lead to it.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn fsync(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Makes all changes durable.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync(&mut self) -> Result<(), FsError>;

    /// Does periodic work, such as writing back old changes. To be called about once a second.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn tick(&mut self) -> Result<(), FsError>;

    /// Tells the device of some blocks that were freed, where it is to be told; whether there were
    /// any. To be called until there are none, now and then. By default, there are none.
    ///
    /// # Errors
    /// [`FsError::Device`] when the device does not support that, or fails: it is told of no more.
    fn discard_some(&mut self) -> Result<bool, FsError> {
        Ok(false)
    }

    /// Tells the device of the free blocks in a part of a range, after all changes were made durable,
    /// so that nothing on the disk leads to them. Returns whether there is more of the range.
    ///
    /// # Errors
    /// As [`Operate::sync`]; [`FsError::Invalid`] for a range that begins behind the volume, or is
    /// shorter than a block (FAT: a cluster); [`FsError::Refused`] for a volume that was not clean, where what is
    /// marked as free may be in use; [`FsError::Device`] when the device does not support discards;
    /// [`FsError::Unsupported`] by default.
    fn trim_some(&mut self, trim: &mut Trim) -> Result<bool, FsError> {
        let _ = trim;
        Err(FsError::Unsupported("discards of free blocks".into()))
    }

    /// Leaves work that only waits for the device to the caller: a tick only starts it, and
    /// [`Operate::work`] returns it.
    fn leave_work(&mut self) {}

    /// Work that waits for the device without needing the file system. The caller performs it
    /// without locking the file system, and calls again until there is none. Operations that need
    /// the result meanwhile wait for it.
    ///
    /// # Errors
    /// [`FsError::Device`] when work returned before has failed.
    fn work(&mut self) -> Result<Option<Work>, FsError> {
        Ok(None)
    }

    /// Starts the part of a file's [`Operate::fsync`] that can be left to
    /// [`Operate::work_towards`], after which `fsync` has little left to wait for. Returns the
    /// identifier of the work, if there is any.
    ///
    /// # Errors
    /// As [`Operate::fsync`].
    fn start_fsync(&mut self, _ino: Ino) -> Result<Option<Begun>, FsError> {
        Ok(None)
    }

    /// As [`Operate::work`], until the given work is done. The work returned may only wait for
    /// another thread that does it.
    ///
    /// # Errors
    /// As [`Operate::work`].
    fn work_towards(&mut self, _begun: Begun) -> Result<Option<Work>, FsError> {
        Ok(None)
    }

    /// As [`Operate::fsync`], in parts: writes the changes that may be written, and returns a
    /// flush, which the caller performs without locking the file system. It then calls again
    /// with the same `parts`, until there is no flush left: then the file is on the disk.
    ///
    /// # Errors
    /// As [`Operate::fsync`].
    fn fsync_part(&mut self, ino: Ino, _parts: &mut FsyncParts) -> Result<Option<Work>, FsError> {
        self.fsync(ino).map(|()| None)
    }

    /// As [`Operate::work`], for work that the next change would have to wait for.
    ///
    /// # Errors
    /// As [`Operate::work`].
    fn work_before_change(&mut self) -> Result<Option<Work>, FsError> {
        Ok(None)
    }

    /// Whether lookups ignore case: then a change of one name may change the file that another
    /// spelling leads to. By default, they do not.
    fn ignores_case(&self) -> bool {
        false
    }

    /// Free and used space of the file system.
    fn space(&mut self) -> StatVfs;

    /// Sets whether the following calls may use the blocks reserved from ordinary users. Initially
    /// they may.
    fn spend_reserve(&mut self, may: bool);

    /// Writes all changes and marks the file system clean.
    ///
    /// # Errors
    /// [`FsError::Device`]; the file system then stays marked as in use.
    fn unmount(&mut self) -> Result<(), FsError>;
}
