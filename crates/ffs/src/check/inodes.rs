//! Phase 1: every inode, and the blocks it claims.

use super::checker::{CheckedInode, Checker};
use super::claims::{Claims, MOST_LOST, WrongNumber};
use super::fix::{Fix, Stage};
use super::problems;
use crate::alloc::head_layout_of;
use crate::group::Group;
use crate::inode::Inode;
use crate::ondisk::{CylinderGroup, DIRECT, SNAPSHOT, check_hash};
use crate::origin::check_len;
use crate::superblock::Format;
use seekless_fs::field::{index, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{GroupNo, Ino};
use std::mem::offset_of;
use zerocopy::byteorder::LE;

pub(super) fn place(ino: Ino) -> Location {
    Location::of("inode").in_inode(ino)
}

/// Phase 1: every inode, and the blocks that it claims.
pub(super) struct InodePass<'a> {
    pub(super) checker: &'a mut Checker,
    /// Fragments that maps may still have that are read a second time, for their length: a hostile
    /// image has one map in all of its inodes.
    pub(super) to_be_measured: u64,
}

impl<'a> InodePass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        let to_be_measured = checker.sb().size;
        Self { checker, to_be_measured }
    }

    pub(super) fn inodes(&mut self) -> Result<(), FsError> {
        for group in (0..self.checker.sb().ncg).map(GroupNo::new) {
            let count = self.initialised(group)?;
            debug_assert!(count <= self.checker.sb().ipg, "{count} inodes of group {group}");
            self.checker.written.push(count);
            let first = group.get() * self.checker.sb().ipg;
            for slot in 0..count {
                self.inode(Ino::new(first + slot))?;
            }
        }
        Ok(())
    }

    /// How many inodes of a group were ever written: on UFS1 all.
    fn initialised(&mut self, group: GroupNo) -> Result<u32, FsError> {
        let all = self.checker.sb().ipg;
        let place = Location::of("cylinder group").in_group(group);
        let layout = head_layout_of(self.checker.sb());
        let head = match self.checker.volume.cylinder_group(group) {
            Ok(_) if self.checker.sb().format == Format::Ufs1 => return Ok(all),
            Ok(head) if head.maps_are_at(layout.inodes, layout.frags) => head,
            // Phase 5 would tell which map it is.
            Ok(_) => return self.lost_head(group, "a map is not in its place".into(), place),
            Err(error @ FsError::Corrupt { .. }) => {
                let (what, place) = error.finding(place);
                return self.lost_head(group, what, place);
            }
            Err(error) => return Err(error),
        };
        let says = head.initialised_inodes();
        let should = self.should_be_initialised(group, &head);
        if says != should {
            let what = format!("cg_initediblk is {says}, should be {should}");
            self.checker.found(problems::GROUP_INITIALISED, what, place);
            self.checker.report.set_values(says.into(), should.into());
            self.checker.fix(Stage::Heads, Fix::Initialise(group, should));
        }
        Ok(should)
    }

    /// Notes a group's head that must be rewritten. Its inodes may be sound, and are checked as far
    /// as they were ever written.
    fn lost_head(&mut self, group: GroupNo, what: String, place: Location) -> Result<u32, FsError> {
        self.checker.found(problems::GROUP_HEAD, what, place);
        self.checker.fix(Stage::Heads, Fix::Head(group));
        self.checker.lost_groups.push(group);
        match self.checker.sb().format {
            Format::Ufs1 => Ok(self.checker.sb().ipg),
            Format::Ufs2 => self.likely_initialised(group),
        }
    }

    /// How many inodes of a group were written, where its head does not tell: from the rest of the
    /// head if possible; else the blocks of inodes up to one that contains something else.
    fn likely_initialised(&self, group: GroupNo) -> Result<u32, FsError> {
        let sb = self.checker.sb();
        let per_block = sb.inodes_per_block();
        let at = sb.in_group(group, sb.cblkno);
        let mut head = vec![0; index(sb.cgsize)];
        self.checker.volume.read_bytes(at, 0, &mut head)?;
        let word = |at| sb.order.get_u32(&head, at).unwrap_or(0);
        let says = word(offset_of!(CylinderGroup<LE>, cg_initediblk));
        let whole = says == sb.ipg || says.is_multiple_of(per_block);
        if word(offset_of!(CylinderGroup<LE>, cg_niblk)) == sb.ipg
            && (1..=sb.ipg).contains(&says)
            && whole
        {
            return Ok(says);
        }
        let first = group.get() * sb.ipg;
        let is_inode = |slot: u32| self.is_plausible(Ino::new(first + slot));
        // `newfs` writes two blocks; `rebuild_cg` begins with as many.
        let least = (per_block * 2).min(sb.ipg);
        let mut end = least;
        while end < sb.ipg {
            let next = (end + per_block).min(sb.ipg);
            let strange = (end..next).filter(|&slot| !is_inode(slot)).count();
            // Single damaged inodes are no sign of something else.
            if strange * 4 > index(per_block) {
                break;
            }
            end = next;
        }
        Ok(end)
    }

    /// Whether an inode may have been written as one: it is free and empty, or a file of a
    /// valid type and length with blocks of the volume.
    fn is_plausible(&self, ino: Ino) -> bool {
        let Ok(inode) = self.checker.volume.inode(ino) else { return false };
        let mut numbers = inode.direct.iter().chain(&inode.indirect);
        if inode.mode() == 0 {
            return inode.len == 0 && numbers.all(|&number| number == 0);
        }
        let has_hash = self.checker.sb().has_check_hash(check_hash::INODE);
        let Some(kind) = FileKind::from_mode(inode.mode()) else { return false };
        // A short target or a device's number stands in place of the block numbers.
        let is_block = |number: &u64| *number < self.checker.sb().size;
        let numbers_fit =
            !matches!(kind, FileKind::Regular | FileKind::Directory) || numbers.all(is_block);
        inode.len <= self.longest(kind)
            && numbers_fit
            && (!has_hash || self.checker.strict.inode(ino).is_ok())
    }

    /// How many inodes of a group were written: whole blocks, and not fewer than
    /// reach to the last inode in use.
    fn should_be_initialised(&self, group: GroupNo, head: &Group) -> u32 {
        let all = self.checker.sb().ipg;
        let per_block = self.checker.sb().inodes_per_block();
        let says = head.initialised_inodes().min(all);
        let first = group.get() * all;
        // The contents of an inode that is marked but was not written are undefined.
        let is_live = |slot: &u32| {
            let inode = self.checker.strict.inode(Ino::new(first + *slot));
            head.in_use(*slot)
                && inode.is_ok_and(|inode| {
                    FileKind::from_mode(inode.mode()).is_some() && inode.nlink() > 0
                })
        };
        let last = (says..all).rev().find(is_live);
        let end = last.map_or(says, |slot| slot + 1);
        end.next_multiple_of(per_block).min(all)
    }

    fn inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let inode = match self.checker.volume.inode(ino) {
            Ok(inode) => inode,
            Err(error @ FsError::Corrupt { .. }) => {
                let (what, place) = error.finding(place(ino));
                self.checker.found(problems::INODE_UNREADABLE, what, place);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if ino.get() < 2 {
            return Ok(());
        }
        if inode.mode() == 0 {
            self.free_inode(&inode);
            return Ok(());
        }
        let Some(kind) = FileKind::from_mode(inode.mode()) else {
            let what = format!("mode {:#o} is not a valid file type", inode.mode());
            self.checker.found(problems::INODE_UNKNOWN_KIND, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
            return Ok(());
        };
        if self.checker.sb().has_check_hash(check_hash::INODE)
            && let Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) =
                self.checker.strict.inode(ino)
        {
            let what = "check hash does not match".to_string();
            self.checker.found(problems::INODE_CHECK_HASH, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Seal(ino));
        }
        let is_listed = self.checker.sb().tuning.snapshots().any(|listed| listed == ino);
        let is_unlisted = inode.is(SNAPSHOT) && !is_listed;
        if is_unlisted {
            let what =
                "marked as a snapshot, but not in the superblock's list of snapshots".to_string();
            match kind == FileKind::Regular && check_len(&self.checker.volume, &inode).is_ok() {
                true => self.checker.expected(problems::INODE_SNAPSHOT, what, place(ino)),
                false => self.checker.unexpected(problems::INODE_SNAPSHOT, what, place(ino)),
            }
        }
        let maps_nothing = || inode.direct.iter().chain(&inode.indirect).all(|&number| number == 0);
        if kind == FileKind::Directory && inode.len == 0 && maps_nothing() {
            // Removed while it was in use: cleared unasked (`pass4.c`). A name of it is dropped.
            // Its attributes go with it.
            self.attributes(&inode);
            let what = "a directory without a length or blocks".to_string();
            self.checker.expected(problems::INODE_LENGTH, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
            return Ok(());
        }
        let bad_blocks = self.blocks(&inode, kind)?;
        if is_unlisted && !bad_blocks {
            self.checker.fix(Stage::Inodes, Fix::Unmark(ino));
        }
        self.checker.report.tally.inodes += 1;
        if kind == FileKind::Directory {
            self.checker.report.tally.directories += 1;
        }
        let links = i64::from(inode.nlink());
        let len = inode.len;
        let seen = CheckedInode {
            kind,
            len,
            links,
            names: 0,
            parent: None,
            named_in: None,
            entries: 0,
            bad_blocks,
        };
        let before = self.checker.seen.insert(ino, seen);
        debug_assert!(before.is_none(), "inode {ino} is checked once");
        Ok(())
    }

    /// An unused inode has neither length nor blocks.
    fn free_inode(&mut self, inode: &Inode) {
        let pointers = inode.direct.iter().chain(&inode.indirect).any(|&number| number != 0);
        if !pointers && inode.len == 0 {
            return;
        }
        let what = "not in use, but has a length or blocks".to_string();
        self.checker.found(problems::INODE_PARTLY_CLEARED, what, place(inode.ino));
        self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
    }

    /// Claims an inode's blocks; whether any of their places is wrong. Of two inodes that claim a
    /// block the first one keeps it, and the other gets a copy; the volume's own blocks are
    /// nobody's.
    fn blocks(&mut self, inode: &Inode, kind: FileKind) -> Result<bool, FsError> {
        if let Some(fix) = self.wrong_length(inode, kind)? {
            self.checker.fix(Stage::Inodes, fix);
            return Ok(true);
        }
        let mut claims = self.claims(inode)?;
        let likely = self.likely_length(inode, kind, &claims)?;
        // All that follows is compared with the corrected length.
        let inode = &inode.with_len(likely.unwrap_or(inode.len));
        if let Some(len) = likely {
            self.give_back(&claims);
            claims = self.claims(inode)?;
            self.checker.fix(Stage::Inodes, Fix::Length(inode.ino, len));
        }
        self.report_duplicates(&claims);
        let target = match kind {
            FileKind::Symlink => self.target_in_block(inode)?,
            _ => None,
        };
        if self.is_beyond_repair(inode, kind, &claims, target) {
            self.give_back(&claims);
            self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(true);
        }
        let is_mapped = self.checker.sb().numbers_kept(inode).is_none();
        if kind == FileKind::Symlink && is_mapped && inode.direct_block(0).is_none() {
            let what = "symlink without a target".to_string();
            self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(true);
        }
        let is_sound = claims.are_sound();
        if is_sound && kind == FileKind::Regular && !inode.is(SNAPSHOT) && !claims.beyond {
            self.hole_at_the_end(inode, &claims);
        }
        let area = self.attributes(inode);
        claims.beyond |= area.beyond;
        claims.fragments += area.fragments;
        let wrong: Vec<WrongNumber> = claims.wrong.iter().chain(&area.wrong).copied().collect();
        if !wrong.is_empty() {
            self.checker.wrong.insert(inode.ino, wrong);
            self.checker.fix(Stage::Maps, Fix::Map(inode.ino));
        } else if claims.beyond {
            self.checker.fix(Stage::Inodes, Fix::Trim(inode.ino, inode.len));
        } else if area.are_sound() {
            self.sectors(inode, claims.fragments);
        }
        let blocks = &mut self.checker.report.tally.blocks;
        *blocks += claims.fragments;
        Ok(!is_sound)
    }

    /// Claims the blocks of an inode's contents.
    fn claims(&mut self, inode: &Inode) -> Result<Claims, FsError> {
        let mut claims =
            Claims::of(inode.ino, inode.len.div_ceil(u64::from(self.checker.sb().bsize)));
        match self.checker.sb().numbers_kept(inode) {
            None => self.data(inode, &mut claims)?,
            Some(kept) => self.no_blocks(inode, kept, &mut claims),
        }
        Ok(claims)
    }

    /// Whether nothing of a file can be kept, or more of its block numbers are wrong than one
    /// accident leaves. `target` is the length of a symlink's target in its block.
    fn is_beyond_repair(
        &self,
        inode: &Inode,
        kind: FileKind,
        claims: &Claims,
        target: Option<u64>,
    ) -> bool {
        let lost = claims.lost();
        let shared = claims.wrong.len() - lost;
        let nothing_is_left = claims.fragments == 0 && shared == 0;
        !claims.are_sound()
            && (nothing_is_left
                || lost > MOST_LOST
                || wide(shared) > self.checker.sb().pointers()
                || inode.is(SNAPSHOT)
                || kind == FileKind::Symlink && (lost > 0 || target != Some(inode.len)))
    }

    /// A file's last block is never a hole. A crash may leave one if the number of the last block
    /// is in an indirect block, since the length is written first; the file then ends with its last
    /// block (`pass1.c`: "FILE SIZE BEYOND END OF ALLOCATED FILE").
    fn hole_at_the_end(&mut self, inode: &Inode, claims: &Claims) {
        if claims.mapped >= claims.blocks {
            return;
        }
        let bsize = u64::from(self.checker.sb().bsize);
        let len = claims.mapped * bsize;
        debug_assert!(len < inode.len, "the file becomes shorter");
        let what = format!("length {}, but no blocks from byte {len} on", inode.len);
        if inode.len > wide(DIRECT) * bsize {
            self.checker.expected(problems::INODE_SIZE_PAST_BLOCKS, what, place(inode.ino));
        } else {
            self.checker.unexpected(problems::INODE_SIZE_PAST_BLOCKS, what, place(inode.ino));
        }
        self.checker.fix(Stage::Inodes, Fix::Trim(inode.ino, len));
    }

    /// The block numbers of an inode that has no blocks: all but the first `kept`, which are
    /// something else, are zero.
    fn no_blocks(&mut self, inode: &Inode, kept: usize, claims: &mut Claims) {
        let mut numbers = inode.direct.iter().chain(&inode.indirect).skip(kept);
        if let Some(number) = numbers.find(|&&number| number != 0) {
            claims.beyond = true;
            let what = format!("block number {number} in an inode that has no blocks");
            self.checker.found(problems::INODE_BLOCK_PAST_END, what, place(inode.ino));
        }
    }

    /// Compares the number of sectors of an inode.
    fn sectors(&mut self, inode: &Inode, fragments: u64) {
        let sectors = fragments * (u64::from(self.checker.sb().fsize) / 512);
        if sectors != inode.sectors() {
            let what = format!("di_blocks is {}, should be {sectors}", inode.sectors());
            self.checker.found(problems::INODE_BLOCK_COUNT, what, place(inode.ino));
            self.checker.report.set_values(inode.sectors(), sectors);
            self.checker.fix(Stage::Inodes, Fix::Sectors(inode.ino, sectors));
        }
    }
}
