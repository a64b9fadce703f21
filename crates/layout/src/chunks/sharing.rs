//! How many chunks of an image others have.

use super::cut::CutSizes;
use super::digests::{BLOCK, Chunk, Digest, Digests};
use super::store::numbers;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, format_size};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// A kind of chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// Of this many bytes, a multiple of [`BLOCK`], from the image's first byte on.
    Aligned(ByteLen),
    /// As casync cuts with [`CutSizes::CASYNC`].
    ContentDefined,
}

impl Unit {
    /// Chunks of a size.
    ///
    /// # Errors
    /// A message for the user, unless the size is a multiple of [`BLOCK`].
    ///
    /// ```
    /// use seekless_layout::chunks::Unit;
    /// use seekless_units::ByteLen;
    ///
    /// assert!(Unit::aligned(ByteLen::new(512 << 10)).is_ok());
    /// assert!(Unit::aligned(ByteLen::new(5000)).is_err());
    /// ```
    pub fn aligned(size: ByteLen) -> Result<Self, String> {
        if size == ByteLen::ZERO || !size.get().is_multiple_of(BLOCK.get()) {
            return Err(format!("a chunk that is compared must be a multiple of {BLOCK} bytes"));
        }
        Ok(Self::Aligned(size))
    }
}

/// As in the rows of a table.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            &Self::Aligned(BLOCK) => f.write_str("blocks of 4K"),
            Self::Aligned(size) => write!(f, "chunks of {}", format_size(*size)),
            Self::ContentDefined => {
                let average = format_size(CutSizes::CASYNC.average());
                write!(f, "content-defined chunks of {average} on average")
            }
        }
    }
}

/// Chunks, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.chunks += 1;
        self.bytes += bytes;
    }
}

/// The different chunks of an image.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sharing {
    /// All of them.
    pub all: Count,
    /// Those that none of the images before has.
    pub new: Count,
}

/// An image as its chunks.
#[derive(Debug)]
pub struct Chunked {
    digests: Digests,
}

impl Chunked {
    /// Reads an image, all of it, and takes the digests of its chunks.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(device: &dyn BlockDevice) -> Result<Self, DeviceError> {
        Ok(Self { digests: Digests::read(device)? })
    }

    /// The image's length.
    #[must_use]
    pub fn len(&self) -> ByteLen {
        ByteLen::new(self.digests.len())
    }

    /// Whether the image has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.digests.len() == 0
    }

    /// Its chunks that are not all zeros, in order.
    fn chunks(&self, unit: Unit) -> Box<dyn Iterator<Item = Chunk> + '_> {
        match unit {
            Unit::ContentDefined => Box::new(self.digests.cut().iter().copied()),
            Unit::Aligned(size) => Box::new(self.digests.aligned(size)),
        }
    }

    /// Its chunks of a size that are not all zeros, each with its blocks that are not.
    pub(super) fn with_blocks(&self, size: ByteLen) -> impl Iterator<Item = (Chunk, &[Chunk])> {
        let mut rest = self.digests.blocks();
        self.digests.aligned(size).map(move |chunk| {
            let within = rest.partition_point(|block| block.start < chunk.end());
            let (blocks, behind) = rest.split_at(within);
            rest = behind;
            (chunk, blocks)
        })
    }

    /// The range of bytes of each chunk that is not all zeros, in order, and whether the chunk is
    /// new: `stored` has no equal one.
    #[must_use]
    pub fn new_runs(&self, unit: Unit, stored: &Stored) -> Vec<(Range<u64>, bool)> {
        debug_assert_eq!(unit, stored.unit, "chunks of one kind");
        let run = |chunk: Chunk| (chunk.start..chunk.end(), !stored.has(chunk.digest));
        self.chunks(unit).map(run).collect()
    }

    /// The chunks that requests touch: `requests` are ranges of bytes of the image.
    #[must_use]
    pub fn fetched(&self, size: ByteLen, requests: &[Range<u64>], cached: &Stored) -> Fetched {
        debug_assert_eq!(cached.unit, Unit::Aligned(size), "chunks of one kind");
        let touched = numbers(size.get(), requests);
        let is_touched = |chunk: &Chunk| touched.contains(&(chunk.start / size.get()));
        let (mut different, mut missing) = (HashSet::new(), Vec::new());
        for chunk in self.chunks(Unit::Aligned(size)).filter(is_touched) {
            if different.insert(chunk.digest) && !cached.has(chunk.digest) {
                missing.push(chunk.start..chunk.end());
            }
        }
        Fetched { chunks: different.len() as u64, missing }
    }
}

/// The chunks that a program reads of an image.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Fetched {
    /// Different chunks that it reads.
    pub chunks: u64,
    /// The range of bytes of each that is not in the cache; of equal ones, that of the first.
    pub missing: Vec<Range<u64>>,
}

/// The chunks of one kind that somebody has: a cache, a registry.
#[derive(Debug)]
pub struct Stored {
    unit: Unit,
    digests: HashSet<Digest>,
}

impl Stored {
    /// None.
    #[must_use]
    pub fn new(unit: Unit) -> Self {
        Self { unit, digests: HashSet::new() }
    }

    /// Adds the chunks of an image, and counts them.
    pub fn add(&mut self, image: &Chunked) -> Sharing {
        let (mut sharing, mut seen) = (Sharing::default(), HashSet::new());
        for Chunk { len, digest, .. } in image.chunks(self.unit) {
            if seen.insert(digest) {
                sharing.all.add(len);
                if self.digests.insert(digest) {
                    sharing.new.add(len);
                }
            }
        }
        sharing
    }

    pub(super) fn has(&self, digest: Digest) -> bool {
        self.digests.contains(&digest)
    }
}

/// The chunks of each image, new where none of the images before it has them.
#[must_use]
pub fn successive(images: &[Chunked], unit: Unit) -> Vec<Sharing> {
    let mut stored = Stored::new(unit);
    images.iter().map(|image| stored.add(image)).collect()
}

/// How many chunks of each image (row) each other image (column) has.
#[must_use]
pub fn matrix(images: &[Chunked], unit: Unit) -> Vec<Vec<u64>> {
    let set = |image: &Chunked| {
        let mut stored = Stored::new(unit);
        stored.add(image);
        stored.digests
    };
    let sets: Vec<HashSet<Digest>> = images.iter().map(set).collect();
    let shared = |one: &HashSet<_>, other: &HashSet<_>| one.intersection(other).count() as u64;
    sets.iter().map(|one| sets.iter().map(|other| shared(one, other)).collect()).collect()
}
