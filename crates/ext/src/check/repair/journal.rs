//! The journal written back, or emptied.

use super::superblock::{self, byte_of};
use crate::journal::{self, Replayed};
use crate::ondisk::SUPERBLOCK_OFFSET;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use seekless_units::{Ino, Lbn};

/// Writes back what waits in the journal.
///
/// # Errors
/// What the device gives.
pub(super) fn replay(disk: &mut Patches) -> Result<(), FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    if let Some(replayed) = journal::replay_checked(&volume)? {
        write_back(disk, &volume, &replayed)?;
    }
    superblock::recovered(disk)
}

/// Writes home what a recovery changes, then that the journal is empty, then that
/// nothing waits in it: at any time before, all of it is done once more.
fn write_back(disk: &mut Patches, volume: &Volume, replayed: &Replayed) -> Result<(), FsError> {
    let head = byte_of(&volume.sb, replayed.head);
    let end = disk.device().len().get();
    let chunks = replayed.overlay.chunks();
    for (at, bytes) in chunks.iter().filter(|(at, _)| *at != head) {
        let len = index(end.saturating_sub(*at)).min(bytes.len());
        let bytes = bytes.get(..len).unwrap_or_default();
        disk.put(*at, bytes)?;
        let holds = *at <= SUPERBLOCK_OFFSET && at.saturating_add(wide(len)) > SUPERBLOCK_OFFSET;
        if holds {
            // A copy in the journal may be from before it was said that something waits.
            superblock::waiting(disk)?;
        }
    }
    disk.flush()?;
    for (at, bytes) in chunks.iter().filter(|(at, _)| *at == head) {
        disk.put(*at, bytes)?;
    }
    disk.flush()
}

/// Empties a journal that cannot be replayed, after what of it can. A volume whose
/// journal is not there any more has none from now on.
///
/// # Errors
/// What the device gives.
pub(super) fn empty(disk: &mut Patches) -> Result<(), FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    match journal::salvage(&volume) {
        Ok(Some(replayed)) => write_back(disk, &volume, &replayed)?,
        Ok(None) | Err(FsError::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let ino = Ino::new(volume.sb.raw.s_journal_inum.get());
    let found = volume.inode(ino).and_then(|inode| {
        let first = volume.map_block(&inode, Lbn::ZERO)?;
        Ok((inode.len, first))
    });
    match found {
        Ok((len, Some(first))) => {
            let at = byte_of(&volume.sb, first.extent.start);
            let mut block = disk.read(at, volume.block_len())?;
            let blocks = len.checked_div(u64::from(volume.sb.block_size)).unwrap_or(0);
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            journal::reset(&mut block, blocks, volume.sb.block_size);
            disk.put(at, &block)?;
            disk.flush()?;
            superblock::recovered(disk)?;
        }
        Ok((_, None)) | Err(FsError::Corrupt { .. }) => superblock::drop_journal(disk)?,
        Err(error) => return Err(error),
    }
    Ok(())
}
