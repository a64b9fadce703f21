//! Activities: sets of steps planned together.

use super::distribution::{CountDistribution, exponential};
use super::op::{Contents, DirId, FileId};
use super::population::{Entity, Fate, File, Stage, Tree, TreeId};
use super::profile::Written;
use super::stream::Stream;
use seekless_units::Nanos;

/// One operation of an activity. Its files and directories are pinned: they do not die meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) enum ActivityStep {
    MakeDir(DirId),
    RemoveDir(DirId),
    Birth(FileId),
    Append(FileId, u64),
    Truncate(FileId, u64),
    Link(FileId),
    /// One of the names besides the first goes.
    Unlink(FileId),
    Move {
        file: FileId,
        dir: Option<DirId>,
        stage: Stage,
        replaces: Option<FileId>,
    },
    Delete(FileId),
}

/// An entry of the queue of planned actions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned {
    Do(ActivityStep),
    /// The activity is over for it: it may die, and more may fall due.
    Settle(Entity),
}

/// No file, tree or burst takes more than this part (1 in 200) of the space: else neither the
/// fullness nor the memory would be bounded.
const MOST_SHARE: u64 = 200;
/// Names of a file: fewer than any format allows that has links.
const MOST_NAMES: u32 = 1000;

impl Stream {
    /// Plans the next activity.
    pub(super) fn plan(&mut self) {
        if let Some((class, root)) = self.gatherings.pop_front() {
            return self.gather(class, root);
        }
        if let Some((when, entity)) = self.people.events.first()
            && when <= self.now
        {
            return self.due(entity);
        }
        let rest = exponential(&mut self.chance, self.profile.rest.0);
        self.now += rest.get();
        let class = self.draw_class();
        let root = self.draw_root(class);
        if self.profile.classes[class].directory.tree.is_some() {
            return self.plan_tree(class, root);
        }
        let burst = self.profile.classes[class].burst.draw(&mut self.chance);
        let (mut left, mut lens) = (self.most_bytes(), Vec::new());
        for number in 0..burst {
            let len = self.draw_len(class);
            let takes = self.ledger.rounded(len);
            if number > 0 && takes > left {
                break;
            }
            left = left.saturating_sub(takes);
            lens.push(len);
        }
        let beside = self.profile.classes[class].writers;
        match beside {
            Some((writers, record)) => lens
                .chunks(writers as usize)
                .for_each(|lens| self.plan_beside(class, root, lens, record.get())),
            None => lens.into_iter().for_each(|len| self.plan_file(class, root, len)),
        }
    }

    fn then(&mut self, step: ActivityStep) {
        self.queue.push_back(Planned::Do(step));
    }

    fn draw_class(&mut self) -> usize {
        let classes = &self.profile.classes;
        let all: f64 = classes.iter().map(|class| class.weight).sum();
        let mut at = self.chance.unit() * all;
        let past = |class: &super::profile::Class| {
            at -= class.weight;
            at < 0.0
        };
        classes.iter().position(past).unwrap_or(0)
    }

    fn draw_root(&mut self, class: usize) -> u32 {
        let roots = self.profile.classes[class].directory.roots;
        self.chance.below(u64::from(roots)) as u32
    }

    /// The most bytes that one truncation removes: these are freed at once and count towards the
    /// allowed drop in fullness, besides a file that dies.
    fn most_cut(&self) -> u64 {
        (self.most_bytes() / 4).max(2)
    }

    fn most_bytes(&self) -> u64 {
        (self.ledger.usable() / MOST_SHARE).max(1)
    }

    fn draw_len(&mut self, class: usize) -> u64 {
        let most = self.most_bytes();
        self.profile.classes[class].size.draw(&mut self.chance, most)
    }

    /// A new fate: how long, and how often something falls due until then.
    fn draw_fate(&mut self, class: usize) -> Fate {
        let class = &self.profile.classes[class];
        let life = class.lifetime.draw(&mut self.chance);
        let dies = life.map(|life| self.now + life.get());
        let (left, every) = match (class.written, class.read) {
            (Written::Appended | Written::Replaced | Written::Truncated, _) => {
                let times = class.times.draw(&mut self.chance);
                let life = life.unwrap_or(class.lifetime.median());
                let pieces = if class.written == Written::Appended { times - 1 } else { times };
                (pieces, Nanos::new(life.get() / u64::from(times + 1)))
            }
            (Written::Delivered, Some(read)) => match read.draw(&mut self.chance) {
                Some(span) => (1, span),
                None => (0, Nanos::ZERO),
            },
            _ => (0, Nanos::ZERO),
        };
        Fate { dies, left, every, ..Fate::default() }
    }

    /// Enters a file that will be made.
    fn conceive(&mut self, class: usize, root: u32, dir: DirId, len: u64) -> FileId {
        self.made += 1;
        let file = File {
            class,
            number: self.made,
            contents: Contents::new(self.seed, self.made),
            stage: Stage::Final,
            dir,
            root,
            len: 0,
            piece: len.max(1),
            links: 0,
            fate: Fate::default(),
        };
        FileId(self.people.files.insert(file))
    }

    /// Plans one file, in a directory of its class.
    fn plan_file(&mut self, class: usize, root: u32, len: u64) {
        let leaf = self.leaf(class, root);
        let fate = self.draw_fate(class);
        let written = self.profile.classes[class].written;
        let pieces = match written {
            Written::Appended => u64::from(fate.left) + 1,
            // A truncated file that receives a piece is two pieces long on average.
            Written::Truncated => 2,
            _ => 1,
        };
        let dir = match written {
            Written::Delivered => self.ensure(leaf, "tmp"),
            _ => leaf,
        };
        let len = match written {
            Written::Truncated => len.min(self.most_cut()),
            _ => len,
        };
        let file = self.conceive(class, root, dir, len / pieces);
        self.people.files[file.0].fate = fate;
        self.plan_birth(class, file);
        if written == Written::Delivered {
            let new = self.ensure(leaf, "new");
            let stage = Stage::Final;
            self.then(ActivityStep::Move { file, dir: Some(new), stage, replaces: None });
        }
        self.queue.push_back(Planned::Settle(Entity::File(file)));
    }

    /// Plans files that are written at the same time, a record of each in turn.
    fn plan_beside(&mut self, class: usize, root: u32, lens: &[u64], record: u64) {
        let mut open = Vec::new();
        for &len in lens {
            let dir = self.leaf(class, root);
            let fate = self.draw_fate(class);
            let file = self.conceive(class, root, dir, len.min(record));
            self.people.files[file.0].fate = fate;
            open.push((file, len.saturating_sub(record)));
        }
        let files: Vec<FileId> = open.iter().map(|(file, _)| *file).collect();
        for &file in &files {
            if self.is_renamed(class) {
                self.people.files[file.0].stage = Stage::Temporary;
            }
            self.then(ActivityStep::Birth(file));
        }
        while open.iter().any(|(_, left)| *left > 0) {
            for (file, left) in &mut open {
                let part = (*left).min(record);
                if part > 0 {
                    self.then(ActivityStep::Append(*file, part));
                    *left -= part;
                }
            }
        }
        for file in files {
            if self.is_renamed(class) {
                let stage = Stage::Final;
                self.then(ActivityStep::Move { file, dir: None, stage, replaces: None });
            }
            self.plan_links(class, file);
            self.queue.push_back(Planned::Settle(Entity::File(file)));
        }
    }

    /// Plans the names that a file has besides the first.
    fn plan_links(&mut self, class: usize, file: FileId) {
        let names = self.profile.classes[class].names;
        if names == CountDistribution::ONE {
            return;
        }
        let count = names.draw(&mut self.chance).min(MOST_NAMES);
        (1..count).for_each(|_| self.then(ActivityStep::Link(file)));
    }

    /// Plans that a file is written, under a temporary name if its class has it
    /// so.
    fn plan_birth(&mut self, class: usize, file: FileId) {
        self.then(ActivityStep::Birth(file));
        if self.is_renamed(class) {
            self.people.files[file.0].stage = Stage::Temporary;
            let stage = Stage::Final;
            self.then(ActivityStep::Move { file, dir: None, stage, replaces: None });
        }
        self.plan_links(class, file);
    }

    /// A directory that stays, which is made if it is not there yet.
    fn ensure(&mut self, parent: DirId, name: &str) -> DirId {
        let (dir, new) = self.people.lasting_dir(parent, name.to_string());
        if new {
            self.then(ActivityStep::MakeDir(dir));
        }
        dir
    }

    /// The directory in which a class's roots lie, or trees.
    fn base(&mut self, class: usize, root: u32) -> DirId {
        let place = self.profile.classes[class].directory.clone();
        let mut dir = self.ensure(DirId::ROOT, &place.top);
        if place.roots > 1 {
            dir = self.ensure(dir, &format!("{root:02}"));
        }
        match &place.below {
            Some(below) => self.ensure(dir, below),
            None => dir,
        }
    }

    /// A directory for a new file: drawn from those that fan out.
    fn leaf(&mut self, class: usize, root: u32) -> DirId {
        let mut dir = self.base(class, root);
        let place = &self.profile.classes[class].directory;
        let (fan_out, depth) = (u64::from(place.fan_out), place.depth);
        for _ in 0..depth {
            let at = self.chance.below(fan_out);
            dir = self.ensure(dir, &format!("{at:02x}"));
        }
        dir
    }

    /// Plans a tree: its directories are filled one after the other, as an
    /// archive is unpacked.
    fn plan_tree(&mut self, class: usize, root: u32) {
        let directory = &self.profile.classes[class].directory;
        let Some((files, each)) = directory.tree else { return };
        let fan_out = directory.fan_out.max(1) as usize;
        let count = files.draw(&mut self.chance);
        let base = self.base(class, root);
        let fate = self.draw_fate(class);
        let tree = Tree { class, dirs: Vec::new(), files: Vec::new(), fate };
        let id = TreeId(self.people.trees.insert(tree));
        let mut left = self.most_bytes();
        for number in 0..count {
            let len = self.draw_len(class);
            let takes = self.ledger.rounded(len);
            if number > 0 && takes > left {
                break;
            }
            left = left.saturating_sub(takes);
            if number.is_multiple_of(each) {
                self.plan_branch(id, base, fan_out);
            }
            let dir = self.people.trees[id.0].dirs.last().copied().unwrap_or(base);
            let file = self.conceive(class, root, dir, len);
            self.people.trees[id.0].files.push(file);
            self.plan_birth(class, file);
        }
        self.queue.push_back(Planned::Settle(Entity::Tree(id)));
    }

    /// Adds a directory to a tree, each of which has up to `fan_out` in it.
    fn plan_branch(&mut self, id: TreeId, base: DirId, fan_out: usize) {
        let dirs = &self.people.trees[id.0].dirs;
        let number = dirs.len();
        let (parent, name) = match number.checked_sub(1) {
            None => {
                let class = &self.profile.classes[self.people.trees[id.0].class].name;
                (base, format!("{class}-{:x}", self.made))
            }
            Some(before) => (dirs[before / fan_out], format!("d{number:x}")),
        };
        let dir = self.people.add_dir(parent, name);
        self.people.trees[id.0].dirs.push(dir);
        self.then(ActivityStep::MakeDir(dir));
    }

    /// Plans the event that is due for a file or a tree.
    fn due(&mut self, entity: Entity) {
        self.people.pin(entity);
        let fate = self.people.fate(entity);
        fate.left = fate.left.saturating_sub(1);
        match entity {
            Entity::Tree(id) => self.upgrade(id),
            Entity::File(file) => self.due_file(file),
        }
    }

    fn due_file(&mut self, file: FileId) {
        let class = self.people.files[file.0].class;
        match self.profile.classes[class].written {
            Written::Replaced => {
                let new = self.plan_replacement(file);
                self.queue.push_back(Planned::Settle(Entity::File(new)));
            }
            Written::Delivered => {
                let root = self.people.files[file.0].root;
                let leaf = self.base(class, root);
                let dir = Some(self.ensure(leaf, "cur"));
                self.then(ActivityStep::Move { file, dir, stage: Stage::Read, replaces: None });
                self.queue.push_back(Planned::Settle(Entity::File(file)));
            }
            Written::Appended => {
                // From half a piece to one and a half.
                let piece = self.people.files[file.0].piece;
                let len = (piece as f64 * (0.5 + self.chance.unit())) as u64;
                self.then(ActivityStep::Append(file, len.max(1)));
                self.queue.push_back(Planned::Settle(Entity::File(file)));
            }
            Written::Truncated => {
                let File { len, piece, .. } = self.people.files[file.0];
                let to = 1 + self.chance.below(len);
                if to < len {
                    self.then(ActivityStep::Truncate(file, to));
                }
                let more = (piece as f64 * (0.5 + self.chance.unit())) as u64;
                let more = more.max(1).min(self.most_cut().saturating_sub(to));
                if more > 0 {
                    self.then(ActivityStep::Append(file, more));
                }
                self.queue.push_back(Planned::Settle(Entity::File(file)));
            }
            Written::Once | Written::Renamed => {
                self.queue.push_back(Planned::Settle(Entity::File(file)));
            }
        }
    }

    /// Every file of a tree is replaced.
    fn upgrade(&mut self, id: TreeId) {
        let old = self.people.trees[id.0].files.clone();
        let new = old.into_iter().map(|file| self.plan_replacement(file)).collect();
        self.people.trees[id.0].files = new;
        self.queue.push_back(Planned::Settle(Entity::Tree(id)));
    }

    /// Plans that another file takes the place of one, by a rename.
    fn plan_replacement(&mut self, old: FileId) -> FileId {
        let File { class, root, dir, number, fate, .. } = self.people.files[old.0].clone();
        // About as long as the one before: a new version, not another file.
        let scale = 0.8 + 0.4 * self.chance.unit();
        let len = (self.people.files[old.0].len as f64 * scale) as u64;
        let new = self.conceive(class, root, dir, len.min(self.most_bytes()));
        let file = &mut self.people.files[new.0];
        (file.number, file.fate) = (number, fate);
        file.stage = Stage::Temporary;
        self.then(ActivityStep::Birth(new));
        let stage = Stage::Final;
        self.then(ActivityStep::Move { file: new, dir: None, stage, replaces: Some(old) });
        new
    }

    /// One file takes the place of all of a class in a root.
    fn gather(&mut self, class: usize, root: u32) {
        let Some((name, _)) = &self.profile.classes[class].gathers else { return };
        let gathered = self.profile.classes.iter().position(|other| other.name == *name);
        let of = |file: &File| Some(file.class) == gathered && file.root == root && file.len > 0;
        let files: Vec<(FileId, u64)> = (self.people.files.iter())
            .filter(|(_, file)| of(file) && file.fate.death.is_some())
            .map(|(id, file)| (FileId(id), file.len))
            .collect();
        let all: u64 = files.iter().map(|(_, len)| *len).sum();
        self.plan_file(class, root, all.min(self.most_bytes()));
        for (file, _) in files {
            self.people.pin(Entity::File(file));
            let links = self.people.files[file.0].links;
            (0..links).for_each(|_| self.then(ActivityStep::Unlink(file)));
            self.then(ActivityStep::Delete(file));
        }
    }
}
