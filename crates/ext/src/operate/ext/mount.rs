//! Opening an image for changes, and closing it again.

use super::{Ext, recovery};
use crate::group::Group;
use crate::journal::{LogWriter, check_usable, recover_home};
use crate::ondisk::{DirEntryTail, compat, incompat, special};
use crate::operate::allocate::BlockAllocator;
use crate::operate::entries::Entries;
use crate::operate::groups::BlockGroups;
use crate::operate::layout::Layout;
use crate::operate::map::Core;
use crate::operate::maps::{FileMaps, MapRules};
use crate::operate::node::representable;
use crate::operate::numbers::InodeAllocator;
use crate::operate::orlov::groups_per_flex;
use crate::operate::orphan_file::{OrphanFile, is_sound};
use crate::operate::orphans::Orphans;
use crate::operate::primary::PrimarySuperblock;
use crate::operate::sums::Sealer;
use crate::operate::{LiveOptions, permit};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_cache::{Cache, Config, Discipline};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_fs::patches::Patches;
use seekless_live::{Limits, Progress};
use seekless_placement::PolicyError;
use seekless_placement::block::{
    BlockPlacement, Ext2Next, ExtBlocks, ExtHints, ext_by_name as blocks_by_name,
};
use seekless_placement::inode::{ExtVolume, InodePlacement, ext_by_name};
use seekless_units::{GroupNo, Ino};
use std::sync::{Arc, Mutex, PoisonError};

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
        let progress = match options.recover {
            true => recovery::begin(sb, config.discipline)?,
            false => Progress::None,
        };
        permit::check(sb, options.force || progress == Progress::UnderWay, config.discipline)?;
        let (inodes, blocks) = policies(sb, &options)?;
        let delays = permit::delays(sb, &options, config.discipline)?;
        let all: Vec<Group> = (0..sb.groups)
            .map(|number| volume.descriptors().read_checked(GroupNo::new(number)))
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
        let limits = limits(sb, options.moves_dirs);
        let layout = Arc::new(Layout::new(volume, &all, log));
        let mut groups = BlockGroups::new(Arc::clone(&layout), &all, inodes);
        if progress == Progress::UnderWay {
            groups.distrust_counts();
        }
        let space = BlockAllocator::new(Arc::clone(&layout), groups, blocks);
        let shadows = matches!(config.discipline, Discipline::Sync | Discipline::Normal);
        let maps = FileMaps::new(Arc::clone(&layout), space, MapRules { shadows, delays });
        let has_more = maps.tables().has_birth();
        let format = Self {
            limits,
            entries,
            superblock: PrimarySuperblock::new(Arc::clone(&layout), config.discipline),
            maps,
            inodes: InodeAllocator::new(Arc::clone(&layout)),
            orphans: Orphans::new(orphan_file),
            is_doubtful: options.force,
            progress,
            layout,
        };
        let core = Core::new(cache, Box::new(move || representable(has_more, tell())));
        Ok((format, core))
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
    let mut inodes = ext_by_name(directories, others, &volume, options.seed);
    let windows = inodes.as_mut().ok().and_then(|inodes| inodes.windows());
    if let (Some(windows), Some(areas)) = (windows, &options.areas) {
        windows.link(areas.clone());
    }
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
    if options.recover {
        recovery::refuse_journal(&volume.sb)?;
    }
    let has_journal = discipline.journal_mode().is_some();
    if has_journal {
        check_usable(&volume)?;
    }
    let volume = if volume.sb.has_incompat(incompat::RECOVER) {
        recover_home(&mut Patches::new(device.clone()), None)?;
        let volume = Volume::open(device.clone(), false)?;
        permit::features(&volume.sb, discipline)?;
        volume
    } else {
        volume
    };
    let filed = volume.sb.has_filed_orphans();
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
