//! The bytes of a new file system.

use super::geometry::Geometry;
use super::options::MakeOptions;
use crate::boot::Width;
use crate::ondisk::{
    BOOT_SIZE, BPB32_AT, Bpb, Bpb32, CODE16_AT, CODE32_AT, EXTENDED, FsInfo, INFO_LEAD,
    INFO_STRUCT, INFO_TRAIL, INFO16_AT, INFO32_AT, SIGNATURE, SIGNATURE_AT, ShortEntry, VolumeInfo,
    attr,
};
use crate::time::Stamp;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};
use zerocopy::IntoBytes;

/// A boot program that hands over to the next device (`int 18h`), and waits if that returns.
const CODE: [u8; 5] = [0xCD, 0x18, 0xF4, 0xEB, 0xFD];

/// The jump at the start of a boot sector, to the program behind its fields.
pub(crate) fn jump_of(is_fat32: bool) -> [u8; 3] {
    let code = if is_fat32 { CODE32_AT } else { CODE16_AT };
    [0xEB, code as u8 - 2, 0x90]
}
/// `BS_OEMName`.
const OEM_NAME: [u8; 8] = *b"SEEKLESS";
/// `BS_VolLab` of a volume without a label.
pub(crate) const NO_LABEL: [u8; 11] = *b"NO NAME    ";
/// Sector of the counts on FAT32.
const INFO_SECTOR: u64 = 1;
/// The cluster of FAT32's root directory on a new volume.
pub(crate) const ROOT_CLUSTER: u32 = 2;

/// Writes the parts of a volume.
pub(crate) struct Encoder<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) options: &'a MakeOptions,
    pub(crate) label: Option<[u8; 11]>,
    pub(crate) device: &'a dyn BlockDevice,
}

impl Encoder<'_> {
    /// Writes an empty volume, the boot sector last: it makes the device a file system.
    pub(crate) fn empty(&self) -> Result<(), FsError> {
        let g = self.geometry;
        let is_fat32 = g.width == Width::Fat32;
        let mut fat = vec![0; g.sector as usize];
        self.head(&mut fat);
        if is_fat32 {
            fat[8..12].copy_from_slice(&0x0FFF_FFF8u32.to_le_bytes());
        }
        for number in 0..g.fats {
            self.put(self.fat_start(number), &fat)?;
        }
        if let Some(entry) = label_entry(self.options, self.label) {
            let mut sector = vec![0; g.sector as usize];
            sector[..32].copy_from_slice(entry.as_bytes());
            // Behind the FATs is cluster 2 of FAT32, and the root directory of the others.
            self.put(self.fat_start(g.fats), &sector)?;
        }
        let free = g.clusters - u32::from(is_fat32);
        self.boot(free, ROOT_CLUSTER, ROOT_CLUSTER)
    }

    /// Writes the sectors in front of the FATs. A search for free clusters begins at `hint`.
    pub(crate) fn boot(&self, free: u32, hint: u32, root: u32) -> Result<(), FsError> {
        let g = self.geometry;
        debug_assert!(free <= g.clusters, "{free} of {} are free", g.clusters);
        debug_assert!((2..=g.clusters + 1).contains(&root), "{root} is a cluster");
        let boot = self.boot_sector(root);
        if g.width == Width::Fat32 {
            let info = info_sector(free, hint);
            self.put(INFO_SECTOR, &info)?;
            if g.backup != 0 {
                self.put(g.backup.into(), &boot)?;
                if g.backup + 1 < g.reserved {
                    self.put(u64::from(g.backup) + 1, &info)?;
                }
            }
        }
        self.put(0, &boot)
    }

    pub(crate) fn put(&self, sector: u64, bytes: &[u8]) -> Result<(), FsError> {
        debug_assert!(sector < u64::from(self.geometry.total), "sector {sector} of the volume");
        let at = ByteLen::new(self.geometry.byte_of(sector));
        self.device.write(Lba::containing(at), bytes)?;
        Ok(())
    }

    /// The first sector of a FAT.
    pub(crate) fn fat_start(&self, number: u32) -> u64 {
        let g = self.geometry;
        debug_assert!(number <= g.fats, "FAT {number} of {}", g.fats);
        u64::from(g.reserved) + u64::from(number) * u64::from(g.fat_sectors)
    }

    /// The first two entries: the medium, and the flags of a volume that was unmounted.
    pub(crate) fn head(&self, fat: &mut [u8]) {
        let ones: &[u8] = match self.geometry.width {
            Width::Fat12 => &[0xFF, 0xFF],
            Width::Fat16 => &[0xFF, 0xFF, 0xFF],
            Width::Fat32 => &[0xFF, 0xFF, 0x0F, 0xFF, 0xFF, 0xFF, 0x0F],
        };
        fat[0] = self.geometry.media;
        fat[1..=ones.len()].copy_from_slice(ones);
    }

    fn boot_sector(&self, root: u32) -> Vec<u8> {
        let g = self.geometry;
        let is_fat32 = g.width == Width::Fat32;
        let (code, info_at) =
            if is_fat32 { (CODE32_AT, INFO32_AT) } else { (CODE16_AT, INFO16_AT) };
        let fits = |value: u32| u16::try_from(value).unwrap_or(0);
        let bpb = Bpb {
            BS_jmpBoot: jump_of(is_fat32),
            BS_OEMName: OEM_NAME,
            BPB_BytsPerSec: fits(g.sector).into(),
            BPB_SecPerClus: g.spc as u8,
            BPB_RsvdSecCnt: fits(g.reserved).into(),
            BPB_NumFATs: g.fats as u8,
            BPB_RootEntCnt: fits(g.root_entries).into(),
            // The longer field is used if the number does not fit in the shorter one.
            BPB_TotSec16: fits(g.total).into(),
            BPB_Media: g.media,
            BPB_FATSz16: if is_fat32 { 0 } else { fits(g.fat_sectors) }.into(),
            BPB_SecPerTrk: fits(g.track).into(),
            BPB_NumHeads: fits(g.heads).into(),
            BPB_HiddSec: self.options.hidden.into(),
            BPB_TotSec32: if g.total > 0xFFFF { g.total } else { 0 }.into(),
        };
        let info = VolumeInfo {
            BS_DrvNum: if g.media == 0xF8 { 0x80 } else { 0 },
            BS_Reserved1: 0,
            BS_BootSig: EXTENDED,
            BS_VolID: self.options.id.into(),
            BS_VolLab: self.label.unwrap_or(NO_LABEL),
            BS_FilSysType: g.width.type_string(),
        };
        let mut sector = vec![0; BOOT_SIZE];
        let mut put = |at: usize, bytes: &[u8]| {
            sector[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, bpb.as_bytes());
        if is_fat32 {
            let fields = Bpb32 {
                BPB_FATSz32: g.fat_sectors.into(),
                BPB_ExtFlags: 0.into(),
                BPB_FSVer: 0.into(),
                BPB_RootClus: root.into(),
                BPB_FSInfo: (INFO_SECTOR as u16).into(),
                BPB_BkBootSec: fits(g.backup).into(),
                BPB_Reserved: [0; 12],
            };
            put(BPB32_AT, fields.as_bytes());
        }
        put(info_at, info.as_bytes());
        put(code, &CODE);
        put(SIGNATURE_AT, &SIGNATURE);
        sector
    }
}

/// The entry of the label in the root directory.
pub(crate) fn label_entry(options: &MakeOptions, label: Option<[u8; 11]>) -> Option<ShortEntry> {
    let stamp = Stamp::of(options.time);
    Some(ShortEntry {
        DIR_Name: label?,
        DIR_Attr: attr::VOLUME_ID,
        DIR_NTRes: 0,
        DIR_CrtTimeTenth: 0,
        DIR_CrtTime: stamp.time.into(),
        DIR_CrtDate: stamp.date.into(),
        DIR_LstAccDate: stamp.date.into(),
        DIR_FstClusHI: 0.into(),
        DIR_WrtTime: stamp.time.into(),
        DIR_WrtDate: stamp.date.into(),
        DIR_FstClusLO: 0.into(),
        DIR_FileSize: 0.into(),
    })
}

/// The sector of counts.
fn info_sector(free: u32, hint: u32) -> Vec<u8> {
    let info = FsInfo {
        FSI_LeadSig: INFO_LEAD.into(),
        FSI_Reserved1: [0; 480],
        FSI_StrucSig: INFO_STRUCT.into(),
        FSI_Free_Count: free.into(),
        FSI_Nxt_Free: hint.into(),
        FSI_Reserved2: [0; 12],
        FSI_TrailSig: INFO_TRAIL.into(),
    };
    info.as_bytes().to_vec()
}

impl Width {
    fn type_string(self) -> [u8; 8] {
        match self {
            Self::Fat12 => *b"FAT12   ",
            Self::Fat16 => *b"FAT16   ",
            Self::Fat32 => *b"FAT32   ",
        }
    }
}
