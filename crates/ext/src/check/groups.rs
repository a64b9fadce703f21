//! Pass 5: bitmaps and counts, compared with the blocks and inodes found in use.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::group::Group;
use seekless_fs::field::{self, index};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::GroupNo;

/// Bits of a bitmap that differ from the use that was found.
#[derive(Default)]
struct Differences {
    /// Used, but marked as free.
    free: Vec<u64>,
    /// Marked as used, but free.
    leaked: Vec<u64>,
    used: u32,
}

impl Differences {
    fn compare(&mut self, number: u64, used: bool, marked: bool) {
        self.used += u32::from(used);
        match (used, marked) {
            (true, false) => self.free.push(number),
            (false, true) => self.leaked.push(number),
            _ => {}
        }
    }

    /// Compares the bits of a word from the lowest on; `number_of` gives the number of each.
    fn compare_word(&mut self, used: u64, marked: u64, number_of: impl Fn(u64) -> u64) {
        if used == marked {
            self.used += used.count_ones();
            return;
        }
        for at in 0..u64::from(u64::BITS) {
            self.compare(number_of(at), used >> at & 1 == 1, marked >> at & 1 == 1);
        }
    }
}

/// Whether a bit of a bitmap is clear, from one on.
fn has_clear_bit(bitmap: &[u8], from: usize) -> bool {
    let first = bitmap.get(from >> 3).is_some_and(|byte| !byte >> (from & 7) != 0);
    first || bitmap.iter().skip((from >> 3) + 1).any(|byte| *byte != u8::MAX)
}

/// Pass 5: bitmaps and counts of groups.
pub(super) struct GroupPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> GroupPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl GroupPass<'_> {
    pub(super) fn groups(&mut self) -> Result<(), FsError> {
        let (mut blocks, mut inodes) = (0u64, 0u32);
        let groups = self.checker.sb().groups;
        for number in (0..groups).map(GroupNo::new) {
            self.checker.reach(5, index(number.get()), index(groups));
            if self.checker.lost_groups.contains(&number) {
                continue;
            }
            let group = self.checker.volume.descriptors().read(number)?;
            let free_clusters = self.blocks_of_group(number, &group)?;
            let (free_inodes, directories) = self.inodes_of_group(number, &group)?;
            blocks += u64::from(free_clusters);
            inodes += free_inodes;
            let place = Location::of("group descriptor").in_group(number);
            // Blocks of inodes that cannot be found are in use all the same.
            let counted = !self.checker.damaged_descriptors.contains(&number);
            let known = counted && !self.checker.has_lost_blocks();
            for (what, said, found, known) in [
                ("free blocks", group.free_clusters(), free_clusters, known),
                ("free inodes", group.free_inodes(), free_inodes, counted),
                ("directories", group.used_dirs(), directories, counted),
            ] {
                if known && said != found {
                    let what = format!("has {said} {what}, should be {found}");
                    self.checker.found(problems::GROUP_COUNTS, what, place);
                    self.checker.report.set_values(said.into(), found.into());
                    self.checker.fix(Stage::Groups, Fix::Group(number));
                }
            }
        }
        self.checker.reach(5, index(groups), index(groups));
        self.checker.free = (blocks, inodes);
        if !self.checker.has_lost_blocks() && !self.checker.from_copy {
            self.totals(blocks, inodes);
        }
        Ok(())
    }

    /// The superblock's totals, which a mounted volume does not keep up.
    fn totals(&mut self, clusters: u64, inodes: u32) {
        let sb = self.checker.sb();
        let raw = &sb.raw;
        let bit64 = sb.has_incompat(crate::ondisk::incompat::BIT64);
        let high = if bit64 { u64::from(raw.s_free_blocks_count_hi.get()) } else { 0 };
        let said = (high << 32) | u64::from(raw.s_free_blocks_count_lo.get());
        let blocks = clusters * u64::from(sb.cluster_ratio);
        let said_inodes = raw.s_free_inodes_count.get();
        let place = Location::of("superblock");
        if said != blocks {
            let what = format!("has {said} free blocks, should be {blocks}");
            self.checker.found(problems::SUPERBLOCK_TOTALS, what, place);
            self.checker.report.set_values(said, blocks);
            self.checker.fix(Stage::Groups, Fix::Group(GroupNo::ZERO));
        }
        if said_inodes != inodes {
            let what = format!("has {said_inodes} free inodes, should be {inodes}");
            self.checker.found(problems::SUPERBLOCK_TOTALS, what, place);
            self.checker.report.set_values(said_inodes.into(), inodes.into());
            self.checker.fix(Stage::Groups, Fix::Group(GroupNo::ZERO));
        }
    }

    /// Compares a group's block bitmap; free clusters are counted.
    fn blocks_of_group(&mut self, number: GroupNo, group: &Group) -> Result<u32, FsError> {
        let place = Location::of("block bitmap").in_group(number);
        let blocks = self.checker.sb().group_blocks(number);
        let ratio = u64::from(self.checker.sb().cluster_ratio);
        let first = blocks.start.get() / ratio;
        let count = blocks.len.div_ceil(ratio);
        let lost = self.checker.lost_block_bitmaps.contains(&number)
            || self.is_doubtful(
                number,
                group.block_uninit(),
                self.checker.strict.bitmaps().blocks(group),
            );
        let bitmap = if lost || group.block_uninit() {
            None
        } else {
            if self.checker.checksum(
                self.checker.strict.bitmaps().blocks(group),
                problems::BITMAP_CHECKSUM,
                place,
            )? {
                self.checker.fix(Stage::Groups, Fix::Group(number));
            }
            self.checker.sound(
                self.checker.volume.bitmaps().blocks(group),
                problems::BITMAP_UNREADABLE,
                place,
            )?
        };
        let mut found = Differences::default();
        // A missing bitmap that should be there is not compared.
        let unread = bitmap.is_none() && !group.block_uninit();
        for at in (0..count).step_by(64) {
            let valid = u64::MAX >> (64 - (count - at).min(64));
            let cluster = first + at;
            let used = self.checker.used.word_at(index(cluster)) & valid;
            let marked = match &bitmap {
                _ if lost || unread => used,
                Some(bytes) => field::le64(bytes, index(at / 8)).unwrap_or(u64::MAX) & valid,
                // Never written: only the volume's own metadata is in use.
                None => self.checker.fixed.word_at(index(cluster)) & valid,
            };
            found.compare_word(used, marked, |bit| (cluster + bit) * ratio);
        }
        if bitmap.as_ref().is_some_and(|bytes| has_clear_bit(bytes, index(count))) {
            let what = "bits past the end of the group are not set".to_string();
            self.checker.found(problems::BITMAP_PADDING, what, place);
            self.checker.fix(Stage::Groups, Fix::Group(number));
        }
        debug_assert!(u64::from(found.used) <= count, "{} of {count} clusters", found.used);
        self.report_bits("blocks", &found, place);
        Ok(u32::try_from(count).unwrap_or(u32::MAX) - found.used)
    }

    /// Whether a bitmap cannot be judged because the descriptor is damaged that contains its
    /// checksum and the flag for never written.
    fn is_doubtful<T>(&self, number: GroupNo, uninit: bool, read: Result<T, FsError>) -> bool {
        let bad_sum =
            matches!(read, Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }));
        self.checker.doubtful_groups.contains(&number) && (uninit || bad_sum)
    }

    /// Compares a group's inode bitmap; free inodes and directories are counted.
    fn inodes_of_group(&mut self, number: GroupNo, group: &Group) -> Result<(u32, u32), FsError> {
        let place = Location::of("inode bitmap").in_group(number);
        let count = self.checker.sb().inodes_per_group;
        let lost = self.checker.lost_inode_bitmaps.contains(&number)
            || self.is_doubtful(
                number,
                group.inode_uninit(),
                self.checker.strict.bitmaps().inodes(group),
            );
        let bitmap = if lost || group.inode_uninit() {
            None
        } else {
            if self.checker.checksum(
                self.checker.strict.bitmaps().inodes(group),
                problems::BITMAP_CHECKSUM,
                place,
            )? {
                self.checker.fix(Stage::Groups, Fix::Group(number));
            }
            self.checker.sound(
                self.checker.volume.bitmaps().inodes(group),
                problems::BITMAP_UNREADABLE,
                place,
            )?
        };
        let first = number.get() * count + 1;
        let (taken, directories) = self.checker.taken_of_group(number);
        let mut found = Differences::default();
        let unread = bitmap.is_none() && !group.inode_uninit();
        for at in (0..count).step_by(64) {
            let valid = u64::MAX >> (64 - (count - at).min(64));
            let used = taken.word_at(index(at));
            let marked = match &bitmap {
                _ if lost || unread => used,
                Some(bytes) => field::le64(bytes, index(at / 8)).unwrap_or(u64::MAX) & valid,
                None => 0,
            };
            found.compare_word(used, marked, |bit| u64::from(first) + u64::from(at) + bit);
        }
        if bitmap.as_ref().is_some_and(|bytes| has_clear_bit(bytes, index(count))) {
            let what = "bits past the end of the group are not set".to_string();
            self.checker.found(problems::BITMAP_PADDING, what, place);
            self.checker.fix(Stage::Groups, Fix::Group(number));
        }
        debug_assert!(directories <= found.used, "directories are inodes in use");
        self.report_bits("inodes", &found, place);
        Ok((count - found.used, directories))
    }

    fn fix_group(&mut self, place: Location) {
        if let Some(number) = place.group {
            self.checker.fix(Stage::Groups, Fix::Group(number));
        }
    }

    fn report_bits(&mut self, what: &str, found: &Differences, place: Location) {
        let blocks = what == "blocks";
        if let Some(first) = found.free.first() {
            let count = found.free.len();
            let text = format!("{what} in use, but marked as free: {count}, {first} first");
            let problem =
                if blocks { problems::BITMAP_BLOCKS_FREE } else { problems::BITMAP_INODES_FREE };
            self.checker.found(problem, text, place);
            self.fix_group(place);
        }
        // Inodes that cannot be found may own the blocks that seem leaked.
        let known = !blocks || !self.checker.has_lost_blocks();
        if let Some(first) = found.leaked.first().filter(|_| known) {
            let count = found.leaked.len();
            let text = format!("{what} not in use, but marked as used: {count}, {first} first");
            let problem = if blocks {
                problems::BITMAP_BLOCKS_LEAKED
            } else {
                problems::BITMAP_INODES_LEAKED
            };
            self.checker.found(problem, text, place);
            self.fix_group(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::has_clear_bit;

    #[test]
    fn padding_is_looked_at_bit_by_bit() {
        for len in 0..40 {
            for clear in 0..40 {
                let mut bitmap = [0xFF; 5];
                bitmap[clear / 8] &= !(1 << (clear % 8));
                assert_eq!(has_clear_bit(&bitmap, len), clear >= len, "{clear} is clear, of {len}");
            }
            assert!(!has_clear_bit(&[0xFF; 5], len));
        }
        assert!(!has_clear_bit(&[0; 5], 40), "nothing is behind the last bit");
    }
}
