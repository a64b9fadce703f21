//! Bytes as they were before a change.

use crate::shape::Place;
use smallvec::SmallVec;

/// Bytes as they were before a change.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    /// From the start of the block.
    pub(super) offset: u32,
    pub(super) bytes: Bytes,
}

/// A name or a pointer needs no memory of its own; an inode does.
type Bytes = SmallVec<[u8; 32]>;

pub(super) type Undos = Vec<Undo>;

/// Memory of what is not to be undone any more, for what is to come: inodes come and
/// go by the hundred in each round. Records have it outside of themselves, since most
/// of those in a graph may be written and undo nothing.
#[derive(Default)]
pub(super) struct SpareUndos {
    bytes: Vec<Bytes>,
    undos: Vec<Undos>,
}

impl SpareUndos {
    /// Most that is kept of either; the bytes of inodes take 128 or 256 each.
    const MOST: usize = 8192;

    /// Takes the memory of what is not to be undone any more.
    pub(super) fn give(&mut self, undos: &mut Undos) {
        for undo in undos.drain(..) {
            if undo.bytes.spilled() && self.bytes.len() < Self::MOST {
                self.bytes.push(undo.bytes);
            }
        }
        if undos.capacity() > 0 && self.undos.len() < Self::MOST {
            self.undos.push(std::mem::take(undos));
        }
    }

    /// The bytes of a block at some places.
    pub(super) fn copy(&mut self, block: &[u8], places: &[Place]) -> Undos {
        let mut undos = self.undos.pop().unwrap_or_default();
        debug_assert!(undos.is_empty(), "it was given back");
        for place in places {
            let from = &block[place.start..place.end];
            let spare = if from.len() > 32 { self.bytes.pop() } else { None };
            let mut bytes = spare.unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(from);
            // A block's bytes are counted in 32 bits.
            undos.push(Undo { offset: place.start as u32, bytes });
        }
        undos
    }
}

impl Undo {
    pub(super) fn end(&self) -> u32 {
        debug_assert!(self.bytes.len() <= (u32::MAX - self.offset) as usize, "out of its block");
        self.offset + self.bytes.len() as u32
    }

    /// Puts them back into a block.
    pub(super) fn apply(&self, block: &mut [u8]) {
        let start = self.offset as usize;
        block[start..start + self.bytes.len()].copy_from_slice(&self.bytes);
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

    /// Appends what of it lies outside some fragments, in as few parts as there
    /// are.
    pub(super) fn outside(self, fragment: u32, mask: u64, kept: &mut Undos) {
        let own = kept.len();
        let mut at = self.offset;
        while at < self.end() {
            let number = at / fragment;
            let end = ((number + 1) * fragment).min(self.end());
            if mask & (1 << number) == 0 {
                let from = (at - self.offset) as usize..(end - self.offset) as usize;
                let bytes = &self.bytes[from];
                match kept[own..].last_mut() {
                    Some(last) if last.end() == at => last.bytes.extend_from_slice(bytes),
                    _ => kept.push(Self { offset: at, bytes: SmallVec::from_slice(bytes) }),
                }
            }
            at = end;
        }
    }
}

/// Whether each of some places lies in one piece that a change undoes.
pub(super) fn covers_all(undos: &[Undo], places: &[Place]) -> bool {
    places.iter().all(|place| {
        let covers =
            |undo: &Undo| undo.offset as usize <= place.start && undo.end() as usize >= place.end;
        undos.iter().any(covers)
    })
}

/// Lets the newer change undo what earlier ones, the newest first, would have
/// undone in its bytes: undoing it undoes them as well.
pub(super) fn lay_over(old: &[Undo], new: &mut Undos) {
    for old in old {
        for new in new.iter_mut() {
            let start = old.offset.max(new.offset);
            let end = old.end().min(new.end());
            if start < end {
                let from = (start - old.offset) as usize..(end - old.offset) as usize;
                let to = (start - new.offset) as usize..(end - new.offset) as usize;
                new.bytes[to].copy_from_slice(&old.bytes[from]);
            }
        }
    }
}
