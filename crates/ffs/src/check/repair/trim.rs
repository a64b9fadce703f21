//! Drops block numbers past a file's end, and cuts files to the last block they have.

use crate::check::claims::ClaimedTree;
use crate::inode::Inode;
use crate::inode_edit::{InodeMut, put_pointer};
use crate::ondisk::DIRECT;
use crate::volume::Volume;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// Sets a length of a file, no greater than its own, and drops the block numbers past it: first in
/// its indirect blocks, then in the inode.
///
/// # Errors
/// Errors of the device.
pub(super) fn trim(volume: &Volume, disk: &mut Patches, ino: Ino, len: u64) -> Result<(), FsError> {
    let inode = volume.inode(ino)?;
    let sb = &volume.sb;
    debug_assert!(len <= inode.len);
    let blocks = len.div_ceil(u64::from(sb.bsize));
    let mut raw = InodeMut::read(volume, disk, ino)?;
    if let Some(kept) = sb.numbers_kept(&inode) {
        for n in kept..DIRECT + inode.indirect.len() {
            raw.set_pointer(n, 0);
        }
        trim_attributes(volume, &inode, &mut raw);
        return raw.write(disk);
    }
    for n in 0..DIRECT {
        if wide(n) >= blocks {
            raw.set_pointer(n, 0);
        }
    }
    let (mut first, mut span) = (wide(DIRECT), 1u64);
    for ((n, levels), &block) in (DIRECT..).zip(1u32..).zip(&inode.indirect) {
        span *= sb.pointers();
        if first >= blocks {
            raw.set_pointer(n, 0);
        } else if block != 0 && first + span > blocks {
            trim_tree(volume, disk, ClaimedTree { block, first, span, levels }, blocks)?;
        }
        first += span;
    }
    trim_attributes(volume, &inode, &mut raw);
    if len < inode.len {
        raw.set_len(len);
    }
    disk.flush()?;
    raw.write(disk)
}

fn trim_attributes(volume: &Volume, inode: &Inode, raw: &mut InodeMut<'_>) {
    let bsize = u64::from(volume.sb.bsize);
    for n in 0..inode.ext_blocks.len() {
        if wide(n) * bsize >= u64::from(inode.ext_len) {
            raw.set_attribute_block(n, 0);
        }
    }
}

fn trim_tree(
    volume: &Volume,
    disk: &mut Patches,
    tree: ClaimedTree,
    blocks: u64,
) -> Result<(), FsError> {
    let sb = &volume.sb;
    debug_assert!(tree.first < blocks, "some of what it maps stays");
    let start = BlockNo::new(tree.block);
    let place = Location::of("indirect block").in_block(start);
    volume.check_extent(Extent::new(start, u64::from(sb.frag)), place)?;
    let at = tree.block * u64::from(sb.fsize);
    let mut bytes = disk.read(at, index(sb.bsize))?;
    let step = tree.span / sb.pointers();
    for n in 0..sb.pointers() {
        let first = tree.first + n * step;
        let number = volume.sb.pointer(&bytes, n);
        if number == 0 {
            continue;
        }
        if first >= blocks {
            let at = index(n * u64::from(sb.pointer_size()));
            put_pointer(sb, &mut bytes, at, 0);
        } else if tree.levels > 1 && first + step > blocks {
            let levels = tree.levels - 1;
            trim_tree(
                volume,
                disk,
                ClaimedTree { block: number, first, span: step, levels },
                blocks,
            )?;
        }
    }
    disk.put(at, &bytes)
}
