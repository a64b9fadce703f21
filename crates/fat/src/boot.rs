//! The boot sector: the shape of a volume.

use crate::name;
use crate::ondisk::{
    ACTIVE_FAT, BOOT_SIZE, BPB32_AT, Bpb, Bpb32, ENTRY_SIZE, EXTENDED, INFO16_AT, INFO32_AT,
    LAST_FAT32, LEAST_FAT16, LEAST_FAT32, NAME_BYTES, NOT_MIRRORED, SIGNATURE, SIGNATURE_AT,
    STATE_DIRTY, VolumeInfo,
};
use seekless_device::BlockDevice;
use seekless_fs::field::{invalid, parse, range, slice, truncated, wide};
use seekless_fs::format::Probe;
use seekless_fs::operate::StatVfs;
use seekless_fs::{Fixed, FixedKind, FsError, Location, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Lbn};

/// Bits of an entry of the FAT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Width {
    Fat12,
    Fat16,
    Fat32,
}

impl Width {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fat12 => "fat12",
            Self::Fat16 => "fat16",
            Self::Fat32 => "fat32",
        }
    }

    /// As people write it.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Self::Fat12 => "FAT12",
            Self::Fat16 => "FAT16",
            Self::Fat32 => "FAT32",
        }
    }

    /// Bytes of the entries of this many clusters, including the two reserved ones.
    pub(crate) fn bytes(self, entries: u64) -> u64 {
        match self {
            Self::Fat12 => (entries * 3).div_ceil(2),
            Self::Fat16 => entries * 2,
            Self::Fat32 => entries * 4,
        }
    }
}

/// The fields of the boot sector, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Boot {
    pub(crate) width: Width,
    /// Bytes in a sector.
    pub(crate) sector: u32,
    /// Sectors in a cluster.
    pub(crate) spc: u32,
    /// Sectors in front of the first FAT.
    pub(crate) reserved: u32,
    pub(crate) fats: u32,
    /// Sectors of one FAT.
    pub(crate) fat_sectors: u32,
    /// Entries of the fixed root directory; 0 on FAT32.
    pub(crate) root_entries: u32,
    /// The root directory's first cluster; 0 for a fixed one.
    pub(crate) root_cluster: u32,
    /// Sectors of the volume.
    pub(crate) total: u32,
    pub(crate) media: u8,
    /// Sectors in front of the volume on its disk.
    pub(crate) hidden: u32,
    pub(crate) clusters: u32,
    /// The first sector of cluster 2.
    pub(crate) first_data: u32,
    /// The FAT that is read.
    pub(crate) active: u32,
    /// Whether the other FATs are kept up to date.
    pub(crate) mirrored: bool,
    /// Sector of the counts, and of the copy of the boot sector.
    pub(crate) info: Option<u32>,
    pub(crate) backup: Option<u32>,
    /// The state byte, if there is one.
    pub(crate) state: u8,
    pub(crate) id: Option<u32>,
    /// Whether the type stands in the boot sector without the signature by which it counts.
    pub(crate) lacks_signature: bool,
    /// As stored, blanks included.
    pub(crate) label: Option<[u8; 11]>,
}

/// Sectors sizes there are.
const SECTORS: [u32; 4] = [512, 1024, 2048, 4096];

fn place() -> Location {
    Location::of("boot sector").in_block(BlockNo::ZERO)
}

/// Whether a byte is that of a medium: of a removable disk, of a fixed one, or of a floppy.
pub(crate) fn is_medium(byte: u8) -> bool {
    byte == 0xF0 || byte >= 0xF8
}

/// Whether a boot sector begins with a jump, which Windows and macOS demand.
pub(crate) fn has_jump(bpb: &Bpb) -> bool {
    matches!(bpb.BS_jmpBoot, [0xEB | 0xE9, _, _])
}

/// Whether a boot sector ends with its signature, which FreeBSD and macOS demand
/// (`mountmsdosfs`).
pub(crate) fn is_signed(bytes: &[u8]) -> bool {
    slice(bytes, SIGNATURE_AT, 2) == Some(&SIGNATURE[..])
}

/// Field values that only a FAT volume has in this combination: a boot sector without them is
/// something else, one with them that is inconsistent is damaged.
fn looks_like(bytes: &[u8], bpb: &Bpb) -> bool {
    let (jump, signed) = (has_jump(bpb), is_signed(bytes));
    let media = is_medium(bpb.BPB_Media);
    let fats = (1..=4).contains(&bpb.BPB_NumFATs);
    jump && signed && media && fats && SECTORS.contains(&u32::from(bpb.BPB_BytsPerSec.get()))
}

/// Whether the type string says FAT: it decides nothing, but identifies a damaged boot sector.
fn says_fat(bytes: &[u8]) -> bool {
    let at = |at: usize| slice(bytes, at + 18, 3) == Some(b"FAT");
    at(INFO16_AT) || at(INFO32_AT)
}

/// Whether a device contains a FAT volume.
pub(crate) fn probe(device: &dyn BlockDevice) -> Probe {
    let mut bytes = [0; BOOT_SIZE];
    if device.read_bytes(ByteLen::ZERO, &mut bytes).is_err() {
        return Probe::No;
    }
    let Some(bpb) = parse::<Bpb>(&bytes, 0) else { return Probe::No };
    if !looks_like(&bytes, &bpb) && !says_fat(&bytes) {
        return Probe::No;
    }
    match Boot::parse(&bytes, device.len().get()) {
        Ok(_) if looks_like(&bytes, &bpb) => Probe::Yes,
        Ok(_) => Probe::Damaged("the boot sector's jump or signature is missing".into()),
        Err(error) if says_fat(&bytes) => Probe::Damaged(error.to_string()),
        Err(_) => Probe::No,
    }
}

impl Boot {
    /// Reads the boot sector of a device.
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Self, FsError> {
        Self::parse(&Self::bytes(device)?, device.len().get())
    }

    /// The bytes of the boot sector.
    pub(crate) fn bytes(device: &dyn BlockDevice) -> Result<[u8; BOOT_SIZE], FsError> {
        let mut bytes = [0; BOOT_SIZE];
        if device.len().get() < wide(BOOT_SIZE) {
            return Err(truncated(place()));
        }
        device.read_bytes(ByteLen::ZERO, &mut bytes)?;
        Ok(bytes)
    }

    /// Checks a boot sector against the length of its device in bytes.
    pub(crate) fn parse(bytes: &[u8], device_len: u64) -> Result<Self, FsError> {
        let bpb: Bpb = parse(bytes, 0).ok_or_else(|| truncated(place()))?;
        let wide32: Bpb32 = parse(bytes, BPB32_AT).ok_or_else(|| truncated(place()))?;
        let bad = |field: &'static str, value: u32| invalid(field, u64::from(value), place());
        let sector = u32::from(bpb.BPB_BytsPerSec.get());
        if !SECTORS.contains(&sector) {
            return Err(bad("BPB_BytsPerSec", sector));
        }
        let spc = u32::from(bpb.BPB_SecPerClus);
        if !spc.is_power_of_two() {
            return Err(bad("BPB_SecPerClus", spc));
        }
        let reserved = u32::from(bpb.BPB_RsvdSecCnt.get());
        if reserved == 0 {
            return Err(bad("BPB_RsvdSecCnt", reserved));
        }
        let fats = u32::from(bpb.BPB_NumFATs);
        if !(1..=4).contains(&fats) {
            return Err(bad("BPB_NumFATs", fats));
        }
        let total = match bpb.BPB_TotSec16.get() {
            0 => bpb.BPB_TotSec32.get(),
            total => u32::from(total),
        };
        if total == 0 {
            return Err(bad("BPB_TotSec32", total));
        }
        let fits = device_len / u64::from(sector);
        if u64::from(total) > fits {
            return Err(range("BPB_TotSec32", u64::from(total), fits, place()));
        }
        // As in Linux and dosfstools: a volume without 16-bit length of its FAT is FAT32 however
        // few clusters it has.
        let is_fat32 = bpb.BPB_FATSz16.get() == 0;
        let fat_sectors = match bpb.BPB_FATSz16.get() {
            0 => wide32.BPB_FATSz32.get(),
            sectors => u32::from(sectors),
        };
        if fat_sectors == 0 {
            return Err(bad("BPB_FATSz32", fat_sectors));
        }
        let root_entries = u32::from(bpb.BPB_RootEntCnt.get());
        if is_fat32 == (root_entries != 0) {
            return Err(bad("BPB_RootEntCnt", root_entries));
        }
        let root_bytes = wide(ENTRY_SIZE) * u64::from(root_entries);
        let root_sectors = root_bytes.div_ceil(u64::from(sector));
        let first_data =
            u64::from(fat_sectors) * u64::from(fats) + u64::from(reserved) + root_sectors;
        let Some(data) = u64::from(total).checked_sub(first_data) else {
            return Err(range("BPB_FATSz", first_data, u64::from(total), place()));
        };
        let clusters = data / u64::from(spc);
        let width = match u32::try_from(clusters).unwrap_or(u32::MAX) {
            0 => return Err(range("BPB_TotSec32", u64::from(total), first_data, place())),
            _ if is_fat32 => Width::Fat32,
            1..LEAST_FAT16 => Width::Fat12,
            LEAST_FAT16..LEAST_FAT32 => Width::Fat16,
            too_many => return Err(bad("BPB_FATSz16", too_many)),
        };
        let last = clusters + 1;
        if last > u64::from(LAST_FAT32) {
            return Err(range("BPB_TotSec32", last, u64::from(LAST_FAT32), place()));
        }
        let room = u64::from(fat_sectors) * u64::from(sector);
        let needed = width.bytes(last + 1);
        if needed > room {
            return Err(range("BPB_FATSz", room, needed, place()));
        }
        let mut boot = Self {
            width,
            sector,
            spc,
            reserved,
            fats,
            fat_sectors,
            root_entries,
            root_cluster: 0,
            total,
            media: bpb.BPB_Media,
            hidden: bpb.BPB_HiddSec.get(),
            clusters: u32::try_from(clusters).unwrap_or(u32::MAX),
            first_data: u32::try_from(first_data).unwrap_or(u32::MAX),
            active: 0,
            mirrored: true,
            info: None,
            backup: None,
            state: 0,
            id: None,
            lacks_signature: false,
            label: None,
        };
        if is_fat32 {
            boot.take_fat32(&wide32)?;
        }
        let info_at = if is_fat32 { INFO32_AT } else { INFO16_AT };
        let info: VolumeInfo = parse(bytes, info_at).ok_or_else(|| truncated(place()))?;
        boot.lacks_signature =
            info.BS_BootSig != EXTENDED && info.BS_FilSysType.starts_with(b"FAT");
        if info.BS_BootSig == EXTENDED {
            boot.state = info.BS_Reserved1;
            boot.id = Some(info.BS_VolID.get());
            boot.label = Some(info.BS_VolLab);
        }
        debug_assert!(boot.active < boot.fats, "FAT {} is read", boot.active);
        debug_assert!(boot.first_data < boot.total, "there is a cluster");
        Ok(boot)
    }

    fn take_fat32(&mut self, fields: &Bpb32) -> Result<(), FsError> {
        if fields.BPB_FSVer.get() != 0 {
            let version = fields.BPB_FSVer.get();
            return Err(FsError::Unsupported(format!("FAT32 of version {version:#06x}")));
        }
        self.root_cluster = fields.BPB_RootClus.get();
        if !self.is_cluster(self.root_cluster) {
            let limit = u64::from(self.last_cluster());
            return Err(range("BPB_RootClus", u64::from(self.root_cluster), limit, place()));
        }
        let flags = fields.BPB_ExtFlags.get();
        if flags & NOT_MIRRORED != 0 {
            self.mirrored = false;
            self.active = u32::from(flags & ACTIVE_FAT);
            if self.active >= self.fats {
                return Err(range("BPB_ExtFlags", self.active.into(), self.fats.into(), place()));
            }
        }
        let reserved = |sector: u16| {
            let sector = u32::from(sector);
            (sector != 0 && sector < self.reserved).then_some(sector)
        };
        self.backup = reserved(fields.BPB_BkBootSec.get());
        // The copy of the boot sector is not written over.
        self.info = reserved(fields.BPB_FSInfo.get()).filter(|info| Some(*info) != self.backup);
        Ok(())
    }

    /// The highest cluster number.
    pub(crate) fn last_cluster(&self) -> u32 {
        self.clusters + 1
    }

    /// Whether a number is that of a cluster.
    pub(crate) fn is_cluster(&self, number: u32) -> bool {
        (2..=self.last_cluster()).contains(&number)
    }

    /// The result of `statvfs` for a volume with `free` free sectors. The unit is a sector. FAT has
    /// no inodes.
    pub(crate) fn space(&self, free: u64) -> StatVfs {
        StatVfs {
            block_size: self.sector,
            file_block: u32::try_from(self.cluster_bytes()).unwrap_or(u32::MAX),
            blocks: u64::from(self.clusters) * u64::from(self.spc),
            free,
            available: free,
            inodes: 0,
            free_inodes: 0,
            name_max: NAME_BYTES,
        }
    }

    /// Bytes in a cluster.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        u64::from(self.sector) * u64::from(self.spc)
    }

    /// The first sector of a cluster.
    pub(crate) fn sector_of(&self, cluster: u32) -> BlockNo {
        debug_assert!(self.is_cluster(cluster), "{cluster} is a cluster");
        let within = u64::from(cluster - 2) * u64::from(self.spc);
        BlockNo::new(u64::from(self.first_data) + within)
    }

    /// The first sector of a FAT.
    pub(crate) fn fat_start(&self, number: u32) -> BlockNo {
        debug_assert!(number <= self.fats, "FAT {number} of {}", self.fats);
        let before = u64::from(number) * u64::from(self.fat_sectors);
        BlockNo::new(u64::from(self.reserved) + before)
    }

    /// The fixed root directory: its first sector, and the number of sectors.
    pub(crate) fn fixed_root(&self) -> (BlockNo, u64) {
        let start = self.fat_start(self.fats);
        debug_assert!(start.get() <= u64::from(self.first_data), "it lies before the clusters");
        (start, u64::from(self.first_data) - start.get())
    }

    /// The fixed metadata, by their structures. A fixed root directory is shown as a directory.
    pub(crate) fn fixed(&self) -> Vec<Fixed> {
        let reserved = Extent::new(BlockNo::ZERO, self.reserved.into());
        let tables = self.fixed_root().0 - reserved.end();
        vec![
            Fixed { extent: reserved, kind: FixedKind::Superblock },
            Fixed { extent: Extent::new(reserved.end(), tables), kind: FixedKind::AllocationTable },
        ]
    }

    /// The volume's name in the boot sector, unless it is that for none.
    pub(crate) fn shown_label(&self) -> Vec<u8> {
        let label = self.label.filter(|label| label != b"NO NAME    ");
        label.map(|label| name::label(&label)).unwrap_or_default()
    }

    /// Whether the state byte marks the volume as mounted.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state & STATE_DIRTY != 0
    }

    /// A place in the volume in bytes.
    pub(crate) fn byte_of(&self, sector: BlockNo) -> ByteLen {
        debug_assert!(sector.get() <= u64::from(self.total), "sector {sector} of the volume");
        ByteLen::new(sector.get() * u64::from(self.sector))
    }

    /// Whether the root directory is a chain of clusters.
    pub(crate) fn is_fat32(&self) -> bool {
        self.root_cluster != 0
    }

    /// Slots of a directory in a sector.
    pub(crate) fn slots_per_sector(&self) -> u32 {
        self.sector >> 5
    }

    /// Clusters for this many bytes of a file.
    pub(crate) fn clusters_for(&self, bytes: u64) -> u32 {
        // The file is not too long.
        u32::try_from(bytes.div_ceil(self.cluster_bytes())).unwrap_or(u32::MAX)
    }

    /// A run of clusters as one of sectors.
    pub(crate) fn sectors_of(&self, run: Extent) -> Extent {
        debug_assert!(run.len > 0, "a run has clusters");
        let first = u32::try_from(run.start.get());
        debug_assert!(first.is_ok(), "cluster {}", run.start);
        let start = self.sector_of(first.unwrap_or(u32::MAX));
        Extent::new(start, run.len * u64::from(self.spc))
    }

    /// And back.
    pub(crate) fn clusters_of(&self, run: Extent) -> Result<Extent, FsError> {
        let spc = u64::from(self.spc);
        let first = BlockNo::new(self.first_data.into());
        let into = run.start.checked_since(first).filter(|into| into.is_multiple_of(spc));
        let Some(into) = into.filter(|_| run.len.is_multiple_of(spc)) else {
            return Err(invalid("run of clusters", run.start.get(), Location::of("data")));
        };
        Ok(Extent::new(BlockNo::new(into / spc + 2), run.len / spc))
    }

    /// Runs of clusters as runs of sectors with their place in the file.
    pub(crate) fn mappings(&self, runs: &[Extent]) -> Vec<Mapping> {
        let spc = u64::from(self.spc);
        let mut lbn = 0u64;
        let mut mapped = Vec::with_capacity(runs.len());
        for run in runs {
            let first = u32::try_from(run.start.get()).unwrap_or(u32::MAX);
            let len = run.len * spc;
            debug_assert!(run.len > 0, "a run has clusters");
            mapped.push(Mapping {
                lbn: Lbn::new(lbn),
                extent: Extent::new(self.sector_of(first), len),
                unwritten: false,
            });
            lbn += len;
        }
        mapped
    }
}
