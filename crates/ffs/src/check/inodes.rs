//! Phase 1: every inode, and the blocks it claims.

use super::{Checker, Seen};
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
    /// It was said already that there are blocks past the end.
    beyond: bool,
    duplicates: u64,
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
        match self.volume.cylinder_group(group) {
            Ok(_) if self.sb().format == Format::Ufs1 => Ok(all),
            Ok(head) => Ok(head.initialised_inodes().min(all)),
            Err(error @ FsError::Corrupt { .. }) => {
                let place = Location::of("cylinder group").in_group(group);
                self.unexpected("group.head", error.to_string(), place);
                self.lost_groups.push(group);
                // Its inodes may be sound, and are looked at as far as they are.
                Ok(all)
            }
            Err(error) => Err(error),
        }
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
            return Ok(());
        };
        if self.sb().has_check_hash(check_hash::INODE)
            && let Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) =
                self.strict.inode(ino)
        {
            let what = "check hash does not match".to_string();
            self.unexpected("inode.check-hash", what, place(ino));
        }
        let bad_blocks = self.blocks(&inode, kind)?;
        self.report.tally.inodes = self.report.tally.inodes.saturating_add(1);
        if kind == FileKind::Directory {
            self.report.tally.directories = self.report.tally.directories.saturating_add(1);
        }
        let links = i64::from(inode.nlink());
        let seen = Seen { kind, links, names: 0, parent: None, named_in: None, bad_blocks };
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
    }

    /// Claims an inode's blocks; whether something is wrong with where they lie.
    fn blocks(&mut self, inode: &Inode, kind: FileKind) -> Result<bool, FsError> {
        let mut claims = Claims {
            ino: inode.ino,
            fragments: 0,
            blocks: inode.len.div_ceil(u64::from(self.sb().bsize)),
            bad: self.length_is_wrong(inode, kind),
            beyond: false,
            duplicates: 0,
        };
        if claims.bad {
            return Ok(true);
        }
        let mapped = match kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => inode.short_target(self.sb()).is_none(),
            _ => false,
        };
        if mapped {
            self.data(inode, &mut claims)?;
        }
        self.attributes(inode, &mut claims);
        let unit = u64::from(self.sb().fsize) / 512;
        let sectors = claims.fragments.saturating_mul(unit);
        if claims.duplicates > 0 {
            let what = format!("{} fragments are another's too", claims.duplicates);
            self.unexpected("inode.duplicate-blocks", what, place(inode.ino));
        }
        if sectors != inode.sectors() && !claims.bad {
            let what = format!("di_blocks is {}, should be {sectors}", inode.sectors());
            self.expected("inode.block-count", what, place(inode.ino));
        }
        let blocks = &mut self.report.tally.blocks;
        *blocks = blocks.saturating_add(claims.fragments);
        Ok(claims.bad || claims.duplicates > 0)
    }

    fn length_is_wrong(&mut self, inode: &Inode, kind: FileKind) -> bool {
        let place = place(inode.ino);
        let longest = self.sb().tuning.maxfilesize.min(i64::MAX.cast_unsigned());
        if inode.len > longest {
            let what = format!("length {} is more than {longest}", inode.len);
            self.unexpected("inode.length", what, place);
            return true;
        }
        let unit = wide(DIRECTORY_UNIT);
        let odd = inode.len == 0 || !inode.len.is_multiple_of(unit);
        if kind == FileKind::Directory && odd {
            let what = format!("a directory's length of {}", inode.len);
            self.unexpected("inode.length", what, place);
            return true;
        }
        if kind == FileKind::Symlink && inode.len > u64::from(self.sb().bsize) {
            let what = format!("a symlink's length of {}", inode.len);
            self.unexpected("inode.length", what, place);
            return true;
        }
        false
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
        let indirect = at >= wide(DIRECT);
        claims.bad |= !indirect;
        if !std::mem::replace(&mut claims.beyond, true) {
            let blocks = claims.blocks;
            let what = format!("block {at} lies at {number}, past the end of {blocks} blocks");
            if indirect {
                self.expected("inode.block-past-end", what, place(claims.ino));
            } else {
                self.unexpected("inode.block-past-end", what, place(claims.ino));
            }
        }
        if indirect {
            let frags = u64::from(self.sb().frag);
            self.claim(Extent::new(BlockNo::new(number), frags), claims);
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
        let blocks = run.start.get()..run.end().get();
        let taken = blocks.filter(|&block| !self.used.set(index(block))).count();
        claims.duplicates = claims.duplicates.saturating_add(wide(taken));
        claims.fragments = claims.fragments.saturating_add(run.len);
        taken == 0
    }

    fn tree(&mut self, inode: &Inode, tree: Tree, claims: &mut Claims) -> Result<(), FsError> {
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

    /// The blocks of extended attributes (UFS2).
    fn attributes(&mut self, inode: &Inode, claims: &mut Claims) {
        let (bsize, fsize) = (u64::from(self.sb().bsize), u64::from(self.sb().fsize).max(1));
        let len = u64::from(inode.ext_len);
        if len > bsize.saturating_mul(2) {
            claims.bad = true;
            let what = format!("{len} bytes of extended attributes");
            self.unexpected("inode.length", what, place(inode.ino));
            return;
        }
        for (at, &number) in (0u64..).zip(&inode.ext_blocks) {
            let here = len.saturating_sub(at.saturating_mul(bsize)).min(bsize);
            if number == 0 {
                continue;
            }
            if here == 0 {
                self.beyond_the_end(at, number, claims);
                continue;
            }
            let run = Extent::new(BlockNo::new(number), here.div_ceil(fsize));
            self.claim(run, claims);
        }
        if len > 0 {
            match self.volume.xattrs(inode) {
                Err(error @ FsError::Corrupt { .. }) if !claims.bad => {
                    self.unexpected("inode.attributes", error.to_string(), place(inode.ino));
                }
                _ => {}
            }
        }
    }
}
