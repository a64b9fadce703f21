//! The changes of a file that are not on the disk yet, by the changes that wait for them.

use crate::action::Action;
use crate::pending::{Ids, Pending};
use crate::unsettled::Unsettled;
use seekless_cache::{Cache, ChangeId};
use seekless_units::Ino;
use smallvec::SmallVec;

/// Changes of a file that are not on the disk yet. A change that is on the disk is
/// [`ChangeId::COMMITTED`].
#[derive(Clone, Debug)]
pub struct PendingChanges {
    /// The changes of a new inode that the disk has nothing of yet, the oldest
    /// first.
    pub fresh: SmallVec<[ChangeId; 4]>,
    /// The change that gave it its length: block numbers behind an earlier end, and outside of the
    /// inode, wait for it.
    pub sized: ChangeId,
    /// Its names are there once these are on the disk, each in a directory.
    pub(crate) named_by: Pending<(Ino, ChangeId)>,
    /// Of a directory: its end can be reached once these are on the disk, which are joined.
    pub(crate) reached_by: Ids,
    /// Directories only: the change that lets its inode lead to the new place of its last moved
    /// names, in a format with directories that move; [`Self::reached_by`] includes it. Until then
    /// the disk shows the names of the old place.
    pub(crate) moved_by: ChangeId,
    /// Of a directory: the link of its parent that its `..` is counted as. Each
    /// of its names waits for that.
    pub(crate) parent_link: ChangeId,
    /// The change that gives a new inode its links, where these come after its first name.
    pub(crate) linked: ChangeId,
    /// Directories only: pending link-count updates of the files named in it, where these come
    /// after the names.
    pub(crate) links_due: Pending<ChangeId>,
    /// The changes that take older names of it from the disk.
    pub(crate) leaving: Pending<ChangeId>,
    /// Directories only: the changes that take the older names of directories moved into it from
    /// the disk.
    pub(crate) arriving: Pending<ChangeId>,
    /// Of a regular file: where its contents may not be on the disk.
    pub(crate) unsettled: Unsettled,
}

impl Default for PendingChanges {
    fn default() -> Self {
        Self {
            fresh: SmallVec::new(),
            sized: ChangeId::COMMITTED,
            named_by: Pending::default(),
            reached_by: Ids::new(),
            moved_by: ChangeId::COMMITTED,
            parent_link: ChangeId::COMMITTED,
            linked: ChangeId::COMMITTED,
            links_due: Pending::default(),
            leaving: Pending::default(),
            arriving: Pending::default(),
            unsettled: Unsettled::default(),
        }
    }
}

impl PendingChanges {
    /// Whether all of them are on the disk: then nothing is lost if they are forgotten.
    pub(crate) fn are_on_disk(&mut self, cache: &Cache<Action>) -> bool {
        let committed = |ids: &[ChangeId]| ids.iter().all(|&id| cache.is_committed(id));
        self.named_by.is_on_disk(cache)
            && committed(&self.reached_by)
            && self.links_due.is_on_disk(cache)
            && self.leaving.is_on_disk(cache)
            && self.arriving.is_on_disk(cache)
            && committed(&self.fresh)
            // Else a number in an indirect block would not wait for the length.
            && committed(&[self.sized, self.parent_link, self.linked, self.moved_by])
            && self.unsettled.is_settled(cache)
    }

    /// How many changes are noted in lists of their own.
    pub(crate) fn noted(&self) -> usize {
        self.fresh.len() ^ self.leaving.len() ^ self.named_by.len()
    }
}
