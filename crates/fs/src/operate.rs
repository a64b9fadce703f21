//! The live operations: changing an image while it is in use.
//!
//! A format expresses each as changes to cached blocks; in which order they
//! reach the disk is the update discipline's business, and no concern here.

use crate::acl::AclKind;
use crate::{Attr, DeviceNumber, DirEntry, FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_units::{ByteLen, Ino};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

/// What a new file shall be.
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

/// Who makes a file, and with which permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory hands down its own (set-group-id).
    pub gid: u32,
    /// The low 12 bits of the mode, after the umask.
    pub perm: u16,
}

/// Attributes to be set; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// The low 12 bits of the mode.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: cuts the file, or lengthens it by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Contents last changed.
    pub mtime: Option<Timestamp>,
}

/// What a rename does with a name that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// Takes its place, as POSIX has it.
    #[default]
    Replace,
    /// Fails (`RENAME_NOREPLACE`).
    KeepTarget,
    /// Changes places with it (`RENAME_EXCHANGE`).
    Exchange,
}

/// Whether setting an extended attribute may make or replace it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// Fails when it is there (`XATTR_CREATE`).
    Create,
    /// Fails when it is not (`XATTR_REPLACE`).
    Replace,
}

/// What `statvfs(3)` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Bytes in a block, the unit of the counts.
    pub block_size: u32,
    /// Bytes in a whole block of a file, which may be several of those: what is
    /// allocated in one piece.
    pub file_block: u32,
    /// Blocks for data.
    pub blocks: u64,
    /// Blocks not in use.
    pub free: u64,
    /// Of them, those that ordinary users may take.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes not in use.
    pub free_inodes: u64,
    /// Most bytes of a name.
    pub name_max: u32,
}

/// Something to be done without the file system ([`Operate::work`]).
pub type Work = Box<dyn FnOnce() + Send>;

/// The name of something that was begun and is waited for ([`Operate::start_fsync`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun(pub NonZeroU32);

/// Progress of an fsync in parts ([`Operate::fsync_part`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsyncParts {
    /// Number of passes over the file.
    pub passes: u32,
    /// Set when all changes are written and only a flush is missing: the number of writes of the
    /// volume that the flush has to cover.
    pub written: Option<u64>,
}

/// A file system that is in use. Calls are made one at a time.
///
/// Every call that changes something either happens whole, as seen by later
/// calls, or fails and changes nothing that they see. Permissions have been
/// checked by the caller; what the format itself forbids (names too long, a
/// directory below itself, one link too many, immutable files) is refused here.
///
/// # Errors
/// Besides those named: [`FsError::Corrupt`] where the image contradicts its
/// format, [`FsError::Device`] when the device fails, [`FsError::ReadOnly`] for
/// every change after a write has failed.
pub trait Operate: Send {
    /// The root directory.
    fn root(&self) -> Ino;

    /// The inode a name leads to.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Corrupt`].
    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError>;

    /// A file's attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`] when there is none of that number.
    fn attr(&mut self, ino: Ino) -> Result<Attr, FsError>;

    /// Sets attributes; the new ones are returned.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`], [`FsError::IsDirectory`].
    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError>;

    /// Makes a file.
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

    /// As [`Operate::make`], with permissions from which the umask still has to be taken:
    /// that is done unless the new file inherits the directory's default ACL, which takes the
    /// umask's place.
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

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As [`Operate::make`]; [`FsError::NotPermitted`] for a directory.
    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, FsError>;

    /// Removes a name that is not a directory's.
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
    /// Those of [`Operate::make`], [`Operate::unlink`] and [`Operate::rmdir`];
    /// [`FsError::Invalid`] for a directory into its own subtree.
    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError>;

    /// Reads a file; fewer bytes than asked only at its end. Holes are zeros.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    fn read(&mut self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError>;

    /// Writes to a file. Fewer bytes than given are written only where space
    /// ran out on the way.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when not one byte fits; [`FsError::TooLarge`].
    fn write(&mut self, ino: Ino, offset: ByteLen, bytes: &[u8]) -> Result<usize, FsError>;

    /// Allocates a range so that later writes to it do not run out of space;
    /// it reads as zeros. With `keep_size` the length stays.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], and then the length is as before;
    /// [`FsError::Unsupported`] where the format cannot.
    fn allocate(
        &mut self,
        ino: Ino,
        offset: ByteLen,
        len: ByteLen,
        keep_size: bool,
    ) -> Result<(), FsError>;

    /// Where a file's contents lie now, in logical order and in blocks as
    /// [`Space::block_size`] counts; what is not covered is a hole. Empty for
    /// contents that lie in the inode.
    ///
    /// # Errors
    /// [`FsError::Invalid`] on anything but a regular file.
    fn data_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError>;

    /// Visits the entries of a directory, `.` and `..` included, beginning
    /// after the entry whose cookie is given (0: from the start).
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
    /// [`FsError::Invalid`] on anything else.
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
    /// [`FsError::Unsupported`] where the format has none.
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

    /// Names of the volume's flags that this engine does not act on.
    fn ignored_features(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether the volume stores ACLs: then `set_xattr`, `set_attr` and `make` keep them and
    /// the mode together, and new files inherit them. By default, it does not.
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
    /// mode follows the access ACL, and one that the mode can say is not stored.
    /// `keeps_setgid`: the caller is in the file's group, or has the capability to set
    /// set-group-id without; otherwise a new access ACL takes set-group-id away. As an
    /// extended attribute, an ACL is set as if that were so.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a list that is not valid; [`FsError::NoAttribute`] when there is
    /// none to remove; [`FsError::NoSpace`]; [`FsError::Unsupported`] where there are none, and on
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

    /// Keeps a file's contents although its last name may go: somebody has it
    /// open. Calls count.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    fn hold(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Takes back one [`Operate::hold`]; the last of a file without names
    /// frees it.
    ///
    /// # Errors
    /// As any change.
    fn release(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Returns once a file, its attributes and the names that lead to it are
    /// on the disk.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn fsync(&mut self, ino: Ino) -> Result<(), FsError>;

    /// Returns once everything is on the disk.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync(&mut self) -> Result<(), FsError>;

    /// Does what is due by now: writes what has grown old. To be called about
    /// once a second.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn tick(&mut self) -> Result<(), FsError>;

    /// Leaves it to the caller to do what waits for the device alone: a tick only
    /// begins it, and [`Operate::work`] hands it out.
    fn leave_work(&mut self) {}

    /// Something that waits for the device and does not need the file system: to be
    /// done by somebody who does not keep it locked, and asked for again afterwards,
    /// until there is nothing. Who needs it meanwhile waits for it.
    ///
    /// # Errors
    /// [`FsError::Device`] when what was handed out before has failed.
    fn work(&mut self) -> Result<Option<Work>, FsError> {
        Ok(None)
    }

    /// Begins what [`Operate::fsync`] of a file waits for, as far as it can be left to
    /// [`Operate::work_towards`]: afterwards `fsync` has little left to wait for. The name of
    /// what was begun, if there is anything.
    ///
    /// # Errors
    /// As [`Operate::fsync`].
    fn start_fsync(&mut self, _ino: Ino) -> Result<Option<Begun>, FsError> {
        Ok(None)
    }

    /// As [`Operate::work`], until what was begun is done: it may be to wait for whoever
    /// does it.
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

    /// As [`Operate::work`], where the next change would have to wait for it.
    ///
    /// # Errors
    /// As [`Operate::work`].
    fn work_before_change(&mut self) -> Result<Option<Work>, FsError> {
        Ok(None)
    }

    /// Whether names that differ in case alone lead to the same file: then a name may come
    /// to lead elsewhere by what is done to another. By default, they do not.
    fn ignores_case(&self) -> bool {
        false
    }

    /// How full the file system is.
    fn space(&mut self) -> Space;

    /// Whether the calls that follow may take the blocks that are kept from
    /// ordinary users. Until this is called they may.
    fn spend_reserve(&mut self, may: bool);

    /// Writes everything and marks the file system clean.
    ///
    /// # Errors
    /// [`FsError::Device`]; it is then left marked as in use.
    fn unmount(&mut self) -> Result<(), FsError>;
}
