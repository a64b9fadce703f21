//! The list of orphans: files that were open or being cut when the system stopped. The next mount
//! deletes those without links and cuts the others to their length (`fs/ext4/orphan.c`). It begins
//! in the superblock and leads on through the times of deletion. Volumes with an orphan file have
//! the list as well, for when that file is full.

use super::map::Core;
use super::node::InodeTables;
use super::orphan_file::OrphanFile;
use super::primary::PrimarySuperblock;
use crate::ondisk::ro_compat;
use crate::volume::Volume;
use seekless_cache::Role;
use seekless_fs::FsError;
use seekless_live::{Part, Table};
use seekless_units::Ino;

/// The orphans of a volume.
pub(super) struct Orphans {
    /// Files that a mount after a crash deletes, or cuts to their length; the list on the disk
    /// leads from the last of them to the first.
    list: Vec<Ino>,
    /// Orphans in the orphan file, if the volume has such a file and a journal.
    file: Option<OrphanFile>,
}

impl Orphans {
    /// None are known yet.
    pub(super) fn new(file: Option<OrphanFile>) -> Self {
        Self { list: Vec::new(), file }
    }

    /// Notes that a file in memory is an orphan: in the orphan file, or at the head of the list.
    pub(super) fn add(
        &mut self,
        (tables, superblock): (&InodeTables, &PrimarySuperblock),
        core: &mut Core,
        ino: Ino,
    ) -> Result<(), FsError> {
        if self.list.contains(&ino) {
            return Ok(());
        }
        if let Some(file) = &mut self.file
            && file.add(core, ino)?
        {
            return Ok(());
        }
        let next = self.list.last().copied().unwrap_or(Ino::ZERO);
        lead_on(tables, core, ino, next)?;
        superblock.edit(core, |raw| raw.s_last_orphan = ino.get().into())?;
        self.list.push(ino);
        Ok(())
    }

    /// Takes a file in memory off the list and out of the orphan file, if it is there.
    pub(super) fn remove(
        &mut self,
        (tables, superblock): (&InodeTables, &PrimarySuperblock),
        core: &mut Core,
        ino: Ino,
    ) -> Result<(), FsError> {
        if let Some(file) = &mut self.file {
            file.remove(core, ino)?;
        }
        let Some(at) = self.list.iter().position(|&other| other == ino) else {
            return Ok(());
        };
        let next = at.checked_sub(1).and_then(|below| self.list.get(below));
        let next = next.copied().unwrap_or(Ino::ZERO);
        match at.checked_add(1).and_then(|above| self.list.get(above)).copied() {
            Some(above) => lead_on(tables, core, above, next)?,
            None => superblock.edit(core, |raw| raw.s_last_orphan = next.get().into())?,
        }
        let gone = self.list.remove(at);
        debug_assert!(gone == ino && !self.list.contains(&ino), "inode {ino} is listed once");
        lead_on(tables, core, ino, Ino::ZERO)
    }

    /// The files that were on the list or in the orphan file when the image was opened, brought
    /// into memory: the list is taken apart from its head.
    pub(super) fn found(
        &mut self,
        volume: &Volume,
        tables: &InodeTables,
        core: &mut Core,
    ) -> Result<Vec<Ino>, FsError> {
        debug_assert!(self.list.is_empty(), "the list is read before it is changed");
        let mut found = Vec::new();
        volume.orphans().listed(&mut |ino| found.push(ino))?;
        self.list = found.iter().rev().copied().collect();
        if let Some(file) = &self.file {
            found.extend(file.numbers().filter(|ino| !self.list.contains(ino)));
        }
        for &ino in &found {
            let node = tables.load_orphan(core, ino)?;
            core.nodes.insert(ino, node);
        }
        Ok(found)
    }

    /// Features that may change while a volume is in use, with their new values: `orphan_present`,
    /// until the file is empty and the mount ends.
    pub(super) fn noted_features(&self, features: u32, close: bool) -> u32 {
        match &self.file {
            None => features,
            Some(file) if close && file.is_empty() => features & !ro_compat::ORPHAN_PRESENT,
            Some(_) => features | ro_compat::ORPHAN_PRESENT,
        }
    }
}

/// Sets the next file on the list behind a file.
fn lead_on(tables: &InodeTables, core: &mut Core, ino: Ino, next: Ino) -> Result<(), FsError> {
    if !core.nodes.contains_key(&ino) {
        let node = tables.load_orphan(core, ino)?;
        core.nodes.insert(ino, node);
    }
    core.node(ino)?.map.deleted = next.get();
    tables.put_part(core, ino, Part::Links, Role::LinkDrop, &[], None)?;
    Ok(())
}
