//! A damaged journal: emptied, its inode restored, or dropped.

use super::Work;
use super::inode::InodeMut;
use super::map::{contiguous, count_clusters, sectors_per_cluster};
use super::superblock::{self, byte_of};
use crate::journal::{self, External};
use crate::ondisk::{OWN_FILE_MODE, flags, incompat};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::wide;
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

    /// Empties a journal that cannot be replayed, after replaying the readable part. A journal that
    /// cannot be found, or begins in a block of something else, is given up.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn empty(&mut self) -> Result<(), FsError> {
        let volume = Volume::open(self.work.disk.device().clone(), true)?;
        let external = self.external(&volume)?;
        match journal::salvage(&volume, external.as_ref()) {
            Ok(Some(replayed)) => journal::write_home(self.work.disk, &volume, &replayed)?,
            Ok(None) | Err(FsError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        if let Some(external) = external {
            return self.empty_external(&external);
        }
        let ino = Ino::new(volume.sb.raw.s_journal_inum.get());
        let found = journal::locate(&volume, ino).and_then(|inode| {
            // Its blocks may be those of a file.
            let is_lost = journal::is_lost(&volume, &inode)?;
            let first = volume.maps().map_block(&inode, Lbn::ZERO)?;
            Ok((inode.len, first.filter(|_| !is_lost)))
        });
        match found {
            Ok((len, Some(first))) if !self.work.is_claimed_twice(first.extent.start) => {
                let at = byte_of(&volume.sb, first.extent.start);
                let mut block = self.work.disk.read(at, volume.block_len())?;
                let blocks = len / u64::from(volume.sb.block_size);
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                journal::reset(&mut block, blocks, volume.sb.block_size, 1);
                self.work.disk.put(at, &block)?;
                self.work.disk.flush()?;
                journal::note_recovered(self.work.disk)
            }
            // Its inode goes as well: else it would claim blocks before their files do.
            Ok(_) | Err(FsError::Corrupt { .. }) => self.discard(ino),
            Err(error) => Err(error),
        }
    }

    /// The journal of a volume that has it on another device.
    fn external(&self, volume: &Volume) -> Result<Option<External>, FsError> {
        External::of(&volume.sb, self.work.checker.journal.as_ref())
    }

    /// Empties a journal on another device. Where the superblock of a journal should be is something
    /// else: then the volume has no journal from now on, and nothing is written there.
    fn empty_external(&mut self, external: &External) -> Result<(), FsError> {
        if !external.has_magic()? {
            return superblock::drop_journal(self.work.disk);
        }
        self.work.journal_writes += u64::from(external.reset()?);
        journal::note_recovered(self.work.disk)
    }

    /// Gives the journal's inode the map copied in the superblock, if that still leads to a
    /// journal; else the journal is given up.
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
        let data = count_clusters(&volume.sb, map.runs.iter().map(|run| run.extent));
        let index = map.index.iter().map(|node| Extent::new(node.block, 1));
        let clusters = data + count_clusters(&volume.sb, index);
        let sectors = clusters * sectors_per_cluster(&volume.sb);
        let extra = volume.sb.raw.s_want_extra_isize.get();
        let time = superblock::time(self.work.checker.sb());
        self.work.change(ino, |inode: &mut InodeMut| {
            inode.begin(OWN_FILE_MODE, extra, time);
            let core = inode.core_mut();
            core.i_links_count = 1.into();
            core.i_flags = (if copy.has_extents { flags::EXTENTS } else { 0 }).into();
            inode.set_len(copy.len);
            inode.set_map(copy.i_block);
            inode.set_sectors(sectors);
        })
    }

    /// Gives the journal up: its blocks are free. A new one is made when the rest of the volume is
    /// repaired.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn discard(&mut self, ino: Ino) -> Result<(), FsError> {
        superblock::forget_journal(self.work.disk)?;
        match self.work.change(ino, InodeMut::clear) {
            // There is no such inode.
            Err(FsError::Corrupt { .. }) => Ok(()),
            done => done,
        }
    }

    /// Makes a journal in an unused inode, of the size that a new volume gives it or of the least.
    /// Without room for one the volume has none from now on, as with e2fsck.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn make(&mut self, ino: Ino) -> Result<(), FsError> {
        // Inodes that cannot be found may have any block.
        if self.work.checker.has_lost_blocks() {
            return superblock::drop_journal(self.work.disk);
        }
        let sb = self.work.checker.sb();
        for count in [journal::default_blocks(sb.blocks), journal::MIN_BLOCKS] {
            let Some(blocks) = self.work.take_blocks(count) else { continue };
            if self.make_of(ino, &blocks)? {
                return Ok(());
            }
            self.work.give_blocks(&blocks);
        }
        superblock::drop_journal(self.work.disk)
    }

    /// Makes a journal of these blocks; whether there was room for its map.
    fn make_of(&mut self, ino: Ino, blocks: &[BlockNo]) -> Result<bool, FsError> {
        let Some(&first) = blocks.first() else { return Ok(false) };
        let volume = &self.work.checker.volume;
        let sb = &volume.sb;
        let extra = sb.raw.s_want_extra_isize.get();
        let mut inode = InodeMut::read(volume, self.work.disk, ino)?;
        inode.begin(OWN_FILE_MODE, extra, superblock::time(sb));
        inode.core_mut().i_links_count = 1.into();
        if sb.has_incompat(incompat::EXTENTS) {
            inode.core_mut().i_flags = flags::EXTENTS.into();
        }
        if !self.work.put_map(&mut inode, &contiguous(blocks))? {
            return Ok(false);
        }
        let len = wide(blocks.len()) * u64::from(sb.block_size);
        inode.set_len(len);
        let at = byte_of(sb, first);
        // A replay could take old contents for a transaction.
        let zeros = vec![0; volume.block_len()];
        for &block in blocks {
            self.work.disk.put(byte_of(sb, block), &zeros)?;
        }
        let mut head = zeros;
        let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        journal::reset(&mut head, count, sb.block_size, 1);
        self.work.disk.put(at, &head)?;
        self.work.disk.flush()?;
        inode.write(volume, self.work.disk)?;
        self.work.disk.flush()?;
        superblock::note_journal(self.work.disk, ino, &inode.core().i_block, len)?;
        Ok(true)
    }

    /// Clears the fields of the journal's superblock that it should not have.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn clear_fields(&mut self) -> Result<(), FsError> {
        let volume = &self.work.checker.volume;
        if let Some(external) = self.external(volume)? {
            self.work.journal_writes += u64::from(external.clear_foreign_fields()?);
            return Ok(());
        }
        let inode = volume.inodes().read(Ino::new(volume.sb.raw.s_journal_inum.get()))?;
        let Some(run) = volume.maps().map_block(&inode, Lbn::ZERO)? else { return Ok(()) };
        let at = byte_of(&volume.sb, run.extent.start);
        let mut head = self.work.disk.read(at, volume.block_len())?;
        journal::clear_foreign_fields(&mut head);
        self.work.disk.put(at, &head)
    }
}
