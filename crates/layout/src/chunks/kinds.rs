//! The structures whose blocks make chunks new.

use super::sharing::{Chunked, Stored};
use crate::usage::Use;
use seekless_units::{BlockNo, ByteLen, Extent};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// Why a chunk is new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// All its blocks are elsewhere in other images: they moved.
    Moved,
    /// Its new blocks are no contents of files.
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
    /// The first byte of each new chunk, in order, and its cause; of equal ones all.
    pub places: Vec<(u64, Cause)>,
}

impl Kinds {
    /// Examines the chunks of `size` bytes of an image of which `chunks` has none. `blocks` has the
    /// blocks of [`BLOCK`](super::BLOCK) bytes of the same images. `uses` are those of the image's
    /// blocks of `block_size` bytes, as [`classify`](crate::usage::classify) finds them, and
    /// `whole` is its file system.
    #[must_use]
    pub fn of(
        image: &Chunked,
        size: ByteLen,
        (chunks, blocks): (&Stored, &Stored),
        (uses, whole): (Vec<(Extent, Use)>, Extent),
        block_size: u32,
    ) -> Self {
        let (mut kinds, mut sweep) = (Self::default(), Sweep::new(uses, whole, block_size));
        let (mut seen, mut seen_blocks) = (HashMap::new(), HashSet::new());
        for (chunk, parts) in image.with_blocks(size) {
            if chunks.has(chunk.digest) {
                continue;
            }
            if let Some(&cause) = seen.get(&chunk.digest) {
                kinds.places.push((chunk.start, cause));
                continue;
            }
            let mut cause = Cause::Moved;
            for block in parts {
                let is_new = !blocks.has(block.digest);
                // Of equal ones the first counts.
                let is_first = is_new && seen_blocks.insert(block.digest);
                sweep.within(block.start, block.end(), |used, bytes| {
                    let of_use = kinds.bytes.entry(used).or_default();
                    if is_new {
                        let is_contents = used == Use::Contents;
                        cause =
                            cause.max(if is_contents { Cause::Contents } else { Cause::Metadata });
                        of_use.new += if is_first { bytes } else { 0 };
                    } else {
                        of_use.moved += bytes;
                    }
                });
            }
            *kinds.causes.entry(cause).or_default() += 1;
            seen.insert(chunk.digest, cause);
            kinds.places.push((chunk.start, cause));
        }
        kinds
    }
}

/// The uses of an image's bytes, asked for in ascending order.
struct Sweep {
    /// Within the file system, sorted by start; of those that overlap the first has the bytes.
    runs: Vec<(Range<u64>, Use)>,
    /// The bytes of the file system.
    whole: Range<u64>,
    /// The first run that may lie behind the last question.
    first: usize,
}

impl Sweep {
    fn new(mut runs: Vec<(Extent, Use)>, whole: Extent, block_size: u32) -> Self {
        runs.sort_unstable();
        let block_size = u64::from(block_size);
        let bytes = |from: BlockNo, to: BlockNo| from.get() * block_size..to.get() * block_size;
        // Runs of a damaged image may lie anywhere.
        let within = |(run, used): (Extent, Use)| {
            let (from, to) = (run.start.max(whole.start), run.end().min(whole.end()));
            (from < to).then(|| (bytes(from, to), used))
        };
        let runs = runs.into_iter().filter_map(within).collect();
        Self { runs, whole: bytes(whole.start, whole.end()), first: 0 }
    }

    /// The uses of a range of bytes, and how many bytes each has.
    fn within(&mut self, from: u64, to: u64, mut found: impl FnMut(Use, u64)) {
        let mut next = from;
        while next < to {
            let (end, used) = match self.runs.get(self.first) {
                _ if next < self.whole.start => (to.min(self.whole.start), Use::Outside),
                _ if next >= self.whole.end => (to, Use::Outside),
                Some((run, _)) if run.end <= next => {
                    self.first += 1;
                    continue;
                }
                Some((run, used)) if run.start <= next => (run.end.min(to), *used),
                Some((run, _)) => (run.start.min(to), Use::Internal),
                None => (to.min(self.whole.end), Use::Internal),
            };
            found(used, end - next);
            next = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_use() {
        let run = |start, len| Extent::new(BlockNo::new(start), len);
        let runs = vec![
            (run(4, 4), Use::Contents),
            (run(5, 1), Use::Directory),
            (run(2, 1), Use::Bitmap),
            (run(9, 0), Use::Map),
            (run(u64::MAX / 4, 1), Use::Attributes),
        ];
        let mut sweep = Sweep::new(runs, run(1, 9), 1024);
        let mut found = Vec::new();
        for at in 0..3 {
            sweep.within(at * 4096, (at + 1) * 4096, |used, bytes| found.push((used, bytes)));
        }
        let expected = [
            (Use::Outside, 1024),
            (Use::Internal, 1024),
            (Use::Bitmap, 1024),
            (Use::Internal, 1024),
            (Use::Contents, 4096),
            (Use::Internal, 2048),
            (Use::Outside, 2048),
        ];
        assert_eq!(found, expected);
    }
}
