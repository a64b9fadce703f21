//! The extents of a damaged tree, in order again. Leaves list the extents of a file in rising
//! order, so an extent with a wrong logical block contradicts its neighbours. The most extents that
//! agree with each other are right. Of the others, one stays if a single place is left for it; the
//! rest is dropped, as e2fsck drops every extent that contradicts an earlier one.
//!
//! The file's length bounds its written blocks, unless more of them lie past it than one wrong
//! number explains: then the length is wrong. An inode counts fewer blocks than its extents have if
//! an extent is too long, which then ends where the next one begins.

use crate::encode::mapping::Piece;
use crate::extent::LOGICAL_BLOCKS;
use seekless_fs::plan::Placed;
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::BTreeMap;
use std::ops::Range;

/// Logical blocks of a file. The last of 32 bits is never used: lengths of files end before it.
pub(super) const USABLE_BLOCKS: u64 = LOGICAL_BLOCKS - 1;

/// An extent as its leaf has it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) piece: Piece,
    /// It is not empty, and lies in the volume.
    pub(super) is_sound: bool,
    /// Logical blocks of its leaf, as the index has them.
    pub(super) leaf: Range<u64>,
    /// It is the first of a leaf that has an index.
    pub(super) opens_leaf: bool,
}

/// In the place of an extent that is not there: it is empty.
static NOTHING: Candidate = Candidate {
    piece: Piece {
        placed: Placed { lbn: Lbn::ZERO, extent: Extent::new(BlockNo::ZERO, 0) },
        unwritten: false,
    },
    is_sound: false,
    leaf: 0..0,
    opens_leaf: false,
};

impl Candidate {
    fn lbn(&self) -> u64 {
        self.piece.placed.lbn.get()
    }

    fn len(&self) -> u64 {
        self.piece.placed.extent.len
    }

    /// The distance from logical to physical blocks, if it were at `lbn`.
    fn distance(&self, lbn: u64) -> u64 {
        self.piece.placed.extent.start.get().wrapping_sub(lbn)
    }
}

/// How many extents are in a chain, how many of them are where the index has their leaf, and the
/// sum of their positions, negative: of two equal chains that with the earlier extents is kept, as
/// in e2fsck.
type Score = (usize, usize, i64);

/// All extents of a file, in the order of its tree.
#[derive(Default)]
pub(super) struct Sequence {
    pub(super) candidates: Vec<Candidate>,
    /// The file's length in blocks, where it bounds written ones.
    pub(super) len: Option<u64>,
    /// Blocks of the extents that the inode does not count.
    pub(super) surplus: u64,
}

/// The logical block of each extent; `None` for those without a place.
struct ExtentPlaces {
    lbns: Vec<Option<u64>>,
    /// The end of the file in blocks, where its length is right.
    end: Option<u64>,
}

impl ExtentPlaces {
    fn of(&self, at: usize) -> Option<u64> {
        self.lbns.get(at).copied().flatten()
    }

    fn put(&mut self, at: usize, lbn: u64) {
        if let Some(slot) = self.lbns.get_mut(at) {
            *slot = Some(lbn);
        }
    }
}

impl Sequence {
    /// The pieces of the file, and whether these are all extents, unchanged.
    pub(super) fn in_order(&self) -> (Vec<Piece>, bool) {
        let mut places = self.agreed();
        // Where an extent is too long, the gaps do not tell how much was in them.
        if self.surplus == 0 {
            self.put_back(&mut places);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (candidate, lbn) in self.candidates.iter().zip(&places.lbns) {
            let Some(lbn) = *lbn else { continue };
            if let Some(last) = pieces.last_mut() {
                let room = lbn - last.placed.lbn.get();
                last.placed.extent.len = last.placed.extent.len.min(room);
            }
            let extent = candidate.piece.placed.extent;
            let placed = Placed { lbn: Lbn::new(lbn), extent };
            pieces.push(Piece { placed, ..candidate.piece });
        }
        let is_whole = pieces.iter().eq(self.candidates.iter().map(|it| &it.piece));
        (pieces, is_whole)
    }

    /// The end of an extent, as far as it excludes others.
    fn end(&self, candidate: &Candidate) -> u64 {
        candidate.lbn() + if self.surplus > 0 { 1 } else { candidate.len() }
    }

    /// Whether a written extent ends past a limit.
    fn is_past(&self, candidate: &Candidate, limit: Option<u64>) -> bool {
        !candidate.piece.unwritten && limit.is_some_and(|limit| self.end(candidate) > limit)
    }

    /// The places of the extents that agree with each other, with or without the file's length.
    fn agreed(&self) -> ExtentPlaces {
        let limit = self.len;
        let (bounded, free) = (self.chain(limit), self.chain(None));
        let past = free.iter().filter(|at| self.is_past(self.at(**at), limit)).count();
        let lost = free.len() - bounded.len();
        let is_bounded = past == 0 || lost == 0 || (lost == 1 && self.is_astray(&bounded, &free));
        let lbns = vec![None; self.candidates.len()];
        let mut places = ExtentPlaces { lbns, end: limit.filter(|_| is_bounded) };
        for &at in if is_bounded { &bounded } else { &free } {
            places.put(at, self.at(at).lbn());
        }
        places
    }

    /// Whether the last extent is the wrong one, and not the length, which one number less would
    /// explain as well: it lies far from the file, which has room for it.
    fn is_astray(&self, bounded: &[usize], free: &[usize]) -> bool {
        let (Some(&last), Some(len)) = (free.last(), self.len) else { return false };
        let end = bounded.last().map_or(0, |&at| self.end(self.at(at)));
        let last = self.at(last);
        // Blocks that the inode does not count yet may be those of an append.
        self.surplus == 0 && last.lbn() >= 2 * len && end + last.len() <= len
    }

    fn at(&self, at: usize) -> &Candidate {
        debug_assert!(at < self.candidates.len(), "extent {at} of the tree");
        self.candidates.get(at).unwrap_or(&NOTHING)
    }

    /// The longest chain of extents that follow each other, by their positions. Written ones end
    /// within the limit.
    fn chain(&self, limit: Option<u64>) -> Vec<usize> {
        // Chains by the logical block behind their end: the better ones end later.
        let mut best: BTreeMap<u64, (Score, usize)> = BTreeMap::new();
        let mut before: Vec<Option<usize>> = Vec::with_capacity(self.candidates.len());
        for (at, candidate) in self.candidates.iter().enumerate() {
            let (start, end) = (candidate.lbn(), self.end(candidate));
            let led = best.range(..=start).next_back().map(|(_, found)| *found);
            before.push(led.map(|(_, at)| at));
            let is_possible = candidate.is_sound && end <= USABLE_BLOCKS;
            if !is_possible || self.is_past(candidate, limit) {
                continue;
            }
            let (count, inside, order) = led.map_or((0, 0, 0), |(score, _)| score);
            let leaf = &candidate.leaf;
            let is_inside = leaf.start <= start && end <= leaf.end;
            let order = order - i64::try_from(at).unwrap_or(i64::MAX);
            let score = (count + 1, inside + usize::from(is_inside), order);
            if best.range(..=end).next_back().is_some_and(|(_, (other, _))| *other >= score) {
                continue;
            }
            let worse = best.range(end..).take_while(|(_, (other, _))| *other <= score);
            let worse: Vec<u64> = worse.map(|(end, _)| *end).collect();
            for end in worse {
                best.remove(&end);
            }
            best.insert(end, (score, at));
        }
        let mut chain = Vec::new();
        let mut next = best.last_key_value().map(|(_, (_, at))| *at);
        while let Some(at) = next {
            chain.push(at);
            next = before.get(at).copied().flatten();
        }
        chain.reverse();
        chain
    }

    /// Gives extents without a place the only one that is left for them.
    fn put_back(&self, places: &mut ExtentPlaces) {
        let mut at = 0;
        while at < self.candidates.len() {
            let lost = places.lbns.iter().skip(at).take_while(|lbn| lbn.is_none()).count();
            let run = at..at + lost;
            at = run.end + 1;
            let lost = self.candidates.get(run.clone()).unwrap_or_default();
            if lost.is_empty() || lost.iter().any(|candidate| !candidate.is_sound) {
                continue;
            }
            let Some(gap) = self.gap(places, &run) else { continue };
            let blocks: u64 = lost.iter().map(Candidate::len).sum();
            if gap.end - gap.start == blocks {
                let mut next = gap.start;
                for (at, candidate) in run.zip(lost) {
                    places.put(at, next);
                    next += candidate.len();
                }
            } else if run.len() == 1 {
                self.put_one(places, run.start, &gap);
            }
        }
    }

    /// The room between the places of the neighbours of some extents, if these have places.
    fn gap(&self, places: &ExtentPlaces, run: &Range<usize>) -> Option<Range<u64>> {
        let start = match run.start.checked_sub(1) {
            Some(at) => places.of(at)? + self.at(at).len(),
            None => 0,
        };
        let end = if run.end < self.candidates.len() {
            places.of(run.end)?
        } else {
            places.end.unwrap_or(USABLE_BLOCKS)
        };
        (start <= end).then_some(start..end)
    }

    /// Gives one extent a place in the gap between its neighbours: where the index has its leaf, as
    /// far from its blocks as theirs are, in the place of a neighbour that fits another place
    /// exactly, or at the end of the file, which its last extent gives its length.
    fn put_one(&self, places: &mut ExtentPlaces, at: usize, gap: &Range<u64>) {
        let candidate = self.at(at);
        let fits = |lbn: &u64| gap.start <= *lbn && lbn + candidate.len() <= gap.end;
        let indexed = candidate.opens_leaf.then_some(candidate.leaf.start);
        let found = indexed.filter(fits).or_else(|| self.beside(places, at).filter(fits));
        if let Some(lbn) = found {
            return places.put(at, lbn);
        }
        if self.swap(places, at) || at + 1 < self.candidates.len() || candidate.piece.unwritten {
            return;
        }
        let last = places.end.and_then(|end| end.checked_sub(candidate.len()));
        if let Some(lbn) = last.filter(fits) {
            places.put(at, lbn);
        }
    }

    /// The place of an extent whose neighbours are equally far from their blocks: files are
    /// allocated so, with the holes between their extents.
    fn beside(&self, places: &ExtentPlaces, at: usize) -> Option<u64> {
        let distance = |at: Option<usize>| {
            let at = at?;
            places.of(at).map(|lbn| self.at(at).distance(lbn))
        };
        let (before, after) = (distance(at.checked_sub(1)), distance(at.checked_add(1)));
        let (one, other) = match (before, after) {
            (Some(_), Some(_)) => (before, after),
            (Some(_), None) => (before, distance(at.checked_sub(2))),
            _ => (after, distance(at.checked_add(2))),
        };
        let alike = one.filter(|_| one == other)?;
        let lbn = self.at(at).distance(alike);
        (lbn < USABLE_BLOCKS).then_some(lbn)
    }

    /// Whether extents follow each other everywhere but beside one.
    fn is_dense(&self, places: &ExtentPlaces, beside: usize) -> bool {
        (1..self.candidates.len()).all(|at| {
            let before = places.of(at - 1).map(|lbn| lbn + self.at(at - 1).len());
            at.abs_diff(beside) < 3 || before == places.of(at)
        })
    }

    /// Lets an extent stay instead of a neighbour that it contradicts, if the neighbour fits a gap
    /// exactly then, in a file without other holes.
    fn swap(&self, places: &mut ExtentPlaces, at: usize) -> bool {
        if !self.is_dense(places, at) {
            return false;
        }
        for (other, before) in [(at.checked_sub(1), true), (at.checked_add(1), false)] {
            let Some(other) = other.filter(|other| places.of(*other).is_some()) else { continue };
            let pair = at.min(other)..at.max(other) + 1;
            let Some(gap) = self.gap(places, &pair) else { continue };
            let (lbn, len) = (self.at(at).lbn(), self.at(other).len());
            let end = lbn + self.at(at).len();
            let (place, is_exact) = if before {
                (gap.start, gap.start + len == lbn)
            } else {
                (end, end + len == gap.end)
            };
            if is_exact && gap.start <= lbn && end <= gap.end {
                places.put(at, lbn);
                places.put(other, place);
                return true;
            }
        }
        false
    }
}
