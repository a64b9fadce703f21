//! The population of a file system that is aged: files, directories, trees of both, and when an
//! event is due for them. Memory is bounded by the number of live entities.

use super::op::{Contents, DirId, FileId, Place};
use seekless_units::Nanos;
use slab::Slab;
use std::collections::BTreeMap;

/// A tree of files that are made and removed together, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TreeId(pub(super) usize);

/// A unit that lives and dies as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entity {
    File(FileId),
    Tree(TreeId),
}

/// A moment; of events at the same time, those entered later come later.
pub(super) type When = (Nanos, u64);

/// Due events, sorted by moment.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BTreeMap<When, Entity>,
    count: u64,
}

impl Agenda {
    pub(super) fn enter(&mut self, at: Nanos, entity: Entity) -> When {
        self.count += 1;
        let when = (at, self.count);
        self.entries.insert(when, entity);
        when
    }

    pub(super) fn strike(&mut self, when: Option<When>) {
        if let Some(when) = when {
            self.entries.remove(&when);
        }
    }

    pub(super) fn first(&self) -> Option<(Nanos, Entity)> {
        self.entries.first_key_value().map(|(when, entity)| (when.0, *entity))
    }
}

/// When something happens to an entity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// When it dies; `None` for never.
    pub(super) dies: Option<Nanos>,
    /// Its entries in the agendas of deaths and of events.
    pub(super) death: Option<When>,
    pub(super) event: Option<When>,
    /// Events that are still to come, and the time between them.
    pub(super) left: u32,
    pub(super) every: Nanos,
}

/// Which of its names a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Final,
    Temporary,
    /// Read, as maildirs mark it.
    Read,
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) class: usize,
    /// Its name's number: a file that replaces it by a rename has the same.
    pub(super) number: u64,
    pub(super) contents: Contents,
    pub(super) stage: Stage,
    pub(super) dir: DirId,
    /// Which of the class's roots it lies in.
    pub(super) root: u32,
    /// Zero until it is made.
    pub(super) len: u64,
    /// Its length when it is made, and that of each piece appended later.
    pub(super) piece: u64,
    /// Names that it has besides the first.
    pub(super) links: u32,
    pub(super) fate: Fate,
}

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) class: usize,
    /// The first is the top one.
    pub(super) dirs: Vec<DirId>,
    pub(super) files: Vec<FileId>,
    pub(super) fate: Fate,
}

#[derive(Clone, Debug)]
pub(super) struct Dir {
    parent: DirId,
    name: String,
}

/// Everything that is there, or will be when the steps planned are done.
#[derive(Debug)]
pub(super) struct Population {
    pub(super) files: Slab<File>,
    pub(super) trees: Slab<Tree>,
    dirs: Slab<Dir>,
    /// Directories that stay, by parent and name.
    lasting: BTreeMap<(DirId, String), DirId>,
    pub(super) deaths: Agenda,
    pub(super) events: Agenda,
}

impl Population {
    pub(super) fn new() -> Self {
        let mut dirs = Slab::new();
        dirs.insert(Dir { parent: DirId::ROOT, name: String::new() });
        Self {
            files: Slab::new(),
            trees: Slab::new(),
            dirs,
            lasting: BTreeMap::new(),
            deaths: Agenda::default(),
            events: Agenda::default(),
        }
    }

    pub(super) fn add_dir(&mut self, parent: DirId, name: String) -> DirId {
        DirId(self.dirs.insert(Dir { parent, name }))
    }

    /// A directory that stays: its number, and whether it must be made.
    pub(super) fn lasting_dir(&mut self, parent: DirId, name: String) -> (DirId, bool) {
        if let Some(dir) = self.lasting.get(&(parent, name.clone())) {
            return (*dir, false);
        }
        let dir = self.add_dir(parent, name.clone());
        self.lasting.insert((parent, name), dir);
        (dir, true)
    }

    pub(super) fn drop_dir(&mut self, dir: DirId) {
        self.dirs.try_remove(dir.0);
    }

    /// Directories, without the root.
    pub(super) fn directories(&self) -> usize {
        self.dirs.len() - 1
    }

    /// Where a directory is.
    pub(super) fn place_of_dir(&self, dir: DirId) -> Place {
        let Dir { parent, name } = &self.dirs[dir.0];
        Place { dir: *parent, name: name.clone() }
    }

    /// A directory's path from the root, without a slash at either end.
    pub(super) fn path(&self, dir: DirId) -> String {
        if dir == DirId::ROOT {
            return String::new();
        }
        let Dir { parent, name } = &self.dirs[dir.0];
        let parent = self.path(*parent);
        if parent.is_empty() { name.clone() } else { format!("{parent}/{name}") }
    }

    pub(super) fn fate(&mut self, entity: Entity) -> &mut Fate {
        match entity {
            Entity::File(file) => &mut self.files[file.0].fate,
            Entity::Tree(tree) => &mut self.trees[tree.0].fate,
        }
    }

    /// Nothing is due for it any more: it is being worked on, or goes.
    pub(super) fn pin(&mut self, entity: Entity) {
        let fate = self.fate(entity);
        let (death, event) = (fate.death.take(), fate.event.take());
        self.deaths.strike(death);
        self.events.strike(event);
    }

    /// Enters the next events of an entity.
    pub(super) fn settle(&mut self, entity: Entity, now: Nanos) {
        let fate = *self.fate(entity);
        let never = Nanos::new(u64::MAX);
        let death = self.deaths.enter(fate.dies.unwrap_or(never), entity);
        let next = now + fate.every.get();
        let event = (fate.left > 0).then(|| self.events.enter(next, entity));
        let fate = self.fate(entity);
        (fate.death, fate.event) = (Some(death), event);
    }
}
