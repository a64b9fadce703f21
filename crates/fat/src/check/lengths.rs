//! Whether the lengths of files fit their chains of clusters. A chain tells how many clusters a file
//! has, so the lengths of a few files tell how large a cluster is.

use super::layout::entries_of_root;
use crate::boot::Boot;
use crate::table::{Link, entry_byte, entry_of};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::ByteLen;

/// Most files, and most clusters of one, that are looked at.
const MOST_FILES: usize = 32;
const MOST_CLUSTERS: u32 = 4096;

/// How many files of the root directory that need two clusters or more have lengths that fit.
pub(super) struct Lengths {
    pub(super) fitting: usize,
    pub(super) all: usize,
}

impl Lengths {
    pub(super) fn of(device: &dyn BlockDevice, boot: &Boot) -> Result<Self, FsError> {
        let mut found = Self { fitting: 0, all: 0 };
        for entry in entries_of_root(device, boot)? {
            if entry.is_directory() || found.all == MOST_FILES {
                continue;
            }
            let wanted = boot.clusters_for(entry.DIR_FileSize.get().into());
            let count = clusters(device, boot, entry.first_cluster(boot.is_fat32()))?;
            // One cluster fits by any size that is large enough.
            if count != Some(1) || wanted != 1 {
                found.all += 1;
                found.fitting += usize::from(count == Some(wanted));
            }
        }
        Ok(found)
    }
}

/// The number of clusters in a chain, if it ends.
fn clusters(device: &dyn BlockDevice, boot: &Boot, first: u32) -> Result<Option<u32>, FsError> {
    let (mut cluster, mut count) = (first, 1);
    while boot.is_cluster(cluster) && count < MOST_CLUSTERS {
        let mut bytes = [0; 4];
        let at = boot.byte_of(boot.fat_start(0)).get() + entry_byte(boot.width, cluster);
        device.read_bytes(ByteLen::new(at), &mut bytes)?;
        match Link::of(boot, entry_of(boot.width, cluster, bytes) & boot.width.mask()) {
            Link::Next(next) => (cluster, count) = (next, count + 1),
            Link::End => return Ok(Some(count)),
            Link::Free | Link::Bad | Link::Wrong(_) => return Ok(None),
        }
    }
    Ok(None)
}
