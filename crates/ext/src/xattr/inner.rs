//! The attributes inside an inode that include the second part of its inline data, the value of
//! `system.data`: its room, and the bytes with another value.

use super::{ENTRY, INDEX_SYSTEM, StoredAttribute, Value, in_inode};
use crate::inode::Inode;
use crate::ondisk::{XATTR_MAGIC, XattrEntry};
use seekless_fs::FsError;
use seekless_fs::field::wide;
use seekless_fs::field::{byte, low16};
use std::mem::offset_of;

/// The magic number before the entries; offsets of values count from its end.
const MAGIC: usize = size_of::<u32>();
/// The zeros that end the entries.
const END: usize = size_of::<u32>();
/// The name of the attribute, without its prefix.
const DATA: &[u8] = b"data";

/// Whether an attribute is the second part of inline data.
pub(super) fn is_data(stored: &StoredAttribute<'_>) -> bool {
    stored.name_index == INDEX_SYSTEM && stored.name == DATA
}

/// Bytes of an entry and its value.
fn taken(name_len: usize, value_len: usize) -> usize {
    let entry = (ENTRY + name_len).next_multiple_of(4);
    entry + value_len.next_multiple_of(4)
}

/// Longest value of `system.data` beside the other attributes of the inode, in bytes; `None` if
/// there is no room even for an empty one.
pub(crate) fn data_room(inode: &Inode) -> Result<Option<usize>, FsError> {
    let mut left = Some(inode.tail().len());
    let mut take = |len: usize| left = left.and_then(|left| left.checked_sub(len));
    take(MAGIC);
    take(END);
    take(taken(DATA.len(), 0));
    for other in in_inode(inode)?.iter().filter(|stored| !is_data(stored)) {
        take(taken(other.name.len(), value_here(other).len()));
    }
    Ok(left.map(|left| left & !3))
}

fn value_here<'a>(stored: &StoredAttribute<'a>) -> &'a [u8] {
    match stored.value {
        Value::Here(bytes) => bytes,
        Value::InInode { .. } => &[],
    }
}

/// The bytes behind an inode's extra fields with another value of `system.data`, or without that
/// attribute; the others are unchanged. `None` if it does not fit.
pub(crate) fn with_data(inode: &Inode, data: Option<&[u8]>) -> Result<Option<Vec<u8>>, FsError> {
    let stored = in_inode(inode)?;
    let others: Vec<&StoredAttribute<'_>> =
        stored.iter().filter(|stored| !is_data(stored)).collect();
    let entries = others.iter().map(|other| AttributeEntry::of(other));
    let data = data.map(|value| AttributeEntry {
        index: INDEX_SYSTEM,
        name: DATA,
        value,
        ..AttributeEntry::EMPTY
    });
    Ok(lay_out(inode.tail().len(), data.into_iter().chain(entries)))
}

/// The attributes' bytes of a new inode with inline data and no other: `len` are behind its extra
/// fields. `None` if they are too few.
pub(crate) fn empty_data(len: usize) -> Option<Vec<u8>> {
    let data = AttributeEntry { index: INDEX_SYSTEM, name: DATA, ..AttributeEntry::EMPTY };
    lay_out(len, std::iter::once(data))
}

/// An attribute to be written (`struct ext4_xattr_entry`).
struct AttributeEntry<'a> {
    index: u8,
    name: &'a [u8],
    value: &'a [u8],
    /// The inode with the value instead, and the value's length.
    elsewhere: Option<(u32, u64)>,
    hash: u32,
}

impl<'a> AttributeEntry<'a> {
    const EMPTY: Self = Self { index: 0, name: &[], value: &[], elsewhere: None, hash: 0 };

    fn of(stored: &StoredAttribute<'a>) -> Self {
        let elsewhere = match stored.value {
            Value::Here(_) => None,
            Value::InInode { ino, len } => Some((ino.get(), len)),
        };
        Self {
            index: stored.name_index,
            name: stored.name,
            value: value_here(stored),
            elsewhere,
            hash: stored.hash,
        }
    }
}

/// Entries from the start on, values from the end down.
fn lay_out<'a>(len: usize, entries: impl Iterator<Item = AttributeEntry<'a>>) -> Option<Vec<u8>> {
    let mut area = vec![0; len];
    let (mut at, mut end) = (MAGIC, len);
    for entry in entries {
        let next = at.checked_add(taken(entry.name.len(), 0))?;
        let start = end.checked_sub(entry.value.len().next_multiple_of(4))?;
        if next.checked_add(END)? > start {
            return None;
        }
        let (number, size) = entry.elsewhere.unwrap_or((0, wide(entry.value.len())));
        let place = if entry.value.is_empty() { 0 } else { start.checked_sub(MAGIC)? };
        let head = area.get_mut(at..next)?;
        put(head, offset_of!(XattrEntry, e_name_len), &[u8::try_from(entry.name.len()).ok()?])?;
        put(head, offset_of!(XattrEntry, e_name_index), &[entry.index])?;
        put(head, offset_of!(XattrEntry, e_value_offs), &low16(byte(place)).to_le_bytes())?;
        put(head, offset_of!(XattrEntry, e_value_inum), &number.to_le_bytes())?;
        let size = u32::try_from(size).ok()?;
        put(head, offset_of!(XattrEntry, e_value_size), &size.to_le_bytes())?;
        put(head, offset_of!(XattrEntry, e_hash), &entry.hash.to_le_bytes())?;
        put(head, ENTRY, entry.name)?;
        put(&mut area, start, entry.value)?;
        (at, end) = (next, start);
    }
    if at > MAGIC {
        put(&mut area, 0, &XATTR_MAGIC.to_le_bytes())?;
    }
    Some(area)
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    to.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}
