//! Where a file's contents lie now.

use super::FfsLive;
use crate::ondisk::DIRECT;
use seekless_fs::field::{range, wide};
use seekless_fs::{FileKind, FsError, Location, Mapping};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

/// What a walk of a file's map finds.
struct Found {
    runs: Vec<Mapping>,
    /// Fragments that may still be found: a file that has more than its volume
    /// has some of them twice.
    left: u64,
}

/// A tree of indirect blocks.
#[derive(Clone, Copy)]
struct Tree {
    number: u64,
    /// The first block of the file that it maps, and how many.
    first: u64,
    span: u64,
    /// Levels below it, itself included.
    levels: u32,
}

impl FfsLive {
    /// The runs of a regular file's contents, counted in fragments.
    pub(super) fn mapped_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        let node = self.named_node(ino)?.clone();
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        let blocks = node.size.div_ceil(u64::from(self.sb.bsize));
        let mut found = Found { runs: Vec::new(), left: self.sb.size };
        for (lbn, &number) in (0..blocks.min(wide(DIRECT))).zip(&node.direct) {
            let frags = self.frags_at(&node, lbn);
            self.find_block(ino, (lbn, number, frags), &mut found)?;
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for (levels, &number) in (1u32..).zip(&node.indirect) {
            span = span.saturating_mul(self.sb.pointers());
            self.find_tree(ino, Tree { number, first, span, levels }, blocks, &mut found)?;
            first = first.saturating_add(span);
        }
        Ok(found.runs)
    }

    fn find_tree(
        &mut self,
        ino: Ino,
        tree: Tree,
        blocks: u64,
        found: &mut Found,
    ) -> Result<(), FsError> {
        if tree.number == 0 || tree.first >= blocks {
            return Ok(());
        }
        found.take(u64::from(self.sb.frag), ino)?;
        let block = self.check_run(ino, tree.number, self.sb.frag)?;
        let span = tree.span.checked_div(self.sb.pointers()).unwrap_or(1).max(1);
        for place in 0..self.sb.pointers() {
            let first = tree.first.saturating_add(place.saturating_mul(span));
            if first >= blocks {
                break;
            }
            let number = self.pointer(block, place)?;
            if tree.levels == 1 {
                self.find_block(ino, (first, number, self.sb.frag), found)?;
            } else {
                let levels = tree.levels.saturating_sub(1);
                self.find_tree(ino, Tree { number, first, span, levels }, blocks, found)?;
            }
        }
        Ok(())
    }

    /// A block of the file, by its number there, where it begins, and how many
    /// fragments it has.
    fn find_block(
        &mut self,
        ino: Ino,
        (lbn, number, frags): (u64, u64, u32),
        found: &mut Found,
    ) -> Result<(), FsError> {
        if number == 0 {
            return Ok(());
        }
        found.take(u64::from(frags), ino)?;
        let start = self.check_run(ino, number, frags)?;
        let lbn = Lbn::new(lbn.saturating_mul(u64::from(self.sb.frag)));
        found.push(lbn, start, frags);
        Ok(())
    }
}

impl Found {
    fn take(&mut self, frags: u64, ino: Ino) -> Result<(), FsError> {
        let place = Location::of("block map").in_inode(ino);
        let left = self.left.checked_sub(frags);
        self.left = left.ok_or_else(|| range("mapped fragments", frags, self.left, place))?;
        Ok(())
    }

    fn push(&mut self, lbn: Lbn, start: BlockNo, frags: u32) {
        if let Some(last) = self.runs.last_mut() {
            let next = last.lbn.saturating_add(last.extent.len);
            if next == lbn && last.extent.end() == start {
                last.extent.len = last.extent.len.saturating_add(u64::from(frags));
                return;
            }
        }
        let extent = Extent::new(start, u64::from(frags));
        self.runs.push(Mapping { lbn, extent, unwritten: false });
    }
}
