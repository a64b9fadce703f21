//! Sizes of blocks and fragments, and where bytes lie in them.

use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Lba};

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

/// A mask of the lowest `n` bits.
pub(crate) fn bits(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Between which bytes of their block some places lie.
pub(crate) fn hull(places: &[Place]) -> (u32, u32) {
    let start = places.iter().map(|place| place.start).min().unwrap_or(0);
    let end = places.iter().map(|place| place.end).max().unwrap_or(0);
    // A block's bytes are counted in 32 bits.
    (start as u32, end as u32)
}

impl Shape {
    pub(crate) fn block_bytes(self) -> usize {
        self.fragment as usize * self.per_block as usize
    }

    /// The 64ths of a block in which bytes from `start` up to `end` lie, a bit for each.
    pub(crate) fn parts(self, start: u32, end: u32) -> u64 {
        let part = self.block_bytes() / 64;
        bits((end as usize).div_ceil(part)) & !bits(start as usize / part)
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
        let start = within + skip;
        let end = start + len;
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

    /// The blocks of a run, each with the mask of its fragments in it.
    pub(crate) fn blocks_of(self, run: Extent) -> impl Iterator<Item = (u64, u64)> {
        let per_block = u64::from(self.per_block);
        let (start, end) = (run.start.get(), run.end().get());
        (start / per_block..end.div_ceil(per_block)).map(move |block| {
            let base = block * per_block;
            let first = start.saturating_sub(base).min(per_block) as usize;
            let last = end.saturating_sub(base).min(per_block) as usize;
            (block, bits(last) & !bits(first))
        })
    }
}
