//! Opening an image for changes: refusals, and the limits of a volume.

use crate::boot::Boot;
use crate::files::ROOT;
use crate::ondisk::NAME_BYTES;
use crate::table::Table;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::{index, invalid};
use seekless_live::Limits;

/// Checks that the first entry of the FAT repeats the medium, as FreeBSD requires.
pub(super) fn check_media(volume: &Volume) -> Result<(), FsError> {
    let boot = &volume.boot;
    let raw = Table::new(volume).raw(0)? & boot.width.mask();
    let wanted = boot.width.mask() & !0xFF | u32::from(boot.media);
    if raw != wanted {
        let place = crate::table::entry_place(boot, boot.active, 0);
        return Err(invalid("first entry of the FAT", raw.into(), place));
    }
    Ok(())
}

pub(super) fn limits(boot: &Boot) -> Limits {
    Limits {
        root: ROOT,
        inodes: u32::MAX,
        block: u32::try_from(boot.cluster_bytes()).unwrap_or(u32::MAX),
        unit: boot.sector,
        name_max: index(NAME_BYTES),
        link_max: 1,
        target_max: 0,
        dir_max: u64::from(crate::ondisk::MOST_ENTRIES) << 5,
        dir_unit: usize::try_from(boot.sector).unwrap_or(usize::MAX),
        moves_dirs: true,
    }
}
