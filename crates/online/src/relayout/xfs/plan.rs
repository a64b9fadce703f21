//! The contents of a volume to gather, and the expected result.

use super::tree::{MountedTree, View};
use seekless_fs::Mapping;
use seekless_fs::plan::ObjectId;
use seekless_host::fiemap::MappedExtent;
use seekless_layout::planner::scattered::gather;
use seekless_layout::planner::{Part, Storage, touches};
use seekless_layout::recording::PageSet;
use seekless_layout::replay::Replayed;
use seekless_units::{BlockNo, Extent, Ino, Lbn};
use std::collections::HashMap;

/// Consecutive blocks of a file that are all allocated and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) ino: Ino,
    pub(crate) lbn: u64,
    /// Number of blocks, at least one.
    pub(crate) len: u64,
}

/// The movable contents that replays read, in the order of first access; contents read by several
/// traces come first.
pub(crate) fn pieces(tree: &MountedTree, replays: &[Replayed], storage: Storage) -> Vec<Piece> {
    let mut seen: HashMap<Ino, PageSet> = HashMap::new();
    let mut pieces: Vec<Piece> = Vec::new();
    let ino_of = |object: ObjectId| Ino::new(u32::try_from(object.index()).unwrap_or(0));
    let blocks = |object| {
        let runs = &tree.found(ino_of(object)).map.runs;
        runs.iter().map(|run| run.extent.len).sum()
    };
    let touches = touches(replays, &|ino| Some(ObjectId::new(ino.get())), 1);
    let (touches, _) = gather(touches, storage, tree.block_size(), &blocks);
    for touch in touches {
        let Part::Blocks(run) = touch.part else { continue };
        let ino = ino_of(touch.object);
        let found = tree.found(ino);
        if found.stays.is_some() {
            continue;
        }
        let low = run.lbn.get();
        for (from, to) in seen.entry(ino).or_default().add(low, low + run.len) {
            let written = found.map.runs.iter().filter(|mapping| !mapping.unwritten);
            for mapping in written {
                let (first, end) = bounds(mapping);
                let (lbn, end) = (first.max(from), end.min(to));
                if lbn < end {
                    push(&mut pieces, Piece { ino, lbn, len: end - lbn });
                }
            }
        }
    }
    pieces
}

fn bounds(mapping: &Mapping) -> (u64, u64) {
    (mapping.lbn.get(), mapping.lbn.get() + mapping.extent.len)
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.ino == piece.ino && last.lbn + last.len == piece.lbn => {
            last.len += piece.len;
        }
        _ => pieces.push(piece),
    }
}

/// Total number of blocks.
pub(crate) fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Splits pieces after the first `blocks` blocks.
pub(crate) fn split(pieces: &[Piece], blocks: u64) -> (Vec<Piece>, Vec<Piece>) {
    let (mut first, mut rest, mut room) = (Vec::new(), Vec::new(), blocks);
    for &piece in pieces {
        let len = piece.len.min(room);
        room -= len;
        if len > 0 {
            first.push(Piece { len, ..piece });
        }
        if len < piece.len {
            rest.push(Piece { lbn: piece.lbn + len, len: piece.len - len, ..piece });
        }
    }
    (first, rest)
}

/// Locations for pieces, one behind the other.
pub(crate) struct Places {
    /// Free runs, in blocks, in the order in which they are filled.
    free: Vec<Extent>,
}

impl Places {
    /// The donor's runs from byte `at` on, up to the first gap.
    pub(crate) fn held(held: &[MappedExtent], mut at: u64, block_size: u64) -> Self {
        let mut free = Vec::new();
        for extent in held {
            if extent.logical > at {
                break;
            }
            let len = (extent.logical + extent.len).saturating_sub(at);
            if len > 0 {
                let start = (extent.physical + (at - extent.logical)) / block_size;
                free.push(Extent::new(BlockNo::new(start), len / block_size));
                at += len;
            }
        }
        Self { free }
    }

    /// A run of `blocks` behind all others.
    pub(crate) fn behind(end: u64, blocks: u64) -> Self {
        Self { free: vec![Extent::new(BlockNo::new(end), blocks)] }
    }

    /// Total number of blocks.
    pub(crate) fn total(&self) -> u64 {
        self.free.iter().map(|run| run.len).sum()
    }

    /// Takes the next `len` blocks, as runs.
    fn take(&mut self, mut len: u64) -> Vec<Extent> {
        let mut taken = Vec::new();
        while len > 0
            && let Some(run) = self.free.first_mut()
        {
            let part = run.len.min(len);
            taken.push(Extent::new(run.start, part));
            *run = Extent::new(run.start + part, run.len - part);
            len -= part;
            if run.len == 0 {
                self.free.remove(0);
            }
        }
        taken
    }

    /// Places pieces there in a view.
    pub(crate) fn fill(&mut self, view: &mut View<'_>, pieces: &[Piece]) {
        for piece in pieces {
            let mut lbn = piece.lbn;
            let mut new = Vec::new();
            for extent in self.take(piece.len) {
                new.push(Mapping { lbn: Lbn::new(lbn), extent, unwritten: false });
                lbn += extent.len;
            }
            let tree = view.tree;
            let runs = view.moved.entry(piece.ino);
            let runs = runs.or_insert_with(|| tree.found(piece.ino).map.runs.clone());
            *runs = replaced(runs, piece.lbn, lbn, &new);
        }
    }
}

/// Replaces the runs of blocks `from..to` of a file.
fn replaced(runs: &[Mapping], from: u64, to: u64, new: &[Mapping]) -> Vec<Mapping> {
    let part = |run: &Mapping, low: u64, high: u64| {
        let (first, end) = bounds(run);
        let (low, high) = (first.max(low), end.min(high));
        let start = run.extent.start + low.saturating_sub(first);
        (low < high).then(|| Mapping {
            lbn: Lbn::new(low),
            extent: Extent::new(start, high - low),
            unwritten: run.unwritten,
        })
    };
    let before = runs.iter().filter_map(|run| part(run, 0, from));
    let after = runs.iter().filter_map(|run| part(run, to, u64::MAX));
    before.chain(new.iter().copied()).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(lbn: u64, start: u64, len: u64) -> Mapping {
        let extent = Extent::new(BlockNo::new(start), len);
        Mapping { lbn: Lbn::new(lbn), extent, unwritten: false }
    }

    #[test]
    fn runs_are_replaced_in_the_middle() {
        let runs = [mapping(0, 100, 10), mapping(12, 300, 4)];
        let new = [mapping(4, 500, 6), mapping(10, 900, 0)];
        let found = replaced(&runs, 4, 10, &new[..1]);
        assert_eq!(found, [mapping(0, 100, 4), mapping(4, 500, 6), mapping(12, 300, 4)]);
        let found = replaced(&runs, 2, 3, &[mapping(2, 700, 1)]);
        let wanted =
            [mapping(0, 100, 2), mapping(2, 700, 1), mapping(3, 103, 7), mapping(12, 300, 4)];
        assert_eq!(found, wanted);
    }

    #[test]
    fn pieces_are_split_where_room_ends() {
        let piece = |ino, lbn, len| Piece { ino: Ino::new(ino), lbn, len };
        let all = [piece(2, 0, 5), piece(3, 7, 10), piece(2, 5, 1)];
        let (first, rest) = split(&all, 8);
        assert_eq!(first, [piece(2, 0, 5), piece(3, 7, 3)]);
        assert_eq!(rest, [piece(3, 10, 7), piece(2, 5, 1)]);
        assert_eq!(total(&first) + total(&rest), total(&all));
        assert_eq!(split(&all, 0).0, []);
    }

    #[test]
    fn places_end_at_a_gap() {
        let extent = |logical, physical, len| {
            let mut extent = MappedExtent::default();
            (extent.logical, extent.physical, extent.len) = (logical, physical, len);
            extent
        };
        let held = [extent(0, 40_960, 8192), extent(8192, 4096, 4096), extent(20_480, 0, 4096)];
        let mut places = Places::held(&held, 4096, 4096);
        assert_eq!(places.total(), 2);
        assert_eq!(
            places.take(3),
            [Extent::new(BlockNo::new(11), 1), Extent::new(BlockNo::new(1), 1)]
        );
    }
}
