//! Block numbers that cannot stay: those that lead nowhere become holes, and blocks that another
//! file has too are copied.

use super::space::RepairAllocator;
use crate::check::checker::Checker;
use crate::check::claims::NumberPlace;
use crate::inode_edit::{InodeMut, put_pointer};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_fs::patches::Patches;
use seekless_units::{Extent, Ino};

/// Mends the map of a file: the copies are written first, then the numbers in indirect blocks and
/// in the inode. Where there is no room for a copy, the file gets a hole.
///
/// # Errors
/// Errors of the device.
pub(super) fn mend(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    ino: Ino,
) -> Result<(), FsError> {
    let sb = checker.sb();
    let wrong = checker.wrong.get(&ino).map(Vec::as_slice).unwrap_or_default();
    debug_assert!(!wrong.is_empty(), "inode {ino} has numbers that cannot stay");
    let mut numbers = Vec::new();
    for number in wrong {
        let to = match number.shared {
            Some(run) => copy(checker, disk, space, run)?,
            None => None,
        };
        numbers.push((number.at, to.map_or(0, |run| run.start.get())));
    }
    disk.flush()?;
    let mut inode = InodeMut::read(&checker.volume, disk, ino)?;
    for (at, to) in numbers {
        match at {
            NumberPlace::Inode(n) => inode.set_pointer(n, to),
            NumberPlace::Attribute(n) => inode.set_attribute_block(n, to),
            NumberPlace::Indirect(block, n) => {
                let width = u64::from(sb.pointer_size());
                let at = block.get() * u64::from(sb.fsize) + n * width;
                let mut bytes = vec![0; index(width)];
                put_pointer(sb, &mut bytes, 0, to);
                disk.put(at, &bytes)?;
            }
        }
    }
    disk.flush()?;
    inode.write(disk)
}

/// Copies fragments of a block to others; `None` where there is no room.
fn copy(
    checker: &Checker,
    disk: &mut Patches,
    space: &mut RepairAllocator<'_>,
    run: Extent,
) -> Result<Option<Extent>, FsError> {
    let Some(to) = space.fragments(run.len, disk)? else { return Ok(None) };
    let fsize = u64::from(checker.sb().fsize);
    let bytes = disk.read(run.start.get() * fsize, index(run.len * fsize))?;
    disk.put(to.start.get() * fsize, &bytes)?;
    Ok(Some(to))
}
