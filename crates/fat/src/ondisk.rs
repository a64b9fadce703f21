//! The on-disk structures of FAT, byte for byte, all little-endian.
//!
//! Field names are those of Microsoft's description (fatgen103); every offset is
//! pinned at compile time at the end of this file. Nothing outside this crate sees
//! these types.

#![allow(non_snake_case, reason = "the names of the format's description")]

use std::mem::offset_of;
use zerocopy::byteorder::{LE, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a boot sector that have a meaning, for any sector size.
pub(crate) const BOOT_SIZE: usize = 512;
/// `Signature_word` at [`SIGNATURE_AT`].
pub(crate) const SIGNATURE: [u8; 2] = [0x55, 0xAA];
/// The offset of the signature.
pub(crate) const SIGNATURE_AT: usize = 510;
/// `BS_BootSig`: the volume's number, label and type string follow.
pub(crate) const EXTENDED: u8 = 0x29;
/// Bit 0 of `BS_Reserved1`: Linux sets it while it has the volume mounted.
pub(crate) const STATE_DIRTY: u8 = 1;
/// `BS_Reserved1` of FAT12 and FAT16: seekless has it mounted, and keeps writes in order. Other
/// systems neither set nor read this bit.
pub(crate) const STATE_ORDERED: u8 = 0x80;
/// The same in the first bytes of `FSI_Reserved2`, for FAT32: `fsck.fat` compares its boot
/// sectors.
pub(crate) const INFO_ORDERED: [u8; 4] = *b"SKSU";
/// `BPB_ExtFlags`: only one FAT is kept up to date, that of the low four bits.
pub(crate) const NOT_MIRRORED: u16 = 0x80;
/// The lowest four bits of `BPB_ExtFlags`.
pub(crate) const ACTIVE_FAT: u16 = 0x0F;
/// Bytes in a directory entry.
pub(crate) const ENTRY_SIZE: usize = 32;
/// Entries of a directory at most: 2 MiB.
pub(crate) const MOST_ENTRIES: u32 = 65_536;
/// Clusters of a FAT12 volume stay below this, and of FAT16 below [`LEAST_FAT32`].
pub(crate) const LEAST_FAT16: u32 = 4085;
/// See [`LEAST_FAT16`].
pub(crate) const LEAST_FAT32: u32 = 65_525;
/// The highest number of a FAT32 cluster that is not a special value.
pub(crate) const LAST_FAT32: u32 = 0x0FFF_FFF6;
/// UTF-16 units of a long name at most.
pub(crate) const NAME_UNITS: usize = 255;
/// Bytes of such a name in UTF-8 at most.
pub(crate) const NAME_BYTES: u32 = 765;
const _: () = assert!(NAME_UNITS * 3 == 765);
/// UTF-16 units in one long entry.
pub(crate) const PIECE_UNITS: usize = 13;
/// Long entries of one name at most.
pub(crate) const MOST_PIECES: u8 = 20;

/// Bits of `DIR_Attr`.
pub(crate) mod attr {
    pub(crate) const READ_ONLY: u8 = 1;
    pub(crate) const HIDDEN: u8 = 2;
    pub(crate) const SYSTEM: u8 = 4;
    pub(crate) const VOLUME_ID: u8 = 8;
    pub(crate) const DIRECTORY: u8 = 0x10;
    pub(crate) const ARCHIVE: u8 = 0x20;
    /// The four lowest bits together: part of a long name.
    pub(crate) const LONG_NAME: u8 = 0x0F;
    /// The bits that identify a long entry.
    pub(crate) const LONG_NAME_MASK: u8 = 0x3F;
}

/// Bits of `DIR_NTRes`: parts of the name shown in lower case.
pub(crate) mod lower {
    pub(crate) const BASE: u8 = 8;
    pub(crate) const EXTENSION: u8 = 0x10;
}

/// First bytes of `DIR_Name` with a meaning of their own.
pub(crate) mod first {
    /// Neither this entry nor any behind it was ever used.
    pub(crate) const END: u8 = 0;
    /// Deleted.
    pub(crate) const DELETED: u8 = 0xE5;
    /// Stands for 0xE5 as the first byte of a name.
    pub(crate) const KANJI: u8 = 0x05;
}

/// `LDIR_Ord`: the last piece of a name, which is stored first.
pub(crate) const LAST_PIECE: u8 = 0x40;

/// The part of the boot sector that all three formats share.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Bpb {
    pub(crate) BS_jmpBoot: [u8; 3],
    pub(crate) BS_OEMName: [u8; 8],
    pub(crate) BPB_BytsPerSec: U16<LE>,
    pub(crate) BPB_SecPerClus: u8,
    pub(crate) BPB_RsvdSecCnt: U16<LE>,
    pub(crate) BPB_NumFATs: u8,
    pub(crate) BPB_RootEntCnt: U16<LE>,
    pub(crate) BPB_TotSec16: U16<LE>,
    pub(crate) BPB_Media: u8,
    pub(crate) BPB_FATSz16: U16<LE>,
    pub(crate) BPB_SecPerTrk: U16<LE>,
    pub(crate) BPB_NumHeads: U16<LE>,
    pub(crate) BPB_HiddSec: U32<LE>,
    pub(crate) BPB_TotSec32: U32<LE>,
}

/// The fields that follow on FAT32.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Bpb32 {
    pub(crate) BPB_FATSz32: U32<LE>,
    pub(crate) BPB_ExtFlags: U16<LE>,
    pub(crate) BPB_FSVer: U16<LE>,
    pub(crate) BPB_RootClus: U32<LE>,
    pub(crate) BPB_FSInfo: U16<LE>,
    pub(crate) BPB_BkBootSec: U16<LE>,
    pub(crate) BPB_Reserved: [u8; 12],
}

/// The volume's own fields, behind [`Bpb`] on FAT12 and FAT16 and behind
/// [`Bpb32`] on FAT32.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct VolumeInfo {
    pub(crate) BS_DrvNum: u8,
    pub(crate) BS_Reserved1: u8,
    pub(crate) BS_BootSig: u8,
    pub(crate) BS_VolID: U32<LE>,
    pub(crate) BS_VolLab: [u8; 11],
    pub(crate) BS_FilSysType: [u8; 8],
}

/// The offset of [`Bpb32`] in the boot sector.
pub(crate) const BPB32_AT: usize = 36;
/// The offset of [`VolumeInfo`] on FAT12 and FAT16.
pub(crate) const INFO16_AT: usize = 36;
/// The offset of [`VolumeInfo`] on FAT32.
pub(crate) const INFO32_AT: usize = 64;
/// The start of the boot program on FAT12 and FAT16.
pub(crate) const CODE16_AT: usize = 62;
/// The start of the boot program on FAT32.
pub(crate) const CODE32_AT: usize = 90;

/// FAT32's sector of counts (`FSInfo`).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FsInfo {
    pub(crate) FSI_LeadSig: U32<LE>,
    pub(crate) FSI_Reserved1: [u8; 480],
    pub(crate) FSI_StrucSig: U32<LE>,
    pub(crate) FSI_Free_Count: U32<LE>,
    pub(crate) FSI_Nxt_Free: U32<LE>,
    pub(crate) FSI_Reserved2: [u8; 12],
    pub(crate) FSI_TrailSig: U32<LE>,
}

/// `FSI_LeadSig`.
pub(crate) const INFO_LEAD: u32 = 0x4161_5252;
/// `FSI_StrucSig`.
pub(crate) const INFO_STRUCT: u32 = 0x6141_7272;
/// `FSI_TrailSig`.
pub(crate) const INFO_TRAIL: u32 = 0xAA55_0000;
/// An unknown count or hint of [`FsInfo`].
pub(crate) const UNKNOWN: u32 = 0xFFFF_FFFF;

/// A directory entry with a short name.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ShortEntry {
    pub(crate) DIR_Name: [u8; 11],
    pub(crate) DIR_Attr: u8,
    pub(crate) DIR_NTRes: u8,
    pub(crate) DIR_CrtTimeTenth: u8,
    pub(crate) DIR_CrtTime: U16<LE>,
    pub(crate) DIR_CrtDate: U16<LE>,
    pub(crate) DIR_LstAccDate: U16<LE>,
    pub(crate) DIR_FstClusHI: U16<LE>,
    pub(crate) DIR_WrtTime: U16<LE>,
    pub(crate) DIR_WrtDate: U16<LE>,
    pub(crate) DIR_FstClusLO: U16<LE>,
    pub(crate) DIR_FileSize: U32<LE>,
}

/// A piece of a long name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LongEntry {
    pub(crate) LDIR_Ord: u8,
    pub(crate) LDIR_Name1: [U16<LE>; 5],
    pub(crate) LDIR_Attr: u8,
    pub(crate) LDIR_Type: u8,
    pub(crate) LDIR_Chksum: u8,
    pub(crate) LDIR_Name2: [U16<LE>; 6],
    pub(crate) LDIR_FstClusLO: U16<LE>,
    pub(crate) LDIR_Name3: [U16<LE>; 2],
}

const _: () = {
    assert!(offset_of!(Bpb, BPB_BytsPerSec) == 11);
    assert!(offset_of!(Bpb, BPB_SecPerClus) == 13);
    assert!(offset_of!(Bpb, BPB_RsvdSecCnt) == 14);
    assert!(offset_of!(Bpb, BPB_NumFATs) == 16);
    assert!(offset_of!(Bpb, BPB_RootEntCnt) == 17);
    assert!(offset_of!(Bpb, BPB_TotSec16) == 19);
    assert!(offset_of!(Bpb, BPB_Media) == 21);
    assert!(offset_of!(Bpb, BPB_FATSz16) == 22);
    assert!(offset_of!(Bpb, BPB_SecPerTrk) == 24);
    assert!(offset_of!(Bpb, BPB_NumHeads) == 26);
    assert!(offset_of!(Bpb, BPB_HiddSec) == 28);
    assert!(offset_of!(Bpb, BPB_TotSec32) == 32);
    assert!(size_of::<Bpb>() == BPB32_AT && size_of::<Bpb>() == INFO16_AT);
    assert!(BPB32_AT + offset_of!(Bpb32, BPB_ExtFlags) == 40);
    assert!(BPB32_AT + offset_of!(Bpb32, BPB_FSVer) == 42);
    assert!(BPB32_AT + offset_of!(Bpb32, BPB_RootClus) == 44);
    assert!(BPB32_AT + offset_of!(Bpb32, BPB_FSInfo) == 48);
    assert!(BPB32_AT + offset_of!(Bpb32, BPB_BkBootSec) == 50);
    assert!(BPB32_AT + size_of::<Bpb32>() == INFO32_AT);
    assert!(INFO16_AT + offset_of!(VolumeInfo, BS_VolID) == 39);
    assert!(INFO16_AT + offset_of!(VolumeInfo, BS_VolLab) == 43);
    assert!(INFO16_AT + offset_of!(VolumeInfo, BS_FilSysType) == 54);
    assert!(INFO16_AT + size_of::<VolumeInfo>() == CODE16_AT);
    assert!(INFO32_AT + offset_of!(VolumeInfo, BS_VolID) == 67);
    assert!(INFO32_AT + size_of::<VolumeInfo>() == CODE32_AT);
    assert!(offset_of!(FsInfo, FSI_StrucSig) == 484);
    assert!(offset_of!(FsInfo, FSI_Free_Count) == 488);
    assert!(offset_of!(FsInfo, FSI_Nxt_Free) == 492);
    assert!(offset_of!(FsInfo, FSI_TrailSig) == 508);
    assert!(size_of::<FsInfo>() == BOOT_SIZE);
    assert!(offset_of!(ShortEntry, DIR_Attr) == 11);
    assert!(offset_of!(ShortEntry, DIR_NTRes) == 12);
    assert!(offset_of!(ShortEntry, DIR_CrtTime) == 14);
    assert!(offset_of!(ShortEntry, DIR_FstClusHI) == 20);
    assert!(offset_of!(ShortEntry, DIR_WrtTime) == 22);
    assert!(offset_of!(ShortEntry, DIR_FstClusLO) == 26);
    assert!(offset_of!(ShortEntry, DIR_FileSize) == 28);
    assert!(size_of::<ShortEntry>() == ENTRY_SIZE);
    assert!(offset_of!(LongEntry, LDIR_Attr) == 11);
    assert!(offset_of!(LongEntry, LDIR_Chksum) == 13);
    assert!(offset_of!(LongEntry, LDIR_Name2) == 14);
    assert!(offset_of!(LongEntry, LDIR_FstClusLO) == 26);
    assert!(offset_of!(LongEntry, LDIR_Name3) == 28);
    assert!(size_of::<LongEntry>() == ENTRY_SIZE);
};
