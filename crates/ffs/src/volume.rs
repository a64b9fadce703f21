//! A device seen through its superblock: blocks by their first fragment.

use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, range, wide};
use seekless_fs::read_cache::{Block, BlockCache};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent};
use std::sync::Arc;

/// An open volume, which every part of the reader uses.
pub(crate) struct Volume {
    device: Arc<dyn BlockDevice>,
    pub(crate) sb: Super,
    cache: BlockCache,
    /// Ignore a check hash that does not match.
    pub(crate) ignore_checksums: bool,
}

impl Volume {
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        ignore_checksums: bool,
    ) -> Result<Self, FsError> {
        let sb = Super::read(device.as_ref(), ignore_checksums)?;
        Ok(Self::with(device, sb, ignore_checksums))
    }

    /// A device seen through a given superblock.
    pub(crate) fn with(device: Arc<dyn BlockDevice>, sb: Super, ignore_checksums: bool) -> Self {
        debug_assert!(sb.frag * sb.fsize == sb.bsize, "the superblock was checked");
        let cache = BlockCache::new(sb.bsize);
        Self { device, sb, cache, ignore_checksums }
    }

    /// The device underneath.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Checks that a run of fragments lies in the volume.
    pub(crate) fn check_extent(&self, run: Extent, place: Location) -> Result<(), FsError> {
        let end = run.start.get().checked_add(run.len);
        if end.is_none_or(|end| end > self.sb.size) {
            return Err(range("block number", run.start.get(), self.sb.size, place));
        }
        Ok(())
    }

    /// `len` bytes of metadata from fragment `start` on, at most a block, through the cache.
    /// `place` is that of the pointer to it.
    pub(crate) fn block(
        &self,
        start: BlockNo,
        len: usize,
        place: Location,
    ) -> Result<Block, FsError> {
        debug_assert!(len > 0 && len <= index(self.sb.bsize), "{len} bytes of a block");
        let frags = wide(len).div_ceil(u64::from(self.sb.fsize));
        self.check_extent(Extent::new(start, frags), place)?;
        if let Some(block) = self.cache.get(start).filter(|block| block.len() == len) {
            return Ok(block);
        }
        let mut bytes = vec![0; len];
        self.read_bytes(start, 0, &mut bytes)?;
        let block: Block = Arc::from(bytes);
        self.cache.insert(start, block.clone());
        Ok(block)
    }

    /// Reads from byte `skip` behind fragment `start`, past the cache. The range
    /// must have been checked.
    pub(crate) fn read_bytes(
        &self,
        start: BlockNo,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        debug_assert!(start.get() < self.sb.size, "fragment {start}: the range was checked");
        let at = start.get() * u64::from(self.sb.fsize) + skip;
        self.device.read_bytes(ByteLen::new(at), buf)?;
        Ok(())
    }
}
