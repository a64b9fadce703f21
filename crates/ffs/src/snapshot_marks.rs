//! Snapshots that become ordinary files.

use crate::inode::Inode;
use crate::inode_edit::{InodeMut, put_pointer};
use crate::ondisk::DIRECT;
use crate::snapshot_map::is_mark;
use crate::volume::Volume;
use seekless_fs::field::{index, range};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_units::BlockNo;

/// Makes a snapshot an ordinary file: the marks in its map become holes, and then its flag goes, in
/// one write.
///
/// # Errors
/// [`FsError::Corrupt`] for indirect blocks outside of the volume, or more of them than it has; then
/// nothing is written. Errors of the device.
pub(crate) fn unmark(volume: &Volume, snapshot: &Inode, disk: &mut Patches) -> Result<(), FsError> {
    let sb = &volume.sb;
    let width = index(sb.pointer_size());
    for block in marked(volume, snapshot)? {
        let at = block.get() * u64::from(sb.fsize);
        let mut bytes = disk.read(at, index(sb.bsize))?;
        for n in 0..sb.pointers() {
            if is_mark(volume.sb.pointer(&bytes, n)) {
                put_pointer(sb, &mut bytes, index(n) * width, 0);
            }
        }
        disk.put(at, &bytes)?;
    }
    disk.flush()?;
    let mut inode = InodeMut::read(volume, disk, snapshot.ino)?;
    for n in (0..DIRECT).filter(|&n| is_mark(inode.pointer(n))).collect::<Vec<_>>() {
        inode.set_pointer(n, 0);
    }
    inode.unmark();
    inode.write(disk)?;
    disk.flush()
}

/// The indirect blocks of a snapshot that have marks.
fn marked(volume: &Volume, snapshot: &Inode) -> Result<Vec<BlockNo>, FsError> {
    let mut pending: Vec<(u64, u32)> = snapshot.indirect.iter().copied().zip(1..).collect();
    let mut found = Vec::new();
    let mut left = volume.sb.snapshot_blocks();
    while let Some((number, levels)) = pending.pop() {
        if number == 0 {
            continue;
        }
        let start = BlockNo::new(number);
        let place = Location::of("indirect block").in_inode(snapshot.ino).in_block(start);
        left = left.checked_sub(1).ok_or_else(|| range("indirect blocks", 1, 0, place))?;
        let block = volume.block(start, index(volume.sb.bsize), place)?;
        let mut numbers = (0..volume.sb.pointers()).map(|at| volume.sb.pointer(&block, at));
        if levels > 1 {
            pending.extend(numbers.map(|number| (number, levels - 1)));
        } else if numbers.any(is_mark) {
            found.push(start);
        }
    }
    Ok(found)
}
