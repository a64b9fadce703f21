//! What FreeBSD asks of a volume before it mounts or checks it: the rules of
//! `validate_sblock` (`sys/ufs/ffs/ffs_subr.c`), of `check_cgmagic` and `pass5`
//! (`sbin/fsck_ffs`), and the check hashes. Bytes are read at the offsets of
//! `sys/ufs/ffs/fs.h`, by nothing of the crate that is being tested.

use seekless_device::BlockDevice;
use seekless_units::{ByteLen, Lba};

const UFS1: u32 = 0x0001_1954;
const UFS2: u32 = 0x1954_0119;
const GROUP: u32 = 0x0009_0255;
/// Bits of `fs_metackhash`.
pub(crate) const SUPERBLOCK: i64 = 1;
pub(crate) const GROUPS: i64 = 2;
pub(crate) const INODES: i64 = 4;

/// Bytes with numbers of one order in them.
pub(crate) struct Raw {
    pub(crate) bytes: Vec<u8>,
    pub(crate) big_endian: bool,
}

impl Raw {
    pub(crate) fn read(device: &dyn BlockDevice, at: u64, len: usize, big_endian: bool) -> Self {
        let mut bytes = vec![0; len.next_multiple_of(512)];
        device.read(Lba::containing(ByteLen::new(at)), &mut bytes).unwrap();
        bytes.truncate(len);
        Self { bytes, big_endian }
    }

    pub(crate) fn number(&self, at: usize, len: usize) -> u64 {
        let bytes = &self.bytes[at..at + len];
        let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) }
    }

    /// As C has it: `int16_t`, `int32_t`, `int64_t`.
    fn short(&self, at: usize) -> i64 {
        i64::from(self.number(at, 2) as i16)
    }

    pub(crate) fn int(&self, at: usize) -> i64 {
        i64::from(self.number(at, 4) as i32)
    }

    pub(crate) fn unsigned(&self, at: usize) -> i64 {
        self.number(at, 4) as i64
    }

    fn long(&self, at: usize) -> i64 {
        self.number(at, 8) as i64
    }

    /// `calculate_crc32c(~0, ...)` with the hash's own four bytes zero.
    fn hash(&self, len: usize, own: usize) -> i64 {
        let mut bytes = self.bytes[..len].to_vec();
        bytes[own..own + 4].fill(0);
        i64::from(!crc32c::crc32c(&bytes))
    }
}

/// What was asked, and what was found to be otherwise.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) asked: usize,
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    fn ask(&mut self, rule: &str, holds: bool) {
        self.asked += 1;
        if !holds {
            self.wrong.push(rule.to_string());
        }
    }

    fn same(&mut self, what: &str, is: i64, should: i64) {
        self.ask(&format!("{what} is {is}, not {should}"), is == should);
    }
}

/// `struct fs` as far as the rules look at it.
pub(crate) struct Fs {
    pub(crate) raw: Raw,
    pub(crate) ufs1: bool,
}

macro_rules! fields {
    ($($name:ident: $how:ident $at:expr;)*) => {
        #[allow(dead_code)]
        impl Fs {
            $(pub(crate) fn $name(&self) -> i64 { self.raw.$how($at) })*
        }
    };
}

fields! {
    sblkno: int 8; cblkno: int 12; iblkno: int 16; dblkno: int 20;
    old_cgoffset: int 24; old_cgmask: int 28; old_size: int 36; old_dsize: int 40;
    ncg: unsigned 44; bsize: int 48; fsize: int 52; frag: int 56; minfree: int 60;
    old_rotdelay: int 64; old_rps: int 68; bmask: int 72; fmask: int 76; bshift: int 80;
    fshift: int 84; maxcontig: int 88; maxbpg: int 92; fragshift: int 96; fsbtodb: int 100;
    sbsize: int 104; nindir: int 116; inopb: int 120; old_nspf: int 124; optim: int 128;
    old_npsect: int 132; old_interleave: int 136; old_trackskew: int 140; old_csaddr: int 152;
    cssize: int 156; cgsize: int 160; old_nsect: int 168; old_spc: int 172; old_ncyl: int 176;
    old_cpg: int 180; ipg: unsigned 184; fpg: int 188; old_cpc: int 856; maxbsize: int 860;
    metaspace: long 880; actual: long 992; sblockloc: long 1000; ndir: long 1008;
    nbfree: long 1016; nifree: long 1024; nffree: long 1032; clusters: long 1040;
    size: long 1080; dsize: long 1088; csaddr: long 1096; ckhash: unsigned 1304;
    metackhash: unsigned 1308; flags: unsigned 1312; contigsumsize: int 1316;
    maxsymlinklen: int 1320; old_inodefmt: int 1324; maxfilesize: long 1328;
    qbmask: long 1336; qfmask: long 1344; old_postblformat: int 1356; old_nrpos: int 1360;
    magic: unsigned 1372;
}

fn round_up(value: i64, unit: i64) -> i64 {
    how_many(value, unit) * unit
}

fn how_many(value: i64, unit: i64) -> i64 {
    over(value + unit - 1, unit)
}

/// A quotient; of zero none that anything is compared with.
fn over(value: i64, by: i64) -> i64 {
    value.checked_div(by).unwrap_or(i64::MIN)
}

fn log2(value: i64) -> i64 {
    i64::from(63 - value.leading_zeros().min(63) as i32)
}

impl Fs {
    /// The superblock where a volume has its own, of either order.
    pub(crate) fn find(device: &dyn BlockDevice) -> Self {
        let look = |at: u64, wanted: u32| {
            [false, true].into_iter().find_map(|big_endian| {
                let raw = Raw::read(device, at, 8192, big_endian);
                let is = raw.number(1372, 4) == u64::from(wanted);
                is.then_some(Self { raw, ufs1: wanted == UFS1 })
            })
        };
        look(65536, UFS2).or_else(|| look(8192, UFS1)).expect("a superblock")
    }

    fn pointer(&self) -> i64 {
        if self.ufs1 { 4 } else { 8 }
    }

    pub(crate) fn inode(&self) -> i64 {
        if self.ufs1 { 128 } else { 256 }
    }

    /// Whether the volume has check hashes of a kind: a bit of `fs_metackhash` counts where
    /// `fs_flags` says that they are kept.
    pub(crate) fn has_hash(&self, kind: i64) -> bool {
        self.flags() & 0x200 != 0 && self.metackhash() & kind != 0
    }

    /// `CGSIZE`.
    fn group_bytes(&self) -> i64 {
        let clusters = if self.contigsumsize() <= 0 {
            0
        } else {
            self.contigsumsize() * 4 + how_many(over(self.fpg(), self.frag()), 8)
        };
        let maps = how_many(self.ipg(), 8) + how_many(self.fpg(), 8);
        168 + self.old_cpg() * 4 + self.old_cpg() * 2 + maps + 4 + clusters
    }

    /// `validate_sblock`, rule by rule; `copy` for one that is not in its place.
    pub(crate) fn validate(&self, copy: bool, verdict: &mut Verdict) {
        let v = verdict;
        if self.ufs1 {
            v.ask("UFS1 lies at 8192 or before", copy || self.actual() <= 8192);
            v.ask("0 <= fs_sblockloc <= 8192", (0..=8192).contains(&self.sblockloc()));
            v.same("fs_old_inodefmt", self.old_inodefmt(), 2);
            v.same("fs_old_rotdelay", self.old_rotdelay(), 0);
            v.same("fs_old_rps", self.old_rps(), 60);
            v.same("fs_old_nspf", self.old_nspf(), self.fsize() / 512);
            v.same("fs_old_cpg", self.old_cpg(), 1);
            v.same("fs_old_interleave", self.old_interleave(), 1);
            v.same("fs_old_trackskew", self.old_trackskew(), 0);
            v.same("fs_old_cpc", self.old_cpc(), 0);
            v.same("fs_old_postblformat", self.old_postblformat(), 1);
            v.same("fs_old_nrpos", self.old_nrpos(), 1);
            v.same("fs_old_spc", self.old_spc(), self.fpg() * self.old_nspf());
            v.same("fs_old_nsect", self.old_nsect(), self.old_spc());
            v.same("fs_old_npsect", self.old_npsect(), self.old_spc());
            v.same("fs_old_ncyl", self.old_ncyl(), self.ncg());
        } else {
            v.ask("UFS2 lies at 65536", copy || [0, 65536].contains(&self.actual()));
            v.same("fs_sblockloc", self.sblockloc(), 65536);
        }
        v.same("fs_maxsymlinklen", self.maxsymlinklen(), 15 * self.pointer());
        v.same("fs_nindir", self.nindir(), self.bsize() / self.pointer());
        v.same("fs_inopb", self.inopb(), self.bsize() / self.inode());
        v.ask("4096 <= fs_bsize <= 65536", (4096..=65536).contains(&self.bsize()));
        v.ask("fs_bsize holds a superblock", self.bsize() >= round_up(1376, 512));
        v.ask("fs_bsize is a power of two", self.bsize() & (self.bsize() - 1) == 0);
        v.ask("1 <= fs_frag <= 8", (1..=8).contains(&self.frag()));
        v.same("fs_frag", self.frag(), over(self.bsize(), self.fsize()));
        v.ask("fs_fsize is a sector at least", self.fsize() >= 512);
        v.same("fs_fsize * fs_frag", self.fsize() * self.frag(), self.bsize());
        v.ask("fs_fsize is a power of two", self.fsize() & (self.fsize() - 1) == 0);
        v.ask("fs_fpg is 3 blocks at least", self.fpg() >= 3 * self.frag());
        v.ask("there is a group", self.ncg() >= 1);
        v.ask("a block of inodes in a group", self.ipg() >= self.inopb());
        let inodes = self.ipg() * self.ncg();
        v.ask("inodes have 32 bits", inodes <= (1 << 32) - self.inopb());
        v.ask("0 <= cs_nifree <= all", (0..=inodes).contains(&self.nifree()));
        v.ask("0 <= cs_ndir <= in use", (0..=inodes - self.nifree()).contains(&self.ndir()));
        v.ask("fs_sbsize is 8192 at most", self.sbsize() <= 8192);
        v.ask("fs_sbsize holds a superblock", self.sbsize() >= 1376);
        // Zero is taken for the size of a block.
        let longest = if self.maxbsize() == 0 { self.bsize() } else { self.maxbsize() };
        v.ask("fs_maxbsize is a block at least", longest >= self.bsize());
        v.ask("fs_maxbsize is a power of two", longest & (longest - 1) == 0);
        v.ask("fs_maxbsize is 16 blocks at most", longest <= 16 * self.bsize());
        v.same("fs_bmask", self.bmask(), !(self.bsize() - 1));
        v.same("fs_fmask", self.fmask(), !(self.fsize() - 1));
        v.same("fs_qbmask", self.qbmask(), !self.bmask());
        v.same("fs_qfmask", self.qfmask(), !self.fmask());
        v.same("fs_bshift", self.bshift(), log2(self.bsize()));
        v.same("fs_fshift", self.fshift(), log2(self.fsize()));
        v.same("fs_fragshift", self.fragshift(), log2(self.frag()));
        v.same("fs_fsbtodb", self.fsbtodb(), log2(self.fsize() / 512));
        v.same("fs_old_cgoffset", self.old_cgoffset(), 0);
        v.ask("a group's head fits in a block", self.group_bytes() <= self.bsize());
        if !v.wrong.is_empty() {
            // What follows divides by what may be zero.
            return;
        }
        v.same("fs_sbsize % 512", self.sbsize() % 512, 0);
        v.same("fs_ipg % fs_inopb", self.ipg() % self.inopb(), 0);
        let room = |bytes| round_up(how_many(bytes, self.fsize()), self.frag());
        v.same("fs_sblkno", self.sblkno(), room(self.sblockloc() + 8192));
        v.same("fs_cblkno", self.cblkno(), self.sblkno() + room(8192));
        v.same("fs_iblkno", self.iblkno(), self.cblkno() + self.frag());
        let table = self.ipg() / (self.inopb() >> self.fragshift());
        v.same("fs_dblkno", self.dblkno(), self.iblkno() + table);
        v.ask("fs_cgsize is a block at most", self.cgsize() <= self.bsize());
        v.ask("fs_cgsize is a fragment at least", self.cgsize() >= self.fsize());
        v.same("fs_cgsize % fs_fsize", self.cgsize() % self.fsize(), 0);
        v.same("fs_cgsize", self.cgsize(), round_up(self.group_bytes(), self.fsize()));
        let summaries = how_many(self.cssize(), self.fsize());
        let metadata = self.sblkno() + self.ncg() * (self.dblkno() - self.sblkno());
        v.same("fs_dsize", self.dsize(), self.size() - metadata - summaries);
        v.ask("0 <= fs_metaspace <= fs_fpg / 2", (0..=self.fpg() / 2).contains(&self.metaspace()));
        v.ask("fs_minfree <= 99", (0..=99).contains(&self.minfree()));
        let levels = (1..=3).map(|level| self.bsize() * self.nindir().pow(level));
        v.same("fs_maxfilesize", self.maxfilesize(), self.bsize() * 12 - 1 + levels.sum::<i64>());
        v.ask("8 blocks at least", self.size() >= 8 * self.frag());
        v.ask("the last group is not empty", self.size() > (self.ncg() - 1) * self.fpg());
        v.ask("no more than the groups", self.size() <= self.ncg() * self.fpg());
        v.same("fs_cssize", self.cssize(), round_up(self.ncg() * 16, self.fsize()));
        let (first, end) = (self.csaddr(), self.csaddr() + summaries);
        v.ask("the summaries are within", first >= 0 && end <= self.size());
        v.ask("and in data", first % self.fpg() >= self.dblkno());
        v.same("group of their end", end / self.fpg(), first / self.fpg());
        v.ask("0 <= fs_maxcontig <= 256", (0..=256).contains(&self.maxcontig()));
        match self.maxcontig() {
            1 => {}
            most => v.same("fs_contigsumsize", self.contigsumsize(), most.min(16)),
        }
        v.ask("fs_maxbpg", self.maxbpg() > 0);
        v.ask("fs_optim", (0..=1).contains(&self.optim()));
        v.same("cs_numclusters", self.clusters(), 0);
        for spare in 0..3 {
            v.same("cs_spare", self.raw.long(1048 + 8 * spare), 0);
        }
        v.ask("cs_nbfree, cs_nffree", self.nbfree() >= 0 && self.nffree() >= 0);
        let kinds = if self.ufs1 { 0..=0 } else { 0..=7 };
        v.ask("fs_metackhash", kinds.contains(&self.metackhash()));
        let has_flag = self.flags() & 0x200 != 0;
        v.ask("FS_METACKHASH", has_flag == (self.metackhash() != 0));
        if self.has_hash(SUPERBLOCK) && (1376..=8192).contains(&self.sbsize()) {
            v.same("fs_ckhash", self.ckhash(), self.raw.hash(self.sbsize() as usize, 1304));
        }
        if self.ufs1 {
            // What a kernel from before 2002 reads in 32 bits.
            v.same("fs_old_size", self.old_size(), self.size());
            v.same("fs_old_dsize", self.old_dsize(), self.dsize());
            v.same("fs_old_csaddr", self.old_csaddr(), self.csaddr());
            let totals = [self.ndir(), self.nbfree(), self.nifree(), self.nffree()];
            for (n, total) in totals.into_iter().enumerate() {
                v.same("fs_old_cstotal", self.raw.int(192 + 4 * n), total);
            }
        }
    }

    pub(crate) fn group(&self, device: &dyn BlockDevice, number: i64, verdict: &mut Verdict) {
        let v = verdict;
        let base = number * self.fpg();
        let at = |frag: i64| ((base + frag) * self.fsize()) as u64;
        let cgsize = self.cgsize() as usize;
        let cg = Raw::read(device, at(self.cblkno()), cgsize, self.raw.big_endian);
        let frags = (self.size() - base).min(self.fpg());
        v.same("cg_magic", cg.unsigned(4), i64::from(GROUP));
        v.same("cg_cgx", cg.unsigned(12), number);
        v.same("cg_ndblk", cg.unsigned(20), frags);
        let (mut used, head) = (168, 168);
        if self.ufs1 {
            v.same("cg_old_ncyl", cg.short(16), 1);
            v.same("cg_old_niblk", cg.short(18), self.ipg());
            v.same("cg_niblk", cg.unsigned(116), 0);
            v.same("cg_initediblk", cg.unsigned(120), 0);
            v.same("cg_old_btotoff", cg.int(84), head);
            v.same("cg_old_boff", cg.int(88), head + 4);
            used += 6;
        } else {
            v.same("cg_old_ncyl", cg.short(16), 0);
            v.same("cg_old_niblk", cg.short(18), 0);
            v.same("cg_niblk", cg.unsigned(116), self.ipg());
            v.ask("cg_initediblk <= fs_ipg", cg.unsigned(120) <= self.ipg());
            v.same("cg_old_btotoff", cg.int(84), 0);
            v.same("cg_old_boff", cg.int(88), 0);
        }
        // Without hashes it is a spare to older checkers.
        let hash = if self.has_hash(GROUPS) { cg.hash(cgsize, 132) } else { 0 };
        v.same("cg_ckhash", cg.unsigned(132), hash);
        v.same("cg_iusedoff", cg.unsigned(92), used);
        let mut next = used + how_many(self.ipg(), 8);
        v.same("cg_freeoff", cg.unsigned(96), next);
        next += how_many(self.fpg(), 8);
        if self.contigsumsize() > 0 {
            v.same("cg_nclusterblks", cg.unsigned(112), frags / self.frag());
            let counts = round_up(next, 4) - 4;
            v.same("cg_clustersumoff", cg.unsigned(104), counts);
            let map = counts + (self.contigsumsize() + 1) * 4;
            v.same("cg_clusteroff", cg.unsigned(108), map);
            next = map + how_many(self.fpg() / self.frag(), 8);
        } else {
            for at in [104, 108, 112] {
                v.same("a field of clusters", cg.unsigned(at), 0);
            }
        }
        v.same("cg_nextfreeoff", cg.unsigned(100), next);
        v.ask("the maps end within", next <= self.cgsize());
        // What `pass5` has as zero: whatever nothing is kept in.
        for at in [0, 128, 144, 148, 152, 156, 160, 164] {
            v.same("an unused field", cg.unsigned(at), 0);
        }
        v.ask("cg_rotor", cg.unsigned(40) < frags && cg.unsigned(44) < frags);
        v.ask("cg_irotor", cg.unsigned(48) < self.ipg());
        if self.has_hash(INODES) {
            self.inodes(device, at(self.iblkno()), &cg, used as usize, v);
        }
    }

    /// The hashes of the inodes that a group says are in use.
    fn inodes(&self, device: &dyn BlockDevice, at: u64, cg: &Raw, map: usize, v: &mut Verdict) {
        let block = self.bsize() as usize;
        for first in (0..self.ipg() as usize).step_by(self.inopb() as usize) {
            let is_used = |slot: usize| cg.bytes[map + slot / 8] >> (slot % 8) & 1 == 1;
            let slots = first..first + self.inopb() as usize;
            if !slots.clone().any(is_used) {
                continue;
            }
            let start = at + (first * 256) as u64;
            let table = Raw::read(device, start, block, self.raw.big_endian);
            for (inode, slot) in table.bytes.chunks(256).zip(slots) {
                let inode = Raw { bytes: inode.to_vec(), big_endian: self.raw.big_endian };
                if is_used(slot) && inode.number(0, 2) != 0 {
                    v.same("di_ckhash", inode.unsigned(244), inode.hash(256, 244));
                }
            }
        }
    }

    /// The record that leads to the copies when the superblock is lost.
    fn recovery(&self, device: &dyn BlockDevice, v: &mut Verdict) {
        let sector = Raw::read(device, 65536 - 512, 512, self.raw.big_endian);
        let words = [i64::from(UFS2), self.fsbtodb(), self.sblkno(), self.fpg(), self.ncg()];
        for (n, word) in words.into_iter().enumerate() {
            v.same("struct fsrecovery", sector.unsigned(512 - 20 + 4 * n), word);
        }
    }
}

/// What FreeBSD would find of a volume: its superblock, the copies, and groups,
/// of which some are looked at where there are many. `fresh` for one that was
/// never in use: its copies are as new as it is.
pub(crate) fn judge(device: &dyn BlockDevice, fresh: bool) -> Verdict {
    let mut verdict = Verdict::default();
    let fs = Fs::find(device);
    fs.validate(false, &mut verdict);
    if !verdict.wrong.is_empty() {
        return verdict;
    }
    let groups = (0..fs.ncg()).filter(|n| *n < 12 || n % 97 == 5 || *n + 3 > fs.ncg());
    for number in groups {
        fs.group(device, number, &mut verdict);
        let at = ((number * fs.fpg() + fs.sblkno()) * fs.fsize()) as u64;
        let raw = Raw::read(device, at, 8192, fs.raw.big_endian);
        let copy = Fs { raw, ufs1: fs.ufs1 };
        verdict.same("the copy's magic", copy.magic(), fs.magic());
        copy.validate(true, &mut verdict);
    }
    if fresh && !fs.ufs1 {
        fs.recovery(device, &mut verdict);
    }
    verdict
}
