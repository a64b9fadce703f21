//! Names that were added or removed: how many links a file has is the number before, less names that
//! were removed, and with each name that is found.

use super::reclaim::ListedName;
use super::records::Slot;
use super::tables::{Pass, Remaining};
use crate::entry::{INO, kind_of};
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, PARENT_AT};
use seekless_fs::field::{index, invalid, range, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{Extent, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// An entry of a directory.
pub(super) struct FoundEntry {
    pub(super) ino: Ino,
    pub(super) kind: Option<FileKind>,
    /// It is `.` or `..`.
    pub(super) is_dot: bool,
    /// The fragment that contains it, and the byte there at which it begins.
    run: Extent,
    at: usize,
}

impl Pass {
    /// Leaves each directory with records of names one name. Returns the first directory whose parent
    /// neither records nor names show, if there is one.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the records contradict a directory or an inode.
    pub(super) fn settle_directories(&mut self) -> Result<Option<Ino>, FsError> {
        let files: Vec<Ino> = self.names.keys().copied().collect();
        let mut parents: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for (&parent, names) in &self.names {
            for slot in names.places.keys().filter(|slot| slot.at == PARENT_AT) {
                parents.entry(slot.dir).or_default().insert(parent);
            }
        }
        for ino in files {
            if !self.settle_directory(ino, parents.remove(&ino).unwrap_or_default())? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// Counts the links of all files with records of names, and releases those that have none.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the records contradict a directory or an inode.
    pub(super) fn settle_names(&mut self) -> Result<(), FsError> {
        let files: Vec<Ino> = self.names.keys().copied().collect();
        for ino in files {
            self.count_links(ino)?;
            self.drop_names()?;
        }
        Ok(())
    }

    /// Sees that a directory that was moved has one name, and that `..` leads to where that is. FreeBSD
    /// leaves both names to the next full check. `parents` are the directories that records say `..`
    /// leads to, or led to.
    ///
    /// Returns whether records or names show its parent.
    fn settle_directory(&mut self, ino: Ino, mut parents: BTreeSet<Ino>) -> Result<bool, FsError> {
        let Some(names) = self.names.get(&ino) else { return Ok(true) };
        if names.base.is_none_or(|(_, kind)| kind != FileKind::Directory) {
            return Ok(true);
        }
        let is_emptied = names.places.contains_key(&Slot { dir: ino, at: 0 });
        let mut found = Vec::new();
        for (slot, name) in names.places.clone() {
            let entry = self.entry(slot)?.filter(|entry| entry.ino == ino && !entry.is_dot);
            found.extend(entry.map(|_| (slot, name.is_open)));
        }
        let to_parent = Slot { dir: ino, at: PARENT_AT };
        let Some(parent) = self.entry(to_parent)?.map(|entry| entry.ino) else { return Ok(true) };
        let best = found.iter().max_by_key(|(slot, is_open)| (slot.dir == parent, *is_open));
        let Some(&(mut kept, _)) = best else { return Ok(true) };
        // The journal removes all names that it has: another one may be older than the journal.
        if !is_emptied && found.iter().all(|(_, is_open)| !is_open) {
            parents.insert(parent);
            kept = self.earlier_name(ino, &parents)?.unwrap_or(kept);
        }
        for (slot, _) in found {
            if slot != kept {
                self.set_entry(slot, Ino::ZERO)?;
            }
        }
        if kept.dir == parent {
            return Ok(true);
        }
        let is_known = |ino| {
            let names = self.names.get(&ino);
            names.is_some_and(|names| names.places.contains_key(&to_parent))
        };
        if !is_known(parent) || !is_known(kept.dir) {
            return Ok(false);
        }
        self.set_entry(to_parent, kept.dir)?;
        Ok(true)
    }

    /// The name of a directory in one of its parents that no record is about.
    fn earlier_name(&mut self, ino: Ino, parents: &BTreeSet<Ino>) -> Result<Option<Slot>, FsError> {
        for &parent in parents {
            if !self.listed.contains_key(&parent) {
                let mut all: BTreeMap<Ino, Vec<Slot>> = BTreeMap::new();
                let dir = self.staged.inode(parent)?;
                if FileKind::from_mode(dir.mode()) == Some(FileKind::Directory) {
                    let names = self.names_in(&dir)?.into_iter();
                    let is_child = |name: &ListedName| {
                        name.kind == Some(FileKind::Directory) && !name.is_parent
                    };
                    for name in names.filter(is_child) {
                        all.entry(name.ino).or_default().push(name.slot);
                    }
                }
                self.listed.insert(parent, all);
            }
            let known = self.names.get(&ino).map(|names| &names.places);
            let slots = self.listed.get(&parent).and_then(|listed| listed.get(&ino));
            let is_new = |slot: &&Slot| known.is_none_or(|known| !known.contains_key(slot));
            if let Some(&slot) = slots.into_iter().flatten().find(is_new) {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn count_links(&mut self, ino: Ino) -> Result<(), FsError> {
        let Some(names) = self.names.get(&ino) else { return Ok(()) };
        let Some((base, _)) = names.base else { return Ok(()) };
        let (removed, places) = (names.removed, names.places.clone());
        let (mut found, mut dots) = (0u32, 0u32);
        for (slot, name) in places {
            let Some(entry) = self.entry(slot)?.filter(|entry| entry.ino == ino) else { continue };
            if entry.kind != Some(name.kind) {
                let place = Location::of("directory").in_inode(slot.dir);
                let kind = entry.kind.map_or(0, |kind| u64::from(crate::entry::code_of(kind)));
                return Err(invalid("d_type", kind, place));
            }
            found += 1;
            dots += u32::from(entry.is_dot);
        }
        let links = (u32::from(base) + found).checked_sub(removed);
        let place = Location::of("journal").in_inode(ino);
        let wrong =
            || range("removed names", removed.into(), u64::from(base) + u64::from(found), place);
        self.remain(ino, Remaining { links: links.ok_or_else(wrong)?, dots })
    }

    /// Notes the links that a file has, and releases it if these are too few.
    fn remain(&mut self, ino: Ino, remaining: Remaining) -> Result<(), FsError> {
        let Some(names) = self.names.get_mut(&ino) else { return Ok(()) };
        let Some((_, kind)) = names.base else { return Ok(()) };
        names.remaining = Some(remaining);
        let has_two_kinds = names.has_two_kinds;
        if has_two_kinds {
            self.staged.groups.doubt(&self.staged.volume, ino)?;
        }
        let is_directory = kind == FileKind::Directory;
        let mut links = remaining.links;
        if is_directory && links == 1 && remaining.dots == 0 {
            // It was emptied before its name was cleared.
            links = 0;
            self.clear_name(ino, &self.slots(ino))?;
        }
        if is_directory && links == remaining.dots {
            links = 0;
            // Its own links count no more: directories in it need not lower them.
            for slot in self.slots(ino).iter().filter(|slot| slot.at == PARENT_AT) {
                self.detach(slot.dir, ino)?;
            }
        }
        if let Some(names) = self.names.get_mut(&ino) {
            names.remaining = Some(Remaining { links, ..remaining });
        }
        let inode = self.staged.inode(ino)?;
        if inode.mode() == 0 {
            return self.staged.groups.free_inode(&self.staged.volume, ino, is_directory);
        }
        if links < fewest(&inode) {
            return self.reclaim(&inode);
        }
        self.staged.groups.use_inode(&self.staged.volume, ino)?;
        self.set_links(&inode, links)
    }

    /// The places where names of a file may be. Only its last link needs them.
    fn slots(&self, ino: Ino) -> Vec<Slot> {
        self.names.get(&ino).map(|names| names.places.keys().copied().collect()).unwrap_or_default()
    }

    fn set_links(&mut self, inode: &Inode, links: u32) -> Result<(), FsError> {
        let place = Location::of("inode").in_inode(inode.ino);
        let most = u64::from(i16::MAX.unsigned_abs());
        let links =
            i16::try_from(links).map_err(|_| range("di_nlink", links.into(), most, place))?;
        if links != inode.nlink() {
            self.staged.change(inode.ino, |inode| inode.set_links(links.unsigned_abs()))?;
        }
        Ok(())
    }

    /// Clears the name of a directory that is not to have one.
    fn clear_name(&mut self, ino: Ino, slots: &[Slot]) -> Result<(), FsError> {
        for &slot in slots {
            if self.entry(slot)?.is_some_and(|entry| entry.ino == ino) {
                return self.set_entry(slot, Ino::ZERO);
            }
        }
        Ok(())
    }

    /// Lets an entry that is used lead to another inode, or to none.
    fn set_entry(&mut self, slot: Slot, ino: Ino) -> Result<(), FsError> {
        let Some(entry) = self.entry(slot)? else { return Ok(()) };
        let mut bytes = self.staged.contents(entry.run)?;
        self.staged.volume.sb.order.put_u32(&mut bytes, entry.at + INO.0, ino.get());
        self.staged.put_contents(entry.run, &bytes);
        Ok(())
    }

    /// Notes that `..` of a directory is not counted in its parent, if it leads there.
    fn detach(&mut self, ino: Ino, parent: Ino) -> Result<(), FsError> {
        let entry = self.entry(Slot { dir: ino, at: PARENT_AT })?;
        if entry.is_some_and(|entry| entry.ino == parent) {
            self.detached.insert(ino);
        }
        Ok(())
    }

    /// The entry that begins at a byte of a directory, if it is one and has it.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a directory block that is none.
    pub(super) fn entry(&mut self, slot: Slot) -> Result<Option<FoundEntry>, FsError> {
        let dir = self.staged.inode(slot.dir)?;
        let is_directory = FileKind::from_mode(dir.mode()) == Some(FileKind::Directory);
        if !is_directory || slot.at.checked_add(PARENT_AT).is_none_or(|end| end > dir.len) {
            return Ok(None);
        }
        let sb = &self.staged.volume.sb;
        let (block, within) = (slot.at / u64::from(sb.bsize), slot.at % u64::from(sb.bsize));
        let Some(run) = self.staged.mapped(&dir, super::parts::FilePart::Data(block))? else {
            return Ok(None);
        };
        let (fsize, sb) = (u64::from(self.staged.volume.sb.fsize), &self.staged.volume.sb);
        // A unit lies in one fragment.
        let run = Extent::new(run.start + within / fsize, 1);
        let within = within % fsize;
        let unit = &self.staged.unit(run.start, within)?;
        let start = index(within) / DIRECTORY_UNIT * DIRECTORY_UNIT;
        if unit.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let place = Location::of("directory").in_inode(slot.dir).in_block(run.start);
        let wanted = index(within) - start;
        let mut at = 0;
        while at < wanted {
            at = sb.bare_entry_at(unit, at, place)?.end();
        }
        if at != wanted {
            return Ok(None);
        }
        let entry = sb.bare_entry_at(unit, at, place)?;
        if !entry.is_used() {
            return Ok(None);
        }
        debug_assert!(wide(start + at) < run.len * u64::from(sb.fsize), "it lies in its block");
        Ok(Some(FoundEntry {
            ino: entry.ino,
            kind: kind_of(entry.kind),
            is_dot: entry.ino == slot.dir || entry.name == b"..",
            run,
            at: start + at,
        }))
    }

    /// Drops the names of directories that were reclaimed.
    pub(super) fn drop_names(&mut self) -> Result<(), FsError> {
        while let Some((slot, ino, is_parent)) = self.dropped.pop() {
            if !is_parent {
                self.detach(ino, slot.dir)?;
            }
            match self.names.get_mut(&ino).filter(|names| names.base.is_some()) {
                None => self.lower(ino)?,
                Some(names) => {
                    // No record has it: a second recovery would not find it in a directory that was
                    // released already.
                    self.is_relative |= !names.places.contains_key(&slot);
                    match names.remaining {
                        Some(remaining) if remaining.links > 0 => {
                            let links = remaining.links - 1;
                            let dots = remaining.dots.checked_sub(u32::from(is_parent));
                            let wrong = || {
                                invalid(
                                    "links",
                                    links.into(),
                                    Location::of("journal").in_inode(ino),
                                )
                            };
                            let dots = dots.ok_or_else(wrong)?;
                            self.remain(ino, Remaining { links, dots })?;
                        }
                        // It was reclaimed before.
                        Some(_) => {}
                        // Its own records will say that the name is not there.
                        None if names.places.contains_key(&slot) => {}
                        None => names.removed += 1,
                    }
                }
            }
        }
        Ok(())
    }

    /// Lowers the links of a file without records.
    fn lower(&mut self, ino: Ino) -> Result<(), FsError> {
        let inode = self.staged.inode(ino)?;
        let place = Location::of("inode").in_inode(ino);
        let links = u32::try_from(inode.nlink()).ok().and_then(|links| links.checked_sub(1));
        let wrong = || invalid("di_nlink", u64::from(inode.nlink().cast_unsigned()), place);
        let links = links.filter(|_| inode.mode() != 0).ok_or_else(wrong)?;
        self.is_relative = true;
        if links < fewest(&inode) {
            return self.reclaim(&inode);
        }
        self.set_links(&inode, links)
    }
}

/// The fewest links of a file that stays.
fn fewest(inode: &Inode) -> u32 {
    match FileKind::from_mode(inode.mode()) {
        Some(FileKind::Directory) => 2,
        _ => 1,
    }
}
