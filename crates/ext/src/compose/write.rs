//! The forward pass: contents in the order in which they lie on the disk, read
//! on several threads, then inode tables, bitmaps and descriptors.

mod inodes;

use super::CopyCounts;
use super::demand::{self, Object, TreeDemand};
use super::fixed::{self, Fixed};
use super::geometry::Geometry;
use super::inodes::InodeFormat;
use super::summary::{GroupUse, Identity, Totals, group_record, plain_descriptor, superblock};
use crate::encode::dirblocks;
use crate::encode::sums::seal_superblock;
use crate::ondisk::{Superblock, compat, incompat, ro_compat, special};
use rayon::prelude::*;
use seekless_device::BlockDevice;
use seekless_fs::extents::union;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::plan::{Demand, ObjectId, Plan};
use seekless_fs::source::{Content, SEAL_ALIGN};
use seekless_fs::tree::NodeId;
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba};
use std::borrow::Cow;
use zerocopy::IntoBytes;

/// Who an inode belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Object(ObjectId),
    Resize,
    Journal,
    Orphans,
}

/// Writes the image of a tree. Everything is decided; only the writing is left.
pub(crate) struct TreeWriter<'a> {
    pub(crate) demand: &'a TreeDemand<'a>,
    pub(crate) geometry: &'a Geometry,
    pub(crate) identity: &'a Identity,
    pub(crate) fixed: &'a Fixed,
    pub(crate) orphan_ino: Ino,
    pub(crate) copies: CopyCounts<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl TreeWriter<'_> {
    /// Writes the whole image.
    pub(crate) fn run(&self) -> Result<(), FsError> {
        self.write_data()?;
        self.write_fixed()?;
        self.write_groups()
    }

    fn put(&self, block: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        let at = ByteLen::new(block.get() * u64::from(self.geometry.block_size));
        self.device.write(Lba::containing(at), bytes)?;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }

    fn checksums(&self) -> bool {
        self.geometry.features.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    fn extents(&self) -> bool {
        self.geometry.features.has_incompat(incompat::EXTENTS)
    }

    fn inode_format(&self) -> InodeFormat {
        InodeFormat {
            features: self.geometry.features,
            inode_size: self.geometry.inode_size,
            block_size: self.geometry.block_size,
            checksum_seed: self.identity.checksum_seed,
        }
    }

    fn ino(&self, object: ObjectId) -> Ino {
        self.plan.inodes[object.index()]
    }

    fn node_ino(&self, node: NodeId) -> Ino {
        self.plan.inodes[node.index()]
    }

    // ---- contents -------------------------------------------------------

    fn write_data(&self) -> Result<(), FsError> {
        Forward {
            block_size: self.geometry.block_size,
            device: self.device,
            progress: self.progress,
            contents: self,
        }
        .run(forward::pieces(self.plan))
    }

    fn fill_file(&self, id: NodeId, offset: u64, out: &mut [u8]) -> Result<(), FsError> {
        let size = self.demand.node(id).size;
        let len = (size - offset.min(size)).min(out.len() as u64) as usize;
        let mut content = self.demand.source.open(id)?;
        content.read_at(offset, &mut out[..len])?;
        // Behind the end of a sealed file there are zeros, and then its Merkle tree.
        let seal = size.next_multiple_of(SEAL_ALIGN).max(offset) - offset;
        if self.demand.is_sealed(id) && seal < out.len() as u64 {
            let (zeros, seal) = out[len..].split_at_mut(seal as usize - len);
            zeros.fill(0);
            content.read_at(offset + (len + zeros.len()) as u64, seal)?;
            return content.verify();
        }
        // Each part of a file must be of the version that was walked, so that all are of one.
        content.verify()?;
        out[len..].fill(0);
        Ok(())
    }

    fn lost_and_found(&self) -> Vec<u8> {
        let object = self.demand.lost_and_found_object();
        let blocks: u64 = self.plan.data(object).iter().map(|placed| placed.extent.len).sum();
        let ino = self.ino(object);
        let seed = self.inode_format().seed(ino);
        let format = self.demand.lost_and_found_format();
        format.encode_empty(ino, Ino::new(special::ROOT), blocks, seed)
    }

    fn directory(&self, id: NodeId) -> Result<Vec<u8>, FsError> {
        let listing = self.demand.listing(id);
        let tree = self.demand.tree;
        let mut records: Vec<dirblocks::DirRecord<'_>> = listing
            .iter()
            .map(|entry| dirblocks::DirRecord {
                name: tree.name(entry),
                ino: self.node_ino(entry.node),
                kind: tree.node(entry.node).kind,
            })
            .collect();
        if self.demand.adds_lost_and_found(id) {
            let record = dirblocks::DirRecord {
                name: demand::LOST_AND_FOUND,
                ino: self.ino(self.demand.lost_and_found_object()),
                kind: FileKind::Directory,
            };
            records.insert(self.demand.lost_and_found_place(listing), record);
        }
        let ino = self.node_ino(id);
        let parent = self.node_ino(tree.parent(id));
        let seed = self.inode_format().seed(ino);
        let format = self.demand.dir_format(id);
        if let Some(places) = self.demand.places(id) {
            return Ok(format.encode_placed(ino, parent, &records, places, seed));
        }
        let packing = self.demand.packing(id)?;
        Ok(format.encode(ino, parent, &records, &packing, seed))
    }

    // ---- journal, resize inode, orphan file ------------------------------

    fn write_fixed(&self) -> Result<(), FsError> {
        let bs = self.geometry.block_size;
        if let Some(first) = self.fixed.journal.data.first() {
            let bytes = fixed::journal_superblock(bs, self.geometry.journal_blocks);
            self.put(first.extent.start, &bytes)?;
        }
        let seed = self.checksums().then(|| self.inode_format().seed(self.orphan_ino));
        for placed in &self.fixed.orphans.data {
            for at in 0..placed.extent.len {
                let block = placed.extent.start + at;
                self.put(block, &fixed::orphan_block(bs, block, seed))?;
            }
        }
        if let Some(double) = self.fixed.resize {
            for (block, bytes) in fixed::resize_map(self.geometry).blocks(double) {
                self.put(block, &bytes)?;
            }
        }
        Ok(())
    }

    // ---- inodes ----------------------------------------------------------

    /// All inodes in use except the nameless reserved ones, sorted.
    fn owners(&self) -> Vec<(u32, Owner)> {
        let mut owners: Vec<(u32, Owner)> = (0..self.demand.objects())
            .map(|at| ObjectId::new(at as u32))
            .filter(|&object| !self.demand.is_pinned(object))
            .map(|object| (self.ino(object).get(), Owner::Object(object)))
            .collect();
        if self.fixed.resize.is_some() {
            owners.push((special::RESIZE, Owner::Resize));
        }
        if self.geometry.features.has_compat(compat::HAS_JOURNAL) {
            owners.push((special::JOURNAL, Owner::Journal));
        }
        if self.geometry.features.has_compat(compat::ORPHAN_FILE) {
            owners.push((self.orphan_ino.get(), Owner::Orphans));
        }
        owners.sort_unstable_by_key(|&(ino, _)| ino);
        owners
    }

    /// Writes the used part of a group's inode table.
    fn write_table(&self, group: u32, owners: &[(u32, Owner)]) -> Result<(), FsError> {
        let Some(&(last, _)) = owners.last() else { return Ok(()) };
        let size = self.geometry.inode_size as usize;
        let first = group * self.geometry.inodes_per_group + 1;
        let used = (last - first + 1) as usize * size;
        let mut table = vec![0; used.next_multiple_of(self.geometry.block_size as usize)];
        for &(ino, owner) in owners {
            let at = (ino - first) as usize * size;
            self.encode_inode(Ino::new(ino), owner, &mut table[at..at + size])?;
        }
        self.put(self.geometry.inode_table(group).start, &table)
    }

    // ---- groups ----------------------------------------------------------

    fn write_groups(&self) -> Result<(), FsError> {
        let owners = self.owners();
        let uses = self.group_uses(&owners);
        let mut starts = Vec::with_capacity(uses.len() + 1);
        for group in 0..=self.geometry.groups {
            let first = u64::from(group) * u64::from(self.geometry.inodes_per_group) + 1;
            starts.push(owners.partition_point(|&(ino, _)| u64::from(ino) < first));
        }
        (0..self.geometry.groups).into_par_iter().try_for_each(|group| {
            let at = group as usize;
            self.write_table(group, &owners[starts[at]..starts[at + 1]])
        })?;
        let mut descriptors = Vec::new();
        let (mut free_blocks, mut used_inodes) = (0, 0u64);
        for (group, content) in (0u32..).zip(&uses) {
            let record = group_record(self.geometry, self.identity, group, content);
            for (block, bitmap) in [
                (self.geometry.block_bitmap(group), &record.block_bitmap),
                (self.geometry.inode_bitmap(group), &record.inode_bitmap),
            ] {
                if let Some(bytes) = bitmap {
                    self.put(BlockNo::new(block), bytes)?;
                }
            }
            let size = self.geometry.desc_size as usize;
            descriptors.extend_from_slice(&record.desc.as_bytes()[..size]);
            free_blocks += record.free_blocks;
            used_inodes += content.inodes.len() as u64;
        }
        let free_inodes = self.geometry.inodes() - used_inodes;
        self.write_superblocks(descriptors, free_blocks, free_inodes)
    }

    /// The use of each group by files and metadata.
    fn group_uses(&self, owners: &[(u32, Owner)]) -> Vec<GroupUse> {
        let geometry = self.geometry;
        let mut uses: Vec<GroupUse> = (0..geometry.groups).map(|_| GroupUse::default()).collect();
        let used: Vec<Extent> = geometry
            .fixed_runs()
            .chain(self.fixed.blocks())
            .chain(self.plan.data.iter().map(|placed| placed.extent))
            .chain(self.plan.overhead.iter().copied())
            .collect();
        let blocks = |runs: &[Extent]| runs.iter().map(|run| run.len).sum::<u64>();
        let all = blocks(&used);
        let used = union(used);
        debug_assert_eq!(blocks(&used), all, "no block has two owners");
        for run in used {
            let (mut at, end) = (run.start.get(), run.end().get());
            while at < end {
                let group = ((at - geometry.first_block) / geometry.blocks_per_group) as u32;
                let stop = end.min(geometry.group_start(group) + geometry.blocks_per_group);
                uses[group as usize].used.push(Extent::new(BlockNo::new(at), stop - at));
                at = stop;
            }
        }
        uses[0].inodes.extend(0..special::FIRST_ORDINARY - 1);
        for &(ino, owner) in owners {
            let group = ((ino - 1) / geometry.inodes_per_group) as usize;
            let at = (ino - 1) % geometry.inodes_per_group;
            if ino >= special::FIRST_ORDINARY {
                uses[group].inodes.push(at);
            }
            if let Owner::Object(object) = owner {
                uses[group].directories += u32::from(self.demand.is_directory(object));
            }
        }
        uses
    }

    /// The counts of a volume of this shape without files. No part of a group is marked as unused.
    fn empty_copy(&self, sb: &mut Superblock, descriptors: &mut [u8]) {
        let geometry = self.geometry;
        let (mut free_blocks, mut free_inodes) = (0, geometry.inodes());
        let size = geometry.desc_size as usize;
        let mut fixed = geometry.fixed_runs().peekable();
        for (group, own) in (0..geometry.groups).zip(descriptors.chunks_mut(size)) {
            let end = BlockNo::new(geometry.group_start(group) + geometry.group_blocks(group));
            let mut content = GroupUse::default();
            while let Some(run) = fixed.next_if(|run| run.start < end) {
                content.used.push(run);
            }
            if group == 0 {
                content.inodes.extend(0..special::FIRST_ORDINARY - 1);
            }
            free_inodes -= content.inodes.len() as u64;
            let (desc, free) = plain_descriptor(geometry, self.identity, group, &content);
            own.copy_from_slice(&desc.as_bytes()[..size]);
            free_blocks += free;
        }
        sb.s_free_blocks_count_lo = (free_blocks as u32).into();
        sb.s_free_blocks_count_hi = ((free_blocks >> 32) as u32).into();
        sb.s_free_inodes_count = (free_inodes as u32).into();
    }

    fn write_superblocks(
        &self,
        mut descriptors: Vec<u8>,
        free_blocks: u64,
        free_inodes: u64,
    ) -> Result<(), FsError> {
        let bs = self.geometry.block_size as usize;
        descriptors.resize(self.geometry.desc_blocks as usize * bs, 0);
        let journal = match self.fixed.journal.data.first() {
            Some(_) => {
                let mut blocks = self.fixed.journal.map.iter().copied();
                let ino = Ino::new(special::JOURNAL);
                let (i_block, _) =
                    self.write_map(ino, &self.fixed.journal.pieces(), &mut blocks)?;
                Some((i_block, self.fixed.journal.data_blocks() * bs as u64))
            }
            None => None,
        };
        let is_large = |node: &seekless_fs::tree::Node| node.size > i32::MAX as u64;
        let totals = Totals {
            free_blocks,
            free_inodes,
            journal,
            orphan_ino: self.orphan_ino.get(),
            large_file: self.demand.tree.nodes().iter().any(is_large),
        };
        let primary = superblock(self.geometry, self.identity, &totals);
        // Copies first: the primary superblock makes the image one.
        for group in (0..self.geometry.groups).rev().filter(|&g| self.geometry.has_super(g)) {
            let (mut sb, mut descriptors) = (primary.clone(), Cow::Borrowed(&descriptors));
            match self.copies {
                CopyCounts::Of(base) if group > 0 => {
                    base.copy(group, self.identity, &mut sb, descriptors.to_mut());
                }
                CopyCounts::Empty if group > 0 => self.empty_copy(&mut sb, descriptors.to_mut()),
                _ => {}
            }
            seal_superblock(&mut sb, group);
            let start = self.geometry.group_start(group);
            // The primary one stands at byte 1024 for any block size.
            let inset = if group == 0 && bs > 1024 { 1024 } else { 0 };
            let mut block = vec![0; bs];
            block[inset..inset + 1024].copy_from_slice(sb.as_bytes());
            self.put(BlockNo::new(start + 1), &descriptors)?;
            self.put(BlockNo::new(start), &block)?;
        }
        Ok(())
    }
}

impl Contents for TreeWriter<'_> {
    fn is_whole(&self, object: ObjectId) -> bool {
        self.demand.is_directory(object)
    }

    fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
        match self.demand.object(object) {
            Object::Node(id) if self.demand.node(id).kind == FileKind::Regular => {
                self.demand.source.open(id).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let offset = lbn * u64::from(self.geometry.block_size);
        let mut copy = |bytes: &[u8]| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
            out[len..].fill(0);
        };
        match self.demand.object(object) {
            Object::LostAndFound => copy(&self.lost_and_found()),
            Object::Value(at) => copy(&self.demand.values[at].bytes),
            Object::Node(id) => {
                let node = self.demand.node(id);
                match node.kind {
                    FileKind::Directory => copy(&self.directory(id)?),
                    FileKind::Symlink => copy(self.demand.tree.target(node)),
                    _ => self.fill_file(id, offset, out)?,
                }
            }
        }
        Ok(())
    }
}
