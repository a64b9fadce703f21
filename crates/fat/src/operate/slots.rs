//! Entries added to directories and removed, in an order in which the disk never shows a name that
//! was not given: pieces of a long name before its short entry, earlier sectors before later ones;
//! in a removal the short entry is first.

use super::directory::{Known, keys};
use super::{Chain, Core, Fat};
use crate::compose::shorts::{Short, basis};
use crate::compose::slots::{long, refusal};
use crate::name;
use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES, NAME_UNITS, first};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::FsError;
use seekless_fs::field::{byte, index};
use seekless_live::{Ids, gone};
use seekless_units::{BlockNo, Ino};

/// Number of departed names at which those that left the disk too are forgotten.
pub(super) const MANY_DEPARTED: usize = 1024;

/// The new names of a file.
pub(super) struct NewNames {
    /// The long name.
    name: Vec<u8>,
    pub(super) short: Short,
    /// The slots in front of the short entry.
    pieces: Vec<u8>,
}

impl NewNames {
    /// Slots that it takes.
    pub(super) fn slots(&self) -> u32 {
        debug_assert!(self.pieces.len().is_multiple_of(ENTRY_SIZE), "whole slots");
        byte(self.pieces.len() / ENTRY_SIZE) + 1
    }

    /// The slot of the short entry, with its first slot at `start`.
    pub(super) fn last_slot(&self, start: u32) -> u32 {
        start + self.slots() - 1
    }

    /// The directory's record of it, with its first slot.
    pub(super) fn known(&self, start: u32, is_dir: bool) -> Known {
        Known { start, name: self.name.clone(), short: self.short, is_dir }
    }
}

/// Bytes of a slot that are changed.
pub(super) struct Edit {
    pub(super) slot: u32,
    /// The first of them.
    pub(super) within: usize,
    pub(super) bytes: Vec<u8>,
}

/// An entry that is removed by the change that adds another.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemovedEntry {
    pub(super) start: u32,
    pub(super) slot: u32,
}

impl Fat {
    /// Refuses names that are invalid on a FAT volume, and finds a short name for others. It is not
    /// taken yet.
    ///
    /// # Errors
    /// [`FsError::Invalid`], [`FsError::NameTooLong`], [`FsError::NoSpace`].
    pub(super) fn name_file(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<NewNames, FsError> {
        let name = super::directory::trimmed(name);
        let units = name::to_units(name).unwrap_or_default();
        if units.len() > NAME_UNITS {
            return Err(FsError::NameTooLong { len: units.len(), limit: NAME_UNITS });
        }
        if let Some(why) = refusal(name) {
            return Err(FsError::Invalid(why));
        }
        if units.is_empty() {
            return Err(FsError::Invalid("a name of dots and blanks alone".into()));
        }
        let basis = basis(&String::from_utf8_lossy(name));
        let shorts = &mut self.dir(core, dir)?.shorts;
        let short = match basis.fits && shorts.take(basis.name) {
            true => Some(basis.name),
            false => shorts.with_tail(&basis.name),
        };
        let none = || FsError::NoSpace("no short name is left in the directory".into());
        let short = short.ok_or_else(none)?;
        // It is taken again when the file is entered.
        shorts.give(&short);
        let mut pieces = Vec::new();
        if name::short(&short, 0) != name {
            long(&units, name::checksum(&short), &mut pieces);
        }
        Ok(NewNames { name: name.to_vec(), short, pieces })
    }

    /// Free slots for a name: with the short entry in `near` if possible; a directory without room
    /// grows.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if the directory cannot grow.
    pub(super) fn find_slots(
        &mut self,
        core: &mut Core,
        dir: Ino,
        count: u32,
        near: Option<std::ops::Range<u32>>,
    ) -> Result<u32, FsError> {
        loop {
            let known = self.dir(core, dir)?;
            let found = near.clone().and_then(|near| known.find_free_at(count, near));
            if let Some(start) = found.or_else(|| known.find_free(count)) {
                return Ok(start);
            }
            self.grow_dir(core, dir)?;
        }
    }

    /// Gives a directory one more cluster. Where it will be written in no order, its slots are
    /// deleted from the start: the directory has no end in it, and the link to it waits for that,
    /// so that no name in it need do so.
    fn grow_dir(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        let full = |what: &str| FsError::NoSpace(format!("{what} is full"));
        let Some(chain) = &core.node(dir)?.map.chain else {
            return Err(full("the root directory"));
        };
        let (slots, last) = (self.slots_of(Some(chain)), chain.last());
        if slots >= MOST_ENTRIES {
            return Err(full("a directory of 65,536 entries"));
        }
        let last = last.ok_or_else(|| gone(dir))?;
        let is_open = core.cache.blocks().config().discipline.keeps_graph();
        if is_open && slots > 0 {
            // A name may begin in the free slots of the last one.
            self.open_slots(core, dir, slots - 1)?;
        }
        let taken = self.take(Some(last), 1)?;
        debug_assert_eq!(taken.len, 1, "a directory grows by one cluster");
        let unused = if is_open { first::DELETED } else { first::END };
        let mut after = self.fill_clusters(core, &taken, unused)?;
        after.extend(self.put_chain(core, &taken)?);
        let first = taken.at(0).map(|(cluster, _)| cluster);
        let mut reached = self.put_link(core, last, first, &after)?;
        // Every name in it also waits for the links to all clusters before.
        reached.extend(self.reached(core, dir));
        let reached = core.cache.changes().join(&reached);
        if let Some(&id) = reached.last() {
            self.note_unnamed(core, id, &taken.runs);
        }
        self.reached.insert(dir, reached);
        let bytes = self.boot().cluster_bytes();
        let node = core.node(dir)?;
        let chain = node.map.chain.get_or_insert_with(Chain::default);
        if let Some(first) = first {
            chain.push(first, 1);
        }
        let capacity = self.slots_of(Some(chain));
        node.size += bytes;
        node.sectors = node.size >> 9;
        let known = self.dir(core, dir)?;
        debug_assert!(capacity > known.capacity, "a longer directory has more slots");
        if is_open {
            known.end = capacity;
        }
        known.grow(capacity);
        Ok(())
    }

    /// Fills new clusters of a directory with slots that have a first byte, and are zeros
    /// otherwise.
    pub(super) fn fill_clusters(
        &mut self,
        core: &mut Core,
        taken: &Chain,
        unused: u8,
    ) -> Result<Ids, FsError> {
        let len = index(self.boot().sector);
        let mut ids = Ids::new();
        for &(_, run) in &taken.runs {
            let run = self.sectors_of(run);
            for nth in 0..run.len {
                let at = run.start + nth;
                let fill = |bytes: &mut [u8]| {
                    bytes.iter_mut().step_by(ENTRY_SIZE).for_each(|first| *first = unused);
                    Ok(())
                };
                ids.push(core.cache.changes().fill(at, len, Role::DirectoryInit, fill)?.1);
            }
        }
        Ok(ids)
    }

    /// Writes an entry with its name into free slots, after the changes that must be on the disk
    /// before; where `going` lies in the sector of the short entry it goes in the same change.
    /// Returns that change.
    pub(super) fn add_entry(
        &mut self,
        core: &mut Core,
        (dir, start): (Ino, u32),
        (named, entry): (&NewNames, &[u8; ENTRY_SIZE]),
        role: Role,
        after: &[ChangeId],
        going: Option<RemovedEntry>,
    ) -> Result<ChangeId, FsError> {
        let slot = named.last_slot(start);
        let mut bytes = named.pieces.clone();
        bytes.extend_from_slice(entry);
        debug_assert_eq!(bytes.len(), index(named.slots()) * ENTRY_SIZE, "a slot for each piece");
        let slots = (start..).zip(bytes.chunks(ENTRY_SIZE));
        let mut edits: Vec<Edit> =
            slots.map(|(slot, bytes)| Edit { slot, within: 0, bytes: bytes.to_vec() }).collect();
        if core.cache.blocks().config().discipline.keeps_graph() {
            self.open_slots(core, dir, slot)?;
        }
        let mut before = self.reached(core, dir);
        // Slots behind the end of the directory were never in use.
        let next = slot + 1;
        let known = self.dir(core, dir)?;
        debug_assert!(slot < known.capacity, "slot {slot} of {}", known.capacity);
        debug_assert!(!known.entries.contains_key(&slot) || going.is_none(), "a free slot");
        if next > known.end && next < known.capacity {
            let (sector, skip) = self.slot_place(core, (dir, next))?;
            if core.cache.blocks_mut().read(sector, skip, 1)? != [first::END] {
                let end = Edit { slot: next, within: 0, bytes: vec![first::END] };
                if self.sector_number(next) == self.sector_number(slot) {
                    edits.push(end);
                } else {
                    let id = self.put_edits(core, dir, &[&end], Role::EntryChange, &before)?;
                    before.push(id);
                }
            }
        }
        if let Some(going) = going {
            edits.extend(self.erased(going.start, going.slot).into_iter().filter(|edit| {
                self.sector_number(edit.slot) == self.sector_number(slot)
                    && !(start..=slot).contains(&edit.slot)
            }));
        }
        let last = self.sector_number(slot);
        before.extend(self.opened(core, dir, last));
        for nth in self.sector_number(start)..last {
            let these: Vec<&Edit> =
                edits.iter().filter(|edit| self.sector_number(edit.slot) == nth).collect();
            let id = self.put_edits(core, dir, &these, role, &before)?;
            before.push(id);
        }
        before.extend_from_slice(after);
        let these: Vec<&Edit> =
            edits.iter().filter(|edit| self.sector_number(edit.slot) == last).collect();
        self.put_edits(core, dir, &these, role, &before)
    }

    /// Marks the slots up to one, and the rest of its cluster, on the disk as deleted instead of
    /// never used: else an entry in a sector that is written earlier would lie behind the end of
    /// the directory.
    fn open_slots(&mut self, core: &mut Core, dir: Ino, slot: u32) -> Result<(), FsError> {
        let known = self.dir(core, dir)?;
        let (end, capacity) = (known.end, known.capacity);
        debug_assert!(end <= capacity && slot < capacity, "slot {slot} of {capacity}");
        if slot < end {
            return Ok(());
        }
        let open_to = match &core.node(dir)?.map.chain {
            None => capacity,
            Some(_) => {
                let cluster = self.per_sector() * self.boot().spc;
                (slot + 1).next_multiple_of(cluster).min(capacity)
            }
        };
        if open_to < capacity {
            // Slots behind them were never in use; there is seldom anything in them.
            let (sector, skip) = self.slot_place(core, (dir, open_to))?;
            if core.cache.blocks_mut().read(sector, skip, 1)? != [first::END] {
                let end = Edit { slot: open_to, within: 0, bytes: vec![first::END] };
                let id = self.put_edits(core, dir, &[&end], Role::EntryChange, &[])?;
                core.cache.settle(&[id])?;
            }
        }
        for nth in self.sector_number(end)..=self.sector_number(open_to - 1) {
            let slots = self.beside(nth * self.per_sector());
            let slots = slots.start.max(end)..slots.end.min(open_to);
            let edits: Vec<Edit> =
                slots.map(|slot| Edit { slot, within: 0, bytes: vec![first::DELETED] }).collect();
            let edits: Vec<&Edit> = edits.iter().collect();
            let id = self.put_edits(core, dir, &edits, Role::EntryRemove, &[])?;
            let opened = self.opened.entry(dir).or_default();
            let mut all = opened.last().map(|(_, all)| all.clone()).unwrap_or_default();
            all.push(id);
            debug_assert!(opened.last().is_none_or(|(last, _)| *last <= nth), "in order");
            opened.push((nth, core.cache.changes().join(&all)));
        }
        self.dir(core, dir)?.end = open_to;
        Ok(())
    }

    /// Changes that must be on the disk for an entry in one of a directory's sectors not to lie
    /// behind its end.
    fn opened(&mut self, core: &Core, dir: Ino, sector: u32) -> Ids {
        let Some(opened) = self.opened.get_mut(&dir) else { return Ids::new() };
        let in_front = opened.partition_point(|(nth, _)| *nth < sector);
        let Some((_, ids)) = in_front.checked_sub(1).and_then(|at| opened.get(at)) else {
            return Ids::new();
        };
        let ids: Ids = ids.iter().copied().filter(|&id| !core.cache.is_committed(id)).collect();
        if ids.is_empty() {
            // Earlier ones are committed too.
            opened.drain(..in_front);
            if opened.is_empty() {
                self.opened.remove(&dir);
            }
        }
        ids
    }

    /// Removes an entry, after the changes that must be on the disk before: the short one first,
    /// then its pieces in other sectors. Returns the change of the short one.
    pub(super) fn erase_entry(
        &mut self,
        core: &mut Core,
        dir: Ino,
        RemovedEntry { start, slot }: RemovedEntry,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let edits = self.erased(start, slot);
        let last = self.sector_number(slot);
        let here: Vec<&Edit> =
            edits.iter().filter(|edit| self.sector_number(edit.slot) == last).collect();
        let id = self.put_edits(core, dir, &here, Role::EntryRemove, after)?;
        self.erase_pieces(core, dir, RemovedEntry { start, slot }, id)?;
        Ok(id)
    }

    /// Removes the pieces of an entry that are in other sectors than it was.
    pub(super) fn erase_pieces(
        &mut self,
        core: &mut Core,
        dir: Ino,
        RemovedEntry { start, slot }: RemovedEntry,
        after: ChangeId,
    ) -> Result<(), FsError> {
        let edits = self.erased(start, slot);
        for nth in self.sector_number(start)..self.sector_number(slot) {
            let these: Vec<&Edit> =
                edits.iter().filter(|edit| self.sector_number(edit.slot) == nth).collect();
            self.put_edits(core, dir, &these, Role::EntryRemove, &[after])?;
        }
        Ok(())
    }

    pub(super) fn erased(&self, start: u32, slot: u32) -> Vec<Edit> {
        debug_assert!(start <= slot, "pieces stand in front of the short entry");
        (start..=slot).map(|slot| Edit { slot, within: 0, bytes: vec![first::DELETED] }).collect()
    }

    /// The number of a slot's sector in a directory.
    pub(super) fn sector_number(&self, slot: u32) -> u32 {
        slot / self.per_sector()
    }

    /// The slots in the sector of a slot.
    pub(super) fn beside(&self, slot: u32) -> std::ops::Range<u32> {
        let start = self.sector_number(slot) * self.per_sector();
        start..start + self.per_sector()
    }

    /// Changes slots of one sector.
    pub(super) fn put_edits(
        &self,
        core: &mut Core,
        dir: Ino,
        edits: &[&Edit],
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        debug_assert!(!edits.is_empty(), "a change changes something");
        debug_assert!(
            edits.iter().zip(edits.iter().skip(1)).all(|(one, next)| {
                self.sector_number(one.slot) == self.sector_number(next.slot)
            }),
            "a change lies in one sector"
        );
        let mut sector = BlockNo::ZERO;
        let mut pieces = Vec::with_capacity(edits.len());
        for edit in edits {
            debug_assert!(edit.within + edit.bytes.len() <= ENTRY_SIZE, "bytes of one slot");
            let (at, skip) = self.slot_place(core, (dir, edit.slot))?;
            sector = at;
            pieces.push(Piece { offset: byte(skip + edit.within), bytes: &edit.bytes });
        }
        core.cache.changes().change(sector, &pieces, role, after)
    }

    /// Pending changes that remove older entries of the names of a file.
    pub(super) fn departures(&self, core: &Core, dir: Ino, known: &Known) -> Ids {
        let found = keys(known).into_iter().filter_map(|key| self.departed.get(&(dir, key)));
        found.copied().filter(|&id| !core.cache.is_committed(id)).collect()
    }

    /// Records the change that removes the names of a file.
    pub(super) fn note_departure(&mut self, core: &Core, dir: Ino, known: &Known, by: ChangeId) {
        if core.cache.is_committed(by) {
            return;
        }
        if self.departed.len() >= self.many_departed {
            self.departed.retain(|_, id| !core.cache.is_committed(*id));
            self.many_departed = (self.departed.len() * 2).max(MANY_DEPARTED);
        }
        for key in keys(known) {
            self.departed.insert((dir, key), by);
        }
    }
}
