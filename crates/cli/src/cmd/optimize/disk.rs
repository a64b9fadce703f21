//! A file system in a partition of a disk: what is around it goes to the new disk as it
//! is.

use super::OptimizeArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::warning;
use seekless_device::BlockDevice;
use seekless_images::Place;
use seekless_images::target::{Target, copy_of_table, copy_range};
use seekless_partition::{Scheme, Table};
use seekless_units::ByteLen;
use std::sync::Arc;

/// Where the new file system is written, which has `size` bytes. Of a disk all that is
/// not its partition's is copied.
pub(super) fn new_device(
    args: &OptimizeArgs,
    target: &Target,
    size: ByteLen,
    global: &Global,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    if !args.place.is_part() {
        return Ok(target.device(size, &progress::shown(global))?);
    }
    let old = seekless_images::device(&args.image, &Place::default())?;
    if target.capacity().is_some_and(|capacity| capacity > old.len())
        && let Ok(Some(Table { scheme: Scheme::Gpt, .. })) = Table::read(old.as_ref())
    {
        let path = args.written().display();
        warning!(
            "{path}: is larger than the old disk; the second copy of the partition table lies \
             where that one ended, until sgdisk -e {path} moves it to the end"
        );
    }
    let (start, len) = seekless_images::partition::range(&args.image, &old, &args.place.place())?;
    let new = target.device(old.len(), &progress::shown(global))?;
    let end = start.get().saturating_add(size.get());
    let (from, to) = ((old.as_ref(), &*args.image), (new.as_ref(), args.written()));
    copy_range(from, to, 0, start.get())?;
    copy_range(from, to, end, copy_of_table(old.as_ref(), start.get() + len.get()))?;
    Ok(seekless_images::part(args.written(), new, &args.place.place())?)
}

/// Completes a disk when its file system is written: with the second copy of its partition
/// table, which would make a disk of what is not complete.
pub(super) fn complete(args: &OptimizeArgs, target: &Target) -> Result<(), Failure> {
    let Some(new) = target.written().filter(|_| args.place.is_part()) else { return Ok(()) };
    let old = seekless_images::device(&args.image, &Place::default())?;
    let (start, len) = seekless_images::partition::range(&args.image, &old, &args.place.place())?;
    let from = copy_of_table(old.as_ref(), start.get() + len.get());
    let both = ((old.as_ref(), &*args.image), (new.as_ref(), args.written()));
    Ok(copy_range(both.0, both.1, from, old.len().get())?)
}
