//! A damaged journal: emptied, its inode restored, or dropped.

use super::Work;
use super::inode::InodeMut;
use super::superblock::{self, byte_of};
use crate::journal;
use crate::ondisk::flags;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent, Ino, Lbn};

/// Repairs the journal.
pub(super) struct JournalRepair<'w, 'a> {
    work: &'w mut Work<'a>,
}

impl<'w, 'a> JournalRepair<'w, 'a> {
    /// As a part of the work of a round.
    pub(super) fn of(work: &'w mut Work<'a>) -> Self {
        Self { work }
    }

    /// Empties a journal that cannot be replayed, after replaying the readable part. A volume whose
    /// journal cannot be found, or begins in a block of something else, has none from now on.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn empty(&mut self) -> Result<(), FsError> {
        let volume = Volume::open(self.work.disk.device().clone(), true)?;
        match journal::salvage(&volume) {
            Ok(Some(replayed)) => journal::write_home(self.work.disk, &volume, &replayed)?,
            Ok(None) | Err(FsError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        let ino = Ino::new(volume.sb.raw.s_journal_inum.get());
        let found = journal::locate(&volume, ino).and_then(|inode| {
            journal::check_whole(&volume, &inode)?;
            let first = volume.maps().map_block(&inode, Lbn::ZERO)?;
            Ok((inode.len, first))
        });
        match found {
            Ok((len, Some(first))) if !self.work.is_claimed_twice(first.extent.start) => {
                let at = byte_of(&volume.sb, first.extent.start);
                let mut block = self.work.disk.read(at, volume.block_len())?;
                let blocks = len / u64::from(volume.sb.block_size);
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                journal::reset(&mut block, blocks, volume.sb.block_size);
                self.work.disk.put(at, &block)?;
                self.work.disk.flush()?;
                journal::note_recovered(self.work.disk)
            }
            // Its inode goes as well: else it would claim blocks before their files do.
            Ok(_) | Err(FsError::Corrupt { .. }) => self.discard(ino),
            Err(error) => Err(error),
        }
    }

    /// Gives the journal's inode the map copied in the superblock, if that still leads to a
    /// journal; else the volume has no journal from now on (e2fsck makes a new one).
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn restore(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &self.work.checker.volume;
        let copy = journal::copied_map(volume);
        let found = journal::locate(volume, ino);
        let (Some(copy), Ok(found)) = (copy, found) else { return self.discard(ino) };
        if found.core.i_block.0 != copy.i_block.0 {
            return self.discard(ino);
        }
        let map = match volume.maps().block_map(&found) {
            Err(FsError::Corrupt { .. }) => return self.discard(ino),
            map => map?,
        };
        let runs = map.runs.iter().map(|run| run.extent);
        let index = map.index.iter().map(|node| Extent::new(node.block, 1));
        let is_whole = journal::check_whole(volume, &found).is_ok();
        let is_shared = runs.chain(index).any(|run| {
            (run.start.get()..run.end().get())
                .any(|at| self.work.is_claimed_twice(BlockNo::new(at)))
        });
        if !is_whole || is_shared {
            return self.discard(ino);
        }
        let data: u64 = map.runs.iter().map(|run| run.extent.len).sum();
        let blocks = data + u64::try_from(map.index.len()).unwrap_or(u64::MAX);
        let sectors = blocks * u64::from(volume.sb.block_size >> 9);
        let extra = volume.sb.raw.s_want_extra_isize.get();
        let time = superblock::time(self.work.checker.sb());
        self.work.change(ino, |inode: &mut InodeMut| {
            inode.begin(journal::INODE_MODE, extra, time);
            let core = inode.core_mut();
            core.i_links_count = 1.into();
            core.i_flags = (if copy.has_extents { flags::EXTENTS } else { 0 }).into();
            inode.set_len(copy.len);
            inode.set_map(copy.i_block);
            inode.set_sectors(sectors);
        })
    }

    /// Drops the journal: the volume has none from now on, and its blocks are free.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn discard(&mut self, ino: Ino) -> Result<(), FsError> {
        superblock::drop_journal(self.work.disk)?;
        self.work.change(ino, InodeMut::clear)
    }
}
