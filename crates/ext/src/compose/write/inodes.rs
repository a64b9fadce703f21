//! Writes inodes: records, their maps, and blocks of attributes.

use super::{Owner, TreeWriter};
use crate::checksum::crc32c;
use crate::compose::attributes::{Encoded, ValueInode};
use crate::compose::demand::{Object, in_file};
use crate::compose::fixed::{self, FixedFile};
use crate::compose::inodes::{InodeRecord, MAX_LINKS, inline_data, kept_flags};
use crate::encode::device::device_block;
use crate::encode::mapping::{EncodedMap, Piece, block_map, extent_tree};
use crate::ondisk::{IBlock, XattrHeader, flags, ro_compat};
use seekless_fs::plan::ObjectId;
use seekless_fs::tree::{NodeId, OtherTimes, Payload};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Ino};
use std::mem::offset_of;

impl TreeWriter<'_> {
    pub(super) fn encode_inode(
        &self,
        ino: Ino,
        owner: Owner,
        out: &mut [u8],
    ) -> Result<(), FsError> {
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

    /// A record with the time of creation of the volume, and nothing else.
    fn plain_record(&self, kind: FileKind, perm: u16) -> InodeRecord<'static> {
        let made = self.identity.made;
        InodeRecord {
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
    pub(super) fn write_map(
        &self,
        ino: Ino,
        pieces: &[Piece],
        blocks: &mut dyn Iterator<Item = BlockNo>,
    ) -> Result<(IBlock, u64), FsError> {
        let bs = self.geometry.block_size;
        let EncodedMap { i_block, blocks } = if self.extents() {
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
        let root_owner = self.identity.root_owner.filter(|_| id == NodeId::ROOT);
        let (uid, gid) = root_owner.unwrap_or((node.uid, node.gid));
        let root_perms = self.identity.root_perms.filter(|_| id == NodeId::ROOT);
        let perm = root_perms.unwrap_or(node.perm);
        let mut record = InodeRecord {
            kind: node.kind,
            perm,
            uid,
            gid,
            size: node.size,
            links: self.links(id)?,
            mtime: node.mtime,
            times: tree.other_times(node),
            in_inode: &in_inode,
            ..self.plain_record(node.kind, perm)
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
        // As in the kernel, every inode that refers to a value is charged for it.
        let charged = |value: &ValueInode| value.value.len().div_ceil(bs) as u64;
        record.blocks += xattrs.values.iter().map(charged).sum::<u64>();
        let inline;
        match (node.kind, node.payload) {
            (_, Payload::Device(number)) => record.i_block = device_block(number)?,
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
        record.flags |= node.flags & kept_flags(self.geometry.features);
        if node.kind == FileKind::Directory {
            let (blocks, is_indexed) = self.demand.directory_blocks(id)?;
            record.size = blocks * u64::from(self.geometry.block_size);
            if is_indexed {
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
        let record = InodeRecord {
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
        let mut record = InodeRecord {
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
        let record = InodeRecord {
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
        let mut record = InodeRecord {
            size: (12 + slots + slots * slots) * u64::from(self.geometry.block_size),
            blocks: fixed::resize_map(self.geometry).count(),
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
}
