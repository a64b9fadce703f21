//! Phases 2 and 3: every directory, the inodes of its entries, and whether it is connected to the
//! root.

use super::{Checker, Fix, Spot, Stage};
use crate::bmap::EVERYTHING;
use crate::entry::{Entry, HEAD, kind_of};
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, ROOT, WHITEOUT};
use seekless_fs::field::{byte, index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A directory entry and its place.
struct LocatedEntry {
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
    spot: Spot,
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
                self.fix(Stage::Inodes, Fix::Clear(root));
            }
            None => {
                self.unexpected(
                    "root.missing",
                    "the root directory is missing".into(),
                    place(root),
                );
                self.fix(Stage::Connections, Fix::Root);
            }
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
        self.second_names();
        for dir in dirs {
            self.parent(dir);
        }
        Ok(())
    }

    fn directory(&mut self, dir: Ino) -> Result<(), FsError> {
        let inode = self.volume.inode(dir)?;
        let bsize = u64::from(self.sb().bsize);
        let mapped = self.mapped_bytes(&inode)?;
        if mapped < inode.len {
            let what = format!("hole at byte {mapped} of {}", inode.len);
            self.unexpected("directory.hole", what, place(dir));
            self.names_are_missing = true;
            let fix = if mapped == 0 { Fix::Clear(dir) } else { Fix::Length(dir, mapped) };
            self.fix(Stage::Inodes, fix);
        }
        let end = mapped.min(inode.len);
        let mut at = 0u64;
        let mut number = 0u64;
        let mut known = HashMap::new();
        while at < end {
            let len = bsize.min(end - at);
            let mut bytes = vec![0; index(len)];
            self.volume.read_mapped(&inode, ByteLen::new(at), &mut bytes)?;
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = at + n * wide(DIRECTORY_UNIT);
                for name in self.unit(dir, unit, base) {
                    match known.get(&name.name) {
                        Some(&ino) if number > 1 && !self.is_other_name_of(ino, &name) => {
                            let what = format!("`{}` occurs twice", show(&name.name));
                            self.reject("entry.duplicate", what, name.spot);
                        }
                        _ => {
                            self.entry(dir, number, &name);
                            known.insert(name.name, name.ino);
                        }
                    }
                    number += 1;
                }
            }
            at += len;
        }
        if number < 2 {
            self.unexpected("directory.dot", "`.` or `..` is missing".into(), place(dir));
            self.fix(Stage::Names, Fix::Dots(dir));
        }
        Ok(())
    }

    /// Whether an entry is a second name of the directory named by the first entry of its name, and
    /// is found as that; or `.` or `..`.
    fn is_other_name_of(&self, first: Ino, entry: &LocatedEntry) -> bool {
        matches!(&entry.name[..], b"." | b"..")
            || first == entry.ino && self.is_directory(entry.ino)
    }

    /// The bytes of a directory up to its first hole, at least.
    fn mapped_bytes(&self, inode: &Inode) -> Result<u64, FsError> {
        let fsize = u64::from(self.sb().fsize);
        let mut end = 0u64;
        for run in self.volume.runs(inode, &EVERYTHING)? {
            if run.lbn.get() != end {
                break;
            }
            end += run.extent.len;
        }
        Ok(end * fsize)
    }

    /// The entries of a unit, up to the first that makes no sense.
    fn unit(&mut self, dir: Ino, unit: &[u8], base: u64) -> Vec<LocatedEntry> {
        debug_assert_eq!(unit.len(), DIRECTORY_UNIT, "a directory has whole units");
        let mut names = Vec::new();
        let mut at = 0;
        if unit.iter().all(|&byte| byte == 0) {
            return names;
        }
        while at < unit.len() {
            let spot = Spot { dir, at: base + wide(at) };
            let place = place(dir).at_offset(byte(index(spot.at)));
            let entry = match self.volume.sb.bare_entry_at(unit, at, place) {
                Ok(entry) => entry,
                Err(error) => {
                    let (what, place) = error.finding(place);
                    self.unexpected("directory.corrupt", what, place);
                    self.names_are_missing = true;
                    self.fix(Stage::Names, Fix::Cut(spot));
                    break;
                }
            };
            at += entry.len;
            if entry.ino != Ino::ZERO && entry.kind != WHITEOUT {
                if !entry.is_ended(unit) {
                    self.not_ended(&entry, spot);
                }
                let kind = kind_of(entry.kind);
                names.push(LocatedEntry { ino: entry.ino, kind, name: entry.name.to_vec(), spot });
            }
        }
        names
    }

    /// Handles a name without the zero behind it, by which kernels go. (`fsck_ffs` drops the rest
    /// of the unit; the name has the length in its entry.)
    fn not_ended(&mut self, entry: &Entry<'_>, spot: Spot) {
        let what = format!("`{}` is not terminated by a zero byte", show(entry.name));
        let place = place(spot.dir).at_offset(byte(index(spot.at)));
        self.unexpected("entry.ending", what, place);
        let has_room = entry.len > HEAD + entry.name.len();
        let fix = if has_room { Fix::Terminate(spot) } else { Fix::Remove(spot) };
        self.fix(Stage::Names, fix);
    }

    /// Follows an entry; the first two are `.` and `..`.
    fn entry(&mut self, dir: Ino, number: u64, entry: &LocatedEntry) {
        match (number, entry.name.as_slice()) {
            (0, b".") => return self.dot(dir, entry),
            (1, b"..") => return self.dot_dot(dir, entry),
            (0 | 1, _) => {
                let what = format!("`{}` in the place of `.` and `..`", show(&entry.name));
                self.unexpected("directory.dot", what, place(dir));
                self.fix(Stage::Names, Fix::Dots(dir));
                if matches!(entry.name.as_slice(), b"." | b"..") {
                    return;
                }
            }
            (_, b"." | b"..") => {
                let what = format!("`{}` is a duplicate entry", show(&entry.name));
                return self.reject("entry.name", what, entry.spot);
            }
            _ => {}
        }
        if entry.name.iter().any(|&byte| byte == b'/' || byte == 0) {
            let what = format!("`{}` is not a valid name", show(&entry.name));
            self.reject("entry.name", what, entry.spot);
        }
        if dir == Ino::new(ROOT) && entry.name == b"lost+found" {
            self.lost_found = Some((entry.spot, entry.ino));
        }
        let Some(seen) = self.seen.get_mut(&entry.ino) else {
            if !self.is_lost(entry.ino) {
                let what = format!(
                    "`{}` points to inode {}, which is not in use",
                    show(&entry.name),
                    entry.ino
                );
                self.reject("entry.unallocated", what, entry.spot);
            }
            return;
        };
        seen.names += 1;
        let kind = seen.kind;
        if kind == FileKind::Directory {
            self.name_of_directory(entry);
        }
        if let Some(seen) = self.seen.get_mut(&dir) {
            seen.entries += 1;
        }
        if self.sb().typed_entries && entry.kind != Some(kind) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.unexpected("entry.kind", what, place(dir));
            self.fix(Stage::Names, Fix::Retype(entry.spot, kind));
        }
    }

    /// An entry that must go.
    fn reject(&mut self, code: &'static str, what: String, spot: Spot) {
        self.unexpected(code, what, place(spot.dir).at_offset(byte(index(spot.at))));
        self.fix(Stage::Names, Fix::Remove(spot));
    }

    fn name_of_directory(&mut self, entry: &LocatedEntry) {
        let (dir, root) = (entry.spot.dir, Ino::new(ROOT));
        let what = format!("`{}` is an additional name of a directory", show(&entry.name));
        if entry.ino == root {
            return self.reject("directory.two-names", what, entry.spot);
        }
        let names = self.names_of.entry(entry.ino).or_default();
        names.push(entry.spot);
        if names.len() > 1 {
            // A directory being renamed has both names for a while.
            let place = place(dir).at_offset(byte(index(entry.spot.at)));
            self.expected("directory.two-names", what, place);
        }
    }

    /// Chooses the one name of a directory: that in the directory of its `..`, or else the first.
    fn second_names(&mut self) {
        for (ino, names) in std::mem::take(&mut self.names_of) {
            let parent = self.seen.get(&ino).and_then(|seen| seen.parent);
            let named_there = names.iter().find(|spot| Some(spot.dir) == parent);
            debug_assert!(!names.is_empty(), "a directory is noted with a name");
            let Some(&kept) = named_there.or(names.first()) else { continue };
            for &spot in names.iter().filter(|spot| **spot != kept) {
                self.fix(Stage::Names, Fix::Remove(spot));
            }
            for spot in &names {
                self.children.entry(spot.dir).or_default().push(ino);
            }
            if let Some(seen) = self.seen.get_mut(&ino) {
                seen.named_in = Some(kept);
            }
            self.names_of.insert(ino, names);
        }
    }

    /// Whether an inode lies in a group that cannot be read.
    fn is_lost(&self, ino: Ino) -> bool {
        self.volume.sb.inode_slot(ino).is_ok_and(|(group, _)| {
            self.lost_groups.contains(&group) && self.volume.inode(ino).is_err()
        })
    }

    fn dot(&mut self, dir: Ino, entry: &LocatedEntry) {
        if entry.ino == dir {
            self.count(dir);
            self.kind_of_dot(entry);
        } else {
            let what = format!("`.` points to inode {}", entry.ino);
            self.unexpected("directory.dot", what, place(dir));
            self.fix(Stage::Names, Fix::Dots(dir));
        }
    }

    fn dot_dot(&mut self, dir: Ino, entry: &LocatedEntry) {
        if let Some(seen) = self.seen.get_mut(&dir) {
            seen.parent = Some(entry.ino);
        }
        self.kind_of_dot(entry);
    }

    fn kind_of_dot(&mut self, entry: &LocatedEntry) {
        if self.sb().typed_entries && entry.kind != Some(FileKind::Directory) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.unexpected("entry.kind", what, place(entry.spot.dir));
            self.fix(Stage::Names, Fix::Retype(entry.spot, FileKind::Directory));
        }
    }

    fn count(&mut self, ino: Ino) {
        if let Some(seen) = self.seen.get_mut(&ino) {
            seen.names += 1;
        }
    }

    /// Compares a directory's `..` with the directory that names it.
    fn parent(&mut self, dir: Ino) {
        let Some(seen) = self.seen.get(&dir) else { return };
        let root = Ino::new(ROOT);
        let named_in = if dir == root { Some(root) } else { seen.named_in.map(|spot| spot.dir) };
        // An unconnected directory is nobody's child.
        let (Some(parent), Some(named_in)) = (seen.parent, named_in) else { return };
        self.count(parent);
        if parent != named_in {
            let what = format!("`..` points to inode {parent}, should be {named_in}");
            // A directory that was being moved; `fsck_ffs -p` corrects it unasked (`pass2.c`).
            self.expected("directory.dot-dot", what, place(dir));
            self.fix(Stage::Names, Fix::Parent(dir, named_in));
        }
    }

    /// Phase 3: directories that are not connected to the root.
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
            let what = "in use, but not referenced by any directory entry".to_string();
            self.for_want_of_names("directory.unconnected", what, place(ino));
            self.fix(Stage::Connections, Fix::Connect(ino));
        }
        let unreached: Vec<Ino> = dirs.into_iter().filter(|ino| !reached.contains(ino)).collect();
        for &ino in &unreached {
            let what = "its only names are in directories below itself".to_string();
            self.unexpected("directory.loop", what, place(ino));
        }
        self.open_loops(&unreached);
    }

    /// Removes a name from each loop of directories.
    fn open_loops(&mut self, unreached: &[Ino]) {
        let mut walks: BTreeMap<Ino, Ino> = BTreeMap::new();
        for &start in unreached {
            let mut at = start;
            // Upwards to a directory that was walked before: if by this walk, it is a loop.
            while !walks.contains_key(&at) {
                walks.insert(at, start);
                let Some(spot) = self.seen.get(&at).and_then(|seen| seen.named_in) else { break };
                at = spot.dir;
                if walks.get(&at) == Some(&start)
                    && let Some(name) = self.seen.get(&at).and_then(|seen| seen.named_in)
                {
                    self.fix(Stage::Names, Fix::Remove(name));
                }
            }
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
