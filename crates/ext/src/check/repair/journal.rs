//! A journal that is emptied.

use super::superblock::{self, byte_of};
use crate::journal;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::patches::Patches;
use seekless_units::{Ino, Lbn};

/// Empties a journal that cannot be replayed, after what of it can. A volume whose
/// journal is not there any more has none from now on.
///
/// # Errors
/// What the device gives.
pub(super) fn empty(disk: &mut Patches) -> Result<(), FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    match journal::salvage(&volume) {
        Ok(Some(replayed)) => journal::write_home(disk, &volume, &replayed)?,
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
            journal::note_recovered(disk)?;
        }
        Ok((_, None)) | Err(FsError::Corrupt { .. }) => superblock::drop_journal(disk)?,
        Err(error) => return Err(error),
    }
    Ok(())
}
