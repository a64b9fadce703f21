//! Encodes the structures of a new file system, in either byte order.

use super::geometry::Geometry;
use super::group::{Counts, GroupBuilder};
use super::options::{MakeOptions, Optimization, Version};
use crate::checksum::crc32c;
use crate::ondisk::{
    CylinderGroup, Dinode1, Dinode2, INODE_FORMAT_44, MAGIC_GROUP, MAGIC_UFS1, MAGIC_UFS2, ROOT,
    SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, Superblock, check_hash, flag,
};
use crate::superblock::SUMMARY;
use seekless_units::SECTOR;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::byteorder::LE;

/// Writes fields where [`ondisk`](crate::ondisk) has them.
pub(crate) struct Encoder<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) options: &'a MakeOptions,
}

/// Bytes being filled.
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    pub(crate) big_endian: bool,
}

impl Page {
    pub(crate) fn put(&mut self, at: usize, little: &[u8]) {
        let to = &mut self.bytes[at..at + little.len()];
        to.copy_from_slice(little);
        if self.big_endian {
            to.reverse();
        }
    }

    pub(crate) fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    pub(crate) fn raw(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Fields of one structure: `set!(page, Superblock, u32, fs_ncg: 7, ...)`.
macro_rules! set {
    ($page:ident, $type:ident, $width:ident, $($field:ident: $value:expr),+ $(,)?) => {
        $($page.$width(offset_of!($type<LE>, $field), $value);)+
    };
}

impl Encoder<'_> {
    pub(crate) fn page(&self, len: usize) -> Page {
        Page { bytes: vec![0; len], big_endian: self.options.big_endian }
    }

    /// The superblock, or a copy of it, as it lies at a byte of the volume; padded to the largest
    /// size of a copy.
    pub(crate) fn superblock(&self, counts: &[Counts], at: u64) -> Vec<u8> {
        debug_assert_eq!(counts.len(), self.geometry.ncg as usize, "the counts of all groups");
        let mut page = self.page(SUPERBLOCK_SIZE);
        self.superblock_geometry(&mut page);
        self.superblock_tuning(&mut page);
        self.superblock_totals(&mut page, counts);
        if self.geometry.version == Version::Ufs1 {
            self.superblock_old(&mut page, counts);
        }
        page.u64(offset_of!(Superblock<LE>, fs_sblockactualloc), at);
        let covered = self.superblock_bytes() as usize;
        let at = offset_of!(Superblock<LE>, fs_ckhash);
        self.seal(&mut page, 0..covered, at, check_hash::SUPERBLOCK);
        page.bytes
    }

    /// The copy of the superblock in a group. If that of UFS1's first group lies in the place of
    /// UFS2's superblock, boot programs take it for the first.
    pub(crate) fn copy(&self, counts: &[Counts], group: u32) -> Vec<u8> {
        let g = self.geometry;
        let at = g.in_group(group, g.sblkno) * u64::from(g.fsize);
        let is_first = g.version == Version::Ufs1 && at == SUPERBLOCK_UFS2;
        self.superblock(counts, if is_first { g.superblock_at() } else { at })
    }

    /// `fs_sbsize`: whole fragments, but no more than fit.
    fn superblock_bytes(&self) -> u32 {
        let whole = (size_of::<Superblock<LE>>() as u32).next_multiple_of(self.geometry.fsize);
        whole.min(SUPERBLOCK_SIZE as u32)
    }

    /// Puts the check hash of a range of bytes at a byte of it, if the volume has hashes of this
    /// kind.
    fn seal(&self, page: &mut Page, covered: Range<usize>, at: usize, kind: u32) {
        if self.options.hashed() & kind != 0 {
            debug_assert!(at + 4 <= covered.len(), "a hash covers its own field");
            let at = covered.start + at;
            page.u32(at, 0);
            let hash = crc32c(&page.bytes[covered]);
            page.u32(at, hash);
        }
    }

    /// Puts the check hash of the inode at byte `at` of its table there.
    pub(crate) fn seal_inode(&self, page: &mut Page, at: usize) {
        let size = self.geometry.inode_size() as usize;
        self.seal(page, at..at + size, offset_of!(Dinode2<LE>, di_ckhash), check_hash::INODE);
    }

    /// The last sector in front of a UFS2 superblock: at its end `struct fsrecovery`, by which
    /// `fsck_ffs` finds the copies of a lost one.
    pub(crate) fn recovery(&self) -> Option<(u64, Vec<u8>)> {
        let g = self.geometry;
        if g.version == Version::Ufs1 {
            return None;
        }
        let mut page = self.page(SECTOR as usize);
        let words = [MAGIC_UFS2, self.sectors_shift(), g.sblkno, g.fpg, g.ncg];
        let start = SECTOR as usize - 4 * words.len();
        for (n, word) in words.into_iter().enumerate() {
            page.u32(start + 4 * n, word);
        }
        Some((g.superblock_at() - SECTOR, page.bytes))
    }

    /// `fs_fsbtodb`.
    fn sectors_shift(&self) -> u32 {
        (u64::from(self.geometry.fsize) / SECTOR).trailing_zeros()
    }

    fn superblock_geometry(&self, page: &mut Page) {
        let g = self.geometry;
        let pointers = g.bsize / if g.version == Version::Ufs1 { 4 } else { 8 };
        // Twelve direct blocks and three levels of indirect ones.
        let levels: u64 = (1..=3).map(|level| u64::from(pointers).pow(level)).sum();
        let longest = u64::from(g.bsize) * (12 + levels) - 1;
        let magic = if g.version == Version::Ufs1 { MAGIC_UFS1 } else { MAGIC_UFS2 };
        let frags = |bytes: u64| g.frags(bytes) as u32 * g.fsize;
        set!(page, Superblock, u32,
            fs_sblkno: g.sblkno, fs_cblkno: g.cblkno, fs_iblkno: g.iblkno, fs_dblkno: g.dblkno,
            fs_ncg: g.ncg, fs_bsize: g.bsize, fs_fsize: g.fsize, fs_frag: g.frag,
            fs_bmask: !(g.bsize - 1), fs_fmask: !(g.fsize - 1),
            fs_bshift: g.bsize.trailing_zeros(), fs_fshift: g.fsize.trailing_zeros(),
            fs_fragshift: g.frag.trailing_zeros(),
            fs_fsbtodb: self.sectors_shift(),
            fs_sbsize: self.superblock_bytes(),
            fs_nindir: pointers, fs_inopb: g.bsize / g.inode_size(),
            fs_cssize: frags(u64::from(g.ncg) * SUMMARY),
            fs_cgsize: frags(g.head_bytes()),
            fs_ipg: g.ipg, fs_fpg: g.fpg,
            fs_maxbsize: g.bsize,
            fs_contigsumsize: g.contigsumsize,
            fs_maxsymlinklen: if g.version == Version::Ufs1 { 60 } else { 120 },
            fs_magic: magic,
        );
        set!(page, Superblock, u64,
            fs_sblockloc: g.superblock_at(),
            fs_size: g.size, fs_csaddr: u64::from(g.dblkno),
            fs_providersize: g.size,
            fs_maxfilesize: longest.min(i64::MAX as u64),
            fs_qbmask: u64::from(g.bsize - 1), fs_qfmask: u64::from(g.fsize - 1),
        );
    }

    fn superblock_tuning(&self, page: &mut Page) {
        let (g, options) = (self.geometry, self.options);
        let soft_updates = if options.soft_updates { flag::SOFT_UPDATES } else { 0 };
        let hashes = options.hashed();
        let flags = soft_updates | if hashes == 0 { 0 } else { flag::CHECK_HASHES };
        let space = options.optimization() == Optimization::Space;
        // A block's worth of room for metadata at a group's start, FreeBSD's half of the reserved
        // space.
        let metaspace = u64::from(g.fpg) * u64::from(options.minfree) / 200;
        set!(page, Superblock, u32,
            fs_minfree: options.minfree,
            fs_maxcontig: options.maxcontig(),
            fs_maxbpg: options.maxbpg.unwrap_or(g.bsize / 8),
            fs_optim: u32::from(space),
            fs_avgfilesize: options.avgfilesize,
            fs_avgfpdir: options.avgfpdir,
            fs_flags: flags,
            fs_metackhash: hashes,
        );
        set!(page, Superblock, u64, fs_metaspace: metaspace / u64::from(g.frag) * u64::from(g.frag));
        let id = offset_of!(Superblock<LE>, fs_id);
        page.u32(id, options.id[0]);
        page.u32(id + 4, options.id[1]);
        page.raw(offset_of!(Superblock<LE>, fs_volname), &options.label);
        page.bytes[offset_of!(Superblock<LE>, fs_clean)] = 1;
        page.bytes[offset_of!(Superblock<LE>, fs_old_flags)] =
            flag::UPDATED as u8 | soft_updates as u8;
        let time = options.time.secs.cast_unsigned();
        set!(page, Superblock, u64, fs_time: time);
    }

    fn superblock_totals(&self, page: &mut Page, counts: &[Counts]) {
        let at = offset_of!(Superblock<LE>, fs_cstotal);
        for (n, total) in totals(counts).into_iter().enumerate() {
            page.u64(at + n * 8, total);
        }
        set!(page, Superblock, u64, fs_dsize: self.geometry.data_frags());
    }

    /// Fields that kernels from before UFS2 read.
    fn superblock_old(&self, page: &mut Page, counts: &[Counts]) {
        let g = self.geometry;
        let sectors = g.fpg * (g.fsize / 512);
        set!(page, Superblock, u32,
            fs_old_time: self.options.time.secs as u32,
            fs_old_size: g.size as u32,
            fs_old_dsize: g.data_frags() as u32,
            fs_old_csaddr: g.dblkno,
            fs_old_cgmask: u32::MAX, fs_old_nspf: g.fsize / 512,
            fs_old_inodefmt: INODE_FORMAT_44,
            fs_old_rps: 60,
            fs_old_npsect: sectors, fs_old_nsect: sectors, fs_old_spc: sectors,
            fs_old_interleave: 1,
            fs_old_cpg: 1, fs_old_ncyl: g.ncg,
            fs_old_postblformat: 1, fs_old_nrpos: 1,
        );
        let at = offset_of!(Superblock<LE>, fs_old_cstotal);
        for (n, total) in totals(counts).into_iter().enumerate() {
            page.u32(at + n * 4, total as u32);
        }
    }

    /// The summary area.
    pub(crate) fn summaries(&self, counts: &[Counts]) -> Vec<u8> {
        let g = self.geometry;
        debug_assert_eq!(counts.len(), g.ncg as usize, "the counts of all groups");
        let mut page = self.page((g.summary_frags() * u64::from(g.fsize)) as usize);
        for (n, counts) in counts.iter().enumerate() {
            self.summary(&mut page, n * SUMMARY as usize, counts);
        }
        page.bytes
    }

    fn summary(&self, page: &mut Page, at: usize, counts: &Counts) {
        page.u32(at, counts.directories);
        page.u32(at + 4, counts.free_blocks);
        page.u32(at + 8, counts.free_inodes);
        page.u32(at + 12, counts.free_frags);
    }

    /// A group's head with its bitmaps: one block.
    pub(crate) fn group(&self, group: &GroupBuilder) -> Vec<u8> {
        let g = self.geometry;
        let layout = g.head_layout();
        let counts = group.counts(g);
        let mut page = self.page(g.bsize as usize);
        let frags = g.group_frags(group.number) as u32;
        set!(page, CylinderGroup, u32,
            cg_magic: MAGIC_GROUP, cg_cgx: group.number, cg_ndblk: frags,
            cg_iusedoff: layout.inodes as u32, cg_freeoff: layout.frags as u32,
            cg_nextfreeoff: layout.end as u32,
        );
        self.summary(&mut page, offset_of!(CylinderGroup<LE>, cg_cs), &counts);
        for (n, &runs) in counts.runs.iter().enumerate() {
            page.u32(offset_of!(CylinderGroup<LE>, cg_frsum) + n * 4, runs);
        }
        if g.version == Version::Ufs1 {
            let tables = size_of::<CylinderGroup<LE>>() as u32;
            set!(page, CylinderGroup, u32,
                cg_old_time: self.options.time.secs as u32,
                cg_old_btotoff: tables, cg_old_boff: tables + 4,
            );
            set!(page, CylinderGroup, u16, cg_old_ncyl: 1, cg_old_niblk: g.ipg as u16);
        } else {
            // All inodes are zeros, so all are written.
            set!(page, CylinderGroup, u32, cg_niblk: g.ipg, cg_initediblk: g.ipg);
            set!(page, CylinderGroup, u64, cg_time: self.options.time.secs.cast_unsigned());
        }
        if g.contigsumsize > 0 {
            set!(page, CylinderGroup, u32,
                cg_clustersumoff: layout.cluster_counts as u32,
                cg_clusteroff: layout.clusters as u32,
                cg_nclusterblks: frags / g.frag,
            );
            for (n, &count) in counts.clusters.iter().enumerate().skip(1) {
                page.u32(layout.cluster_counts as usize + n * 4, count);
            }
            page.raw(layout.clusters as usize, &group.cluster_bits(g));
        }
        page.raw(layout.inodes as usize, &group.inode_bits());
        page.raw(layout.frags as usize, &group.frag_bits());
        let covered = g.frags(g.head_bytes()) as usize * g.fsize as usize;
        debug_assert!(layout.end as usize <= covered, "the hash covers the maps");
        let at = offset_of!(CylinderGroup<LE>, cg_ckhash);
        self.seal(&mut page, 0..covered, at, check_hash::GROUP);
        page.bytes
    }

    /// One unit: `.` and `..`, both the root.
    pub(crate) fn root_directory(&self) -> Vec<u8> {
        let mut page = self.page(512.max(self.geometry.fsize as usize));
        for (at, len, name) in [(0, 12, &b"."[..]), (12, 500, b"..")] {
            page.u32(at, ROOT);
            page.u16(at + 4, len);
            page.bytes[at + 6] = 4;
            page.bytes[at + 7] = name.len() as u8;
            page.raw(at + 8, name);
        }
        page.bytes
    }

    /// The first block of inodes, with the root among them.
    pub(crate) fn first_inodes(&self, root_at: u64) -> Vec<u8> {
        let g = self.geometry;
        debug_assert!(root_at.is_multiple_of(g.frag.into()), "the root begins with a block");
        let mut page = self.page(g.bsize as usize);
        let at = ROOT as usize * g.inode_size() as usize;
        let (secs, nanos) = (self.options.time.secs, self.options.time.nanos);
        let sectors = u64::from(g.fsize / 512);
        // `offset_of` within the inode, from where the root's begins.
        macro_rules! root {
            ($type:ident, $width:ident, $($field:ident: $value:expr),+ $(,)?) => {
                $(page.$width(at + offset_of!($type<LE>, $field), $value);)+
            };
        }
        match g.version {
            Version::Ufs1 => {
                root!(Dinode1, u16, di_mode: 0o40755, di_nlink: 2);
                root!(Dinode1, u64, di_size: 512);
                root!(Dinode1, u32,
                    di_atime: secs as u32, di_mtime: secs as u32, di_ctime: secs as u32,
                    di_atimensec: nanos, di_mtimensec: nanos, di_ctimensec: nanos,
                    di_db: root_at as u32, di_blocks: sectors as u32, di_gen: self.options.id[1],
                );
            }
            Version::Ufs2 => {
                let time = secs.cast_unsigned();
                root!(Dinode2, u16, di_mode: 0o40755, di_nlink: 2);
                root!(Dinode2, u64,
                    di_size: 512, di_blocks: sectors, di_db: root_at,
                    di_atime: time, di_mtime: time, di_ctime: time, di_birthtime: time,
                );
                root!(Dinode2, u32,
                    di_atimensec: nanos, di_mtimensec: nanos, di_ctimensec: nanos,
                    di_birthnsec: nanos, di_gen: self.options.id[1],
                );
            }
        }
        self.seal_inode(&mut page, at);
        page.bytes
    }
}

/// Directories, free blocks, inodes and fragments. The number of free clusters behind them is
/// counted nowhere: FreeBSD's `fsck_ffs` wants it to be zero.
fn totals(counts: &[Counts]) -> [u64; 4] {
    let sum = |of: fn(&Counts) -> u32| counts.iter().map(|one| u64::from(of(one))).sum();
    [
        sum(|one| one.directories),
        sum(|one| one.free_blocks),
        sum(|one| one.free_inodes),
        sum(|one| one.free_frags),
    ]
}
