//! Free blocks of a mounted XFS, held by a file without a name, which other files are
//! given: what they hold is copied there, and the two are exchanged.
//!
//! The allocator is not told where. It begins in the allocation group of the file's
//! inode, which is that of the directory the file is made in, and takes a free run that is
//! long enough for all that is asked for at once if any group has one, else the longest
//! (`xfs_bmap_btalloc`, `fs/xfs/libxfs/xfs_bmap.c`).

use super::attributes::make_plain;
use super::exchange::{Freshness, commit, start_commit, try_commit};
use crate::HostError;
use crate::fiemap::{self, MappedExtent, flag};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// Bytes that are copied by one call.
const COPY: u64 = 1 << 20;

/// A tick of the kernel's clock, at the lowest rate that it has (`CONFIG_HZ_100`).
const TICK: Duration = Duration::from_millis(10);

/// A file without a name that holds free blocks. They are everybody's again when it is
/// dropped, however the process ends.
#[derive(Debug)]
pub struct Donor {
    file: File,
    block_size: u64,
    /// Where the next range comes, in bytes: a multiple of a block.
    at: u64,
    buffer: Vec<u8>,
}

impl Donor {
    /// A donor that is made in the directory `dir` of an XFS with blocks of `block_size`
    /// bytes. It holds nothing yet.
    ///
    /// # Errors
    /// What the system says: a mount that is read-only, no right to.
    pub fn new(dir: impl AsFd, block_size: u64) -> Result<Self, HostError> {
        let failed = |error: io::Error| HostError::new("a file without a name", error);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOATIME;
        let file: File = rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed(error.into()))?
            .into();
        make_plain(&file).map_err(failed)?;
        Ok(Self { file, block_size, at: 0, buffer: Vec::new() })
    }

    /// Its inode number, which tells the allocation group.
    ///
    /// # Errors
    /// What the system says.
    pub fn ino(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    fn allocate(&self, flags: FallocateFlags, at: u64, len: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, at, len) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Holds `len` bytes of free blocks, or as many as can be had.
    ///
    /// # Errors
    /// What the system says; not that too few are free.
    pub fn hold(&self, len: u64) -> Result<(), HostError> {
        match self.allocate(FallocateFlags::KEEP_SIZE, 0, len) {
            // What was allocated before an error stays.
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => Err(HostError::new("allocating free blocks", error)),
        }
    }

    /// What it holds and has not given, in the order in which it is given. A range that is
    /// not covered is not held.
    ///
    /// # Errors
    /// What the system says.
    pub fn held(&self) -> Result<Vec<MappedExtent>, HostError> {
        let found = fiemap::extents_of(&self.file, self.at, u64::MAX - self.at)
            .map_err(|error| HostError::new("free blocks that are held", error))?;
        Ok(found.into_iter().filter(|extent| extent.flags & flag::NOWHERE == 0).collect())
    }

    /// Where in the donor the next range comes: bytes.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Gives back the next `len` bytes, a multiple of a block, without using them. Where not
    /// even that is possible for want of space, they are free when the donor is dropped.
    ///
    /// # Errors
    /// What the system says otherwise.
    pub fn skip(&mut self, len: u64) -> Result<(), HostError> {
        let at = self.at;
        self.at += len;
        if len == 0 {
            return Ok(());
        }
        match self.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len) {
            Ok(()) | Err(Errno::NOSPC) => Ok(()),
            Err(error) => Err(HostError::new("giving back blocks", error)),
        }
    }

    /// Gives `file` the next blocks for what it has from byte `at` to byte `end`, as far as it
    /// reaches; both are multiples of a block. Its own blocks are free at once. `check` is
    /// asked about bytes from one on, so many, when nobody can change them any more without
    /// that being noticed, and may refuse. Bytes that were exchanged: fewer than asked for
    /// where the file has become shorter.
    ///
    /// # Errors
    /// As [`commit`]; `EBUSY` when the file was changed, `EINVAL` when its end was moved
    /// meanwhile or `check` refused. Nothing has happened then, and the same can be tried
    /// again; who gives up must [`Donor::skip`] the range.
    pub fn give(
        &mut self,
        file: &File,
        at: u64,
        end: u64,
        check: &dyn Fn(u64, u64) -> io::Result<bool>,
    ) -> io::Result<u64> {
        let len = self.exchange(file, at, end, check)?;
        // What was the file's belongs to nobody.
        self.skip(end - at).map_err(|error| error.source)?;
        Ok(len)
    }

    fn exchange(
        &mut self,
        file: &File,
        at: u64,
        end: u64,
        check: &dyn Fn(u64, u64) -> io::Result<bool>,
    ) -> io::Result<u64> {
        let len = self.meet(end.min(file.metadata()?.len()).saturating_sub(at))?;
        if len == 0 {
            return Ok(0);
        }
        let Some(fresh) = self.freshness(file)? else {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        };
        try_commit(file, &fresh, at, &self.file, self.at, len)?;
        if !check(at, len)? {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.copy(file, at, len)?;
        commit(file, &fresh, at, &self.file, self.at, len)?;
        Ok(len)
    }

    /// Makes the donor end where `len` bytes of the next range do, if it ends before that: a
    /// range may end within a block only where both files do. Where an earlier try has made
    /// it longer, whole blocks can be exchanged; so many bytes.
    fn meet(&self, len: u64) -> io::Result<u64> {
        let (size, end) = (self.file.metadata()?.len(), self.at + len);
        if size < end {
            self.file.set_len(end)?;
        }
        Ok(if size <= end { len } else { len / self.block_size * self.block_size })
    }

    /// What a file is like, once its last change is a tick ago.
    fn freshness(&self, file: &File) -> io::Result<Option<Freshness>> {
        if let Some(fresh) = start_commit(file)? {
            return Ok(Some(fresh));
        }
        std::thread::sleep(TICK);
        start_commit(file)
    }

    fn copy(&mut self, file: &File, from: u64, len: u64) -> io::Result<()> {
        self.buffer.resize(COPY.min(len.next_multiple_of(self.block_size)) as usize, 0);
        let mut done = 0;
        while done < len {
            let part = (len - done).min(self.buffer.len() as u64) as usize;
            let buffer = &mut self.buffer[..part];
            // Shorter by now: that is a change, and will be noticed; not half a copy.
            file.read_exact_at(buffer, from + done).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::from_raw_os_error(libc::EBUSY),
                _ => error,
            })?;
            self.file.write_all_at(buffer, self.at + done)?;
            done += part as u64;
        }
        Ok(())
    }

    /// Whether the kernel exchanges ranges here, tried with a donor of a block and another
    /// file without a name. Nothing else is touched.
    ///
    /// # Errors
    /// `ENOTTY` where the kernel has no such call, `EOPNOTSUPP` where the volume has not the
    /// feature; what the system says about the files.
    pub fn probe(dir: impl AsFd, block_size: u64) -> Result<(), HostError> {
        let other = Self::new(dir.as_fd(), block_size)?;
        let mut donor = Self::new(dir.as_fd(), block_size)?;
        let failed = |error: io::Error| HostError::new("XFS_IOC_COMMIT_RANGE", error);
        let byte = vec![1; block_size as usize];
        other.file.write_all_at(&byte, 0).map_err(failed)?;
        donor.hold(block_size)?;
        let done = donor.give(&other.file, 0, block_size, &|_, _| Ok(true));
        done.map(drop).map_err(failed)
    }
}
