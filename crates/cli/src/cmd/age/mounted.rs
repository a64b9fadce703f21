//! Ageing a file system that the kernel has mounted.

use super::{Outcome, Run};
use crate::failure::{Failure, Kind};
use seekless_fs::FsError;
use seekless_host::fiemap::{self, MappedExtent, flag};
use seekless_host::{HostError, caches, mounts};
use seekless_lab::age::Room;
use seekless_lab::age::mounted::{Kernel, MountedSubject};
use seekless_lab::age::score::ByteRun;
use seekless_units::ByteLen;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Queries of the kernel about a directory's file system.
struct Live {
    dir: PathBuf,
    /// Whether FIEMAP works here; not tried again after it has failed.
    tells: bool,
}

pub(super) fn run(run: &Run<'_>, dir: &Path) -> Result<Outcome, Failure> {
    if !dir.is_dir() {
        return Err(Failure::new(Kind::System, format!("{}: not a directory", dir.display())));
    }
    if !run.args.any_directory {
        check_mount_point(dir)?;
    }
    let into = dir.join(run.args.into.as_deref().unwrap_or("aged"));
    let live = Live { dir: dir.into(), tells: true };
    let mut subject = MountedSubject::new(into, live).map_err(super::occupied)?;
    let about = |failure: Failure| failure.about(dir.display());
    let (aged, took) = run.age(&mut subject).map_err(|error| about(error.into()))?;
    Ok(Outcome { aged, free: None, took })
}

/// Refuses a directory on which nothing is mounted: the run would fill the file system that
/// contains it, which may be the machine's root.
fn check_mount_point(dir: &Path) -> Result<(), Failure> {
    let whole = dir.canonicalize().map_err(|error| Failure::io(dir.display(), &error))?;
    if mounts::all()?.iter().any(|mount| mount.dir == whole) {
        return Ok(());
    }
    let at = mounts::holding(&whole)?.dir;
    Err(Failure::usage(format!(
        "{}: not a mount point; it is on the file system mounted at {} (use --any-directory to age that)",
        dir.display(),
        at.display()
    )))
}

fn failed(error: HostError) -> FsError {
    FsError::io(error.what, error.source)
}

impl Kernel for Live {
    fn room(&mut self) -> Result<Room, FsError> {
        let told = rustix::fs::statvfs(&self.dir);
        let told =
            told.map_err(|errno| FsError::io(self.dir.display().to_string(), errno.into()))?;
        let bytes = |blocks: u64| ByteLen::new(blocks * told.f_frsize);
        Ok(Room {
            used: bytes(told.f_blocks.saturating_sub(told.f_bfree)),
            available: bytes(told.f_bavail),
            unit: ByteLen::new(told.f_frsize),
            // File systems that create inodes on demand report 0.
            free_inodes: (told.f_files > 0).then_some(told.f_favail),
        })
    }

    fn settle(&mut self) -> Result<(), FsError> {
        if self.tells { caches::write_back(&self.dir).map_err(failed) } else { Ok(()) }
    }

    fn runs(&mut self, path: &Path) -> Result<Option<Vec<ByteRun>>, FsError> {
        if !self.tells {
            return Ok(None);
        }
        match fiemap::extents(path) {
            Ok(extents) => Ok(placed(&extents)),
            Err(error) if error.source.kind() == ErrorKind::Unsupported => {
                crate::say::warning!(
                    "{}: {}; no layout score is available",
                    self.dir.display(),
                    error.source
                );
                self.tells = false;
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// The runs; `None` if an extent has no location on the disk.
fn placed(extents: &[MappedExtent]) -> Option<Vec<ByteRun>> {
    let run = |extent: &MappedExtent| {
        let (at, len) = (ByteLen::new(extent.physical), ByteLen::new(extent.len));
        (extent.flags & flag::NOWHERE == 0).then_some(ByteRun { at, len })
    };
    extents.iter().map(run).collect()
}
