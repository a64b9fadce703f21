//! Partition tables: where on a disk its file systems are.
//!
//! A GUID partition table is read with its checksums, from the copy at the end
//! where the first one is damaged (UEFI Specification, chapter 5.3); else the
//! table of a master boot record, with the chain of logical partitions. What they
//! say is checked: every partition that is given out lies on the device. New disks get
//! a GUID partition table.

mod gpt;
mod kind;
mod make;
mod mbr;
mod select;

pub use kind::{Guid, Kind};
pub use make::{NewPartition, write};
pub use select::SelectError;

use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, SECTOR};

/// What a disk is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// A GUID partition table.
    Gpt,
    /// A master boot record.
    Mbr,
}

impl Scheme {
    /// Its name: `gpt` or `mbr`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
        }
    }
}

/// A part of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// As Linux numbers it, from 1; logical ones from 5.
    pub number: u32,
    /// The disk's byte that it begins with; begins a sector of 512 bytes.
    pub start: ByteLen,
    /// Bytes.
    pub len: ByteLen,
    /// What it is said to be for.
    pub kind: Kind,
    /// Its name; empty where it has none, as all of a master boot record.
    pub name: String,
    /// Its own identifier; none in a master boot record.
    pub id: Option<Guid>,
}

/// The partitions of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// How it is written.
    pub scheme: Scheme,
    /// Whether it is the copy at the end of the disk, as the first one is damaged.
    pub is_backup: bool,
    /// In order of their numbers.
    pub partitions: Vec<Partition>,
}

/// Why a partition table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Neither copy of the table is sound.
    #[error("the GUID partition table at byte {at} is damaged: {why}")]
    Gpt {
        /// Where the first copy begins.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The boot record, or one of the chain of extended ones.
    #[error("the boot record at byte {at} is damaged: {why}")]
    Mbr {
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A partition that does not lie on the disk.
    #[error(
        "partition {number} ({len} bytes from byte {start} on) extends past the end of the disk ({disk} bytes)"
    )]
    Outside {
        /// Its number.
        number: u32,
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        len: u64,
        /// The disk's length in bytes.
        disk: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Table {
    /// Reads the table of a disk; `None` where there is none. A boot record without
    /// partitions, as file systems have one for themselves, is none.
    ///
    /// # Errors
    /// [`TableError`] when there is one that cannot be used.
    pub fn read(disk: &dyn BlockDevice) -> Result<Option<Self>, TableError> {
        let record = mbr::Record::of(disk)?;
        // What is left of an older GUID table is none, as for Linux and libblkid.
        if record == mbr::Record::Others {
            return mbr::read(disk);
        }
        match gpt::read(disk)? {
            Some(table) => Ok(Some(table)),
            None if record == mbr::Record::Protective => {
                let why = "the boot record says that there is one, and neither copy is found";
                Err(TableError::Gpt { at: SECTOR, why: why.into() })
            }
            None => Ok(None),
        }
    }
}

/// Adds a partition that is used, if it lies on the disk. All figures in bytes.
fn add(
    partitions: &mut Vec<Partition>,
    partition: Partition,
    disk: &dyn BlockDevice,
) -> Result<(), TableError> {
    let (start, len) = (partition.start.get(), partition.len.get());
    if start.checked_add(len).is_none_or(|end| end > disk.len().get()) {
        let number = partition.number;
        return Err(TableError::Outside { number, start, len, disk: disk.len().get() });
    }
    partitions.push(partition);
    Ok(())
}
