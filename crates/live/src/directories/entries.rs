//! Linear directories: entries in units that none of them crosses, changed in place.
//!
//! A name that goes leaves an unused entry; nothing else moves, so that waiting changes in the same
//! unit can be rolled back on their own. Where an unused entry or the slack behind a used one is
//! large enough a new name goes there; else a unit is compacted.

use crate::directories::Directories;
use crate::directories::index::Slot;
use crate::directories::inside::{EntryPlace, put};
use crate::fault::Fault;
use crate::{Codec, Compacted, Entry, Ids, Linked, Room};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, invalid, range, slice, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

/// Room for a name: the unit, and the changes that must be on the disk for it to be reached.
#[derive(Clone, Debug)]
pub(crate) struct EntryUnit {
    unit: u64,
    reached_by: Ids,
}

/// Bytes of the number of an inode in an entry, and of the bytes up to the next.
const INO_LEN: usize = 4;
const LEN_LEN: usize = 2;

impl<F: Linked> Directories<'_, F> {
    /// Bytes of a unit of a directory.
    pub(crate) fn unit(&self) -> u64 {
        wide(self.volume.format.limits().dir_unit)
    }

    /// A directory's size, checked.
    pub(crate) fn dir_size(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.volume.dir_node(dir)?.size;
        if self.has_names_inside(dir)? {
            return Ok(wide(self.names_inside(dir)?.len()));
        }
        let limit = self.volume.format.limits().dir_max;
        if size > limit || size % self.unit() != 0 {
            return Err(range("di_size", size, limit, Location::of("directory").in_inode(dir)));
        }
        Ok(size)
    }

    /// The bytes of a directory from byte `at` to the end of that block.
    pub(crate) fn dir_bytes(&mut self, dir: Ino, at: u64, size: u64) -> Result<Vec<u8>, FsError> {
        let bsize = u64::from(self.volume.format.limits().block);
        let end = (at + 1).next_multiple_of(bsize).min(size);
        let len = index(end.saturating_sub(at));
        match self.entry_place(dir, at)? {
            EntryPlace::At(block, skip) => {
                Ok(self.volume.core.cache.blocks_mut().read(block, skip, len)?.to_vec())
            }
            EntryPlace::Inside(from) => Ok(self.names_inside(dir)?.split_off(from)),
        }
    }

    /// Where a byte of a directory lies.
    pub(crate) fn dir_place(&mut self, dir: Ino, at: u64) -> Result<(BlockNo, usize), FsError> {
        let bsize = u64::from(self.volume.format.limits().block);
        let lbn = at / bsize;
        let block = self.volume.format.lookup_block(&mut self.volume.core, dir, lbn)?;
        // Directories have no holes.
        let hole = || invalid("di_db", lbn, Location::of("directory").in_inode(dir));
        Ok((block.ok_or_else(hole)?, index(at % bsize)))
    }

    /// The entry of a name.
    pub(crate) fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Slot>, FsError> {
        self.volume.dir_node(dir)?;
        Ok(self.index(dir)?.names.get(name).copied())
    }

    /// Whether a directory holds nothing.
    pub(crate) fn is_empty_dir(&mut self, dir: Ino) -> Result<bool, FsError> {
        Ok(self.index(dir)?.is_empty())
    }

    /// Finds or makes room for a name. Nothing is seen of that but the
    /// directory's size.
    pub(crate) fn reserve(&mut self, dir: Ino, name: &[u8]) -> Result<EntryUnit, FsError> {
        self.volume.dir_node(dir)?;
        let placed = self.place_name(dir, name)?;
        let found = match placed {
            Some(unit) => Some(unit),
            None => self.index(dir)?.unit_with(F::Codec::needed(name.len())),
        };
        let unit = match found {
            Some(unit) => unit,
            None => self.grow_dir(dir)?,
        };
        self.spot(dir, unit)
    }

    /// The unit that a name is to lie in, if the format asks for one.
    pub(crate) fn place_name(&mut self, dir: Ino, name: &[u8]) -> Result<Option<u64>, FsError> {
        let placed = match self.volume.format.place_name(&mut self.volume.core, dir, name) {
            Ok(placed) => placed,
            Err(error) => {
                // Some of it may have been done.
                self.drop_index(dir);
                return Err(error);
            }
        };
        self.note_reached(dir, &placed.reached)?;
        for unit in placed.rewritten {
            self.reread_unit(dir, unit)?;
        }
        Ok(placed.unit)
    }

    /// Notes changes that must be on the disk for the end of a directory to be reached, besides
    /// those noted already. Each name waits for all of them: for a join, or each would wait for as
    /// many changes as the directory has grown by.
    fn note_reached(&mut self, dir: Ino, more: &[ChangeId]) -> Result<(), FsError> {
        if more.is_empty() {
            return Ok(());
        }
        let reached = &self.volume.dir_node(dir)?.pending.reached_by;
        let reached: Ids = reached.iter().chain(more).copied().collect();
        self.volume.dir_node(dir)?.pending.reached_by =
            self.volume.core.cache.changes().join(&reached);
        Ok(())
    }

    /// Room in a unit, and the changes that must be on the disk for it to be reached.
    fn spot(&mut self, dir: Ino, unit: u64) -> Result<EntryUnit, FsError> {
        let cache = &self.volume.core.cache;
        let node = self.volume.core.nodes.get_mut(&dir).ok_or_else(|| crate::gone(dir))?;
        node.pending.reached_by.retain(|id| !cache.is_committed(*id));
        Ok(EntryUnit { unit, reached_by: node.pending.reached_by.clone() })
    }

    /// Gives a directory one more unit, unused.
    fn grow_dir(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.dir_size(dir)?;
        let len = self.volume.format.limits().dir_unit;
        let mut unit = vec![0; len];
        self.volume.format.codec().blank(&mut unit);
        let reached = self.volume.format.append(&mut self.volume.core, dir, &unit)?;
        self.note_reached(dir, &[reached])?;
        let number = size / self.unit();
        let room =
            self.volume.format.codec().room(&unit, Location::of("directory").in_inode(dir))?;
        self.index(dir)?.set_room(number, room);
        Ok(number)
    }

    /// Writes a name into the room that was reserved for it. The returned changes must be on the
    /// disk for the name to be.
    pub(crate) fn insert(
        &mut self,
        dir: Ino,
        spot: &EntryUnit,
        name: &[u8],
        to: (Ino, FileKind),
        role: Role,
        after: &[ChangeId],
    ) -> Result<Ids, FsError> {
        if self.has_dead_names() {
            self.erase_dead(dir, name)?;
        }
        self.settle_return(dir, name)?;
        let base = spot.unit * self.unit();
        let (stored, mut unit) = self.unit_bytes(dir, spot.unit)?;
        let codec = self.volume.format.codec();
        let kind = codec.code_of(to.1);
        let needed = F::Codec::needed(name.len());
        let mut pieces: SmallVec<[(usize, usize); 2]> = SmallVec::new();
        let place = Location::of("directory").in_inode(dir);
        let room = codec.fit(&unit, place, needed)?;
        let (at, len) = match room {
            Some(Room { at, len, behind }) => {
                if let Some(before) = behind {
                    codec.put_len(&mut unit, before, at - before);
                    pieces.push((before + F::Codec::LEN, LEN_LEN));
                }
                pieces.push((at, needed));
                (at, len)
            }
            None => {
                debug_assert!(matches!(stored, EntryPlace::At(..)), "a place was found in it");
                let old = unit.to_vec();
                let Compacted { at, len, changed, moved } =
                    codec.compact(&old, &mut unit, place, needed)?;
                pieces.push((changed.start, changed.len()));
                self.note_moved(dir, base, &moved)?;
                (at, len)
            }
        };
        let entry = Entry { at, len, needed, ino: to.0, kind, is_name: true, name };
        self.volume.format.codec().put(&mut unit, &entry);
        // Never the same name twice: an older one of a file is gone before.
        let written = |&(at, len): &(usize, usize)| {
            let start = base + wide(at);
            start..start + wide(len)
        };
        let over: SmallVec<[_; 2]> = pieces.iter().map(written).collect();
        let older = self.volume.core.unless(Fault::NameTwice, self.departure(dir, name, &over));
        let after: Ids = after.iter().copied().chain(older).collect();
        let id = match stored {
            EntryPlace::At(block, skip) => {
                self.put_pieces(block, skip, &unit, &pieces, role, &after)?
            }
            EntryPlace::Inside(_) => self.edit_inside(dir, |names| names.copy_from_slice(&unit))?,
        };
        // Undoing a compaction would move the other names back.
        let added = if room.is_some() { id } else { ChangeId::COMMITTED };
        let slot = Slot { ino: to.0, at: base + wide(at), kind, added };
        self.enter(dir, spot.unit, name, slot)?;
        Ok(spot.reached_by.iter().copied().chain([id]).collect())
    }

    /// Notes where names lie since their unit was compacted.
    pub(crate) fn note_moved(
        &mut self,
        dir: Ino,
        base: u64,
        moved: &[(&[u8], usize)],
    ) -> Result<(), FsError> {
        for &(name, at) in moved {
            if let Some(slot) = self.index(dir)?.names.get_mut(name) {
                (slot.at, slot.added) = (base + wide(at), ChangeId::COMMITTED);
            }
        }
        Ok(())
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
                Some(Piece { offset: byte(skip + at), bytes })
            })
            .collect();
        self.volume.core.cache.changes().change(block, &pieces, role, after)
    }

    /// Takes a name out. Where it has never been on the disk, and need not be, there is nothing to
    /// wait for; else the returned change must be on the disk for it to be gone.
    pub(crate) fn remove(
        &mut self,
        dir: Ino,
        name: &[u8],
        after: &[ChangeId],
    ) -> Result<Option<ChangeId>, FsError> {
        let Some(slot) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let removed = if self.volume.core.cache.changes().revert(slot.added) {
            None
        } else {
            let removed = self.erase(dir, slot.at, after)?;
            self.note_departure(dir, name, slot.at, removed);
            Some(removed)
        };
        self.leave(dir, slot.at / self.unit(), name)?;
        Ok(removed)
    }

    /// Forgets a name whose entry was taken back.
    pub(crate) fn leave_at(&mut self, dir: Ino, slot: Slot, name: &[u8]) -> Result<(), FsError> {
        self.leave(dir, slot.at / self.unit(), name)
    }

    /// The change that must be on the disk for a change to an older name to be seen: where the
    /// directory has moved since, its inode must lead to the new place, or the disk shows the old
    /// name. (New names are reached by that in any case.)
    pub(crate) fn seen_by(&mut self, dir: Ino, change: ChangeId) -> Result<ChangeId, FsError> {
        let moved = self.volume.core.node(dir)?.pending.moved_by;
        if self.volume.core.cache.is_committed(moved) || self.volume.core.has(Fault::GoneBeforeMove)
        {
            return Ok(change);
        }
        let both = self.volume.core.cache.changes().join(&[change, moved]);
        // Directories of formats with a journal do not move, and soft updates join.
        debug_assert_eq!(both.len(), 1, "one of them waits");
        Ok(both.first().copied().unwrap_or(ChangeId::COMMITTED))
    }

    /// Makes the entry that begins at a byte of a directory unused.
    pub(crate) fn erase(
        &mut self,
        dir: Ino,
        at: u64,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let (block, skip) = match self.entry_place(dir, at)? {
            EntryPlace::At(block, skip) => (block, skip),
            EntryPlace::Inside(at) => {
                let at = at + F::Codec::INO;
                return self.edit_inside(dir, |names| put(names, at, &[0; INO_LEN]));
            }
        };
        if !after.is_empty() {
            let offset = byte(skip + F::Codec::INO);
            let piece = Piece { offset, bytes: &[0; INO_LEN] };
            let id = self.volume.core.cache.changes().change(
                block,
                &[piece],
                Role::EntryRemove,
                after,
            )?;
            return self.seen_by(dir, id);
        }
        let blank = |to: &mut [u8]| {
            to.fill(0);
            Ok(())
        };
        let at = skip + F::Codec::INO;
        let ((), id) =
            self.volume.core.cache.changes().edit(block, at, INO_LEN, Role::EntryRemove, blank)?;
        self.seen_by(dir, id)
    }

    /// Moves an entry of a directory's to a unit that is not in front of another, under the same
    /// name: for a while there are two of them, which lead to the same inode. Returns the changes
    /// that must be on the disk for the new one to be, and the change that takes the old one away.
    pub(crate) fn move_behind(
        &mut self,
        dir: Ino,
        name: &[u8],
        unit: u64,
        counted: ChangeId,
    ) -> Result<(Ids, ChangeId), FsError> {
        let Some(old) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let found = self.index(dir)?.unit_from(F::Codec::needed(name.len()), unit);
        let unit = match found {
            Some(unit) => unit,
            None => self.grow_dir(dir)?,
        };
        let spot = self.spot(dir, unit)?;
        let kind = F::Codec::kind_of(old.kind).unwrap_or(FileKind::Directory);
        let to = (old.ino, kind);
        let named = self.insert(dir, &spot, name, to, Role::EntryAddDirectory, &[counted])?;
        let gone = self.erase(dir, old.at, &named)?;
        self.refresh_room(dir, old.at / self.unit())?;
        Ok((named, gone))
    }

    /// Lets the name `to` lead to the inode of `from`, which goes: with one write, for both lie in
    /// one unit.
    pub(crate) fn replace_within_unit(
        &mut self,
        dir: Ino,
        from: &[u8],
        to: &[u8],
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let (Some(old), Some(new)) = (self.find(dir, from)?, self.find(dir, to)?) else {
            return Err(FsError::NotFound(String::from_utf8_lossy(from).into_owned()));
        };
        let unit = old.at / self.unit();
        debug_assert_eq!(new.at.checked_div(self.unit()), Some(unit));
        let (block, skip) = self.dir_place(dir, unit * self.unit())?;
        let unit_len = self.unit();
        let at = |slot: Slot, within: usize| {
            let into = slot.at % unit_len;
            byte(skip + index(into) + within)
        };
        let ino = self.volume.format.codec().ino_bytes(old.ino);
        let pieces = [
            Piece { offset: at(new, F::Codec::INO), bytes: &ino },
            Piece { offset: at(new, F::Codec::KIND), bytes: &[old.kind] },
            Piece { offset: at(old, F::Codec::INO), bytes: &[0; INO_LEN] },
        ];
        let id =
            self.volume.core.cache.changes().change(block, &pieces, Role::EntryChange, after)?;
        let id = self.seen_by(dir, id)?;
        self.note_departure(dir, from, old.at, id);
        if let Some(slot) = self.index(dir)?.names.get_mut(to) {
            (slot.ino, slot.kind, slot.added) = (old.ino, old.kind, ChangeId::COMMITTED);
        }
        self.leave(dir, unit, from)?;
        Ok(id)
    }

    /// Whether a name could be taken out as if it had never been.
    pub(crate) fn is_name_pending(&mut self, dir: Ino, name: &[u8]) -> Result<bool, FsError> {
        let slot = self.find(dir, name)?;
        Ok(slot.is_some_and(|slot| self.volume.core.cache.can_revert(slot.added)))
    }

    /// The changes that must be on the disk for a name to be there as it is, its directory
    /// included.
    pub(crate) fn changes_to_name(&mut self, dir: Ino, name: &[u8]) -> Result<Ids, FsError> {
        let Some(slot) = self.find(dir, name)? else { return Ok(Ids::new()) };
        let fragment = match self.entry_place(dir, slot.at)? {
            EntryPlace::At(block, skip) => {
                // An entry lies in one fragment.
                let within = skip / index(self.volume.format.limits().unit);
                Extent::new(block + wide(within), 1)
            }
            EntryPlace::Inside(_) => self.volume.format.inode_run(dir)?,
        };
        let waiting = self.volume.core.cache.changes_in(fragment);
        let node = self.volume.node(dir)?;
        Ok(waiting
            .into_iter()
            .chain(node.pending.fresh.clone())
            .chain(node.pending.reached_by.clone())
            .collect())
    }

    /// Lets a name lead to another inode.
    pub(crate) fn redirect(
        &mut self,
        dir: Ino,
        name: &[u8],
        to: (Ino, FileKind),
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let Some(slot) = self.find(dir, name)? else {
            return Err(FsError::NotFound(String::from_utf8_lossy(name).into_owned()));
        };
        let ino = self.volume.format.codec().ino_bytes(to.0);
        let kind = self.volume.format.codec().code_of(to.1);
        let id = match self.entry_place(dir, slot.at)? {
            EntryPlace::At(block, skip) => {
                let at = |within: usize| byte(skip + within);
                let pieces = [
                    Piece { offset: at(F::Codec::INO), bytes: &ino },
                    Piece { offset: at(F::Codec::KIND), bytes: &[kind] },
                ];
                self.volume.core.cache.changes().change(block, &pieces, Role::EntryChange, after)?
            }
            EntryPlace::Inside(at) => self.edit_inside(dir, |names| {
                put(names, at + F::Codec::INO, &ino);
                put(names, at + F::Codec::KIND, &[kind]);
            })?,
        };
        if let Some(slot) = self.index(dir)?.names.get_mut(name) {
            (slot.ino, slot.kind, slot.added) = (to.0, kind, ChangeId::COMMITTED);
        }
        self.seen_by(dir, id)
    }

    /// Unwritten changes in a directory's blocks, or in those that it has moved from.
    pub(crate) fn changes_in_dir(&mut self, dir: Ino) -> Result<Ids, FsError> {
        let size = self.dir_size(dir)?;
        let bsize = u64::from(self.volume.format.limits().block);
        let mut found = Ids::from_slice(&[self.volume.core.node(dir)?.pending.moved_by]);
        let cache = &self.volume.core.cache;
        found.retain(|id| !cache.is_committed(*id));
        for lbn in 0..size.div_ceil(bsize) {
            let Some(at) = self.volume.format.lookup_block(&mut self.volume.core, dir, lbn)? else {
                continue;
            };
            let left = size.saturating_sub(lbn * bsize).min(bsize);
            let run =
                seekless_units::Extent::new(at, u64::from(self.volume.format.limits().units(left)));
            found.extend(self.volume.core.cache.changes_in(run));
        }
        Ok(found)
    }
}
