//! Renaming. Where both entries lie in one sector it is one change; else a new name
//! comes first. A name that a file takes over goes on leading to the old file until the
//! other name is gone: of two entries with one chain a check empties the later. One that a
//! directory takes over leads to an empty one; there the new name comes first too, since a
//! directory without a name would be lost with all that is below it.

use super::make::text;
use super::slots::{Edit, NewNames, RemovedEntry};
use super::{Core, Fat};
use crate::ondisk::{ShortEntry, attr};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, low16};
use seekless_fs::operate::RenameMode;
use seekless_fs::{FileKind, FsError};
use seekless_live::{Ids, gone};
use seekless_units::Ino;
use std::mem::offset_of;

/// A name in a directory.
type Name<'a> = (Ino, &'a [u8]);

/// A file that is renamed, and the place of its old entry.
#[derive(Clone, Copy)]
struct Moved {
    ino: Ino,
    dir: Ino,
    going: RemovedEntry,
    is_dir: bool,
}

/// Marks a renamed file for archiving, as one that was written to.
fn note_renamed(core: &mut Core, moved: Moved) -> Result<(), FsError> {
    if !moved.is_dir {
        core.node(moved.ino)?.map.attr |= attr::ARCHIVE;
    }
    Ok(())
}

impl Fat {
    pub(super) fn rename(
        &mut self,
        core: &mut Core,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let is_dot = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dot(from.1) || is_dot(to.1) {
            return Err(FsError::Invalid("`.` and `..` cannot be renamed".into()));
        }
        self.open_dir(core, from.0)?;
        self.open_dir(core, to.0)?;
        let found = self.named(core, from.0, from.1)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(from.1)))?;
        let target = self.named(core, to.0, to.1)?;
        match (mode, target) {
            (RenameMode::KeepTarget, Some((other, _))) if other != ino => {
                return Err(FsError::Exists(text(to.1)));
            }
            (RenameMode::Exchange, None) => return Err(FsError::NotFound(text(to.1))),
            (RenameMode::Exchange, Some(_)) => {
                return Err(FsError::Unsupported("exchanging names on FAT".into()));
            }
            _ => {}
        }
        let is_dir = core.node(ino)?.kind == FileKind::Directory;
        let known = self.dir(core, from.0)?.entries.get(&slot);
        let known = known.ok_or_else(|| gone(from.0))?;
        let going = RemovedEntry { start: known.start, slot };
        let same = known.name == super::directory::trimmed(to.1);
        let moved = Moved { ino, dir: from.0, going, is_dir };
        match target {
            Some((other, _)) if other == ino && same => Ok(()),
            Some((other, at)) if other != ino => self.rename_over(core, moved, to, (other, at)),
            // Another case of the same name, or a new name.
            _ => self.rename_to_new(core, moved, to),
        }
    }

    /// Whether a directory is `above`, or below it.
    fn lies_below(&self, dir: Ino, above: Ino) -> bool {
        let mut at = Some(dir);
        while let Some(here) = at {
            if here == above {
                return true;
            }
            at = self.numbers.place(here).map(|(parent, _)| parent);
        }
        false
    }

    fn refuse_loop(&self, moved: Moved, to: Ino) -> Result<(), FsError> {
        if moved.is_dir && self.lies_below(to, moved.ino) {
            return Err(FsError::Invalid("a directory cannot be moved into itself".into()));
        }
        Ok(())
    }

    fn rename_to_new(
        &mut self,
        core: &mut Core,
        moved: Moved,
        to: Name<'_>,
    ) -> Result<(), FsError> {
        self.refuse_loop(moved, to.0)?;
        if moved.dir == to.0 && self.rename_beside(core, moved, to.1)? {
            return self.touch_dir(core, to.0);
        }
        let named = self.name_file(core, to.0, to.1)?;
        let start = self.find_slots(core, to.0, named.slots(), None)?;
        let known = named.known(start, moved.is_dir);
        let mut after = Ids::from_slice(&[core.node(moved.ino)?.pending.sized]);
        after.extend(self.departures(core, to.0, &known));
        let way = self.way_to(core, to.0);
        if moved.is_dir {
            // Else it could come to lie below itself.
            after.extend(way.iter().copied());
        }
        let slot = named.last_slot(start);
        let id = self.put_moved(core, moved, (to.0, start), &named, &after, None)?;
        // The old name may be the same in another case.
        let old = self.leave(core, moved.dir, moved.going.slot)?;
        self.enter(core, to.0, slot, named.slots(), known)?;
        if moved.dir != to.0 {
            self.turn(core, moved, to.0, id)?;
        }
        let before: Ids = way.into_iter().chain([id]).collect();
        let removed = self.erase_entry(core, moved.dir, moved.going, &before)?;
        self.note_departure(core, moved.dir, &old, removed);
        self.note_leaving(core, moved.ino, removed);
        self.note_arriving(core, to.0, removed);
        self.numbers.settle(moved.ino, (to.0, slot));
        self.touch_dir(core, moved.dir)?;
        self.touch_dir(core, to.0)
    }

    /// Writes the new entry of a file.
    fn put_moved(
        &mut self,
        core: &mut Core,
        moved: Moved,
        (dir, start): (Ino, u32),
        named: &NewNames,
        after: &[ChangeId],
        going: Option<RemovedEntry>,
    ) -> Result<ChangeId, FsError> {
        let role = if moved.is_dir { Role::EntryAddDirectory } else { Role::EntryAdd };
        note_renamed(core, moved)?;
        let entry = self.encode(core.node(moved.ino)?, named.short);
        let id = self.add_entry(core, (dir, start), (named, &entry), role, after, going)?;
        core.node(moved.ino)?.pending.sized = id;
        Ok(id)
    }

    /// Renames within a sector, if there is room: over the old slots, or beside them. False
    /// if there is none.
    fn rename_beside(
        &mut self,
        core: &mut Core,
        moved: Moved,
        name: &[u8],
    ) -> Result<bool, FsError> {
        let (dir, going) = (moved.dir, moved.going);
        let kept = self.dir(core, dir)?;
        let old = kept.entries.get(&going.slot).ok_or_else(|| gone(dir))?.clone();
        // The old name goes in the same change: its short name is free.
        kept.shorts.give(&old.short);
        let named = self.name_file(core, dir, name);
        let near = self.beside(going.slot);
        let kept = self.dir(core, dir)?;
        kept.shorts.take(old.short);
        let named = named?;
        let count = going.slot - going.start + 1;
        let in_place = near.contains(&going.start) && named.slots() == count;
        let beside = kept.find_free_at(named.slots(), near);
        let (start, with) = match beside {
            _ if in_place => (going.start, None),
            Some(start) => (start, Some(going)),
            None => return Ok(false),
        };
        let known = named.known(start, moved.is_dir);
        let mut after = Ids::from_slice(&[core.node(moved.ino)?.pending.sized]);
        after.extend(self.departures(core, dir, &known));
        let id = self.put_moved(core, moved, (dir, start), &named, &after, with)?;
        if with.is_some() {
            self.erase_pieces(core, dir, going, id)?;
        }
        self.leave(core, dir, going.slot)?;
        let slot = named.last_slot(start);
        self.enter(core, dir, slot, named.slots(), known)?;
        self.note_departure(core, dir, &old, id);
        self.numbers.settle(moved.ino, (dir, slot));
        Ok(true)
    }

    fn rename_over(
        &mut self,
        core: &mut Core,
        moved: Moved,
        to: Name<'_>,
        (other, slot): (Ino, u32),
    ) -> Result<(), FsError> {
        debug_assert_ne!(moved.ino, other, "a file does not replace itself");
        self.refuse_loop(moved, to.0)?;
        let other_is_dir = core.node(other)?.kind == FileKind::Directory;
        let mut after = Ids::from_slice(&[core.node(moved.ino)?.pending.sized]);
        match (moved.is_dir, other_is_dir) {
            (true, false) => return Err(FsError::NotDirectory(text(to.1))),
            (false, true) => return Err(FsError::IsDirectory(text(to.1))),
            (true, true) => after.extend(self.emptied(core, other, to.1)?),
            (false, false) => {}
        }
        // The replaced file's chain must be read before its name goes.
        self.chain(core, other)?;
        if moved.dir != to.0 {
            after.extend(self.way_to(core, to.0));
        }
        let kept = self.dir(core, to.0)?;
        let short = kept.entries.get(&slot).ok_or_else(|| gone(to.0))?.short;
        note_renamed(core, moved)?;
        let entry = self.encode(core.node(moved.ino)?, short);
        // All bytes but the name, and the flags of its case.
        let rest = offset_of!(ShortEntry, DIR_CrtTimeTenth);
        let attr = offset_of!(ShortEntry, DIR_Attr);
        let piece = |from: usize, to: usize| Edit {
            slot,
            within: from,
            bytes: entry.get(from..to).unwrap_or_default().to_vec(),
        };
        let mut edits = vec![piece(attr, attr + 1), piece(rest, entry.len())];
        let going = moved.going;
        let together =
            moved.dir == to.0 && self.sector_number(slot) == self.sector_number(going.slot);
        if together {
            let gone = self.erased(going.start, going.slot).into_iter();
            edits.extend(
                gone.filter(|edit| self.sector_number(edit.slot) == self.sector_number(slot)),
            );
        }
        let first = if together || moved.is_dir {
            None
        } else {
            let first = self.erase_entry(core, moved.dir, going, &after)?;
            after.push(first);
            Some(first)
        };
        let edits: Vec<&Edit> = edits.iter().collect();
        let id = self.put_edits(core, to.0, &edits, Role::EntryChange, &after)?;
        let removed = match first {
            _ if together => {
                self.erase_pieces(core, moved.dir, going, id)?;
                id
            }
            Some(first) => {
                self.note_unnamed(core, id, &[]);
                first
            }
            None => {
                let before: Ids = self.way_to(core, to.0).into_iter().chain([id]).collect();
                let removed = self.erase_entry(core, moved.dir, going, &before)?;
                self.note_leaving(core, moved.ino, removed);
                self.note_arriving(core, to.0, removed);
                removed
            }
        };
        core.node(moved.ino)?.pending.sized = id;
        let old = self.leave(core, moved.dir, going.slot)?;
        self.note_departure(core, moved.dir, &old, removed);
        if moved.dir != to.0 {
            self.turn(core, moved, to.0, id)?;
        }
        if other_is_dir {
            self.count_children(core, to.0)?;
        }
        self.lose(core, other, id)?;
        self.numbers.settle(moved.ino, (to.0, slot));
        self.touch_dir(core, moved.dir)?;
        self.touch_dir(core, to.0)
    }

    /// Sets the parent of a directory, once a change is on the disk.
    fn turn(
        &mut self,
        core: &mut Core,
        moved: Moved,
        to: Ino,
        after: ChangeId,
    ) -> Result<(), FsError> {
        if !moved.is_dir {
            return Ok(());
        }
        debug_assert_ne!(moved.dir, to, "the parent is another");
        let parent = self.named_cluster(core, to)?;
        let (sector, skip) = self.slot_place(core, (moved.ino, 1))?;
        let at = |field: usize| byte(skip + field);
        let low = low16(parent).to_le_bytes();
        let high = low16(parent >> 16).to_le_bytes();
        let low = Piece { offset: at(offset_of!(ShortEntry, DIR_FstClusLO)), bytes: &low };
        let high = Piece { offset: at(offset_of!(ShortEntry, DIR_FstClusHI)), bytes: &high };
        let pieces: &[Piece<'_>] = if self.is_fat32() { &[low, high] } else { &[low] };
        core.cache.changes().change(sector, pieces, Role::EntryChange, &[after])?;
        self.count_children(core, moved.dir)?;
        self.count_children(core, to)
    }

    /// Changes that must be on the disk for a directory to be reached from the root, and in no
    /// other way.
    fn way_to(&mut self, core: &Core, dir: Ino) -> Ids {
        let mut ids = Ids::new();
        let mut at = Some(dir);
        while let Some(here) = at {
            ids.extend(self.leaving(core, here));
            let named = core.nodes.get(&here).map(|node| node.pending.sized);
            ids.extend(named.filter(|&id| !core.cache.is_committed(id)));
            at = self.numbers.place(here).map(|(parent, _)| parent);
        }
        ids
    }

    /// The parent of a directory; the root's is itself.
    pub(super) fn parent(&self, dir: Ino) -> Ino {
        self.numbers.place(dir).map_or(dir, |(parent, _)| parent)
    }
}
