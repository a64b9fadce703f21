//! Contents that have no place on the disk yet (delayed allocation): blocks of files where
//! their maps have none, with the space that is reserved so that they can get one.
//!
//! This is the store alone. `write_back` decides which blocks go into it and when they leave;
//! docs/design/delayed-allocation.md argues both.

use seekless_units::{Ino, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// The bytes of a block of a file.
pub(crate) type Block = Box<[u8]>;

/// The state of a block in a file's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// It has none.
    Hole,
    /// It has one, with contents.
    Written,
    /// It has one that was never written.
    Unwritten,
}

/// The delayed blocks of a file.
#[derive(Debug)]
struct Waiting {
    /// Which of the files became so first.
    turn: u64,
    /// When it is written back at the latest.
    expires: Nanos,
    /// Blocks that follow each other in the file, by the first. No run ends where another
    /// begins.
    runs: BTreeMap<u64, Vec<Block>>,
    blocks: u64,
    /// Blocks of the volume that getting a place takes at most.
    reserved: u64,
}

/// Contents that have no place on the disk yet.
#[derive(Debug, Default)]
pub struct Delayed {
    files: BTreeMap<Ino, Waiting>,
    /// The files in the order in which they are written back.
    turns: BTreeMap<u64, Ino>,
    /// When each expires, and its turn.
    expiries: BTreeSet<(Nanos, u64)>,
    next_turn: u64,
    blocks: u64,
    reserved: u64,
    /// Contents are getting their places: whether the file is open.
    placing: Option<bool>,
}

impl Delayed {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether something of a file waits.
    #[must_use]
    pub fn has(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }

    /// Blocks of contents that wait.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of contents of a file that wait.
    #[must_use]
    pub fn blocks_of(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.blocks)
    }

    /// Blocks of the volume reserved for delayed contents and for their maps, which others must
    /// leave. None while contents get their places, since these are the blocks that were reserved
    /// for them.
    #[must_use]
    pub fn barred(&self) -> u64 {
        if self.placing.is_some() { 0 } else { self.reserved }
    }

    /// Whether contents are getting their places now.
    #[must_use]
    pub fn is_placing(&self) -> bool {
        self.placing.is_some()
    }

    /// Whether the contents that are getting their places are those of a closed file.
    #[must_use]
    pub fn places_closed(&self) -> bool {
        self.placing == Some(false)
    }

    pub(crate) fn set_placing(&mut self, placing: Option<bool>) {
        self.placing = placing;
    }

    /// Blocks of the volume that are reserved, but for those of a file.
    pub(crate) fn reserved_for_others(&self, ino: Ino) -> u64 {
        let own = self.files.get(&ino).map_or(0, |file| file.reserved);
        debug_assert!(own <= self.reserved, "what is reserved is the sum");
        self.reserved - own
    }

    /// Reserves blocks of the volume for the delayed contents of a file.
    pub(crate) fn reserve(&mut self, ino: Ino, reserved: u64) {
        let others = self.reserved_for_others(ino);
        let Some(file) = self.files.get_mut(&ino) else { return };
        debug_assert!(file.blocks <= reserved, "each block needs one");
        file.reserved = reserved;
        self.reserved = others + reserved;
    }

    /// Runs and blocks of a file.
    pub(crate) fn shape_of(&self, ino: Ino) -> (u64, u64) {
        self.files.get(&ino).map_or((0, 0), |file| {
            (u64::try_from(file.runs.len()).unwrap_or(u64::MAX), file.blocks)
        })
    }

    fn run_with(&self, ino: Ino, lbn: u64) -> Option<(u64, usize)> {
        let (&start, run) = self.files.get(&ino)?.runs.range(..=lbn).next_back()?;
        let at = usize::try_from(lbn.checked_sub(start)?).ok()?;
        (at < run.len()).then_some((start, at))
    }

    /// A block of a file, if it waits.
    pub(crate) fn get(&self, ino: Ino, lbn: u64) -> Option<&[u8]> {
        let (start, at) = self.run_with(ino, lbn)?;
        self.files.get(&ino)?.runs.get(&start)?.get(at).map(AsRef::as_ref)
    }

    /// As [`Delayed::get`], to be changed.
    pub(crate) fn get_mut(&mut self, ino: Ino, lbn: u64) -> Option<&mut [u8]> {
        let (start, at) = self.run_with(ino, lbn)?;
        self.files.get_mut(&ino)?.runs.get_mut(&start)?.get_mut(at).map(AsMut::as_mut)
    }

    /// Keeps a block of a file; it must not wait yet. The file is written back when it `expires`,
    /// unless that is due earlier.
    pub(crate) fn put(&mut self, ino: Ino, lbn: u64, block: Block, expires: Nanos) {
        debug_assert!(self.get(ino, lbn).is_none(), "block {lbn} of inode {ino} waits");
        let turn = self.next_turn;
        let file = self.files.entry(ino).or_insert_with(|| Waiting {
            turn,
            expires,
            runs: BTreeMap::new(),
            blocks: 0,
            reserved: 0,
        });
        if file.turn == turn {
            self.next_turn = turn + 1;
            self.turns.insert(turn, ino);
            self.expiries.insert((expires, turn));
        } else if expires < file.expires {
            self.expiries.remove(&(file.expires, file.turn));
            self.expiries.insert((expires, file.turn));
            file.expires = expires;
        }
        file.blocks += 1;
        self.blocks += 1;
        enter(&mut file.runs, lbn, vec![block]);
        debug_assert_eq!(self.turns.len(), self.files.len(), "each file has its turn");
        debug_assert_eq!(self.expiries.len(), self.files.len(), "each file expires once");
    }

    /// The first blocks of a file that wait and follow each other, for which a place is
    /// looked for: they are the caller's until [`Delayed::settle`].
    pub(crate) fn borrow_first(&mut self, ino: Ino) -> Option<(u64, Vec<Block>)> {
        self.files.get_mut(&ino)?.runs.pop_first()
    }

    /// Takes back borrowed blocks; the first `placed` ones have a place now.
    pub(crate) fn settle(&mut self, ino: Ino, lbn: u64, mut blocks: Vec<Block>, placed: u64) {
        let Some(file) = self.files.get_mut(&ino) else {
            debug_assert!(false, "something of inode {ino} waited");
            return;
        };
        let placed = usize::try_from(placed).unwrap_or(usize::MAX).min(blocks.len());
        let rest = blocks.split_off(placed);
        let gone = u64::try_from(placed).unwrap_or(u64::MAX);
        debug_assert!(file.blocks >= gone && self.blocks >= gone, "each waited, and was counted");
        file.blocks -= gone;
        self.blocks -= gone;
        if !rest.is_empty() {
            enter(&mut file.runs, lbn + gone, rest);
        }
        debug_assert_eq!(file.blocks == 0, file.runs.is_empty(), "blocks are counted");
        if file.runs.is_empty() {
            self.forget(ino);
        }
    }

    /// Drops the delayed contents of a file.
    pub(crate) fn forget(&mut self, ino: Ino) {
        let others = self.reserved_for_others(ino);
        let Some(file) = self.files.remove(&ino) else { return };
        let turn = self.turns.remove(&file.turn);
        debug_assert_eq!(turn, Some(ino), "the turn is the file's");
        self.expiries.remove(&(file.expires, file.turn));
        debug_assert!(self.blocks >= file.blocks, "what waits is the sum");
        self.blocks -= file.blocks;
        self.reserved = others;
        let nothing = self.blocks == 0 && self.reserved == 0 && self.turns.is_empty();
        debug_assert!(!self.files.is_empty() || nothing, "the sums are of files");
    }

    /// The file that is written back first.
    pub(crate) fn first(&self) -> Option<Ino> {
        self.turns.values().next().copied()
    }

    /// All files, in the order in which they are written back.
    pub(crate) fn in_turn(&self) -> Vec<Ino> {
        self.turns.values().copied().collect()
    }

    /// The files that have expired, in the same order.
    pub(crate) fn expired(&self, now: Nanos) -> Vec<Ino> {
        let due = self.expiries.iter().take_while(|(expires, _)| *expires <= now);
        let turns: BTreeSet<u64> = due.map(|&(_, turn)| turn).collect();
        turns.iter().filter_map(|turn| self.turns.get(turn).copied()).collect()
    }

    /// When the next file expires.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        self.expiries.first().map(|&(expires, _)| expires)
    }
}

/// Enters blocks that may adjoin others on either side.
fn enter(runs: &mut BTreeMap<u64, Vec<Block>>, lbn: u64, mut blocks: Vec<Block>) {
    let len = |blocks: &[Block]| u64::try_from(blocks.len()).unwrap_or(u64::MAX);
    debug_assert!(!blocks.is_empty() && !runs.contains_key(&lbn), "blocks are entered once");
    let end = lbn + len(&blocks);
    if let Some(behind) = runs.remove(&end) {
        blocks.extend(behind);
    }
    if let Some((&start, before)) = runs.range_mut(..lbn).next_back()
        && start + len(before) == lbn
    {
        before.extend(blocks);
    } else {
        runs.insert(lbn, blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Block {
        vec![byte; 4].into()
    }

    fn ino(n: u32) -> Ino {
        Ino::new(n)
    }

    #[test]
    fn blocks_that_meet_are_one_run() {
        let mut delayed = Delayed::default();
        for lbn in [5, 7, 3, 4, 9] {
            delayed.put(ino(1), lbn, block(lbn as u8), Nanos::new(9));
        }
        assert_eq!(delayed.shape_of(ino(1)), (3, 5));
        delayed.put(ino(1), 6, block(6), Nanos::new(9));
        assert_eq!(delayed.shape_of(ino(1)), (2, 6));
        assert_eq!(delayed.get(ino(1), 6), Some(&[6; 4][..]));
        assert_eq!(delayed.get(ino(1), 8), None);
        assert_eq!(delayed.get(ino(2), 6), None);
        delayed.get_mut(ino(1), 9).unwrap().fill(1);
        assert_eq!(delayed.get(ino(1), 9), Some(&[1; 4][..]));
    }

    #[test]
    fn what_got_no_place_waits_on() {
        let mut delayed = Delayed::default();
        (0..6).for_each(|lbn| delayed.put(ino(1), lbn, block(lbn as u8), Nanos::new(9)));
        delayed.put(ino(2), 0, block(8), Nanos::new(9));
        delayed.reserve(ino(1), 8);
        delayed.reserve(ino(2), 1);
        assert_eq!((delayed.barred(), delayed.blocks()), (9, 7));
        let (lbn, blocks) = delayed.borrow_first(ino(1)).unwrap();
        assert_eq!((lbn, blocks.len()), (0, 6));
        delayed.settle(ino(1), lbn, blocks, 4);
        assert_eq!((delayed.shape_of(ino(1)), delayed.blocks()), ((1, 2), 3));
        assert_eq!(delayed.get(ino(1), 3), None);
        assert_eq!(delayed.get(ino(1), 4), Some(&[4; 4][..]));
        delayed.set_placing(Some(true));
        assert_eq!((delayed.barred(), delayed.places_closed()), (0, false));
        delayed.set_placing(None);
        let (lbn, blocks) = delayed.borrow_first(ino(1)).unwrap();
        delayed.settle(ino(1), lbn, blocks, 2);
        assert!(!delayed.has(ino(1)));
        assert_eq!((delayed.barred(), delayed.blocks()), (1, 1));
        delayed.forget(ino(2));
        assert!(delayed.is_empty());
        assert_eq!((delayed.barred(), delayed.blocks(), delayed.next_expiry()), (0, 0, None));
    }

    #[test]
    fn files_are_written_back_in_the_order_in_which_they_became_so() {
        let mut delayed = Delayed::default();
        for (n, expires) in [(7, 30), (3, 30), (5, 5), (9, 35), (3, 60)] {
            let lbn = delayed.blocks_of(ino(n));
            delayed.put(ino(n), lbn, block(0), Nanos::new(expires));
        }
        assert_eq!(delayed.in_turn(), [7, 3, 5, 9].map(ino));
        assert_eq!(delayed.expired(Nanos::new(4)), []);
        assert_eq!(delayed.expired(Nanos::new(29)), [ino(5)]);
        assert_eq!(delayed.expired(Nanos::new(30)), [7, 3, 5].map(ino));
        // One that is to be replaced is in more of a hurry.
        delayed.put(ino(9), 1, block(0), Nanos::new(10));
        assert_eq!(delayed.expired(Nanos::new(10)), [5, 9].map(ino));
        assert_eq!(delayed.next_expiry(), Some(Nanos::new(5)));
        delayed.forget(ino(5));
        assert_eq!((delayed.next_expiry(), delayed.first()), (Some(Nanos::new(10)), Some(ino(7))));
    }
}
