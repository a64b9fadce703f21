//! Files that were cut, and the number of sectors of files whose blocks have changed.

use super::maps::{Tree, has_contents};
use super::parts::FilePart;
use super::tables::Pass;
use crate::inode::Inode;
use crate::inode_edit::put_pointer;
use crate::ondisk::DIRECT;
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::Extent;

impl Pass {
    /// Cuts the files that records say were cut, as far as they are longer.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the map of a file has wrong numbers.
    pub(super) fn cut_files(&mut self) -> Result<(), FsError> {
        for (ino, len) in std::mem::take(&mut self.cuts) {
            let inode = self.staged.inode(ino)?;
            // The number may be that of another kind of file since.
            if has_map(&inode) && has_contents(&self.staged.volume.sb, &inode) {
                // Whether its map is sound.
                self.staged.runs(&inode)?;
                self.cut(&inode, len.min(inode.len))?;
            }
        }
        Ok(())
    }

    /// Counts the sectors of files with records of blocks. Files that are longer than the
    /// blocks in the inode end with their last block, and have none behind their length: the inode
    /// may be older than index blocks.
    ///
    /// # Errors
    /// As [`Pass::cut_files`].
    pub(super) fn count_sectors(&mut self) -> Result<(), FsError> {
        for ino in std::mem::take(&mut self.touched) {
            let inode = self.staged.inode(ino)?;
            if inode.mode() == 0 {
                continue;
            }
            let runs = self.staged.runs(&inode)?;
            let end = end_of(&runs);
            let bsize = u64::from(self.staged.volume.sb.bsize);
            let has_contents = has_contents(&self.staged.volume.sb, &inode);
            if has_contents && end.max(inode.len.div_ceil(bsize)) > wide(DIRECT) {
                let mapped = end * bsize;
                self.cut(&inode, inode.len.min(mapped))?;
                continue;
            }
            let sectors = self.staged.volume.sb.sectors(runs.iter().map(|(_, run)| run.len).sum());
            if sectors != inode.sectors() {
                self.staged.change(ino, |inode| inode.set_sectors(sectors))?;
            }
        }
        Ok(())
    }

    /// Cuts a file to a length that is not more than its own, and to the end of its last block then.
    fn cut(&mut self, inode: &Inode, len: u64) -> Result<(), FsError> {
        debug_assert!(len <= inode.len, "a file is cut, and never extended");
        let sb = &self.staged.volume.sb;
        let (bsize, fsize) = (u64::from(sb.bsize), u64::from(sb.fsize));
        let blocks = len.div_ceil(bsize);
        for (at, &number) in (0u64..).zip(&inode.direct).filter(|(_, number)| **number != 0) {
            if at < blocks {
                continue;
            }
            if let Some(run) = self.staged.mapped(inode, FilePart::Data(at))? {
                self.give_up(inode.ino, run)?;
            }
            debug_assert!(number != 0, "the block is there");
            self.staged.change(inode.ino, |inode| inode.set_pointer(index(at), 0))?;
        }
        for tree in self.staged.trees(inode) {
            if self.cut_tree(inode, tree, blocks)? {
                let root = DIRECT + index(tree.levels) - 1;
                self.staged.change(inode.ino, |inode| inode.set_pointer(root, 0))?;
            }
        }
        let rest = self.staged.inode(inode.ino)?;
        let runs = self.staged.runs(&rest)?;
        let end = end_of(&runs);
        let len = len.min(end * bsize);
        if len.div_ceil(bsize) < blocks && runs.iter().any(|(part, _)| is_index(*part)) {
            // A hole was in front of the end: its index blocks go, too.
            return self.cut(&rest, len);
        }
        let mut frags: u64 = runs.iter().map(|(_, run)| run.len).sum();
        let last = end.checked_sub(1).map(FilePart::Data);
        let last = runs.iter().find(|(part, _)| Some(*part) == last).map(|(_, run)| *run);
        if let Some(last) = last {
            let start = (end - 1) * bsize;
            let kept = if end > wide(DIRECT) { last.len } else { (len - start).div_ceil(fsize) };
            let kept = Extent::new(last.start, kept.min(last.len));
            if kept.len < last.len {
                let tail = Extent::new(kept.end(), last.len - kept.len);
                self.give_up(inode.ino, tail)?;
                frags -= tail.len;
            }
            self.clear_behind(&rest, kept, len - start)?;
        }
        let sectors = self.staged.volume.sb.sectors(frags);
        if (len, sectors) != (rest.len, rest.sectors()) {
            self.staged.change(inode.ino, |inode| {
                inode.set_len(len);
                inode.set_sectors(sectors);
            })?;
        }
        Ok(())
    }

    /// Zeroes the last block behind the end: the file may grow again.
    fn clear_behind(&mut self, inode: &Inode, run: Extent, used: u64) -> Result<(), FsError> {
        let all = run.len * u64::from(self.staged.volume.sb.fsize);
        if used >= all || FileKind::from_mode(inode.mode()) == Some(FileKind::Directory) {
            return Ok(());
        }
        let mut bytes = self.staged.contents(run)?;
        let behind = bytes.get_mut(index(used)..).unwrap_or_default();
        if behind.iter().any(|&byte| byte != 0) {
            behind.fill(0);
            self.staged.put_contents(run, &bytes);
        }
        Ok(())
    }

    /// Cuts a tree of index blocks, and frees its own block if nothing is left in it.
    fn cut_tree(&mut self, inode: &Inode, root: Tree, blocks: u64) -> Result<bool, FsError> {
        let pointers = self.staged.volume.sb.pointers();
        let each = pointers.pow(root.levels - 1);
        let end = root.first + pointers.pow(root.levels);
        if end <= blocks {
            return Ok(false);
        }
        let frags = u64::from(self.staged.volume.sb.frag);
        let run = Extent::new(root.block, frags);
        let mut bytes = self.staged.contents(run)?;
        let mut has_changed = false;
        for (at, block) in self.staged.numbers(inode, root)? {
            let first = root.first + at * each;
            if first + each <= blocks {
                continue;
            }
            let is_gone = match self.staged.below(root, at, block) {
                Some(below) => self.cut_tree(inode, below, blocks)?,
                None => {
                    let data = Extent::new(block, frags);
                    super::records::data_run(&self.staged.volume.sb, data)?;
                    self.give_up(inode.ino, data)?;
                    true
                }
            };
            if is_gone {
                let width = index(self.staged.volume.sb.pointer_size());
                put_pointer(&self.staged.volume.sb, &mut bytes, index(at) * width, 0);
                has_changed = true;
            }
        }
        let is_gone = root.first >= blocks;
        if has_changed && !is_gone {
            self.staged.put_contents(run, &bytes);
        }
        if is_gone {
            self.give_up(inode.ino, run)?;
        }
        Ok(is_gone)
    }
}

fn is_index(part: FilePart) -> bool {
    matches!(part, FilePart::Index { .. })
}

/// Whether a file has blocks of contents.
fn has_map(inode: &Inode) -> bool {
    matches!(
        FileKind::from_mode(inode.mode()),
        Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
    )
}

/// The blocks up to the last one of contents.
fn end_of(runs: &[(FilePart, Extent)]) -> u64 {
    let ends = runs.iter().filter_map(|(part, _)| match part {
        FilePart::Data(at) => Some(at + 1),
        FilePart::Attributes(_) | FilePart::Index { .. } => None,
    });
    ends.max().unwrap_or(0)
}
