//! The snapshots of mounted volumes.

use crate::error::{Error, ErrorKind};
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Statx, StatxFlags, flock,
    mkdirat, openat, openat2, statat, statx, unlinkat,
};
use rustix::io::Errno;
use seekless_fs::snapshot::SnapshotFile;
use seekless_host::snapshot_request::{
    Listed, list_snapshots, release_snapshot, take_snapshot, take_write_lease,
};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Takes a snapshot of the file system that is mounted on a directory and that this project serves.
/// `name` is its path in the volume, with a slash in front, or its name in `.snap`, which is made if
/// there is none. No symlink is followed. Programs may go on writing: the snapshot has all
/// that they have written so far, as far as the kernel has passed it on (fsync(2) makes sure of that).
///
/// # Errors
/// [`ErrorKind::Usage`] for a name that is taken, and for directories that are not there or on which
/// nothing is mounted; [`ErrorKind::NoSpace`]; [`ErrorKind::Unsupported`] for a mount of another
/// server or format, and for a volume that is not in use with soft updates; [`ErrorKind::System`].
pub fn take_mounted(mount: &Path, name: &[u8]) -> Result<Ino, Error> {
    let about = |error: Error| error.about(mount.display());
    let system = |errno: Errno| Error::io(mount.display(), &errno.into());
    let root = open_root(mount)?;
    let inside = Inside::new(name).map_err(about)?;
    let mut made = false;
    if let Some(path) = inside.directory().filter(|_| inside.is_in_home) {
        made = match mkdirat(&root, path, Mode::from_raw_mode(0o770)) {
            Err(Errno::EXIST) => false,
            done => done.map(|()| true).map_err(system)?,
        };
    }
    let home = inside.open_directory(&root).map_err(about)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let taken = match openat(&home, inside.leaf, flags, Mode::from_raw_mode(0o400)) {
        Err(Errno::EXIST) => {
            let name = String::from_utf8_lossy(name);
            return Err(about(Error::usage(format!("{name} exists"))));
        }
        Err(errno) => Err(system(errno)),
        Ok(file) => {
            let taken = convert(mount, &File::from(file));
            if taken.is_err() {
                // The first error is returned.
                let _ = unlinkat(&home, inside.leaf, AtFlags::empty());
            }
            taken
        }
    };
    if let (Err(_), true, Some(path)) = (&taken, made, inside.directory()) {
        let _ = unlinkat(&root, path, AtFlags::REMOVEDIR);
    }
    taken
}

/// The root directory of a mounted file system.
pub(crate) fn open_root(mount: &Path) -> Result<File, Error> {
    let about = |error: io::Error| Error::io(mount.display(), &error);
    let root = File::open(mount).map_err(about)?;
    let (own, above) = (root.metadata().map_err(about)?, mount.join("..").metadata());
    if own.dev() == above.map_err(about)?.dev() {
        return Err(Error::usage("not where a file system is mounted").about(mount.display()));
    }
    Ok(root)
}

/// The place of a new snapshot in a mounted volume.
struct Inside<'a> {
    /// Above the snapshot, from the root; empty for the root itself.
    above: PathBuf,
    leaf: &'a OsStr,
    /// The directory is [`HOME`].
    is_in_home: bool,
}

/// The directory of snapshots that have only a name.
const HOME: &str = ".snap";

impl<'a> Inside<'a> {
    fn new(name: &'a [u8]) -> Result<Self, Error> {
        let path = Path::new(OsStr::from_bytes(name));
        let inside = path.strip_prefix("/").unwrap_or(path);
        let mut parts = inside.components();
        let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        let leaf = parts.next_back().map(Component::as_os_str).filter(|_| is_plain);
        let leaf = leaf.ok_or_else(|| Error::usage("not the name of a snapshot"))?;
        let above: PathBuf = parts.collect();
        match path.has_root() {
            true => Ok(Self { above, leaf, is_in_home: false }),
            false if above.as_os_str().is_empty() => {
                Ok(Self { above: HOME.into(), leaf, is_in_home: true })
            }
            false => Err(Error::usage("a path in the volume begins with a slash")),
        }
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.above.as_path()).filter(|path| !path.as_os_str().is_empty())
    }

    /// Opens the directory, in the volume and without following a symlink.
    fn open_directory(&self, root: &File) -> Result<File, Error> {
        let system = |error: io::Error| Error::io(self.above.display(), &error);
        let Some(path) = self.directory() else { return root.try_clone().map_err(system) };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Ok(directory) => Ok(File::from(directory)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                let what = format!("no directory {} in this volume", path.display());
                Err(Error::usage(what))
            }
            Err(errno) => Err(system(errno.into())),
        }
    }
}

/// Has an empty file of a mounted volume converted into a snapshot.
fn convert(mount: &Path, file: &File) -> Result<Ino, Error> {
    take_snapshot(file).map_err(|error| match error.raw_os_error() {
        Some(EBUSY) => {
            let what = "it is being recovered, or must be checked when it is not in use";
            Error::new(ErrorKind::System, what).about(mount.display())
        }
        _ => refused(mount, &error, "a snapshot"),
    })?;
    let ino = file.metadata().map_err(|error| Error::io(mount.display(), &error))?.ino();
    u32::try_from(ino)
        .map(Ino::new)
        .map_err(|_| Error::usage("inode numbers of 64 bits").about(mount.display()))
}

/// The error of a request about a snapshot, for which there was no `room`.
fn refused(mount: &Path, error: &io::Error, room: &str) -> Error {
    match error.raw_os_error() {
        Some(ENOTTY | EOPNOTSUPP) => Error::new(
            ErrorKind::Unsupported,
            "a file system that takes no snapshots, or not in this state",
        )
        .about(mount.display()),
        _ if error.kind() == io::ErrorKind::StorageFull => {
            Error::new(ErrorKind::NoSpace, format!("no room for {room}")).about(mount.display())
        }
        _ => Error::io(mount.display(), error),
    }
}

/// Removes snapshots of the file system that is mounted on a directory and that this project serves,
/// those of these names, as for [`take_mounted`], or all, and returns their number. The others stay
/// as they are. If that is interrupted, an empty file may be left in place of one.
///
/// # Errors
/// [`ErrorKind::Usage`] for a file that is no snapshot; [`ErrorKind::Unsupported`] as for
/// [`take_mounted`], and for a snapshot without a name if all are removed; [`ErrorKind::System`], also
/// for a snapshot that others have open. Nothing is removed then. [`ErrorKind::NoSpace`] if there is no
/// room for copies that other snapshots may need.
pub fn remove_mounted(mount: &Path, names: Option<&[Vec<u8>]>) -> Result<u64, Error> {
    let all: Vec<Vec<u8>>;
    let names = match names {
        Some(names) => names,
        None => {
            let paths = list_mounted(mount)?.into_iter().map(|found| {
                found.path.ok_or_else(|| {
                    let what = format!("removing the snapshot of inode {}", found.ino);
                    let why = "which has no name that the caller can read";
                    Error::new(ErrorKind::Unsupported, format!("{what}, {why}"))
                        .about(mount.display())
                })
            });
            all = paths.collect::<Result<_, _>>()?;
            &all
        }
    };
    let root = open_root(mount)?;
    let listed = list(mount, &root)?;
    let mut doomed: Vec<Doomed<'_>> = Vec::new();
    for name in names {
        let found = Doomed::open(mount, &root, name)?;
        if listed.iter().all(|snapshot| snapshot.inode != found.ino) {
            let shown = String::from_utf8_lossy(name);
            return Err(Error::usage(format!("{shown} is not a snapshot")).about(mount.display()));
        }
        if doomed.iter().all(|other| other.ino != found.ino) {
            doomed.push(found);
        }
    }
    // After all of them are open: two names may be of one file.
    for found in &doomed {
        let about = || format!("{}: {}", mount.display(), found.leaf.display());
        take_write_lease(&found.file).map_err(|error| Error::io(about(), &error))?;
    }
    for found in &doomed {
        release_snapshot(&found.file)
            .map_err(|error| refused(mount, &error, "copies that other snapshots need"))?;
        found.unlink().map_err(|error| Error::io(mount.display(), &error))?;
    }
    Ok(doomed.len() as u64)
}

/// An open snapshot that is to be removed.
struct Doomed<'a> {
    /// Its directory.
    home: File,
    leaf: &'a OsStr,
    file: File,
    ino: u64,
}

impl<'a> Doomed<'a> {
    fn open(mount: &Path, root: &File, name: &'a [u8]) -> Result<Self, Error> {
        let about = |error: Error| error.about(mount.display());
        let inside = Inside::new(name).map_err(about)?;
        let home = inside.open_directory(root).map_err(about)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&home, inside.leaf, flags, Mode::empty());
        let file = File::from(opened.map_err(|errno| {
            let shown = String::from_utf8_lossy(name);
            match errno {
                Errno::NOENT => about(Error::usage(format!("no snapshot {shown}"))),
                Errno::LOOP => about(Error::usage(format!("{shown} is not a snapshot"))),
                errno => Error::io(format!("{}: {shown}", mount.display()), &errno.into()),
            }
        })?);
        let ino = file.metadata().map_err(|error| Error::io(mount.display(), &error))?.ino();
        Ok(Self { home, leaf: inside.leaf, file, ino })
    }

    /// Removes its name, unless that is of another file by now.
    fn unlink(&self) -> io::Result<()> {
        let there = statat(&self.home, self.leaf, AtFlags::SYMLINK_NOFOLLOW)?;
        if there.st_ino != self.ino {
            return Err(io::Error::other("the name is of another file by now; it stays"));
        }
        Ok(unlinkat(&self.home, self.leaf, AtFlags::empty())?)
    }
}

/// A snapshot of a mounted volume that is removed when it has been read.
pub struct Temporary<'a> {
    mount: &'a Path,
    name: &'static str,
    is_there: bool,
    /// The root directory, locked against others who want to take one.
    _root: File,
}

impl<'a> Temporary<'a> {
    /// Takes it in `.snap`, in place of one that was left behind.
    ///
    /// # Errors
    /// As [`take_mounted`] and [`remove_mounted`]; [`ErrorKind::System`] while another process has
    /// one.
    pub fn take(mount: &'a Path, name: &'static str) -> Result<Self, Error> {
        let root = open_root(mount)?;
        let failed = |errno: Errno| Error::io(mount.display(), &errno.into());
        flock(&root, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => {
                let what = "another process takes a snapshot of it to check it";
                Error::new(ErrorKind::System, what).about(mount.display())
            }
            errno => failed(errno),
        })?;
        // A directory that cannot be opened is one in which no snapshot can be taken.
        let inside = Inside::new(name.as_bytes()).map_err(|error| error.about(mount.display()))?;
        if let Ok(home) = inside.open_directory(&root) {
            // The kernel may have the attributes of the empty file in its cache, if the process that
            // had it converted was killed.
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
            match statx(&home, inside.leaf, flags, StatxFlags::BASIC_STATS) {
                // Not a snapshot yet, or no more.
                Ok(left) if is_empty_file(&left) => {
                    unlinkat(&home, inside.leaf, AtFlags::empty()).map_err(failed)?;
                }
                Ok(_) => drop(remove_mounted(mount, Some(&[name.into()]))?),
                Err(_) => {}
            }
        }
        let mut temporary = Self { mount, name, is_there: false, _root: root };
        take_mounted(mount, name.as_bytes())?;
        temporary.is_there = true;
        Ok(temporary)
    }

    /// The file, which is an image of the volume.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.mount.join(HOME).join(self.name)
    }

    /// Removes it.
    ///
    /// # Errors
    /// As [`remove_mounted`].
    pub fn remove(mut self) -> Result<(), Error> {
        self.is_there = false;
        remove_mounted(self.mount, Some(&[self.name.into()])).map(drop)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.is_there {
            // The first error is returned.
            let _ = remove_mounted(self.mount, Some(&[self.name.into()]));
        }
    }
}

fn is_empty_file(stat: &Statx) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile && stat.stx_size == 0
}

/// For which there is no `ErrorKind`.
const ENOTTY: i32 = Errno::NOTTY.raw_os_error();
const EBUSY: i32 = Errno::BUSY.raw_os_error();
const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();

/// The snapshots of the file system that is mounted on a directory and that this project serves,
/// oldest first. The directories of the volume are searched for their names, as far as the caller may
/// read them, `.snap` first.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory on which nothing is mounted; [`ErrorKind::Unsupported`] for a
/// mount of another server or format; [`ErrorKind::System`].
pub fn list_mounted(mount: &Path) -> Result<Vec<SnapshotFile>, Error> {
    let root = open_root(mount)?;
    let listed = list(mount, &root)?;
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

/// The snapshots that the server lists.
fn list(mount: &Path, root: &File) -> Result<Vec<Listed>, Error> {
    list_snapshots(root).map_err(|error| match error.raw_os_error() {
        Some(ENOTTY | EOPNOTSUPP) => {
            let what = "not a UFS volume that seekless has mounted with rw";
            Error::new(ErrorKind::Unsupported, what).about(mount.display())
        }
        _ => Error::io(mount.display(), &error),
    })
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
