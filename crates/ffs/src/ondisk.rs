//! The on-disk structures of FFS, byte for byte.
//!
//! Every structure exists in both byte orders (`O`). Field names are those of
//! the format's own headers (FreeBSD `sys/ufs/ffs/fs.h`, `sys/ufs/ufs/dinode.h`,
//! `sys/ufs/ufs/dir.h`, `sys/ufs/ufs/extattr.h`, `sys/ufs/ufs/quota.h`); every offset is pinned at
//! compile time at the end of this file. Nothing outside this crate sees these
//! types.

use std::mem::offset_of;
use zerocopy::byteorder::{BE, I16, I32, I64, LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Possible places of a superblock, in bytes, in the order of the search: UFS2, UFS1, floppies,
/// "piggy" (FreeBSD `SBLOCKSEARCH`).
pub(crate) const SUPERBLOCK_SEARCH: [u64; 4] = [65536, 8192, 0, 262_144];
/// The place of UFS2's superblock, in bytes.
pub(crate) const SUPERBLOCK_UFS2: u64 = 65536;
/// Most bytes of a superblock.
pub(crate) const SUPERBLOCK_SIZE: usize = 8192;
pub(crate) const MAGIC_UFS1: u32 = 0x0001_1954;
pub(crate) const MAGIC_UFS2: u32 = 0x1954_0119;
pub(crate) const MAGIC_GROUP: u32 = 0x0009_0255;
/// `UFS_ROOTINO`.
pub(crate) const ROOT: u32 = 2;
/// Block numbers in an inode before the indirect ones.
pub(crate) const DIRECT: usize = 12;
/// Snapshots that a superblock lists at most (`FSMAXSNAP`).
pub(crate) const MOST_SNAPSHOTS: usize = 20;
/// `SF_SNAPSHOT`, a flag of a file: block numbers 1 and 2 of such a file have meanings of their own.
pub(crate) const SNAPSHOT: u32 = 0x0020_0000;
/// In the map of a snapshot: a block that was free when the snapshot was made.
pub(crate) const BLK_NOCOPY: u64 = 1;
/// In the map of a snapshot: a block of an older snapshot.
pub(crate) const BLK_SNAP: u64 = 2;
/// Unit of directories: no entry crosses its end.
pub(crate) const DIRECTORY_UNIT: usize = 512;
/// `fs_old_inodefmt` since 4.4BSD: entries have a type.
pub(crate) const INODE_FORMAT_44: u32 = 2;
/// `SF_IMMUTABLE` and `SF_NOUNLINK`, flags of the journal's file.
pub(crate) const JOURNAL_FLAGS: u32 = 0x0012_0000;
/// `SUJ_FILE`, the name of the journal's file in the root.
pub(crate) const JOURNAL_NAME: &[u8] = b".sujournal";
/// `SUJ_MIN`, the fewest bytes of a journal.
pub(crate) const JOURNAL_LEAST: u64 = 4 << 20;
/// The mode of the journal's file: a regular file that its owner reads.
pub(crate) const JOURNAL_MODE: u16 = 0o100_400;
/// `JREC_SIZE`, bytes of a journal record and of a segment's header.
pub(crate) const JOURNAL_RECORD: usize = 32;
/// `d_type` of a whiteout.
pub(crate) const WHITEOUT: u8 = 14;

/// Bits of `fs_metackhash`.
pub(crate) mod check_hash {
    pub(crate) const SUPERBLOCK: u32 = 1;
    pub(crate) const GROUP: u32 = 2;
    pub(crate) const INODE: u32 = 4;
}

/// `struct disklabel` of the BSDs (`sys/disklabel.h`), in the second sector of a disk or slice.
pub(crate) mod bsd_label {
    pub(crate) const MAGIC: u32 = 0x8256_4557;
    /// `d_magic`, `d_magic2`.
    pub(crate) const MAGIC_AT: usize = 0;
    pub(crate) const MAGIC2_AT: usize = 132;
    /// `d_npartitions`.
    pub(crate) const COUNT_AT: usize = 138;
    /// `d_partitions`, of which each begins with its sectors and its first one.
    pub(crate) const PARTITIONS_AT: usize = 148;
    pub(crate) const PARTITION: usize = 16;
    pub(crate) const OFFSET_AT: usize = 4;
    /// The most partitions of a label that fits in a sector.
    pub(crate) const MOST: usize = 22;
    /// The partition that is all of the disk, from 0.
    pub(crate) const WHOLE: usize = 2;
    /// Bytes of a label with the most partitions.
    pub(crate) const LEN: usize = PARTITIONS_AT + MOST * PARTITION;
}

/// Bits of `fs_flags`.
pub(crate) mod flag {
    pub(crate) const UNCLEAN: u32 = 1;
    pub(crate) const SOFT_UPDATES: u32 = 2;
    pub(crate) const NEEDS_FSCK: u32 = 4;
    pub(crate) const JOURNALED_SOFT_UPDATES: u32 = 8;
    pub(crate) const ACLS: u32 = 0x10;
    pub(crate) const MULTILABEL: u32 = 0x20;
    pub(crate) const GJOURNAL: u32 = 0x40;
    /// The fields of UFS2's time are in use, not only the old ones.
    pub(crate) const UPDATED: u32 = 0x80;
    pub(crate) const NFS4_ACLS: u32 = 0x100;
    pub(crate) const CHECK_HASHES: u32 = 0x200;
    pub(crate) const TRIM: u32 = 0x400;
}

/// `JOP_*`, the first word of a journal record.
pub(crate) mod journal_op {
    pub(crate) const ADD_REFERENCE: u32 = 1;
    pub(crate) const REMOVE_REFERENCE: u32 = 2;
    pub(crate) const NEW_BLOCK: u32 = 3;
    pub(crate) const FREE_BLOCK: u32 = 4;
    pub(crate) const MOVE_REFERENCE: u32 = 5;
    pub(crate) const TRUNCATE: u32 = 6;
    pub(crate) const SYNC: u32 = 7;
}

/// `struct csum`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Summary<O> {
    pub(crate) cs_ndir: U32<O>,
    pub(crate) cs_nbfree: U32<O>,
    pub(crate) cs_nifree: U32<O>,
    pub(crate) cs_nffree: U32<O>,
}

/// `struct csum_total`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SummaryTotal<O> {
    pub(crate) cs_ndir: U64<O>,
    pub(crate) cs_nbfree: U64<O>,
    pub(crate) cs_nifree: U64<O>,
    pub(crate) cs_nffree: U64<O>,
    pub(crate) cs_numclusters: U64<O>,
    pub(crate) cs_spare: [U64<O>; 3],
}

/// `struct fs`.
#[derive(Clone, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock<O> {
    pub(crate) fs_firstfield: U32<O>,
    pub(crate) fs_unused_1: U32<O>,
    pub(crate) fs_sblkno: U32<O>,
    pub(crate) fs_cblkno: U32<O>,
    pub(crate) fs_iblkno: U32<O>,
    pub(crate) fs_dblkno: U32<O>,
    pub(crate) fs_old_cgoffset: U32<O>,
    pub(crate) fs_old_cgmask: U32<O>,
    pub(crate) fs_old_time: I32<O>,
    pub(crate) fs_old_size: U32<O>,
    pub(crate) fs_old_dsize: U32<O>,
    pub(crate) fs_ncg: U32<O>,
    pub(crate) fs_bsize: U32<O>,
    pub(crate) fs_fsize: U32<O>,
    pub(crate) fs_frag: U32<O>,
    pub(crate) fs_minfree: U32<O>,
    pub(crate) fs_old_rotdelay: U32<O>,
    pub(crate) fs_old_rps: U32<O>,
    pub(crate) fs_bmask: U32<O>,
    pub(crate) fs_fmask: U32<O>,
    pub(crate) fs_bshift: U32<O>,
    pub(crate) fs_fshift: U32<O>,
    pub(crate) fs_maxcontig: U32<O>,
    pub(crate) fs_maxbpg: U32<O>,
    pub(crate) fs_fragshift: U32<O>,
    pub(crate) fs_fsbtodb: U32<O>,
    pub(crate) fs_sbsize: U32<O>,
    pub(crate) fs_spare1: [U32<O>; 2],
    pub(crate) fs_nindir: U32<O>,
    pub(crate) fs_inopb: U32<O>,
    pub(crate) fs_old_nspf: U32<O>,
    pub(crate) fs_optim: U32<O>,
    pub(crate) fs_old_npsect: U32<O>,
    pub(crate) fs_old_interleave: U32<O>,
    pub(crate) fs_old_trackskew: U32<O>,
    pub(crate) fs_id: [U32<O>; 2],
    pub(crate) fs_old_csaddr: U32<O>,
    pub(crate) fs_cssize: U32<O>,
    pub(crate) fs_cgsize: U32<O>,
    pub(crate) fs_spare2: U32<O>,
    pub(crate) fs_old_nsect: U32<O>,
    pub(crate) fs_old_spc: U32<O>,
    pub(crate) fs_old_ncyl: U32<O>,
    pub(crate) fs_old_cpg: U32<O>,
    pub(crate) fs_ipg: U32<O>,
    pub(crate) fs_fpg: U32<O>,
    pub(crate) fs_old_cstotal: Summary<O>,
    pub(crate) fs_fmod: u8,
    pub(crate) fs_clean: u8,
    pub(crate) fs_ronly: u8,
    pub(crate) fs_old_flags: u8,
    pub(crate) fs_fsmnt: [u8; 468],
    pub(crate) fs_volname: [u8; 32],
    pub(crate) fs_swuid: U64<O>,
    pub(crate) fs_pad: U32<O>,
    pub(crate) fs_cgrotor: U32<O>,
    /// Pointers of the kernel that had it mounted.
    pub(crate) fs_pointers: [u8; 128],
    pub(crate) fs_old_cpc: U32<O>,
    pub(crate) fs_maxbsize: U32<O>,
    pub(crate) fs_unrefs: U64<O>,
    pub(crate) fs_providersize: U64<O>,
    pub(crate) fs_metaspace: U64<O>,
    pub(crate) fs_sparecon64: [U64<O>; 13],
    pub(crate) fs_sblockactualloc: U64<O>,
    pub(crate) fs_sblockloc: U64<O>,
    pub(crate) fs_cstotal: SummaryTotal<O>,
    pub(crate) fs_time: I64<O>,
    pub(crate) fs_size: U64<O>,
    pub(crate) fs_dsize: U64<O>,
    pub(crate) fs_csaddr: U64<O>,
    pub(crate) fs_pendingblocks: U64<O>,
    pub(crate) fs_pendinginodes: U32<O>,
    pub(crate) fs_snapinum: [U32<O>; 20],
    pub(crate) fs_avgfilesize: U32<O>,
    pub(crate) fs_avgfpdir: U32<O>,
    pub(crate) fs_save_cgsize: U32<O>,
    pub(crate) fs_mtime: I64<O>,
    pub(crate) fs_sujfree: U32<O>,
    pub(crate) fs_sparecon32: [U32<O>; 21],
    pub(crate) fs_ckhash: U32<O>,
    pub(crate) fs_metackhash: U32<O>,
    pub(crate) fs_flags: U32<O>,
    pub(crate) fs_contigsumsize: U32<O>,
    pub(crate) fs_maxsymlinklen: U32<O>,
    pub(crate) fs_old_inodefmt: U32<O>,
    pub(crate) fs_maxfilesize: U64<O>,
    pub(crate) fs_qbmask: U64<O>,
    pub(crate) fs_qfmask: U64<O>,
    pub(crate) fs_state: U32<O>,
    pub(crate) fs_old_postblformat: U32<O>,
    pub(crate) fs_old_nrpos: U32<O>,
    pub(crate) fs_spare5: [U32<O>; 2],
    pub(crate) fs_magic: U32<O>,
}

/// `struct cg`: a cylinder group's head; its fields give the places of the bitmaps.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct CylinderGroup<O> {
    pub(crate) cg_firstfield: U32<O>,
    pub(crate) cg_magic: U32<O>,
    pub(crate) cg_old_time: I32<O>,
    pub(crate) cg_cgx: U32<O>,
    pub(crate) cg_old_ncyl: U16<O>,
    pub(crate) cg_old_niblk: U16<O>,
    pub(crate) cg_ndblk: U32<O>,
    pub(crate) cg_cs: Summary<O>,
    pub(crate) cg_rotor: U32<O>,
    pub(crate) cg_frotor: U32<O>,
    pub(crate) cg_irotor: U32<O>,
    pub(crate) cg_frsum: [U32<O>; 8],
    pub(crate) cg_old_btotoff: U32<O>,
    pub(crate) cg_old_boff: U32<O>,
    pub(crate) cg_iusedoff: U32<O>,
    pub(crate) cg_freeoff: U32<O>,
    pub(crate) cg_nextfreeoff: U32<O>,
    pub(crate) cg_clustersumoff: U32<O>,
    pub(crate) cg_clusteroff: U32<O>,
    pub(crate) cg_nclusterblks: U32<O>,
    pub(crate) cg_niblk: U32<O>,
    pub(crate) cg_initediblk: U32<O>,
    pub(crate) cg_unrefs: U32<O>,
    pub(crate) cg_sparecon32: U32<O>,
    pub(crate) cg_ckhash: U32<O>,
    pub(crate) cg_time: I64<O>,
    pub(crate) cg_sparecon64: [U64<O>; 3],
}

/// `struct ufs1_dinode`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Dinode1<O> {
    pub(crate) di_mode: U16<O>,
    pub(crate) di_nlink: I16<O>,
    /// 16-bit owner and group before 4.4BSD, the directory's depth since 2023
    /// (one number then).
    pub(crate) di_oldids: U32<O>,
    pub(crate) di_size: U64<O>,
    pub(crate) di_atime: I32<O>,
    pub(crate) di_atimensec: U32<O>,
    pub(crate) di_mtime: I32<O>,
    pub(crate) di_mtimensec: U32<O>,
    pub(crate) di_ctime: I32<O>,
    pub(crate) di_ctimensec: U32<O>,
    pub(crate) di_db: [U32<O>; DIRECT],
    pub(crate) di_ib: [U32<O>; 3],
    pub(crate) di_flags: U32<O>,
    pub(crate) di_blocks: U32<O>,
    pub(crate) di_gen: U32<O>,
    pub(crate) di_uid: U32<O>,
    pub(crate) di_gid: U32<O>,
    pub(crate) di_modrev: U64<O>,
}

/// `struct ufs2_dinode`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Dinode2<O> {
    pub(crate) di_mode: U16<O>,
    pub(crate) di_nlink: I16<O>,
    pub(crate) di_uid: U32<O>,
    pub(crate) di_gid: U32<O>,
    pub(crate) di_blksize: U32<O>,
    pub(crate) di_size: U64<O>,
    pub(crate) di_blocks: U64<O>,
    pub(crate) di_atime: I64<O>,
    pub(crate) di_mtime: I64<O>,
    pub(crate) di_ctime: I64<O>,
    pub(crate) di_birthtime: I64<O>,
    pub(crate) di_mtimensec: U32<O>,
    pub(crate) di_atimensec: U32<O>,
    pub(crate) di_ctimensec: U32<O>,
    pub(crate) di_birthnsec: U32<O>,
    pub(crate) di_gen: U32<O>,
    pub(crate) di_kernflags: U32<O>,
    pub(crate) di_flags: U32<O>,
    pub(crate) di_extsize: U32<O>,
    pub(crate) di_extb: [U64<O>; 2],
    pub(crate) di_db: [U64<O>; DIRECT],
    pub(crate) di_ib: [U64<O>; 3],
    pub(crate) di_modrev: U64<O>,
    pub(crate) di_dirdepth: U32<O>,
    pub(crate) di_ckhash: U32<O>,
    pub(crate) di_spare: [U32<O>; 2],
}

/// The byte of a directory at which `..` begins.
pub(crate) const PARENT_AT: u64 = 12;

/// The fixed part of `struct direct`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirectHead<O> {
    pub(crate) d_ino: U32<O>,
    pub(crate) d_reclen: U16<O>,
    pub(crate) d_type: u8,
    pub(crate) d_namlen: u8,
}

/// `struct jsegrec`: the header of a journal segment, at the start of each of its sectors.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalSegment<O> {
    pub(crate) jsr_seq: U64<O>,
    pub(crate) jsr_oldest: U64<O>,
    pub(crate) jsr_cnt: U16<O>,
    pub(crate) jsr_blocks: U16<O>,
    pub(crate) jsr_crc: U32<O>,
    pub(crate) jsr_time: I64<O>,
}

/// `struct jrefrec`: a name that is added or removed.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalReference<O> {
    pub(crate) jr_op: U32<O>,
    pub(crate) jr_ino: U32<O>,
    pub(crate) jr_parent: U32<O>,
    pub(crate) jr_nlink: U16<O>,
    pub(crate) jr_mode: U16<O>,
    pub(crate) jr_diroff: I64<O>,
    pub(crate) jr_unused: U64<O>,
}

/// `struct jmvrec`: a name that moves within a block of its directory. The compiler aligns the
/// offsets, and leaves two bytes in front of them.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalMove<O> {
    pub(crate) jm_op: U32<O>,
    pub(crate) jm_ino: U32<O>,
    pub(crate) jm_parent: U32<O>,
    pub(crate) jm_unused: U16<O>,
    pub(crate) jm_padding: [u8; 2],
    pub(crate) jm_oldoff: I64<O>,
    pub(crate) jm_newoff: I64<O>,
}

/// `struct jblkrec`: fragments that are allocated or freed.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalBlock<O> {
    pub(crate) jb_op: U32<O>,
    pub(crate) jb_ino: U32<O>,
    pub(crate) jb_blkno: I64<O>,
    pub(crate) jb_lbn: I64<O>,
    pub(crate) jb_frags: U16<O>,
    pub(crate) jb_oldfrags: U16<O>,
    pub(crate) jb_unused: U32<O>,
}

/// `struct jtrncrec`: a file that is cut, or made durable.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalLength<O> {
    pub(crate) jt_op: U32<O>,
    pub(crate) jt_ino: U32<O>,
    pub(crate) jt_size: I64<O>,
    pub(crate) jt_extsize: U32<O>,
    pub(crate) jt_pad: [U32<O>; 3],
}

/// The fixed part of `struct extattr`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtattrHead<O> {
    pub(crate) ea_length: U32<O>,
    pub(crate) ea_namespace: u8,
    pub(crate) ea_contentpadlen: u8,
    pub(crate) ea_namelength: u8,
}

/// `Q_DQHDR64_MAGIC`, the beginning of a quota file with numbers of 64 bits.
pub(crate) const QUOTA_MAGIC: [u8; 8] = *b"QUOTA64\0";
/// `Q_DQHDR64_VERSION`.
pub(crate) const QUOTA_VERSION: u32 = 0x2008_1104;

/// `struct dqhdr64` (`sys/ufs/ufs/quota.h`), always big-endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct QuotaHeader {
    pub(crate) dqh_magic: [u8; 8],
    pub(crate) dqh_version: U32<BE>,
    pub(crate) dqh_hdrlen: U32<BE>,
    pub(crate) dqh_reclen: U32<BE>,
    pub(crate) dqh_unused: [u8; 44],
}

/// `struct dqblk64`, always big-endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Quota64 {
    pub(crate) dqb_bhardlimit: U64<BE>,
    pub(crate) dqb_bsoftlimit: U64<BE>,
    pub(crate) dqb_curblocks: U64<BE>,
    pub(crate) dqb_ihardlimit: U64<BE>,
    pub(crate) dqb_isoftlimit: U64<BE>,
    pub(crate) dqb_curinodes: U64<BE>,
    pub(crate) dqb_btime: I64<BE>,
    pub(crate) dqb_itime: I64<BE>,
}

/// `struct dqblk32`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Quota32<O> {
    pub(crate) dqb_bhardlimit: U32<O>,
    pub(crate) dqb_bsoftlimit: U32<O>,
    pub(crate) dqb_curblocks: U32<O>,
    pub(crate) dqb_ihardlimit: U32<O>,
    pub(crate) dqb_isoftlimit: U32<O>,
    pub(crate) dqb_curinodes: U32<O>,
    pub(crate) dqb_btime: I32<O>,
    pub(crate) dqb_itime: I32<O>,
}

/// `OLDACL_MAX_ENTRIES`.
pub(crate) const OLD_ACL_MOST: usize = 32;

/// `struct oldacl_entry`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OldAclEntry<O> {
    pub(crate) ae_tag: U32<O>,
    pub(crate) ae_id: U32<O>,
    pub(crate) ae_perm: U16<O>,
    pub(crate) ae_padding: [u8; 2],
}

/// `struct oldacl`: a POSIX.1e ACL as an attribute's value.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OldAcl<O> {
    pub(crate) acl_cnt: U32<O>,
    pub(crate) acl_entry: [OldAclEntry<O>; OLD_ACL_MOST],
}

macro_rules! pin {
    ($type:ty: $size:expr; $($field:ident @ $offset:expr),*) => {
        const _: () = assert!(size_of::<$type>() == $size);
        $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
    };
}

pin!(Summary<LE>: 16; cs_nffree @ 12);
pin!(SummaryTotal<LE>: 64; cs_numclusters @ 32);
pin!(Superblock<LE>: 1376; fs_ncg @ 44, fs_bsize @ 48, fs_sbsize @ 104, fs_nindir @ 116, fs_id @ 144,
    fs_cssize @ 156, fs_ipg @ 184, fs_old_cstotal @ 192, fs_clean @ 209, fs_fsmnt @ 212,
    fs_volname @ 680, fs_pointers @ 728, fs_maxbsize @ 860, fs_sblockloc @ 1000, fs_cstotal @ 1008,
    fs_time @ 1072, fs_size @ 1080, fs_csaddr @ 1096, fs_snapinum @ 1116, fs_avgfilesize @ 1196,
    fs_mtime @ 1208, fs_sujfree @ 1216, fs_ckhash @ 1304, fs_metackhash @ 1308, fs_flags @ 1312, fs_maxsymlinklen @ 1320,
    fs_maxfilesize @ 1328, fs_state @ 1352, fs_magic @ 1372);
pin!(CylinderGroup<LE>: 168; cg_magic @ 4, cg_cgx @ 12, cg_ndblk @ 20, cg_cs @ 24, cg_frsum @ 52,
    cg_iusedoff @ 92, cg_freeoff @ 96, cg_niblk @ 116, cg_initediblk @ 120, cg_ckhash @ 132, cg_time @ 136);
pin!(Dinode1<LE>: 128; di_size @ 8, di_db @ 40, di_ib @ 88, di_flags @ 100, di_uid @ 112, di_modrev @ 120);
pin!(Dinode2<LE>: 256; di_size @ 16, di_blocks @ 24, di_birthtime @ 56, di_gen @ 80, di_flags @ 88,
    di_extsize @ 92, di_extb @ 96, di_db @ 112, di_ib @ 208, di_dirdepth @ 240, di_ckhash @ 244);
pin!(DirectHead<LE>: 8; d_reclen @ 4, d_type @ 6, d_namlen @ 7);
pin!(OldAclEntry<LE>: 12; ae_id @ 4, ae_perm @ 8);
pin!(OldAcl<LE>: 388; acl_entry @ 4);
pin!(QuotaHeader: 64; dqh_version @ 8, dqh_hdrlen @ 12, dqh_reclen @ 16, dqh_unused @ 20);
pin!(Quota64: 64; dqb_bsoftlimit @ 8, dqb_curblocks @ 16, dqb_ihardlimit @ 24, dqb_isoftlimit @ 32,
    dqb_curinodes @ 40, dqb_btime @ 48, dqb_itime @ 56);
pin!(Quota32<LE>: 32; dqb_bsoftlimit @ 4, dqb_curblocks @ 8, dqb_ihardlimit @ 12, dqb_isoftlimit @ 16,
    dqb_curinodes @ 20, dqb_btime @ 24, dqb_itime @ 28);
pin!(JournalSegment<LE>: JOURNAL_RECORD; jsr_oldest @ 8, jsr_cnt @ 16, jsr_blocks @ 18, jsr_crc @ 20,
    jsr_time @ 24);
pin!(JournalReference<LE>: JOURNAL_RECORD; jr_ino @ 4, jr_parent @ 8, jr_nlink @ 12, jr_mode @ 14,
    jr_diroff @ 16);
pin!(JournalMove<LE>: JOURNAL_RECORD; jm_ino @ 4, jm_parent @ 8, jm_oldoff @ 16, jm_newoff @ 24);
pin!(JournalBlock<LE>: JOURNAL_RECORD; jb_ino @ 4, jb_blkno @ 8, jb_lbn @ 16, jb_frags @ 24,
    jb_oldfrags @ 26);
pin!(JournalLength<LE>: JOURNAL_RECORD; jt_ino @ 4, jt_size @ 8, jt_extsize @ 16);
pin!(ExtattrHead<LE>: 7; ea_namespace @ 4, ea_contentpadlen @ 5, ea_namelength @ 6);
