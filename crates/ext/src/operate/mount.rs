//! Opening an image for changes, and closing it again.

use super::ahead::Ahead;
use super::bitmaps::metadata;
use super::descriptor::DescriptorFields;
use super::entries::Entries;
use super::orlov::{LastGroups, groups_per_flex};
use super::orphan_file::{OrphanFile, is_sound};
use super::sums::Sealer;
use super::{Core, Ext, LiveOptions, Places, permit};
use crate::encode::sums::seal_superblock;
use crate::group::Group;
use crate::journal::{LogWriter, check_usable, recover_home};
use crate::ondisk::{
    DirEntryTail, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, compat, incompat,
    ro_compat, special,
};
use crate::superblock::{Super, read_primary, write_primary};
use crate::volume::Volume;
use seekless_cache::{Cache, Config, Discipline, Role};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::index;
use seekless_fs::field::{low32, parse, truncated};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location, Timestamp};
use seekless_live::Limits;
use seekless_placement::block::{
    BlockPlacement, Ext2Next, ExtBlocks, ExtHints, ext_by_name as blocks_by_name,
};
use seekless_placement::inode::{ExtVolume, InodePlacement, ext_by_name};
use seekless_placement::{GroupSummary, Groups, PolicyError, Shape};
use seekless_units::{BlockNo, GroupNo, Ino};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::IntoBytes;

/// Bytes from which on a file needs the feature `large_file`.
pub(super) const LARGE: u64 = 1 << 31;

/// A time as an inode keeps it: with fields behind the first 128 bytes, 34 bits of
/// seconds, and nanoseconds.
pub(super) fn representable(has_more: bool, time: Timestamp) -> Timestamp {
    let low = i64::from(i32::MIN);
    if has_more {
        let high = low + (1 << 34) - 1;
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
        let volume = recovered(&device, config.discipline, &options)?;
        let sb = &volume.sb;
        permit::check(sb, &options, config.discipline)?;
        let (inodes, blocks) = policies(sb, &options)?;
        let delays = permit::delays(sb, &options, config.discipline)?;
        let all: Vec<Group> = (0..sb.groups)
            .map(|number| volume.group_desc(GroupNo::new(number)))
            .collect::<Result<_, _>>()?;
        // An image that is not in order and opened by force is not recovered.
        let has_journal = config.discipline.journal_mode().is_some();
        let orphan_file = if has_journal { OrphanFile::usable(&volume)? } else { None };
        let wall = Arc::new(Mutex::new(options.wall));
        let tell = move || (wall.lock().unwrap_or_else(PoisonError::into_inner))();
        // From here on the image is written to.
        let mut cache = Cache::new(device.clone(), clock, sb.block_size, sb.block_size, config)?;
        let mut log = Vec::new();
        if config.discipline.journal_mode().is_some() {
            let writer = LogWriter::open(device, Box::new(tell.clone()))?;
            log.extend_from_slice(writer.runs());
            cache.transactions().open_log(Box::new(writer))?;
        }
        if sb.has_metadata_csum() {
            cache.blocks_mut().set_seal(Box::new(Sealer { seed: sb.checksum_seed }));
        }
        let entries = Entries {
            inodes: sb.raw.s_inodes_count.get(),
            typed: sb.has_incompat(incompat::FILETYPE),
            torn: config.discipline.orders_writes()
                && !config.whole_blocks
                && !sb.has_metadata_csum(),
            tail: if sb.has_metadata_csum() { size_of::<DirEntryTail>() } else { 0 },
        };
        let format = Self {
            limits: limits(sb, options.moves_dirs),
            entries,
            places: all.iter().map(places).collect(),
            states: all.iter().map(DescriptorFields::of).collect(),
            metadata: metadata(&volume, &all, log),
            groups: groups(sb, &all),
            stale: BTreeSet::new(),
            inodes,
            blocks,
            ahead: Ahead::default(),
            last_groups: LastGroups::default(),
            orphans: Vec::new(),
            orphan_file,
            shadows: matches!(config.discipline, Discipline::Sync | Discipline::Normal),
            delays,
            is_doubtful: options.force,
            volume,
        };
        let has_more = format.has_birth();
        let core = Core::new(cache, Box::new(move || representable(has_more, tell())));
        Ok((format, core))
    }

    /// Changes the primary superblock: on the disk, or, where there is a journal, with
    /// the operation that is under way.
    pub(super) fn edit_superblock(
        &self,
        core: &mut Core,
        edit: impl FnOnce(&mut Superblock),
    ) -> Result<(), FsError> {
        let lost = || truncated(Location::of("superblock"));
        if core.cache.is_journalled() {
            let bsize = u64::from(self.volume.sb.block_size).max(1);
            let at = BlockNo::new(SUPERBLOCK_OFFSET / bsize);
            let skip = index(SUPERBLOCK_OFFSET % bsize);
            debug_assert!(
                skip + SUPERBLOCK_SIZE <= self.volume.block_len(),
                "the superblock lies in one block"
            );
            core.cache.changes().edit(at, skip, SUPERBLOCK_SIZE, Role::Summary, |bytes| {
                let mut raw: Superblock = parse(bytes, 0).ok_or_else(lost)?;
                edit(&mut raw);
                seal_superblock(&mut raw, 0);
                bytes.copy_from_slice(raw.as_bytes());
                Ok(())
            })?;
            return Ok(());
        }
        let mut disk = Patches::new(self.volume.device().clone());
        let mut raw = read_primary(&disk)?;
        edit(&mut raw);
        write_primary(&mut disk, raw)
    }

    /// Writes the superblock: in use, or as clean as it was found.
    pub(super) fn write_superblock(&mut self, core: &mut Core, close: bool) -> Result<(), FsError> {
        let now = low32(core.now().secs.cast_unsigned());
        let found = self.volume.sb.raw.s_state.get();
        let (blocks, inodes) = (self.groups.free_frags(), self.groups.totals().nifree);
        // With a journal it is clean as soon as it has been recovered.
        let used = if core.cache.is_journalled() { found } else { found & !STATE_VALID };
        self.edit_superblock(core, |raw| {
            let state = if close { found } else { used };
            raw.s_state = state.into();
            raw.s_wtime = now.into();
            if !close {
                raw.s_mtime = now.into();
                raw.s_mnt_count = raw.s_mnt_count.get().saturating_add(1).into();
            }
            raw.s_free_blocks_count_lo = low32(blocks).into();
            if raw.s_feature_incompat.get() & incompat::BIT64 != 0 {
                raw.s_free_blocks_count_hi = low32(blocks >> 32).into();
            }
            raw.s_free_inodes_count = low32(inodes).into();
            let features = raw.s_feature_ro_compat.get();
            raw.s_feature_ro_compat = self.noted_features(features, close).into();
        })
    }

    /// Sets the feature for large files before a file becomes so long (`large_file`).
    pub(super) fn allow_length(&mut self, core: &mut Core, len: u64) -> Result<(), FsError> {
        if len < LARGE || self.volume.sb.has_ro_compat(ro_compat::LARGE_FILE) {
            return Ok(());
        }
        debug_assert_ne!(self.volume.sb.raw.s_rev_level.get(), 0, "no file gets so long there");
        let more = self.volume.sb.raw.s_feature_ro_compat.get() | ro_compat::LARGE_FILE;
        self.edit_superblock(core, |raw| {
            // Other features change while it is in use.
            let features = raw.s_feature_ro_compat.get();
            raw.s_feature_ro_compat = (features | ro_compat::LARGE_FILE).into();
        })?;
        self.volume.sb.raw.s_feature_ro_compat = more.into();
        Ok(())
    }

    /// Sets the feature for attributes before the first one is there (`ext_attr`).
    pub(super) fn allow_attributes(&mut self, core: &mut Core) -> Result<(), FsError> {
        if self.volume.sb.has_compat(compat::EXT_ATTR) {
            return Ok(());
        }
        let more = self.volume.sb.raw.s_feature_compat.get() | compat::EXT_ATTR;
        self.edit_superblock(core, |raw| raw.s_feature_compat = more.into())?;
        self.volume.sb.raw.s_feature_compat = more.into();
        Ok(())
    }
}

fn limits(sb: &Super, moves_dirs: bool) -> Limits {
    Limits {
        root: Ino::new(special::ROOT),
        inodes: sb.raw.s_inodes_count.get() + 1,
        block: sb.block_size,
        unit: sb.block_size,
        name_max: 255,
        // `EXT4_LINK_MAX`, which the kernel goes by on ext2 too.
        link_max: 65_000,
        // A block, with a final zero; paths have 4096 bytes with theirs.
        target_max: index(sb.block_size.min(4096)) - 1,
        dir_max: u64::from(u32::MAX),
        dir_unit: index(sb.block_size),
        moves_dirs,
    }
}

fn places(group: &Group) -> Places {
    Places {
        block_bitmap: group.block_bitmap(),
        inode_bitmap: group.inode_bitmap(),
        inode_table: group.inode_table(),
    }
}

/// The policies for inodes and for blocks.
type Policies = (Box<dyn InodePlacement>, Box<dyn BlockPlacement<ExtHints>>);

fn policies(sb: &Super, options: &LiveOptions) -> Result<Policies, FsError> {
    let unknown = |error: PolicyError| FsError::Invalid(error.to_string());
    let volume = ExtVolume {
        groups: sb.groups,
        groups_per_flex: groups_per_flex(sb),
        inodes_per_group: sb.inodes_per_group,
    };
    let (directories, others) = (&options.directories, options.inodes.as_deref());
    let inodes = ext_by_name(directories, others, &volume, options.seed);
    let blocks = options.blocks.as_deref().unwrap_or(Ext2Next::NAME);
    let volume = ExtBlocks {
        groups: sb.groups,
        groups_per_flex: groups_per_flex(sb),
        block_size: sb.block_size,
        blocks_per_group: sb.blocks_per_group,
    };
    let blocks = blocks_by_name(blocks, &volume, options.seed);
    let (inodes, blocks) = (inodes.map_err(unknown)?, blocks.map_err(unknown)?);
    // Blocks that a crash leaks there are never looked for.
    let checked = !sb.has_compat(compat::HAS_JOURNAL) && !sb.has_incompat(incompat::EXTENTS);
    if blocks.ahead() > 1 && !checked {
        let what =
            "ext2-next with more than one block at once, on an image with a journal or extents";
        return Err(FsError::Unsupported(what.into()));
    }
    Ok((inodes, blocks))
}

/// The volume of an image, after a recovery of its journal if needed. Nothing is written to an
/// image that could not be changed then.
fn recovered(
    device: &Arc<dyn BlockDevice>,
    discipline: Discipline,
    options: &LiveOptions,
) -> Result<Volume, FsError> {
    let volume = Volume::open(device.clone(), false)?;
    permit::features(&volume.sb, discipline)?;
    policies(&volume.sb, options)?;
    permit::delays(&volume.sb, options, discipline)?;
    let has_journal = discipline.journal_mode().is_some();
    if has_journal {
        check_usable(&volume)?;
    }
    let volume = if volume.sb.has_incompat(incompat::RECOVER) {
        recover_home(&mut Patches::new(device.clone()))?;
        let volume = Volume::open(device.clone(), false)?;
        permit::features(&volume.sb, discipline)?;
        volume
    } else {
        volume
    };
    let filed = volume.has_filed_orphans();
    if (!has_journal && !filed) || (has_journal && is_sound(&volume)?) {
        return Ok(volume);
    }
    if filed {
        // A check judges the damage, and without a journal nobody else takes numbers out.
        if crate::preen(device.clone())?.report.unexpected > 0 {
            return Err(permit::not_clean());
        }
        return Volume::open(device.clone(), false);
    }
    if options.force { Ok(volume) } else { Err(permit::not_clean()) }
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
        table.map_or_else(|| shape.base(number), |at| at + sb.itable_blocks())
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
