//! A device seen through its superblock: blocks by number, checksums by rule.

use crate::superblock::{Super, verify};
use seekless_device::BlockDevice;
use seekless_fs::field::{index, range};
use seekless_fs::read_cache::{Block, BlockCache};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Lba, SECTOR};
use std::sync::Arc;

/// An open volume, which every part of the reader uses. Clones share its cache.
#[derive(Clone)]
pub(crate) struct Volume {
    device: Arc<dyn BlockDevice>,
    /// The checked superblock.
    pub(crate) sb: Super,
    /// All group descriptors, one after the other.
    pub(crate) descriptors: Vec<u8>,
    cache: Arc<BlockCache>,
    /// Ignore a checksum that does not match.
    pub(crate) ignore_checksums: bool,
}

impl Volume {
    /// Reads superblock and group descriptors.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        ignore_checksums: bool,
    ) -> Result<Self, FsError> {
        let sb = Super::read(device.as_ref(), ignore_checksums)?;
        Self::with_superblock(device, sb, ignore_checksums)
    }

    /// Reads the group descriptors of a volume with the layout of a superblock, the primary one or
    /// a copy.
    pub(crate) fn with_superblock(
        device: Arc<dyn BlockDevice>,
        sb: Super,
        ignore_checksums: bool,
    ) -> Result<Self, FsError> {
        let cache = Arc::new(BlockCache::new(sb.block_size));
        let mut volume = Self { device, sb, descriptors: Vec::new(), cache, ignore_checksums };
        volume.load_descriptors()?;
        Ok(volume)
    }

    /// Starts with an empty cache of at most so many bytes.
    pub(crate) fn limit_cache(&mut self, budget: u64) {
        self.cache = Arc::new(BlockCache::with_budget(self.sb.block_size, budget));
    }

    /// Uses the blocks that another reader of the same volume has cached.
    pub(crate) fn share_cache(&mut self, other: &Self) {
        debug_assert!(Arc::ptr_eq(&self.device, &other.device), "both read the same device");
        self.cache = Arc::clone(&other.cache);
    }

    /// The device underneath.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Bytes in a block, as a length in memory.
    pub(crate) fn block_len(&self) -> usize {
        index(self.sb.block_size)
    }

    /// Checks that a block lies in the volume.
    pub(crate) fn check_block(&self, number: BlockNo, place: Location) -> Result<(), FsError> {
        self.check_extent(Extent::new(number, 1), place)
    }

    /// Checks that a run of blocks lies in the volume.
    pub(crate) fn check_extent(&self, run: Extent, place: Location) -> Result<(), FsError> {
        let end = run.start.get().checked_add(run.len);
        if end.is_none_or(|end| end > self.sb.blocks) || run.start < self.sb.first_block {
            return Err(range("block number", run.start.get(), self.sb.blocks, place));
        }
        Ok(())
    }

    /// A metadata block, through the cache. `place` is that of the pointer to it.
    pub(crate) fn block(&self, number: BlockNo, place: Location) -> Result<Block, FsError> {
        self.check_extent(Extent::new(number, 1), place)?;
        if let Some(block) = self.cache.get(number) {
            return Ok(block);
        }
        let mut bytes = vec![0; self.block_len()];
        self.device.read(self.sector(number), &mut bytes)?;
        let block: Block = Arc::from(bytes);
        self.cache.insert(number, block.clone());
        Ok(block)
    }

    /// The first sector of a block.
    fn sector(&self, number: BlockNo) -> Lba {
        let sectors = u64::from(self.sb.block_size) / SECTOR;
        Lba::new(number.get() * sectors)
    }

    /// Reads from byte `skip` of block `start` on, with one request to the
    /// device and past the cache. The range must have been checked.
    pub(crate) fn read_bytes(
        &self,
        start: BlockNo,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        debug_assert!(start.get() < self.sb.blocks, "block {start} was checked");
        let at = start.get() * u64::from(self.sb.block_size) + skip;
        self.device.read_bytes(ByteLen::new(at), buf)?;
        Ok(())
    }

    /// Compares checksums, unless they are to be ignored.
    pub(crate) fn verify(
        &self,
        stored: u32,
        computed: u32,
        place: Location,
    ) -> Result<(), FsError> {
        if self.ignore_checksums { Ok(()) } else { verify(stored, computed, place) }
    }

    /// Reads the whole table of group descriptors.
    fn load_descriptors(&mut self) -> Result<(), FsError> {
        let mut table = Vec::new();
        let mut buf = vec![0; self.block_len()];
        let used = index(self.sb.descs_per_block()) * index(self.sb.desc_size);
        for nr in 0..self.sb.descriptor_blocks() {
            let block = self.sb.descriptor_block(nr);
            self.check_block(block, Location::of("group descriptors"))?;
            self.read_bytes(block, 0, &mut buf)?;
            table.extend_from_slice(buf.get(..used).unwrap_or(&buf));
        }
        table.truncate(index(self.sb.groups) * index(self.sb.desc_size));
        self.descriptors = table;
        Ok(())
    }
}
