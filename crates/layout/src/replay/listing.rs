//! Listings of directories, which ext4 reads ahead on the device where there is no
//! index (`ext4_readdir` of `fs/ext4/dir.c`, `page_cache_sync_ra` of
//! `mm/readahead.c`, kernel 6.18).

use super::readahead::ReadAhead;
use super::{PAGE, Purpose, Replay};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

impl Replay<'_> {
    pub(super) fn list(&mut self, dir: Ino) -> Result<(), FsError> {
        if self.kind(dir)? != FileKind::Directory || !self.listed.insert(dir) {
            return Ok(());
        }
        let blocks = self.image.listing_blocks(dir)?;
        if self.reads_ahead(dir)? {
            self.list_ahead(dir, &blocks)
        } else {
            self.read_directory(dir, &blocks)
        }
    }

    /// Whether a listing takes the blocks in their own order. With an index, and if
    /// there is only one block, the kernel takes the entries in the order of their
    /// hashes, and reads nothing ahead (`is_dx_dir`).
    fn reads_ahead(&self, dir: Ino) -> Result<bool, FsError> {
        let shape = self.image.geometry();
        if !self.machine.listing_read_ahead
            || !shape.format.starts_with("ext")
            || self.block_size > PAGE
            || self.image.unindexed_blocks(dir)?.is_none()
        {
            return Ok(false);
        }
        let hashes = shape.features.iter().any(|feature| feature == "dir_index");
        Ok(!hashes || self.image.attr(dir)?.size / self.block_size != 1)
    }

    /// Each open directory has a read-ahead state like a file; its positions are pages of the
    /// device, where it also looks for earlier reads.
    fn list_ahead(&mut self, dir: Ino, blocks: &[Lbn]) -> Result<(), FsError> {
        let mut state = ReadAhead::new(self.limits());
        let device = self.image.geometry().blocks;
        let pages = (device * self.block_size).div_ceil(PAGE);
        for &lbn in blocks {
            self.read_map(dir, lbn)?;
            let Some(run) = self.map(dir)?.find(lbn) else { continue };
            let block = run.extent.start;
            let page = block.get() * self.block_size / PAGE;
            for (from, to) in state.list(&mut self.device, page, pages) {
                let first = from * PAGE / self.block_size;
                let end = (to * PAGE / self.block_size).min(device);
                let ahead = Extent::new(BlockNo::new(first), end.saturating_sub(first));
                self.read_buffers(ahead, Purpose::Directory, dir, lbn);
            }
            self.read_buffers(Extent::new(block, 1), Purpose::Directory, dir, lbn);
            self.touched.insert(block);
        }
        Ok(())
    }
}
