//! Free blocks of a mounted XFS, owned by a file without a name, for use by other files: their
//! contents are copied there, and the two ranges are exchanged.
//!
//! The allocator accepts no location. It begins in the allocation group of the file's inode, which
//! is the group of its directory. It takes a free run long enough for the whole request if any
//! group has one, else the longest (`xfs_bmap_btalloc`, `fs/xfs/libxfs/xfs_bmap.c`).

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

/// Bytes copied per call.
const COPY: u64 = 1 << 20;

/// A tick of the kernel's clock at its lowest rate (`CONFIG_HZ_100`).
const TICK: Duration = Duration::from_millis(10);

/// A file without a name that owns free blocks of an XFS. They are free again when it is dropped,
/// however the process ends.
#[derive(Debug)]
pub struct XfsDonor {
    file: File,
    block_size: u64,
    /// Offset of the next range, in bytes: a multiple of a block.
    at: u64,
    buffer: Vec<u8>,
}

impl XfsDonor {
    /// Creates a donor in the directory `dir` of an XFS with blocks of `block_size` bytes. It is
    /// empty at first.
    ///
    /// # Errors
    /// The system call's error, for example a read-only mount or missing rights.
    pub fn new(dir: impl AsFd, block_size: u64) -> Result<Self, HostError> {
        let failed = |error: io::Error| HostError::new("a file without a name", error);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOATIME;
        let file: File = rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed(error.into()))?
            .into();
        make_plain(&file).map_err(failed)?;
        Ok(Self { file, block_size, at: 0, buffer: Vec::new() })
    }

    /// The donor's inode number, which determines the allocation group.
    ///
    /// # Errors
    /// The system call's error.
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

    /// Allocates `len` bytes of free blocks, or as many as there are.
    ///
    /// # Errors
    /// The system call's error. Too few free blocks are no error.
    pub fn hold(&self, len: u64) -> Result<(), HostError> {
        match self.allocate(FallocateFlags::KEEP_SIZE, 0, len) {
            // Blocks allocated before an error stay allocated.
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => Err(HostError::new("allocating free blocks", error)),
        }
    }

    /// The donor's extents from the next range on, in the order in which they are given. Uncovered
    /// ranges have no blocks.
    ///
    /// # Errors
    /// The system call's error.
    pub fn held(&self) -> Result<Vec<MappedExtent>, HostError> {
        let found = fiemap::extents_of(&self.file, self.at, u64::MAX - self.at)
            .map_err(|error| HostError::new("free blocks that are held", error))?;
        Ok(found.into_iter().filter(|extent| extent.flags & flag::NOWHERE == 0).collect())
    }

    /// Offset of the next range in the donor, in bytes.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Frees the next `len` bytes, a multiple of a block, without using them. If even that fails
    /// for lack of space, they are freed when the donor is dropped.
    ///
    /// # Errors
    /// Other errors of the system call.
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

    /// Exchanges the donor's next blocks for those of `file` from byte `at` to byte `end`, or to
    /// the end of the file; both are multiples of a block. The file's former blocks are freed at
    /// once. `check` is called with an offset and a length once changes of these bytes no longer go
    /// unnoticed, and may refuse. Returns the number of bytes exchanged: fewer than requested if
    /// the file has become shorter.
    ///
    /// # Errors
    /// As [`commit`]; `EBUSY` when the file was changed, `EINVAL` when its end was moved meanwhile
    /// or `check` refused. Nothing has happened then, and the call can be repeated; to give up, the
    /// caller must [`XfsDonor::skip`] the range.
    pub fn give(
        &mut self,
        file: &File,
        at: u64,
        end: u64,
        check: &dyn Fn(u64, u64) -> io::Result<bool>,
    ) -> io::Result<u64> {
        let len = self.exchange(file, at, end, check)?;
        // The donor now has the file's former blocks.
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

    /// Extends the donor to the end of the `len` bytes of the next range, if it is shorter: a range
    /// may end within a block only where both files end. If an earlier try has made the donor
    /// longer, only whole blocks can be exchanged. Returns the number of bytes.
    fn meet(&self, len: u64) -> io::Result<u64> {
        let (size, end) = (self.file.metadata()?.len(), self.at + len);
        if size < end {
            self.file.set_len(end)?;
        }
        Ok(if size <= end { len } else { len / self.block_size * self.block_size })
    }

    /// The freshness of a file, taken a tick later if its last change is too recent.
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
            // A file that is shorter by now was changed: `EBUSY`, not half a copy.
            file.read_exact_at(buffer, from + done).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::from_raw_os_error(libc::EBUSY),
                _ => error,
            })?;
            self.file.write_all_at(buffer, self.at + done)?;
            done += part as u64;
        }
        Ok(())
    }

    /// Checks that the kernel exchanges ranges here, with a donor of a block and another file
    /// without a name. Nothing else is touched.
    ///
    /// # Errors
    /// `ENOTTY` if the kernel lacks the call, `EOPNOTSUPP` if the volume lacks the feature; the
    /// system call's error if the files cannot be made.
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
