//! Conversions between FUSE's types and ours, and answers to the kernel.

use crate::caller::sees_trusted;
use fuser::{
    Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyXattr, Request, TimeOrNow,
};
use seekless_fs::acl::AclKind;
use seekless_fs::{Attr, DeviceNumber, FileKind, FsError, Timestamp, Xattr};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Practically for ever: changes are made only through the mount.
pub(crate) const TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum length of an entry's name in bytes.
pub(crate) const NAME_MAX: usize = 255;

/// Answers with an entry, which the kernel may cache for `keep`.
pub(crate) fn answer_entry(
    reply: ReplyEntry,
    found: Result<(FileAttr, Generation), Errno>,
    keep: Duration,
) {
    match found {
        Ok((attr, generation)) => reply.entry(&keep, &attr, generation),
        Err(error) => reply.error(error),
    }
}

pub(crate) fn answer_attr(reply: ReplyAttr, attr: Result<FileAttr, Errno>, keep: Duration) {
    match attr {
        Ok(attr) => reply.attr(&keep, &attr),
        Err(error) => reply.error(error),
    }
}

pub(crate) fn answer_data(reply: ReplyData, bytes: Result<Vec<u8>, Errno>) {
    match bytes {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

pub(crate) fn answer_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// Checks the name of an attribute as Linux does: a namespace that it has, and more (`fs/xattr.c`).
pub(crate) fn check_attribute(name: &OsStr) -> Result<(), Errno> {
    let name = name.as_bytes();
    if AclKind::of(name).is_some() {
        return Ok(());
    }
    let namespaces = [&b"user."[..], b"trusted.", b"security."];
    match namespaces.iter().find_map(|space| name.strip_prefix(*space)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

/// Answers with an attribute's value, or with its length if `size` is 0.
pub(crate) fn answer_value(
    reply: ReplyXattr,
    size: u32,
    name: &OsStr,
    xattrs: Result<Vec<Xattr>, Errno>,
) {
    let value = xattrs.and_then(|xattrs| {
        check_attribute(name)?;
        let found = xattrs.into_iter().find(|xattr| xattr.name == name.as_bytes());
        found.map(|xattr| xattr.value).ok_or(Errno::ENODATA)
    });
    answer_sized(reply, size, value);
}

/// As [`answer_value`], with the names of all that the caller may see: those in `trusted` are for
/// callers with `CAP_SYS_ADMIN`.
pub(crate) fn answer_names(
    reply: ReplyXattr,
    size: u32,
    request: &Request,
    xattrs: Result<Vec<Xattr>, Errno>,
) {
    let names = xattrs.map(|mut xattrs| {
        let is_trusted = |xattr: &Xattr| xattr.name.starts_with(b"trusted.");
        if xattrs.iter().any(is_trusted) && !sees_trusted(request) {
            xattrs.retain(|xattr| !is_trusted(xattr));
        }
        xattrs.iter().flat_map(|xattr| [xattr.name.as_slice(), b"\0"].concat()).collect()
    });
    answer_sized(reply, size, names);
}

fn answer_sized(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}

/// The errno of an error. Errors without one of their own are logged, and become `EIO`.
pub(crate) fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotFound(_) => Errno::ENOENT,
        FsError::NotDirectory(_) => Errno::ENOTDIR,
        FsError::Exists(_) => Errno::EEXIST,
        FsError::IsDirectory(_) => Errno::EISDIR,
        FsError::NotEmpty(_) => Errno::ENOTEMPTY,
        FsError::NameTooLong { .. } => Errno::ENAMETOOLONG,
        FsError::TooManyLinks(_) => Errno::EMLINK,
        FsError::TooLarge(_) => Errno::EFBIG,
        FsError::NotPermitted(_) => Errno::EPERM,
        FsError::CrossDevice(_) => Errno::EXDEV,
        FsError::NoAttribute(_) => Errno::ENODATA,
        FsError::NoSpace(_) => Errno::ENOSPC,
        FsError::OverQuota(_) => Errno::EDQUOT,
        FsError::ReadOnly(_) => Errno::EROFS,
        FsError::Invalid(_) => Errno::EINVAL,
        FsError::Unsupported(_) => Errno::EOPNOTSUPP,
        other => {
            tracing::warn!("mount: {other}");
            Errno::EIO
        }
    }
}

pub(crate) fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole =
        if time.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn file_attr(attr: &Attr, ino: INodeNo, block_size: u32) -> FileAttr {
    let (major, minor) = (attr.device.major, attr.device.minor);
    FileAttr {
        ino,
        size: attr.size,
        blocks: attr.sectors,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: attr.crtime.map_or(UNIX_EPOCH, system_time),
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // As in the kernel's new_encode_dev().
        rdev: (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12),
        blksize: block_size,
        flags: attr.flags,
    }
}

/// Decodes a device number like the kernel's `new_decode_dev()`.
pub(crate) fn kernel_device(raw: u32) -> DeviceNumber {
    DeviceNumber { major: (raw >> 8) & 0xfff, minor: (raw & 0xff) | ((raw >> 12) & 0xf_ff00) }
}

/// The attributes of a missing file: inode number 0.
pub(crate) fn missing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(crate) fn name_of(name: &OsStr, name_max: usize) -> Result<&[u8], Errno> {
    if name.len() > name_max { Err(Errno::ENAMETOOLONG) } else { Ok(name.as_bytes()) }
}

/// Converts a time to that of the engine.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { secs: after.as_secs().cast_signed(), nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (secs, nanos) = (before.as_secs().cast_signed(), before.subsec_nanos());
            match nanos {
                0 => Timestamp { secs: -secs, nanos: 0 },
                _ => Timestamp { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

/// Converts a time of a request. fuser subtracts the nanoseconds of times before 1970, which count
/// forwards from the second.
fn requested(time: SystemTime) -> Timestamp {
    let Err(before) = time.duration_since(UNIX_EPOCH) else { return timestamp(time) };
    let before = before.duration();
    let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
    Timestamp { secs, nanos: before.subsec_nanos() }
}

/// The time of day.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

pub(crate) fn moment(time: TimeOrNow) -> Timestamp {
    match time {
        TimeOrNow::SpecificTime(time) => requested(time),
        TimeOrNow::Now => now(),
    }
}
