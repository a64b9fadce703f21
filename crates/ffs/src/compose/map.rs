//! Block numbers of a file: twelve in the inode, the others in indirect blocks
//! of up to three levels.

use crate::make::encode::Page;
use crate::make::geometry::Geometry;
use crate::make::options::Version;
use crate::ondisk::DIRECT;
use seekless_fs::plan::{Placed, Run};
use seekless_units::BlockNo;
use std::collections::BTreeMap;

/// Longest logical block that is a file's own; logical blocks from there on are shared blocks that
/// it holds for others.
pub(super) const OWN_LBNS: u64 = 1 << 50;

/// The path to a logical block's number: by level of indirection from the inode, the place in each
/// block.
fn path(lbn: u64, pointers: u64) -> Vec<u64> {
    let mut rest = lbn - DIRECT as u64;
    let mut span = pointers;
    let mut levels = 1;
    while rest >= span {
        rest -= span;
        span *= pointers;
        levels += 1;
    }
    debug_assert!(levels <= 3, "block {lbn} needs {levels} levels");
    let mut places = Vec::with_capacity(levels);
    for _ in 0..levels {
        span /= pointers;
        places.push(rest / span);
        rest %= span;
    }
    places
}

/// An indirect block: its root's level, and the places on the path to it.
type Key = (usize, Vec<u64>);

/// The indirect blocks on the path to a logical block, from the inode on.
fn on_the_way(lbn: u64, pointers: u64) -> Vec<(Key, u64)> {
    let places = path(lbn, pointers);
    let level = places.len();
    (0..level).map(|depth| ((level, places[..depth].to_vec()), places[depth])).collect()
}

/// Blocks for the numbers of these runs.
pub(crate) fn indirect_blocks(runs: impl Iterator<Item = Run>, pointers: u64) -> u64 {
    let mut count = 0;
    let mut last: Vec<Key> = Vec::new();
    let mut before = 0;
    for run in runs.filter(|run| run.lbn.get() < OWN_LBNS) {
        debug_assert!(before <= run.lbn.get(), "runs are in order");
        before = run.lbn.get() + run.len;
        let mut lbn = run.lbn.get().max(DIRECT as u64);
        let end = run.lbn.get() + run.len;
        while lbn < end {
            let way: Vec<Key> = on_the_way(lbn, pointers).into_iter().map(|(key, _)| key).collect();
            count += way.iter().filter(|key| !last.contains(key)).count() as u64;
            last = way;
            // The first block that the next lowest indirect block leads to.
            lbn += pointers - (lbn - DIRECT as u64) % pointers;
        }
    }
    count
}

/// A file's encoded map: the numbers in the inode, and the indirect blocks with their places.
#[derive(Default)]
pub(super) struct EncodedMap {
    pub(super) direct: [u64; DIRECT],
    pub(super) indirect: [u64; 3],
    pub(super) blocks: Vec<(BlockNo, Vec<u8>)>,
}

/// Maps pieces that lie in whole blocks; `room` are the blocks for the numbers.
/// All places are fragments in the result.
pub(super) fn build(
    pieces: &[Placed],
    geometry: &Geometry,
    big_endian: bool,
    room: &mut dyn Iterator<Item = BlockNo>,
) -> EncodedMap {
    let wide = geometry.version == Version::Ufs2;
    let pointers = u64::from(geometry.bsize) / if wide { 8 } else { 4 };
    let frag = u64::from(geometry.frag);
    let mut map = EncodedMap::default();
    let mut pages: BTreeMap<Key, (u64, Page)> = BTreeMap::new();
    let put = |page: &mut Page, at: u64, number: u64| {
        if wide {
            page.u64(at as usize * 8, number);
        } else {
            page.u32(at as usize * 4, number as u32);
        }
    };
    for piece in pieces.iter().filter(|piece| piece.lbn.get() < OWN_LBNS) {
        for n in 0..piece.extent.len {
            let lbn = piece.lbn.get() + n;
            let number = (piece.extent.start.get() + n) * frag;
            debug_assert!(wide || u32::try_from(number).is_ok(), "UFS1 numbers have 32 bits");
            if lbn < DIRECT as u64 {
                map.direct[lbn as usize] = number;
                continue;
            }
            let mut from: Option<(Key, u64)> = None;
            for (key, place) in on_the_way(lbn, pointers) {
                let level = key.0;
                if !pages.contains_key(&key) {
                    let at = room.next().expect("a block for every indirect one").get() * frag;
                    let bytes = vec![0; geometry.bsize as usize];
                    pages.insert(key.clone(), (at, Page { bytes, big_endian }));
                    match &from {
                        None => map.indirect[level - 1] = at,
                        Some((above, place)) => {
                            put(&mut pages.get_mut(above).expect("parent").1, *place, at);
                        }
                    }
                }
                from = Some((key, place));
            }
            if let Some((key, place)) = from {
                put(&mut pages.get_mut(&key).expect("made above").1, place, number);
            }
        }
    }
    map.blocks = pages.into_values().map(|(at, page)| (BlockNo::new(at), page.bytes)).collect();
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Lbn;

    #[test]
    fn levels_begin_where_those_before_end() {
        assert_eq!(path(12, 10), [0]);
        assert_eq!(path(21, 10), [9]);
        assert_eq!(path(22, 10), [0, 0]);
        assert_eq!(path(121, 10), [9, 9]);
        assert_eq!(path(122, 10), [0, 0, 0]);
        assert_eq!(path(122 + 345, 10), [3, 4, 5]);
    }

    #[test]
    fn blocks_are_counted_as_they_are_made() {
        let run = |lbn, len| Run { lbn: Lbn::new(lbn), len };
        for (runs, blocks) in [
            (vec![run(0, 12)], 0),
            (vec![run(0, 13)], 1),
            (vec![run(0, 22)], 1),
            (vec![run(0, 23)], 3),
            (vec![run(0, 122)], 1 + 1 + 10),
            (vec![run(0, 123)], 12 + 3),
            (vec![run(3, 1), run(15, 1), run(17, 1)], 1),
            (vec![run(25, 1), run(31, 1), run(32, 1)], 1 + 2),
            (vec![run(5000, 1)], 0),
        ] {
            let runs: Vec<Run> =
                if runs[0].lbn.get() == 5000 { vec![run(OWN_LBNS, 1)] } else { runs };
            assert_eq!(indirect_blocks(runs.iter().copied(), 10), blocks, "{runs:?}");
        }
    }
}
