//! The superblock: checked once, then the source of every bound.

use crate::checksum::crc32c;
use crate::encode::sums::seal_superblock;
use crate::features;
use crate::ondisk::{
    CHECKSUM_CRC32C, FLAG_UNSIGNED_HASH, INODE_CORE_SIZE, STATE_ERRORS, STATE_VALID,
    SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, compat, hash_version,
    incompat, ro_compat,
};
use seekless_device::BlockDevice;
use seekless_fs::field::{invalid, parse, range, truncated};
use seekless_fs::patches::Patches;
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba};
use zerocopy::IntoBytes;

/// The largest `s_log_block_size`: 64 KiB.
const MAX_LOG_BLOCK_SIZE: u32 = 6;
/// The largest `s_log_cluster_size`: 1 GiB.
const MAX_LOG_CLUSTER_SIZE: u32 = 20;
/// Bytes of a group descriptor without the 64bit feature.
const OLD_DESC_SIZE: u16 = 32;
/// Bytes of a group descriptor with the 64bit feature, at least.
const MIN_DESC_SIZE_64BIT: u16 = 64;
/// The largest descriptor that the kernel accepts.
pub(crate) const MAX_DESC_SIZE: u16 = 1024;
/// The most inodes: groups have multiples of eight (mke2fs), so that the numbers behind the last
/// inode fit in 32 bits too.
const MOST_INODES: u64 = (1 << 32) - 8;

/// A superblock whose geometry is consistent and fits on its device.
#[derive(Clone)]
pub(crate) struct Super {
    /// As it is on disk.
    pub(crate) raw: Superblock,
    /// Bytes in a block.
    pub(crate) block_size: u32,
    /// Blocks in a cluster; 1 without bigalloc.
    pub(crate) cluster_ratio: u32,
    /// Blocks in the volume.
    pub(crate) blocks: u64,
    /// The first block of group 0.
    pub(crate) first_block: BlockNo,
    /// Blocks in a group.
    pub(crate) blocks_per_group: u32,
    /// Inodes in a group.
    pub(crate) inodes_per_group: u32,
    /// Groups in the volume.
    pub(crate) groups: u32,
    /// Bytes in an inode.
    pub(crate) inode_size: u16,
    /// Bytes in a group descriptor.
    pub(crate) desc_size: u16,
    /// The seed of every metadata checksum.
    pub(crate) checksum_seed: u32,
}

fn here() -> Location {
    Location::of("superblock")
}

/// Reads the primary superblock on the disk, unchecked.
///
/// # Errors
/// Errors of the device.
pub(crate) fn read_primary(disk: &Patches) -> Result<Superblock, FsError> {
    let bytes = disk.read(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    parse(&bytes, 0).ok_or_else(|| truncated(here()))
}

/// Writes the primary superblock with its checksum, and waits until it is on the disk.
///
/// # Errors
/// Errors of the device.
pub(crate) fn write_primary(disk: &mut Patches, mut raw: Superblock) -> Result<(), FsError> {
    seal_superblock(&mut raw, 0);
    disk.put(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    disk.flush()
}

/// Clears the kernel's record of errors.
pub(crate) fn clear_errors(raw: &mut Superblock) {
    let from = std::mem::offset_of!(Superblock, s_error_count);
    let to = std::mem::offset_of!(Superblock, s_mount_opts);
    if let Some(told) = raw.as_mut_bytes().get_mut(from..to) {
        told.fill(0);
    }
    raw.s_first_error_time_hi = 0;
    raw.s_last_error_time_hi = 0;
    raw.s_first_error_errcode = 0;
    raw.s_last_error_errcode = 0;
}

/// The place of the primary superblock.
pub(crate) const PRIMARY: ByteLen = ByteLen::new(SUPERBLOCK_OFFSET);

/// Reads a superblock's bytes, from byte `at` on, unchecked.
///
/// # Errors
/// [`FsError::Corrupt`] where the device ends before; errors of the device.
pub(crate) fn read_raw(device: &dyn BlockDevice, at: ByteLen) -> Result<Superblock, FsError> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len().get() < at.get() + 1024 {
        return Err(truncated(here()));
    }
    device.read(Lba::containing(at), &mut bytes)?;
    parse(&bytes, 0).ok_or_else(|| truncated(here()))
}

/// Whether the device has an ext superblock's magic number.
pub(crate) fn has_magic(device: &dyn BlockDevice) -> bool {
    read_raw(device, PRIMARY).is_ok_and(|raw| raw.s_magic.get() == SUPERBLOCK_MAGIC)
}

/// Whether a device has a superblock that is sound except for its magic number.
pub(crate) fn lacks_only_magic(device: &dyn BlockDevice) -> bool {
    let Ok(mut raw) = read_raw(device, PRIMARY) else { return false };
    raw.s_magic = SUPERBLOCK_MAGIC.into();
    Super::check(raw, device.len()).is_ok()
}

impl Super {
    /// Blocks reserved for the superuser, at most all.
    pub(crate) fn kept_blocks(&self) -> u64 {
        let wide = self.has_incompat(incompat::BIT64);
        let high = if wide { u64::from(self.raw.s_r_blocks_count_hi.get()) } else { 0 };
        (high << 32 | u64::from(self.raw.s_r_blocks_count_lo.get())).min(self.blocks)
    }

    /// Blocks that `statfs(2)` leaves out of the available ones: the reserve of the volume, and,
    /// where files may have extents, the blocks that the kernel keeps for their trees
    /// (`ext4_set_resv_clusters` of `fs/ext4/super.c`: a fiftieth, at most 4,096 clusters).
    pub(crate) fn unavailable_blocks(&self) -> u64 {
        let ratio = u64::from(self.cluster_ratio);
        let for_trees = match self.has_incompat(incompat::EXTENTS) {
            true => (self.blocks / ratio / 50).min(4096) * ratio,
            false => 0,
        };
        self.kept_blocks() + for_trees
    }

    /// Reads and checks the primary superblock.
    pub(crate) fn read(device: &dyn BlockDevice, ignore_checksums: bool) -> Result<Self, FsError> {
        Self::read_at(device, PRIMARY, ignore_checksums)
    }

    /// Reads and checks a copy of the superblock, its checksum included.
    pub(crate) fn read_copy(device: &dyn BlockDevice, at: ByteLen) -> Result<Self, FsError> {
        Self::read_at(device, at, false)
    }

    /// Blocks of a group by the primary superblock, even if it is damaged.
    pub(crate) fn said_group_blocks(device: &dyn BlockDevice) -> Option<u64> {
        let raw = read_raw(device, PRIMARY).ok()?;
        Some(u64::from(raw.s_blocks_per_group.get())).filter(|&blocks| blocks > 0)
    }

    fn read_at(
        device: &dyn BlockDevice,
        at: ByteLen,
        ignore_checksums: bool,
    ) -> Result<Self, FsError> {
        let raw = read_raw(device, at)?;
        if raw.s_magic.get() != SUPERBLOCK_MAGIC {
            return Err(FsError::corrupt(
                Corruption::Magic { found: u64::from(raw.s_magic.get()) },
                here(),
            ));
        }
        let sb = Self::check(raw, device.len())?;
        if !ignore_checksums {
            sb.verify_checksum()?;
        }
        Ok(sb)
    }

    /// Checks the geometry and features of a superblock for a device of
    /// `device_len` bytes.
    pub(crate) fn check(raw: Superblock, device_len: ByteLen) -> Result<Self, FsError> {
        let sb = Self::shape(raw)?;
        sb.check_totals(device_len)?;
        Ok(sb)
    }

    /// The primary superblock of a device with the number of inodes that its groups have, if nothing
    /// else of it is wrong (e2fsck, `PR_0_INODE_COUNT_WRONG`).
    pub(crate) fn with_inodes_of_groups(device: &dyn BlockDevice) -> Option<Self> {
        let raw = read_raw(device, PRIMARY).ok()?;
        let mut sb = Self::shape(raw).ok().filter(|sb| sb.raw.s_magic.get() == SUPERBLOCK_MAGIC)?;
        let inodes = sb.groups.checked_mul(sb.inodes_per_group)?;
        sb.raw.s_inodes_count = inodes.into();
        sb.check_totals(device.len()).ok()?;
        Some(sb)
    }

    /// The geometry of a superblock whose features are known.
    fn shape(raw: Superblock) -> Result<Self, FsError> {
        features::check(&raw)?;
        let log_block = raw.s_log_block_size.get();
        if log_block > MAX_LOG_BLOCK_SIZE {
            let limit = u64::from(MAX_LOG_BLOCK_SIZE);
            return Err(range("s_log_block_size", u64::from(log_block), limit, here()));
        }
        let block_size = 1024u32 << log_block;
        let bit64 = raw.s_feature_incompat.get() & incompat::BIT64 != 0;
        let high = if bit64 { raw.s_blocks_count_hi.get() } else { 0 };
        let blocks = (u64::from(high) << 32) | u64::from(raw.s_blocks_count_lo.get());
        let mut sb = Self {
            block_size,
            cluster_ratio: cluster_ratio(&raw)?,
            blocks,
            first_block: BlockNo::new(u64::from(raw.s_first_data_block.get())),
            blocks_per_group: raw.s_blocks_per_group.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            groups: 0,
            inode_size: inode_size(&raw, block_size)?,
            desc_size: desc_size(&raw)?,
            checksum_seed: checksum_seed(&raw),
            raw,
        };
        sb.check_group_shape()?;
        sb.groups = sb.count_groups()?;
        Ok(sb)
    }

    /// Checks the shape of groups: a group's bitmaps take one block each; its inodes at least one.
    fn check_group_shape(&self) -> Result<(), FsError> {
        let bits = u64::from(self.block_size) * 8;
        let clusters = u64::from(self.raw.s_clusters_per_group.get());
        let blocks = u64::from(self.blocks_per_group);
        let inodes = u64::from(self.inodes_per_group);
        if blocks == 0 || blocks > bits * u64::from(self.cluster_ratio) {
            return Err(range("s_blocks_per_group", blocks, bits, here()));
        }
        if self.has_ro_compat(ro_compat::BIGALLOC)
            && (clusters.checked_mul(u64::from(self.cluster_ratio)) != Some(blocks)
                || clusters > bits)
        {
            return Err(invalid("s_clusters_per_group", clusters, here()));
        }
        if inodes == 0 || inodes > bits {
            return Err(range("s_inodes_per_group", inodes, bits, here()));
        }
        // The superblock is at byte 1024, and groups of clusters begin at block 0 (`ext4_fill_super`
        // of the kernel, `check_super_block` of e2fsck).
        let is_second = self.block_size == 1024 && self.cluster_ratio == 1;
        if self.first_block.get() != u64::from(is_second) {
            return Err(invalid("s_first_data_block", self.first_block.get(), here()));
        }
        Ok(())
    }

    fn count_groups(&self) -> Result<u32, FsError> {
        let data = self.blocks.checked_sub(self.first_block.get()).filter(|data| *data > 0);
        let data = data.ok_or_else(|| invalid("s_blocks_count", self.blocks, here()))?;
        let groups = data.div_ceil(u64::from(self.blocks_per_group));
        u32::try_from(groups)
            .map_err(|_| range("s_blocks_count", self.blocks, u64::from(u32::MAX), here()))
    }

    /// Checks that the volume fits on the device and has the inodes of all its groups.
    fn check_totals(&self, device_len: ByteLen) -> Result<(), FsError> {
        let on_device = device_len.get() / u64::from(self.block_size);
        if self.blocks > on_device {
            return Err(range("s_blocks_count", self.blocks, on_device, here()));
        }
        let inodes = u64::from(self.raw.s_inodes_count.get());
        let expected = u64::from(self.groups) * u64::from(self.inodes_per_group);
        if inodes != expected {
            return Err(range("s_inodes_count", inodes, expected, here()));
        }
        if inodes > MOST_INODES {
            return Err(range("s_inodes_count", inodes, MOST_INODES, here()));
        }
        Ok(())
    }

    fn verify_checksum(&self) -> Result<(), FsError> {
        if !self.has_metadata_csum() {
            return Ok(());
        }
        let kind = self.raw.s_checksum_type;
        if kind != CHECKSUM_CRC32C {
            return Err(FsError::Unsupported(format!("metadata checksum type {kind}")));
        }
        let covered = self.raw.as_bytes().get(..1020).unwrap_or_default();
        verify(self.raw.s_checksum.get(), crc32c(!0, covered), here())
    }

    /// Whether the volume was unmounted, and records no errors.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.raw.s_state.get();
        state & STATE_VALID != 0 && state & STATE_ERRORS == 0
    }

    /// Whether `s_feature_compat` has the bit.
    pub(crate) fn has_compat(&self, bit: u32) -> bool {
        self.raw.s_feature_compat.get() & bit != 0
    }

    /// Whether `s_feature_incompat` has the bit.
    pub(crate) fn has_incompat(&self, bit: u32) -> bool {
        self.raw.s_feature_incompat.get() & bit != 0
    }

    /// Whether `s_feature_ro_compat` has the bit.
    pub(crate) fn has_ro_compat(&self, bit: u32) -> bool {
        self.raw.s_feature_ro_compat.get() & bit != 0
    }

    /// Whether descriptors have a checksum, without which their flags and counts of unused inodes
    /// are ignored.
    pub(crate) fn has_group_checksums(&self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM | ro_compat::GDT_CSUM)
    }

    /// Whether metadata carries CRC32C checksums.
    pub(crate) fn has_metadata_csum(&self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// The block that holds the primary superblock.
    pub(crate) fn superblock_block(&self) -> BlockNo {
        BlockNo::new(if self.block_size == 1024 { 1 } else { 0 })
    }

    /// Group descriptors in a block.
    pub(crate) fn descs_per_block(&self) -> u32 {
        self.block_size / u32::from(self.desc_size)
    }

    /// Blocks of an inode table.
    pub(crate) fn itable_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size))
            .div_ceil(u64::from(self.block_size))
    }

    /// Clusters in a group; blocks without bigalloc.
    pub(crate) fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group / self.cluster_ratio
    }

    /// Clusters in the volume; blocks without bigalloc.
    pub(crate) fn clusters(&self) -> u64 {
        self.blocks.div_ceil(u64::from(self.cluster_ratio).max(1))
    }

    /// The clusters that a run of blocks touches.
    pub(crate) fn clusters_of(&self, run: Extent) -> std::ops::Range<u64> {
        let ratio = u64::from(self.cluster_ratio).max(1);
        run.start.get() / ratio..run.end().get().div_ceil(ratio)
    }

    /// The blocks of a group; the last may have fewer.
    pub(crate) fn group_blocks(&self, group: GroupNo) -> Extent {
        let skip = u64::from(group.get()) * u64::from(self.blocks_per_group);
        let start = self.first_block + skip;
        let left = self.blocks.saturating_sub(start.get());
        Extent::new(start, left.min(u64::from(self.blocks_per_group)))
    }

    /// Whether a group begins with a copy of the superblock.
    pub(crate) fn group_has_super(&self, group: GroupNo) -> bool {
        let number = group.get();
        if number == 0 {
            return true;
        }
        if self.has_compat(compat::SPARSE_SUPER2) {
            return self.raw.s_backup_bgs.iter().any(|backup| backup.get() == number);
        }
        if !self.has_ro_compat(ro_compat::SPARSE_SUPER) || number == 1 {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(number, base))
    }

    /// The block that holds the `nr`-th block of group descriptors.
    pub(crate) fn descriptor_block(&self, nr: u32) -> BlockNo {
        debug_assert!(nr < self.descriptor_blocks(), "block {nr} of the descriptors");
        let first_meta = self.raw.s_first_meta_bg.get();
        if !self.has_incompat(incompat::META_BG) || nr < first_meta {
            return self.superblock_block() + 1 + u64::from(nr);
        }
        let group = GroupNo::new(nr * self.descs_per_block());
        let mut skip = u64::from(self.group_has_super(group));
        if nr == 0 && self.block_size == 1024 && self.first_block == BlockNo::ZERO {
            skip += 1;
        }
        self.group_blocks(group).start + skip
    }

    /// The number of descriptor blocks in every copy of the table.
    pub(crate) fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block().max(1))
    }

    /// The offset of a hash version for this volume's signedness.
    pub(crate) fn hash_unsigned_offset(&self) -> u8 {
        if self.raw.s_flags.get() & FLAG_UNSIGNED_HASH != 0 { 3 } else { 0 }
    }

    /// The version of the hashes of names in new indexes, with this volume's signedness; `None`
    /// if `s_def_hash_version` is unknown.
    pub(crate) fn default_hash_version(&self) -> Option<u8> {
        let version = self.raw.s_def_hash_version;
        (version <= hash_version::TEA).then(|| version + self.hash_unsigned_offset())
    }

    /// `s_hash_seed` as numbers.
    pub(crate) fn hash_seed(&self) -> [u32; 4] {
        self.raw.s_hash_seed.map(zerocopy::byteorder::little_endian::U32::get)
    }

    /// The group of an inode, and its place in the table.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<(GroupNo, u32), FsError> {
        let count = self.raw.s_inodes_count.get();
        let Some(at) = ino.get().checked_sub(1).filter(|at| *at < count) else {
            let place = Location::of("inode number").in_inode(ino);
            return Err(range("inode", u64::from(ino.get()), u64::from(count), place));
        };
        let per_group = self.inodes_per_group;
        let group = at / per_group;
        debug_assert!(group < self.groups, "all inodes are in groups");
        Ok((GroupNo::new(group), at % per_group))
    }

    /// Whether the superblock marks the orphan file as nonempty.
    pub(crate) fn has_filed_orphans(&self) -> bool {
        self.has_ro_compat(ro_compat::ORPHAN_PRESENT)
    }
}

/// Compares a stored checksum with the computed one.
pub(crate) fn verify(stored: u32, computed: u32, location: Location) -> Result<(), FsError> {
    if stored == computed {
        return Ok(());
    }
    Err(FsError::corrupt(Corruption::Checksum { stored, computed }, location))
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

fn cluster_ratio(raw: &Superblock) -> Result<u32, FsError> {
    let (log, least) = (raw.s_log_cluster_size.get(), raw.s_log_block_size.get());
    if raw.s_feature_ro_compat.get() & ro_compat::BIGALLOC == 0 {
        // The kernel and e2fsck reject any other.
        if log != least {
            return Err(invalid("s_log_cluster_size", u64::from(log), here()));
        }
        return Ok(1);
    }
    if log > MAX_LOG_CLUSTER_SIZE || log < least {
        let limit = u64::from(MAX_LOG_CLUSTER_SIZE);
        return Err(range("s_log_cluster_size", u64::from(log), limit, here()));
    }
    Ok(1u32 << (log - least))
}

fn inode_size(raw: &Superblock, block_size: u32) -> Result<u16, FsError> {
    if raw.s_rev_level.get() == 0 {
        return Ok(128);
    }
    let size = raw.s_inode_size.get();
    if usize::from(size) < INODE_CORE_SIZE
        || u32::from(size) > block_size
        || !size.is_power_of_two()
    {
        return Err(invalid("s_inode_size", u64::from(size), here()));
    }
    Ok(size)
}

fn desc_size(raw: &Superblock) -> Result<u16, FsError> {
    if raw.s_feature_incompat.get() & incompat::BIT64 == 0 {
        return Ok(OLD_DESC_SIZE);
    }
    let size = raw.s_desc_size.get();
    if !(MIN_DESC_SIZE_64BIT..=MAX_DESC_SIZE).contains(&size) || !size.is_power_of_two() {
        return Err(invalid("s_desc_size", u64::from(size), here()));
    }
    Ok(size)
}

fn checksum_seed(raw: &Superblock) -> u32 {
    if raw.s_feature_incompat.get() & incompat::CSUM_SEED != 0 {
        raw.s_checksum_seed.get()
    } else {
        crc32c(!0, &raw.s_uuid)
    }
}
