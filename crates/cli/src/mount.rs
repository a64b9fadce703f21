//! A read-only FUSE file system over an open image. With `disk` the only user
//! of `fuser`.
//!
//! What an image holds never changes while it is mounted, so the kernel may
//! keep all it is told: names, attributes, listings and pages. While recording
//! that makes every event a first touch.

mod live;
mod options;
mod recorder;

pub(crate) use fuser::Filesystem;
pub(crate) use live::{LiveMount, Shared, lock, now, tick};
pub(crate) use options::LiveMountOptions;
pub(crate) use recorder::Recorder;

use fuser::{
    AccessFlags, Config, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request, Session, SessionACL,
};
use seekless_fs::{Attr, DeviceNumber, DirEntry, FileKind, FsError, Inspect, Timestamp};
use seekless_layout::trace::Op;
use seekless_units::{ByteLen, Ino};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As good as for ever: nothing changes.
const TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// Longest name of an entry.
const NAME_MAX: usize = 255;

/// How to mount.
pub(crate) struct MountOptions<'a> {
    /// What `mount(8)` shows as the source.
    pub(crate) name: &'a Path,
    /// Threads that serve requests.
    pub(crate) threads: usize,
    /// Whether all users may look, not only the one who mounts.
    pub(crate) everyone: bool,
    /// Whether it may be changed.
    pub(crate) writable: bool,
    /// What else the kernel is told.
    pub(crate) flags: &'a [MountOption],
}

impl MountOptions<'_> {
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            if self.writable { MountOption::RW } else { MountOption::RO },
            MountOption::FSName(self.name.display().to_string()),
            MountOption::Subtype("seekless".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.mount_options.extend_from_slice(self.flags);
        config.acl = if self.everyone { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads);
        config.clone_fd = self.threads > 1;
        config
    }
}

/// Mounts on a directory and serves until it is unmounted, by whomever or by
/// one of the signals.
///
/// # Errors
/// When it cannot be mounted, or the kernel ends the session with an error.
pub(crate) fn serve<FS: Filesystem + Send + 'static>(
    mount: FS,
    dir: &Path,
    options: &MountOptions<'_>,
    signals: Signals,
) -> io::Result<()> {
    run(Session::new(mount, dir, &options.config())?, dir, signals)
}

/// Serves a session until it is unmounted, by whomever or by one of the signals.
pub(crate) fn run<FS: Filesystem + Send + 'static>(
    mut session: Session<FS>,
    dir: &Path,
    mut signals: Signals,
) -> io::Result<()> {
    let mut unmounter = session.unmount_callable();
    let (done, finished) = std::sync::mpsc::channel();
    let told = done.clone();
    let place = dir.to_path_buf();
    std::thread::spawn(move || {
        for _ in &mut signals {
            // Someone may still be in there: then the directory is taken away
            // from new users, and the old ones lose it when this process ends.
            if unmounter.unmount().is_err() {
                let _ = told.send(detach(&place));
            }
        }
    });
    std::thread::spawn(move || done.send(session.run()));
    finished.recv().unwrap_or(Ok(()))
}

/// Unmounts a directory that is in use.
fn detach(dir: &Path) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    if unmount(dir, UnmountFlags::DETACH).is_ok() {
        return Ok(());
    }
    let status = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(dir).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("fusermount3 cannot unmount it")) }
}

/// An image as FUSE sees it.
pub(crate) struct ImageMount {
    image: Arc<dyn Inspect>,
    recorder: Option<Arc<Recorder>>,
    /// How far the kernel may read ahead while recording, in bytes.
    read_ahead: u32,
}

impl ImageMount {
    /// Serves an image, telling the recorder of all that is asked for.
    pub(crate) fn new(
        image: Arc<dyn Inspect>,
        recorder: Option<Arc<Recorder>>,
        read_ahead: u32,
    ) -> Self {
        Self { image, recorder, read_ahead }
    }

    fn record(&self, request: &Request, op: Op, ino: INodeNo) {
        if let Some(recorder) = &self.recorder {
            recorder.touch(request.pid(), op, ino.0);
        }
    }

    /// FUSE's number of the root is 1.
    fn image_ino(&self, ino: INodeNo) -> Result<Ino, Errno> {
        if ino == INodeNo::ROOT {
            return Ok(self.image.root());
        }
        u32::try_from(ino.0).map(Ino::new).map_err(|_| Errno::ENOENT)
    }

    fn fuse_ino(&self, ino: Ino) -> Result<INodeNo, Errno> {
        match u64::from(ino.get()) {
            _ if ino == self.image.root() => Ok(INodeNo::ROOT),
            // No file of a tree: it would pass for the root.
            0 | 1 => Err(Errno::EIO),
            number => Ok(INodeNo(number)),
        }
    }

    fn attr(&self, ino: Ino) -> Result<(FileAttr, Generation), Errno> {
        let attr = self.image.attr(ino).map_err(errno)?;
        let number = self.fuse_ino(ino)?;
        Ok((file_attr(&attr, number, self.image.geometry().block_size), generation(&attr)))
    }

    fn find(&self, parent: INodeNo, name: &[u8]) -> Result<Option<Ino>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.image.lookup(self.image_ino(parent)?, name).map_err(errno)
    }

    /// Calls `add` with the entries of a directory behind `after`, until it
    /// says that there is no more room.
    fn list(
        &self,
        dir: INodeNo,
        after: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let mut failed = None;
        let listed =
            self.image.read_dir(self.image_ino(dir)?, after, &mut |entry| match add(entry) {
                Ok(false) => ControlFlow::Continue(()),
                Ok(true) => ControlFlow::Break(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
        listed.map_err(errno)?;
        failed.map_or(Ok(()), Err)
    }

    fn kind(&self, entry: &DirEntry<'_>) -> Result<FileType, Errno> {
        match entry.kind {
            Some(kind) => Ok(file_type(kind)),
            None => Ok(file_type(self.image.attr(entry.ino).map_err(errno)?.kind)),
        }
    }

    fn contents(&self, ino: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let ino = self.image_ino(ino)?;
        let mut buf = vec![0; size as usize];
        let mut done = 0;
        while done < buf.len() {
            let at = ByteLen::new(offset.saturating_add(done as u64));
            match self.image.read(ino, at, &mut buf[done..]).map_err(errno)? {
                0 => break,
                got => done += got,
            }
        }
        buf.truncate(done);
        Ok(buf)
    }
}

impl Filesystem for ImageMount {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel does not know it does without.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        if self.recorder.is_some() {
            // No attributes along with a listing: that would hide who asks for
            // them later.
            let _ = config.set_max_readahead(self.read_ahead);
        } else {
            let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS);
            let _ = config.add_capabilities(InitFlags::FUSE_READDIRPLUS_AUTO);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes();
        let found = self.find(parent, name);
        if let (Some(recorder), Ok(found)) = (&self.recorder, &found) {
            let child = found.and_then(|ino| self.fuse_ino(ino).ok());
            recorder.lookup(request.pid(), parent.0, name, child.map(|ino| ino.0));
        }
        match found {
            Ok(Some(ino)) => match self.attr(ino) {
                Ok((attr, generation)) => reply.entry(&TTL, &attr, generation),
                Err(error) => reply.error(error),
            },
            // An entry without an inode: the kernel remembers that it is missing.
            Ok(None) => reply.entry(&TTL, &missing(), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.record(request, Op::Stat, ino);
        match self.image_ino(ino).and_then(|ino| self.attr(ino)) {
            Ok((attr, _)) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.record(request, Op::Readlink, ino);
        match self.image_ino(ino).and_then(|ino| self.image.read_link(ino).map_err(errno)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        self.record(request, Op::Open, ino);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.contents(ino, offset, size) {
            Ok(bytes) => {
                if let Some(recorder) = &self.recorder {
                    recorder.read(request.pid(), ino.0, offset, bytes.len() as u64);
                }
                reply.data(&bytes);
            }
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.record(request, Op::Open, ino);
        let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), keep);
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            self.record(request, Op::Readdir, ino);
        }
        let listed = self.list(ino, offset, &mut |entry| {
            let (number, kind) = (self.fuse_ino(entry.ino)?, self.kind(&entry)?);
            Ok(reply.add(number, entry.cookie, kind, OsStr::from_bytes(entry.name)))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(ino, offset, &mut |entry| {
            let number = self.fuse_ino(entry.ino)?;
            let (attr, generation) = self.attr(entry.ino)?;
            let name = OsStr::from_bytes(entry.name);
            Ok(reply.add(number, entry.cookie, name, &TTL, &attr, generation))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let shape = self.image.geometry();
        reply.statfs(
            shape.blocks,
            shape.free_blocks,
            shape.free_blocks,
            u64::from(shape.inodes),
            u64::from(shape.free_inodes),
            shape.block_size,
            NAME_MAX as u32,
            shape.block_size,
        );
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = self.image_ino(ino).and_then(|ino| {
            let xattrs = self.image.xattrs(ino).map_err(errno)?;
            let found = xattrs.into_iter().find(|xattr| xattr.name == name.as_bytes());
            found.map(|xattr| xattr.value).ok_or(Errno::ENODATA)
        });
        reply_sized(reply, size, value);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.image_ino(ino).and_then(|ino| {
            let xattrs = self.image.xattrs(ino).map_err(errno)?;
            Ok(xattrs.iter().flat_map(|xattr| [xattr.name.as_slice(), b"\0"].concat()).collect())
        });
        reply_sized(reply, size, names);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }
}

fn reply_sized(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}

/// What a program sees of an error; the rest goes to standard error.
fn errno(error: FsError) -> Errno {
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
        FsError::NoAttribute(_) => Errno::ENODATA,
        FsError::NoSpace(_) => Errno::ENOSPC,
        FsError::ReadOnly(_) => Errno::EROFS,
        FsError::Invalid(_) => Errno::EINVAL,
        FsError::Unsupported(_) => Errno::EOPNOTSUPP,
        other => {
            eprintln!("seekless: mount: {other}");
            Errno::EIO
        }
    }
}

fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

fn file_type(kind: FileKind) -> FileType {
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

fn file_attr(attr: &Attr, ino: INodeNo, block_size: u32) -> FileAttr {
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
        // As the kernel's new_encode_dev() has it.
        rdev: (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12),
        blksize: block_size,
        flags: attr.flags,
    }
}

/// A device's number as the kernel's `new_decode_dev()` has it.
fn kernel_device(raw: u32) -> DeviceNumber {
    DeviceNumber { major: (raw >> 8) & 0xfff, minor: (raw & 0xff) | ((raw >> 12) & 0xf_ff00) }
}

/// The attributes of nothing: inode number 0.
fn missing() -> FileAttr {
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
