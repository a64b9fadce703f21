//! Phase 5: bitmaps and counts, compared with the blocks and inodes found in use.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::alloc::{GroupMut, decode_summaries};
use crate::make::Counts;
use crate::ondisk::flag;
use seekless_fs::check::Problem;
use seekless_fs::field::{index, invalid};
use seekless_fs::{FsError, Location};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{GroupNo, Ino};

fn place(group: GroupNo) -> Location {
    Location::of("cylinder group").in_group(group)
}

/// BitmapErrors bits: their number, and the first.
#[derive(Default)]
struct BitmapErrors {
    count: u64,
    first: Option<u64>,
}

impl BitmapErrors {
    fn note(&mut self, at: u64) {
        self.count += 1;
        self.first.get_or_insert(at);
    }

    fn say(&self, what: &str) -> Option<String> {
        let first = self.first?;
        Some(format!("{} {what}, the first is {first}", self.count))
    }
}

/// Phase 5: bitmaps and counts.
pub(super) struct GroupPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> GroupPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }

    pub(super) fn groups(&mut self) -> Result<(), FsError> {
        let mut totals = Totals::default();
        let area = self.checker.summary_area()?;
        let stored = match decode_summaries(self.checker.sb(), &area) {
            Ok(stored) => stored,
            Err(error) => {
                let (what, place) = error.finding(Location::of("summary area"));
                self.checker.found(problems::SUMMARY_AREA, what, place);
                Vec::new()
            }
        };
        for group in (0..self.checker.sb().ncg).map(GroupNo::new) {
            if self.checker.lost_groups.contains(&group) {
                continue;
            }
            let Some(now) = self.group(group)? else {
                self.checker.lost_groups.push(group);
                continue;
            };
            totals.ndir += u64::from(now.ndir);
            totals.nbfree += u64::from(now.nbfree);
            totals.nifree += u64::from(now.nifree);
            totals.nffree += u64::from(now.nffree);
            if let Some(stored) = stored.get(index(group.get())).filter(|stored| **stored != now) {
                let what = format!("is {stored:?}, should be {now:?}");
                self.checker.found(
                    problems::SUMMARY_AREA,
                    what,
                    Location::of("summary area").in_group(group),
                );
            }
        }
        let stored = self.checker.sb().tuning.totals;
        if self.checker.lost_groups.is_empty() && stored != totals {
            let what = format!("is {stored:?}, should be {totals:?}");
            self.checker.found(problems::SUPERBLOCK_TOTALS, what, Location::of("superblock"));
        } else if self.checker.sb().tuning.stray_totals {
            let what = "fs_cstotal contains more than the four totals".to_string();
            self.checker.found(problems::SUPERBLOCK_TOTALS, what, Location::of("superblock"));
        }
        Ok(())
    }

    /// Checks a group; its true counts, unless its head is unusable.
    fn group(&mut self, number: GroupNo) -> Result<Option<GroupSummary>, FsError> {
        let at = self.checker.sb().in_group(number, self.checker.sb().cblkno);
        let mut bytes = vec![0; index(self.checker.sb().bsize)];
        self.checker.volume.read_bytes(at, 0, &mut bytes)?;
        let findings = self.checker.report.total();
        if let Err(error @ FsError::Corrupt { .. }) = self.checker.strict.cylinder_group(number) {
            self.group_hash(error.finding(place(number)).0, number);
        }
        let sb = self.checker.sb().clone();
        let group = match GroupMut::check(&sb, number, &mut bytes) {
            Ok(group) => group,
            Err(error) => {
                let (what, place) = error.finding(place(number));
                self.checker.found(problems::GROUP_HEAD, what, place);
                self.checker.fix(Stage::Heads, Fix::Head(number));
                return Ok(None);
            }
        };
        if let Some((field, at)) = group.misplaced_map() {
            let (what, place) = invalid(field, at, place(number)).finding(place(number));
            self.checker.found(problems::GROUP_HEAD, what, place);
            self.checker.fix(Stage::Heads, Fix::Head(number));
            return Ok(None);
        }
        self.inode_map(number, &group);
        self.block_map(number, &group);
        let now = self.checker.recount(number);
        let stored = group.stored_counts();
        let (said, should) = (summary_of(&stored), summary_of(&now));
        if said != should {
            let what = format!("is {said:?}, should be {should:?}");
            self.checker.found(problems::GROUP_SUMMARY, what, place(number));
        }
        if stored.runs != now.runs || stored.clusters != now.clusters {
            let what = "the counts of runs of fragments or of clusters do not match the map";
            self.checker.found(problems::GROUP_COUNTS, what.to_string(), place(number));
        }
        self.cluster_map(number, &group);
        if !group.rotors_are_within() {
            let what = "a rotor points outside the group";
            self.checker.found(problems::GROUP_ROTOR, what.to_string(), place(number));
        }
        if let Some(hash) = group.stray_hash() {
            // An older kernel leaves it behind. Only older checkers read it.
            let what = format!("cg_ckhash is {hash:#x}, but groups have no check hashes");
            self.checker.expected(problems::GROUP_CHECK_HASH, what, place(number));
        }
        if let Some(field) = group.wrong_field() {
            let what = format!("{field} is not the value that the format prescribes");
            self.checker.found(problems::GROUP_FIELDS, what, place(number));
        }
        if group.has_strays() {
            let what = "bits past the end of the group are set".to_string();
            self.checker.found(problems::GROUP_PADDING, what, place(number));
        }
        if self.checker.report.total() > findings {
            self.checker.fix(Stage::Groups, Fix::Group(number));
        }
        Ok(Some(should))
    }

    /// A torn write leaves the old check hash, on a volume that was in use.
    fn group_hash(&mut self, what: String, number: GroupNo) {
        if self.checker.sb().clean {
            self.checker.unexpected(problems::GROUP_CHECK_HASH, what, place(number));
        } else {
            self.checker.expected(problems::GROUP_CHECK_HASH, what, place(number));
        }
    }

    fn inode_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let (mut leaked, mut free) = (BitmapErrors::default(), BitmapErrors::default());
        let first = number.get() * self.checker.sb().ipg;
        for slot in 0..self.checker.sb().ipg {
            let ino = Ino::new(first + slot);
            match (group.says_in_use(slot), self.checker.is_taken(ino)) {
                (true, false) => leaked.note(u64::from(ino.get())),
                (false, true) => free.note(u64::from(ino.get())),
                _ => {}
            }
        }
        if let Some(what) = leaked.say("inodes are marked as in use and are not") {
            self.checker.found(problems::BITMAP_INODES_LEAKED, what, place(number));
        }
        if let Some(what) = free.say("inodes are in use and marked as free") {
            self.marked_free(problems::BITMAP_INODES_FREE, what, number);
        }
    }

    /// Blocks or inodes in use that are marked as free. Without soft updates bitmaps are written at
    /// any time, and rebuilt after a crash.
    fn marked_free(&mut self, problem: &'static Problem, what: String, number: GroupNo) {
        let late = !self.checker.sb().clean && self.checker.sb().flags & flag::SOFT_UPDATES == 0;
        if late {
            self.checker.expected(problem, what, place(number));
        } else {
            self.checker.unexpected(problem, what, place(number));
        }
    }

    fn block_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let (mut leaked, mut free) = (BitmapErrors::default(), BitmapErrors::default());
        let blocks = self.checker.sb().group_blocks(number);
        for at in 0..u32::try_from(blocks.len).unwrap_or(u32::MAX) {
            let block = blocks.start.get() + u64::from(at);
            match (group.fragment_is_free(at), self.checker.used.get(index(block))) {
                (false, false) => leaked.note(block),
                (true, true) => free.note(block),
                _ => {}
            }
        }
        if let Some(what) = leaked.say("fragments are marked as in use and are not") {
            self.checker.found(problems::BITMAP_BLOCKS_LEAKED, what, place(number));
        }
        if let Some(what) = free.say("fragments are in use and marked as free") {
            self.marked_free(problems::BITMAP_BLOCKS_FREE, what, number);
        }
    }

    /// Compares the map of free blocks with the map of fragments.
    fn cluster_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let frag = self.checker.sb().frag;
        let frags = u32::try_from(self.checker.sb().group_blocks(number).len).unwrap_or(u32::MAX);
        let blocks = frags / frag;
        let differs = |&at: &u32| {
            let first = at * frag;
            let free = (first..first + frag).all(|at| group.fragment_is_free(at));
            group.block_is_free(at).is_some_and(|says| says != free)
        };
        if let Some(first) = (0..blocks).find(differs) {
            let what = format!("block {first} of the group is free in only one of the two maps");
            self.checker.found(problems::GROUP_CLUSTERS, what, place(number));
        }
    }
}

pub(super) fn summary_of(counts: &Counts) -> GroupSummary {
    GroupSummary {
        ndir: counts.directories,
        nbfree: counts.free_blocks,
        nifree: counts.free_inodes,
        nffree: counts.free_frags,
    }
}
