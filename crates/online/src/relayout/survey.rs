//! Locations of files on a mounted volume, and the blocks that the kernel can move.

use seekless_ext::ExtImage;
use seekless_fs::extents::difference;
use seekless_fs::plan::in_place::Occupied;
use seekless_fs::plan::{Demand, ObjectId, Placed, Run, Space};
use seekless_fs::{Attr, FileKind, FsError, Inspect, Mapping};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of [`Attr::flags`] (`FS_*_FL` of `include/uapi/linux/fs.h`).
mod flag {
    pub(crate) const IMMUTABLE: u32 = 0x10;
    pub(crate) const APPEND: u32 = 0x20;
    pub(crate) const ENCRYPT: u32 = 0x800;
    pub(crate) const JOURNAL_DATA: u32 = 0x4000;
    pub(crate) const EXTENT: u32 = 0x8_0000;
    pub(crate) const VERITY: u32 = 0x10_0000;
    pub(crate) const EA_INODE: u32 = 0x20_0000;
    pub(crate) const DAX: u32 = 0x200_0000;
}

/// The reason why the blocks of a file stay in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// A running program, which cannot be opened for writing.
    Running,
    /// Immutable, append-only, or sealed (fs-verity).
    Protected,
    /// A kind of file that the kernel does not move: not mapped by extents, encrypted, with data in
    /// the journal, DAX.
    Kind,
    /// A swap file.
    Swap,
    /// Its pages were in use, or it was leased.
    Busy,
    /// It was changed or removed meanwhile.
    Changed,
    /// The blocks for it could not be allocated.
    Room,
    /// Excluded, because its location is good for others.
    Kept,
}

impl Reason {
    /// Identifier in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running_programs",
            Self::Protected => "protected_files",
            Self::Kind => "unsupported_files",
            Self::Swap => "swap_files",
            Self::Busy => "busy_files",
            Self::Changed => "changed_files",
            Self::Room => "without_room",
            Self::Kept => "kept_files",
        }
    }

    /// Text for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Running => "programs that run",
            Self::Protected => "immutable or sealed files",
            Self::Kind => "files without extents etc.",
            Self::Swap => "swap files",
            Self::Busy => "files in use",
            Self::Changed => "files that were changed",
            Self::Room => "files without room",
            Self::Kept => "files of others",
        }
    }

    /// Whether it will still hold next time.
    pub(crate) const fn lasts(self) -> bool {
        matches!(self, Self::Running | Self::Protected | Self::Kind | Self::Swap | Self::Kept)
    }
}

/// A file that can be moved.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    /// Runs up to its end; the kernel moves no blocks behind.
    pub(crate) runs: Vec<Mapping>,
}

/// All files that can be moved, in the order of their inode numbers, and free blocks.
pub(crate) struct Survey {
    files: Vec<Live>,
    /// Users' files that stay, with the reason.
    pub(crate) stay: BTreeMap<Ino, Reason>,
    pub(crate) space: Space,
}

impl Survey {
    /// Examines every inode. `left` contains files that are known to stay, `running` the inode
    /// numbers of running programs. An inode that changes while it is read may be omitted: it stays
    /// then.
    ///
    /// # Errors
    /// If a bitmap cannot be read.
    pub(crate) fn new(
        image: &ExtImage,
        left: &BTreeMap<Ino, Reason>,
        running: &BTreeSet<u64>,
    ) -> Result<Self, FsError> {
        let block_size = u64::from(image.geometry().block_size);
        let mut survey = Self { files: Vec::new(), stay: left.clone(), space: Space::default() };
        for group in (0..image.geometry().groups).map(GroupNo::new) {
            survey.space.free.extend(image.group(group)?.free);
            for ino in image.allocated_inodes(group)? {
                let Ok(attr) = image.attr(ino) else { continue };
                // A file without a name is about to be removed, or is internal.
                if attr.kind != FileKind::Regular || attr.nlink == 0 || image.is_own(ino) {
                    continue;
                }
                let is_running = running.contains(&u64::from(ino.get()));
                let is_known = left.contains_key(&ino);
                if let Some(why) = stays(&attr).or(is_running.then_some(Reason::Running)) {
                    survey.stay.insert(ino, why);
                } else if !is_known && let Ok(map) = image.block_map(ino) {
                    let generation = attr.generation;
                    let runs = up_to(attr.size.div_ceil(block_size), map.runs);
                    survey.files.push(Live { ino, generation, runs });
                }
            }
        }
        survey.reconcile();
        Ok(survey)
    }

    /// Makes data read at different moments consistent: a block belongs to one file or is free.
    /// Files that share blocks are removed, and blocks of files are not free.
    fn reconcile(&mut self) {
        join(&mut self.space.free);
        let mut used: Vec<(Extent, usize)> = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            used.extend(file.runs.iter().map(|run| (run.extent, at)));
        }
        used.sort_unstable();
        let mut shared = BTreeSet::new();
        let mut last: Option<(Extent, usize)> = None;
        for &(extent, at) in &used {
            match last {
                Some((before, other)) if extent.start < before.end() => {
                    shared.extend([at, other]);
                    // The longer one may overlap the next one, too.
                    if extent.end() > before.end() {
                        last = Some((extent, at));
                    }
                }
                _ => last = Some((extent, at)),
            }
        }
        let used: Vec<Extent> = used.iter().map(|(extent, _)| *extent).collect();
        self.space.free = difference(&self.space.free, &used);
        let mut at = 0;
        self.files.retain(|_| {
            at += 1;
            !shared.contains(&(at - 1))
        });
    }

    /// The object of an inode, if it can be moved.
    pub(crate) fn object(&self, ino: Ino) -> Option<ObjectId> {
        let at = self.files.binary_search_by_key(&ino, |file| file.ino).ok()?;
        u32::try_from(at).ok().map(ObjectId::new)
    }

    /// The file of an object.
    pub(crate) fn file(&self, object: ObjectId) -> &Live {
        &self.files[object.index()]
    }

    /// The space with other free blocks.
    pub(crate) fn space_with(&self, free: Vec<Extent>) -> Space {
        Space { free, ..self.space.clone() }
    }
}

/// The reason for which a file stays, by its inode.
fn stays(attr: &Attr) -> Option<Reason> {
    let has = |bits: u32| attr.flags & bits != 0;
    if has(flag::IMMUTABLE | flag::APPEND | flag::VERITY) {
        return Some(Reason::Protected);
    }
    let cannot = has(flag::ENCRYPT | flag::JOURNAL_DATA | flag::EA_INODE | flag::DAX);
    // A file without blocks of its own (inline data) has nothing to move.
    (cannot || (!has(flag::EXTENT) && attr.sectors > 0)).then_some(Reason::Kind)
}

/// Cuts runs off behind the first `blocks` of a file.
fn up_to(blocks: u64, mut runs: Vec<Mapping>) -> Vec<Mapping> {
    runs.retain_mut(|run| {
        run.extent.len = run.extent.len.min(blocks.saturating_sub(run.lbn.get()));
        run.extent.len > 0
    });
    runs
}

/// Joins adjacent free runs at the boundaries of groups.
fn join(free: &mut Vec<Extent>) {
    free.dedup_by(|later, earlier| {
        let touch = earlier.end() == later.start;
        if touch {
            earlier.len += later.len;
        }
        touch
    });
}

impl Demand for Survey {
    fn objects(&self) -> usize {
        self.files.len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        Some(self.file(object).ino)
    }

    fn is_directory(&self, _: ObjectId) -> bool {
        false
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let file = self.file(object);
        runs.extend(file.runs.iter().map(|run| Run { lbn: run.lbn, len: run.extent.len }));
    }

    /// None: the kernel rebuilds extent trees as it sees fit.
    fn overhead_blocks(&self, _: ObjectId, _: &[Placed]) -> u64 {
        0
    }

    fn is_pinned(&self, _: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        (0..self.files.len()).filter_map(|at| u32::try_from(at).ok()).map(ObjectId::new).collect()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        self.walk_order()
    }
}

impl Occupied for Survey {
    fn data(&self, object: ObjectId) -> Vec<Placed> {
        let runs = &self.file(object).runs;
        let mut placed: Vec<Placed> =
            runs.iter().map(|run| Placed { lbn: run.lbn, extent: run.extent }).collect();
        // Written and unwritten blocks are moved alike.
        placed.dedup_by(|later, earlier| {
            let joins = earlier.extent.end() == later.extent.start
                && earlier.lbn + earlier.extent.len == later.lbn;
            if joins {
                earlier.extent.len += later.extent.len;
            }
            joins
        });
        placed
    }

    fn map(&self, _: ObjectId) -> Vec<BlockNo> {
        Vec::new()
    }

    fn map_needed(&self, _: ObjectId, _: &[Placed]) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Lbn;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    #[test]
    fn files_that_share_blocks_are_left_out() {
        let file = |ino: u32, start: u64, len: u64| {
            let run = Mapping { lbn: Lbn::ZERO, extent: extent(start, len), unwritten: false };
            Live { ino: Ino::new(ino), generation: 1, runs: vec![run] }
        };
        // 12 is within 11, 14 overlaps its end; 15 touches 16.
        let files = vec![
            file(11, 100, 50),
            file(12, 110, 5),
            file(13, 200, 10),
            file(14, 140, 20),
            file(15, 300, 10),
            file(16, 310, 10),
        ];
        let space = Space { free: vec![extent(90, 30), extent(205, 10)], ..Space::default() };
        let mut survey = Survey { files, stay: BTreeMap::new(), space };
        survey.reconcile();
        let left: Vec<u32> = survey.files.iter().map(|file| file.ino.get()).collect();
        assert_eq!(left, [13, 15, 16]);
        assert_eq!(survey.space.free, [extent(90, 10), extent(210, 5)]);
    }
}
