//! The stream against a file system that is only a model: names and lengths.

use crate::settings;
use seekless_fs::FsError;
use seekless_lab::age::op::{DirId, FileId, Op, Place};
use seekless_lab::age::score::FileLayout;
use seekless_lab::age::subject::{Applied, Subject};
use seekless_lab::age::{
    AgeError, Aged, End, OperationTally, Profile, Room, Settings, age, profile,
};
use seekless_units::{ByteLen, Nanos};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const UNIT: u64 = 4096;

/// The target of a name: a directory, or the number of a file.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Node {
    Dir,
    File(usize),
}

/// The length of a file, and how many names it has.
struct Held {
    len: u64,
    names: u32,
}

pub(crate) struct Model {
    nodes: BTreeMap<String, Node>,
    /// By number.
    files: BTreeMap<usize, Held>,
    /// Paths of directories by number.
    dirs: BTreeMap<DirId, String>,
    size: u64,
    used: u64,
    inodes: u64,
    /// Each so-manieth operation that needs room finds none.
    grudge: u64,
    asked: u64,
    now: Nanos,
    exact: bool,
    /// A file has one name only.
    unlinked: bool,
    /// Names of files that were removed.
    removed: Vec<String>,
    /// Files made so far.
    made: usize,
}

impl Model {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(DirId::ROOT, String::new())]),
            size,
            used: size / 50,
            inodes: 1 << 20,
            grudge: u64::MAX,
            asked: 0,
            now: Nanos::ZERO,
            exact: true,
            unlinked: false,
            removed: Vec::new(),
            made: 0,
        }
    }

    fn path(&self, place: &Place) -> String {
        format!("{}/{}", self.dirs[&place.dir], place.name)
    }

    fn grow(&mut self, from: u64, to: u64, inodes: u64) -> bool {
        self.asked += 1;
        let more = to.div_ceil(UNIT) * UNIT - from.div_ceil(UNIT) * UNIT;
        let fits = self.used + more <= self.size && self.inodes >= inodes;
        if !fits || self.asked.is_multiple_of(self.grudge) {
            return false;
        }
        self.used += more;
        self.inodes -= inodes;
        true
    }

    fn remove(&mut self, path: &str) -> Node {
        let node = self.nodes.remove(path).unwrap_or_else(|| panic!("{path}: not there"));
        let mut len = UNIT;
        if let Node::File(file) = node {
            let held = self.files.get_mut(&file).unwrap();
            held.names -= 1;
            if held.names > 0 {
                return node;
            }
            len = held.len;
            self.files.remove(&file);
        }
        self.used -= len.div_ceil(UNIT) * UNIT;
        self.inodes += 1;
        node
    }

    fn file(&mut self, path: &str) -> &mut Held {
        let Node::File(file) = self.nodes[path] else { panic!("{path}: no file") };
        self.files.get_mut(&file).unwrap()
    }

    fn insert(&mut self, path: String, node: Node) {
        let parent = path.rsplit_once('/').unwrap().0;
        assert!(parent.is_empty() || self.nodes[parent] == Node::Dir, "{path}: no directory");
        assert!(self.nodes.insert(path.clone(), node).is_none(), "{path}: is there");
    }

    fn do_it(&mut self, op: &Op) -> bool {
        match op {
            Op::MakeDir { dir, place } => {
                if !self.grow(0, UNIT, 1) {
                    return false;
                }
                let path = self.path(place);
                self.insert(path.clone(), Node::Dir);
                self.dirs.insert(*dir, path);
            }
            Op::RemoveDir { dir, place } => {
                let path = self.path(place);
                assert_eq!(self.dirs.remove(dir).unwrap(), path);
                let inside = format!("{path}/");
                let next = self.nodes.range(inside.clone()..).next();
                assert!(next.is_none_or(|(path, _)| !path.starts_with(&inside)), "not empty");
                assert_eq!(self.remove(&path), Node::Dir);
            }
            Op::Create { place, len, .. } => {
                if !self.grow(0, len.get(), 1) {
                    return false;
                }
                self.made += 1;
                self.insert(self.path(place), Node::File(self.made));
                self.files.insert(self.made, Held { len: len.get(), names: 1 });
            }
            Op::Truncate { place, len, .. } => {
                let path = self.path(place);
                let from = self.file(&path).len;
                assert!((1..from).contains(&len.get()), "{path}: {from} to {}", len.get());
                self.used -= from.div_ceil(UNIT) * UNIT - len.get().div_ceil(UNIT) * UNIT;
                self.file(&path).len = len.get();
            }
            Op::Link { from, to, .. } => {
                let from = self.path(from);
                self.file(&from).names += 1;
                self.insert(self.path(to), self.nodes[&from]);
            }
            Op::Unlink { place, .. } => {
                let Node::File(file) = self.remove(&self.path(place)) else { panic!("no file") };
                assert!(self.files.contains_key(&file), "the last name");
            }
            Op::Append { place, at, len, .. } => {
                let (from, to) = (at.get(), at.get() + len.get());
                let path = self.path(place);
                assert_eq!(self.file(&path).len, from, "{path}");
                if !self.grow(from, to, 0) {
                    return false;
                }
                self.file(&path).len = to;
            }
            Op::Rename { from, to, replaces, .. } => {
                let (from, to) = (self.path(from), self.path(to));
                assert_eq!(self.nodes.contains_key(&to), replaces.is_some(), "{to}");
                if replaces.is_some() {
                    self.remove(&to);
                }
                let node = self.nodes.remove(&from).unwrap();
                self.insert(to, node);
            }
            Op::Delete { place, .. } => {
                let path = self.path(place);
                let Node::File(file) = self.remove(&path) else { panic!("{path}: no file") };
                assert!(!self.files.contains_key(&file), "not the last name");
                self.removed.push(place.name.clone());
            }
        }
        true
    }
}

impl Subject for Model {
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError> {
        if self.unlinked && matches!(op, Op::Link { .. }) {
            return Ok(Applied::LeftOut);
        }
        Ok(if self.do_it(op) { Applied::Done } else { Applied::Full })
    }

    fn advance(&mut self, to: Nanos) -> Result<(), FsError> {
        assert!(to >= self.now, "time goes back");
        self.now = to;
        Ok(())
    }

    fn room(&mut self) -> Result<Room, FsError> {
        let (used, available) = (ByteLen::new(self.used), ByteLen::new(self.size - self.used));
        Ok(Room { used, available, unit: ByteLen::new(UNIT), free_inodes: Some(self.inodes) })
    }

    fn is_exact(&self) -> bool {
        self.exact
    }

    fn settle(&mut self) -> Result<(), FsError> {
        Ok(())
    }

    fn layout(&mut self, _file: FileId) -> Result<Option<FileLayout>, FsError> {
        Ok(None)
    }
}

fn run(name: &str, model: &mut Model, settings: Settings) -> Aged {
    let profile = profile::named(name).unwrap();
    let aged = age(&profile, model, settings, &mut |_| ControlFlow::Continue(())).unwrap();
    // What the stream believes is what is there.
    let believed: BTreeMap<String, u64> = (aged.stream.expected().into_iter())
        .map(|file| (format!("/{}", file.path), file.len.get()))
        .collect();
    let files: BTreeMap<String, u64> = (model.nodes.iter())
        .filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.clone(), model.files[file].len)),
            Node::Dir => None,
        })
        .collect();
    assert_eq!(believed, files, "{name}");
    aged
}

/// Runs a profile on a model of the usual size, in which each operation finds room.
fn usual(name: &str) -> OperationTally {
    let aged = run(name, &mut Model::new(256 << 20), settings(60_000, 1));
    assert_eq!(aged.end, End::Done);
    let last = aged.samples.last().unwrap();
    assert_eq!((last.operations, aged.samples.len()), (60_000, 11));
    assert!(last.days > 0.1, "{name}: {}", last.days);
    let tally = aged.tally;
    assert!(tally.deleted > 1000 && tally.renamed > 500, "{name}: {tally:?}");
    assert_eq!(tally.no_space, 0, "{name}");
    tally
}

#[test]
fn every_profile_does_what_it_is_made_of() {
    let tallies: BTreeMap<&str, OperationTally> =
        profile::names().map(|name| (name, usual(name))).collect();
    let tally = |name| &tallies[name];
    let (packages, mail, build, git) =
        (tally("packages"), tally("mail"), tally("build"), tally("git"));
    let server = tally("server");
    assert!(server.linked > 1000 && server.truncated > 100, "{server:?}");
    assert!(server.appended > server.truncated + 3000, "by several writers: {server:?}");
    assert_eq!((server.links_left_out, mail.linked + mail.truncated), (0, 0), "{server:?}");
    assert!(packages.renamed > 10_000 && packages.directories_removed > 300, "{packages:?}");
    assert!(mail.appended > 2000 && mail.renamed > 15_000, "{mail:?}");
    assert!(build.directories_removed > 300 && build.appended > 1000, "{build:?}");
    assert!(git.renamed > 10_000 && git.directories_made > 500, "{git:?}");
}

/// Where a file has one name only, the same operations are done but for the links, which
/// are counted.
#[test]
fn links_are_left_out_where_there_are_none() {
    let linked = run("server", &mut Model::new(256 << 20), settings(20_000, 1));
    let mut model = Model { unlinked: true, ..Model::new(256 << 20) };
    let alone = run("server", &mut model, settings(20_000, 1));
    assert_eq!((alone.tally.linked, alone.end), (0, End::Done));
    // Until something is removed, whose names then need not be.
    let before = linked.reached.unwrap();
    assert_eq!(alone.reached, Some(before));
    assert!(alone.tally.links_left_out > 500, "{:?}", alone.tally);
    assert!(alone.stream.expected().iter().all(|file| file.name == 0));
    assert!(linked.stream.expected().iter().any(|file| file.name > 2));
}

/// Of files that are written at the same time each has a record before any has two.
#[test]
fn several_writers_take_turns() {
    let class = "[[class]]\nname = 'a'\nweight = 1\nwritten = 'renamed'\nburst = { median = 4 }\n\
                 writers = 4\nrecord = '4K'\nlifetime = { median = '1y' }\n\
                 size = { median = '20K' }\n[class.directory]\ntop = 'top'\n";
    let head = "name = 'x'\nsummary = 'x'\npace = '1ms'\nrest = '1min'\n";
    let profile = Profile::parse(&[head, class].concat(), "x.toml").unwrap();
    let room = Room {
        used: ByteLen::ZERO,
        available: ByteLen::new(1 << 30),
        unit: ByteLen::new(UNIT),
        free_inodes: None,
    };
    let mut stream = seekless_lab::age::stream::Stream::new(profile, 1, 0.5, &room, true);
    let mut seen = Vec::new();
    for _ in 0..25 {
        match stream.next_op().unwrap() {
            Op::Create { file, len, .. } => seen.push(('c', file, len.get())),
            Op::Append { file, at, len, .. } => {
                let written = seen.iter().filter(|(_, other, _)| *other == file).count() as u64;
                assert_eq!(at.get(), written * 4096);
                seen.push(('a', file, len.get()));
            }
            Op::Rename { file, .. } => seen.push(('r', file, 0)),
            Op::MakeDir { .. } => {}
            other => panic!("{other:?}"),
        }
        stream.done();
    }
    let kinds: String = seen.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, format!("{}{}{}", "c".repeat(4), "a".repeat(16), "r".repeat(4)));
    for round in seen[..20].chunks(4) {
        let files: Vec<FileId> = round.iter().map(|(_, file, _)| *file).collect();
        assert_eq!(files, seen[..4].iter().map(|(_, file, _)| *file).collect::<Vec<_>>());
    }
}

#[test]
fn fullness_is_held() {
    // Each profile at the usual fullness, and at one of the others.
    let others = [(false, 0.8), (true, 0.5), (true, 0.95)];
    for (name, other) in profile::names().zip(others.into_iter().cycle()) {
        for (exact, fullness) in [(true, 0.8), other] {
            let mut model = Model { exact, ..Model::new(256 << 20) };
            let aged = run(name, &mut model, Settings { fullness, ..settings(40_000, 2) });
            assert!(aged.reached.is_some(), "{name}");
            let (low, high) = aged.held.unwrap();
            assert!(low > fullness - 0.011 && high < fullness + 0.003, "{name}: {low}..{high}");
        }
    }
}

#[test]
fn what_finds_no_room_waits_until_others_have_gone() {
    for name in profile::names() {
        let mut model = Model { grudge: 50, ..Model::new(64 << 20) };
        let aged = run(name, &mut model, settings(20_000, 3));
        assert_eq!(aged.end, End::Done);
        assert!(aged.tally.no_space > 50, "{name}: {:?}", aged.tally);
    }
}

#[test]
fn few_inodes_are_enough() {
    let mut model = Model { inodes: 1500, ..Model::new(64 << 20) };
    let aged = run("mail", &mut model, settings(20_000, 3));
    assert_eq!((aged.end, aged.reached), (End::Done, None));
    assert_eq!(aged.tally.no_space, 0, "looked at before");
    // Not even for the directories.
    let mut model = Model { inodes: 3, ..Model::new(64 << 20) };
    assert_eq!(run("mail", &mut model, settings(20_000, 3)).end, End::NoRoom);
}

#[test]
fn a_full_file_system_is_refused() {
    let mut model = Model::new(64 << 20);
    model.used = model.size / 10 * 8;
    let profile: Profile = profile::named("git").unwrap();
    let refused = age(&profile, &mut model, settings(10, 1), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(AgeError::TooFull { .. })));
}

#[test]
fn a_run_can_be_stopped() {
    let mut model = Model::new(64 << 20);
    let mut watch =
        |done| if done < 777 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let profile = profile::named("build").unwrap();
    let aged = age(&profile, &mut model, settings(5000, 1), &mut watch).unwrap();
    assert_eq!((aged.end, aged.samples.last().unwrap().operations), (End::Interrupted, 777));
}

#[test]
fn a_run_ended_early_has_its_curve() {
    let mut model = Model::new(64 << 20);
    let mut watch =
        |done| if done < 100_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let profile = profile::named("build").unwrap();
    let aged = age(&profile, &mut model, settings(u64::MAX, 1), &mut watch).unwrap();
    assert_eq!(aged.end, End::Interrupted);
    // Ten are asked for.
    assert!((11..=21).contains(&aged.samples.len()), "{}", aged.samples.len());
    assert!(aged.samples.is_sorted_by_key(|sample| sample.operations));
}

#[test]
fn a_run_can_be_stopped_in_a_long_rest() {
    let mut profile = profile::named("build").unwrap();
    profile.rest.0 = Nanos::new(100 * 365 * 86_400 * 1_000_000_000);
    let (mut model, mut asked) = (Model::new(64 << 20), 0);
    let mut watch = |_| {
        asked += 1;
        if asked < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let aged = age(&profile, &mut model, settings(5000, 1), &mut watch).unwrap();
    assert_eq!((aged.end, aged.stream.expected().len()), (End::Interrupted, 0));
    // Months, not the whole rest.
    assert_eq!(model.now, Nanos::new(20 * 30 * 86_400 * 1_000_000_000));
}

#[test]
fn loose_objects_are_gathered() {
    let text = profile::text("git").unwrap().replace("gather_at = 6700", "gather_at = 300");
    let profile = Profile::parse(&text, "x.toml").unwrap();
    let mut model = Model::new(256 << 20);
    let aged = age(&profile, &mut model, settings(60_000, 1), &mut |_| ControlFlow::Continue(()));
    let loose = |aged: &Aged| {
        aged.stream.expected().iter().filter(|file| file.path.contains("/objects/")).count()
    };
    let gathered = loose(&aged.unwrap());
    // Eight repositories, and what one push may bring.
    assert!(gathered < 8 * 300 + 2000, "{gathered}");
    let usual = run("git", &mut Model::new(256 << 20), settings(60_000, 1));
    assert!(loose(&usual) > gathered, "{} {gathered}", loose(&usual));
}

/// Two classes of files: `a` and `b` with such lifetimes.
fn two_classes(a: &str, b: &str) -> Profile {
    let class = |name: &str, lifetime: &str| {
        format!(
            "[[class]]\nname = '{name}'\nweight = 1\nwritten = 'once'\nlifetime = {lifetime}\n\
             size = {{ median = '64K' }}\n[class.directory]\ntop = 'top'\n"
        )
    };
    let head = "name = 'x'\nsummary = 'x'\npace = '1ms'\nrest = '1min'\n";
    Profile::parse(&[head, &class("a", a), &class("b", b)].concat(), "x.toml").unwrap()
}

#[test]
fn those_go_first_that_would_have_gone_next() {
    let run = |a, b| {
        let mut model = Model::new(64 << 20);
        let watch = &mut |_| ControlFlow::Continue(());
        let aged = age(&two_classes(a, b), &mut model, settings(1500, 1), watch).unwrap();
        assert!(model.removed.len() > 100, "{}", model.removed.len());
        (aged.tally.early_deaths, model.removed)
    };
    // A volume that takes 800 such files has room for half a day of them.
    let (early, removed) = run("{ median = '1min' }", "{ median = '1y', forever = 1 }");
    assert_eq!(early, 0);
    assert!(removed.iter().all(|name| name.starts_with("a-")));
    let (early, removed) = run("{ median = '2y' }", "{ median = '1y' }");
    assert_eq!(early, removed.len() as u64);
    assert!(removed.iter().all(|name| name.starts_with("b-")));
    // Of equals the oldest, which have the lowest numbers.
    let (_, removed) = run("{ median = '1y' }", "{ median = '1y' }");
    let number = |name: &String| u64::from_str_radix(&name[2..], 16).unwrap();
    assert!(removed.is_sorted_by_key(number), "{removed:?}");
}
