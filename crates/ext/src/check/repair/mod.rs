//! Repairs the findings of a check.
//!
//! A repair is a sequence of rounds, as for UFS: a check of the whole image finds the damage and
//! the repairs for it, the first stage of these ([`Stage`]) is written, and the next check sees the
//! result. So the next repair resumes one that was interrupted. Contents are written before the
//! structures that lead to them, names go before inodes, and bitmaps come last.
//!
//! The superblock marks the volume as not clean from the first write to the last.

mod attributes;
mod discard;
mod entries;
mod folder;
mod groups;
mod inode;
mod journal;
mod lost;
mod map;
mod orphans;
mod place;
mod resize;
pub(super) mod space;
mod superblock;

use super::fix::{Fix, Stage, TOGETHER};
use super::{features, fields, problems};
use crate::check::CheckOptions;
use crate::check::checker::Checker;
use crate::check::examine;
use crate::check::seen::CheckedInode;
use crate::mmp::{Mmp, while_claimed};
use crate::ondisk::{flags, ro_compat};
use crate::quota::QuotaContents;
use crate::volume::Volume;
use attributes::AttributeRepair;
use inode::InodeMut;
use journal::JournalRepair;
use orphans::OrphanRepair;
use seekless_device::BlockDevice;
use seekless_fs::check::{Finding, Outcome, Problem, Repaired, Rounds};
use seekless_fs::field::{invalid, wide};
use seekless_fs::patches::Patches;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Ino, Lbn};
use space::Space;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Most rounds: an honest image needs five or so.
const ROUNDS: u32 = 40;

/// Problems that go away when the last stage is written.
const MENDED_LAST: [&Problem; 14] = [
    problems::BITMAP_UNREADABLE,
    problems::BITMAP_CHECKSUM,
    problems::BITMAP_PADDING,
    problems::BITMAP_BLOCKS_LEAKED,
    problems::BITMAP_BLOCKS_FREE,
    problems::BITMAP_INODES_LEAKED,
    problems::BITMAP_INODES_FREE,
    problems::GROUP_COUNTS,
    problems::SUPERBLOCK_NOT_CLEAN,
    problems::SUPERBLOCK_ERRORS,
    problems::SUPERBLOCK_TOTALS,
    problems::INODE_LINKS_HIGH,
    problems::INODE_LINKS_LOW,
    problems::ATTRIBUTES_COUNT,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Preen,
    Full,
}

/// Repairs the findings that `e2fsck -p` repairs: transactions in the journal, orphans, names of
/// inodes that are not in use, link counts, lengths, bitmaps and counts. If there is any other
/// finding, nothing is written.
///
/// # Errors
/// As [`check`](crate::check()), and [`FsError::Unsupported`] for a volume that
/// must be repaired and has features with which it is not written.
pub fn preen(device: Arc<dyn BlockDevice>) -> Result<Repaired, FsError> {
    preen_with(device, &CheckOptions::default())
}

/// As [`preen`], with options.
///
/// # Errors
/// As [`preen`].
pub fn preen_with(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<Repaired, FsError> {
    run(device, Mode::Preen, options)
}

/// Repairs everything, as `e2fsck -y` does.
///
/// # Errors
/// As [`preen`].
pub fn repair(device: Arc<dyn BlockDevice>) -> Result<Repaired, FsError> {
    repair_with(device, &CheckOptions::default())
}

/// As [`repair`], with options.
///
/// # Errors
/// As [`preen`].
pub fn repair_with(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<Repaired, FsError> {
    run(device, Mode::Full, options)
}

fn run(
    device: Arc<dyn BlockDevice>,
    mode: Mode,
    options: &CheckOptions,
) -> Result<Repaired, FsError> {
    while_claimed(&device, options, |options| Repair::new(device.clone(), mode, options).run())
}

/// A volume in order, whose quota files are changed with the means of a repair. The caller has claimed
/// it.
pub(crate) struct SoundVolume {
    checker: Checker,
    repair: Repair,
}

impl SoundVolume {
    /// Checks a volume.
    ///
    /// # Errors
    /// As [`check`](crate::check()); [`FsError::Refused`] for a volume with findings,
    /// [`FsError::Unsupported`] for one with features with which it is not written.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
    ) -> Result<Self, FsError> {
        let checker = examine(device.clone(), options)?;
        refuse_to_change(checker.report.findings.first())?;
        check_writable(&checker)?;
        Ok(Self { checker, repair: Repair::new(device, Mode::Full, options) })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.checker.volume
    }

    /// Writes bytes that lie in one block of a file, if they differ.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where the file has no block; errors of the device.
    pub(crate) fn put_in_place(mut self, ino: Ino, at: u64, bytes: &[u8]) -> Result<(), FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(ino)?;
        let size = u64::from(volume.sb.block_size);
        debug_assert!(at % size + wide(bytes.len()) <= size, "the bytes lie in one block");
        let run = volume.maps().map_block(&inode, Lbn::new(at / size))?;
        let Some(run) = run.filter(|run| !run.unwritten) else {
            let place = Location::of("quota file").in_inode(ino);
            return Err(invalid("block of an entry", at / size, place));
        };
        let start = run.extent.start.get() * size + at % size;
        self.repair.disk.put(start, bytes)?;
        self.repair.disk.flush()
    }

    /// Writes a quota file with these limits to free blocks, and brings bitmaps and counts up to date.
    /// The volume is marked as not clean until all is written, so that a check completes what was
    /// interrupted.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; errors of the device.
    pub(crate) fn write_quota_file(
        self,
        ino: Ino,
        contents: &QuotaContents,
    ) -> Result<(), FsError> {
        let Self { checker, mut repair } = self;
        superblock::mark_unclean(&mut repair.disk)?;
        repair.marked = true;
        let space = Space::new(checker.used.clone());
        let mut work = Work::new(&checker, &mut repair.disk, space);
        let is_written = work.write_quota_file(ino, contents)?;
        repair.disk.flush()?;
        let repaired = repair.run()?;
        debug_assert!(repaired.outcome != Outcome::Left, "the volume was in order before");
        match is_written {
            true => Ok(()),
            false => Err(FsError::NoSpace("the quota file".into())),
        }
    }
}

/// Refuses to change the quotas of a volume with a finding.
pub(crate) fn refuse_to_change(finding: Option<&Finding>) -> Result<(), FsError> {
    let Some(code) = finding.map(Finding::code) else { return Ok(()) };
    let text = Text::from(format!("it is not in order ({code}): run "));
    Err(FsError::Refused(text.then(Term::Repair).then(" first")))
}

/// A repair under way.
struct Repair {
    disk: Patches,
    mode: Mode,
    /// Everything found so far.
    found: Rounds,
    /// Repairs for which there was no room, or no way.
    given_up: HashSet<Fix>,
    /// The image is marked as not clean by this repair.
    marked: bool,
    /// The block of multiple mount protection that was made in place of a damaged one.
    made_mmp: Option<Mmp>,
    /// Writes to the device of a journal that is not in the volume.
    journal_writes: u64,
    /// A copy of the superblock to start with counts until it is written.
    options: CheckOptions,
    /// All directories were written again, which later findings are due to.
    is_optimized: bool,
    /// So are findings after files got copies of the blocks that they shared.
    is_unshared: bool,
}

/// The state of the image after a round.
enum Round {
    Clean,
    Again,
    Stuck,
}

/// The result of writing a round's changes.
struct Work<'a> {
    checker: &'a Checker,
    disk: &'a mut Patches,
    space: Space,
    /// A file was sacrificed for room.
    has_sacrificed: bool,
    /// The block of multiple mount protection that was made.
    made_mmp: Option<Mmp>,
    /// Writes to the device of a journal that is not in the volume.
    journal_writes: u64,
}

impl Repair {
    fn new(device: Arc<dyn BlockDevice>, mode: Mode, options: &CheckOptions) -> Self {
        Self {
            disk: Patches::new(device),
            mode,
            found: Rounds::default(),
            given_up: HashSet::new(),
            marked: false,
            made_mmp: None,
            journal_writes: 0,
            options: options.clone(),
            is_optimized: false,
            is_unshared: false,
        }
    }

    fn run(mut self) -> Result<Repaired, FsError> {
        let done = self.rounds();
        if let Some(mmp) = self.made_mmp.take() {
            mmp.release(&mut self.disk)?;
        }
        let (rounds, left) = done?;
        let writes = self.writes();
        Ok(self.found.end(&left, rounds, writes))
    }

    /// Number of writes, to both devices.
    fn writes(&self) -> u64 {
        self.disk.writes() + self.journal_writes
    }

    /// The number of rounds, and the findings that are left.
    fn rounds(&mut self) -> Result<(u32, Vec<Finding>), FsError> {
        for rounds in 1..=ROUNDS {
            let mut checker = examine(self.disk.device().clone(), &self.options)?;
            checker.fixes.leave_out(|fix| self.given_up.contains(fix));
            let mut left = checker.report.findings.clone();
            left.retain(|finding| !is_ours(self.marked, finding));
            let (marked, is_optimized) = (self.marked, self.is_optimized);
            let is_rewritten = is_optimized || self.is_unshared;
            self.found.merge(&checker.report, |finding| is_rewritten || is_ours(marked, finding));
            match self.round(&checker, &left)? {
                Round::Again => {}
                Round::Clean if self.options.optimizes_directories && !is_optimized => {
                    self.optimize(&checker)?;
                }
                Round::Clean => {
                    if self.options.discards_free {
                        discard::discard_free(&checker, self.disk.device().as_ref())?;
                    }
                    return Ok((rounds, Vec::new()));
                }
                Round::Stuck => return Ok((rounds, left)),
            }
        }
        Ok((ROUNDS, examine(self.disk.device().clone(), &self.options)?.report.findings))
    }

    /// Writes the first stage of the repairs.
    fn round(&mut self, checker: &Checker, left: &[Finding]) -> Result<Round, FsError> {
        if checker.report.is_clean() {
            return Ok(Round::Clean);
        }
        if self.mode == Mode::Preen && checker.report.unexpected > 0 {
            return Ok(Round::Stuck);
        }
        check_writable(checker)?;
        let before = (self.writes(), self.given_up.len());
        let fixes = checker.fixes.first(&TOGETHER);
        // Before the journal is replayed its superblock is the only one to go by.
        let is_early =
            [Stage::Superblock, Stage::Journal].iter().any(|it| checker.fixes.begin_with(*it));
        if !is_early && !fixes.is_empty() {
            superblock::mark_unclean(&mut self.disk)?;
            self.marked = true;
        }
        self.apply(checker, &fixes)?;
        self.disk.flush()?;
        if fixes.contains(&Fix::Superblock) {
            self.options.start.block = None;
        }
        self.is_unshared |= fixes.contains(&Fix::Unshare);
        if checker.fixes.are_from(Stage::Links)
            && (fixes.is_empty() || checker.lost_groups.is_empty())
        {
            let is_whole = self.given_up.is_empty() && left.iter().all(is_mendable);
            if !is_whole && fixes.is_empty() {
                return Ok(Round::Stuck);
            }
            superblock::finish(checker, &mut self.disk, is_whole)?;
        }
        let now = (self.writes(), self.given_up.len());
        debug_assert!(now.0 >= before.0 && now.1 >= before.1, "nothing is taken back");
        Ok(if now == before { Round::Stuck } else { Round::Again })
    }

    /// Writes the directories of a sound volume that have several blocks again, sorted and without
    /// gaps. The rounds that follow free their old blocks. `lost+found` keeps its spare blocks.
    fn optimize(&mut self, checker: &Checker) -> Result<(), FsError> {
        check_writable(checker)?;
        superblock::mark_unclean(&mut self.disk)?;
        (self.marked, self.is_optimized) = (true, true);
        let space = Space::new(checker.used.clone());
        let mut work = Work::new(checker, &mut self.disk, space);
        let kept = checker.lost_found.map(|(_, ino)| ino);
        let is_directory =
            |seen: &CheckedInode| seen.kind == FileKind::Directory && !seen.is_special;
        for (dir, _) in checker.seen.iter().filter(|(_, seen)| is_directory(seen)) {
            let len = checker.volume.inodes().read(dir)?.len;
            if Some(dir) != kept && len > u64::from(checker.sb().block_size) {
                // One for which there is no room stays as it is.
                work.write_again(dir, &[])?;
            }
        }
        self.disk.flush()?;
        Ok(())
    }

    fn apply(&mut self, checker: &Checker, fixes: &[Fix]) -> Result<(), FsError> {
        let space = Space::new(checker.used.clone());
        let mut work = Work::new(checker, &mut self.disk, space);
        let rebuilt = |fix: &Fix| if let Fix::Rebuild(dir) = fix { Some(*dir) } else { None };
        let rebuilt: BTreeSet<Ino> = fixes.iter().filter_map(rebuilt).collect();
        let cleared = |fix: &Fix| if let Fix::Clear(ino) = fix { Some(*ino) } else { None };
        let cleared: BTreeSet<Ino> = fixes.iter().filter_map(cleared).collect();
        let (mut nameless, mut is_wanted) = (Vec::new(), false);
        let mut done: HashSet<Fix> = HashSet::new();
        for &fix in fixes {
            // A rewritten directory is checked again before its entries are changed in place, and
            // so is a cleared inode.
            let waits = fix.directory().is_some_and(|dir| rebuilt.contains(&dir));
            let is_gone = fix.inode().is_some_and(|ino| cleared.contains(&ino));
            if waits || (is_gone && !matches!(fix, Fix::Clear(_))) || !done.insert(fix) {
                continue;
            }
            match fix {
                Fix::Connect(ino) => nameless.push(ino),
                Fix::LostFound => is_wanted = true,
                fix => {
                    let is_done = match work.perform(fix) {
                        // It depends on something else that is damaged: the rest of the
                        // repair does not.
                        Err(FsError::Corrupt { .. }) => false,
                        done => done?,
                    };
                    if !is_done {
                        self.given_up.insert(fix);
                    }
                }
            }
        }
        // Names for unconnected inodes need it first.
        is_wanted |= !nameless.is_empty();
        if is_wanted && !fixes.contains(&Fix::Root) && !work.connect(&nameless)? {
            self.given_up.extend(nameless.into_iter().map(Fix::Connect));
            self.given_up.insert(Fix::LostFound);
        }
        self.made_mmp = work.made_mmp.or(self.made_mmp);
        self.journal_writes += work.journal_writes;
        Ok(())
    }
}

/// Whether a finding is due to the repair under way, not to the image.
fn is_ours(marked: bool, finding: &Finding) -> bool {
    marked && finding.is(problems::SUPERBLOCK_NOT_CLEAN)
}

/// Whether a finding goes away when the last stage is written.
fn is_mendable(finding: &Finding) -> bool {
    MENDED_LAST.iter().any(|problem| finding.is(problem))
}

/// Refuses a volume with features that a repair does not keep up.
fn check_writable(checker: &Checker) -> Result<(), FsError> {
    if let Some(short) = checker.report.findings.iter().find(|it| it.is(problems::SUPERBLOCK_SIZE))
    {
        let text = format!("{}: either the superblock or the partition table is wrong", short.what);
        return Err(FsError::Refused(text.into()));
    }
    let features = features::unsupported(&checker.sb().raw);
    // The repair begins with those that a copy of the superblock lacks.
    let cleared = features::contradicted(&checker.volume).filter(|_| !checker.from_copy);
    let names = cleared.map_or(features, |(cleared, _)| features.without(cleared)).names();
    // The descriptors were read from wrong places: whatever is written by them is wrong.
    let is_misled = checker.impossible_fields().iter().any(|(it, _)| *it == "s_first_meta_bg");
    if is_misled && checker.sb().descriptor_blocks() > 1 {
        return Err(FsError::Unsupported("repairing a volume with a wrong s_first_meta_bg".into()));
    }
    if names.is_empty() {
        return Ok(());
    }
    let what = format!("repairing a volume with the feature {}", names.join(", "));
    Err(FsError::Unsupported(what))
}

impl<'a> Work<'a> {
    fn new(checker: &'a Checker, disk: &'a mut Patches, space: Space) -> Self {
        Self { checker, disk, space, has_sacrificed: false, made_mmp: None, journal_writes: 0 }
    }
}

impl Work<'_> {
    /// Makes the block of multiple mount protection; whether there was room for it.
    fn make_mmp(&mut self, at: Option<BlockNo>) -> Result<bool, FsError> {
        let free = || self.space.cluster(self.checker);
        let Some(block) = at.or_else(free) else { return Ok(false) };
        let mmp = Mmp::in_block(self.checker.sb(), block);
        mmp.make(self.disk)?;
        if at.is_none() {
            superblock::set_mmp_block(self.disk, block)?;
        }
        self.made_mmp = Some(mmp);
        Ok(true)
    }

    /// Makes a change; whether there was room and a way for it.
    fn perform(&mut self, fix: Fix) -> Result<bool, FsError> {
        match fix {
            Fix::Superblock => superblock::put(self.checker, self.disk)?,
            Fix::Mmp(at) => return self.make_mmp(at),
            Fix::LargeFile => superblock::set_feature(self.disk, ro_compat::LARGE_FILE)?,
            Fix::ManyLinks => superblock::set_feature(self.disk, ro_compat::DIR_NLINK)?,
            Fix::Replay => crate::journal::repair_home(self.disk, self.checker.journal.as_ref())?,
            Fix::EmptyJournal => JournalRepair::of(self).empty()?,
            Fix::JournalInode(ino) => JournalRepair::of(self).restore(ino)?,
            Fix::JournalFields => JournalRepair::of(self).clear_fields()?,
            Fix::NewJournal(ino) => JournalRepair::of(self).make(ino)?,
            Fix::Place(number, part) => {
                return place::place(self.checker, self.disk, &mut self.space, number, part);
            }
            Fix::WrittenBitmap(number) => {
                groups::note_written_bitmap(self.checker, self.disk, number)?;
            }
            Fix::Head(number) => groups::put_head(self.checker, self.disk, number)?,
            Fix::OrphanList => superblock::set_last_orphan(self.disk, Ino::ZERO)?,
            Fix::OrphanFile => return OrphanRepair::of(self).orphan_file(),
            Fix::Orphans => return OrphanRepair::of(self).finish_all(),
            Fix::DropOrphanFile(ino) => {
                superblock::drop_orphan_file(self.disk)?;
                self.change(ino, InodeMut::clear)?;
            }
            Fix::Kind(ino, kind) => self.change(ino, |it| {
                let core = it.core_mut();
                core.i_mode = (core.i_mode.get() & 0o7777 | kind.mode_bits()).into();
            })?,
            Fix::ResizeInode(ino) => return self.restore_resize(ino),
            Fix::Clear(ino) => self.change(ino, InodeMut::clear)?,
            Fix::Deleted(ino) => {
                let time = superblock::time(self.checker.sb());
                self.change(ino, |it| it.core_mut().i_dtime = time.into())?;
            }
            Fix::Undelete(ino) => self.change(ino, |it| it.core_mut().i_dtime = 0.into())?,
            Fix::Seal(ino) => self.change(ino, |_| {})?,
            Fix::ExtraSize(ino) => {
                let wanted = self.checker.sb().raw.s_want_extra_isize.get();
                self.change(ino, |it| it.set_extra_size(wanted))?;
            }
            Fix::Decrypt(ino) => self.change(ino, |it| {
                let bits = it.core().i_flags.get() & !flags::ENCRYPT;
                it.core_mut().i_flags = bits.into();
            })?,
            Fix::Fields(ino) => {
                let sb = self.checker.sb();
                self.change(ino, |it| {
                    if let Some(kind) = FileKind::from_mode(it.core().i_mode.get()) {
                        fields::mend(sb, kind, it.core_mut());
                    }
                })?;
            }
            Fix::Empty(ino) => self.change(ino, InodeMut::empty)?,
            Fix::Length(ino, len) => self.change(ino, |it| it.set_len(len))?,
            Fix::Sectors(ino, sectors) => self.change(ino, |it| it.set_sectors(sectors))?,
            Fix::Map(ino) => return self.map(ino),
            Fix::SealMap(ino) => self.seal_map(ino)?,
            Fix::DropAttributes(ino) => AttributeRepair::of(self).discard(ino)?,
            Fix::CopyAttributes(ino) => return AttributeRepair::of(self).copy(ino),
            Fix::SealAttributes(ino) => AttributeRepair::of(self).seal(ino)?,
            Fix::Remove(spot) => self.edit(spot, entries::Edit::Remove)?,
            Fix::Respell(spot) => self.edit(spot, entries::Edit::Respell)?,
            Fix::Terminate(spot) => self.edit(spot, entries::Edit::Terminate)?,
            Fix::Retype(spot, kind) => self.edit(spot, entries::Edit::Retype(kind))?,
            Fix::Span(spot, len) => self.edit(spot, entries::Edit::Span(len))?,
            Fix::Blank(spot, len) => self.edit(spot, entries::Edit::Blank(len))?,
            Fix::Lead(spot, to) => self.edit(spot, entries::Edit::Lead(to))?,
            Fix::Parent(dir, to) => return self.set_parent(dir, to),
            Fix::SealBlock(dir, lbn) => self.seal_block(dir, lbn)?,
            Fix::Rebuild(dir) => return self.rebuild(dir, &[]),
            Fix::Root => return self.make_root(),
            Fix::Connect(ino) => return self.connect(&[ino]),
            Fix::LostFound => return self.connect(&[]),
            Fix::QuotaFile(ino) => return self.write_quotas(ino),
            Fix::Unshare => return self.unshare(),
            Fix::Links(ino, links) => {
                self.change(ino, |it| it.core_mut().i_links_count = links.into())?;
            }
            Fix::Shares(block, count) => AttributeRepair::of(self).set_shares(block, count)?,
            Fix::ValueShares(ino, count) => self.change(ino, |it| it.set_value_count(count))?,
            Fix::MarkValue(ino) => self.change(ino, |it| it.set_flag(flags::EA_INODE, true))?,
            Fix::Times(ino) => self.change(ino, InodeMut::clear_late_times)?,
            Fix::Group(number) => groups::put(self.checker, self.disk, number)?,
        }
        Ok(true)
    }

    /// Changes an inode in place.
    fn change(&mut self, ino: Ino, with: impl FnOnce(&mut InodeMut)) -> Result<(), FsError> {
        let mut inode = InodeMut::read(&self.checker.volume, self.disk, ino)?;
        with(&mut inode);
        inode.write(&self.checker.volume, self.disk)
    }
}
