//! The stream of operations: a function of profile, seed and the space that the file system
//! reports.
//!
//! Activities follow each other: those that are due go first (a log grows, a package is upgraded),
//! and else new files are born, of a class that is drawn by weight. Below the target nothing dies;
//! a file that would not fit makes room first, by the death of the entity that would have died
//! next.

use super::activity::{ActivityStep, Planned};
use super::ledger::{Ledger, Room};
use super::op::{DirId, FileId, Op, Place};
use super::population::{Entity, File, Population, Stage};
use super::profile::{Profile, Written};
use seekless_model::random::Random;
use seekless_units::{ByteLen, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// A file that the stream believes to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its path, without a slash in front.
    pub path: String,
    /// Its length.
    pub len: ByteLen,
    /// Its bytes.
    pub contents: super::op::Contents,
    /// Which of its names this is: 0 for the first.
    pub name: u32,
}

/// The generator. It contains the expected population and the planned actions.
pub struct Stream {
    pub(super) profile: Profile,
    pub(super) seed: u64,
    pub(super) chance: Random,
    pub(super) ledger: Ledger,
    pub(super) people: Population,
    pub(super) now: Nanos,
    /// Planned actions, in order; and removals, which go before all of them.
    pub(super) queue: VecDeque<Planned>,
    funeral: VecDeque<ActivityStep>,
    /// Steps given out and not done yet, the latest last.
    begun: Vec<ActivityStep>,
    /// Files made so far.
    pub(super) made: u64,
    /// Files there are, by class and root.
    counts: BTreeMap<(usize, u32), u32>,
    /// Classes and roots whose files are to be gathered.
    pub(super) gatherings: VecDeque<(usize, u32)>,
    early: u64,
}

impl Stream {
    /// A stream for a file system with this room. `exact`: it reports the same space in each run.
    #[must_use]
    pub fn new(profile: Profile, seed: u64, fullness: f64, room: &Room, exact: bool) -> Self {
        Self {
            profile,
            seed,
            chance: Random::new(seed),
            ledger: Ledger::new(room, fullness, exact),
            people: Population::new(),
            now: Nanos::ZERO,
            queue: VecDeque::new(),
            funeral: VecDeque::new(),
            begun: Vec::new(),
            made: 0,
            counts: BTreeMap::new(),
            gatherings: VecDeque::new(),
            early: 0,
        }
    }

    /// The virtual time of the operation given last.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Files that died before their time, for want of room.
    #[must_use]
    pub fn early_deaths(&self) -> u64 {
        self.early
    }

    /// Whether the target has been reached: less than half a percentage point
    /// is missing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ledger.is_full()
    }

    /// Directories that are there.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.people.directories()
    }

    /// Files that are there: number, directory, and how many came before it.
    pub fn files(&self) -> impl Iterator<Item = (FileId, DirId, u64)> {
        let there = self.people.files.iter().filter(|(_, file)| file.len > 0);
        there.map(|(id, file)| (FileId(id), file.dir, file.number))
    }

    /// All names of files that are there, by path.
    #[must_use]
    pub fn expected(&self) -> Vec<Expected> {
        let there = self.people.files.iter().filter(|(_, file)| file.len > 0);
        let mut all: Vec<Expected> = there
            .flat_map(|(id, file)| (0..=file.links).map(move |name| (id, file, name)))
            .map(|(id, file, name)| {
                let place = self.place_of_name(FileId(id), name);
                let path = format!("{}/{}", self.people.path(place.dir), place.name);
                Expected { path, len: ByteLen::new(file.len), contents: file.contents, name }
            })
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Takes the space that the file system reports after an operation.
    pub fn told(&mut self, room: &Room) {
        self.ledger.told(room);
    }

    /// The next operation; call [`Stream::done`] when it is done. `None` when the planned one does
    /// not fit and nothing is left that could be removed.
    pub fn next_op(&mut self) -> Option<Op> {
        loop {
            if let Some(op) = self.next_death() {
                return Some(op);
            }
            match self.queue.front().copied() {
                None => self.plan(),
                Some(Planned::Settle(entity)) => {
                    self.queue.pop_front();
                    self.people.settle(entity, self.now);
                }
                Some(Planned::Do(step)) if !self.has_room(&step) => {
                    self.evict().then_some(())?;
                }
                Some(Planned::Do(step)) => {
                    self.queue.pop_front();
                    return Some(self.begin(step));
                }
            }
        }
    }

    /// Removes the entity that would die next; false when there is none.
    pub fn evict(&mut self) -> bool {
        let Some((when, entity)) = self.people.deaths.first() else { return false };
        let dead = self.bury(entity);
        if when > self.now {
            self.early += dead as u64;
        }
        true
    }

    /// The next operation that makes room, once [`Stream::evict`] has chosen;
    /// it may be done before another that was begun.
    pub fn next_death(&mut self) -> Option<Op> {
        let step = self.funeral.pop_front()?;
        Some(self.begin(step))
    }

    /// The last operation given out, and not reported yet, is not supported by the file system: it
    /// is forgotten.
    pub fn left_out(&mut self) {
        self.begun.pop();
    }

    /// The last operation given out, and not reported yet, is done.
    pub fn done(&mut self) {
        let Some(step) = self.begun.pop() else { return };
        match step {
            ActivityStep::MakeDir(_) => self.ledger.directory(true),
            ActivityStep::RemoveDir(dir) => {
                self.ledger.directory(false);
                self.people.drop_dir(dir);
            }
            ActivityStep::Birth(file) => self.born(file),
            ActivityStep::Append(file, len) => {
                let file = &mut self.people.files[file.0];
                self.ledger.grown(file.len, file.len + len);
                file.len += len;
            }
            ActivityStep::Truncate(file, len) => {
                let file = &mut self.people.files[file.0];
                self.ledger.gone(file.len);
                self.ledger.grown(0, len);
                file.len = len;
            }
            ActivityStep::Link(file) => self.people.files[file.0].links += 1,
            ActivityStep::Unlink(file) => {
                let links = &mut self.people.files[file.0].links;
                *links = links.saturating_sub(1);
            }
            ActivityStep::Move { file, dir, stage, replaces } => {
                let file = &mut self.people.files[file.0];
                file.stage = stage;
                file.dir = dir.unwrap_or(file.dir);
                replaces.into_iter().for_each(|old| self.forget(old));
            }
            ActivityStep::Delete(file) => self.forget(file),
        }
    }

    /// Plans the removal of a file or tree; of how many files.
    fn bury(&mut self, entity: Entity) -> usize {
        self.people.pin(entity);
        match entity {
            Entity::File(file) => {
                self.bury_file(file);
                1
            }
            Entity::Tree(id) => {
                let tree = self.people.trees.remove(id.0);
                let dead = tree.files.len();
                tree.files.into_iter().for_each(|file| self.bury_file(file));
                self.funeral.extend(tree.dirs.into_iter().rev().map(ActivityStep::RemoveDir));
                dead
            }
        }
    }

    /// Plans the removal of all names of a file.
    fn bury_file(&mut self, file: FileId) {
        let links = self.people.files[file.0].links;
        self.funeral.extend((0..links).map(|_| ActivityStep::Unlink(file)));
        self.funeral.push_back(ActivityStep::Delete(file));
    }

    fn has_room(&self, step: &ActivityStep) -> bool {
        match step {
            ActivityStep::MakeDir(_) => self.ledger.fits(1, 1),
            ActivityStep::Birth(file) => self.ledger.fits(self.people.files[file.0].piece, 1),
            ActivityStep::Append(_, len) => self.ledger.fits(*len, 0),
            _ => true,
        }
    }

    /// Where a file is by now.
    fn place(&self, file: FileId) -> Place {
        let File { stage, dir, .. } = self.people.files[file.0];
        self.place_at(file, dir, stage)
    }

    fn place_at(&self, file: FileId, dir: DirId, stage: Stage) -> Place {
        let File { class, number, .. } = self.people.files[file.0];
        let class = &self.profile.classes[class].name;
        let name = match stage {
            Stage::Final => format!("{class}-{number:x}"),
            Stage::Temporary => format!(".{class}-{number:x}.new"),
            // Maildirs have a colon; where it is not allowed (FAT), the semicolon is its most
            // frequent substitute.
            Stage::Read => format!("{class}-{number:x};2,S"),
        };
        Place { dir, name }
    }

    /// One of a file's names, which lie beside the first.
    fn place_of_name(&self, file: FileId, name: u32) -> Place {
        let mut place = self.place(file);
        if name > 0 {
            place.name = format!("{}~{name:x}", place.name);
        }
        place
    }

    /// The operation of a step.
    fn begin(&mut self, step: ActivityStep) -> Op {
        self.now += self.profile.pace.0.get();
        self.begun.push(step);
        match step {
            ActivityStep::MakeDir(dir) => Op::MakeDir { dir, place: self.people.place_of_dir(dir) },
            ActivityStep::RemoveDir(dir) => {
                Op::RemoveDir { dir, place: self.people.place_of_dir(dir) }
            }
            ActivityStep::Birth(file) => {
                let File { piece, contents, .. } = self.people.files[file.0];
                Op::Create { file, place: self.place(file), len: ByteLen::new(piece), contents }
            }
            ActivityStep::Append(file, len) => {
                let File { len: at, contents, .. } = self.people.files[file.0];
                let (at, len) = (ByteLen::new(at), ByteLen::new(len));
                Op::Append { file, place: self.place(file), at, len, contents }
            }
            ActivityStep::Truncate(file, len) => {
                Op::Truncate { file, place: self.place(file), len: ByteLen::new(len) }
            }
            ActivityStep::Link(file) => {
                let next = self.people.files[file.0].links + 1;
                Op::Link { file, from: self.place(file), to: self.place_of_name(file, next) }
            }
            ActivityStep::Unlink(file) => {
                let last = self.people.files[file.0].links;
                Op::Unlink { file, place: self.place_of_name(file, last) }
            }
            ActivityStep::Move { file, dir, stage, replaces } => {
                let dir = dir.unwrap_or(self.people.files[file.0].dir);
                let (from, to) = (self.place(file), self.place_at(file, dir, stage));
                Op::Rename { file, from, to, replaces }
            }
            ActivityStep::Delete(file) => Op::Delete { file, place: self.place(file) },
        }
    }

    fn born(&mut self, file: FileId) {
        let born = &mut self.people.files[file.0];
        born.len = born.piece;
        let key = (born.class, born.root);
        self.ledger.grown(0, born.piece);
        let count = self.counts.entry(key).or_default();
        *count += 1;
        let count = *count;
        self.look_for_gathering(key, count);
    }

    /// Begins a gathering where a root has too many files of a class.
    fn look_for_gathering(&mut self, (class, root): (usize, u32), count: u32) {
        let name = &self.profile.classes[class].name;
        let gathers = |other: &super::profile::Class| {
            other.gathers.as_ref().is_some_and(|(class, at)| class == name && count == *at)
        };
        if let Some(by) = self.profile.classes.iter().position(gathers) {
            self.gatherings.push_back((by, root));
        }
    }

    /// A file is no more.
    fn forget(&mut self, file: FileId) {
        let gone = self.people.files.remove(file.0);
        self.ledger.gone(gone.len);
        if let Some(count) = self.counts.get_mut(&(gone.class, gone.root)) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether files of a class are written under a temporary name first.
    pub(super) fn is_renamed(&self, class: usize) -> bool {
        matches!(self.profile.classes[class].written, Written::Renamed)
    }
}
