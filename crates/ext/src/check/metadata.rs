//! Pass 0: superblock, group descriptors, and the volume's own metadata.
//!
//! Superblock and descriptors are compared with their copies: a copy replaces a damaged primary
//! superblock, and a group's pointers are taken from a copy where the primary ones lead out of the
//! volume, into other metadata, or to a table without inodes. So one damaged field is one finding,
//! without further ones for everything it leads to.

use super::checker::Checker;
use super::features::{self, Corrected};
use super::fix::{Fix, Fixes, Stage};
use super::options::Start;
use super::problems;
use crate::backup;
use crate::group::{Group, bit};
use crate::ondisk::STATE_ERRORS;
use crate::ondisk::{InodeCore, STATE_VALID, compat, incompat, special};
use crate::part::Part;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::check::Report;
use seekless_fs::field::{index, parse, slice};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inodes of a table that are sampled to tell whether it is one.
const SAMPLE: u32 = 256;

/// The finding of transactions in a journal without the flag for recovery.
pub(super) const UNMARKED_JOURNAL: &str =
    "the journal contains transactions, but the superblock says that it is empty";

/// The volume, by its superblock or a copy; whether by a copy.
pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    start: Start,
    report: &mut Report,
    fixes: &mut Fixes,
) -> Result<(Volume, bool), FsError> {
    let place = Location::of("superblock");
    if let Some((sb, block)) = start.copy(device.as_ref())? {
        let what = format!("its copy in block {block} is used, as requested");
        report.add(problems::SUPERBLOCK_REQUESTED, what, place);
        fixes.add(Stage::Superblock, Fix::Superblock);
        return Volume::with_superblock(device, sb, true).map(|volume| (volume, true));
    }
    let primary = Volume::open(device.clone(), true);
    let (problem, error) = match primary {
        Err(FsError::Corrupt { .. }) => (problems::SUPERBLOCK_CORRUPT, primary.err()),
        Err(error) => return Err(error),
        // With a wrong checksum, any field may be the wrong one.
        Ok(volume) => match Volume::open(device.clone(), false) {
            Err(error @ FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) => {
                (problems::SUPERBLOCK_CHECKSUM, Some(error))
            }
            _ => return with_right_features(volume, report, fixes).map(|volume| (volume, false)),
        },
    };
    let Some(error) = error else { return Volume::open(device, true).map(|it| (it, false)) };
    let copy = backup::superblock_of(device.as_ref(), start.block_size);
    let (what, place) = error.finding(place);
    let Some((sb, block)) = copy else {
        if problem == problems::SUPERBLOCK_CORRUPT {
            let Some(sb) = Super::with_inodes_of_groups(device.as_ref()) else { return Err(error) };
            report.add(problems::SUPERBLOCK_INODES, what, place);
            fixes.add(Stage::Superblock, Fix::Superblock);
            return Volume::with_superblock(device, sb, true).map(|volume| (volume, false));
        }
        // Only its own fields vouch for it, and those fit.
        report.add(problem, what, place);
        fixes.add(Stage::Superblock, Fix::Superblock);
        return Volume::open(device, true).map(|volume| (volume, false));
    };
    let volume = Volume::with_superblock(device, sb, true)?;
    let what = format!("{what}; its copy in block {block} was used instead");
    report.add(problem, what, place);
    fixes.add(Stage::Superblock, Fix::Superblock);
    Ok((volume, true))
}

/// A volume with a sound superblock, whose features are those of a copy where descriptors
/// make sense only with these.
fn with_right_features(
    volume: Volume,
    report: &mut Report,
    fixes: &mut Fixes,
) -> Result<Volume, FsError> {
    let Some(Corrected { sb, copy, names }) = features::correct(&volume)? else {
        return Ok(volume);
    };
    let what = format!(
        "the group descriptors make sense only with {} as in its copy in block {copy}",
        names.join(", ")
    );
    report.add(problems::SUPERBLOCK_FEATURES, what, Location::of("superblock"));
    fixes.add(Stage::Superblock, Fix::Superblock);
    Volume::with_superblock(volume.device().clone(), sb, true)
}

/// Block ranges of metadata in known places: ends by starts, disjoint.
#[derive(Default)]
struct MetadataRanges(BTreeMap<BlockNo, BlockNo>);

impl MetadataRanges {
    fn is_free(&self, run: Extent) -> bool {
        let before = self.0.range(..run.end()).next_back();
        before.is_none_or(|(_, &end)| end <= run.start)
    }

    /// Takes a run; whether it was free.
    fn take(&mut self, run: Extent) -> bool {
        let free = self.is_free(run);
        if free {
            self.0.insert(run.start, run.end());
        }
        free
    }
}

/// A descriptor that may be damaged.
struct Doubtful {
    number: GroupNo,
    primary: Group,
    /// Its checksum does not match.
    bad_sum: bool,
    /// Its bytes, and the descriptor parsed from them.
    copy: Option<(Vec<u8>, Group)>,
}

/// Pass 0: superblock and group descriptors.
pub(super) struct MetadataPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> MetadataPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl MetadataPass<'_> {
    /// Features with which e2fsck refuses a volume.
    fn unsupported(&mut self) {
        let place = Location::of("superblock");
        let all = features::unsupported(&self.checker.sb().raw);
        let contradicted = features::contradicted(&self.checker.volume);
        let contradicted = contradicted.filter(|_| !self.checker.from_copy);
        if let Some((features, block)) = contradicted {
            let names = features.names().join(", ");
            let what = format!("has {names}, which its copy in block {block} has not");
            self.checker.found(problems::SUPERBLOCK_UNSUPPORTED, what, place);
            self.checker.fix(Stage::Superblock, Fix::Superblock);
        }
        let left = contradicted.map_or(all, |(features, _)| all.without(features));
        for name in left.names() {
            let what = if name == "casefold" {
                let encoding = self.checker.sb().raw.s_encoding.get();
                format!("casefold with encoding {encoding}, which is unknown")
            } else {
                format!("the feature {name} is unknown or not supported")
            };
            self.checker.found(problems::SUPERBLOCK_UNSUPPORTED, what, place);
        }
    }

    pub(super) fn superblock(&mut self) -> Result<(), FsError> {
        self.unsupported();
        if self.checker.from_copy {
            // A copy is not kept up: its totals and its state are out of date.
            return Ok(());
        }
        let place = Location::of("superblock");
        let state = self.checker.sb().raw.s_state.get();
        if state & STATE_ERRORS != 0 {
            // The errors may be gone: e2fsck checks for itself.
            self.checker.found(
                problems::SUPERBLOCK_ERRORS,
                "marked as having errors".into(),
                place,
            );
        } else if state & STATE_VALID == 0 {
            self.checker.found(problems::SUPERBLOCK_NOT_CLEAN, "not marked clean".into(), place);
        }
        // The kernel and e2fsck reserve that room for any number but zero.
        let kept = self.checker.sb().raw.s_reserved_gdt_blocks.get();
        if kept != 0 && !self.checker.sb().has_compat(compat::RESIZE_INODE) {
            let what =
                format!("{kept} blocks reserved for group descriptors, without resize_inode");
            self.checker.found(problems::SUPERBLOCK_RESERVED, what, place);
            self.checker.fix(Stage::Superblock, Fix::Superblock);
        }
        for contradiction in features::contradictions(&self.checker.sb().raw) {
            let what = format!("the features {} are set", contradiction.what);
            self.checker.found(problems::SUPERBLOCK_FEATURES, what, place);
            self.checker.fix(Stage::Superblock, Fix::Superblock);
        }
        let impossible = self.checker.impossible_fields();
        for (field, value) in &impossible {
            // The first revision has no features; they are kept.
            let is_expected =
                *field == "s_journal_inum" || (*field == "s_rev_level" && *value == 0);
            let what = format!("{field} is {value}");
            self.checker.graded(is_expected, problems::SUPERBLOCK_FIELDS, what, place);
        }
        if !impossible.is_empty() {
            self.checker.fix(Stage::Superblock, Fix::Superblock);
        }
        Ok(())
    }

    /// Claims the blocks of the volume's own metadata.
    pub(super) fn metadata(&mut self) -> Result<(), FsError> {
        let mut taken = MetadataRanges::default();
        self.fixed_places(&mut taken)?;
        let mut doubtful = Vec::new();
        for number in (0..self.checker.sb().groups).map(GroupNo::new) {
            match self.look_at(number)? {
                Some(doubt) => doubtful.push(doubt),
                None => {
                    self.checker.strict.reseal_descriptor(number);
                    let group = self.checker.volume.descriptors().read(number)?;
                    self.take_parts(&group, &mut taken);
                }
            }
        }
        for doubt in doubtful {
            let number = doubt.number;
            self.settle(doubt, &mut taken)?;
            // It was reported; reads through it must not fail for it.
            self.checker.strict.reseal_descriptor(number);
        }
        if !self.checker.sb().has_compat(compat::RESIZE_INODE) {
            self.needless_reserve(&mut taken);
        }
        Ok(())
    }

    /// Blocks reserved for more descriptors without the feature for it: they were reported, and
    /// where nothing else lies there they are in use all the same.
    fn needless_reserve(&mut self, taken: &mut MetadataRanges) {
        let kept = u64::from(self.checker.sb().raw.s_reserved_gdt_blocks.get());
        for number in (0..self.checker.sb().groups).map(GroupNo::new) {
            let runs = self.checker.volume.descriptors().copies(number);
            let (true, [_, table]) = (self.checker.sb().group_has_super(number), &*runs) else {
                continue;
            };
            let run = Extent::new(table.end(), kept);
            if kept > 0
                && run.end() <= self.checker.sb().group_blocks(number).end()
                && taken.take(run)
            {
                self.claim_fixed(run);
            }
        }
    }

    /// Superblocks, descriptors and their copies, room for more of them, the
    /// boot block and the block of multiple mount protection.
    fn fixed_places(&mut self, taken: &mut MetadataRanges) -> Result<(), FsError> {
        for number in (0..self.checker.sb().groups).map(GroupNo::new) {
            for run in self.checker.volume.descriptors().copies(number) {
                taken.take(run);
                self.claim_fixed(run);
            }
        }
        let first = self.checker.sb().first_block;
        if first.get() == 0 && self.checker.sb().block_size == 1024 {
            // The boot block lies in front of the superblock.
            taken.take(Extent::new(first, 1));
            self.claim_fixed(Extent::new(first, 1));
        }
        let mmp = Extent::new(BlockNo::new(self.checker.sb().raw.s_mmp_block.get()), 1);
        if self.checker.sb().has_incompat(incompat::MMP) {
            let place = Location::of("multiple mount protection");
            if self.checker.volume.check_extent(mmp, place).is_ok() && taken.take(mmp) {
                self.claim_fixed(mmp);
                self.checker.mmp_block(mmp.start)?;
            } else {
                let what = format!("its block, {}, is not where it should be", mmp.start);
                self.checker.mmp_found(false, what, None);
            }
        }
        Ok(())
    }

    /// Whether there is reason to doubt a descriptor.
    fn look_at(&mut self, number: GroupNo) -> Result<Option<Doubtful>, FsError> {
        let place = Location::of("group descriptor").in_group(number);
        let strict = self.checker.strict.descriptors().read(number);
        let bad_sum =
            matches!(strict, Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }));
        self.checker.checksum(strict, problems::GROUP_CHECKSUM, place)?;
        if bad_sum {
            self.checker.fix(Stage::Heads, Fix::Head(number));
            self.checker.doubtful_groups.insert(number);
            self.checker.damaged_descriptors.insert(number);
        }
        let primary = self.checker.volume.descriptors().read(number)?;
        if self.checker.volume.descriptors().has_needless_marks(&primary) {
            let what = "marked as never written, without checksums of descriptors".to_string();
            self.checker.expected(problems::GROUP_HEAD, what, place);
            self.checker.fix(Stage::Heads, Fix::Head(number));
        }
        // The padding behind the end of the volume is in its last bitmap (e2fsck,
        // `PR_0_BB_UNINIT_LAST`).
        if self.checker.is_last(number) && primary.block_uninit() && !bad_sum {
            let what = "the last block bitmap is marked as never written".to_string();
            self.checker.expected(problems::GROUP_HEAD, what, place);
            self.checker.fix(Stage::Heads, Fix::WrittenBitmap(number));
        }
        let fits = Part::ALL.iter().all(|&part| self.fits(part, &primary));
        let has_sums = self.checker.has_uninit();
        let blocks = self.checker.sb().itable_blocks();
        let is_rooted =
            number != GroupNo::ZERO || !fits || self.has_root(Part::Table.of(&primary, blocks))?;
        if fits && is_rooted && has_sums && !bad_sum {
            return Ok(None);
        }
        // A checksum that matches speaks for itself; a copy may be older.
        let copy = self.checker.strict.descriptors().backup(number)?;
        let copy = match copy {
            Some(bytes) => {
                let group = self.checker.volume.descriptors().parse(number, &bytes)?;
                Some((bytes, group))
            }
            None => None,
        };
        let same = copy.as_ref().is_none_or(|(_, copy)| {
            Part::ALL.iter().all(|part| part.of(copy, blocks) == part.of(&primary, blocks))
        });
        let is_sure = fits && same && is_rooted && !bad_sum;
        Ok((!is_sure).then_some(Doubtful { number, primary, bad_sum, copy }))
    }

    /// Whether a part lies where it may: in the volume, and without `flex_bg` in
    /// its own group.
    fn fits(&self, part: Part, group: &Group) -> bool {
        let run = part.of(group, self.checker.sb().itable_blocks());
        if self.checker.volume.check_extent(run, Location::of("group descriptor")).is_err() {
            return false;
        }
        let own = self.checker.sb().group_blocks(group.number);
        self.checker.sb().has_incompat(incompat::FLEX_BG)
            || (run.start >= own.start && run.end() <= own.end())
    }

    /// Takes the parts of a group that is not doubted.
    fn take_parts(&mut self, group: &Group, taken: &mut MetadataRanges) {
        for part in Part::ALL {
            let run = part.of(group, self.checker.sb().itable_blocks());
            if taken.take(run) {
                self.claim_fixed(run);
            } else {
                self.lose(group, part, run);
            }
        }
    }

    /// Reports that a part of a group has an impossible place, and forgets the pointer to it.
    fn lose(&mut self, group: &Group, part: Part, run: Extent) {
        let number = group.number;
        let what = format!("its {} at {} is not where it should be", part.name(), run.start);
        let place = Location::of("group descriptor").in_group(number);
        // e2fsck takes it for one that was never set.
        let is_unset = run.start == BlockNo::ZERO && self.fits(part, group);
        // A new inode table would lose names and contents.
        self.checker.graded(is_unset && part != Part::Table, problems::GROUP_HEAD, what, place);
        if part != Part::Table {
            self.checker.fix(Stage::Parts, Fix::Place(number, part));
        }
        self.checker.damaged_descriptors.insert(number);
        self.forget(number, part);
    }

    fn forget(&mut self, number: GroupNo, part: Part) {
        match part {
            Part::BlockBitmap => self.checker.lost_block_bitmaps.insert(number),
            Part::InodeBitmap => self.checker.lost_inode_bitmaps.insert(number),
            Part::Table => self.checker.lost_groups.insert(number),
        };
    }

    /// Chooses the descriptor of a group, part by part.
    fn settle(&mut self, doubt: Doubtful, taken: &mut MetadataRanges) -> Result<(), FsError> {
        let Doubtful { number, primary, bad_sum, copy } = doubt;
        let blocks = self.checker.sb().itable_blocks();
        for part in Part::ALL {
            let run = part.of(&primary, blocks);
            let mut good = self.fits(part, &primary) && taken.is_free(run);
            // A pointer whose descriptor has a wrong checksum is judged by the block it leads to.
            if good && bad_sum {
                good = match part {
                    Part::BlockBitmap if primary.block_uninit() => true,
                    Part::InodeBitmap if primary.inode_uninit() => true,
                    Part::BlockBitmap | Part::InodeBitmap => self.is_bitmap(number, part, run)?,
                    Part::Table => {
                        let (used, found) = self.inodes_in(number, run)?;
                        used == 0 || found > 0
                    }
                };
            }
            let spare = copy.as_ref().map(|(bytes, group)| (bytes, part.of(group, blocks)));
            let spare = spare.filter(|&(_, spare)| taken.is_free(spare));
            let is_first = part == Part::Table && number == GroupNo::ZERO;
            if is_first
                && spare.as_ref().is_none_or(|(_, spare)| *spare == run)
                && !(good && self.has_root(run)?)
                && let Some(found) = self.table_with_root(taken)?
                // A table that was moved away may still be there, with an older root.
                && (!self.fits(part, &primary) || self.is_likelier(number, part, found, run)?)
            {
                let what = format!(
                    "its {} is at {}, but the root directory is in one at {}",
                    part.name(),
                    run.start,
                    found.start
                );
                let mut bytes = self.checker.volume.descriptors().bytes(number)?.to_vec();
                part.point(&mut bytes, found.start);
                self.replace_part(number, part, found, &bytes, what, taken);
                continue;
            }
            let is_unwritten = match part {
                Part::BlockBitmap => primary.block_uninit(),
                Part::InodeBitmap => primary.inode_uninit(),
                Part::Table => false,
            };
            let unknown = bad_sum && spare.is_none() && is_unwritten;
            let takes_spare = match &spare {
                Some((_, spare)) if *spare != run => {
                    !good || bad_sum || self.is_likelier(number, part, *spare, run)?
                }
                _ => false,
            };
            if let Some((bytes, spare)) = spare.filter(|_| takes_spare) {
                let name = part.name();
                let what = format!(
                    "its {name} is at {}, but at {} according to a backup",
                    run.start, spare.start
                );
                self.replace_part(number, part, spare, bytes, what, taken);
            } else if good && !unknown {
                taken.take(run);
                self.claim_fixed(run);
            } else if good {
                // The checksum was reported. Whether the pointer is wrong cannot be told, so its
                // bitmap or table is not reported.
                self.forget(number, part);
            } else {
                self.lose(&primary, part, run);
            }
        }
        Ok(())
    }

    /// Replaces the pointer to a part of a group by that of `bytes`, another version of its
    /// descriptor.
    fn replace_part(
        &mut self,
        number: GroupNo,
        part: Part,
        run: Extent,
        bytes: &[u8],
        what: String,
        taken: &mut MetadataRanges,
    ) {
        self.checker.unexpected(
            problems::GROUP_HEAD,
            what,
            Location::of("group descriptor").in_group(number),
        );
        self.checker.damaged_descriptors.insert(number);
        self.checker.fix(Stage::Heads, Fix::Head(number));
        self.checker.volume.replace_pointer(number, part, bytes);
        self.checker.strict.replace_pointer(number, part, bytes);
        taken.take(run);
        self.claim_fixed(run);
    }

    /// Whether the inode of the root directory in a table of the first group leads to the
    /// entries of that directory.
    fn has_root(&self, table: Extent) -> Result<bool, FsError> {
        let sb = self.checker.sb();
        // Its number is 2: it is the second of the table.
        let size = u32::from(sb.inode_size);
        let (number, offset) =
            if size < sb.block_size { (table.start, size) } else { (table.start + 1, 0) };
        let place = Location::of("inode table").in_group(GroupNo::ZERO);
        let root = self.checker.volume.block(number, place).and_then(|block| {
            self.checker.volume.inodes().read_in(Ino::new(special::ROOT), block, index(offset))
        });
        match root {
            Err(FsError::Corrupt { .. }) => Ok(false),
            root => {
                let root = root?;
                let is_dir = root.kind() == Some(FileKind::Directory);
                Ok(is_dir && self.checker.is_really_directory(&root)?)
            }
        }
    }

    /// The table with the root directory, wherever it lies in the first group. A volume of one
    /// group has no copy of its descriptor.
    fn table_with_root(&self, taken: &MetadataRanges) -> Result<Option<Extent>, FsError> {
        let own = self.checker.sb().group_blocks(GroupNo::ZERO);
        let blocks = self.checker.sb().itable_blocks();
        let Some(last) = own.end().get().checked_sub(blocks) else { return Ok(None) };
        for start in own.start.get()..=last {
            let run = Extent::new(BlockNo::new(start), blocks);
            if taken.is_free(run) && self.has_root(run)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Whether one place for a part of a group looks right, and another does not.
    fn is_likelier(
        &self,
        number: GroupNo,
        part: Part,
        one: Extent,
        other: Extent,
    ) -> Result<bool, FsError> {
        if part == Part::Table {
            return Ok(self.inodes_in(number, one)?.1 > self.inodes_in(number, other)?.1);
        }
        Ok(self.is_bitmap(number, part, one)? && !self.is_bitmap(number, part, other)?)
    }

    /// Whether a block could be a bitmap of a group: the bits behind its end are
    /// set, and so are those of inodes that are never free.
    fn is_bitmap(&self, number: GroupNo, part: Part, run: Extent) -> Result<bool, FsError> {
        let sb = self.checker.sb();
        let mut bytes = vec![0; self.checker.volume.block_len()];
        self.checker.volume.read_bytes(run.start, 0, &mut bytes)?;
        let (count, taken) = match part {
            Part::InodeBitmap if number == GroupNo::ZERO => {
                (sb.inodes_per_group, sb.raw.s_first_ino.get().saturating_sub(1))
            }
            Part::InodeBitmap => (sb.inodes_per_group, 0),
            Part::BlockBitmap | Part::Table => {
                let clusters = sb.clusters_of(sb.group_blocks(number));
                let count = clusters.end - clusters.start;
                (u32::try_from(count).unwrap_or(u32::MAX), 0)
            }
        };
        let padded = (count..sb.block_size * 8).all(|at| bit(&bytes, at));
        let is_marked = (0..taken.min(count)).all(|at| bit(&bytes, at));
        Ok(padded && is_marked)
    }

    /// How many of a group's first inodes are used by the bitmap (none without a bitmap), and how
    /// many look like inodes in a table.
    fn inodes_in(&self, number: GroupNo, table: Extent) -> Result<(u32, u32), FsError> {
        let group = self.checker.volume.descriptors().read(number)?;
        let bitmap_run = Extent::new(group.inode_bitmap(), 1);
        let bitmap = match self.checker.volume.bitmaps().inodes(&group) {
            Ok(_) if self.checker.lost_inode_bitmaps.contains(&number) => None,
            // Its pointer may lead to something else.
            Ok(_) if !self.is_bitmap(number, Part::InodeBitmap, bitmap_run)? => None,
            Ok(bitmap) => Some(bitmap),
            Err(FsError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let size = usize::from(self.checker.sb().inode_size);
        let mut bytes = vec![0; size];
        let first = number.get() * self.checker.sb().inodes_per_group + 1;
        let (mut used, mut found) = (0u32, 0u32);
        for slot in 0..self.checker.sb().inodes_per_group.min(SAMPLE) {
            let is_free = bitmap.as_ref().is_some_and(|bitmap| !bit(bitmap, slot));
            if is_free || self.checker.volume.sb.is_reserved(Ino::new(first + slot)) {
                continue;
            }
            used += u32::from(bitmap.is_some());
            let skip = u64::from(slot) * u64::from(self.checker.sb().inode_size);
            self.checker.volume.read_bytes(table.start, skip, &mut bytes)?;
            let core: Option<InodeCore> = slice(&bytes, 0, size).and_then(|bytes| parse(bytes, 0));
            let is_inode = core.is_some_and(|core| {
                FileKind::from_mode(core.i_mode.get()).is_some() && core.i_links_count.get() > 0
            });
            found += u32::from(is_inode);
        }
        Ok((used, found))
    }

    fn claim_fixed(&mut self, run: Extent) {
        for cluster in self.checker.sb().clusters_of(run) {
            self.checker.used.set(index(cluster));
            self.checker.fixed.set(index(cluster));
        }
    }
}
