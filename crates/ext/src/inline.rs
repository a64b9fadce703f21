//! Inline data: contents of small files and directories in the inode, first in
//! `i_block`, then in the value of the attribute `system.data`.

use crate::casefold::LookupName;
use crate::dir::{Directory, for_each};
use crate::inode::Inode;
use crate::ondisk::{IBlock, InodeCore, flags};
use crate::xattr;
use seekless_fs::field::{index, invalid, le32, range, truncated, wide};
use seekless_fs::{DirEntry, FileKind, FsError, Location};
use seekless_units::Ino;
use std::mem::offset_of;
use std::ops::ControlFlow;

/// Bytes of `i_block` with the parent's number of an inline directory.
pub(crate) const PARENT: usize = 4;
/// The cookies of the two entries that an inline directory does not store; stored entries follow as
/// if those two came first.
const DOT_COOKIE: u64 = 12;
const DOT_DOT_COOKIE: u64 = 24;

/// Bytes of contents in `i_block`.
pub(crate) const HEAD: usize = size_of::<IBlock>();

/// Both parts of an inode's inline data.
pub(crate) struct InlineData<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

/// Finds an inode's inline data.
pub(crate) fn find(inode: &Inode) -> Result<InlineData<'_>, FsError> {
    let tail = xattr::inline_value(inode)?;
    Ok(InlineData { head: &inode.core.i_block.0, tail: tail.unwrap_or_default() })
}

/// The place for errors of an inode's inline data.
pub(crate) fn place(ino: Ino) -> Location {
    Location::of("inline data").in_inode(ino)
}

/// Checks the inline data of an inode.
///
/// # Errors
/// [`FsError::Corrupt`] without the attribute, for a file longer than both parts, and a
/// directory that is not as long as they are.
pub(crate) fn check(inode: &Inode, kind: FileKind) -> Result<(), FsError> {
    let place = place(inode.ino);
    if inode.has_flag(flags::EXTENTS) || inode.has_flag(flags::INDEX) {
        return Err(invalid("i_flags", u64::from(inode.core.i_flags.get()), place));
    }
    let Some(value) = xattr::inline_value(inode)? else {
        return Err(invalid("system.data", 0, place));
    };
    let room = wide(HEAD + value.len());
    let fits = match kind {
        FileKind::Regular | FileKind::Symlink => inode.len <= room,
        FileKind::Directory => inode.len == room,
        _ => return Err(invalid("i_flags", u64::from(inode.core.i_flags.get()), place)),
    };
    if fits { Ok(()) } else { Err(range("i_size", inode.len, room, place)) }
}

/// The contents of an inode, as far as its length goes.
pub(crate) fn contents(inode: &Inode) -> Result<Vec<u8>, FsError> {
    let mut whole = find(inode)?.whole();
    whole.truncate(index(inode.len));
    Ok(whole)
}

impl InlineData<'_> {
    /// Both parts, one behind the other.
    pub(crate) fn whole(&self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }

    /// Copies from `offset` on; the range must lie within the inode's length.
    pub(crate) fn read(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        let room = wide(self.head.len() + self.tail.len());
        if inode.len > room {
            let place = Location::of("inline data").in_inode(inode.ino);
            return Err(range("i_size", inode.len, room, place));
        }
        let bytes = self.head.iter().chain(self.tail).skip(index(offset));
        for (to, from) in buf.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(())
    }
}

/// The stored entries of an inline directory, in two pieces; no entry crosses from one to the
/// other.
fn pieces<'a>(data: &InlineData<'a>, inode: &Inode) -> [&'a [u8]; 2] {
    let len = index(inode.len);
    let head = data.head.get(PARENT..len.min(data.head.len())).unwrap_or_default();
    let tail_len = len.saturating_sub(data.head.len()).min(data.tail.len());
    [head, data.tail.get(..tail_len).unwrap_or_default()]
}

/// The places of an inline directory's entries in its inode.
pub(crate) fn entry_ranges(inode: &Inode) -> Result<Vec<std::ops::Range<usize>>, FsError> {
    let data = find(inode)?;
    let [head, tail] = pieces(&data, inode);
    let start = offset_of!(InodeCore, i_block) + PARENT;
    let mut ranges = Vec::with_capacity(2);
    ranges.push(start..start + head.len());
    if !tail.is_empty() {
        let place = Location::of("inline directory").in_inode(inode.ino);
        // The value is a part of the inode: its offset is their distance.
        let at = tail.as_ptr().addr().checked_sub(inode.raw().as_ptr().addr());
        let at = at.ok_or_else(|| truncated(place))?;
        ranges.push(at..at + tail.len());
    }
    Ok(ranges)
}

/// Visits `.`, `..` and the stored entries after the one with cookie `after`.
pub(crate) fn read_dir(
    dir: &Directory<'_>,
    after: u64,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), FsError> {
    let place = Location::of("inline directory").in_inode(dir.inode.ino);
    let data = find(dir.inode)?;
    let parent = le32(data.head, 0).ok_or_else(|| truncated(place))?;
    let kind = Some(FileKind::Directory);
    let own = [
        DirEntry { name: b".", ino: dir.inode.ino, kind, cookie: DOT_COOKIE },
        DirEntry { name: b"..", ino: Ino::new(parent), kind, cookie: DOT_DOT_COOKIE },
    ];
    for entry in own {
        if entry.cookie > after && visit(entry).is_break() {
            return Ok(());
        }
    }
    let mut base = DOT_DOT_COOKIE;
    for piece in pieces(&data, dir.inode) {
        let flow = for_each(piece, dir.inodes(), place, &mut |entry| {
            let cookie = base + wide(entry.next);
            if cookie <= after {
                return ControlFlow::Continue(());
            }
            visit(dir.shown(&entry, cookie))
        })?;
        if flow.is_break() {
            break;
        }
        base += wide(piece.len());
    }
    Ok(())
}

/// The inode of a name in an inline directory.
pub(crate) fn lookup(dir: &Directory<'_>, wanted: &LookupName<'_>) -> Result<Option<Ino>, FsError> {
    let mut found = None;
    read_dir(dir, 0, &mut |entry| {
        if wanted.is(entry.name) {
            found = Some(entry.ino);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
