//! Options of a new file system.

use crate::boot::Width;
use crate::ondisk::{LEAST_FAT16, LEAST_FAT32};
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;

/// The width of the entries of the FAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FatWidth {
    /// 12 bits: up to 4084 clusters.
    Fat12,
    /// 16 bits: 4087 to 65,524 clusters.
    Fat16,
    /// 32 bits, 28 of them in use: up to 268,435,446 clusters. Fewer than 65,525 are made on
    /// request; some systems take such a volume for FAT16.
    Fat32,
}

impl FatWidth {
    pub(crate) fn stored(self) -> Width {
        match self {
            Self::Fat12 => Width::Fat12,
            Self::Fat16 => Width::Fat16,
            Self::Fat32 => Width::Fat32,
        }
    }
}

/// Options of [`make`](super::make), with the defaults of `mkfs.fat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MakeOptions {
    /// The width (`-F`); `None` for the choice of `mkfs.fat`: FAT32 from 512 MiB on, else FAT12 or
    /// FAT16, whichever gives more clusters.
    pub width: Option<FatWidth>,
    /// Length of the device.
    pub size: ByteLen,
    /// Bytes in a sector (`-S`): 512, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// Sectors in a cluster (`-s`), a power of two up to 128; `None` for the default of the size.
    pub cluster: Option<u32>,
    /// Number of FATs (`-f`), 1 to 4.
    pub fats: u32,
    /// Sectors in front of the FATs, at least (`-R`); `None` for 32 on FAT32 and else 1.
    pub reserved: Option<u32>,
    /// Entries of the root directory, at least (`-r`); none on FAT32. `None` for 512, or the
    /// standard number of a floppy disk of that size.
    pub root_entries: Option<u32>,
    /// Begin all parts at multiples of a cluster, and end the volume with a track (not
    /// `-a`). Volumes of up to 8192 sectors are not aligned.
    pub align: bool,
    /// Sector of the copy of the boot sector (`-b`, FAT32); `None` for 6, or one of the last two
    /// reserved sectors if there are fewer than 7; none if there are 2.
    pub backup: Option<u32>,
    /// Sectors in front of the volume on its disk (`-h`).
    pub hidden: u32,
    /// The volume's label (`-n`), up to 11 characters of code page 850; empty for none.
    pub label: Vec<u8>,
    /// The volume's number (`-i`).
    pub id: u32,
    /// The time of creation, which the label gets.
    pub time: Timestamp,
}

impl MakeOptions {
    /// The defaults for a device of this length.
    #[must_use]
    pub fn new(width: Option<FatWidth>, size: ByteLen) -> Self {
        Self {
            width,
            size,
            sector_size: 512,
            cluster: None,
            fats: 2,
            reserved: None,
            root_entries: None,
            align: true,
            backup: None,
            hidden: 0,
            label: Vec::new(),
            id: 0,
            time: Timestamp::default(),
        }
    }

    /// Checks everything that [`make`](super::make) refuses without a device.
    ///
    /// # Errors
    /// As [`make`](super::make), but for errors of the device.
    pub fn validate(&self) -> Result<(), FsError> {
        super::geometry::Geometry::new(self).map(drop)
    }

    /// Checks the options as far as possible without the size.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for values out of range.
    pub fn check(&self) -> Result<(), FsError> {
        let bad = |what: String| Err(FsError::Invalid(what));
        if !matches!(self.sector_size, 512 | 1024 | 2048 | 4096) {
            return bad(format!(
                "sector size {}: must be 512, 1024, 2048 or 4096",
                self.sector_size
            ));
        }
        if let Some(cluster) = self.cluster
            && !(cluster.is_power_of_two() && cluster <= 128)
        {
            return bad(format!("{cluster} sectors per cluster: must be a power of two up to 128"));
        }
        if !(1..=4).contains(&self.fats) {
            return bad(format!("{} FATs: must be 1 to 4", self.fats));
        }
        let reserved = self.reserved.unwrap_or(2);
        if !(1..=0xFFFF).contains(&reserved) {
            return bad(format!("{reserved} reserved sectors: must be 1 to 65535"));
        }
        if let Some(entries) = self.root_entries
            && !(16..=0xFFFF).contains(&entries)
        {
            return bad(format!("{entries} entries of the root directory: must be 16 to 65535"));
        }
        super::label::encode(&self.label)?;
        Ok(())
    }
}

/// Most clusters of FAT12.
pub(crate) const MOST_FAT12: u64 = LEAST_FAT16 as u64 - 1;
/// Fewest clusters that FAT16 is made with: as in `mkfs.fat`, a little above the limit, which is
/// not the same number in all systems.
pub(crate) const FEWEST_FAT16: u64 = LEAST_FAT16 as u64 + 2;
/// Most clusters of FAT16.
pub(crate) const MOST_FAT16: u64 = LEAST_FAT32 as u64 - 1;
/// Most clusters of FAT32.
pub(crate) const MOST_FAT32: u64 = 268_435_446;
