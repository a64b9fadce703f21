//! Directories: entries in units of 512 bytes, changed in place.
//!
//! A name that goes leaves an unused entry; nothing else moves, so that what
//! waits to be written in the same unit can be undone on its own. Where an
//! unused entry or the slack behind a used one is large enough a new name goes
//! there; else a unit is compacted.

use super::FfsLive;
use super::fault::Fault;
use super::index::{Slot, UNIT};
use crate::entry::{self, Entry, needed};
use crate::ondisk::DIRECTORY_UNIT;
use crate::superblock::Order;
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, invalid, range, slice, wide};
use seekless_fs::{DirEntry, FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Longest name.
pub(super) const NAME_MAX: usize = 255;

/// Changes that must all be on the disk for something to be.
pub(super) type Ids = SmallVec<[ChangeId; 3]>;

/// Room for a name: the unit, and what must be on the disk for it to be
/// reached.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    unit: u64,
    reached_by: Ids,
}

/// Where an entry fits in a unit, in bytes.
struct Room {
    at: usize,
    len: usize,
    /// The entry it is taken from.
    behind: Option<usize>,
}

/// The first unit of a new directory: `.` and `..`.
pub(super) fn first_unit(order: Order, ino: Ino, parent: Ino, to: &mut [u8]) {
    for entry in entry::dots(ino, parent) {
        entry::put(order, to, &entry);
    }
}

impl FfsLive {
    /// A directory's size, checked.
    pub(super) fn dir_size(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.dir_node(dir)?.size;
        let limit = self.sb.size.saturating_mul(u64::from(self.sb.fsize)).min(u64::from(u32::MAX));
        if size > limit || size.checked_rem(UNIT) != Some(0) {
            return Err(range("di_size", size, limit, Location::of("directory").in_inode(dir)));
        }
        Ok(size)
    }

    /// What a directory holds from byte `at` to the end of that block.
    pub(super) fn dir_bytes(&mut self, dir: Ino, at: u64, size: u64) -> Result<Vec<u8>, FsError> {
        let bsize = u64::from(self.sb.bsize);
        let end = at.saturating_add(1).next_multiple_of(bsize).min(size);
        let len = index(end.saturating_sub(at));
        let (block, skip) = self.dir_place(dir, at)?;
        Ok(self.cache.read(block, skip, len)?.to_vec())
    }

    /// Where a byte of a directory lies.
    pub(super) fn dir_place(&mut self, dir: Ino, at: u64) -> Result<(BlockNo, usize), FsError> {
        let bsize = u64::from(self.sb.bsize);
        let lbn = at.checked_div(bsize).unwrap_or(0);
        let block = self.lookup_block(dir, lbn)?;
        // Directories have no holes.
        let hole = || invalid("di_db", lbn, Location::of("directory").in_inode(dir));
        Ok((block.ok_or_else(hole)?, index(at.checked_rem(bsize).unwrap_or(0))))
    }

    /// The entry of a name.
    pub(super) fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Slot>, FsError> {
        self.dir_node(dir)?;
        Ok(self.index(dir)?.names.get(name).copied())
    }

    /// Whether a directory holds nothing.
    pub(super) fn is_empty_dir(&mut self, dir: Ino) -> Result<bool, FsError> {
        Ok(self.index(dir)?.is_empty())
    }

    /// Finds or makes room for a name. Nothing is seen of that but the
    /// directory's size.
    pub(super) fn reserve(&mut self, dir: Ino, name: &[u8]) -> Result<Spot, FsError> {
        let found = self.index(dir)?.unit_with(needed(name.len()));
        let unit = match found {
            Some(unit) => unit,
            None => self.grow_dir(dir)?,
        };
        self.spot(dir, unit)
    }

    /// Room in a unit, and what must be on the disk for it to be reached.
    fn spot(&mut self, dir: Ino, unit: u64) -> Result<Spot, FsError> {
        let cache = &self.cache;
        let node = self.nodes.get_mut(&dir).ok_or_else(|| super::node::gone(dir))?;
        node.reached_by.retain(|id| !cache.is_committed(*id));
        Ok(Spot { unit, reached_by: node.reached_by.iter().copied().collect() })
    }

    /// Gives a directory one more unit, unused.
    fn grow_dir(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.dir_size(dir)?;
        let mut unit = [0; DIRECTORY_UNIT];
        entry::put_len(self.sb.order, &mut unit, 0, DIRECTORY_UNIT);
        let reached = self.append(dir, &unit)?;
        let node = self.dir_node(dir)?;
        node.reached_by.push(reached);
        let number = size.checked_div(UNIT).unwrap_or(0);
        self.index(dir)?.set_room(number, DIRECTORY_UNIT);
        Ok(number)
    }

    /// Writes a name into the room that was reserved for it. What is returned
    /// must be on the disk for the name to be.
    pub(super) fn insert(
        &mut self,
        dir: Ino,
        spot: &Spot,
        name: &[u8],
        to: (Ino, FileKind),
        role: Role,
        after: &[ChangeId],
    ) -> Result<Ids, FsError> {
        self.settle_return(dir, name)?;
        let base = spot.unit.saturating_mul(UNIT);
        let (block, skip) = self.dir_place(dir, base)?;
        let bytes = self.cache.read(block, skip, DIRECTORY_UNIT)?;
        let mut unit = [0; DIRECTORY_UNIT];
        unit.copy_from_slice(bytes);
        let order = self.sb.order;
        let kind = entry::code_of(to.1);
        let needed = needed(name.len());
        let mut pieces: SmallVec<[(usize, usize); 2]> = SmallVec::new();
        let room = self.room_in(dir, &unit, needed)?;
        let (at, len) = match room {
            Some(Room { at, len, behind }) => {
                if let Some(before) = behind {
                    entry::put_len(order, &mut unit, before, at.saturating_sub(before));
                    pieces.push((before.saturating_add(entry::LEN.0), entry::LEN.1));
                }
                pieces.push((at, needed));
                (at, len)
            }
            None => {
                let at = self.compact(dir, base, &mut unit)?;
                pieces.push((0, DIRECTORY_UNIT));
                (at, DIRECTORY_UNIT.saturating_sub(at))
            }
        };
        entry::put(order, &mut unit, &Entry { at, len, ino: to.0, kind, name });
        // Never the same name twice: an older one of a file is gone before.
        let written = |&(at, len): &(usize, usize)| {
            let start = base.saturating_add(wide(at));
            start..start.saturating_add(wide(len))
        };
        let over: SmallVec<[_; 2]> = pieces.iter().map(written).collect();
        let older = self.unless(Fault::NameTwice, self.departure(dir, name, &over));
        let after: Ids = after.iter().copied().chain(older).collect();
        let id = self.put_pieces(block, skip, &unit, &pieces, role, &after)?;
        // Undoing a compaction would move the other names back.
        let added = if room.is_some() { id } else { ChangeId::COMMITTED };
        let slot = Slot { ino: to.0, at: base.saturating_add(wide(at)), kind, added };
        self.enter(dir, spot.unit, name, slot)?;
        Ok(spot.reached_by.iter().copied().chain([id]).collect())
    }

    /// Where an entry fits without moving others: at an unused one, or behind
    /// what another needs. `None` when only compacting helps.
    fn room_in(&self, dir: Ino, unit: &[u8], needed: usize) -> Result<Option<Room>, FsError> {
        let mut loose = None;
        for entry in self.sb.entries(unit, Location::of("directory").in_inode(dir)) {
            let entry = entry?;
            if !entry.is_used() && entry.len >= needed {
                return Ok(Some(Room { at: entry.at, len: entry.len, behind: None }));
            }
            if loose.is_none() && entry.is_used() && entry.slack() >= needed {
                let at = entry.at.saturating_add(entry.needed());
                loose = Some(Room { at, len: entry.slack(), behind: Some(entry.at) });
            }
        }
        Ok(loose)
    }

    /// Moves the used entries of a unit to its start, and says where they end.
    fn compact(&mut self, dir: Ino, base: u64, unit: &mut [u8]) -> Result<usize, FsError> {
        let (sb, old) = (Arc::clone(&self.sb), unit.to_vec());
        unit.fill(0);
        let mut at = 0usize;
        for entry in sb.entries(&old, Location::of("directory").in_inode(dir)) {
            let entry = entry?;
            if !entry.is_used() {
                continue;
            }
            let len = entry.needed();
            entry::put(sb.order, unit, &Entry { at, len, ..entry });
            if let Some(slot) = self.index(dir)?.names.get_mut(entry.name) {
                (slot.at, slot.added) = (base.saturating_add(wide(at)), ChangeId::COMMITTED);
            }
            at = at.saturating_add(len);
        }
        Ok(at)
    }

    /// Changes parts of a unit, each given by its start and length.
    fn put_pieces(
        &mut self,
        block: BlockNo,
        skip: usize,
        unit: &[u8],
        parts: &[(usize, usize)],
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let pieces: SmallVec<[Piece<'_>; 2]> = parts
            .iter()
            .filter_map(|&(at, len)| {
                let bytes = slice(unit, at, len)?;
                Some(Piece { offset: byte(skip.saturating_add(at)), bytes })
            })
            .collect();
        self.cache.change(block, &pieces, role, after)
    }

    /// Takes a name out. Where it has never been on the disk, and need not be,
    /// there is nothing to be waited for; else what is returned must be on the
    /// disk for it to be gone.
    pub(super) fn remove(
        &mut self,
        dir: Ino,
        name: &[u8],
        after: &[ChangeId],
    ) -> Result<Option<ChangeId>, FsError> {
        let Some(slot) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let removed = if self.cache.revert(slot.added) {
            None
        } else {
            let removed = self.erase(dir, slot, after)?;
            self.note_departure(dir, name, slot.at, removed);
            Some(removed)
        };
        self.leave(dir, slot.at.checked_div(UNIT).unwrap_or(0), name)?;
        Ok(removed)
    }

    /// Makes an entry unused.
    fn erase(&mut self, dir: Ino, slot: Slot, after: &[ChangeId]) -> Result<ChangeId, FsError> {
        let (block, skip) = self.dir_place(dir, slot.at)?;
        if !after.is_empty() {
            let offset = byte(skip.saturating_add(entry::INO.0));
            let piece = Piece { offset, bytes: &[0; entry::INO.1] };
            return self.cache.change(block, &[piece], Role::EntryRemove, after);
        }
        let blank = |to: &mut [u8]| {
            to.fill(0);
            Ok(())
        };
        let at = skip.saturating_add(entry::INO.0);
        Ok(self.cache.edit(block, at, entry::INO.1, Role::EntryRemove, blank)?.1)
    }

    /// Moves an entry of a directory's to a unit that is not in front of another,
    /// under the same name: for a while there are two of them, which lead to the
    /// same inode. Returns what must be on the disk for the new one to be, and
    /// what takes the old one away.
    pub(super) fn move_behind(
        &mut self,
        dir: Ino,
        name: &[u8],
        unit: u64,
        counted: ChangeId,
    ) -> Result<(Ids, ChangeId), FsError> {
        let Some(old) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let found = self.index(dir)?.unit_from(needed(name.len()), unit);
        let unit = match found {
            Some(unit) => unit,
            None => self.grow_dir(dir)?,
        };
        let spot = self.spot(dir, unit)?;
        let kind = entry::kind_of(old.kind).unwrap_or(FileKind::Directory);
        let to = (old.ino, kind);
        let named = self.insert(dir, &spot, name, to, Role::EntryAddDirectory, &[counted])?;
        let gone = self.erase(dir, old, &named)?;
        self.refresh_room(dir, old.at.checked_div(UNIT).unwrap_or(0))?;
        Ok((named, gone))
    }

    /// Lets one name lead to what another does, which goes: with one write, for
    /// both lie in one unit.
    pub(super) fn replace_within_unit(
        &mut self,
        dir: Ino,
        from: &[u8],
        to: &[u8],
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let (Some(old), Some(new)) = (self.find(dir, from)?, self.find(dir, to)?) else {
            return Err(FsError::NotFound(String::from_utf8_lossy(from).into_owned()));
        };
        let unit = old.at.checked_div(UNIT).unwrap_or(0);
        debug_assert_eq!(new.at.checked_div(UNIT), Some(unit));
        let (block, skip) = self.dir_place(dir, unit.saturating_mul(UNIT))?;
        let at = |slot: Slot, within: usize| {
            let into = slot.at.checked_rem(UNIT).unwrap_or(0);
            byte(skip.saturating_add(index(into)).saturating_add(within))
        };
        let mut ino = [0; entry::INO.1];
        self.sb.order.put_u32(&mut ino, 0, old.ino.get());
        let pieces = [
            Piece { offset: at(new, entry::INO.0), bytes: &ino },
            Piece { offset: at(new, entry::KIND.0), bytes: &[old.kind] },
            Piece { offset: at(old, entry::INO.0), bytes: &[0; entry::INO.1] },
        ];
        let id = self.cache.change(block, &pieces, Role::EntryChange, after)?;
        self.note_departure(dir, from, old.at, id);
        if let Some(slot) = self.index(dir)?.names.get_mut(to) {
            (slot.ino, slot.kind, slot.added) = (old.ino, old.kind, ChangeId::COMMITTED);
        }
        self.leave(dir, unit, from)?;
        Ok(id)
    }

    /// Whether a name could be taken out as if it had never been.
    pub(super) fn is_name_pending(&mut self, dir: Ino, name: &[u8]) -> Result<bool, FsError> {
        let slot = self.find(dir, name)?;
        Ok(slot.is_some_and(|slot| self.cache.can_revert(slot.added)))
    }

    /// What must be on the disk for a name to be there as it is, its directory
    /// included.
    pub(super) fn changes_to_name(&mut self, dir: Ino, name: &[u8]) -> Result<Ids, FsError> {
        let Some(slot) = self.find(dir, name)? else { return Ok(Ids::new()) };
        let (block, skip) = self.dir_place(dir, slot.at)?;
        // An entry lies in one fragment.
        let within = skip.checked_div(index(self.sb.fsize)).unwrap_or(0);
        let fragment = Extent::new(block.saturating_add(wide(within)), 1);
        let waiting = self.cache.changes_in(fragment);
        let node = self.node(dir)?;
        Ok(waiting.into_iter().chain(node.fresh.clone()).chain(node.reached_by.clone()).collect())
    }

    /// Lets a name lead to another inode.
    pub(super) fn redirect(
        &mut self,
        dir: Ino,
        name: &[u8],
        to: (Ino, FileKind),
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let Some(slot) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let (block, skip) = self.dir_place(dir, slot.at)?;
        let mut ino = [0; entry::INO.1];
        self.sb.order.put_u32(&mut ino, 0, to.0.get());
        let kind = entry::code_of(to.1);
        let at = |within: usize| byte(skip.saturating_add(within));
        let pieces = [
            Piece { offset: at(entry::INO.0), bytes: &ino },
            Piece { offset: at(entry::KIND.0), bytes: &[kind] },
        ];
        let id = self.cache.change(block, &pieces, Role::EntryChange, after)?;
        if let Some(slot) = self.index(dir)?.names.get_mut(name) {
            (slot.ino, slot.kind, slot.added) = (to.0, kind, ChangeId::COMMITTED);
        }
        Ok(id)
    }

    /// What waits or may be written in a directory's blocks.
    pub(super) fn changes_in_dir(&mut self, dir: Ino) -> Result<Ids, FsError> {
        let size = self.dir_size(dir)?;
        let bsize = u64::from(self.sb.bsize);
        let mut found = Ids::new();
        for lbn in 0..size.div_ceil(bsize) {
            let Some(at) = self.lookup_block(dir, lbn)? else { continue };
            let left = size.saturating_sub(lbn.saturating_mul(bsize)).min(bsize);
            let run = seekless_units::Extent::new(at, u64::from(self.frags(left)));
            found.extend(self.cache.changes_in(run));
        }
        Ok(found)
    }

    /// Visits the entries behind a cookie: an entry's is the byte behind its
    /// first.
    pub(super) fn entries_after(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let size = self.dir_size(dir)?;
        let mut at = after.checked_div(UNIT).unwrap_or(0).saturating_mul(UNIT);
        while at < size {
            let bytes = self.dir_bytes(dir, at, size)?;
            for (base, unit) in (at..).step_by(DIRECTORY_UNIT).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let place = Location::of("directory").in_inode(dir);
                for entry in self.sb.entries(unit, place) {
                    let entry = entry?;
                    let cookie = base.saturating_add(wide(entry.at)).saturating_add(1);
                    if !entry.is_name() || cookie <= after {
                        continue;
                    }
                    let kind = entry::kind_of(entry.kind);
                    let shown = DirEntry { name: entry.name, ino: entry.ino, kind, cookie };
                    if visit(shown).is_break() {
                        return Ok(());
                    }
                }
            }
            at = at.saturating_add(wide(bytes.len()));
        }
        Ok(())
    }
}
