//! Corrections of a volume that is used while its state after a crash is checked
//! ([`Correction`]).

use crate::action::Action;
use crate::features::Recovery;
use crate::link_order::{LinkOrder, OrderedLinks};
use crate::{Ids, Live};
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::corrections::{Correction, LOST_FOUND};
use seekless_fs::operate::{NewFile, Ownership};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;

/// The mode of `lost+found`, as in `fsck_ffs`.
const LOST_FOUND_MODE: u16 = 0o1700;

/// Names that are tried for a directory.
const MOST_SUFFIXES: u32 = 1000;

/// A volume whose state after a crash is corrected, within an operation.
pub(crate) struct Corrector<'a, F: OrderedLinks> {
    live: &'a mut Live<F>,
}

impl<'a, F: OrderedLinks> Corrector<'a, F> {
    pub(crate) fn new(live: &'a mut Live<F>) -> Self {
        Self { live }
    }

    /// Makes a correction.
    pub(crate) fn correct(&mut self, correction: &Correction) -> Result<(), FsError> {
        match *correction {
            Correction::RemoveName { dir, ref name, ino } => self.remove_name(dir, name, ino),
            Correction::SetParent { dir, from, to } => self.set_parent(dir, from, to),
            Correction::Connect { dir, missing } => self.connect(dir, missing),
            Correction::Delete(ino) => self.delete_nameless(ino),
            Correction::DropLinks { ino, by } => self.drop_links(ino, by),
            Correction::Shorten(ino) => self.shorten(ino),
            Correction::Sectors(ino) => self.count_sectors(ino),
            Correction::RaiseLinks { ino, by } => self.raise_links(ino, by).map(drop),
            Correction::FreeInode(ino) => self.free_inode(ino),
            Correction::FreeRun(run) => self.live.volume.give_runs(&[run]),
            Correction::Recount { group, surplus_directories } => {
                let core = &mut self.live.volume.core;
                match self.live.volume.format.recovery() {
                    Some(recovery) => recovery.recount(core, group, surplus_directories),
                    None => Ok(()),
                }
            }
        }
    }

    fn remove_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        if self.live.directories().is_dead(ino) {
            return self.live.directories().erase_dead(dir, name);
        }
        if self.live.directories().find(dir, name)?.is_none_or(|slot| slot.ino != ino) {
            debug_assert!(false, "directories keep their names while it is recovered");
            return Ok(());
        }
        let removed = self.live.directories().remove(dir, name, &[])?;
        // A name that stands twice in it is noted by one place, which may be either.
        self.live.directories().drop_index(dir);
        self.live.namespace().touch_dir(dir)?;
        F::Order::lose_second_name(self.live, ino, removed)
    }

    fn set_parent(&mut self, dir: Ino, from: Option<Ino>, to: Ino) -> Result<(), FsError> {
        let turned = self.turn(dir, to)?;
        match from {
            Some(from) => F::Order::lose_child(self.live, from, turned),
            None => Ok(()),
        }
    }

    /// Lets the `..` of a directory lead to another, which is counted there first.
    fn turn(&mut self, dir: Ino, to: Ino) -> Result<ChangeId, FsError> {
        self.live.volume.dir_node(dir)?;
        self.live.volume.dir_node(to)?;
        let counted = self.live.namespace().count_in_new_parent(dir, to)?;
        self.live.directories().redirect(dir, b"..", (to, FileKind::Directory), &[counted])
    }

    fn connect(&mut self, dir: Ino, missing: u16) -> Result<(), FsError> {
        let lost_found = self.lost_found()?;
        let name = self.free_name(lost_found, dir)?;
        let spot = self.live.directories().reserve(lost_found, &name)?;
        let mut after = self.live.directories().way_to(lost_found)?;
        after.push(self.turn(dir, lost_found)?);
        after.extend(self.raise_links(dir, missing)?);
        let named = self.live.directories().insert(
            lost_found,
            &spot,
            &name,
            (dir, FileKind::Directory),
            Role::EntryAddDirectory,
            &after,
        )?;
        self.live.namespace().note_name(dir, lost_found, &named)?;
        self.live.namespace().touch_dir(lost_found)
    }

    /// Returns the changes that must be on the disk for the count to be so high there.
    fn raise_links(&mut self, ino: Ino, by: u16) -> Result<Ids, FsError> {
        let mut raised = Ids::new();
        for _ in 0..by {
            raised.push(self.live.namespace().raise_links(ino)?);
            self.live.volume.node(ino)?.effective += 1;
        }
        Ok(raised)
    }

    /// Its number may be given to another file once no name leads to it on the disk.
    fn free_inode(&mut self, ino: Ino) -> Result<(), FsError> {
        let mut after = self.live.directories().take_departures_of(ino);
        let core = &mut self.live.volume.core;
        if let Some(recovery) = self.live.volume.format.recovery() {
            after.push(recovery.clear_unused(core, ino)?);
        }
        let core = &mut self.live.volume.core;
        after.retain(|id| !core.cache.is_committed(*id));
        if after.is_empty() {
            return self.live.volume.format.give_inode(core, ino, false);
        }
        core.pending.add(0, 1);
        let free = Action::FreeInode { ino, is_directory: false };
        core.cache.changes().defer(&after, Kind::FreeInode, free);
        Ok(())
    }

    fn lost_found(&mut self) -> Result<Ino, FsError> {
        let root = self.live.volume.format.limits().root;
        match self.live.directories().find(root, LOST_FOUND)? {
            Some(slot) => self.live.volume.dir_node(slot.ino).map(|node| node.ino),
            None => {
                let owner = Ownership { uid: 0, gid: 0, perm: LOST_FOUND_MODE };
                self.live.namespace().make_file(root, LOST_FOUND, &NewFile::Directory, owner)
            }
        }
    }

    /// A name for an inode, as a check gives it: `#` and its number, with a suffix where that is
    /// taken.
    fn free_name(&mut self, dir: Ino, ino: Ino) -> Result<Vec<u8>, FsError> {
        for suffix in 0..MOST_SUFFIXES {
            let name = match suffix {
                0 => format!("#{ino}"),
                suffix => format!("#{ino}.{suffix}"),
            };
            if self.live.directories().find(dir, name.as_bytes())?.is_none() {
                return Ok(name.into_bytes());
            }
        }
        Err(FsError::Exists(format!("#{ino}")))
    }

    fn delete_nameless(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.live.volume.node(ino)?;
        debug_assert_eq!(node.holds, 0, "nobody can have opened inode {ino}");
        (node.links, node.effective) = (0, 0);
        self.live.destroy(ino)
    }

    fn drop_links(&mut self, ino: Ino, by: u16) -> Result<(), FsError> {
        for _ in 0..by {
            self.live.volume.node(ino)?.drop_effective_link();
            self.live.drop_link(ino)?;
        }
        Ok(())
    }

    /// The users of a file never leave a hole at its end: a hole is the crash's, wherever its end
    /// is by now.
    fn shorten(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &mut self.live.volume;
        let unit = u64::from(volume.format.limits().unit);
        // It may have been deleted.
        if !volume.is_there(ino)? || volume.node(ino)?.kind != FileKind::Regular {
            return Ok(());
        }
        let runs = volume.format.mapped_runs(&mut volume.core, ino)?;
        let end = runs.last().map_or(0, |run| (run.lbn.get() + run.extent.len) * unit);
        if end < volume.node(ino)?.size {
            volume.format.truncate(&mut volume.core, ino, end)?;
        }
        Ok(())
    }

    /// The number may have been lower than that of the sectors which its users have freed since.
    fn count_sectors(&mut self, ino: Ino) -> Result<(), FsError> {
        if !self.live.volume.is_there(ino)? {
            return Ok(());
        }
        let volume = &mut self.live.volume;
        let is_counted = volume.node(ino)?.counted_free;
        volume.uncount(ino);
        // The numbers of other files are a device or a target.
        let mut runs = match volume.node(ino)?.has_blocks() {
            true => volume.format.runs_of(&mut volume.core, ino)?,
            false => Vec::new(),
        };
        runs.extend(volume.format.attribute_runs(&mut volume.core, ino)?);
        let units: u64 = runs.iter().map(|run| run.len).sum();
        let sectors = units * u64::from(volume.format.limits().unit / 512);
        volume.node(ino)?.sectors = sectors;
        if is_counted {
            volume.count_free(ino);
        }
        match volume.format.recovery() {
            Some(recovery) => recovery.put_sectors(&mut volume.core, ino),
            None => Ok(()),
        }
    }
}
