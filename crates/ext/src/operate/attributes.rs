//! Extended attributes: in the inode where it has room, the rest in a block, which files with equal
//! ones may share. They are rewritten with every change.

use super::inline::is_inline;
use super::layout::Layout;
use super::map::{Core, Node};
use super::maps::FileMaps;
use super::primary::PrimarySuperblock;
use super::search::full;
use super::sums::attributes_sum;
use crate::compose::attributes::{INLINE, Room, encode};
use crate::inode::Inode;
use crate::ondisk::{INODE_CORE_SIZE, XATTR_MAGIC, XattrHeader};
use crate::superblock::verify;
use crate::xattr::{all_shown, inline_value};
use seekless_cache::{ChangeId, Kind, Piece, Role};
use seekless_fs::field::invalid;
use seekless_fs::field::parse;
use seekless_fs::operate::XattrMode;
use seekless_fs::{Corruption, FsError, Location, Xattr};
use seekless_live::{Cut, Part, Table, change_list};
use seekless_units::{BlockNo, Extent, Ino};
use std::mem::offset_of;

/// The prefix of names whose values are not plain bytes, and the names among these that can be set.
const SYSTEM: &[u8] = b"system.";
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The extended attributes of a file.
pub(super) struct Attributes<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    ino: Ino,
}

impl<'a> Attributes<'a> {
    /// The attributes of an inode that is in memory.
    pub(super) fn of(maps: &'a mut FileMaps, core: &'a mut Core, ino: Ino) -> Self {
        Self { maps, core, ino }
    }

    fn node(&mut self) -> Result<&mut Node, FsError> {
        self.core.node(self.ino)
    }

    /// The inode as it is in the cache.
    fn inode(&mut self) -> Result<Inode, FsError> {
        self.maps.tables().read(self.core, self.ino)
    }

    /// The bytes of a block of attributes, checked.
    fn attribute_block(&mut self, at: BlockNo) -> Result<Vec<u8>, FsError> {
        let place = Location::of("attribute block").in_inode(self.ino).in_block(at);
        self.maps.layout().check_data(Extent::new(at, 1), place)?;
        let bytes =
            self.core.cache.blocks_mut().read(at, 0, self.maps.layout().block_len())?.to_vec();
        let header: Option<XattrHeader> = parse(&bytes, 0);
        let magic = header.map_or(0, |header| header.h_magic.get());
        if magic != XATTR_MAGIC {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
        }
        if self.maps.layout().has_sums() {
            let stored = header.map_or(0, |header| header.h_checksum.get());
            verify(
                stored,
                attributes_sum(self.maps.layout().sb().checksum_seed, at, &bytes),
                place,
            )?;
        }
        Ok(bytes)
    }

    /// All of them, in the order of their names.
    pub(super) fn read(&mut self) -> Result<Vec<Xattr>, FsError> {
        let block = match self.node()?.map.attributes {
            Some(at) => Some(self.attribute_block(at)?),
            None => None,
        };
        let mut all = all_shown(&self.inode()?, block.as_deref())?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Sets or, without a value, removes one.
    pub(super) fn change(
        &mut self,
        superblock: &mut PrimarySuperblock,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if name.starts_with(SYSTEM) && !ACLS.contains(&name) {
            let name = String::from_utf8_lossy(name);
            return Err(FsError::Unsupported(format!("the extended attribute {name}")));
        }
        let mut all = self.read()?;
        change_list(&mut all, name, value, mode)?;
        // Inline data stay in the inode unchanged.
        if let Some(value) = inline_value(&self.inode()?)?
            && is_inline(self.core, self.ino)?
        {
            all.push(Xattr { name: INLINE.to_vec(), value: value.to_vec() });
        }
        let room = Room {
            in_inode: self.inner_room()?,
            block: self.maps.layout().block_len(),
            blocks: true,
            value_inodes: false,
            value_inodes_in_block: false,
            checksum_seed: self.maps.layout().sb().checksum_seed,
        };
        let encoded = encode(&all, room)?;
        debug_assert!(encoded.values.is_empty(), "no value has an inode of its own");
        debug_assert!(encoded.in_inode.len() <= room.in_inode, "the inode has room for its part");
        debug_assert!(
            encoded.block.as_ref().is_none_or(|block| block.len() == room.block),
            "the rest is a whole block"
        );
        superblock.allow_attributes(self.core)?;
        let mut inner = encoded.in_inode;
        inner.resize(room.in_inode, 0);
        self.store(inner.into(), encoded.block.as_deref())
    }

    /// Size of the room for attributes in an inode.
    fn inner_room(&mut self) -> Result<usize, FsError> {
        if !self.maps.tables().has_birth() {
            return Ok(0);
        }
        Ok(self.inode()?.tail().len())
    }

    /// Writes attributes: a block for them is always a new one, and the reference to the old one is
    /// dropped once the inode leads to the new one.
    fn store(&mut self, inner: Box<[u8]>, block: Option<&[u8]>) -> Result<(), FsError> {
        debug_assert!(self.maps.tables().inode_len() >= INODE_CORE_SIZE);
        let mut after: Vec<ChangeId> = Vec::new();
        let mut new = None;
        if let Some(bytes) = block {
            let (at, bitmap) =
                self.maps.space().take_block(self.core, self.ino, 0, None).map_err(|error| {
                    match error {
                        FsError::NoSpace(_) => full("blocks for attributes"),
                        other => other,
                    }
                })?;
            let layout = self.maps.layout();
            let ((), data) = self.core.cache.changes().fill(
                at,
                layout.block_len(),
                Role::AttributesInit,
                |to| {
                    to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
                    seal(layout, at, to);
                    Ok(())
                },
            )?;
            after.extend([bitmap, data]);
            new = Some(at);
        }
        let old = self.node()?.map.attributes;
        debug_assert!(new.is_none() || new != old, "changed attributes get a new block");
        debug_assert!(self.node()?.map.inner.is_none(), "one change is made at a time");
        let sectors = u64::from(self.maps.layout().sb().block_size / 512);
        let node = self.node()?;
        node.map.attributes = new;
        node.map.inner = Some(inner);
        node.sectors = match (old, new) {
            (None, Some(_)) => node.sectors + sectors,
            (Some(_), None) => node.sectors.saturating_sub(sectors),
            _ => node.sectors,
        };
        self.maps.tables().put_rest(self.core, self.ino)?;
        self.node()?.map.inner = None;
        let changed = self
            .maps
            .tables()
            .put_part(self.core, self.ino, Part::Map, Role::PointerMove, &after, None)?
            .id;
        let Some(old) = old else { return Ok(()) };
        if self.leave_block(old, changed)? {
            self.core.defer_free(&[changed], Kind::FreeFragments, [Extent::new(old, 1)]);
        }
        Ok(())
    }

    /// Drops a file's reference to a block of attributes. True if it was the last; else the block's
    /// count falls by one, once `left` is on the disk.
    fn leave_block(&mut self, at: BlockNo, left: ChangeId) -> Result<bool, FsError> {
        let mut bytes = self.attribute_block(at)?;
        let count = parse::<XattrHeader>(&bytes, 0).map_or(0, |header| header.h_refcount.get());
        if count <= 1 {
            return Ok(true);
        }
        let place = offset_of!(XattrHeader, h_refcount);
        let fewer = (count - 1).to_le_bytes();
        if let Some(field) = bytes.get_mut(place..place + fewer.len()) {
            field.copy_from_slice(&fewer);
        }
        seal(self.maps.layout(), at, &mut bytes);
        let head = bytes.get(..size_of::<XattrHeader>()).unwrap_or_default();
        debug_assert!(head.len() >= place + fewer.len(), "the count lies in the head");
        let piece = Piece { offset: 0, bytes: head };
        self.core.cache.changes().change(at, &[piece], Role::AttributesInit, &[left])?;
        Ok(false)
    }

    /// Adds the block of a file's attributes to `cut`, or drops one reference if it is shared.
    pub(super) fn leave(&mut self, cut: &mut Cut) -> Result<(), FsError> {
        let Some(at) = self.node()?.map.attributes else { return Ok(()) };
        let bytes = self.attribute_block(at)?;
        let count = parse::<XattrHeader>(&bytes, 0).map_or(0, |header| header.h_refcount.get());
        let place = Location::of("attribute block").in_inode(self.ino).in_block(at);
        match count {
            0 => Err(invalid("h_refcount", 0, place)),
            1 => cut.push(Extent::new(at, 1), self.maps.layout().sb().blocks, place),
            // The count is too high until then, never too low.
            _ => self.leave_block(at, ChangeId::COMMITTED).map(drop),
        }
    }
}

/// Sets the checksum of a block of attributes, where they have one.
fn seal(layout: &Layout, at: BlockNo, bytes: &mut [u8]) {
    if !layout.has_sums() {
        return;
    }
    let sum = attributes_sum(layout.sb().checksum_seed, at, bytes);
    let field = bytes.get_mut(offset_of!(XattrHeader, h_checksum)..);
    if let Some(field) = field.and_then(<[u8]>::first_chunk_mut) {
        *field = sum.to_le_bytes();
    }
}
