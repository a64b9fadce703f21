//! Phases 2 and 3: every directory, what its entries lead to, and whether the
//! root leads to it.

use super::Checker;
use crate::entry::kind_of;
use crate::ondisk::{DIRECTORY_UNIT, ROOT, WHITEOUT};
use seekless_fs::field::{byte, index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeSet;

/// An entry as it stands.
struct Name {
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
}

fn place(dir: Ino) -> Location {
    Location::of("directory").in_inode(dir)
}

impl Checker {
    pub(super) fn names(&mut self) -> Result<(), FsError> {
        let root = Ino::new(ROOT);
        match self.seen.get(&root).map(|seen| seen.kind) {
            Some(FileKind::Directory) => {}
            Some(_) => {
                self.unexpected("root.not-directory", "the root is a file".into(), place(root));
            }
            None => self.unexpected("root.missing", "there is no root".into(), place(root)),
        }
        let is_dir = |kind: FileKind| kind == FileKind::Directory;
        let dirs: Vec<Ino> =
            self.seen.iter().filter(|(_, seen)| is_dir(seen.kind)).map(|(&ino, _)| ino).collect();
        for &dir in &dirs {
            if self.seen.get(&dir).is_some_and(|seen| seen.bad_blocks) {
                self.names_are_missing = true;
            } else {
                self.directory(dir)?;
            }
        }
        for dir in dirs {
            self.parent(dir);
        }
        Ok(())
    }

    fn directory(&mut self, dir: Ino) -> Result<(), FsError> {
        let inode = self.volume.inode(dir)?;
        let bsize = u64::from(self.sb().bsize);
        let mapped = self.volume.fragments(&inode, inode.len)?;
        if wide(mapped.len()) < inode.len.div_ceil(u64::from(self.sb().fsize).max(1)) {
            self.unexpected("directory.hole", "blocks are missing".into(), place(dir));
        }
        let mut at = 0u64;
        let mut number = 0u64;
        while at < inode.len {
            let len = bsize.min(inode.len.saturating_sub(at));
            let mut bytes = vec![0; index(len)];
            self.volume.read_mapped(&inode, ByteLen::new(at), &mut bytes)?;
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = at.saturating_add(n.saturating_mul(wide(DIRECTORY_UNIT)));
                for name in self.unit(dir, unit, base) {
                    self.entry(dir, number, &name);
                    number = number.saturating_add(1);
                }
            }
            at = at.saturating_add(len);
        }
        if number < 2 {
            self.unexpected("directory.dot", "`.` or `..` is missing".into(), place(dir));
        }
        Ok(())
    }

    /// The entries of a unit, up to where it makes no sense.
    fn unit(&mut self, dir: Ino, unit: &[u8], base: u64) -> Vec<Name> {
        let mut names = Vec::new();
        let mut at = 0;
        if unit.iter().all(|&byte| byte == 0) {
            return names;
        }
        while at < unit.len() {
            let place = place(dir).at_offset(byte(index(base).saturating_add(at)));
            let entry = match self.volume.sb.bare_entry_at(unit, at, place) {
                Ok(entry) => entry,
                Err(error) => {
                    self.unexpected("directory.corrupt", error.to_string(), place);
                    self.names_are_missing = true;
                    break;
                }
            };
            at = at.saturating_add(entry.len);
            if entry.ino != Ino::ZERO && entry.kind != WHITEOUT {
                let kind = kind_of(entry.kind);
                names.push(Name { ino: entry.ino, kind, name: entry.name.to_vec() });
            }
        }
        names
    }

    /// Follows an entry; the first two are `.` and `..`.
    fn entry(&mut self, dir: Ino, number: u64, entry: &Name) {
        match (number, entry.name.as_slice()) {
            (0, b".") => return self.dot(dir, entry.ino),
            (1, b"..") => return self.dot_dot(dir, entry.ino),
            (0 | 1, _) => {
                let what = format!("`{}` where `.` and `..` belong", show(&entry.name));
                self.unexpected("directory.dot", what, place(dir));
            }
            (_, b"." | b"..") => {
                let what = format!("`{}` a second time", show(&entry.name));
                return self.unexpected("entry.name", what, place(dir));
            }
            _ => {}
        }
        if entry.name.iter().any(|&byte| byte == b'/' || byte == 0) {
            let what = format!("`{}` cannot be a name", show(&entry.name));
            self.unexpected("entry.name", what, place(dir));
        }
        let Some(seen) = self.seen.get_mut(&entry.ino) else {
            if !self.is_lost(entry.ino) {
                let what =
                    format!("`{}` leads to inode {}, not in use", show(&entry.name), entry.ino);
                self.unexpected("entry.unallocated", what, place(dir));
            }
            return;
        };
        seen.names = seen.names.saturating_add(1);
        let kind = seen.kind;
        let is_dir = kind == FileKind::Directory;
        let second = is_dir && seen.named_in.replace(dir).is_some();
        if is_dir {
            self.children.entry(dir).or_default().push(entry.ino);
        }
        if second {
            // A directory being renamed has both names for a while.
            let what = format!("`{}` is one more name of a directory", show(&entry.name));
            self.renamed.insert(entry.ino);
            self.expected("directory.two-names", what, place(dir));
        }
        if self.sb().typed_entries && entry.kind != Some(kind) {
            let what = format!("`{}` says another kind than its inode", show(&entry.name));
            self.unexpected("entry.kind", what, place(dir));
        }
    }

    /// Whether an inode lies in a group that cannot be read.
    fn is_lost(&self, ino: Ino) -> bool {
        self.volume.sb.inode_slot(ino).is_ok_and(|(group, _)| {
            self.lost_groups.contains(&group) && self.volume.inode(ino).is_err()
        })
    }

    fn dot(&mut self, dir: Ino, to: Ino) {
        if to == dir {
            self.count(dir);
        } else {
            let what = format!("`.` leads to inode {to}");
            self.unexpected("directory.dot", what, place(dir));
        }
    }

    fn dot_dot(&mut self, dir: Ino, to: Ino) {
        if let Some(seen) = self.seen.get_mut(&dir) {
            seen.parent = Some(to);
        }
    }

    fn count(&mut self, ino: Ino) {
        if let Some(seen) = self.seen.get_mut(&ino) {
            seen.names = seen.names.saturating_add(1);
        }
    }

    /// A directory's `..` leads to the one that names it.
    fn parent(&mut self, dir: Ino) {
        let Some(seen) = self.seen.get(&dir) else { return };
        let root = Ino::new(ROOT);
        let named_in = if dir == root { Some(root) } else { seen.named_in };
        // What nothing leads to is no child of anybody's.
        let (Some(parent), Some(named_in)) = (seen.parent, named_in) else { return };
        self.count(parent);
        if parent != named_in {
            let what = format!("`..` leads to inode {parent}, should be {named_in}");
            if self.renamed.contains(&dir) {
                self.expected("directory.dot-dot", what, place(dir));
            } else {
                self.unexpected("directory.dot-dot", what, place(dir));
            }
        }
    }

    /// Phase 3: directories that no chain of names leads to from the root.
    pub(super) fn unconnected(&mut self) {
        let root = Ino::new(ROOT);
        let dirs: Vec<Ino> = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.kind == FileKind::Directory)
            .map(|(&ino, _)| ino)
            .collect();
        let nameless = |ino: &&Ino| {
            **ino != root && self.seen.get(*ino).is_some_and(|seen| seen.named_in.is_none())
        };
        let alone: Vec<Ino> = dirs.iter().filter(nameless).copied().collect();
        let reached = self.below(alone.iter().copied().chain([root]).collect());
        for ino in alone {
            let what = "in use, but nothing leads to it".to_string();
            self.for_want_of_names("directory.unconnected", what, place(ino));
        }
        for ino in dirs.into_iter().filter(|ino| !reached.contains(ino)) {
            let what = "named only by directories below itself".to_string();
            self.unexpected("directory.loop", what, place(ino));
        }
    }

    /// Some directories, and all below them.
    fn below(&self, mut next: Vec<Ino>) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::new();
        while let Some(dir) = next.pop() {
            if reached.insert(dir) {
                next.extend(self.children.get(&dir).into_iter().flatten());
            }
        }
        reached
    }
}

fn show(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
