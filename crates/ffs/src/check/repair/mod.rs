//! Repairs the findings of a check.
//!
//! A repair is a sequence of rounds: a check of the whole image finds the damage and the repairs
//! for it, the first stage of these ([`Stage`]) is written, and the next check sees the result. So
//! every write goes from one image that can be repaired to another, and the next repair resumes one
//! that was interrupted. Within a round the order is that of soft updates: names go before inodes
//! are cleared, inodes before their bits in the bitmaps, counts of links rise before names are
//! added and fall after names are gone. A preen that was cut off leaves only damage that a preen
//! may repair.
//!
//! The superblock marks the volume as not clean from the first write to the last.

mod directory;
mod folder;
mod groups;
mod heads;
mod lost;
mod map;
mod space;
mod superblock;
mod trim;

use super::fix::{Fix, Stage, TOGETHER};
use super::journaled::{self, JournalUse};
use super::{Checker, problems};
use crate::inode_edit::InodeMut;
use crate::journal::JournalRecovery;
use crate::ondisk::{DIRECTORY_UNIT, flag};
use crate::origin::Origin;
use crate::snapshot_marks::unmark;
use directory::Edit;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::check::{Finding, Repaired, Rounds};
use seekless_fs::field::wide;
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use space::RepairAllocator;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

/// Most rounds: an honest image needs five or so.
const ROUNDS: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Preen,
    Full,
}

/// Repairs the damage of a crash, as `fsck_ffs -p` does: leaked blocks and inodes, link counts that
/// are too high, summaries, unconnected files and directories. Empty ones of the last are cleared,
/// on a volume with soft updates all files, since they never had a name; others get a name in
/// `lost+found`. If there is any other finding, nothing is written.
///
/// # Errors
/// As [`check`](crate::check()), and [`FsError::Unsupported`] for a volume that
/// we must not change.
pub fn preen(device: Arc<dyn BlockDevice>) -> Result<Repaired, FsError> {
    Repair::new(device, Mode::Preen).run()
}

/// Repairs everything, as `fsck_ffs -y` does.
///
/// # Errors
/// As [`preen`].
pub fn repair(device: Arc<dyn BlockDevice>) -> Result<Repaired, FsError> {
    Repair::new(device, Mode::Full).run()
}

/// A repair under way.
struct Repair {
    disk: Patches,
    mode: Mode,
    /// Everything found so far.
    found: Rounds,
    /// Repairs for which there was no room.
    homeless: HashSet<Fix>,
    /// The image is marked as not clean by this repair.
    marked: bool,
    /// The flag of a journal stays in the superblock, if it is set.
    keeps_journal: bool,
    /// The device refuses writes to blocks that a snapshot needs as they are.
    guarded: Option<Arc<Origin>>,
}

/// The state of the image after a round.
enum Round {
    Clean,
    Again,
    Stuck,
}

impl Repair {
    fn new(device: Arc<dyn BlockDevice>, mode: Mode) -> Self {
        Self {
            disk: Patches::new(device),
            mode,
            found: Rounds::default(),
            homeless: HashSet::new(),
            marked: false,
            keeps_journal: true,
            guarded: None,
        }
    }

    fn run(mut self) -> Result<Repaired, FsError> {
        match journaled::state(self.disk.device())? {
            JournalUse::Unneeded => {}
            JournalUse::Pending(recovery) => return self.by_journal(&recovery),
            JournalUse::Noted(report, journal_exists) => {
                self.keeps_journal = journal_exists;
                let (left, is_damaged) = (report.findings.clone(), report.unexpected > 0);
                self.found.merge(&report, |_| false);
                if is_damaged && self.mode == Mode::Preen {
                    let mut report = super::examine(self.disk.device())?.report;
                    self.found.merge(&report, |_| false);
                    report.findings.extend(left);
                    return Ok(self.end(1, &report.findings));
                }
            }
        }
        self.in_full()
    }

    /// Recovers a volume by its journal.
    fn by_journal(mut self, recovery: &JournalRecovery) -> Result<Repaired, FsError> {
        self.found.merge(&journaled::report(recovery), |_| false);
        recovery.write(&mut self.disk)?;
        Ok(self.end(1, &[]))
    }

    fn in_full(mut self) -> Result<Repaired, FsError> {
        for rounds in 1..=ROUNDS {
            let mut checker = super::examine(self.disk.device())?;
            checker.fixes.leave_out(|fix| self.homeless.contains(fix));
            let left = checker.report.findings.clone();
            let ours =
                |finding: &Finding| self.marked && finding.is(problems::SUPERBLOCK_NOT_CLEAN);
            self.found.merge(&checker.report, ours);
            match self.round(&checker)? {
                Round::Again => {}
                Round::Clean => return Ok(self.end(rounds, &[])),
                Round::Stuck => return Ok(self.end(rounds, &left)),
            }
        }
        let left = super::examine(self.disk.device())?.report.findings;
        Ok(self.end(ROUNDS, &left))
    }

    fn end(self, rounds: u32, left: &[Finding]) -> Repaired {
        self.found.end(left, rounds, self.disk.writes())
    }

    /// Writes the first stage of the repairs.
    fn round(&mut self, checker: &Checker) -> Result<Round, FsError> {
        if checker.report.is_clean() {
            return Ok(Round::Clean);
        }
        if self.mode == Mode::Preen && checker.report.unexpected > 0 {
            return Ok(Round::Stuck);
        }
        checker.sb().check_repairable()?;
        self.guard(checker)?;
        let before = (self.disk.writes(), self.homeless.len());
        let is_to_be_marked = !self.marked || checker.sb().clean;
        if is_to_be_marked && !checker.fixes.begin_with(Stage::Superblock) {
            superblock::mark_unclean(checker.sb(), &mut self.disk)?;
            self.marked = true;
        }
        self.apply_all(checker).map_err(|error| self.refused(error))?;
        self.disk.flush()?;
        if checker.fixes.are_from(Stage::Links) && checker.lost_groups.is_empty() {
            self.finish(checker)?;
        }
        let now = (self.disk.writes(), self.homeless.len());
        Ok(if now == before { Round::Stuck } else { Round::Again })
    }

    /// Sees that no block is overwritten that a snapshot needs: there is no room for copies in an
    /// image that is being repaired. Most damage of a crash is in blocks that were copied when the
    /// snapshot was taken.
    fn guard(&mut self, checker: &Checker) -> Result<(), FsError> {
        if let Some(origin) = &self.guarded {
            // A round may have changed maps.
            origin.reread();
            return Ok(());
        }
        if !checker.sb().tuning.has_snapshots() {
            return Ok(());
        }
        debug_assert!(!self.marked, "nothing was written before");
        let device = Arc::clone(self.disk.device());
        let sb = Arc::new(checker.sb().clone());
        let origin = Origin::with_listed(device, &sb, true).map_err(|error| match error {
            FsError::Device(_) => error,
            error => FsError::Unsupported(format!(
                "repairing a volume with snapshots that are damaged themselves (make them ordinary \
                 files first): {error}"
            )),
        })?;
        let origin = Arc::new(origin);
        self.disk = Patches::new(origin.clone());
        self.guarded = Some(origin);
        Ok(())
    }

    /// The error of a write that was not made because of a snapshot.
    fn refused(&self, error: FsError) -> FsError {
        match error {
            FsError::Device(DeviceError::Io { source, .. })
                if self.guarded.is_some() && source.kind() == io::ErrorKind::StorageFull =>
            {
                FsError::Unsupported(
                    "a repair of blocks that snapshots need as they are (mount the volume with \
                     recover=background, or make the snapshots ordinary files first)"
                        .into(),
                )
            }
            error => error,
        }
    }

    /// Writes summaries, totals, and last the mark of a clean volume, if it is clean.
    fn finish(&mut self, checker: &Checker) -> Result<(), FsError> {
        debug_assert!(checker.lost_groups.is_empty(), "every group has a head");
        let totals = groups::put_summaries(checker, &mut self.disk)?;
        let mut sb = checker.sb().clone();
        if !self.keeps_journal {
            sb.flags &= !flag::JOURNALED_SOFT_UPDATES;
        }
        superblock::finish(&sb, totals, self.homeless.is_empty(), &mut self.disk)
    }

    fn apply_all(&mut self, checker: &Checker) -> Result<(), FsError> {
        let mut orphans = Vec::new();
        let mut space = RepairAllocator::new(checker);
        let dots = |fix: &Fix| if let Fix::Dots(dir) = fix { Some(*dir) } else { None };
        let fixes = checker.fixes.first(&TOGETHER);
        let rewritten: BTreeSet<Ino> = fixes.iter().filter_map(dots).collect();
        for fix in &fixes {
            match *fix {
                // Entries have moved in a rebuilt unit.
                fix if fix.slot().is_some_and(|slot| {
                    slot.at < wide(DIRECTORY_UNIT) && rewritten.contains(&slot.dir)
                }) => {}
                Fix::Connect(ino) if !self.tosses(checker, ino) => orphans.push(ino),
                // Nothing can be connected to a root that does not exist yet.
                Fix::Root => {
                    let made = lost::make_root(checker, &mut self.disk)?;
                    self.note_homeless(made, fixes.iter());
                    return Ok(());
                }
                fix => apply(checker, &mut self.disk, &mut space, fix)?,
            }
        }
        if !orphans.is_empty() {
            let done = lost::connect(checker, &mut self.disk, &orphans)?;
            let orphans: Vec<Fix> = orphans.into_iter().map(Fix::Connect).collect();
            self.note_homeless(done, orphans.iter());
        }
        Ok(())
    }

    /// Remembers repairs for which there was no room; later rounds pass over them.
    fn note_homeless<'a>(&mut self, done: bool, fixes: impl Iterator<Item = &'a Fix>) {
        if !done {
            self.homeless.extend(fixes);
        }
    }
}

fn apply(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    fix: Fix,
) -> Result<(), FsError> {
    match fix {
        Fix::Superblock => superblock::put(checker, disk, checker.sb().at),
        Fix::Copy(at) => superblock::put(checker, disk, at),
        Fix::Head(number) => heads::put(checker, disk, number),
        Fix::Initialise(number, inodes) => heads::initialise(checker, disk, number, inodes),
        Fix::Map(ino) => map::mend(checker, disk, space, ino),
        Fix::Trim(ino, len) => trim::trim(&checker.volume, disk, ino, len),
        Fix::Remove(slot) => directory::edit(checker, disk, slot, Edit::Remove),
        Fix::Retype(slot, kind) => directory::edit(checker, disk, slot, Edit::Retype(kind)),
        Fix::Terminate(slot) => directory::edit(checker, disk, slot, Edit::Terminate),
        Fix::Cut(slot) => directory::edit(checker, disk, slot, Edit::Cut),
        Fix::Dots(dir) => {
            directory::put_dots(checker, disk, dir, directory::parent_of(checker, dir))
        }
        Fix::Parent(dir, to) => directory::set_parent(checker, disk, dir, to),
        Fix::Group(number) => groups::put(checker, disk, number),
        // An inode to be connected that comes here is cleared.
        Fix::Clear(ino) | Fix::Connect(ino) => change(checker, disk, ino, |it| it.clear()),
        Fix::Length(ino, len) => change(checker, disk, ino, |it| it.set_len(len)),
        Fix::DropAttributes(ino) => change(checker, disk, ino, |it| it.drop_attributes()),
        Fix::Sectors(ino, sectors) => change(checker, disk, ino, |it| it.set_sectors(sectors)),
        Fix::Links(ino, links) => change(checker, disk, ino, |it| it.set_links(links)),
        Fix::Seal(ino) => change(checker, disk, ino, |_| {}),
        Fix::Unmark(ino) => match checker.volume.inode(ino)? {
            snapshot if snapshot.is_snapshot() => unmark(&checker.volume, &snapshot, disk),
            _ => change(checker, disk, ino, |it| it.unmark()),
        },
        Fix::Root => lost::make_root(checker, disk).map(drop),
    }
}

impl Repair {
    /// Whether a preen clears an unconnected inode: if it is empty, or with soft updates any file,
    /// since that never had a name. The entries of a directory may have had names elsewhere.
    fn tosses(&self, checker: &Checker, ino: Ino) -> bool {
        let softdep = checker.sb().flags & flag::SOFT_UPDATES != 0;
        let empty = checker.seen.get(&ino).is_some_and(|seen| match seen.kind {
            FileKind::Directory => seen.entries == 0,
            _ => softdep || seen.len == 0,
        });
        self.mode == Mode::Preen && empty
    }
}

/// Changes an inode in place.
fn change(
    checker: &Checker,
    disk: &mut Patches,
    ino: Ino,
    with: impl FnOnce(&mut InodeMut<'_>),
) -> Result<(), FsError> {
    let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
    with(&mut inode);
    inode.write(disk)
}
