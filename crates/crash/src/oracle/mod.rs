//! Whether a file system, recovered after a crash, is in a state that the discipline allows.
//!
//! Durable state at the time of the crash must be there: every name leads where it led at the last
//! promise that covers it, or where an operation since then has led it; a file has the contents it
//! had, or those written since. A file without operations since has exactly its promised contents.
//! A file that was promised and has been renamed since has one of its names.

mod contents;
mod window;

pub use window::{Promised, Window};

use crate::history::{FileId, History, Name, Renamed, values_in};
use seekless_cache::{Discipline, JournalMode};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::Ino;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Promises of a discipline beyond durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// No inode or block in use is marked as free. Where that is not promised bitmaps are rebuilt.
    pub order: bool,
    /// A file never shows bytes that were not written to it.
    pub contents: bool,
    /// A directory that was being given another name has just one of the two, since
    /// a full repair decided between them.
    pub one_name: bool,
}

impl Promises {
    /// The promises of a discipline. `async` promises the least, and is held to those of soft
    /// updates: so the search shows that it can see.
    #[must_use]
    pub const fn of(discipline: Discipline) -> Self {
        let normal = matches!(discipline, Discipline::Normal);
        let unordered = matches!(discipline, Discipline::Journal(JournalMode::Writeback));
        Self { order: !normal, contents: !(normal || unordered), one_name: false }
    }
}

/// Something that may not be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    /// Its kind, by a name that does not change between versions.
    pub code: String,
    /// A description, for people.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(code: &str, what: impl Into<String>) -> Self {
        Self { code: code.to_string(), what: what.into() }
    }
}

/// Most violations that are kept of one state.
const MOST: usize = 20;

/// Where reconnected files go.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Whether a name is one that a check of FAT gives to clusters that no file has.
fn is_chain(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b"FSCK").and_then(|rest| rest.strip_suffix(b".REC"));
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
}

#[derive(Clone)]
struct Oracle<'a> {
    history: &'a History,
    window: &'a Window<'a>,
    image: &'a dyn Inspect,
    promises: Promises,
    /// Names lead to inodes with the numbers of the history.
    has_inodes: bool,
    found: Vec<Violation>,
    /// Files that a name leads to.
    reached: BTreeSet<FileId>,
    directories: BTreeSet<Ino>,
}

/// Compares a recovered file system with a workload's history. Without inodes, whose numbers are
/// those of the history, files are identified by their contents.
#[must_use]
pub fn judge(
    history: &History,
    window: &Window<'_>,
    image: &dyn Inspect,
    promises: Promises,
    has_inodes: bool,
) -> Vec<Violation> {
    let mut oracle = Oracle {
        history,
        window,
        image,
        promises,
        has_inodes,
        found: Vec::new(),
        reached: BTreeSet::from([0]),
        directories: BTreeSet::new(),
    };
    oracle.directory(0, image.root());
    oracle.renamed();
    oracle.found.truncate(MOST);
    oracle.found
}

impl Oracle<'_> {
    fn add(&mut self, code: &str, what: String) {
        self.found.push(Violation::new(code, what));
    }

    fn failed(&mut self, what: &str, error: &FsError) {
        self.add("unreadable", format!("{what}: {error}"));
    }

    /// A path for people: the last name that is known of each.
    fn path(&self, file: FileId) -> String {
        self.history.path_of(file)
    }

    fn show(&self, name: &Name) -> String {
        let above = self.path(name.0);
        let slash = if above.ends_with('/') { "" } else { "/" };
        format!("{above}{slash}{}", name.1.escape_ascii())
    }

    fn directory(&mut self, dir: FileId, ino: Ino) {
        if !self.directories.insert(ino) {
            return;
        }
        // In the order of the directory: a name may be there twice.
        let mut entries: Vec<(Vec<u8>, Ino)> = Vec::new();
        let listed = self.image.read_dir(ino, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino));
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            let path = self.path(dir);
            self.failed(&path, &error);
            return;
        }
        let mut names = BTreeSet::new();
        for (name, to) in &entries {
            if !names.insert(name.as_slice()) {
                let what = self.show(&(dir, name.clone()));
                self.add("names.twice", format!("{what} exists twice"));
            } else if !matches!(&name[..], b"." | b"..") {
                self.entry(&(dir, name.clone()), *to);
            }
        }
        let history = self.history;
        for (name, _) in history.names.range((dir, Vec::new())..(dir + 1, Vec::new())) {
            if !names.contains(name.1.as_slice()) {
                self.absent(name);
            }
        }
    }

    /// The files that a name may lead to.
    fn choices(&self, name: &Name) -> Vec<Option<FileId>> {
        let Some(values) = self.history.names.get(name) else { return vec![None] };
        let from = self.window.of_name(name);
        values_in(values, from, self.window.upto).copied().collect()
    }

    fn code_of(&self, from: usize, what: &str) -> String {
        let class = if from == 0 { "untouched" } else { "durable" };
        format!("{class}.{what}")
    }

    fn absent(&mut self, name: &Name) {
        let choices = self.choices(name);
        if self.promises.one_name && self.is_moved_name(name) {
            return;
        }
        if !choices.contains(&None) {
            let code = self.code_of(self.window.of_name(name), "name-lost");
            let what = format!("{} is missing", self.show(name));
            self.add(&code, what);
        }
    }

    fn entry(&mut self, name: &Name, ino: Ino) {
        let is_rescued = if self.has_inodes { name.1 == LOST_AND_FOUND } else { is_chain(&name.1) };
        if name.0 == 0 && is_rescued {
            return;
        }
        let choices = self.choices(name);
        let is_it = |file: &FileId| !self.has_inodes || self.history.files[*file].ino == ino;
        let files: Vec<FileId> = choices.iter().copied().flatten().filter(is_it).collect();
        if files.is_empty() {
            if let Some(file) = self.is_swapped(name, ino) {
                self.reached.insert(file);
                return;
            }
            if self.is_passing(name) {
                let held = |file: &FileId| self.history.files[*file].ino == ino;
                let files: Vec<FileId> = (1..self.history.files.len()).filter(held).collect();
                self.reached.extend(files);
                return;
            }
            let known = choices.iter().flatten().next().is_some();
            let what = if known { "name-wrong" } else { "name-back" };
            let code = self.code_of(self.window.of_name(name), what);
            let what = format!("{} refers to inode {ino}", self.show(name));
            self.add(&code, what);
            return;
        }
        // An inode may have been used again, and under the same name: the file here has to be one
        // of them, with the contents of that one.
        let as_each: Vec<Self> = files.iter().map(|&file| self.as_file(file, ino)).collect();
        let Some(least) = as_each.iter().map(|oracle| oracle.found.len()).min() else { return };
        if least > self.found.len() && self.is_emptied(name, ino) {
            return;
        }
        // Where it may be any of several, which are empty say, it counts as a name of each.
        let mut fitting = as_each.into_iter().filter(|oracle| oracle.found.len() == least);
        let Some(mut best) = fitting.next() else { return };
        for other in fitting {
            best.reached.extend(other.reached);
            best.directories.extend(other.directories);
        }
        (self.found, self.reached, self.directories) = (best.found, best.reached, best.directories);
    }

    /// The violations if an inode is to be a file of the history, with all that is below it.
    fn as_file(&self, file: FileId, ino: Ino) -> Self {
        let mut with = self.clone();
        with.reached.insert(file);
        let mut wrong = with.file(file, ino);
        with.found.append(&mut wrong);
        if with.history.files[file].kind == FileKind::Directory {
            with.directory(file, ino);
        }
        with
    }

    /// Whether a name is one that an exchange uses on its way.
    fn is_passing(&self, name: &Name) -> bool {
        let deeds = self.history.deeds.iter().take(self.window.upto);
        let mut since = deeds.skip(self.window.of_all());
        let third = [&b".exchange-"[..], b".replaced-"];
        third.iter().any(|start| name.1.starts_with(start))
            && since.any(|deed| deed.passing.third.contains(&name.0))
    }

    /// Whether a name is one of two that a file had for a while, and has lost its contents to the
    /// other.
    fn is_emptied(&self, name: &Name, ino: Ino) -> bool {
        let is_empty = |attr: seekless_fs::Attr| attr.kind == FileKind::Regular && attr.size == 0;
        let mut since = self.renamed_since();
        self.image.attr(ino).is_ok_and(is_empty)
            && since.any(|(at, renamed)| {
                at > self.window.of_contents(renamed.file) && renamed.names.contains(name)
            })
    }

    /// Files that are their entries, and may not have their new names yet.
    fn renamed_since(&self) -> impl Iterator<Item = (usize, &Renamed)> {
        let deeds = self.history.deeds.iter().zip(1..).take(self.window.upto);
        let since = deeds.skip(self.window.of_all());
        since.filter_map(|(deed, at)| Some((at, deed.passing.renamed.as_ref()?)))
    }

    /// Whether a file may be without a name, since it takes that of another.
    fn is_unnamed(&self, file: FileId, from: usize) -> bool {
        let mut since = self.renamed_since();
        since.any(|(at, renamed)| renamed.over && renamed.file == file && at > from)
    }

    /// Whether a name was being given to a directory.
    fn is_moved_name(&self, name: &Name) -> bool {
        let deeds = self.history.deeds.iter().take(self.window.upto);
        let mut since = deeds.skip(self.window.of_all());
        since.any(|deed| deed.passing.asks.as_ref() == Some(name))
    }

    /// Whether a name leads to a file that it has changed places with.
    fn is_swapped(&self, name: &Name, ino: Ino) -> Option<FileId> {
        let deeds = self.history.deeds.iter().take(self.window.upto);
        let swapped =
            deeds.skip(self.window.of_all()).filter_map(|deed| deed.passing.swapped.as_ref());
        let is_it =
            |(at, file): &&(Name, FileId)| at == name && self.history.files[*file].ino == ino;
        swapped.into_iter().find(is_it).map(|(_, file)| *file)
    }

    /// A file that was promised and only ever renamed since still has a name.
    fn renamed(&mut self) {
        for file in 1..self.history.files.len() {
            let from = self.window.of_contents(file);
            let lost = &self.history.files[file].lost_names;
            let gone = lost.iter().any(|&at| at > from && at <= self.window.upto);
            let named = !self.history.names_of(file, from).is_empty();
            let unnamed = self.is_unnamed(file, from);
            if named
                && !gone
                && !unnamed
                && !self.reached.contains(&file)
                && self.is_reachable(file, from)
            {
                let code = self.code_of(from, "file-lost");
                let what = format!("{} has none of its names", self.path(file));
                self.add(&code, what);
            }
        }
    }

    /// Whether the directories of a file's names are there: else it is they that
    /// are missing.
    fn is_reachable(&self, file: FileId, from: usize) -> bool {
        self.history.names_of(file, from).iter().any(|name| self.reached.contains(&name.0))
    }
}
