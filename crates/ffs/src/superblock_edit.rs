//! A superblock's bytes, changed in place.

use crate::checksum::crc32c;
use crate::ondisk::{
    MAGIC_UFS2, MOST_SNAPSHOTS, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, Superblock, check_hash, flag,
};
use crate::superblock::{Format, Super};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::{index, low32};
use seekless_placement::Totals;
use seekless_units::{ByteLen, GroupNo, Ino, Lba};
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// A place in the superblock.
macro_rules! at {
    ($field:ident) => {
        offset_of!(Superblock<LE>, $field)
    };
}

/// The end of the fields.
const MAGIC_END: usize = size_of::<Superblock<LE>>();

/// Bytes of `struct fsrecovery`: five words, the first a magic number, the last that of groups.
const RECOVERY: usize = 20;

/// The bytes of a volume's superblock, whose other fields stay as they are. `sb` is the superblock
/// as it was read; it is not brought up to date.
pub(crate) struct SuperblockMut<'a> {
    sb: &'a Super,
    bytes: Vec<u8>,
}

impl<'a> SuperblockMut<'a> {
    /// Reads the bytes again from where the superblock was found.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn read(sb: &'a Super, device: &dyn BlockDevice) -> Result<Self, FsError> {
        let len = index(sb.tuning.sbsize);
        debug_assert!((MAGIC_END..=SUPERBLOCK_SIZE).contains(&len), "`fs_sbsize` was checked");
        let mut bytes = vec![0; len];
        device.read_bytes(ByteLen::new(sb.at), &mut bytes)?;
        Ok(Self { sb, bytes })
    }

    /// Takes bytes that were read already, `fs_sbsize` of them.
    pub(crate) fn of(sb: &'a Super, mut bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() >= index(sb.tuning.sbsize), "they reach to its end");
        bytes.truncate(index(sb.tuning.sbsize));
        Self { sb, bytes }
    }

    /// Drops the list of files that a journal of soft updates was to free.
    pub(crate) fn forget_unreferenced(&mut self) {
        self.set32(at!(fs_sujfree), 0);
        self.set32(at!(fs_pendinginodes), 0);
        self.set64(at!(fs_pendingblocks), 0);
    }

    /// Makes the journal of soft updates one of another mount than the last: FreeBSD uses it no more
    /// for later changes, and writes a new one when it mounts the volume.
    /// The time of the last mount becomes `secs`, in seconds of the epoch, if it is later.
    pub(crate) fn retire_journal(&mut self, secs: i64) {
        let before = self.sb.tuning.mtime;
        let now = self.sb.order.get_u64(&self.bytes, at!(fs_mtime)).map(u64::cast_signed);
        if self.sb.is_journaled() && now == Some(before) {
            let other = secs.max(before.wrapping_add(1));
            self.set64(at!(fs_mtime), other.cast_unsigned());
        }
    }

    /// Lists these snapshots, oldest first.
    pub(crate) fn list_snapshots(&mut self, snapshots: &[Ino]) {
        debug_assert!(snapshots.len() <= MOST_SNAPSHOTS, "{} snapshots", snapshots.len());
        for n in 0..MOST_SNAPSHOTS {
            let ino = snapshots.get(n).map_or(0, |ino| ino.get());
            self.set32(at!(fs_snapinum) + n * 4, ino);
        }
    }

    fn set32(&mut self, at: usize, value: u32) {
        self.sb.order.put_u32(&mut self.bytes, at, value);
    }

    fn set64(&mut self, at: usize, value: u64) {
        self.sb.order.put_u64(&mut self.bytes, at, value);
    }

    fn set8(&mut self, at: usize, value: u8) {
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = value;
        }
    }

    fn is_ufs1(&self) -> bool {
        self.sb.format == Format::Ufs1
    }

    pub(crate) fn set_minfree(&mut self, percent: u32) {
        debug_assert!(percent < 100, "{percent}% are kept free");
        self.set32(at!(fs_minfree), percent);
    }

    pub(crate) fn set_maxbpg(&mut self, blocks: u32) {
        debug_assert!(blocks > 0, "a file takes blocks of a group");
        self.set32(at!(fs_maxbpg), blocks);
    }

    pub(crate) fn set_avgfilesize(&mut self, bytes: u32) {
        self.set32(at!(fs_avgfilesize), bytes);
    }

    pub(crate) fn set_avgfpdir(&mut self, files: u32) {
        self.set32(at!(fs_avgfpdir), files);
    }

    pub(crate) fn set_metaspace(&mut self, frags: u64) {
        debug_assert!(frags <= u64::from(self.sb.fpg / 2), "half a group at most");
        debug_assert!(frags.is_multiple_of(self.sb.frag.into()), "whole blocks");
        self.set64(at!(fs_metaspace), frags);
    }

    /// 0 for time, 1 for space.
    pub(crate) fn set_optim(&mut self, optim: u32) {
        debug_assert!(optim <= 1, "{optim} is neither time nor space");
        self.set32(at!(fs_optim), optim);
    }

    /// `fs_volname`, zeros to its end.
    pub(crate) fn set_label(&mut self, label: &[u8]) {
        debug_assert!(label.len() < 32, "a zero ends the label");
        let at = at!(fs_volname);
        if let Some(field) = self.bytes.get_mut(at..at + 32) {
            field.fill(0);
            field.iter_mut().zip(label).for_each(|(to, &from)| *to = from);
        }
    }

    /// Sets the flags, in their old byte too.
    pub(crate) fn set_flags(&mut self, flags: u32) {
        self.set32(at!(fs_flags), flags);
        let old = u8::try_from((flags | flag::UPDATED) & 0xFF).unwrap_or(0);
        self.set8(at!(fs_old_flags), old);
    }

    /// Sets the size of a volume that has grown, and the fields that follow from it, to those of `sb`.
    pub(crate) fn set_size(&mut self) {
        let (size, ncg, dsize) = (self.sb.size, self.sb.ncg, self.sb.tuning.dsize);
        self.set32(at!(fs_ncg), ncg);
        self.set64(at!(fs_size), size);
        self.set64(at!(fs_dsize), dsize);
        let order = self.sb.order;
        if order.get_u64(&self.bytes, at!(fs_providersize)).is_some_and(|size| size != 0) {
            self.set64(at!(fs_providersize), size);
        }
        if self.is_ufs1() {
            let old = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
            self.set32(at!(fs_old_size), old(size));
            self.set32(at!(fs_old_dsize), old(dsize));
            let cylinders = self.cylinders();
            self.set32(at!(fs_old_ncyl), cylinders);
        }
    }

    /// The cylinders of a UFS1 volume of the size that `sb` has (`fs_old_ncyl`). Volumes of newfs
    /// since 2002 have one in each group.
    fn cylinders(&self) -> u32 {
        let word = |at| u64::from(self.sb.order.get_u32(&self.bytes, at).unwrap_or(0));
        let sectors = u128::from(self.sb.size) * u128::from(word(at!(fs_old_nspf)));
        match word(at!(fs_old_spc)) {
            each @ 1.. if self.sb.old_cpg != 1 => {
                u32::try_from(sectors.div_ceil(u128::from(each))).unwrap_or(u32::MAX)
            }
            _ => self.sb.ncg,
        }
    }

    /// Sets the fragments of the device (`fs_providersize`), as `growfs` does.
    pub(crate) fn set_device(&mut self, frags: u64) {
        debug_assert!(frags >= self.sb.size, "the volume lies on the device");
        self.set64(at!(fs_providersize), frags);
    }

    /// Sets place and length of the summary area to those of `sb`.
    pub(crate) fn set_summaries(&mut self) {
        let start = self.sb.summaries.start.get();
        self.set64(at!(fs_csaddr), start);
        self.set32(at!(fs_cssize), self.sb.tuning.cssize);
        if self.is_ufs1() {
            self.set32(at!(fs_old_csaddr), low32(start));
        }
    }

    /// Clears the traces of the last mount: where it was, whether it was read-only, and the group
    /// in which a search for space would go on.
    pub(crate) fn forget_mount(&mut self) {
        if let Some(path) = self.bytes.get_mut(at!(fs_fsmnt)..at!(fs_volname)) {
            path.fill(0);
        }
        self.set8(at!(fs_ronly), 0);
        self.set32(at!(fs_cgrotor), 0);
        self.set32(at!(fs_state), 0);
    }

    /// The kinds of check hashes, with the flag for them, as in `sb`.
    pub(crate) fn set_hashed(&mut self) {
        self.set32(at!(fs_metackhash), self.sb.hashed());
        self.set32(at!(fs_ckhash), 0);
        self.set_flags(self.sb.flags);
    }

    /// Where it lies, if the volume's superblock says that (`fs_sblockactualloc`).
    fn set_actual_place(&mut self, at: u64) {
        let said = self.sb.order.get_u64(&self.bytes, at!(fs_sblockactualloc));
        if said.is_some_and(|place| place != 0) {
            self.set64(at!(fs_sblockactualloc), at);
        }
    }

    /// The totals of all groups; in UFS1 the old fields have them too. The rest of `fs_cstotal`
    /// becomes zeros.
    pub(crate) fn set_totals(&mut self, totals: Totals) {
        let counts = [totals.ndir, totals.nbfree, totals.nifree, totals.nffree];
        let rest = [0; 4];
        for (at, count) in (at!(fs_cstotal)..).step_by(8).zip(counts.into_iter().chain(rest)) {
            self.set64(at, count);
        }
        if self.is_ufs1() {
            for (at, count) in (at!(fs_old_cstotal)..).step_by(4).zip(counts) {
                self.set32(at, u32::try_from(count).unwrap_or(u32::MAX));
            }
        }
    }

    /// Sets the time of writing, in seconds of the epoch.
    pub(crate) fn set_time(&mut self, secs: i64) {
        self.set64(at!(fs_time), secs.cast_unsigned());
        if self.is_ufs1() {
            let old = u32::try_from(secs.cast_unsigned() & 0xFFFF_FFFF).unwrap_or(0);
            self.set32(at!(fs_old_time), old);
        }
    }

    /// `fs_clean`: whether all changes have been written.
    pub(crate) fn set_clean(&mut self, clean: bool) {
        self.set8(at!(fs_clean), u8::from(clean));
        self.set8(at!(fs_fmod), 0);
    }

    /// The bytes of the copy at byte `at`, with their check hash. Boot programs take the copy of
    /// UFS1's first group for the superblock if it lies in the place of UFS2's.
    pub(crate) fn sealed_copy(&mut self, at: u64) -> &[u8] {
        let is_first = self.is_ufs1() && at == SUPERBLOCK_UFS2;
        self.set_actual_place(if is_first { self.sb.at } else { at });
        self.sealed()
    }

    /// The bytes to be written, `fs_sbsize` of them, with their check hash if the volume has one.
    pub(crate) fn sealed(&mut self) -> &[u8] {
        debug_assert_eq!(self.bytes.len(), index(self.sb.tuning.sbsize), "all of it is covered");
        if self.sb.has_check_hash(check_hash::SUPERBLOCK) {
            self.set32(at!(fs_ckhash), 0);
            let hash = crc32c(&self.bytes);
            self.set32(at!(fs_ckhash), hash);
        }
        &self.bytes
    }

    /// The places of the superblock, in bytes, and of its copies, one a group.
    pub(crate) fn places(sb: &Super) -> impl Iterator<Item = ByteLen> + '_ {
        let copy = |group| sb.in_group(group, sb.sblkno).get() * u64::from(sb.fsize);
        let copies = (0..sb.ncg).map(GroupNo::new).map(copy);
        std::iter::once(sb.at).chain(copies.filter(|&at| at != sb.at)).map(ByteLen::new)
    }

    /// Writes it to its own place; to its copies first, if requested.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn write(&mut self, device: &dyn BlockDevice, copies: bool) -> Result<(), FsError> {
        let sb = self.sb;
        let bytes = self.sealed();
        let mut places: Vec<ByteLen> = Self::places(sb).collect();
        places.truncate(if copies { places.len() } else { 1 });
        for at in places.into_iter().rev() {
            device.write(Lba::containing(at), bytes)?;
        }
        Ok(())
    }
}

/// Sets the number of groups in `struct fsrecovery` at the end of the sector in front of a UFS2
/// superblock, if it is there. `fsck_ffs` finds the copies of a lost superblock by it.
pub(crate) fn set_recovery_groups(sb: &Super, sector: &mut [u8]) {
    let magic = sector.len().checked_sub(RECOVERY);
    let is_there = |at: usize| sb.order.get_u32(sector, at) == Some(MAGIC_UFS2);
    if sb.format == Format::Ufs2 && magic.is_some_and(is_there) {
        sb.order.put_u32(sector, sector.len() - 4, sb.ncg);
    }
}
