//! Files that have no names left: their blocks and inodes become free, and the names in directories
//! among them do not count any more.

use super::parts::FilePart;
use super::records::Slot;
use super::tables::Pass;
use crate::entry::kind_of;
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, PARENT_AT, ROOT, WHITEOUT};
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_placement::GroupSummary;
use seekless_units::{GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// A name in a directory.
pub(super) struct ListedName {
    pub(super) slot: Slot,
    pub(super) ino: Ino,
    pub(super) kind: Option<FileKind>,
    /// It is `..`.
    pub(super) is_parent: bool,
}

impl Pass {
    /// Releases files that were in use without a name: the superblock names the first, and each the
    /// next one (`fs_sujfree`, `di_freelink`).
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a list that leads to itself or outside of the volume.
    pub(super) fn release_unlinked(&mut self) -> Result<(), FsError> {
        let mut next = self.staged.volume.sb.tuning.unreferenced;
        let mut seen = BTreeSet::new();
        while next != 0 {
            let ino = Ino::new(next);
            let place = Location::of("list of unreferenced inodes").in_inode(ino);
            if ino <= Ino::new(ROOT) || !seen.insert(ino) {
                return Err(invalid("di_freelink", next.into(), place));
            }
            let inode = self.staged.inode(ino)?;
            // The depth of a directory has the same place.
            next = inode.depth;
            self.unlinked.push((ino, next));
            if inode.mode() != 0 && inode.nlink() == 0 {
                self.reclaim(&inode)?;
                self.drop_names()?;
            }
            self.staged.change(ino, |inode| inode.set_depth(0))?;
        }
        Ok(())
    }

    /// Frees a file with all that it has.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for the root, and for maps or directories with errors.
    pub(super) fn reclaim(&mut self, inode: &Inode) -> Result<(), FsError> {
        let is_directory = FileKind::from_mode(inode.mode()) == Some(FileKind::Directory);
        if inode.ino <= Ino::new(ROOT) {
            let place = Location::of("inode").in_inode(inode.ino);
            return Err(invalid("di_nlink", u64::from(inode.nlink().cast_unsigned()), place));
        }
        let runs = self.staged.runs(inode)?;
        if is_directory {
            self.drop_entries(inode)?;
        }
        for (_, run) in runs {
            self.give_up(inode.ino, run)?;
        }
        self.staged.change(inode.ino, |inode| inode.clear())?;
        self.staged.groups.free_inode(&self.staged.volume, inode.ino, is_directory)
    }

    /// Notes the names in a directory that is reclaimed.
    fn drop_entries(&mut self, dir: &Inode) -> Result<(), FsError> {
        let is_detached = self.detached.contains(&dir.ino);
        for name in self.names_in(dir)? {
            if !(name.is_parent && is_detached) {
                self.dropped.push((name.slot, name.ino, name.is_parent));
            }
        }
        Ok(())
    }

    /// The names in a directory, but for `.` and whiteouts.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for maps or entries with errors.
    pub(super) fn names_in(&mut self, dir: &Inode) -> Result<Vec<ListedName>, FsError> {
        let mut names = Vec::new();
        let runs = self.staged.runs(dir)?;
        for (part, run) in runs {
            let FilePart::Data(block) = part else { continue };
            self.staged.claim(dir.ino, part, run.start)?;
            let bytes = self.staged.contents(run)?;
            let sb = &self.staged.volume.sb;
            let start = block * u64::from(sb.bsize);
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = start + n * wide(DIRECTORY_UNIT);
                if base >= dir.len || unit.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let place = Location::of("directory").in_inode(dir.ino).in_block(run.start);
                for entry in sb.entries(unit, place) {
                    let entry = entry?;
                    let at = base + wide(entry.at);
                    if entry.is_used() && entry.kind != WHITEOUT && entry.name != b"." {
                        names.push(ListedName {
                            slot: Slot { dir: dir.ino, at },
                            ino: entry.ino,
                            kind: kind_of(entry.kind),
                            is_parent: at == PARENT_AT && entry.name == b"..",
                        });
                    }
                }
            }
        }
        Ok(names)
    }

    /// Brings the counts of groups up to date, and returns the summaries of all groups. Those in
    /// the summary area may be older than the heads.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the head of a group cannot be believed.
    pub(super) fn finish(&mut self) -> Result<Vec<GroupSummary>, FsError> {
        let mut directories = BTreeMap::new();
        for (number, used) in self.staged.groups.doubtful(&self.staged.volume)? {
            let mut count = 0;
            for ino in used {
                let inode = self.staged.inode(ino)?;
                count += u32::from(FileKind::from_mode(inode.mode()) == Some(FileKind::Directory));
            }
            directories.insert(number, count);
        }
        self.staged.groups.count(&self.staged.volume.sb, &directories)?;
        let volume = &self.staged.volume;
        let groups = (0..volume.sb.ncg).map(GroupNo::new);
        groups.map(|number| self.staged.groups.summary(volume, number)).collect()
    }
}
