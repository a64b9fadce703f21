//! Copies of the superblock and of the group descriptors, and the other fixed parts of each group.

use crate::group::{DescriptorTable, Group};
use crate::ondisk::{compat, incompat};
use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::field::index;
use seekless_fs::{Fixed, FixedKind, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo};

/// Copies of the descriptors that are tried for a damaged one.
const MOST_COPIES: usize = 8;
/// Groups that may have a copy of the superblock with or without `sparse_super`.
const BACKUP_GROUPS: [u64; 5] = [1, 3, 5, 7, 9];

/// The first sound copy of the superblock of a device whose primary one is damaged. Copies are
/// looked for where `mke2fs` puts them: at the start of groups as long as a block's bitmap allows,
/// for every block size; and at that of groups of the length in the damaged superblock, if it has
/// one.
pub(crate) fn superblock(device: &dyn BlockDevice) -> Option<(Super, BlockNo)> {
    superblock_of(device, None)
}

/// As [`superblock`], of a volume with blocks of this size if one is given.
pub(crate) fn superblock_of(
    device: &dyn BlockDevice,
    block_size: Option<u32>,
) -> Option<(Super, BlockNo)> {
    let said = Super::said_group_blocks(device);
    for log in 0..=6u32 {
        let size = 1024u64 << log;
        if block_size.is_some_and(|only| u64::from(only) != size) {
            continue;
        }
        let first = u64::from(size == 1024);
        let usual = size * 8;
        let said = said.filter(|&said| said != usual);
        let places = [Some(usual), said].into_iter().flatten();
        for (group, in_group) in
            places.flat_map(|in_group| BACKUP_GROUPS.map(|group| (group, in_group)))
        {
            let block = group * in_group + first;
            let at = ByteLen::new(block * size);
            let found = Super::read_copy(device, at).ok().filter(|sb| {
                let number = u64::from(sb.raw.s_block_group_nr.get());
                // Copies of revision 0 have no number of a group.
                let is_untold = sb.raw.s_rev_level.get() == 0 && number == 0;
                u64::from(sb.block_size) == size && (number == group || is_untold)
            });
            if let Some(sb) = found {
                return Some((sb, BlockNo::new(block)));
            }
        }
    }
    None
}

impl DescriptorTable<'_> {
    /// The fixed metadata of a group.
    pub(crate) fn metadata(&self, group: &Group) -> Vec<Extent> {
        self.fixed(group).into_iter().map(|fixed| fixed.extent).collect()
    }

    /// The fixed metadata of a group, by their structures.
    pub(crate) fn fixed(&self, group: &Group) -> Vec<Fixed> {
        let superblock = |extent| Fixed { extent, kind: FixedKind::Superblock };
        let bitmap = |at| Fixed { extent: Extent::new(at, 1), kind: FixedKind::Bitmap };
        let mut fixed: Vec<Fixed> = self.copies(group.number).into_iter().map(superblock).collect();
        fixed.push(bitmap(group.block_bitmap()));
        fixed.push(bitmap(group.inode_bitmap()));
        let table = Extent::new(group.inode_table(), self.volume().sb.itable_blocks());
        fixed.push(Fixed { extent: table, kind: FixedKind::Inodes });
        fixed
    }

    /// Superblock copy, descriptor copies and the blocks reserved for more of them at the start of
    /// a group.
    pub(crate) fn copies(&self, number: GroupNo) -> Vec<Extent> {
        let sb = &self.volume().sb;
        let blocks = sb.group_blocks(number);
        let has_super = sb.group_has_super(number);
        let mut runs = Vec::new();
        let mut next = blocks.start;
        if number.get() == 0 {
            next = sb.superblock_block();
        }
        if has_super {
            runs.push(Extent::new(next, 1));
            next += 1;
        }
        let meta_bg = sb.has_incompat(incompat::META_BG);
        let per_meta = sb.descs_per_block().max(1);
        let first_meta = sb.raw.s_first_meta_bg.get();
        let meta = number.get() / per_meta;
        if !meta_bg || meta < first_meta {
            if has_super {
                let old = if meta_bg { first_meta } else { sb.descriptor_blocks() };
                let mut len = u64::from(old);
                if sb.has_compat(compat::RESIZE_INODE) {
                    len += u64::from(sb.raw.s_reserved_gdt_blocks.get());
                }
                runs.push(Extent::new(next, len.min(blocks.len)));
            }
        } else {
            let within = number.get() % per_meta;
            if within <= 1 || within == per_meta - 1 {
                runs.push(Extent::new(next, 1));
            }
        }
        runs
    }

    /// The copies of descriptor blocks in a group: the number of the block in the table, and its
    /// place.
    pub(crate) fn copy_blocks(&self, number: GroupNo) -> Vec<(u32, BlockNo)> {
        let sb = &self.volume().sb;
        let runs = self.copies(number);
        let per_meta = sb.descs_per_block().max(1);
        let meta = number.get() / per_meta;
        let skip = usize::from(sb.group_has_super(number));
        let Some(run) = runs.get(skip) else { return Vec::new() };
        if sb.has_incompat(incompat::META_BG) && meta >= sb.raw.s_first_meta_bg.get() {
            return vec![(meta, run.start)];
        }
        let old = if sb.has_incompat(incompat::META_BG) {
            // More than there are is a damaged number.
            sb.raw.s_first_meta_bg.get().min(sb.descriptor_blocks())
        } else {
            sb.descriptor_blocks()
        };
        (0..old).map(|nr| (nr, run.start + u64::from(nr))).collect()
    }

    /// A group's descriptor, from the first copy whose checksum (if any) and pointers are sound;
    /// `None` if there is none.
    pub(crate) fn backup(&self, number: GroupNo) -> Result<Option<Vec<u8>>, FsError> {
        let sb = &self.volume().sb;
        let per_block = sb.descs_per_block().max(1);
        let nr = number.get() / per_block;
        let slot = index(number.get() % per_block);
        let size = usize::from(sb.desc_size);
        let meta_bg = sb.has_incompat(incompat::META_BG) && nr >= sb.raw.s_first_meta_bg.get();
        let first = nr * per_block;
        // With meta groups the second and the last group have copies, else those with a superblock.
        let holders: Vec<u32> = if meta_bg {
            vec![first + 1, first + (per_block - 1)]
        } else {
            let with_super =
                (1..sb.groups).filter(|&group| sb.group_has_super(GroupNo::new(group)));
            with_super.take(MOST_COPIES).collect()
        };
        for holder in holders.into_iter().filter(|&group| group < sb.groups).map(GroupNo::new) {
            let copies = self.copy_blocks(holder);
            let Some(&(_, block)) = copies.iter().find(|(copy, _)| *copy == nr) else { continue };
            let place = Location::of("copy of the group descriptors").in_group(holder);
            let Ok(bytes) = self.volume().block(block, place) else { continue };
            let from = slot * size;
            let Some(bytes) = bytes.get(from..from + size) else { continue };
            let Ok(group) = self.parse(number, bytes) else { continue };
            if self.pointers_fit(&group) {
                return Ok(Some(bytes.to_vec()));
            }
        }
        Ok(None)
    }

    /// Whether a descriptor's pointers lie in the volume.
    fn pointers_fit(&self, group: &Group) -> bool {
        let place = Location::of("group descriptor").in_group(group.number);
        let table = Extent::new(group.inode_table(), self.volume().sb.itable_blocks());
        self.volume().check_block(group.block_bitmap(), place).is_ok()
            && self.volume().check_block(group.inode_bitmap(), place).is_ok()
            && self.volume().check_extent(table, place).is_ok()
    }
}
