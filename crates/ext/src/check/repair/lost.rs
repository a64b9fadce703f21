//! The root and `lost+found`: names for unconnected inodes.

use super::Work;
use super::entries::Edit;
use super::folder::NewName;
use crate::dir::Directory;
use crate::ondisk::{flags, special};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

const NAME: &[u8] = b"lost+found";
/// Their modes, as in `e2fsck`.
const ROOT_MODE: u16 = 0o755;
const MODE: u16 = 0o700;
/// Names that are tried for one file.
const TRIES: u32 = 1000;

impl Work<'_> {
    /// Makes a new root directory; whether there was room.
    pub(super) fn make_root(&mut self) -> Result<bool, FsError> {
        let root = Ino::new(special::ROOT);
        self.make(root, root, ROOT_MODE)
    }

    /// Gives names to files and directories. If `lost+found` is missing it is made, and if it is a
    /// file its name is removed; the rest is left for the next round. Whether anything was done:
    /// there may be no room.
    pub(super) fn connect(&mut self, nameless: &[Ino]) -> Result<bool, FsError> {
        match self.checker.lost_found {
            // Without room for one, names in the root are better than none (e2fsck,
            // `PR_3_NO_SPACE_TO_RECOVER`).
            None => {
                let root = Ino::new(special::ROOT);
                Ok(self.make_lost()?
                    || (self.checker.is_directory(root) && self.fill(root, nameless)?))
            }
            // Names in an encrypted one need its key.
            Some((spot, ino))
                if !self.checker.is_directory(ino) || self.checker.policies.contains_key(&ino) =>
            {
                self.edit(spot, Edit::Remove)?;
                Ok(true)
            }
            Some((_, ino)) => self.fill(ino, nameless),
        }
    }

    fn make_lost(&mut self) -> Result<bool, FsError> {
        let root = Ino::new(special::ROOT);
        if !self.checker.is_directory(root) {
            return Ok(false);
        }
        let Some(ino) = self.take_inode()? else { return Ok(false) };
        if !self.make(ino, root, MODE)? {
            return Ok(false);
        }
        let name = NewName { ino, kind: FileKind::Directory, name: NAME.to_vec() };
        self.add_names(root, vec![name])
    }

    /// Enters all of them as `#` and the inode number, with a suffix where that is taken. Each `..`
    /// is changed before the name is written.
    fn fill(&mut self, lost: Ino, nameless: &[Ino]) -> Result<bool, FsError> {
        let checker = self.checker;
        let inode = checker.volume.inodes().read(lost)?;
        let mut taken: BTreeSet<Vec<u8>> = BTreeSet::new();
        Directory::new(&checker.volume, &inode).read(0, &mut |entry| {
            taken.insert(entry.name.to_vec());
            ControlFlow::Continue(())
        })?;
        let mut names = Vec::new();
        for &ino in nameless.iter().filter(|&&ino| ino != lost) {
            let Some(kind) = checker.seen.get(ino).map(|seen| seen.kind) else { continue };
            let tries = (0..TRIES).map(|n| match n {
                0 => format!("#{ino}").into_bytes(),
                n => format!("#{ino}.{n}").into_bytes(),
            });
            let free = tries.into_iter().find(|name| !taken.contains(name));
            let Some(name) = free else { continue };
            taken.insert(name.clone());
            if kind == FileKind::Directory {
                self.set_parent(ino, lost)?;
            }
            // Kernels open no file with the mark of a value.
            if checker.seen.get(ino).is_some_and(|seen| seen.is_value) {
                self.change(ino, |it| it.set_flag(flags::EA_INODE, false))?;
            }
            names.push(NewName { ino, kind, name });
        }
        self.disk.flush()?;
        Ok(!names.is_empty() && self.add_names(lost, names)?)
    }
}
