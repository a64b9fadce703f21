//! Settings and counters of mounted volumes.

use crate::error::{Error, ErrorKind};
use crate::snapshot_mounted::open_root;
use rustix::io::Errno;
use seekless_host::tuning_request::{self, Adjustment};
use std::io;
use std::path::Path;

/// Changes settings of a volume that this project has mounted for changes on a directory.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory on which nothing is mounted; [`ErrorKind::Unsupported`] for a
/// mount of another server, or one that is read-only; [`ErrorKind::System`].
pub fn adjust(mount: &Path, adjustment: &Adjustment) -> Result<(), Error> {
    let done = tuning_request::adjust(&open_root(mount)?, adjustment);
    done.map_err(|error| failure(mount, &error))
}

/// Its settings and counters, as its server shows them: as text, or as JSON.
///
/// # Errors
/// As [`adjust`].
pub fn statistics(mount: &Path, json: bool) -> Result<String, Error> {
    let shown = tuning_request::statistics(&open_root(mount)?, json);
    shown.map_err(|error| failure(mount, &error))
}

fn failure(mount: &Path, error: &io::Error) -> Error {
    let failed = match Errno::from_io_error(error) {
        Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let what = "not a volume that seekless has mounted with rw";
            Error::new(ErrorKind::Unsupported, what)
        }
        _ => return Error::io(mount.display(), error),
    };
    failed.about(mount.display())
}
