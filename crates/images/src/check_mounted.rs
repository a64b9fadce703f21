//! Corrections of mounted volumes that were checked through a snapshot.

use crate::error::{Error, ErrorKind};
use crate::snapshot_mounted::open_root;
use rustix::io::Errno;
use seekless_fs::corrections::Correction;
use seekless_host::check_request::{self, Corrected, Encoded, MOST_CORRECTIONS};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::fs::File;
use std::io;
use std::path::Path;

/// A volume that this project has mounted for changes, to be corrected while it is in use.
pub struct MountedVolume<'a> {
    mount: &'a Path,
    root: File,
    /// The number of the check.
    check: u64,
}

impl<'a> MountedVolume<'a> {
    /// The one that is mounted on a directory, of which a check begins: the snapshot for it must be
    /// taken after this. Corrections of earlier checks are refused from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a directory on which nothing is mounted; as
    /// [`MountedVolume::correct`].
    pub fn begin_check(mount: &'a Path) -> Result<Self, Error> {
        let root = open_root(mount)?;
        let check = check_request::begin_check(&root).map_err(|error| failure(mount, &error))?;
        Ok(Self { mount, root, check })
    }

    /// Makes corrections, all of which allow renames ([`Correction::allows_renames`]). `made` is
    /// called with the number of those made last.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a mount of another server or format; [`ErrorKind::NoSpace`];
    /// [`ErrorKind::System`]. Other corrections are made.
    pub fn correct(&self, all: &[Correction], made: &dyn Fn(u64)) -> Result<(), Error> {
        let mut failed = None;
        for some in all.chunks(MOST_CORRECTIONS) {
            let encoded: Vec<Encoded> = some
                .iter()
                .map(|correction| encode(correction).expect("a correction that allows renames"))
                .collect();
            let request = Corrected { check: self.check, some: encoded };
            if let Err(error) = check_request::correct(&self.root, &request) {
                failed.get_or_insert(failure(self.mount, &error));
            }
            made(some.len() as u64);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Ends a check. A volume that is not `sound` is marked as one that must be checked when it is
    /// not in use.
    ///
    /// # Errors
    /// As [`MountedVolume::correct`].
    pub fn end_check(&self, sound: bool) -> Result<(), Error> {
        check_request::end_check(&self.root, self.check, sound)
            .map_err(|error| failure(self.mount, &error))
    }
}

fn failure(mount: &Path, error: &io::Error) -> Error {
    let failed = match Errno::from_io_error(error) {
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => {
            let what = "not a UFS volume that seekless has mounted with rw";
            Error::new(ErrorKind::Unsupported, what)
        }
        Some(Errno::NOSPC) => Error::new(ErrorKind::NoSpace, "no room for the corrections"),
        Some(Errno::CANCELED) => Error::new(ErrorKind::System, "another process checks it by now"),
        _ => return Error::io(mount.display(), error),
    };
    failed.about(mount.display())
}

/// The kinds of corrections in requests.
const DELETE: u64 = 1;
const DROP_LINKS: u64 = 2;
const SHORTEN: u64 = 3;
const SECTORS: u64 = 4;
const FREE_INODE: u64 = 5;
const FREE_RUN: u64 = 6;
const RECOUNT: u64 = 7;
const CONNECT: u64 = 8;

/// A correction as a request has it; `None` for one that does not allow renames.
fn encode(correction: &Correction) -> Option<Encoded> {
    let of_inode = |kind, ino: Ino, by: u16| Encoded { kind, of: ino.get().into(), by: by.into() };
    Some(match *correction {
        Correction::Delete(ino) => of_inode(DELETE, ino, 0),
        Correction::DropLinks { ino, by } => of_inode(DROP_LINKS, ino, by),
        Correction::Shorten(ino) => of_inode(SHORTEN, ino, 0),
        Correction::Sectors(ino) => of_inode(SECTORS, ino, 0),
        Correction::FreeInode(ino) => of_inode(FREE_INODE, ino, 0),
        Correction::FreeRun(run) => Encoded { kind: FREE_RUN, of: run.start.get(), by: run.len },
        Correction::Recount { group, surplus_directories } => Encoded {
            kind: RECOUNT,
            of: group.get().into(),
            by: surplus_directories.cast_unsigned(),
        },
        Correction::Connect { dir, missing } => of_inode(CONNECT, dir, missing),
        Correction::RemoveName { .. }
        | Correction::SetParent { .. }
        | Correction::RaiseLinks { .. } => return None,
    })
}

/// The correction of a request; `None` for what no request has.
#[must_use]
pub fn decode(encoded: Encoded) -> Option<Correction> {
    let Encoded { kind, of, by } = encoded;
    let ino = || u32::try_from(of).ok().map(Ino::new);
    let count = || u16::try_from(by).ok();
    Some(match kind {
        DELETE => Correction::Delete(ino()?),
        DROP_LINKS => Correction::DropLinks { ino: ino()?, by: count()? },
        SHORTEN => Correction::Shorten(ino()?),
        SECTORS => Correction::Sectors(ino()?),
        FREE_INODE => Correction::FreeInode(ino()?),
        FREE_RUN => Correction::FreeRun(Extent::new(BlockNo::new(of), by)),
        RECOUNT => Correction::Recount {
            group: GroupNo::new(u32::try_from(of).ok()?),
            surplus_directories: by.cast_signed(),
        },
        CONNECT => Correction::Connect { dir: ino()?, missing: count()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_correction() {
        let ino = Ino::new(4711);
        let all = [
            Correction::Delete(ino),
            Correction::DropLinks { ino, by: 3 },
            Correction::Shorten(ino),
            Correction::Sectors(ino),
            Correction::FreeInode(ino),
            Correction::FreeRun(Extent::new(BlockNo::new(1 << 40), 9)),
            Correction::Recount { group: GroupNo::new(5), surplus_directories: -2 },
            Correction::Connect { dir: ino, missing: 1 },
        ];
        for correction in all {
            assert!(correction.allows_renames());
            assert_eq!(encode(&correction).and_then(decode), Some(correction));
        }
    }

    #[test]
    fn what_does_not_allow_renames_is_in_no_request() {
        let (dir, to) = (Ino::new(2), Ino::new(3));
        for correction in [
            Correction::RemoveName { dir, name: b"a".to_vec(), ino: to },
            Correction::SetParent { dir, from: None, to },
            Correction::RaiseLinks { ino: dir, by: 1 },
        ] {
            assert!(!correction.allows_renames() && encode(&correction).is_none());
        }
        for encoded in [
            Encoded { kind: 9, of: 1, by: 1 },
            Encoded { kind: 0, of: 1, by: 1 },
            Encoded { kind: DELETE, of: 1 << 32, by: 0 },
            Encoded { kind: DROP_LINKS, of: 1, by: 1 << 16 },
        ] {
            assert_eq!(decode(encoded), None);
        }
    }
}
