//! Sequences of operations drawn at random, on a handful of names: cases not thought of when the
//! pairs were chosen.
//!
//! A sequence is a function of its seed and its number. It goes along with a
//! small model of the tree, so that each operation can be done when it comes.

use super::{Features, path};
use crate::script::Op;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Names that files and directories are given.
const NAMES: [&str; 5] = ["foo", "bar", "log", "tmp", "sub"];
/// Bytes of the names of some sequences, with which directories outgrow their blocks: two
/// of them fit into 512 bytes.
const LONG: usize = 200;
/// Of how many sequences one has such names.
const LONG_ONES: u64 = 4;
/// Lengths of writes: parts of a fragment, fragments, blocks of 4,096 bytes, and
/// past the twelve that an inode of UFS leads to.
const LENGTHS: [u64; 7] = [100, 700, 3000, 4096, 6000, 20_000, 50_000];
/// Where files are written, and cut.
const PLACES: [u64; 12] =
    [0, 1000, 4096, 5000, 12_288, 45_056, 49_152, 53_248, 60_000, 77_000, 90_112, 120_000];
/// Past a full indirect block, whatever the width of its numbers.
const FAR: u64 = 4_300_000;
/// One in so many sequences of [`Kinds::All`] is wide: its operations are those of all kinds, and
/// names go and come back in directories that were made in it. The others are unchanged since
/// before there were wide ones.
const WIDE_ONES: u64 = 5;
/// Bytes of the longest names, which some wide sequences have.
const WIDEST: usize = 255;
/// Deepest path.
const DEPTH: usize = 4;
/// The same for sequences of [`Kinds::Moves`] and wide ones.
const DEEP: usize = 8;
/// Length of such names, and how many of them a directory is given: more than twelve blocks of
/// 1,024 bytes, and of 4,096.
const LONGEST: usize = 250;
const MANY: [u64; 2] = [60, 210];
/// How often an operation that cannot be done is drawn again.
const TRIES: u32 = 200;

/// The operations of sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kinds {
    /// All operations alike.
    All,
    /// Mostly names that go and come back, in directories that were just made: files and
    /// directories move there, change places, and directories outgrow their first blocks.
    Moves,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its length in bytes.
    File(u64),
    Directory,
    Symlink,
    /// A name that stays.
    Kept,
}

/// A sequence being drawn.
struct Sequence {
    rng: Pcg64Mcg,
    tree: BTreeMap<String, Kind>,
    has: Features,
    ops: Vec<Op>,
    /// The file touched last.
    object: String,
    /// The file that is held open, which may have lost its name.
    open: Option<u64>,
    /// Some file was given a second name: two names may be one file's, and then
    /// to rename one to the other does nothing.
    linked: bool,
    /// Bytes of names that are given, at least.
    least: usize,
    kinds: Kinds,
    /// Names are drawn as in sequences of [`Kinds::Moves`].
    wide: bool,
    /// Names that went from directories made in the sequence.
    gone: Vec<String>,
    /// Those directories.
    made: Vec<String>,
    /// Whether a directory was given many names.
    grown: bool,
}

/// The operations of a sequence: from three to `most` of those that change
/// something, with promises and writes between.
pub(super) fn sequence(most: u32, seed: u64, number: u64, has: Features, kinds: Kinds) -> Vec<Op> {
    let mixed =
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let tree = [
        ("A", Kind::Directory),
        ("B", Kind::Directory),
        ("A/sub", Kind::Directory),
        ("A/foo", Kind::File(6000)),
        ("B/bar", Kind::File(3000)),
    ];
    let wide = kinds == Kinds::All && number % WIDE_ONES == WIDE_ONES - 1;
    let least = match mixed % LONG_ONES {
        0 => LONG,
        1 if wide => WIDEST,
        _ => 0,
    };
    let mut sequence = Sequence {
        rng: Pcg64Mcg::seed_from_u64(mixed),
        tree: tree.into_iter().map(|(path, kind)| (path.to_string(), kind)).collect(),
        has,
        ops: Vec::new(),
        object: "A".into(),
        open: None,
        linked: false,
        least,
        kinds,
        wide: wide || kinds == Kinds::Moves,
        gone: Vec::new(),
        made: Vec::new(),
        grown: false,
    };
    let least = most.min(3);
    let count = least + sequence.below(u64::from(most - least) + 1) as u32;
    for _ in 0..count {
        sequence.change();
        sequence.between();
    }
    sequence.ops.push(Op::Close);
    let last = sequence.object.clone();
    if sequence.tree.contains_key(&last) {
        sequence.ops.push(Op::Fsync(Some(path(&last))));
    }
    sequence.ops
}

impl Sequence {
    fn below(&mut self, count: u64) -> u64 {
        self.rng.next_u64() % count.max(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len() as u64) as usize;
        from.get(at).cloned()
    }

    fn all(&self, is: impl Fn(Kind) -> bool) -> Vec<String> {
        self.tree.iter().filter(|(_, kind)| is(**kind)).map(|(path, _)| path.clone()).collect()
    }

    /// An existing file: now and then that which was touched last.
    fn file(&mut self) -> Option<String> {
        let last = matches!(self.tree.get(&self.object), Some(Kind::File(_)));
        if last && self.below(2) == 0 {
            return Some(self.object.clone());
        }
        let files = self.all(|kind| matches!(kind, Kind::File(_)));
        self.pick(&files)
    }

    fn directory(&mut self) -> Option<String> {
        let dirs = self.all(|kind| kind == Kind::Directory);
        self.pick(&dirs)
    }

    /// A name in some directory, whether it is there or not.
    fn name(&mut self) -> String {
        let mut dirs = self.all(|kind| kind == Kind::Directory);
        let moves = self.wide;
        let depth = if moves { DEEP } else { DEPTH };
        dirs.retain(|dir| dir.split('/').count() < depth);
        if moves {
            // A name that went, or one in a new directory.
            let parent = |path: &String| path.rsplit_once('/').map(|(dir, _)| dir.to_string());
            let is_there = |path: &&String| parent(path).is_some_and(|dir| dirs.contains(&dir));
            let gone: Vec<String> = self.gone.iter().filter(is_there).cloned().collect();
            if self.below(3) == 0
                && let Some(name) = self.pick(&gone)
            {
                return name;
            }
            let made: Vec<String> =
                self.made.iter().filter(|dir| dirs.contains(dir)).cloned().collect();
            if self.below(2) == 0 && !made.is_empty() {
                dirs = made;
            }
        }
        let name = self.pick(&NAMES).unwrap_or("foo");
        let name = format!("{name:-<least$}", least = self.least);
        match self.pick(&dirs) {
            // At the root as well.
            Some(dir) if self.below(8) > 0 => format!("{dir}/{name}"),
            _ => name,
        }
    }

    fn is_empty(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        !self.tree.keys().any(|path| path.starts_with(&below))
    }

    /// The step between two changes: mostly none.
    fn between(&mut self) {
        let op = match self.below(16) {
            0 => Op::Sync,
            1 | 2 => {
                let all: Vec<String> = self.tree.keys().cloned().collect();
                let Some(any) = self.pick(&all) else { return };
                let object = if self.below(2) == 0 { self.object.clone() } else { any };
                if !self.tree.contains_key(&object) {
                    return;
                }
                Op::Fsync(Some(path(&object)))
            }
            3 => Op::Writeback(self.below(1_000_000_007)),
            4 => Op::Pass(1 + self.below(40) as u32),
            _ => return,
        };
        self.ops.push(op);
    }

    /// One change that can be made.
    fn change(&mut self) {
        for _ in 0..TRIES {
            if self.try_change().is_some() {
                return;
            }
        }
    }

    fn try_change(&mut self) -> Option<()> {
        if self.kinds == Kinds::Moves {
            return self.try_move();
        }
        if self.wide && self.below(2) == 0 {
            return self.try_move();
        }
        match self.below(24) {
            0..=3 => self.make_file(),
            4 | 5 => self.make_directory(),
            6..=8 => self.write(),
            9 | 10 => self.truncate(),
            11 | 12 => self.unlink(),
            13 => self.remove_directory(),
            14..=16 => self.rename_file(),
            17..=19 => self.rename_directory(),
            20 if self.has.inodes => self.link(),
            21 if self.has.inodes => self.exchange(),
            22 => self.hold_open(),
            _ => self.less_often(),
        }
    }

    /// As [`Sequence::try_change`], for sequences of moves.
    fn try_move(&mut self) -> Option<()> {
        match self.below(24) {
            0..=2 => self.make_file(),
            3..=6 => self.make_directory(),
            7 | 8 => self.write(),
            9..=11 => self.unlink(),
            12 => self.remove_directory(),
            13..=16 => self.rename_file(),
            17..=19 => self.rename_directory(),
            20 => self.truncate(),
            21 if self.has.inodes => self.exchange(),
            22 if self.has.inodes => self.exchange_directories(),
            23 => self.grow_directory(),
            _ => self.hold_open(),
        }
    }

    /// Two empty directories change places, or keep them where that is refused: the names
    /// are the same then.
    fn exchange_directories(&mut self) -> Option<()> {
        let mut dirs = self.all(|kind| kind == Kind::Directory);
        dirs.retain(|dir| self.is_empty(dir));
        let (one, other) = (self.pick(&dirs)?, self.pick(&dirs)?);
        if one == other {
            return None;
        }
        self.ops.push(Op::Exchange(path(&one), path(&other)));
        self.object = one;
        Some(())
    }

    /// A directory is given so many names that it outgrows its first blocks, once in a
    /// sequence: further names of one file, where files have several.
    fn grow_directory(&mut self) -> Option<()> {
        let dir = self.directory()?;
        let count = self.pick(&MANY)?;
        if self.grown || self.below(3) > 0 {
            return None;
        }
        let name = |n: u64| format!("{dir}/{:-<LONGEST$}", format!("many{n}"));
        let first = name(0);
        self.ops.extend([Op::Open(path(&first)), Op::Close]);
        self.open = None;
        for n in 1..count {
            if self.has.inodes {
                self.ops.push(Op::Link(path(&first), path(&name(n))));
            } else {
                self.ops.extend([Op::Open(path(&name(n))), Op::Close]);
            }
        }
        // Only the first and the last of them are renamed and removed later.
        for n in [0, count - 1] {
            self.tree.insert(name(n), Kind::File(0));
        }
        self.tree.insert(name(1), Kind::Kept);
        self.linked |= self.has.inodes;
        self.grown = true;
        self.object = dir;
        Some(())
    }

    fn make_file(&mut self) -> Option<()> {
        let name = self.name();
        if self.tree.contains_key(&name) {
            return None;
        }
        self.open = None;
        self.ops.push(Op::Open(path(&name)));
        let len = self.pick(&LENGTHS)?;
        let len = if self.below(4) == 0 { 0 } else { len };
        if len > 0 {
            self.ops.push(Op::Write(None, 0, len));
        }
        self.ops.push(Op::Close);
        self.tree.insert(name.clone(), Kind::File(len));
        self.object = name;
        Some(())
    }

    fn make_directory(&mut self) -> Option<()> {
        let name = self.name();
        if self.tree.contains_key(&name) {
            return None;
        }
        self.ops.push(Op::Mkdir(path(&name)));
        self.tree.insert(name.clone(), Kind::Directory);
        self.made.push(name.clone());
        self.object = name;
        Some(())
    }

    fn write(&mut self) -> Option<()> {
        let name = self.file()?;
        let Some(&Kind::File(size)) = self.tree.get(&name) else { return None };
        let len = self.pick(&LENGTHS)?;
        let at = match self.below(24) {
            0..=11 => size,
            12 if self.has.inodes => FAR,
            _ => self.pick(&PLACES)?,
        };
        if at == size {
            self.ops.push(Op::Append(Some(path(&name)), len));
        } else {
            self.ops.push(Op::Write(Some(path(&name)), at, len));
        }
        self.tree.insert(name.clone(), Kind::File(size.max(at + len)));
        self.object = name;
        Some(())
    }

    fn truncate(&mut self) -> Option<()> {
        let name = self.file()?;
        let Some(&Kind::File(size)) = self.tree.get(&name) else { return None };
        let len = match self.below(4) {
            0 => size / 2,
            1 => size.saturating_sub(self.below(9000)),
            _ => self.pick(&PLACES)?,
        };
        self.ops.push(Op::Truncate(Some(path(&name)), len));
        self.tree.insert(name.clone(), Kind::File(len));
        self.object = name;
        Some(())
    }

    fn unlink(&mut self) -> Option<()> {
        let files = self.all(|kind| !matches!(kind, Kind::Directory | Kind::Kept));
        let name = self.pick(&files)?;
        self.ops.push(Op::Unlink(path(&name)));
        self.tree.remove(&name);
        self.gone.push(name.clone());
        // A file that loses a name is often given it again.
        if self.below(2) == 0 {
            self.ops.extend([Op::Open(path(&name)), Op::Write(None, 0, 1500), Op::Close]);
            self.open = None;
            self.tree.insert(name.clone(), Kind::File(1500));
        }
        self.object = name;
        Some(())
    }

    fn remove_directory(&mut self) -> Option<()> {
        let mut dirs = self.all(|kind| kind == Kind::Directory);
        dirs.retain(|dir| self.is_empty(dir));
        let name = self.pick(&dirs)?;
        self.ops.push(Op::Rmdir(path(&name)));
        self.tree.remove(&name);
        self.object = name;
        Some(())
    }

    fn rename_file(&mut self) -> Option<()> {
        let from = self.file()?;
        let to = self.name();
        let over = self.tree.get(&to);
        let is_file = matches!(over, Some(Kind::File(_)));
        let stays = matches!(over, Some(Kind::Directory | Kind::Kept));
        if from == to || stays || self.linked && is_file {
            return None;
        }
        self.ops.push(Op::Rename(path(&from), path(&to)));
        self.gone.push(from.clone());
        let kind = self.tree.remove(&from)?;
        self.tree.insert(to.clone(), kind);
        self.object = to;
        // A log is turned: its name is given to a new file.
        if self.below(3) == 0 {
            self.ops.extend([Op::Open(path(&from)), Op::Write(None, 0, 1500), Op::Close]);
            self.open = None;
            self.tree.insert(from.clone(), Kind::File(1500));
            self.object = from;
        }
        Some(())
    }

    fn rename_directory(&mut self) -> Option<()> {
        let from = self.directory()?;
        let mut to = self.name();
        if self.below(3) == 0 {
            // Within its parent.
            let name = self.pick(&NAMES)?;
            to = match from.rsplit_once('/') {
                Some((parent, _)) => format!("{parent}/{name}"),
                None => name.to_string(),
            };
        }
        let below = format!("{from}/");
        let taken = match self.tree.get(&to) {
            None => false,
            Some(Kind::Directory) => !self.is_empty(&to),
            Some(_) => true,
        };
        if from == to || taken || to.starts_with(&below) {
            return None;
        }
        self.ops.push(Op::Rename(path(&from), path(&to)));
        self.tree.remove(&to);
        let moved: Vec<(String, Kind)> = self
            .tree
            .iter()
            .filter(|(path, _)| **path == from || path.starts_with(&below))
            .map(|(path, kind)| (path.clone(), *kind))
            .collect();
        for (old, kind) in moved {
            self.tree.remove(&old);
            self.tree.insert(format!("{to}{}", &old[from.len()..]), kind);
        }
        self.object = to;
        Some(())
    }

    fn link(&mut self) -> Option<()> {
        let from = self.file()?;
        let to = self.name();
        if self.tree.contains_key(&to) {
            return None;
        }
        self.ops.push(Op::Link(path(&from), path(&to)));
        // The model has lengths by name; where two differ nothing but the choice
        // of places suffers.
        let kind = *self.tree.get(&from)?;
        self.linked = true;
        self.tree.insert(to.clone(), kind);
        self.object = to;
        Some(())
    }

    fn exchange(&mut self) -> Option<()> {
        let (one, other) = (self.file()?, self.file()?);
        if one == other || self.linked {
            return None;
        }
        self.ops.push(Op::Exchange(path(&one), path(&other)));
        let (first, second) = (*self.tree.get(&one)?, *self.tree.get(&other)?);
        self.tree.insert(one.clone(), second);
        self.tree.insert(other, first);
        self.object = one;
        Some(())
    }

    /// A file is opened and stays so, or is written to while it is.
    fn hold_open(&mut self) -> Option<()> {
        if let Some(size) = self.open {
            let len = self.pick(&LENGTHS)?;
            self.ops.push(Op::Write(None, size, len));
            self.open = Some(size + len);
            return Some(());
        }
        let name = self.file()?;
        let Some(&Kind::File(size)) = self.tree.get(&name) else { return None };
        self.ops.push(Op::Open(path(&name)));
        self.open = Some(size);
        self.object = name;
        Some(())
    }

    fn less_often(&mut self) -> Option<()> {
        match self.below(3) {
            0 if self.has.xattrs => {
                let name = self.file()?;
                let len = [40, 300, 5000][self.below(3) as usize];
                self.ops.push(Op::SetXattr(Some(path(&name)), "user.new".into(), len));
                self.object = name;
            }
            1 if self.has.inodes => {
                let name = self.name();
                if self.tree.contains_key(&name) {
                    return None;
                }
                let times = 1 + self.below(30) as usize;
                self.ops.push(Op::Symlink("a-long-way/".repeat(times), path(&name)));
                self.tree.insert(name.clone(), Kind::Symlink);
                self.object = name;
            }
            _ => {
                let name = self.file()?;
                let Some(&Kind::File(size)) = self.tree.get(&name) else { return None };
                let (at, len) = (self.pick(&PLACES)?, self.pick(&LENGTHS)?);
                self.ops.push(Op::Fallocate(Some(path(&name)), at, len));
                self.tree.insert(name.clone(), Kind::File(size.max(at + len)));
                self.object = name;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Wide sequences have long names, exchanges of directories, directories that outgrow
    /// twelve blocks, and names that come back in directories made in them; the rest do not.
    #[test]
    fn some_sequences_are_wide() {
        let (mut longest, mut swapped, mut grown, mut back) = (0, 0, 0, 0);
        for number in 0..2000 {
            let ops = sequence(12, 7, number, true.into(), Kinds::All);
            let text: Vec<String> = ops.iter().map(Op::to_string).collect();
            let names = || text.iter().flat_map(|line| line.split([' ', '/']));
            let most = names().filter(|name| !name.contains("a-long-way")).map(str::len).max();
            let made: Vec<&str> =
                text.iter().filter_map(|line| line.strip_prefix("mkdir ")).collect();
            let is_made = |path: &str| made.iter().any(|dir| path.starts_with(&format!("{dir}/")));
            let swaps = text.iter().filter_map(|line| line.strip_prefix("exchange "));
            let dirs = swaps.filter(|line| {
                let mut both = line.split(' ');
                both.any(|path| made.contains(&path) || path == "A/sub")
            });
            let gone = |path: &str| {
                text.iter().any(|line| *line == format!("unlink {path}"))
                    || text.iter().any(|line| line.starts_with(&format!("rename {path} ")))
            };
            let opened: Vec<&str> =
                text.iter().filter_map(|line| line.strip_prefix("open ")).collect();
            let again = opened.iter().any(|path| is_made(path) && gone(path));
            let many = text.iter().filter(|line| line.contains("many")).count() > 50;
            if number % WIDE_ONES == WIDE_ONES - 1 {
                longest = longest.max(most.unwrap_or(0));
                swapped += dirs.count();
                grown += u64::from(many);
                back += u64::from(again);
            } else {
                assert!(most.unwrap_or(0) <= LONG && !many, "{number}");
            }
        }
        assert_eq!(longest, WIDEST);
        assert!(swapped > 2 && grown > 3 && back > 20, "{swapped} {grown} {back}");
    }

    #[test]
    fn sequences_are_functions_of_their_seed_and_hold_every_operation() {
        let text = |ops: Vec<Op>| ops.iter().map(|op| format!("{op}\n")).collect::<String>();
        let mut names = BTreeSet::new();
        let mut different = BTreeSet::new();
        for number in 0..300 {
            let ops = sequence(8, 7, number, true.into(), Kinds::All);
            assert_eq!(text(ops.clone()), text(sequence(8, 7, number, true.into(), Kinds::All)));
            names.extend(ops.iter().map(Op::name));
            different.insert(text(ops));
        }
        assert!(different.len() > 290, "{}", different.len());
        for name in [
            "open",
            "close",
            "mkdir",
            "rmdir",
            "unlink",
            "link",
            "symlink",
            "rename",
            "exchange",
            "write",
            "append",
            "truncate",
            "fallocate",
            "setxattr",
            "fsync",
            "sync",
            "writeback",
            "pass",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }
}
