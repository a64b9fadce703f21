//! The resize inode, which keeps room for group descriptors.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::inodes::{Claims, InodePass, max_len, place};
use super::problems;
use crate::indirect;
use crate::inode::Inode;
use crate::ondisk::{compat, flags};
use seekless_fs::FsError;
use seekless_fs::field::{index, le32};
use seekless_units::{BlockNo, Extent, Ino};

/// A map of the resize inode that lists the room for descriptors.
struct ResizeMapState {
    /// The blocks that it lists are those that it counts.
    is_counted: bool,
    /// The end of the last of them in bytes, where the inode has a length that is too short or
    /// impossible.
    end: Option<u64>,
}

/// The blocks reserved for more descriptors belong to the volume, and their place follows from
/// the superblock; the resize inode owns only its double-indirect block (e2fsck,
/// `check_resize_inode`).
pub(super) fn check_resize_inode(pass: &mut InodePass<'_>, inode: &Inode) -> Result<bool, FsError> {
    let at = place(inode.ino);
    pass.attributes(inode)?;
    let led = indirect::double_block(inode)
        .map_or(Ok(None), |block| pass.checker.volume.check_block(block, at).map(|()| Some(block)));
    let led = pass.checker.sound(led, problems::INODE_BLOCK_MAP, at)?;
    let is_used = pass.checker.sb().has_compat(compat::RESIZE_INODE);
    let Some(Some(block)) = led else {
        if is_used && led.is_some() {
            pass.checker.unexpected(
                problems::INODE_BLOCK_MAP,
                "has no double-indirect block".into(),
                at,
            );
        }
        pass.checker.fix(Stage::Inodes, Fix::ResizeInode(inode.ino));
        return Ok(false);
    };
    let mut claims = Claims::default();
    pass.claim(Extent::new(block, 1), &mut claims);
    if claims.fixed > 0 {
        let what = format!("block {block} is in the metadata of the file system");
        pass.checker.found(problems::INODE_BLOCK_RANGE, what, at);
        pass.checker.fix(Stage::Inodes, Fix::ResizeInode(inode.ino));
    } else if is_used {
        let state = resize_state(pass.checker, inode, block)?;
        if !state.as_ref().is_some_and(|state| state.is_counted) {
            let what = "does not list the room for descriptors as the superblock has it";
            let is_expected = state.is_some();
            pass.checker.graded(is_expected, problems::INODE_BLOCK_MAP, what.to_string(), at);
            pass.checker.fix(Stage::Inodes, Fix::ResizeInode(inode.ino));
        } else if let Some(end) = state.and_then(|state| state.end) {
            let what = format!("{} bytes long, with blocks up to {end}", inode.len);
            pass.checker.expected(problems::INODE_LENGTH, what, at);
            pass.checker.report.set_values(inode.len, end);
            pass.checker.fix(Stage::Inodes, Fix::Length(inode.ino, end));
        }
        pass.large(inode);
    }
    Ok(false)
}

/// The state of the map of the resize inode if it is the original one, as far as e2fsck compares
/// it: the first quarter of the room for descriptors, and its other numbers only with the volume and
/// with `i_blocks`.
fn resize_state(
    checker: &Checker,
    inode: &Inode,
    double: BlockNo,
) -> Result<Option<ResizeMapState>, FsError> {
    let map = checker.resize_map();
    let size = u64::from(checker.sb().block_size);
    let numbers = inode.core.i_block.0.chunks_exact(4);
    let is_alone = numbers.filter(|number| number.iter().any(|&byte| byte != 0)).count() == 1;
    if !is_alone || inode.has_flag(flags::EXTENTS) {
        return Ok(None);
    }
    let Some(primaries) = numbers_in(checker, inode.ino, double)? else { return Ok(None) };
    let mut count = 1u64;
    let mut last = 0u64;
    let slots = size >> 2;
    for (slot, &primary) in (0u64..).zip(&primaries).filter(|(_, primary)| **primary != 0) {
        let primary = BlockNo::new(u64::from(primary));
        let Some(copies) = numbers_in(checker, inode.ino, primary)? else { return Ok(None) };
        count += 1;
        for (at, copy) in (0u64..).zip(copies).filter(|(_, copy)| *copy != 0) {
            let copy = BlockNo::new(u64::from(copy));
            if checker.volume.check_block(copy, place(inode.ino)).is_err() {
                return Ok(None);
            }
            count += 1;
            let lbn = slots + 12 + slot * slots;
            last = last.max(lbn + at + 1);
        }
    }
    let end = last * size;
    let is_wrong = inode.len < end || inode.len > max_len(checker.sb(), false);
    let checked = index(map.reserved >> 2);
    for (block, bytes) in map.blocks(double).into_iter().take(checked) {
        let Some(found) = numbers_in(checker, inode.ino, block)? else { return Ok(None) };
        let is_listed = primaries.iter().any(|&it| u64::from(it) == block.get());
        let wanted = bytes.chunks_exact(4).filter_map(|number| le32(number, 0));
        let is_same = wanted.zip(found).take(map.copies.len()).all(|(one, other)| one == other);
        if !is_listed || !is_same {
            return Ok(None);
        }
    }
    // Each block counts as a cluster.
    let sectors = count * (size >> 9) * u64::from(checker.sb().cluster_ratio);
    let is_counted = checker.volume.inodes().allocated_sectors(inode) == sectors;
    Ok(Some(ResizeMapState { is_counted, end: is_wrong.then_some(end) }))
}

/// The numbers in an indirect block; `None` where it lies outside the volume.
fn numbers_in(checker: &Checker, ino: Ino, block: BlockNo) -> Result<Option<Vec<u32>>, FsError> {
    match checker.volume.block(block, place(ino)) {
        Err(FsError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => Ok(Some(bytes.chunks_exact(4).filter_map(|number| le32(number, 0)).collect())),
    }
}
