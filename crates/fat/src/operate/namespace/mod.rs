//! Names and the files that they are: operations on both.

use crate::boot::Boot;
use crate::files::ROOT;
use crate::operate::chain::Chain;
use crate::operate::clusters::Clusters;
use crate::operate::departures::Departures;
use crate::operate::directory::{CachedEntry, Dir};
use crate::operate::inodes::Inodes;
use crate::operate::layout::DirectoryLayout;
use crate::operate::map::Core;
use crate::operate::reach::Reach;
use crate::operate::slots::SlotWriter;
use seekless_fs::{DirEntry, FileKind, FsError};
use seekless_units::{Extent, Ino};
use std::ops::ControlFlow;
use std::sync::Arc;

mod make;
mod remove;
mod rename;

/// Operations on names, each within one of the cache.
pub(in crate::operate) struct Namespace<'a> {
    core: &'a mut Core,
    boot: Arc<Boot>,
    clusters: &'a mut Clusters,
    inodes: &'a mut Inodes,
    departures: &'a mut Departures,
    reach: &'a mut Reach,
}

impl<'a> Namespace<'a> {
    pub(in crate::operate) fn new(
        core: &'a mut Core,
        boot: &Arc<Boot>,
        clusters: &'a mut Clusters,
        inodes: &'a mut Inodes,
        departures: &'a mut Departures,
        reach: &'a mut Reach,
    ) -> Self {
        Self { core, boot: Arc::clone(boot), clusters, inodes, departures, reach }
    }

    /// The file of a name.
    pub(in crate::operate) fn find(
        &mut self,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<Ino>, FsError> {
        self.inodes.hold_dir(self.core, self.clusters, dir)?;
        match name {
            b"." => Ok(Some(dir)),
            b".." => Ok(Some(self.inodes.numbers().parent(dir))),
            _ => match self.inodes.slot_of(self.core, dir, name)? {
                Some(slot) => self.inodes.numbers_mut().at((dir, slot)).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Visits the entries of a directory behind a cookie: 1 for `.` and 2 for `..`, and n + 3 for
    /// the entry in slot n.
    pub(in crate::operate) fn list(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.inodes.hold_dir(self.core, self.clusters, dir)?;
        let kind = Some(FileKind::Directory);
        let parent = self.inodes.numbers().parent(dir);
        for (cookie, name, ino) in [(1, &b"."[..], dir), (2, b"..", parent)] {
            if after < cookie && visit(DirEntry { name, ino, kind, cookie }).is_break() {
                return Ok(());
            }
        }
        let Ok(from) = u32::try_from(after.max(2) - 2) else { return Ok(()) };
        let entries = self.dir(dir)?.entries_from(from);
        let found: Vec<_> =
            entries.map(|(slot, entry)| (slot, entry.name.clone(), entry.is_dir)).collect();
        for (slot, name, is_dir) in found {
            let ino = self.inodes.numbers_mut().at((dir, slot))?;
            let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
            let cookie = u64::from(slot) + 3;
            if visit(DirEntry { name: &name, ino, kind: Some(kind), cookie }).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes the entry, and those of the directories above it, each after all that it leads to.
    /// Where no order is kept, the links of their chains are written first.
    pub(in crate::operate) fn settle(&mut self, ino: Ino) -> Result<(), FsError> {
        let keeps_order = self.core.cache.blocks().config().discipline.keeps_graph();
        let mut at = ino;
        loop {
            self.inodes.hold(self.core, self.clusters, at)?;
            let mut runs = Vec::new();
            if self.core.node(at)?.kind == FileKind::Directory {
                runs.extend(self.dir_runs(at)?.into_iter().filter(|_| at == ino));
            }
            if !keeps_order && let Some(chain) = &self.core.node(at)?.map.chain {
                runs.extend(self.clusters.table().runs(chain));
            }
            self.core.cache.complete_runs(&runs)?;
            if let Some((sector, _)) = self.inodes.entry_at(self.core, self.clusters, at)? {
                self.core.cache.complete_runs(&[Extent::new(sector, 1)])?;
            }
            // An older entry of the file may be the one that a check keeps.
            let mut leaving = self.departures.leaving(self.core, at);
            if at == ino {
                leaving.extend(self.departures.arriving(self.core, at));
            }
            self.core.cache.settle(&leaving)?;
            if at == ROOT || self.inodes.numbers().place(at).is_none() {
                return Ok(());
            }
            at = self.inodes.numbers().parent(at);
        }
    }

    /// The writer of directory entries.
    fn slots(&mut self) -> SlotWriter<'_> {
        SlotWriter::new(self.core, &self.boot, self.clusters, self.inodes, self.reach)
    }

    /// A directory in memory.
    fn dir(&mut self, dir: Ino) -> Result<&mut Dir, FsError> {
        self.inodes.dir(self.core, dir)
    }

    /// The file of a name, in memory, and its slot.
    fn named(&mut self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, u32)>, FsError> {
        self.inodes.named(self.core, self.clusters, dir, name)
    }

    /// The chain of a file.
    fn chain(&mut self, ino: Ino) -> Result<&mut Chain, FsError> {
        self.inodes.chain(self.core, self.clusters, ino)
    }

    /// The runs of sectors of a directory.
    fn dir_runs(&mut self, dir: Ino) -> Result<Vec<Extent>, FsError> {
        let chain = self.core.node(dir)?.map.chain.as_ref();
        Ok(DirectoryLayout::new(&self.boot, chain).runs())
    }

    /// Loads a directory whose names are to be changed.
    fn open_dir(&mut self, dir: Ino) -> Result<(), FsError> {
        self.inodes.hold_dir(self.core, self.clusters, dir)?;
        if self.core.node(dir)?.effective == 0 {
            return Err(seekless_live::gone(dir));
        }
        Ok(())
    }

    /// Enters a file in slots of a directory.
    fn enter(
        &mut self,
        dir: Ino,
        slot: u32,
        count: u32,
        cached: CachedEntry,
    ) -> Result<(), FsError> {
        let start = cached.start;
        debug_assert_eq!(start + count, slot + 1, "the short entry is in the last slot");
        let kept = self.dir(dir)?;
        kept.use_slots(start, count);
        kept.enter(slot, cached);
        Ok(())
    }

    /// Counts the links of a directory of which a subdirectory was added or removed.
    fn count_children(&mut self, dir: Ino) -> Result<(), FsError> {
        self.inodes.count_children(self.core, dir)
    }

    /// Notes that a directory's names have changed.
    fn touch_dir(&mut self, dir: Ino) -> Result<(), FsError> {
        let now = self.core.now();
        self.core.node(dir)?.mtime = now;
        self.inodes.put_attributes(self.core, self.clusters, dir)
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
