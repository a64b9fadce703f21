//! Requests of name lookup: directories, and inodes from their tables.

use super::readahead::PageCache;
use super::{File, MAX_LINKS, Purpose, Replay, SEARCH_BATCH, check_extent};
use crate::by_path::components;
use seekless_fs::{FileKind, FsError, InodeLocation, Location};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

impl Replay<'_> {
    /// Follows a path from the root as the kernel does, component by component.
    pub(super) fn walk(&mut self, path: &[u8], follow_last: bool) -> Result<Option<Ino>, FsError> {
        let mut links = 0;
        let mut stack = vec![self.image.root()];
        self.load_inode(self.image.root())?;
        let mut rest: Vec<Vec<u8>> = components(path);
        while let Some(name) = rest.pop() {
            let Some(&here) = stack.last() else { return Ok(None) };
            if name == b".." {
                if stack.len() > 1 {
                    stack.pop();
                }
                continue;
            }
            if self.kind(here)? != FileKind::Directory {
                return Ok(None);
            }
            let Some(ino) = self.look_up(here, &name)? else { return Ok(None) };
            self.load_inode(ino)?;
            self.name_inode(here, &name, ino);
            let is_link = self.kind(ino)? == FileKind::Symlink;
            if !is_link || (rest.is_empty() && !follow_last) {
                stack.push(ino);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Ok(None);
            }
            let target = self.read_target(ino)?;
            if target.starts_with(b"/") {
                stack.truncate(1);
            }
            rest.extend(components(&target));
        }
        Ok(stack.last().copied())
    }

    /// Keeps the first path that leads to an inode.
    fn name_inode(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        if ino == self.image.root() || self.out.paths.contains_key(&ino) {
            return;
        }
        let above = self.out.paths.get(&dir).map_or(&[][..], Vec::as_slice);
        let path = [above, b"/", name].concat();
        self.out.paths.insert(ino, path);
    }

    fn look_up(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        if let Some(known) = self.names.get(&(dir, name.to_vec())) {
            return Ok(*known);
        }
        let found = self.image.lookup(dir, name)?;
        let mut blocks = self.image.lookup_blocks(dir, name)?;
        match self.image.unindexed_blocks(dir)? {
            Some(all) if all.len() > 1 => {
                let last = blocks.pop().filter(|_| found.is_some());
                self.search(dir, &all, last)?;
            }
            _ => self.read_directory(dir, &blocks)?,
        }
        self.names.insert((dir, name.to_vec()), found);
        Ok(found)
    }

    /// Searches a directory without an index, from the block where the last
    /// search ended and around, several blocks at a time (`__ext4_find_entry`).
    fn search(&mut self, dir: Ino, all: &[Lbn], found: Option<Lbn>) -> Result<(), FsError> {
        let start =
            self.searches.get(&dir).copied().filter(|start| *start < all.len()).unwrap_or(0);
        for part in [&all[start..], &all[..start]] {
            for batch in part.chunks(SEARCH_BATCH) {
                self.read_directory(dir, batch)?;
                if let Some(at) = found.filter(|found| batch.contains(found)) {
                    let place = all.iter().position(|lbn| *lbn == at);
                    self.searches.insert(dir, place.unwrap_or(0));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(super) fn read_directory(&mut self, dir: Ino, blocks: &[Lbn]) -> Result<(), FsError> {
        for &lbn in blocks {
            self.read_map(dir, lbn)?;
            if let Some(run) = self.map(dir)?.find(lbn) {
                self.read_buffers(Extent::new(run.extent.start, 1), Purpose::Directory, dir, lbn);
                self.touched.insert(run.extent.start);
            }
        }
        Ok(())
    }

    pub(super) fn kind(&self, ino: Ino) -> Result<FileKind, FsError> {
        match self.files.get(&ino) {
            Some(file) => Ok(file.attr.kind),
            None => Ok(self.image.attr(ino)?.kind),
        }
    }

    /// Brings an inode to memory, with its neighbours in the table.
    pub(super) fn load_inode(&mut self, ino: Ino) -> Result<(), FsError> {
        if self.files.contains_key(&ino) {
            return Ok(());
        }
        let at = self.image.inode_location(ino)?;
        let place = Location::of("inode table").in_inode(ino);
        check_extent(self.image, Extent::new(at.block, 1), place)?;
        // A mount has read the root's, and keeps it.
        if ino != self.image.root() {
            self.read_inode_block(ino, &at);
        }
        self.touched.insert(at.block);
        let attr = self.image.attr(ino)?;
        self.files.insert(ino, File { attr, map: None, pages: PageCache::default() });
        self.out.inodes.push(ino);
        Ok(())
    }

    /// Reads a block of an inode table. Its neighbours are requested first, on either side of it:
    /// it is locked by then, and left out; it follows as a request of its own, which is not merged
    /// with the read-ahead.
    fn read_inode_block(&mut self, ino: Ino, at: &InodeLocation) {
        if self.buffers.contains(&at.block) {
            return;
        }
        let window = self.machine.inode_read_ahead_blocks;
        if window > 0 {
            // Aligned to the window, within the used part of the table; the
            // kernel's loop includes the window's end, be it in the table or not.
            let block = at.block.get();
            let from = (block & !(window - 1)).max(at.table.start.get());
            let to = (from + window).min(at.used_end.get()) + 1;
            let to = to.min(self.image.geometry().blocks);
            let run = |from: u64, to: u64| Extent::new(BlockNo::new(from), to.saturating_sub(from));
            self.read_buffers(run(from, block.min(to)), Purpose::Inode, ino, Lbn::ZERO);
            self.read_buffers(run(block + 1, to), Purpose::Inode, ino, Lbn::ZERO);
        }
        self.read_buffers(Extent::new(at.block, 1), Purpose::Inode, ino, Lbn::ZERO);
    }
}
