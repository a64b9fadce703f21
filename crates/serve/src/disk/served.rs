//! The disk as files: `disk`, `stats`, `stats.json` and `control`.

use super::Disk;
use crate::session;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL,
    TimeOrNow, WriteFlags,
};
use seekless_units::parse_span;
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names and sizes never change while it is mounted.
const TTL: Duration = Duration::from_secs(3600);

/// Threads that serve requests, which is the maximum number in flight.
const THREADS: usize = 32;

/// Maximum number of background requests of the kernel.
const BACKGROUND: u16 = 256;

/// Maximum size of a request in bytes; the kernel has its own limit below (1 MiB unless
/// fs.fuse.max_pages_limit says otherwise).
const REQUEST_MAX: u32 = 4 << 20;

const NAMES: [(&str, u64); 4] = [("disk", 2), ("stats", 3), ("stats.json", 4), ("control", 5)];
const DISK: u64 = 2;
const STATS: u64 = 3;
const STATS_JSON: u64 = 4;
const CONTROL: u64 = 5;

// From linux/falloc.h.
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// The directory in which the disk is served.
pub struct DiskMount {
    disk: Arc<Disk>,
}

impl DiskMount {
    /// The directory of a disk.
    #[must_use]
    pub fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino.0 {
            1 => (FileType::Directory, 0o755, 0),
            DISK => (FileType::RegularFile, 0o600, self.disk.size()),
            STATS | STATS_JSON => (FileType::RegularFile, 0o444, 0),
            CONTROL => (FileType::RegularFile, 0o200, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// The present contents of a file of figures.
    fn text(&self, ino: u64) -> Option<String> {
        match ino {
            STATS => Some(self.disk.report().text()),
            STATS_JSON => Some(format!("{}\n", self.disk.report().as_json())),
            _ => None,
        }
    }

    fn control(&self, data: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(data).map_err(|_| io::ErrorKind::InvalidInput)?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(char::is_whitespace) {
                None if line == "reset" => self.disk.reset(),
                Some(("phase", name)) => self.disk.phase(name.trim())?,
                Some(("begin", name)) => self.disk.first_phase(name.trim())?,
                Some(("wait", time)) => self.disk.wait(parse_span(time.trim()).map_err(refused)?),
                Some(("iodepth", depth)) => {
                    self.disk.keep_in_flight(parse_depth(depth.trim()).map_err(refused)?);
                }
                _ => {
                    tracing::warn!(
                        "control: '{line}' is not one of 'reset', 'begin NAME', 'phase NAME', 'iodepth N' and 'wait TIME'"
                    );
                    return Err(io::ErrorKind::InvalidInput.into());
                }
            }
        }
        Ok(())
    }
}

/// The error of a line of `control`, and its reason as a warning.
fn refused(why: String) -> io::Error {
    tracing::warn!("control: {why}");
    io::ErrorKind::InvalidInput.into()
}

/// The number of requests that a program keeps in flight: at most as many as are served at once.
fn parse_depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|depth| *depth <= THREADS);
    depth.ok_or_else(|| format!("'{text}' is not a number of requests from 0 to {THREADS}"))
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        io::ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}

fn empty(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for DiskMount {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Unsupported capabilities are not needed.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_max_write(REQUEST_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = NAMES.iter().find(|(known, _)| parent == INodeNo::ROOT && *known == name);
        match found.and_then(|(_, ino)| self.attr(INodeNo(*ino))) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A disk's size is fixed; a shell truncates the files to which it writes.
        match self.attr(ino) {
            Some(_) if ino.0 == DISK && size.is_some_and(|size| size != self.disk.size()) => {
                reply.error(Errno::EPERM);
            }
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The kernel caches nothing: each access reaches the disk. Texts have a size only when they
        // are read.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        match self.attr(ino) {
            Some(_) => reply.opened(FileHandle(0), flags),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Some(text) = self.text(ino.0) {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
            let to = from.saturating_add(size as usize).min(text.len());
            return reply.data(&text.as_bytes()[from..to]);
        }
        if ino.0 != DISK {
            return reply.error(Errno::EACCES);
        }
        match self.disk.read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = match ino.0 {
            DISK => self.disk.write(offset, data),
            CONTROL => self.control(data),
            _ => return reply.error(Errno::EACCES),
        };
        match written {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        match ino.0 {
            DISK => empty(self.disk.flush(), reply),
            _ => reply.ok(),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // The close of a descriptor, which does not concern a disk.
        reply.ok();
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (punch, zero) = (mode & PUNCH_HOLE != 0, mode & ZERO_RANGE != 0);
        if ino.0 != DISK || !(punch || zero) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        empty(self.disk.discard(offset, length, zero), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let own = [(".", 1, FileType::Directory), ("..", 1, FileType::Directory)];
        let files = NAMES.iter().map(|&(name, ino)| (name, ino, FileType::RegularFile));
        for (at, (name, ino, kind)) in (1..).zip(own.into_iter().chain(files)) {
            if at > offset && reply.add(INodeNo(ino), at, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

fn config(name: &Path) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name.display().to_string()),
        session::subtype("seekless-disk"),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    // Loop devices read from the kernel's own threads.
    config.acl =
        if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

/// Serves a disk in a directory until it is unmounted or a signal arrives.
///
/// # Errors
/// As [`crate::serve()`].
pub fn serve(disk: DiskMount, dir: &Path, name: &Path, signals: Signals) -> io::Result<()> {
    session::run(Session::new(disk, dir, &config(name))?, dir, signals)
}
