//! Describes a volume, for people and for other parts of seekless.

use crate::boot::Boot;
use crate::files::Files;
use crate::name;
use crate::ondisk::ENTRY_SIZE;
use crate::table::Table;
use crate::volume::Volume;
use seekless_fs::{FsError, Geometry};
use seekless_units::BlockNo;

/// The shape of a volume with `free` free clusters. FAT has no groups and no inodes: the volume is
/// one group, and there are as many inodes as files.
pub(crate) fn geometry(volume: &Volume, files: &Files, free: u64) -> Result<Geometry, FsError> {
    let boot = &volume.boot;
    debug_assert!(free <= u64::from(boot.clusters), "{free} of {} are free", boot.clusters);
    let mut uuid = [0; 16];
    for (to, from) in uuid.iter_mut().zip(boot.id.unwrap_or(0).to_be_bytes()) {
        *to = from;
    }
    let label = files.label.map(|label| name::label(&label));
    Ok(Geometry {
        format: boot.width.name(),
        block_size: boot.sector,
        blocks: boot.total.into(),
        free_blocks: free * u64::from(boot.spc),
        blocks_per_group: boot.total.into(),
        first_block: BlockNo::ZERO,
        groups: 1,
        inodes: files.count(),
        free_inodes: 0,
        inodes_per_group: files.count(),
        inode_size: u32::try_from(ENTRY_SIZE).unwrap_or(0),
        cluster_blocks: boot.spc,
        label: label.unwrap_or_else(|| boot.shown_label()),
        uuid,
        features: features(volume, boot)?,
    })
}

fn features(volume: &Volume, boot: &Boot) -> Result<Vec<String>, FsError> {
    let mut names = vec![
        format!("clusters={}", boot.clusters),
        format!("fats={}", boot.fats),
        format!("fat-sectors={}", boot.fat_sectors),
        format!("reserved-sectors={}", boot.reserved),
        format!("media={:#04x}", boot.media),
    ];
    match boot.root_cluster {
        0 => names.push(format!("root-entries={}", boot.root_entries)),
        first => names.push(format!("root-cluster={first}")),
    }
    names.extend(boot.info.map(|sector| format!("fsinfo={sector}")));
    names.extend(boot.backup.map(|sector| format!("backup-boot={sector}")));
    if !boot.mirrored {
        names.push(format!("active-fat={}", boot.active));
    }
    if boot.is_dirty() {
        names.push("dirty".into());
    }
    let marks = Table::new(volume).raw(1)?;
    if let Some((clean, sound)) = boot.width.marks() {
        if marks & clean == 0 {
            names.push("not-clean".into());
        }
        if marks & sound == 0 {
            names.push("disk-errors".into());
        }
    }
    Ok(names)
}
