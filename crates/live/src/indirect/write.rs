//! Writing: blocks found or made, tails grown, bytes put in.

use super::map::Path;
use super::{DIRECT, Files, Indirect, Mapped, Purpose};
use crate::table::Table;
use crate::{Fault, Ids, Part};
use seekless_cache::{ChangeId, Changed, Kind, Role};
use seekless_fs::field::{index, slice, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Extent, Ino};

impl<F: Indirect> Files<'_, F> {
    /// The role of a file's contents.
    pub(super) fn data_role(&mut self, ino: Ino) -> Result<Role, FsError> {
        let kind = self.core.node(ino)?.kind;
        Ok(if kind == FileKind::Directory { Role::DirectoryInit } else { Role::Data })
    }

    /// Refuses a length that the format cannot map.
    pub fn check_len(&self, ino: Ino, end: Option<u64>) -> Result<u64, FsError> {
        let fits = |&end: &u64| {
            let last = end.saturating_sub(1) / self.geometry.block();
            end <= self.maps.max_size() && self.geometry.way(last).is_some()
        };
        end.filter(fits).ok_or_else(|| FsError::TooLarge(format!("inode {ino}")))
    }

    /// Writes bytes, as many as there is space for. The number is returned.
    pub fn write_bytes(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let seen = self.core.node(ino)?.size;
        self.write_over(ino, offset, bytes, seen)
    }

    /// As [`Files::write_bytes`]; of the file so many bytes may have been seen, wherever
    /// they were, and must not be lost where the disk leads to the new ones.
    pub fn write_over(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        seen: u64,
    ) -> Result<usize, FsError> {
        self.check_len(ino, offset.checked_add(wide(bytes.len())))?;
        let before = self.core.node(ino)?.size;
        self.core.node(ino)?.grown_from = Some(seen);
        let mut done = 0usize;
        let written = self.write_blocks_of(ino, offset, bytes, &mut done);
        self.core.node(ino)?.grown_from = None;
        let reached = before.max(offset + wide(done));
        match written {
            Ok(()) => Ok(done),
            Err(FsError::NoSpace(_) | FsError::OverQuota(_)) if done > 0 => {
                self.cut_back(ino, reached)?;
                Ok(done)
            }
            Err(error) => {
                self.cut_back(ino, before)?;
                Err(error)
            }
        }
    }

    /// Writes bytes a block at a time, and counts how many.
    fn write_blocks_of(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        done: &mut usize,
    ) -> Result<(), FsError> {
        self.open_gap(ino, offset)?;
        let bsize = self.geometry.block();
        let end = offset + wide(bytes.len());
        while *done < bytes.len() {
            let at = offset + wide(*done);
            let lbn = at / bsize;
            let within = index(at % bsize);
            let len = (index(self.geometry.block()) - within).min(bytes.len() - *done);
            let part = slice(bytes, *done, len).unwrap_or_default();
            if lbn >= wide(DIRECT) {
                // Once for all blocks that are written now.
                self.fill_tail(ino, lbn)?;
                self.announce(ino, end)?;
            }
            self.write_in_block(ino, lbn, within, part)?;
            *done += len;
        }
        Ok(())
    }

    /// Gives a file the length that it is about to have, before block numbers in indirect blocks
    /// are written. If the file ends in direct blocks the last one must be whole. The returned
    /// change has to be on the disk before any of these numbers is.
    pub(super) fn announce(&mut self, ino: Ino, size: u64) -> Result<ChangeId, FsError> {
        let node = self.core.node(ino)?;
        if node.size >= size || node.kind == FileKind::Directory {
            return Ok(node.pending.sized);
        }
        node.size = size;
        let sized = self.put_blocks(ino, Role::SizeExtend, &[])?;
        self.core.node(ino)?.pending.sized = sized;
        Ok(sized)
    }

    /// Takes back the preparations for a write that then had no space.
    fn cut_back(&mut self, ino: Ino, size: u64) -> Result<(), FsError> {
        if self.core.node(ino)?.size > size { self.shrink(ino, size) } else { Ok(()) }
    }

    /// Makes a file ready for bytes at `offset`, behind its end or not: the gap is zeros, and only
    /// its last block may be a part of one.
    pub(super) fn open_gap(&mut self, ino: Ino, offset: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        let size = self.core.node(ino)?.size;
        if offset <= size {
            return Ok(());
        }
        let last = size / bsize;
        let end = (last + 1) * bsize;
        if size % bsize != 0 {
            self.zero(ino, size, end.min(offset))?;
        }
        Ok(())
    }

    /// Lets the tail of a file become a whole block, since the file is to go on
    /// behind it.
    fn fill_tail(&mut self, ino: Ino, lbn: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        let size = self.core.node(ino)?.size;
        let last = size / bsize;
        if last >= lbn || last >= wide(DIRECT) || size % bsize == 0 {
            return Ok(());
        }
        let within = index(size % bsize);
        let rest = vec![0; index(bsize) - within];
        self.write_in_block(ino, last, within, &rest).map(|_| ())
    }

    /// Zeroes the existing part of a range within one block; holes stay.
    pub(super) fn zero(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        let lbn = from / bsize;
        let Some(at) = self.lookup_block(ino, lbn)? else { return Ok(()) };
        let size = self.core.node(ino)?.size;
        let room = u64::from(self.geometry.units_at(size, lbn)) * self.geometry.unit();
        let base = lbn * bsize;
        let (from, to) = (from.saturating_sub(base), to.saturating_sub(base).min(room));
        if from >= to {
            return Ok(());
        }
        let role = self.data_role(ino)?;
        let blank = |to: &mut [u8]| {
            to.fill(0);
            Ok(())
        };
        self.core.cache.changes().edit(at, index(from), index(to - from), role, blank)?;
        self.core
            .note_unsettled(ino, Extent::new(at, u64::from(self.geometry.units_at(size, lbn))));
        Ok(())
    }

    /// Puts bytes into one block of a file, which is made or grown as need be. On
    /// [`FsError::NoSpace`] the file's end may have moved to the end of its last block, and nothing
    /// else has changed. Returns the change that must be on the disk for the bytes to be reached.
    pub(super) fn write_in_block(
        &mut self,
        ino: Ino,
        lbn: u64,
        within: usize,
        bytes: &[u8],
    ) -> Result<ChangeId, FsError> {
        self.fill_tail(ino, lbn)?;
        let bsize = self.geometry.block();
        let base = lbn * bsize;
        let found = self.lookup_block(ino, lbn)?;
        let node = self.core.node(ino)?;
        let old_size = node.size;
        let size = old_size.max(base + wide(within + bytes.len()));
        let direct = lbn < wide(DIRECT);
        let want = if direct {
            self.geometry.units((size - base).min(bsize))
        } else {
            self.geometry.per_block()
        };
        let Some(at) = found else {
            return self.make_block(ino, lbn, want, size, (within, bytes));
        };
        // A block that has no fragments may lie behind the end already, preallocated.
        let in_fragments = direct && self.geometry.per_block() > 1;
        let have = if in_fragments {
            self.geometry.units(old_size.saturating_sub(base).min(bsize))
        } else {
            want
        };
        if have >= want {
            let role = self.data_role(ino)?;
            let ((), data) =
                self.core.cache.changes().edit(at, within, bytes.len(), role, |to| {
                    to.copy_from_slice(bytes);
                    Ok(())
                })?;
            self.core.note_unsettled(ino, Extent::new(at, u64::from(have)));
            return self.set_size(ino, size, &[data]);
        }
        self.grow_block(ino, lbn, (at, have, want), size, (within, bytes))
    }

    /// A longer file, nothing else. A directory's end waits for its contents.
    fn set_size(&mut self, ino: Ino, size: u64, data: &[ChangeId]) -> Result<ChangeId, FsError> {
        let node = self.core.node(ino)?;
        if node.size == size {
            return Ok(ChangeId::COMMITTED);
        }
        node.size = size;
        if node.kind == FileKind::Directory {
            return self.put_blocks(ino, Role::DirectoryExtend, data);
        }
        self.put_blocks(ino, Role::Attributes, &[])
    }

    /// A new block, with bytes in it.
    fn make_block(
        &mut self,
        ino: Ino,
        lbn: u64,
        count: u32,
        size: u64,
        (within, bytes): (usize, &[u8]),
    ) -> Result<ChangeId, FsError> {
        let old_size = self.core.node(ino)?.size;
        let path = if lbn < wide(DIRECT) {
            None
        } else {
            self.announce(ino, size)?;
            Some(self.map().open_path(ino, lbn)?)
        };
        let wanted = self.maps.wanted(self.core, ino, lbn)?;
        let indirect = path.as_ref().map_or(0, Path::more) * u64::from(self.geometry.per_block());
        let sectors = self.geometry.sectors(indirect + u64::from(count));
        let taken = self
            .core
            .admit(ino, sectors)
            .and_then(|()| self.maps.take(self.core, ino, lbn, count, Purpose::Data(wanted)));
        let (at, bitmap) = match (taken, &path) {
            (Ok(taken), _) => taken,
            (Err(error), Some(path)) => {
                self.map().abandon_path(ino, path)?;
                return Err(error);
            }
            (Err(error), None) => return Err(error),
        };
        // Where a hole was its zeros would be lost, if the disk came to lead to the former contents
        // of the new place.
        let node = self.core.node(ino)?;
        let end = node.grown_from.unwrap_or(old_size);
        let fills_hole = lbn * self.geometry.block() < end;
        let role = match self.data_role(ino)? {
            Role::Data if fills_hole => Role::DataMove,
            role => role,
        };
        let len = index(u64::from(count) * self.geometry.unit());
        let ((), data) = self.core.cache.changes().fill(at, len, role, |to| {
            put(to, within, bytes);
            Ok(())
        })?;
        self.core.note_unsettled(ino, Extent::new(at, u64::from(count)));
        let after: Vec<ChangeId> = self.data_first(&path, bitmap, data);
        let reached = if let Some(path) = path {
            // Of a directory; that of a file has been announced.
            self.core.node(ino)?.size = size;
            self.map().enter_indirect(ino, &path, at, &after)?
        } else {
            let sectors = self.geometry.sectors(u64::from(count));
            let node = self.core.node(ino)?;
            if let Some(number) = node.map.trees_mut().direct.get_mut(index(lbn)) {
                *number = at.get();
            }
            node.add_sectors(sectors);
            node.size = size;
            self.put_blocks(ino, Self::pointer_role(role), &after)?
        };
        self.gather(ino, lbn, wanted, at)?;
        Ok(reached)
    }

    /// The changes that the number of a new block waits for.
    fn data_first(&self, path: &Option<Path>, bitmap: ChangeId, data: ChangeId) -> Vec<ChangeId> {
        let early = if path.is_some() {
            Fault::IndirectBeforeContents
        } else {
            Fault::PointerBeforeContents
        };
        let bitmap = self.core.unless(Fault::PointerBeforeBitmap, Some(bitmap));
        bitmap.into_iter().chain(self.core.unless(early, Some(data))).collect()
    }

    /// The role of a block number in an inode, by that of the block's contents.
    fn pointer_role(contents: Role) -> Role {
        match contents {
            Role::DirectoryInit => Role::DirectoryExtend,
            _ => Role::PointerSet,
        }
    }

    /// Lets a tail grow, where it lies or elsewhere, and puts bytes in.
    fn grow_block(
        &mut self,
        ino: Ino,
        lbn: u64,
        (at, have, want): (BlockNo, u32, u32),
        size: u64,
        (within, bytes): (usize, &[u8]),
    ) -> Result<ChangeId, FsError> {
        let fsize = index(self.geometry.unit());
        let role = self.data_role(ino)?;
        let grown = self.geometry.sectors(u64::from(want - have));
        let old_len = index(have) * fsize;
        self.core.admit(ino, grown)?;
        if let Some(bitmap) = self.maps.extend(self.core, at, have, want)? {
            let more = index(want - have) * fsize;
            let behind = at + u64::from(have);
            let ((), fresh) = self.core.cache.changes().fill(behind, more, role, |_| Ok(()))?;
            let ((), data) =
                self.core.cache.changes().edit(at, within, bytes.len(), role, |to| {
                    to.copy_from_slice(bytes);
                    Ok(())
                })?;
            self.core.note_unsettled(ino, Extent::new(at, u64::from(want)));
            let node = self.core.node(ino)?;
            node.add_sectors(grown);
            node.size = size;
            return self.put_blocks(ino, Self::pointer_role(role), &[bitmap, fresh, data]);
        }
        let wanted = self.maps.wanted(self.core, ino, lbn)?;
        let (new, bitmap) = self.maps.take_larger(self.core, ino, lbn, want, wanted)?;
        let is_directory = role == Role::DirectoryInit;
        let left = Extent::new(at, u64::from(have));
        // Names that may not be written yet are undone in the copies of the old place,
        // and stay there: the new one has all of them, and is reached after them. Names
        // that have gone need no such thing, since the new place is without them.
        let unwritten = if is_directory {
            let names = self.core.cache.waiting_in(left);
            self.core.cache.changes().join(&names)
        } else {
            Ids::new()
        };
        let old = self.core.cache.blocks_mut().read(at, 0, old_len)?.to_vec();
        let len = index(want) * fsize;
        let role = if is_directory { role } else { Role::DataMove };
        let ((), data) = self.core.cache.changes().fill(new, len, role, |to| {
            put(to, 0, &old);
            put(to, within, bytes);
            Ok(())
        })?;
        let node = self.core.node(ino)?;
        if let Some(number) = node.map.trees_mut().direct.get_mut(index(lbn)) {
            *number = new.get();
        }
        node.add_sectors(grown);
        node.size = size;
        self.core.note_unsettled(ino, Extent::new(new, u64::from(want)));
        self.core.forget_unsettled(ino, &[left]);
        let unwritten = self.core.unless(Fault::MoveBeforeNames, unwritten);
        let moved = if unwritten.is_empty() {
            self.move_run(ino, left, &[bitmap, data])?
        } else {
            // An earlier number stays as it is: a name may wait for it.
            let after: Ids = [bitmap, data].into_iter().chain(unwritten).collect();
            let (part, role) = (Part::Map, Role::PointerMove);
            let moved = self.maps.table().put_part(self.core, ino, part, role, &after, None)?;
            self.free_moved(left, moved)?
        };
        if is_directory {
            self.core.node(ino)?.pending.moved_by = moved;
        }
        Ok(moved)
    }

    /// Writes the number of a run that has moved, and frees the old one when
    /// nothing on the disk can lead there.
    pub(super) fn move_run(
        &mut self,
        ino: Ino,
        old: Extent,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let dropped = self.core.cache.changes_in(old);
        let changed = self.maps.table().put_part(
            self.core,
            ino,
            Part::Map,
            Role::PointerMove,
            after,
            Some(&dropped),
        )?;
        self.free_moved(old, changed)
    }

    /// Frees a run that has moved: at once where the number of the new one has
    /// taken the place of the old.
    pub(super) fn free_moved(
        &mut self,
        old: Extent,
        changed: Changed,
    ) -> Result<ChangeId, FsError> {
        if changed.replaced || self.core.has(Fault::ReuseBeforeMove) {
            self.core.cache.changes().forget(old, changed.id);
            self.maps.give(self.core, &[old])?;
        } else {
            self.core.defer_free(&[changed.id], Kind::FreeFragments, [old]);
        }
        Ok(changed.id)
    }

    /// Appends to a file that has no blocks behind its end.
    pub fn append(&mut self, ino: Ino, bytes: &[u8]) -> Result<ChangeId, FsError> {
        let size = self.core.node(ino)?.size;
        let bsize = self.geometry.block();
        let within = index(size % bsize);
        self.write_in_block(ino, size / bsize, within, bytes)
    }

    /// Sees that a range has blocks, which read as zeros where there was none. On
    /// failure the file is as long as before.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    pub fn allocate_range(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        let size = self.core.node(ino)?.size;
        let allocated = self.allocate_blocks(ino, from, to);
        if allocated.is_err() && self.core.node(ino)?.size > size {
            self.shrink(ino, size)?;
        }
        allocated
    }

    fn allocate_blocks(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        self.open_gap(ino, from)?;
        let mut at = from;
        while at < to {
            let lbn = at / bsize;
            let base = lbn * bsize;
            let end = to.min(base + bsize);
            let size = self.core.node(ino)?.size;
            let hole = self.lookup_block(ino, lbn)?.is_none();
            let start = if hole { at } else { at.max(size) };
            if start < end {
                let zeros = vec![0; index(end - start)];
                self.zero(ino, start, end)?;
                self.write_in_block(ino, lbn, index(start - base), &zeros)?;
            }
            at = end;
        }
        Ok(())
    }
}

/// Copies bytes to a place in others, as far as they reach.
fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = to.get_mut(at..) {
        to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    }
}
