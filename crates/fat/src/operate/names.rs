//! Operations on names: on FAT an entry is the file itself.

use super::format::Fat;
use super::namespace::Namespace;
use seekless_fs::operate::{NewFile, Ownership, RenameMode};
use seekless_fs::{DirEntry, FsError};
use seekless_live::{Action, Format, Live, Named, Names};
use seekless_units::Ino;
use std::ops::ControlFlow;

/// Names that are files.
#[derive(Clone, Copy, Debug)]
pub enum EntryNames {}

fn namespace(live: &mut Live<Fat>) -> Namespace<'_> {
    let (fat, core) = live.parts();
    fat.namespace(core)
}

impl Named for Fat {
    type Names = EntryNames;
}

impl Names<Fat> for EntryNames {
    fn find(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        namespace(live).find(dir, name)
    }

    fn make(
        live: &mut Live<Fat>,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        namespace(live).make(dir, name, new, owner)
    }

    fn link(_: &mut Live<Fat>, _: Ino, _: Ino, _: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotPermitted("a file on FAT has one name".into()))
    }

    fn unlink(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        namespace(live).unlink(dir, name)
    }

    fn rmdir(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        namespace(live).rmdir(dir, name)
    }

    fn rename(
        live: &mut Live<Fat>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        namespace(live).rename(from, to, mode)
    }

    fn list(
        live: &mut Live<Fat>,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        namespace(live).list(dir, after, visit)
    }

    fn settle(live: &mut Live<Fat>, ino: Ino) -> Result<(), FsError> {
        namespace(live).settle(ino)
    }

    fn destroy(live: &mut Live<Fat>, ino: Ino) -> Result<(), FsError> {
        namespace(live).destroy(ino)
    }

    /// Only frees wait for the disk here.
    fn act(live: &mut Live<Fat>, action: Action) -> Result<(), FsError> {
        debug_assert!(matches!(action, Action::FreeRuns(_)), "{action:?}");
        if let Action::FreeRuns(runs) = action {
            let (fat, core) = live.parts();
            fat.free_runs(core, &runs)?;
        }
        Ok(())
    }
}
