//! The list of orphans: files that were open or being cut when the system stopped. The next mount
//! deletes those without links and cuts the others to their length (`fs/ext4/orphan.c`). It begins
//! in the superblock and leads on through the times of deletion. Volumes with an orphan file have
//! the list as well, for when that file is full.

use super::{Core, Ext, Node};
use seekless_cache::Role;
use seekless_fs::FsError;
use seekless_live::{Part, Table};
use seekless_units::Ino;

impl Ext {
    /// Notes that a file in memory is an orphan: in the orphan file, or at the head of
    /// the list.
    pub(super) fn list_orphan(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        if self.orphans.contains(&ino) || self.file_orphan(core, ino)? {
            return Ok(());
        }
        let next = self.orphans.last().copied().unwrap_or(Ino::ZERO);
        self.lead_on(core, ino, next)?;
        self.edit_superblock(core, |raw| raw.s_last_orphan = ino.get().into())?;
        self.orphans.push(ino);
        Ok(())
    }

    /// Takes a file in memory off the list and out of the orphan file, if it is there.
    pub(super) fn unlist_orphan(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.unfile_orphan(core, ino)?;
        let Some(at) = self.orphans.iter().position(|&other| other == ino) else {
            return Ok(());
        };
        let next = at.checked_sub(1).and_then(|below| self.orphans.get(below));
        let next = next.copied().unwrap_or(Ino::ZERO);
        match at.checked_add(1).and_then(|above| self.orphans.get(above)).copied() {
            Some(above) => self.lead_on(core, above, next)?,
            None => self.edit_superblock(core, |raw| raw.s_last_orphan = next.get().into())?,
        }
        let gone = self.orphans.remove(at);
        debug_assert!(gone == ino && !self.orphans.contains(&ino), "inode {ino} is listed once");
        self.lead_on(core, ino, Ino::ZERO)
    }

    /// Sets the next file on the list behind a file.
    fn lead_on(&mut self, core: &mut Core, ino: Ino, next: Ino) -> Result<(), FsError> {
        if !core.nodes.contains_key(&ino) {
            let node = self.load_orphan(core, ino)?;
            core.nodes.insert(ino, node);
        }
        core.node(ino)?.map.deleted = next.get();
        self.put_part(core, ino, Part::Links, Role::LinkDrop, &[], None)?;
        Ok(())
    }

    /// The files that were on the list or in the orphan file when the image was opened, brought
    /// into memory: the list is taken apart from its head.
    pub(super) fn found_orphans(&mut self, core: &mut Core) -> Result<Vec<Ino>, FsError> {
        debug_assert!(self.orphans.is_empty(), "the list is read before it is changed");
        let mut found = Vec::new();
        self.volume.listed_orphans(&mut |ino| found.push(ino))?;
        self.orphans = found.iter().rev().copied().collect();
        if let Some(file) = &self.orphan_file {
            found.extend(file.numbers().filter(|ino| !self.orphans.contains(ino)));
        }
        for &ino in &found {
            let node: Node = self.load_orphan(core, ino)?;
            core.nodes.insert(ino, node);
        }
        Ok(found)
    }
}
