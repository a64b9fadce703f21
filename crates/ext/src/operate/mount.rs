//! Opening an image for changes, and closing it again.

use super::entries::Entries;
use super::{Core, Ext, LiveOptions, Places, permit};
use crate::field::{low32, parse, truncated};
use crate::group::Group;
use crate::ondisk::{
    STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, compat, incompat, ro_compat,
    special,
};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_cache::{Cache, Config, Discipline};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::index;
use seekless_fs::{FsError, Location, Timestamp};
use seekless_live::{Limits, NameOrder};
use seekless_placement::block::{Ext2Next, ext2_by_name as blocks_by_name};
use seekless_placement::directory::ext2_by_name;
use seekless_placement::inode::FindGroup;
use seekless_placement::{GroupSummary, Groups, Shape, UnknownPolicy};
use seekless_units::{ByteLen, Extent, GroupNo, Ino, Lba};
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes from which on a file needs the feature `large_file`.
pub(super) const LARGE: u64 = 1 << 31;

/// A time as an inode keeps it: with fields behind the first 128 bytes, 34 bits of
/// seconds, and nanoseconds.
pub(super) fn representable(has_more: bool, time: Timestamp) -> Timestamp {
    let low = i64::from(i32::MIN);
    if has_more {
        let high = low.saturating_add((1 << 34) - 1);
        return Timestamp { secs: time.secs.clamp(low, high), ..time };
    }
    Timestamp { secs: time.secs.clamp(low, i64::from(i32::MAX)), nanos: 0 }
}

impl Ext {
    /// Opens an image, and changes nothing of it.
    pub(super) fn open_image(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: LiveOptions,
    ) -> Result<(Self, Core), FsError> {
        let volume = Volume::open(Arc::clone(&device), false)?;
        let sb = &volume.sb;
        permit::check(sb, &options)?;
        let cache = Cache::new(device, clock, sb.block_size, sb.block_size, config)?;
        let unknown = |error: UnknownPolicy| FsError::Invalid(error.to_string());
        let directories = ext2_by_name(&options.directories, sb.groups, options.seed);
        let blocks = options.blocks.as_deref().unwrap_or(Ext2Next::NAME);
        let blocks = blocks_by_name(blocks, options.seed);
        let entries = Entries {
            inodes: sb.raw.s_inodes_count.get(),
            typed: sb.has_incompat(incompat::FILETYPE),
            torn: config.discipline != Discipline::Async,
        };
        let all: Vec<Group> = (0..sb.groups)
            .map(|number| volume.group_desc(GroupNo::new(number)))
            .collect::<Result<_, _>>()?;
        let format = Self {
            limits: limits(sb),
            entries,
            places: all.iter().map(places).collect(),
            metadata: metadata(&volume, &all),
            groups: groups(sb, &all),
            stale: BTreeSet::new(),
            inodes: Box::new(FindGroup::new(directories.map_err(unknown)?)),
            blocks: blocks.map_err(unknown)?,
            volume,
        };
        let (wall, has_more) = (options.wall, format.has_birth());
        let core = Core::new(cache, Box::new(move || representable(has_more, wall())));
        Ok((format, core))
    }

    /// Reads the primary superblock as it lies on the disk, and writes it again.
    fn edit_superblock(&self, edit: impl FnOnce(&mut Superblock)) -> Result<(), FsError> {
        let device = self.volume.device();
        let at = Lba::containing(ByteLen::new(SUPERBLOCK_OFFSET));
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read(at, &mut bytes)?;
        let lost = || truncated(Location::of("superblock"));
        let mut raw: Superblock = parse(&bytes, 0).ok_or_else(lost)?;
        edit(&mut raw);
        device.write(at, raw.as_bytes())?;
        device.flush()?;
        Ok(())
    }

    /// Writes the superblock: in use, or as clean as it was found.
    pub(super) fn write_superblock(&mut self, core: &mut Core, close: bool) -> Result<(), FsError> {
        let now = low32(core.now().secs.cast_unsigned());
        let found = self.volume.sb.raw.s_state.get();
        let (blocks, inodes) = (self.groups.free_frags(), self.groups.totals().nifree);
        self.edit_superblock(|raw| {
            let state = if close { found } else { found & !STATE_VALID };
            raw.s_state = state.into();
            raw.s_wtime = now.into();
            if !close {
                raw.s_mtime = now.into();
                raw.s_mnt_count = raw.s_mnt_count.get().saturating_add(1).into();
            }
            raw.s_free_blocks_count_lo = low32(blocks).into();
            raw.s_free_inodes_count = low32(inodes).into();
        })
    }

    /// Sees that the superblock says so before a file becomes so long that not
    /// everybody can read it (`large_file`).
    pub(super) fn allow_length(&mut self, len: u64) -> Result<(), FsError> {
        if len < LARGE || self.volume.sb.has_ro_compat(ro_compat::LARGE_FILE) {
            return Ok(());
        }
        debug_assert_ne!(self.volume.sb.raw.s_rev_level.get(), 0, "no file gets so long there");
        let more = self.volume.sb.raw.s_feature_ro_compat.get() | ro_compat::LARGE_FILE;
        self.edit_superblock(|raw| raw.s_feature_ro_compat = more.into())?;
        self.volume.sb.raw.s_feature_ro_compat = more.into();
        Ok(())
    }

    /// Sees that the superblock says so before the first attribute is there
    /// (`ext_attr`).
    pub(super) fn allow_attributes(&mut self) -> Result<(), FsError> {
        if self.volume.sb.has_compat(compat::EXT_ATTR) {
            return Ok(());
        }
        let more = self.volume.sb.raw.s_feature_compat.get() | compat::EXT_ATTR;
        self.edit_superblock(|raw| raw.s_feature_compat = more.into())?;
        self.volume.sb.raw.s_feature_compat = more.into();
        Ok(())
    }
}

fn limits(sb: &Super) -> Limits {
    Limits {
        root: Ino::new(special::ROOT),
        inodes: sb.raw.s_inodes_count.get().saturating_add(1),
        block: sb.block_size,
        unit: sb.block_size,
        name_max: 255,
        // `EXT4_LINK_MAX`, which the kernel goes by on ext2 too.
        link_max: 65_000,
        // A block, with a final zero; paths have 4096 bytes with theirs.
        target_max: index(sb.block_size.min(4096)).saturating_sub(1),
        dir_max: u64::from(u32::MAX),
        dir_unit: index(sb.block_size),
        names: NameOrder::LinksLast,
    }
}

fn places(group: &Group) -> Places {
    Places {
        block_bitmap: group.block_bitmap(),
        inode_bitmap: group.inode_bitmap(),
        inode_table: group.inode_table(),
    }
}

/// What no file has, in order: superblocks and descriptors with what is kept for
/// more of them, bitmaps, tables.
fn metadata(volume: &Volume, all: &[Group]) -> Vec<Extent> {
    let sb = &volume.sb;
    let mut fixed = Vec::new();
    let kept = u64::from(sb.raw.s_reserved_gdt_blocks.get());
    let in_front = if sb.has_incompat(incompat::META_BG) {
        u64::from(sb.raw.s_first_meta_bg.get()).min(u64::from(sb.descriptor_blocks()))
    } else {
        u64::from(sb.descriptor_blocks())
    };
    for group in all {
        let start = sb.group_blocks(group.number).start;
        if sb.group_has_super(group.number) {
            let len = in_front.saturating_add(kept).saturating_add(1);
            fixed.push(Extent::new(start, len));
        }
        fixed.push(Extent::new(group.block_bitmap(), 1));
        fixed.push(Extent::new(group.inode_bitmap(), 1));
        fixed.push(Extent::new(group.inode_table(), sb.itable_blocks()));
    }
    let spread = (0..sb.descriptor_blocks()).map(|nr| Extent::new(sb.descriptor_block(nr), 1));
    fixed.extend(spread.skip(index(in_front)));
    fixed.sort_unstable_by_key(|run| (run.start, run.len));
    fixed
}

fn groups(sb: &Super, all: &[Group]) -> Groups {
    let shape = Shape {
        ncg: sb.groups,
        ipg: sb.inodes_per_group,
        fpg: sb.blocks_per_group,
        fsize: sb.block_size,
        frag: 1,
        size: sb.blocks,
        skip: low32(sb.first_block.get()),
    };
    let mut groups = Groups::new(shape, |number| {
        let table = all.get(index(number.get())).map(Group::inode_table);
        table.map_or_else(|| shape.base(number), |at| at.saturating_add(sb.itable_blocks()))
    });
    for group in all {
        let summary = GroupSummary {
            ndir: group.used_dirs(),
            nbfree: group.free_clusters(),
            nifree: group.free_inodes(),
            nffree: 0,
        };
        groups.set(group.number, summary);
    }
    groups
}
