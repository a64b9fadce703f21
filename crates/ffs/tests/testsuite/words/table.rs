//! What `fsck_ffs` does with each byte of a superblock, a group's head and an inode: facts of
//! FreeBSD's `validate_sblock`, `setup`, `check_cgmagic` and passes 1 to 5.

/// What it does with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// It never looks at it.
    Ignores,
    /// It never looks at it, but our check finds values that cannot be, and what the field
    /// was before is set again where a copy or another field tells it.
    OnlyWe,
    /// It finds each other value wrong; what belongs there follows from the rest of the volume.
    Rebuilds,
    /// It finds some values wrong. The others are settings, or places to begin a search at.
    Bounds,
    /// What belongs there is nowhere else: contents are lost with it.
    Unique,
}

use Rule::{Bounds, Ignores, OnlyWe, Rebuilds, Unique};

/// A field: its name, its first byte, its bytes, and the rule for UFS1 and for UFS2.
pub(crate) type Field = (&'static str, usize, usize, Rule, Rule);

pub(crate) const SUPERBLOCK: &[Field] = &[
    ("fs_firstfield, fs_unused_1", 0, 8, Ignores, Ignores),
    ("fs_sblkno, fs_cblkno, fs_iblkno, fs_dblkno", 8, 16, Rebuilds, Rebuilds),
    // Wrong only together, for groups that are shifted.
    ("fs_old_cgoffset", 24, 4, OnlyWe, OnlyWe),
    ("fs_old_cgmask", 28, 4, OnlyWe, OnlyWe),
    // Kept for kernels from before 2002.
    ("fs_old_time, fs_old_size, fs_old_dsize", 32, 12, Ignores, Ignores),
    ("fs_ncg, fs_bsize, fs_fsize, fs_frag", 44, 16, Rebuilds, Rebuilds),
    ("fs_minfree", 60, 4, Bounds, Bounds),
    ("fs_old_rotdelay, fs_old_rps", 64, 8, Rebuilds, Ignores),
    ("fs_bmask, fs_fmask, fs_bshift, fs_fshift", 72, 16, Rebuilds, Rebuilds),
    ("fs_maxcontig", 88, 4, Bounds, Bounds),
    ("fs_maxbpg", 92, 4, OnlyWe, OnlyWe),
    ("fs_fragshift, fs_fsbtodb", 96, 8, Rebuilds, Rebuilds),
    // Any number of sectors up to 8192 bytes that holds the fields.
    ("fs_sbsize", 104, 4, Rebuilds, Rebuilds),
    ("fs_spare1", 108, 8, Ignores, Ignores),
    ("fs_nindir, fs_inopb", 116, 8, Rebuilds, Rebuilds),
    ("fs_old_nspf", 124, 4, Rebuilds, OnlyWe),
    ("fs_optim", 128, 4, Bounds, Bounds),
    ("fs_old_npsect, fs_old_interleave, fs_old_trackskew", 132, 12, Rebuilds, Ignores),
    ("fs_id", 144, 8, Ignores, Ignores),
    ("fs_old_csaddr", 152, 4, Ignores, Ignores),
    ("fs_cssize, fs_cgsize", 156, 8, Rebuilds, Rebuilds),
    ("fs_spare2", 164, 4, Ignores, Ignores),
    ("fs_old_nsect, fs_old_spc, fs_old_ncyl", 168, 12, Rebuilds, Ignores),
    // Of UFS2 it is in the computation of a head's size.
    ("fs_old_cpg", 180, 4, Rebuilds, OnlyWe),
    ("fs_ipg, fs_fpg", 184, 8, Rebuilds, Rebuilds),
    ("fs_old_cstotal", 192, 16, Ignores, Ignores),
    ("fs_fmod", 208, 1, Ignores, Ignores),
    // Zero asks for a check, others do not.
    ("fs_clean", 209, 1, Bounds, Bounds),
    ("fs_ronly", 210, 1, Ignores, Ignores),
    // Its bit FS_FLAGS_UPDATED says which other fields are in use.
    ("fs_old_flags", 211, 1, OnlyWe, OnlyWe),
    ("fs_fsmnt, fs_volname, fs_swuid", 212, 508, Ignores, Ignores),
    ("fs_pad, fs_cgrotor, pointers", 720, 136, Ignores, Ignores),
    ("fs_old_cpc", 856, 4, Rebuilds, Ignores),
    ("fs_maxbsize", 860, 4, Bounds, Bounds),
    ("fs_unrefs, fs_providersize", 864, 16, Ignores, Ignores),
    ("fs_metaspace", 880, 8, Bounds, Bounds),
    ("fs_sparecon64", 888, 104, Ignores, Ignores),
    ("fs_sblockactualloc", 992, 8, Bounds, Bounds),
    ("fs_sblockloc", 1000, 8, Rebuilds, Rebuilds),
    ("fs_cstotal", 1008, 64, Rebuilds, Rebuilds),
    ("fs_time", 1072, 8, Ignores, Ignores),
    ("fs_size", 1080, 8, Rebuilds, Rebuilds),
    // growfs left a wrong one.
    ("fs_dsize", 1088, 8, OnlyWe, OnlyWe),
    ("fs_csaddr", 1096, 8, Rebuilds, Rebuilds),
    ("fs_pendingblocks, fs_pendinginodes", 1104, 12, Ignores, Ignores),
    // The list ends with its first zero.
    ("fs_snapinum[0]", 1116, 4, OnlyWe, OnlyWe),
    ("fs_snapinum[1..]", 1120, 76, Ignores, Ignores),
    ("fs_avgfilesize, fs_avgfpdir", 1196, 8, OnlyWe, OnlyWe),
    ("fs_save_cgsize", 1204, 4, Ignores, Ignores),
    ("fs_mtime, fs_sujfree, fs_sparecon32", 1208, 96, Ignores, Ignores),
    ("fs_ckhash", 1304, 4, Bounds, Bounds),
    ("fs_metackhash", 1308, 4, OnlyWe, OnlyWe),
    // Two of its bits ask for a check.
    ("fs_flags", 1312, 4, Bounds, Bounds),
    // Without clusters (fs_maxcontig of 1) only the groups contradict another number.
    ("fs_contigsumsize", 1316, 4, Bounds, Bounds),
    ("fs_maxsymlinklen", 1320, 4, Rebuilds, Rebuilds),
    ("fs_old_inodefmt", 1324, 4, Rebuilds, OnlyWe),
    ("fs_maxfilesize, fs_qbmask, fs_qfmask", 1328, 24, Rebuilds, Rebuilds),
    ("fs_state", 1352, 4, Ignores, Ignores),
    ("fs_old_postblformat", 1356, 4, Rebuilds, Ignores),
    ("fs_old_nrpos", 1360, 4, Rebuilds, OnlyWe),
    ("fs_spare5", 1364, 8, Ignores, Ignores),
    ("fs_magic", 1372, 4, Rebuilds, Rebuilds),
];

/// A group's head; its maps follow, of which every byte is rebuilt.
pub(crate) const GROUP: &[Field] = &[
    ("cg_firstfield, cg_magic", 0, 8, Rebuilds, Rebuilds),
    ("cg_old_time", 8, 4, Ignores, Ignores),
    ("cg_cgx, cg_old_ncyl, cg_old_niblk, cg_ndblk", 12, 12, Rebuilds, Rebuilds),
    ("cg_cs", 24, 16, Rebuilds, Rebuilds),
    ("cg_rotor, cg_frotor, cg_irotor", 40, 12, Bounds, Bounds),
    ("cg_frsum", 52, 32, Rebuilds, Rebuilds),
    ("cg_old_btotoff, cg_old_boff", 84, 8, Rebuilds, Rebuilds),
    ("cg_iusedoff, cg_freeoff, cg_nextfreeoff", 92, 12, Rebuilds, Rebuilds),
    ("cg_clustersumoff, cg_clusteroff, cg_nclusterblks", 104, 12, Rebuilds, Rebuilds),
    ("cg_niblk", 116, 4, Rebuilds, Rebuilds),
    // On UFS2 how far inodes are looked at.
    ("cg_initediblk", 120, 4, Rebuilds, Bounds),
    ("cg_unrefs", 124, 4, Ignores, Ignores),
    ("cg_sparecon32", 128, 4, Rebuilds, Rebuilds),
    // Without hashes of groups: by `fsck_ffs` from before there were any.
    ("cg_ckhash", 132, 4, Rebuilds, Rebuilds),
    ("cg_time", 136, 8, Ignores, Ignores),
    ("cg_sparecon64", 144, 24, Rebuilds, Rebuilds),
];

/// `struct ufs1_dinode`: name, first byte, bytes, rule. Block numbers are not here: their rule
/// is that of the file they belong to.
pub(crate) const INODE1: &[(&str, usize, usize, Rule)] = &[
    ("di_mode", 0, 2, Unique),
    ("di_nlink", 2, 2, Rebuilds),
    ("di_dirdepth", 4, 4, Ignores),
    ("di_size", 8, 8, Unique),
    ("times", 16, 24, Ignores),
    // We look for SF_SNAPSHOT.
    ("di_flags", 100, 4, OnlyWe),
    ("di_blocks", 104, 4, Rebuilds),
    ("di_gen, di_uid, di_gid, di_modrev", 108, 20, Ignores),
];

/// `struct ufs2_dinode`.
pub(crate) const INODE2: &[(&str, usize, usize, Rule)] = &[
    ("di_mode", 0, 2, Unique),
    ("di_nlink", 2, 2, Rebuilds),
    ("di_uid, di_gid, di_blksize", 4, 12, Ignores),
    ("di_size", 16, 8, Unique),
    ("di_blocks", 24, 8, Rebuilds),
    ("times, di_gen, di_kernflags", 32, 56, Ignores),
    ("di_flags", 88, 4, OnlyWe),
    // The areas of attributes: read by the length that stands here.
    ("di_extsize", 92, 4, OnlyWe),
    ("di_extb", 96, 16, OnlyWe),
    ("di_modrev, di_dirdepth", 232, 12, Ignores),
    ("di_ckhash", 244, 4, Bounds),
    ("di_spare", 248, 8, Ignores),
];
