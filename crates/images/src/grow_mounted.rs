//! Growth of mounted volumes.

use crate::error::{Error, ErrorKind};
use crate::snapshot_mounted::open_root;
use rustix::io::Errno;
use seekless_fs::FsError;
use seekless_fs::growth::Growth;
use seekless_host::growth_request::{self, Answer, Asked, Grown, Refused};
use seekless_units::ByteLen;
use std::path::Path;

/// The kinds of errors that a server answers with, by their numbers, from 1 on.
const KINDS: [ErrorKind; 5] = [
    ErrorKind::Usage,
    ErrorKind::Corrupt,
    ErrorKind::Unsupported,
    ErrorKind::NoSpace,
    ErrorKind::System,
];

/// A growth that a server was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The size of the volume; that of its device if `None`.
    pub size: Option<ByteLen>,
    /// Whether it is planned, and not made.
    pub dry_run: bool,
}

/// Has a volume that this project has mounted for changes on a directory become larger.
///
/// # Errors
/// Those of [`grow`](crate::growth::grow); [`ErrorKind::Usage`] for a directory on which nothing is
/// mounted; [`ErrorKind::Unsupported`] for a mount of another server, and one that is read-only.
pub(crate) fn grow(mount: &Path, wanted: Wanted) -> Result<Growth, Error> {
    let root = open_root(mount)?;
    let asked = Asked { size: wanted.size.map(ByteLen::get), dry_run: wanted.dry_run };
    let answer = growth_request::grow(&root, asked).map_err(|error| {
        let failed = match Errno::from_io_error(&error) {
            Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let what = "not a volume that this version of seekless has mounted with rw";
                Error::new(ErrorKind::Unsupported, what)
            }
            _ => return Error::io(mount.display(), &error),
        };
        failed.about(mount.display())
    })?;
    growth_of(answer).map_err(|error| error.about(mount.display()))
}

/// A request that a server has received, from its bytes.
#[must_use]
pub fn decode(request: &[u8]) -> Option<Wanted> {
    let Asked { size, dry_run } = Asked::decode(request)?;
    Some(Wanted { size: size.map(ByteLen::new), dry_run })
}

/// The bytes of a server's answer.
#[must_use]
pub fn encode(done: Result<Growth, FsError>) -> Vec<u8> {
    growth_request::encode(&answer_of(done))
}

fn answer_of(done: Result<Growth, FsError>) -> Answer {
    let growth = done.map_err(|error| {
        let error = match error {
            FsError::Invalid(what) => Error::usage(what),
            error => Error::from(error),
        };
        let kind = KINDS.iter().position(|&kind| kind == error.kind());
        let kind = kind.expect("every kind has a number") as u64 + 1;
        Refused { kind, why: error.to_string() }
    })?;
    Ok(Grown {
        bytes_before: growth.before.get(),
        bytes: growth.after.get(),
        groups_before: growth.groups_before.into(),
        groups: growth.groups_after.into(),
        summary_moves: growth.moves_summary,
        unused: growth.unused.get(),
    })
}

fn growth_of(answer: Answer) -> Result<Growth, Error> {
    let wrong = || Error::new(ErrorKind::System, "an answer of another version of seekless");
    let grown = answer.map_err(|Refused { kind, why }| {
        let number = usize::try_from(kind).ok().and_then(|kind| kind.checked_sub(1));
        match number.and_then(|number| KINDS.get(number)) {
            Some(&kind) => Error::new(kind, why),
            None => wrong(),
        }
    })?;
    let groups = |count: u64| u32::try_from(count).map_err(|_| wrong());
    Ok(Growth {
        before: ByteLen::new(grown.bytes_before),
        after: ByteLen::new(grown.bytes),
        groups_before: groups(grown.groups_before)?,
        groups_after: groups(grown.groups)?,
        moves_summary: grown.summary_moves,
        unused: ByteLen::new(grown.unused),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_and_its_words() {
        let sent = |error: FsError| {
            let error = growth_of(answer_of(Err(error))).unwrap_err();
            (error.kind(), error.to_string())
        };
        let no_space = FsError::NoSpace("the device has 7 bytes".into());
        let (kind, why) = sent(no_space);
        assert_eq!(kind, ErrorKind::NoSpace);
        assert!(why.contains("the device has 7 bytes"), "{why}");
        let (kind, why) = sent(FsError::Invalid("too large".into()));
        assert_eq!((kind, why.as_str()), (ErrorKind::Usage, "too large"));
        assert_eq!(sent(FsError::Unsupported("snapshots".into())).0, ErrorKind::Unsupported);
        let unknown = Err(Refused { kind: 77, why: String::new() });
        assert_eq!(growth_of(unknown).unwrap_err().kind(), ErrorKind::System);
    }

    #[test]
    fn a_growth_arrives_as_it_was_made() {
        let growth = Growth {
            before: ByteLen::new(1 << 30),
            after: ByteLen::new(3 << 30),
            groups_before: 2,
            groups_after: 5,
            moves_summary: true,
            unused: ByteLen::new(512),
        };
        assert_eq!(growth_of(answer_of(Ok(growth.clone()))).unwrap(), growth);
        let too_many = Grown {
            bytes_before: 0,
            bytes: 0,
            groups_before: 0,
            groups: 1 << 32,
            summary_moves: false,
            unused: 0,
        };
        assert_eq!(growth_of(Ok(too_many)).unwrap_err().kind(), ErrorKind::System);
    }
}
