//! Converts an empty file into a snapshot of the volume (`ffs_snapshot` of
//! `sys/ufs/ffs/ffs_snapshot.c`).

use super::Ffs;
use super::allocator::by_block;
use super::copies::OF_A_CHANGE;
use super::map::Core;
use super::recovery;
use crate::alloc::{Delta, GroupMut, encode_summary, free_fragments, seal_group};
use crate::compose::indirect_blocks;
use crate::inode_edit::{InodeMut, put_pointer};
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT, MOST_SNAPSHOTS, SNAPSHOT};
use crate::origin::{MapMut, always_kept};
use crate::superblock::Super;
use crate::superblock_edit::SuperblockMut;
use seekless_cache::{Discipline, Piece, Role};
use seekless_device::BlockDevice;
use seekless_fs::field::{byte, index, invalid, wide};
use seekless_fs::plan::Run;
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::{Format, Part, Progress, Table};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba, Lbn};
use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::Arc;

/// Bytes of a number in the list of a snapshot.
const LISTED: u64 = 8;

/// The image of the volume for a new snapshot.
struct Image {
    sb: Arc<Super>,
    /// Heads of the groups, in which the blocks of older snapshots are free.
    heads: Vec<Vec<u8>>,
    /// Blocks that differ from the volume's, or whose originals change while the snapshot is written.
    changed: BTreeMap<u64, Vec<u8>>,
    /// Blocks of older snapshots.
    older: BTreeSet<u64>,
}

/// A file in use that has no name.
struct Nameless {
    ino: Ino,
    is_directory: bool,
    /// The parent whose count of links still has it.
    counted_in: Option<Ino>,
}

/// The blocks of a new snapshot.
struct Blocks {
    /// For copies, by the block that is copied.
    copies: BTreeMap<u64, BlockNo>,
    /// For the list behind the image.
    list: Vec<BlockNo>,
    /// For numbers of blocks.
    indirect: Vec<BlockNo>,
}

impl Ffs {
    /// Checks that a snapshot can be taken.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] for a full list; [`FsError::Unsupported`] without soft updates, and for too
    /// small volumes and blocks; [`FsError::Refused`] while the volume is being recovered.
    pub(crate) fn check_takes_snapshot(&self, core: &Core) -> Result<(), FsError> {
        let refuse = |why: &str| Err(FsError::Unsupported(why.into()));
        if self.copies.listed().len() >= MOST_SNAPSHOTS {
            return Err(FsError::NoSpace(format!("there are {MOST_SNAPSHOTS} snapshots already")));
        }
        if core.cache.blocks().config().discipline != Discipline::SoftUpdates {
            return refuse("snapshots of volumes in use without soft updates");
        }
        if self.sb.is_journaled() {
            return refuse("snapshots of volumes with journaled soft updates (tunefs -j disable)");
        }
        if matches!(self.progress, Progress::UnderWay | Progress::NeedsCheck) {
            return Err(FsError::Refused("the volume is being recovered".into()));
        }
        if self.sb.snapshot_blocks() <= wide(DIRECT) || self.sb.tuning.sbsize > self.sb.bsize {
            return refuse("snapshots of volumes as small, or with blocks as small, as this one");
        }
        Ok(())
    }

    /// Gives the blocks that are reserved for copies back.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; errors of the device.
    pub(super) fn release_reserve(&mut self, core: &mut Core) -> Result<(), FsError> {
        self.copies.release_reserve(&mut self.allocator, core)
    }

    /// Converts an empty file into a snapshot. All changes must be on the disk, and the reserve empty.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] and [`FsError::Refused`], with the file unchanged; errors of the device.
    pub(super) fn fill_snapshot(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        let origin = Arc::clone(self.copies.device());
        let device = origin.below().as_ref();
        let image = self.image_of(core, device)?;
        let copied = image.copied()?;
        let numbered = self.sb.snapshot_blocks();
        let (list, indirect) = image.further_blocks(copied.len());
        let all = copied.len() + list + indirect;
        // The first writes after this already need copies.
        let spare = OF_A_CHANGE * (self.copies.listed().len() + 1);
        let mut taken = self.copies.take_blocks(&mut self.allocator, core, all + spare)?;
        if taken.len() < all + spare {
            let frag = u64::from(self.sb.frag);
            let runs: Vec<Extent> = taken.iter().map(|&start| Extent::new(start, frag)).collect();
            self.copies.release(&mut self.allocator, core, &runs)?;
            return Err(super::groups::full("blocks for a snapshot"));
        }
        let spare = taken.split_off(all);
        taken.sort_unstable();
        let own = taken.clone();
        let indirect = taken.split_off(copied.len() + list);
        let list = taken.split_off(copied.len());
        let blocks = Blocks { copies: copied.into_iter().zip(taken).collect(), list, indirect };
        let listed = image.write_list(device, &blocks, &own)?;
        image.write_copies(device, &blocks)?;
        let numbers = image.write_numbers(device, &blocks)?;
        device.flush()?;

        let node = core.node(ino)?;
        debug_assert_eq!((node.size, node.sectors), (0, 0), "the file is empty");
        for (to, &number) in node.map.trees.direct.iter_mut().zip(&numbers) {
            *to = number;
        }
        for (to, &number) in node.map.trees.indirect.iter_mut().zip(numbers.iter().skip(DIRECT)) {
            *to = number;
        }
        node.size = numbered * u64::from(self.sb.bsize) + listed;
        node.sectors = self.sb.sectors(wide(own.len()) * u64::from(self.sb.frag));
        node.flags |= SNAPSHOT;
        node.restrictions = super::node::restrictions(node.flags);
        let (direct, indirect) = (node.map.trees.direct, node.map.trees.indirect);
        self.copies.add(MapMut::of(Arc::clone(&self.sb), ino, direct, indirect));
        self.copies.add_reserve(spare);
        self.write_superblock(core, false)?;
        self.put_whole(core, ino, Role::PointerSet)
    }

    /// Updates `di_blocks` of snapshots and the summary area. While the volume is being closed, it
    /// also frees the reserve once everything else is written.
    pub(super) fn put_counts(&mut self, core: &mut Core) -> Result<(), FsError> {
        // Writing such an inode may copy its block, which adds a block to a snapshot.
        loop {
            let gained = self.copies.device().take_gained();
            if gained.is_empty() {
                break;
            }
            for (ino, frags) in gained {
                if !core.nodes.contains_key(&ino) {
                    let node = self.load_node(core, ino)?;
                    core.nodes.insert(ino, node);
                }
                core.node(ino)?.sectors += self.sb.sectors(frags);
                self.put_part(core, ino, Part::Map, Role::LinkDrop, &[], None)?;
            }
        }
        if self.copies.is_closing() && !core.cache.is_dirty() {
            self.copies.release_reserve(&mut self.allocator, core)?;
        }
        self.allocator.groups_mut().write_summaries(core)
    }

    /// Writes a whole inode in one change.
    pub(super) fn put_whole(
        &mut self,
        core: &mut Core,
        ino: Ino,
        role: Role,
    ) -> Result<(), FsError> {
        let (_, raw) = self.old_and_new(core, ino)?;
        let (block, skip) = self.inode_place(ino)?;
        let piece = Piece { offset: byte(skip), bytes: &raw };
        core.cache.changes().change(block, &[piece], role, &[]).map(drop)
    }

    /// Reads the image of the volume, without older snapshots.
    fn image_of(&mut self, core: &mut Core, device: &dyn BlockDevice) -> Result<Image, FsError> {
        let nameless: Vec<Nameless> = core
            .nodes
            .values()
            .filter(|node| node.links == 0)
            .map(|node| Nameless {
                ino: node.ino,
                is_directory: node.kind == FileKind::Directory,
                counted_in: node.counted_in(),
            })
            .collect();
        let sb = Arc::clone(&self.sb);
        let mut heads = Vec::new();
        for group in (0..sb.ncg).map(GroupNo::new) {
            let mut head = vec![0; index(sb.cgsize)];
            let at = sb.in_group(group, sb.cblkno).get() * u64::from(sb.fsize);
            device.read_bytes(ByteLen::new(at), &mut head)?;
            heads.push(head);
        }
        let mut image = Image { sb, heads, changed: BTreeMap::new(), older: BTreeSet::new() };
        // Allocating the snapshot's own blocks changes these.
        for block in always_kept(&image.sb) {
            image.changed.insert(block, image.read(device, block)?);
        }
        let mut deltas = BTreeMap::new();
        for ino in self.copies.listed() {
            let runs = self.copies.device().runs_of(ino, self.ignore_checksums)?;
            image.leave_out(ino, &runs, device, &mut deltas)?;
        }
        for file in &nameless {
            let mut runs = self.runs_of(core, file.ino)?;
            runs.extend(self.attribute_runs(core, file.ino)?);
            image.remove(file, &runs, device, &mut deltas)?;
        }
        for parent in nameless.iter().filter_map(|file| file.counted_in) {
            if nameless.iter().all(|file| file.ino != parent) {
                image.drop_link(parent, device)?;
            }
        }
        let mut totals = *self.allocator.groups().counts().totals();
        for (&group, &delta) in &deltas {
            let place = Location::of("summary").in_group(group);
            let wrong = || invalid("cs", u64::from(group.get()), place);
            let old = self.allocator.groups().counts().summary(group).ok_or_else(wrong)?;
            let summary = delta.of_group(old).ok_or_else(wrong)?;
            for (total, delta) in [
                (&mut totals.ndir, delta.ndir),
                (&mut totals.nbfree, delta.nbfree),
                (&mut totals.nifree, delta.nifree),
                (&mut totals.nffree, delta.nffree),
            ] {
                *total = total.checked_add_signed(delta.into()).ok_or_else(wrong)?;
            }
            image.put_head(device, group, summary)?;
        }
        image.put_superblock(
            device,
            recovery::closed(self.progress, &self.sb).0,
            totals,
            core.now().secs,
        )?;
        Ok(image)
    }
}

impl Image {
    /// Removes an older snapshot from the image: its blocks are free, its file is empty.
    fn leave_out(
        &mut self,
        ino: Ino,
        runs: &[Extent],
        device: &dyn BlockDevice,
        deltas: &mut BTreeMap<GroupNo, Delta>,
    ) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        for piece in runs.iter().flat_map(|&run| by_block(run, frag)) {
            self.older.insert(piece.start.get() / frag);
        }
        self.free(runs, deltas)?;
        self.edit_inode(device, ino, |inode| inode.empty())
    }

    /// Removes a file without a name, which is still in use, from the image.
    fn remove(
        &mut self,
        file: &Nameless,
        runs: &[Extent],
        device: &dyn BlockDevice,
        deltas: &mut BTreeMap<GroupNo, Delta>,
    ) -> Result<(), FsError> {
        self.free(runs, deltas)?;
        let (group, _) = self.sb.inode_slot(file.ino)?;
        let freed = self.head(group)?.free_inode(file.ino, file.is_directory)?;
        let delta = deltas.entry(group).or_default();
        *delta = delta.and(freed);
        self.edit_inode(device, file.ino, |inode| inode.clear())
    }

    /// Drops the link of a removed directory to its parent.
    fn drop_link(&mut self, parent: Ino, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut links = None;
        self.edit_inode(device, parent, |inode| {
            links = inode.links().checked_sub(1);
            inode.set_links(links.unwrap_or(0));
        })?;
        let place = Location::of("inode").in_inode(parent);
        links.map(drop).ok_or_else(|| invalid("di_nlink", 0, place))
    }

    fn head(&mut self, group: GroupNo) -> Result<GroupMut<'_>, FsError> {
        let head = self.heads.get_mut(index(group.get())).map(Vec::as_mut_slice);
        GroupMut::check(&self.sb, group, head.unwrap_or_default())
    }

    /// Frees runs in the heads of the groups.
    fn free(
        &mut self,
        runs: &[Extent],
        deltas: &mut BTreeMap<GroupNo, Delta>,
    ) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        for piece in runs.iter().flat_map(|&run| by_block(run, frag)) {
            let group = self.sb.group_of(piece.start);
            let freed = self.head(group)?.free(piece)?;
            let delta = deltas.entry(group).or_default();
            *delta = delta.and(freed);
        }
        Ok(())
    }

    fn edit_inode(
        &mut self,
        device: &dyn BlockDevice,
        ino: Ino,
        edit: impl FnOnce(&mut InodeMut<'_>),
    ) -> Result<(), FsError> {
        let at = self.sb.inode_place(ino)?;
        let byte = at.block.get() * u64::from(self.sb.fsize) + wide(at.skip);
        let sb = Arc::clone(&self.sb);
        self.change(device, byte, index(sb.inode_size()), |bytes| {
            let mut inode = InodeMut::of(&sb, bytes.to_vec());
            edit(&mut inode);
            bytes.copy_from_slice(&inode.sealed());
        })
    }

    /// Changes bytes of one block of the image.
    fn change(
        &mut self,
        device: &dyn BlockDevice,
        at: u64,
        len: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), FsError> {
        let bsize = u64::from(self.sb.bsize);
        let (block, within) = (at / bsize, index(at % bsize));
        debug_assert!(within + len <= index(bsize), "{len} bytes at {at} lie in a block");
        if !self.changed.contains_key(&block) {
            self.changed.insert(block, self.read(device, block)?);
        }
        let bytes = self.changed.get_mut(&block).map(Vec::as_mut_slice).unwrap_or_default();
        change(bytes.get_mut(within..within + len).unwrap_or_default());
        Ok(())
    }

    /// A block of the volume; the last one may end behind it.
    fn read(&self, device: &dyn BlockDevice, block: u64) -> Result<Vec<u8>, FsError> {
        let (bsize, fsize) = (u64::from(self.sb.bsize), u64::from(self.sb.fsize));
        let mut bytes = vec![0; index(bsize)];
        let there = (self.sb.size * fsize - block * bsize).min(bsize);
        let part = bytes.get_mut(..index(there)).unwrap_or_default();
        device.read_bytes(ByteLen::new(block * bsize), part)?;
        Ok(bytes)
    }

    /// Puts the head of a group into the image, and its counts into the summary area.
    fn put_head(
        &mut self,
        device: &dyn BlockDevice,
        group: GroupNo,
        summary: GroupSummary,
    ) -> Result<(), FsError> {
        let sb = Arc::clone(&self.sb);
        let mut head = self.heads.get(index(group.get())).cloned().unwrap_or_default();
        seal_group(&sb, &mut head);
        let fsize = u64::from(sb.fsize);
        let at = sb.in_group(group, sb.cblkno).get() * fsize;
        self.change(device, at, head.len(), |bytes| bytes.copy_from_slice(&head))?;
        let each = crate::superblock::SUMMARY;
        let at = sb.summaries.start.get() * fsize + u64::from(group.get()) * each;
        self.change(device, at, index(each), |bytes| {
            encode_summary(sb.order, bytes, GroupNo::ZERO, summary);
        })
    }

    /// Puts the superblock of a volume that is not in use into the image.
    fn put_superblock(
        &mut self,
        device: &dyn BlockDevice,
        flags: u32,
        totals: Totals,
        secs: i64,
    ) -> Result<(), FsError> {
        let sb = Arc::clone(&self.sb);
        let mut raw = SuperblockMut::read(&sb, device)?;
        raw.set_flags(flags);
        raw.set_totals(totals);
        raw.set_time(secs);
        raw.set_clean(true);
        let bytes = raw.sealed();
        self.change(device, sb.at, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Whether a block is free.
    fn is_free(&self, block: u64) -> Result<bool, FsError> {
        let frag = u64::from(self.sb.frag);
        let run = Extent::new(BlockNo::new(block * frag), frag.min(self.sb.size - block * frag));
        let group = self.sb.group_of(run.start);
        let head = self.heads.get(index(group.get())).map(Vec::as_slice).unwrap_or_default();
        let free = free_fragments(&self.sb, group, head, run)?;
        Ok(free.iter().map(|run| run.len).sum::<u64>() == run.len)
    }

    /// Blocks copied when the snapshot is taken: those that making copies changes, those that differ
    /// from the volume's, those with a number in the inode, and the last one, which may be partial.
    fn copied(&self) -> Result<BTreeSet<u64>, FsError> {
        let mut copied = always_kept(&self.sb);
        copied.extend(self.changed.keys());
        copied.insert(self.sb.snapshot_blocks() - 1);
        for block in 0..wide(DIRECT) {
            if !self.is_free(block)? {
                copied.insert(block);
            }
        }
        Ok(copied)
    }

    /// Number of blocks of the list, and of indirect blocks, for `copies` copies.
    fn further_blocks(&self, copies: usize) -> (usize, usize) {
        let (bsize, pointers) = (u64::from(self.sb.bsize), self.sb.pointers());
        let kept = wide(always_kept(&self.sb).len() + copies);
        let (mut list, mut indirect) = (1, 0);
        loop {
            let numbered = self.sb.snapshot_blocks() + list;
            let wanted = indirect_blocks(once(Run { lbn: Lbn::new(0), len: numbered }), pointers);
            let listed = 1 + kept + list + wanted;
            let needed = (listed * LISTED).div_ceil(bsize);
            if (needed, wanted) == (list, indirect) {
                return (index(list), index(indirect));
            }
            (list, indirect) = (needed.max(list), wanted);
        }
    }

    /// Writes the list of blocks that the kernel may overwrite without looking at snapshots. Returns
    /// its length in bytes.
    fn write_list(
        &self,
        device: &dyn BlockDevice,
        blocks: &Blocks,
        own: &[BlockNo],
    ) -> Result<u64, FsError> {
        let frag = u64::from(self.sb.frag);
        let mut listed = always_kept(&self.sb);
        listed.extend(own.iter().map(|start| start.get() / frag));
        let numbers = [wide(listed.len()) + 1].into_iter().chain(listed);
        let mut bytes = vec![0; blocks.list.len() * index(self.sb.bsize)];
        let mut len = 0;
        for number in numbers {
            self.sb.order.put_u64(&mut bytes, len, number);
            len += index(LISTED);
        }
        for (bytes, &to) in bytes.chunks(index(self.sb.bsize)).zip(&blocks.list) {
            self.write(device, to, bytes)?;
        }
        Ok(wide(len))
    }

    fn write(&self, device: &dyn BlockDevice, to: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        let at = ByteLen::new(to.get() * u64::from(self.sb.fsize));
        Ok(device.write(Lba::containing(at), bytes)?)
    }

    fn write_copies(&self, device: &dyn BlockDevice, blocks: &Blocks) -> Result<(), FsError> {
        for (block, &copy) in &blocks.copies {
            match self.changed.get(block) {
                Some(bytes) => self.write(device, copy, bytes)?,
                None => self.write(device, copy, &self.read(device, *block)?)?,
            }
        }
        Ok(())
    }

    /// The number for a block of the file.
    fn number(&self, blocks: &Blocks, at: u64) -> Result<u64, FsError> {
        if let Some(list) = at.checked_sub(self.sb.snapshot_blocks()) {
            return Ok(blocks.list.get(index(list)).map_or(0, |start| start.get()));
        }
        match blocks.copies.get(&at) {
            Some(copy) => Ok(copy.get()),
            None if self.older.contains(&at) => Ok(BLK_SNAP),
            None if self.is_free(at)? => Ok(BLK_NOCOPY),
            None => Ok(0),
        }
    }

    /// Writes the indirect blocks. Returns the fifteen numbers of the inode.
    fn write_numbers(
        &self,
        device: &dyn BlockDevice,
        blocks: &Blocks,
    ) -> Result<Vec<u64>, FsError> {
        let end = self.sb.snapshot_blocks() + wide(blocks.list.len());
        let mut pool = blocks.indirect.iter().copied();
        let mut numbers = Vec::new();
        for at in 0..wide(DIRECT) {
            numbers.push(self.number(blocks, at)?);
        }
        let (mut first, mut span) = (wide(DIRECT), 1);
        for _ in 0..3 {
            span *= self.sb.pointers();
            let run = first..end.min(first + span);
            let tree = match run.is_empty() {
                true => 0,
                false => self.write_tree(device, blocks, &mut pool, run, span)?,
            };
            numbers.push(tree);
            first += span;
        }
        debug_assert!(pool.next().is_none(), "as many blocks as were counted");
        Ok(numbers)
    }

    /// Writes the indirect block of a run of blocks, and those of lower levels. `span` is the most
    /// blocks that it could map.
    fn write_tree(
        &self,
        device: &dyn BlockDevice,
        blocks: &Blocks,
        pool: &mut impl Iterator<Item = BlockNo>,
        run: std::ops::Range<u64>,
        span: u64,
    ) -> Result<u64, FsError> {
        let own = pool.next();
        debug_assert!(own.is_some(), "as many blocks as were counted");
        let own = own.ok_or_else(|| super::groups::full("blocks for a snapshot"))?;
        let step = span / self.sb.pointers();
        let width = index(self.sb.pointer_size());
        let mut bytes = vec![0; index(self.sb.bsize)];
        for (n, first) in run.clone().step_by(index(step)).enumerate() {
            let number = match step {
                1 => self.number(blocks, first)?,
                _ => {
                    let below = first..run.end.min(first + step);
                    self.write_tree(device, blocks, pool, below, step)?
                }
            };
            put_pointer(&self.sb, &mut bytes, n * width, number);
        }
        self.write(device, own, &bytes)?;
        Ok(own.get())
    }
}
