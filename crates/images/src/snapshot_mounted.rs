//! The snapshots of mounted volumes, listed.

use crate::error::{Error, ErrorKind};
use crate::snapshot::{ENOTTY, EOPNOTSUPP, HOME, open_root};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use seekless_fs::snapshot::SnapshotFile;
use seekless_host::snapshot_request::list_snapshots;
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The snapshots of the file system that is mounted on a directory and that this project serves,
/// oldest first. The directories of the volume are searched for their names, as far as the caller may
/// read them, `.snap` first.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory on which nothing is mounted; [`ErrorKind::Unsupported`] for a
/// mount of another server or format; [`ErrorKind::System`].
pub fn list_mounted(mount: &Path) -> Result<Vec<SnapshotFile>, Error> {
    let root = open_root(mount)?;
    let listed = list_snapshots(&root).map_err(|error| match error.raw_os_error() {
        Some(ENOTTY | EOPNOTSUPP) => {
            let what = "not a UFS volume that seekless has mounted with rw";
            Error::new(ErrorKind::Unsupported, what).about(mount.display())
        }
        _ => Error::io(mount.display(), &error),
    })?;
    let mut paths: BTreeMap<u64, Option<Vec<u8>>> =
        listed.iter().map(|found| (found.inode, None)).collect();
    find(&root, &mut paths).map_err(|errno| Error::io(mount.display(), &errno.into()))?;
    let mut found = Vec::new();
    for snapshot in listed {
        let ino = u32::try_from(snapshot.inode).map_err(|_| {
            Error::new(ErrorKind::Unsupported, "inode numbers of 64 bits").about(mount.display())
        })?;
        found.push(SnapshotFile {
            ino: Ino::new(ino),
            path: paths.remove(&snapshot.inode).flatten(),
            made: snapshot.made,
            held: ByteLen::new(snapshot.held),
        });
    }
    Ok(found)
}

/// Finds a path of each of some inodes. Directories that cannot be opened are left out.
fn find(root: &File, paths: &mut BTreeMap<u64, Option<Vec<u8>>>) -> Result<(), Errno> {
    let mut left = paths.len();
    let mut pending = vec![PathBuf::from("."), PathBuf::from(HOME)];
    while let Some(path) = pending.pop().filter(|_| left > 0) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat2(root, &path, flags, Mode::empty(), resolve) {
            Err(
                Errno::ACCESS
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::NOENT
                | Errno::NOTDIR
                | Errno::XDEV,
            ) => continue,
            opened => Dir::new(opened?)?,
        };
        for entry in directory {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_home = path == Path::new(".") && name == HOME;
            if name == "." || name == ".." || is_home {
                continue;
            }
            let inside = path.join(name);
            match paths.get_mut(&entry.ino()) {
                Some(place) if place.is_none() => {
                    let path = inside.strip_prefix(".").unwrap_or(&inside);
                    *place = Some([b"/", path.as_os_str().as_bytes()].concat());
                    left -= 1;
                }
                Some(_) => {}
                None if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) => {
                    pending.push(inside);
                }
                None => {}
            }
        }
    }
    Ok(())
}
