//! Directories: lists of entries in units of 512 bytes that none of them
//! crosses.

use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, DirectHead, WHITEOUT};
use crate::superblock::Order;
use crate::volume::Volume;
use seekless_fs::field::{byte, index, invalid, parse, range, slice, truncated, wide};
use seekless_fs::{DirEntry, FileKind, FsError, Location};
use seekless_units::{Ino, Lbn};
use std::ops::ControlFlow;
use zerocopy::byteorder::{BE, LE};

/// Bytes of the fixed part of an entry.
const HEAD: usize = size_of::<DirectHead<LE>>();

/// An entry, used or not.
pub(crate) struct Entry<'a> {
    pub(crate) ino: Ino,
    pub(crate) name: &'a [u8],
    pub(crate) kind: u8,
    pub(crate) len: usize,
}

/// The kind an entry records (`DT_*`).
pub(crate) fn kind_of(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Fifo,
        2 => FileKind::CharDevice,
        4 => FileKind::Directory,
        6 => FileKind::BlockDevice,
        8 => FileKind::Regular,
        10 => FileKind::Symlink,
        12 => FileKind::Socket,
        _ => return None,
    })
}

impl Volume {
    /// The entry at byte `at` of a unit.
    pub(crate) fn entry_at<'a>(
        &self,
        unit: &'a [u8],
        at: usize,
        place: Location,
    ) -> Result<Entry<'a>, FsError> {
        let entry = self.bare_entry_at(unit, at, place)?;
        if entry.ino.get() >= self.sb.inodes() {
            let (ino, limit) = (u64::from(entry.ino.get()), u64::from(self.sb.inodes()));
            return Err(range("d_ino", ino, limit, place));
        }
        Ok(entry)
    }

    /// The entry at byte `at` of a unit, wherever it leads.
    pub(crate) fn bare_entry_at<'a>(
        &self,
        unit: &'a [u8],
        at: usize,
        place: Location,
    ) -> Result<Entry<'a>, FsError> {
        let lost = || truncated(place);
        let (ino, len, kind, name_len) = match self.sb.order {
            Order::Little => {
                let head: DirectHead<LE> = parse(unit, at).ok_or_else(lost)?;
                // Without types the length takes 16 bits, low byte first.
                let (kind, len) = if self.sb.typed_entries {
                    (head.d_type, head.d_namlen)
                } else {
                    (0, head.d_type)
                };
                (head.d_ino.get(), head.d_reclen.get(), kind, len)
            }
            Order::Big => {
                let head: DirectHead<BE> = parse(unit, at).ok_or_else(lost)?;
                let kind = if self.sb.typed_entries { head.d_type } else { 0 };
                (head.d_ino.get(), head.d_reclen.get(), kind, head.d_namlen)
            }
        };
        let (len, name_len) = (usize::from(len), usize::from(name_len));
        let needed = HEAD.saturating_add(name_len).next_multiple_of(4);
        let left = unit.len().saturating_sub(at);
        if len < HEAD || len & 3 != 0 || (ino != 0 && len < needed) {
            return Err(invalid("d_reclen", wide(len), place));
        }
        if len > left {
            return Err(range("d_reclen", wide(len), wide(left), place));
        }
        let name = slice(unit, at.saturating_add(HEAD), name_len).unwrap_or_default();
        if ino != 0 && name.is_empty() {
            return Err(invalid("d_namlen", 0, place));
        }
        Ok(Entry { ino: Ino::new(ino), name, kind, len })
    }

    /// Visits the entries of a directory behind cookie `after`.
    pub(crate) fn read_entries(
        &self,
        dir: &Inode,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let place = Location::of("directory").in_inode(dir.ino);
        let unit_len = wide(DIRECTORY_UNIT);
        let limit = self.sb.size.saturating_mul(u64::from(self.sb.fsize));
        if dir.len > limit || dir.len.checked_rem(unit_len) != Some(0) {
            return Err(range("di_size", dir.len, limit, place));
        }
        let bsize = u64::from(self.sb.bsize);
        let mut at = after.checked_div(unit_len).unwrap_or(0).saturating_mul(unit_len);
        while at < dir.len {
            // The rest of the block at hand.
            let into = at.checked_rem(bsize).unwrap_or(0);
            let len = bsize.saturating_sub(into).min(dir.len.saturating_sub(at));
            let mut bytes = vec![0; index(len)];
            self.read_mapped(dir, seekless_units::ByteLen::new(at), &mut bytes)?;
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = at.saturating_add(n.saturating_mul(unit_len));
                if self.unit(unit, base, after, place, visit)?.is_break() {
                    return Ok(());
                }
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Visits the entries of a unit that begins at byte `base` of its directory.
    fn unit(
        &self,
        unit: &[u8],
        base: u64,
        after: u64,
        place: Location,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FsError> {
        // A hole: a unit that no entry was ever made in.
        if unit.iter().all(|&byte| byte == 0) {
            return Ok(ControlFlow::Continue(()));
        }
        let mut at = 0;
        while at < unit.len() {
            let place = place.at_offset(byte(index(base).saturating_add(at)));
            let entry = self.entry_at(unit, at, place)?;
            at = at.saturating_add(entry.len);
            let cookie = base.saturating_add(wide(at));
            if entry.ino == Ino::ZERO || entry.kind == WHITEOUT || cookie <= after {
                continue;
            }
            let kind = kind_of(entry.kind);
            let shown = DirEntry { name: entry.name, ino: entry.ino, kind, cookie };
            if visit(shown).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The inode a name leads to, and the byte behind its entry.
    pub(crate) fn find(&self, dir: &Inode, name: &[u8]) -> Result<Option<(Ino, u64)>, FsError> {
        let mut found = None;
        self.read_entries(dir, 0, &mut |entry| {
            if entry.name == name {
                found = Some((entry.ino, entry.cookie));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The fragments of a directory up to a byte, holes left out.
    pub(crate) fn fragments(&self, dir: &Inode, end: u64) -> Result<Vec<Lbn>, FsError> {
        let last = end.div_ceil(u64::from(self.sb.bsize));
        let runs = self.runs(dir, &(0..last))?;
        Ok(runs
            .iter()
            .flat_map(|run| (0..run.extent.len).map(|n| run.lbn.saturating_add(n)))
            .collect())
    }
}
