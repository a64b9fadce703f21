//! The blocks an inode claims.

use super::fix::{Fix, Stage};
use super::inodes::{InodePass, place};
use super::problems;
use crate::inode::Inode;
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT};
use crate::superblock::Super;
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// The claims of an inode, as it is walked.
pub(super) struct Claims {
    ino: Ino,
    /// Fragments that it claims.
    pub(super) fragments: u64,
    /// Blocks by its length.
    pub(super) blocks: u64,
    /// Blocks up to the last one mapped.
    pub(super) mapped: u64,
    /// Some block number was wrong.
    bad: bool,
    /// There are block numbers past the end.
    pub(super) beyond: bool,
    /// Fragments that other inodes claimed too.
    duplicates: u64,
    /// Fragments that it was the first to claim, to be given back when it is bad.
    taken: Vec<Extent>,
}

impl Claims {
    pub(super) fn of(ino: Ino, blocks: u64) -> Self {
        Self {
            ino,
            fragments: 0,
            blocks,
            mapped: 0,
            bad: false,
            beyond: false,
            duplicates: 0,
            taken: Vec::new(),
        }
    }

    pub(super) fn are_sound(&self) -> bool {
        !self.bad && self.duplicates == 0
    }

    fn take(&mut self, block: u64) {
        match self.taken.last_mut() {
            Some(last) if last.end().get() == block => last.len += 1,
            _ => self.taken.push(Extent::new(BlockNo::new(block), 1)),
        }
    }
}

/// A tree of indirect blocks, claimed with all that it maps.
#[derive(Clone, Copy)]
pub(super) struct ClaimedTree {
    pub(super) block: u64,
    /// The first block of the file that it maps, and the number of blocks.
    pub(super) first: u64,
    pub(super) span: u64,
    /// Levels below it, itself included.
    pub(super) levels: u32,
}

impl Super {
    /// The number of block numbers that are something else in an inode without blocks: a device's
    /// number, the target of a short symlink. `None` for an inode with blocks. (Readers also take a
    /// symlink without any blocks for a short one.)
    pub(crate) fn numbers_kept(&self, inode: &Inode) -> Option<usize> {
        match FileKind::from_mode(inode.mode())? {
            FileKind::Regular | FileKind::Directory => None,
            FileKind::Symlink => {
                let longest = u64::from(self.maxsymlinklen);
                let is_fast = inode.len < longest || longest == 0 && inode.sectors() == 0;
                is_fast.then(|| index(inode.len.div_ceil(u64::from(self.pointer_size()))))
            }
            FileKind::CharDevice | FileKind::BlockDevice => Some(1),
            FileKind::Fifo | FileKind::Socket => Some(0),
        }
    }
}

impl InodePass<'_> {
    pub(super) fn give_back(&mut self, claims: &Claims) {
        for run in &claims.taken {
            for block in run.start.get()..run.end().get() {
                debug_assert!(
                    self.checker.used.get(index(block)),
                    "fragment {block} is given back once"
                );
                self.checker.used.clear(index(block));
            }
        }
        if claims.duplicates > 0 {
            let what = format!("{} fragments are also used by another file", claims.duplicates);
            self.checker.found(problems::INODE_DUPLICATE_BLOCKS, what, place(claims.ino));
        }
    }

    pub(super) fn data(&mut self, inode: &Inode, claims: &mut Claims) -> Result<(), FsError> {
        for (at, &number) in (0u64..).zip(&inode.direct) {
            self.data_block(inode, at, number, claims);
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for (levels, &block) in (1u32..).zip(&inode.indirect) {
            span *= self.checker.sb().pointers();
            if block != 0 {
                self.tree(inode, ClaimedTree { block, first, span, levels }, claims)?;
            }
            first += span;
        }
        Ok(())
    }

    fn data_block(&mut self, inode: &Inode, at: u64, number: u64, claims: &mut Claims) {
        if number == 0 {
            return;
        }
        if inode.is_snapshot() && matches!(number, BLK_NOCOPY | BLK_SNAP) && at < claims.blocks {
            // No block: the volume's was not to be kept.
            claims.mapped = claims.mapped.max(at + 1);
            return;
        }
        if at >= claims.blocks {
            self.beyond_the_end(at, number, claims);
            return;
        }
        let frags = u64::from(self.checker.sb().frag);
        let left = inode.len - at * u64::from(self.checker.sb().bsize);
        debug_assert!(left > 0, "block {at} lies in front of the end");
        let fsize = u64::from(self.checker.sb().fsize);
        let len = if at < wide(DIRECT) { left.div_ceil(fsize).min(frags) } else { frags };
        claims.mapped = claims.mapped.max(at + 1);
        self.claim(Extent::new(BlockNo::new(number), len), claims);
    }

    /// A block past the file's end, in the inode or in an indirect block: the file's true end is
    /// unknown, and `fsck_ffs -p` stops ("PARTIALLY TRUNCATED INODE" in `inode.c`, "INVALID DIRECT
    /// BLOCK" in `pass1.c`). A length goes before the blocks behind it, and after them.
    fn beyond_the_end(&mut self, at: u64, number: u64, claims: &mut Claims) {
        if !std::mem::replace(&mut claims.beyond, true) {
            let blocks = claims.blocks;
            let what = format!(
                "block {at} is mapped to {number}, past the end of the file ({blocks} blocks)"
            );
            self.checker.found(problems::INODE_BLOCK_PAST_END, what, place(claims.ino));
        }
    }

    /// Claims a run of fragments within one block; whether it is sound and was unclaimed.
    fn claim(&mut self, run: Extent, claims: &mut Claims) -> bool {
        let frags = u64::from(self.checker.sb().frag);
        debug_assert!((1..=frags).contains(&run.len), "{} fragments of a block", run.len);
        let within = run.start.get() % frags;
        let place = place(claims.ino).in_block(run.start);
        if run.start.checked_add(run.len).is_none_or(|end| end.get() > self.checker.sb().size) {
            claims.bad = true;
            let what = format!("block {} is past the end of the volume", run.start);
            self.checker.found(problems::INODE_BLOCK_RANGE, what, place);
            return false;
        }
        if within + run.len > frags {
            claims.bad = true;
            let what = format!("{} fragments at {} span two blocks", run.len, run.start);
            self.checker.found(problems::INODE_BLOCK_RANGE, what, place);
            return false;
        }
        let mut sound = true;
        for block in run.start.get()..run.end().get() {
            if self.checker.used.set(index(block)) {
                claims.take(block);
            } else {
                claims.duplicates += 1;
                sound = false;
            }
        }
        claims.fragments += run.len;
        sound
    }

    fn tree(
        &mut self,
        inode: &Inode,
        tree: ClaimedTree,
        claims: &mut Claims,
    ) -> Result<(), FsError> {
        debug_assert!((1..=3).contains(&tree.levels), "three levels of indirect blocks");
        if tree.first >= claims.blocks {
            self.beyond_the_end(tree.first, tree.block, claims);
            return Ok(());
        }
        let start = BlockNo::new(tree.block);
        let frags = u64::from(self.checker.sb().frag);
        // A block that is claimed already was read before, or is no indirect block.
        if !self.claim(Extent::new(start, frags), claims) {
            claims.bad = true;
            return Ok(());
        }
        let place = Location::of("indirect block").in_inode(inode.ino).in_block(start);
        let block = self.checker.volume.block(start, index(self.checker.sb().bsize), place)?;
        let pointers = self.checker.sb().pointers();
        let step = tree.span / pointers;
        for at in 0..pointers {
            let number = self.checker.volume.sb.pointer(&block, at);
            let first = tree.first + at * step;
            if number == 0 {
                continue;
            }
            if tree.levels == 1 {
                self.data_block(inode, first, number, claims);
                continue;
            }
            let levels = tree.levels - 1;
            self.tree(inode, ClaimedTree { block: number, first, span: step, levels }, claims)?;
        }
        Ok(())
    }

    /// Claims the blocks of extended attributes (UFS2).
    pub(super) fn attributes(&mut self, inode: &Inode) -> Claims {
        let (bsize, fsize) =
            (u64::from(self.checker.sb().bsize), u64::from(self.checker.sb().fsize));
        let len = u64::from(inode.ext_len);
        let mut claims = Claims::of(inode.ino, len.div_ceil(bsize));
        if len > bsize * 2 {
            claims.bad = true;
            let what = format!("{len} bytes of extended attributes");
            self.checker.found(problems::INODE_ATTRIBUTES, what, place(inode.ino));
        }
        for (at, &number) in (0u64..).zip(&inode.ext_blocks) {
            let here = (len - len.min(at * bsize)).min(bsize);
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
            && let Err(error @ FsError::Corrupt { .. }) = self.checker.volume.xattrs(inode)
        {
            claims.bad = true;
            let (what, place) = error.finding(place(inode.ino));
            self.checker.found(problems::INODE_ATTRIBUTES, what, place);
        }
        if !claims.are_sound() {
            self.give_back(&claims);
            claims = Claims { bad: true, ..Claims::of(inode.ino, 0) };
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        claims
    }
}
