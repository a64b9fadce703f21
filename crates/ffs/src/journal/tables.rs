//! The records of a journal, by the files, blocks and names that they are about.

use super::records::{JournalRecord, Owner, Reference, Run, Slot};
use super::staged::Staged;
use crate::volume::Volume;
use seekless_fs::FileKind;
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// A recovery under way.
pub(super) struct Pass {
    pub(super) staged: Staged,
    /// Fragments that were allocated and freed, by the first fragment of their block, in order.
    pub(super) runs: BTreeMap<BlockNo, Vec<BlockRecord>>,
    /// Fragments of blocks with records that a file gave up.
    pub(super) given_up: BTreeSet<BlockNo>,
    /// Files with such records.
    pub(super) touched: BTreeSet<Ino>,
    /// The length to which a file that is not durable was cut last, at most.
    pub(super) cuts: BTreeMap<Ino, u64>,
    /// Files with records of names.
    pub(super) names: BTreeMap<Ino, FileNames>,
    /// Directories whose `..` counts no more in their parent.
    pub(super) detached: BTreeSet<Ino>,
    /// The directories that a directory names, each with the places of its names there.
    pub(super) listed: BTreeMap<Ino, BTreeMap<Ino, Vec<Slot>>>,
    /// Names that are dropped with their directories, and not counted yet.
    pub(super) dropped: Vec<(Slot, Ino, bool)>,
    /// Files that were in use without a name, each with the next one in their list.
    pub(super) unlinked: Vec<(Ino, u32)>,
    /// A recovery that was cut off and begins again would change more or less than this one.
    pub(super) is_relative: bool,
}

/// A record of fragments of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockRecord {
    pub(super) run: Run,
    pub(super) is_free: bool,
}

/// A place where a name of a file may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    /// It was added in the journal, and not removed again.
    pub(super) is_open: bool,
    /// The kind of file that the entry should say.
    pub(super) kind: FileKind,
}

/// The links of a file after all records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Remaining {
    pub(super) links: u32,
    /// Of these, `.` and `..`.
    pub(super) dots: u32,
}

/// The records of a file's names.
#[derive(Clone, Debug, Default)]
pub(super) struct FileNames {
    /// The links before the first record; `None` if there are only moves.
    pub(super) base: Option<(u16, FileKind)>,
    /// It was a directory and became another file, or the other way round: the counts of its group
    /// may be those of either.
    pub(super) has_two_kinds: bool,
    /// Names from before the journal that were removed.
    pub(super) removed: u32,
    /// The places where names may be.
    pub(super) places: BTreeMap<Slot, Name>,
    /// Where names from before the journal were, by where they moved and the order of the moves.
    moves: BTreeMap<(Slot, usize), Slot>,
    /// Moves that there were in `moves`.
    moved: usize,
    /// The links that are left, once they have been counted.
    pub(super) remaining: Option<Remaining>,
}

impl FileNames {
    fn begin(&mut self, reference: &Reference) {
        let (links, before) = self.base.unwrap_or((reference.links, reference.kind));
        let is_directory = |kind| kind == FileKind::Directory;
        self.has_two_kinds |= is_directory(before) != is_directory(reference.kind);
        self.base = Some((links, reference.kind));
    }

    fn add(&mut self, reference: &Reference) {
        self.begin(reference);
        let kind = reference.kind;
        self.places.insert(reference.slot, Name { is_open: true, kind });
    }

    /// A name that was added in the journal may have reached the disk or not. One from before is
    /// still counted, and so is one that cannot be found any more.
    fn remove(&mut self, reference: &Reference) {
        self.begin(reference);
        let kind = reference.kind;
        let mut at = reference.slot;
        let (mut has_moved, mut later) = (false, self.moved);
        // Another name may have moved to a place after this one had left it.
        while let Some((&last, &before)) = self.moves.range((at, 0)..(at, later)).next_back() {
            self.moves.remove(&last);
            self.places.entry(before).or_insert(Name { is_open: false, kind });
            (at, has_moved, later) = (before, true, last.1);
        }
        let known = self.places.insert(reference.slot, Name { is_open: false, kind });
        // A name that is removed again was added in between, or it is the same record.
        let was_there_before = known.is_none() || has_moved;
        self.removed += u32::from(was_there_before);
    }

    fn follow(&mut self, from: Slot, to: u64) {
        let to = Slot { at: to, ..from };
        match self.places.get_mut(&from) {
            Some(name) if name.is_open => {
                name.is_open = false;
                let moved = Name { is_open: true, ..*name };
                self.places.insert(to, moved);
            }
            _ => {
                self.moves.insert((to, self.moved), from);
                self.moved += 1;
            }
        }
    }
}

impl Pass {
    /// Takes the records in their order.
    pub(super) fn new(volume: Volume, records: &[JournalRecord]) -> Self {
        let mut pass = Self {
            staged: Staged::new(volume),
            runs: BTreeMap::new(),
            given_up: BTreeSet::new(),
            touched: BTreeSet::new(),
            cuts: BTreeMap::new(),
            names: BTreeMap::new(),
            detached: BTreeSet::new(),
            listed: BTreeMap::new(),
            dropped: Vec::new(),
            unlinked: Vec::new(),
            is_relative: false,
        };
        // Of records of the same fragments as the same part of a file, the last allocation counts:
        // blocks below it that were allocated meanwhile have records of their own. One that frees
        // them counts if there is no other.
        let mut runs = BTreeMap::new();
        for (n, record) in records.iter().enumerate() {
            match *record {
                JournalRecord::Allocate(run) => {
                    runs.insert((run.owner, run.extent), (n, BlockRecord { run, is_free: false }));
                }
                JournalRecord::Free(run) => {
                    let freed = (n, BlockRecord { run, is_free: true });
                    runs.entry((run.owner, run.extent)).or_insert(freed);
                }
                _ => pass.take(record),
            }
        }
        let mut runs: Vec<(usize, BlockRecord)> = runs.into_values().collect();
        runs.sort_unstable_by_key(|&(n, _)| n);
        for (_, record) in runs {
            let block = pass.block_of(record.run.extent.start);
            pass.touched.insert(record.run.owner.ino);
            pass.runs.entry(block).or_default().push(record);
        }
        pass
    }

    fn take(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Add(reference) => {
                self.names.entry(reference.ino).or_default().add(reference)
            }
            JournalRecord::Remove(reference) => {
                self.names.entry(reference.ino).or_default().remove(reference);
            }
            JournalRecord::Move { ino, from, to } => {
                self.names.entry(*ino).or_default().follow(*from, *to);
            }
            JournalRecord::Allocate(_) | JournalRecord::Free(_) => {}
            JournalRecord::Cut { ino, len } => {
                let cut = self.cuts.entry(*ino).or_insert(*len);
                *cut = (*cut).min(*len);
            }
            JournalRecord::Synced(ino) => drop(self.cuts.remove(ino)),
        }
    }

    /// The first fragment of the block of a fragment.
    pub(super) fn block_of(&self, fragment: BlockNo) -> BlockNo {
        let within = fragment.get() % u64::from(self.staged.volume.sb.frag);
        BlockNo::new(fragment.get() - within)
    }

    /// The owners of fragments of a block in the journal, each once.
    pub(super) fn owners(&self, run: Extent) -> BTreeSet<Owner> {
        let records = self.runs.get(&self.block_of(run.start)).into_iter().flatten();
        let ours = records.filter(|record| record.run.extent.overlaps(run));
        ours.map(|record| record.run.owner).collect()
    }
}
