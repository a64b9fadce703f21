//! The blocks of a file's map, found by the logical blocks they lead to.

use seekless_fs::IndexBlock;
use seekless_units::{BlockNo, Lbn};

/// A file's index blocks, level by level. Those of a level do not overlap, so
/// that each level is searched by halving.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexLevels {
    levels: Vec<Vec<IndexBlock>>,
}

impl IndexLevels {
    pub(super) fn new(blocks: &[IndexBlock]) -> Self {
        let mut levels: Vec<Vec<IndexBlock>> = Vec::new();
        for block in blocks {
            let level = usize::from(block.depth);
            if levels.len() <= level {
                levels.resize_with(level + 1, Vec::new);
            }
            levels[level].push(*block);
        }
        for level in &mut levels {
            level.sort_unstable_by_key(|block| block.first);
        }
        levels.retain(|level| !level.is_empty());
        Self { levels }
    }

    /// The blocks that lead to a logical block, from the inode on. `looked` is
    /// raised by the number of blocks that were compared.
    pub(super) fn leading_to(&self, lbn: Lbn, looked: &mut u64) -> Vec<BlockNo> {
        let mut path = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            let after = level.partition_point(|block| {
                *looked += 1;
                block.first <= lbn
            });
            let block = after.checked_sub(1).and_then(|at| level.get(at));
            path.extend(block.filter(|block| lbn <= block.last).map(|block| block.block));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(block: u64, first: u64, last: u64, depth: u8) -> IndexBlock {
        IndexBlock {
            block: BlockNo::new(block),
            len: 1,
            first: Lbn::new(first),
            last: Lbn::new(last),
            depth,
        }
    }

    #[test]
    fn the_path_from_the_inode_is_found() {
        // As ext2 has them: a single indirect block, then a double one.
        let index = IndexLevels::new(&[
            block(50, 12, 267, 1),
            block(51, 268, 65_803, 1),
            block(52, 268, 523, 2),
            block(53, 1036, 1291, 2),
        ]);
        let path = |lbn| {
            let path = index.leading_to(Lbn::new(lbn), &mut 0);
            path.into_iter().map(BlockNo::get).collect::<Vec<_>>()
        };
        assert!(path(11).is_empty());
        assert_eq!(path(12), [50]);
        assert_eq!(path(267), [50]);
        assert_eq!(path(300), [51, 52]);
        assert_eq!(path(600), [51]);
        assert_eq!(path(1291), [51, 53]);
        assert!(path(70_000).is_empty());
    }

    /// Every extent of a file with very many of them asks for its path.
    #[test]
    fn a_path_takes_few_comparisons() {
        let count = 100_000;
        let mut blocks = vec![block(1, 0, u64::MAX, 1)];
        blocks.extend((0..count).map(|n| block(10 + n, n * 84, n * 84 + 83, 2)));
        let index = IndexLevels::new(&blocks);
        let mut looked = 0;
        for n in 0..count {
            let path = index.leading_to(Lbn::new(n * 84 + n % 84), &mut looked);
            assert_eq!(path, [BlockNo::new(1), BlockNo::new(10 + n)]);
        }
        assert!(looked <= 20 * count, "{looked} comparisons for {count} paths");
    }
}
