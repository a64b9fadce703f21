//! Groups and their fixed metadata, and how large a volume must be.
//!
//! Each group holds its own bitmaps and inode table, even with flexible groups:
//! packing sixteen tables at the front of two gigabytes, as mke2fs does, puts
//! the median inode most of a gigabyte away from its data. On the base of an older volume, the
//! groups of that one keep theirs where they are.

use super::options::{INODE_RATIO, Options};
use super::shape::{
    FIRST_INO, GroupTables, LOG_GROUPS_PER_FLEX, Shape, blocks_in_group, inode_step,
    most_inodes_in_group,
};
use crate::features::Features;
use crate::ondisk::{compat, incompat, ro_compat};
use seekless_fs::FsError;
use seekless_fs::extents::union;
use seekless_fs::plan::Spare;
use seekless_units::{BlockNo, Extent};

/// The least blocks in a group that is made smaller for more inodes.
const LEAST_GROUP: u64 = 256;

/// Fewer blocks have no room for an empty volume's metadata.
const LEAST_BLOCKS: u64 = 16;

/// The shape of a volume to be written.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) features: Features,
    pub(crate) block_size: u32,
    pub(crate) inode_size: u32,
    pub(crate) first_block: u64,
    pub(crate) blocks: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) groups: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) desc_size: u32,
    pub(crate) desc_blocks: u64,
    pub(crate) reserved_gdt_blocks: u64,
    pub(crate) journal_blocks: u64,
    pub(crate) orphan_blocks: u64,
    pub(crate) log_groups_per_flex: u8,
    /// Copies of the superblock with the `sparse_super2` feature.
    superblock_copies: u8,
    /// Whether bitmaps, tables and the journal lie at the beginning of the volume.
    pub(crate) packs_metadata: bool,
    /// The tables of the first groups, if they have places of an older volume, or at the beginning
    /// of this one; those of other groups lie at their groups' beginning.
    placed: Vec<GroupTables>,
    /// For each group in `placed`, its blocks that hold fixed metadata of any group, sorted.
    fixed: Vec<Vec<Extent>>,
}

/// The space and inodes that a tree needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Blocks of data, directories, maps and attributes.
    pub(crate) blocks: u64,
    /// Inodes, without the reserved ones.
    pub(crate) inodes: u64,
}

impl Geometry {
    /// The volume of the requested size, or the smallest one that holds `need`.
    pub(crate) fn choose(options: &Options, need: Need) -> Result<Self, FsError> {
        match options.size {
            Some(size) => {
                let blocks = size.get() / u64::from(options.block_size);
                Self::sized(options, blocks, need)
                    .map_err(|error| Self::with_least(error, options, need))
            }
            None => Self::fit(options, need),
        }
    }

    fn sized(options: &Options, blocks: u64, need: Need) -> Result<Self, FsError> {
        let geometry = Self::of(options, blocks, inodes_for(options, blocks, need)?)?;
        geometry.check_room(need)?;
        Ok(geometry)
    }

    /// Adds the sufficient size to an error for want of space.
    fn with_least(error: FsError, options: &Options, need: Need) -> FsError {
        let FsError::NoSpace(why) = &error else { return error };
        let fitted = Options { size: None, spare: Spare::default(), ..options.clone() };
        let Ok(fitted) = Self::fit(&fitted, need) else { return error };
        // Inodes by ratio take more space than the contents alone.
        let mut sizes = (0..64).map(|percent| fitted.blocks + fitted.blocks * percent / 100);
        let least = sizes.find(|&blocks| Self::sized(options, blocks, need).is_ok());
        let Some(blocks) = least else { return error };
        let bytes = blocks * u64::from(options.block_size);
        FsError::NoSpace(format!("{why}; a volume of at least {bytes} bytes is needed"))
    }

    /// The smallest volume that holds `need` and leaves free the reserved share and the spare
    /// space.
    fn fit(options: &Options, need: Need) -> Result<Self, FsError> {
        let extra = options.spare.blocks(u64::from(options.block_size))?;
        let left = options.spare.left(options.reserved)?;
        let inodes = match options.inodes {
            Some(inodes) => inodes,
            None => {
                let share = (need.blocks + extra) * u64::from(options.spare.share) / left;
                let spare = inodes_in(options, extra + share, need);
                cap_inodes(need.inodes + need.inodes / 20 + u64::from(FIRST_INO) + 5 + spare)?
            }
        };
        // Many inodes with few contents need groups for their tables.
        let groups = u64::from(inodes.div_ceil(most_inodes_in_group(options)));
        let for_tables = (groups - groups.min(1)) * blocks_in_group(options.block_size);
        let mut blocks = (need.blocks + 64).max(for_tables + 64);
        let is_asked = options.inodes.is_none() && options.inode_ratio.is_some();
        loop {
            let asked = if is_asked { by_ratio(options, blocks) } else { 0 };
            let geometry = Self::of(options, blocks, inodes.max(cap_inodes(asked)?))?;
            let used = need.blocks + extra + geometry.fixed_blocks() + geometry.spare_blocks();
            let wanted = (used * 10_000).div_ceil(left);
            if wanted <= geometry.blocks {
                geometry.check_room(need)?;
                return Ok(geometry);
            }
            blocks = wanted.max(geometry.blocks + 1);
        }
    }

    /// The volume of (about) `blocks` blocks: a last group too small for its own metadata is left
    /// off if the size was requested, and grown if not.
    fn of(options: &Options, blocks: u64, inodes: u32) -> Result<Self, FsError> {
        let features = options.features;
        let block_size = options.block_size;
        let first_block = u64::from(block_size == 1024);
        let blocks_per_group = blocks_in_group(block_size);
        let limit =
            if features.has_incompat(incompat::BIT64) { 1 << 48 } else { u64::from(u32::MAX) };
        if blocks > limit {
            return Err(FsError::NoSpace(format!("{blocks} blocks need the 64bit feature")));
        }
        if blocks < LEAST_BLOCKS {
            return Err(FsError::NoSpace(format!("a volume of {blocks} blocks is too small")));
        }
        let desc_size = if features.has_incompat(incompat::BIT64) { 64 } else { 32 };
        let mut geometry = Self {
            features,
            block_size,
            inode_size: options.inode_size,
            first_block,
            blocks,
            blocks_per_group,
            groups: 0,
            inodes_per_group: 0,
            desc_size,
            desc_blocks: 0,
            reserved_gdt_blocks: 0,
            journal_blocks: 0,
            orphan_blocks: 0,
            log_groups_per_flex: LOG_GROUPS_PER_FLEX,
            superblock_copies: options.superblock_copies,
            packs_metadata: options.packs_metadata,
            placed: Vec::new(),
            fixed: Vec::new(),
        };
        // More inodes than a bitmap has bits need smaller groups, as in mke2fs (e2fsprogs,
        // `ext2fs_initialize`). Of a size that is not requested there are as many as they need.
        let smaller = |geometry: &Self| geometry.blocks_per_group.checked_sub(8);
        let mut geometry = loop {
            let mut divided = geometry.clone();
            let done = divided.settle_groups(options, inodes);
            let shrinks = options.size.is_some() && divided.lacks_inodes(options, inodes);
            match smaller(&geometry).filter(|&len| shrinks && len >= LEAST_GROUP) {
                Some(len) => geometry.blocks_per_group = len,
                None => {
                    done?;
                    break divided;
                }
            }
        };
        if options.packs_metadata {
            geometry.pack_metadata()?;
        }
        geometry.journal_blocks = geometry.choose_journal(options)?;
        geometry.orphan_blocks = geometry.choose_orphan_file(options);
        Ok(geometry)
    }

    /// Divides the volume into groups. A last one must hold its own metadata and a little more.
    fn settle_groups(&mut self, options: &Options, inodes: u32) -> Result<(), FsError> {
        self.divide(options, inodes)?;
        if self.groups > 1 && self.group_overhead(0) + 50 > self.blocks_per_group {
            return Err(FsError::NoSpace(format!(
                "a group of {} blocks has no room for {} inodes",
                self.blocks_per_group, self.inodes_per_group
            )));
        }
        let last = self.group_blocks(self.groups - 1);
        let least = self.group_overhead(self.groups - 1) + 50;
        if last >= least {
            return Ok(());
        }
        match options.size {
            None => self.blocks += least - last,
            Some(_) if self.groups > 1 => self.blocks -= last,
            Some(_) => {
                return Err(FsError::NoSpace(format!(
                    "a volume of {} blocks has no room for its own metadata",
                    self.blocks
                )));
            }
        }
        self.divide(options, inodes)
    }

    /// Whether the groups have too few inodes.
    fn lacks_inodes(&self, options: &Options, inodes: u32) -> bool {
        u64::from(inodes) > u64::from(self.groups) * u64::from(most_inodes_in_group(options))
    }

    /// Puts the bitmaps and then the inode tables of all groups behind the first superblock, around
    /// its copies in other groups (e2fsprogs, `packed_allocate_group_table`).
    fn pack_metadata(&mut self) -> Result<(), FsError> {
        let no_room = || FsError::NoSpace("no room for the inode tables of all groups".into());
        let mut at = self.group_start(0);
        // The first blocks from `at` on that hold no copy of the superblock.
        let mut take = |len: u64| loop {
            let found = at;
            let groups = self.group_of(found)..=self.group_of(found + len - 1);
            let mut ends = groups.filter_map(|group| {
                let start = self.group_start(group);
                let end = start + self.super_blocks(group);
                (start < found + len && found < end).then_some(end)
            });
            match ends.next() {
                Some(end) => at = end,
                None => {
                    at = found + len;
                    break BlockNo::new(found);
                }
            }
        };
        let mut runs = |len: u64| (0..self.groups).map(|_| take(len)).collect::<Vec<_>>();
        let (block_bitmaps, inode_bitmaps) = (runs(1), runs(1));
        let tables = runs(self.inode_table_blocks());
        if at > self.blocks {
            return Err(no_room());
        }
        let places = block_bitmaps.into_iter().zip(inode_bitmaps).zip(tables);
        self.placed = places
            .map(|((block_bitmap, inode_bitmap), inodes)| GroupTables {
                block_bitmap,
                inode_bitmap,
                inodes,
            })
            .collect();
        self.fixed = self.fixed_by_group();
        Ok(())
    }

    /// The group of a block.
    fn group_of(&self, block: u64) -> u32 {
        ((block - self.first_block) / self.blocks_per_group) as u32
    }

    fn choose_orphan_file(&self, options: &Options) -> u64 {
        if !self.features.has_compat(compat::ORPHAN_FILE) {
            return 0;
        }
        if let Some(size) = options.orphan_file_size {
            return size.get().div_ceil(self.block_size.into());
        }
        // As in mke2fs: 32 blocks, one for 4096 in large volumes, at most 512.
        match self.blocks {
            blocks if blocks < 128 * 1024 => 32,
            blocks if blocks < 2 * 1024 * 1024 => blocks / 4096,
            _ => 512,
        }
    }

    /// The shape of an older volume, as large, or larger if the contents need it.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] for contents that do not fit in the requested size,
    /// [`FsError::Unsupported`] for more groups than its descriptors have room for,
    /// [`FsError::Invalid`] for a size below its own.
    pub(crate) fn on_base(shape: &Shape, options: &Options, need: Need) -> Result<Self, FsError> {
        let extra = options.spare.blocks(u64::from(options.block_size))?;
        // Reserved blocks are room for small changes: a larger volume has other copies of its
        // superblock, and another bitmap of its last group.
        let reserved = if options.spare == Spare::default() { 0 } else { options.reserved };
        let left = options.spare.left(reserved)?;
        let size = options.size.map(|size| size.get() / u64::from(options.block_size));
        let mut blocks = size.unwrap_or(shape.blocks);
        if blocks < LEAST_BLOCKS {
            return Err(FsError::NoSpace(format!("a volume of {blocks} blocks is too small")));
        }
        loop {
            let geometry = Self::extended(shape, options, blocks)?;
            if options.size.is_some() {
                geometry.check_room(need)?;
                return Ok(geometry);
            }
            let used = need.blocks + extra + geometry.fixed_blocks() + geometry.spare_blocks();
            let mut wanted = (used * 10_000).div_ceil(left);
            if wanted > geometry.blocks {
                // It has to grow: with all reserved blocks free, as a fitted one.
                wanted = (used * 10_000).div_ceil(options.spare.left(options.reserved)?);
            } else if let Some(missing) =
                (need.inodes + u64::from(FIRST_INO)).checked_sub(geometry.inodes() + 1)
            {
                let groups = 2 + missing / u64::from(shape.inodes_per_group);
                let last = geometry.group_start(geometry.groups - 1);
                wanted = last + groups * shape.blocks_per_group;
            }
            if wanted <= geometry.blocks {
                geometry.check_room(need)?;
                return Ok(geometry);
            }
            blocks = wanted.max(geometry.blocks + 1);
            if shape.whole_groups {
                let first = geometry.first_block;
                blocks = first + (blocks - first).next_multiple_of(shape.blocks_per_group);
            }
        }
    }

    /// A volume of (about) `blocks` blocks, whose first groups are those of an older one.
    fn extended(shape: &Shape, options: &Options, blocks: u64) -> Result<Self, FsError> {
        let features = options.features;
        let mut geometry = Self {
            features,
            block_size: options.block_size,
            inode_size: options.inode_size,
            first_block: u64::from(options.block_size == 1024),
            blocks,
            blocks_per_group: shape.blocks_per_group,
            groups: 0,
            inodes_per_group: shape.inodes_per_group,
            desc_size: shape.desc_size,
            desc_blocks: 0,
            reserved_gdt_blocks: 0,
            journal_blocks: 0,
            orphan_blocks: 0,
            log_groups_per_flex: shape.log_groups_per_flex,
            superblock_copies: options.superblock_copies,
            packs_metadata: false,
            placed: shape.tables.clone(),
            fixed: Vec::new(),
        };
        if blocks > shape.blocks {
            geometry.count_groups(shape)?;
            // The last group must hold its own metadata and a little more; it may be one of the
            // older volume, which has room already.
            let last = geometry.groups - 1;
            let overhead = geometry.group_overhead(last);
            let (least, have) =
                ((overhead + 50).min(shape.blocks_per_group), geometry.group_blocks(last));
            if overhead >= shape.blocks_per_group {
                return Err(FsError::Unsupported(format!(
                    "a group of {} blocks has no room for more than its own metadata",
                    shape.blocks_per_group
                )));
            }
            if have < least && last as usize >= shape.tables.len() {
                if options.size.is_some() {
                    geometry.blocks -= have;
                } else {
                    geometry.blocks += least - have;
                }
            }
        }
        geometry.count_groups(shape)?;
        geometry.fixed = geometry.fixed_by_group();
        geometry.journal_blocks = geometry.choose_journal(options)?;
        geometry.orphan_blocks = match shape.orphan_blocks {
            Some(blocks)
                if features.has_compat(compat::ORPHAN_FILE)
                    && options.orphan_file_size.is_none() =>
            {
                blocks
            }
            _ => geometry.choose_orphan_file(options),
        };
        Ok(geometry)
    }

    /// Groups and descriptor blocks for the block count, in the room of an older volume.
    fn count_groups(&mut self, shape: &Shape) -> Result<(), FsError> {
        let groups = (self.blocks - self.first_block).div_ceil(self.blocks_per_group);
        self.groups = u32::try_from(groups)
            .map_err(|_| FsError::NoSpace("more than 4 billion groups".into()))?;
        let limit = if self.features.has_incompat(incompat::BIT64) { 1 << 48 } else { 1 << 32 };
        self.desc_blocks = groups.div_ceil(u64::from(self.block_size / self.desc_size));
        let inodes = groups * u64::from(self.inodes_per_group);
        if self.blocks >= limit || inodes > u64::from(u32::MAX) {
            return Err(FsError::NoSpace(format!("{} blocks are too many", self.blocks)));
        }
        let left = shape.descriptor_room.checked_sub(self.desc_blocks);
        self.reserved_gdt_blocks = left.ok_or_else(|| {
            FsError::Unsupported(format!(
                "{groups} groups need {} blocks of descriptors, the older volume has room for {}",
                self.desc_blocks, shape.descriptor_room
            ))
        })?;
        if self.reserved_gdt_blocks == 0 {
            self.features.compat &= !compat::RESIZE_INODE;
        }
        Ok(())
    }

    /// The blocks of fixed metadata in each group whose tables, or into which the tables of others,
    /// are placed.
    fn fixed_by_group(&self) -> Vec<Vec<Extent>> {
        let mut by_group: Vec<Vec<Extent>> = vec![Vec::new(); self.groups as usize];
        let mut add = |run: Extent| {
            let (mut at, end) = (run.start.get(), run.end().get());
            while at < end {
                let group = self.group_of(at);
                let stop = end.min(self.group_start(group) + self.blocks_per_group);
                by_group[group as usize].push(Extent::new(BlockNo::new(at), stop - at));
                at = stop;
            }
        };
        for group in 0..self.groups {
            let start = BlockNo::new(self.group_start(group));
            add(Extent::new(start, self.super_blocks(group)));
            let tables = self.tables(group);
            add(Extent::new(tables.block_bitmap, 1));
            add(Extent::new(tables.inode_bitmap, 1));
            add(Extent::new(tables.inodes, self.inode_table_blocks()));
        }
        for runs in &mut by_group {
            *runs = union(std::mem::take(runs));
        }
        by_group
    }

    /// Groups, inodes per group and descriptor blocks for the block count.
    fn divide(&mut self, options: &Options, inodes: u32) -> Result<(), FsError> {
        let groups = (self.blocks - self.first_block).div_ceil(self.blocks_per_group);
        self.groups = u32::try_from(groups)
            .map_err(|_| FsError::NoSpace("more than 4 billion groups".into()))?;
        let step = inode_step(options);
        let per_group = inodes.div_ceil(self.groups).max(FIRST_INO + 5).next_multiple_of(step);
        let most = most_inodes_in_group(options);
        if per_group > most {
            return Err(FsError::NoSpace(format!(
                "{inodes} inodes do not fit in {groups} groups of at most {most}"
            )));
        }
        self.inodes_per_group = per_group;
        let per_block = u64::from(self.block_size / self.desc_size);
        self.desc_blocks = groups.div_ceil(per_block);
        if self.features.has_compat(compat::RESIZE_INODE) {
            let asked = options.resize_limit.unwrap_or_default();
            if options.resize_limit.is_some() && asked <= self.blocks {
                return Err(FsError::Invalid(format!(
                    "the resize limit, {asked} blocks, is not larger than the volume of {}",
                    self.blocks
                )));
            }
            // Room to grow by a factor of 1024, as in mke2fs, also where no room is needed for the
            // limit.
            let limits = [asked, self.blocks * 1024];
            let rooms = limits.map(|limit| self.descriptor_room(limit, per_block));
            self.reserved_gdt_blocks = rooms.into_iter().find(|room| *room > 0).unwrap_or(0);
            if self.reserved_gdt_blocks == 0 {
                // Nothing is left to reserve: the descriptors have room already.
                self.features.compat &= !compat::RESIZE_INODE;
            }
        }
        Ok(())
    }

    /// Blocks for the descriptors of groups up to a number of blocks, besides those that are in use.
    fn descriptor_room(&self, blocks: u64, per_block: u64) -> u64 {
        let blocks = blocks.clamp(self.first_block, u32::MAX.into());
        let groups = (blocks - self.first_block).div_ceil(self.blocks_per_group);
        let needed = groups.div_ceil(per_block);
        (needed - self.desc_blocks.min(needed)).min(u64::from(self.block_size / 4))
    }

    fn choose_journal(&self, options: &Options) -> Result<u64, FsError> {
        if !self.features.has_compat(compat::HAS_JOURNAL) {
            return Ok(0);
        }
        if let Some(size) = options.journal_size {
            let blocks = size.get() / u64::from(self.block_size);
            return if blocks < 1024 {
                Err(FsError::Invalid(format!(
                    "a journal needs at least 1024 blocks ({} bytes)",
                    1024 * u64::from(self.block_size)
                )))
            } else {
                Ok(blocks)
            };
        }
        Ok(crate::journal::default_blocks(self.blocks))
    }

    fn check_room(&self, need: Need) -> Result<(), FsError> {
        let have = self.blocks.saturating_sub(self.fixed_blocks() + self.spare_blocks());
        if need.blocks > have {
            return Err(FsError::NoSpace(format!(
                "the contents need {} blocks of {} bytes, the volume has room for {have}",
                need.blocks, self.block_size
            )));
        }
        let inodes = self.inodes() - u64::from(FIRST_INO - 1);
        if need.inodes > inodes {
            return Err(FsError::NoSpace(format!(
                "the contents need {} inodes, the volume has {inodes}",
                need.inodes
            )));
        }
        Ok(())
    }

    /// Blocks without contents, for any tree.
    fn fixed_blocks(&self) -> u64 {
        let groups: u64 = (0..self.groups).map(|group| self.group_overhead(group)).sum();
        // The journal's and the orphan file's maps may need blocks, and the
        // resize inode has its double-indirect block.
        self.first_block
            + groups
            + self.journal_blocks
            + self.orphan_blocks
            + 8
            + self.journal_blocks.div_ceil(u64::from(self.block_size / 4))
    }

    /// A little more than the sum: extents that end at a group's metadata may
    /// need another block for their map.
    fn spare_blocks(&self) -> u64 {
        u64::from(self.groups) / 4 + 8
    }

    pub(crate) fn inodes(&self) -> u64 {
        u64::from(self.inodes_per_group) * u64::from(self.groups)
    }

    pub(crate) fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size))
            .div_ceil(u64::from(self.block_size))
    }

    /// First block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u64 {
        self.first_block + u64::from(group) * self.blocks_per_group
    }

    /// Blocks in a group; the last may have fewer.
    pub(crate) fn group_blocks(&self, group: u32) -> u64 {
        (self.blocks - self.group_start(group)).min(self.blocks_per_group)
    }

    /// Whether a group holds a copy of the superblock and descriptors.
    pub(crate) fn has_super(&self, group: u32) -> bool {
        if self.features.has_compat(compat::SPARSE_SUPER2) {
            return group == 0 || self.backup_groups().contains(&group);
        }
        if group <= 1 || !self.features.has_ro_compat(ro_compat::SPARSE_SUPER) {
            return true;
        }
        [3u32, 5, 7].iter().any(|&base| {
            let mut power = u64::from(base);
            while power < u64::from(group) {
                power *= u64::from(base);
            }
            power == u64::from(group)
        })
    }

    /// The groups with copies of the superblock, with the `sparse_super2` feature; 0 for none
    /// (`s_backup_bgs`).
    pub(crate) fn backup_groups(&self) -> [u32; 2] {
        let last = self.groups - 1;
        [
            if self.superblock_copies >= 1 && last >= 1 { 1 } else { 0 },
            if self.superblock_copies >= 2 && last >= 2 { last } else { 0 },
        ]
    }

    /// Blocks of superblock, descriptors and room for more at a group's start.
    pub(crate) fn super_blocks(&self, group: u32) -> u64 {
        if self.has_super(group) { 1 + self.desc_blocks + self.reserved_gdt_blocks } else { 0 }
    }

    /// The bitmaps and the inode table of a group.
    fn tables(&self, group: u32) -> GroupTables {
        if let Some(&tables) = self.placed.get(group as usize) {
            return tables;
        }
        let start = BlockNo::new(self.group_start(group) + self.super_blocks(group));
        GroupTables { block_bitmap: start, inode_bitmap: start + 1, inodes: start + 2 }
    }

    pub(crate) fn block_bitmap(&self, group: u32) -> u64 {
        self.tables(group).block_bitmap.get()
    }

    pub(crate) fn inode_bitmap(&self, group: u32) -> u64 {
        self.tables(group).inode_bitmap.get()
    }

    pub(crate) fn inode_table(&self, group: u32) -> Extent {
        Extent::new(self.tables(group).inodes, self.inode_table_blocks())
    }

    /// Blocks of a group that hold fixed metadata.
    pub(crate) fn group_overhead(&self, group: u32) -> u64 {
        match self.fixed.get(group as usize) {
            Some(fixed) => fixed.iter().map(|run| run.len).sum(),
            None => self.super_blocks(group) + 2 + self.inode_table_blocks(),
        }
    }

    /// Whether a group has no fixed metadata of other groups. The bitmap of one that has some does
    /// not follow from the group's descriptor.
    pub(crate) fn is_self_contained(&self, group: u32) -> bool {
        let start = BlockNo::new(self.group_start(group));
        let end = start + self.group_blocks(group);
        let here = |run: Extent| {
            let (from, to) = (run.start.max(start), run.end().min(end));
            if from < to { to - from } else { 0 }
        };
        let tables = self.tables(group);
        let own = here(Extent::new(tables.block_bitmap, 1))
            + here(Extent::new(tables.inode_bitmap, 1))
            + here(self.inode_table(group));
        self.super_blocks(group) + own == self.group_overhead(group)
    }

    /// The blocks of all fixed metadata, sorted within each group.
    pub(crate) fn fixed_runs(&self) -> impl Iterator<Item = Extent> + '_ {
        (0..self.groups).flat_map(|group| match self.fixed.get(group as usize) {
            Some(fixed) => fixed.clone(),
            None => {
                let start = BlockNo::new(self.group_start(group));
                vec![Extent::new(start, self.group_overhead(group))]
            }
        })
    }

    /// Free space between fixed metadata, neighbours of two groups not merged.
    pub(crate) fn free_runs(&self) -> Vec<Extent> {
        let mut runs = Vec::new();
        let mut fixed = self.fixed_runs().peekable();
        for group in 0..self.groups {
            let mut at = BlockNo::new(self.group_start(group));
            let end = at + self.group_blocks(group);
            while let Some(run) = fixed.next_if(|run| run.start < end) {
                debug_assert!(at <= run.start && run.end() <= end, "{run:?} of group {group}");
                runs.push(Extent::new(at, run.start - at));
                at = run.end();
            }
            runs.push(Extent::new(at, end - at));
        }
        runs.retain(|run| run.len > 0);
        runs
    }
}

/// Inodes for `blocks` blocks of free space: in proportion to those of the contents, but at least
/// the default number and at most one to a block.
fn inodes_in(options: &Options, blocks: u64, need: Need) -> u64 {
    let as_contents = u128::from(blocks) * u128::from(need.inodes) / u128::from(need.blocks.max(1));
    let usual = by_ratio(options, blocks);
    usual.max(u64::try_from(as_contents).unwrap_or(u64::MAX).min(blocks))
}

/// Inodes for `blocks` blocks, one to each `inode_ratio` bytes.
fn by_ratio(options: &Options, blocks: u64) -> u64 {
    let ratio = options.inode_ratio.unwrap_or(INODE_RATIO);
    let bytes = blocks * u64::from(options.block_size);
    (bytes / u64::from(ratio)).min(u64::from(u32::MAX) - 65536)
}

fn cap_inodes(inodes: u64) -> Result<u32, FsError> {
    u32::try_from(inodes).map_err(|_| FsError::NoSpace("more than 4 billion inodes".into()))
}

/// Inodes for a volume of a given size: the requested number, that of the ratio, or those that the
/// contents need.
fn inodes_for(options: &Options, blocks: u64, need: Need) -> Result<u32, FsError> {
    match options.inodes {
        Some(inodes) => Ok(inodes),
        None => cap_inodes(by_ratio(options, blocks).max(need.inodes + u64::from(FIRST_INO) + 5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;

    #[test]
    fn more_inodes_than_a_bitmap_has_bits_need_smaller_groups() {
        let sized = |mib: u64, inode_ratio: u32| {
            let size = Some(ByteLen::new(mib << 20));
            let options = Options { size, inode_ratio: Some(inode_ratio), ..Options::default() };
            Geometry::choose(&options, Need { blocks: 10, inodes: 10 })
        };
        // As `mke2fs -t ext4 -b 4096 -i RATIO` divides them.
        for (mib, ratio, blocks_per_group) in [
            (256, 4096, 32768),
            (100, 2048, 23928),
            (256, 2048, 21128),
            (300, 1500, 12472),
            (100, 1024, 7960),
            (256, 1024, 9040),
            (1000, 1024, 8184),
        ] {
            let geometry = sized(mib, ratio).unwrap();
            assert_eq!(geometry.blocks_per_group, blocks_per_group, "{mib} MiB, -i {ratio}");
            assert!(geometry.inodes() >= geometry.blocks * 4096 / u64::from(ratio));
        }
        for ratio in [16, 128, 256] {
            assert!(matches!(sized(256, ratio), Err(FsError::NoSpace(_))), "{ratio}");
        }
    }

    #[test]
    fn copies_of_the_superblock_stand_in_powers_of_3_5_and_7() {
        let need = Need { blocks: 20_000_000, inodes: 100 };
        let geometry = Geometry::choose(&Options::default(), need).unwrap();
        let with: Vec<u32> = (0..130).filter(|&group| geometry.has_super(group)).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn a_fitted_volume_holds_what_it_was_fitted_to_and_little_more() {
        for blocks in [1, 100, 5_000, 32_700, 33_000, 65_500, 1_000_000] {
            let need = Need { blocks, inodes: blocks / 4 };
            let options = Options { reserved: 0, ..Options::default() };
            let geometry = Geometry::choose(&options, need).unwrap();
            assert!(geometry.check_room(need).is_ok());
            let spare = geometry.blocks - geometry.fixed_blocks() - blocks;
            assert!(spare < 200 + blocks / 50, "{blocks}: {spare} spare");
        }
    }

    #[test]
    fn a_volume_too_small_is_refused() {
        let need = Need { blocks: 10_000, inodes: 10 };
        let size = Some(seekless_units::ByteLen::new(20 << 20));
        let options = Options { size, ..Options::default() };
        assert!(matches!(Geometry::choose(&options, need), Err(FsError::NoSpace(_))));
    }
}
