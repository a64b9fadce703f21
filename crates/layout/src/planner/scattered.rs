//! Large files that traces read in small pieces.
//!
//! Each piece that lies elsewhere costs a read of the whole file two seeks. In a file of [`LARGE`]
//! bytes, a range that traces read moves as it is read if it has [`LEAST`] bytes, in pieces of
//! [`PIECE`] bytes on average. Of the others, those that lie so close together that half of the
//! bytes are read move together, in order of their offsets. Ranges that are left move if they are
//! [`FEW`], such as the headers of a program. Of more, the first ones move, as long as a read of the
//! whole file stays within a tenth of its time; the rest keep their places.

use super::sequence::{PlacementStep, Touched};
use super::storage::{Storage, StorageKind};
use super::{Part, Touch, touches};
use crate::replay::Replayed;
use seekless_fs::field::wide;
use seekless_fs::plan::{Demand, ObjectId, Run};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Ino, Lbn};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Minimum size of a large file.
pub const LARGE: u64 = 16 << 20;

/// Minimum size of a range: the bytes that Linux maps around a page fault (`fault_around_bytes`).
pub const LEAST: u64 = 64 << 10;

/// Minimum size of the pieces of a range, on average: twice the largest pages of usual databases
/// (InnoDB's, 16 KiB).
pub const PIECE: u64 = 32 << 10;

/// This number of ranges of a file move, however small they are.
pub const FEW: usize = 8;

/// A read of the whole file takes longer by one part of this number at most.
const SHARE: u64 = 10;

/// Seeks for a piece that lies elsewhere, in a read of the whole file: to it, and back.
const SEEKS: u64 = 2;

/// A large file of which ranges that traces read stay in their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scattered {
    /// The file.
    pub object: ObjectId,
    /// Its length.
    pub len: ByteLen,
    /// Number of ranges that stay.
    pub ranges: u64,
    /// Bytes of these ranges.
    pub bytes: ByteLen,
    /// Number of the file's parts, each of a chunk's length, that these ranges lie in.
    pub chunks: u64,
}

impl Scattered {
    /// Seeks that a read of the whole file needs more if the ranges move.
    #[must_use]
    pub const fn seeks_if_moved(&self) -> u64 {
        SEEKS * self.ranges
    }

    /// Chunks that the ranges lie in if they move.
    #[must_use]
    pub const fn chunks_if_moved(&self, chunk: ByteLen) -> u64 {
        self.bytes.get().div_ceil(chunk.get())
    }
}

/// A scattered file, with its path.
pub type ScatteredFile = (Vec<u8>, Scattered);

/// The large files of an image of which ranges that replays read stay in their places.
///
/// # Errors
/// [`FsError::Corrupt`] for a damaged inode.
pub fn scattered_in(
    image: &dyn Inspect,
    replays: &[Replayed],
    storage: Storage,
) -> Result<Vec<ScatteredFile>, FsError> {
    let block_size = u64::from(image.geometry().block_size);
    let object = |ino: Ino| Some(ObjectId::new(ino.get()));
    let mut blocks = HashMap::new();
    for &ino in replays.iter().flat_map(|replay| &replay.files) {
        // Of a file with holes, those that it has.
        let attr = image.attr(ino)?;
        let held = attr.sectors.checked_mul(512).map_or(attr.size, |held| held.min(attr.size));
        blocks.insert(ObjectId::new(ino.get()), held.div_ceil(block_size));
    }
    let len = |object| blocks.get(&object).copied().unwrap_or(0);
    let (_, scattered) = gather(touches(replays, &object, 1), storage, block_size, &len);
    Ok(named(scattered, replays, &object))
}

/// The files with the paths by which replays reached them. `object` finds an inode's object.
#[must_use]
pub fn named(
    files: Vec<Scattered>,
    replays: &[Replayed],
    object: &dyn Fn(Ino) -> Option<ObjectId>,
) -> Vec<ScatteredFile> {
    let mut paths: HashMap<ObjectId, &Vec<u8>> = HashMap::new();
    for replay in replays {
        for (object, path) in
            replay.files.iter().filter_map(|ino| Some((object(*ino)?, replay.paths.get(ino)?)))
        {
            paths.entry(object).or_insert(path);
        }
    }
    let path = |file: &Scattered| paths.get(&file.object).copied().cloned().unwrap_or_default();
    files.into_iter().map(|file| (path(&file), file)).collect()
}

/// The blocks of an object's contents; none of directories, and of objects that do not move.
#[must_use]
pub fn blocks_in(demand: &dyn Demand, object: ObjectId) -> u64 {
    if demand.is_directory(object) || demand.is_pinned(object) {
        return 0;
    }
    let mut runs = Vec::new();
    demand.runs(object, &mut runs);
    runs.iter().map(|run| run.len).sum()
}

/// Returns the touches of all that moves, in blocks of `block_size` bytes, and the files of which
/// something that is touched does not. `blocks` returns the number of blocks of an object
/// ([`blocks_in`]).
#[must_use]
pub fn gather(
    touches: Vec<Touch>,
    storage: Storage,
    block_size: u64,
    blocks: &dyn Fn(ObjectId) -> u64,
) -> (Vec<Touch>, Vec<Scattered>) {
    if storage.kind.bytes_per_seek() == 0 {
        return (touches, Vec::new());
    }
    let mut files: BTreeMap<ObjectId, Option<LargeFile>> = BTreeMap::new();
    let (mut touched, mut steps) = (Touched::default(), Vec::new());
    for touch in &touches {
        let Part::Blocks(run) = touch.part else { continue };
        let file = files.entry(touch.object).or_insert_with(|| {
            let len = blocks(touch.object).checked_mul(block_size).filter(|&len| len >= LARGE);
            len.map(|len| LargeFile { len, block_size, ranges: Vec::new() })
        });
        if file.is_some() {
            let from = run.lbn.get();
            touched.add(touch.object, from, from.saturating_add(run.len), &mut steps);
        }
    }
    for (&object, file) in &mut files {
        if let Some(file) = file {
            file.ranges = touched.ranges(object).map(ReadRange::new).collect();
        }
    }
    for (at, step) in steps.iter().enumerate() {
        if let Some(Some(file)) = files.get_mut(&step.object) {
            file.count(at, step);
        }
    }
    for file in files.values_mut().flatten() {
        file.decide(storage.kind);
    }
    let scattered =
        files.iter().filter_map(|(&object, file)| file.as_ref()?.scattered(object, storage));
    let scattered = scattered.collect();
    let mut moving = Vec::with_capacity(touches.len());
    for touch in touches {
        match (touch.part, files.get(&touch.object)) {
            (Part::Blocks(run), Some(Some(file))) => {
                if let Some(run) = file.moving(run) {
                    moving.push(Touch { part: Part::Blocks(run), ..touch });
                }
            }
            _ => moving.push(touch),
        }
    }
    (moving, scattered)
}

/// A large file that traces read.
struct LargeFile {
    len: u64,
    block_size: u64,
    /// Disjoint, in order.
    ranges: Vec<ReadRange>,
}

/// Blocks of a file that are read, all of them.
#[derive(Clone, Copy)]
struct ReadRange {
    from: u64,
    to: u64,
    /// The number of pieces in which it is read, and which one of all files' is the first.
    pieces: u64,
    first: usize,
    moves: Movement,
}

/// How a range moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Movement {
    Not,
    /// As it is read.
    AsRead,
    /// With all that lies between these blocks, in parts of this number of blocks.
    Within {
        from: u64,
        to: u64,
        part: u64,
    },
}

impl ReadRange {
    fn new((from, to): (u64, u64)) -> Self {
        Self { from, to, pieces: 0, first: usize::MAX, moves: Movement::Not }
    }

    const fn len(&self) -> u64 {
        self.to - self.from
    }
}

impl LargeFile {
    /// Counts a piece, the `at`th of all files'.
    fn count(&mut self, at: usize, step: &PlacementStep) {
        let range = self.ranges.partition_point(|range| range.to <= step.run.lbn.get());
        if let Some(range) = self.ranges.get_mut(range) {
            range.pieces += 1;
            range.first = range.first.min(at);
        }
    }

    /// Decides which ranges move.
    fn decide(&mut self, kind: StorageKind) {
        let least = (LEAST / self.block_size).max(1);
        for range in &mut self.ranges {
            if range.len() >= least.max(range.pieces * PIECE / self.block_size) {
                range.moves = Movement::AsRead;
            }
        }
        let per_seek = kind.bytes_per_seek();
        let part = (SHARE * per_seek / self.block_size).max(least);
        self.join(least, part);
        let most = self.len / (SHARE * SEEKS * per_seek);
        let mut rest: Vec<&mut ReadRange> =
            self.ranges.iter_mut().filter(|range| range.moves == Movement::Not).collect();
        rest.sort_unstable_by_key(|range| range.first);
        let most = if rest.len() <= FEW { wide(FEW) } else { most };
        for (range, _) in rest.into_iter().zip(0..most) {
            range.moves = Movement::Within { from: range.from, to: range.to, part };
        }
    }

    /// Joins ranges that are read in small pieces, with all between them, as long as half of the
    /// blocks are read, and moves them if they are `least` blocks together.
    fn join(&mut self, least: u64, part: u64) {
        for group in self.ranges.chunk_by_mut(|one, two| one.moves == two.moves) {
            if group.first().is_some_and(|range| range.moves != Movement::Not) {
                continue;
            }
            let mut at = 0;
            while let Some(&ReadRange { from, to, .. }) = group.get(at) {
                let (mut end, mut read, mut to) = (at + 1, to - from, to);
                while let Some(next) = group.get(end)
                    && (read + next.len()) * 2 >= next.to - from
                {
                    (end, read, to) = (end + 1, read + next.len(), next.to);
                }
                if to - from >= least {
                    let joined = group.get_mut(at..end).unwrap_or_default();
                    for range in joined {
                        range.moves = Movement::Within { from, to, part };
                    }
                }
                at = end;
            }
        }
    }

    /// The run that moves because of a touch; it lies in one range.
    fn moving(&self, run: Run) -> Option<Run> {
        let (at, end) = (run.lbn.get(), run.lbn.get().saturating_add(run.len));
        let range = self.ranges.partition_point(|range| range.to <= at);
        match self.ranges.get(range)?.moves {
            Movement::Not => None,
            Movement::AsRead => Some(run),
            Movement::Within { from, to, part } => {
                let first = from + (at - from) / part * part;
                let last = from + (end - from).div_ceil(part) * part;
                Some(Run { lbn: Lbn::new(first), len: last.min(to) - first })
            }
        }
    }

    fn scattered(&self, object: ObjectId, storage: Storage) -> Option<Scattered> {
        let stays = || self.ranges.iter().filter(|range| range.moves == Movement::Not);
        let blocks: u64 = stays().map(ReadRange::len).sum();
        let align = storage.align(self.block_size);
        let chunks: BTreeSet<u64> =
            stays().flat_map(|range| range.from / align..range.to.div_ceil(align)).collect();
        (blocks > 0).then(|| Scattered {
            object,
            len: ByteLen::new(self.len),
            ranges: wide(stays().count()),
            bytes: ByteLen::new(blocks * self.block_size),
            chunks: wide(chunks.len()),
        })
    }
}
