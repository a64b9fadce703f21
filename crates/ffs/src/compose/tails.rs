//! Packs files' last fragments into shared blocks.
//!
//! A file that ends within its first twelve blocks takes only as many fragments
//! of its last block as it needs. Such tails, and areas of extended attributes,
//! are packed into blocks in the order in which they will be read, those of
//! directories apart from those of files. Each block belongs to the object whose
//! piece opened it.

use seekless_fs::plan::ObjectId;
use seekless_units::Lbn;
use std::collections::HashMap;

/// Blocks that are open for further pieces at a time: few, so that the pieces of a block are read
/// at about the same time.
const OPEN: usize = 8;

/// The part of an object that a piece belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// An object's data.
    Data,
    /// Its extended attributes.
    Attributes,
}

/// A piece to be packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) object: ObjectId,
    pub(super) part: Part,
    /// Its logical block in its own object; for attributes, the one that the block would have.
    pub(super) own_lbn: u64,
    /// Fragments, fewer than a block's.
    pub(super) frags: u32,
}

/// The place of a file's tail in a block that several tails share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TailPlace {
    /// The owner of the block, and its logical block there.
    pub(super) owner: ObjectId,
    pub(super) lbn: Lbn,
    /// The piece's first fragment in it, and its number of fragments.
    pub(super) at: u32,
    pub(super) frags: u32,
    pub(super) own_lbn: u64,
}

/// A block that pieces share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) owner: ObjectId,
    pub(super) lbn: Lbn,
    pub(super) used: u32,
    pub(super) pieces: Vec<(Piece, u32)>,
}

/// All pieces packed.
#[derive(Default)]
pub(super) struct Tails {
    data: HashMap<ObjectId, TailPlace>,
    attributes: HashMap<ObjectId, TailPlace>,
    pub(super) blocks: Vec<Shared>,
    by_owner: HashMap<(ObjectId, Lbn), usize>,
}

impl Tails {
    /// Packs pieces, in order, into blocks of `frag` fragments.
    pub(super) fn pack(&mut self, pieces: impl Iterator<Item = Piece>, frag: u32) {
        let mut open: Vec<usize> = Vec::new();
        for piece in pieces {
            debug_assert!((1..frag).contains(&piece.frags), "a tail is a part of a block");
            let fits = |&at: &usize| self.blocks[at].used + piece.frags <= frag;
            let at = open.iter().copied().find(fits).unwrap_or_else(|| {
                let (owner, lbn) = (piece.object, Lbn::new(piece.own_lbn));
                self.by_owner.insert((owner, lbn), self.blocks.len());
                self.blocks.push(Shared { owner, lbn, used: 0, pieces: Vec::new() });
                open.push(self.blocks.len() - 1);
                self.blocks.len() - 1
            });
            let block = &mut self.blocks[at];
            let place = TailPlace {
                owner: block.owner,
                lbn: block.lbn,
                at: block.used,
                frags: piece.frags,
                own_lbn: piece.own_lbn,
            };
            block.pieces.push((piece, block.used));
            block.used += piece.frags;
            debug_assert!(block.used <= frag, "the pieces fit in their block");
            open.retain(|&at| self.blocks[at].used < frag);
            if open.len() > OPEN {
                open.remove(0);
            }
            let before = match piece.part {
                Part::Data => self.data.insert(piece.object, place),
                Part::Attributes => self.attributes.insert(piece.object, place),
            };
            debug_assert_eq!(before, None, "a tail is packed once");
        }
    }

    /// The place of an object's last fragments.
    pub(super) fn of(&self, object: ObjectId) -> Option<&TailPlace> {
        self.data.get(&object)
    }

    /// The place of the end of its extended attributes.
    pub(super) fn of_attributes(&self, object: ObjectId) -> Option<&TailPlace> {
        self.attributes.get(&object)
    }

    /// The shared block at a logical block of its owner.
    pub(super) fn owned(&self, object: ObjectId, lbn: Lbn) -> Option<&Shared> {
        self.by_owner.get(&(object, lbn)).map(|&at| &self.blocks[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_blocks_without_overlap() {
        let piece = |n: u32| Piece {
            object: ObjectId::new(n),
            part: Part::Data,
            own_lbn: u64::from(n % 12),
            frags: 1 + n * 5 % 7,
        };
        let mut tails = Tails::default();
        tails.pack((0..500).map(piece), 8);
        let mut seen = vec![[false; 8]; tails.blocks.len()];
        for n in 0..500 {
            let place = tails.of(ObjectId::new(n)).unwrap();
            let at = tails.by_owner[&(place.owner, place.lbn)];
            for frag in place.at..place.at + place.frags {
                assert!(!std::mem::replace(&mut seen[at][frag as usize], true), "{n}");
            }
            assert_eq!(place.frags, piece(n).frags);
        }
        let needed: u32 = (0..500).map(|n| piece(n).frags).sum();
        let room = tails.blocks.len() as u32 * 8;
        assert!(room < needed + needed / 8, "{needed} fragments in {room}");
    }
}
