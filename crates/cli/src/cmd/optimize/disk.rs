//! A file system in a partition of a disk: what is around it goes to the new disk as it
//! is.

use super::OptimizeArgs;
use crate::args::{Global, PlaceArgs};
use crate::failure::Failure;
use crate::image;
use crate::say::warning;
use crate::target::{Target, copy_range};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
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
        return target.device(size, global);
    }
    let old = image::device(&args.image, &PlaceArgs::default())?;
    if target.capacity().is_some_and(|capacity| capacity > old.len())
        && let Ok(Some(Table { scheme: Scheme::Gpt, .. })) = Table::read(old.as_ref())
    {
        let path = args.written().display();
        warning!(
            "{path}: is larger than the old disk; the second copy of the partition table lies \
             where that one ended, until sgdisk -e {path} moves it to the end"
        );
    }
    let (start, _) = image::partition::range(&args.image, &old, &args.place)?;
    let new = target.device(old.len(), global)?;
    let about = |error: FsError| Failure::from(error).about(args.written().display());
    let end = start.get().saturating_add(size.get());
    for (from, to) in [(0, start.get()), (end, old.len().get())] {
        copy_range(old.as_ref(), new.as_ref(), from, to).map_err(|error| about(error.into()))?;
    }
    image::part(args.written(), new, &args.place)
}
