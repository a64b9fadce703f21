//! New names in a directory, and new directories.

use super::directory::{RepairEntry, Unit, compose};
use super::space::RepairAllocator;
use crate::check::checker::Checker;
use crate::entry::{self, code_of};
use crate::inode_edit::{InodeMut, put_pointer};
use crate::ondisk::{DIRECT, DIRECTORY_UNIT};
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// A name to be added.
#[derive(Clone, Debug)]
pub(super) struct NewName {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) name: Vec<u8>,
}

impl NewName {
    fn as_entry(&self) -> RepairEntry<'_> {
        RepairEntry { ino: self.ino, kind: code_of(self.kind), name: &self.name }
    }
}

/// Writes a new directory's block and inode; it has no name yet. Whether there was room.
///
/// # Errors
/// Errors of the device.
pub(super) fn create(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    ino: Ino,
    parent: Ino,
    mode: u16,
) -> Result<bool, FsError> {
    let sb = checker.sb();
    let Some(run) = space.block_or_part(disk)? else { return Ok(false) };
    let dots = entry::dots(ino, parent);
    let dots = dots.map(|dot| RepairEntry { ino: dot.ino, kind: dot.kind, name: dot.name });
    let len = run.len * u64::from(sb.fsize);
    let mut bytes = compose(sb, &dots);
    let unused = compose(sb, &[]);
    while wide(bytes.len()) < len {
        bytes.extend(&unused);
    }
    debug_assert_eq!(wide(bytes.len()), len, "the units fill their fragments");
    disk.put(run.start.get() * u64::from(sb.fsize), &bytes)?;
    disk.flush()?;
    let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
    inode.clear();
    inode.set_mode(FileKind::Directory.mode_bits() | mode);
    inode.set_links(2);
    inode.set_len(len);
    inode.set_pointer(0, run.start.get());
    inode.set_sectors(len / 512);
    inode.set_times(sb.tuning.time);
    inode.write(disk)?;
    disk.flush()?;
    Ok(true)
}

/// Adds names to a directory; returns how many fitted.
///
/// # Errors
/// Errors of the device.
pub(super) fn add(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    dir: Ino,
    names: &[NewName],
) -> Result<usize, FsError> {
    let inode = checker.volume.inode(dir)?;
    let mut done = 0usize;
    for at in (0..inode.len).step_by(DIRECTORY_UNIT) {
        let left = names.get(done..).unwrap_or_default();
        if left.is_empty() {
            return Ok(done);
        }
        let mut unit = Unit::read(checker, disk, &inode, at)?;
        done += fill(checker, &mut unit, left);
        unit.write(disk)?;
    }
    while let Some(left) = names.get(done..).filter(|left| !left.is_empty()) {
        disk.flush()?;
        match grow(checker, disk, space, dir, left)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

/// Adds as many names to a unit as fit.
fn fill(checker: &Checker, unit: &mut Unit, names: &[NewName]) -> usize {
    let mut all = unit.names(checker);
    // With zeros behind the names they may need more than they have.
    let used: usize = all.iter().map(RepairEntry::needed).sum();
    let count = fitting(names, DIRECTORY_UNIT - used.min(DIRECTORY_UNIT));
    if count > 0 {
        all.extend(names.iter().take(count).map(NewName::as_entry));
        unit.bytes = compose(checker.sb(), &all);
    }
    count
}

/// How many of the names fit into `room` bytes.
fn fitting(names: &[NewName], room: usize) -> usize {
    let mut left = room;
    let fits = |name: &&NewName| match left.checked_sub(name.as_entry().needed()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    names.iter().take_while(fits).count()
}

/// Units with the names, at most `most`; and how many names went in.
fn units(checker: &Checker, names: &[NewName], most: usize) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut done = 0usize;
    for _ in 0..most {
        let left = names.get(done..).unwrap_or_default();
        let count = fitting(left, DIRECTORY_UNIT);
        let entries: Vec<RepairEntry<'_>> =
            left.iter().take(count).map(NewName::as_entry).collect();
        bytes.extend(compose(checker.sb(), &entries));
        done += count;
    }
    (bytes, done)
}

/// Extends a directory to the end of a block, new or its last, with names in it; returns how many.
/// The block is written before the inode leads to it.
fn grow(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    dir: Ino,
    names: &[NewName],
) -> Result<usize, FsError> {
    let sb = checker.sb();
    let bsize = u64::from(sb.bsize);
    // It may have grown since it was checked.
    let mut raw = InodeMut::read(&checker.volume, disk, dir)?;
    let len = raw.len();
    let (lbn, into) = (len / bsize, len % bsize);
    let inode = checker.volume.inode(dir)?;
    let Some(run) = space.block(disk)? else { return Ok(0) };
    let mut bytes = vec![0; index(into)];
    if into > 0 {
        let first = lbn * bsize;
        for (n, to) in bytes.chunks_mut(DIRECTORY_UNIT).enumerate() {
            let at = first + wide(n * DIRECTORY_UNIT);
            to.copy_from_slice(&Unit::read(checker, disk, &inode, at)?.bytes);
        }
    }
    let room = index(bsize - into) / DIRECTORY_UNIT;
    let (new, count) = units(checker, names, room);
    bytes.extend(new);
    debug_assert_eq!(wide(bytes.len()), bsize, "the directory ends with a block");
    disk.put(run.start.get() * u64::from(sb.fsize), &bytes)?;
    disk.flush()?;
    let Some(indirect) = lead_to(checker, disk, space, &mut raw, lbn, run)? else {
        return Ok(0);
    };
    let held = into.div_ceil(u64::from(sb.fsize));
    let frags = u64::from(sb.frag) - held + indirect;
    let (said, more) = (raw.sectors(), frags * u64::from(sb.fsize / 512));
    let place = Location::of("inode").in_inode(dir);
    let sectors = said.checked_add(more).ok_or_else(|| invalid("di_blocks", said, place))?;
    raw.set_sectors(sectors);
    raw.set_len((lbn + 1) * bsize);
    raw.write(disk)?;
    disk.flush()?;
    Ok(count)
}

/// Sets the number of a directory's block; returns the fragments of a new indirect block, or `None`
/// when there is no room for the number.
fn lead_to(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    raw: &mut InodeMut<'_>,
    lbn: u64,
    run: Extent,
) -> Result<Option<u64>, FsError> {
    let sb = checker.sb();
    if lbn < wide(DIRECT) {
        raw.set_pointer(index(lbn), run.start.get());
        return Ok(Some(0));
    }
    let n = lbn - wide(DIRECT);
    if n >= sb.pointers() {
        return Ok(None);
    }
    let (block, taken, mut bytes) = match raw.pointer(DIRECT) {
        0 => {
            let Some(block) = space.block(disk)? else { return Ok(None) };
            (block.start.get(), block.len, vec![0; index(sb.bsize)])
        }
        block => {
            let place = Location::of("indirect block").in_block(BlockNo::new(block));
            let run = Extent::new(BlockNo::new(block), u64::from(sb.frag));
            checker.volume.check_extent(run, place)?;
            (block, 0, disk.read(block * u64::from(sb.fsize), index(sb.bsize))?)
        }
    };
    let at = index(n * u64::from(sb.pointer_size()));
    put_pointer(sb, &mut bytes, at, run.start.get());
    disk.put(block * u64::from(sb.fsize), &bytes)?;
    disk.flush()?;
    raw.set_pointer(DIRECT, block);
    Ok(Some(taken))
}
