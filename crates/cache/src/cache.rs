//! The cache: what it is made of, and reading.

use crate::buffer::{Buffer, Buffers, Paged};
use crate::config::{Config, Counters};
use crate::graph::Graph;
use crate::syncer::Wheel;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Lba};
use std::sync::Arc;

/// What the format does to a block of metadata that is about to be written:
/// check hashes, which depend on what is undone in the copy.
pub trait Seal: Send {
    /// `bytes` are the whole block whose first fragment is `at`; parts of it
    /// that are not in memory are zero and are not written.
    fn seal(&self, at: BlockNo, bytes: &mut [u8]);
}

/// A bounded cache of the blocks of a device, with the graph of the changes to
/// them. `A` is an action of the format, done when what it waits for is on the
/// disk.
///
/// A block is the largest piece the format allocates (FFS: a block, ext: a
/// block) and lies at a multiple of its size; [`BlockNo`] counts fragments.
pub struct Cache<A> {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) shape: Shape,
    pub(crate) buffers: Buffers,
    pub(crate) graph: Graph<A>,
    pub(crate) wheel: Wheel,
    pub(crate) counters: Counters,
    pub(crate) seal: Option<Box<dyn Seal>>,
    /// Why nothing can be changed any more.
    pub(crate) failed: Option<String>,
}

/// Sizes, fixed while the cache lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) fragment: u32,
    pub(crate) per_block: u32,
}

/// Where a run of bytes lies in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The fragments it touches.
    pub(crate) mask: u64,
}

impl Shape {
    pub(crate) fn block_bytes(self) -> usize {
        self.fragment as usize * self.per_block as usize
    }

    pub(crate) fn mask(self, start: usize, end: usize) -> u64 {
        let first = start / self.fragment as usize;
        let last = end.div_ceil(self.fragment as usize);
        bits(last) & !bits(first)
    }

    /// The place of `len` bytes from byte `skip` behind fragment `at`.
    pub(crate) fn place(self, at: BlockNo, skip: usize, len: usize) -> Result<Place, FsError> {
        let block = at.get() / u64::from(self.per_block);
        let within = (at.get() % u64::from(self.per_block)) as usize * self.fragment as usize;
        let start = within.saturating_add(skip);
        let end = start.saturating_add(len);
        if end > self.block_bytes() {
            let kind = Corruption::Range {
                field: "run of fragments",
                value: end as u64,
                limit: self.block_bytes() as u64,
            };
            return Err(FsError::corrupt(kind, Location::of("block").in_block(at)));
        }
        Ok(Place { block, start, end, mask: self.mask(start, end) })
    }

    pub(crate) fn first_fragment(self, block: u64) -> BlockNo {
        BlockNo::new(block * u64::from(self.per_block))
    }

    pub(crate) fn lba(self, at: BlockNo) -> Lba {
        Lba::containing(ByteLen::new(at.get() * u64::from(self.fragment)))
    }
}

/// A mask of the lowest `n` bits.
pub(crate) fn bits(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

impl<A> Cache<A> {
    /// An empty cache. `block` is the bytes of a block, `fragment` those of the
    /// unit [`BlockNo`] counts in; a block has at most 64 of them.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for sizes that are not powers of two, or do not fit
    /// each other, or a sector.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        block: u32,
        fragment: u32,
        config: Config,
    ) -> Result<Self, FsError> {
        let sound = block.is_power_of_two()
            && fragment.is_power_of_two()
            && fragment >= 512
            && (1..=64).contains(&(block / fragment));
        if !sound {
            return Err(FsError::Invalid(format!(
                "blocks of {block} bytes in fragments of {fragment}"
            )));
        }
        let page = config.page.map(ByteLen::get).filter(|&page| page > 0);
        let paged = page.map(|page| Paged { page, fragment: u64::from(fragment) });
        Ok(Self {
            wheel: Wheel::new(clock.now()),
            device,
            clock,
            config,
            shape: Shape { fragment, per_block: block / fragment },
            buffers: Buffers::new(block as usize, paged),
            graph: Graph::new(config.drop_order),
            counters: Counters::default(),
            seal: None,
            failed: None,
        })
    }

    /// Has the format seal blocks of metadata before they are written.
    pub fn set_seal(&mut self, seal: Box<dyn Seal>) {
        self.seal = Some(seal);
    }

    /// How it was told to behave.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of the blocks that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// Changes and deferred actions in the graph.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.graph.len()
    }

    /// Bytes kept to undo changes with that may not be written yet: those of
    /// all their pieces as they were before.
    #[must_use]
    pub fn undo_bytes(&self) -> ByteLen {
        self.graph.undo_bytes()
    }

    /// Reads `len` bytes from byte `skip` behind fragment `at`; all of it lies
    /// in one block.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::Corrupt`] when it does not lie in a block.
    pub fn read(&mut self, at: BlockNo, skip: usize, len: usize) -> Result<&[u8], FsError> {
        let place = self.shape.place(at, skip, len)?;
        let buffer = self.load(place)?;
        Ok(&buffer.bytes[place.start..place.end])
    }

    /// As [`Cache::read`], of what is in the cache; that it was looked at is
    /// neither counted nor remembered. For checks of what is believed.
    #[must_use]
    pub fn peek(&self, at: BlockNo, skip: usize, len: usize) -> Option<&[u8]> {
        let place = self.shape.place(at, skip, len).ok()?;
        let buffer = self.buffers.get(place.block)?;
        (buffer.valid & place.mask == place.mask).then(|| &buffer.bytes[place.start..place.end])
    }

    /// Reads from byte `skip` behind fragment `at`, over as many blocks as
    /// `buf` takes; neighbouring blocks that are not there come in one request.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn read_run(&mut self, at: BlockNo, skip: usize, buf: &mut [u8]) -> Result<(), FsError> {
        let size = self.shape.block_bytes();
        let within = (at.get() % u64::from(self.shape.per_block)) as usize;
        let mut block = at.get() / u64::from(self.shape.per_block);
        let mut start = within * self.shape.fragment as usize + skip;
        block += (start / size) as u64;
        start %= size;
        let end = block + ((start + buf.len()) / size) as u64;
        let mut done = 0;
        // Blocks from here on were there before, not brought in by this call.
        let mut known_from = block;
        while done < buf.len() {
            known_from = known_from.max(block + self.prefetch(block, end)?);
            let len = (size - start).min(buf.len() - done);
            let mask = self.shape.mask(start, start + len);
            let hits = self.counters.hits;
            let buffer = self.load(Place { block, start, end: start + len, mask })?;
            buf[done..done + len].copy_from_slice(&buffer.bytes[start..start + len]);
            if block < known_from {
                self.counters.hits = hits;
            }
            done += len;
            block += 1;
            start = 0;
        }
        Ok(())
    }

    /// Where a whole block and more behind it up to `end` are not there, brings in
    /// as many as go in one request; what the cache may hold allows for that.
    /// Returns how many came in.
    fn prefetch(&mut self, first: u64, end: u64) -> Result<u64, FsError> {
        let size = self.shape.block_bytes();
        let most = ((self.config.cluster.get() as usize) / size).max(1) as u64;
        let missing = |block: &u64| self.buffers.get(*block).is_none_or(|b| b.valid == 0);
        let run = (first..end.min(first + most)).take_while(missing).count();
        if run < 2 {
            return Ok(0);
        }
        if self.buffers.bytes() > self.config.capacity.get() {
            self.drop_clean();
        }
        let mut bytes = vec![0; run * size];
        self.device.read(self.shape.lba(self.shape.first_fragment(first)), &mut bytes)?;
        self.counters.reads += 1;
        self.counters.read_bytes += bytes.len() as u64;
        for (chunk, block) in bytes.chunks_exact(size).zip(first..) {
            let buffer = self.buffers.touch(block);
            buffer.bytes.copy_from_slice(chunk);
            let whole = bits(self.shape.per_block as usize);
            buffer.valid = whole;
            self.buffers.note_piece(block, whole);
        }
        Ok(run as u64)
    }

    /// The buffer of a place, with what it needs read in.
    pub(crate) fn load(&mut self, place: Place) -> Result<&mut Buffer, FsError> {
        if self.buffers.bytes() > self.config.capacity.get()
            && self.buffers.get(place.block).is_none()
        {
            self.drop_clean();
        }
        let buffer = self.buffers.touch(place.block);
        let missing = place.mask & !buffer.valid;
        if missing == 0 {
            self.counters.hits += 1;
        } else {
            self.read_missing(place.block, missing)?;
        }
        Ok(self.buffers.touch(place.block))
    }

    /// Reads what is missing of a block.
    fn read_missing(&mut self, block: u64, mut missing: u64) -> Result<(), FsError> {
        let fragment = self.shape.fragment as usize;
        let first = self.shape.first_fragment(block);
        while missing != 0 {
            let low = missing.trailing_zeros() as usize;
            let run = (missing >> low).trailing_ones() as usize;
            let at = first.saturating_add(low as u64);
            let buffer = self.buffers.touch(block);
            let bytes = &mut buffer.bytes[low * fragment..(low + run) * fragment];
            self.device.read(self.shape.lba(at), bytes)?;
            self.counters.reads += 1;
            self.counters.read_bytes += bytes.len() as u64;
            let read = bits(low + run) & !bits(low);
            buffer.valid |= read;
            missing &= !read;
            self.buffers.note_piece(block, read);
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self) -> Result<(), FsError> {
        match &self.failed {
            Some(why) => Err(FsError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }
}
