//! Opening an image for changes, and closing it again.

use super::directory::Directories;
use super::marks::VolumeMarks;
use super::numbers::Numbers;
use super::slots::MANY_DEPARTED;
use super::space::count;
use super::stamps::Zone;
use super::unnamed::Unnamed;
use super::{Core, Fat, LiveOptions};
use crate::boot::{Boot, Width};
use crate::files::ROOT;
use crate::ondisk::{
    BOOT_SIZE, EXTENDED, FsInfo, INFO_LEAD, INFO_ORDERED, INFO_STRUCT, INFO_TRAIL, INFO16_AT,
    INFO32_AT, STATE_DIRTY, STATE_ORDERED, UNKNOWN, VolumeInfo,
};
use crate::table::Table;
use crate::volume::Volume;
use hashbrown::HashMap;
use seekless_cache::{Cache, Config, Discipline, Piece, Role};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_fs::field::{byte, invalid, parse};
use seekless_live::{Limits, NameOrder};
use seekless_placement::cluster::ClusterPlacement;
use seekless_units::{BlockNo, ByteLen};
use std::mem::offset_of;
use std::sync::Arc;

impl Fat {
    /// Opens an image, and changes nothing of it.
    pub(super) fn open_image(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: LiveOptions,
    ) -> Result<(Self, Core), FsError> {
        if config.discipline.journal_mode().is_some() {
            return Err(FsError::Unsupported("a journal on FAT".into()));
        }
        let volume = Volume::open(Arc::clone(&device))?;
        check_media(&volume)?;
        let (found, hint) = look(&volume, device.as_ref())?;
        if !found.clean && !options.force {
            let what = "the volume is marked as in use, or as damaged: it was not unmounted. \
                        Check it first (seekless check -p), or mount with -o force";
            return Err(FsError::Invalid(what.into()));
        }
        let boot = &volume.boot;
        let counted = count(&volume)?;
        let name = options.clusters.as_deref().unwrap_or(ClusterPlacement::DEFAULT);
        let policy = ClusterPlacement::by_name(name, boot.last_cluster(), hint, options.seed)
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let limits = limits(boot);
        let cache = Cache::new(device, clock, boot.sector, boot.sector, config)?;
        let ordered = matches!(config.discipline, Discipline::Sync | Discipline::SoftUpdates);
        let mut format = Self {
            zone: Zone::new(options.zone),
            limits,
            used: counted.used,
            followed: counted.followed,
            free: counted.free,
            aside: counted.aside,
            // No write changes both sectors at once.
            avoids_straddling: ordered && boot.width == Width::Fat12,
            keeps_order: ordered,
            policy,
            numbers: Numbers::new(),
            directories: Directories::default(),
            leaving: HashMap::new(),
            arriving: HashMap::new(),
            reached: HashMap::new(),
            opened: HashMap::new(),
            departed: HashMap::new(),
            many_departed: MANY_DEPARTED,
            unnamed: Unnamed::default(),
            found,
            volume,
        };
        format.set_straddling_aside();
        Ok((format, Core::new(cache, options.wall)))
    }

    /// Marks the volume as in use, or as it was found; returns when that is on the disk.
    pub(super) fn write_marks(&mut self, core: &mut Core, close: bool) -> Result<(), FsError> {
        if close {
            self.write_info(core, true)?;
            flushed(core)?;
        }
        let clean = close && self.found.clean;
        if self.found.clean {
            self.put_marks(core, clean)?;
        }
        if self.found.has_state {
            let state = self.boot().state & !STATE_ORDERED;
            // An earlier crash may have left any damage.
            let in_order = self.found.clean && self.keeps_order && !self.is_fat32();
            let state = match (clean, in_order) {
                (true, _) => state & !STATE_DIRTY,
                (false, true) => state | STATE_DIRTY | STATE_ORDERED,
                (false, false) if self.found.clean => state | STATE_DIRTY,
                (false, false) => state,
            };
            let skip = info_at(self.boot()) + offset_of!(VolumeInfo, BS_Reserved1);
            let piece = Piece { offset: byte(skip), bytes: &[state] };
            core.cache.changes().change(BlockNo::ZERO, &[piece], Role::Summary, &[])?;
        }
        if !close {
            self.write_info(core, false)?;
        }
        flushed(core)
    }

    /// Writes the count of free clusters, and where the search goes on; while the volume is in use
    /// the count is unknown.
    fn write_info(&mut self, core: &mut Core, known: bool) -> Result<(), FsError> {
        let Some(sector) = self.found.info else { return Ok(()) };
        let count = if known { self.free_on_disk() } else { UNKNOWN };
        let mut bytes = [count.to_le_bytes(), self.policy.next().to_le_bytes()].concat();
        if self.found.has_room {
            let in_order = self.found.clean && self.keeps_order && !known;
            bytes.extend(if in_order { INFO_ORDERED } else { [0; INFO_ORDERED.len()] });
        }
        let offset = byte(offset_of!(FsInfo, FSI_Free_Count));
        core.cache.changes().change(
            sector,
            &[Piece { offset, bytes: &bytes }],
            Role::Summary,
            &[],
        )?;
        Ok(())
    }

    /// Free clusters, including those set aside. Only FAT32 has this count, where no entry lies in
    /// two sectors.
    fn free_on_disk(&self) -> u32 {
        debug_assert!(!self.avoids_straddling, "FAT12 has no counts");
        self.free + self.aside
    }
}

/// Waits until every change is on the disk.
fn flushed(core: &mut Core) -> Result<(), FsError> {
    core.cache.sync()?;
    core.cache.blocks_mut().flush()
}

fn info_at(boot: &Boot) -> usize {
    if boot.width == Width::Fat32 { INFO32_AT } else { INFO16_AT }
}

/// Checks that the first entry of the FAT repeats the medium, as FreeBSD requires.
fn check_media(volume: &Volume) -> Result<(), FsError> {
    let boot = &volume.boot;
    let raw = Table::new(volume).raw(0)? & boot.width.mask();
    let wanted = boot.width.mask() & !0xFF | u32::from(boot.media);
    if raw != wanted {
        let place = crate::table::entry_place(boot, boot.active, 0);
        return Err(invalid("first entry of the FAT", raw.into(), place));
    }
    Ok(())
}

/// The marks of a volume, and the hint for the search for clusters.
fn look(volume: &Volume, device: &dyn BlockDevice) -> Result<(VolumeMarks, Option<u32>), FsError> {
    let boot = &volume.boot;
    let mut clean = !boot.is_dirty();
    if let Some((unmounted, sound)) = boot.width.marks() {
        let raw = Table::new(volume).raw(1)?;
        clean &= raw & unmounted != 0 && raw & sound != 0;
    }
    let mut bytes = [0; BOOT_SIZE];
    device.read_bytes(ByteLen::ZERO, &mut bytes)?;
    let extended: Option<VolumeInfo> = parse(&bytes, info_at(boot));
    let has_state = extended.is_some_and(|info| info.BS_BootSig == EXTENDED);
    let mut found = VolumeMarks { clean, has_state, info: None, has_room: false };
    let Some(sector) = boot.info else { return Ok((found, None)) };
    let sector = BlockNo::new(sector.into());
    device.read_bytes(boot.byte_of(sector), &mut bytes)?;
    let info: Option<FsInfo> = parse(&bytes, 0);
    let marks = |info: &FsInfo| {
        info.FSI_LeadSig.get() == INFO_LEAD
            && info.FSI_StrucSig.get() == INFO_STRUCT
            && info.FSI_TrailSig.get() == INFO_TRAIL
    };
    let info = info.filter(marks);
    found.info = info.as_ref().map(|_| sector);
    found.has_room = info.as_ref().is_some_and(|info| {
        let reserved = info.FSI_Reserved2;
        reserved.starts_with(&INFO_ORDERED) || reserved.starts_with(&[0; INFO_ORDERED.len()])
    });
    Ok((found, info.map(|info| info.FSI_Nxt_Free.get())))
}

fn limits(boot: &Boot) -> Limits {
    Limits {
        root: ROOT,
        inodes: u32::MAX,
        block: u32::try_from(boot.cluster_bytes()).unwrap_or(u32::MAX),
        unit: boot.sector,
        name_max: super::format::name_max(),
        link_max: 1,
        target_max: 0,
        dir_max: u64::from(crate::ondisk::MOST_ENTRIES) << 5,
        dir_unit: usize::try_from(boot.sector).unwrap_or(usize::MAX),
        // There are no inodes, so that there is no order between them and their names.
        names: NameOrder::LinksFirst,
        moves_dirs: true,
    }
}
