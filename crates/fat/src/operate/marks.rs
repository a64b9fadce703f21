//! The marks of a volume in use: in the boot sector, in the FATs, and with the counts.

use super::clusters::Clusters;
use super::map::Core;
use crate::boot::{Boot, Width};
use crate::ondisk::{
    BOOT_SIZE, EXTENDED, FsInfo, INFO_LEAD, INFO_ORDERED, INFO_STRUCT, INFO_TRAIL, INFO16_AT,
    INFO32_AT, STATE_DIRTY, STATE_ORDERED, UNKNOWN, VolumeInfo,
};
use crate::table::Table;
use crate::volume::Volume;
use seekless_cache::{Piece, Role};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::{byte, parse};
use seekless_units::{BlockNo, ByteLen};
use std::mem::offset_of;
use std::sync::Arc;

/// A volume's marks as they were when it was opened.
pub(super) struct VolumeMarks {
    boot: Arc<Boot>,
    /// Writes reach the disk in an order that leaves only chains without names.
    keeps_order: bool,
    /// It was unmounted, and no sector had failed.
    clean: bool,
    /// The boot sector has a state byte.
    has_state: bool,
    /// The sector of counts, if it is a valid one.
    info: Option<BlockNo>,
    /// Whether the bytes of the mark for ordered writes are unused.
    has_room: bool,
}

impl VolumeMarks {
    /// Reads the marks of a volume, and the hint for the search for clusters. `keeps_order` as
    /// in [`Clusters::new`].
    pub(super) fn read(
        volume: &Volume,
        boot: &Arc<Boot>,
        device: &dyn BlockDevice,
        keeps_order: bool,
    ) -> Result<(Self, Option<u32>), FsError> {
        let mut clean = !boot.is_dirty();
        if let Some((unmounted, sound)) = boot.width.marks() {
            let raw = Table::new(volume).raw(1)?;
            clean &= raw & unmounted != 0 && raw & sound != 0;
        }
        let mut bytes = [0; BOOT_SIZE];
        device.read_bytes(ByteLen::ZERO, &mut bytes)?;
        let extended: Option<VolumeInfo> = parse(&bytes, info_at(boot));
        let has_state = extended.is_some_and(|info| info.BS_BootSig == EXTENDED);
        let boot = Arc::clone(boot);
        let mut found = Self { boot, keeps_order, clean, has_state, info: None, has_room: false };
        let Some(sector) = found.boot.info else { return Ok((found, None)) };
        let sector = BlockNo::new(sector.into());
        device.read_bytes(found.boot.byte_of(sector), &mut bytes)?;
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

    /// Whether it was unmounted, and no sector had failed.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }

    /// Marks the volume as in use, or as it was found; returns when that is on the disk.
    pub(super) fn write(
        &self,
        core: &mut Core,
        clusters: &Clusters,
        close: bool,
    ) -> Result<(), FsError> {
        if close {
            self.write_info(core, clusters, true)?;
            flushed(core)?;
        }
        let clean = close && self.clean;
        if self.clean {
            clusters.table().put_marks(core, clean)?;
        }
        if self.has_state {
            let state = self.boot.state & !STATE_ORDERED;
            // An earlier crash may have left any damage.
            let in_order = self.clean && self.keeps_order && !self.boot.is_fat32();
            let state = match (clean, in_order) {
                (true, _) => state & !STATE_DIRTY,
                (false, true) => state | STATE_DIRTY | STATE_ORDERED,
                (false, false) if self.clean => state | STATE_DIRTY,
                (false, false) => state,
            };
            let skip = info_at(&self.boot) + offset_of!(VolumeInfo, BS_Reserved1);
            let piece = Piece { offset: byte(skip), bytes: &[state] };
            core.cache.changes().change(BlockNo::ZERO, &[piece], Role::Summary, &[])?;
        }
        if !close {
            self.write_info(core, clusters, false)?;
        }
        flushed(core)
    }

    /// Writes the count of free clusters, and where the search goes on; while the volume is in use
    /// the count is unknown.
    fn write_info(&self, core: &mut Core, clusters: &Clusters, known: bool) -> Result<(), FsError> {
        let Some(sector) = self.info else { return Ok(()) };
        let count = if known { clusters.free_on_disk() } else { UNKNOWN };
        let mut bytes = [count.to_le_bytes(), clusters.next().to_le_bytes()].concat();
        if self.has_room {
            let in_order = self.clean && self.keeps_order && !known;
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
}

/// Waits until every change is on the disk.
fn flushed(core: &mut Core) -> Result<(), FsError> {
    core.cache.sync()?;
    core.cache.blocks_mut().flush()
}

fn info_at(boot: &Boot) -> usize {
    if boot.width == Width::Fat32 { INFO32_AT } else { INFO16_AT }
}
