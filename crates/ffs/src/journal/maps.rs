//! The maps of files in a volume with changes that are not written yet.

use super::parts::{FilePart, roots};
use super::records::data_run;
use super::staged::Staged;
use crate::inode::Inode;
use crate::ondisk::{DIRECT, DIRECTORY_UNIT};
use crate::superblock::Super;
use seekless_fs::field::{index, invalid, range, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent};

/// An index block in a file's map.
#[derive(Clone, Copy)]
pub(super) struct Tree {
    pub(super) block: BlockNo,
    pub(super) levels: u32,
    pub(super) first: u64,
}

impl Tree {
    pub(super) fn part(self) -> FilePart {
        FilePart::Index { levels: self.levels, first: self.first }
    }
}

/// Whether block numbers of an inode are of blocks of contents.
pub(super) fn has_contents(sb: &Super, inode: &Inode) -> bool {
    inode.mode() != 0 && sb.numbers_kept(inode).is_none() && !inode.is_snapshot()
}

impl Staged {
    /// The fragments of a block of contents, by the file's length.
    fn data_run(&self, inode: &Inode, at: u64, block: BlockNo) -> Result<Extent, FsError> {
        let sb = &self.volume.sb;
        let frags = u64::from(sb.frag);
        let bsize = u64::from(sb.bsize);
        let len = match at < wide(DIRECT) {
            true => {
                let left = inode.len.checked_sub(at * bsize).filter(|&left| left > 0);
                let place = Location::of("inode").in_inode(inode.ino);
                let left = left.ok_or_else(|| invalid("di_size", inode.len, place))?;
                left.div_ceil(u64::from(sb.fsize)).min(frags)
            }
            false => frags,
        };
        self.checked(Extent::new(block, len), inode)
    }

    /// A run that a file has, if it lies in one block and outside of the volume's metadata.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    pub(super) fn checked(&self, run: Extent, inode: &Inode) -> Result<Extent, FsError> {
        let sb = &self.volume.sb;
        let within = run.start.get() % u64::from(sb.frag) + run.len;
        if within > u64::from(sb.frag) {
            let place = Location::of("block map").in_inode(inode.ino).in_block(run.start);
            return Err(range("fragments", within, u64::from(sb.frag), place));
        }
        data_run(sb, run)?;
        Ok(run)
    }

    /// The fragments of one of the blocks of extended attributes.
    fn attribute_run(&self, inode: &Inode, at: usize) -> Result<Option<Extent>, FsError> {
        let sb = &self.volume.sb;
        let Some(&number) = inode.ext_blocks.get(at).filter(|&&number| number != 0) else {
            return Ok(None);
        };
        let left = u64::from(inode.ext_len).checked_sub(wide(at) * u64::from(sb.bsize));
        let Some(left) = left.filter(|&left| left > 0) else { return Ok(None) };
        let len = left.div_ceil(u64::from(sb.fsize)).min(u64::from(sb.frag));
        self.checked(Extent::new(BlockNo::new(number), len), inode).map(Some)
    }

    /// A whole block, as index blocks are.
    fn index_run(&self, inode: &Inode, block: BlockNo) -> Result<Extent, FsError> {
        self.checked(Extent::new(block, u64::from(self.volume.sb.frag)), inode)
    }

    /// The block numbers in an index block that are set, each with its place.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a block that is none of the volume's, or that is in another map.
    pub(super) fn numbers(
        &mut self,
        inode: &Inode,
        tree: Tree,
    ) -> Result<Vec<(u64, BlockNo)>, FsError> {
        self.claim(inode.ino, tree.part(), tree.block)?;
        let sb = &self.volume.sb;
        let bytes = self.contents(self.index_run(inode, tree.block)?)?;
        let number = |at| (at, BlockNo::new(sb.pointer(&bytes, at)));
        Ok((0..sb.pointers()).map(number).filter(|(_, number)| *number != BlockNo::ZERO).collect())
    }

    /// The block number at a place of an index block, if it is set.
    ///
    /// # Errors
    /// As [`Staged::numbers`].
    fn number(&self, inode: &Inode, block: BlockNo, at: u64) -> Result<Option<BlockNo>, FsError> {
        let sb = &self.volume.sb;
        debug_assert!(at < sb.pointers(), "place {at} of an index block");
        let run = self.index_run(inode, block)?;
        let byte = at * u64::from(sb.pointer_size());
        let fsize = u64::from(sb.fsize);
        let unit = self.unit(run.start + byte / fsize, byte % fsize)?;
        let each = wide(DIRECTORY_UNIT) / u64::from(sb.pointer_size());
        let number = BlockNo::new(sb.pointer(&unit, at % each));
        Ok(Some(number).filter(|&number| number != BlockNo::ZERO))
    }

    /// The trees below an index block: those at its places.
    pub(super) fn below(&self, tree: Tree, at: u64, block: BlockNo) -> Option<Tree> {
        let levels = tree.levels.checked_sub(1).filter(|&levels| levels > 0)?;
        let step = self.volume.sb.pointers().pow(levels);
        Some(Tree { block, levels, first: tree.first + at * step })
    }

    /// The trees of a file that it has.
    pub(super) fn trees(&self, inode: &Inode) -> Vec<Tree> {
        if !has_contents(&self.volume.sb, inode) {
            return Vec::new();
        }
        let roots = roots(&self.volume.sb);
        let all = roots.iter().zip(&inode.indirect).filter(|(_, number)| **number != 0);
        all.map(|(&(levels, first, _), &number)| Tree {
            block: BlockNo::new(number),
            levels,
            first,
        })
        .collect()
    }

    /// The fragments that a part of a file has now.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the file's map has wrong numbers.
    pub(super) fn mapped(&self, inode: &Inode, part: FilePart) -> Result<Option<Extent>, FsError> {
        if inode.mode() == 0 {
            return Ok(None);
        }
        let (levels, wanted) = match part {
            FilePart::Attributes(at) => return self.attribute_run(inode, at),
            FilePart::Data(at) if !has_contents(&self.volume.sb, inode) => {
                debug_assert!(at < u64::MAX, "a block of a file");
                return Ok(None);
            }
            FilePart::Data(at) => match inode.direct.get(index(at)) {
                Some(0) => return Ok(None),
                Some(&number) => return self.data_run(inode, at, BlockNo::new(number)).map(Some),
                None => (0, at),
            },
            FilePart::Index { levels, first } => (levels, first),
        };
        let covers = |tree: &Tree| {
            let span = self.volume.sb.pointers().pow(tree.levels);
            (tree.first..tree.first + span).contains(&wanted)
        };
        let Some(mut tree) = self.trees(inode).into_iter().find(covers) else { return Ok(None) };
        while tree.levels > levels {
            let step = self.volume.sb.pointers().pow(tree.levels - 1);
            let at = (wanted - tree.first) / step;
            let Some(block) = self.number(inode, tree.block, at)? else { return Ok(None) };
            match self.below(tree, at, block) {
                Some(below) => tree = below,
                None => return self.data_run(inode, wanted, block).map(Some),
            }
        }
        if tree.levels != levels || tree.first != wanted {
            return Ok(None);
        }
        self.index_run(inode, tree.block).map(Some)
    }

    /// All fragments of a file, each run with its part.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when its map has wrong numbers, index blocks of another map, or more
    /// fragments than the volume.
    pub(super) fn runs(&mut self, inode: &Inode) -> Result<Vec<(FilePart, Extent)>, FsError> {
        let mut found = Vec::new();
        for at in 0..inode.ext_blocks.len() {
            if let Some(run) = self.attribute_run(inode, at)? {
                found.push((FilePart::Attributes(at), run));
            }
        }
        if !has_contents(&self.volume.sb, inode) {
            return Ok(found);
        }
        for (at, &number) in (0u64..).zip(&inode.direct).filter(|(_, number)| **number != 0) {
            found.push((FilePart::Data(at), self.data_run(inode, at, BlockNo::new(number))?));
        }
        let mut left = self.volume.sb.size;
        let mut take = |run: Extent| {
            let place = Location::of("block map").in_inode(inode.ino);
            left = left
                .checked_sub(run.len)
                .ok_or_else(|| range("mapped fragments", run.len, left, place))?;
            Ok::<Extent, FsError>(run)
        };
        let mut next = self.trees(inode);
        while let Some(tree) = next.pop() {
            found.push((tree.part(), take(self.index_run(inode, tree.block)?)?));
            for (at, block) in self.numbers(inode, tree)? {
                match self.below(tree, at, block) {
                    Some(below) => next.push(below),
                    None => {
                        let part = tree.first + at;
                        found.push((
                            FilePart::Data(part),
                            take(self.data_run(inode, part, block)?)?,
                        ));
                    }
                }
            }
        }
        Ok(found)
    }
}
