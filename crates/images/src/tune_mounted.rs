//! Settings and counters of mounted volumes.

use crate::error::{Error, ErrorKind};
use crate::snapshot_mounted::open_root;
use rustix::io::Errno;
use seekless_host::tuning_request::{self, Adjustment};
use std::io;
use std::path::Path;

/// Changes settings of a volume that this project has mounted for changes on a directory, all of
/// them or none.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory on which nothing is mounted, and for a value out of its
/// range; [`ErrorKind::Unsupported`] for a mount of another server, or one that is read-only, and
/// for a limit of soft updates on a volume that is not mounted with them; [`ErrorKind::System`].
pub fn adjust(mount: &Path, adjustment: &Adjustment) -> Result<(), Error> {
    let root = open_root(mount)?;
    let done = tuning_request::adjust(&root, adjustment);
    done.map_err(|error| {
        // Other file systems may return the same errors. This project's servers answer both requests.
        let is_ours = tuning_request::statistics(&root, true).is_ok();
        match refusal(&error, adjustment).filter(|_| is_ours) {
            Some(refused) => refused.about(mount.display()),
            None => failure(mount, &error),
        }
    })
}

/// Why a server of this project refuses a request. `None` for an error that is not a refusal.
fn refusal(error: &io::Error, adjustment: &Adjustment) -> Option<Error> {
    Some(match Errno::from_io_error(error)? {
        Errno::OPNOTSUPP => {
            let limits = [
                ("max_softdeps", adjustment.max_softdeps),
                ("tickdelay", adjustment.tickdelay),
                ("max_undo", adjustment.max_undo),
            ];
            let given = limits.iter().filter(|(_, value)| value.is_some());
            let names: Vec<_> = given.map(|(name, _)| *name).collect();
            let why = format!("{}: the volume is not mounted with softdep", names.join(", "));
            Error::new(ErrorKind::Unsupported, why)
        }
        // The number of a request includes its size, which grows with the settings.
        Errno::NOTTY => {
            let why = "mounted by a version of seekless with other settings: mount it again";
            Error::new(ErrorKind::Unsupported, why)
        }
        Errno::INVAL => Error::usage("a value is out of its range"),
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_its_reason() {
        let adjustment =
            Adjustment { tickdelay: Some(9), max_undo: Some(1 << 20), ..Adjustment::default() };
        let refused = |error: Errno| {
            let refused = refusal(&error.into(), &adjustment)?;
            Some((refused.kind(), refused.to_string()))
        };
        let (kind, why) = refused(Errno::OPNOTSUPP).unwrap();
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(why, "tickdelay, max_undo: the volume is not mounted with softdep");
        let (kind, why) = refused(Errno::NOTTY).unwrap();
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(why.contains("version of seekless"), "{why}");
        let (kind, why) = refused(Errno::INVAL).unwrap();
        assert_eq!((kind, why.as_str()), (ErrorKind::Usage, "a value is out of its range"));
        assert_eq!(refused(Errno::PERM), None);
    }
}
