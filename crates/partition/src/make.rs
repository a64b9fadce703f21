//! A GUID partition table for a new disk, by the crate `gptman`.

use crate::{Guid, TableError};
use gptman::{GPT, GPTPartitionEntry};
use seekless_device::BlockDevice;
use seekless_units::{ByteLen, Lba};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes in a sector of the disk.
const SECTOR: u64 = 512;

/// Size of the entries in bytes: 128 of 128 bytes, the minimum of UEFI.
const ENTRIES: usize = 128 * 128;

/// Size of the table at the start of a disk: the protective record, the header, the entries.
const HEAD: usize = 2 * SECTOR as usize + ENTRIES;

/// Size of its copy at the end: the entries, the header.
const TAIL: usize = ENTRIES + SECTOR as usize;

/// A partition to be created, in bytes, whole sectors of 512.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPartition {
    /// Its type.
    pub kind: Guid,
    /// Its own identifier.
    pub id: Guid,
    /// Its name, cut after 36 UTF-16 code units.
    pub name: String,
    /// Its offset in bytes.
    pub start: ByteLen,
    /// Its length in bytes.
    pub len: ByteLen,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The 64 attribute bits of a partition. Bits from 48 on belong to its type; those here are of the
/// Discoverable Partitions Specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes(pub u64);

impl Attributes {
    /// The file system is grown to the size of the partition when it is mounted.
    pub const GROW: Self = Self(1 << 59);
    /// It is mounted read-only.
    pub const READ_ONLY: Self = Self(1 << 60);
    /// It is not mounted by itself.
    pub const NO_AUTO: Self = Self(1 << 63);

    /// With a bit set or cleared.
    #[must_use]
    pub const fn with(self, bit: Self, is_set: bool) -> Self {
        if is_set { Self(self.0 | bit.0) } else { Self(self.0 & !bit.0) }
    }
}

/// Writes a table with these partitions, numbered from 1, its copy at the end of the disk, and the
/// boot record that protects it from programs without GPT support. The rest of the disk is
/// unchanged.
///
/// # Errors
/// [`TableError::Gpt`] for partitions that overlap each other or the table, or are not on the disk;
/// [`TableError::Device`].
pub fn write(
    disk: &dyn BlockDevice,
    id: Guid,
    partitions: &[NewPartition],
) -> Result<(), TableError> {
    let wrong = |error: gptman::Error| TableError::Gpt { at: SECTOR, why: error.to_string() };
    let mut ends = Ends::new(disk.len().get())?;
    let mut table = GPT::new_from(&mut ends, SECTOR, id.0).map_err(wrong)?;
    for (number, new) in (1..).zip(partitions) {
        let (start, len) = (new.start.get(), new.len.get());
        debug_assert!(len > 0, "{new:?} has no sectors");
        debug_assert!(start.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR), "{new:?}");
        table[number] = GPTPartitionEntry {
            partition_type_guid: new.kind.0,
            unique_partition_guid: new.id.0,
            starting_lba: start / SECTOR,
            ending_lba: (start + len) / SECTOR - 1,
            attribute_bits: new.attributes.0,
            partition_name: new.name.as_str().into(),
        };
    }
    GPT::write_protective_mbr_into(&mut ends, SECTOR).map_err(wrong)?;
    table.write_into(&mut ends).map_err(wrong)?;
    debug_assert_eq!(ends.head.len(), HEAD, "the head keeps its length");
    debug_assert_eq!(ends.tail.len(), TAIL, "the tail keeps its length");
    disk.write(Lba::ZERO, &ends.head)?;
    disk.write(Lba::containing(ByteLen::new(ends.len - TAIL as u64)), &ends.tail)?;
    Ok(())
}

/// Both ends of a disk in memory, since the library writes pieces that are no sectors.
struct Ends {
    len: u64,
    at: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn new(len: u64) -> Result<Self, TableError> {
        if len < (HEAD + TAIL) as u64 + SECTOR || !len.is_multiple_of(SECTOR) {
            let why = format!("a disk of {len} bytes has no room for it");
            return Err(TableError::Gpt { at: SECTOR, why });
        }
        Ok(Self { len, at: 0, head: vec![0; HEAD], tail: vec![0; TAIL] })
    }

    /// The next `len` bytes, which are in one of the ends.
    fn here(&mut self, len: usize) -> io::Result<&mut [u8]> {
        let behind = self.len - TAIL as u64;
        let (part, from) = match self.at.checked_sub(behind) {
            Some(from) => (&mut self.tail, from),
            None => (&mut self.head, self.at),
        };
        let from = usize::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
        let part = part.get_mut(from..).and_then(|part| part.get_mut(..len));
        part.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Read for Ends {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        buf.copy_from_slice(self.here(buf.len())?);
        self.at += buf.len() as u64;
        Ok(buf.len())
    }
}

impl Write for Ends {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.here(buf.len())?.copy_from_slice(buf);
        self.at += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Ends {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
