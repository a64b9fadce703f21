//! A device seen through its boot sector.

use crate::boot::Boot;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, range, wide};
use seekless_fs::read_cache::{Block, BlockCache};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, ByteLen};
use std::sync::Arc;

/// Bytes of a FAT in one read.
pub(crate) const PAGE: usize = 4096;

/// An open volume, which every part of the reader uses.
pub(crate) struct Volume {
    device: Arc<dyn BlockDevice>,
    pub(crate) boot: Boot,
    /// Pages of the FAT, by their number.
    fat: BlockCache,
    /// Sectors of directories.
    sectors: BlockCache,
}

impl Volume {
    pub(crate) fn open(device: Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let boot = Boot::read(device.as_ref())?;
        Ok(Self::with(device, boot))
    }

    /// A device seen through a given boot sector.
    pub(crate) fn with(device: Arc<dyn BlockDevice>, boot: Boot) -> Self {
        let page = u32::try_from(PAGE).unwrap_or(u32::MAX);
        let (fat, sectors) = (BlockCache::new(page), BlockCache::new(boot.sector));
        Self { device, boot, fat, sectors }
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// A page of one of the FATs; the last one may be short.
    pub(crate) fn fat_page(&self, fat: u32, page: u64) -> Result<Block, FsError> {
        let len = self.boot.byte_of(BlockNo::new(self.boot.fat_sectors.into())).get();
        let pages = len.div_ceil(wide(PAGE));
        let from = page * wide(PAGE);
        if from >= len {
            return Err(range("FAT page", page, pages, Location::of("FAT")));
        }
        debug_assert!(fat < self.boot.fats, "FAT {fat} of {}", self.boot.fats);
        let key = BlockNo::new(u64::from(fat) * pages + page);
        if let Some(block) = self.fat.get(key) {
            return Ok(block);
        }
        let start = self.boot.byte_of(self.boot.fat_start(fat)).get();
        let mut bytes = vec![0; index(len - from).min(PAGE)];
        self.device.read_bytes(ByteLen::new(start + from), &mut bytes)?;
        let block: Block = Arc::from(bytes);
        self.fat.insert(key, block.clone());
        Ok(block)
    }

    /// A sector of a directory.
    pub(crate) fn sector(&self, at: BlockNo) -> Result<Block, FsError> {
        if let Some(block) = self.sectors.get(at) {
            return Ok(block);
        }
        let mut bytes = vec![0; index(self.boot.sector)];
        self.read_bytes(at, 0, &mut bytes)?;
        let block: Block = Arc::from(bytes);
        self.sectors.insert(at, block.clone());
        Ok(block)
    }

    /// Reads from byte `skip` behind sector `start`, past the caches. The range
    /// must have been checked.
    pub(crate) fn read_bytes(
        &self,
        start: BlockNo,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        debug_assert!(start.get() < u64::from(self.boot.total), "sector {start} was checked");
        let at = self.boot.byte_of(start).get() + skip;
        self.device.read_bytes(ByteLen::new(at), buf)?;
        Ok(())
    }
}
