//! Phase 5: bitmaps and counts, compared with the blocks and inodes found in use.

use super::{Checker, Fix, Stage};
use crate::alloc::{GroupMut, decode_summaries};
use crate::make::{Counts, count};
use crate::ondisk::flag;
use crate::superblock::SUMMARY;
use seekless_fs::field::{index, invalid};
use seekless_fs::{FileKind, FsError, Location};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{GroupNo, Ino};

fn place(group: GroupNo) -> Location {
    Location::of("cylinder group").in_group(group)
}

/// Wrong bits: their number, and the first.
#[derive(Default)]
struct Wrong {
    count: u64,
    first: Option<u64>,
}

impl Wrong {
    fn note(&mut self, at: u64) {
        self.count += 1;
        self.first.get_or_insert(at);
    }

    fn say(&self, what: &str) -> Option<String> {
        let first = self.first?;
        Some(format!("{} {what}, the first is {first}", self.count))
    }
}

impl Checker {
    pub(super) fn groups(&mut self) -> Result<(), FsError> {
        let mut totals = Totals::default();
        let area = self.summary_area()?;
        let stored = match decode_summaries(self.sb(), &area) {
            Ok(stored) => stored,
            Err(error) => {
                let (what, place) = error.finding(Location::of("summary area"));
                self.expected("summary-area", what, place);
                Vec::new()
            }
        };
        for group in (0..self.sb().ncg).map(GroupNo::new) {
            if self.lost_groups.contains(&group) {
                continue;
            }
            let Some(now) = self.group(group)? else {
                self.lost_groups.push(group);
                continue;
            };
            totals.ndir += u64::from(now.ndir);
            totals.nbfree += u64::from(now.nbfree);
            totals.nifree += u64::from(now.nifree);
            totals.nffree += u64::from(now.nffree);
            if let Some(stored) = stored.get(index(group.get())).filter(|stored| **stored != now) {
                let what = format!("is {stored:?}, should be {now:?}");
                self.expected("summary-area", what, Location::of("summary area").in_group(group));
            }
        }
        let stored = self.sb().tuning.totals;
        if self.lost_groups.is_empty() && stored != totals {
            let what = format!("is {stored:?}, should be {totals:?}");
            self.expected("superblock.totals", what, Location::of("superblock"));
        } else if self.sb().tuning.stray_totals {
            let what = "fs_cstotal contains more than the four totals".to_string();
            self.expected("superblock.totals", what, Location::of("superblock"));
        }
        Ok(())
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

    /// Checks a group; its true counts, unless its head is unusable.
    fn group(&mut self, number: GroupNo) -> Result<Option<GroupSummary>, FsError> {
        let at = self.sb().in_group(number, self.sb().cblkno);
        let mut bytes = vec![0; index(self.sb().bsize)];
        self.volume.read_bytes(at, 0, &mut bytes)?;
        let findings = self.report.total();
        if let Err(error @ FsError::Corrupt { .. }) = self.strict.cylinder_group(number) {
            self.group_hash(error.finding(place(number)).0, number);
        }
        let sb = self.sb().clone();
        let group = match GroupMut::check(&sb, number, &mut bytes) {
            Ok(group) => group,
            Err(error) => {
                let (what, place) = error.finding(place(number));
                self.unexpected("group.head", what, place);
                self.fix(Stage::Heads, Fix::Head(number));
                return Ok(None);
            }
        };
        if let Some((field, at)) = group.misplaced_map() {
            let (what, place) = invalid(field, at, place(number)).finding(place(number));
            self.unexpected("group.head", what, place);
            self.fix(Stage::Heads, Fix::Head(number));
            return Ok(None);
        }
        self.inode_map(number, &group);
        self.block_map(number, &group);
        let now = self.recount(number);
        let stored = group.stored_counts();
        let (said, should) = (summary_of(&stored), summary_of(&now));
        if said != should {
            let what = format!("is {said:?}, should be {should:?}");
            self.expected("group.summary", what, place(number));
        }
        if stored.runs != now.runs || stored.clusters != now.clusters {
            let what = "the counts of runs of fragments or of clusters do not match the map";
            self.expected("group.counts", what.to_string(), place(number));
        }
        self.cluster_map(number, &group);
        if !group.rotors_are_within() {
            let what = "a rotor points outside the group";
            self.unexpected("group.rotor", what.to_string(), place(number));
        }
        if let Some(hash) = group.stray_hash() {
            // An older kernel leaves it behind. Only older checkers read it.
            let what = format!("cg_ckhash is {hash:#x}, but groups have no check hashes");
            self.expected("group.check-hash", what, place(number));
        }
        if let Some(field) = group.wrong_field() {
            let what = format!("{field} is not the value that the format prescribes");
            self.unexpected("group.fields", what, place(number));
        }
        if group.has_strays() {
            let what = "bits past the end of the group are set".to_string();
            self.unexpected("group.padding", what, place(number));
        }
        if self.report.total() > findings {
            self.fix(Stage::Groups, Fix::Group(number));
        }
        Ok(Some(should))
    }

    /// A torn write leaves the old check hash, on a volume that was in use.
    fn group_hash(&mut self, what: String, number: GroupNo) {
        if self.sb().clean {
            self.unexpected("group.check-hash", what, place(number));
        } else {
            self.expected("group.check-hash", what, place(number));
        }
    }

    fn inode_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let (mut leaked, mut free) = (Wrong::default(), Wrong::default());
        let first = number.get() * self.sb().ipg;
        for slot in 0..self.sb().ipg {
            let ino = Ino::new(first + slot);
            match (group.says_in_use(slot), self.is_taken(ino)) {
                (true, false) => leaked.note(u64::from(ino.get())),
                (false, true) => free.note(u64::from(ino.get())),
                _ => {}
            }
        }
        if let Some(what) = leaked.say("inodes are marked as in use and are not") {
            self.expected("bitmap.inodes-leaked", what, place(number));
        }
        if let Some(what) = free.say("inodes are in use and marked as free") {
            self.marked_free("bitmap.inodes-free", what, number);
        }
    }

    /// Blocks or inodes in use that are marked as free. Without soft updates bitmaps are written at
    /// any time, and rebuilt after a crash.
    fn marked_free(&mut self, code: &'static str, what: String, number: GroupNo) {
        let late = !self.sb().clean && self.sb().flags & flag::SOFT_UPDATES == 0;
        if late {
            self.expected(code, what, place(number));
        } else {
            self.unexpected(code, what, place(number));
        }
    }

    /// Whether an inode is in use. Inodes 0 and 1 belong to no file.
    pub(super) fn is_taken(&self, ino: Ino) -> bool {
        ino.get() < 2 || self.seen.contains_key(&ino)
    }

    fn block_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let (mut leaked, mut free) = (Wrong::default(), Wrong::default());
        let blocks = self.sb().group_blocks(number);
        for at in 0..u32::try_from(blocks.len).unwrap_or(u32::MAX) {
            let block = blocks.start.get() + u64::from(at);
            match (group.fragment_is_free(at), self.used.get(index(block))) {
                (false, false) => leaked.note(block),
                (true, true) => free.note(block),
                _ => {}
            }
        }
        if let Some(what) = leaked.say("fragments are marked as in use and are not") {
            self.expected("bitmap.blocks-leaked", what, place(number));
        }
        if let Some(what) = free.say("fragments are in use and marked as free") {
            self.marked_free("bitmap.blocks-free", what, number);
        }
    }

    /// Compares the map of free blocks with the map of fragments.
    fn cluster_map(&mut self, number: GroupNo, group: &GroupMut<'_>) {
        let frag = self.sb().frag;
        let frags = u32::try_from(self.sb().group_blocks(number).len).unwrap_or(u32::MAX);
        let blocks = frags / frag;
        let differs = |&at: &u32| {
            let first = at * frag;
            let free = (first..first + frag).all(|at| group.fragment_is_free(at));
            group.block_is_free(at).is_some_and(|says| says != free)
        };
        if let Some(first) = (0..blocks).find(differs) {
            let what = format!("block {first} of the group is free in only one of the two maps");
            self.expected("group.clusters", what, place(number));
        }
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

pub(super) fn summary_of(counts: &Counts) -> GroupSummary {
    GroupSummary {
        ndir: counts.directories,
        nbfree: counts.free_blocks,
        nifree: counts.free_inodes,
        nffree: counts.free_frags,
    }
}
