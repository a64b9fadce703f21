//! The stream against a file system that is only a model: names and lengths.

use crate::settings;
use seekless_fs::FsError;
use seekless_lab::age::op::{DirId, FileId, Op, Place};
use seekless_lab::age::score::FileLayout;
use seekless_lab::age::subject::{Applied, Subject};
use seekless_lab::age::{AgeError, Aged, End, Profile, Room, Settings, age, profile};
use seekless_units::{ByteLen, Nanos};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const UNIT: u64 = 4096;

/// What a name leads to: a directory by its path, or a file's length.
#[derive(Clone, PartialEq, Debug)]
enum Node {
    Dir,
    File(u64),
}

pub(crate) struct Model {
    nodes: BTreeMap<String, Node>,
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
    /// Names of files that were removed.
    removed: Vec<String>,
}

impl Model {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            dirs: BTreeMap::from([(DirId::ROOT, String::new())]),
            size,
            used: size / 50,
            inodes: 1 << 20,
            grudge: u64::MAX,
            asked: 0,
            now: Nanos::ZERO,
            exact: true,
            removed: Vec::new(),
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
        let len = if let Node::File(len) = node { len } else { UNIT };
        self.used -= len.div_ceil(UNIT) * UNIT;
        self.inodes += 1;
        node
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
                self.insert(self.path(place), Node::File(len.get()));
            }
            Op::Append { place, at, len, .. } => {
                let (from, to) = (at.get(), at.get() + len.get());
                let path = self.path(place);
                assert_eq!(self.nodes[&path], Node::File(from), "{path}");
                if !self.grow(from, to, 0) {
                    return false;
                }
                self.nodes.insert(path, Node::File(to));
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
                assert!(matches!(self.remove(&path), Node::File(_)));
                self.removed.push(place.name.clone());
            }
        }
        true
    }
}

impl Subject for Model {
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError> {
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
    let believed: BTreeMap<String, Node> = (aged.stream.expected().into_iter())
        .map(|file| (format!("/{}", file.path), Node::File(file.len.get())))
        .collect();
    let mut files = model.nodes.clone();
    files.retain(|_, node| *node != Node::Dir);
    assert_eq!(believed, files, "{name}");
    aged
}

#[test]
fn what_the_stream_believes_is_there() {
    for name in profile::names() {
        let mut model = Model::new(256 << 20);
        let aged = run(name, &mut model, settings(60_000, 1));
        assert_eq!(aged.end, End::Done);
        let last = aged.samples.last().unwrap();
        assert_eq!((last.operations, aged.samples.len()), (60_000, 11));
        assert!(last.days > 0.1, "{name}: {}", last.days);
        let tally = aged.tally;
        assert!(tally.deleted > 1000 && tally.renamed > 1000, "{name}: {tally:?}");
        assert_eq!(tally.no_space, 0, "{name}");
    }
}

#[test]
fn every_profile_does_what_it_is_made_of() {
    let tally = |name| run(name, &mut Model::new(256 << 20), settings(60_000, 1)).tally;
    let (packages, mail, build, git) =
        (tally("packages"), tally("mail"), tally("build"), tally("git"));
    assert!(packages.renamed > 10_000 && packages.directories_removed > 300, "{packages:?}");
    assert!(mail.appended > 2000 && mail.renamed > 15_000, "{mail:?}");
    assert!(build.directories_removed > 300 && build.appended > 1000, "{build:?}");
    assert!(git.renamed > 10_000 && git.directories_made > 500, "{git:?}");
}

#[test]
fn fullness_is_held() {
    for name in profile::names() {
        for (exact, fullness) in [(true, 0.8), (false, 0.8), (true, 0.5), (true, 0.95)] {
            let mut model = Model { exact, ..Model::new(256 << 20) };
            let aged = run(name, &mut model, Settings { fullness, ..settings(60_000, 2) });
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
