//! How files get their names.
//!
//! Most formats have inodes, to which names in directories lead: [`InodeNames`] does
//! their operations. On a format whose directory entries are the files themselves
//! the format does them.

use crate::action::Action;
use crate::directories::index::is_own;
use crate::link_order::OrderedLinks;
use crate::recovery::Corrector;
use crate::{Format, Live};
use seekless_fs::corrections::Correction;
use seekless_fs::growth::Growth;
use seekless_fs::operate::{NewFile, Ownership, RenameMode};
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{DirEntry, FsError};
use seekless_units::{ByteLen, Extent, Ino};
use std::ops::ControlFlow;

/// A format, and how its files get their names.
pub trait Named: Format {
    /// Its namespace operations: [`InodeNames`], if it has inodes.
    type Names: Names<Self>;

    /// As [`Operate::take_snapshot`](seekless_fs::operate::Operate::take_snapshot), which by default
    /// a format does not support.
    ///
    /// # Errors
    /// As there.
    fn take_snapshot(_live: &mut Live<Self>, _ino: Ino) -> Result<(), FsError> {
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// As [`Operate::release_snapshot`](seekless_fs::operate::Operate::release_snapshot), which by
    /// default a format does not support.
    ///
    /// # Errors
    /// As there.
    fn release_snapshot(_live: &mut Live<Self>, _ino: Ino) -> Result<(), FsError> {
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// As [`Operate::snapshots`](seekless_fs::operate::Operate::snapshots), which by default a format
    /// does not support.
    ///
    /// # Errors
    /// As there.
    fn snapshots(_live: &mut Live<Self>) -> Result<Vec<SnapshotFile>, FsError> {
        Err(FsError::Unsupported("snapshots".into()))
    }

    /// As [`plan_growth`](crate::plan_growth), which by default a format does not support.
    ///
    /// # Errors
    /// As there.
    fn plan_growth(_live: &mut Live<Self>, _size: Option<ByteLen>) -> Result<Growth, FsError> {
        Err(FsError::Unsupported("growth of a volume in use".into()))
    }

    /// As [`grow`](crate::grow), which by default a format does not support.
    ///
    /// # Errors
    /// As there.
    fn grow(_live: &mut Live<Self>, _size: Option<ByteLen>) -> Result<Growth, FsError> {
        Err(FsError::Unsupported("growth of a volume in use".into()))
    }
}

/// Namespace operations. Each corresponds to the [`Operate`](seekless_fs::operate::Operate)
/// function of the same name, is called inside a cache operation, and returns the same errors.
pub trait Names<F: Named>: Sized {
    /// The inode that a name leads to.
    fn find(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError>;

    /// Makes a file.
    fn make(
        live: &mut Live<F>,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError>;

    /// Gives a file one more name.
    fn link(live: &mut Live<F>, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Removes a name that is not a directory's.
    fn unlink(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Removes an empty directory.
    fn rmdir(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<(), FsError>;

    /// Renames, within a directory or across.
    fn rename(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError>;

    /// Visits the entries of a directory behind a cookie.
    fn list(
        live: &mut Live<F>,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError>;

    /// Has a file in use on the disk, with all that is needed to find it there; the last
    /// flush is left to the caller.
    fn settle(live: &mut Live<F>, ino: Ino) -> Result<(), FsError>;

    /// Where the inode of a file lies, in a format that has them.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for a number that no inode has.
    fn inode_run(_live: &Live<F>, _ino: Ino) -> Result<Option<Extent>, FsError> {
        Ok(None)
    }

    /// Takes a file apart that has no name and is not open.
    fn destroy(live: &mut Live<F>, ino: Ino) -> Result<(), FsError>;

    /// Does an action that is ready, except frees.
    fn act(live: &mut Live<F>, action: Action) -> Result<(), FsError>;

    /// Makes a correction of a volume that is being recovered ([`Live::correct`]).
    ///
    /// # Errors
    /// [`FsError::Unsupported`], by default.
    fn correct(_live: &mut Live<F>, _correction: &Correction) -> Result<(), FsError> {
        Err(FsError::Unsupported("corrections of a volume without inodes".into()))
    }
}

/// Names that lead to inodes.
#[derive(Clone, Copy, Debug)]
pub enum InodeNames {}

impl<F: OrderedLinks> Names<F> for InodeNames {
    fn find(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let found = live.directories().find(dir, name)?.map(|slot| slot.ino);
        if let Some(ino) = found.filter(|_| !matches!(name, b"." | b"..")) {
            live.volume.note_parent(ino, dir);
        }
        Ok(found)
    }

    fn make(
        live: &mut Live<F>,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        live.namespace().make_file(dir, name, new, owner)
    }

    fn link(live: &mut Live<F>, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        live.namespace().link_file(ino, dir, name)
    }

    fn unlink(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        live.namespace().unlink_file(dir, name)
    }

    fn rmdir(live: &mut Live<F>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        live.namespace().remove_dir(dir, name)
    }

    fn rename(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        live.namespace().rename_file(from, to, mode)
    }

    fn list(
        live: &mut Live<F>,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        if !live.directories().has_dead_names() {
            return live.directories().entries_after(dir, after, visit);
        }
        let dead = live.directories().dead_in(dir, after)?;
        live.directories().entries_after(dir, after, &mut |entry| match dead.contains(&entry.ino)
            && !is_own(entry.name)
        {
            true => ControlFlow::Continue(()),
            false => visit(entry),
        })
    }

    fn settle(live: &mut Live<F>, ino: Ino) -> Result<(), FsError> {
        live.settle_names(ino)
    }

    fn inode_run(live: &Live<F>, ino: Ino) -> Result<Option<Extent>, FsError> {
        live.volume.format.inode_run(ino).map(Some)
    }

    fn destroy(live: &mut Live<F>, ino: Ino) -> Result<(), FsError> {
        live.destroy(ino)
    }

    fn act(live: &mut Live<F>, action: Action) -> Result<(), FsError> {
        match action {
            Action::DropLink(ino) => live.drop_link(ino),
            Action::DropHeld(ino) => live.links_last().drop_held(ino),
            Action::DropDirectory { ino, parent } => live.drop_directory(ino, parent),
            Action::FreeInode { ino, is_directory } => live.free_inode(ino, is_directory),
            Action::FreeRuns(runs) => live.volume.free_runs(&runs),
        }
    }

    fn correct(live: &mut Live<F>, correction: &Correction) -> Result<(), FsError> {
        Corrector::new(live).correct(correction)
    }
}
