//! A file system in a partition of a disk: what is around it goes to the new disk as it
//! is.

use super::OptimizeArgs;
use crate::args::{Global, PlaceArgs};
use crate::failure::Failure;
use crate::image;
use crate::target::Target;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};
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
    let (start, _) = image::partition::range(&args.image, &old, &args.place)?;
    let new = target.device(old.len(), global)?;
    let about = |error: FsError| Failure::from(error).about(args.written().display());
    let end = start.get().saturating_add(size.get());
    for (from, to) in [(0, start.get()), (end, old.len().get())] {
        copy_range(old.as_ref(), new.as_ref(), from, to).map_err(|error| about(error.into()))?;
    }
    image::part(args.written(), new, &args.place)
}

/// Copies bytes `from..to`, each of them the first of a sector, to a device of zeros.
fn copy_range(
    old: &dyn BlockDevice,
    new: &dyn BlockDevice,
    from: u64,
    to: u64,
) -> Result<(), DeviceError> {
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(buf.len());
        let (part, lba) = (&mut buf[..len], Lba::containing(ByteLen::new(at)));
        old.read(lba, part)?;
        if part.iter().any(|&byte| byte != 0) {
            new.write(lba, part)?;
        }
        at += len as u64;
    }
    Ok(())
}
