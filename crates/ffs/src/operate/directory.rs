//! Directories: entries in units of 512 bytes, changed in place, and an index
//! of their names in memory (as UFS `dirhash` has one).
//!
//! A name that goes leaves an unused entry; nothing else moves, so that what
//! waits to be written in the same unit can be undone on its own. Where an
//! unused entry or the slack behind a used one is large enough a new name goes
//! there; else a unit is compacted.

use super::FfsLive;
use crate::ondisk::{DIRECTORY_UNIT, WHITEOUT};
use crate::superblock::{Order, Super};
use hashbrown::HashMap;
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, invalid, range, slice, truncated, wide};
use seekless_fs::{DirEntry, FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Bytes of the fixed part of an entry.
const HEAD: usize = 8;
/// Longest name.
pub(super) const NAME_MAX: usize = 255;
/// Names that are indexed at most, over all directories but the one at hand.
const MOST_NAMES: usize = 1 << 20;
const UNIT: u64 = 512;
const _: () = assert!(DIRECTORY_UNIT == 512);

/// Changes that must all be on the disk for something to be.
pub(super) type Ids = SmallVec<[ChangeId; 3]>;

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) ino: Ino,
    /// Where it begins, in bytes from the directory's start.
    at: u64,
    kind: u8,
    /// The change that made it, if nothing but it was changed with that.
    added: ChangeId,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub(super) struct Index {
    names: HashMap<Box<[u8]>, Slot>,
    /// Bytes free in each unit, once it is compacted.
    room: Vec<u16>,
    /// The first unit that may have so many quarters of words free.
    first: Vec<u32>,
    used: u64,
}

/// The indexes of the directories that were looked into.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    of: HashMap<Ino, Index>,
    names: usize,
    turn: u64,
}

/// Room for a name: the unit, and what must be on the disk for it to be
/// reached.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    unit: u64,
    reached_by: Ids,
}

/// An entry in a unit.
struct Entry<'a> {
    at: usize,
    len: usize,
    ino: u32,
    kind: u8,
    name: &'a [u8],
}

/// Bytes an entry takes, its name ended by a zero (`DIRECTSIZ`).
fn needed(name_len: usize) -> usize {
    HEAD.saturating_add(name_len).saturating_add(1).next_multiple_of(4)
}

/// The code of a kind (`DT_*`).
fn code_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

/// The entries of a unit, checked.
fn entries<'a>(
    sb: &Super,
    unit: &'a [u8],
    place: Location,
) -> Result<SmallVec<[Entry<'a>; 16]>, FsError> {
    let mut found = SmallVec::new();
    let mut at = 0usize;
    while at < unit.len() {
        let place = place.at_offset(byte(at));
        let lost = || truncated(place);
        let ino = sb.order.get_u32(unit, at).ok_or_else(lost)?;
        let len = usize::from(sb.order.get_u16(unit, at.saturating_add(4)).ok_or_else(lost)?);
        let kind = unit.get(at.saturating_add(6)).copied().ok_or_else(lost)?;
        let name_len = usize::from(unit.get(at.saturating_add(7)).copied().ok_or_else(lost)?);
        let left = unit.len().saturating_sub(at);
        let least = HEAD.saturating_add(name_len).next_multiple_of(4);
        if len < HEAD || len & 3 != 0 || len > left || (ino != 0 && len < least) {
            return Err(invalid("d_reclen", wide(len), place));
        }
        if ino >= sb.inodes() {
            return Err(range("d_ino", u64::from(ino), u64::from(sb.inodes()), place));
        }
        let used = ino != 0;
        let name = slice(unit, at.saturating_add(HEAD), name_len).filter(|_| used);
        let name = name.unwrap_or_default();
        if used && name.is_empty() {
            return Err(invalid("d_namlen", 0, place));
        }
        found.push(Entry { at, len, ino, kind, name });
        at = at.saturating_add(len);
    }
    Ok(found)
}

impl Entry<'_> {
    fn is_used(&self) -> bool {
        self.ino != 0
    }

    /// Bytes it needs.
    fn needed(&self) -> usize {
        if self.is_used() { needed(self.name.len()).min(self.len) } else { 0 }
    }

    /// Bytes behind what it needs.
    fn slack(&self) -> usize {
        self.len.saturating_sub(self.needed())
    }
}

/// Writes an entry at a byte of a unit.
fn put_entry(order: Order, unit: &mut [u8], at: usize, len: usize, entry: (u32, u8, &[u8])) {
    let (ino, kind, name) = entry;
    order.put_u32(unit, at, ino);
    order.put_u16(unit, at.saturating_add(4), u16::try_from(len).unwrap_or(0));
    let Some(rest) = unit.get_mut(at.saturating_add(6)..) else { return };
    let head = [kind, u8::try_from(name.len()).unwrap_or(0)];
    let padded = needed(name.len()).saturating_sub(6);
    let bytes = head.iter().chain(name).copied().chain(std::iter::repeat(0)).take(padded);
    rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
}

/// The first unit of a new directory: `.` and `..`.
pub(super) fn first_unit(order: Order, ino: Ino, parent: Ino, to: &mut [u8]) {
    let own = needed(1);
    put_entry(order, to, 0, own, (ino.get(), 4, b"."));
    let rest = DIRECTORY_UNIT.saturating_sub(own);
    put_entry(order, to, own, rest, (parent.get(), 4, b".."));
}

impl Index {
    /// Notes how much room a unit has.
    fn set_room(&mut self, unit: u64, room: usize) {
        let at = index(unit);
        if self.room.len() <= at {
            self.room.resize(at.saturating_add(1), 0);
        }
        if let Some(held) = self.room.get_mut(at) {
            *held = u16::try_from(room).unwrap_or(0);
        }
        let unit = u32::try_from(unit).unwrap_or(u32::MAX);
        for first in self.first.iter_mut().take((room / 4).saturating_add(1)) {
            *first = unit.min(*first);
        }
    }

    /// The first unit with room for an entry of so many bytes.
    fn unit_with(&mut self, needed: usize) -> Option<u64> {
        let first = self.first.get_mut(needed / 4)?;
        let behind = self.room.iter().skip(index(*first));
        let skip = behind.take_while(|&&room| usize::from(room) < needed).count();
        let unit = index(*first).saturating_add(skip);
        *first = u32::try_from(unit).unwrap_or(u32::MAX);
        (unit < self.room.len()).then_some(wide(unit))
    }

    /// Whether it holds nothing but itself.
    fn is_empty(&self) -> bool {
        self.names.keys().all(|name| matches!(&name[..], b"." | b".."))
    }
}

impl FfsLive {
    /// The index of a directory's names, made if there is none.
    fn index(&mut self, dir: Ino) -> Result<&mut Index, FsError> {
        if !self.indexes.of.contains_key(&dir) {
            let made = self.read_index(dir)?;
            self.indexes.make_room();
            self.indexes.names = self.indexes.names.saturating_add(made.names.len());
            self.indexes.of.insert(dir, made);
        }
        self.indexes.turn = self.indexes.turn.saturating_add(1);
        let turn = self.indexes.turn;
        let index = self.indexes.of.get_mut(&dir).ok_or_else(|| super::node::gone(dir))?;
        index.used = turn;
        Ok(index)
    }

    fn read_index(&mut self, dir: Ino) -> Result<Index, FsError> {
        let size = self.dir_size(dir)?;
        let mut made =
            Index { first: vec![0; (DIRECTORY_UNIT / 4).saturating_add(1)], ..Index::default() };
        let mut at = 0;
        while at < size {
            let bytes = self.dir_bytes(dir, at, size)?;
            for (base, unit) in (at..).step_by(DIRECTORY_UNIT).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let place = Location::of("directory").in_inode(dir);
                let mut room = DIRECTORY_UNIT;
                for entry in entries(&self.sb, unit, place)? {
                    room = room.saturating_sub(entry.needed());
                    if entry.is_used() && entry.kind != WHITEOUT {
                        let slot = Slot {
                            ino: Ino::new(entry.ino),
                            at: base.saturating_add(wide(entry.at)),
                            kind: entry.kind,
                            added: ChangeId::COMMITTED,
                        };
                        made.names.insert(entry.name.into(), slot);
                    }
                }
                made.set_room(base.checked_div(UNIT).unwrap_or(0), room);
            }
            at = at.saturating_add(wide(bytes.len()));
        }
        // Found by walking from the start.
        made.first.fill(0);
        Ok(made)
    }

    /// A directory's size, checked.
    fn dir_size(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.dir_node(dir)?.size;
        let limit = self.sb.size.saturating_mul(u64::from(self.sb.fsize)).min(u64::from(u32::MAX));
        if size > limit || size.checked_rem(UNIT) != Some(0) {
            return Err(range("di_size", size, limit, Location::of("directory").in_inode(dir)));
        }
        Ok(size)
    }

    /// What a directory holds from byte `at` to the end of that block.
    fn dir_bytes(&mut self, dir: Ino, at: u64, size: u64) -> Result<Vec<u8>, FsError> {
        let bsize = u64::from(self.sb.bsize);
        let end = at.saturating_add(1).next_multiple_of(bsize).min(size);
        let len = index(end.saturating_sub(at));
        let (block, skip) = self.dir_place(dir, at)?;
        Ok(self.cache.read(block, skip, len)?.to_vec())
    }

    /// Where a byte of a directory lies.
    fn dir_place(&mut self, dir: Ino, at: u64) -> Result<(BlockNo, usize), FsError> {
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
        let cache = &self.cache;
        let node = self.nodes.get_mut(&dir).ok_or_else(|| super::node::gone(dir))?;
        node.reached_by.retain(|id| !cache.is_committed(*id));
        Ok(Spot { unit, reached_by: node.reached_by.iter().copied().collect() })
    }

    /// Gives a directory one more unit, unused.
    fn grow_dir(&mut self, dir: Ino) -> Result<u64, FsError> {
        let size = self.dir_size(dir)?;
        let mut unit = [0; DIRECTORY_UNIT];
        put_entry(self.sb.order, &mut unit, 0, DIRECTORY_UNIT, (0, 0, b""));
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
        let base = spot.unit.saturating_mul(UNIT);
        let (block, skip) = self.dir_place(dir, base)?;
        let bytes = self.cache.read(block, skip, DIRECTORY_UNIT)?;
        let mut unit = [0; DIRECTORY_UNIT];
        unit.copy_from_slice(bytes);
        let place = Location::of("directory").in_inode(dir);
        let kind = code_of(to.1);
        let entry = (to.0.get(), kind, name);
        let found = spot_in(&self.sb, &unit, needed(name.len()), place)?;
        let (at, added) = match found {
            Some((at, None)) => {
                let len = self.sb.order.get_u16(&unit, at.saturating_add(4)).unwrap_or(0);
                put_entry(self.sb.order, &mut unit, at, usize::from(len), entry);
                let id =
                    self.put_pieces(block, skip, &unit, &[(at, needed(name.len()))], role, after)?;
                (at, id)
            }
            Some((at, Some(before))) => {
                let end = self.split(&mut unit, before, at);
                put_entry(self.sb.order, &mut unit, at, end.saturating_sub(at), entry);
                let pieces = [(before.saturating_add(4), 2), (at, needed(name.len()))];
                let id = self.put_pieces(block, skip, &unit, &pieces, role, after)?;
                (at, id)
            }
            None => {
                let at = self.compact(dir, base, &mut unit, place)?;
                put_entry(self.sb.order, &mut unit, at, DIRECTORY_UNIT.saturating_sub(at), entry);
                let id =
                    self.put_pieces(block, skip, &unit, &[(0, DIRECTORY_UNIT)], role, after)?;
                // Undoing it would move the other names back.
                let ids = self.enter(dir, base, at, name, to.0, kind, ChangeId::COMMITTED, spot)?;
                return Ok(ids.into_iter().chain([id]).collect());
            }
        };
        let ids = self.enter(dir, base, at, name, to.0, kind, added, spot)?;
        Ok(ids.into_iter().chain([added]).collect())
    }

    /// Enters a name into the index; what makes its unit reachable is returned.
    #[allow(clippy::too_many_arguments, reason = "the fields of an entry, once")]
    fn enter(
        &mut self,
        dir: Ino,
        base: u64,
        at: usize,
        name: &[u8],
        ino: Ino,
        kind: u8,
        added: ChangeId,
        spot: &Spot,
    ) -> Result<Ids, FsError> {
        let slot = Slot { ino, at: base.saturating_add(wide(at)), kind, added };
        self.index(dir)?.names.insert(name.into(), slot);
        self.indexes.names = self.indexes.names.saturating_add(1);
        self.refresh_room(dir, spot.unit)?;
        Ok(spot.reached_by.clone())
    }

    /// Shortens the entry at `before` so that it ends at `at`; where it ended
    /// is returned.
    fn split(&self, unit: &mut [u8], before: usize, at: usize) -> usize {
        let order = self.sb.order;
        let len = usize::from(order.get_u16(unit, before.saturating_add(4)).unwrap_or(0));
        let kept = u16::try_from(at.saturating_sub(before)).unwrap_or(0);
        order.put_u16(unit, before.saturating_add(4), kept);
        before.saturating_add(len)
    }

    /// Moves the used entries of a unit to its start, and says where they end.
    fn compact(
        &mut self,
        dir: Ino,
        base: u64,
        unit: &mut [u8],
        place: Location,
    ) -> Result<usize, FsError> {
        let old = unit.to_vec();
        let used = entries(&self.sb, &old, place)?;
        unit.fill(0);
        let mut at = 0usize;
        let mut moved = Vec::new();
        for entry in used.iter().filter(|entry| entry.is_used()) {
            let len = entry.needed();
            put_entry(self.sb.order, unit, at, len, (entry.ino, entry.kind, entry.name));
            moved.push((entry.name, base.saturating_add(wide(at))));
            at = at.saturating_add(len);
        }
        let index = self.index(dir)?;
        for (name, at) in moved {
            if let Some(slot) = index.names.get_mut(name) {
                (slot.at, slot.added) = (at, ChangeId::COMMITTED);
            }
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
            let (block, skip) = self.dir_place(dir, slot.at)?;
            Some(if after.is_empty() {
                let blank = |to: &mut [u8]| {
                    to.fill(0);
                    Ok(())
                };
                self.cache.edit(block, skip, 4, Role::EntryRemove, blank)?.1
            } else {
                let piece = Piece { offset: byte(skip), bytes: &[0; 4] };
                self.cache.change(block, &[piece], Role::EntryRemove, after)?
            })
        };
        self.index(dir)?.names.remove(name);
        self.indexes.names = self.indexes.names.saturating_sub(1);
        self.refresh_room(dir, slot.at.checked_div(UNIT).unwrap_or(0))?;
        Ok(removed)
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

    /// Counts anew how much room a unit has.
    fn refresh_room(&mut self, dir: Ino, unit: u64) -> Result<(), FsError> {
        let (block, skip) = self.dir_place(dir, unit.saturating_mul(UNIT))?;
        let bytes = self.cache.read(block, skip, DIRECTORY_UNIT)?;
        let place = Location::of("directory").in_inode(dir);
        let all = entries(&self.sb, bytes, place)?;
        let taken = all.iter().map(Entry::needed).fold(0, usize::saturating_add);
        drop(all);
        self.index(dir)?.set_room(unit, DIRECTORY_UNIT.saturating_sub(taken));
        Ok(())
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
        let mut ino = [0; 4];
        self.sb.order.put_u32(&mut ino, 0, to.0.get());
        let kind = code_of(to.1);
        let pieces = [
            Piece { offset: byte(skip), bytes: &ino },
            Piece { offset: byte(skip.saturating_add(6)), bytes: &[kind] },
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

    /// Forgets the names of a directory that is no more.
    pub(super) fn drop_index(&mut self, dir: Ino) {
        if let Some(index) = self.indexes.of.remove(&dir) {
            self.indexes.names = self.indexes.names.saturating_sub(index.names.len());
        }
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
                for entry in entries(&self.sb, unit, place)? {
                    let cookie = base.saturating_add(wide(entry.at)).saturating_add(1);
                    if !entry.is_used() || entry.kind == WHITEOUT || cookie <= after {
                        continue;
                    }
                    let kind = crate::dir::kind_of(entry.kind);
                    let ino = Ino::new(entry.ino);
                    if visit(DirEntry { name: entry.name, ino, kind, cookie }).is_break() {
                        return Ok(());
                    }
                }
            }
            at = at.saturating_add(wide(bytes.len()));
        }
        Ok(())
    }
}

impl Indexes {
    /// Forgets the directories longest not looked into, when there are many
    /// names.
    fn make_room(&mut self) {
        while self.names > MOST_NAMES {
            let Some((&dir, _)) = self.of.iter().min_by_key(|(_, index)| index.used) else {
                return;
            };
            if let Some(index) = self.of.remove(&dir) {
                self.names = self.names.saturating_sub(index.names.len());
            }
        }
    }
}

/// Where an entry fits without moving others: at an unused one, or behind what
/// the one that is named needs. `None` when only compacting helps.
fn spot_in(
    sb: &Super,
    unit: &[u8],
    needed: usize,
    place: Location,
) -> Result<Option<(usize, Option<usize>)>, FsError> {
    let all = entries(sb, unit, place)?;
    let unused = all.iter().find(|entry| !entry.is_used() && entry.len >= needed);
    if let Some(entry) = unused {
        return Ok(Some((entry.at, None)));
    }
    let loose = all.iter().find(|entry| entry.is_used() && entry.slack() >= needed);
    Ok(loose.map(|entry| (entry.at.saturating_add(entry.needed()), Some(entry.at))))
}
