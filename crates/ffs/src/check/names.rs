//! Phase 2: every directory, and the inodes of its entries.

use super::checker::Checker;
use super::fix::{DirectorySlot, Fix, Stage};
use super::problems;
use crate::bmap::EVERYTHING;
use crate::entry::{Entry, HEAD, kind_of};
use crate::inode::Inode;
use crate::ondisk::{DIRECTORY_UNIT, ROOT, WHITEOUT};
use seekless_fs::check::Problem;
use seekless_fs::field::{byte, index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::{BTreeMap, HashMap};

/// The directories that are named in each.
pub(super) type Children = BTreeMap<Ino, Vec<Ino>>;

/// A directory entry and its place.
struct LocatedEntry {
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
    slot: DirectorySlot,
}

pub(super) fn place(dir: Ino) -> Location {
    Location::of("directory").in_inode(dir)
}

/// Phase 2: every directory, and the inodes of its entries.
pub(super) struct NamePass<'a> {
    checker: &'a mut Checker,
    /// The names of each directory, by where they are.
    names_of: BTreeMap<Ino, Vec<DirectorySlot>>,
    children: Children,
}

impl<'a> NamePass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker, names_of: BTreeMap::new(), children: Children::new() }
    }

    /// Checks all names; returns the directories that are named in each.
    pub(super) fn names(mut self) -> Result<Children, FsError> {
        let root = Ino::new(ROOT);
        match self.checker.seen.get(&root).map(|seen| seen.kind) {
            Some(FileKind::Directory) => {}
            Some(_) => {
                self.checker.found(
                    problems::ROOT_NOT_DIRECTORY,
                    "the root is a file".into(),
                    place(root),
                );
                self.checker.fix(Stage::Inodes, Fix::Clear(root));
            }
            None => {
                self.checker.found(
                    problems::ROOT_MISSING,
                    "the root directory is missing".into(),
                    place(root),
                );
                self.checker.fix(Stage::Connections, Fix::Root);
            }
        }
        let is_dir = |kind: FileKind| kind == FileKind::Directory;
        let dirs: Vec<Ino> = self
            .checker
            .seen
            .iter()
            .filter(|(_, seen)| is_dir(seen.kind))
            .map(|(&ino, _)| ino)
            .collect();
        for &dir in &dirs {
            if self.checker.seen.get(&dir).is_some_and(|seen| seen.bad_blocks) {
                self.checker.names_are_missing = true;
            } else {
                self.directory(dir)?;
            }
        }
        self.second_names();
        for dir in dirs {
            self.parent(dir);
        }
        Ok(self.children)
    }

    fn directory(&mut self, dir: Ino) -> Result<(), FsError> {
        let inode = self.checker.volume.inode(dir)?;
        let bsize = u64::from(self.checker.sb().bsize);
        let mapped = self.mapped_bytes(&inode)?;
        if mapped < inode.len {
            let what = format!("hole at byte {mapped} of {}", inode.len);
            self.checker.found(problems::DIRECTORY_HOLE, what, place(dir));
            self.checker.names_are_missing = true;
            let fix = if mapped == 0 { Fix::Clear(dir) } else { Fix::Length(dir, mapped) };
            self.checker.fix(Stage::Inodes, fix);
        }
        let end = mapped.min(inode.len);
        let mut at = 0u64;
        let mut number = 0u64;
        let mut known = HashMap::new();
        while at < end {
            let len = bsize.min(end - at);
            let mut bytes = vec![0; index(len)];
            self.checker.volume.read_mapped(&inode, ByteLen::new(at), &mut bytes)?;
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = at + n * wide(DIRECTORY_UNIT);
                for name in self.unit(dir, unit, base) {
                    match known.get(&name.name) {
                        Some(&ino) if number > 1 && !self.is_other_name_of(ino, &name) => {
                            let what = format!("`{}` occurs twice", show(&name.name));
                            self.reject(problems::ENTRY_DUPLICATE, what, name.slot);
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
            self.checker.found(
                problems::DIRECTORY_DOT,
                "`.` or `..` is missing".into(),
                place(dir),
            );
            self.checker.fix(Stage::Names, Fix::Dots(dir));
        }
        Ok(())
    }

    /// Whether an entry is a second name of the directory named by the first entry of its name, and
    /// is found as that; or `.` or `..`.
    fn is_other_name_of(&self, first: Ino, entry: &LocatedEntry) -> bool {
        matches!(&entry.name[..], b"." | b"..")
            || first == entry.ino && self.checker.is_directory(entry.ino)
    }

    /// The bytes of a directory up to its first hole, at least.
    fn mapped_bytes(&self, inode: &Inode) -> Result<u64, FsError> {
        let fsize = u64::from(self.checker.sb().fsize);
        let mut end = 0u64;
        for run in self.checker.volume.runs(inode, &EVERYTHING)? {
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
            let slot = DirectorySlot { dir, at: base + wide(at) };
            let place = place(dir).at_offset(byte(index(slot.at)));
            let entry = match self.checker.volume.sb.bare_entry_at(unit, at, place) {
                Ok(entry) => entry,
                Err(error) => {
                    let (what, place) = error.finding(place);
                    self.checker.found(problems::DIRECTORY_CORRUPT, what, place);
                    self.checker.names_are_missing = true;
                    self.checker.fix(Stage::Names, Fix::Cut(slot));
                    break;
                }
            };
            at += entry.len;
            if entry.ino != Ino::ZERO && entry.kind != WHITEOUT {
                if !entry.is_ended(unit) {
                    self.not_ended(&entry, slot);
                }
                let kind = kind_of(entry.kind);
                names.push(LocatedEntry { ino: entry.ino, kind, name: entry.name.to_vec(), slot });
            }
        }
        names
    }

    /// Handles a name without the zero behind it, by which kernels go. (`fsck_ffs` drops the rest
    /// of the unit; the name has the length in its entry.)
    fn not_ended(&mut self, entry: &Entry<'_>, slot: DirectorySlot) {
        let what = format!("`{}` is not terminated by a zero byte", show(entry.name));
        let place = place(slot.dir).at_offset(byte(index(slot.at)));
        self.checker.found(problems::ENTRY_ENDING, what, place);
        let has_room = entry.len > HEAD + entry.name.len();
        let fix = if has_room { Fix::Terminate(slot) } else { Fix::Remove(slot) };
        self.checker.fix(Stage::Names, fix);
    }

    /// Follows an entry; the first two are `.` and `..`.
    fn entry(&mut self, dir: Ino, number: u64, entry: &LocatedEntry) {
        match (number, entry.name.as_slice()) {
            (0, b".") => return self.dot(dir, entry),
            (1, b"..") => return self.dot_dot(dir, entry),
            (0 | 1, _) => {
                let what = format!("`{}` in the place of `.` and `..`", show(&entry.name));
                self.checker.found(problems::DIRECTORY_DOT, what, place(dir));
                self.checker.fix(Stage::Names, Fix::Dots(dir));
                if matches!(entry.name.as_slice(), b"." | b"..") {
                    return;
                }
            }
            (_, b"." | b"..") => {
                let what = format!("`{}` is a duplicate entry", show(&entry.name));
                return self.reject(problems::ENTRY_NAME, what, entry.slot);
            }
            _ => {}
        }
        if entry.name.iter().any(|&byte| byte == b'/' || byte == 0) {
            let what = format!("`{}` is not a valid name", show(&entry.name));
            self.reject(problems::ENTRY_NAME, what, entry.slot);
        }
        if dir == Ino::new(ROOT) && entry.name == b"lost+found" {
            self.checker.lost_found = Some((entry.slot, entry.ino));
        }
        let Some(seen) = self.checker.seen.get_mut(&entry.ino) else {
            if !self.checker.is_lost(entry.ino) {
                let what = format!(
                    "`{}` points to inode {}, which is not in use",
                    show(&entry.name),
                    entry.ino
                );
                self.reject(problems::ENTRY_UNALLOCATED, what, entry.slot);
            }
            return;
        };
        seen.names += 1;
        let kind = seen.kind;
        if kind == FileKind::Directory {
            self.name_of_directory(entry);
        }
        if let Some(seen) = self.checker.seen.get_mut(&dir) {
            seen.entries += 1;
        }
        if self.checker.sb().typed_entries && entry.kind != Some(kind) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.checker.found(problems::ENTRY_KIND, what, place(dir));
            self.checker.fix(Stage::Names, Fix::Retype(entry.slot, kind));
        }
    }

    /// An entry that must go.
    fn reject(&mut self, problem: &'static Problem, what: String, slot: DirectorySlot) {
        self.checker.found(problem, what, place(slot.dir).at_offset(byte(index(slot.at))));
        self.checker.fix(Stage::Names, Fix::Remove(slot));
    }

    fn name_of_directory(&mut self, entry: &LocatedEntry) {
        let (dir, root) = (entry.slot.dir, Ino::new(ROOT));
        let what = format!("`{}` is an additional name of a directory", show(&entry.name));
        let place = place(dir).at_offset(byte(index(entry.slot.at)));
        if entry.ino == root {
            self.checker.unexpected(problems::DIRECTORY_TWO_NAMES, what, place);
            self.checker.fix(Stage::Names, Fix::Remove(entry.slot));
            return;
        }
        let names = self.names_of.entry(entry.ino).or_default();
        names.push(entry.slot);
        if names.len() > 1 {
            // A directory being renamed has both names for a while.
            self.checker.expected(problems::DIRECTORY_TWO_NAMES, what, place);
        }
    }

    /// Chooses the one name of a directory: that in the directory of its `..`, or else the first.
    fn second_names(&mut self) {
        for (ino, names) in std::mem::take(&mut self.names_of) {
            let parent = self.checker.seen.get(&ino).and_then(|seen| seen.parent);
            let named_there = names.iter().find(|slot| Some(slot.dir) == parent);
            debug_assert!(!names.is_empty(), "a directory is noted with a name");
            let Some(&kept) = named_there.or(names.first()) else { continue };
            for &slot in names.iter().filter(|slot| **slot != kept) {
                self.checker.fix(Stage::Names, Fix::Remove(slot));
            }
            for slot in &names {
                self.children.entry(slot.dir).or_default().push(ino);
            }
            if let Some(seen) = self.checker.seen.get_mut(&ino) {
                seen.named_in = Some(kept);
            }
        }
    }

    fn dot(&mut self, dir: Ino, entry: &LocatedEntry) {
        if entry.ino == dir {
            self.count(dir);
            self.kind_of_dot(entry);
        } else {
            let what = format!("`.` points to inode {}", entry.ino);
            self.checker.found(problems::DIRECTORY_DOT, what, place(dir));
            self.checker.fix(Stage::Names, Fix::Dots(dir));
        }
    }

    fn dot_dot(&mut self, dir: Ino, entry: &LocatedEntry) {
        if let Some(seen) = self.checker.seen.get_mut(&dir) {
            seen.parent = Some(entry.ino);
        }
        self.kind_of_dot(entry);
    }

    fn kind_of_dot(&mut self, entry: &LocatedEntry) {
        if self.checker.sb().typed_entries && entry.kind != Some(FileKind::Directory) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.checker.found(problems::ENTRY_KIND, what, place(entry.slot.dir));
            self.checker.fix(Stage::Names, Fix::Retype(entry.slot, FileKind::Directory));
        }
    }

    fn count(&mut self, ino: Ino) {
        if let Some(seen) = self.checker.seen.get_mut(&ino) {
            seen.names += 1;
        }
    }

    /// Compares a directory's `..` with the directory that names it.
    fn parent(&mut self, dir: Ino) {
        let Some(seen) = self.checker.seen.get(&dir) else { return };
        let root = Ino::new(ROOT);
        let named_in = if dir == root { Some(root) } else { seen.named_in.map(|slot| slot.dir) };
        // An unconnected directory is nobody's child.
        let (Some(parent), Some(named_in)) = (seen.parent, named_in) else { return };
        self.count(parent);
        if parent != named_in {
            let what = format!("`..` points to inode {parent}, should be {named_in}");
            // A directory that was being moved; `fsck_ffs -p` corrects it unasked (`pass2.c`).
            self.checker.found(problems::DIRECTORY_DOT_DOT, what, place(dir));
            self.checker.report.set_values(parent.get().into(), named_in.get().into());
            self.checker.fix(Stage::Names, Fix::Parent(dir, named_in));
        }
    }
}

fn show(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
