//! Free blocks of a mounted ext4, reserved so that files can be given some of them.
//!
//! The kernel accepts no hint for the location of a file, but it exchanges the blocks of two files
//! ([`exchange`]). So fallocate(2) allocates blocks to one file without a name, the unwanted ones
//! are punched out again, and the rest are exchanged, block for block, for a file's present blocks.
//! Since the donor never has a name, the kernel frees its blocks as soon as it is closed, however
//! the process ends, and after a crash at the next mount.

use crate::HostError;
use crate::fiemap::{self, flag};
use crate::move_extent::{Exchanged, exchange};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum length of one exchange in bytes, so that a signal need not wait long.
const LONGEST_EXCHANGE: u64 = 8 << 20;

/// Maximum number of blocks in a file of ext4 (`EXT_MAX_BLOCKS`, `fs/ext4/ext4_extents.h`).
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// A run of the donor's blocks; the map's key is its first physical block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    len: u64,
    /// The donor's logical block, not shifted.
    at: u64,
}

/// A run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first block, counted from the beginning of the file system.
    pub start: u64,
    /// Number of blocks; never 0.
    pub len: u64,
}

impl Blocks {
    fn end(self) -> u64 {
        self.start + self.len
    }
}

/// A file without a name that owns free blocks.
#[derive(Debug)]
pub struct Donor {
    file: File,
    dir: PathBuf,
    block_size: u64,
    /// Blocks in a page of memory.
    page_blocks: u64,
    /// The donor's runs, by first physical block.
    held: BTreeMap<u64, Run>,
    /// The next logical block, not shifted.
    end: u64,
    /// Logical blocks inserted in front of all others, fewer than fill a page.
    shift: u64,
}

impl Donor {
    /// Creates a donor on the mounted file system of the directory `dir`, with blocks of
    /// `block_size` bytes. It is empty at first.
    ///
    /// # Errors
    /// The system call's error, for example a read-only mount or missing rights.
    pub fn new(dir: &Path, block_size: u64) -> Result<Self, HostError> {
        debug_assert!(block_size.is_power_of_two());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOATIME;
        let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| HostError::new(format!("a file in {}", dir.display()), error))?;
        let page_blocks = (rustix::param::page_size() as u64 / block_size).max(1);
        let (dir, held) = (dir.to_path_buf(), BTreeMap::new());
        Ok(Self { file: file.into(), dir, block_size, page_blocks, held, end: 0, shift: 0 })
    }

    fn failed(&self, what: &str, error: Errno) -> HostError {
        HostError::new(format!("{what} free blocks of {}", self.dir.display()), error)
    }

    fn allocate(&self, flags: FallocateFlags, at: u64, blocks: u64) -> Result<(), Errno> {
        let (at, len) = (at * self.block_size, blocks * self.block_size);
        loop {
            match rustix::fs::fallocate(&self.file, flags, at, len) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Allocates up to `blocks` more free blocks, wherever the kernel takes them. Returns their
    /// number.
    ///
    /// # Errors
    /// The system call's error. Too few free blocks are no error.
    pub fn grow(&mut self, blocks: u64) -> Result<u64, HostError> {
        let (end, shift) = (self.end, self.shift);
        let blocks = blocks.min((MOST_BLOCKS - self.page_blocks).saturating_sub(end));
        if blocks == 0 {
            return Ok(0);
        }
        let before = self.total();
        // Blocks allocated before an error stay allocated.
        self.end += blocks;
        match self.allocate(FallocateFlags::empty(), end + shift, blocks) {
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(error) => return Err(self.failed("allocating", error)),
        }
        self.look(end, blocks)?;
        Ok(self.total() - before)
    }

    /// Adds the donor's blocks from a logical block on, as FIEMAP reports them.
    fn look(&mut self, at: u64, blocks: u64) -> Result<(), HostError> {
        let bs = self.block_size;
        let found = fiemap::extents_of(&self.file, (at + self.shift) * bs, blocks * bs)
            .map_err(|error| HostError::new(self.dir.display().to_string(), error))?;
        for extent in found {
            if extent.flags & flag::NOWHERE == 0 {
                let run = Run { len: extent.len / bs, at: extent.logical / bs - self.shift };
                self.held.insert(extent.physical / bs, run);
            }
        }
        Ok(())
    }

    /// Reads the donor's map from the kernel again, after exchanges.
    ///
    /// # Errors
    /// The system call's error.
    pub fn refresh(&mut self) -> Result<(), HostError> {
        self.held.clear();
        self.look(0, self.end)
    }

    /// Number of blocks in the donor.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.held.values().map(|run| run.len).sum()
    }

    /// The donor's blocks, in disk order.
    pub fn held(&self) -> impl Iterator<Item = Blocks> + '_ {
        self.held.iter().map(|(&start, run)| Blocks { start, len: run.len })
    }

    /// Frees all blocks outside of these runs, which are in order and do not overlap.
    ///
    /// # Errors
    /// The system call's error.
    pub fn keep(&mut self, wanted: &[Blocks]) -> Result<(), HostError> {
        debug_assert!(wanted.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        let mut unwanted: Vec<(u64, u64)> = Vec::new();
        for (&start, run) in &self.held {
            let mut from = start;
            let first = wanted.partition_point(|wanted| wanted.end() <= start);
            let end = start + run.len;
            for kept in wanted[first..].iter().take_while(|kept| kept.start < end) {
                if kept.start > from {
                    unwanted.push((run.at + (from - start), kept.start - from));
                }
                from = kept.end().min(end);
            }
            if from < end {
                unwanted.push((run.at + (from - start), end - from));
            }
        }
        // Neighbours in the file are freed together.
        unwanted.sort_unstable();
        unwanted.dedup_by(|later, earlier| {
            let joins = earlier.0 + earlier.1 == later.0;
            if joins {
                earlier.1 += later.1;
            }
            joins
        });
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (at, len) in unwanted {
            self.allocate(flags, at + self.shift, len)
                .map_err(|error| self.failed("giving back", error))?;
        }
        self.refresh()
    }

    /// The first run of the donor's blocks within `blocks`.
    #[must_use]
    pub fn first_in(&self, blocks: Blocks) -> Option<Blocks> {
        let before = self.held.range(..=blocks.start).next_back();
        let covers = before.filter(|(start, run)| *start + run.len > blocks.start);
        let after = || self.held.range(blocks.start..blocks.end()).next();
        let (&start, run) = covers.or_else(after)?;
        let from = start.max(blocks.start);
        let end = (start + run.len).min(blocks.end());
        Some(Blocks { start: from, len: end - from })
    }

    /// The shift of logical blocks, less than a page, at which block `to` can be exchanged for
    /// logical block `at` of a file. `None` if the donor lacks the block.
    #[must_use]
    pub fn shift_for(&self, at: u64, to: u64) -> Option<u64> {
        let (&start, run) = self.held.range(..=to).next_back()?;
        let own = (to < start + run.len).then(|| run.at + (to - start))?;
        let pages = self.page_blocks;
        Some((at % pages + pages - own % pages) % pages)
    }

    /// Shifts all logical blocks to the value of [`Donor::shift_for`]: the kernel exchanges only
    /// ranges with equal offsets within a page. No-op if a page is one block.
    ///
    /// # Errors
    /// The system call's error.
    pub fn set_shift(&mut self, shift: u64) -> Result<(), HostError> {
        debug_assert!(shift < self.page_blocks);
        let (now, failed) = (self.shift, "shifting");
        if shift > now {
            self.allocate(FallocateFlags::INSERT_RANGE, 0, shift - now)
                .map_err(|error| self.failed(failed, error))?;
        } else if shift < now {
            self.allocate(FallocateFlags::COLLAPSE_RANGE, 0, now - shift)
                .map_err(|error| self.failed(failed, error))?;
        }
        self.shift = shift;
        Ok(())
    }

    /// Gives blocks of the donor to `file`, from its logical block `at` on, and takes the file's
    /// former blocks in exchange. [`Donor::refresh`] updates the donor's map afterwards. The file
    /// is as in [`exchange`]; the shift is right.
    ///
    /// # Errors
    /// As [`exchange`]; `EINVAL` when the donor lacks one of the blocks, or they span several runs.
    pub fn give(&mut self, file: &File, at: u64, blocks: Blocks) -> Exchanged {
        let own = self.held.range(..=blocks.start).next_back();
        let own = own.filter(|(start, run)| *start + run.len >= blocks.end());
        let Some((&start, &run)) = own else {
            return Exchanged { blocks: 0, outcome: Err(Errno::INVAL.into()) };
        };
        let first = run.at + (blocks.start - start) + self.shift;
        let most = (LONGEST_EXCHANGE / self.block_size).max(self.page_blocks);
        let mut done = 0;
        let mut outcome = Ok(());
        while done < blocks.len && outcome.is_ok() {
            let len = most.min(blocks.len - done);
            let part = exchange(file, at + done, &self.file, first + done, len);
            done += part.blocks;
            outcome = part.outcome;
            if part.blocks < len {
                break;
            }
        }
        // The map no longer covers the run until `refresh`.
        self.held.remove(&start);
        let (before, after) = (blocks.start - start, start + run.len - blocks.end());
        if before > 0 {
            self.held.insert(start, Run { len: before, at: run.at });
        }
        if after > 0 {
            let at = run.at + (blocks.end() - start);
            self.held.insert(blocks.end(), Run { len: after, at });
        }
        Exchanged { blocks: done, outcome }
    }

    /// Makes all changes to the file system durable (syncfs(2)).
    ///
    /// # Errors
    /// The system call's error.
    pub fn sync(&self) -> Result<(), HostError> {
        rustix::fs::syncfs(&self.file)
            .map_err(|error| HostError::new(format!("writing back {}", self.dir.display()), error))
    }

    /// Checks that the kernel exchanges blocks here, with two files without names, each of a page.
    /// Nothing else is touched.
    ///
    /// # Errors
    /// The exchange's error if the kernel refuses it; the system call's error if the files cannot
    /// be made.
    pub fn probe(dir: &Path, block_size: u64) -> Result<(), HostError> {
        let mut files = Vec::new();
        for _ in 0..2 {
            let mut donor = Self::new(dir, block_size)?;
            // A whole page, so that it is exchanged wherever pages are larger.
            if donor.grow(donor.page_blocks)? < donor.page_blocks {
                return Err(donor.failed("allocating", Errno::NOSPC));
            }
            files.push(donor);
        }
        let [one, other] = &files[..] else { return Ok(()) };
        let outcome = exchange(&one.file, 0, &other.file, 0, one.page_blocks).outcome;
        outcome.map_err(|error| HostError::new("exchanging blocks (EXT4_IOC_MOVE_EXT)", error))
    }
}
