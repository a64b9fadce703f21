//! Bytes put into a file, and space allocated for it.

use super::Tree;
use super::edit::{end_of, run_with};
use super::plan::Put;
use crate::encode::mapping::max_len;
use seekless_cache::{ChangeId, JournalMode, Role};
use seekless_fs::field::{index, low32, slice, wide};
use seekless_fs::{FileKind, FsError, Mapping};
use seekless_live::Contents;
use seekless_units::{BlockNo, Extent, Lbn};
use smallvec::SmallVec;
use std::ops::Range;

impl Tree<'_> {
    /// Writes as many bytes as there is space for; returns their number.
    pub(crate) fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let seen = self.node()?.size;
        self.write_over(offset, bytes, seen)
    }

    /// As [`Tree::write_bytes`]; the first `seen` bytes of the file may have been seen, in any
    /// place, and must not be lost where the disk leads to the new ones.
    pub(crate) fn write_over(
        &mut self,
        offset: u64,
        bytes: &[u8],
        seen: u64,
    ) -> Result<usize, FsError> {
        let end = self.check_len(offset.checked_add(wide(bytes.len())))?;
        let before = self.node()?.size;
        self.zero_tail(before, offset)?;
        self.announce(end)?;
        let mut done = 0usize;
        let mut written = Ok(());
        while done < bytes.len() && written.is_ok() {
            let rest = bytes.get(done..).unwrap_or_default();
            written = self.write_piece(offset + wide(done), rest, seen).map(|(len, _)| done += len);
        }
        let reached = if done == 0 { before } else { before.max(offset + wide(done)) };
        if written.is_err() && self.node()?.size > reached {
            self.node()?.size = reached;
            self.put_map(Role::PointerCut, &[])?;
        }
        match written {
            Err(FsError::NoSpace(_)) if done > 0 => Ok(done),
            written => written.map(|()| done),
        }
    }

    /// Sets the future length of a file beforehand, if a block of its tree could be on the disk
    /// without it.
    fn announce(&mut self, end: u64) -> Result<(), FsError> {
        if self.node()?.size < end && self.is_kept_apart()? {
            self.set_size(end, &[])?;
        }
        Ok(())
    }

    /// Whether extents stand in other blocks than the length, and these are not written
    /// together (`normal` and `sync`). Then the length comes first: `e2fsck -p` stops at
    /// an extent in a block of the tree that goes on behind the end of the file.
    fn is_kept_apart(&mut self) -> Result<bool, FsError> {
        let root = self.node()?.map.root;
        Ok(self.maps.rules().shadows && crate::extent::root_frame(&root.0, self.ino)?.depth > 0)
    }

    /// Appends to a directory, whose length ends with its last block in use.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<ChangeId, FsError> {
        let size = self.node()?.size;
        let end = self.check_len(size.checked_add(wide(bytes.len())))?;
        debug_assert!(wide(bytes.len()) <= self.block(), "a directory grows by blocks");
        let (done, id) = self.write_piece(size, bytes, size)?;
        debug_assert_eq!(size + wide(done), end, "a block lies in one piece");
        Ok(id)
    }

    /// The roles of contents that get a place, and of the change of the inode that leads there;
    /// `fills` zeros that may have been read.
    pub(super) fn roles(&mut self, fills: bool) -> Result<(Role, Role), FsError> {
        Ok(match self.node()?.kind {
            FileKind::Directory => (Role::DirectoryInit, Role::DirectoryExtend),
            // Stale contents of the disk must not become visible.
            _ if fills => (Role::DataMove, Role::PointerSet),
            _ => (Role::Data, Role::PointerSet),
        })
    }

    /// Writes as many bytes as lie in blocks of one state: written before, allocated, or a hole.
    /// Returns their number, and the change that must be on the disk for them to be reached. Of the
    /// file, `seen` bytes may have been seen before.
    fn write_piece(
        &mut self,
        offset: u64,
        bytes: &[u8],
        seen: u64,
    ) -> Result<(usize, ChangeId), FsError> {
        debug_assert!(!bytes.is_empty(), "a piece has bytes");
        let block = self.block();
        let lbn = offset / block;
        let within = index(offset % block);
        let end = (offset + wide(bytes.len())).div_ceil(block);
        let near = self.find(lbn)?;
        let count = near.end().min(end) - lbn;
        debug_assert!(count > 0, "the first block is in the run or hole that was found");
        let (contents, role) = self.roles(lbn * block < seen)?;
        // The bytes that fit into `blocks` blocks, and the length from then on.
        let size = self.node()?.size;
        let fits = |blocks: u64| {
            let room = index(blocks * block) - within;
            let len = room.min(bytes.len());
            debug_assert!(len > 0, "each piece gets on");
            (len, size.max(offset + wide(len)))
        };
        match near.at(lbn) {
            Some((at, false)) => {
                let (len, size) = fits(count);
                let bytes = slice(bytes, 0, len).unwrap_or_default();
                let after = self.overwrite(Extent::new(at, count), within, bytes)?;
                let id = self.set_size(size, &after)?;
                Ok((len, id))
            }
            Some((at, true)) => {
                let (len, size) = fits(count);
                let bytes = slice(bytes, 0, len).unwrap_or_default();
                let after = self.fill(Extent::new(at, count), within, bytes, contents)?;
                let blocks = lbn..lbn + count;
                let put = Put { role, after: &after, size, more: 0, fewer: 0 };
                let id = match self.convert(&blocks, &put) {
                    Err(FsError::NoSpace(why)) => self.convert_instead(&blocks, &put, why)?,
                    other => other?,
                };
                Ok((len, id))
            }
            None => {
                let (run, bitmap) = self.take(lbn, count, false)?;
                let (len, size) = fits(run.len);
                let bytes = slice(bytes, 0, len).unwrap_or_default();
                let mut after = self.fill(run, within, bytes, contents)?;
                after.push(bitmap);
                let put = Put { role, after: &after, size, more: run.len, fewer: 0 };
                let id = self.enter(lbn, run, false, &put)?;
                Ok((len, id))
            }
        }
    }

    /// Takes blocks for a hole of `count` blocks from one of the file on.
    pub(super) fn take(
        &mut self,
        lbn: u64,
        count: u64,
        unwritten: bool,
    ) -> Result<(Extent, ChangeId), FsError> {
        let path = self.path(lbn)?;
        let (nearest, around) = (path.in_front_of(lbn), path.around(lbn));
        debug_assert!(count > 0, "a hole has blocks");
        let most = low32(count.min(max_len(unwritten)));
        let taken =
            self.maps.space().take_run(self.core, self.ino, lbn, nearest, most, Some(around))?;
        let (run, _) = taken;
        debug_assert!(run.len > 0 && run.len <= count, "{run} for a hole of {count} blocks");
        Ok(taken)
    }

    /// Enters blocks that were taken; gives them back when the tree has no space.
    pub(super) fn enter(
        &mut self,
        lbn: u64,
        run: Extent,
        unwritten: bool,
        put: &Put<'_>,
    ) -> Result<ChangeId, FsError> {
        let entered = self.insert(Mapping { lbn: Lbn::new(lbn), extent: run, unwritten }, put);
        if matches!(entered, Err(FsError::NoSpace(_))) {
            self.core.forget_unsettled(self.ino, &[run]);
            self.core.cache.changes().forget(run, ChangeId::COMMITTED);
            self.maps.space().give(self.core, &[run])?;
        }
        entered
    }

    /// Puts bytes into new blocks, zeros in front of them and behind.
    fn fill(
        &mut self,
        run: Extent,
        within: usize,
        bytes: &[u8],
        role: Role,
    ) -> Result<Vec<ChangeId>, FsError> {
        let len = self.maps.layout().block_len();
        debug_assert!(within < len, "bytes begin in the first block");
        let mut rest = bytes;
        let mut skip = within;
        let mut ids = Vec::with_capacity(index(run.len));
        for at in run.start.get()..run.end().get() {
            let (part, behind) = rest.split_at((len - skip).min(rest.len()));
            let ((), id) = self.core.cache.changes().fill(BlockNo::new(at), len, role, |to| {
                let to = to.iter_mut().skip(skip);
                to.zip(part).for_each(|(to, &from)| *to = from);
                Ok(())
            })?;
            ids.push(id);
            (rest, skip) = (behind, 0);
        }
        debug_assert!(rest.is_empty(), "the blocks were counted");
        debug_assert_eq!(wide(ids.len()), run.len, "each new block gets contents");
        self.core.note_unsettled(self.ino, run);
        Ok(ids)
    }

    /// Puts bytes over others.
    fn overwrite(
        &mut self,
        run: Extent,
        within: usize,
        bytes: &[u8],
    ) -> Result<Vec<ChangeId>, FsError> {
        let (role, _) = self.roles(false)?;
        let len = self.maps.layout().block_len();
        let mut rest = bytes;
        let mut skip = within;
        let mut ids = Vec::with_capacity(index(run.len));
        for at in run.start.get()..run.end().get() {
            let (part, behind) = rest.split_at((len - skip).min(rest.len()));
            let at = BlockNo::new(at);
            let ((), id) = self.core.cache.changes().edit(at, skip, part.len(), role, |to| {
                to.copy_from_slice(part);
                Ok(())
            })?;
            ids.push(id);
            (rest, skip) = (behind, 0);
        }
        debug_assert!(rest.is_empty(), "all bytes lie in the blocks");
        self.core.note_unsettled(self.ino, run);
        Ok(ids)
    }

    /// Sets a greater length, and nothing else. A directory's end waits for its contents; so does a
    /// file's with delayed allocation, so that all of it is shown in order.
    pub(super) fn set_size(&mut self, size: u64, data: &[ChangeId]) -> Result<ChangeId, FsError> {
        let node = self.node()?;
        if node.size == size {
            return Ok(ChangeId::COMMITTED);
        }
        debug_assert!(node.size < size, "a length that is set alone grows");
        node.size = size;
        if node.kind == FileKind::Directory {
            return self.put_map(Role::DirectoryExtend, data);
        }
        let role = if self.is_kept_apart()? { Role::SizeExtend } else { Role::Attributes };
        let first = if self.maps.rules().delays { data } else { &[] };
        self.put_map(role, first)
    }

    /// As [`Tree::convert`] where there is no space for more nodes: the rest of the
    /// extent is written with zeros, so that it need not be split
    /// (`ext4_ext_zeroout`). An extent that goes on behind the end of the file cannot
    /// be helped: there nothing written may be.
    fn convert_instead(
        &mut self,
        blocks: &Range<u64>,
        put: &Put<'_>,
        why: String,
    ) -> Result<ChangeId, FsError> {
        let path = self.path(blocks.start)?;
        let run = run_with(&path.leaf, blocks.start);
        let Some((_, run)) = run else { return Err(FsError::NoSpace(why)) };
        if end_of(&run) > put.size.div_ceil(self.block()) {
            return Err(FsError::NoSpace(why));
        }
        // Where contents are logged the operation must have room for all of them.
        let logs =
            self.core.cache.blocks().config().discipline.journal_mode() == Some(JournalMode::Data);
        if logs && !self.core.cache.extend(run.extent.len) {
            return Err(FsError::NoSpace(why));
        }
        let mut after = put.after.to_vec();
        for rest in [run.lbn.get()..blocks.start, blocks.end..end_of(&run)] {
            if !rest.is_empty() {
                let rest = super::edit::part(&run, &rest).extent;
                after.extend(self.fill(rest, 0, &[], Role::DataMove)?);
            }
        }
        self.convert_whole(blocks.start, &Put { after: &after, ..*put })
    }

    /// Allocates all blocks of a range; new ones read as zeros, since they are marked as never
    /// written. When space runs out the file keeps its length, and the blocks allocated so far.
    pub(crate) fn allocate_range(
        &mut self,
        from: u64,
        to: u64,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let block = self.block();
        let (mut lbn, end) = (from / block, to.div_ceil(block));
        while lbn < end {
            let near = self.find(lbn)?;
            if near.at(lbn).is_some() {
                lbn = near.end();
                continue;
            }
            let count = near.end().min(end) - lbn;
            let (run, bitmap) = self.take(lbn, count, true)?;
            let size = self.node()?.size;
            let after = [bitmap];
            let put = Put { role: Role::PointerSet, after: &after, size, more: run.len, fewer: 0 };
            self.enter(lbn, run, true, &put)?;
            lbn += run.len;
        }
        let size = self.node()?.size;
        if keep_size || to <= size {
            return Ok(());
        }
        self.zero_tail(size, to)?;
        self.set_size(to, &[]).map(drop)
    }

    /// The first block of a new file, of `len` bytes.
    pub(crate) fn first_block(
        &mut self,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError> {
        debug_assert!(wide(len) <= self.block(), "a new file has one block");
        let (at, bitmap) = self.maps.space().take_block(self.core, self.ino, 0, None)?;
        let ((), data) =
            self.core.cache.changes().fill(at, self.maps.layout().block_len(), role, |to| {
                fill(to);
                Ok(())
            })?;
        let run = Extent::new(at, 1);
        let mut root = super::empty_root();
        super::nodes::put_first(&mut root, run);
        let sectors = self.sectors(1);
        let node = self.node()?;
        (node.map.root, node.map.near) = (root, None);
        (node.size, node.sectors) = (wide(len), sectors);
        Ok(Contents { run: Some(run), after: SmallVec::from_slice(&[bitmap, data]) })
    }

    /// Allocates the first of some blocks, which is in a hole, and the following ones in the same
    /// run.
    pub(crate) fn place(&mut self, lbn: u64, contents: &[Box<[u8]>]) -> Result<Extent, FsError> {
        debug_assert!(!contents.is_empty(), "somebody waits");
        let block = self.block();
        let recorded = self.node()?.recorded;
        let shown = self.node()?.recorded_size();
        let (contents_role, role) = self.roles(lbn * block < shown)?;
        // A hole may go on in the next leaf, but an extent does not.
        let near = self.find(lbn)?;
        debug_assert!(near.at(lbn).is_none(), "D1: {lbn} of inode {} waits", self.ino);
        let most = wide(contents.len()).min(near.end() - lbn);
        debug_assert!(most > 0, "the first block is in the hole");
        let (run, bitmap) = self.take(lbn, most, false)?;
        let mut after = self.fill_whole(run, contents, contents_role)?;
        after.push(bitmap);
        let end = (lbn + run.len) * block;
        let node = self.node()?;
        node.record_up_to(end);
        let put = Put { role, after: &after, size: node.size, more: run.len, fewer: 0 };
        let entered = self.enter(lbn, run, false, &put);
        if entered.is_err() {
            self.node()?.recorded = recorded;
        }
        entered.map(|_| run)
    }

    /// Puts contents into new blocks.
    fn fill_whole(
        &mut self,
        run: Extent,
        contents: &[Box<[u8]>],
        role: Role,
    ) -> Result<Vec<ChangeId>, FsError> {
        debug_assert!(run.len <= wide(contents.len()), "no more was wanted");
        let len = self.maps.layout().block_len();
        let mut ids = Vec::with_capacity(index(run.len));
        for (at, bytes) in (run.start.get()..run.end().get()).zip(contents) {
            let ((), id) = self.core.cache.changes().fill(BlockNo::new(at), len, role, |to| {
                to.copy_from_slice(bytes);
                Ok(())
            })?;
            ids.push(id);
        }
        debug_assert_eq!(wide(ids.len()), run.len, "each new block gets contents");
        self.core.note_unsettled(self.ino, run);
        Ok(ids)
    }
}
