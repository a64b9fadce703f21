//! An older volume as the base of a new one: its shape, its marks, the places of its own files, and
//! the copies of its superblock.

use super::fixed::FixedFile;
use super::options::{Options, superblock_copies};
use super::shape::{GroupTables, Shape};
use super::summary::Identity;
use crate::image::ExtImage;
use crate::ondisk::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, Superblock, compat, hash_version, incompat,
    ro_compat, special,
};
use crate::superblock::Super;
use seekless_fs::plan::Placed;
use seekless_fs::{FsError, Inspect};
use seekless_units::{BlockNo, ByteLen, GroupNo, Ino};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// The slot of an inode's map for its double-indirect block.
const DOUBLE_INDIRECT: usize = 13;

/// An older volume, whose shape a new one takes over.
///
/// The new volume has its groups, tables, identifiers and own files in the same places, so that
/// whatever else is equal lies in equal blocks.
pub struct BaseVolume {
    image: Arc<ExtImage>,
    pub(crate) shape: Shape,
    pub(crate) journal: FixedFile,
    pub(crate) orphans: FixedFile,
    /// The inode of the orphan file, if there is one.
    pub(crate) orphan_ino: Option<Ino>,
    /// The double-indirect block of the resize inode.
    pub(crate) resize: Option<BlockNo>,
}

impl BaseVolume {
    /// Reads the shape of a volume.
    ///
    /// # Errors
    /// [`FsError::Damaged`] for a volume with an error, [`FsError::Corrupt`].
    pub fn new(image: Arc<ExtImage>) -> Result<Self, FsError> {
        image.refuse_damage()?;
        let volume = image.volume();
        let sb = &volume.sb;
        let tables = (0..sb.groups).map(|number| {
            let group = volume.descriptors().read_checked(GroupNo::new(number))?;
            Ok(GroupTables {
                block_bitmap: group.block_bitmap(),
                inode_bitmap: group.inode_bitmap(),
                inodes: group.inode_table(),
            })
        });
        let shape = Shape {
            blocks: sb.blocks,
            blocks_per_group: u64::from(sb.blocks_per_group),
            inodes_per_group: sb.inodes_per_group,
            desc_size: u32::from(sb.desc_size),
            descriptor_room: u64::from(sb.descriptor_blocks())
                + u64::from(sb.raw.s_reserved_gdt_blocks.get()),
            log_groups_per_flex: sb.raw.s_log_groups_per_flex,
            whole_groups: false,
            orphan_blocks: None,
            tables: tables.collect::<Result<_, FsError>>()?,
        };
        let own = |ino: u32| {
            if ino == 0 { Ok(FixedFile::default()) } else { fixed_file(&image, Ino::new(ino)) }
        };
        let orphan_ino = sb.raw.s_orphan_file_inum.get();
        let has_orphans = sb.has_compat(compat::ORPHAN_FILE) && orphan_ino != 0;
        let resize = match sb.has_compat(compat::RESIZE_INODE) {
            true => double_indirect(&image.raw_inode(Ino::new(special::RESIZE))?),
            false => None,
        };
        let orphans = own(if has_orphans { orphan_ino } else { 0 })?;
        let shape = Shape { orphan_blocks: has_orphans.then(|| orphans.data_blocks()), ..shape };
        Ok(Self {
            journal: own(sb.raw.s_journal_inum.get())?,
            orphans,
            orphan_ino: has_orphans.then(|| Ino::new(orphan_ino)),
            resize,
            shape,
            image,
        })
    }

    /// The volume's files.
    #[must_use]
    pub fn image(&self) -> &Arc<ExtImage> {
        &self.image
    }

    /// Options of a volume with the same shape and marks; as large, or larger if need be.
    #[must_use]
    pub fn options(&self) -> Options {
        let sb = &self.image.volume().sb;
        Options {
            size: None,
            inodes: None,
            hash_seed: self.hashes_alike().then(|| {
                let mut seed = [0; 16];
                seed.copy_from_slice(sb.raw.s_hash_seed.as_bytes());
                seed
            }),
            raid_stride: sb.raw.s_raid_stride.get(),
            raid_stripe_width: sb.raw.s_raid_stripe_width.get(),
            ..Options::like(&self.image)
        }
    }

    /// Refuses a size below this volume's.
    pub(crate) fn refuse_smaller(&self, options: &Options) -> Result<(), FsError> {
        let sb = &self.image.volume().sb;
        let own = sb.blocks * u64::from(sb.block_size);
        match options.size {
            Some(size) if size.get() < own => Err(FsError::Invalid(format!(
                "the new volume would be smaller than the older one: {size} bytes, not {own}"
            ))),
            _ => Ok(()),
        }
    }

    /// Bytes in a block.
    pub(crate) fn block_size(&self) -> u32 {
        self.image.volume().sb.block_size
    }

    /// Whether all groups have their tables in themselves.
    fn is_in_groups(&self) -> bool {
        let sb = &self.image.volume().sb;
        (0..).zip(&self.shape.tables).all(|(group, tables)| {
            let blocks = sb.group_blocks(GroupNo::new(group));
            let is_here =
                |start: BlockNo, len: u64| start >= blocks.start && start + len <= blocks.end();
            is_here(tables.block_bitmap, 1)
                && is_here(tables.inode_bitmap, 1)
                && is_here(tables.inodes, sb.itable_blocks())
        })
    }

    /// Checks that a volume with these options can have this shape.
    pub(crate) fn suits(&self, options: &Options) -> Result<(), FsError> {
        let sb = &self.image.volume().sb;
        let bit64 = options.features.has_incompat(incompat::BIT64);
        let sparse = options.features.has_ro_compat(ro_compat::SPARSE_SUPER);
        let sparse2 = options.features.has_compat(compat::SPARSE_SUPER2);
        let room = options.features.has_compat(compat::RESIZE_INODE);
        let orphans = options.features.has_compat(compat::ORPHAN_FILE);
        let sizes = |block, inode| format!("blocks of {block} bytes and inodes of {inode}");
        let flexible = options.features.has_incompat(incompat::FLEX_BG);
        let rules = [
            (!sb.has_incompat(incompat::META_BG), "descriptors in its groups (meta_bg)".into()),
            (!sb.has_ro_compat(ro_compat::BIGALLOC), "clusters (bigalloc)".into()),
            (flexible || self.is_in_groups(), "tables outside of their groups (flex_bg)".into()),
            (
                sb.inodes_per_group >= special::FIRST_ORDINARY,
                format!("{} inodes in a group", sb.inodes_per_group),
            ),
            (
                options.block_size == sb.block_size
                    && options.inode_size == u32::from(sb.inode_size),
                sizes(sb.block_size, u32::from(sb.inode_size)),
            ),
            (self.shape.desc_size == if bit64 { 64 } else { 32 }, "other descriptors".into()),
            (
                sparse == sb.has_ro_compat(ro_compat::SPARSE_SUPER)
                    && sparse2 == sb.has_compat(compat::SPARSE_SUPER2)
                    && (!sparse2 || options.superblock_copies == superblock_copies(sb)),
                "copies of its superblock in other groups".into(),
            ),
            (
                room == sb.has_compat(compat::RESIZE_INODE),
                "other room for descriptors (resize_inode)".into(),
            ),
            (
                options.inodes.is_none() && options.inode_ratio.is_none(),
                format!("{} inodes in a group", sb.inodes_per_group),
            ),
            (
                !orphans
                    || self.orphan_ino.is_none_or(|ino| ino.get() == special::FIRST_ORDINARY + 1),
                "its orphan file in another inode".into(),
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, has)) => Err(FsError::Unsupported(format!("the older volume has {has}"))),
            None => Ok(()),
        }
    }

    /// Whether names are hashed as in new volumes.
    fn hashes_alike(&self) -> bool {
        self.image.volume().sb.default_hash_version() == Some(hash_version::HALF_MD4)
    }

    /// The checksum seed, if it does not follow from the UUID.
    pub(crate) fn checksum_seed(&self) -> Option<u32> {
        let sb = &self.image.volume().sb;
        sb.has_incompat(incompat::CSUM_SEED).then_some(sb.checksum_seed)
    }

    /// The copy of the superblock and of the descriptors in a group, as the new volume has it: the
    /// counts are those of the older volume, as in a volume that was in use, whose copies the kernel
    /// does not write. `e2fsck` counts again (e2fsprogs `lib/ext2fs/openfs.c`, `e2fsck/super.c`). The
    /// descriptor of a group that came into use is the current one: a kernel that mounts the volume
    /// by its copy would allocate there.
    pub(crate) fn copy(
        &self,
        group: u32,
        identity: &Identity,
        sb: &mut Superblock,
        descriptors: &mut [u8],
    ) {
        let volume = self.image.volume();
        let old = &volume.sb;
        let number = GroupNo::new(group);
        let blocks =
            (u64::from(sb.s_blocks_count_hi.get()) << 32) | u64::from(sb.s_blocks_count_lo.get());
        if blocks != old.blocks || !old.group_has_super(number) {
            // The copy is another one in any case.
            return;
        }
        let start = old.group_blocks(number).start;
        let block_size = u64::from(old.block_size);
        let at = ByteLen::new(start.get() * block_size);
        let Ok(copy) = Super::read_copy(volume.device().as_ref(), at) else { return };
        sb.s_free_blocks_count_lo = copy.raw.s_free_blocks_count_lo;
        sb.s_free_blocks_count_hi = copy.raw.s_free_blocks_count_hi;
        sb.s_free_inodes_count = copy.raw.s_free_inodes_count;
        sb.s_wtime = copy.raw.s_wtime;
        sb.s_wtime_hi = copy.raw.s_wtime_hi;
        let sums = ro_compat::METADATA_CSUM | ro_compat::GDT_CSUM;
        let used = sb.s_feature_ro_compat.get() & sums;
        let is_sealed_alike = match used {
            0 => true,
            ro_compat::GDT_CSUM => old.raw.s_uuid == identity.uuid,
            _ => old.checksum_seed == identity.checksum_seed,
        };
        if !is_sealed_alike || old.raw.s_feature_ro_compat.get() & sums != used {
            return;
        }
        let size = usize::from(old.desc_size);
        let mut table = vec![0; old.groups as usize * size];
        if volume.read_bytes(start + 1, 0, &mut table).is_err() {
            return;
        }
        let groups = descriptors.chunks_mut(size).zip(table.chunks(size));
        for (number, (own, copy)) in (0..).zip(groups) {
            let is_sound = volume.descriptors().parse(GroupNo::new(number), copy).is_ok();
            if is_sound && pointers(own) == pointers(copy) && is_as_initialized(copy, own) {
                own.copy_from_slice(copy);
            }
        }
    }
}

/// A volume's own file with its blocks.
fn fixed_file(image: &ExtImage, ino: Ino) -> Result<FixedFile, FsError> {
    let map = image.block_map(ino)?;
    let data = map.runs.iter().map(|run| Placed { lbn: run.lbn, extent: run.extent });
    let index = map.index.iter().map(|block| block.block);
    Ok(FixedFile { data: data.collect(), map: index.collect() })
}

/// The double-indirect block in an inode, if it has one.
fn double_indirect(inode: &[u8]) -> Option<BlockNo> {
    let (core, _) = crate::ondisk::InodeCore::ref_from_prefix(inode).ok()?;
    let word = core.i_block.0.chunks(4).nth(DOUBLE_INDIRECT)?;
    let block = u32::from_le_bytes(word.try_into().ok()?);
    (block != 0).then(|| BlockNo::new(u64::from(block)))
}

/// Whether a descriptor marks no bitmap of its group as unused that another one does not. (That
/// fewer inodes of a table count as unused is only for `e2fsck`, which reads all of it then.)
fn is_as_initialized(descriptor: &[u8], other: &[u8]) -> bool {
    let at = offset_of!(GroupDesc, bg_flags);
    let flags = |bytes: &[u8]| {
        let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok());
        word.map_or(0, u16::from_le_bytes)
    };
    let marks = BG_BLOCK_UNINIT | BG_INODE_UNINIT;
    flags(descriptor) & marks & !flags(other) == 0
}

/// The pointers of a descriptor to bitmaps and table.
fn pointers(descriptor: &[u8]) -> Vec<u8> {
    let parts = [
        offset_of!(GroupDesc, bg_block_bitmap_lo)..offset_of!(GroupDesc, bg_free_blocks_count_lo),
        offset_of!(GroupDesc, bg_block_bitmap_hi)..offset_of!(GroupDesc, bg_free_blocks_count_hi),
    ];
    parts.into_iter().filter_map(|part| descriptor.get(part)).flatten().copied().collect()
}
