//! Reading ahead.

use crate::list::{Fetch, FetchList};
use crate::user::User;
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one read.
const PIECE: usize = 1 << 20;

/// Alignment of direct reads: offsets, lengths and memory.
const ALIGNMENT: usize = 4096;

/// Upper limit of readers.
const MOST_READERS: usize = 256;

/// How long a reader waits before it looks again how far the user is.
const PAUSE: Duration = Duration::from_millis(2);

/// A user that has begun, and reads nothing for this time, has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a volume for a [`Prefetcher`]: a block device for direct reads, which the kernel does not
/// cache and does not extend.
///
/// # Errors
/// Those of opening it.
pub fn open_volume(path: &Path) -> io::Result<File> {
    let is_device = path.metadata()?.file_type().is_block_device();
    let flags = if is_device { OFlags::DIRECT } else { OFlags::empty() };
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let volume = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Advice; files that do not take it are read with read-ahead.
    let _ = fadvise(&volume, 0, None, Advice::Random);
    Ok(volume)
}

/// Reads the parts of a list ahead of the user of a volume.
pub struct Prefetcher<'a> {
    list: &'a FetchList,
    readers: usize,
    window: Option<u64>,
    least_sure: u8,
    user: Option<&'a dyn User>,
    stop: Option<&'a AtomicBool>,
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fetched {
    /// Parts that were read.
    pub parts: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Parts that the user had passed.
    pub passed: u64,
    /// Parts that too few traces need.
    pub unsure: u64,
    /// Parts that were left when the run was stopped, or the user had ended.
    pub left: u64,
    /// Parts that could not be read; the run went on.
    pub failed: Vec<Failed>,
}

/// A part that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The part.
    pub fetch: Fetch,
    /// The error.
    pub why: String,
}

/// The list is of another volume, or has parts that no volume of its size has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the list is of another volume: of {listed} bytes, not {found}")]
pub struct OtherVolume {
    /// Bytes of the volume of the list, or the end of its last part.
    pub listed: u64,
    /// Bytes of the volume that is here.
    pub found: u64,
}

impl<'a> Prefetcher<'a> {
    /// Reads the whole list with 16 readers.
    #[must_use]
    pub const fn new(list: &'a FetchList) -> Self {
        Self { list, readers: 16, window: None, least_sure: 0, user: None, stop: None }
    }

    /// The number of readers, from 1 to 256.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, MOST_READERS);
        self
    }

    /// Reads at most this number of bytes ahead of the user, who must be known ([`Prefetcher::user`]).
    #[must_use]
    pub const fn window(mut self, bytes: u64) -> Self {
        self.window = Some(bytes);
        self
    }

    /// Leaves parts out that fewer percent of the traces need.
    #[must_use]
    pub const fn least_sure(mut self, percent: u8) -> Self {
        self.least_sure = percent;
        self
    }

    /// The user of the volume.
    #[must_use]
    pub const fn user(mut self, user: &'a dyn User) -> Self {
        self.user = Some(user);
        self
    }

    /// Stops once this is set.
    #[must_use]
    pub const fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Reads the parts. A part that cannot be read is left to the user.
    ///
    /// # Errors
    /// [`OtherVolume`], with nothing read; errors of finding out the length of the volume.
    pub fn run(&self, mut volume: &File) -> io::Result<Fetched> {
        let found = volume.seek(SeekFrom::End(0))?;
        let other =
            |listed| Err(io::Error::new(io::ErrorKind::InvalidData, OtherVolume { listed, found }));
        if let Some(listed) = self.list.volume.filter(|&len| len != found) {
            return other(listed);
        }
        for fetch in &self.list.fetches {
            // The last chunk of a volume may be longer than the rest of it.
            let end = fetch.offset.checked_add(fetch.length);
            let is_chunk = self.list.volume.is_some() && end.is_some();
            let end = end.unwrap_or(u64::MAX);
            if fetch.offset >= found || (end > found && !is_chunk) {
                return other(end);
            }
        }
        let run = Run {
            prefetcher: self,
            volume,
            len: found,
            next: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            outcome: Mutex::default(),
            seen: Mutex::new((0, Instant::now())),
        };
        thread::scope(|threads| {
            let readers = 1..self.readers.min(self.list.fetches.len());
            for _ in readers {
                // Fewer threads do the same.
                if thread::Builder::new().spawn_scoped(threads, || run.reader()).is_err() {
                    break;
                }
            }
            run.reader();
        });
        Ok(run.outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A run in progress.
struct Run<'a> {
    prefetcher: &'a Prefetcher<'a>,
    volume: &'a File,
    len: u64,
    /// The part to be taken next.
    next: AtomicUsize,
    /// Bytes of reads that have begun.
    bytes: AtomicU64,
    outcome: Mutex<Fetched>,
    /// How far the user was seen last, and since when.
    seen: Mutex<(u64, Instant)>,
}

/// Whether a part is read.
enum Turn {
    Read,
    Passed,
    Left,
}

impl Run<'_> {
    fn reader(&self) {
        let mut piece = vec![0; PIECE + ALIGNMENT];
        let aligned = piece.as_ptr().align_offset(ALIGNMENT);
        let piece = piece.get_mut(aligned..aligned + PIECE).unwrap_or_default();
        while let Some(fetch) = self.take() {
            if fetch.sure < self.prefetcher.least_sure {
                self.note(|outcome| outcome.unsure += 1);
                continue;
            }
            match self.turn(&fetch) {
                Turn::Passed => self.note(|outcome| outcome.passed += 1),
                Turn::Left => self.note(|outcome| outcome.left += 1),
                Turn::Read => match self.read(&fetch, piece) {
                    Ok(bytes) => self.note(|outcome| {
                        outcome.parts += 1;
                        outcome.bytes += bytes;
                    }),
                    Err(error) => {
                        let why = error.to_string();
                        self.note(|outcome| outcome.failed.push(Failed { fetch, why }));
                    }
                },
            }
        }
    }

    fn take(&self) -> Option<Fetch> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.prefetcher.list.fetches.get(at).copied()
    }

    fn note(&self, change: impl FnOnce(&mut Fetched)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until a part is within the window.
    fn turn(&self, fetch: &Fetch) -> Turn {
        let is_stopped = || self.prefetcher.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        loop {
            if is_stopped() {
                return Turn::Left;
            }
            let user = self.prefetcher.user;
            let Some(read) = user.and_then(|user| user.read(&self.bytes)) else {
                return Turn::Read;
            };
            if read > fetch.after {
                return Turn::Passed;
            }
            let is_within = |window| fetch.after - read <= window;
            if self.prefetcher.window.is_none_or(is_within) {
                return Turn::Read;
            }
            if self.has_ended(read) {
                return Turn::Left;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether the user has begun, and read nothing for long.
    fn has_ended(&self, read: u64) -> bool {
        if read == 0 {
            return false;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != read {
            *seen = (read, Instant::now());
        }
        seen.1.elapsed() > PATIENCE
    }

    /// Reads a part.
    fn read(&self, fetch: &Fetch, piece: &mut [u8]) -> io::Result<u64> {
        let unit = ALIGNMENT as u64;
        let end = (fetch.offset + fetch.length).min(self.len);
        let mut at = fetch.offset / unit * unit;
        while at < end {
            // Direct reads have whole units; the volume's end cuts the last one.
            let rest = (end - at).div_ceil(unit) * unit;
            let most = usize::try_from(rest).map_or(PIECE, |rest| rest.min(PIECE));
            self.bytes.fetch_add(most as u64, Ordering::SeqCst);
            let read = self.volume.read_at(piece.get_mut(..most).unwrap_or_default(), at);
            let count = *read.as_ref().unwrap_or(&0);
            self.bytes.fetch_sub((most - count) as u64, Ordering::SeqCst);
            if read? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the volume ends here"));
            }
            at += count as u64;
        }
        Ok(end - fetch.offset)
    }
}
