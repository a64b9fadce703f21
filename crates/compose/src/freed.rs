//! Free blocks that contain the bytes of an older volume, so that their chunks are equal.
//!
//! A kernel does not overwrite the blocks of files that are removed or replaced, either.

use seekless_device::{BlockDevice, DeviceError, Masked};
use seekless_fs::FsError;
use seekless_fs::extents::{difference, intersection};
use seekless_fs::plan::{NewVolume, ObjectId, Placed, Plan};
use seekless_units::{BlockNo, ByteLen, Extent, Lba, SECTOR};
use std::ops::Range;

/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

/// The contents of blocks whose files were replaced or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Freed {
    /// Zeros.
    #[default]
    Zero,
    /// Those that they had; they can be read from the image.
    Keep,
}

/// The blocks of a volume that its plan leaves free, sorted.
pub(crate) fn free_blocks(volume: &dyn NewVolume, plan: &Plan) -> Vec<Extent> {
    difference(&volume.space().free, &plan.extents())
}

/// Copies the bytes of blocks that a plan leaves free from an older volume; blocks of zeros are left
/// out.
///
/// # Errors
/// In the first place an error of reading, in the second one of writing.
pub(crate) fn copy(
    old: &dyn BlockDevice,
    (volume, plan): (&dyn NewVolume, &Plan),
    device: &dyn BlockDevice,
) -> Result<(), Copying> {
    let (block, origin) = (u64::from(volume.block_size()), volume.origin().get());
    let end = old.len().get().min(device.len().get()).max(origin);
    let end = end - (end - origin) % block;
    let mut buf = vec![0; PIECE as usize];
    for run in free_blocks(volume, plan) {
        let byte = |number: BlockNo| origin + number.get() * block;
        let (mut at, stop) = (byte(run.start), byte(run.end()).min(end));
        while at < stop {
            let piece = &mut buf[..PIECE.min(stop - at) as usize];
            old.read(Lba::containing(ByteLen::new(at)), piece).map_err(Copying::Read)?;
            for (number, bytes) in (0..).zip(piece.chunks(block as usize)) {
                if bytes.iter().any(|&byte| byte != 0) {
                    let place = ByteLen::new(at + number * block);
                    device.write(Lba::containing(place), bytes).map_err(Copying::Write)?;
                }
            }
            at += piece.len() as u64;
        }
    }
    copy_parts(old, volume, device)
}

/// Copies the bytes of free ranges; sectors of zeros are left out.
fn copy_parts(
    old: &dyn BlockDevice,
    volume: &dyn NewVolume,
    device: &dyn BlockDevice,
) -> Result<(), Copying> {
    let end = old.len().min(device.len());
    for (start, len) in volume.free_parts() {
        if start.get() + len.get() > end.get() {
            continue;
        }
        let mut bytes = vec![0; len.get() as usize];
        old.read(Lba::containing(start), &mut bytes).map_err(Copying::Read)?;
        if bytes.iter().any(|&byte| byte != 0) {
            device.write(Lba::containing(start), &bytes).map_err(Copying::Write)?;
        }
    }
    Ok(())
}

/// The side on which a copy failed.
pub(crate) enum Copying {
    Read(DeviceError),
    Write(DeviceError),
}

/// Writes those free blocks that volumes used which the new one contains; `lower` begins with the
/// oldest. A block has the bytes of the latest volume that used it.
///
/// # Errors
/// As [`NewVolume::write`].
pub(crate) fn write_lower<'a, V: NewVolume + 'a>(
    lower: impl DoubleEndedIterator<Item = (&'a V, &'a Plan)>,
    free: Vec<Extent>,
    device: &dyn BlockDevice,
) -> Result<(), FsError> {
    let mut left = free;
    for (volume, plan) in lower.rev() {
        let used = plan.extents();
        let freed = intersection(&left, &used);
        left = difference(&left, &used);
        if freed.is_empty() {
            continue;
        }
        let sectors = u64::from(volume.block_size()) / SECTOR;
        let lba = |block: BlockNo| Lba::new(block.get() * sectors);
        let parts: Vec<Range<Lba>> =
            freed.iter().map(|run| lba(run.start)..lba(run.end())).collect();
        volume.write(&of_blocks(plan, &freed), &Masked::new(device, parts), &|_| {})?;
    }
    Ok(())
}

/// The plan with the data of those objects only that have some of these blocks.
fn of_blocks(plan: &Plan, blocks: &[Extent]) -> Plan {
    let mut part = Plan::default();
    for (at, &ino) in plan.inodes.iter().enumerate() {
        let object = ObjectId::new(at as u32);
        let data = plan.data(object);
        let has_any = data.iter().any(|placed| meets(blocks, placed.extent));
        let data: &[Placed] = if has_any { data } else { &[] };
        part.push(ino, data.iter().copied(), plan.overhead_extents(object).iter().copied());
    }
    part
}

/// Whether an extent has a block in common with sorted ones.
fn meets(sorted: &[Extent], extent: Extent) -> bool {
    let at = sorted.partition_point(|run| run.end() <= extent.start);
    sorted.get(at).is_some_and(|run| run.start < extent.end())
}
