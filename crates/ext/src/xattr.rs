//! Extended attributes: in the inode, in a block of their own, and large
//! values in inodes of their own.

use crate::acl;
use crate::checksum::crc32c;
use crate::inode::Inode;
use crate::ondisk::{INODE_CORE_SIZE, XATTR_MAGIC, XattrEntry, XattrHeader, flags};
use crate::volume::Volume;
use seekless_fs::field::{byte, index, invalid, le32, parse, range, slice, truncated, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location, Xattr};
use seekless_units::{BlockNo, ByteLen, Ino};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

mod inner;

pub(crate) use inner::{data_room, empty_data, with_data};

/// Bytes of the fixed part of an entry.
const ENTRY: usize = size_of::<XattrEntry>();
/// The largest value the format allows.
const VALUE_MAX: u64 = 1 << 24;
/// `e_name_index` of `system.*`: with the name `data`, inline data.
const INDEX_SYSTEM: u8 = 7;
/// `e_name_index` of the context of an encrypted inode, whose name is `c`.
const INDEX_ENCRYPTION: u8 = 9;
/// `e_name_index` of the two kinds of ACL.
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;

/// An attribute as stored.
struct StoredAttribute<'a> {
    name_index: u8,
    name: &'a [u8],
    value: Value<'a>,
    hash: u32,
    /// The bytes of the entry and of its value within their region.
    entry: Range<usize>,
    bytes: Range<usize>,
    /// The value's whole words, with the bytes behind it, which its hash includes.
    words: &'a [u8],
    place: Location,
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Here(&'a [u8]),
    InInode { ino: Ino, len: u64 },
}

/// The name of the place of attributes inside an inode.
const INNER: &str = "attributes in inode";

/// The prefix of an index; `None` for prefixes that a mount hides too.
fn prefix(name_index: u8) -> Option<&'static [u8]> {
    Some(match name_index {
        1 => b"user.",
        INDEX_ACL_ACCESS => b"system.posix_acl_access",
        INDEX_ACL_DEFAULT => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        10 => b"gnu.",
        _ => return None,
    })
}

/// The entries that start at byte `at` of `region`, with values counted from
/// the region's first byte.
fn entries(
    region: &[u8],
    mut at: usize,
    place: Location,
) -> Result<Vec<StoredAttribute<'_>>, FsError> {
    let mut found = Vec::new();
    loop {
        let place = place.at_offset(byte(at));
        // Four zero bytes end the list.
        if le32(region, at).ok_or_else(|| truncated(place))? == 0 {
            return Ok(found);
        }
        let entry: XattrEntry = parse(region, at).ok_or_else(|| truncated(place))?;
        let name_len = usize::from(entry.e_name_len);
        let name = slice(region, at + ENTRY, name_len)
            .ok_or_else(|| range("e_name_len", wide(name_len), wide(region.len()), place))?;
        let value = value(region, &entry, place)?;
        let (name_index, hash) = (entry.e_name_index, entry.e_hash.get());
        let next = at + (ENTRY + name_len).next_multiple_of(4);
        let bytes = match value {
            Value::Here(bytes) if !bytes.is_empty() => {
                let start = usize::from(entry.e_value_offs.get());
                start..start + bytes.len().next_multiple_of(4)
            }
            _ => 0..0,
        };
        let entry = at..next;
        // Of a value at the end of its region, the last word may be cut off.
        let words = region.get(bytes.start..bytes.end.min(region.len())).unwrap_or_default();
        found.push(StoredAttribute { name_index, name, value, hash, entry, bytes, words, place });
        at = next;
    }
}

fn value<'a>(region: &'a [u8], entry: &XattrEntry, place: Location) -> Result<Value<'a>, FsError> {
    let len = u64::from(entry.e_value_size.get());
    if len > VALUE_MAX {
        return Err(range("e_value_size", len, VALUE_MAX, place));
    }
    let ino = entry.e_value_inum.get();
    if ino != 0 {
        return Ok(Value::InInode { ino: Ino::new(ino), len });
    }
    if len == 0 {
        return Ok(Value::Here(&[]));
    }
    let start = usize::from(entry.e_value_offs.get());
    let bytes = slice(region, start, index(len))
        .ok_or_else(|| range("e_value_offs", wide(start), wide(region.len()), place))?;
    Ok(Value::Here(bytes))
}

/// The attributes inside an inode.
fn in_inode(inode: &Inode) -> Result<Vec<StoredAttribute<'_>>, FsError> {
    let tail = inode.tail();
    if le32(tail, 0) != Some(XATTR_MAGIC) {
        return Ok(Vec::new());
    }
    let place = Location::of(INNER).in_inode(inode.ino);
    entries(tail.get(4..).unwrap_or_default(), 0, place)
}

/// Clears the hash of the inline data in the bytes of an inode, which were changed: inside an inode
/// there need not be one (e2fsck does the same).
pub(crate) fn forget_data_hash(raw: &mut [u8]) {
    let Some(extra) = raw.get(INODE_CORE_SIZE..).and_then(<[u8]>::first_chunk) else { return };
    let start = INODE_CORE_SIZE + usize::from(u16::from_le_bytes(*extra));
    if le32(raw, start) != Some(XATTR_MAGIC) {
        return;
    }
    let list = raw.get(start + 4..).unwrap_or_default();
    let Ok(stored) = entries(list, 0, Location::of(INNER)) else { return };
    let Some(at) = stored.iter().find(|it| inner::is_data(it)).map(|it| it.entry.start) else {
        return;
    };
    let hash = start + 4 + at + offset_of!(XattrEntry, e_hash);
    if let Some(hash) = raw.get_mut(hash..).and_then(<[u8]>::first_chunk_mut) {
        *hash = [0; 4];
    }
}

/// Whether the attributes inside an inode can be read, and are whole.
pub(crate) fn inner_is_sound(inode: &Inode) -> bool {
    in_inode(inode).is_ok_and(|stored| {
        !collides(&stored) && stored.iter().all(|it| it.hash == 0 || it.is_whole())
    })
}

/// Whether entries and values of a list overlap each other or its end.
fn collides(stored: &[StoredAttribute<'_>]) -> bool {
    let end = stored.last().map_or(0, |last| last.entry.end);
    let mut taken: Vec<Range<usize>> = stored.iter().map(|it| it.entry.clone()).collect();
    taken.push(end..end + 4);
    taken.extend(stored.iter().map(|it| it.bytes.clone()).filter(|it| !it.is_empty()));
    taken.sort_unstable_by_key(|range| (range.start, range.end));
    let pairs = taken.iter().zip(taken.iter().skip(1));
    pairs.into_iter().any(|(one, next)| next.start < one.end)
}

/// A value in an inode of its own.
pub(crate) struct LargeValue {
    pub(crate) ino: Ino,
    pub(crate) len: u64,
    name: Vec<u8>,
    hash: u32,
}

impl LargeValue {
    /// Whether the hash of the attribute is that of its name and of the value's hash, which the
    /// inode with the value has in the place of a time.
    pub(crate) fn is_in(&self, holder: &Inode) -> bool {
        let value = [holder.core.i_atime.get()];
        let hashes = [entry_hash(&self.name, value), signed_hash(&self.name, value)];
        hashes.contains(&self.hash)
    }
}

/// How many attributes have their value in an inode, as it says (`ext2fs_get_ea_inode_ref`); `None`
/// in Lustre's older form, which has no count.
pub(crate) fn value_count(holder: &Inode) -> Option<u64> {
    let core = &holder.core;
    let count = u64::from(core.i_ctime.get()) << 32 | u64::from(core.i_version.get());
    (core.i_ctime.get() != core.i_atime.get()).then_some(count)
}

/// Faults of attributes that can be read.
pub(crate) enum AttributeFault {
    /// They lie upon each other.
    Collision,
    /// One has a wrong hash.
    Hash,
    /// One in a block has no name space (e2fsck, `PR_1_EA_BAD_NAME`).
    Name,
}

/// `ext4_xattr_hash_entry`: of a name and the words of a value. Names are hashed as
/// unsigned characters, as kernels since 6.2 write them.
pub(crate) fn entry_hash(name: &[u8], words: impl IntoIterator<Item = u32>) -> u32 {
    with_words(name.iter().map(|&byte| u32::from(byte)), words)
}

/// The same with signed characters, as written by older kernels on most machines.
fn signed_hash(name: &[u8], words: impl IntoIterator<Item = u32>) -> u32 {
    let signed = |&byte: &u8| i32::from(byte.cast_signed()).cast_unsigned();
    with_words(name.iter().map(signed), words)
}

fn with_words(name: impl Iterator<Item = u32>, words: impl IntoIterator<Item = u32>) -> u32 {
    let hash = name.fold(0u32, |hash, byte| hash.rotate_left(5) ^ byte);
    words.into_iter().fold(hash, |hash, word| hash.rotate_left(16) ^ word)
}

impl StoredAttribute<'_> {
    /// Whether its hash is that of its name and value. That of a value in an inode of its own is
    /// not checked.
    fn is_whole(&self) -> bool {
        let Value::Here(_) = self.value else { return true };
        let words = || {
            self.words.chunks(4).map(|chunk| {
                let mut word = [0; 4];
                word.iter_mut().zip(chunk).for_each(|(to, &from)| *to = from);
                u32::from_le_bytes(word)
            })
        };
        let hashes = [entry_hash(self.name, words()), signed_hash(self.name, words())];
        hashes.contains(&self.hash)
    }
}

/// The value of `system.data`: the second part of inline data.
pub(crate) fn inline_value(inode: &Inode) -> Result<Option<&[u8]>, FsError> {
    let data = in_inode(inode)?.into_iter().find(inner::is_data);
    match data.map(|stored| (stored.value, stored.place)) {
        None => Ok(None),
        Some((Value::Here(bytes), _)) => Ok(Some(bytes)),
        Some((Value::InInode { ino, .. }, place)) => {
            Err(invalid("e_value_inum", u64::from(ino.get()), place))
        }
    }
}

/// Whether an inode with a value is of Lustre's older form, which has its owner's number in its
/// time of modification, and no hash and no count. Its blocks are not counted for the owner
/// (e2fsck, `check_large_ea_inode`).
pub(crate) fn names_its_owner(holder: &Inode, owner: &Inode) -> bool {
    holder.core.i_mtime.get() == owner.ino.get()
        && holder.core.i_generation.get() == owner.core.i_generation.get()
}

/// All attributes of an inode with these bytes of its attribute block, in stored order, except for
/// its inline data.
///
/// # Errors
/// [`FsError::Unsupported`] for an attribute that a mount does not show: it would be lost if the
/// attributes were rewritten.
pub(crate) fn all_shown(inode: &Inode, block: Option<&[u8]>) -> Result<Vec<Xattr>, FsError> {
    let mut stored = in_inode(inode)?;
    if inode.has_flag(flags::INLINE_DATA) {
        stored.retain(|stored| !inner::is_data(stored));
    }
    if let Some(block) = block {
        let place = Location::of("attribute block").in_inode(inode.ino);
        stored.extend(entries(block, size_of::<XattrHeader>(), place)?);
    }
    let shown = |stored: StoredAttribute<'_>| {
        let name_index = stored.name_index;
        let hidden = || {
            let ino = inode.ino;
            FsError::Unsupported(format!("attributes of kind {name_index}, as inode {ino} has"))
        };
        let (Some(prefix), Value::Here(bytes)) = (prefix(name_index), stored.value) else {
            return Err(hidden());
        };
        let value = match name_index {
            INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => acl::to_portable(bytes, stored.place)?,
            _ => bytes.to_vec(),
        };
        Ok(Xattr { name: [prefix, stored.name].concat(), value })
    };
    stored.into_iter().map(shown).collect()
}

impl Volume {
    /// The extended attributes of inodes.
    pub(crate) fn attributes(&self) -> AttributeReader<'_> {
        AttributeReader { volume: self }
    }
}

/// Reads extended attributes.
#[derive(Clone, Copy)]
pub(crate) struct AttributeReader<'a> {
    volume: &'a Volume,
}

impl<'a> AttributeReader<'a> {
    /// Whether an inode has a list of attributes in it or a block of them.
    pub(crate) fn may_be_in(&self, inode: &Inode) -> bool {
        le32(inode.tail(), 0) == Some(XATTR_MAGIC)
            || self.volume.inodes().xattr_block_of(inode).is_some()
    }

    /// Reads the attribute block of an inode.
    fn block(
        &self,
        inode: &Inode,
        number: BlockNo,
    ) -> Result<seekless_fs::read_cache::Block, FsError> {
        let place = Location::of("attribute block").in_inode(inode.ino).in_block(number);
        let block = self.volume.block(number, Location::of("i_file_acl").in_inode(inode.ino))?;
        let header: XattrHeader = parse(&block, 0).ok_or_else(|| truncated(place))?;
        let magic = header.h_magic.get();
        if magic != XATTR_MAGIC {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
        }
        if header.h_blocks.get() != 1 {
            return Err(invalid("h_blocks", u64::from(header.h_blocks.get()), place));
        }
        if self.volume.sb.has_metadata_csum() {
            let at = offset_of!(XattrHeader, h_checksum);
            let (before, rest) = block.split_at_checked(at).unwrap_or_default();
            let crc = crc32c(self.volume.sb.checksum_seed, &number.get().to_le_bytes());
            let crc = crc32c(crc32c(crc, before), &[0; 4]);
            let crc = crc32c(crc, rest.get(4..).unwrap_or_default());
            self.volume.verify(header.h_checksum.get(), crc, place)?;
        }
        Ok(block)
    }

    /// Visits every stored attribute: in the inode first, then in its block.
    fn each_stored(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(StoredAttribute<'_>) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        // Those of the volume's own inodes are never read.
        if !self.volume.sb.is_own(inode.ino) {
            in_inode(inode)?.into_iter().try_for_each(&mut *visit)?;
        }
        let Some(number) = self.volume.inodes().xattr_block_of(inode) else { return Ok(()) };
        let block = self.block(inode, number)?;
        let place = Location::of("attribute block").in_inode(inode.ino).in_block(number);
        entries(&block, size_of::<XattrHeader>(), place)?.into_iter().try_for_each(visit)
    }

    /// The context with which an inode is encrypted; `None` where it has none.
    pub(crate) fn encryption_context(&self, inode: &Inode) -> Result<Option<Vec<u8>>, FsError> {
        let mut context = None;
        self.each_stored(inode, &mut |stored| {
            if let (INDEX_ENCRYPTION, b"c", Value::Here(bytes)) =
                (stored.name_index, stored.name, stored.value)
            {
                context.get_or_insert_with(|| bytes.to_vec());
            }
            Ok(())
        })?;
        Ok(context)
    }

    /// The inodes of an inode's large values.
    pub(crate) fn value_inodes(&self, inode: &Inode) -> Result<Vec<Ino>, FsError> {
        Ok(self.values(inode)?.into_iter().map(|value| value.ino).collect())
    }

    /// An inode's large values, which lie in inodes of their own.
    pub(crate) fn values(&self, inode: &Inode) -> Result<Vec<LargeValue>, FsError> {
        let mut values = Vec::new();
        self.each_stored(inode, &mut |stored| {
            if let Value::InInode { ino, len } = stored.value {
                let name = stored.name.to_vec();
                values.push(LargeValue { ino, len, name, hash: stored.hash });
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// The first fault of an inode's attributes that can be read, and its place. Inside an inode
    /// they need not have hashes.
    pub(crate) fn fault(
        &self,
        inode: &Inode,
    ) -> Result<Option<(AttributeFault, Location)>, FsError> {
        let judge = |stored: &[StoredAttribute<'_>], is_inner: bool| {
            let first = stored.first()?;
            // Inside an inode the kernel and e2fsck pass over it.
            if let Some(bad) = stored.iter().find(|it| it.name_index == 0 && !is_inner) {
                return Some((AttributeFault::Name, bad.place));
            }
            if collides(stored) {
                return Some((AttributeFault::Collision, first.place));
            }
            let torn = stored.iter().find(|it| !(it.is_whole() || is_inner && it.hash == 0))?;
            Some((AttributeFault::Hash, torn.place))
        };
        if !self.volume.sb.is_own(inode.ino)
            && let Some(fault) = judge(&in_inode(inode)?, true)
        {
            return Ok(Some(fault));
        }
        let Some(number) = self.volume.inodes().xattr_block_of(inode) else { return Ok(None) };
        let block = self.block(inode, number)?;
        let place = Location::of("attribute block").in_inode(inode.ino).in_block(number);
        Ok(judge(&entries(&block, size_of::<XattrHeader>(), place)?, false))
    }

    /// The reference count of an inode's attribute block.
    pub(crate) fn block_count(&self, inode: &Inode) -> Result<Option<u32>, FsError> {
        let Some(number) = self.volume.inodes().xattr_block_of(inode) else { return Ok(None) };
        let block = self.block(inode, number)?;
        Ok(parse::<XattrHeader>(&block, 0).map(|header| header.h_refcount.get()))
    }

    /// All attributes that a mount shows, sorted by name.
    pub(crate) fn shown(&self, inode: &Inode) -> Result<Vec<Xattr>, FsError> {
        let mut found = BTreeMap::new();
        // Many entries may share one large value; their sum is still no more than the volume holds.
        let mut room = self.volume.sb.blocks * u64::from(self.volume.sb.block_size);
        self.each_stored(inode, &mut |stored| {
            let Some(prefix) = prefix(stored.name_index) else { return Ok(()) };
            let value = self.value(inode, &stored, &mut room)?;
            let name = [prefix, stored.name].concat();
            found.entry(name).or_insert(value);
            Ok(())
        })?;
        Ok(found.into_iter().map(|(name, value)| Xattr { name, value }).collect())
    }

    fn value(
        &self,
        inode: &Inode,
        stored: &StoredAttribute<'_>,
        room: &mut u64,
    ) -> Result<Vec<u8>, FsError> {
        let bytes = match stored.value {
            Value::Here(bytes) => bytes.to_vec(),
            Value::InInode { ino, len } => {
                *room = room
                    .checked_sub(len)
                    .ok_or_else(|| range("e_value_size", len, *room, stored.place))?;
                self.large_value(inode, ino, len, stored.place)?
            }
        };
        if matches!(stored.name_index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT) {
            return acl::to_portable(&bytes, stored.place);
        }
        Ok(bytes)
    }

    /// The bytes of one of [`AttributeReader::values`].
    pub(crate) fn value_bytes(
        &self,
        owner: &Inode,
        value: &LargeValue,
    ) -> Result<Vec<u8>, FsError> {
        let place = Location::of("attribute value").in_inode(value.ino);
        self.large_value(owner, value.ino, value.len, place)
    }

    /// Reads a value from its own inode, whose access time is its hash.
    fn large_value(
        &self,
        owner: &Inode,
        ino: Ino,
        len: u64,
        place: Location,
    ) -> Result<Vec<u8>, FsError> {
        let holder = self.volume.inodes().read(ino)?;
        if !holder.has_flag(flags::EA_INODE) || holder.kind() != Some(FileKind::Regular) {
            return Err(invalid("e_value_inum", u64::from(ino.get()), place));
        }
        if holder.len != len {
            return Err(range("e_value_size", len, holder.len, place));
        }
        let mut bytes = vec![0; index(len)];
        self.volume.maps().read_mapped(&holder, ByteLen::ZERO, &mut bytes)?;
        if !names_its_owner(&holder, owner) {
            let computed = crc32c(self.volume.sb.checksum_seed, &bytes);
            let place = Location::of("attribute value").in_inode(ino);
            self.volume.verify(holder.core.i_atime.get(), computed, place)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel hashes whole words (`ext4_xattr_hash_entry`); it pads values with zeros, but another
    /// writer need not.
    #[test]
    fn a_hash_includes_the_rest_of_the_last_word() {
        // The first value does not end with a word, the second one with its region.
        for (len, rest, is_whole) in [(1u32, &b"wxy"[..], true), (1, b"", false), (4, b"", true)] {
            let hash = entry_hash(b"a", [u32::from_le_bytes(*b"vwxy")]);
            let fields = [0, len, hash].map(u32::to_le_bytes).concat();
            let value = &b"vwxy"[..len as usize];
            let name = b"a\0\0\0";
            let region = [&[1, 1, 24, 0][..], &fields, name, &[0; 4], value, rest].concat();
            let found = entries(&region, 0, Location::of(INNER)).unwrap();
            assert_eq!(found[0].is_whole(), is_whole, "{len} {rest:?}");
        }
    }

    #[test]
    fn the_hash_of_changed_inline_data_goes_and_no_other() {
        const TAIL: usize = INODE_CORE_SIZE + 28;
        let mut raw = vec![0; 256];
        raw[INODE_CORE_SIZE] = 28;
        raw[TAIL..TAIL + 4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        let (mut at, mut hashes) = (TAIL + 4, Vec::new());
        for (index, name) in [(1, b"user"), (INDEX_SYSTEM, b"data")] {
            raw[at] = 4;
            raw[at + 1] = index;
            let hash = at + offset_of!(XattrEntry, e_hash);
            raw[hash..hash + 4].copy_from_slice(&[1, 2, 3, 4]);
            raw[at + ENTRY..at + ENTRY + 4].copy_from_slice(name);
            hashes.push(hash);
            at += ENTRY + 4;
        }
        let before = raw.clone();
        forget_data_hash(&mut raw);
        let mut wanted = before;
        wanted[hashes[1]..hashes[1] + 4].fill(0);
        assert!(raw == wanted, "{raw:?}");
    }
}
