//! Blocks of a device in memory, read and written.
//!
//! The parts above decide which blocks are written, and when: [`Changes`](crate::Changes) makes
//! changes, [`Transactions`](crate::Transactions) writes them to the log, and
//! [`Cache`](crate::Cache) makes room and waits for changes. This part uses none of them.

pub(crate) mod capacity;
pub(crate) mod flight;
pub(crate) mod write;

use crate::buffer::Buffer;
use crate::change::Role;
use crate::config::{Config, Counters, Limits};
use crate::memory::Memory;
use crate::order::{MOST_BLOCK, Order};
use crate::seal::{Owner, Seal};
use crate::shape::{Place, Shape, bits};
use flight::Flights;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_units::{BlockNo, ByteLen, Nanos};
use std::sync::Arc;

/// The blocks of a device in memory, with the order of the changes to them, and the writes under
/// way.
///
/// A block is the largest piece the format allocates (FFS: a block, ext: a
/// block) and lies at a multiple of its size; [`BlockNo`] counts fragments.
pub struct BlockCache<A> {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) order: Order<A>,
    pub(crate) flights: Flights,
    /// Memory for outgoing bytes, between two writes: of a run, and of a block with changes rolled
    /// back.
    pub(crate) spare_run: Vec<u8>,
    pub(crate) spare_block: Vec<u8>,
    pub(crate) seal: Option<Box<dyn Seal>>,
    /// Why nothing can be changed any more.
    pub(crate) failed: Option<String>,
}

impl<A> BlockCache<A> {
    /// As [`Cache::new`](crate::Cache::new).
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        block: u32,
        fragment: u32,
        config: Config,
    ) -> Result<Self, FsError> {
        let sound = block.is_power_of_two()
            && fragment.is_power_of_two()
            && fragment >= 512
            && (1..=64).contains(&(block / fragment))
            && block <= MOST_BLOCK;
        if !sound {
            return Err(FsError::Invalid(format!(
                "blocks of {block} bytes in fragments of {fragment}"
            )));
        }
        let shape = Shape { fragment, per_block: block / fragment };
        Ok(Self {
            memory: Memory::new(shape, &config, clock.now()),
            order: Order::new(&config),
            flights: Flights::default(),
            device,
            clock,
            config,
            spare_run: Vec::new(),
            spare_block: Vec::new(),
            seal: None,
            failed: None,
        })
    }

    /// Has the format seal blocks of metadata before they are written.
    pub fn set_seal(&mut self, seal: Box<dyn Seal>) {
        self.seal = Some(seal);
    }

    /// Reads and writes another device from now on, whose bytes may differ: all blocks are
    /// forgotten. All changes must be on the disk.
    ///
    /// # Panics
    /// If there is a change that is not.
    pub fn replace_device(&mut self, device: Arc<dyn BlockDevice>) {
        assert!(self.order.len() == 0, "changes wait for others");
        assert!(self.flights.are_over(self.config.barriers), "writes are under way");
        assert!(self.dirty_blocks() == 0, "blocks are dirty");
        let blocks: Vec<u64> = self.memory.buffers.iter().map(|buffer| buffer.block).collect();
        for block in blocks {
            self.memory.buffers.remove(block);
        }
        self.device = device;
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time by its clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.memory.counters
    }

    /// Changes the limits of the graph and of the cache, from the next operation on: it treats a
    /// graph or a cache above its new limit like one that has become full
    /// ([`Cache::begin`](crate::Cache::begin)).
    pub fn adjust(&mut self, limits: Limits, capacity: ByteLen) {
        self.config.limits = limits;
        self.config.capacity = capacity;
    }

    /// Sets the counters to zero, except those of pending dependencies. The maxima of changes and
    /// bytes become their present numbers.
    pub fn zero_counters(&mut self) {
        let (most_softdeps, most_undo) = (self.softdeps(), self.undo_bytes());
        let Counters { live, dropped, .. } = self.memory.counters;
        let zero = Counters::default();
        self.memory.counters = Counters { live, dropped, most_softdeps, most_undo, ..zero };
    }

    /// Bytes of the blocks that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.buffers.bytes()
    }

    /// Blocks with something that is not on the disk. They are counted for it.
    #[must_use]
    pub fn dirty_blocks(&self) -> usize {
        self.memory.buffers.dirty().count()
    }

    /// Changes and deferred actions in the graph.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.order.len()
    }

    /// Bytes kept to undo changes with that may not be written yet: those of
    /// all their pieces as they were before.
    #[must_use]
    pub fn undo_bytes(&self) -> ByteLen {
        self.order.undo_bytes()
    }

    /// Reads `len` bytes from byte `skip` behind fragment `at`; all of it lies
    /// in one block.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::Corrupt`] when it does not lie in a block.
    pub fn read(&mut self, at: BlockNo, skip: usize, len: usize) -> Result<&[u8], FsError> {
        let place = self.memory.shape.place(at, skip, len)?;
        let buffer = self.load(place)?;
        Ok(&buffer.bytes[place.start..place.end])
    }

    /// As [`BlockCache::read`], of blocks in the cache; the access is neither counted nor remembered.
    /// For consistency checks.
    #[must_use]
    pub fn peek(&self, at: BlockNo, skip: usize, len: usize) -> Option<&[u8]> {
        let place = self.memory.shape.place(at, skip, len).ok()?;
        let buffer = self.memory.buffers.get(place.block)?;
        (buffer.valid & place.mask == place.mask).then(|| &buffer.bytes[place.start..place.end])
    }

    /// The owner of a block in memory: `None` until [`BlockCache::set_owner`] sets it, and again when
    /// the block was read again, or filled with other contents. So a caller that checks a block
    /// before it sets the owner checks it once each time that it comes from the disk.
    #[must_use]
    pub fn owner(&self, at: BlockNo) -> Option<Owner> {
        let block = at.get() / u64::from(self.memory.shape.per_block);
        self.memory.buffers.get(block)?.owner
    }

    /// Whether the block can be sealed after a change in this role. An owner goes with its block
    /// when that leaves memory: a caller that looks at a block, then at others and changes it then,
    /// has to set the owner again.
    pub(crate) fn can_be_sealed(&self, block: u64, role: Role) -> bool {
        let Some(seal) = &self.seal else { return true };
        let has_owner = || self.memory.buffers.get(block).is_some_and(|b| b.owner.is_some());
        !seal.needs_owner(role) || has_owner()
    }

    /// Says whose a block is, which is in memory. That is handed to [`Seal::seal`].
    pub fn set_owner(&mut self, at: BlockNo, owner: Owner) {
        let block = at.get() / u64::from(self.memory.shape.per_block);
        let buffer = self.memory.buffers.get_mut(block);
        debug_assert!(buffer.is_some(), "it was read or filled");
        if let Some(buffer) = buffer {
            buffer.owner = Some(owner);
        }
    }

    /// Reads from byte `skip` behind fragment `at`, over as many blocks as
    /// `buf` takes; neighbouring blocks that are not there come in one request.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn read_run(&mut self, at: BlockNo, skip: usize, buf: &mut [u8]) -> Result<(), FsError> {
        let size = self.memory.shape.block_bytes();
        let within = (at.get() % u64::from(self.memory.shape.per_block)) as usize;
        let mut block = at.get() / u64::from(self.memory.shape.per_block);
        let mut start = within * self.memory.shape.fragment as usize + skip;
        block += (start / size) as u64;
        start %= size;
        let (whole, rest) = ((start + buf.len()) / size, (start + buf.len()) % size);
        // A block that is its own fragment belongs to the file in whole.
        let last = usize::from(rest > 0 && self.memory.shape.per_block == 1);
        let end = block + (whole + last) as u64;
        let mut done = 0;
        // Blocks from here on were there before, not brought in by this call.
        let mut known_from = block;
        while done < buf.len() {
            known_from = known_from.max(block + self.prefetch(block, end)?);
            let len = (size - start).min(buf.len() - done);
            let mask = self.memory.shape.mask(start, start + len);
            let hits = self.memory.counters.hits;
            let buffer = self.load(Place { block, start, end: start + len, mask })?;
            buf[done..done + len].copy_from_slice(&buffer.bytes[start..start + len]);
            if block < known_from {
                self.memory.counters.hits = hits;
            }
            done += len;
            block += 1;
            start = 0;
        }
        Ok(())
    }

    /// Where a whole block and more behind it up to `end` are not in memory, reads as many as go in
    /// one request and fit in the cache. Returns how many were read.
    fn prefetch(&mut self, first: u64, end: u64) -> Result<u64, FsError> {
        let size = self.memory.shape.block_bytes();
        let most = ((self.config.cluster.get() as usize) / size).max(1) as u64;
        let missing = |block: &u64| self.memory.buffers.get(*block).is_none_or(|b| b.valid == 0);
        let run = (first..end.min(first + most)).take_while(missing).count();
        if run < 2 {
            return Ok(0);
        }
        if self.is_over_capacity() {
            self.drop_clean();
        }
        let mut bytes = vec![0; run * size];
        self.device
            .read(self.memory.shape.lba(self.memory.shape.first_fragment(first)), &mut bytes)?;
        self.memory.counters.reads += 1;
        self.memory.counters.read_bytes += bytes.len() as u64;
        for (chunk, block) in bytes.chunks_exact(size).zip(first..) {
            let buffer = self.memory.buffers.touch(block);
            buffer.bytes.copy_from_slice(chunk);
            let whole = bits(self.memory.shape.per_block as usize);
            buffer.valid = whole;
            self.memory.buffers.note_piece(block, whole);
        }
        Ok(run as u64)
    }

    /// The buffer of a place, with the missing fragments read in.
    pub(crate) fn load(&mut self, place: Place) -> Result<&mut Buffer, FsError> {
        if self.is_over_capacity() && self.memory.buffers.get(place.block).is_none() {
            self.drop_clean();
        }
        let buffer = self.memory.buffers.touch(place.block);
        let missing = place.mask & !buffer.valid;
        if missing == 0 {
            self.memory.counters.hits += 1;
        } else {
            self.read_missing(place.block, missing)?;
        }
        Ok(self.memory.buffers.touch(place.block))
    }

    /// Reads the missing fragments of a block.
    fn read_missing(&mut self, block: u64, mut missing: u64) -> Result<(), FsError> {
        let fragment = self.memory.shape.fragment as usize;
        let first = self.memory.shape.first_fragment(block);
        while missing != 0 {
            let low = missing.trailing_zeros() as usize;
            let run = (missing >> low).trailing_ones() as usize;
            let at = first + low as u64;
            let buffer = self.memory.buffers.touch(block);
            let bytes = &mut buffer.bytes[low * fragment..(low + run) * fragment];
            self.device.read(self.memory.shape.lba(at), bytes)?;
            self.memory.counters.reads += 1;
            self.memory.counters.read_bytes += bytes.len() as u64;
            let read = bits(low + run) & !bits(low);
            buffer.valid |= read;
            missing &= !read;
            self.memory.buffers.note_piece(block, read);
        }
        Ok(())
    }

    /// Whether anything can be changed: no write has failed.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.failed.is_none()
    }

    pub(crate) fn check_writable(&self) -> Result<(), FsError> {
        match &self.failed {
            Some(why) => Err(FsError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Whether something is neither at home nor in the log.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.order
            .journal()
            .is_some_and(|journal| journal.committing.is_some() || !journal.running.is_empty())
            || self.memory.buffers.iter().any(|buffer| {
                let held = buffer.held.journal;
                (buffer.dirty != 0 || held.sent) && !held.logged && !held.homing
            })
    }
}
