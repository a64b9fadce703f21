//! The state of a check, which its passes share, and its findings.

use super::claims::WrongNumber;
use super::fix::{DirectorySlot, Fix, Fixes, Stage};
use super::problems;
use super::superblock::CheckedSuperblock;
use crate::make::{Counts, count};
use crate::ondisk::flag;
use crate::superblock::{SUMMARY, Super};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Problem, Report};
use seekless_fs::field::index;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{Extent, GroupNo, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An inode in use, with its links and the names counted so far.
pub(super) struct CheckedInode {
    pub(super) kind: FileKind,
    /// Its length in bytes.
    pub(super) len: u64,
    /// Links it says it has.
    pub(super) links: i64,
    /// Names that were found.
    pub(super) names: i64,
    /// Directories only: the inode of its `..`.
    pub(super) parent: Option<Ino>,
    /// Directories only: the entry that names it.
    pub(super) named_in: Option<DirectorySlot>,
    /// Directories only: its entries besides `.` and `..`.
    pub(super) entries: u64,
    /// Its blocks cannot be trusted, and are not read.
    pub(super) bad_blocks: bool,
}

/// A check under way.
pub(super) struct Checker {
    pub(super) volume: Volume,
    /// The same volume, with its check hashes compared.
    pub(super) strict: Volume,
    pub(super) report: Report,
    /// Repairs of the findings.
    pub(super) fixes: Fixes,
    /// Fragments in use.
    pub(super) used: Bits,
    pub(super) seen: BTreeMap<Ino, CheckedInode>,
    /// Block numbers that cannot stay, of files that are kept.
    pub(super) wrong: BTreeMap<Ino, Vec<WrongNumber>>,
    /// How many inodes of each group were ever written.
    pub(super) written: Vec<u32>,
    /// The entry of the root named `lost+found`, and its inode.
    pub(super) lost_found: Option<(DirectorySlot, Ino)>,
    /// Groups that could not be read, whose inodes are not checked.
    pub(super) lost_groups: Vec<GroupNo>,
    /// A directory could not be read to its end.
    pub(super) names_are_missing: bool,
    /// The bytes that the superblock should have, except for counts and state.
    pub(super) superblock: Vec<u8>,
}

impl Checker {
    /// Nothing but the superblock has been looked at yet.
    pub(super) fn new(device: &Arc<dyn BlockDevice>, chosen: CheckedSuperblock) -> Self {
        let volume = Volume::with(Arc::clone(device), chosen.sb.clone(), true);
        let strict = Volume::with(Arc::clone(device), chosen.sb.clone(), false);
        let used = Bits::new(index(volume.sb.size));
        let mut checker = Self {
            volume,
            strict,
            report: Report::default(),
            fixes: Fixes::default(),
            used,
            seen: BTreeMap::new(),
            wrong: BTreeMap::new(),
            written: Vec::new(),
            lost_found: None,
            lost_groups: Vec::new(),
            names_are_missing: false,
            superblock: chosen.bytes.clone(),
        };
        checker.report_superblock(&chosen);
        checker.claim_metadata();
        checker
    }

    pub(super) fn fix(&mut self, stage: Stage, fix: Fix) {
        self.fixes.add(stage, fix);
    }

    pub(super) fn sb(&self) -> &Super {
        &self.volume.sb
    }

    pub(super) fn found(&mut self, problem: &'static Problem, what: String, location: Location) {
        self.report.add(problem, what, location);
    }

    /// A finding that a crash may leave, of a problem of which it may not leave others.
    pub(super) fn expected(&mut self, problem: &'static Problem, what: String, location: Location) {
        self.report.add_as(problem, Class::Expected, what, location);
    }

    /// A finding that a crash does not leave, of a problem of which it may leave others.
    pub(super) fn unexpected(
        &mut self,
        problem: &'static Problem,
        what: String,
        location: Location,
    ) {
        self.report.add_as(problem, Class::Unexpected, what, location);
    }

    fn report_superblock(&mut self, chosen: &CheckedSuperblock) {
        let place = Location::of("superblock");
        if chosen.report(&mut self.report) {
            self.fix(Stage::Superblock, Fix::Superblock);
        }
        for &(group, at) in &chosen.bad_copies {
            let what = format!("differs from the copy at byte {at}");
            self.found(problems::SUPERBLOCK_COPY, what, place.in_group(group));
            self.fix(Stage::Superblock, Fix::Copy(at));
        }
        if !self.sb().clean || self.sb().flags & (flag::UNCLEAN | flag::NEEDS_FSCK) != 0 {
            self.found(problems::SUPERBLOCK_NOT_CLEAN, "not marked clean".into(), place);
        }
    }

    pub(super) fn is_directory(&self, ino: Ino) -> bool {
        self.seen.get(&ino).is_some_and(|seen| seen.kind == FileKind::Directory)
    }

    /// Claims the blocks of the volume's own metadata.
    fn claim_metadata(&mut self) {
        for group in (0..self.sb().ncg).map(GroupNo::new) {
            self.claim_fixed(self.sb().group_metadata(group));
        }
        self.claim_fixed(self.sb().summaries);
    }

    fn claim_fixed(&mut self, run: Extent) {
        debug_assert!(run.end().get() <= self.sb().size, "{run}: the superblock was checked");
        for block in run.start.get()..run.end().get() {
            self.used.set(index(block));
        }
    }

    /// A finding that a crash may leave, unless it is due to directories that could not be read.
    pub(super) fn for_want_of_names(
        &mut self,
        problem: &'static Problem,
        what: String,
        location: Location,
    ) {
        if self.names_are_missing {
            self.unexpected(problem, what, location);
        } else {
            self.expected(problem, what, location);
        }
    }

    /// Whether an inode is in use. Inodes 0 and 1 belong to no file.
    pub(super) fn is_taken(&self, ino: Ino) -> bool {
        ino.get() < 2 || self.seen.contains_key(&ino)
    }

    pub(super) fn summary_area(&self) -> Result<Vec<u8>, FsError> {
        let area = self.sb().summaries;
        self.volume.check_extent(area, Location::of("summary area"))?;
        let bytes = area.len * u64::from(self.sb().fsize);
        let least = u64::from(self.sb().ncg) * SUMMARY;
        debug_assert!(bytes >= least, "the superblock was checked");
        let mut area_bytes = vec![0; index(bytes)];
        self.volume.read_bytes(area.start, 0, &mut area_bytes)?;
        Ok(area_bytes)
    }

    /// Whether an inode lies in a group that cannot be read.
    pub(super) fn is_lost(&self, ino: Ino) -> bool {
        self.volume.sb.inode_slot(ino).is_ok_and(|(group, _)| {
            self.lost_groups.contains(&group) && self.volume.inode(ino).is_err()
        })
    }

    /// The counts of a group, by the findings of the check.
    pub(super) fn recount(&self, number: GroupNo) -> Counts {
        let sb = self.sb();
        let first = number.get() * sb.ipg;
        let range = Ino::new(first)..Ino::new(first + sb.ipg);
        let is_dir = |kind: FileKind| kind == FileKind::Directory;
        let inodes = self.seen.range(range.clone()).count();
        let directories = self.seen.range(range).filter(|(_, seen)| is_dir(seen.kind)).count();
        // Inodes 0 and 1 belong to no file.
        let reserved = if number == GroupNo::ZERO { sb.ipg.min(2) } else { 0 };
        let inodes = narrow(inodes) + reserved;
        debug_assert!(narrow(directories) <= inodes, "directories are inodes in use");
        let blocks = sb.group_blocks(number);
        let free: Vec<bool> = (blocks.start.get()..blocks.end().get())
            .map(|block| !self.used.get(index(block)))
            .collect();
        Counts {
            directories: narrow(directories),
            free_inodes: sb.ipg - inodes,
            ..count(&free, sb.frag, sb.tuning.contigsumsize)
        }
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
