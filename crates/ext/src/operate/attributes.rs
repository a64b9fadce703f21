//! Extended attributes: in the inode where it has room, the rest in a block, which files with equal
//! ones may share. They are rewritten with every change.

use super::inline::is_inline;
use super::search::full;
use super::sums::attributes_sum;
use super::{Core, Ext};
use crate::compose::attributes::{INLINE, Room, encode};
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

impl Ext {
    /// The bytes of a block of attributes, checked.
    fn attribute_block(&self, core: &mut Core, ino: Ino, at: BlockNo) -> Result<Vec<u8>, FsError> {
        let place = Location::of("attribute block").in_inode(ino).in_block(at);
        self.check_data(Extent::new(at, 1), place)?;
        let bytes = core.cache.blocks_mut().read(at, 0, self.volume.block_len())?.to_vec();
        let header: Option<XattrHeader> = parse(&bytes, 0);
        let magic = header.map_or(0, |header| header.h_magic.get());
        if magic != XATTR_MAGIC {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
        }
        if self.has_sums() {
            let stored = header.map_or(0, |header| header.h_checksum.get());
            verify(stored, attributes_sum(self.volume.sb.checksum_seed, at, &bytes), place)?;
        }
        Ok(bytes)
    }

    pub(super) fn read_attributes(
        &mut self,
        core: &mut Core,
        ino: Ino,
    ) -> Result<Vec<Xattr>, FsError> {
        let block = match core.node(ino)?.map.attributes {
            Some(at) => Some(self.attribute_block(core, ino, at)?),
            None => None,
        };
        let mut all = all_shown(&self.inode_now(core, ino)?, block.as_deref())?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    pub(super) fn change_attribute(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if name.starts_with(SYSTEM) && !ACLS.contains(&name) {
            let name = String::from_utf8_lossy(name);
            return Err(FsError::Unsupported(format!("the extended attribute {name}")));
        }
        let mut all = self.read_attributes(core, ino)?;
        change_list(&mut all, name, value, mode)?;
        // Inline data stay in the inode unchanged.
        if let Some(value) = inline_value(&self.inode_now(core, ino)?)?
            && is_inline(core, ino)?
        {
            all.push(Xattr { name: INLINE.to_vec(), value: value.to_vec() });
        }
        let room = Room {
            in_inode: self.inner_room(core, ino)?,
            block: self.volume.block_len(),
            blocks: true,
            value_inodes: false,
            checksum_seed: self.volume.sb.checksum_seed,
        };
        let encoded = encode(&all, room)?;
        debug_assert!(encoded.values.is_empty(), "no value has an inode of its own");
        debug_assert!(encoded.in_inode.len() <= room.in_inode, "the inode has room for its part");
        debug_assert!(
            encoded.block.as_ref().is_none_or(|block| block.len() == room.block),
            "the rest is a whole block"
        );
        self.allow_attributes(core)?;
        let mut inner = encoded.in_inode;
        inner.resize(room.in_inode, 0);
        self.store(core, ino, inner.into(), encoded.block.as_deref())
    }

    /// Size of the room for attributes in an inode.
    fn inner_room(&self, core: &mut Core, ino: Ino) -> Result<usize, FsError> {
        if !self.has_birth() {
            return Ok(0);
        }
        Ok(self.inode_now(core, ino)?.tail().len())
    }

    /// Writes attributes: a block for them is always a new one, and the reference to the old one is
    /// dropped once the inode leads to the new one.
    fn store(
        &mut self,
        core: &mut Core,
        ino: Ino,
        inner: Box<[u8]>,
        block: Option<&[u8]>,
    ) -> Result<(), FsError> {
        debug_assert!(self.inode_len() >= INODE_CORE_SIZE);
        let mut after: Vec<ChangeId> = Vec::new();
        let mut new = None;
        if let Some(bytes) = block {
            let (at, bitmap) =
                self.take_block(core, ino, 0, None).map_err(|error| match error {
                    FsError::NoSpace(_) => full("blocks for attributes"),
                    other => other,
                })?;
            let ((), data) = core.cache.changes().fill(
                at,
                self.volume.block_len(),
                Role::AttributesInit,
                |to| {
                    to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
                    self.sum_attributes(at, to);
                    Ok(())
                },
            )?;
            after.extend([bitmap, data]);
            new = Some(at);
        }
        let old = core.node(ino)?.map.attributes;
        debug_assert!(new.is_none() || new != old, "changed attributes get a new block");
        debug_assert!(core.node(ino)?.map.inner.is_none(), "one change is made at a time");
        let sectors = u64::from(self.volume.sb.block_size / 512);
        let node = core.node(ino)?;
        node.map.attributes = new;
        node.map.inner = Some(inner);
        node.sectors = match (old, new) {
            (None, Some(_)) => node.sectors + sectors,
            (Some(_), None) => node.sectors.saturating_sub(sectors),
            _ => node.sectors,
        };
        self.put_rest(core, ino)?;
        core.node(ino)?.map.inner = None;
        let changed = self.put_part(core, ino, Part::Map, Role::PointerMove, &after, None)?.id;
        let Some(old) = old else { return Ok(()) };
        if self.leave_block(core, ino, old, changed)? {
            core.defer_free(&[changed], Kind::FreeFragments, [Extent::new(old, 1)]);
        }
        Ok(())
    }

    /// Drops a file's reference to a block of attributes. True if it was the last; else the block's
    /// count falls by one, once `left` is on the disk.
    fn leave_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        at: BlockNo,
        left: ChangeId,
    ) -> Result<bool, FsError> {
        let mut bytes = self.attribute_block(core, ino, at)?;
        let count = parse::<XattrHeader>(&bytes, 0).map_or(0, |header| header.h_refcount.get());
        if count <= 1 {
            return Ok(true);
        }
        let place = offset_of!(XattrHeader, h_refcount);
        let fewer = (count - 1).to_le_bytes();
        if let Some(field) = bytes.get_mut(place..place + fewer.len()) {
            field.copy_from_slice(&fewer);
        }
        self.sum_attributes(at, &mut bytes);
        let head = bytes.get(..size_of::<XattrHeader>()).unwrap_or_default();
        debug_assert!(head.len() >= place + fewer.len(), "the count lies in the head");
        let piece = Piece { offset: 0, bytes: head };
        core.cache.changes().change(at, &[piece], Role::AttributesInit, &[left])?;
        Ok(false)
    }

    /// Sets the checksum of a block of attributes, where they have one.
    fn sum_attributes(&self, at: BlockNo, bytes: &mut [u8]) {
        if !self.has_sums() {
            return;
        }
        let sum = attributes_sum(self.volume.sb.checksum_seed, at, bytes);
        let field = bytes.get_mut(offset_of!(XattrHeader, h_checksum)..);
        if let Some(field) = field.and_then(<[u8]>::first_chunk_mut) {
            *field = sum.to_le_bytes();
        }
    }

    /// Adds the block of a file's attributes to `cut`, or drops one reference if it is shared.
    pub(super) fn leave_attributes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        cut: &mut Cut,
    ) -> Result<(), FsError> {
        let Some(at) = core.node(ino)?.map.attributes else { return Ok(()) };
        let bytes = self.attribute_block(core, ino, at)?;
        let count = parse::<XattrHeader>(&bytes, 0).map_or(0, |header| header.h_refcount.get());
        let place = Location::of("attribute block").in_inode(ino).in_block(at);
        match count {
            0 => Err(invalid("h_refcount", 0, place)),
            1 => cut.push(Extent::new(at, 1), self.volume.sb.blocks, place),
            // The count is too high until then, never too low.
            _ => self.leave_block(core, ino, at, ChangeId::COMMITTED).map(drop),
        }
    }
}
