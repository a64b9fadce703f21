//! Master boot records, with the chain of extended boot records that contain the logical partitions
//! (Linux: `block/partitions/msdos.c`).

use crate::{Kind, Partition, Scheme, Table, TableError, add};
use seekless_device::BlockDevice;
use seekless_units::{ByteLen, Lba, SECTOR};

/// The signature at the end of every boot record.
const MARK: [u8; 2] = [0x55, 0xaa];

/// Offset and size of the four entries, in bytes.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;

/// The number of the first logical partition.
const LOGICAL: u32 = 5;

/// Limit of logical partitions, above that of Linux. A longer chain is a cycle.
const LOGICAL_MAX: u32 = 256;

/// An entry of a boot record, in sectors of 512 bytes.
#[derive(Clone, Copy)]
struct Entry {
    active: u8,
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn partition(self, number: u32, start: u64) -> Partition {
        Partition {
            number,
            start: ByteLen::new(start * SECTOR),
            len: ByteLen::new(self.sectors * SECTOR),
            kind: Kind::Mbr(self.kind),
            name: String::new(),
            id: None,
        }
    }
}

/// The entries of the boot record in a sector; `None` without the signature.
fn entries(disk: &dyn BlockDevice, at: u64) -> Result<Option<[Entry; 4]>, TableError> {
    let mut sector = [0; SECTOR as usize];
    disk.read(Lba::new(at), &mut sector)?;
    if sector[510..] != MARK {
        return Ok(None);
    }
    Ok(Some(std::array::from_fn(|index| {
        let bytes = &sector[ENTRIES + index * ENTRY..][..ENTRY];
        let number = |at: usize| {
            u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
        };
        Entry { active: bytes[0], kind: bytes[4], start: number(8), sectors: number(12) }
    })))
}

/// The type of the partition that protects a disk with a GUID partition table.
const PROTECTIVE: u8 = 0xee;

/// The kind of a disk's boot record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// It is missing, or has no partitions.
    None,
    /// The disk has a GUID partition table.
    Protective,
    /// It contains the disk's partitions.
    Others,
}

impl Record {
    pub(crate) fn of(disk: &dyn BlockDevice) -> Result<Self, TableError> {
        Ok(match first(disk)? {
            None => Self::None,
            Some(entries) if entries.iter().any(|entry| entry.kind == PROTECTIVE) => {
                Self::Protective
            }
            Some(_) => Self::Others,
        })
    }
}

/// The entries of a disk's boot record; `None` if it has no partitions.
fn first(disk: &dyn BlockDevice) -> Result<Option<[Entry; 4]>, TableError> {
    if disk.len().get() < SECTOR {
        return Ok(None);
    }
    let Some(first) = entries(disk, 0)? else { return Ok(None) };
    // The boot sector of a file system has the same signature, and code in place of the entries:
    // Linux distinguishes them by this byte, which is 0 or 0x80 in entries.
    let is_code = first.iter().any(|entry| entry.active & 0x7f != 0);
    Ok((!is_code && first.iter().any(|entry| entry.is_used())).then_some(first))
}

pub(crate) fn read(disk: &dyn BlockDevice) -> Result<Option<Table>, TableError> {
    let Some(first) = first(disk)? else { return Ok(None) };
    let mut partitions = Vec::new();
    let mut chain = None;
    for (number, entry) in (1..).zip(first).filter(|(_, entry)| entry.is_used()) {
        if entry.is_extended() {
            chain = chain.or(Some(entry.start));
        } else {
            add(&mut partitions, entry.partition(number, entry.start), disk)?;
        }
    }
    if let Some(start) = chain {
        logical(disk, start, &mut partitions)?;
    }
    Ok(Some(Table { scheme: Scheme::Mbr, is_backup: false, partitions }))
}

/// Adds the logical partitions of the extended one that begins in sector `extended`. Each follows
/// its own boot record, which refers to the next one, counted from the beginning of the extended
/// partition.
fn logical(
    disk: &dyn BlockDevice,
    extended: u64,
    partitions: &mut Vec<Partition>,
) -> Result<(), TableError> {
    let mut at = extended;
    let mut number = LOGICAL;
    loop {
        let damaged = |why: &str| TableError::Mbr { at: at * SECTOR, why: why.into() };
        if (at + 1) * SECTOR > disk.len().get() {
            return Err(damaged("it lies past the end of the disk"));
        }
        let Some([own, next, ..]) = entries(disk, at)? else {
            // An extended partition without logical ones need not have one.
            return if at == extended { Ok(()) } else { Err(damaged("it has no mark")) };
        };
        if own.is_used() && !own.is_extended() {
            add(partitions, own.partition(number, at + own.start), disk)?;
            number += 1;
        }
        if !next.is_used() {
            return Ok(());
        }
        if !next.is_extended() || number >= LOGICAL + LOGICAL_MAX {
            return Err(damaged("the chain of logical partitions has no end"));
        }
        let following = extended + next.start;
        if following <= at {
            return Err(damaged("the chain of logical partitions leads back"));
        }
        at = following;
    }
}
