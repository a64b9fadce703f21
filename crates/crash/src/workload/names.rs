//! The names there are while a workload is put together.

use super::{Features, path};
use crate::script::{Op, Path};
use std::collections::BTreeSet;

/// Files and empty directories that workloads work on.
#[derive(Clone, Debug)]
pub(super) struct Names {
    files: BTreeSet<&'static str>,
    dirs: BTreeSet<&'static str>,
    /// Symbolic links and directories with something in them, which no other
    /// operation works on.
    links: BTreeSet<&'static str>,
    /// The format's features.
    pub(super) has: Features,
}

impl Names {
    pub(super) fn of_setup(has: Features) -> Self {
        Self {
            files: BTreeSet::from(["A/foo", "B/bar"]),
            dirs: BTreeSet::from(["A/sub"]),
            links: BTreeSet::new(),
            has,
        }
    }

    fn is_there(&self, name: &str) -> bool {
        self.files.contains(name) || self.dirs.contains(name) || self.links.contains(name)
    }

    /// A name that is not there, and will be a file's.
    pub(super) fn new_file(&mut self, wishes: &[&'static str]) -> Path {
        let name = self.absent(wishes);
        self.files.insert(name);
        path(name)
    }

    /// A name that is not there, and will be a directory's.
    pub(super) fn new_dir(&mut self, wishes: &[&'static str]) -> Path {
        let name = self.absent(wishes);
        self.dirs.insert(name);
        path(name)
    }

    /// A name that is not there, and will be a symbolic link's.
    pub(super) fn new_link(&mut self, wishes: &[&'static str]) -> Path {
        let name = self.absent(wishes);
        self.links.insert(name);
        path(name)
    }

    fn absent(&self, wishes: &[&'static str]) -> &'static str {
        let free = wishes.iter().find(|name| !self.is_there(name));
        free.copied().unwrap_or("A/another")
    }

    /// A file that is there; made if none is.
    pub(super) fn file(&mut self, wishes: &[&'static str], ops: &mut Vec<Op>) -> &'static str {
        if let Some(name) = wishes.iter().find(|name| self.files.contains(**name)) {
            return name;
        }
        let name = wishes.last().copied().unwrap_or("A/needed");
        ops.extend([Op::Open(path(name)), Op::Write(None, 0, 4000), Op::Close]);
        self.files.insert(name);
        name
    }

    /// An empty directory that is there; made if none is.
    pub(super) fn dir(&mut self, wishes: &[&'static str], ops: &mut Vec<Op>) -> &'static str {
        if let Some(name) = wishes.iter().find(|name| self.dirs.contains(**name)) {
            return name;
        }
        let name = wishes.last().copied().unwrap_or("A/needed");
        ops.push(Op::Mkdir(path(name)));
        self.dirs.insert(name);
        name
    }

    /// A directory is not empty any more: none that removes it may take it.
    pub(super) fn fill(&mut self, name: &str) {
        if let Some(name) = self.dirs.take(name) {
            self.links.insert(name);
        }
    }

    /// A name is gone.
    pub(super) fn remove(&mut self, name: &str) {
        self.files.remove(name);
        self.dirs.remove(name);
    }
}
