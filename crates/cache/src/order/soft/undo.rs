//! Bytes as they were before a change.

use crate::shape::Place;
use smallvec::SmallVec;

/// Bytes as they were before a change.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    /// From the start of the block.
    pub(super) offset: u32,
    pub(super) bytes: SmallVec<[u8; 32]>,
}

pub(super) type Undos = SmallVec<[Undo; 2]>;

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
