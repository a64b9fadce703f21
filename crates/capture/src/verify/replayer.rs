//! Replays a trace with real system calls.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use seekless_host::mapping::Mapping;
use seekless_images::Error;
use seekless_layout::trace::{Event, Op};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Maximum bytes of a read call. A longer range takes several calls, which the kernel takes for a
/// sequential stream.
const CALL_MAX: u64 = 64 << 20;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A file, mapped as a whole, with its executable segments mapped separately, as for a program.
struct Mapped {
    whole: Mapping,
    /// Mappings, with their first page and the page after their last.
    executable: Vec<(u64, u64, Mapping)>,
}

impl Mapped {
    /// Maps a file of `pages` pages, but at least one page.
    fn new(file: &File, pages: u64, segments: &[(u64, u64)]) -> io::Result<Self> {
        let bytes = |pages: u64| usize::try_from(pages * PAGE).map_err(io::Error::other);
        let whole = Mapping::new(file, 0, bytes(pages.max(1))?, false)?;
        let mut executable = Vec::new();
        for &(from, to) in segments {
            let to = to.min(pages);
            if from < to {
                let mapping = Mapping::new(file, from * PAGE, bytes(to - from)?, true)?;
                executable.push((from, to, mapping));
            }
        }
        Ok(Self { whole, executable })
    }

    fn touch(&self, page: u64) {
        let own = self.executable.iter().find(|(from, to, _)| (*from..*to).contains(&page));
        let (first, mapping) = own.map_or((0, &self.whole), |(from, _, own)| (*from, own));
        let at = usize::try_from((page - first) * PAGE).unwrap_or(usize::MAX);
        let _ = mapping.touch(at);
    }
}

/// Reads bytes `at..end` of a file, up to its end.
fn read_range(file: &File, mut at: u64, end: u64, buf: &mut Vec<u8>) -> Result<(), Errno> {
    while at < end {
        let len = usize::try_from((end - at).min(CALL_MAX)).map_err(|_| Errno::INVAL)?;
        if buf.len() < len {
            buf.resize(len, 0);
        }
        match file.read_at(&mut buf[..len], at) {
            Ok(0) => break,
            Ok(got) => at += got as u64,
            Err(_) => return Err(Errno::IO),
        }
    }
    Ok(())
}

/// Finds an absent name by the path of its directory and the offset of the block to be searched.
type Absent<'a> = dyn Fn(&[u8], u64) -> Option<Vec<u8>> + 'a;

/// Finds the executable segments of a file by its path, without a read of the mounted file.
type Segments<'a> = dyn Fn(&[u8]) -> Vec<(u64, u64)> + 'a;

/// Replays the events of a trace on a mounted file system. Paths cannot lead out of it.
pub struct Replayer<'a> {
    root: OwnedFd,
    /// The block device of the mount.
    device: File,
    /// Open files by process and path: each has its own read-ahead state.
    files: HashMap<(u32, Vec<u8>), File>,
    mapped: HashMap<(u32, Vec<u8>), Mapped>,
    buf: Vec<u8>,
    /// Names absent from a directory, whose lookup reads the block at an offset.
    absent: Box<Absent<'a>>,
    /// Executable segments of a program or library, in pages.
    segments: Box<Segments<'a>>,
    failed: u64,
}

impl<'a> Replayer<'a> {
    /// Uses the directory `root`, on which the block device `device` is mounted.
    ///
    /// `absent` finds a name that a directory does not contain, whose lookup reads the directory's
    /// block at a byte offset. `segments` finds the executable segments of a program or library, in
    /// pages of 4096 bytes: the first page of each, and the page after its last.
    ///
    /// # Errors
    /// [`ErrorKind::System`](seekless_images::ErrorKind::System) if `root` or `device` cannot be
    /// opened.
    pub fn new(
        root: &Path,
        device: &Path,
        absent: impl Fn(&[u8], u64) -> Option<Vec<u8>> + 'a,
        segments: impl Fn(&[u8]) -> Vec<(u64, u64)> + 'a,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::io(root.display(), &error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(root, flags, Mode::empty());
        let dir = dir.map_err(|error| failed(error.into()))?;
        let device = File::open(device).map_err(failed)?;
        let (absent, segments) = (Box::new(absent), Box::new(segments));
        let (files, mapped) = (HashMap::new(), HashMap::new());
        let buf = Vec::new();
        Ok(Self { root: dir, device, files, mapped, buf, absent, segments, failed: 0 })
    }

    /// Performs an event with the system calls of its operation. Events that were recorded as
    /// failed may fail.
    pub fn perform(&mut self, event: &Event) {
        let done = match event.op {
            Op::Lookup | Op::Stat => {
                self.open(&event.path, OFlags::PATH | OFlags::NOFOLLOW).map(drop)
            }
            Op::Readlink => self.read_link(&event.path),
            Op::Readdir => self.list(&event.path),
            Op::Open => self.open_file(event),
            Op::Fault if !event.fetched => self.touch(event),
            Op::Read | Op::Mmap | Op::Fault => self.read(event, event.length),
            Op::Exec => self.exec(event),
            Op::Device => self.read_device(event),
            Op::Other(_) => Ok(()),
        };
        if done.is_err() && !event.missing {
            self.failed += 1;
        }
    }

    /// Number of events that failed so far, although they succeeded in the trace.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed
    }

    fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = path.trim_ascii_start().strip_prefix(b"/").unwrap_or(path);
        let name = if relative.is_empty() { &b"."[..] } else { relative };
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(
            &self.root,
            name.as_c_str(),
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )
    }

    /// Opens a file again for a process.
    fn open_file(&mut self, event: &Event) -> Result<(), Errno> {
        let key = (event.pid, event.path.clone());
        self.files.remove(&key);
        self.mapped.remove(&key);
        // Device nodes and FIFOs are looked up, but not opened for reading.
        let handle = self.open(&event.path, OFlags::PATH)?;
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
        match kind {
            rustix::fs::FileType::RegularFile | rustix::fs::FileType::Directory => {
                let file = self.open(&event.path, OFlags::RDONLY | OFlags::NOATIME)?;
                self.files.insert(key, file.into());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_link(&self, path: &[u8]) -> Result<(), Errno> {
        let link = self.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        match rustix::fs::readlinkat(&link, c"", Vec::new()) {
            // Not a symlink.
            Err(Errno::NOENT | Errno::INVAL) => Ok(()),
            other => other.map(drop),
        }
    }

    fn list(&self, path: &[u8]) -> Result<(), Errno> {
        let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME)?;
        let mut buf = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(dir, buf.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            entry?;
        }
        Ok(())
    }

    fn read(&mut self, event: &Event, length: Option<u64>) -> Result<(), Errno> {
        let key = (event.pid, event.path.clone());
        if !self.files.contains_key(&key) {
            self.open_file(event)?;
        }
        let Some(file) = self.files.get(&key) else { return Ok(()) };
        let meta = file.metadata().map_err(|_| Errno::IO)?;
        if meta.is_dir() {
            let end = length.map_or(meta.len(), |length| event.offset.saturating_add(length));
            let block = usize::try_from(meta.blksize()).map_err(|_| Errno::INVAL)?;
            for at in (event.offset..end.min(meta.len())).step_by(block.max(1)) {
                self.search(&event.path, at)?;
            }
            return Ok(());
        }
        if event.fetched {
            // The trace contains the pages read ahead too: no more must be fetched.
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random)?;
        }
        let end =
            length.map_or(meta.len(), |length| event.offset.saturating_add(length)).min(meta.len());
        read_range(file, event.offset, end, &mut self.buf)
    }

    /// Reads a range of the device through its page cache, which also caches the metadata of the
    /// mounted file system.
    fn read_device(&mut self, event: &Event) -> Result<(), Errno> {
        rustix::fs::fadvise(&self.device, 0, None, rustix::fs::Advice::Random)?;
        let length = event.length.unwrap_or(u64::MAX);
        read_range(&self.device, event.offset, event.offset.saturating_add(length), &mut self.buf)
    }

    /// Touches pages of a mapped file.
    fn touch(&mut self, event: &Event) -> Result<(), Errno> {
        let key = (event.pid, event.path.clone());
        if !self.files.contains_key(&key) {
            self.open_file(event)?;
        }
        let Some(file) = self.files.get(&key) else { return Ok(()) };
        let pages = file.metadata().map_err(|_| Errno::IO)?.len().div_ceil(PAGE);
        if !self.mapped.contains_key(&key) {
            let segments = (self.segments)(&event.path);
            let mapped = Mapped::new(file, pages, &segments).map_err(|_| Errno::IO)?;
            self.mapped.insert(key.clone(), mapped);
        }
        let end = event.offset.saturating_add(event.length.unwrap_or(PAGE)).div_ceil(PAGE);
        let mapped = &self.mapped[&key];
        (event.offset / PAGE..end.min(pages)).for_each(|page| mapped.touch(page));
        Ok(())
    }

    /// Looks up an absent name in a directory, so that the directory's block at an offset is read.
    fn search(&self, dir: &[u8], at: u64) -> Result<(), Errno> {
        let Some(name) = (self.absent)(dir, at) else { return Ok(()) };
        match self.open(&[dir, b"/", name.as_slice()].concat(), OFlags::PATH) {
            Err(Errno::NOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reads the file capabilities and the first page of a program, as the kernel does before it
    /// starts.
    fn exec(&mut self, event: &Event) -> Result<(), Errno> {
        self.open_file(event)?;
        if let Some(file) = self.files.get(&(event.pid, event.path.clone())) {
            let mut value = [0u8; 64];
            // Most files have no capabilities.
            let _ = rustix::fs::fgetxattr(file.as_fd(), c"security.capability", &mut value[..]);
        }
        self.read(event, event.length.or(Some(PAGE)))
    }
}
