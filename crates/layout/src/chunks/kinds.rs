//! The structures whose blocks make chunks new.

use super::digests::BLOCK;
use super::sharing::{Chunked, Stored, Unit};
use crate::usage::Use;
use seekless_units::{ByteLen, Extent};
use std::collections::{BTreeMap, HashSet};

/// Why a chunk is new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// All its blocks are elsewhere in other images: they moved.
    Moved,
    /// Its new blocks are metadata and directories.
    Metadata,
    /// It has new contents of files.
    Contents,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Moved, Self::Metadata, Self::Contents];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moved => "only because blocks moved",
            Self::Metadata => "because of metadata",
            Self::Contents => "because of new contents",
        }
    }
}

/// Bytes of one use in new chunks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KindBytes {
    /// In blocks of 4 KiB that no other image has.
    pub new: u64,
    /// In blocks that another image has, in another chunk.
    pub moved: u64,
}

/// The bytes of the new chunks of an image, by the use of its blocks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Kinds {
    /// Bytes by their use; zeros have none.
    pub bytes: BTreeMap<Use, KindBytes>,
    /// New chunks by cause.
    pub causes: BTreeMap<Cause, u64>,
}

impl Kinds {
    /// Examines the chunks of `size` bytes of an image of which `chunks` has none. `blocks` has the
    /// blocks of [`BLOCK`] bytes of the same images, and `uses` those of the image's blocks of
    /// `block_size` bytes, as [`classify`](crate::usage::classify) finds them.
    #[must_use]
    pub fn of(
        image: &Chunked,
        size: ByteLen,
        (chunks, blocks): (&Stored, &Stored),
        uses: Vec<(Extent, Use)>,
        block_size: u32,
    ) -> Self {
        let (mut kinds, mut sweep) = (Self::default(), Sweep::new(uses, block_size));
        let all_blocks = image.chunks(Unit::Aligned(BLOCK));
        let each = usize::try_from(size.get() / BLOCK.get()).unwrap_or(usize::MAX);
        let (mut seen, mut seen_blocks, mut start) = (HashSet::new(), HashSet::new(), 0);
        for ((digest, len), parts) in
            image.chunks(Unit::Aligned(size)).into_iter().zip(all_blocks.chunks(each))
        {
            let is_new = digest.is_some_and(|it| !chunks.has(it) && seen.insert(it));
            let (mut at, mut cause) = (start, Cause::Moved);
            for &(block, len) in parts.iter().filter(|_| is_new) {
                if let Some(block) = block {
                    let is_new = !blocks.has(block) && seen_blocks.insert(block);
                    sweep.within(at, at + len, |used, bytes| {
                        let of_use = kinds.bytes.entry(used).or_default();
                        let sum = if is_new { &mut of_use.new } else { &mut of_use.moved };
                        *sum += bytes;
                        let is_contents = used == Use::Contents;
                        let of_block = if is_contents { Cause::Contents } else { Cause::Metadata };
                        cause = if is_new { cause.max(of_block) } else { cause };
                    });
                }
                at += len;
            }
            if is_new {
                *kinds.causes.entry(cause).or_default() += 1;
            }
            start += len;
        }
        kinds
    }
}

/// The uses of an image's bytes, asked for in ascending order.
struct Sweep {
    /// Sorted by start; of those that overlap the first has the bytes.
    runs: Vec<(Extent, Use)>,
    block_size: u64,
    /// The first run that may lie behind the last question.
    first: usize,
}

impl Sweep {
    fn new(mut runs: Vec<(Extent, Use)>, block_size: u32) -> Self {
        runs.sort_unstable();
        Self { runs, block_size: block_size.into(), first: 0 }
    }

    /// The uses of a range of bytes, and how many bytes each has.
    fn within(&mut self, from: u64, to: u64, mut found: impl FnMut(Use, u64)) {
        let mut next = from;
        while next < to {
            let run = self.runs.get(self.first).map(|(extent, used)| {
                let (start, end) = (extent.start.get(), extent.end().get());
                (start * self.block_size, end * self.block_size, *used)
            });
            let (end, used) = match run {
                Some((_, end, _)) if end <= next => {
                    self.first += 1;
                    continue;
                }
                Some((start, end, used)) if start <= next => (end.min(to), used),
                Some((start, ..)) => (start.min(to), Use::Internal),
                None => (to, Use::Internal),
            };
            found(used, end - next);
            next = end;
        }
    }
}
