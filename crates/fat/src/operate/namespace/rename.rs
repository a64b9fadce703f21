//! Renaming. Where both entries lie in one sector it is one change; else a new name
//! comes first. A name that a file takes over goes on leading to the old file until the
//! other name is gone: of two entries with one chain a check empties the later. One that a
//! directory takes over leads to an empty one; there the new name comes first too, since a
//! directory without a name would be lost with all that is below it.

use super::{Namespace, text};
use crate::ondisk::{ShortEntry, attr};
use crate::operate::chain::Chain;
use crate::operate::directory::trimmed;
use crate::operate::map::Core;
use crate::operate::slots::{Edit, NewNames, RemovedEntry};
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

impl Namespace<'_> {
    pub(in crate::operate) fn rename(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let is_dot = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dot(from.1) || is_dot(to.1) {
            return Err(FsError::Invalid("`.` and `..` cannot be renamed".into()));
        }
        self.open_dir(from.0)?;
        self.open_dir(to.0)?;
        let found = self.named(from.0, from.1)?;
        let (ino, slot) = found.ok_or_else(|| FsError::NotFound(text(from.1)))?;
        let target = self.named(to.0, to.1)?;
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
        let is_dir = self.core.node(ino)?.kind == FileKind::Directory;
        let cached = self.dir(from.0)?.entry(slot);
        let cached = cached.ok_or_else(|| gone(from.0))?;
        let going = RemovedEntry { start: cached.start, slot };
        let same = cached.name == trimmed(to.1);
        let moved = Moved { ino, dir: from.0, going, is_dir };
        match target {
            Some((other, _)) if other == ino && same => Ok(()),
            Some((other, at)) if other != ino => self.rename_over(moved, to, (other, at)),
            // Another case of the same name, or a new name.
            _ => self.rename_to_new(moved, to),
        }
    }

    /// Whether a directory is `above`, or below it.
    fn lies_below(&self, dir: Ino, above: Ino) -> bool {
        self.inodes.numbers().ancestors(dir).any(|at| at == above)
    }

    fn refuse_loop(&self, moved: Moved, to: Ino) -> Result<(), FsError> {
        if moved.is_dir && self.lies_below(to, moved.ino) {
            return Err(FsError::Invalid("a directory cannot be moved into itself".into()));
        }
        Ok(())
    }

    fn rename_to_new(&mut self, moved: Moved, to: Name<'_>) -> Result<(), FsError> {
        self.refuse_loop(moved, to.0)?;
        if moved.dir == to.0 && self.rename_beside(moved, to.1)? {
            return self.touch_dir(to.0);
        }
        let named = NewNames::new(self.dir(to.0)?, to.1)?;
        let start = self.slots().find_slots(to.0, named.slots(), None)?;
        let cached = named.entry(start, moved.is_dir);
        let mut after = Ids::from_slice(&[self.core.node(moved.ino)?.pending.sized]);
        after.extend(self.departures.of_names(self.core, to.0, &cached));
        let way = self.way_to(to.0);
        if moved.is_dir {
            // Else it could come to lie below itself.
            after.extend(way.iter().copied());
        }
        let slot = named.last_slot(start);
        let id = self.put_moved(moved, (to.0, start), &named, &after, None)?;
        // The old name may be the same in another case.
        let old = self.leave(moved.dir, moved.going.slot)?;
        self.enter(to.0, slot, named.slots(), cached)?;
        if moved.dir != to.0 {
            self.turn(moved, to.0, id)?;
        }
        let before: Ids = way.into_iter().chain([id]).collect();
        let removed = self.slots().erase_entry(moved.dir, moved.going, &before)?;
        self.departures.note_names(self.core, moved.dir, &old, removed);
        self.departures.note_leaving(self.core, moved.ino, removed);
        self.departures.note_arriving(self.core, to.0, removed);
        self.inodes.numbers_mut().settle(moved.ino, (to.0, slot));
        self.touch_dir(moved.dir)?;
        self.touch_dir(to.0)
    }

    /// Writes the new entry of a file.
    fn put_moved(
        &mut self,
        moved: Moved,
        (dir, start): (Ino, u32),
        named: &NewNames,
        after: &[ChangeId],
        going: Option<RemovedEntry>,
    ) -> Result<ChangeId, FsError> {
        let role = if moved.is_dir { Role::EntryAddDirectory } else { Role::EntryAdd };
        note_renamed(self.core, moved)?;
        let entry = self.inodes.encode(self.core.node(moved.ino)?, named.short());
        let id = self.slots().add_entry((dir, start), (named, &entry), role, after, going)?;
        self.core.node(moved.ino)?.pending.sized = id;
        Ok(id)
    }

    /// Renames within a sector, if there is room: over the old slots, or beside them. False
    /// if there is none.
    fn rename_beside(&mut self, moved: Moved, name: &[u8]) -> Result<bool, FsError> {
        let (dir, going) = (moved.dir, moved.going);
        let near = self.boot.slots_beside(going.slot);
        let kept = self.dir(dir)?;
        let old = kept.entry(going.slot).ok_or_else(|| gone(dir))?.clone();
        // The old name goes in the same change: its short name is free.
        kept.give_short(&old.short);
        let named = NewNames::new(kept, name);
        kept.take_short(old.short);
        let named = named?;
        let count = going.slot - going.start + 1;
        let in_place = near.contains(&going.start) && named.slots() == count;
        let beside = kept.find_free_at(named.slots(), near);
        let (start, with) = match beside {
            _ if in_place => (going.start, None),
            Some(start) => (start, Some(going)),
            None => return Ok(false),
        };
        let cached = named.entry(start, moved.is_dir);
        let mut after = Ids::from_slice(&[self.core.node(moved.ino)?.pending.sized]);
        after.extend(self.departures.of_names(self.core, dir, &cached));
        let id = self.put_moved(moved, (dir, start), &named, &after, with)?;
        if with.is_some() {
            self.slots().erase_pieces(dir, going, id)?;
        }
        self.leave(dir, going.slot)?;
        let slot = named.last_slot(start);
        self.enter(dir, slot, named.slots(), cached)?;
        self.departures.note_names(self.core, dir, &old, id);
        self.inodes.numbers_mut().settle(moved.ino, (dir, slot));
        Ok(true)
    }

    fn rename_over(
        &mut self,
        moved: Moved,
        to: Name<'_>,
        (other, slot): (Ino, u32),
    ) -> Result<(), FsError> {
        debug_assert_ne!(moved.ino, other, "a file does not replace itself");
        self.refuse_loop(moved, to.0)?;
        let other_is_dir = self.core.node(other)?.kind == FileKind::Directory;
        let mut after = Ids::from_slice(&[self.core.node(moved.ino)?.pending.sized]);
        match (moved.is_dir, other_is_dir) {
            (true, false) => return Err(FsError::NotDirectory(text(to.1))),
            (false, true) => return Err(FsError::IsDirectory(text(to.1))),
            (true, true) => after.extend(self.emptied(other, to.1)?),
            (false, false) => {}
        }
        // The replaced file's chain must be read before its name goes.
        self.chain(other)?;
        if moved.dir != to.0 {
            after.extend(self.way_to(to.0));
        }
        let going = moved.going;
        let together =
            moved.dir == to.0 && self.boot.slot_sector(slot) == self.boot.slot_sector(going.slot);
        let edits = self.edits_over(moved, (to.0, slot), together)?;
        let first = if together || moved.is_dir {
            None
        } else {
            let first = self.slots().erase_entry(moved.dir, going, &after)?;
            after.push(first);
            Some(first)
        };
        let edits: Vec<&Edit> = edits.iter().collect();
        let id = self.slots().put_edits(to.0, &edits, Role::EntryChange, &after)?;
        let removed = match first {
            _ if together => {
                self.slots().erase_pieces(moved.dir, going, id)?;
                id
            }
            Some(first) => {
                self.clusters.unnamed().note(self.core, id, &Chain::default());
                first
            }
            None => {
                let before: Ids = self.way_to(to.0).into_iter().chain([id]).collect();
                let removed = self.slots().erase_entry(moved.dir, going, &before)?;
                self.departures.note_leaving(self.core, moved.ino, removed);
                self.departures.note_arriving(self.core, to.0, removed);
                removed
            }
        };
        self.core.node(moved.ino)?.pending.sized = id;
        let old = self.leave(moved.dir, going.slot)?;
        self.departures.note_names(self.core, moved.dir, &old, removed);
        if moved.dir != to.0 {
            self.turn(moved, to.0, id)?;
        }
        if other_is_dir {
            self.count_children(to.0)?;
        }
        self.lose(other, id)?;
        self.inodes.numbers_mut().settle(moved.ino, (to.0, slot));
        self.touch_dir(moved.dir)?;
        self.touch_dir(to.0)
    }

    /// The edits that make an entry that of a moved file; with its old entry's in the same sector,
    /// if that goes `together` with them.
    fn edits_over(
        &mut self,
        moved: Moved,
        (dir, slot): (Ino, u32),
        together: bool,
    ) -> Result<Vec<Edit>, FsError> {
        let kept = self.dir(dir)?;
        let short = kept.entry(slot).ok_or_else(|| gone(dir))?.short;
        note_renamed(self.core, moved)?;
        let entry = self.inodes.encode(self.core.node(moved.ino)?, short);
        // All bytes but the name, and the flags of its case.
        let rest = offset_of!(ShortEntry, DIR_CrtTimeTenth);
        let attr = offset_of!(ShortEntry, DIR_Attr);
        let piece = |from: usize, to: usize| Edit {
            slot,
            within: from,
            bytes: entry.get(from..to).unwrap_or_default().to_vec(),
        };
        let mut edits = vec![piece(attr, attr + 1), piece(rest, entry.len())];
        if together {
            let sector = self.boot.slot_sector(slot);
            let gone = moved.going.edits();
            edits.extend(gone.filter(|edit| self.boot.slot_sector(edit.slot) == sector));
        }
        Ok(edits)
    }

    /// Sets the parent of a directory, once a change is on the disk.
    fn turn(&mut self, moved: Moved, to: Ino, after: ChangeId) -> Result<(), FsError> {
        if !moved.is_dir {
            return Ok(());
        }
        debug_assert_ne!(moved.dir, to, "the parent is another");
        let parent = self.named_cluster(to)?;
        let (sector, skip) = self.inodes.slot_place(self.core, (moved.ino, 1))?;
        let at = |field: usize| byte(skip + field);
        let low = low16(parent).to_le_bytes();
        let high = low16(parent >> 16).to_le_bytes();
        let low = Piece { offset: at(offset_of!(ShortEntry, DIR_FstClusLO)), bytes: &low };
        let high = Piece { offset: at(offset_of!(ShortEntry, DIR_FstClusHI)), bytes: &high };
        let pieces: &[Piece<'_>] = if self.boot.is_fat32() { &[low, high] } else { &[low] };
        self.core.cache.changes().change(sector, pieces, Role::EntryChange, &[after])?;
        self.count_children(moved.dir)?;
        self.count_children(to)
    }

    /// Changes that must be on the disk for a directory to be reached from the root, and in no
    /// other way.
    fn way_to(&mut self, dir: Ino) -> Ids {
        let mut ids = Ids::new();
        for here in self.inodes.numbers().ancestors(dir) {
            ids.extend(self.departures.leaving(self.core, here));
            let named = self.core.nodes.get(&here).map(|node| node.pending.sized);
            ids.extend(named.filter(|&id| !self.core.cache.is_committed(id)));
        }
        ids
    }
}
