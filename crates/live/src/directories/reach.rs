//! The way from the root to a directory, and the changes that must be on the disk for it.

use crate::directories::Directories;
use crate::{Codec, Ids, Linked};
use seekless_cache::ChangeId;
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FsError, Location};
use seekless_units::Ino;
use std::ops::Range;

impl<F: Linked> Directories<'_, F> {
    /// Notes the change that takes a name from the disk, and the byte of its directory at which the
    /// entry begins.
    pub(crate) fn note_departure(&mut self, dir: Ino, name: &[u8], at: u64, by: ChangeId) {
        self.departures.note(&self.volume.core.cache, dir, name, at, by);
    }

    /// Keeps chains of changes short where names go and come back: if many have come back early,
    /// waits until the name about to be made again is gone from the disk.
    pub(crate) fn settle_return(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match self.departures.returning(&self.volume.core.cache, dir, name) {
            Some(by) => self.volume.core.cache.settle(&[by]),
            None => Ok(()),
        }
    }

    /// The change that a new name in some bytes of a directory waits for: the removal of an older
    /// entry of the same name.
    pub(crate) fn departure(&self, dir: Ino, name: &[u8], over: &[Range<u64>]) -> Option<ChangeId> {
        self.departures.of_name(&self.volume.core.cache, dir, name, over)
    }

    /// The directory that a directory's `..` leads to.
    pub(crate) fn parent_of(&mut self, dir: Ino) -> Result<Ino, FsError> {
        let place = Location::of("directory").in_inode(dir);
        self.volume.dir_node(dir)?;
        let (_, unit) = self.unit_bytes(dir, 0)?;
        let len = unit.len();
        match self.volume.format.codec().entries(&unit, place).nth(1) {
            Some(Ok(entry)) if entry.name == b".." => Ok(entry.ino),
            Some(Err(error)) => Err(error),
            _ => Err(invalid("..", wide(len), place)),
        }
    }

    /// The changes that must be on the disk for a directory to be reached from the root as it is
    /// now, and in no other way: its names and those of the directories above it, and that older
    /// names of these are gone. A check that finds a directory by two names keeps one of them, and
    /// it may be the older.
    pub(crate) fn way_to(&mut self, dir: Ino) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        let mut at = dir;
        // No path is longer than there are inodes.
        let limits = *self.volume.format.limits();
        for _ in 0..limits.inodes {
            if at == limits.root {
                break;
            }
            ids.extend(self.volume.leaving(at)?);
            let cache = &self.volume.core.cache;
            if let Some(node) = self.volume.core.nodes.get(&at) {
                ids.extend(node.pending.named_by.left(cache).map(|(_, id)| id));
                ids.extend(Some(node.pending.linked).filter(|&id| !cache.is_committed(id)));
            }
            let above = self.parent_of(at)?;
            if above == at {
                break;
            }
            at = above;
        }
        Ok(ids)
    }
}
