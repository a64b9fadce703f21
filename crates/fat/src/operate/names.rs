//! Operations on names: on FAT an entry is the file itself.

use super::Fat;
use crate::files::ROOT;
use seekless_fs::operate::{NewFile, Ownership, RenameMode};
use seekless_fs::{DirEntry, FileKind, FsError};
use seekless_live::{Action, Live, Named, Names};
use seekless_units::{Extent, Ino};
use std::ops::ControlFlow;

/// Names that are files.
#[derive(Clone, Copy, Debug)]
pub enum EntryNames {}

impl Named for Fat {
    type Names = EntryNames;
}

impl Names<Fat> for EntryNames {
    fn find(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let (fat, core) = live.parts();
        fat.hold_dir(core, dir)?;
        match name {
            b"." => Ok(Some(dir)),
            b".." => Ok(Some(fat.parent(dir))),
            _ => match fat.slot_of(core, dir, name)? {
                Some(slot) => fat.numbers.at((dir, slot)).map(Some),
                None => Ok(None),
            },
        }
    }

    fn make(
        live: &mut Live<Fat>,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        let (fat, core) = live.parts();
        fat.make(core, dir, name, new, owner)
    }

    fn link(_: &mut Live<Fat>, _: Ino, _: Ino, _: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotPermitted("a file on FAT has one name".into()))
    }

    fn unlink(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        fat.unlink(core, dir, name)
    }

    fn rmdir(live: &mut Live<Fat>, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        fat.rmdir(core, dir, name)
    }

    fn rename(
        live: &mut Live<Fat>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        fat.rename(core, from, to, mode)
    }

    /// A cookie is 1 for `.` and 2 for `..`, and n + 3 for the entry in slot n.
    fn list(
        live: &mut Live<Fat>,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        fat.hold_dir(core, dir)?;
        let kind = Some(FileKind::Directory);
        for (cookie, name, ino) in [(1, &b"."[..], dir), (2, b"..", fat.parent(dir))] {
            if after < cookie && visit(DirEntry { name, ino, kind, cookie }).is_break() {
                return Ok(());
            }
        }
        let Ok(from) = u32::try_from(after.max(2) - 2) else { return Ok(()) };
        let entries = fat.dir(core, dir)?.entries.range(from..);
        let found: Vec<_> =
            entries.map(|(&slot, known)| (slot, known.name.clone(), known.is_dir)).collect();
        for (slot, name, is_dir) in found {
            let ino = fat.numbers.at((dir, slot))?;
            let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
            let cookie = u64::from(slot) + 3;
            if visit(DirEntry { name: &name, ino, kind: Some(kind), cookie }).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes the entry, and those of the directories above it, each after all that it leads to.
    /// Where no order is kept, the links of their chains are written first.
    fn settle(live: &mut Live<Fat>, ino: Ino) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        let keeps_order = core.cache.blocks().config().discipline.keeps_graph();
        let mut at = ino;
        loop {
            fat.hold(core, at)?;
            let mut runs = Vec::new();
            if core.node(at)?.kind == FileKind::Directory {
                runs.extend(fat.dir_runs(core, at)?.into_iter().filter(|_| at == ino));
            }
            if !keeps_order && let Some(chain) = &core.node(at)?.map.chain {
                runs.extend(fat.fat_runs(&chain.runs));
            }
            core.cache.complete_runs(&runs)?;
            if let Some((sector, _)) = fat.entry_at(core, at)? {
                core.cache.complete_runs(&[Extent::new(sector, 1)])?;
            }
            // An older entry of the file may be the one that a check keeps.
            let mut leaving = fat.leaving(core, at);
            if at == ino {
                leaving.extend(fat.arriving(core, at));
            }
            core.cache.settle(&leaving)?;
            if at == ROOT || fat.numbers.place(at).is_none() {
                return Ok(());
            }
            at = fat.parent(at);
        }
    }

    fn destroy(live: &mut Live<Fat>, ino: Ino) -> Result<(), FsError> {
        let (fat, core) = live.parts();
        fat.destroy(core, ino)
    }

    /// Only frees wait for the disk here.
    fn act(live: &mut Live<Fat>, action: Action) -> Result<(), FsError> {
        debug_assert!(matches!(action, Action::FreeRuns(_)), "{action:?}");
        if let Action::FreeRuns(runs) = action {
            let (fat, core) = live.parts();
            fat.give(core, &runs)?;
        }
        Ok(())
    }
}
