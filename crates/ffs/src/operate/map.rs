//! Which fragments hold a block of a file: twelve numbers in the inode, then
//! three trees of indirect blocks.

use super::FfsLive;
use crate::ondisk::DIRECT;
use crate::superblock::Format;
use seekless_cache::{ChangeId, Changed, Piece, Role};
use seekless_fs::field::{byte, index, low32, wide};
use seekless_fs::{FileKind, FsError};
use seekless_placement::block::Wanted;
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

/// The way to a block's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It stands in the inode.
    Direct(usize),
    /// It is reached from one of the inode's three numbers, through places in
    /// indirect blocks.
    Indirect { tree: usize, places: SmallVec<[u64; 3]> },
}

impl FfsLive {
    /// The way to a block, if the format can map it.
    pub(super) fn way(&self, lbn: u64) -> Option<Way> {
        if lbn < wide(DIRECT) {
            return Some(Way::Direct(index(lbn)));
        }
        let width = self.sb.pointers();
        let mut left = lbn.saturating_sub(wide(DIRECT));
        let mut span = width;
        for tree in 0..3 {
            if left >= span {
                left = left.saturating_sub(span);
                span = span.saturating_mul(width);
                continue;
            }
            let mut places = SmallVec::new();
            for _ in 0..=tree {
                span = span.checked_div(width).unwrap_or(1).max(1);
                places.push(left.checked_div(span).unwrap_or(0));
                left = left.checked_rem(span).unwrap_or(0);
            }
            return Some(Way::Indirect { tree, places });
        }
        None
    }

    /// A block number in an indirect block. All of the block is read: who wants
    /// one number will want the next.
    pub(super) fn pointer(&mut self, block: BlockNo, place: u64) -> Result<u64, FsError> {
        let at = index(place).saturating_mul(index(self.sb.pointer_size()));
        let bytes = self.cache.read(block, 0, index(self.sb.bsize))?;
        Ok(match self.sb.format {
            Format::Ufs1 => u64::from(self.sb.order.get_u32(bytes, at).unwrap_or(0)),
            Format::Ufs2 => self.sb.order.get_u64(bytes, at).unwrap_or(0),
        })
    }

    /// Where a block of a file begins; `None` for a hole.
    pub(super) fn lookup_block(&mut self, ino: Ino, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        let Some(way) = self.way(lbn) else { return Ok(None) };
        let node = self.node(ino)?;
        let (mut number, places) = match way {
            Way::Direct(at) => {
                let number = node.direct.get(at).copied().unwrap_or(0);
                let size = node.size;
                let frags = self.frags_of_size(size, lbn).max(1);
                return if number == 0 {
                    Ok(None)
                } else {
                    self.check_run(ino, number, frags).map(Some)
                };
            }
            Way::Indirect { tree, places } => {
                (node.indirect.get(tree).copied().unwrap_or(0), places)
            }
        };
        for place in places {
            if number == 0 {
                return Ok(None);
            }
            let block = self.check_run(ino, number, self.sb.frag)?;
            number = self.pointer(block, place)?;
        }
        if number == 0 { Ok(None) } else { self.check_run(ino, number, self.sb.frag).map(Some) }
    }

    fn frags_of_size(&self, size: u64, lbn: u64) -> u32 {
        let bsize = u64::from(self.sb.bsize);
        self.frags(size.saturating_sub(lbn.saturating_mul(bsize)).min(bsize))
    }

    /// Changes a number in an indirect block; with `instead` as
    /// [`FfsLive::put_part`].
    pub(super) fn put_pointer(
        &mut self,
        block: BlockNo,
        place: u64,
        number: u64,
        role: Role,
        after: &[ChangeId],
        instead: Option<&[ChangeId]>,
    ) -> Result<Changed, FsError> {
        let width = index(self.sb.pointer_size());
        let offset = byte(index(place).saturating_mul(width));
        let mut bytes = [0; 8];
        match self.sb.format {
            Format::Ufs1 => self.sb.order.put_u32(&mut bytes, 0, low32(number)),
            Format::Ufs2 => self.sb.order.put_u64(&mut bytes, 0, number),
        }
        let bytes = bytes.get(..width).unwrap_or_default();
        let piece = Piece { offset, bytes };
        if let Some(dropped) = instead {
            return self.cache.replace(block, &[piece], role, after, dropped);
        }
        let id = self.cache.change(block, &[piece], role, after)?;
        Ok(Changed { id, replaced: false })
    }

    /// Where policy would like the block: what lies in front of it in its map.
    pub(super) fn wanted(&mut self, ino: Ino, lbn: u64) -> Result<Wanted, FsError> {
        let (at, previous, before) = match self.way(lbn) {
            Some(Way::Indirect { places, .. }) => {
                let at = places.last().copied().unwrap_or(0);
                (at, at.checked_sub(1), at.checked_sub(u64::from(self.volume.maxcontig)))
            }
            _ => (lbn, lbn.checked_sub(1), lbn.checked_sub(u64::from(self.volume.maxcontig))),
        };
        let mut neighbour = |place: Option<u64>| -> Result<Option<BlockNo>, FsError> {
            let Some(place) = place else { return Ok(None) };
            let lbn = lbn.saturating_sub(at.saturating_sub(place));
            self.lookup_block(ino, lbn)
        };
        let previous = neighbour(previous)?;
        let run_before = if previous.is_some() { neighbour(before)? } else { None };
        Ok(Wanted::Data { index: at, previous, run_before })
    }

    /// Enters a new block of a file that lies behind the direct ones. The
    /// indirect blocks on its way that are missing are made first; when space
    /// runs out nothing has changed.
    pub(super) fn enter_indirect(
        &mut self,
        ino: Ino,
        lbn: u64,
        run: BlockNo,
        after: &[ChangeId],
    ) -> Result<(), FsError> {
        let Some(Way::Indirect { tree, places }) = self.way(lbn) else {
            return Err(FsError::TooLarge(format!("inode {ino}")));
        };
        let path = self.existing_path(ino, tree, &places)?;
        let missing = places.len().saturating_sub(path.len());
        let made = self.take_indirect(ino, lbn, tree, missing)?;
        let frag = u64::from(self.sb.frag);
        let sectors = self.sectors(frag.saturating_mul(wide(missing).saturating_add(1)));
        let is_directory = self.node(ino)?.kind == FileKind::Directory;
        let (entered, reached) = if is_directory {
            (Role::DirectoryExtend, Role::DirectoryExtend)
        } else {
            (Role::IndirectSet, Role::PointerSet)
        };
        // From the lowest up: each is whole before its number is entered above.
        let (mut number, mut after) = (run.get(), SmallVec::<[ChangeId; 3]>::from_slice(after));
        let blocks = path.iter().map(|&at| (at, None));
        let blocks = blocks.chain(made.iter().map(|&(at, id)| (at, Some(id))));
        let chain: SmallVec<[(BlockNo, Option<ChangeId>); 3]> = blocks.collect();
        for (&(block, fresh), &place) in chain.iter().zip(&places).rev() {
            let Some(bitmap) = fresh else {
                self.put_pointer(block, place, number, entered, &after, None)?;
                let node = self.node(ino)?;
                node.sectors = node.sectors.saturating_add(sectors);
                return Ok(());
            };
            let bsize = index(self.sb.bsize);
            let ((), init) = self.cache.fill(block, bsize, Role::IndirectInit, |_| Ok(()))?;
            self.put_pointer(block, place, number, entered, &after, None)?;
            (number, after) = (block.get(), SmallVec::from_slice(&[bitmap, init]));
        }
        let node = self.node(ino)?;
        node.sectors = node.sectors.saturating_add(sectors);
        if let Some(top) = node.indirect.get_mut(tree) {
            *top = number;
        }
        self.put_blocks(ino, reached, &after)?;
        Ok(())
    }

    /// The indirect blocks on a way that are there, from the top.
    pub(super) fn existing_path(
        &mut self,
        ino: Ino,
        tree: usize,
        places: &[u64],
    ) -> Result<SmallVec<[BlockNo; 3]>, FsError> {
        let mut number = self.node(ino)?.indirect.get(tree).copied().unwrap_or(0);
        let mut path = SmallVec::new();
        for &place in places {
            if number == 0 {
                break;
            }
            let block = self.check_run(ino, number, self.sb.frag)?;
            path.push(block);
            number = self.pointer(block, place)?;
        }
        path.truncate(places.len());
        Ok(path)
    }

    /// Takes blocks for indirect ones, from the top; all or none.
    fn take_indirect(
        &mut self,
        ino: Ino,
        lbn: u64,
        tree: usize,
        count: usize,
    ) -> Result<SmallVec<[(BlockNo, ChangeId); 3]>, FsError> {
        let mut made = SmallVec::<[(BlockNo, ChangeId); 3]>::new();
        for _ in 0..count {
            let level = u32::try_from(tree).unwrap_or(0).saturating_add(1);
            match self.take_data(ino, lbn, self.sb.frag, Wanted::Indirect(level)) {
                Ok(taken) => made.push(taken),
                Err(error) => {
                    let frag = u64::from(self.sb.frag);
                    let runs: Vec<Extent> =
                        made.iter().map(|&(at, _)| Extent::new(at, frag)).collect();
                    self.free_runs(&runs)?;
                    return Err(error);
                }
            }
        }
        Ok(made)
    }
}
