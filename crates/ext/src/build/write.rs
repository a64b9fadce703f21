//! The forward pass: contents in the order in which they lie on the disk, read
//! on several threads, then inode tables, bitmaps and descriptors.

use super::attributes::{Encoded, ValueInode};
use super::demand::{Object, TreeDemand, in_file};
use super::fixed::{self, Fixed, FixedFile};
use super::geometry::Geometry;
use super::inodes::{InodeFormat, MAX_LINKS, Record, device_block, inline_data};
use super::summary::{GroupUse, Identity, Totals, group_record, superblock};
use crate::checksum::crc32c;
use crate::encode::dirblocks;
use crate::encode::mapping::{Map, Piece, block_map, extent_tree};
use crate::encode::sums::seal_superblock;
use crate::ondisk::{IBlock, XattrHeader, compat, flags, incompat, ro_compat, special};
use rayon::prelude::*;
use seekless_device::BlockDevice;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::plan::{Demand, ObjectId, Plan};
use seekless_fs::source::SEAL_ALIGN;
use seekless_fs::tree::{NodeId, OtherTimes, Payload};
use seekless_fs::{FileKind, FsError, inode_flag};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Who an inode belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Object(ObjectId),
    Resize,
    Journal,
    Orphans,
}

/// Everything decided; only the writing is left.
pub(crate) struct Writer<'a> {
    pub(crate) demand: &'a TreeDemand<'a>,
    pub(crate) geometry: &'a Geometry,
    pub(crate) identity: &'a Identity,
    pub(crate) fixed: &'a Fixed,
    pub(crate) orphan_ino: Ino,
    pub(crate) plan: &'a Plan,
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl Writer<'_> {
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
        // Behind the end of a sealed file there is more, and zeros up to it.
        let seal = size.next_multiple_of(SEAL_ALIGN).max(offset) - offset;
        if self.demand.is_sealed(id) && seal < out.len() as u64 {
            let (zeros, seal) = out[len..].split_at_mut(seal as usize - len);
            zeros.fill(0);
            content.read_at(offset + (len + zeros.len()) as u64, seal)?;
            return content.verify();
        }
        // Each part of a file must be of the version that was walked: then all
        // are of one.
        content.verify()?;
        out[len..].fill(0);
        Ok(())
    }

    fn lost_and_found(&self) -> Vec<u8> {
        let object = self.demand.lost_and_found_object();
        let blocks: u64 = self.plan.data(object).iter().map(|placed| placed.extent.len).sum();
        let ino = self.ino(object);
        let seed = self.inode_format().seed(ino);
        self.demand.dir_format.encode_empty(ino, Ino::new(special::ROOT), blocks, seed)
    }

    fn directory(&self, id: NodeId) -> Result<Vec<u8>, FsError> {
        let listing = self.demand.listing(id);
        let tree = self.demand.tree;
        let mut records: Vec<dirblocks::Record<'_>> = listing
            .iter()
            .map(|entry| dirblocks::Record {
                name: tree.name(entry),
                ino: self.node_ino(entry.node),
                kind: tree.node(entry.node).kind,
            })
            .collect();
        if self.demand.adds_lost_and_found(id) {
            let record = dirblocks::Record {
                name: b"lost+found",
                ino: self.ino(self.demand.lost_and_found_object()),
                kind: FileKind::Directory,
            };
            records.insert(self.demand.lost_and_found_place(listing), record);
        }
        let packing = self.demand.packing(id)?;
        let ino = self.node_ino(id);
        let parent = self.node_ino(tree.parent(id));
        let seed = self.inode_format().seed(ino);
        Ok(self.demand.dir_format.encode(ino, parent, &records, &packing, seed))
    }

    // ---- journal and its like -------------------------------------------

    fn write_fixed(&self) -> Result<(), FsError> {
        let bs = self.geometry.block_size;
        if let Some(first) = self.fixed.journal.data.first() {
            let bytes = fixed::journal_superblock(bs, self.geometry.journal_blocks);
            self.put(first.extent.start, &bytes)?;
        }
        let seed = self.checksums().then(|| self.inode_format().seed(self.orphan_ino));
        for placed in &self.fixed.orphans.data {
            for at in 0..placed.extent.len {
                let block = placed.extent.start.saturating_add(at);
                self.put(block, &fixed::orphan_block(bs, block, seed))?;
            }
        }
        if let Some(double) = self.fixed.resize {
            for (block, bytes) in fixed::resize_map(self.geometry, double) {
                self.put(block, &bytes)?;
            }
        }
        Ok(())
    }

    // ---- inodes ----------------------------------------------------------

    /// All inodes in use but for the nameless reserved ones, sorted.
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

    fn encode_inode(&self, ino: Ino, owner: Owner, out: &mut [u8]) -> Result<(), FsError> {
        match owner {
            Owner::Object(object) => match self.demand.object(object) {
                Object::Node(id) => self.encode_node(ino, id, out),
                Object::LostAndFound => self.encode_lost_and_found(ino, object, out),
                Object::Value(at) => self.encode_value(ino, object, at, out),
            },
            Owner::Journal => self.encode_fixed(ino, &self.fixed.journal, out),
            Owner::Orphans => self.encode_fixed(ino, &self.fixed.orphans, out),
            Owner::Resize => {
                self.encode_resize(ino, out);
                Ok(())
            }
        }
    }

    /// A record with the times of the volume's making, and nothing else.
    fn plain_record(&self, kind: FileKind, perm: u16) -> Record<'static> {
        let made = self.identity.made;
        Record {
            kind,
            perm,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            mtime: made,
            times: OtherTimes { atime: made, ctime: made, crtime: made },
            blocks: 0,
            flags: 0,
            version: 0,
            i_block: IBlock::default(),
            file_acl: None,
            in_inode: &[],
        }
    }

    /// Builds a map and writes its blocks; returns the root and their count.
    fn write_map(
        &self,
        ino: Ino,
        pieces: &[Piece],
        blocks: &mut dyn Iterator<Item = BlockNo>,
    ) -> Result<(IBlock, u64), FsError> {
        let bs = self.geometry.block_size;
        let Map { i_block, blocks } = if self.extents() {
            let seed = self.checksums().then(|| self.inode_format().seed(ino));
            extent_tree(pieces, bs, seed, blocks)?
        } else {
            block_map(pieces, bs, blocks)?
        };
        for (block, bytes) in &blocks {
            self.put(*block, bytes)?;
        }
        Ok((i_block, blocks.len() as u64))
    }

    fn map_flag(&self) -> u32 {
        if self.extents() { flags::EXTENTS } else { 0 }
    }

    /// The map of an object's planned data.
    fn object_map(
        &self,
        ino: Ino,
        object: ObjectId,
        skip: usize,
    ) -> Result<(IBlock, u64), FsError> {
        let pieces: Vec<Piece> = self
            .plan
            .data(object)
            .iter()
            .map(|&placed| Piece { placed, unwritten: false })
            .collect();
        let data: u64 = pieces.iter().map(|piece| piece.placed.extent.len).sum();
        let mut blocks = self.plan.overhead(object).skip(skip);
        let (i_block, map) = self.write_map(ino, &pieces, &mut blocks)?;
        Ok((i_block, data + map))
    }

    fn encode_node(&self, ino: Ino, id: NodeId, out: &mut [u8]) -> Result<(), FsError> {
        let tree = self.demand.tree;
        let node = tree.node(id);
        let xattrs = &self.demand.xattrs[tree.xattr_set(node)];
        let object = ObjectId::new(id.index() as u32);
        let bs = self.geometry.block_size as usize;
        let in_inode = self.with_value_inodes(&xattrs.in_inode, xattrs, false);
        let mut record = Record {
            kind: node.kind,
            perm: node.perm,
            uid: node.uid,
            gid: node.gid,
            size: node.size,
            links: self.links(id)?,
            mtime: node.mtime,
            times: tree.other_times(node),
            in_inode: &in_inode,
            ..self.plain_record(node.kind, node.perm)
        };
        let owner = self.demand.xattr_owner(id);
        let owns = owner == Some(id);
        if let Some(owner) = owner {
            let owner = ObjectId::new(owner.index() as u32);
            record.file_acl = self.plan.overhead(owner).next();
            record.blocks += 1;
        }
        if owns {
            self.write_xattr_block(id, xattrs, record.file_acl)?;
        }
        // As the kernel does it, whoever refers to a value is charged for it.
        let charged = |value: &ValueInode| value.value.len().div_ceil(bs) as u64;
        record.blocks += xattrs.values.iter().map(charged).sum::<u64>();
        let inline;
        match (node.kind, node.payload) {
            (_, Payload::Device(number)) => record.i_block = device_block(number),
            (FileKind::Symlink, _) if node.size < 60 => {
                let target = tree.target(node);
                record.i_block.0[..target.len()].copy_from_slice(target);
            }
            (FileKind::Regular | FileKind::Symlink, _) if self.demand.inline_len(id) > 0 => {
                inline = self.inline_contents(id)?;
                record.i_block = inline.0;
                record.in_inode = &inline.1;
                record.flags |= flags::INLINE_DATA;
            }
            (FileKind::Regular | FileKind::Symlink | FileKind::Directory, _) => {
                let (i_block, blocks) = self.object_map(ino, object, usize::from(owns))?;
                record.i_block = i_block;
                record.blocks += blocks;
                record.flags |= self.map_flag();
            }
            _ => {}
        }
        record.flags |= node.flags & !inode_flag::VERITY;
        if self.demand.is_sealed(id) {
            record.flags |= flags::VERITY;
        }
        if node.kind == FileKind::Directory {
            let packing = self.demand.packing(id)?;
            record.size = packing.blocks() * u64::from(self.geometry.block_size);
            if packing.index_blocks > 0 {
                record.flags |= flags::INDEX;
            }
        }
        self.inode_format().encode(ino, &record, out);
        Ok(())
    }

    fn inline_contents(&self, id: NodeId) -> Result<(IBlock, Vec<u8>), FsError> {
        let node = self.demand.node(id);
        let mut data = vec![0; node.size as usize];
        if node.kind == FileKind::Symlink {
            data.copy_from_slice(self.demand.tree.target(node));
        } else {
            let mut content = self.demand.source.open(id)?;
            content.read_at(0, &mut data)?;
            content.verify()?;
        }
        Ok(inline_data(&data, self.geometry.inode_size))
    }

    fn links(&self, id: NodeId) -> Result<u32, FsError> {
        let tree = self.demand.tree;
        let node = tree.node(id);
        if node.kind != FileKind::Directory {
            return if node.names > MAX_LINKS {
                Err(in_file(
                    FsError::NoSpace(format!("{} hard links, limit {MAX_LINKS}", node.names)),
                    &tree.shown_path(id),
                ))
            } else {
                Ok(node.names)
            };
        }
        let is_dir =
            |entry: &&seekless_fs::tree::Entry| tree.node(entry.node).kind == FileKind::Directory;
        let subdirectories = tree.children(id).iter().filter(is_dir).count() as u32
            + u32::from(self.demand.adds_lost_and_found(id));
        let links = subdirectories + 2;
        if links <= MAX_LINKS {
            Ok(links)
        } else if self.geometry.features.has_ro_compat(ro_compat::DIR_NLINK) {
            Ok(1)
        } else {
            Err(in_file(
                FsError::NoSpace(format!(
                    "{subdirectories} subdirectories (the dir_nlink feature allows more)"
                )),
                &tree.shown_path(id),
            ))
        }
    }

    fn encode_lost_and_found(
        &self,
        ino: Ino,
        object: ObjectId,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let (i_block, blocks) = self.object_map(ino, object, 0)?;
        let data: u64 = self.plan.data(object).iter().map(|placed| placed.extent.len).sum();
        let record = Record {
            size: data * u64::from(self.geometry.block_size),
            links: 2,
            blocks,
            flags: self.map_flag(),
            i_block,
            ..self.plain_record(FileKind::Directory, 0o700)
        };
        self.inode_format().encode(ino, &record, out);
        Ok(())
    }

    /// The inode of a large attribute's value: its hash stands in `i_atime`,
    /// the number of references in `i_ctime` and `i_version`.
    fn encode_value(
        &self,
        ino: Ino,
        object: ObjectId,
        at: usize,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let value = &self.demand.values[at];
        let (i_block, blocks) = self.object_map(ino, object, 0)?;
        let mut record = Record {
            size: value.bytes.len() as u64,
            blocks,
            flags: self.map_flag() | flags::EA_INODE,
            version: u64::from(value.references as u32),
            i_block,
            ..self.plain_record(FileKind::Regular, 0o600)
        };
        let hash = crc32c(self.identity.checksum_seed, &value.bytes);
        record.times.atime.secs = i64::from(hash.cast_signed());
        record.times.atime.nanos = 0;
        record.times.ctime.secs = (value.references >> 32) as i64;
        record.times.ctime.nanos = 0;
        self.inode_format().encode(ino, &record, out);
        Ok(())
    }

    fn encode_fixed(&self, ino: Ino, file: &FixedFile, out: &mut [u8]) -> Result<(), FsError> {
        let mut blocks = file.map.iter().copied();
        let (i_block, map) = self.write_map(ino, &file.pieces(), &mut blocks)?;
        let record = Record {
            size: file.data_blocks() * u64::from(self.geometry.block_size),
            blocks: file.data_blocks() + map,
            flags: self.map_flag(),
            i_block,
            ..self.plain_record(FileKind::Regular, 0o600)
        };
        self.inode_format().encode(ino, &record, out);
        Ok(())
    }

    fn encode_resize(&self, ino: Ino, out: &mut [u8]) {
        let slots = u64::from(self.geometry.block_size / 4);
        let mut record = Record {
            size: (12 + slots + slots * slots) * u64::from(self.geometry.block_size),
            blocks: fixed::resize_blocks(self.geometry),
            ..self.plain_record(FileKind::Regular, 0o600)
        };
        let double = self.fixed.resize.map_or(0, BlockNo::get) as u32;
        record.i_block.0[13 * 4..14 * 4].copy_from_slice(&double.to_le_bytes());
        self.inode_format().encode(ino, &record, out);
    }

    // ---- attributes ------------------------------------------------------

    /// An area of attributes with the numbers of its value inodes filled in.
    fn with_value_inodes(&self, area: &[u8], xattrs: &Encoded, in_block: bool) -> Vec<u8> {
        let mut area = area.to_vec();
        for value in xattrs.values.iter().filter(|value| value.in_block == in_block) {
            let ino = self.demand.value_object(&value.value).map_or(0, |o| self.ino(o).get());
            area[value.slot..value.slot + 4].copy_from_slice(&ino.to_le_bytes());
        }
        area
    }

    fn write_xattr_block(
        &self,
        owner: NodeId,
        xattrs: &Encoded,
        block: Option<BlockNo>,
    ) -> Result<(), FsError> {
        let (Some(block), Some(bytes)) = (block, &xattrs.block) else { return Ok(()) };
        let mut bytes = self.with_value_inodes(bytes, xattrs, true);
        let count = offset_of!(XattrHeader, h_refcount);
        bytes[count..count + 4].copy_from_slice(&self.demand.xattr_sharers(owner).to_le_bytes());
        if self.checksums() {
            let seed = crc32c(self.identity.checksum_seed, &block.get().to_le_bytes());
            let sum = crc32c(seed, &bytes);
            let at = offset_of!(XattrHeader, h_checksum);
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
        self.put(block, &bytes)
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

    /// Who uses what, group by group.
    fn group_uses(&self, owners: &[(u32, Owner)]) -> Vec<GroupUse> {
        let geometry = self.geometry;
        let mut uses: Vec<GroupUse> = (0..geometry.groups).map(|_| GroupUse::default()).collect();
        let fixed = (0..geometry.groups).map(|group| {
            Extent::new(BlockNo::new(geometry.group_start(group)), geometry.group_overhead(group))
        });
        let mut used: Vec<Extent> = fixed
            .chain(self.fixed.blocks())
            .chain(self.plan.data.iter().map(|placed| placed.extent))
            .chain(self.plan.overhead.iter().copied())
            .collect();
        used.sort_unstable();
        used.dedup_by(|later, earlier| {
            let touch = earlier.end() == later.start;
            if touch {
                earlier.len += later.len;
            }
            touch
        });
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
        let mut sb = superblock(self.geometry, self.identity, &totals);
        // Copies first: the primary superblock makes the image one.
        for group in (0..self.geometry.groups).rev().filter(|&g| self.geometry.has_super(g)) {
            seal_superblock(&mut sb, group);
            let start = self.geometry.group_start(group);
            // The primary one stands at byte 1024 whatever the block size.
            let inset = if group == 0 && bs > 1024 { 1024 } else { 0 };
            let mut block = vec![0; bs];
            block[inset..inset + 1024].copy_from_slice(sb.as_bytes());
            self.put(BlockNo::new(start + 1), &descriptors)?;
            self.put(BlockNo::new(start), &block)?;
        }
        Ok(())
    }
}

impl Contents for Writer<'_> {
    fn is_whole(&self, object: ObjectId) -> bool {
        self.demand.is_directory(object)
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
