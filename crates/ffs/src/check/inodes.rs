//! Phase 1: every inode, and the blocks it claims.

use super::{Checker, Fix, Seen, Stage};
use crate::group::Group;
use crate::image::SNAPSHOT;
use crate::inode::Inode;
use crate::ondisk::{DIRECT, DIRECTORY_UNIT, check_hash};
use crate::superblock::Format;
use seekless_fs::field::{index, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};

/// What an inode claims, as it is walked.
struct Claims {
    ino: Ino,
    /// Fragments that are its own.
    fragments: u64,
    /// Blocks its length says it has.
    blocks: u64,
    /// Something was wrong with where they lie.
    bad: bool,
    /// There are block numbers past the end.
    beyond: bool,
    /// Fragments that are another's too.
    duplicates: u64,
    /// What it took that was nobody's, to be given back when it is bad.
    taken: Vec<Extent>,
}

impl Claims {
    fn of(ino: Ino, blocks: u64) -> Self {
        Self {
            ino,
            fragments: 0,
            blocks,
            bad: false,
            beyond: false,
            duplicates: 0,
            taken: Vec::new(),
        }
    }

    fn are_sound(&self) -> bool {
        !self.bad && self.duplicates == 0
    }

    fn take(&mut self, block: u64) {
        match self.taken.last_mut() {
            Some(last) if last.end().get() == block => last.len = last.len.saturating_add(1),
            _ => self.taken.push(Extent::new(BlockNo::new(block), 1)),
        }
    }
}

/// A tree of indirect blocks.
#[derive(Clone, Copy)]
struct Tree {
    block: u64,
    first: u64,
    span: u64,
    levels: u32,
}

fn place(ino: Ino) -> Location {
    Location::of("inode").in_inode(ino)
}

impl Checker {
    pub(super) fn inodes(&mut self) -> Result<(), FsError> {
        for group in (0..self.sb().ncg).map(GroupNo::new) {
            let count = self.initialised(group)?;
            self.written.push(count);
            let first = group.get().saturating_mul(self.sb().ipg);
            for slot in 0..count {
                self.inode(Ino::new(first.saturating_add(slot)))?;
            }
        }
        Ok(())
    }

    /// How many inodes of a group have ever been written: on UFS1 all.
    fn initialised(&mut self, group: GroupNo) -> Result<u32, FsError> {
        let all = self.sb().ipg;
        let place = Location::of("cylinder group").in_group(group);
        let head = match self.volume.cylinder_group(group) {
            Ok(_) if self.sb().format == Format::Ufs1 => return Ok(all),
            Ok(head) => head,
            Err(error @ FsError::Corrupt { .. }) => {
                self.unexpected("group.head", error.to_string(), place);
                self.fix(Stage::Heads, Fix::Head(group));
                self.lost_groups.push(group);
                // Its inodes may be sound, and are looked at as far as they are.
                return Ok(all);
            }
            Err(error) => return Err(error),
        };
        let says = head.initialised_inodes();
        let should = self.should_be_initialised(group, &head);
        if says != should {
            let what = format!("cg_initediblk is {says}, should be {should}");
            self.unexpected("group.initialised", what, place);
            self.fix(Stage::Heads, Fix::Initialise(group, should));
        }
        Ok(should)
    }

    /// How many inodes of a group were written: whole blocks, and not fewer than
    /// reach to the last inode in use.
    fn should_be_initialised(&self, group: GroupNo, head: &Group) -> u32 {
        let all = self.sb().ipg;
        let per_block = self.sb().bsize.checked_div(self.sb().inode_size()).unwrap_or(1).max(1);
        let says = head.initialised_inodes().min(all);
        let first = group.get().saturating_mul(all);
        // One that is marked but was not written may hold anything.
        let is_live = |slot: &u32| {
            let inode = self.strict.inode(Ino::new(first.saturating_add(*slot)));
            head.in_use(*slot)
                && inode.is_ok_and(|inode| {
                    FileKind::from_mode(inode.mode()).is_some() && inode.nlink() > 0
                })
        };
        let last = (says..all).rev().find(is_live);
        let end = last.map_or(says, |slot| slot.saturating_add(1));
        end.next_multiple_of(per_block).min(all)
    }

    fn inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let inode = match self.volume.inode(ino) {
            Ok(inode) => inode,
            Err(error @ FsError::Corrupt { .. }) => {
                self.unexpected("inode.unreadable", error.to_string(), place(ino));
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
            let what = format!("mode {:#o} is no kind of file", inode.mode());
            self.unexpected("inode.unknown-kind", what, place(ino));
            self.fix(Stage::Inodes, Fix::Clear(ino));
            return Ok(());
        };
        if self.sb().has_check_hash(check_hash::INODE)
            && let Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) =
                self.strict.inode(ino)
        {
            let what = "check hash does not match".to_string();
            self.unexpected("inode.check-hash", what, place(ino));
            self.fix(Stage::Inodes, Fix::Seal(ino));
        }
        if inode.is(SNAPSHOT) && !self.sb().tuning.has_snapshots {
            let what = "marked as a snapshot, which the volume does not know of".to_string();
            self.unexpected("inode.snapshot", what, place(ino));
            self.fix(Stage::Inodes, Fix::Unmark(ino));
        }
        let bad_blocks = self.blocks(&inode, kind)?;
        self.report.tally.inodes = self.report.tally.inodes.saturating_add(1);
        if kind == FileKind::Directory {
            self.report.tally.directories = self.report.tally.directories.saturating_add(1);
        }
        let links = i64::from(inode.nlink());
        let len = inode.len;
        let seen = Seen {
            kind,
            len,
            links,
            names: 0,
            parent: None,
            named_in: None,
            entries: 0,
            bad_blocks,
        };
        self.seen.insert(ino, seen);
        Ok(())
    }

    /// An inode that is not in use has neither length nor blocks.
    fn free_inode(&mut self, inode: &Inode) {
        let pointers = inode.direct.iter().chain(&inode.indirect).any(|&number| number != 0);
        if !pointers && inode.len == 0 {
            return;
        }
        let what = "not in use, but has a length or blocks".to_string();
        self.unexpected("inode.partly-cleared", what, place(inode.ino));
        self.fix(Stage::Inodes, Fix::Clear(inode.ino));
    }

    /// Claims an inode's blocks; whether something is wrong with where they lie.
    /// Of two who claim a block the first one keeps it, and what the volume
    /// itself has is nobody's; the other keeps none of its blocks.
    fn blocks(&mut self, inode: &Inode, kind: FileKind) -> Result<bool, FsError> {
        if let Some(fix) = self.wrong_length(inode, kind) {
            self.fix(Stage::Inodes, fix);
            return Ok(true);
        }
        let mut claims = Claims::of(inode.ino, inode.len.div_ceil(u64::from(self.sb().bsize)));
        let mapped = match kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !self.is_fast(inode),
            _ => false,
        };
        if mapped {
            self.data(inode, &mut claims)?;
        }
        if !claims.are_sound() {
            self.give_back(&claims);
            self.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(true);
        }
        if kind == FileKind::Symlink && mapped && inode.direct_block(0).is_none() {
            let what = "a symlink that has lost its target".to_string();
            self.unexpected("inode.length", what, place(inode.ino));
            self.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(true);
        }
        let area = self.attributes(inode);
        claims.beyond |= area.beyond;
        claims.fragments = claims.fragments.saturating_add(area.fragments);
        if claims.beyond {
            self.fix(Stage::Inodes, Fix::Trim(inode.ino));
        } else if area.are_sound() {
            self.sectors(inode, claims.fragments);
        }
        let blocks = &mut self.report.tally.blocks;
        *blocks = blocks.saturating_add(claims.fragments);
        Ok(false)
    }

    /// The number of sectors an inode says it has.
    fn sectors(&mut self, inode: &Inode, fragments: u64) {
        let sectors = fragments.saturating_mul(u64::from(self.sb().fsize) / 512);
        if sectors != inode.sectors() {
            let what = format!("di_blocks is {}, should be {sectors}", inode.sectors());
            self.expected("inode.block-count", what, place(inode.ino));
            self.fix(Stage::Inodes, Fix::Sectors(inode.ino, sectors));
        }
    }

    fn give_back(&mut self, claims: &Claims) {
        for run in &claims.taken {
            for block in run.start.get()..run.end().get() {
                self.used.clear(index(block));
            }
        }
        if claims.duplicates > 0 {
            let what = format!("{} fragments are another's too", claims.duplicates);
            self.unexpected("inode.duplicate-blocks", what, place(claims.ino));
        }
    }

    /// Whether a symlink's target is kept in the inode. (Readers take no blocks
    /// at all for a sign of that too.)
    fn is_fast(&self, inode: &Inode) -> bool {
        let longest = u64::from(self.sb().maxsymlinklen);
        inode.len < longest || longest == 0 && inode.sectors() == 0
    }

    /// The longest file that block numbers have room for.
    fn longest(&self) -> u64 {
        let pointers = self.sb().pointers();
        let levels = (1..=3).map(|level| pointers.saturating_pow(level));
        let blocks = levels.fold(wide(DIRECT), u64::saturating_add);
        blocks.saturating_mul(u64::from(self.sb().bsize)).min(i64::MAX.cast_unsigned())
    }

    /// What is to be done about a length that cannot be.
    fn wrong_length(&mut self, inode: &Inode, kind: FileKind) -> Option<Fix> {
        let place = place(inode.ino);
        let longest = self.longest();
        if inode.len > longest {
            let what = format!("length {} is more than {longest}", inode.len);
            self.unexpected("inode.length", what, place);
            return Some(Fix::Clear(inode.ino));
        }
        let unit = wide(DIRECTORY_UNIT);
        let odd = inode.len == 0 || !inode.len.is_multiple_of(unit);
        if kind == FileKind::Directory && odd {
            let what = format!("a directory's length of {}", inode.len);
            self.unexpected("inode.length", what, place);
            let len = inode.len.max(1).next_multiple_of(unit);
            return Some(match inode.direct_block(0) {
                Some(_) => Fix::Length(inode.ino, len),
                None => Fix::Clear(inode.ino),
            });
        }
        if kind == FileKind::Symlink && inode.len > u64::from(self.sb().bsize) {
            let what = format!("a symlink's length of {}", inode.len);
            self.unexpected("inode.length", what, place);
            return Some(Fix::Clear(inode.ino));
        }
        None
    }

    fn data(&mut self, inode: &Inode, claims: &mut Claims) -> Result<(), FsError> {
        for (at, &number) in (0u64..).zip(&inode.direct) {
            self.data_block(inode, at, number, claims);
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for (levels, &block) in (1u32..).zip(&inode.indirect) {
            span = span.saturating_mul(self.sb().pointers());
            if block != 0 {
                self.tree(inode, Tree { block, first, span, levels }, claims)?;
            }
            first = first.saturating_add(span);
        }
        Ok(())
    }

    fn data_block(&mut self, inode: &Inode, at: u64, number: u64, claims: &mut Claims) {
        if number == 0 {
            return;
        }
        if at >= claims.blocks {
            self.beyond_the_end(at, number, claims);
            return;
        }
        let frags = u64::from(self.sb().frag);
        let left = inode.len.saturating_sub(at.saturating_mul(u64::from(self.sb().bsize)));
        let fsize = u64::from(self.sb().fsize).max(1);
        let len = if at < wide(DIRECT) { left.div_ceil(fsize).min(frags) } else { frags };
        self.claim(Extent::new(BlockNo::new(number), len), claims);
    }

    /// A block past the end. In an indirect block that may be the number of a
    /// block whose inode, with its length, was to be written next.
    fn beyond_the_end(&mut self, at: u64, number: u64, claims: &mut Claims) {
        if !std::mem::replace(&mut claims.beyond, true) {
            let blocks = claims.blocks;
            let what = format!("block {at} lies at {number}, past the end of {blocks} blocks");
            if at >= wide(DIRECT) {
                self.expected("inode.block-past-end", what, place(claims.ino));
            } else {
                self.unexpected("inode.block-past-end", what, place(claims.ino));
            }
        }
    }

    /// Claims a run of fragments within one block; whether it is sound and was
    /// nobody's.
    fn claim(&mut self, run: Extent, claims: &mut Claims) -> bool {
        let frags = u64::from(self.sb().frag).max(1);
        let within = run.start.get().checked_rem(frags).unwrap_or(0);
        let place = place(claims.ino).in_block(run.start);
        if run.start.get().saturating_add(run.len) > self.sb().size {
            claims.bad = true;
            let what = format!("a block at {} past the end of the volume", run.start);
            self.unexpected("inode.block-range", what, place);
            return false;
        }
        if within.saturating_add(run.len) > frags {
            claims.bad = true;
            let what = format!("{} fragments at {} are in two blocks", run.len, run.start);
            self.unexpected("inode.block-range", what, place);
            return false;
        }
        let mut sound = true;
        for block in run.start.get()..run.end().get() {
            if self.used.set(index(block)) {
                claims.take(block);
            } else {
                claims.duplicates = claims.duplicates.saturating_add(1);
                sound = false;
            }
        }
        claims.fragments = claims.fragments.saturating_add(run.len);
        sound
    }

    fn tree(&mut self, inode: &Inode, tree: Tree, claims: &mut Claims) -> Result<(), FsError> {
        if tree.first >= claims.blocks {
            self.beyond_the_end(tree.first, tree.block, claims);
            return Ok(());
        }
        let start = BlockNo::new(tree.block);
        let frags = u64::from(self.sb().frag);
        // One that is another's too has been read, or is no such block.
        if !self.claim(Extent::new(start, frags), claims) {
            claims.bad = true;
            return Ok(());
        }
        let place = Location::of("indirect block").in_inode(inode.ino).in_block(start);
        let block = self.volume.block(start, index(self.sb().bsize), place)?;
        let pointers = self.sb().pointers();
        let step = tree.span.checked_div(pointers).unwrap_or(1).max(1);
        for at in 0..pointers {
            let number = self.volume.pointer(&block, at);
            let first = tree.first.saturating_add(at.saturating_mul(step));
            if number == 0 {
                continue;
            }
            if tree.levels == 1 {
                self.data_block(inode, first, number, claims);
                continue;
            }
            let levels = tree.levels.saturating_sub(1);
            self.tree(inode, Tree { block: number, first, span: step, levels }, claims)?;
        }
        Ok(())
    }

    /// Claims the blocks of extended attributes (UFS2).
    fn attributes(&mut self, inode: &Inode) -> Claims {
        let (bsize, fsize) = (u64::from(self.sb().bsize), u64::from(self.sb().fsize).max(1));
        let len = u64::from(inode.ext_len);
        let mut claims = Claims::of(inode.ino, len.div_ceil(bsize.max(1)));
        if len > bsize.saturating_mul(2) {
            claims.bad = true;
            let what = format!("{len} bytes of extended attributes");
            self.unexpected("inode.attributes", what, place(inode.ino));
        }
        for (at, &number) in (0u64..).zip(&inode.ext_blocks) {
            let here = len.saturating_sub(at.saturating_mul(bsize)).min(bsize);
            if number == 0 || claims.bad {
                continue;
            }
            if here == 0 {
                self.beyond_the_end(at, number, &mut claims);
                continue;
            }
            let run = Extent::new(BlockNo::new(number), here.div_ceil(fsize));
            self.claim(run, &mut claims);
        }
        if len > 0
            && claims.are_sound()
            && let Err(error @ FsError::Corrupt { .. }) = self.volume.xattrs(inode)
        {
            claims.bad = true;
            self.unexpected("inode.attributes", error.to_string(), place(inode.ino));
        }
        if !claims.are_sound() {
            self.give_back(&claims);
            claims = Claims { bad: true, ..Claims::of(inode.ino, 0) };
            self.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        claims
    }
}
