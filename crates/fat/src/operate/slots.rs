//! Entries added to directories and removed, in an order in which the disk never shows a name that
//! was not given: pieces of a long name before its short entry, earlier sectors before later ones;
//! in a removal the short entry is first.

use super::chain::Chain;
use super::clusters::Clusters;
use super::directory::{CachedEntry, Dir, trimmed};
use super::inodes::Inodes;
use super::layout::DirectoryLayout;
use super::map::Core;
use super::reach::Reach;
use crate::boot::Boot;
use crate::compose::shorts::{Short, basis};
use crate::compose::slots::{long, refusal};
use crate::name;
use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES, NAME_UNITS, first};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::FsError;
use seekless_fs::field::{byte, index};
use seekless_live::{Ids, gone};
use seekless_units::{BlockNo, Ino};
use std::sync::Arc;

/// The new names of a file.
pub(super) struct NewNames {
    /// The long name.
    name: Vec<u8>,
    short: Short,
    /// The slots in front of the short entry.
    pieces: Vec<u8>,
}

impl NewNames {
    /// Refuses names that are invalid on a FAT volume, and finds a short name for others. It is not
    /// taken yet.
    ///
    /// # Errors
    /// [`FsError::Invalid`], [`FsError::NameTooLong`], [`FsError::NoSpace`].
    pub(super) fn new(dir: &mut Dir, name: &[u8]) -> Result<Self, FsError> {
        let name = trimmed(name);
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
        let none = || FsError::NoSpace("no short name is left in the directory".into());
        let short = dir.propose_short(&basis).ok_or_else(none)?;
        let mut pieces = Vec::new();
        if name::short(&short, 0) != name {
            long(&units, name::checksum(&short), &mut pieces);
        }
        Ok(Self { name: name.to_vec(), short, pieces })
    }

    /// The short name.
    pub(super) fn short(&self) -> Short {
        self.short
    }

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
    pub(super) fn entry(&self, start: u32, is_dir: bool) -> CachedEntry {
        CachedEntry { start, name: self.name.clone(), short: self.short, is_dir }
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

impl RemovedEntry {
    /// The changes that mark its slots as deleted.
    pub(super) fn edits(self) -> impl Iterator<Item = Edit> {
        debug_assert!(self.start <= self.slot, "pieces stand in front of the short entry");
        (self.start..=self.slot).map(|slot| Edit { slot, within: 0, bytes: vec![first::DELETED] })
    }
}

/// Entries put into directories and taken out.
pub(super) struct SlotWriter<'a> {
    core: &'a mut Core,
    boot: Arc<Boot>,
    clusters: &'a mut Clusters,
    inodes: &'a mut Inodes,
    reach: &'a mut Reach,
}

impl<'a> SlotWriter<'a> {
    pub(super) fn new(
        core: &'a mut Core,
        boot: &Arc<Boot>,
        clusters: &'a mut Clusters,
        inodes: &'a mut Inodes,
        reach: &'a mut Reach,
    ) -> Self {
        Self { core, boot: Arc::clone(boot), clusters, inodes, reach }
    }

    fn dir(&mut self, dir: Ino) -> Result<&mut Dir, FsError> {
        self.inodes.dir(self.core, dir)
    }

    /// Whether a slot on the disk marks the end of its directory.
    fn is_end(&mut self, dir: Ino, slot: u32) -> Result<bool, FsError> {
        let (sector, skip) = self.inodes.slot_place(self.core, (dir, slot))?;
        Ok(self.core.cache.blocks_mut().read(sector, skip, 1)? == [first::END])
    }

    /// Free slots for a name: with the short entry in `near` if possible; a directory without room
    /// grows.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if the directory cannot grow.
    pub(super) fn find_slots(
        &mut self,
        dir: Ino,
        count: u32,
        near: Option<std::ops::Range<u32>>,
    ) -> Result<u32, FsError> {
        loop {
            let cached = self.dir(dir)?;
            let found = near.clone().and_then(|near| cached.find_free_at(count, near));
            if let Some(start) = found.or_else(|| cached.find_free(count)) {
                return Ok(start);
            }
            self.grow_dir(dir)?;
        }
    }

    /// Gives a directory one more cluster. Where it will be written in no order, its slots are
    /// deleted from the start: the directory has no end in it, and the link to it waits for that,
    /// so that no name in it need do so.
    fn grow_dir(&mut self, dir: Ino) -> Result<(), FsError> {
        let full = |what: &str| FsError::NoSpace(format!("{what} is full"));
        let Some(chain) = &self.core.node(dir)?.map.chain else {
            return Err(full("the root directory"));
        };
        let (slots, last) = (DirectoryLayout::new(&self.boot, Some(chain)).slots(), chain.last());
        if slots >= MOST_ENTRIES {
            return Err(full("a directory of 65,536 entries"));
        }
        let last = last.ok_or_else(|| gone(dir))?;
        let is_open = self.core.cache.blocks().config().discipline.keeps_graph();
        if is_open && slots > 0 {
            // A name may begin in the free slots of the last one.
            self.open_slots(dir, slots - 1)?;
        }
        let taken = self.clusters.take(Some(last), 1)?;
        debug_assert_eq!(taken.len(), 1, "a directory grows by one cluster");
        let unused = if is_open { first::DELETED } else { first::END };
        let mut after = self.fill_clusters(&taken, unused)?;
        after.extend(self.clusters.put_chain(self.core, &taken)?);
        let first = taken.first();
        let mut reached = self.clusters.put_link(self.core, last, first, &after)?;
        // Every name in it also waits for the links to all clusters before.
        reached.extend(self.reach.end(self.core, dir));
        let reached = self.core.cache.changes().join(&reached);
        if let Some(&id) = reached.last() {
            self.clusters.unnamed().note(self.core, id, &taken);
        }
        self.reach.set_end(dir, reached);
        let bytes = self.boot.cluster_bytes();
        let node = self.core.node(dir)?;
        let chain = node.map.chain.get_or_insert_with(Chain::default);
        if let Some(first) = first {
            chain.push(first, 1);
        }
        let capacity = DirectoryLayout::new(&self.boot, Some(chain)).slots();
        node.size += bytes;
        node.sectors = node.size >> 9;
        let cached = self.dir(dir)?;
        debug_assert!(capacity > cached.capacity(), "a longer directory has more slots");
        cached.grow(capacity);
        if is_open {
            cached.set_end(capacity);
        }
        Ok(())
    }

    /// Fills new clusters of a directory with slots that have a first byte, and are zeros
    /// otherwise.
    pub(super) fn fill_clusters(&mut self, taken: &Chain, unused: u8) -> Result<Ids, FsError> {
        let len = index(self.boot.sector);
        let mut ids = Ids::new();
        for run in taken.runs() {
            let run = self.boot.sectors_of(run);
            for nth in 0..run.len {
                let at = run.start + nth;
                let fill = |bytes: &mut [u8]| {
                    bytes.iter_mut().step_by(ENTRY_SIZE).for_each(|first| *first = unused);
                    Ok(())
                };
                ids.push(self.core.cache.changes().fill(at, len, Role::DirectoryInit, fill)?.1);
            }
        }
        Ok(ids)
    }

    /// Writes an entry with its name into free slots, after the changes that must be on the disk
    /// before; where `going` lies in the sector of the short entry it goes in the same change.
    /// Returns that change.
    pub(super) fn add_entry(
        &mut self,
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
        if self.core.cache.blocks().config().discipline.keeps_graph() {
            self.open_slots(dir, slot)?;
        }
        let mut before = self.reach.end(self.core, dir);
        // Slots behind the end of the directory were never in use.
        let next = slot + 1;
        let cached = self.dir(dir)?;
        debug_assert!(slot < cached.capacity(), "slot {slot} of {}", cached.capacity());
        debug_assert!(cached.entry(slot).is_none() || going.is_none(), "a free slot");
        let is_behind = next > cached.end() && next < cached.capacity();
        if is_behind && !self.is_end(dir, next)? {
            let end = Edit { slot: next, within: 0, bytes: vec![first::END] };
            if self.boot.slot_sector(next) == self.boot.slot_sector(slot) {
                edits.push(end);
            } else {
                let id = self.put_edits(dir, &[&end], Role::EntryChange, &before)?;
                before.push(id);
            }
        }
        if let Some(going) = going {
            edits.extend(going.edits().filter(|edit| {
                self.boot.slot_sector(edit.slot) == self.boot.slot_sector(slot)
                    && !(start..=slot).contains(&edit.slot)
            }));
        }
        let last = self.boot.slot_sector(slot);
        before.extend(self.reach.opened(self.core, dir, last));
        for nth in self.boot.slot_sector(start)..last {
            let these = self.edits_in(&edits, nth);
            let id = self.put_edits(dir, &these, role, &before)?;
            before.push(id);
        }
        before.extend_from_slice(after);
        let these = self.edits_in(&edits, last);
        self.put_edits(dir, &these, role, &before)
    }

    /// Marks the slots up to one, and the rest of its cluster, on the disk as deleted instead of
    /// never used: else an entry in a sector that is written earlier would lie behind the end of
    /// the directory.
    fn open_slots(&mut self, dir: Ino, slot: u32) -> Result<(), FsError> {
        let cached = self.dir(dir)?;
        let (end, capacity) = (cached.end(), cached.capacity());
        debug_assert!(end <= capacity && slot < capacity, "slot {slot} of {capacity}");
        if slot < end {
            return Ok(());
        }
        let open_to = match &self.core.node(dir)?.map.chain {
            None => capacity,
            Some(_) => {
                let cluster = self.boot.slots_per_sector() * self.boot.spc;
                (slot + 1).next_multiple_of(cluster).min(capacity)
            }
        };
        // Slots behind them were never in use; there is seldom anything in them.
        if open_to < capacity && !self.is_end(dir, open_to)? {
            let end = Edit { slot: open_to, within: 0, bytes: vec![first::END] };
            let id = self.put_edits(dir, &[&end], Role::EntryChange, &[])?;
            self.core.cache.settle(&[id])?;
        }
        for nth in self.boot.slot_sector(end)..=self.boot.slot_sector(open_to - 1) {
            let slots = self.boot.slots_beside(nth * self.boot.slots_per_sector());
            let slots = slots.start.max(end)..slots.end.min(open_to);
            let edits: Vec<Edit> =
                slots.map(|slot| Edit { slot, within: 0, bytes: vec![first::DELETED] }).collect();
            let edits: Vec<&Edit> = edits.iter().collect();
            let id = self.put_edits(dir, &edits, Role::EntryRemove, &[])?;
            self.reach.note_opened(self.core, dir, nth, id);
        }
        self.dir(dir)?.set_end(open_to);
        Ok(())
    }

    /// Removes an entry, after the changes that must be on the disk before: the short one first,
    /// then its pieces in other sectors. Returns the change of the short one.
    pub(super) fn erase_entry(
        &mut self,
        dir: Ino,
        removed: RemovedEntry,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let edits: Vec<Edit> = removed.edits().collect();
        let last = self.boot.slot_sector(removed.slot);
        let here = self.edits_in(&edits, last);
        let id = self.put_edits(dir, &here, Role::EntryRemove, after)?;
        self.erase_pieces(dir, removed, id)?;
        Ok(id)
    }

    /// Removes the pieces of an entry that are in other sectors than it was.
    pub(super) fn erase_pieces(
        &mut self,
        dir: Ino,
        removed: RemovedEntry,
        after: ChangeId,
    ) -> Result<(), FsError> {
        let edits: Vec<Edit> = removed.edits().collect();
        for nth in self.boot.slot_sector(removed.start)..self.boot.slot_sector(removed.slot) {
            let these = self.edits_in(&edits, nth);
            self.put_edits(dir, &these, Role::EntryRemove, &[after])?;
        }
        Ok(())
    }

    /// The edits in one of a directory's sectors.
    fn edits_in<'e>(&self, edits: &'e [Edit], sector: u32) -> Vec<&'e Edit> {
        edits.iter().filter(|edit| self.boot.slot_sector(edit.slot) == sector).collect()
    }

    /// Changes slots of one sector.
    pub(super) fn put_edits(
        &mut self,
        dir: Ino,
        edits: &[&Edit],
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        debug_assert!(!edits.is_empty(), "a change changes something");
        debug_assert!(
            edits.iter().zip(edits.iter().skip(1)).all(|(one, next)| {
                self.boot.slot_sector(one.slot) == self.boot.slot_sector(next.slot)
            }),
            "a change lies in one sector"
        );
        let mut sector = BlockNo::ZERO;
        let mut pieces = Vec::with_capacity(edits.len());
        for edit in edits {
            debug_assert!(edit.within + edit.bytes.len() <= ENTRY_SIZE, "bytes of one slot");
            let (at, skip) = self.inodes.slot_place(self.core, (dir, edit.slot))?;
            sector = at;
            pieces.push(Piece { offset: byte(skip + edit.within), bytes: &edit.bytes });
        }
        self.core.cache.changes().change(sector, &pieces, role, after)
    }
}
