//! Logs of the kernel's `log-writes` target (`drivers/md/dm-log-writes.c`, as of Linux 6), as
//! `replay-log` of xfstests reads them.
//!
//! ```text
//! sector 0        magic, version, number of entries (8 bytes each), sector size (4)
//! then, for each entry, a sector:
//!                 first sector, sectors, flags, bytes of data (8 bytes each);
//!                 of a mark: its text behind them
//!                 and, for a write, the sectors written
//! ```
//!
//! All numbers are little-endian, all sectors of the size given. Bytes of a log are not trusted: an
//! entry's length is checked against the log's own before anything is allocated for it.

use crate::log::{Log, Step};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::io::{self, Write};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
/// Bytes of an entry before a mark's text.
const ENTRY: usize = 32;
/// Largest sector of any device.
const LARGEST_SECTOR: u32 = 65536;
/// Most bytes that one write may have; the kernel's requests are far smaller.
const LARGEST_WRITE: u64 = 64 << 20;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Not a log.
    #[error("not a log of dm-log-writes (no magic number)")]
    Magic,
    /// A version that is not known.
    #[error("log version {0} (only version 1 is supported)")]
    Version(u64),
    /// No device has such sectors.
    #[error("unsupported sector size: {0} bytes")]
    SectorSize(u32),
    /// The log ends within an entry.
    #[error("entry {entry}: the log ends within it")]
    Truncated {
        /// Which, from 0.
        entry: u64,
    },
    /// An entry says that more was written than a request can hold.
    #[error("entry {entry}: {sectors} sectors in one write")]
    TooLarge {
        /// Which, from 0.
        entry: u64,
        /// Its number of sectors.
        sectors: u64,
    },
    /// An entry lies past the largest sector number.
    #[error("entry {entry}: sector {sector} is out of range")]
    Range {
        /// Which, from 0.
        entry: u64,
        /// Its sector.
        sector: u64,
    },
    /// Its writes exceed the caller's limit.
    #[error("entry {entry}: the writes up to this entry exceed {limit} bytes")]
    Memory {
        /// Which, from 0.
        entry: u64,
        /// The caller's limit.
        limit: ByteLen,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// A log being read.
struct Reader<'a> {
    device: &'a dyn BlockDevice,
    sector: u64,
    /// The byte that is read next.
    at: u64,
    limit: ByteLen,
    held: u64,
}

/// An entry of the log.
struct Entry {
    sector: u64,
    sectors: u64,
    flags: u64,
    text: Vec<u8>,
}

/// Reads a log; no more than `limit` bytes of writes are kept.
///
/// # Errors
/// [`LogError`].
pub fn read(device: &dyn BlockDevice, limit: ByteLen) -> Result<Log, LogError> {
    let mut head = [0; 28];
    if device.len().get() < SECTOR {
        return Err(LogError::Magic);
    }
    device.read_bytes(ByteLen::ZERO, &mut head)?;
    if word(&head, 0) != Some(MAGIC) {
        return Err(LogError::Magic);
    }
    let version = word(&head, 8).unwrap_or(0);
    if version != VERSION {
        return Err(LogError::Version(version));
    }
    let size = head.get(24..).and_then(|rest| rest.first_chunk()).map(|w| u32::from_le_bytes(*w));
    let size = size.unwrap_or(0);
    if !size.is_power_of_two() || u64::from(size) < SECTOR || size > LARGEST_SECTOR {
        return Err(LogError::SectorSize(size));
    }
    let sector = u64::from(size);
    let mut reader = Reader { device, sector, at: sector, limit, held: 0 };
    let mut log = Log::default();
    // Each takes a sector of the log at least, or it is cut short.
    for number in 0..word(&head, 16).unwrap_or(0) {
        let entry = reader.entry(number)?;
        reader.steps(number, entry, &mut log)?;
    }
    Ok(log)
}

impl Reader<'_> {
    /// The next bytes of the log.
    fn take(&mut self, number: u64, len: u64) -> Result<Vec<u8>, LogError> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.device.len().get());
        let end = end.ok_or(LogError::Truncated { entry: number })?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        self.device.read_bytes(ByteLen::new(self.at), &mut bytes)?;
        self.at = end;
        Ok(bytes)
    }

    fn entry(&mut self, number: u64) -> Result<Entry, LogError> {
        let bytes = self.take(number, self.sector)?;
        let field = |at: usize| word(&bytes, at).unwrap_or(0);
        let len = usize::try_from(field(24)).unwrap_or(usize::MAX);
        let text = bytes.get(ENTRY..).unwrap_or_default();
        let text = text.get(..len.min(text.len())).unwrap_or_default().to_vec();
        Ok(Entry { sector: field(0), sectors: field(8), flags: field(16), text })
    }

    /// The steps of an entry: a flush goes before the data that come with it.
    fn steps(&mut self, number: u64, entry: Entry, log: &mut Log) -> Result<(), LogError> {
        let Entry { sector, sectors, flags, text } = entry;
        if flags & MARK != 0 {
            log.steps.push(Step::Mark(String::from_utf8_lossy(&text).into_owned()));
            return Ok(());
        }
        if flags & FLUSH != 0 {
            log.steps.push(Step::Flush);
        }
        if sectors == 0 {
            return Ok(());
        }
        let each = self.sector.checked_div(SECTOR).unwrap_or(1);
        let out = LogError::Range { entry: number, sector };
        let first = sector.checked_mul(each);
        let behind = sector.checked_add(sectors).and_then(|end| end.checked_mul(self.sector));
        let (Some(first), Some(_)) = (first, behind) else { return Err(out) };
        let at = Lba::new(first);
        if flags & DISCARD != 0 {
            log.steps.push(Step::Discard { at, sectors: sectors.saturating_mul(each) });
            return Ok(());
        }
        let len = sectors.saturating_mul(self.sector);
        if len > LARGEST_WRITE {
            return Err(LogError::TooLarge { entry: number, sectors });
        }
        self.held = self.held.saturating_add(len);
        if self.held > self.limit.get() {
            return Err(LogError::Memory { entry: number, limit: self.limit });
        }
        let bytes = self.take(number, len)?.into();
        log.steps.push(Step::Write { at, bytes, fua: flags & FUA != 0 });
        Ok(())
    }
}

/// Writes a log, in sectors of 512 bytes. Marks are cut where a sector ends. A write is placed
/// where it completed, as the kernel's target has it: that it may have reached the disk before is
/// not known from such a log, and one that never completed is not in it.
///
/// # Errors
/// Those of `to`; [`io::ErrorKind::InvalidInput`] for a write that is not of whole sectors.
pub fn write(log: &Log, to: &mut dyn Write) -> io::Result<()> {
    let size = usize::try_from(SECTOR).unwrap_or(512);
    let mut head = vec![0; size];
    let is_entry = |step: &&Step| !matches!(step, Step::Submit { .. });
    let count = u64::try_from(log.steps.iter().filter(is_entry).count()).unwrap_or(u64::MAX);
    put(&mut head, &[MAGIC, VERSION, count, SECTOR]);
    to.write_all(&head)?;
    for step in &log.steps {
        let mut entry = vec![0; size];
        let step = match step {
            Step::Complete { submit } => log.steps.get(*submit).unwrap_or(step),
            Step::Submit { .. } => continue,
            _ => step,
        };
        match step {
            Step::Write { at, bytes, fua } | Step::Submit { at, bytes, fua } => {
                let sectors = bytes.len().checked_div(size).unwrap_or(0);
                if sectors.saturating_mul(size) != bytes.len() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "a write is not a multiple of the sector size",
                    ));
                }
                let sectors = u64::try_from(sectors).unwrap_or(u64::MAX);
                put(&mut entry, &[at.get(), sectors, if *fua { FUA } else { 0 }, 0]);
                to.write_all(&entry)?;
                to.write_all(bytes)?;
                continue;
            }
            // It completes a write that is not there.
            Step::Complete { .. } => {}
            Step::Discard { at, sectors } => put(&mut entry, &[at.get(), *sectors, DISCARD, 0]),
            Step::Flush => put(&mut entry, &[0, 0, FLUSH, 0]),
            Step::Mark(text) => {
                let room = size.saturating_sub(ENTRY);
                let text = text.as_bytes();
                let text = text.get(..text.len().min(room)).unwrap_or_default();
                put(&mut entry, &[0, 0, MARK, u64::try_from(text.len()).unwrap_or(0)]);
                if let Some(rest) = entry.get_mut(ENTRY..) {
                    rest.iter_mut().zip(text).for_each(|(to, &from)| *to = from);
                }
            }
        }
        to.write_all(&entry)?;
    }
    Ok(())
}

/// Puts words at the start of a sector.
fn put(sector: &mut [u8], words: &[u64]) {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    sector.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
}
