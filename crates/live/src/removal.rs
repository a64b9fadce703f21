//! Files taken apart once they have no name and are not open.

use crate::actions::Action;
use crate::fault::Fault;
use crate::{Ids, Linked, Live};
use seekless_cache::{ChangeId, Kind};
use seekless_fs::field::range;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

/// Runs of fragments. Most files have one.
pub type Runs = SmallVec<[Extent; 1]>;

/// Runs that leave a file, and the changes that take them out of its map.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The runs.
    pub runs: Runs,
    /// The changes that must be on the disk for nothing to lead to them, besides the change of the
    /// inode.
    pub cleared: Ids,
    /// Their size, in units of block numbers.
    pub blocks: u64,
}

impl Cut {
    /// Adds a run. A file that has more than its volume, which is `limit`, has some
    /// of it twice.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] at `place` for such a file.
    pub fn push(&mut self, run: Extent, limit: u64, place: Location) -> Result<(), FsError> {
        self.blocks = self.blocks.saturating_add(run.len);
        if self.blocks > limit {
            return Err(range("mapped blocks", self.blocks, limit, place));
        }
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len = last.len.saturating_add(run.len),
            _ => self.runs.push(run),
        }
        Ok(())
    }
}

impl<F: Linked> Live<F> {
    /// Takes a file apart that has no name and is not open.
    pub(crate) fn destroy(&mut self, ino: Ino) -> Result<(), FsError> {
        let parent = self.core.nodes.get(&ino).and_then(|node| node.counted_in);
        let cleared = self.take_apart(ino)?;
        if let Some(parent) = parent {
            self.core.cache.defer(&[cleared], Kind::NameRemoved, Action::DropLink(parent));
        }
        Ok(())
    }

    /// Takes a file apart. The returned change must be on the disk for the file to be gone.
    fn take_apart(&mut self, ino: Ino) -> Result<ChangeId, FsError> {
        self.drop_delayed(ino);
        self.cut_in_pieces(ino, 0)?;
        self.node(ino)?;
        let cut = self.format.everything(&mut self.core, ino)?;
        let Some(node) = self.core.nodes.get(&ino) else { return Ok(ChangeId::COMMITTED) };
        let is_directory = node.kind == FileKind::Directory;
        self.drop_index(ino);
        self.uncount(ino);
        if self.never_was(ino) {
            for &run in &cut.runs {
                self.core.cache.forget(run, ChangeId::COMMITTED);
            }
            self.core.nodes.remove(&ino);
            self.format.free_runs(&mut self.core, &cut.runs)?;
            self.format.give_inode(&mut self.core, ino, is_directory)?;
            return Ok(ChangeId::COMMITTED);
        }
        // Names that the disk still has lead to it until they are gone there, and one
        // of them may be another file's by now.
        let leaving = if self.counts_last() { self.leaving(ino)? } else { Ids::new() };
        let cleared =
            self.format.put_cleared(&mut self.core, ino, !cut.runs.is_empty(), &leaving)?;
        self.core.nodes.remove(&ino);
        self.core.let_go(cleared, cut);
        self.core.pending.add(0, 1);
        let first: Ids = leaving.into_iter().chain([cleared]).collect();
        let first = self.unless(Fault::InodeReusedEarly, first);
        self.core.cache.defer(&first, Kind::FreeInode, Action::FreeInode { ino, is_directory });
        Ok(cleared)
    }

    /// Undoes all changes of a new inode, if the disk has nothing of it. Where it may have the
    /// first of them none is undone: a dependant of a later one, say the free of a moved tail, must
    /// not make the disk lead elsewhere.
    fn never_was(&mut self, ino: Ino) -> bool {
        let Some(node) = self.core.nodes.get(&ino) else { return false };
        let mut fresh = node.fresh.clone();
        let cache = &mut self.core.cache;
        if fresh.first().is_none_or(|&init| cache.is_committed(init)) {
            return false;
        }
        fresh.retain(|id| !cache.is_committed(*id));
        cache.discard_all(&fresh)
    }
}
