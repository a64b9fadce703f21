//! Names made and removed in the order that a check of ext2 needs.
//!
//! `e2fsck -p` takes a name away that leads to an inode without links, and stops at
//! an inode with links that no name leads to. So on the disk an inode gets its
//! links once its first name is there, and loses them, and its blocks with them,
//! before its last name goes; that is one change of one sector, after which the
//! name leads to nothing. Its number is given to another file once the name is gone
//! too. How many links it has as long as it has some is of no account to the check:
//! that is counted again.
//!
//! Under soft updates a file has no fewer links than names there all the same, as
//! long as it has some: the volume may be used before it is checked, and a file that
//! loses its last link then must not have another name.
//!
//! A name that is replaced may be the last of its file, and neither the old file
//! nor the new one may be without a name. In one sector the two names change
//! places; else a third name leads to the old file meanwhile.

mod moving;

use crate::action::Action;
use crate::link_order::OrderedLinks;
use crate::namespace::not_found;
use crate::{Ids, Linked, Live, Node};
use seekless_cache::{ChangeId, Discipline, Kind, Role};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;

/// Names made and removed in the order that e2fsck needs.
pub(crate) struct LinksLast<'a, F: Linked> {
    live: &'a mut Live<F>,
}

impl<'a, F: OrderedLinks> LinksLast<'a, F> {
    /// The names of an image in use.
    pub(crate) fn new(live: &'a mut Live<F>) -> Self {
        Self { live }
    }
}

/// Links from which on a file must not be counted for more names for a while: one operation does so
/// for few.
pub(crate) const FULL: u16 = u16::MAX - 8;

/// Names for which a file is counted for a while, from which on they are waited for: each waits for
/// the one before it.
const MANY_HELD: u16 = 4096;

impl<F: OrderedLinks> LinksLast<'_, F> {
    /// Whether each of the states between two writes matters.
    pub(crate) fn is_ordered(&self) -> bool {
        self.live.volume.core.cache.blocks().config().discipline.orders_writes()
    }

    /// Whether a file that has links on the disk has no fewer than names there.
    fn counts_first(&self) -> bool {
        self.live.volume.core.cache.blocks().config().discipline == Discipline::SoftUpdates
    }

    /// Counts one more name of a file for a while, where that comes first. Returns the changes that
    /// must be on the disk for the file to be counted for the names that it has.
    pub(crate) fn hold(&mut self, ino: Ino) -> Result<Ids, FsError> {
        if !self.counts_first() || self.live.volume.node(ino)?.kind == FileKind::Directory {
            return self.links_of(ino);
        }
        // A few links more than the maximum fit into the field, and only damage fills it.
        let node = self.live.volume.node(ino)?;
        let Some(links) = node.links.checked_add(1) else { return self.links_of(ino) };
        node.links = links;
        node.held = node.held.saturating_add(1);
        // With it, all older changes of the inode are on the disk.
        let core = &mut self.live.volume.core;
        let counted = self.live.volume.format.put_links(core, ino, Role::LinkCount, &[])?;
        Ok(Ids::from_slice(&[counted]))
    }

    /// Makes room in the link count of a file, before anything is changed: if it has `most` links, or
    /// many for names that are going, these are waited for, until they are gone from the disk.
    pub(crate) fn make_room(&mut self, ino: Ino, most: u16) -> Result<(), FsError> {
        let node = self.live.volume.node(ino)?;
        let is_full = node.held > 0 && node.links >= most;
        if !is_full && node.held < MANY_HELD {
            return Ok(());
        }
        let going = self.live.volume.leaving(ino)?;
        self.live.volume.core.cache.settle(&going)?;
        self.live.run_actions()
    }

    /// Takes that back once some changes are on the disk.
    pub(crate) fn release(&mut self, ino: Ino, after: &[ChangeId]) -> Result<(), FsError> {
        if self.live.volume.node(ino)?.held == 0 {
            return Ok(());
        }
        let cache = &mut self.live.volume.core.cache;
        if after.iter().all(|&id| cache.is_committed(id)) {
            return self.drop_held(ino);
        }
        cache.changes().defer(after, Kind::NameRemoved, Action::DropHeld(ino));
        Ok(())
    }

    /// A name of a file is gone from the disk. The file may be gone as well, and its number may be
    /// another's, of which nothing is held.
    pub(crate) fn drop_held(&mut self, ino: Ino) -> Result<(), FsError> {
        let core = &mut self.live.volume.core;
        let Some(node) = core.nodes.get_mut(&ino).filter(|node| node.held > 0) else {
            return Ok(());
        };
        node.held -= 1;
        node.drop_link();
        // A recovery may have found that it had no other name.
        if node.links == 0 && node.holds == 0 {
            return self.live.destroy(ino);
        }
        self.live.volume.format.put_links(core, ino, Role::LinkDrop, &[]).map(drop)
    }

    /// A file has a name less, and stays; it is gone from the disk once some changes are there.
    fn count_fewer(&mut self, ino: Ino, after: &[ChangeId]) -> Result<(), FsError> {
        let counts_first = self.counts_first();
        let node = self.live.volume.node(ino)?;
        if counts_first {
            node.held = node.held.saturating_add(1);
            return self.release(ino, after);
        }
        node.drop_link();
        let core = &mut self.live.volume.core;
        self.live.volume.format.put_links(core, ino, Role::LinkDrop, after).map(drop)
    }

    /// A new inode has its first name once some changes are on the disk, and its
    /// links then: a name in a directory that nothing leads to is none.
    pub(crate) fn count_named(&mut self, ino: Ino, dir: Ino, named: &Ids) -> Result<(), FsError> {
        let mut after = named.clone();
        after.extend(self.live.directories().way_to(dir)?);
        let linked = self.live.volume.format.put_links(
            &mut self.live.volume.core,
            ino,
            Role::LinkCount,
            &after,
        )?;
        self.live.volume.node(ino)?.pending.linked = linked;
        self.note_links_due(dir, linked)
    }

    /// Notes the link-count update of a file named in a directory: a directory that is made durable
    /// is so with the files that its names lead to.
    pub(crate) fn note_links_due(&mut self, dir: Ino, linked: ChangeId) -> Result<(), FsError> {
        if self.live.volume.core.cache.is_committed(linked) {
            return Ok(());
        }
        self.live.volume.dir_node(dir)?;
        let cache = &self.live.volume.core.cache;
        if let Some(node) = self.live.volume.core.nodes.get_mut(&dir) {
            node.pending.links_due.note(cache, linked);
        }
        Ok(())
    }

    /// A file loses one of its names.
    pub(crate) fn withdraw(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        let node = self.live.volume.node(ino)?;
        node.drop_effective_link();
        if node.effective == 0 {
            return self.withdraw_last(dir, name, ino, &[]);
        }
        let own = self.live.directories().find(dir, name)?.map(|slot| slot.added);
        let mut others = self.names_of(ino)?;
        others.retain(|id| Some(*id) != own);
        let removed = self.live.directories().remove(dir, name, &others)?;
        self.note_gone(ino, removed)?;
        self.count_fewer(ino, removed.as_slice())?;
        self.live.volume.touch(ino)
    }

    /// The changes that must be on the disk for all names of a file to lead to it.
    fn names_of(&mut self, ino: Ino) -> Result<Ids, FsError> {
        self.live.volume.node(ino)?;
        let node = self.live.volume.core.nodes.get(&ino).ok_or_else(|| crate::gone(ino))?;
        let dirs = node.parents.clone();
        let mut ids: Ids =
            node.pending.named_by.left(&self.live.volume.core.cache).map(|(_, id)| id).collect();
        for dir in dirs {
            // A directory that the file once had a name in may be gone, and its number
            // be that of any other file.
            let is_directory =
                |node: &mut Node<F::Map>| node.kind == FileKind::Directory && node.effective > 0;
            if self.live.volume.is_there(dir)? && is_directory(self.live.volume.node(dir)?) {
                ids.extend(self.live.directories().way_to(dir)?);
            }
        }
        let cache = &self.live.volume.core.cache;
        ids.retain(|id| !cache.is_committed(*id));
        Ok(ids)
    }

    /// Notes the change that takes a name of a file from the disk: its inode is not reused before.
    pub(crate) fn note_gone(&mut self, ino: Ino, by: Option<ChangeId>) -> Result<(), FsError> {
        self.live.volume.node(ino)?;
        let node = self.live.volume.core.nodes.get_mut(&ino).ok_or_else(|| crate::gone(ino))?;
        by.into_iter().for_each(|by| node.pending.leaving.note(&self.live.volume.core.cache, by));
        Ok(())
    }

    /// A directory loses its name, which was empty.
    pub(crate) fn withdraw_dir(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        // Names that went from it to elsewhere must be there first.
        let mut before = self.live.directories().changes_in_dir(ino)?;
        before.extend(self.live.volume.leaving(ino)?);
        self.lose_child(dir)?;
        self.live.volume.node(ino)?.effective = 0;
        self.withdraw_last(dir, name, ino, &before)
    }

    /// A directory has one less in it, and `..` of that does not count any more.
    pub(crate) fn lose_child(&mut self, dir: Ino) -> Result<(), FsError> {
        self.live.volume.node(dir)?;
        if self.live.namespace().is_uncounted(dir)? {
            return Ok(());
        }
        let above = self.live.volume.node(dir)?;
        above.drop_effective_link();
        above.drop_link();
        self.live.volume.format.put_links(&mut self.live.volume.core, dir, Role::LinkDrop, &[])?;
        Ok(())
    }

    /// A file loses its last name, once some changes are on the disk: first there it loses its
    /// links and, unless it is open, its blocks.
    fn withdraw_last(
        &mut self,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        before: &[ChangeId],
    ) -> Result<(), FsError> {
        if self.take_back_name(dir, name, ino)? {
            if self.live.volume.node(ino)?.holds == 0 {
                return self.live.destroy(ino);
            }
            self.drop_last_link(ino, before)?;
            return self.live.volume.touch(ino);
        }
        // Names of this file that are still on the disk may lead to another by now.
        let mut after = self.live.volume.leaving(ino)?;
        let before: Ids = before.iter().chain(&after).copied().collect();
        let node = self.live.volume.node(ino)?;
        let is_directory = node.kind == FileKind::Directory;
        let goes = node.holds == 0;
        // A file that is taken apart in several transactions has no name in the first.
        if !goes || self.live.volume.core.cache.is_journalled() {
            let dropped = self.drop_last_link(ino, &before)?;
            let removed = self.live.directories().remove(dir, name, &[dropped])?;
            self.note_gone(ino, removed)?;
            return if goes { self.destroy_listed(ino) } else { self.live.volume.touch(ino) };
        }
        let cleared = self.clear(ino, &before)?;
        after.push(cleared);
        after.extend(self.live.directories().remove(dir, name, &[cleared])?);
        self.free_number(ino, is_directory, &after);
        Ok(())
    }

    /// A file has no links any more, once some changes are on the disk: until it is taken
    /// apart it is one that a crash leaves behind.
    fn drop_last_link(&mut self, ino: Ino, before: &[ChangeId]) -> Result<ChangeId, FsError> {
        let node = self.live.volume.node(ino)?;
        (node.links, node.held) = (0, 0);
        if self.live.volume.core.cache.is_journalled() {
            self.live.volume.note_orphan(ino, true)?;
        }
        self.live.volume.format.put_links(&mut self.live.volume.core, ino, Role::LinkCount, before)
    }

    /// Takes apart a file on the list of orphans, where it stays if it is damaged: its name is gone
    /// all the same.
    pub(crate) fn destroy_listed(&mut self, ino: Ino) -> Result<(), FsError> {
        if let Err(error) = self.live.volume.format.runs_of(&mut self.live.volume.core, ino) {
            return match error {
                FsError::Corrupt { .. } => self.live.volume.touch(ino),
                error => Err(error),
            };
        }
        self.live.destroy(ino)
    }

    /// Undoes a new name, and that its file was counted for it, if the disk has
    /// neither.
    fn take_back_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<bool, FsError> {
        let linked = self.live.volume.node(ino)?.pending.linked;
        let Some(slot) = self.live.directories().find(dir, name)? else {
            return Err(not_found(name));
        };
        let cache = &mut self.live.volume.core.cache;
        let either = cache.is_committed(slot.added) || cache.is_committed(linked);
        if either || !cache.changes().discard(linked) {
            return Ok(false);
        }
        // Without it the inode has no links on the disk: so it shall be.
        self.live.volume.node(ino)?.pending.linked = ChangeId::COMMITTED;
        if !self.live.volume.core.cache.changes().revert(slot.added) {
            return Ok(false);
        }
        self.live.directories().leave_at(dir, slot, name)?;
        Ok(true)
    }

    /// Takes a file apart that is to lose its last name, once some changes are on the disk. The
    /// returned change must be there for its name to go.
    fn clear(&mut self, ino: Ino, before: &[ChangeId]) -> Result<ChangeId, FsError> {
        self.live.volume.drop_delayed(ino);
        self.live.volume.node(ino)?;
        let cut = self.live.volume.format.everything(&mut self.live.volume.core, ino)?;
        self.live.directories().drop_index(ino);
        let has_blocks = !cut.runs.is_empty();
        let cleared = self.live.volume.format.put_cleared(
            &mut self.live.volume.core,
            ino,
            has_blocks,
            before,
        )?;
        self.live.volume.core.nodes.remove(&ino);
        self.live.volume.core.free_cut(cleared, cut);
        Ok(cleared)
    }

    /// Gives the number of an inode back, once nothing on the disk leads to it.
    fn free_number(&mut self, ino: Ino, is_directory: bool, after: &[ChangeId]) {
        self.live.volume.core.pending.add(0, 1);
        self.live.volume.core.cache.changes().defer(
            after,
            Kind::FreeInode,
            Action::FreeInode { ino, is_directory },
        );
    }
}
