//! The layout of a new file system.
//!
//! The numbers are those of `mkfs.fat` of dosfstools 4.2.

use super::options::{FEWEST_FAT16, FatWidth, MOST_FAT12, MOST_FAT16, MOST_FAT32, MakeOptions};
use crate::boot::{Boot, Width};
use crate::ondisk::{ENTRY_SIZE, LEAST_FAT32};
use seekless_fs::FsError;

/// Volumes of this many sectors or fewer are not aligned.
const UNALIGNED: u64 = 8192;
/// The least size of FAT32 by default, in bytes.
const AUTO_FAT32: u64 = 512 << 20;
/// Most sectors in a cluster by default in `mkfs.fat`.
const MOST_CLUSTER: u32 = 128;
/// Bytes that must be left behind the FATs.
const LEAST_DATA: u64 = 32 << 10;

/// The shape of a file system, in sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) width: Width,
    pub(crate) sector: u32,
    pub(crate) spc: u32,
    pub(crate) reserved: u32,
    pub(crate) fats: u32,
    pub(crate) fat_sectors: u32,
    /// 0 on FAT32.
    pub(crate) root_entries: u32,
    pub(crate) total: u32,
    pub(crate) clusters: u32,
    pub(crate) media: u8,
    pub(crate) heads: u32,
    pub(crate) track: u32,
    /// Sector of the boot sector's copy; 0 for none.
    pub(crate) backup: u32,
}

/// The parameters of a medium, by its size.
struct Medium {
    heads: u32,
    track: u32,
    media: u8,
    cluster: u32,
    root_entries: u32,
}

impl Medium {
    /// Floppy disks by their size; for anything else, heads and sectors as in the SD card's file
    /// system specification up to 256 MiB and as computed by BIOSes above that ("LBA-assist
    /// translation").
    fn of(bytes: u64, sector: u64) -> Self {
        let floppy = |track, media, cluster, root_entries| Self {
            heads: 2,
            track,
            media,
            cluster,
            root_entries,
        };
        match bytes >> 10 {
            360 => return floppy(9, 0xFD, 2, 112),
            720 => return floppy(9, 0xF9, 2, 112),
            1200 => return floppy(15, 0xF9, 1, 224),
            1440 => return floppy(18, 0xF0, 1, 224),
            2880 => return floppy(36, 0xF0, 2, 224),
            _ => {}
        }
        const CYLINDERS: u64 = 63 * 1024;
        let sectors = bytes / sector;
        let (heads, track) = match sectors {
            0..=4096 => (2, 16),
            4097..=32_768 => (2, 32),
            32_769..=65_536 => (4, 32),
            65_537..=262_144 => (8, 32),
            262_145..=524_288 => (16, 32),
            _ if sectors <= 16 * CYLINDERS => (16, 63),
            _ if sectors <= 32 * CYLINDERS => (32, 63),
            _ if sectors <= 64 * CYLINDERS => (64, 63),
            _ if sectors <= 128 * CYLINDERS => (128, 63),
            _ => (255, 63),
        };
        Self { heads, track, media: 0xF8, cluster: 4, root_entries: 512 }
    }
}

/// Parameters that are chosen before the size of clusters.
struct Plan {
    total: u64,
    sector: u64,
    fats: u64,
    reserved: u64,
    root_sectors: u64,
    align: bool,
}

impl Plan {
    fn aligned(&self, sectors: u64, cluster: u64) -> u64 {
        if self.align { sectors.next_multiple_of(cluster) } else { sectors }
    }

    /// Sectors of a FAT, and clusters, with clusters of that size; `None` if the width does not
    /// fit.
    fn fit(&self, width: Width, cluster: u64, on_request: bool) -> Option<(u64, u64)> {
        let root = if width == Width::Fat32 { 0 } else { self.aligned(self.root_sectors, cluster) };
        let room =
            self.total.checked_sub(self.aligned(self.reserved, cluster))?.checked_sub(root)?;
        // Two entries in bytes: those of the missing clusters 0 and 1 are added to the room.
        let pair = width.bytes(2) * self.fats;
        let guess = 2 * (room * self.sector + pair) / (2 * cluster * self.sector + pair);
        let fat = width.bytes(guess + 2).div_ceil(self.sector);
        let fat = self.aligned(fat, cluster);
        let clusters = room.checked_sub(self.fats * fat)? / cluster;
        let entries = match width {
            Width::Fat12 => fat * 2 * self.sector / 3,
            Width::Fat16 => fat * self.sector / 2,
            Width::Fat32 => fat * self.sector / 4,
        };
        let (fewest, most) = match width {
            Width::Fat12 => (1, MOST_FAT12),
            Width::Fat16 => (FEWEST_FAT16, MOST_FAT16),
            Width::Fat32 if on_request => (1, MOST_FAT32),
            Width::Fat32 => (u64::from(LEAST_FAT32), MOST_FAT32),
        };
        (clusters >= fewest && clusters <= most.min(entries)).then_some((fat, clusters))
    }
}

impl Geometry {
    pub(crate) fn new(options: &MakeOptions) -> Result<Self, FsError> {
        options.check()?;
        let bytes = options.size.get();
        let sector = u64::from(options.sector_size);
        let medium = Medium::of(bytes, sector);
        let width = options.width.or((bytes >= AUTO_FAT32).then_some(FatWidth::Fat32));
        let is_fat32 = width == Some(FatWidth::Fat32);
        let reserved = options.reserved.unwrap_or(if is_fat32 { 32 } else { 1 });
        if is_fat32 && reserved < 2 {
            return Err(FsError::Invalid("FAT32 needs at least 2 reserved sectors".into()));
        }
        let mut total = (bytes / sector).min(u64::from(u32::MAX));
        if options.align {
            total -= total % u64::from(medium.track);
        }
        let entries =
            if is_fat32 { 0 } else { options.root_entries.unwrap_or(medium.root_entries) };
        let mut plan = Plan {
            total,
            sector,
            fats: options.fats.into(),
            reserved: reserved.into(),
            root_sectors: (u64::from(entries) * ENTRY_SIZE as u64).div_ceil(sector),
            align: options.align && total > UNALIGNED,
        };
        let first = match options.cluster {
            Some(cluster) => cluster,
            None if is_fat32 => fat32_cluster(bytes / sector),
            None => medium.cluster,
        };
        let last = options.cluster.unwrap_or(MOST_CLUSTER);
        let (width, spc, fat, clusters) =
            search(&plan, width, options.width.is_some(), first, last)?;
        if plan.align {
            plan.reserved = plan.aligned(plan.reserved, spc.into());
        }
        // Whole sectors, even where mkfs.fat leaves a part of one unused, which fsck.fat refuses.
        let root_sectors = plan.aligned(plan.root_sectors, spc.into());
        let root_entries = root_sectors * sector / ENTRY_SIZE as u64;
        let front = (plan.reserved + plan.fats * fat) * sector;
        if bytes < front.next_multiple_of(1024) + LEAST_DATA {
            return Err(FsError::NoSpace(format!(
                "{bytes} bytes are too few: with the FATs, at least {} are needed",
                front.next_multiple_of(1024) + LEAST_DATA
            )));
        }
        let too_many = |what: &str| FsError::Invalid(format!("too many {what} for their field"));
        let narrow = |value: u64, limit: u64, what: &str| {
            u32::try_from(value).ok().filter(|_| value <= limit).ok_or_else(|| too_many(what))
        };
        let fat_limit = if width == Width::Fat32 { u64::from(u32::MAX) } else { 0xFFFF };
        let geometry = Self {
            width,
            sector: options.sector_size,
            spc,
            reserved: narrow(plan.reserved, 0xFFFF, "reserved sectors")?,
            fats: options.fats,
            fat_sectors: narrow(fat, fat_limit, "sectors of the FAT")?,
            root_entries: narrow(root_entries, 0xFFFF, "entries of the root directory")?,
            total: narrow(total, u64::from(u32::MAX), "sectors")?,
            clusters: narrow(clusters, MOST_FAT32, "clusters")?,
            media: medium.media,
            heads: medium.heads,
            track: medium.track,
            backup: backup(options, width, plan.reserved)?,
        };
        let end = geometry.first_data() + clusters * u64::from(spc);
        debug_assert!(end <= total, "the clusters end at sector {end} of {total}");
        debug_assert!(width.bytes(clusters + 2) <= fat * sector, "each cluster has an entry");
        debug_assert!(geometry.backup < geometry.reserved, "the copy lies before the FATs");
        debug_assert!(width == Width::Fat32 || geometry.root_entries > 0, "a root is somewhere");
        Ok(geometry)
    }

    /// The shape of a volume that there is. Heads and tracks are not known.
    pub(crate) fn of(boot: &Boot) -> Self {
        Self {
            width: boot.width,
            sector: boot.sector,
            spc: boot.spc,
            reserved: boot.reserved,
            fats: boot.fats,
            fat_sectors: boot.fat_sectors,
            root_entries: boot.root_entries,
            total: boot.total,
            clusters: boot.clusters,
            media: boot.media,
            heads: 0,
            track: 0,
            backup: boot.backup.unwrap_or(0),
        }
    }

    /// The first sector of cluster 2.
    pub(crate) fn first_data(&self) -> u64 {
        let root = u64::from(self.root_entries) * ENTRY_SIZE as u64;
        u64::from(self.reserved)
            + u64::from(self.fats) * u64::from(self.fat_sectors)
            + root.div_ceil(self.sector.into())
    }

    /// Bytes in a cluster.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        u64::from(self.sector) * u64::from(self.spc)
    }

    /// A sector's place in bytes.
    pub(crate) fn byte_of(&self, sector: u64) -> u64 {
        sector * u64::from(self.sector)
    }
}

/// Sectors in a cluster of FAT32 by the sectors of the volume, as in Microsoft's format for sectors
/// of 512 bytes: 4 KiB up to 8 GiB, at most 32 KiB.
fn fat32_cluster(sectors: u64) -> u32 {
    const MIB: u64 = 2048;
    match sectors {
        ..=532_480 => 1,
        _ if sectors <= 8192 * MIB => 8,
        _ if sectors <= 16_384 * MIB => 16,
        _ if sectors <= 32_768 * MIB => 32,
        _ => 64,
    }
}

/// The smallest clusters from `first` to `last` sectors with which the width fits, or, if none was
/// requested, FAT12 or FAT16.
fn search(
    plan: &Plan,
    width: Option<FatWidth>,
    on_request: bool,
    first: u32,
    last: u32,
) -> Result<(Width, u32, u64, u64), FsError> {
    let mut spc = first;
    while spc <= last {
        let fit = |width: Width| plan.fit(width, spc.into(), on_request).map(|fit| (width, fit));
        let found = match width {
            Some(width) => fit(width.stored()),
            None => match (fit(Width::Fat12), fit(Width::Fat16)) {
                (Some(small), Some(large)) => {
                    Some(if large.1.1 > small.1.1 { large } else { small })
                }
                (small, large) => small.or(large),
            },
        };
        if let Some((width, (fat, clusters))) = found {
            return Ok((width, spc, fat, clusters));
        }
        spc *= 2;
    }
    let what = width.map_or("FAT12 or FAT16", |width| width.stored().shown());
    let why = format!(
        "{} sectors of {} bytes do not make a {what} volume with clusters of {first} to {last} \
         sectors: FAT12 has 1 to 4084 clusters, FAT16 4087 to 65524, FAT32 up to 268435446",
        plan.total, plan.sector
    );
    Err(FsError::NoSpace(why))
}

fn backup(options: &MakeOptions, width: Width, reserved: u64) -> Result<u32, FsError> {
    match options.backup {
        _ if width != Width::Fat32 => Ok(0),
        Some(at) if at < 2 || u64::from(at) >= reserved => Err(FsError::Invalid(format!(
            "sector {at} for the copy of the boot sector: must be 2 to {}",
            reserved - 1
        ))),
        Some(at) => Ok(at),
        None => Ok(match reserved as u32 {
            0..=2 => 0,
            few @ 3..=4 => few - 1,
            // With room for a copy of the counts behind it.
            some @ 5..=6 => some - 2,
            _ => 6,
        }),
    }
}
