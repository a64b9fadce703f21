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

/// Wrong block numbers of a file that is kept, at most; with more it is cleared (`MAXBAD` in
/// `fsck.h`). An indirect block with more is none.
pub(super) const MOST_LOST: usize = 10;

/// Where a block number stands.
#[derive(Clone, Copy)]
pub(super) enum NumberPlace {
    /// In the inode: which of its fifteen.
    Inode(usize),
    /// In an indirect block: which of its numbers.
    Indirect(BlockNo, u64),
    /// In the inode: which of the two of extended attributes.
    Attribute(usize),
}

/// A block number that cannot stay.
#[derive(Clone, Copy)]
pub(super) struct WrongNumber {
    pub(super) at: NumberPlace,
    /// The fragments, if another file has them too. Without, no file can have them.
    pub(super) shared: Option<Extent>,
}

/// The claims of an inode, as it is walked.
pub(super) struct Claims {
    ino: Ino,
    /// Fragments that it claims.
    pub(super) fragments: u64,
    /// Blocks by its length.
    pub(super) blocks: u64,
    /// Blocks up to the last one mapped.
    pub(super) mapped: u64,
    /// Numbers that cannot stay.
    pub(super) wrong: Vec<WrongNumber>,
    /// The blocks have invalid contents.
    pub(super) invalid: bool,
    /// There are block numbers past the end.
    pub(super) beyond: bool,
    /// Fragments that other inodes claimed too.
    duplicates: u64,
    /// Fragments that it was the first to claim, to be given back when it is cleared.
    taken: Vec<Extent>,
}

impl Claims {
    pub(super) fn of(ino: Ino, blocks: u64) -> Self {
        Self {
            ino,
            fragments: 0,
            blocks,
            mapped: 0,
            wrong: Vec::new(),
            invalid: false,
            beyond: false,
            duplicates: 0,
            taken: Vec::new(),
        }
    }

    pub(super) fn are_sound(&self) -> bool {
        self.wrong.is_empty() && !self.invalid
    }

    /// Numbers that lead to no block that a file can have.
    pub(super) fn lost(&self) -> usize {
        self.wrong.iter().filter(|number| number.shared.is_none()).count()
    }

    fn take(&mut self, run: Extent) {
        self.fragments += run.len;
        match self.taken.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => self.taken.push(run),
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
    /// Whether any of these fragments belongs to the volume itself.
    fn is_metadata(&self, run: Extent) -> bool {
        let overlaps = |other: Extent| run.start < other.end() && other.start < run.end();
        overlaps(self.group_metadata(self.group_of(run.start))) || overlaps(self.summaries)
    }

    /// Whether a block may be an indirect one: most of its numbers, and all but a few, are those of
    /// blocks.
    fn is_indirect(&self, block: &[u8], is_snapshot: bool) -> bool {
        let frags = u64::from(self.frag);
        let is_block = |&number: &u64| {
            number.is_multiple_of(frags) && number < self.size
                || is_snapshot && matches!(number, BLK_NOCOPY | BLK_SNAP)
        };
        let numbers =
            || (0..self.pointers()).map(|at| self.pointer(block, at)).filter(|&it| it != 0);
        let (all, wrong) = (numbers().count(), numbers().filter(|it| !is_block(it)).count());
        wrong <= MOST_LOST && wrong * 2 <= all
    }

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
    /// Gives back all that an inode was the first to claim.
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
    }

    /// Reports fragments that an inode claims and others claimed before.
    pub(super) fn report_duplicates(&mut self, claims: &Claims) {
        if claims.duplicates > 0 {
            let what = format!("{} fragments are also used by another file", claims.duplicates);
            self.checker.found(problems::INODE_DUPLICATE_BLOCKS, what, place(claims.ino));
        }
    }

    pub(super) fn data(&mut self, inode: &Inode, claims: &mut Claims) -> Result<(), FsError> {
        for (n, &number) in inode.direct.iter().enumerate() {
            self.data_block(inode, wide(n), number, NumberPlace::Inode(n), claims);
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for ((n, levels), &block) in (DIRECT..).zip(1u32..).zip(&inode.indirect) {
            span *= self.checker.sb().pointers();
            if block != 0 {
                let tree = ClaimedTree { block, first, span, levels };
                self.tree(inode, tree, NumberPlace::Inode(n), claims)?;
            }
            first += span;
        }
        Ok(())
    }

    fn data_block(
        &mut self,
        inode: &Inode,
        at: u64,
        number: u64,
        stands: NumberPlace,
        claims: &mut Claims,
    ) {
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
        self.claim(Extent::new(BlockNo::new(number), len), stands, claims);
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

    /// Claims a run of fragments within one block, to which the number at `stands` leads; whether it
    /// is sound and was unclaimed.
    fn claim(&mut self, run: Extent, stands: NumberPlace, claims: &mut Claims) -> bool {
        let frags = u64::from(self.checker.sb().frag);
        debug_assert!((1..=frags).contains(&run.len), "{} fragments of a block", run.len);
        let within = run.start.get() % frags;
        let place = place(claims.ino).in_block(run.start);
        let what = if run
            .start
            .checked_add(run.len)
            .is_none_or(|end| end.get() > self.checker.sb().size)
        {
            format!("block {} is past the end of the volume", run.start)
        } else if within + run.len > frags {
            format!("{} fragments at {} span two blocks", run.len, run.start)
        } else {
            return self.claim_block(run, stands, claims);
        };
        claims.wrong.push(WrongNumber { at: stands, shared: None });
        self.checker.found(problems::INODE_BLOCK_RANGE, what, place);
        false
    }

    /// Claims fragments of the volume, if none of them was claimed before; whether none was.
    fn claim_block(&mut self, run: Extent, stands: NumberPlace, claims: &mut Claims) -> bool {
        let blocks = || (run.start.get()..run.end().get()).map(index);
        let claimed = blocks().filter(|&block| self.checker.used.get(block)).count();
        if claimed > 0 {
            claims.duplicates += wide(claimed);
            let shared = (!self.checker.sb().is_metadata(run)).then_some(run);
            claims.wrong.push(WrongNumber { at: stands, shared });
            return false;
        }
        for block in blocks() {
            self.checker.used.set(block);
        }
        claims.take(run);
        true
    }

    fn tree(
        &mut self,
        inode: &Inode,
        tree: ClaimedTree,
        stands: NumberPlace,
        claims: &mut Claims,
    ) -> Result<(), FsError> {
        debug_assert!((1..=3).contains(&tree.levels), "three levels of indirect blocks");
        if tree.first >= claims.blocks {
            self.beyond_the_end(tree.first, tree.block, claims);
            return Ok(());
        }
        let start = BlockNo::new(tree.block);
        let frags = u64::from(self.checker.sb().frag);
        let run = Extent::new(start, frags);
        // A block that is claimed already was read before, or is no indirect block.
        if !self.claim(run, stands, claims) {
            return Ok(());
        }
        let place = Location::of("indirect block").in_inode(inode.ino).in_block(start);
        let block = self.checker.volume.block(start, index(self.checker.sb().bsize), place)?;
        let pointers = self.checker.sb().pointers();
        if !self.checker.sb().is_indirect(&block, inode.is_snapshot()) {
            let what = "an indirect block with numbers of no blocks".to_string();
            self.checker.found(problems::INODE_BLOCK_RANGE, what, place);
            claims.wrong.push(WrongNumber { at: stands, shared: None });
            return Ok(());
        }
        let step = tree.span / pointers;
        for at in 0..pointers {
            let number = self.checker.volume.sb.pointer(&block, at);
            let first = tree.first + at * step;
            if number == 0 {
                continue;
            }
            let stands = NumberPlace::Indirect(start, at);
            if tree.levels == 1 {
                self.data_block(inode, first, number, stands, claims);
                continue;
            }
            let levels = tree.levels - 1;
            let below = ClaimedTree { block: number, first, span: step, levels };
            self.tree(inode, below, stands, claims)?;
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
            claims.invalid = true;
            let what = format!("{len} bytes of extended attributes");
            self.checker.found(problems::INODE_ATTRIBUTES, what, place(inode.ino));
        }
        for (n, &number) in inode.ext_blocks.iter().enumerate() {
            let at = wide(n);
            let here = (len - len.min(at * bsize)).min(bsize);
            if number == 0 || claims.invalid {
                continue;
            }
            if here == 0 {
                self.beyond_the_end(at, number, &mut claims);
                continue;
            }
            let run = Extent::new(BlockNo::new(number), here.div_ceil(fsize));
            self.claim(run, NumberPlace::Attribute(n), &mut claims);
        }
        if len > 0
            && claims.are_sound()
            && let Err(error @ FsError::Corrupt { .. }) = self.checker.volume.xattrs(inode)
        {
            claims.invalid = true;
            let (what, place) = error.finding(place(inode.ino));
            self.checker.found(problems::INODE_ATTRIBUTES, what, place);
        }
        self.report_duplicates(&claims);
        if claims.invalid || claims.lost() > 0 {
            self.give_back(&claims);
            claims = Claims { invalid: true, ..Claims::of(inode.ino, 0) };
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        claims
    }
}
