//! Passes 2 and 3: what directories hold, and whether the root leads to them.

use super::Checker;
use crate::dir::{Directory, entry_at, kind_of};
use crate::inode::Inode;
use crate::ondisk::{flags, incompat, special};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{Ino, Lbn};
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

fn place(dir: Ino) -> Location {
    Location::of("directory").in_inode(dir)
}

/// An entry that leads somewhere.
struct Name {
    ino: Ino,
    /// The code of its kind.
    kind: u8,
    name: Vec<u8>,
}

impl Checker {
    pub(super) fn names(&mut self) -> Result<(), FsError> {
        let root = Ino::new(special::ROOT);
        match self.seen.get(&root).map(|seen| seen.kind) {
            Some(FileKind::Directory) => {}
            Some(_) => {
                self.unexpected("root.not-directory", "is not a directory".into(), place(root))
            }
            // With the group of the root all directories hang in the air.
            None if self.is_lost(root) => {}
            None => self.unexpected("root.missing", "not in use".into(), place(root)),
        }
        let dirs: Vec<(Ino, bool)> = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.kind == FileKind::Directory)
            .map(|(&ino, seen)| (ino, seen.bad_map))
            .collect();
        for &(dir, bad_map) in &dirs {
            if bad_map {
                self.cut_short.insert(dir);
            } else {
                self.directory(dir)?;
            }
        }
        for (dir, _) in dirs {
            self.parent(dir);
        }
        Ok(())
    }

    fn directory(&mut self, dir: Ino) -> Result<(), FsError> {
        let inode = self.volume.inode(dir)?;
        let names = if inode.has_flag(flags::INLINE_DATA) {
            self.inline_names(&inode)?
        } else {
            let names = self.block_names(&inode)?;
            self.index(&inode)?;
            names
        };
        if !self.orphans.contains(&dir) && names.len() < 2 {
            self.unexpected("directory.dot", "`.` or `..` is missing".into(), place(dir));
        }
        let encrypted = inode.has_flag(flags::ENCRYPT);
        let mut known = HashSet::new();
        for (number, name) in names.iter().enumerate() {
            self.entry(dir, number, name, encrypted);
            if !known.insert(name.name.as_slice()) {
                let what = format!("`{}` is a duplicate entry", show(&name.name));
                self.unexpected("entry.duplicate", what, place(dir));
            }
        }
        Ok(())
    }

    fn inline_names(&mut self, inode: &Inode) -> Result<Vec<Name>, FsError> {
        let mut names = Vec::new();
        let dir = Directory::new(&self.volume, inode);
        let read = dir.read(0, &mut |entry| {
            let kind = entry.kind.map_or(0, code_of);
            names.push(Name { ino: entry.ino, kind, name: entry.name.to_vec() });
            ControlFlow::Continue(())
        });
        if self.sound(read, "directory.corrupt", place(inode.ino))?.is_none() {
            self.cut_short.insert(inode.ino);
        }
        Ok(names)
    }

    fn block_names(&mut self, inode: &Inode) -> Result<Vec<Name>, FsError> {
        let mut names = Vec::new();
        let blocks = Directory::new(&self.volume, inode).blocks();
        let present = Directory::new(&self.volume, inode).present()?;
        let gap = (0..).map(Lbn::new).zip(&present).find(|(wanted, lbn)| wanted != *lbn);
        // A length that its blocks do not reach was reported already.
        if let Some((missing, _)) = gap {
            let what = format!("block {missing} is missing");
            self.unexpected("directory.hole", what, place(inode.ino));
            self.cut_short.insert(inode.ino);
        }
        for lbn in present.into_iter().filter(|lbn| lbn.get() < blocks) {
            let strict = Directory::new(&self.strict, inode).block(lbn);
            match strict {
                Ok(_) => {}
                Err(error @ FsError::Corrupt { .. }) => {
                    let (what, place) = error.finding(place(inode.ino));
                    self.unexpected("directory.checksum", what, place);
                }
                Err(error) => return Err(error),
            }
            let block = Directory::new(&self.volume, inode).block(lbn)?;
            self.names_in(inode.ino, lbn, &block, &mut names);
        }
        Ok(names)
    }

    /// The entries of a block, up to where it makes no sense.
    fn names_in(&mut self, dir: Ino, lbn: Lbn, block: &[u8], names: &mut Vec<Name>) {
        let mut at = 0;
        while at < block.len() {
            let here = place(dir).at_offset(seekless_fs::field::byte(at));
            let entry = match entry_at(block, at, u32::MAX, here) {
                Ok(entry) => entry,
                Err(error) => {
                    let what = format!("block {lbn}: {error}");
                    self.unexpected("directory.corrupt", what, here);
                    self.cut_short.insert(dir);
                    return;
                }
            };
            at = entry.next;
            if entry.ino != Ino::ZERO {
                let (ino, kind) = (entry.ino, entry.file_type);
                names.push(Name { ino, kind, name: entry.name.to_vec() });
            }
        }
    }

    /// Follows an entry; the first two are `.` and `..`. An encrypted name may be
    /// any bytes.
    fn entry(&mut self, dir: Ino, number: usize, entry: &Name, encrypted: bool) {
        match (number, entry.name.as_slice()) {
            (0, b".") => {
                self.kind(dir, entry, FileKind::Directory);
                return self.dot(dir, entry.ino);
            }
            (1, b"..") => {
                self.kind(dir, entry, FileKind::Directory);
                if let Some(seen) = self.seen.get_mut(&dir) {
                    seen.parent = Some(entry.ino);
                }
                return;
            }
            (0 | 1, _) => {
                let what = format!("`{}` in the place of `.` and `..`", show(&entry.name));
                self.unexpected("directory.dot", what, place(dir));
            }
            (_, b"." | b"..") => {
                let what = format!("`{}` is a duplicate entry", show(&entry.name));
                return self.unexpected("entry.name", what, place(dir));
            }
            _ => {}
        }
        if !encrypted && entry.name.iter().any(|&byte| byte == b'/' || byte == 0) {
            let what = format!("`{}` is not a valid name", show(&entry.name));
            self.unexpected("entry.name", what, place(dir));
        }
        let special = self.seen.get(&entry.ino).is_none_or(|seen| seen.is_special);
        if special {
            if !self.is_lost(entry.ino) {
                let state = match self.is_unusable(entry.ino) {
                    true => "lies in a bad block",
                    false => "is not in use",
                };
                let name = show(&entry.name);
                let what = format!("`{name}` points to inode {}, which {state}", entry.ino);
                self.unexpected("entry.unallocated", what, place(dir));
            }
            return;
        }
        self.named(dir, entry);
    }

    /// An entry leads to an inode in use.
    fn named(&mut self, dir: Ino, entry: &Name) {
        let Some(seen) = self.seen.get_mut(&entry.ino) else { return };
        seen.names = seen.names.saturating_add(1);
        let kind = seen.kind;
        let is_dir = kind == FileKind::Directory;
        let second = is_dir && seen.named_in.replace(dir).is_some();
        if is_dir {
            self.children.entry(dir).or_default().push(entry.ino);
        }
        if second {
            let what = format!("`{}` is an additional name of a directory", show(&entry.name));
            self.unexpected("directory.two-names", what, place(dir));
        }
        self.kind(dir, entry, kind);
    }

    /// An entry says the kind of what it leads to, or nothing: from before the
    /// feature was set.
    fn kind(&mut self, dir: Ino, entry: &Name, kind: FileKind) {
        let typed = self.sb().has_incompat(incompat::FILETYPE);
        if entry.kind != 0 && !(typed && kind_of(entry.kind) == Some(kind)) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.unexpected("entry.kind", what, place(dir));
        }
    }

    fn dot(&mut self, dir: Ino, to: Ino) {
        self.count(dir);
        if to != dir {
            let what = format!("`.` points to inode {to}");
            self.unexpected("directory.dot", what, place(dir));
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
        let root = Ino::new(special::ROOT);
        let named_in = if dir == root { Some(root) } else { seen.named_in };
        // What nothing leads to is no child of anybody's.
        let (Some(parent), Some(named_in)) = (seen.parent, named_in) else { return };
        self.count(named_in);
        if parent != named_in {
            let what = format!("`..` points to inode {parent}, should be {named_in}");
            self.unexpected("directory.dot-dot", what, place(dir));
        }
    }

    /// Pass 3: directories that no chain of names leads to from the root.
    pub(super) fn unconnected(&mut self) {
        let root = Ino::new(special::ROOT);
        let dirs: Vec<(Ino, bool)> = self
            .seen
            .iter()
            .filter(|(ino, seen)| seen.kind == FileKind::Directory && !self.orphans.contains(*ino))
            .map(|(&ino, seen)| (ino, seen.named_in.is_none() && ino != root))
            .collect();
        let alone: Vec<Ino> =
            dirs.iter().filter(|(_, nameless)| *nameless).map(|&(ino, _)| ino).collect();
        let reached = self.below(alone.iter().copied().chain([root]).collect());
        for ino in alone {
            // The one that names it may be there, and unreadable.
            let parent = self.seen.get(&ino).and_then(|seen| seen.parent);
            if parent.is_some_and(|parent| self.is_unreadable(parent)) {
                continue;
            }
            let what = "in use, but not referenced by any directory entry".to_string();
            self.unexpected("directory.unconnected", what, place(ino));
        }
        for (ino, _) in dirs.into_iter().filter(|(ino, _)| !reached.contains(ino)) {
            let what = "its only names are in directories below itself".to_string();
            self.unexpected("directory.loop", what, place(ino));
        }
    }

    /// Whether names of a directory are missing from what was found.
    fn is_unreadable(&self, dir: Ino) -> bool {
        self.is_lost(dir) || self.cut_short.contains(&dir)
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

/// The code of a kind in an entry.
fn code_of(kind: FileKind) -> u8 {
    (1..=7).find(|&code| kind_of(code) == Some(kind)).unwrap_or(0)
}

fn show(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

impl Checker {
    /// Holds the index of a directory against its blocks.
    fn index(&mut self, inode: &Inode) -> Result<(), FsError> {
        if !self.volume.is_hashed(inode) {
            return Ok(());
        }
        let found = super::index::faults(&Directory::new(&self.volume, inode));
        let faults = self.sound(found, "directory.index", place(inode.ino))?.unwrap_or_default();
        for what in faults {
            self.unexpected("directory.index", what, place(inode.ino));
        }
        Ok(())
    }
}
