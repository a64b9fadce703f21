//! Extended attributes of UFS2: a list in up to two blocks of an inode's own.

use crate::inode::Inode;
use crate::ondisk::ExtattrHead;
use crate::superblock::Order;
use crate::volume::Volume;
use seekless_fs::field::{byte, index, invalid, parse, range, slice, truncated, wide};
use seekless_fs::{FsError, Location, Xattr};
use seekless_units::{BlockNo, Extent};
use zerocopy::byteorder::{BE, LE};

/// Bytes in front of a name.
const HEAD: usize = size_of::<ExtattrHead<LE>>();

impl Volume {
    /// An inode's extended attributes, sorted by name.
    pub(crate) fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>, FsError> {
        if inode.ext_len == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.attribute_area(inode)?;
        let place = Location::of("extended attribute").in_inode(inode.ino);
        decode_attributes(self.sb.order, &bytes, place)
    }

    fn attribute_area(&self, inode: &Inode) -> Result<Vec<u8>, FsError> {
        let place = Location::of("extended attributes").in_inode(inode.ino);
        let bsize = u64::from(self.sb.bsize);
        let limit = bsize * 2;
        if u64::from(inode.ext_len) > limit {
            return Err(range("di_extsize", u64::from(inode.ext_len), limit, place));
        }
        let mut bytes = vec![0; index(inode.ext_len)];
        let pieces = bytes.chunks_mut(index(self.sb.bsize)).zip(inode.ext_blocks);
        for (piece, number) in pieces.filter(|(_, number)| *number != 0) {
            let start = BlockNo::new(number);
            let frags = wide(piece.len()).div_ceil(u64::from(self.sb.fsize));
            self.check_extent(Extent::new(start, frags), place)?;
            self.read_bytes(start, 0, piece)?;
        }
        Ok(bytes)
    }
}

/// The attributes of a list, sorted by name.
pub(crate) fn decode_attributes(
    order: Order,
    bytes: &[u8],
    place: Location,
) -> Result<Vec<Xattr>, FsError> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let place = place.at_offset(byte(at));
        let Some((len, xattr)) = attribute(order, bytes, at, place)? else { break };
        found.push(xattr);
        at += len;
    }
    found.sort();
    Ok(found)
}

/// Appends an attribute to a list.
pub(crate) fn encode_attribute(
    order: Order,
    space: u8,
    name: &[u8],
    value: &[u8],
    to: &mut Vec<u8>,
) {
    debug_assert!(u8::try_from(name.len()).is_ok(), "a name has 255 bytes at most");
    debug_assert!(matches!(space, 1 | 2), "{space} is a name space");
    debug_assert!(to.len().is_multiple_of(8), "records are aligned");
    let base = (HEAD + name.len()).next_multiple_of(8);
    let len = (base + value.len()).next_multiple_of(8);
    let pad = len - base - value.len();
    let start = to.len();
    to.resize(start + len, 0);
    let Some(record) = to.get_mut(start..) else { return };
    order.put_u32(record, 0, u32::try_from(len).unwrap_or(0));
    let small = |value: usize| u8::try_from(value).unwrap_or(0);
    let head = [space, small(pad), small(name.len())];
    let parts: [(usize, &[u8]); 3] = [(4, &head), (HEAD, name), (base, value)];
    for (at, bytes) in parts {
        let to = record.get_mut(at..).unwrap_or_default();
        to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    }
}

/// The attribute at byte `at` and the length of its record; `None` at the end of the list.
fn attribute(
    order: Order,
    bytes: &[u8],
    at: usize,
    place: Location,
) -> Result<Option<(usize, Xattr)>, FsError> {
    let lost = || truncated(place);
    let (len, space, pad, name_len) = match order {
        Order::Little => {
            let head: ExtattrHead<LE> = parse(bytes, at).ok_or_else(lost)?;
            (head.ea_length.get(), head.ea_namespace, head.ea_contentpadlen, head.ea_namelength)
        }
        Order::Big => {
            let head: ExtattrHead<BE> = parse(bytes, at).ok_or_else(lost)?;
            (head.ea_length.get(), head.ea_namespace, head.ea_contentpadlen, head.ea_namelength)
        }
    };
    if len == 0 {
        return Ok(None);
    }
    let base = (HEAD + usize::from(name_len)).next_multiple_of(8);
    let len = index(len);
    let value_len = len.checked_sub(base).and_then(|rest| rest.checked_sub(usize::from(pad)));
    let value_len = value_len.ok_or_else(|| invalid("ea_length", wide(len), place))?;
    let name = slice(bytes, at + HEAD, usize::from(name_len)).ok_or_else(lost)?;
    let value = slice(bytes, at + base, value_len).ok_or_else(lost)?;
    let prefix: &[u8] = match space {
        1 => b"user.",
        2 => b"system.",
        other => return Err(invalid("ea_namespace", u64::from(other), place)),
    };
    let xattr = Xattr { name: [prefix, name].concat(), value: value.to_vec() };
    Ok(Some((len, xattr)))
}
