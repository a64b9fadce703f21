//! The kernel's caches (`/proc/sys/vm/drop_caches`).

use crate::HostError;
use std::fs;
use std::path::Path;

/// The caches to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// Names and inodes.
    Names,
    /// Names, inodes and clean pages.
    All,
}

/// Writes back the dirty pages and metadata of the file system that contains `path`.
///
/// # Errors
/// If the path does not exist or the writes fail.
pub fn write_back(path: &Path) -> Result<(), HostError> {
    let failed = |error| HostError::new(format!("writing back {}", path.display()), error);
    let file = fs::File::open(path).map_err(failed)?;
    rustix::fs::syncfs(&file).map_err(|error| failed(error.into()))
}

/// Drops clean entries that are not in use, on the whole machine.
///
/// # Errors
/// If this process lacks the right to.
pub fn drop_clean(caches: Caches) -> Result<(), HostError> {
    let what = match caches {
        Caches::Names => "2",
        Caches::All => "3",
    };
    let path = "/proc/sys/vm/drop_caches";
    fs::write(path, what).map_err(|error| {
        HostError::new(path, error)
            .advise_rights("dropping caches needs root in the first user namespace")
    })
}
