//! Extended attributes in their on-disk form: in the inode, in a block that inodes with equal
//! attributes share, large values in inodes of their own.
//!
//! Layout and hashes: Linux `fs/ext4/xattr.c`; ACLs: `fs/ext4/acl.h`.

use crate::checksum::crc32c;
use crate::ondisk::{XATTR_MAGIC, XattrEntry, XattrHeader};
use crate::xattr::entry_hash;
use seekless_fs::{FsError, Xattr};
use zerocopy::IntoBytes;

/// The room and rules for attributes of this volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes behind `i_extra_isize` in an inode.
    pub(crate) in_inode: usize,
    /// Bytes in a block.
    pub(crate) block: usize,
    /// Whether there may be blocks of attributes.
    pub(crate) blocks: bool,
    /// Whether values may have inodes of their own.
    pub(crate) value_inodes: bool,
    /// Whether attributes with such values lie in the block, for symbolic links whose targets are in
    /// their inodes: the blocks of the values count as the link's, and e2fsck takes a link with blocks,
    /// but without a block of attributes, for one whose target is in a block
    /// (`ext2fs_inode_has_valid_blocks2` of e2fsprogs 1.47).
    pub(crate) value_inodes_in_block: bool,
    /// Seed of the volume's checksums.
    pub(crate) checksum_seed: u32,
}

/// One set of attributes, encoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Encoded {
    /// The bytes behind `i_extra_isize`; empty for none.
    pub(crate) in_inode: Vec<u8>,
    /// A block's contents, checksum not yet set.
    pub(crate) block: Option<Vec<u8>>,
    /// Values in inodes of their own, with the places of their numbers.
    pub(crate) values: Vec<ValueInode>,
}

/// A value in an inode of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ValueInode {
    pub(crate) value: Vec<u8>,
    /// Offset of `e_value_inum` in `in_inode` or in `block`.
    pub(crate) slot: usize,
    pub(crate) in_block: bool,
}

/// An attribute, its name split into name index and suffix for storage.
struct IndexedAttribute<'a> {
    index: u8,
    suffix: &'a [u8],
    value: std::borrow::Cow<'a, [u8]>,
}

/// Name prefixes and their indices.
pub(crate) const PREFIXES: &[(u8, &[u8])] =
    &[(1, b"user."), (4, b"trusted."), (6, b"security."), (8, b"system.richacl"), (7, b"system.")];

/// The attribute that is the second part of inline data, found in the inode alone.
pub(crate) const INLINE: &[u8] = b"system.data";

impl IndexedAttribute<'_> {
    /// Whether it must be in the inode.
    fn is_inline_data(&self) -> bool {
        self.index == 7 && self.suffix == b"data"
    }

    fn of(xattr: &Xattr) -> Result<IndexedAttribute<'_>, FsError> {
        let acl = match xattr.name.as_slice() {
            b"system.posix_acl_access" => Some(2),
            b"system.posix_acl_default" => Some(3),
            _ => None,
        };
        if let Some(index) = acl {
            let value = encode_acl(&xattr.value)?;
            return Ok(IndexedAttribute { index, suffix: b"", value: value.into() });
        }
        for &(index, prefix) in PREFIXES {
            if let Some(suffix) = xattr.name.strip_prefix(prefix) {
                return Ok(IndexedAttribute {
                    index,
                    suffix,
                    value: xattr.value.as_slice().into(),
                });
            }
        }
        Err(FsError::Unsupported(format!(
            "extended attribute {} (its namespace does not exist on ext)",
            String::from_utf8_lossy(&xattr.name)
        )))
    }

    fn order(&self) -> (bool, u8, usize, &[u8]) {
        (!self.is_inline_data(), self.index, self.suffix.len(), self.suffix)
    }

    fn entry_len(&self) -> usize {
        size_of::<XattrEntry>() + self.suffix.len().next_multiple_of(4)
    }

    fn len(&self) -> usize {
        self.entry_len() + self.value.len().next_multiple_of(4)
    }
}

/// An attribute, and whether its value has an inode of its own.
type Stored<'a> = (IndexedAttribute<'a>, bool);

/// Encodes a set: each attribute in the inode while there is room, then in the block. If the volume
/// allows it, large values get inodes of their own. So do the largest of the others if they do not
/// fit in the block together: the kernel does the same with a value that finds no room when it is set
/// (`ext4_xattr_set_handle`).
pub(crate) fn encode(xattrs: &[Xattr], room: Room) -> Result<Encoded, FsError> {
    let mut stored = xattrs
        .iter()
        .map(|xattr| {
            let attribute = IndexedAttribute::of(xattr)?;
            let value_inode = room.value_inodes && attribute.value.len() > room.block / 2;
            Ok((attribute, value_inode))
        })
        .collect::<Result<Vec<Stored<'_>>, FsError>>()?;
    // The order the kernel searches a block in; harmless in the inode, where inline data
    // comes first.
    stored.sort_by(|a, b| a.0.order().cmp(&b.0.order()));
    let names: usize = stored.iter().map(|(attribute, _)| attribute.entry_len()).sum();
    let may_fit = room.value_inodes && names <= room.in_inode + room.block;
    let (inside, outside) = loop {
        let error = match divide(&stored, room) {
            Ok(divided) => break divided,
            Err(error) => error,
        };
        let inline = |(attribute, value_inode): &&mut Stored<'_>| {
            !*value_inode && !attribute.value.is_empty() && !attribute.is_inline_data()
        };
        let largest = stored.iter_mut().filter(inline).max_by_key(|it| it.0.value.len());
        match largest.filter(|_| may_fit) {
            Some((_, value_inode)) => *value_inode = true,
            None => return Err(error),
        }
    };
    let header = size_of::<u32>();
    let mut encoded = Encoded::default();
    if !inside.is_empty() {
        let mut area = vec![0; room.in_inode];
        area[..header].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        lay_out(inside, &mut area, header, header, room, false, &mut encoded.values);
        encoded.in_inode = area;
    }
    if !outside.is_empty() {
        let mut block = vec![0; room.block];
        let hash = lay_out(
            outside,
            &mut block,
            size_of::<XattrHeader>(),
            0,
            room,
            true,
            &mut encoded.values,
        );
        let head = XattrHeader {
            h_magic: XATTR_MAGIC.into(),
            h_refcount: 1.into(),
            h_blocks: 1.into(),
            h_hash: hash.into(),
            ..XattrHeader::default()
        };
        block[..size_of::<XattrHeader>()].copy_from_slice(head.as_bytes());
        encoded.block = Some(block);
    }
    Ok(encoded)
}

/// Divides attributes between the inode and the block.
fn divide<'s, 'a>(
    stored: &'s [Stored<'a>],
    room: Room,
) -> Result<(Vec<&'s Stored<'a>>, Vec<&'s Stored<'a>>), FsError> {
    let mut left = room.in_inode.saturating_sub(2 * size_of::<u32>());
    let mut block_left = room.block - size_of::<XattrHeader>() - size_of::<u32>();
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let len_of = |(attribute, value_inode): &Stored<'_>| {
        if *value_inode { attribute.entry_len() } else { attribute.len() }
    };
    for one in stored {
        let (attribute, value_inode) = one;
        let len = len_of(one);
        if len <= left && !(*value_inode && room.value_inodes_in_block) {
            left -= len;
            inside.push(one);
        } else if attribute.is_inline_data() {
            return Err(FsError::NoSpace("the inode has no room for its inline data".into()));
        } else if !room.blocks {
            return Err(FsError::NoSpace(format!(
                "extended attributes of {} bytes need a block of their own, which needs the \
                 ext_attr feature",
                attribute.len(),
            )));
        } else if len <= block_left {
            block_left -= len;
            outside.push(one);
        } else {
            let all: usize = stored.iter().map(len_of).sum();
            let in_inode: usize = inside.iter().map(|one| len_of(one)).sum();
            return Err(FsError::NoSpace(format!(
                "extended attributes of {} bytes do not fit in a block of {}{}",
                all - in_inode,
                room.block,
                if room.value_inodes { "" } else { " (the ea_inode feature allows larger ones)" }
            )));
        }
    }
    Ok((inside, outside))
}

/// Writes entries from `start` up and values from the end down; offsets of
/// values count from `base`. Returns the hash of all entries.
fn lay_out(
    attributes: Vec<&Stored<'_>>,
    area: &mut [u8],
    start: usize,
    base: usize,
    room: Room,
    in_block: bool,
    values: &mut Vec<ValueInode>,
) -> u32 {
    let (mut at, mut end) = (start, area.len());
    let mut all = 0u32;
    for (attribute, value_inode) in attributes {
        let mut entry = XattrEntry {
            e_name_len: attribute.suffix.len() as u8,
            e_name_index: attribute.index,
            e_value_size: (attribute.value.len() as u32).into(),
            ..XattrEntry::default()
        };
        let hash = if *value_inode {
            let slot = at + std::mem::offset_of!(XattrEntry, e_value_inum);
            values.push(ValueInode { value: attribute.value.to_vec(), slot, in_block });
            let value_hash = crc32c(room.checksum_seed, &attribute.value);
            entry_hash(attribute.suffix, [value_hash])
        } else {
            if !attribute.value.is_empty() {
                end -= attribute.value.len().next_multiple_of(4);
                area[end..end + attribute.value.len()].copy_from_slice(&attribute.value);
                entry.e_value_offs = ((end - base) as u16).into();
            }
            let words = attribute.value.chunks(4).map(|chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_le_bytes(word)
            });
            entry_hash(attribute.suffix, words)
        };
        // The kernel leaves the hash of attributes inside an inode zero,
        // except when the value has an inode of its own.
        let stored_hash = if in_block || *value_inode { hash } else { 0 };
        entry.e_hash = stored_hash.into();
        all = all.rotate_left(16) ^ hash;
        area[at..at + size_of::<XattrEntry>()].copy_from_slice(entry.as_bytes());
        let name = at + size_of::<XattrEntry>();
        area[name..name + attribute.suffix.len()].copy_from_slice(attribute.suffix);
        at += attribute.entry_len();
        debug_assert!(at + size_of::<u32>() <= end, "entries end in front of the values");
    }
    all
}

/// Converts the portable form of a POSIX ACL (version 2, 8 bytes an entry) to ext's own (version 1,
/// entries without an id have 4 bytes).
fn encode_acl(value: &[u8]) -> Result<Vec<u8>, FsError> {
    let bad = || FsError::Invalid("a POSIX ACL of the source is not well formed".into());
    let entries = value.strip_prefix(&2u32.to_le_bytes()).ok_or_else(bad)?;
    if entries.len() % 8 != 0 {
        return Err(bad());
    }
    let mut out = 1u32.to_le_bytes().to_vec();
    for entry in entries.chunks(8) {
        out.extend_from_slice(&entry[..4]);
        // ACL_USER and ACL_GROUP carry an id.
        if matches!(u16::from_le_bytes([entry[0], entry[1]]), 0x02 | 0x08) {
            out.extend_from_slice(&entry[4..]);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        Xattr { name: name.into(), value: value.into() }
    }

    const ROOM: Room = Room {
        in_inode: 96,
        block: 1024,
        blocks: true,
        value_inodes: false,
        value_inodes_in_block: false,
        checksum_seed: 0,
    };

    #[test]
    fn small_sets_stay_in_the_inode_and_larger_ones_spill() {
        let small = encode(&[xattr("user.a", b"1")], ROOM).unwrap();
        assert!(small.block.is_none() && small.in_inode.len() == 96);
        let large = encode(&[xattr("user.a", b"1"), xattr("user.b", &[7; 500])], ROOM).unwrap();
        assert!(large.block.is_some() && !large.in_inode.is_empty());
        assert!(matches!(encode(&[xattr("user.b", &[7; 2000])], ROOM), Err(FsError::NoSpace(_))));
        let room = Room { value_inodes: true, ..ROOM };
        let own = encode(&[xattr("user.b", &[7; 2000])], room).unwrap();
        assert_eq!(own.values.len(), 1);
    }

    #[test]
    fn attributes_of_symbolic_links_with_values_in_inodes_lie_in_the_block() {
        let room = Room { value_inodes: true, value_inodes_in_block: true, ..ROOM };
        let set = [xattr("user.a", b"1"), xattr("user.b", &[7; 2000])];
        let encoded = encode(&set, room).unwrap();
        assert!(encoded.block.is_some() && !encoded.in_inode.is_empty());
        assert!(encoded.values.iter().all(|value| value.in_block));
        assert!(encode(&set[..1], room).unwrap().block.is_none());
    }

    #[test]
    fn values_that_do_not_fit_together_get_inodes_the_largest_first() {
        let room = Room { value_inodes: true, ..ROOM };
        let set = |lens: &[usize]| -> Vec<Xattr> {
            let name = |at: usize| format!("user.{at:02}");
            lens.iter().enumerate().map(|(at, &len)| xattr(&name(at), &vec![7; len])).collect()
        };
        let lens = |set: &[Xattr]| {
            let encoded = encode(set, room).unwrap();
            encoded.values.iter().map(|one| one.value.len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(&set(&[400, 500])), []);
        assert_eq!(lens(&set(&[400, 500, 300])), [500]);
        assert_eq!(lens(&set(&[400, 500, 0, 300, 450, 390])), [400, 500, 450]);
        // The names alone do not fit: no value is moved, which would take a pass for each.
        assert!(matches!(encode(&set(&[1; 20_000]), room), Err(FsError::NoSpace(_))));
        assert!(matches!(encode(&set(&[400, 500, 300]), ROOM), Err(FsError::NoSpace(_))));
    }

    #[test]
    fn acl_entries_shrink() {
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, id) in [(1u16, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, 0)] {
            acl.extend_from_slice(&tag.to_le_bytes());
            acl.extend_from_slice(&6u16.to_le_bytes());
            acl.extend_from_slice(&id.to_le_bytes());
        }
        assert_eq!(encode_acl(&acl).unwrap().len(), 4 + 4 * 4 + 8);
        assert!(encode_acl(&acl[..acl.len() - 1]).is_err());
    }
}
