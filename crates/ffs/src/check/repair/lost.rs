//! `lost+found`: names for unconnected inodes.

use super::directory::{Edit, edit, set_parent};
use super::folder::{self, NewName};
use super::space::RepairAllocator;
use crate::check::checker::Checker;
use crate::inode_edit::InodeMut;
use crate::ondisk::ROOT;
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

const NAME: &[u8] = b"lost+found";
/// Its mode, as in `fsck_ffs`.
const MODE: u16 = 0o1700;
/// The highest link count of an inode.
const MOST_LINKS: u64 = 32767;

/// Makes a new root directory; whether there was room.
///
/// # Errors
/// Errors of the device.
pub(super) fn make_root(checker: &Checker, disk: &mut Patches) -> Result<bool, FsError> {
    let root = Ino::new(ROOT);
    let mut space = RepairAllocator::new(checker);
    folder::create(checker, disk, &mut space, root, root, 0o755)
}

/// Gives names to files and directories. If `lost+found` is missing it is made, and if it is a file
/// its name is removed; the rest is left for the next round. Whether anything was done: there may
/// be no room.
///
/// # Errors
/// Errors of the device.
pub(super) fn connect(
    checker: &Checker,
    disk: &mut Patches,
    orphans: &[Ino],
) -> Result<bool, FsError> {
    match checker.lost_found {
        None => make(checker, disk),
        Some((slot, ino)) if !checker.is_directory(ino) => {
            edit(checker, disk, slot, Edit::Remove)?;
            Ok(true)
        }
        Some((_, ino)) => fill(checker, disk, ino, orphans),
    }
}

/// Makes `lost+found`: its block, its inode, the root's link count, which rises first, and its
/// name.
fn make(checker: &Checker, disk: &mut Patches) -> Result<bool, FsError> {
    let root = Ino::new(ROOT);
    let mut space = RepairAllocator::new(checker);
    let Some(ino) = space.inode(disk)? else { return Ok(false) };
    if !folder::create(checker, disk, &mut space, ino, root, MODE)? {
        return Ok(false);
    }
    raise(checker, disk, root, 1)?;
    let name = NewName { ino, kind: FileKind::Directory, name: NAME.to_vec() };
    Ok(folder::add(checker, disk, &mut space, root, &[name])? > 0)
}

/// Adds to a link count, and waits until that is on the disk.
fn raise(checker: &Checker, disk: &mut Patches, ino: Ino, by: u64) -> Result<(), FsError> {
    let names = checker.seen.get(&ino).map_or(0, |seen| seen.names).cast_unsigned();
    let wanted = (names + by).min(MOST_LINKS);
    debug_assert!(wanted > 0, "a file that gets a name has links");
    let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
    let said = inode.links();
    let high = u16::try_from(wanted).unwrap_or(0);
    if i64::from(said.cast_signed()) < i64::from(high) {
        inode.set_links(high);
        inode.write(disk)?;
    }
    disk.flush()
}

/// Adds the orphans: first the link counts and `..` that their names need, then the names.
fn fill(
    checker: &Checker,
    disk: &mut Patches,
    lost: Ino,
    orphans: &[Ino],
) -> Result<bool, FsError> {
    let links = checker.seen.get(&lost).map_or(0, |seen| seen.names).cast_unsigned();
    let mut room = MOST_LINKS - links.min(MOST_LINKS);
    let mut names = names(checker, lost, orphans)?;
    // No more directories than the link count can hold.
    names.retain(|name| {
        let needed = u64::from(name.kind == FileKind::Directory);
        let fits = needed <= room;
        room -= needed.min(room);
        fits
    });
    let dirs = names.iter().filter(|name| name.kind == FileKind::Directory);
    let dirs: Vec<Ino> = dirs.map(|name| name.ino).collect();
    raise(checker, disk, lost, u64::try_from(dirs.len()).unwrap_or(u64::MAX))?;
    for &dir in &dirs {
        set_parent(checker, disk, dir, lost)?;
    }
    for name in &names {
        raise(checker, disk, name.ino, 1)?;
    }
    disk.flush()?;
    Ok(folder::add(checker, disk, &mut RepairAllocator::new(checker), lost, &names)? > 0)
}

/// A name for each orphan: `#` and its inode number, with a suffix where that is taken.
fn names(checker: &Checker, lost: Ino, orphans: &[Ino]) -> Result<Vec<NewName>, FsError> {
    let mut taken: BTreeSet<Vec<u8>> = BTreeSet::new();
    let inode = checker.volume.inode(lost)?;
    checker.volume.read_entries(&inode, 0, &mut |entry| {
        taken.insert(entry.name.to_vec());
        ControlFlow::Continue(())
    })?;
    let mut names = Vec::new();
    for &ino in orphans.iter().filter(|&&ino| ino != lost) {
        let Some(kind) = checker.seen.get(&ino).map(|seen| seen.kind) else { continue };
        let tries = (0u32..).map(|n| match n {
            0 => format!("#{ino}").into_bytes(),
            n => format!("#{ino}.{n}").into_bytes(),
        });
        let free = tries.take(1000).find(|name| !taken.contains(name));
        let Some(name) = free else { continue };
        let is_new = taken.insert(name.clone());
        debug_assert!(is_new, "a name is given once");
        names.push(NewName { ino, kind, name });
    }
    Ok(names)
}
