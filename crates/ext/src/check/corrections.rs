//! Corrections of a volume that is in use under soft updates, from the findings in a snapshot of
//! its state after a crash.

use super::CheckOptions;
use super::checker::Checker;
use super::fix::{Fix, Spot};
use super::links::LINK_MAX;
use super::problems;
use crate::dir::Directory;
use crate::group::bit;
use crate::ondisk::DirEntryHead;
use seekless_device::BlockDevice;
use seekless_fs::check::{Class, Finding, Problem};
use seekless_fs::corrections::{Correction, Corrections};
use seekless_fs::field::{self, index, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a crash leaves under soft updates, and is corrected while the volume is in use. `e2fsck -p`
/// asks about directories that were being moved; everything else it repairs.
const CORRECTED: [&Problem; 14] = [
    problems::SUPERBLOCK_NOT_CLEAN,
    problems::INODE_PARTLY_CLEARED,
    problems::INODE_BLOCK_COUNT,
    problems::ENTRY_UNALLOCATED,
    problems::DIRECTORY_TWO_NAMES,
    problems::DIRECTORY_DOT_DOT,
    problems::DIRECTORY_UNCONNECTED,
    problems::LOST_FOUND_MISSING,
    problems::INODE_LINKS_HIGH,
    problems::INODE_LINKS_LOW,
    problems::BITMAP_BLOCKS_LEAKED,
    problems::BITMAP_INODES_LEAKED,
    problems::GROUP_COUNTS,
    problems::SUPERBLOCK_TOTALS,
];

/// The phase of bitmaps and counts: there may be more findings in it than are stored.
const LAST_PHASE: u8 = 5;

/// Checks a snapshot of a volume that was in use under soft updates.
///
/// # Errors
/// As [`check`](crate::check()).
pub fn corrections(device: Arc<dyn BlockDevice>) -> Result<Corrections, FsError> {
    let checker = super::examine(device, &CheckOptions::default())?;
    let mut planner = Planner::new(&checker)?;
    let (left, mut more_left) = planner.left();
    if left.is_empty() && more_left == 0 {
        planner.plan()?;
        more_left = planner.unsafe_parts;
    }
    let all = if left.is_empty() && more_left == 0 { planner.all } else { Vec::new() };
    Ok(Corrections { report: checker.report, all, left, more_left })
}

/// Corrections of a volume.
struct Planner<'a> {
    checker: &'a Checker,
    /// Files to be deleted: a file without a name never had one, or has lost it, and an empty
    /// directory has nothing to be kept.
    deleted: BTreeSet<Ino>,
    /// Directories that get a name.
    connected: BTreeSet<Ino>,
    /// Inodes that are marked as in use, and are not.
    unused: BTreeSet<Ino>,
    /// Directories with several names, and the name that each keeps.
    kept: BTreeMap<Ino, Spot>,
    /// Directories with names of such, of which any may be the one to be kept.
    undecided: BTreeSet<Ino>,
    /// By how much corrections of names change the links of directories.
    changed: BTreeMap<Ino, i64>,
    all: Vec<Correction>,
    /// Number of things that are in use and might be handed out, or are not what a crash leaves.
    unsafe_parts: u64,
}

impl<'a> Planner<'a> {
    fn new(checker: &'a Checker) -> Result<Self, FsError> {
        let mut planner = Self {
            checker,
            deleted: BTreeSet::new(),
            connected: BTreeSet::new(),
            unused: BTreeSet::new(),
            kept: BTreeMap::new(),
            undecided: BTreeSet::new(),
            changed: BTreeMap::new(),
            all: Vec::new(),
            unsafe_parts: 0,
        };
        for fix in checker.fixes.all() {
            match fix {
                Fix::Connect(ino) if planner.has_entries(ino)? => planner.connected.insert(ino),
                Fix::Clear(ino) | Fix::Connect(ino) => planner.deleted.insert(ino),
                _ => false,
            };
        }
        planner.choose_names()?;
        Ok(planner)
    }

    /// Decides which of its names a directory keeps that was being moved: the one that the check
    /// keeps, or the one that was an empty directory's, since there is always a file of that name.
    fn choose_names(&mut self) -> Result<(), FsError> {
        let checker = self.checker;
        let gone = self.deleted.iter().filter(|&&ino| checker.is_directory(ino));
        let replaced: BTreeSet<Ino> =
            gone.filter_map(|&ino| checker.seen.place_of(ino).parent).collect();
        let mut names: BTreeMap<Ino, Vec<Spot>> = BTreeMap::new();
        for fix in checker.fixes.all() {
            let Fix::Remove(spot) = fix else { continue };
            let (_, ino) = self.entry_at(spot)?;
            if checker.is_directory(ino) {
                names.entry(ino).or_default().push(spot);
            }
        }
        for (ino, mut spots) in names {
            let Some(first) = checker.seen.place_of(ino).named_in else {
                self.undecided.extend(spots.iter().map(|spot| spot.dir));
                continue;
            };
            spots.insert(0, first);
            let mut of_replaced = spots.iter().filter(|spot| replaced.contains(&spot.dir));
            match (of_replaced.next(), of_replaced.next()) {
                (Some(_), Some(_)) => self.undecided.extend(spots.iter().map(|spot| spot.dir)),
                (Some(&only), None) => {
                    self.kept.insert(ino, only);
                }
                (None, _) => {
                    self.kept.insert(ino, first);
                }
            }
        }
        Ok(())
    }

    /// Whether an inode is a directory with names that stay.
    fn has_entries(&self, ino: Ino) -> Result<bool, FsError> {
        if !self.checker.is_directory(ino) || self.checker.cut_short.contains(&ino) {
            return Ok(self.checker.is_directory(ino));
        }
        let inode = self.checker.volume.inodes().read(ino)?;
        let mut found = false;
        Directory::new(&self.checker.volume, &inode).read(0, &mut |entry| {
            found |= !matches!(entry.name, b"." | b"..") && self.checker.seen.contains(entry.ino);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// The findings that need a check of the unmounted volume, and how many are not stored.
    fn left(&self) -> (Vec<Finding>, u64) {
        let report = &self.checker.report;
        let stays = |finding: &&Finding| !self.is_corrected(finding);
        let left: Vec<Finding> = report.findings.iter().filter(stays).cloned().collect();
        // Of those that are not stored, counts and bitmaps are looked at anew.
        let is_last = |finding: &Finding| finding.problem.phase == LAST_PHASE;
        if report.more > 0 && !report.findings.last().is_some_and(is_last) {
            return (left, report.more);
        }
        let is_unexpected = |finding: &&Finding| finding.class == Class::Unexpected;
        let stored = wide(report.findings.iter().filter(is_unexpected).count());
        (left, report.unexpected - stored)
    }

    fn is_corrected(&self, finding: &Finding) -> bool {
        let checker = self.checker;
        let ino = finding.location.ino;
        let is_directory = ino.is_some_and(|ino| checker.is_directory(ino));
        if finding.is(problems::INODE_UNREFERENCED) {
            return ino.is_some_and(|ino| self.deleted.contains(&ino));
        }
        if finding.is(problems::DIRECTORY_TWO_NAMES)
            && ino.is_some_and(|ino| self.undecided.contains(&ino))
        {
            return false;
        }
        // Without a place for its name.
        let is_lost = checker.lost_found.is_some_and(|(_, ino)| {
            !checker.is_directory(ino) || checker.policies.contains_key(&ino)
        });
        if is_lost && ino.is_some_and(|ino| self.connected.contains(&ino)) {
            return false;
        }
        // A file with too few links would go with one of its names.
        let is_low = finding.is(problems::INODE_LINKS_LOW);
        let is_many =
            ino.and_then(|ino| checker.seen.get(ino)).is_some_and(|seen| seen.names >= LINK_MAX);
        let is_unknown =
            finding.is(problems::ENTRY_UNALLOCATED) && finding.class == Class::Unexpected;
        let is_known = CORRECTED.iter().any(|problem| finding.is(problem));
        is_known && !is_unknown && (!is_low || is_directory) && !(is_directory && is_many)
    }

    fn plan(&mut self) -> Result<(), FsError> {
        let mut unused = Vec::new();
        for number in (0..self.checker.sb().groups).map(GroupNo::new) {
            self.group(number, &mut unused)?;
        }
        self.names()?;
        self.all.extend(self.deleted.iter().map(|&ino| Correction::Delete(ino)));
        self.inodes();
        self.all.append(&mut unused);
        // They need room, and other corrections make some.
        for &ino in &self.connected {
            let surplus = self.surplus(ino) - 1;
            let missing = u16::try_from(-surplus).unwrap_or(0);
            self.all.push(Correction::Connect { dir: ino, missing });
            if let Ok(by @ 1..) = u16::try_from(surplus) {
                self.all.push(Correction::DropLinks { ino, by });
            }
        }
        Ok(())
    }

    /// By how many the link count of an inode is too high after the corrections of names.
    fn surplus(&self, ino: Ino) -> i64 {
        let changed = self.changed.get(&ino).copied().unwrap_or(0);
        self.checker
            .seen
            .get(ino)
            .map_or(0, |seen| i64::from(seen.links) - seen.names.cast_signed() + changed)
    }

    /// Names that go, and `..` of directories.
    fn names(&mut self) -> Result<(), FsError> {
        let mut parents = BTreeMap::new();
        for fix in self.checker.fixes.all() {
            match fix {
                Fix::Remove(spot) => self.remove(spot)?,
                Fix::Parent(dir, to) => {
                    parents.insert(dir, to);
                }
                Fix::Deleted(ino) => {
                    self.unsafe_parts += u64::from(!self.unused.contains(&ino));
                }
                _ => {}
            }
        }
        for (&dir, &spot) in &self.kept {
            let place = self.checker.seen.place_of(dir);
            let Some(first) = place.named_in.filter(|&first| first != spot) else { continue };
            // The check has counted it in the parent of its first name.
            *self.changed.entry(first.dir).or_default() += 1;
            *self.changed.entry(spot.dir).or_default() -= 1;
            parents.remove(&dir);
            if place.parent != Some(spot.dir) {
                parents.insert(dir, spot.dir);
            }
        }
        for (dir, to) in parents {
            let from = self.checker.seen.place_of(dir).parent;
            let from = from
                .filter(|&from| self.checker.is_directory(from) && !self.deleted.contains(&from));
            *self.changed.entry(to).or_default() += 1;
            if let Some(from) = from {
                *self.changed.entry(from).or_default() -= 1;
            }
            self.all.push(Correction::SetParent { dir, from, to });
        }
        Ok(())
    }

    /// Removes a name, or in its place the first one of its directory, if it is to be kept.
    fn remove(&mut self, spot: Spot) -> Result<(), FsError> {
        let (mut name, ino) = self.entry_at(spot)?;
        let mut dir = spot.dir;
        if self.kept.get(&ino) == Some(&spot)
            && let Some(first) = self.checker.seen.place_of(ino).named_in
        {
            (name, _) = self.entry_at(first)?;
            dir = first.dir;
        }
        // Its number must not be given to another file before.
        let is_kept = self.checker.seen.contains(ino) || self.unused.contains(&ino);
        self.unsafe_parts += u64::from(!is_kept);
        self.all.push(Correction::RemoveName { dir, name, ino });
        Ok(())
    }

    /// The name of an entry, and the inode that it leads to.
    fn entry_at(&self, spot: Spot) -> Result<(Vec<u8>, Ino), FsError> {
        let volume = &self.checker.volume;
        let place = Location::of("directory").in_inode(spot.dir);
        let inode = volume.inodes().read(spot.dir)?;
        let len = wide(volume.block_len()).max(1);
        let block = Directory::new(volume, &inode).block(Lbn::new(spot.at / len))?;
        let at = index(spot.at % len);
        let lost = || field::truncated(place);
        let head: DirEntryHead = field::parse(&block, at).ok_or_else(lost)?;
        let start = at + size_of::<DirEntryHead>();
        let name = field::slice(&block, start, usize::from(head.name_len)).ok_or_else(lost)?;
        Ok((name.to_vec(), Ino::new(head.inode.get())))
    }

    /// Corrections of files that stay.
    fn inodes(&mut self) {
        let mut counted: BTreeSet<Ino> = self.changed.keys().copied().collect();
        for fix in self.checker.fixes.all() {
            match fix {
                Fix::Links(ino, _) => {
                    counted.insert(ino);
                }
                Fix::Sectors(ino, _) if !self.deleted.contains(&ino) => {
                    self.all.push(Correction::Sectors(ino));
                }
                _ => {}
            }
        }
        for ino in counted {
            if self.deleted.contains(&ino) || self.connected.contains(&ino) {
                continue;
            }
            let surplus = self.surplus(ino);
            if let Ok(by @ 1..) = u16::try_from(surplus) {
                self.all.push(Correction::DropLinks { ino, by });
            }
            if let Ok(by @ 1..) = u16::try_from(-surplus) {
                debug_assert!(self.checker.is_directory(ino), "others are left");
                self.all.push(Correction::RaiseLinks { ino, by });
            }
        }
    }

    /// The bits of a group that nothing uses, and the correction of its counts.
    fn group(&mut self, number: GroupNo, unused: &mut Vec<Correction>) -> Result<(), FsError> {
        let checker = self.checker;
        let (sb, volume) = (checker.sb(), &checker.volume);
        let group = volume.descriptors().read(number)?;
        let all = sb.block_size * 8;
        let (inodes, blocks) = (volume.bitmaps().inodes(&group)?, volume.bitmaps().blocks(&group)?);
        let first = number.get() * sb.inodes_per_group + 1;
        let (taken, directories) = checker.taken_of_group(number);
        for slot in 0..sb.inodes_per_group {
            let ino = Ino::new(first + slot);
            match (bit(&inodes, slot), taken.get(index(slot))) {
                (true, false) => {
                    self.unused.insert(ino);
                    unused.push(Correction::FreeInode(ino));
                }
                (false, true) => self.unsafe_parts += 1,
                _ => {}
            }
        }
        let within = sb.group_blocks(number);
        let mut run: Option<Extent> = None;
        let count = u32::try_from(within.len).unwrap_or(all);
        for (at, block) in (0..count).zip(within.start.get()..) {
            let (is_marked, is_used) = (bit(&blocks, at), checker.used.get(index(block)));
            self.unsafe_parts += u64::from(is_used && !is_marked);
            if is_used || !is_marked {
                unused.extend(run.take().map(Correction::FreeRun));
            } else {
                run.get_or_insert(Extent::new(BlockNo::new(block), 0)).len += 1;
            }
        }
        unused.extend(run.map(Correction::FreeRun));
        let is_free = |bitmap: &[u8], end: u32| (end..all).any(|at| !bit(bitmap, at));
        let is_padded = !is_free(&inodes, sb.inodes_per_group) && !is_free(&blocks, count);
        self.unsafe_parts += u64::from(!is_padded);
        // Those that are deleted are counted as their deletion goes.
        let surplus_directories = i64::from(group.used_dirs()) - i64::from(directories);
        self.all.push(Correction::Recount { group: number, surplus_directories });
        Ok(())
    }
}
