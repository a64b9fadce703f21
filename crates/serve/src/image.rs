//! A read-only FUSE file system over an open image.
//!
//! The contents of an image never change while it is mounted, so the kernel may cache everything:
//! names, attributes, listings and pages. For a recording, this makes every event a first access.

use super::Recorder;
use super::kernel::{
    NAME_MAX, TTL, answer_attr, answer_data, answer_entry, answer_names, answer_value, errno,
    file_attr, file_type, generation, missing,
};
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};
use seekless_fs::{DirEntry, FsError, Inspect};
use seekless_layout::trace::Op;
use seekless_units::{ByteLen, Ino};
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image served by FUSE.
pub struct ImageMount {
    image: Arc<dyn Inspect>,
    recorder: Option<Arc<Recorder>>,
    /// Maximum read-ahead of the kernel while recording, in bytes.
    read_ahead: u32,
    faults: Faults,
}

/// Whether parts of an image could not be read, which may have gone unnoticed during the mount.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<AtomicBool>);

impl Faults {
    /// Whether there was any fault so far.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ImageMount {
    /// Serves an image, reporting all accesses to the recorder.
    pub fn new(image: Arc<dyn Inspect>, recorder: Option<Arc<Recorder>>, read_ahead: u32) -> Self {
        Self { image, recorder, read_ahead, faults: Faults::default() }
    }

    /// The faults of the mount, to be checked after its end.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn errno(&self, error: FsError) -> Errno {
        if matches!(error, FsError::Device(_) | FsError::Io { .. }) {
            self.faults.0.store(true, Ordering::Relaxed);
        }
        errno(error)
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
            // Not a file of a tree: it would be mistaken for the root.
            0 | 1 => Err(Errno::EIO),
            number => Ok(INodeNo(number)),
        }
    }

    fn attr(&self, ino: Ino) -> Result<(FileAttr, Generation), Errno> {
        let attr = self.image.attr(ino).map_err(|error| self.errno(error))?;
        let number = self.fuse_ino(ino)?;
        Ok((file_attr(&attr, number, self.image.geometry().block_size), generation(&attr)))
    }

    fn find(&self, parent: INodeNo, name: &[u8]) -> Result<Option<Ino>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.image.lookup(self.image_ino(parent)?, name).map_err(|error| self.errno(error))
    }

    /// Calls `add` with the entries of a directory after `after`, until it reports that there is no
    /// more room.
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
        listed.map_err(|error| self.errno(error))?;
        failed.map_or(Ok(()), Err)
    }

    fn kind(&self, entry: &DirEntry<'_>) -> Result<FileType, Errno> {
        match entry.kind {
            Some(kind) => Ok(file_type(kind)),
            None => {
                Ok(file_type(self.image.attr(entry.ino).map_err(|error| self.errno(error))?.kind))
            }
        }
    }

    fn contents(&self, ino: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let ino = self.image_ino(ino)?;
        let mut buf = vec![0; size as usize];
        let mut done = 0;
        while done < buf.len() {
            let at = ByteLen::new(offset.saturating_add(done as u64));
            match self.image.read(ino, at, &mut buf[done..]).map_err(|error| self.errno(error))? {
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
        // Unsupported capabilities are not needed.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        // The kernel checks ACLs for each access.
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        if self.recorder.is_some() {
            // No attributes along with a listing: they would hide later requests for them.
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
        let found = found.and_then(|ino| match ino {
            Some(ino) => self.attr(ino),
            // An entry without an inode: the kernel caches that it is missing.
            None => Ok((missing(), Generation(0))),
        });
        answer_entry(reply, found, TTL);
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.record(request, Op::Stat, ino);
        let attr = self.image_ino(ino).and_then(|ino| self.attr(ino));
        answer_attr(reply, attr.map(|(attr, _)| attr), TTL);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.record(request, Op::Readlink, ino);
        let target = self
            .image_ino(ino)
            .and_then(|ino| self.image.read_link(ino).map_err(|error| self.errno(error)));
        answer_data(reply, target);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        // Unless it is recorded, the kernel then opens and closes files without a request, and keeps
        // their pages.
        if self.recorder.is_none() {
            return reply.error(Errno::ENOSYS);
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
        let bytes = self.contents(ino, offset, size);
        if let (Some(recorder), Ok(bytes)) = (&self.recorder, &bytes) {
            recorder.read(request.pid(), ino.0, offset, bytes.len() as u64);
        }
        answer_data(reply, bytes);
    }

    /// Unless that is recorded, the kernel opens and closes directories without a request, and keeps
    /// listings.
    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.recorder.is_none() {
            return reply.error(Errno::ENOSYS);
        }
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
        // Damage in the counted metadata is no reason to say nothing.
        let space = self.image.space().unwrap_or_else(|_| self.image.geometry().space());
        reply.statfs(
            space.blocks,
            space.free,
            space.available,
            space.inodes,
            space.free_inodes,
            space.block_size,
            space.name_max,
            space.block_size,
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
        let xattrs = self
            .image_ino(ino)
            .and_then(|ino| self.image.shown_xattrs(ino).map_err(|error| self.errno(error)));
        answer_value(reply, size, name, xattrs);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let xattrs = self
            .image_ino(ino)
            .and_then(|ino| self.image.shown_xattrs(ino).map_err(|error| self.errno(error)));
        answer_names(reply, size, request, xattrs);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }
}
