//! Bytes as they were before a change.

use crate::shape::Place;
use smallvec::SmallVec;

/// Some neighbouring bytes of a block as they were before a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo<'a> {
    /// From the start of the block.
    pub(super) offset: u32,
    bytes: &'a [u8],
}

/// Bytes of a head, which stands before the bytes of a piece: its offset and its length
/// in 20 bits each, the lowest first.
const HEAD: usize = 5;

/// Bytes in the largest block whose pieces have such heads.
pub(crate) const MOST_BLOCK: u32 = 1 << 19;

/// All that a change undoes: pieces of a block, each behind a head.
///
/// Names and block numbers with their heads need no memory of their own, inodes do:
/// records come and go by the hundred in each round, and in a list of lists, each in
/// memory of its own, most of the time went into waiting for that memory.
#[derive(Clone, Default)]
pub(super) struct Undos(Packed);

type Packed = SmallVec<[u8; 32]>;

impl Undos {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces, in the order in which they were given.
    pub(super) fn iter(&self) -> Pieces<'_> {
        Pieces(&self.0)
    }

    /// Bytes that are kept for it, heads among them: without a look at the pieces, which
    /// mostly lie elsewhere, and long unread.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn push(&mut self, offset: u32, bytes: &[u8]) {
        let most = MOST_BLOCK as usize;
        debug_assert!(offset as usize <= most && bytes.len() <= most, "more than a block has");
        let [a, b, c, d, e, ..] = (u64::from(offset) | (bytes.len() as u64) << 20).to_le_bytes();
        self.0.extend_from_slice(&[a, b, c, d, e]);
        self.0.extend_from_slice(bytes);
    }

    /// Calls the function with the offset and the bytes of each piece.
    fn each_mut(&mut self, mut each: impl FnMut(u32, &mut [u8])) {
        let mut left = &mut self.0[..];
        while let Some((head, rest)) = left.split_first_chunk_mut::<HEAD>() {
            let (offset, len) = read(head);
            let (bytes, next) = rest.split_at_mut(len);
            each(offset, bytes);
            left = next;
        }
    }

    /// What of it lies outside some fragments, in as few pieces as there are.
    pub(super) fn outside(&self, fragment: u32, mask: u64) -> Self {
        let mut kept = Self::default();
        for undo in self.iter() {
            let mut from = undo.offset;
            while from < undo.end() {
                let goes = |at: u32| mask & (1 << (at / fragment)) != 0;
                // Up to where what goes ends, or what stays.
                let mut end = from;
                while end < undo.end() && goes(end) == goes(from) {
                    end = ((end / fragment + 1) * fragment).min(undo.end());
                }
                if !goes(from) {
                    let piece = (from - undo.offset) as usize..(end - undo.offset) as usize;
                    kept.push(from, &undo.bytes[piece]);
                }
                from = end;
            }
        }
        kept
    }

    /// Lets it undo what an earlier change would have undone in its bytes: undoing it
    /// undoes that as well.
    pub(super) fn lay_over(&mut self, old: &Self) {
        for old in old.iter() {
            self.each_mut(|offset, bytes| {
                let start = old.offset.max(offset);
                let end = old.end().min(offset + bytes.len() as u32);
                if start < end {
                    let from = (start - old.offset) as usize..(end - old.offset) as usize;
                    let to = (start - offset) as usize..(end - offset) as usize;
                    bytes[to].copy_from_slice(&old.bytes[from]);
                }
            });
        }
    }

    /// Whether each of some places lies in one piece.
    pub(super) fn covers_all(&self, places: &[Place]) -> bool {
        places.iter().all(|place| {
            let covers = |undo: Undo<'_>| {
                undo.offset as usize <= place.start && undo.end() as usize >= place.end
            };
            self.iter().any(covers)
        })
    }
}

impl std::fmt::Debug for Undos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An offset and a length.
fn read(head: &[u8; HEAD]) -> (u32, usize) {
    let [a, b, c, d, e] = *head;
    let both = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    ((both & 0xF_FFFF) as u32, (both >> 20) as usize)
}

/// The pieces of an [`Undos`].
pub(super) struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = Undo<'a>;

    fn next(&mut self) -> Option<Undo<'a>> {
        let (head, rest) = self.0.split_first_chunk::<HEAD>()?;
        let (offset, len) = read(head);
        let (bytes, next) = rest.split_at(len);
        self.0 = next;
        Some(Undo { offset, bytes })
    }
}

/// Memory of what is not to be undone any more, for what is to come: inodes come and
/// go by the hundred in each round.
#[derive(Default)]
pub(super) struct SpareUndos(Vec<Packed>);

impl SpareUndos {
    /// Most that is kept; each takes the 128 or 256 bytes of an inode and a head, 4 or
    /// 8 MB in all.
    const MOST: usize = 1 << 15;

    /// Takes the memory of what is not to be undone any more.
    pub(super) fn give(&mut self, undos: &mut Undos) {
        if undos.0.spilled() && self.0.len() < Self::MOST {
            self.0.push(std::mem::take(&mut undos.0));
        } else {
            undos.0.clear();
        }
    }

    /// The bytes of a block at some places.
    pub(super) fn copy(&mut self, block: &[u8], places: &[Place]) -> Undos {
        let len: usize = places.iter().map(|place| HEAD + (place.end - place.start)).sum();
        let mut undos = Undos::default();
        if len > undos.0.inline_size() {
            undos.0 = self.0.pop().unwrap_or_default();
            undos.0.clear();
            undos.0.reserve_exact(len);
        }
        for place in places {
            // A block's bytes are counted in 32 bits.
            undos.push(place.start as u32, &block[place.start..place.end]);
        }
        undos
    }
}

impl Undo<'_> {
    pub(super) fn end(&self) -> u32 {
        debug_assert!(self.bytes.len() <= (u32::MAX - self.offset) as usize, "out of its block");
        self.offset + self.bytes.len() as u32
    }

    /// Puts them back into a block.
    pub(super) fn apply(&self, block: &mut [u8]) {
        let start = self.offset as usize;
        block[start..start + self.bytes.len()].copy_from_slice(self.bytes);
    }

    /// Whether some of these bytes lie in one of some places.
    pub(super) fn touches(&self, places: &[Place]) -> bool {
        places.iter().any(|p| (self.offset as usize) < p.end && self.end() as usize > p.start)
    }

    /// Whether all of these bytes lie in one of some places.
    pub(super) fn lies_within(&self, places: &[Place]) -> bool {
        let within =
            |place: &Place| place.start <= self.offset as usize && self.end() as usize <= place.end;
        places.iter().any(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Undoes `places` of a block whose bytes are numbers from `first` on.
    fn undos(first: u8, places: &[(usize, usize)]) -> Undos {
        let block: Vec<u8> = (0..64).map(|n| first + n).collect();
        let place = |&(start, end): &(usize, usize)| Place { block: 0, start, end, mask: 1 };
        let places: Vec<Place> = places.iter().map(place).collect();
        SpareUndos::default().copy(&block, &places)
    }

    fn pieces(undos: &Undos) -> Vec<(u32, Vec<u8>)> {
        undos.iter().map(|undo| (undo.offset, undo.bytes.to_vec())).collect()
    }

    #[test]
    fn what_lies_outside_is_in_as_few_pieces_as_there_are() {
        let all = undos(0, &[(2, 22), (30, 30), (40, 41)]);
        assert_eq!(all.len(), 21 + 3 * HEAD as u64);
        // Fragments of 4 bytes: the third and the fourth go, and the eleventh.
        let kept = all.outside(4, 0b100_0000_1100);
        let expected = vec![(2, (2..8).collect()), (16, (16..22).collect())];
        assert_eq!(pieces(&kept), expected);
        assert!(all.outside(4, u64::MAX).is_empty());
        assert_eq!(pieces(&all.outside(4, 0))[0], (2, (2..22).collect()));
    }

    #[test]
    fn what_was_undone_before_is_undone_by_what_lies_over_it() {
        let mut new = undos(100, &[(4, 8), (10, 12)]);
        new.lay_over(&undos(0, &[(6, 11)]));
        let expected = vec![(4, vec![104, 105, 6, 7]), (10, vec![10, 111])];
        assert_eq!(pieces(&new), expected);
    }

    #[test]
    fn memory_that_was_given_back_holds_nothing_of_before() {
        let mut spare = SpareUndos::default();
        let block = [7u8; 256];
        let place = |start, end| Place { block: 0, start, end, mask: 1 };
        let mut first = spare.copy(&block, &[place(0, 128)]);
        spare.give(&mut first);
        assert!(first.is_empty());
        let second = spare.copy(&block, &[place(3, 103)]);
        assert_eq!(pieces(&second), vec![(3, vec![7; 100])]);
        let short = spare.copy(&block, &[place(1, 3), place(9, 10)]);
        assert_eq!(short.len(), 3 + 2 * HEAD as u64);
    }
}
