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

/// In the offset of a head: the piece is zeros, which do not stand behind it. No offset in
/// a block has this bit.
const OF_ZEROS: u32 = MOST_BLOCK;

/// The undo data of a piece of zeros; longer pieces are split.
static ZEROS: [u8; 256] = [0; 256];

/// Zeros that are worth a head of their own.
const FEW_ZEROS: usize = 16;

/// All undo data of a change: pieces of a block, each behind a head.
///
/// Records come and go by the hundred in each round, and in a list of lists, each in memory of its
/// own, most of the time went into waiting for that memory. Names and block numbers with their
/// heads need no memory of their own, nor do most inodes: one that is not in use is zeros but for
/// its generation, and zeros at either end of a piece take only a head.
#[derive(Clone, Default)]
pub(super) struct Undos(UndoBytes);

type UndoBytes = SmallVec<[u8; 32]>;

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
        let (lead, trail) = zeros_around(bytes);
        self.push_zeros(offset, lead);
        let (from, to) = (lead, bytes.len() - trail);
        if from < to || bytes.is_empty() {
            self.push_bytes(offset + from as u32, &bytes[from..to]);
        }
        self.push_zeros(offset + to as u32, trail);
    }

    fn push_bytes(&mut self, offset: u32, bytes: &[u8]) {
        self.push_head(offset, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn push_zeros(&mut self, offset: u32, len: usize) {
        for at in (0..len).step_by(ZEROS.len()) {
            self.push_head((offset + at as u32) | OF_ZEROS, ZEROS.len().min(len - at));
        }
    }

    fn push_head(&mut self, offset: u32, len: usize) {
        let most = MOST_BLOCK as usize;
        debug_assert!(offset & !OF_ZEROS < MOST_BLOCK && len <= most, "more than a block has");
        let [a, b, c, d, e, ..] = (u64::from(offset) | (len as u64) << 20).to_le_bytes();
        self.0.extend_from_slice(&[a, b, c, d, e]);
    }

    /// The same with all zeros written out, to be changed.
    fn written_out(&self) -> Self {
        let mut all = Self::default();
        self.iter().for_each(|undo| all.push_bytes(undo.offset, undo.bytes));
        all
    }

    /// Calls the function with the offset and the bytes of each piece; all zeros are
    /// written out.
    fn each_mut(&mut self, mut each: impl FnMut(u32, &mut [u8])) {
        let mut left = &mut self.0[..];
        while let Some((head, rest)) = left.split_first_chunk_mut::<HEAD>() {
            let (offset, len) = read(head);
            debug_assert_eq!(offset & OF_ZEROS, 0, "zeros cannot be changed");
            let (bytes, next) = rest.split_at_mut(len);
            each(offset, bytes);
            left = next;
        }
    }

    /// The parts of it outside some fragments, in as few pieces as possible.
    pub(super) fn outside(&self, fragment: u32, mask: u64) -> Self {
        let mut kept = Self::default();
        for undo in self.iter() {
            let mut from = undo.offset;
            while from < undo.end() {
                let goes = |at: u32| mask & (1 << (at / fragment)) != 0;
                // Up to where the dropped part ends, or the kept one.
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

    /// Takes over the undo data of an earlier change in its bytes: rolling it back rolls that back
    /// as well.
    pub(super) fn lay_over(&mut self, old: &Self) {
        *self = self.written_out();
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

    /// Whether it undoes all bytes of each of some places.
    pub(super) fn covers_all(&self, places: &[Place]) -> bool {
        places.iter().all(|place| self.covers(place.start, place.end))
    }

    /// Whether it undoes all bytes of a block from one up to another. Pieces that were
    /// given as one lie behind each other.
    pub(super) fn covers(&self, start: usize, end: usize) -> bool {
        let mut covered = None;
        for undo in self.iter() {
            let (from, to) = (undo.offset as usize, undo.end() as usize);
            covered = match covered {
                Some((first, last)) if last == from => Some((first, to)),
                _ => Some((from, to)),
            };
            if covered.is_some_and(|(from, to)| from <= start && to >= end) {
                return true;
            }
        }
        false
    }
}

impl std::fmt::Debug for Undos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How many zeros there are at the beginning and at the end of some bytes, if they are
/// worth a head: all of them at the beginning, where there is nothing else.
fn zeros_around(bytes: &[u8]) -> (usize, usize) {
    if bytes.len() < FEW_ZEROS {
        return (0, 0);
    }
    let worth = |zeros: usize| if zeros < FEW_ZEROS { 0 } else { zeros };
    // Eight at a time, and then one by one.
    let are_zeros = |bytes: &&[u8; 8]| u64::from_ne_bytes(**bytes) == 0;
    let lead = bytes.as_chunks().0.iter().take_while(are_zeros).count() * 8;
    let lead = lead + bytes[lead..].iter().take_while(|&&byte| byte == 0).count();
    if lead == bytes.len() {
        return (lead, 0);
    }
    let trail = bytes.as_rchunks().1.iter().rev().take_while(are_zeros).count() * 8;
    let ends = bytes[..bytes.len() - trail].iter().rev();
    (worth(lead), worth(trail + ends.take_while(|&&byte| byte == 0).count()))
}

/// Bytes that a piece takes with its heads.
fn packed_len(bytes: &[u8]) -> usize {
    let (lead, trail) = zeros_around(bytes);
    let heads = lead.div_ceil(ZEROS.len()) + trail.div_ceil(ZEROS.len());
    let left = bytes.len() - lead - trail;
    let own = if left > 0 || bytes.is_empty() { HEAD + left } else { 0 };
    heads * HEAD + own
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
        if offset & OF_ZEROS != 0 {
            self.0 = rest;
            return Some(Undo { offset: offset & !OF_ZEROS, bytes: &ZEROS[..len] });
        }
        let (bytes, next) = rest.split_at(len);
        self.0 = next;
        Some(Undo { offset, bytes })
    }
}

/// Memory of undo data that is not needed any more, for later use: inodes come and go by the
/// hundred in each round.
#[derive(Default)]
pub(super) struct SpareUndos(Vec<UndoBytes>);

impl SpareUndos {
    /// Most that is kept, of at most so many bytes each: an inode's 128 or 256, with heads.
    const MOST: usize = 1 << 15;
    const MOST_BYTES: usize = 320;

    /// Takes the memory of undo data that is not needed any more.
    pub(super) fn give(&mut self, undos: &mut Undos) {
        let fits = undos.0.spilled() && undos.0.capacity() <= Self::MOST_BYTES;
        if fits && self.0.len() < Self::MOST {
            self.0.push(std::mem::take(&mut undos.0));
        } else {
            undos.0 = UndoBytes::new();
        }
    }

    /// The bytes of a block at some places.
    pub(super) fn copy(&mut self, block: &[u8], places: &[Place]) -> Undos {
        let len: usize =
            places.iter().map(|place| packed_len(&block[place.start..place.end])).sum();
        let mut undos = Undos::default();
        if len > undos.0.inline_size() && len <= Self::MOST_BYTES {
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

    /// Whatever is zero: undo data reads as it was made, and takes the expected memory.
    #[test]
    fn zeros_at_the_ends_take_heads_alone() {
        let mut number = 1u64;
        let mut draw = |below: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (number >> 33) as usize % below
        };
        let mut shortest = 0;
        for _ in 0..3000 {
            let mut block = vec![0; 4096];
            let (from, len) = (draw(4096), draw(900));
            block.iter_mut().skip(from).take(len).for_each(|byte| *byte = draw(3) as u8);
            let start = draw(4096);
            let end = (start + draw(1200)).min(4096);
            let place = Place { block: 0, start, end, mask: 1 };
            let undos = SpareUndos::default().copy(&block, &[place]);
            assert_eq!(undos.len(), packed_len(&block[start..end]) as u64);
            assert!(undos.len() <= (HEAD + end - start) as u64 + 2 * HEAD as u64);
            let mut other = vec![7; 4096];
            undos.iter().for_each(|undo| undo.apply(&mut other));
            assert_eq!(other[start..end], block[start..end]);
            assert!(other[..start].iter().chain(&other[end..]).all(|&byte| byte == 7));
            assert!(undos.covers(start, end) && (start == 0 || !undos.covers(start - 1, end)));
            let mut changed = undos.clone();
            let mut old = Undos::default();
            old.push(10, &[9; 3000]);
            changed.lay_over(&old);
            changed.iter().for_each(|undo| undo.apply(&mut other));
            let expected = |at: usize| if (10..3010).contains(&at) { 9 } else { block[at] };
            assert!((start..end).all(|at| other[at] == expected(at)));
            shortest += usize::from(end - start > 100 && undos.len() < 20);
        }
        assert!(shortest > 500, "{shortest}");
        let mut inode = [0; 128];
        inode[108..112].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(packed_len(&inode), 3 * HEAD + 4);
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
