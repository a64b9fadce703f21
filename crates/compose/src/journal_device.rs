//! The device of a journal that a volume has on another one.

use crate::check::Mode;
use seekless_device::BlockDevice;
use seekless_ext::JournalUuid;
use seekless_images::{Error, Place, device_in_use, device_locked};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the journal of an ext volume at `path` that has it on another device: the `given` one, or,
/// for a volume that is a block device, the one of this machine with its UUID, as e2fsck finds it by
/// libblkid. The journal of an image is not looked for, since a repair writes to it, and an image may
/// come from anywhere.
///
/// `None` for other volumes, and where there is no such device.
///
/// # Errors
/// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) where there is none and it `is_needed`. Errors
/// of the devices.
pub(crate) fn open(
    path: &Path,
    volume: &dyn BlockDevice,
    given: Option<&Path>,
    mode: Mode,
    is_needed: bool,
) -> Result<Option<Arc<dyn BlockDevice>>, Error> {
    let about = |error| Error::from(error).about(path.display());
    let Some(uuid) = JournalUuid::of(volume).map_err(about)? else { return Ok(None) };
    let is_device = || fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let found = given.map(Path::to_path_buf).or_else(|| is_device().then(|| find(uuid))?);
    match (found, mode) {
        (Some(journal), Mode::Check) => device_in_use(&journal, &Place::default()).map(Some),
        (Some(journal), _) => device_locked(&journal, &Place::default()).map(Some),
        (None, _) if is_needed => Err(about(uuid.missing("the journal"))),
        (None, _) => Ok(None),
    }
}

/// The first block device of this machine with a journal.
fn find(uuid: JournalUuid) -> Option<PathBuf> {
    let has_it = |path: &PathBuf| {
        device_in_use(path, &Place::default()).is_ok_and(|device| uuid.is_on(device.as_ref()))
    };
    let named = PathBuf::from(format!("/dev/disk/by-uuid/{uuid}"));
    let partitions = fs::read_to_string("/proc/partitions").unwrap_or_default();
    // A heading and an empty line; major, minor, blocks, name.
    let all = partitions.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let all = all.map(|name| Path::new("/dev").join(name));
    [named].into_iter().chain(all).find(has_it)
}
