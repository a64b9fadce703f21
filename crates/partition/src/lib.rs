//! Partition tables: the locations of file systems on a disk.
//!
//! A GUID partition table is read with its checksums, from the copy at the end if the first one is
//! damaged (UEFI Specification, chapter 5.3); otherwise the table of a master boot record, with the
//! chain of logical partitions. Their contents are checked: every returned partition is within the
//! device. New disks get a GUID partition table.
//!
//! # Example
//!
//! ```
//! use seekless_device::MemoryDevice;
//! use seekless_partition::{Attributes, Guid, NewPartition, Table, write};
//! use seekless_units::ByteLen;
//!
//! let disk = MemoryDevice::new(vec![0; 4 << 20]);
//! let root = NewPartition {
//!     kind: Guid::of_type("Linux filesystem").expect("a known type"),
//!     id: Guid::derived("root", b"its contents"),
//!     name: "root".into(),
//!     start: ByteLen::new(1 << 20),
//!     len: ByteLen::new(2 << 20),
//!     attributes: Attributes::default(),
//! };
//! write(&disk, Guid::derived("disk", b""), &[root])?;
//! let table = Table::read(&disk)?.expect("a table");
//! assert_eq!(table.select("root")?.start, ByteLen::new(1 << 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod discoverable;
mod gpt;
mod kind;
mod make;
mod mbr;
mod select;

pub use discoverable::{Architecture, Designator, Discoverable};
pub use kind::{Guid, Kind};
pub use make::{Attributes, NewPartition, write};
pub use select::SelectError;

use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, SECTOR};

/// The kind of a partition table.
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
    /// Linux' number, from 1; logical partitions from 5.
    pub number: u32,
    /// Offset on the disk in bytes, a multiple of 512.
    pub start: ByteLen,
    /// Length in bytes.
    pub len: ByteLen,
    /// Its type.
    pub kind: Kind,
    /// Its name; empty if it has none, as always in a master boot record.
    pub name: String,
    /// Its own identifier; none in a master boot record.
    pub id: Option<Guid>,
}

/// The partitions of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The kind of the table.
    pub scheme: Scheme,
    /// Whether it is the copy at the end of the disk, because the first one is damaged.
    pub is_backup: bool,
    /// In order of their numbers.
    pub partitions: Vec<Partition>,
}

/// The reason why a partition table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Neither copy of the table is sound.
    #[error("the GUID partition table at byte {at} is damaged: {why}")]
    Gpt {
        /// Offset of the first copy.
        at: u64,
        /// The fault.
        why: String,
    },
    /// The boot record, or one in the chain of extended ones, is damaged.
    #[error("the boot record at byte {at} is damaged: {why}")]
    Mbr {
        /// Its offset.
        at: u64,
        /// The fault.
        why: String,
    },
    /// A partition extends past the end of the disk.
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
    /// Reads the table of a disk; `None` if there is none. A boot record without partitions, as in
    /// many file systems, counts as none.
    ///
    /// # Errors
    /// [`TableError`] if there is a table that cannot be used.
    pub fn read(disk: &dyn BlockDevice) -> Result<Option<Self>, TableError> {
        let record = mbr::Record::of(disk)?;
        // Remains of an older GUID table are ignored, as in Linux and libblkid.
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

/// Adds a used partition, if it is within the disk. All figures are in bytes.
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
    debug_assert!(
        partitions.last().is_none_or(|last| last.number < partition.number),
        "partitions are found in the order of their numbers"
    );
    partitions.push(partition);
    Ok(())
}
