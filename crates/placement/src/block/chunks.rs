//! ext4's preallocation of blocks in memory (mballoc).

use seekless_units::{BlockNo, Extent, GroupNo, Ino};

/// Maximum size in blocks of a file that uses shared chunks (`s_mb_stream_req`).
const SMALL: u64 = 16;
/// Blocks of a shared chunk (`s_mb_group_prealloc`).
const SHARED: u32 = 512;
/// Maximum number of shared chunks, and of files with pieces.
const MOST_SHARED: usize = 8;
const MOST_FILES: usize = 64;
/// Up to the second number of bytes, a file's piece is as large as the file, rounded up to a power
/// of two and at least to the first number.
const POWERS: [u64; 2] = [16 << 10, 1 << 20];

/// Blocks requested for the contents of a regular file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkWanted {
    /// The file.
    pub ino: Ino,
    /// The first requested block.
    pub lbn: u64,
    /// Number of blocks, at least one.
    pub len: u32,
    /// Number of blocks of the file, from its length.
    pub size: u64,
    /// The nearest mapped block before these: logical and physical number.
    pub left: Option<(u64, BlockNo)>,
    /// The nearest mapped block after these.
    pub right: Option<(u64, BlockNo)>,
    /// Start of the search. Among several shared chunks the nearest one is taken.
    pub goal: BlockNo,
    /// The file ends with these blocks, and is no longer open: no piece is preallocated for it
    /// (`EXT4_MB_HINT_NOPREALLOC`).
    pub ends_closed: bool,
}

/// A search for contiguous blocks in a group, if no preallocation matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// The logical block of the first one; `None` for a shared chunk.
    lbn: Option<u64>,
    /// Number of blocks.
    pub len: u32,
    /// The blocks are taken here if they are free.
    pub exact: Option<BlockNo>,
    /// The group of this block is searched first, and then those behind it.
    pub from: BlockNo,
}

/// Free blocks preallocated for blocks of a file.
#[derive(Clone, Copy, Debug)]
struct Piece {
    ino: Ino,
    lbn: u64,
    run: Extent,
}

/// Blocks preallocated in memory, as in ext4 (`fs/ext4/mballoc.c`): chunks of 512 blocks, which
/// small files of all directories share one after the other, and pieces for single larger files.
///
/// The kernel has chunks for each processor; these are those of one. It drops a file's pieces at
/// the last close. This model sees no closes, and drops the oldest file's pieces when 64 files have
/// some.
///
/// The search for a piece that does not continue a file begins at the last piece found for any file
/// whose inode number has the same remainder modulo the number of processors (`s_mb_last_groups`).
#[derive(Clone, Debug)]
pub struct Chunks {
    /// Bytes in a block, as a power of two.
    block_bits: u32,
    /// Blocks in a group.
    per_group: u32,
    /// Groups in a flexible group whose first group is reserved for directories; 0 if none is.
    apart: u32,
    /// The last piece found for single files, by remainder of the inode number.
    last: Vec<BlockNo>,
    shared: Vec<Extent>,
    /// The most recently used ones are at the end.
    pieces: Vec<Piece>,
}

impl Chunks {
    /// Creates an empty set for a volume with `block_size` bytes per block and `per_group` blocks
    /// per group, in which the first of every `apart` groups is reserved for directories (0: none),
    /// on a machine with `processors` processors, at least one.
    #[must_use]
    pub fn new(block_size: u32, per_group: u32, apart: u32, processors: usize) -> Self {
        let block_bits = block_size.max(1).ilog2();
        let last = vec![BlockNo::ZERO; processors.max(1)];
        let (shared, pieces) = (Vec::new(), Vec::new());
        Self { block_bits, per_group, apart, last, shared, pieces }
    }

    /// Index of a file's entry in `last`.
    fn goal_of(&self, ino: Ino) -> usize {
        let goals = u32::try_from(self.last.len()).unwrap_or(u32::MAX);
        usize::try_from(ino.get().checked_rem(goals).unwrap_or(0)).unwrap_or(0)
    }

    /// Whether aligned blocks for contents are not searched in a group (`ext4_mb_good_group`).
    #[must_use]
    pub fn avoids(&self, group: GroupNo) -> bool {
        group.get().checked_rem(self.apart) == Some(0)
    }

    /// Takes preallocated blocks of a file, at most as many as requested.
    pub fn take(&mut self, wanted: &ChunkWanted) -> Option<Extent> {
        self.take_piece(wanted).or_else(|| self.take_shared(wanted))
    }

    fn take_piece(&mut self, wanted: &ChunkWanted) -> Option<Extent> {
        let has = |piece: &Piece| {
            let end = piece.lbn + piece.run.len;
            piece.ino == wanted.ino && (piece.lbn..end).contains(&wanted.lbn)
        };
        let at = self.pieces.iter().position(has)?;
        let piece = self.pieces.remove(at);
        Some(self.use_piece(piece, wanted))
    }

    /// Takes the requested blocks from a piece, and keeps the rest.
    fn use_piece(&mut self, piece: Piece, wanted: &ChunkWanted) -> Extent {
        let before = wanted.lbn - piece.lbn;
        let len = (piece.run.len - before).min(wanted.len.into());
        debug_assert_ne!(len, 0, "the piece has the block");
        let run = Extent::new(piece.run.start + before, len);
        let behind = before + len;
        let rest = Piece {
            lbn: piece.lbn + behind,
            run: Extent::new(run.end(), piece.run.len - behind),
            ..piece
        };
        let front = Piece { run: Extent::new(piece.run.start, before), ..piece };
        self.pieces.extend([front, rest].into_iter().filter(|piece| piece.run.len > 0));
        run
    }

    fn take_shared(&mut self, wanted: &ChunkWanted) -> Option<Extent> {
        if !is_small(wanted) {
            return None;
        }
        let len = u64::from(wanted.len);
        let fits = self.shared.iter().enumerate().filter(|(_, chunk)| chunk.len >= len);
        let near = fits.min_by_key(|(_, chunk)| chunk.start.get().abs_diff(wanted.goal.get()));
        let (at, chunk) = near.map(|(at, &chunk)| (at, chunk))?;
        self.shared.swap_remove(at);
        Some(self.use_shared(chunk, len))
    }

    fn use_shared(&mut self, chunk: Extent, len: u64) -> Extent {
        let len = len.min(chunk.len);
        let run = Extent::new(chunk.start, len);
        let rest = chunk.len - len;
        if rest > 0 {
            self.shared.push(Extent::new(run.end(), rest));
        }
        run
    }

    /// The search to perform if no preallocation matches (`ext4_mb_normalize_request`).
    #[must_use]
    pub fn search(&self, wanted: &ChunkWanted) -> Search {
        if is_small(wanted) {
            let len = SHARED.min(self.per_group);
            return Search { lbn: None, len, exact: None, from: wanted.goal };
        }
        if wanted.ends_closed {
            let (lbn, len) = (Some(wanted.lbn), wanted.len.min(self.per_group));
            return Search { lbn, len, exact: None, from: wanted.goal };
        }
        let (mut start, mut end) = self.piece_for(wanted);
        if let Some((lbn, _)) = wanted.left {
            start = start.max(lbn + 1);
        }
        if let Some((lbn, _)) = wanted.right {
            end = end.min(lbn);
        }
        for piece in self.pieces.iter().filter(|piece| piece.ino == wanted.ino) {
            let behind = piece.lbn + piece.run.len;
            if behind <= wanted.lbn {
                start = start.max(behind);
            } else {
                end = end.min(piece.lbn);
            }
        }
        debug_assert!((start..end).contains(&wanted.lbn), "{start} to {end} for {wanted:?}");
        let len = (end - start).min(self.per_group.into());
        let before = |at: BlockNo| at.get().checked_sub(len).map(BlockNo::new);
        let right = wanted.right.filter(|(lbn, _)| start + len == *lbn);
        let left = wanted.left.filter(|(lbn, _)| lbn.checked_add(1) == Some(start));
        let exact = left.map(|(_, at)| at + 1);
        let exact = exact.or_else(|| right.and_then(|(_, at)| before(at)));
        let len = u32::try_from(len).unwrap_or(u32::MAX).max(1);
        let from = self.last.get(self.goal_of(wanted.ino)).copied().unwrap_or_default();
        Search { lbn: Some(start), len, exact, from }
    }

    /// The logical blocks of a file for which a piece is searched: start and end.
    fn piece_for(&self, wanted: &ChunkWanted) -> (u64, u64) {
        let bytes = |blocks: u64| blocks * (1 << self.block_bits);
        let blocks = |bytes: u64| bytes.checked_shr(self.block_bits).unwrap_or(0).max(1);
        let end = wanted.lbn + u64::from(wanted.len);
        let size = bytes(end.max(wanted.size));
        let aligned = |len: u64| {
            let len = blocks(len).min(self.per_group.into()).max(1);
            let start = wanted.lbn.checked_div(len).unwrap_or(0) * len;
            (start, (start + len).max(end))
        };
        let [least, most] = POWERS;
        match size {
            size if size <= most => (0, blocks(size.next_power_of_two().max(least)).max(end)),
            size if size <= 4 << 20 => aligned(2 << 20),
            size if size <= 8 << 20 => aligned(4 << 20),
            _ if bytes(wanted.len.into()) <= 8 << 20 => aligned(8 << 20),
            _ => (wanted.lbn, end),
        }
    }

    /// Adds the result of a search, which may be shorter than the search. Returns the requested
    /// blocks; the rest is kept.
    pub fn found(&mut self, wanted: &ChunkWanted, search: &Search, run: Extent) -> Extent {
        let Some(start) = search.lbn else {
            if self.shared.len() >= MOST_SHARED {
                self.shared.remove(0);
            }
            return self.use_shared(run, wanted.len.into());
        };
        if wanted.ends_closed {
            debug_assert!(run.len <= wanted.len.into(), "no more was looked for");
            return run;
        }
        let at = self.goal_of(wanted.ino);
        if let Some(last) = self.last.get_mut(at) {
            *last = run.start;
        }
        // A run shorter than the whole piece begins at the requested block.
        let reaches = wanted.lbn < start + run.len;
        let lbn = if reaches { start } else { wanted.lbn };
        let mut others: Vec<Ino> = self.pieces.iter().map(|piece| piece.ino).collect();
        others.dedup();
        if others.len() >= MOST_FILES
            && let Some(&oldest) = others.first()
        {
            self.forget(oldest);
        }
        self.use_piece(Piece { ino: wanted.ino, lbn, run }, wanted)
    }

    /// All preallocated blocks.
    pub fn kept(&self) -> impl Iterator<Item = Extent> {
        self.shared.iter().copied().chain(self.pieces.iter().map(|piece| piece.run))
    }

    /// Drops a file's pieces.
    pub fn forget(&mut self, ino: Ino) {
        self.pieces.retain(|piece| piece.ino != ino);
    }

    /// Drops all preallocated blocks. Returns false if there were none.
    pub fn clear(&mut self) -> bool {
        let had = !(self.shared.is_empty() && self.pieces.is_empty());
        self.shared.clear();
        self.pieces.clear();
        had
    }
}

/// Whether a file is small enough to use shared chunks (`ext4_mb_group_or_file`).
fn is_small(wanted: &ChunkWanted) -> bool {
    let end = wanted.lbn + u64::from(wanted.len);
    end.max(wanted.size) <= SMALL
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A growing file gets a piece; a file that ends and is closed does not.
    #[test]
    fn a_closed_file_is_given_what_it_needs() {
        let wanted = |len, ends_closed| ChunkWanted {
            ino: Ino::new(12),
            lbn: 0,
            len,
            size: len.into(),
            left: None,
            right: None,
            goal: BlockNo::new(4096),
            ends_closed,
        };
        for (len, ends_closed, looked_for, kept) in
            [(40, false, 64, 24), (40, true, 40, 0), (9, false, 512, 503), (9, true, 512, 503)]
        {
            let mut chunks = Chunks::new(4096, 32_768, 0, 1);
            let wanted = wanted(len, ends_closed);
            assert_eq!(chunks.take(&wanted), None);
            let search = chunks.search(&wanted);
            assert_eq!((search.len, search.exact), (looked_for, None), "{wanted:?}");
            let found = Extent::new(BlockNo::new(8192), looked_for.into());
            let run = chunks.found(&wanted, &search, found);
            assert_eq!(run, Extent::new(BlockNo::new(8192), len.into()));
            assert_eq!(chunks.kept().map(|run| run.len).sum::<u64>(), kept, "{wanted:?}");
        }
    }
}
