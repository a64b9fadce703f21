//! The kernel's caches (`/proc/sys/vm/drop_caches`).

use crate::HostError;
use std::fs;
use std::path::Path;

/// What is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// Names and inodes.
    Names,
    /// Names, inodes and clean pages.
    All,
}

/// Writes back what is dirty of the file system that holds `path`.
///
/// # Errors
/// When the path is not there, or the writes fail.
pub fn write_back(path: &Path) -> Result<(), HostError> {
    let failed = |error| HostError::new(format!("writing back {}", path.display()), error);
    let file = fs::File::open(path).map_err(failed)?;
    rustix::fs::syncfs(&file).map_err(|error| failed(error.into()))
}

/// Drops what is clean and not in use, of the whole machine.
///
/// # Errors
/// When this process may not.
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
