//! The trees that experiments unpack and remove, generated from a seed.

mod walked;

use seekless_model::random::Random;
use seekless_units::ByteLen;
use serde::Deserialize;
use std::collections::HashSet;

/// A tree to be generated.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TreeSpec {
    /// A collection of ports as BSD systems have it: below `ports` some
    /// categories; in each, ports with a `Makefile`, `files/md5`, `pkg/COMMENT`,
    /// `pkg/DESCR`, `pkg/PLIST`, and most with `patches/patch-*`. Numbers are
    /// of all directories, the top one included, and all files.
    Ports {
        /// Directories.
        directories: u32,
        /// Files.
        files: u32,
        /// Directories below the top.
        categories: u32,
    },
    /// Directories in a row with as many files in each, as near as may be.
    Flat {
        /// Directories, the top one included.
        directories: u32,
        /// Files.
        files: u32,
        /// Bytes of each file.
        len: u64,
    },
    /// One directory with files of no bytes, whose names are 8 characters drawn from digits and
    /// letters; duplicates are left out.
    Keys {
        /// Names drawn.
        files: u32,
    },
    /// A program's source, or any other tree of which the numbers are known:
    /// directories within each other, files of log-normal lengths wherever they
    /// fall. Two of three are called `.c`, the others `.h`.
    Source {
        /// Directories, the top one included.
        directories: u32,
        /// Files.
        files: u32,
        /// Bytes of all files together.
        bytes: u64,
    },
    /// Sources of many programs, in the order in which an archive of them has it: each directory is
    /// followed by its entries, by name. Lengths are log-normal.
    Sources {
        /// Directories, the top one included.
        directories: u32,
        /// Files.
        files: u32,
        /// Bytes of all files together.
        bytes: u64,
    },
}

/// A file or directory, in the order of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which entry it lies in; `None` for the volume's root.
    pub parent: Option<usize>,
    /// Its name there.
    pub name: String,
    /// Its length; `None` for a directory.
    pub len: Option<ByteLen>,
}

impl TreeSpec {
    /// The error in the numbers.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        const MOST: u32 = 10_000_000;
        let (directories, files) = match *self {
            Self::Ports { directories, files, .. }
            | Self::Flat { directories, files, .. }
            | Self::Source { directories, files, .. }
            | Self::Sources { directories, files, .. } => (directories, files),
            Self::Keys { files } => (1, files),
        };
        if directories == 0 || directories > MOST {
            return Some(("directories", format!("not in the range 1 to {MOST}")));
        }
        if files > MOST {
            return Some(("files", format!("more than {MOST}")));
        }
        match *self {
            Self::Ports { categories, .. } => {
                let shape = PortsShape::new(directories, files, categories);
                shape
                    .is_none()
                    .then(|| ("directories", "impossible numbers for a ports tree".into()))
            }
            Self::Flat { len, .. } => {
                (len > 1 << 30).then(|| ("len", "more than a gigabyte".to_string()))
            }
            Self::Source { bytes, .. } | Self::Sources { bytes, .. } => {
                (bytes > 1 << 40).then(|| ("bytes", "more than a terabyte".to_string()))
            }
            Self::Keys { .. } => None,
        }
    }

    /// No tree.
    pub(crate) const fn none() -> Self {
        Self::Flat { directories: 0, files: 0, len: 0 }
    }

    /// One of several parts of as many directories, files and bytes as may be; `None` for
    /// a tree that is not divided, or has fewer directories than parts.
    pub(crate) fn part(&self, number: u32, of: u32) -> Option<Self> {
        let Self::Sources { directories, files, bytes } = *self else { return None };
        let share = |whole: u64| {
            let (number, of) = (u64::from(number), u64::from(of));
            whole / of + u64::from(number < whole % of)
        };
        let count = |whole: u32| share(whole.into()) as u32;
        let part = Self::Sources {
            directories: count(directories),
            files: count(files),
            bytes: share(bytes),
        };
        (directories >= of).then_some(part)
    }

    /// The tree's entries, each directory in front of its own entries.
    #[must_use]
    pub fn entries(&self, seed: u64) -> Vec<Entry> {
        if *self == Self::none() {
            return Vec::new();
        }
        match *self {
            Self::Ports { directories, files, categories } => {
                let shape = PortsShape::new(directories, files, categories);
                shape.map_or_else(Vec::new, |shape| shape.entries(seed))
            }
            Self::Flat { directories, files, len } => flat(directories, files, len),
            Self::Source { directories, files, bytes } => source(directories, files, bytes, seed),
            Self::Sources { directories, files, bytes } => {
                walked::walked(directories, files, bytes, seed)
            }
            Self::Keys { files } => keys(files, seed),
        }
    }
}

fn push(entries: &mut Vec<Entry>, parent: Option<usize>, name: String, len: Option<u64>) -> usize {
    entries.push(Entry { parent, name, len: len.map(ByteLen::new) });
    entries.len() - 1
}

/// The files of the last directories are one fewer where they do not come out even.
fn flat(directories: u32, files: u32, len: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    let top = push(&mut entries, None, "tree".into(), None);
    let inner = directories - 1;
    let places = inner.max(1);
    for at in 0..places {
        let dir = match inner {
            0 => top,
            _ => push(&mut entries, Some(top), format!("dir{at:03}"), None),
        };
        let count = files / places + u32::from(at < files % places);
        for file in 0..count {
            push(&mut entries, Some(dir), format!("file{file:05}"), Some(len));
        }
    }
    entries
}

/// Empty files with random names.
fn keys(files: u32, seed: u64) -> Vec<Entry> {
    const SIGNS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut chance = Random::new(seed);
    let mut known = HashSet::new();
    let mut entries = Vec::new();
    let top = push(&mut entries, None, "keys".into(), None);
    for _ in 0..files {
        let sign = |_| char::from(SIGNS[chance.below(SIGNS.len() as u64) as usize]);
        let name: String = (0..8).map(sign).collect();
        if known.insert(name.clone()) {
            push(&mut entries, Some(top), name, Some(0));
        }
    }
    entries
}

/// No directory lies deeper below the top than this.
const DEEPEST: u32 = 3;

/// Directories in any of those before, down to a depth; then the files of each.
fn source(directories: u32, files: u32, bytes: u64, seed: u64) -> Vec<Entry> {
    let mut chance = Random::new(seed);
    let mut within: Vec<(usize, u32)> = vec![(0, 0)];
    while within.len() < directories as usize {
        let at = chance.below(within.len() as u64) as usize;
        let depth = within[at].1 + 1;
        if depth <= DEEPEST {
            within.push((at, depth));
        }
    }
    let weights: Vec<f64> = (0..files).map(|_| length(&mut chance, 4096.0, 1.0) as f64).collect();
    let lens = shares(&weights, bytes);
    let mut entries = Vec::new();
    let mut dirs = vec![push(&mut entries, None, "source".into(), None)];
    for (number, &(parent, _)) in within.iter().enumerate().skip(1) {
        let parent = dirs[parent];
        dirs.push(push(&mut entries, Some(parent), format!("dir{number:02}"), None));
    }
    for (number, len) in lens.into_iter().enumerate() {
        let dir = dirs[chance.below(dirs.len() as u64) as usize];
        let kind = if number % 3 < 2 { 'c' } else { 'h' };
        push(&mut entries, Some(dir), format!("file{number:04}.{kind}"), Some(len));
    }
    entries
}

/// A whole divided by weights; the parts make the whole exactly.
fn shares(weights: &[f64], whole: u64) -> Vec<u64> {
    let all: f64 = weights.iter().sum();
    let (mut so_far, mut given) = (0.0, 0);
    let mut share = |weight: &f64| {
        so_far += weight;
        let until = ((so_far / all).min(1.0) * whole as f64).round() as u64;
        let part = until - given;
        given = until;
        part
    };
    weights.iter().map(&mut share).collect()
}

/// The numbers of categories, ports and patches of a ports tree.
struct PortsShape {
    categories: u32,
    ports: u32,
    /// Ports that have patches.
    patched: u32,
    patches: u32,
}

/// Of ports, how many have patches, in tenths: of OpenBSD's about six of ten do.
const PATCHED_TENTHS: u32 = 6;
/// Files that every port has.
const FIXED_FILES: u32 = 5;

impl PortsShape {
    fn new(directories: u32, files: u32, categories: u32) -> Option<Self> {
        let below = directories.checked_sub(1)?.checked_sub(categories)?;
        // Each port is a directory with two more, and a third if patched.
        let ports = below * 10 / (30 + PATCHED_TENTHS);
        let patched = below.checked_sub(ports * 3)?;
        let patches = files.checked_sub(ports * FIXED_FILES)?;
        let sound = categories > 0 && ports >= categories && patched <= ports && patches >= patched;
        (sound && (patched > 0 || patches == 0)).then_some(Self {
            categories,
            ports,
            patched,
            patches,
        })
    }

    fn entries(&self, seed: u64) -> Vec<Entry> {
        let mut chance = Random::new(seed);
        let patches = self.deal_patches(&mut chance);
        let mut in_category = vec![1u32; self.categories as usize];
        for _ in self.categories..self.ports {
            in_category[chance.below(u64::from(self.categories)) as usize] += 1;
        }
        let mut entries = Vec::new();
        let top = push(&mut entries, None, "ports".into(), None);
        let mut patches = patches.into_iter();
        for (number, ports) in in_category.into_iter().enumerate() {
            let category = push(&mut entries, Some(top), format!("category{number:02}"), None);
            for port in 0..ports {
                let patches = patches.next().unwrap_or(0);
                put_port(&mut entries, category, &format!("port-{port:03}"), patches, &mut chance);
            }
        }
        entries
    }

    /// How many patches each port has: some have none, the others one each, and the remaining
    /// patches are dealt to these by chance.
    fn deal_patches(&self, chance: &mut Random) -> Vec<u32> {
        let mut dealt = vec![0; self.ports as usize];
        let mut order: Vec<usize> = (0..dealt.len()).collect();
        chance.shuffle(&mut order);
        let patched = &order[..self.patched as usize];
        patched.iter().for_each(|&port| dealt[port] = 1);
        for _ in self.patched..self.patches {
            dealt[patched[chance.below(patched.len() as u64) as usize]] += 1;
        }
        dealt
    }
}

fn put_port(
    entries: &mut Vec<Entry>,
    category: usize,
    name: &str,
    patches: u32,
    chance: &mut Random,
) {
    let port = push(entries, Some(category), name.into(), None);
    let mut file = |entries: &mut Vec<Entry>, dir, name: &str, (median, spread): (f64, f64)| {
        let len = length(chance, median, spread);
        push(entries, Some(dir), name.into(), Some(len));
    };
    file(entries, port, "Makefile", sizes::MAKEFILE);
    let files = push(entries, Some(port), "files".into(), None);
    file(entries, files, "md5", sizes::MD5);
    if patches > 0 {
        let dir = push(entries, Some(port), "patches".into(), None);
        for number in 0..patches {
            file(entries, dir, &format!("patch-{number:02}"), sizes::PATCH);
        }
    }
    let pkg = push(entries, Some(port), "pkg".into(), None);
    file(entries, pkg, "COMMENT", sizes::COMMENT);
    file(entries, pkg, "DESCR", sizes::DESCR);
    file(entries, pkg, "PLIST", sizes::PLIST);
}

/// Lengths are log-normal: a median in bytes, and the standard deviation of
/// the logarithm. As ports trees of the time have them: most files below a
/// fragment, few above a block.
mod sizes {
    pub(super) const MAKEFILE: (f64, f64) = (900.0, 0.5);
    pub(super) const MD5: (f64, f64) = (170.0, 0.5);
    pub(super) const COMMENT: (f64, f64) = (45.0, 0.3);
    pub(super) const DESCR: (f64, f64) = (500.0, 0.7);
    pub(super) const PLIST: (f64, f64) = (500.0, 1.5);
    pub(super) const PATCH: (f64, f64) = (900.0, 1.0);
    /// No file is longer than this.
    pub(super) const MOST: f64 = 262_144.0;
}

/// A length with chance.
fn length(chance: &mut Random, median: f64, spread: f64) -> u64 {
    (median * with_spread(chance, spread)).clamp(1.0, sizes::MOST) as u64
}

/// Log-normal around one. The sum of twelve draws is nearly normal, and the same on every
/// machine.
fn with_spread(chance: &mut Random, spread: f64) -> f64 {
    let normal = (0..12).map(|_| chance.unit()).sum::<f64>() - 6.0;
    (spread * normal).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: TreeSpec = TreeSpec::Ports { directories: 6596, files: 13_868, categories: 50 };

    #[test]
    fn a_ports_tree_has_the_numbers_asked_for() {
        for seed in [1, 2] {
            let entries = PORTS.entries(seed);
            let directories = entries.iter().filter(|entry| entry.len.is_none()).count();
            assert_eq!((directories, entries.len() - directories), (6596, 13_868));
            for (at, entry) in entries.iter().enumerate() {
                assert!(entry.parent.is_none_or(|parent| parent < at));
            }
        }
        assert_eq!(PORTS.entries(1), PORTS.entries(1));
        assert_ne!(PORTS.entries(1), PORTS.entries(2));
    }

    #[test]
    fn most_files_are_small() {
        let entries = PORTS.entries(1);
        let lens: Vec<u64> =
            entries.iter().filter_map(|entry| entry.len).map(ByteLen::get).collect();
        let below = |bytes| lens.iter().filter(|len| **len <= bytes).count() as f64;
        let share = below(1024) / lens.len() as f64;
        assert!((0.6..0.9).contains(&share), "{share} fit in a fragment");
        assert!(below(8192) / lens.len() as f64 > 0.97);
    }

    #[test]
    fn a_flat_tree_is_even() {
        let entries = TreeSpec::Flat { directories: 28, files: 202, len: 0 }.entries(1);
        assert_eq!(entries.len(), 230);
        let in_dir =
            |dir| entries.iter().filter(|e| e.parent == Some(dir) && e.len.is_some()).count();
        let counts: Vec<usize> =
            (1..entries.len()).filter(|&at| entries[at].len.is_none()).map(in_dir).collect();
        assert_eq!(counts.len(), 27);
        assert!(counts.iter().all(|count| [7, 8].contains(count)));
    }

    #[test]
    fn a_source_has_the_bytes_asked_for() {
        let source = TreeSpec::Source { directories: 20, files: 70, bytes: 200_000 };
        let entries = source.entries(1);
        let lens: Vec<u64> =
            entries.iter().filter_map(|entry| entry.len).map(ByteLen::get).collect();
        assert_eq!((entries.len(), lens.len(), lens.iter().sum()), (90, 70, 200_000));
        assert!(entries.iter().enumerate().all(|(at, e)| e.parent.is_none_or(|p| p < at)));
        let deep =
            |entry: &Entry| std::iter::successors(entry.parent, |&p| entries[p].parent).count();
        assert!(entries.iter().any(|entry| entry.len.is_none() && deep(entry) > 1));
        assert_eq!(entries.iter().filter(|entry| entry.name.ends_with(".c")).count(), 47);
        assert_ne!(entries, source.entries(2));
        assert!(TreeSpec::Source { directories: 1, files: 0, bytes: 0 }.entries(1).len() == 1);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let ports = |directories, files, categories| {
            TreeSpec::Ports { directories, files, categories }.fault().is_some()
        };
        assert!(!ports(300, 700, 5));
        assert!(ports(300, 100, 5), "fewer files than the ports must have");
        assert!(ports(3, 100, 5), "fewer directories than categories");
        assert!(ports(0, 0, 0));
    }
}
