//! The operations and promises of a workload: the file system as maps in memory, with all its
//! versions.

use crate::sparse::Sparse;
use seekless_fs::FileKind;
use seekless_units::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// A file of the history, by number; 0 is the root. Numbers are not used twice,
/// unlike those of inodes.
pub type FileId = usize;

/// A point in the history: how many operations had been done. 0 is the state to
/// begin with.
pub type Moment = usize;

/// A name in a directory.
pub type Name = (FileId, Vec<u8>);

/// The contents of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Of a regular file; of a symlink, its target.
    pub bytes: Sparse,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A file, over time.
#[derive(Clone, Debug)]
pub struct File {
    /// The inode it was given.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// The low 12 bits of its mode.
    pub perm: u16,
    /// Its contents from each moment on; never empty.
    pub versions: Vec<(Moment, Contents)>,
    /// When a name of it went that was not given elsewhere in the same step.
    pub lost_names: Vec<Moment>,
}

/// An operation that was done, and when.
#[derive(Clone, Debug)]
pub struct Deed {
    /// Steps in the log when it began.
    pub began: usize,
    /// Steps in the log when it was done.
    pub ended: usize,
    /// Its line in the script.
    pub line: u32,
    /// As the script has it.
    pub text: String,
    /// Intermediate states that may be seen while it is under way.
    pub passing: Passing,
}

/// Intermediate states of an operation that is under way.
#[derive(Clone, Debug, Default)]
pub struct Passing {
    /// Directories in which another name may be: of an exchange, or of a file that
    /// is replaced.
    pub third: BTreeSet<FileId>,
    /// A name that may lead to a file: the old one of a file that has changed places
    /// with another before that goes.
    pub swapped: Option<(Name, FileId)>,
    /// Where a file is its entry: a file that gets another name.
    pub renamed: Option<Renamed>,
    /// The new name of a directory, or of a file that is its entry, which may have two names or the
    /// wrong parent: a check asks how to repair it.
    pub asks: Option<Name>,
}

/// A file that is its entry, and gets another name. While it has both, a check empties
/// the one that it reads later.
#[derive(Clone, Debug)]
pub struct Renamed {
    /// Which.
    pub file: FileId,
    /// Its old name, and its new one.
    pub names: [Name; 2],
    /// A file whose new name was another's: for a while it may have none.
    pub over: bool,
}

/// The scope of a promise that was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everything.
    All,
    /// A file, its contents, its names and the way there; of a directory the names in it.
    File(FileId),
}

/// A promise: state that is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// As it was at this moment.
    pub moment: Moment,
    /// Steps of the log from which on it is durable.
    pub since: usize,
    /// Its scope.
    pub scope: Scope,
}

/// A workload's history.
#[derive(Clone, Debug)]
pub struct History {
    /// By number.
    pub files: Vec<File>,
    /// The file that each name led to, from each moment on.
    pub names: BTreeMap<Name, Vec<(Moment, Option<FileId>)>>,
    /// The operations; the first brought moment 1.
    pub deeds: Vec<Deed>,
    /// The promises.
    pub promises: Vec<Promise>,
    now: Moment,
}

impl History {
    /// That of an empty root directory.
    #[must_use]
    pub fn new(root: Ino) -> Self {
        let root = File {
            ino: root,
            kind: FileKind::Directory,
            perm: 0o755,
            versions: vec![(0, Contents::default())],
            lost_names: Vec::new(),
        };
        Self {
            files: vec![root],
            names: BTreeMap::new(),
            deeds: Vec::new(),
            promises: Vec::new(),
            now: 0,
        }
    }

    /// Makes the present state moment 0, without its past.
    #[must_use]
    pub fn settled(mut self) -> Self {
        for file in &mut self.files {
            let last = file.versions.pop();
            file.versions = last.into_iter().map(|(_, contents)| (0, contents)).collect();
            file.lost_names.clear();
        }
        for values in self.names.values_mut() {
            let last = values.pop();
            *values = last.into_iter().map(|(_, value)| (0, value)).collect();
        }
        (self.deeds, self.promises, self.now) = (Vec::new(), Vec::new(), 0);
        self
    }

    /// An operation begins; changes noted from now on belong to it.
    pub fn begin(&mut self) {
        self.now = self.deeds.len() + 1;
    }

    /// It is done.
    pub fn end(&mut self, deed: Deed) {
        self.deeds.push(deed);
    }

    /// Records that a scope is durable in its present state.
    pub fn promise(&mut self, scope: Scope, since: usize) {
        self.promises.push(Promise { moment: self.deeds.len(), since, scope });
    }

    /// The file that a name leads to now.
    #[must_use]
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Option<FileId> {
        self.names.get(&(dir, name.to_vec()))?.last()?.1
    }

    /// A file's contents now.
    #[must_use]
    pub fn contents(&self, file: FileId) -> &Contents {
        // There is always a version.
        &self.files[file].versions[self.files[file].versions.len() - 1].1
    }

    /// A new file, still without a name.
    pub fn add_file(&mut self, ino: Ino, kind: FileKind, perm: u16, contents: Contents) -> FileId {
        let versions = vec![(self.now, contents)];
        self.files.push(File { ino, kind, perm, versions, lost_names: Vec::new() });
        self.files.len() - 1
    }

    /// Lets a name lead to a file, or to nothing.
    pub fn set_name(&mut self, dir: FileId, name: &[u8], to: Option<FileId>) {
        let values = self.names.entry((dir, name.to_vec())).or_insert_with(|| vec![(0, None)]);
        if values.last().is_some_and(|&(at, _)| at == self.now) && self.now > 0 {
            values.pop();
        }
        values.push((self.now, to));
    }

    /// A file's name went, and was not given elsewhere.
    pub fn lose_name(&mut self, file: FileId) {
        self.files[file].lost_names.push(self.now);
    }

    /// A file holds something else.
    pub fn set_contents(&mut self, file: FileId, contents: Contents) {
        let now = self.now;
        let versions = &mut self.files[file].versions;
        match versions.last_mut() {
            Some((at, held)) if *at == now => *held = contents,
            _ => versions.push((now, contents)),
        }
    }

    /// A path that a file had, for people.
    #[must_use]
    pub fn path_of(&self, file: FileId) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = file;
        // No path is longer than there are files.
        for _ in 0..self.files.len() {
            let since = |values: &Vec<(Moment, Option<FileId>)>| {
                values.iter().find(|&&(_, to)| to == Some(at)).map(|&(since, _)| since)
            };
            let names = self.names.iter().filter(|_| at != 0);
            let names = names.filter_map(|(name, values)| Some((since(values)?, name)));
            let Some((_, (dir, name))) = names.min() else { break };
            parts.push(name.escape_ascii().to_string());
            at = *dir;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// All names that a file has at a moment.
    #[must_use]
    pub fn names_of(&self, file: FileId, moment: Moment) -> Vec<&Name> {
        let leads_there = |values: &&Vec<(Moment, Option<FileId>)>| {
            value_at(values, moment).copied().flatten() == Some(file)
        };
        let names = self.names.iter().filter(|(_, values)| leads_there(values));
        names.map(|(name, _)| name).collect()
    }
}

/// The value in force at a moment, in a list of those that began at some.
#[must_use]
pub fn value_at<T>(values: &[(Moment, T)], moment: Moment) -> Option<&T> {
    values.iter().take_while(|(at, _)| *at <= moment).last().map(|(_, value)| value)
}

/// The values in force at any time from one moment to another.
pub fn values_in<T>(values: &[(Moment, T)], from: Moment, to: Moment) -> impl Iterator<Item = &T> {
    let first = values.iter().take_while(|(at, _)| *at <= from).count().saturating_sub(1);
    values.iter().skip(first).take_while(move |(at, _)| *at <= to.max(from)).map(|(_, value)| value)
}
