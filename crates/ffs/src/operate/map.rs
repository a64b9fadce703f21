//! Which fragments hold a block of a file: twelve numbers in the inode, then
//! three trees of indirect blocks.

use super::FfsLive;
use super::encode::Part;
use super::fault::Fault;
use crate::ondisk::DIRECT;
use crate::superblock::{Format, Super};
use seekless_cache::{ChangeId, Changed, Kind, Piece, Role};
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

/// An indirect block on the way to a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    at: BlockNo,
    /// What marks it as taken and what it holds, where nothing on the disk leads
    /// to it yet.
    fresh: Option<(ChangeId, ChangeId)>,
}

/// The indirect blocks on the way to a block, all of them there.
#[derive(Clone, Debug)]
pub(super) struct Path {
    tree: usize,
    places: SmallVec<[u64; 3]>,
    /// From the top.
    steps: SmallVec<[Step; 3]>,
    /// Those that the new ones are copies of.
    old: SmallVec<[BlockNo; 3]>,
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
        Ok(number_in(&self.sb, bytes, at))
    }

    /// As [`FfsLive::pointer`], if the indirect block is in the cache.
    pub(super) fn peek(&self, block: BlockNo, place: u64) -> Option<u64> {
        let at = index(place).saturating_mul(index(self.sb.pointer_size()));
        let bytes = self.cache.peek(block, 0, index(self.sb.bsize))?;
        Some(number_in(&self.sb, bytes, at))
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
                (at, at.checked_sub(1), at.checked_sub(u64::from(self.sb.tuning.maxcontig)))
            }
            _ => (lbn, lbn.checked_sub(1), lbn.checked_sub(u64::from(self.sb.tuning.maxcontig))),
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

    /// Makes the indirect blocks on the way to a block that are missing, before
    /// the block itself is taken, so that it lies behind them (`ffs_balloc`).
    /// Nothing on the disk leads to them yet. When space runs out nothing has
    /// changed.
    pub(super) fn open_path(&mut self, ino: Ino, lbn: u64) -> Result<Path, FsError> {
        let Some(Way::Indirect { tree, places }) = self.way(lbn) else {
            return Err(FsError::TooLarge(format!("inode {ino}")));
        };
        let there = self.existing_path(ino, tree, &places)?;
        // A directory may neither end in a hole nor lead past its end, and its
        // length stands elsewhere than the number of its last block: it gets
        // copies of the indirect blocks, to which its inode leads with one write.
        let copies = self.node(ino)?.kind == FileKind::Directory;
        let kept = if copies { 0 } else { there.len() };
        let old: SmallVec<[BlockNo; 3]> = there.iter().copied().skip(kept).collect();
        if copies {
            self.settle_blocks(&old)?;
        }
        let made = self.take_indirect(ino, lbn, tree, places.len().saturating_sub(kept))?;
        let bsize = index(self.sb.bsize);
        let mut steps: SmallVec<[Step; 3]> =
            there.iter().take(kept).map(|&at| Step { at, fresh: None }).collect();
        for (n, &(at, bitmap)) in made.iter().enumerate() {
            let held = match old.get(n) {
                Some(&from) => self.cache.read(from, 0, bsize)?.to_vec(),
                None => Vec::new(),
            };
            let ((), init) = self.cache.fill(at, bsize, Role::IndirectInit, |to| {
                to.iter_mut().zip(&held).for_each(|(to, &from)| *to = from);
                Ok(())
            })?;
            self.note_unsettled(ino, Extent::new(at, u64::from(self.sb.frag)));
            steps.push(Step { at, fresh: Some((bitmap, init)) });
        }
        let first_made = steps.first().filter(|step| step.fresh.is_some()).map(|step| step.at);
        if let (Some(at), true) = (first_made, old.is_empty())
            && let Some(top) = self.node(ino)?.indirect.get_mut(tree)
        {
            // The policies go by it; on the disk it comes with the block's number.
            *top = at.get();
        }
        Ok(Path { tree, places, steps, old })
    }

    /// Sees on the disk what was changed in some blocks.
    pub(super) fn settle_blocks(&mut self, blocks: &[BlockNo]) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        let pending: Vec<ChangeId> =
            blocks.iter().flat_map(|&at| self.cache.changes_in(Extent::new(at, frag))).collect();
        self.cache.settle(&pending)
    }

    /// Takes back what [`FfsLive::open_path`] made.
    pub(super) fn abandon_path(&mut self, ino: Ino, path: &Path) -> Result<(), FsError> {
        let fresh = path.steps.iter().filter(|step| step.fresh.is_some());
        let frag = u64::from(self.sb.frag);
        let runs: Vec<Extent> = fresh.map(|step| Extent::new(step.at, frag)).collect();
        let whole = runs.len() == path.steps.len();
        self.forget_unsettled(ino, &runs);
        for &run in &runs {
            self.cache.forget(run, ChangeId::COMMITTED);
        }
        if whole
            && path.old.is_empty()
            && let Some(top) = self.node(ino)?.indirect.get_mut(path.tree)
        {
            *top = 0;
        }
        self.free_runs(&runs)
    }

    /// Enters a new block at the end of a path. The number in an indirect block
    /// that the disk leads to waits for the file's length: numbers past a file's
    /// end stop a check ("PARTIALLY TRUNCATED INODE", `fsck_ffs`).
    pub(super) fn enter_indirect(
        &mut self,
        ino: Ino,
        path: &Path,
        run: BlockNo,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let frag = u64::from(self.sb.frag);
        let node = self.node(ino)?;
        let (is_directory, sized) = (node.kind == FileKind::Directory, node.sized);
        let (entered, reached) = if is_directory {
            (Role::DirectoryExtend, Role::DirectoryExtend)
        } else {
            (Role::IndirectSet, Role::PointerSet)
        };
        let fresh = path.steps.iter().filter(|step| step.fresh.is_some()).count();
        let more = wide(fresh.saturating_sub(path.old.len())).saturating_add(1);
        let sectors = self.sectors(frag.saturating_mul(more));
        let node = self.node(ino)?;
        node.sectors = node.sectors.saturating_add(sectors);
        // From the lowest up: each is whole before its number is entered above.
        let (mut number, mut after) = (run.get(), SmallVec::<[ChangeId; 4]>::from_slice(after));
        for (step, &place) in path.steps.iter().zip(&path.places).rev() {
            let Some((bitmap, init)) = step.fresh else {
                after.extend(self.unless(Fault::IndirectBeforeLength, Some(sized)));
                let changed = self.put_pointer(step.at, place, number, entered, &after, None)?;
                self.note_unsettled(ino, Extent::new(step.at, frag));
                self.put_blocks(ino, Role::Attributes, &[])?;
                return Ok(changed.id);
            };
            let changed = self.put_pointer(step.at, place, number, entered, &after, None)?;
            number = step.at.get();
            let whole = [bitmap, init, changed.id];
            after = self.unless(Fault::IndirectBeforeInit, SmallVec::from_slice(&whole));
        }
        if let Some(top) = self.node(ino)?.indirect.get_mut(path.tree) {
            *top = number;
        }
        let changed = self.put_part(ino, Part::Reach, reached, &after, None)?;
        let old = path.old.iter().map(|&at| Extent::new(at, frag)).collect();
        self.defer_free(&[changed.id], Kind::FreeFrag, old);
        Ok(changed.id)
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

/// The block number at a byte of an indirect block.
fn number_in(sb: &Super, bytes: &[u8], at: usize) -> u64 {
    match sb.format {
        Format::Ufs1 => u64::from(sb.order.get_u32(bytes, at).unwrap_or(0)),
        Format::Ufs2 => sb.order.get_u64(bytes, at).unwrap_or(0),
    }
}
