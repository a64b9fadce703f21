//! Corrections of a volume that is in use under soft updates, from the findings in a snapshot of
//! its state after a crash.

use super::checker::Checker;
use super::fix::{DirectorySlot, Fix};
use super::problems;
use crate::alloc::GroupMut;
use crate::ondisk::DIRECTORY_UNIT;
use seekless_device::BlockDevice;
use seekless_fs::check::{Class, Finding};
use seekless_fs::corrections::{Correction, Corrections};
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks a snapshot of a volume that was in use under soft updates.
///
/// # Errors
/// As [`check`](crate::check()).
pub fn corrections(device: Arc<dyn BlockDevice>) -> Result<Corrections, FsError> {
    let checker = super::examine(&device)?;
    let planner = Planner::new(&checker);
    let (left, more_left) = planner.left();
    let is_complete = left.is_empty() && more_left == 0;
    let all = if is_complete { planner.all()? } else { Vec::new() };
    Ok(Corrections { report: checker.report, all, left, more_left })
}

/// Corrections of a volume.
struct Planner<'a> {
    checker: &'a Checker,
    /// Files to be deleted: a file without a name never had one, and an empty directory has nothing
    /// to be kept.
    deleted: BTreeSet<Ino>,
    /// Directories that get a name.
    connected: BTreeSet<Ino>,
}

impl<'a> Planner<'a> {
    fn new(checker: &'a Checker) -> Self {
        // Names that go from each directory.
        let mut removed: BTreeMap<Ino, u64> = BTreeMap::new();
        for fix in checker.fixes.all() {
            if let Fix::Remove(slot) = fix {
                *removed.entry(slot.dir).or_default() += 1;
            }
        }
        let has_entries = |ino: &Ino| {
            checker.seen.get(ino).is_some_and(|seen| {
                let removed = removed.get(ino).copied().unwrap_or(0);
                seen.kind == FileKind::Directory && seen.entries > removed
            })
        };
        let mut planner = Self { checker, deleted: BTreeSet::new(), connected: BTreeSet::new() };
        for fix in checker.fixes.all() {
            match fix {
                Fix::Connect(ino) if has_entries(&ino) => planner.connected.insert(ino),
                Fix::Clear(ino) | Fix::Connect(ino) => planner.deleted.insert(ino),
                _ => false,
            };
        }
        planner
    }

    /// The findings that need a check of the unmounted volume, and how many are not stored.
    fn left(&self) -> (Vec<Finding>, u64) {
        let lost_found = self.checker.lost_found;
        let is_a_file = lost_found.is_some_and(|(_, ino)| !self.checker.is_directory(ino));
        // There is no place for their names.
        let nameless = if is_a_file { self.connected.len() } else { 0 };
        let is_nameless = |finding: &Finding| {
            let ino = finding.location.ino.filter(|ino| self.connected.contains(ino));
            is_a_file && ino.is_some() && finding.is(problems::DIRECTORY_UNCONNECTED)
        };
        let stays = |finding: &&Finding| finding.class == Class::Unexpected || is_nameless(finding);
        let left: Vec<Finding> =
            self.checker.report.findings.iter().filter(stays).cloned().collect();
        let all = self.checker.report.unexpected + wide(nameless);
        let stored = wide(left.len());
        debug_assert!(stored <= all, "{stored} of {all} findings are stored");
        (left, all - stored)
    }

    /// By how many the link count of an inode is too high once it has so many more names.
    fn surplus(&self, ino: Ino, more: i64) -> i64 {
        self.checker.seen.get(&ino).map_or(0, |seen| seen.links - seen.names - more)
    }

    fn all(&self) -> Result<Vec<Correction>, FsError> {
        let sb = self.checker.sb();
        let groups = || (0..sb.ncg).map(GroupNo::new);
        let mut all = Vec::new();
        let mut unused = Vec::new();
        for number in groups() {
            all.push(self.group(number, &mut unused)?);
        }
        all.extend(self.names()?);
        all.extend(self.deleted.iter().map(|&ino| Correction::Delete(ino)));
        all.extend(self.inodes());
        all.extend(unused);
        // They need room, and other corrections make some.
        for &ino in &self.connected {
            let surplus = self.surplus(ino, 1);
            let missing = u16::try_from(-surplus).unwrap_or(0);
            all.push(Correction::Connect { dir: ino, missing });
            if let Ok(by @ 1..) = u16::try_from(surplus) {
                all.push(Correction::DropLinks { ino, by });
            }
        }
        Ok(all)
    }

    /// Names of directories, and `..` in them.
    fn names(&self) -> Result<Vec<Correction>, FsError> {
        let mut all = Vec::new();
        for fix in self.checker.fixes.all() {
            match fix {
                Fix::Remove(slot) => all.extend(self.name_at(slot)?),
                Fix::Parent(dir, to) => {
                    let from = self.checker.seen.get(&dir).and_then(|seen| seen.parent);
                    let stays = |from: &Ino| {
                        self.checker.seen.contains_key(from) && !self.deleted.contains(from)
                    };
                    all.push(Correction::SetParent { dir, from: from.filter(stays), to });
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// The removal of a name.
    fn name_at(&self, slot: DirectorySlot) -> Result<Option<Correction>, FsError> {
        let inode = self.checker.volume.inode(slot.dir)?;
        let within = slot.at % wide(DIRECTORY_UNIT);
        let mut unit = vec![0; DIRECTORY_UNIT];
        self.checker.volume.read_mapped(&inode, ByteLen::new(slot.at - within), &mut unit)?;
        let place = Location::of("directory").in_inode(slot.dir);
        for entry in self.checker.sb().entries(&unit, place) {
            let entry = entry?;
            if wide(entry.at) == within {
                let name = entry.name.to_vec();
                return Ok(Some(Correction::RemoveName { dir: slot.dir, name, ino: entry.ino }));
            }
        }
        debug_assert!(false, "the check has found a name at byte {}", slot.at);
        Ok(None)
    }

    /// Corrections of files that stay.
    fn inodes(&self) -> impl Iterator<Item = Correction> {
        let seen = |ino: Ino| self.checker.seen.get(&ino).filter(|_| !self.deleted.contains(&ino));
        self.checker.fixes.all().filter_map(move |fix| match fix {
            Fix::Links(ino, links) => {
                let by = seen(ino)?.links - i64::from(links);
                debug_assert!(by > 0, "a count that is too low is left");
                Some(Correction::DropLinks { ino, by: u16::try_from(by).ok()? })
            }
            Fix::Trim(ino, _) => seen(ino).map(|_| Correction::Shorten(ino)),
            Fix::Sectors(ino, _) => seen(ino).map(|_| Correction::Sectors(ino)),
            _ => None,
        })
    }

    /// The bits of a group that nothing uses, and the correction of its counts.
    fn group(&self, number: GroupNo, unused: &mut Vec<Correction>) -> Result<Correction, FsError> {
        let sb = self.checker.sb();
        let at = sb.in_group(number, sb.cblkno);
        let mut bytes = vec![0; index(sb.bsize)];
        self.checker.volume.read_bytes(at, 0, &mut bytes)?;
        let group = GroupMut::check(sb, number, &mut bytes)?;
        let first = number.get() * sb.ipg;
        let mut used = 0u32;
        for slot in 0..sb.ipg {
            let ino = Ino::new(first + slot);
            // The bit of one that is deleted goes with it.
            let is_used = self.checker.is_taken(ino) || self.deleted.contains(&ino);
            used += u32::from(group.says_in_use(slot));
            if group.says_in_use(slot) && !is_used {
                unused.push(Correction::FreeInode(ino));
            }
        }
        let blocks = sb.group_blocks(number);
        let mut run: Option<Extent> = None;
        for (at, block) in (0u32..).zip(blocks.start.get()..blocks.end().get()) {
            if group.fragment_is_free(at) || self.checker.used.get(index(block)) {
                unused.extend(run.take().map(Correction::FreeRun));
            } else {
                run.get_or_insert(Extent::new(BlockNo::new(block), 0)).len += 1;
            }
        }
        unused.extend(run.map(Correction::FreeRun));
        let range = Ino::new(first)..Ino::new(first + sb.ipg);
        let counted = i64::from(self.checker.recount(number).directories);
        // Directories that were removed while somebody had them open are not counted as in use.
        let is_uncounted = |ino: &&Ino| !self.checker.seen.contains_key(*ino);
        let going = wide(self.deleted.range(range).filter(is_uncounted).count()).cast_signed();
        // As the volume in use takes the number when it first uses the group.
        let stored = group.summary().ndir.min(used);
        let surplus_directories = i64::from(stored) - counted - going;
        Ok(Correction::Recount { group: number, surplus_directories })
    }
}
