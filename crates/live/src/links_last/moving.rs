//! Names that change hands: files that move, and take the names of others.

use crate::directories::index::Slot;
use crate::link_order::OrderedLinks;
use crate::links_last::{FULL, LinksLast};
use crate::namespace::not_found;
use crate::namespace::rename::Name;
use crate::{Codec, Compacted, Entry, Ids, Room};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use smallvec::SmallVec;

/// Bytes of the number of an inode in an entry.
const INO_LEN: usize = 4;

/// A place for an entry, and the changes made for it.
struct Placed<'a> {
    at: usize,
    len: usize,
    /// The bytes that may have changed, all in one sector.
    changed: std::ops::Range<usize>,
    moved: SmallVec<[(&'a [u8], usize); 16]>,
}

impl<F: OrderedLinks> LinksLast<'_, F> {
    /// A new name for a file that keeps its inode and loses another name.
    pub(crate) fn move_to_new(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
    ) -> Result<(), FsError> {
        let is_directory = kind == FileKind::Directory;
        let across = is_directory && from.0 != to.0;
        if is_directory
            && !across
            && self.is_ordered()
            && self.rename_in_sector(from, to.1, moved)?
        {
            return Ok(());
        }
        if is_directory {
            self.check_move(to.1)?;
        }
        let spot = self.live.directories().reserve(to.0, to.1)?;
        let cache = &self.live.volume.core.cache;
        let init = self
            .live
            .volume
            .core
            .nodes
            .get(&moved)
            .and_then(|node| node.pending.fresh.first().copied());
        let mut after: Ids = init.into_iter().filter(|&id| !cache.is_committed(id)).collect();
        // A new file is counted for its new name then, and may never have had the
        // old one.
        let linked = self.live.volume.node(moved)?.pending.linked;
        let counted_anew = !self.live.volume.core.cache.is_committed(linked)
            && !is_directory
            && self.live.volume.core.cache.changes().discard(linked);
        if !counted_anew && !is_directory && self.counts_first() {
            after.extend(self.hold(moved)?);
        }
        if across {
            after.extend(self.live.directories().way_to(to.0)?);
            after.extend(self.live.directories().changes_to_name(from.0, from.1)?);
        }
        let role = if is_directory { Role::EntryAddDirectory } else { Role::EntryAdd };
        let named =
            self.live.directories().insert(to.0, &spot, to.1, (moved, kind), role, &after)?;
        let turned = if across { Some(self.set_parent_last(moved, to.0, &named)?) } else { None };
        let way = self.live.directories().way_to(to.0)?;
        self.live.namespace().note_name(moved, to.0, &named)?;
        let before: Ids = named.iter().copied().chain(turned).chain(way).collect();
        let removed = self.live.directories().remove(from.0, from.1, &before)?;
        if counted_anew {
            let mut named = named;
            if self.counts_first() {
                named.extend(self.live.volume.leaving(moved)?);
                named.extend(removed);
            }
            self.count_named(moved, to.0, &named)?;
        } else {
            self.release(moved, removed.as_slice())?;
        }
        if let Some(removed) = removed {
            self.live.namespace().note_leaving(moved, to.0, removed)?;
        }
        if across {
            self.lose_child(from.0)?;
        }
        self.touch_moved(from, to, moved)
    }

    /// Refuses to give a directory another name, where that is wanted and more than one
    /// sector would change.
    pub(crate) fn check_move(&self, name: &[u8]) -> Result<(), FsError> {
        if self.live.volume.format.limits().moves_dirs || !self.is_ordered() {
            return Ok(());
        }
        Err(FsError::CrossDevice(String::from_utf8_lossy(name).into_owned()))
    }

    fn touch_moved(&mut self, from: Name<'_>, to: Name<'_>, moved: Ino) -> Result<(), FsError> {
        self.live.volume.touch(moved)?;
        self.live.namespace().touch_dir(from.0)?;
        if to.0 != from.0 {
            self.live.namespace().touch_dir(to.0)?;
        }
        Ok(())
    }

    /// A directory gets another parent, which its `..` leads to once the new name
    /// is there.
    fn set_parent_last(
        &mut self,
        moved: Ino,
        parent: Ino,
        named: &Ids,
    ) -> Result<ChangeId, FsError> {
        self.live.namespace().gain_child(parent)?;
        let depth = self.live.volume.node(parent)?.depth + 1;
        self.live.volume.node(moved)?.depth = depth;
        self.live.directories().redirect(moved, b"..", (parent, FileKind::Directory), named)
    }

    /// Gives a directory another name in its parent with one change of one sector,
    /// if there is room. False when there is not.
    fn rename_in_sector(&mut self, from: Name<'_>, to: &[u8], moved: Ino) -> Result<bool, FsError> {
        let dir = from.0;
        let asked = self.live.directories().place_name(dir, to)?;
        let Some(old) = self.live.directories().find(dir, from.1)? else {
            return Err(not_found(from.1));
        };
        let unit_len = self.live.volume.format.limits().dir_unit;
        let unit = old.at / wide(unit_len);
        if asked.is_some_and(|asked| asked != unit) {
            return Ok(false);
        }
        let base = unit * wide(unit_len);
        let (block, skip) = self.live.directories().dir_place(dir, base)?;
        let mut bytes =
            self.live.volume.core.cache.blocks_mut().read(block, skip, unit_len)?.to_vec();
        let at = index(old.at - base);
        let ino = at + F::Codec::INO;
        if let Some(ino) = bytes.get_mut(ino..ino + INO_LEN) {
            ino.fill(0);
        }
        let before = bytes.clone();
        let Some(Placed { at: new, len, changed, moved: names }) =
            self.place_in_sector(dir, &before, &mut bytes, at, F::Codec::needed(to.len()))?
        else {
            return Ok(false);
        };
        let codec = self.live.volume.format.codec();
        let kind = codec.code_of(FileKind::Directory);
        let needed = F::Codec::needed(to.len());
        let entry = Entry { at: new, len, needed, ino: moved, kind, is_name: true, name: to };
        codec.put(&mut bytes, &entry);
        let part = bytes.get(changed.clone()).unwrap_or_default();
        let piece = Piece { offset: byte(skip + changed.start), bytes: part };
        let older = self.live.directories().departure(dir, to, &[]);
        let after: Ids = older.into_iter().collect();
        let id = self.live.volume.core.cache.changes().change(
            block,
            &[piece],
            Role::EntryChange,
            &after,
        )?;
        self.live.directories().note_moved(dir, base, &names)?;
        self.live.directories().note_departure(dir, from.1, old.at, id);
        let at = base + wide(new);
        let slot = Slot { ino: moved, at, kind, added: ChangeId::COMMITTED };
        self.live.directories().enter(dir, unit, to, slot)?;
        self.live.directories().leave(dir, unit, from.1)?;
        let reached = self.live.volume.node(dir)?.pending.reached_by.clone();
        let named: Ids = reached.into_iter().chain([id]).collect();
        self.live.namespace().note_name(moved, dir, &named)?;
        self.live.namespace().note_leaving(moved, dir, id)?;
        self.touch_moved(from, (dir, to), moved)?;
        Ok(true)
    }

    /// A place for an entry in the sector of a unit that holds a byte, others moved there if need
    /// be. `old` is the former content of `unit`.
    fn place_in_sector<'a>(
        &self,
        dir: Ino,
        old: &'a [u8],
        unit: &mut [u8],
        at: usize,
        needed: usize,
    ) -> Result<Option<Placed<'a>>, FsError> {
        let codec = self.live.volume.format.codec();
        let place = Location::of("directory").in_inode(dir);
        let chain = codec.chain_at(old, place, at)?;
        if let (Some(part), Some(before)) = (unit.get_mut(chain.clone()), old.get(chain.clone()))
            && !chain.is_empty()
            && codec.room(before, place)? >= needed
        {
            let Compacted { at, len, moved, .. } = codec.compact(before, part, place, needed)?;
            let down = |at: usize| at + chain.start;
            let moved = moved.into_iter().map(|(name, at)| (name, down(at))).collect();
            return Ok(Some(Placed { at: down(at), len, changed: chain.clone(), moved }));
        }
        // Where chains go on from one sector to the next nothing is moved.
        let Some(Room { at: new, len, behind }) = codec.fit(old, place, needed)? else {
            return Ok(None);
        };
        let sector = index(seekless_units::SECTOR);
        let start = at - at % sector;
        let changed = start..(start + sector).min(unit.len());
        let last = new + needed - 1;
        if ![new, last, behind.unwrap_or(new)].iter().all(|byte| changed.contains(byte)) {
            return Ok(None);
        }
        if let Some(before) = behind {
            codec.put_len(unit, before, new - before);
        }
        Ok(Some(Placed { at: new, len, changed, moved: SmallVec::new() }))
    }

    /// A file takes the name of another.
    pub(crate) fn move_over(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
        (old, old_kind): (Ino, FileKind),
    ) -> Result<(), FsError> {
        let is_directory = old_kind == FileKind::Directory;
        self.make_room(old, FULL)?;
        if from.0 == to.0 && self.is_ordered() && self.lie_together(from, to)? {
            return self.swap_over(from, to, moved, (old, is_directory));
        }
        if is_directory {
            self.check_move(to.1)?;
            return self.move_over_dir(from, to, moved, old);
        }
        if self.live.volume.node(old)?.effective == 1 && self.is_ordered() {
            return self.move_over_last(from, to, (moved, kind), (old, old_kind));
        }
        let mut after = self.hold(moved)?;
        after.extend(self.names_of(old)?);
        let named = self.take_name(to, (moved, kind), &after)?;
        self.live.volume.node(old)?.drop_effective_link();
        self.note_gone(old, named.last().copied())?;
        let removed = self.leave_old_name(from, to, moved, &named)?;
        self.release(moved, removed.as_slice())?;
        let node = self.live.volume.node(old)?;
        match (node.effective, node.holds) {
            (0, 0) if !self.live.volume.core.cache.is_journalled() => {
                return self.live.destroy(old);
            }
            (0, 0) => {
                self.drop_last_link(old, &named)?;
                return self.destroy_listed(old);
            }
            (0, _) => {
                self.drop_last_link(old, &named)?;
            }
            _ => self.count_fewer(old, &named)?,
        }
        self.live.volume.touch(old)
    }

    /// A directory takes the name of an empty one. No order is one that a check
    /// follows by itself: for a while it finds two names of the one, and none of the
    /// other. The name leads to one of them at any time.
    fn move_over_dir(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: Ino,
        old: Ino,
    ) -> Result<(), FsError> {
        let across = from.0 != to.0;
        let mut after = self.links_of(moved)?;
        after.extend(self.live.directories().changes_in_dir(old)?);
        after.extend(self.live.volume.leaving(old)?);
        after.extend(self.live.directories().way_to(to.0)?);
        after.extend(self.live.directories().changes_to_name(from.0, from.1)?);
        let mut named = self.take_name(to, (moved, FileKind::Directory), &after)?;
        let replaced = named.last().copied();
        if across {
            let turned = self.set_parent_last(moved, to.0, &named)?;
            named.push(turned);
            self.lose_child(from.0)?;
        }
        self.lose_child(to.0)?;
        self.leave_old_name(from, to, moved, &named)?;
        let node = self.live.volume.node(old)?;
        node.effective = 0;
        let goes = node.holds == 0;
        if !goes || self.live.volume.core.cache.is_journalled() {
            self.note_gone(old, replaced)?;
            self.drop_last_link(old, &named)?;
            return if goes { self.destroy_listed(old) } else { self.live.volume.touch(old) };
        }
        let cleared = self.clear(old, &named)?;
        self.free_number(old, true, &[cleared]);
        Ok(())
    }

    /// The changes that must be on the disk for a file to be counted for a name it has.
    pub(crate) fn links_of(&mut self, ino: Ino) -> Result<Ids, FsError> {
        let node = self.live.volume.node(ino)?;
        let ids: Ids = node.pending.fresh.iter().copied().chain([node.pending.linked]).collect();
        let cache = &self.live.volume.core.cache;
        Ok(ids.into_iter().filter(|&id| !cache.is_committed(id)).collect())
    }

    /// Lets a name lead to another file; returns the changes that must be on the disk for that.
    fn take_name(
        &mut self,
        to: Name<'_>,
        file: (Ino, FileKind),
        after: &[ChangeId],
    ) -> Result<Ids, FsError> {
        let changed = self.live.directories().redirect(to.0, to.1, file, after)?;
        let reached = self.live.volume.node(to.0)?.pending.reached_by.clone();
        Ok(reached.into_iter().chain([changed]).collect())
    }

    /// The name that a moved file had goes, once the new one is on the disk. Returns the change that
    /// must be there for it to be gone.
    fn leave_old_name(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: Ino,
        named: &Ids,
    ) -> Result<Option<ChangeId>, FsError> {
        let way = self.live.directories().way_to(to.0)?;
        self.live.namespace().note_name(moved, to.0, named)?;
        let before: Ids = named.iter().copied().chain(way).collect();
        let removed = self.live.directories().remove(from.0, from.1, &before)?;
        if let Some(removed) = removed {
            self.live.namespace().note_leaving(moved, to.0, removed)?;
        }
        self.touch_moved(from, to, moved)?;
        Ok(removed)
    }

    /// A file takes the only name of another, which has a third one meanwhile.
    fn move_over_last(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: (Ino, FileKind),
        old: (Ino, FileKind),
    ) -> Result<(), FsError> {
        let third = self.spare_name(to.0, old.0)?;
        let spot = self.live.directories().reserve(to.0, &third)?;
        let after = self.hold(old.0)?;
        let aside =
            self.live.directories().insert(to.0, &spot, &third, old, Role::EntryAdd, &after)?;
        let mut after = aside;
        after.extend(self.hold(moved.0)?);
        let named = self.take_name(to, moved, &after)?;
        self.note_gone(old.0, named.last().copied())?;
        self.release(old.0, &named)?;
        let removed = self.leave_old_name(from, to, moved.0, &named)?;
        self.release(moved.0, removed.as_slice())?;
        let node = self.live.volume.node(old.0)?;
        node.effective = 0;
        self.withdraw_last(to.0, &third, old.0, &named)
    }

    /// A name that a directory does not have, for a file that loses its own.
    fn spare_name(&mut self, dir: Ino, ino: Ino) -> Result<Vec<u8>, FsError> {
        for n in 0..u32::MAX {
            let name = format!(".replaced-{ino}-{n}").into_bytes();
            if self.live.directories().find(dir, &name)?.is_none() {
                return Ok(name);
            }
        }
        Err(FsError::Exists(format!(".replaced-{ino}")))
    }

    /// Whether two entries of a directory can be changed with one write that is not
    /// torn.
    pub(crate) fn lie_together(&mut self, from: Name<'_>, to: Name<'_>) -> Result<bool, FsError> {
        let (Some(one), Some(other)) = (
            self.live.directories().find(from.0, from.1)?,
            self.live.directories().find(to.0, to.1)?,
        ) else {
            return Ok(false);
        };
        Ok(one.at / seekless_units::SECTOR == other.at / seekless_units::SECTOR)
    }

    /// Two names of one sector change places, and then the one that is to go goes.
    fn swap_over(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: Ino,
        (old, is_directory): (Ino, bool),
    ) -> Result<(), FsError> {
        let mut after = self.links_of(moved)?;
        after.extend(self.links_of(old)?);
        let swapped = self.swap(from, to, &after)?;
        let reached = self.live.volume.node(to.0)?.pending.reached_by.clone();
        let named: Ids = reached.into_iter().chain([swapped]).collect();
        self.live.namespace().note_name(moved, to.0, &named)?;
        self.touch_moved(from, to, moved)?;
        let mut before: Ids = SmallVec::from_slice(&[swapped]);
        if is_directory {
            before.extend(self.live.directories().changes_in_dir(old)?);
            before.extend(self.live.volume.leaving(old)?);
            self.lose_child(from.0)?;
        }
        let node = self.live.volume.node(old)?;
        if is_directory {
            node.effective = 0;
        } else {
            node.drop_effective_link();
        }
        if node.effective > 0 {
            before.extend(self.names_of(old)?);
            let removed = self.live.directories().remove(from.0, from.1, &before)?;
            self.note_gone(old, removed)?;
            self.count_fewer(old, removed.as_slice())?;
            return self.live.volume.touch(old);
        }
        self.withdraw_last(from.0, from.1, old, &before)
    }

    /// The numbers of two entries of one sector change places, and their kinds.
    pub(crate) fn swap(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let dir = from.0;
        let (Some(one), Some(other)) =
            (self.live.directories().find(dir, from.1)?, self.live.directories().find(dir, to.1)?)
        else {
            return Err(not_found(from.1));
        };
        let unit_len = wide(self.live.volume.format.limits().dir_unit);
        let base = one.at / unit_len * unit_len;
        let (block, skip) = self.live.directories().dir_place(dir, base)?;
        let at = |slot: Slot, within: usize| {
            let into = index(slot.at - base);
            byte(skip + into + within)
        };
        let codec = self.live.volume.format.codec();
        let (first, second) = (codec.ino_bytes(other.ino), codec.ino_bytes(one.ino));
        let pieces = [
            Piece { offset: at(one, F::Codec::INO), bytes: &first },
            Piece { offset: at(one, F::Codec::KIND), bytes: &[other.kind] },
            Piece { offset: at(other, F::Codec::INO), bytes: &second },
            Piece { offset: at(other, F::Codec::KIND), bytes: &[one.kind] },
        ];
        let id = self.live.volume.core.cache.changes().change(
            block,
            &pieces,
            Role::EntryChange,
            after,
        )?;
        let id = self.live.directories().seen_by(dir, id)?;
        for (name, new) in [(from.1, other), (to.1, one)] {
            if let Some(slot) = self.live.directories().index(dir)?.names.get_mut(name) {
                (slot.ino, slot.kind, slot.added) = (new.ino, new.kind, ChangeId::COMMITTED);
            }
        }
        Ok(id)
    }
}
