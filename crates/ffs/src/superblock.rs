//! The superblock: found, checked, and in native terms.

use crate::checksum::crc32c;
use crate::ondisk::{
    INODE_FORMAT_44, MAGIC_UFS1, MAGIC_UFS2, SUPERBLOCK_SEARCH, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2,
    Superblock, check_hash, flag,
};
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, le32, parse, range, truncated, wide};
use seekless_fs::term::{Term, Text};
use seekless_fs::{Corruption, Fixed, FixedKind, FsError, Location};
use seekless_placement::Totals;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba};
use std::mem::offset_of;
use zerocopy::byteorder::{BE, ByteOrder, LE};

/// Bytes read for each possible place of a superblock.
const LOOK: u64 = 8192;
/// Most blocks that a summary of clusters counts together (`FS_MAXCONTIG`).
pub(crate) const MAX_CONTIG: u32 = 16;
/// Inodes of a group at most: UFS1 counts them in 16 bits with a sign.
pub(crate) const MOST_INODES_UFS1: u32 = 0x7FFF;
/// Bytes of a group's entry in the summary area.
pub(crate) const SUMMARY: u64 = 16;
/// The offset of the magic number.
const MAGIC_AT: usize = offset_of!(Superblock<LE>, fs_magic);

/// The byte order of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Little,
    Big,
}

/// Which of the two formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Ufs1,
    Ufs2,
}

/// The fields of the superblock, checked.
#[derive(Clone, Debug)]
pub(crate) struct Super {
    pub(crate) order: Order,
    pub(crate) format: Format,
    /// Its place, in bytes.
    pub(crate) at: u64,
    pub(crate) bsize: u32,
    pub(crate) fsize: u32,
    /// Fragments in a block.
    pub(crate) frag: u32,
    /// Fragments in the volume.
    pub(crate) size: u64,
    pub(crate) ncg: u32,
    pub(crate) fpg: u32,
    pub(crate) ipg: u32,
    /// Offsets of parts from the start of a group, in fragments.
    pub(crate) sblkno: u32,
    pub(crate) cblkno: u32,
    pub(crate) iblkno: u32,
    pub(crate) dblkno: u32,
    pub(crate) cgsize: u32,
    /// The summary area.
    pub(crate) summaries: Extent,
    /// UFS1 shifts the metadata of its groups.
    pub(crate) old_cgoffset: u32,
    pub(crate) old_cgmask: u32,
    /// Cylinders in a group and positions in a cylinder, by which UFS1 reserves room in
    /// the heads of its groups.
    pub(crate) old_cpg: u32,
    pub(crate) old_nrpos: u32,
    pub(crate) maxsymlinklen: u32,
    /// Directory entries have a type.
    pub(crate) typed_entries: bool,
    pub(crate) clean: bool,
    pub(crate) flags: u32,
    metackhash: u32,
    pub(crate) id: [u32; 2],
    pub(crate) label: Vec<u8>,
    /// Fields that only changes of the volume use.
    pub(crate) tuning: Tuning,
    pub(crate) free_blocks: u64,
    pub(crate) free_frags: u64,
    pub(crate) free_inodes: u64,
}

/// Fields of the superblock for changes of the volume. They are checked when these begin
/// ([`Super::check_writable`]), since readers can do without.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Percent of the space kept from ordinary users.
    pub(crate) minfree: u32,
    /// Blocks that a file may take in one group before it must move on.
    pub(crate) maxbpg: u32,
    /// Longest cluster, in blocks.
    pub(crate) maxcontig: u32,
    /// Longest cluster that is counted, in blocks; 0 when none are.
    pub(crate) contigsumsize: u32,
    /// `fs_optim`: 0 for time, 1 for space.
    pub(crate) optim: u32,
    /// Average length of files, in bytes.
    pub(crate) avgfilesize: u32,
    /// Average number of files in a directory.
    pub(crate) avgfpdir: u32,
    /// Fragments reserved for metadata at the start of a group's data.
    pub(crate) metaspace: u64,
    /// Fragments for data.
    pub(crate) dsize: u64,
    /// Bytes of the superblock that its copies and its check hash cover.
    pub(crate) sbsize: u32,
    /// Bytes of the summary area.
    pub(crate) cssize: u32,
    /// Bytes of the longest file.
    pub(crate) maxfilesize: u64,
    /// When it was written last, in seconds of the epoch.
    pub(crate) time: i64,
    /// Time of the last mount or check, in seconds of the epoch: a journal belongs to one of them.
    pub(crate) mtime: i64,
    /// The first inode that was in use without a name, of which a journal keeps a list; or 0.
    pub(crate) unreferenced: u32,
    /// The totals of all groups.
    pub(crate) totals: Totals,
    /// The rest of `fs_cstotal` is not all zeros, as `fsck_ffs` would have it.
    pub(crate) stray_totals: bool,
    /// The fields of UFS2's time are in use, not only the old ones.
    pub(crate) updated: bool,
    /// NetBSD has the places of its journal where FreeBSD has other fields.
    netbsd_journal: bool,
    /// The inodes of snapshots, oldest first, up to the first zero.
    snapshots: [u32; 20],
}

impl Tuning {
    /// The inodes of snapshots that the volume lists, oldest first.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = Ino> + use<> {
        self.snapshots.into_iter().take_while(|&ino| ino != 0).map(Ino::new)
    }

    /// Whether it has snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots().next().is_some()
    }
}

fn place() -> Location {
    Location::of("superblock")
}

/// The bytes of a superblock, not verified, and their place.
#[derive(Clone)]
pub(crate) struct RawSuperblock {
    pub(crate) order: Order,
    pub(crate) format: Format,
    /// In bytes.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Looks for a superblock where one may be. UFS2 records the place of its own, which tells it from
/// a copy; a UFS1 superblock at the place of UFS2's is the copy of a volume with large blocks.
pub(crate) fn find(device: &dyn BlockDevice) -> Option<RawSuperblock> {
    SUPERBLOCK_SEARCH.into_iter().find_map(|at| {
        let found = look(device, at)?;
        match found.format {
            Format::Ufs1 => (at != SUPERBLOCK_UFS2).then_some(found),
            Format::Ufs2 => (found.own_place() == Some(at)).then_some(found),
        }
    })
}

/// Reads a superblock, or a copy of it, at a byte of the device; `None` without its magic number.
pub(crate) fn look(device: &dyn BlockDevice, at: u64) -> Option<RawSuperblock> {
    let mut bytes = vec![0; index(LOOK)];
    device.read(Lba::containing(ByteLen::new(at)), &mut bytes).ok()?;
    let (order, format) = magic_of(&bytes)?;
    Some(RawSuperblock { order, format, at, bytes })
}

/// Byte order and format by the magic number.
fn magic_of(bytes: &[u8]) -> Option<(Order, Format)> {
    let magic = le32(bytes, MAGIC_AT)?;
    let (order, magic) = match magic {
        MAGIC_UFS1 | MAGIC_UFS2 => (Order::Little, magic),
        _ => (Order::Big, magic.swap_bytes()),
    };
    match magic {
        MAGIC_UFS1 => Some((order, Format::Ufs1)),
        MAGIC_UFS2 => Some((order, Format::Ufs2)),
        _ => None,
    }
}

/// Whether bytes begin with a magic number, in either order.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    let magic = le32(bytes, 0).unwrap_or(0);
    [magic, magic.swap_bytes()].iter().any(|magic| matches!(*magic, MAGIC_UFS1 | MAGIC_UFS2))
}

impl RawSuperblock {
    /// `fs_sblockloc`: the recorded place of the first superblock of its kind.
    pub(crate) fn own_place(&self) -> Option<u64> {
        Some(match self.order {
            Order::Little => parse::<Superblock<LE>>(&self.bytes, 0)?.fs_sblockloc.get(),
            Order::Big => parse::<Superblock<BE>>(&self.bytes, 0)?.fs_sblockloc.get(),
        })
    }

    /// Its fields, checked for a device of so many bytes.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when it makes no sense.
    pub(crate) fn decode(&self, device: ByteLen) -> Result<Super, FsError> {
        let sb = match self.order {
            Order::Little => {
                native(&parse::<Superblock<LE>>(&self.bytes, 0).ok_or_else(lost)?, self)
            }
            Order::Big => native(&parse::<Superblock<BE>>(&self.bytes, 0).ok_or_else(lost)?, self),
        };
        sb.check(device)?;
        Ok(sb)
    }
}

impl Super {
    /// Finds, reads and checks the superblock.
    pub(crate) fn read(device: &dyn BlockDevice, ignore_checksums: bool) -> Result<Self, FsError> {
        let found = find(device)
            .ok_or_else(|| FsError::corrupt(Corruption::Magic { found: 0 }, place()))?;
        let sb = found.decode(device.len())?;
        if !ignore_checksums {
            sb.verify(&found)?;
        }
        Ok(sb)
    }

    fn check(&self, device: ByteLen) -> Result<(), FsError> {
        let power = |field, value: u32, low: u32, high: u32| {
            if value.is_power_of_two() && (low..=high).contains(&value) {
                return Ok(());
            }
            Err(invalid(field, u64::from(value), place()))
        };
        power("fs_bsize", self.bsize, 4096, 65536)?;
        power("fs_fsize", self.fsize, 512, self.bsize)?;
        let frag = self.bsize / self.fsize;
        if self.frag != frag || frag > 8 {
            return Err(invalid("fs_frag", u64::from(self.frag), place()));
        }
        let in_group = |field, value: u32| {
            if value <= self.fpg {
                return Ok(());
            }
            Err(range(field, u64::from(value), u64::from(self.fpg), place()))
        };
        in_group("fs_sblkno", self.sblkno)?;
        in_group("fs_cblkno", self.cblkno)?;
        in_group("fs_iblkno", self.iblkno)?;
        in_group("fs_dblkno", self.dblkno)?;
        // A group's bitmap of fragments fits in a block.
        if self.fpg == 0 || u64::from(self.fpg) > u64::from(self.bsize) * 8 {
            return Err(invalid("fs_fpg", u64::from(self.fpg), place()));
        }
        let shift = u64::from(self.old_cgoffset) * u64::from(self.widest_turn());
        let room = u64::from(self.fpg - self.dblkno);
        if shift > room {
            return Err(range("fs_old_cgoffset", shift, room, place()));
        }
        let inodes = u64::from(self.ipg) * u64::from(self.ncg);
        let table = u64::from(self.ipg) * u64::from(self.inode_size());
        let frags = self.dblkno - self.iblkno.min(self.dblkno);
        let room = u64::from(frags) * u64::from(self.fsize);
        if self.ipg == 0 || table > room || inodes > u64::from(u32::MAX) {
            return Err(range("fs_ipg", u64::from(self.ipg), room, place()));
        }
        if self.cgsize > self.bsize || index(self.cgsize) < 168 {
            return Err(range("fs_cgsize", u64::from(self.cgsize), u64::from(self.bsize), place()));
        }
        let groups = self.size.div_ceil(u64::from(self.fpg));
        if self.size == 0 || u64::from(self.ncg) != groups {
            return Err(range("fs_ncg", u64::from(self.ncg), groups, place()));
        }
        let room = device.get() / u64::from(self.fsize);
        if self.size > room {
            return Err(range("fs_size", self.size, room, place()));
        }
        Ok(())
    }

    /// Checks whether a repair may change the volume: it would break unknown features. Journals are
    /// no obstacle, since the whole volume is checked.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] with the name of the unknown feature.
    pub(crate) fn check_repairable(&self) -> Result<(), FsError> {
        if !self.tuning.updated {
            return Err(FsError::Unsupported(
                "repairing a volume with a superblock from before 2002 (fsck_ffs of a current BSD \
                 converts it)"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Checks the fields that a change of the volume relies on.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for a feature that we cannot keep up, with its name;
    /// [`FsError::Corrupt`] for fields that make no sense.
    pub(crate) fn check_writable(&self) -> Result<(), FsError> {
        self.check_writable_features()?;
        self.check_tuning()
    }

    /// As [`Super::check_writable`], for changes that keep the snapshots of the volume as they are.
    ///
    /// # Errors
    /// As [`Super::check_writable`].
    pub(crate) fn check_writable_beside_snapshots(&self) -> Result<(), FsError> {
        match self.unkept_by_changes() {
            Some(what) => Err(FsError::Unsupported(format!("changing a volume with {what}"))),
            None => self.check_tuning(),
        }
    }

    fn check_tuning(&self) -> Result<(), FsError> {
        let t = &self.tuning;
        let most = |field, value: u64, limit: u64| {
            if value <= limit { Ok(()) } else { Err(range(field, value, limit, place())) }
        };
        most("fs_minfree", u64::from(t.minfree), 99)?;
        most("fs_optim", u64::from(t.optim), 1)?;
        most("fs_contigsumsize", u64::from(t.contigsumsize), u64::from(MAX_CONTIG))?;
        most("fs_metaspace", t.metaspace, u64::from(self.fpg))?;
        most("fs_dsize", t.dsize, self.size)?;
        if self.format == Format::Ufs1 {
            most("fs_ipg", u64::from(self.ipg), u64::from(MOST_INODES_UFS1))?;
        }
        most("fs_sbsize", u64::from(t.sbsize), wide(SUPERBLOCK_SIZE))?;
        if index(t.sbsize) < size_of::<Superblock<LE>>() {
            return Err(invalid("fs_sbsize", u64::from(t.sbsize), place()));
        }
        if t.maxbpg == 0 || i32::try_from(t.maxbpg).is_err() {
            return Err(invalid("fs_maxbpg", u64::from(t.maxbpg), place()));
        }
        let summaries = u64::from(self.ncg) * SUMMARY;
        if u64::from(t.cssize) < summaries {
            return Err(range("fs_cssize", u64::from(t.cssize), summaries, place()));
        }
        most("fs_csaddr", self.summaries.end().get(), self.size)?;
        let blocks = self.size / u64::from(self.frag);
        most("cs_nbfree", t.totals.nbfree, blocks)?;
        most("cs_nffree", t.totals.nffree, self.size)?;
        most("cs_nifree", t.totals.nifree, u64::from(self.inodes()))?;
        most("cs_ndir", t.totals.ndir, u64::from(self.inodes()))
    }

    /// Refuses a volume that was not cleanly unmounted, for a change outside of the engine.
    ///
    /// # Errors
    /// [`FsError::Refused`].
    pub(crate) fn refuse_unclean(&self) -> Result<(), FsError> {
        if self.clean && self.flags & (flag::UNCLEAN | flag::NEEDS_FSCK) == 0 {
            return Ok(());
        }
        let what = "unsupported: changing a volume that was not cleanly unmounted \
                    (unmount it, or run ";
        Err(FsError::Refused(Text::from(what).then(Term::Preen).then(" on it)")))
    }

    fn check_writable_features(&self) -> Result<(), FsError> {
        match self.unkept_feature() {
            Some(what) => Err(FsError::Unsupported(format!("changing a volume with {what}"))),
            None => Ok(()),
        }
    }

    /// Blocks of the image in a snapshot, the last of which may end behind the volume.
    pub(crate) fn snapshot_blocks(&self) -> u64 {
        self.size.div_ceil(u64::from(self.frag))
    }

    /// A feature that a larger size would break, with a remedy: the journal of NetBSD lies in or
    /// behind the volume, at places that the superblock names (`fs_journallocs`), and is written
    /// there again by the next mount.
    pub(crate) fn unkept_by_growth(&self) -> Option<&'static str> {
        self.tuning.netbsd_journal.then_some("a NetBSD journal (tunefs -l 0)")
    }

    /// Whether it has a journal of soft updates.
    pub(crate) fn is_journaled(&self) -> bool {
        self.flags & flag::JOURNALED_SOFT_UPDATES != 0
    }

    /// A feature that a change of the volume would break, with a remedy.
    pub(crate) fn unkept_feature(&self) -> Option<&'static str> {
        let snapshots = self.tuning.has_snapshots().then_some("snapshots (remove them first)");
        self.unkept_by_changes().or(snapshots)
    }

    /// A feature that no change keeps up, with a remedy.
    fn unkept_by_changes(&self) -> Option<&'static str> {
        let has = |bit: u32| self.flags & bit != 0;
        [
            (
                !self.tuning.updated,
                "a superblock from before 2002 (fsck_ffs of a current BSD converts it)",
            ),
            (has(flag::GJOURNAL), "a gjournal (tunefs -J disable)"),
        ]
        .into_iter()
        .find_map(|(is_there, what)| is_there.then_some(what))
    }

    /// The superblock of a volume that has grown to so many fragments in so many groups, `more`
    /// fragments for data, and the check hashes of these kinds (`fs_metackhash`) if they change.
    pub(crate) fn successor(
        &self,
        (size, groups): (u64, u32),
        more: u64,
        hashed: Option<u32>,
    ) -> Self {
        debug_assert_eq!(size.div_ceil(u64::from(self.fpg)), u64::from(groups), "whole groups");
        let mut sb = self.clone();
        (sb.size, sb.ncg) = (size, groups);
        sb.tuning.dsize += more;
        if let Some(hashed) = hashed {
            sb.metackhash = hashed;
            sb.flags &= !flag::CHECK_HASHES;
            sb.flags |= if hashed == 0 { 0 } else { flag::CHECK_HASHES };
        }
        sb
    }

    /// The kinds of check hashes.
    pub(crate) fn hashed(&self) -> u32 {
        if self.flags & flag::CHECK_HASHES == 0 { 0 } else { self.metackhash }
    }

    /// `ffs_calc_sbhash`: over `fs_sbsize` bytes, its own field being zero; where
    /// the volume has such a hash.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when it differs.
    pub(crate) fn verify(&self, found: &RawSuperblock) -> Result<(), FsError> {
        if !self.has_check_hash(check_hash::SUPERBLOCK) {
            return Ok(());
        }
        let word = |at: usize| {
            let word = le32(&found.bytes, at).unwrap_or(0);
            if self.order == Order::Little { word } else { word.swap_bytes() }
        };
        let size = word(offset_of!(Superblock<LE>, fs_sbsize));
        let mut bytes = found.bytes.clone();
        bytes.truncate(index(size).min(SUPERBLOCK_SIZE));
        let at = offset_of!(Superblock<LE>, fs_ckhash);
        let stored = word(at);
        bytes.get_mut(at..at + 4).ok_or_else(lost)?.fill(0);
        same(stored, crc32c(&bytes), place())
    }

    /// Sets the flags for every kind of check hash.
    #[cfg(test)]
    pub(crate) fn demand_check_hashes(&mut self) {
        self.flags |= flag::CHECK_HASHES;
        self.metackhash = check_hash::SUPERBLOCK | check_hash::GROUP | check_hash::INODE;
    }

    pub(crate) fn has_check_hash(&self, bit: u32) -> bool {
        self.flags & flag::CHECK_HASHES != 0 && self.metackhash & bit != 0
    }

    pub(crate) fn inode_size(&self) -> u32 {
        if self.format == Format::Ufs1 { 128 } else { 256 }
    }

    /// Bytes of a block number.
    pub(crate) fn pointer_size(&self) -> u32 {
        if self.format == Format::Ufs1 { 4 } else { 8 }
    }

    /// Block numbers in an indirect block.
    pub(crate) fn pointers(&self) -> u64 {
        u64::from(self.bsize / self.pointer_size())
    }

    /// A block number in an indirect block.
    pub(crate) fn pointer(&self, block: &[u8], at: u64) -> u64 {
        let from = index(at * u64::from(self.pointer_size()));
        let bytes = block.get(from..).unwrap_or_default();
        match (self.format, self.order) {
            (Format::Ufs1, Order::Little) => {
                bytes.first_chunk().map_or(0, |raw| u64::from(u32::from_le_bytes(*raw)))
            }
            (Format::Ufs1, Order::Big) => {
                bytes.first_chunk().map_or(0, |raw| u64::from(u32::from_be_bytes(*raw)))
            }
            (Format::Ufs2, Order::Little) => {
                bytes.first_chunk().map_or(0, |raw| u64::from_le_bytes(*raw))
            }
            (Format::Ufs2, Order::Big) => {
                bytes.first_chunk().map_or(0, |raw| u64::from_be_bytes(*raw))
            }
        }
    }

    pub(crate) fn inodes(&self) -> u32 {
        self.ipg * self.ncg
    }

    /// The group of a block; one behind the last for a block outside of the volume.
    pub(crate) fn group_of(&self, block: BlockNo) -> GroupNo {
        let group = block.get() / u64::from(self.fpg);
        GroupNo::new(u32::try_from(group).unwrap_or(u32::MAX))
    }

    /// The fragments of a group; the last may have fewer.
    pub(crate) fn group_blocks(&self, group: GroupNo) -> Extent {
        debug_assert!(group.get() < self.ncg, "group {group} of {}", self.ncg);
        let start = u64::from(group.get()) * u64::from(self.fpg);
        Extent::new(BlockNo::new(start), (self.size - start).min(u64::from(self.fpg)))
    }

    /// The most steps of `fs_old_cgoffset` by which a group's metadata are shifted (UFS1), as
    /// `newfs` computes it.
    fn widest_turn(&self) -> u32 {
        match self.format {
            Format::Ufs1 => (!self.old_cgmask).min(self.ncg.max(1) - 1),
            Format::Ufs2 => 0,
        }
    }

    /// `cgstart`: the start from which a group's metadata are counted.
    fn group_start(&self, group: GroupNo) -> u64 {
        let base = u64::from(group.get()) * u64::from(self.fpg);
        if self.format == Format::Ufs2 {
            return base;
        }
        let turn = group.get() & !self.old_cgmask;
        base + u64::from(self.old_cgoffset) * u64::from(turn)
    }

    /// A place in a group, in fragments from its start.
    pub(crate) fn in_group(&self, group: GroupNo, at: u32) -> BlockNo {
        debug_assert!(at <= self.fpg, "fragment {at} of a group of {}", self.fpg);
        BlockNo::new(self.group_start(group) + u64::from(at))
    }

    /// Bytes of the old tables in a group's head: for each cylinder 4, and for each of its
    /// positions 2 (`cg_old_btotoff`, `cg_old_boff`). More than a block is never there.
    pub(crate) fn head_tables(&self) -> u64 {
        if self.format == Format::Ufs2 {
            return 0;
        }
        let each = 4 + 2 * u64::from(self.old_nrpos);
        let room = u64::from(self.bsize);
        u64::from(self.old_cpg).checked_mul(each).map_or(room, |bytes| bytes.min(room))
    }

    /// Superblock copy, group head and inodes of a group; the boot area too in
    /// the first.
    pub(crate) fn group_metadata(&self, group: GroupNo) -> Extent {
        debug_assert!(group.get() < self.ncg, "group {group} of {}", self.ncg);
        let first = if group == GroupNo::ZERO { 0 } else { self.sblkno };
        let start = self.in_group(group, first);
        // Readers do without `fs_sblkno`, which may be anywhere in the group.
        Extent::new(start, u64::from(self.dblkno.max(first) - first))
    }

    /// The fixed metadata of a group, by their structures.
    pub(crate) fn fixed(&self, group: GroupNo) -> Vec<Fixed> {
        let all = self.group_metadata(group);
        // Readers do without these two fields, which may be anywhere in the group.
        let within = |at: u32| self.in_group(group, at).clamp(all.start, all.end());
        let (head, inodes) = (within(self.cblkno), within(self.iblkno.max(self.cblkno)));
        let parts = [
            (all.start, head, FixedKind::Superblock),
            (head, inodes, FixedKind::Bitmap),
            (inodes, all.end(), FixedKind::Inodes),
        ];
        let part = |(from, to, kind)| Fixed { extent: Extent::new(from, to - from), kind };
        parts.into_iter().map(part).filter(|part| part.extent.len > 0).collect()
    }

    /// Fragments reserved for the superuser (`minfree`).
    pub(crate) fn kept_frags(&self) -> u64 {
        self.tuning.dsize * u64::from(self.tuning.minfree) / 100
    }

    /// Fragments for a number of bytes.
    pub(crate) fn frags(&self, bytes: u64) -> u32 {
        let frags = bytes.div_ceil(u64::from(self.fsize));
        u32::try_from(frags).unwrap_or(u32::MAX)
    }

    /// Sectors of a number of fragments, as `di_blocks` counts them.
    pub(crate) fn sectors(&self, frags: u64) -> u64 {
        frags * (u64::from(self.fsize) / 512)
    }
}

fn lost() -> FsError {
    truncated(place())
}

/// Compares a stored check hash with the computed one.
pub(crate) fn same(stored: u32, computed: u32, place: Location) -> Result<(), FsError> {
    if stored == computed {
        return Ok(());
    }
    Err(FsError::corrupt(Corruption::Checksum { stored, computed }, place))
}

/// The newer fields, or the old ones where only those are kept (as in `ffs_oldfscompat_read`).
fn native<O: ByteOrder>(raw: &Superblock<O>, found: &RawSuperblock) -> Super {
    let updated = u32::from(raw.fs_old_flags) & flag::UPDATED != 0;
    let old = found.format == Format::Ufs1 && !updated;
    let now = |old_value: u64, value: u64| if old { old_value } else { value };
    let (was, is) = (&raw.fs_old_cstotal, &raw.fs_cstotal);
    let fsize = u64::from(raw.fs_fsize.get()).max(1);
    let csaddr = now(u64::from(raw.fs_old_csaddr.get()), raw.fs_csaddr.get());
    let longest = if found.format == Format::Ufs1 { 60 } else { 120 };
    let label = &raw.fs_volname;
    let end = label.iter().position(|&byte| byte == 0).unwrap_or(label.len());
    Super {
        order: found.order,
        format: found.format,
        at: found.at,
        bsize: raw.fs_bsize.get(),
        fsize: raw.fs_fsize.get(),
        frag: raw.fs_frag.get(),
        size: now(u64::from(raw.fs_old_size.get()), raw.fs_size.get()),
        ncg: raw.fs_ncg.get(),
        fpg: raw.fs_fpg.get(),
        ipg: raw.fs_ipg.get(),
        sblkno: raw.fs_sblkno.get(),
        cblkno: raw.fs_cblkno.get(),
        iblkno: raw.fs_iblkno.get(),
        dblkno: raw.fs_dblkno.get(),
        cgsize: raw.fs_cgsize.get(),
        summaries: Extent::new(
            BlockNo::new(csaddr),
            u64::from(raw.fs_cssize.get()).div_ceil(fsize),
        ),
        old_cgoffset: raw.fs_old_cgoffset.get(),
        old_cgmask: raw.fs_old_cgmask.get(),
        old_cpg: raw.fs_old_cpg.get(),
        old_nrpos: raw.fs_old_nrpos.get(),
        maxsymlinklen: raw.fs_maxsymlinklen.get().min(longest),
        typed_entries: found.format == Format::Ufs2
            || raw.fs_old_inodefmt.get() >= INODE_FORMAT_44
            || raw.fs_maxsymlinklen.get() > 0,
        clean: raw.fs_clean & 1 != 0,
        flags: if old { u32::from(raw.fs_old_flags) } else { raw.fs_flags.get() },
        metackhash: raw.fs_metackhash.get(),
        id: raw.fs_id.map(zerocopy::byteorder::U32::get),
        label: label.get(..end).unwrap_or_default().to_vec(),
        tuning: tuning(raw, updated || found.format == Format::Ufs2),
        free_blocks: now(u64::from(was.cs_nbfree.get()), is.cs_nbfree.get()),
        free_frags: now(u64::from(was.cs_nffree.get()), is.cs_nffree.get()),
        free_inodes: now(u64::from(was.cs_nifree.get()), is.cs_nifree.get()),
    }
}

fn tuning<O: ByteOrder>(raw: &Superblock<O>, updated: bool) -> Tuning {
    let totals = &raw.fs_cstotal;
    Tuning {
        minfree: raw.fs_minfree.get(),
        maxbpg: raw.fs_maxbpg.get(),
        maxcontig: raw.fs_maxcontig.get(),
        contigsumsize: raw.fs_contigsumsize.get(),
        optim: raw.fs_optim.get(),
        avgfilesize: raw.fs_avgfilesize.get(),
        avgfpdir: raw.fs_avgfpdir.get(),
        metaspace: raw.fs_metaspace.get(),
        dsize: raw.fs_dsize.get(),
        sbsize: raw.fs_sbsize.get(),
        cssize: raw.fs_cssize.get(),
        maxfilesize: raw.fs_maxfilesize.get(),
        time: raw.fs_time.get(),
        mtime: raw.fs_mtime.get(),
        unreferenced: raw.fs_sujfree.get(),
        totals: Totals {
            ndir: totals.cs_ndir.get(),
            nbfree: totals.cs_nbfree.get(),
            nifree: totals.cs_nifree.get(),
            nffree: totals.cs_nffree.get(),
        },
        stray_totals: std::iter::once(&totals.cs_numclusters)
            .chain(&totals.cs_spare)
            .any(|word| word.get() != 0),
        updated,
        netbsd_journal: has_netbsd_journal(&raw.fs_unrefs.to_bytes()),
        snapshots: raw.fs_snapinum.map(zerocopy::byteorder::U32::get),
    }
}

/// Whether the bytes of `fs_unrefs` are NetBSD's `fs_journal_version` and `fs_journal_location`:
/// version 1, at the end of the partition or within the volume (`sys/ufs/ffs/fs.h`).
fn has_netbsd_journal(unrefs: &[u8]) -> bool {
    matches!(unrefs, [1, 1 | 2, ..])
}
