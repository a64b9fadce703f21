//! The names and contents of a volume.

use crate::holes;
use seekless_device::MemoryDevice;
use seekless_ext::FORMAT;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{ByteLen, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Makes the files of a volume: a directory of several blocks, a tree of directories, a
/// file whose extents need a block of their own, symlinks of both kinds, attributes.
pub(super) fn populate(at: &Path) {
    fs::create_dir_all(at.join("many")).expect("directory");
    for n in 0..40u32 {
        let name = at.join(format!("many/a-name-of-some-length-{n:02}"));
        fs::write(name, contents(n, 40 + n as usize * 67)).expect("file");
    }
    fs::create_dir_all(at.join("deep/er/still")).expect("directory");
    fs::write(at.join("deep/er/still/leaf"), contents(100, 5000)).expect("file");
    fs::write(at.join("deep/er/twig"), contents(101, 70)).expect("file");
    fs::write(at.join("deep/empty"), b"").expect("file");
    fs::hard_link(at.join("deep/er/twig"), at.join("deep/er/again")).expect("link");
    let holes = File::create(at.join("holes")).expect("file");
    for n in 0..40u32 {
        holes.write_all_at(&contents(200 + n, 1024), u64::from(n) * 4096).expect("write");
    }
    fs::write(at.join("large"), contents(300, 400_000)).expect("file");
    symlink("deep/er/twig", at.join("fast")).expect("symlink");
    symlink("many/".to_string() + &"x/".repeat(120), at.join("slow")).expect("symlink");
    let set = |name: &str, value: &str, path: &str| {
        let _ =
            Command::new("setfattr").args(["-n", name, "-v", value]).arg(at.join(path)).status();
    };
    set("user.note", "kept", "deep/er/twig");
    set("user.long", &"y".repeat(700), "large");
}

/// Bytes that no other file of the tree has.
fn contents(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u32 / 7 * 31 + seed * 101 + n as u32 % 251) as u8).collect()
}

/// An entry of the tree: kind and contents of the file with a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TreeEntry {
    kind: &'static str,
    bytes: Vec<u8>,
}

pub(super) struct Tree {
    by_path: BTreeMap<Vec<u8>, TreeEntry>,
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    /// The number of the inode that a path of a volume leads to.
    pub(super) fn ino(bytes: &[u8], path: &str) -> u32 {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let image = (FORMAT.open)(device, OpenOptions::default()).expect("a volume");
        seekless_fs::inspect::resolve(image.as_ref(), path.as_bytes()).expect("a path").get()
    }

    /// Whether anything of another tree is here under its name.
    pub(super) fn has_any_of(&self, other: &Self) -> bool {
        other.by_path.iter().any(|(path, held)| path != b"/lost+found" && self.has(path, held))
    }

    /// All names of a volume; `None` where it cannot be read.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let image = (FORMAT.open)(device, OpenOptions::default()).ok()?;
        let mut tree = Self { by_path: BTreeMap::new() };
        tree.walk(image.as_ref(), image.root(), b"").then_some(tree)
    }

    fn walk(&mut self, image: &dyn Inspect, dir: Ino, path: &[u8]) -> bool {
        let mut entries = Vec::new();
        let listed = image.read_dir(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino));
            ControlFlow::Continue(())
        });
        if listed.is_err() {
            return false;
        }
        for (name, ino) in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let path = [path, b"/", &name].concat();
            let Ok(attr) = image.attr(ino) else { return false };
            let mut bytes = Vec::new();
            let kind = match attr.kind {
                FileKind::Regular => {
                    bytes = vec![0; usize::try_from(attr.size.min(1 << 22)).expect("length")];
                    if image.read(ino, ByteLen::new(0), &mut bytes).is_err() {
                        return false;
                    }
                    "file"
                }
                FileKind::Symlink => {
                    let Ok(target) = image.read_link(ino) else { return false };
                    bytes = target;
                    "symlink"
                }
                FileKind::Directory => "directory",
                _ => "other",
            };
            if attr.kind == FileKind::Directory && !self.walk(image, ino, &path) {
                return false;
            }
            self.by_path.insert(path, TreeEntry { kind, bytes });
        }
        true
    }

    /// Whether a path leads to what it leads to in another tree, or the same with `~` and a
    /// number behind: of two equal names it cannot be told which one is right.
    fn has(&self, path: &[u8], held: &TreeEntry) -> bool {
        let second = [path, b"~"].concat();
        let mut renamed = self.by_path.range(second.clone()..);
        let is_renamed =
            |(path, other): (&Vec<u8>, &TreeEntry)| path.starts_with(&second) && other == held;
        self.by_path.get(path) == Some(held) || renamed.next().is_some_and(is_renamed)
    }

    /// Contents with the last parts of the paths that lead to them.
    fn names(&self) -> BTreeSet<(&[u8], &TreeEntry)> {
        let last = |path: &'_ Vec<u8>| path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.by_path.iter().map(|(path, held)| (&path[last(path)..], held)).collect()
    }

    /// What another tree still has of an original one, and this one has not: paths, then
    /// names, then contents under any name.
    pub(super) fn lost(&self, original: &Self, other: &Self) -> Vec<String> {
        let mut lost = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (path, held) in &original.by_path {
            // e2fsck makes a new one.
            if path == b"/lost+found" {
                continue;
            }
            if other.has(path, held) && !self.has(path, held) {
                lost.push(text(path));
            }
        }
        if !lost.is_empty() {
            return lost;
        }
        let (ours, theirs) = (self.names(), other.names());
        for name in original.names().into_iter().filter(|name| name.0 != b"/lost+found") {
            let is_renamed = |other: &(&[u8], &TreeEntry)| {
                other.1 == name.1 && other.0.starts_with(&[name.0, b"~"].concat())
            };
            let is_kept = ours.contains(&name) || ours.iter().any(is_renamed);
            if theirs.contains(&name) && !is_kept {
                lost.push(format!("name {}", text(name.0)));
            }
        }
        let held = |tree: &Self| tree.by_path.values().cloned().collect::<BTreeSet<TreeEntry>>();
        let (ours, theirs) = (held(self), held(other));
        for (path, held) in &original.by_path {
            if theirs.contains(held) && !ours.contains(held) {
                lost.push(format!("contents of {}", text(path)));
            }
        }
        lost
    }
}
