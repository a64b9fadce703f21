//! Sets of blocks, as sorted extents.

use seekless_units::{BlockNo, Extent};

/// The blocks of `extents` that are not in `others`. Both are sorted; the others may overlap each
/// other.
///
/// ```
/// # use seekless_fs::extents::difference;
/// # use seekless_units::{BlockNo, Extent};
/// let extent = |start, len| Extent::new(BlockNo::new(start), len);
/// // One of the others reaches from one extent into the next.
/// let rest = difference(&[extent(10, 10), extent(30, 10)], &[extent(12, 3), extent(19, 15)]);
/// assert_eq!(rest, [extent(10, 2), extent(15, 4), extent(34, 6)]);
/// ```
#[must_use]
pub fn difference(extents: &[Extent], others: &[Extent]) -> Vec<Extent> {
    let mut rest = Vec::with_capacity(extents.len());
    let mut others = others.iter().peekable();
    // The end of the others so far.
    let mut taken = BlockNo::ZERO;
    for run in extents {
        let mut from = run.start.max(taken);
        while let Some(other) = others.next_if(|other| other.start < run.end()) {
            if other.start > from {
                rest.push(Extent::new(from, other.start - from));
            }
            taken = taken.max(other.end());
            from = from.max(taken);
        }
        if from < run.end() {
            rest.push(Extent::new(from, run.end() - from));
        }
    }
    rest
}

/// The blocks that are in both lists of sorted extents, none of which overlaps another of its list.
///
/// ```
/// # use seekless_fs::extents::intersection;
/// # use seekless_units::{BlockNo, Extent};
/// let extent = |start, len| Extent::new(BlockNo::new(start), len);
/// let both = intersection(&[extent(10, 10), extent(30, 10)], &[extent(5, 7), extent(19, 15)]);
/// assert_eq!(both, [extent(10, 2), extent(19, 1), extent(30, 4)]);
/// ```
#[must_use]
pub fn intersection(one: &[Extent], other: &[Extent]) -> Vec<Extent> {
    let mut both = Vec::new();
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let start = a.start.max(b.start);
        let end = a.end().min(b.end());
        if start < end {
            both.push(Extent::new(start, end - start));
        }
        if a.end() <= b.end() {
            one.next();
        } else {
            other.next();
        }
    }
    both
}

/// The blocks that are in any of the extents, which may be in any order and overlap: sorted, those
/// that touch joined.
///
/// ```
/// # use seekless_fs::extents::union;
/// # use seekless_units::{BlockNo, Extent};
/// let extent = |start, len| Extent::new(BlockNo::new(start), len);
/// let all = union(vec![extent(30, 5), extent(10, 10), extent(20, 2), extent(12, 3)]);
/// assert_eq!(all, [extent(10, 12), extent(30, 5)]);
/// ```
#[must_use]
pub fn union(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    extents.dedup_by(|later, earlier| {
        let meet = later.start <= earlier.end();
        if meet {
            earlier.len = later.end().max(earlier.end()) - earlier.start;
        }
        meet
    });
    extents
}

/// Adds a block behind all runs: the last one becomes longer if it ends there.
///
/// ```
/// # use seekless_fs::extents::append;
/// # use seekless_units::{BlockNo, Extent};
/// let mut runs = Vec::new();
/// for block in [3, 4, 7] {
///     append(&mut runs, BlockNo::new(block));
/// }
/// let extent = |start, len| Extent::new(BlockNo::new(start), len);
/// assert_eq!(runs, [extent(3, 2), extent(7, 1)]);
/// ```
pub fn append(runs: &mut Vec<Extent>, block: BlockNo) {
    debug_assert!(runs.last().is_none_or(|last| last.end() <= block), "blocks ascend: {block}");
    match runs.last_mut().filter(|last| last.end() == block) {
        Some(last) => last.len += 1,
        None => runs.push(Extent::new(block, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|&(start, len)| Extent::new(BlockNo::new(start), len)).collect()
    }

    #[test]
    fn a_difference_has_what_the_others_lack() {
        let all = extents(&[(10, 10), (30, 10), (50, 10)]);
        let others = extents(&[(0, 5), (8, 4), (15, 2), (19, 15), (49, 20)]);
        assert_eq!(difference(&all, &others), extents(&[(12, 3), (17, 2), (34, 6)]));
        assert_eq!(difference(&all, &[]), all);
        assert_eq!(difference(&all, &all), []);
        assert_eq!(difference(&all, &extents(&[(0, 100)])), []);
    }

    #[test]
    fn the_others_may_overlap() {
        let free = extents(&[(10, 10), (30, 10), (50, 5)]);
        let used = extents(&[(0, 5), (8, 4), (15, 2), (16, 3), (25, 20), (54, 9)]);
        assert_eq!(difference(&free, &used), extents(&[(12, 3), (19, 1), (50, 4)]));
    }

    /// Blocks one by one, of random sets.
    #[test]
    fn sets_are_those_of_their_blocks() {
        let mut state = 3u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let blocks = |extents: &[Extent]| -> Vec<u64> {
            extents.iter().flat_map(|run| run.start.get()..run.end().get()).collect()
        };
        let mut set = || {
            let (mut at, mut list) = (0, Vec::new());
            for _ in 0..random(8) {
                let (skip, len) = (random(6), 1 + random(9));
                list.push((at + skip, len));
                at += skip + len;
            }
            extents(&list)
        };
        for _ in 0..500 {
            let (one, other) = (set(), set());
            let (a, b) = (blocks(&one), blocks(&other));
            let rest: Vec<u64> = a.iter().copied().filter(|block| !b.contains(block)).collect();
            let both: Vec<u64> = a.iter().copied().filter(|block| b.contains(block)).collect();
            assert_eq!(blocks(&difference(&one, &other)), rest);
            assert_eq!(blocks(&intersection(&one, &other)), both);
            let mut any = [a, b].concat();
            any.sort_unstable();
            any.dedup();
            let joined = union([other, one].concat());
            assert_eq!(blocks(&joined), any);
            assert!(joined.is_sorted_by(|run, next| run.end() < next.start), "{joined:?}");
        }
    }
}
