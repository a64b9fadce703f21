//! Which fragments hold a block of a file: twelve numbers in the inode, then
//! three trees of indirect blocks.

use super::geometry::{BlockPath, MapGeometry};
use super::{Indirect, Mapped, Purpose};
use crate::core::Core;
use crate::table::Table;
use crate::{Fault, Part};
use seekless_cache::{ChangeId, Changed, Kind, Piece, Role};
use seekless_fs::field::{byte, index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

/// An indirect block on the way to a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    at: BlockNo,
    /// The changes that mark it as taken and fill it, where nothing on the disk leads to it yet.
    fresh: Option<(ChangeId, ChangeId)>,
}

/// The indirect blocks on the way to a block, all of them there.
#[derive(Clone, Debug)]
pub struct Path {
    tree: usize,
    places: SmallVec<[u64; 3]>,
    /// From the top.
    steps: SmallVec<[Step; 3]>,
    /// Those that the new ones are copies of.
    old: SmallVec<[BlockNo; 3]>,
}

impl Path {
    /// Indirect blocks that the file has more by it.
    pub(super) fn more(&self) -> u64 {
        let fresh = self.steps.iter().filter(|step| step.fresh.is_some()).count();
        wide(fresh - self.old.len())
    }
}

/// The maps of files.
pub(super) struct BlockMap<'a, F: Indirect> {
    maps: &'a mut F,
    core: &'a mut Core<F::Map>,
    geometry: MapGeometry,
}

impl<'a, F: Indirect> BlockMap<'a, F> {
    pub(super) fn new(maps: &'a mut F, core: &'a mut Core<F::Map>) -> Self {
        let geometry = MapGeometry::of(maps);
        Self { maps, core, geometry }
    }

    /// Writes size, sectors and block numbers.
    pub(super) fn put_blocks(
        &mut self,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Ok(self.maps.table().put_part(self.core, ino, Part::Map, role, after, None)?.id)
    }

    /// A block number in an indirect block. All of the block is read: a caller that wants one
    /// number will want the next.
    pub(super) fn pointer(&mut self, block: BlockNo, place: u64) -> Result<u64, FsError> {
        let at = index(place) * self.maps.pointer_width();
        let len = index(self.geometry.block());
        let bytes = self.core.cache.blocks_mut().read(block, 0, len)?;
        Ok(self.maps.pointer_at(bytes, at))
    }

    /// Where a block of a file begins; `None` for a hole.
    pub(super) fn lookup(&mut self, ino: Ino, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        let Some(way) = self.geometry.way(lbn) else { return Ok(None) };
        let node = self.core.node(ino)?;
        let (mut number, places) = match way {
            BlockPath::Direct(at) => {
                let number = node.map.trees().direct.get(at).copied().unwrap_or(0);
                let size = node.size;
                let frags = self.geometry.units_at(size, lbn).max(1);
                return if number == 0 {
                    Ok(None)
                } else {
                    self.maps.check_run(ino, number, frags).map(Some)
                };
            }
            BlockPath::Indirect { tree, places } => {
                (node.map.trees().indirect.get(tree).copied().unwrap_or(0), places)
            }
        };
        for place in places {
            if number == 0 {
                return Ok(None);
            }
            let block = self.maps.check_run(ino, number, self.geometry.per_block())?;
            number = self.pointer(block, place)?;
        }
        if number == 0 {
            Ok(None)
        } else {
            self.maps.check_run(ino, number, self.geometry.per_block()).map(Some)
        }
    }

    /// Changes a number in an indirect block; with `instead` as
    /// [`Table::put_part`](crate::Table::put_part).
    pub(super) fn put_pointer(
        &mut self,
        (block, place): (BlockNo, u64),
        number: u64,
        role: Role,
        after: &[ChangeId],
        instead: Option<&[ChangeId]>,
    ) -> Result<Changed, FsError> {
        let width = self.maps.pointer_width();
        let offset = byte(index(place) * width);
        let mut bytes = [0; 8];
        self.maps.put_pointer(&mut bytes, number);
        let bytes = bytes.get(..width).unwrap_or_default();
        let piece = Piece { offset, bytes };
        if let Some(dropped) = instead {
            return self.core.cache.changes().replace(block, &[piece], role, after, dropped);
        }
        let id = self.core.cache.changes().change(block, &[piece], role, after)?;
        Ok(Changed { id, replaced: false })
    }

    /// Makes the indirect blocks on the way to a block that are missing, before
    /// the block itself is taken, so that it lies behind them (`ffs_balloc`).
    /// Nothing on the disk leads to them yet. When space runs out nothing has
    /// changed.
    pub(super) fn open_path(&mut self, ino: Ino, lbn: u64) -> Result<Path, FsError> {
        let Some(BlockPath::Indirect { tree, places }) = self.geometry.way(lbn) else {
            return Err(FsError::TooLarge(format!("inode {ino}")));
        };
        let there = self.existing_path(ino, tree, &places)?;
        // A directory may neither end in a hole nor lead past its end, and its length is not
        // written together with the number of its last block: it gets copies of the indirect
        // blocks, to which its inode leads with one write.
        let copies = self.core.node(ino)?.kind == FileKind::Directory;
        let kept = if copies { 0 } else { there.len() };
        let old: SmallVec<[BlockNo; 3]> = there.iter().copied().skip(kept).collect();
        if copies {
            self.settle_blocks(&old)?;
        }
        let made = self.take_indirect(ino, lbn, tree, places.len() - kept)?;
        let bsize = index(self.geometry.block());
        let mut steps: SmallVec<[Step; 3]> =
            there.iter().take(kept).map(|&at| Step { at, fresh: None }).collect();
        for (n, &(at, bitmap)) in made.iter().enumerate() {
            let held = match old.get(n) {
                Some(&from) => self.core.cache.blocks_mut().read(from, 0, bsize)?.to_vec(),
                None => Vec::new(),
            };
            let ((), init) =
                self.core.cache.changes().fill(at, bsize, Role::IndirectInit, |to| {
                    to.iter_mut().zip(&held).for_each(|(to, &from)| *to = from);
                    Ok(())
                })?;
            self.core.note_unsettled(ino, Extent::new(at, u64::from(self.geometry.per_block())));
            steps.push(Step { at, fresh: Some((bitmap, init)) });
        }
        let first_made = steps.first().filter(|step| step.fresh.is_some()).map(|step| step.at);
        if let (Some(at), true) = (first_made, old.is_empty())
            && let Some(top) = self.core.node(ino)?.map.trees_mut().indirect.get_mut(tree)
        {
            // The policies go by it; on the disk it comes with the block's number.
            *top = at.get();
        }
        Ok(Path { tree, places, steps, old })
    }

    /// Waits until the changes in some blocks are on the disk.
    pub(super) fn settle_blocks(&mut self, blocks: &[BlockNo]) -> Result<(), FsError> {
        let frag = u64::from(self.geometry.per_block());
        let pending: Vec<ChangeId> = blocks
            .iter()
            .flat_map(|&at| self.core.cache.changes_in(Extent::new(at, frag)))
            .collect();
        self.core.cache.settle(&pending)
    }

    /// Takes back the blocks that [`BlockMap::open_path`] made.
    pub(super) fn abandon_path(&mut self, ino: Ino, path: &Path) -> Result<(), FsError> {
        let fresh = path.steps.iter().filter(|step| step.fresh.is_some());
        let frag = u64::from(self.geometry.per_block());
        let runs: Vec<Extent> = fresh.map(|step| Extent::new(step.at, frag)).collect();
        let whole = runs.len() == path.steps.len();
        self.core.forget_unsettled(ino, &runs);
        for &run in &runs {
            self.core.cache.changes().forget(run, ChangeId::COMMITTED);
        }
        if whole
            && path.old.is_empty()
            && let Some(top) = self.core.node(ino)?.map.trees_mut().indirect.get_mut(path.tree)
        {
            *top = 0;
        }
        self.maps.give(self.core, &runs)
    }

    /// Enters a new block at the end of a path. The number in an indirect block that the disk leads
    /// to waits for the file's length: numbers past a file's end stop a check ("PARTIALLY TRUNCATED
    /// INODE", `fsck_ffs`). The number in a new one waits for nothing, as no number on the disk
    /// leads there: the number of the indirect block itself waits for the blocks of all its
    /// numbers.
    pub(super) fn enter_indirect(
        &mut self,
        ino: Ino,
        path: &Path,
        run: BlockNo,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let frag = u64::from(self.geometry.per_block());
        let node = self.core.node(ino)?;
        let (is_directory, sized) = (node.kind == FileKind::Directory, node.pending.sized);
        let (entered, reached) = if is_directory {
            (Role::DirectoryExtend, Role::DirectoryExtend)
        } else {
            (Role::IndirectSet, Role::PointerSet)
        };
        let sectors = self.geometry.sectors(frag * (path.more() + 1));
        let node = self.core.node(ino)?;
        node.add_sectors(sectors);
        let (mut number, mut after) = (run.get(), SmallVec::<[ChangeId; 8]>::from_slice(after));
        for (step, &place) in path.steps.iter().zip(&path.places).rev() {
            let Some((bitmap, init)) = step.fresh else {
                after.extend(self.core.unless(Fault::IndirectBeforeLength, Some(sized)));
                let changed = self.put_pointer((step.at, place), number, entered, &after, None)?;
                self.core.note_unsettled(ino, Extent::new(step.at, frag));
                self.put_blocks(ino, Role::Attributes, &[])?;
                return Ok(changed.id);
            };
            let changed = self.put_pointer((step.at, place), number, entered, &[], None)?;
            number = step.at.get();
            let whole = [bitmap, init, changed.id];
            after.extend(self.core.unless(Fault::IndirectBeforeInit, whole.to_vec()));
        }
        if let Some(top) = self.core.node(ino)?.map.trees_mut().indirect.get_mut(path.tree) {
            *top = number;
        }
        let changed =
            self.maps.table().put_part(self.core, ino, Part::Reach, reached, &after, None)?;
        let old: crate::Runs = path.old.iter().map(|&at| Extent::new(at, frag)).collect();
        self.core.defer_free(&[changed.id], Kind::FreeFragments, old);
        Ok(changed.id)
    }

    /// The indirect blocks on a way that are there, from the top.
    pub(super) fn existing_path(
        &mut self,
        ino: Ino,
        tree: usize,
        places: &[u64],
    ) -> Result<SmallVec<[BlockNo; 3]>, FsError> {
        let mut number = self.core.node(ino)?.map.trees().indirect.get(tree).copied().unwrap_or(0);
        let mut path = SmallVec::new();
        for &place in places {
            if number == 0 {
                break;
            }
            let block = self.maps.check_run(ino, number, self.geometry.per_block())?;
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
            let level = u32::try_from(tree).unwrap_or(0) + 1;
            match self.maps.take(
                self.core,
                ino,
                lbn,
                self.geometry.per_block(),
                Purpose::Indirect(level),
            ) {
                Ok(taken) => made.push(taken),
                Err(error) => {
                    let frag = u64::from(self.geometry.per_block());
                    let runs: Vec<Extent> =
                        made.iter().map(|&(at, _)| Extent::new(at, frag)).collect();
                    self.maps.give(self.core, &runs)?;
                    return Err(error);
                }
            }
        }
        Ok(made)
    }
}
