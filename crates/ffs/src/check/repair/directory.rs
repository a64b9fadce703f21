//! Entries of directories, changed in place: a unit is a sector, so each change is on the disk as a
//! whole or not at all.

use crate::check::checker::Checker;
use crate::check::fix::DirectorySlot;
use crate::entry::{self, Entry, HEAD, INO, KIND, code_of, needed, put_len};
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, ROOT};
use crate::superblock::{Order, Super};
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;

/// A change of an entry.
#[derive(Clone, Copy)]
pub(super) enum Edit {
    /// It becomes unused.
    Remove,
    /// Its file type changes.
    Retype(FileKind),
    /// Its name ends with a zero.
    Terminate,
    /// All from it to the unit's end becomes unused.
    Cut,
}

/// An entry of a directory that a repair writes.
pub(super) struct RepairEntry<'a> {
    pub(super) ino: Ino,
    /// As `d_type` has it.
    pub(super) kind: u8,
    pub(super) name: &'a [u8],
}

impl RepairEntry<'_> {
    /// Bytes that its entry takes.
    pub(super) fn needed(&self) -> usize {
        needed(self.name.len())
    }
}

/// Writes an entry; where entries have no kinds the length of the name takes
/// both bytes.
fn put_entry(sb: &Super, unit: &mut [u8], entry: &Entry<'_>) {
    entry::put(sb.order, unit, entry);
    if !sb.typed_entries {
        let len = u8::try_from(entry.name.len()).unwrap_or(u8::MAX);
        let bytes = if sb.order == Order::Little { [len, 0] } else { [0, len] };
        let at = entry.at + KIND.0;
        let field = unit.iter_mut().skip(at);
        field.zip(bytes).for_each(|(to, byte)| *to = byte);
    }
}

/// A unit of a directory.
pub(super) struct Unit {
    /// Its place on the device.
    at: u64,
    pub(super) bytes: Vec<u8>,
}

impl Unit {
    /// Reads the unit that byte `at` of a directory is in.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is no such unit.
    pub(super) fn read(
        checker: &Checker,
        disk: &Patches,
        inode: &Inode,
        at: u64,
    ) -> Result<Self, FsError> {
        let sb = checker.sb();
        let base = at - at % wide(DIRECTORY_UNIT);
        let block = base / u64::from(sb.bsize);
        let place = Location::of("directory").in_inode(inode.ino);
        let fsize = u64::from(sb.fsize);
        let runs = checker.volume.runs(inode, &(block..block + 1))?;
        let found = runs.iter().find_map(|run| {
            let start = run.lbn.get() * fsize;
            let into = base.checked_sub(start)?;
            let len = run.extent.len * fsize;
            let on_disk = run.extent.start.get() * fsize;
            (into < len).then(|| on_disk + into)
        });
        let at = found.ok_or_else(|| invalid("directory offset", at, place))?;
        Ok(Self { at, bytes: disk.read(at, DIRECTORY_UNIT)? })
    }

    pub(super) fn write(&self, disk: &mut Patches) -> Result<(), FsError> {
        debug_assert_eq!(self.bytes.len(), DIRECTORY_UNIT, "one sector is written");
        disk.put(self.at, &self.bytes)
    }

    /// The entries, up to the first that makes no sense.
    pub(super) fn entries(&self, checker: &Checker) -> Vec<Entry<'_>> {
        let mut found: Vec<Entry<'_>> = Vec::new();
        let place = Location::of("directory");
        loop {
            let at = found.last().map_or(0, Entry::end);
            match checker.sb().bare_entry_at(&self.bytes, at, place) {
                Ok(entry) if at < self.bytes.len() => found.push(entry),
                _ => return found,
            }
        }
    }

    /// Its names, without unused entries.
    pub(super) fn names(&self, checker: &Checker) -> Vec<RepairEntry<'_>> {
        let entries = self.entries(checker).into_iter().filter(Entry::is_used);
        entries
            .map(|entry| RepairEntry { ino: entry.ino, kind: entry.kind, name: entry.name })
            .collect()
    }
}

/// Changes an entry in place.
///
/// # Errors
/// Errors of the device.
pub(super) fn edit(
    checker: &Checker,
    disk: &mut Patches,
    slot: DirectorySlot,
    edit: Edit,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(slot.dir)?;
    let mut unit = Unit::read(checker, disk, &inode, slot.at)?;
    let at = index(slot.at % wide(DIRECTORY_UNIT));
    debug_assert!(at + HEAD <= DIRECTORY_UNIT, "an entry begins at byte {at} of a unit");
    let sb = checker.sb();
    match edit {
        Edit::Remove => sb.order.put_u32(&mut unit.bytes, at + INO.0, 0),
        Edit::Retype(kind) => {
            if let Some(byte) = unit.bytes.get_mut(at + KIND.0) {
                *byte = code_of(kind);
            }
        }
        Edit::Terminate => {
            let here = |entry: &&Entry<'_>| entry.at == at;
            let found = unit.entries(checker).iter().find(here).map(|entry| {
                let name_end = entry.at + HEAD + entry.name.len();
                name_end..(entry.at + needed(entry.name.len())).min(entry.end())
            });
            if let Some(rest) = found.and_then(|rest| unit.bytes.get_mut(rest)) {
                rest.fill(0);
            }
        }
        Edit::Cut => {
            let last = unit.entries(checker).last().map(|entry| entry.at);
            match last {
                Some(last) => {
                    let len = DIRECTORY_UNIT - last;
                    put_len(sb.order, &mut unit.bytes, last, len);
                }
                None => unit.bytes = compose(sb, &[]),
            }
        }
    }
    unit.write(disk)
}

/// Sets a directory's `..`.
///
/// # Errors
/// Errors of the device.
pub(super) fn set_parent(
    checker: &Checker,
    disk: &mut Patches,
    dir: Ino,
    to: Ino,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(dir)?;
    let mut unit = Unit::read(checker, disk, &inode, 0)?;
    let sb = checker.sb();
    let at = unit.entries(checker).get(1).map(|entry| entry.at);
    if let Some(at) = at {
        sb.order.put_u32(&mut unit.bytes, at + INO.0, to.get());
    }
    unit.write(disk)
}

/// Puts `.` and `..` in front of the entries of the first unit. Entries that then have no room
/// there lose their names.
///
/// # Errors
/// Errors of the device.
pub(super) fn put_dots(
    checker: &Checker,
    disk: &mut Patches,
    dir: Ino,
    parent: Ino,
) -> Result<(), FsError> {
    let inode = checker.volume.inode(dir)?;
    let mut unit = Unit::read(checker, disk, &inode, 0)?;
    let [own, up] = entry::dots(dir, parent);
    let dots = [own, up].map(|dot| RepairEntry { ino: dot.ino, kind: dot.kind, name: dot.name });
    let kept = unit.names(checker).into_iter().filter(|name| !matches!(name.name, b"." | b".."));
    let names: Vec<RepairEntry<'_>> = dots.into_iter().chain(kept).collect();
    unit.bytes = compose(checker.sb(), &names);
    unit.write(disk)
}

/// A unit with as many entries as fit.
pub(super) fn compose(sb: &Super, names: &[RepairEntry<'_>]) -> Vec<u8> {
    let mut unit = vec![0; DIRECTORY_UNIT];
    let (mut at, mut last) = (0usize, 0usize);
    for name in names {
        let len = name.needed();
        if at + len > DIRECTORY_UNIT {
            continue;
        }
        let entry = Entry { at, len, ino: name.ino, kind: name.kind, name: name.name };
        put_entry(sb, &mut unit, &entry);
        last = at;
        at += len;
    }
    // The last one takes the rest; if there is none, an unused one does.
    put_len(sb.order, &mut unit, last, DIRECTORY_UNIT - last);
    unit
}

/// The parent that a directory should have: the one that names it, that of its `..`, or the root.
pub(super) fn parent_of(checker: &Checker, dir: Ino) -> Ino {
    let root = Ino::new(ROOT);
    let Some(seen) = checker.seen.get(&dir).filter(|_| dir != root) else { return root };
    let is_dir =
        |ino: &Ino| checker.seen.get(ino).is_some_and(|seen| seen.kind == FileKind::Directory);
    let named_in = seen.named_in.map(|slot| slot.dir);
    named_in.or(seen.parent.filter(is_dir)).unwrap_or(root)
}
