//! Packs files' last fragments into shared blocks.
//!
//! A file that ends within its first twelve blocks takes only as many fragments
//! of its last block as it needs. Such tails, and areas of extended attributes,
//! are packed into blocks in the order in which they will be read, those of
//! directories apart from those of files. Each block belongs to the object whose
//! piece opened it.
//!
//! Pieces that have a place in an older volume stay there. Their blocks belong to no object, and are
//! no part of the plan.

use seekless_fs::plan::ObjectId;
use seekless_units::{BlockNo, Lbn};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// A block that several tails share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// The owner of the block, and its logical block there.
    Owned(ObjectId, Lbn),
    /// A block of the volume, as in an older one.
    Fixed(BlockNo),
}

/// The place of a file's tail in a block that several tails share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TailPlace {
    pub(super) home: Home,
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
    /// The pieces of fixed blocks, with their first fragments.
    fixed: BTreeMap<BlockNo, Vec<(Piece, u32)>>,
    /// Whole blocks of extended attributes in fixed places, by object.
    areas: HashMap<ObjectId, Vec<BlockNo>>,
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
                home: Home::Owned(block.owner, block.lbn),
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
            self.insert(&piece, place);
        }
    }

    fn insert(&mut self, piece: &Piece, place: TailPlace) {
        let before = match piece.part {
            Part::Data => self.data.insert(piece.object, place),
            Part::Attributes => self.attributes.insert(piece.object, place),
        };
        debug_assert_eq!(before, None, "a tail is packed once");
    }

    /// Puts a piece into a fixed block, from fragment `at` of it on.
    pub(super) fn fix(&mut self, piece: Piece, block: BlockNo, at: u32) {
        let Piece { own_lbn, frags, .. } = piece;
        self.insert(&piece, TailPlace { home: Home::Fixed(block), at, frags, own_lbn });
        self.fixed.entry(block).or_default().push((piece, at));
    }

    /// Puts all whole blocks of an object's extended attributes into fixed places.
    pub(super) fn fix_area(&mut self, object: ObjectId, blocks: Vec<BlockNo>) {
        self.areas.insert(object, blocks);
    }

    /// Whether a piece has its place.
    pub(super) fn has(&self, piece: &Piece) -> bool {
        match piece.part {
            Part::Data => self.data.contains_key(&piece.object),
            Part::Attributes => self.attributes.contains_key(&piece.object),
        }
    }

    /// The fixed blocks that pieces share, in order, and the pieces with their first fragments.
    pub(super) fn fixed(&self) -> impl Iterator<Item = (BlockNo, &[(Piece, u32)])> {
        self.fixed.iter().map(|(&block, pieces)| (block, &pieces[..]))
    }

    /// The fixed places of the whole blocks of an object's extended attributes.
    pub(super) fn area(&self, object: ObjectId) -> Option<&[BlockNo]> {
        self.areas.get(&object).map(|blocks| &blocks[..])
    }

    /// All fixed blocks, sorted.
    pub(super) fn fixed_blocks(&self) -> Vec<BlockNo> {
        let areas = self.areas.values().flatten().copied();
        let mut blocks: Vec<BlockNo> = self.fixed.keys().copied().chain(areas).collect();
        blocks.sort_unstable();
        blocks
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

/// Free fragments between pieces of fixed blocks: runs within a block, by length.
#[derive(Default)]
pub(super) struct Holes(BTreeSet<(u32, u64)>);

impl Holes {
    /// Adds a run of fragments of the volume, all in one block.
    pub(super) fn add(&mut self, start: u64, len: u32) {
        self.0.insert((len, start));
    }

    /// Puts a piece into the shortest run that suffices, the first of several; false without one.
    pub(super) fn fill(&mut self, piece: &Piece, frag: u32, tails: &mut Tails) -> bool {
        let Some(&hole) = self.0.range((piece.frags, 0)..).next() else { return false };
        self.0.remove(&hole);
        let (len, start) = hole;
        let (block, at) = (start / u64::from(frag), start % u64::from(frag));
        tails.fix(*piece, BlockNo::new(block), at as u32);
        if len > piece.frags {
            self.add(start + u64::from(piece.frags), len - piece.frags);
        }
        true
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
            let Home::Owned(owner, lbn) = place.home else { panic!("{n} is fixed") };
            let at = tails.by_owner[&(owner, lbn)];
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
