//! Entries of directories, changed in place: a unit is a sector, so each change
//! is on the disk wholly or not at all.

use super::disk::Disk;
use crate::check::Checker;
use crate::check::fix::Spot;
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, DirectHead, ROOT, WHITEOUT};
use crate::superblock::{Order, Super};
use seekless_fs::field::{byte, index, invalid, low16, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// Bytes in front of a name.
const HEAD: usize = size_of::<DirectHead<LE>>();

/// A change of an entry.
#[derive(Clone, Copy)]
pub(super) enum Edit {
    /// It becomes unused.
    Remove,
    /// It says another kind of file.
    Retype(FileKind),
    /// All from it to the unit's end becomes unused.
    Cut,
}

/// An entry to be written.
pub(super) struct Name<'a> {
    pub(super) ino: Ino,
    /// As `d_type` has it.
    pub(super) kind: u8,
    pub(super) name: &'a [u8],
}

/// `d_type` of a kind of file.
pub(super) fn code_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

/// Bytes that an entry takes: its name is ended by a zero (`DIRECTSIZ`).
pub(super) fn needed(name: &[u8]) -> usize {
    HEAD.saturating_add(name.len()).saturating_add(1).next_multiple_of(4)
}

/// Writes an entry of `len` bytes at byte `at` of a unit.
pub(super) fn put_entry(sb: &Super, unit: &mut [u8], at: usize, len: usize, entry: &Name<'_>) {
    let to = unit.get_mut(at..at.saturating_add(len)).unwrap_or_default();
    let used = needed(entry.name).min(to.len());
    to.iter_mut().take(used).for_each(|byte| *byte = 0);
    sb.order.put_u32(to, offset_of!(DirectHead<LE>, d_ino), entry.ino.get());
    put_len(sb, to, 0, len);
    let name_len = u8::try_from(entry.name.len()).unwrap_or(u8::MAX);
    put_kind(sb, to, 0, entry.kind, name_len);
    let field = to.get_mut(HEAD..).unwrap_or_default();
    field.iter_mut().zip(entry.name).for_each(|(to, &byte)| *to = byte);
}

/// Sets how long the entry at byte `at` is.
pub(super) fn put_len(sb: &Super, unit: &mut [u8], at: usize, len: usize) {
    let at = at.saturating_add(offset_of!(DirectHead<LE>, d_reclen));
    sb.order.put_u16(unit, at, low16(byte(len)));
}

/// Kind and length of a name: without kinds the length takes both bytes.
fn put_kind(sb: &Super, unit: &mut [u8], at: usize, kind: u8, name_len: u8) {
    let (first, second) = match (sb.typed_entries, sb.order) {
        (true, _) => (kind, name_len),
        (false, Order::Little) => (name_len, 0),
        (false, Order::Big) => (0, name_len),
    };
    let places = [(offset_of!(DirectHead<LE>, d_type), first), (7, second)];
    for (field, value) in places {
        if let Some(byte) = unit.get_mut(at.saturating_add(field)) {
            *byte = value;
        }
    }
}

/// An entry that is not used, from byte `at` to `end`.
pub(super) fn put_unused(sb: &Super, unit: &mut [u8], at: usize, end: usize) {
    let none = Name { ino: Ino::ZERO, kind: 0, name: b"" };
    put_entry(sb, unit, at, end.saturating_sub(at), &none);
}

/// A unit of a directory.
pub(super) struct Unit {
    /// Where it lies on the device.
    at: u64,
    pub(super) bytes: Vec<u8>,
}

impl Unit {
    /// Reads the unit that byte `at` of a directory is in.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is none.
    pub(super) fn read(
        checker: &Checker,
        disk: &Disk,
        inode: &Inode,
        at: u64,
    ) -> Result<Self, FsError> {
        let sb = checker.sb();
        let base = at.saturating_sub(at.checked_rem(wide(DIRECTORY_UNIT)).unwrap_or(0));
        let block = base.checked_div(u64::from(sb.bsize)).unwrap_or(0);
        let place = Location::of("directory").in_inode(inode.ino);
        let fsize = u64::from(sb.fsize);
        let runs = checker.volume.runs(inode, &(block..block.saturating_add(1)))?;
        let found = runs.iter().find_map(|run| {
            let start = run.lbn.get().saturating_mul(fsize);
            let into = base.checked_sub(start)?;
            let len = run.extent.len.saturating_mul(fsize);
            let on_disk = run.extent.start.get().saturating_mul(fsize);
            (into < len).then(|| on_disk.saturating_add(into))
        });
        let at = found.ok_or_else(|| invalid("directory offset", at, place))?;
        Ok(Self { at, bytes: disk.read(at, DIRECTORY_UNIT)? })
    }

    pub(super) fn write(&self, disk: &mut Disk) -> Result<(), FsError> {
        disk.put(self.at, &self.bytes)
    }

    /// Where the entries begin and end, up to where they make no sense.
    pub(super) fn entries(&self, checker: &Checker) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut at = 0usize;
        let place = Location::of("directory");
        while at < self.bytes.len() {
            let Ok(entry) = checker.volume.bare_entry_at(&self.bytes, at, place) else { break };
            found.push((at, entry.len));
            at = at.saturating_add(entry.len);
        }
        found
    }
}

/// Changes an entry in place.
///
/// # Errors
/// What the device gives.
pub(super) fn edit(
    checker: &Checker,
    disk: &mut Disk,
    spot: Spot,
    edit: Edit,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(spot.dir)?;
    let mut unit = Unit::read(checker, disk, &inode, spot.at)?;
    let at = index(spot.at.checked_rem(wide(DIRECTORY_UNIT)).unwrap_or(0));
    let sb = checker.sb();
    match edit {
        Edit::Remove => sb.order.put_u32(&mut unit.bytes, at, 0),
        Edit::Retype(kind) => {
            let at = at.saturating_add(offset_of!(DirectHead<LE>, d_type));
            if let Some(byte) = unit.bytes.get_mut(at) {
                *byte = code_of(kind);
            }
        }
        Edit::Cut => match unit.entries(checker).last() {
            Some(&(last, _)) => {
                let len = DIRECTORY_UNIT.saturating_sub(last);
                put_len(sb, &mut unit.bytes, last, len);
            }
            None => put_unused(sb, &mut unit.bytes, 0, DIRECTORY_UNIT),
        },
    }
    unit.write(disk)
}

/// Lets a directory's `..` lead elsewhere.
///
/// # Errors
/// What the device gives.
pub(super) fn set_parent(
    checker: &Checker,
    disk: &mut Disk,
    dir: Ino,
    to: Ino,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(dir)?;
    let mut unit = Unit::read(checker, disk, &inode, 0)?;
    let sb = checker.sb();
    if let Some(&(at, _)) = unit.entries(checker).get(1) {
        sb.order.put_u32(&mut unit.bytes, at, to.get());
    }
    unit.write(disk)
}

/// Puts `.` and `..` in front of the entries of the first unit. What then has no
/// room there loses its name.
///
/// # Errors
/// What the device gives.
pub(super) fn put_dots(
    checker: &Checker,
    disk: &mut Disk,
    dir: Ino,
    parent: Ino,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(dir)?;
    let mut unit = Unit::read(checker, disk, &inode, 0)?;
    let place = Location::of("directory").in_inode(dir);
    let old = unit.bytes.clone();
    let kept = unit.entries(checker).into_iter().filter_map(|(at, _)| {
        let entry = checker.volume.bare_entry_at(&old, at, place).ok()?;
        let is_kept =
            entry.ino != Ino::ZERO && entry.kind != WHITEOUT && !matches!(entry.name, b"." | b"..");
        is_kept.then_some(Name { ino: entry.ino, kind: entry.kind, name: entry.name })
    });
    let dots = [(dir, &b"."[..]), (parent, b"..")];
    let kind = code_of(FileKind::Directory);
    let dots = dots.map(|(ino, name)| Name { ino, kind, name });
    let names: Vec<Name<'_>> = dots.into_iter().chain(kept).collect();
    unit.bytes = compose(checker.sb(), &names);
    unit.write(disk)
}

/// A unit of entries, as many as there is room for.
pub(super) fn compose(sb: &Super, names: &[Name<'_>]) -> Vec<u8> {
    let mut unit = vec![0; DIRECTORY_UNIT];
    let (mut at, mut last) = (0usize, None);
    for name in names {
        let len = needed(name.name);
        if at.saturating_add(len) > DIRECTORY_UNIT {
            continue;
        }
        put_entry(sb, &mut unit, at, len, name);
        last = Some(at);
        at = at.saturating_add(len);
    }
    match last {
        Some(last) => put_len(sb, &mut unit, last, DIRECTORY_UNIT.saturating_sub(last)),
        None => put_unused(sb, &mut unit, 0, DIRECTORY_UNIT),
    }
    unit
}

/// The parent a directory should have: the one that names it, the one it says
/// itself, or the root.
pub(super) fn parent_of(checker: &Checker, dir: Ino) -> Ino {
    let root = Ino::new(ROOT);
    let Some(seen) = checker.seen.get(&dir).filter(|_| dir != root) else { return root };
    let is_dir =
        |ino: &Ino| checker.seen.get(ino).is_some_and(|seen| seen.kind == FileKind::Directory);
    let named_in = seen.named_in.map(|spot| spot.dir);
    named_in.or(seen.parent.filter(is_dir)).unwrap_or(root)
}
